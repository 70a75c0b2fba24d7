r"""Equilibria of the modes of a hybrid system, $f(x, p) = 0$: regular and virtual ones, those of sliding modes, and those on the
surface of a guard; and the orbits about a centre.

Where a mode slides along a surface $h = 0$, its flow $f_0$ keeps $h$, and $f_0 = 0$ has one equation too few. The equation is

$$f_0(x) + h(x)\,\frac{\nabla h}{|\nabla h|^2} = 0,$$

whose product with $\nabla h$ is $h = 0$; on the surface the flow of its left side is the sliding flow.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Complex, Float, Int

from .._flow.check import check_mode, check_params, check_state, sized
from .._flow.integrator import Integrator
from .._numerics.eager import short_run
from .._numerics.eigenvalues import eigenvalues, eigenvectors
from .._numerics.elimination import solve
from .._numerics.linearize import with_columns
from .._numerics.newton import newton
from .._orbit.level import Quantity
from .._orbit.orbit import PeriodicOrbit
from .._orbit.periodic_orbit import periodic_orbit
from .._orbit.return_map import ReturnMap
from .._results.failure import raise_failure
from .._results.shown import lanes, one_of_batch, Shown
from .._results.working import warn
from .._system.every import Clock
from .._system.filippov import Side
from .._system.results import choose, nan_unless, RESULTS
from .._system.section import Section
from .._system.system import Guard, HybridSystem, unchanged
from .._system.types import Matrix, Params, require_kind, Scalar, State, Time

# An equilibrium is one at these times too, of which no two are in the ratio of small whole numbers.
TIMES = (0.7390851332, 2.0287578381)


class Equilibrium(Shown):
    r"""An equilibrium of a mode, $f(x, p) = 0$, from `equilibrium`.

    **Attributes:** `x`: the state, shape `(n,)`. `eigenvalues`: of the flow at the equilibrium, in units of 1/time, largest real
    part first; without those of coordinates that are held, and of a sliding mode along the surface only. `jacobian`: of the
    equation, shape `(k, k)` for `k` flowing coordinates: $D_xf$, or for a sliding mode that of its equation. `limits`: the values
    of the mode's domain, then those of the guards that leave it, infinite for a guard that is not armed and for a clock; the mode
    is valid where none is negative. `residual`: the largest component of the equation. `iterations`: of Newton's method.
    `result`: a code of `RESULTS`; unless it is `successful` the numbers are NaN. `params`, `system`, `mode`.

    **Example:**

    >>> relay = hj.filippov(
    ...     {1: lambda t, x, p: jnp.stack([x[1], p - 1]), -1: lambda t, x, p: jnp.stack([x[1], p + 1])},
    ...     lambda t, x, p: x[0] + x[1],
    ...     ("x", "v"),
    ... )
    >>> rest = hj.phase.equilibrium(relay, "0", jnp.array([0.2, 0.1]), jnp.array(0.5))
    >>> print(rest.kind, rest.eigenvalues.real, bool(rest.stable))
    pseudo [-1.] True

    Source: di Bernardo, Budd, Champneys, Kowalczyk (2008), *Piecewise-smooth Dynamical Systems*, Sec. 5.1.
    """

    x: State
    eigenvalues: Complex[Array, " values"]
    jacobian: Matrix
    limits: Float[Array, " limits"]
    residual: Scalar
    iterations: Int[Array, ""]
    result: RESULTS
    params: Params
    system: HybridSystem = eqx.field(static=True)
    mode: str = eqx.field(static=True)

    def __getitem__(self, i) -> "Equilibrium":
        """One equilibrium, or several, of a batch; `TypeError` for one equilibrium."""
        return lanes(self, self.residual, i, "one equilibrium, not a batch of equilibria")

    @property
    def stable(self) -> Bool[Array, "*batch"]:
        """Whether every eigenvalue has a negative real part, by more than rounding: those of a centre have none."""
        largest = jnp.max(jnp.abs(self.eigenvalues), axis=-1, keepdims=True, initial=0)
        rounding = float(jnp.finfo(self.x.dtype).eps) ** 0.85
        return jnp.all(self.eigenvalues.real < -rounding * largest, axis=-1)

    @property
    def kind(self) -> str | np.ndarray:
        """`virtual` where a limit of the mode is negative: the field vanishes where the mode is not valid; `boundary` on the
        surface of a guard, or at a limit of the domain; else `pseudo` in a sliding mode, whose fields are antiparallel there, and
        `regular` in another. Of a batch an array."""
        size = on_surface(self.x) * np.maximum(1, np.max(np.abs(np.asarray(self.x)), axis=-1, keepdims=True))
        limits = np.asarray(self.limits)
        virtual, boundary = np.any(limits < -size, axis=-1), np.any(np.abs(limits) <= size, axis=-1)
        inside = "pseudo" if sliding_surfaces(self.system, self.mode) else "regular"
        kinds = np.where(virtual, "virtual", np.where(boundary, "boundary", inside))
        return kinds if kinds.ndim else str(kinds)

    def orbit(
        self,
        amplitude: float = 1e-2,
        *,
        conserved: Quantity,
        frequency: float | None = None,
        integrator: Integrator = Integrator(),
    ) -> PeriodicOrbit:
        r"""A small periodic orbit about a centre, of the family that Lyapunov's centre theorem gives: its period tends to
        $2\pi/\omega$ as its energy tends to that of the equilibrium. `continuation(orbit, stop=energy)` follows the family.

        The theorem needs a quantity that the flow conserves and a pair $\pm i\omega$ of which no other eigenvalue is a multiple;
        where another pair is one, a warning says that the orbit may be of no such family.
        The orbit crosses a plane through the equilibrium, and is that of `periodic_orbit(..., conserved=conserved)`.

        **Arguments:** `amplitude`: the largest distance from the equilibrium to first order, in units of the size of its state,
        or 1 where that is zero. `conserved`: $E(t, x, p)$. `frequency`: of several pairs that with the nearest $\omega$; by
        default the slowest. `integrator`: an `Integrator`.

        **Returns:** `PeriodicOrbit` with the value of the quantity as a parameter. `ValueError` where no pair is imaginary, up to
        1e-6 of the largest eigenvalue, and for a batch. A `SolveError` as of `periodic_orbit`.
        """
        one_of_batch("Equilibrium.orbit", self.residual, "equilibria")
        values = np.asarray(self.eigenvalues)
        near = 1e-6 * np.max(np.abs(values), initial=0)
        pairs = values[(np.abs(np.real(values)) <= near) & (np.imag(values) > near)]
        if not pairs.size:
            raise ValueError(f"Equilibrium.orbit: none of the eigenvalues {values} is one of an imaginary pair.")
        k = np.argmin(np.abs(np.imag(pairs) - (0 if frequency is None else frequency)))
        omega, others = np.imag(pairs[k]), np.imag(np.delete(pairs, k))
        multiples = others[(others > omega / 2) & (np.abs(others / omega - np.round(others / omega)) <= 1e-6)]
        if multiples.size:
            warn(
                f"Equilibrium.orbit: the frequency {multiples[0]:.6g} of another pair is {multiples[0] / omega:.0f} times "
                f"{omega:.6g}, so Lyapunov's theorem does not hold for this pair. Look whether the period of the orbit tends to "
                f"{2 * np.pi / omega:.6g} as the amplitude tends to zero."
            )
        right, left = critical_vectors(self.jacobian, jnp.asarray(pairs[k]))
        section = section_through(self.system, self.mode, self.x, left)
        push = right.real / jnp.max(jnp.abs(right.real))
        start = self.x.at[: push.size].add(amplitude * size_of(self.x) * push)
        step = ReturnMap(self.system, section=section, integrator=integrator)
        return periodic_orbit(step, start, self.params, conserved=conserved)


def equilibrium(
    system: HybridSystem, mode: str, guess: State, params: Params, *, max_iterations: int = 50, throw: bool = True
) -> Equilibrium:
    r"""The equilibrium of a mode to which Newton's method leads from a guess, $f(x, p) = 0$.

    **Arguments:** `system`, `mode`: a `HybridSystem` and the name of one of its modes; a sliding mode of `filippov` for a
    pseudo-equilibrium. `guess`: the state at which Newton's method starts, shape `(n,)`; coordinates that are held keep its
    values. `params`: a PyTree. `max_iterations`: of Newton's method, static. `throw`: raise a `SolveError` on failure; with
    `False`, `result` holds the code.

    **Returns:** `Equilibrium`, also under `jit` and `vmap`, differentiable in `params` to any order. Its `kind` is `regular`,
    `virtual`, `pseudo` or `boundary`; a virtual one is a result as another, since a branch may pass through it. `result` is
    `no_equilibrium` where Newton's method does not converge, and where the field is zero at time 0 alone. In a family of
    equilibria, as of a body that may stand anywhere, an eigenvalue is zero and the result is one near the guess. `ValueError` for
    arguments of a wrong shape or dtype.

    `continuation(equilibrium, where=..., stop=...)` follows it over a parameter, with its folds, Hopf points and boundary
    equilibria.

    **Example:**

    >>> spring = hj.Mode(lambda t, x, p: jnp.stack([x[1], -x[0] - 0.2 * x[1] - p]), coordinates=("y", "y_rate"))
    >>> off = hj.Transition("contact", "contact", lambda t, x, p: -x[0], lambda t, x, p: x)
    >>> rest = hj.phase.equilibrium(hj.HybridSystem({"contact": spring}, (off,)), "contact", jnp.zeros(2), jnp.array(1.0))
    >>> print(rest.x, rest.kind, f"{rest.eigenvalues[0]:.6f}")
    [-1.  0.] regular -0.100000+0.994987j

    Source: di Bernardo, Budd, Champneys, Kowalczyk (2008), Sec. 5.1; Filippov (1988), for pseudo-equilibria.
    """
    require_kind(system, HybridSystem, "equilibrium", "the first argument", "a hj.HybridSystem")
    params = check_params(params)
    x = check_state(guess, system.mode(mode).dimension, mode)
    zero = jnp.zeros((), x.dtype)
    system = sized(system, zero, x, params)
    check_mode(system, mode, zero, jax.ShapeDtypeStruct(x.shape, x.dtype), params)
    found = _found(system, mode, x, params, max_iterations)
    remedy = "With throw=False the code is in `result`."
    return raise_failure("equilibrium", found, remedy=remedy) if throw else found


@short_run
def _found(system: HybridSystem, mode: str, guess: State, params: Params, most: int) -> Equilibrium:
    k = flowing(system, mode)
    residual = lambda y: balance(system, mode, guess.at[:k].set(y), params)

    def search(residual, y):
        root = newton(
            lambda y: with_columns(lambda y: (residual(y), None), y), y, max_iterations=most, accept=rounding(y)
        )
        # Hazard: `custom_root` gives an integer beside the root an integer tangent.
        return root.y, root.iterations.astype(y.dtype)

    tangent = lambda linear, right: solve(jax.jacfwd(linear)(right), right)
    y, iterations = jax.lax.custom_root(residual, guess[:k], search, tangent, has_aux=True)
    found = equilibrium_at(system, mode, guess.at[:k].set(y), params)
    return dataclasses.replace(found, iterations=jax.lax.stop_gradient(iterations).astype(int))


@short_run
def equilibrium_at(
    system: HybridSystem, mode: str, x: State, params: Params, scale: Array | float = 0.0
) -> Equilibrium:
    """The record of an equilibrium at `x`, without further iterations. `scale`: the least size of the state."""
    scale = jnp.maximum(size_of(x), scale)
    k = flowing(system, mode)
    residual, jacobian, _ = with_columns(lambda y: (balance(system, mode, x.at[:k].set(y), params), None), x[:k])
    # At other times too: whether a field computes with the time does not say whether it depends on it.
    later = [balance(system, mode, x, params, time) for time in TIMES]
    largest = jnp.max(jnp.abs(jnp.stack([residual, *later])))
    # The terms of the equation are as large as they are one size of the state away.
    away = balance(system, mode, x.at[:k].add(scale), params)
    terms = jnp.max(jnp.where(jnp.isfinite(away), jnp.abs(away), 0), initial=0)
    size = jnp.maximum(jnp.max(jnp.abs(jacobian), initial=0) * scale, terms)
    sound = jax.lax.stop_gradient(largest <= rounding(x) * size)
    nan = lambda value: nan_unless(sound, value)
    return Equilibrium(
        x=nan(x), eigenvalues=nan(_eigenvalues(system, mode, x, jacobian, params)), jacobian=nan(jacobian),
        limits=nan(limits_of(system, mode, x, params)), residual=nan(largest), iterations=jnp.array(0),
        result=choose(sound, RESULTS.successful, RESULTS.no_equilibrium), params=params, system=system, mode=mode,
    )  # fmt: skip


def rounding(x: ArrayLike) -> float:
    """The largest residual of an equilibrium, relative to its terms."""
    return float(jnp.finfo(jnp.result_type(x)).eps) ** 0.6


def on_surface(x: ArrayLike) -> float:
    """A guard is on its surface below this, relative to the size of the state."""
    return max(1e-9, rounding(x))


def size_of(x: State) -> Scalar:
    """The largest coordinate, or 1 where that is zero up to rounding."""
    size = jnp.max(jnp.abs(x))
    return jnp.where(size > float(jnp.finfo(x.dtype).eps) ** 0.75, size, 1)


def flowing(system: HybridSystem, mode: str) -> int:
    """The number of coordinates of a mode that are not held."""
    return system.mode(mode).dimension - len(system.mode(mode).held)


def sliding_surfaces(system: HybridSystem, mode: str) -> list[Guard]:
    """The functions of the surfaces along which a mode slides."""
    side = system.mode(mode).domain
    if not isinstance(side, Side):
        return []
    return [surface for surface, sign in zip(side.flows.surfaces, side.signs.value, strict=True) if not sign]  # pyright: ignore


def balance(system: HybridSystem, mode: str, x: State, params: Params, time: float = 0.0) -> Array:
    """The left side of the equation of an equilibrium, of the flowing coordinates."""
    t, k = jnp.asarray(time, x.dtype), flowing(system, mode)
    rate = system.mode(mode).vector_field(t, x, params)[:k]
    for surface in sliding_surfaces(system, mode):
        value, up = jax.value_and_grad(lambda x, h=surface: jnp.asarray(h(t, x, params), x.dtype))(x)
        rate = rate + value * up[:k] / (up[:k] @ up[:k])
    return rate


def limits_of(system: HybridSystem, mode: str, x: State, params: Params, armed: bool = True) -> Array:
    """The values of a mode's domain, and of the guards that leave it; infinite for a clock, and if `armed` for a guard that is
    not."""
    t, domain, far = jnp.zeros((), x.dtype), system.mode(mode).domain, jnp.full((), jnp.inf, x.dtype)
    found = [] if domain is None else [*jnp.atleast_1d(domain(t, x, params))]
    for way in map(system.way, system.ways_out(mode)):
        value = far if isinstance(way.guard, Clock) else way.guard(t, x, params)
        found.append(value if way.armed is None or not armed else jnp.where(way.armed(t, x, params), value, far))
    return jnp.stack(found) if found else jnp.zeros(0, x.dtype)


def _eigenvalues(system: HybridSystem, mode: str, x: State, jacobian: Matrix, params: Params) -> Array:
    """The eigenvalues, largest real part first; those along the surfaces of a sliding mode."""
    surfaces, t, k = sliding_surfaces(system, mode), jnp.zeros((), x.dtype), len(jacobian)
    if surfaces:
        slope = lambda h: jax.grad(lambda x: jnp.asarray(h(t, x, params), x.dtype))(x)[:k]
        normals = jnp.stack([slope(h) for h in surfaces])
        onto = solve(normals @ normals.T, normals)
        along = jnp.eye(k, dtype=x.dtype) - normals.T @ onto
        # Those across are moved to where they are the largest.
        far = 2 * jnp.sum(jnp.abs(jacobian)) * jnp.arange(2, 2 + len(surfaces), dtype=x.dtype)
        jacobian = along @ jacobian @ along - normals.T @ (far[:, None] * onto)
    values = eigenvalues(jacobian)[len(surfaces) :]
    digits = jnp.sqrt(jnp.finfo(x.dtype).eps) * jnp.max(jnp.abs(values), initial=0)
    return values[jnp.lexsort((-values.imag, -jnp.round(values.real / jnp.where(digits > 0, digits, 1))))]


def critical_vectors(jacobian: Matrix, value: Complex[Array, ""]) -> tuple[Array, Array]:
    r"""Right and left eigenvectors of an eigenvalue, $Aq = \mu q$ and $pA = \mu p$, with $|q| = 1$, $pq = 1$, and the real part
    of $q$ as long as it can be; the largest entry real where that is the same for all phases."""
    right, left = (each[0] for each in eigenvectors(jacobian, value[None]))
    square, length, largest = jnp.sum(right**2), jnp.linalg.norm(right), right[jnp.argmax(jnp.abs(right))]
    half = jnp.angle(jnp.where(jnp.abs(square) > 1e-6 * length**2, square, largest**2)) / 2
    right = right * jax.lax.complex(jnp.cos(half) / length, -jnp.sin(half) / length)
    return right, left / (left @ right)


class Plane(eqx.Module):
    """A plane through a point, as the surface of a section: the imaginary part of $p(x - x_0)$, with the sign of a guard."""

    origin: tuple[float, ...] = eqx.field(static=True)
    normal: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, t: Time, x: State, params: Params) -> Scalar:
        k = len(self.normal)
        return -(x[:k] - jnp.array(self.origin, x.dtype)[:k]) @ jnp.array(self.normal, x.dtype)


def _onto(surfaces: tuple[Guard, ...], plane: Plane, t: Time, x: State, params: Params) -> State:
    """A reset on a plane, back to the surfaces along which a mode slides: its flow only keeps their functions."""
    normal = jax.grad(lambda x: plane(t, x, params))(x)
    for surface in surfaces:
        value, up = jax.value_and_grad(lambda x, h=surface: jnp.asarray(h(t, x, params), x.dtype))(x)
        up = up - normal * (normal @ up) / (normal @ normal)
        x = x - value * up / (up @ up)
    return x


def section_through(system: HybridSystem, mode: str, x: State, left: Complex[Array, " k"]) -> Section:
    """The section of a mode by the plane through an equilibrium `x` that orbits about it cross along the real part of the right
    eigenvector. **Arguments:** `left`: the left eigenvector."""
    plane = Plane(tuple(np.asarray(x).tolist()), tuple(np.asarray(left.imag).tolist()))
    surfaces = tuple(sliding_surfaces(system, mode))
    return Section(mode, plane, eqx.Partial(_onto, surfaces, plane) if surfaces else unchanged)
