r"""Periodic orbits: fixed points of the return map; and the derivatives of a stride around one."""

import functools as ft
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Complex, Float, Int, PyTree

from .._flow.flow import flow_for
from .._flow.integrator import Integrators, pushable, rolled
from .._flow.jump import reset
from .._flow.trajectory import Arc
from .._numerics.eager import short_run
from .._numerics.eigenvalues import eigenvalues, inside_circle, set_apart
from .._numerics.trees import without_tangents
from .._results.registry import animate, draw
from .._results.shown import lanes, Shown
from .._system.results import choose, nan_unless, RESULTS
from .._system.system import HybridSystem
from .._system.types import Matrix, Params, require_kind, Scalar, State
from .._system.where import with_leaves
from .chain import Chain
from .footfalls import Footfalls, footfalls_of
from .implicit import closed_orbit
from .level import Family
from .manifold import Manifold, manifold_of
from .orbit_report import orbit_dataset, orbit_frame, orbit_table
from .problem import Problem, shifts_phase
from .return_map import ReturnMap
from .shooting import AbstractShooting, SearchLimits
from .stride import arcs_alike, run_stride, Stride
from .verdict import in_family, judged, orbit_multipliers

if TYPE_CHECKING:
    import pandas
    import xarray


class PeriodicOrbit(Shown):
    """A periodic orbit, $S^m(x) = x$, of `strides` ($m$) passes through `sequence`.

    **Attributes:** `x`: state just after the last jump, shape `(n,)`. `period`: the duration of all strides, in units of time.
    `multipliers`: eigenvalues of `return_jacobian`, shape `(n,)`, largest modulus first; those of the monodromy matrix, where
    the system depends on time and the guard that closes the orbit on the state: a jump at another time is one at another phase.
    `return_jacobian`: the Jacobian of the return map from section to section, shape `(n, n)`, which restarts the clock.
    `residual`: the largest component of `S^m(x) - x`, at most the method's `accept` relative to the largest state, times the
    derivative of the closing jump where that is above 1. `guard_rates`: in the guards' units per time, shape `(strides *
    arcs,)`, negative where the orbit crosses the guards' surfaces. `nodes`: the states just after the jumps that start the
    strides, shape `(strides, n)`, at the times `start_times`. `before`: the pre-impact states of these jumps, shape `(strides,
    m)`. `arc_ends`: for each arc of the sequence, the pre-impact states of the jumps that end it, shape `(strides, dimension
    of the mode)`. `jump_times`: the times of these jumps since the starts of their strides, shape `(strides, arcs)`.
    `iterations`: of Newton's method. `distance`: the largest component of the way from the guess to the orbit's states,
    relative to the largest component of either; zero where there was no guess. `result`: a code of `RESULTS`; unless `result`
    is `successful`, or `not_isolated` for one orbit of a family, the numbers are NaN, except `iterations` and `distance` (to the
    last iterate). Every number of an isolated orbit is differentiable in `params`; the derivative of `distance` is zero. Of an
    orbit that was found by a Krylov method, `multipliers` are the ten of largest modulus and `return_jacobian` has no rows, see
    `periodic_orbit`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> orbit.x.shape, orbit.return_jacobian.shape, bool(orbit.stable), bool(orbit.residual < 1e-14)
    ((2,), (2, 2), True, True)
    >>> print(f"{orbit.multipliers[0].real:.6f}")
    0.444444

    Source: Bhounsule (2014), Sec. 2.
    """

    x: State
    period: Scalar
    multipliers: Complex[Array, " multipliers"]
    return_jacobian: Float[Array, "rows n"]
    residual: Scalar
    guard_rates: Float[Array, " arcs"]
    nodes: Float[Array, "strides n"]
    start_times: Float[Array, " strides"]
    before: Float[Array, "strides m"]
    arc_ends: tuple[Float[Array, "strides _"], ...]
    jump_times: Float[Array, "strides arcs_of_stride"]
    iterations: Int[Array, ""]
    distance: Scalar
    result: RESULTS
    params: Params
    system: HybridSystem = eqx.field(static=True)
    sequence: tuple[str, ...] = eqx.field(static=True)
    strides: int = eqx.field(static=True)
    integrator: Integrators = eqx.field(static=True)

    def _tables(self):
        return (orbit_table(self),)

    def __len__(self) -> int:
        """The number of orbits in a batch; `TypeError` for one orbit."""
        if self.period.ndim == 0:
            raise TypeError("This is one orbit, not a batch of orbits.")
        return self.period.shape[0]

    def __getitem__(self, i) -> "PeriodicOrbit":
        """One orbit, or several, of a batch; `TypeError` for one orbit, `IndexError` for one that is not there."""
        return lanes(self, self.period, i, "one orbit, not a batch of orbits")

    @property
    def spectral_radius(self) -> Float[Array, "*batch"]:
        """The largest modulus of a multiplier."""
        return jnp.max(jnp.abs(self.multipliers), axis=-1)

    @property
    def stable(self) -> Bool[Array, "*batch"]:
        """Whether every multiplier lies inside the unit circle, by more than rounding; those of a `not_isolated` orbit do not.
        With `conserved` the family's own is not among them; the others of a conservative system may lie on the circle."""
        return inside_circle(self.multipliers) & (self.result != RESULTS.not_isolated)

    @property
    def mode_names(self) -> tuple[str, ...]:
        """The modes of the arcs of a stride: `sequence` without the numbers of guards in families."""
        return tuple(self.system.names[self.system.number(name)] for name in self.sequence)

    def sample(self, n_samples: int = 100) -> tuple[Arc, ...]:
        """States along each arc of the orbit, at `n_samples` equidistant times from its start to its end."""
        return tuple(
            Arc(mode, t, x)
            for node, start in zip(self.nodes, self.start_times, strict=True)
            for mode, (t, x) in zip(self.mode_names, arcs_of_stride(self, node, start, n_samples), strict=True)
        )

    def plot(self, model=None):
        """A figure of phase portrait, coordinates over time and multipliers; see `hyjax.plot.orbit_figure`."""
        return draw(self, model)

    def animate(self, model, **options):
        """An animation of a model along the orbit, for `hyjax.plot.save_animation`; see `hyjax.plot.animate_orbit`."""
        return animate(self, model, **options)

    def to_xarray(self, model=None) -> "xarray.Dataset":
        """All numbers as an `xarray.Dataset`, of a batch over the dimension `orbit`, counted from 1; parameters are coordinates.

        Multipliers are real and imaginary parts, which netCDF can store. **Arguments:** `model`: supplies units where the
        system names none. `ImportError` without xarray.
        """
        return orbit_dataset(self, model)

    def to_pandas(self) -> "pandas.DataFrame":
        """A row for each orbit, counted from 1, with its spectral radius, stability and result. `ImportError` without pandas."""
        return orbit_frame(self)

    @property
    def impact_times(self) -> Float[Array, " arcs"]:
        """The times of the jumps, from the orbit's start, shape `(strides * arcs,)`. `TypeError` for a batch of orbits."""
        if self.period.ndim:
            raise TypeError(f"This is a batch of {len(self)} orbits. Choose one, such as orbits[0].")
        # An orbit whose numbers were read from a file holds numpy arrays.
        return jnp.ravel(self.start_times[:, None] + self.jump_times)

    @property
    def step(self) -> ReturnMap:
        """The return map of which `x` is a fixed point."""
        return ReturnMap(self.system, sequence=self.sequence, strides=self.strides, integrator=self.integrator)

    def footfalls(self, legs: Sequence[str] | Mapping[str, Collection[str]] | None = None) -> Footfalls:
        """When the legs stand, their duty factors and phases, and the name of the gait.

        **Arguments:** `legs`: names of held coordinates that are positive while a leg stands, without their ending `_stands`; or
        a dictionary from legs to the modes in which they stand. By default the held coordinates with that ending, otherwise all
        held coordinates, as the contacts of `contact_system`. **Returns:** `Footfalls`. `ValueError` for what is neither, and
        where nothing is held; `TypeError` for a batch of orbits.
        """
        return footfalls_of(self, legs)

    def manifold(
        self,
        which: str | int | tuple[int, int],
        *,
        length: float,
        spacing: float | None = None,
        angle: float = 0.2,
        max_points: int = 4000,
        step: ReturnMap | None = None,
        throw: bool = True,
    ) -> Manifold:
        r"""The invariant manifold of a simple real multiplier on the section, a curve, or of two, a surface. $S(W(s)) = W(\mu s)$

        **Arguments:** `which`: `"stable"` or `"unstable"`, whose manifold is a surface where two of their multipliers are not
        zero, else that of the one of largest modulus; or the number of a multiplier, from 0, or of two, real or conjugate.
        `length`: the arclength of each half, or of a surface along each ray, in the units of the states. `spacing`: the largest
        distance of neighbouring points, by default `length / 100`, of a surface `length / 15`; `angle`: the largest angle between
        their directions or tangent planes, rad. `max_points`: of each half, or of the surface. `step`: the map by which it is
        continued, of which the orbit is a fixed point; by default that of the orbit, which has one sequence of modes: that of a
        `Section` or a `Stroboscope` takes whatever modes and jumps come. `throw`: raise a `SolveError` where no polynomial near
        the orbit is found, such as at a resonance, where two real multipliers are 2 and 4 = 2^2: then no map of the surface is
        linear in `s`, but each multiplier has a curve, `which=0`; with `False`, `result` holds the code.

        **Returns:** a `Manifold`, not differentiable. Where the map fails a half, or a ray, ends, with the code in `ends`.
        `ValueError` for arguments that cannot be used, such as a multiplier that is not simple, or two whose moduli differ by
        more than the factor 1000, and for states other than float64; `TypeError` for a batch of orbits.
        """
        return manifold_of(self, which, length, spacing, angle, max_points, step, throw)

    def monodromy(self) -> Matrix:
        """The monodromy matrix once around the orbit; see `ReturnMap`."""
        return self.step.monodromy(self.x, self.params, throw=False)


def orbit_of(
    problem: Problem,
    chain: Chain,
    jacobian: Float[Array, "rows n"],
    params: Params,
    integrator: Integrators,
    multipliers: Array,
    residual: Array,
    iterations: Array,
    result: RESULTS,
    distance: Array | None = None,
) -> PeriodicOrbit:
    """The periodic orbit from a solver's results; NaN unless the solver was successful, or the orbit is one of many."""
    nan = ft.partial(nan_unless, (result == RESULTS.successful) | (result == RESULTS.not_isolated))
    if isinstance(params, Family) and len(jacobian):
        multipliers = eigenvalues(set_apart(jacobian))
    return PeriodicOrbit(
        x=nan(chain.nodes[0]), period=nan(chain.period), multipliers=nan(multipliers), return_jacobian=nan(jacobian),
        residual=nan(residual), guard_rates=nan(chain.guard_rates), nodes=nan(chain.nodes), start_times=nan(chain.starts),
        before=nan(chain.before), arc_ends=jax.tree.map(nan, chain.arc_ends), jump_times=nan(chain.elapsed),
        iterations=iterations, distance=jnp.zeros_like(residual) if distance is None else distance,
        result=result, params=params, system=problem.system, sequence=problem.sequence,
        strides=problem.strides, integrator=integrator,
    )  # fmt: skip


# The last iterate of a search, successful or not: the states at the starts of the strides, their residual, and the number of
# iterations.
LastIterate = tuple[Float[Array, "strides n"], Scalar, Int[Array, ""]]


def distance_from(guess: Float[Array, "..."], nodes: Float[Array, "strides n"]) -> Scalar:
    """The largest component of the difference from a guess, of the start or of all nodes, relative to the largest component of
    both."""
    nodes = nodes if guess.ndim == 2 else nodes[0]
    size = jnp.maximum(jnp.max(jnp.abs(nodes)), jnp.max(jnp.abs(guess)))
    return jnp.max(jnp.abs(nodes - guess)) / jnp.where(size > 0, size, 1)


def run_orbit(
    problem: Problem,
    guess: State | Float[Array, "strides n"],
    params: Params,
    method: AbstractShooting,
    integrator: Integrators,
    near: Float[ArrayLike, ""] = jnp.inf,
    limits: SearchLimits | None = None,
    origin: State | None = None,
) -> tuple[PeriodicOrbit, LastIterate]:
    """`periodic_orbit` without the checks of its arguments, and the last iterate, also of a failure. `limits` may be traced.
    `origin`: the state from which the distance is measured, where that is not `guess`."""
    limited = integrator
    if limits is not None:
        # For an orbit that is computed once, compile time matters more than run time.
        limited, method = limits.imposed_on(rolled(integrator), method)
    found = closed_orbit(problem, guess, params, method, limited)
    values = eigenvalues(found.jacobian)
    multipliers = orbit_multipliers(problem, found.chain.nodes[0], values, params, limited)
    reached = without_tangents((found.chain.nodes, found.residual, found.iterations))
    distance = distance_from(jax.lax.stop_gradient(guess if origin is None else origin), reached[0])
    result = judged(
        problem, found.chain, found.jacobian, params, limited, found.result,
        accept=method.acceptable(limited, guess.dtype), size=jnp.max(jnp.abs(guess)), closing=found.closing,
        singular=in_family(values), guess=guess, far=~(distance <= near),
    )  # fmt: skip
    orbit = orbit_of(
        problem, found.chain, found.jacobian, params, integrator, multipliers, found.residual, found.iterations, result,
        distance,
    )  # fmt: skip
    return orbit, reached


@short_run
def arcs_of_stride(orbit: "PeriodicOrbit", x: State, t: Scalar, n: int):
    """For each arc of the stride from `x` at the time `t`: `n` times, and the states there."""
    integrator = rolled(orbit.integrator)
    through = run_stride(orbit.system, t, x, orbit.params, orbit.sequence, integrator)
    route, starts, ends = orbit.system.route(orbit.sequence), [(t, x)], [impact.t for impact in through.impacts]
    for index, impact in zip(route, through.impacts, strict=True):
        starts.append((impact.t, reset(orbit.system.way(index), impact.t, impact.x, orbit.params)))
    kinds = arcs_alike(orbit.system, orbit.sequence, route, integrator)
    arcs: list = [None] * len(route)
    for kind in dict.fromkeys(kinds):
        # Arcs of one kind are lanes of one program.
        numbers = [k for k, each in enumerate(kinds) if each == kind]

        def sampled(t, x, end, *, mode=orbit.sequence[kind]):
            times = jnp.linspace(t, end, n)
            at = lambda time: flow_for(orbit.system, mode, t, x, time, orbit.params, integrator)
            return times, jax.vmap(at)(times)

        rows = [(*starts[k], ends[k]) for k in numbers]
        times, states = jax.vmap(sampled)(*map(jnp.stack, zip(*rows, strict=True)))
        for row, k in enumerate(numbers):
            arcs[k] = times[row], states[row]
    return arcs


def require_one(orbit: PeriodicOrbit, caller: str) -> None:
    """`ValueError` for a batch of orbits, and for what is no orbit; its message begins with `caller`."""
    require_kind(
        orbit, PeriodicOrbit, caller, "the first argument", "a hj.PeriodicOrbit, as hj.periodic_orbit returns it"
    )
    if orbit.x.ndim > 1:
        raise ValueError(
            f"{caller}: this is a batch of {len(orbit)} orbits. Choose one, such as orbits[0], or use jax.vmap."
        )


def require_phase(orbit: PeriodicOrbit, caller: str) -> None:
    """`ValueError` where states near the orbit begin their next stride at another phase of the forcing: the state after a jump
    does not determine the next stride. The message begins with `caller`."""
    if shifts_phase(Problem(orbit.system, orbit.sequence, orbit.strides), orbit.params, orbit.x):
        raise ValueError(
            f"{caller}: the system depends on time, and the guard that closes the orbit on the state, so that the next stride "
            "may begin at another phase. Make the phase a coordinate of the state, with rate 1."
        )


def leaf_values(params: Params, free: tuple[int, ...], dtype) -> Float[Array, " free"]:
    """The parameters with the indices `free`."""
    leaves = jax.tree.leaves(params)
    return jnp.stack([jnp.asarray(leaves[i], dtype) for i in free])


def stride_derivatives(
    orbit: PeriodicOrbit, free: tuple[int, ...], read: Callable[[Stride], PyTree]
) -> tuple[PyTree, RESULTS]:
    """What is read of the stride, differentiated by the state at its start and by the parameters `free`: for each array that is
    read the pair of both Jacobians. And the code of the orbit, or of the stride."""
    integrator, start = pushable(orbit.integrator), jnp.zeros((), orbit.x.dtype)

    def end(x, values):
        params = with_leaves(orbit.params, free, values)
        through = run_stride(orbit.system, start, x, params, orbit.sequence * orbit.strides, integrator)
        return read(through), through.result

    by, flown = jax.jacfwd(end, argnums=(0, 1), has_aux=True)(orbit.x, leaf_values(orbit.params, free, orbit.x.dtype))
    return by, choose(orbit.result == RESULTS.successful, flown, orbit.result)
