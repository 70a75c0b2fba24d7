r"""Branches of equilibria over a parameter: folds, Hopf points, branch points and boundary equilibria.

| kind | test function |
|---|---|
| fold | the tangent's component along the parameter |
| hopf | $\prod_{i<j} (\mu_i + \mu_j)$ |
| branch-point | $\det$ of $dF$ bordered by the tangent |
| boundary | a limit of the mode: its domain, or a guard |

The zeros are located along the branch, see `location.py`; at a Hopf point, of the real part of the pair. There
$z' = i\omega z + c\,z|z|^2$ to third order, with

$$c = \tfrac12\,p\,\big(C(q, q, \bar q) + B(\bar q, h_{20}) + 2B(q, h_{11})\big), \quad h_{20} = (2i\omega - A)^{-1}B(q, q),
\quad h_{11} = -A^{-1}B(q, \bar q),$$

$Aq = i\omega q$, $pA = i\omega p$, $|q| = 1$, $pq = 1$, and the first Lyapunov coefficient is $\operatorname{Re} c / \omega$. The
pair moves with $\alpha' = \operatorname{Re} p\,(A_\lambda + B(\cdot, y_\lambda))\,q$, and to first order the orbits have
$|z|^2 = -\alpha'(\lambda - \lambda_0) / \operatorname{Re} c$.

At a boundary equilibrium the branch goes on, virtual on one side. If the mode to which the guard leads has an equilibrium there
too, each of both is valid on the side on which its own limit is positive: on opposite sides one turns into the other
(*persistence*), on the same side both meet and vanish (*nonsmooth fold*).

Source: Kuznetsov (2004), *Elements of Applied Bifurcation Theory*, Secs. 5.4, 10.2; di Bernardo, Budd, Champneys, Kowalczyk
(2008), *Piecewise-smooth Dynamical Systems*, ch. 5.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from .._flow.jump import reset
from .._numerics.eager import short_run
from .._numerics.elimination import det, solve
from .._orbit.orbit_report import shown_state
from .._results.registry import draw
from .._results.shown import computed_once, Shown
from .._results.table import Table, without_rounding
from .._system.results import described_code, RESULTS
from .._system.system import HybridSystem
from .._system.types import Params, Scalar
from .._system.where import with_leaves
from ..phase.equilibrium import (
    balance,
    critical_vectors,
    Equilibrium,
    equilibrium_at,
    flowing,
    limits_of,
    on_surface,
    rounding,
    size_of,
)
from .branch import Points
from .curve import Curve, PseudoArclength
from .location import crossing_between, Followed, Located, may_turn, Place, places_of, search, ZERO, zero_between
from .unfolding import Balance

KINDS: tuple[str, ...] = ("fold", "hopf", "branch-point", "boundary")
# Of a pair on the imaginary axis, a growth along the branch, in units of its frequency and of the way to `stop`, and a first
# Lyapunov coefficient, in units of the state's size, that are zero up to rounding.
FLAT = 1e-9


class HopfForm(NamedTuple):
    """The normal form at a Hopf point: the eigenvectors, `c`, the quadratic terms `h20`, `h11` of the centre manifold, the rate
    `growth` of the critical eigenvalue along the branch, and the rate `moved` of the equilibrium."""

    right: Complex[Array, " k"]
    left: Complex[Array, " k"]
    c: Complex[Array, ""]
    h20: Complex[Array, " k"]
    h11: Float[Array, " k"]
    growth: Complex[Array, ""]
    moved: Float[Array, " k"]


class EquilibriumPoint(Shown):
    r"""A special point on a branch of equilibria, from `EquilibriumBranch.special_points`, or of codimension two, from
    `EquilibriumLocus.special_points`.

    **Attributes:** `kind`: `fold`, `hopf`, `branch-point` or `boundary`; on a locus `cusp`, `bogdanov-takens`,
    `generalized-hopf`, `fold-hopf` or `double-hopf`. `value`: the parameter, in its own unit; on a locus both, shape `(2,)`.
    `equilibrium`: the `Equilibrium` there. `meaning`: in words, what is born there and on which side. `frequency`: $\omega$ of a
    Hopf point, in units of 1/time; NaN elsewhere. `coefficient`: at a Hopf point the first Lyapunov coefficient
    $\operatorname{Re} c/\omega$ for $|q| = 1$ (negative: supercritical), at a fold $b$ in $\xi' = b\xi^2$ for $|q| = 1$; NaN
    elsewhere. `beyond`: at a `boundary` the equilibrium of the mode to which the guard leads, if there is one. `residual`: the
    largest scaled residual of the equilibrium; at a `branch-point`, which is interpolated, up to 1e3 times that of other points.
    `form`: the whole `HopfForm`. `v`: scaled unknowns of the equation `unfolding`.

    **Example:**

    >>> field = lambda t, x, p: jnp.stack([p * x[0] - x[1] - x[0] ** 3, x[0] + p * x[1] - x[1] ** 3])
    >>> system = hj.HybridSystem({"flow": hj.Mode(field, ("x", "y"))}, ())
    >>> rest = hj.phase.equilibrium(system, "flow", jnp.zeros(2), jnp.array(-0.5))
    >>> (point,) = hj.continuation(rest, where=lambda p: p, stop=0.5).special_points
    >>> print(point.kind, f"{abs(point.value):.6f} {point.frequency:.6f} {point.coefficient:.6f}")
    hopf 0.000000 1.000000 -1.500000
    >>> print(point.meaning)
    supercritical: a stable periodic orbit for larger values

    Source: Kuznetsov (2004), Secs. 5.4, 10.2; di Bernardo, Budd, Champneys, Kowalczyk (2008), Secs. 5.2-5.3.
    """

    value: Float[Array, "*two"]
    equilibrium: Equilibrium
    frequency: Scalar
    coefficient: Scalar
    residual: Scalar
    v: Float[Array, " unknowns"]
    unfolding: Balance
    form: HopfForm | None
    beyond: Equilibrium | None
    kind: str = eqx.field(static=True)
    meaning: str = eqx.field(static=True)

    @property
    def values(self) -> np.ndarray:
        """The free parameters, in their own units: one on a branch, two on a locus."""
        return np.atleast_1d(self.value)

    def __str__(self) -> str:
        at = self.equilibrium
        x = shown_state(at.x, at.system, at.mode, at.params, self.unfolding.sizes)
        return f"{self.kind} at {self._at()}: x = ({', '.join(f'{each:+.10g}' for each in x)}); {self.meaning}"

    def _at(self) -> str:
        return ", ".join(f"{value:.13g}" for value in without_rounding(self.values, self.unfolding.scale))


class Equilibria(Points[EquilibriumPoint]):
    """Equilibria at the points of a curve: base of `EquilibriumBranch` and `EquilibriumLocus`."""

    @property
    def equilibria(self) -> Equilibrium:
        """All points as a batch of equilibria."""
        return computed_once(_equilibria_of, self)

    @property
    def x(self) -> np.ndarray:
        """States, shape `(points, n)`."""
        return np.asarray(self.equilibria.x)

    @property
    def eigenvalues(self) -> np.ndarray:
        """Eigenvalues, largest real part first, shape `(points, k)`."""
        return np.asarray(self.equilibria.eigenvalues)

    def _special_table(self) -> tuple[Table, ...]:
        """The special points that have been located, one in each row."""
        heads = ("special point", ", ".join(self.parameters), "meaning")
        rows = [(each.kind, each._at(), each.meaning) for each in self.located or ()]
        return (Table("", rows, heads),) if rows else ()


class EquilibriumBranch(Equilibria):
    r"""A branch of equilibria of a mode over a parameter $\lambda$, from `continuation`.

    **Attributes:** in the order along the curve, in the units of the system: `values` of the parameter, shape `(points,)`; `x`,
    states, `(points, n)`; `eigenvalues`, largest real part first, `(points, k)`; `stable`; `kinds`, as `Equilibrium.kind`: a
    branch goes on where its equilibria are virtual; `residuals`, scaled. `equilibria`: the same points as a batch of
    `Equilibrium`. `parameter`: its name. `special_points`: folds, Hopf points, branch points and boundary equilibria.
    `unresolved`: intervals in which the number of eigenvalues that grow changes, and no special point was located. `result`.
    `unfolding`, `curves`, `accept`, `method`: the scaled equation, its curves in all directions, the
    largest residual, and the method of `continuation`.

    Under `jit` and `vmap` a branch is a PyTree of fixed shapes, and reading its points is a `TypeError`: return it, then read
    them. `branch[i]` is one branch of a batch.

    **Example:**

    >>> field = lambda t, x, p: p - x**2
    >>> system = hj.HybridSystem({"flow": hj.Mode(field, ("x",))}, ())
    >>> rest = hj.phase.equilibrium(system, "flow", jnp.array([1.2]), jnp.array(1.0))
    >>> branch = hj.continuation(rest, where=lambda p: p, stop=(-1.0, 2.0))
    >>> for point in branch.special_points:
    ...     print(point.kind, f"{abs(point.value):.6f}", point.meaning)
    ...
    fold 0.000000 two equilibria for larger values, none for smaller ones

    Source: Kuznetsov (2004), ch. 10.
    """

    unfolding: Balance
    curves: Curve  # one in each direction
    accept: Scalar
    method: PseudoArclength = eqx.field(static=True)

    @property
    def stable(self) -> np.ndarray:
        """Whether all eigenvalues have negative real parts; shape `(points,)`."""
        return np.asarray(self.equilibria.stable)

    @property
    def kinds(self) -> np.ndarray:
        """`regular`, `virtual`, `pseudo` or `boundary`; shape `(points,)`."""
        return np.asarray(self.equilibria.kind)

    def _search(self) -> tuple[list[EquilibriumPoint], tuple[tuple[float, float], ...]]:
        curve = Followed(self.unfolding, len(self.curves.count), self.method, self.accept, _witness)
        points, unresolved = search(curve, places_of(curve, self._points), _expected, _located, _explains)
        return _each_once(points), unresolved

    def plot(self, coordinate: str | None = None, ax=None):
        """Draw a coordinate over the parameter; see `hyjax.plot.equilibrium_diagram`."""
        return draw(self, coordinate, ax)

    def _tables(self):
        if self.accept.ndim:
            return (Table(f"{self.accept.size} branches of equilibria", []),)
        values, start = without_rounding(self.values, self.unfolding.scale), self.unfolding.start
        kinds = ", ".join(f"{np.sum(self.kinds == kind)} {kind}" for kind in dict.fromkeys(self.kinds.tolist()))
        rows = [
            (
                self.parameter,
                f"{values[0]:.10g} to {values[-1]:.10g}, between {values.min():.10g} and {values.max():.10g}",
            ),
            ("kinds", kinds),
            ("stable", f"{int(self.stable.sum())} of {len(self)} points"),
            ("result", described_code(self.result)),
        ]
        # Their search takes little computation.
        _ = self.special_points
        whole = Table(f"Branch of equilibria: {len(self)} points, mode {start.mode}", rows, notes=self._notes())
        return (whole, *self._special_table())


@short_run
def _equilibria(equation: Balance, v: Array) -> Equilibrium:
    return jax.vmap(lambda v: equilibrium_on(equation, v))(v)


def _equilibria_of(found: Equilibria) -> Equilibrium:
    return _equilibria(found.unfolding, jnp.asarray(found._points["v"]))


def equilibrium_on(equation: Balance, v: Array) -> Equilibrium:
    """The equilibrium at a point of a curve; on a locus it may be at the origin."""
    return equation.at(v, 0.0 if len(equation.free) == 1 else equation.state_scale)


# Special points


Flip = tuple[str, int]  # the kind of a test function, and its number among those of the kind


def _expected(curve: Followed, places: list[Place], k: int) -> tuple[list[Flip], bool]:
    """The test functions with a zero in the interval after the place `k`; and whether no other may have one."""
    a, b = places[k], places[k + 1]
    flips = [(kind, int(i)) for kind in KINDS for i in np.flatnonzero((a.tests[kind] >= 0) != (b.tests[kind] >= 0))]
    # Where no pair crosses the axis there is a neutral saddle.
    flips = [flip for flip in flips if flip[0] != "hopf" or (_growth(a).real >= 0) != (_growth(b).real >= 0)]
    ends = ((a, b),) * (k == 0) + ((b, a),) * (k == len(places) - 2)
    # At an end of the branch the sign may be that of rounding.
    flips += [(kind, 0) for kind in ("hopf", "branch-point") if any(_is_zero(kind, *pair) for pair in ends)]
    steady = {*KINDS[:3]} - {kind for kind, _ in flips}
    turns = any(may_turn(places, k, lambda place, kind=kind: float(place.tests[kind][0]), 1e-3) for kind in steady)
    return list(dict.fromkeys(flips)), not turns


def _located(curve: Followed, a: Place, b: Place, flips: list[Flip]) -> Located:
    equation, found, missed = curve.equation, [], False
    for kind, i in flips:
        value = lambda place, kind=kind, i=i: float(_growth(place).real if kind == "hopf" else place.tests[kind][i])
        place = crossing_between(curve, a, b, 1) if kind == "branch-point" else zero_between(curve, a, b, value)
        if place is None or equation.at(jnp.asarray(place.near.v)).result != RESULTS.successful:
            missed = True
        elif point := _point(equation, kind, i, place):
            found.append((place.s, point))
    halved = not missed and not _explains([point for _, point in found], a, b)
    return Located(found, halved, missed)


def _is_zero(kind: str, end: Place, other: Place) -> bool:
    """Whether a test function is zero at one of two points, up to rounding, and not at the other."""
    here, there = (abs(_growth(each).real if kind == "hopf" else each.tests[kind][0]) for each in (end, other))
    return bool(here < ZERO * there < np.inf)


def _growth(place: Place) -> complex:
    """The scaled complex eigenvalue next to the imaginary axis, above it; infinite where there is none."""
    above = place.values[np.imag(place.values) > 0]
    return complex(min(above, key=lambda value: abs(value.real), default=np.inf))


def _explains(points: list[EquilibriumPoint], a: Place, b: Place) -> bool:
    """Whether special points may change the number of eigenvalues that grow as it changes between two places. An eigenvalue next
    to zero counts as either."""
    rates = np.real([a.values, b.values])
    near = max(1e-7, rounding(rates)) * np.max(np.abs(rates), initial=1e-300)
    least = np.sum(rates[1] > near) - np.sum(rates[0] > -near)
    most = np.sum(rates[1] > -near) - np.sum(rates[0] > near)
    changes = {0}
    for point in points:
        steps = {"hopf": (-2, 2), "fold": (-1, 1), "branch-point": (-1, 0, 1)}.get(point.kind, (0,))
        changes = {change + step for change in changes for step in steps}
    return any(least <= change <= most for change in changes)


def _each_once(points: list[EquilibriumPoint]) -> list[EquilibriumPoint]:
    """The points without those that are another: the same limit of the domain and of a guard, or, where two branches cross, the
    extremum of the parameter along one of them."""
    kept: list[EquilibriumPoint] = []
    for point in sorted(points, key=lambda point: point.kind == "fold"):
        same = [each for each in kept if np.max(np.abs(np.asarray(each.v - point.v))) < 1e-7]
        if not any(each.kind == point.kind or {each.kind, point.kind} == {"fold", "branch-point"} for each in same):
            kept.append(point)
    return [point for point in points if any(point is each for each in kept)]


@short_run
def _witness(equation: Balance, v: Array, jacobian: Array, tangent: Array) -> tuple[dict[str, Array], Array]:
    """The test functions at a point, by kind, shape `(functions,)`, and the scaled eigenvalues."""
    found = equation.at(v)
    values = found.eigenvalues * equation.time_scale.astype(found.eigenvalues.dtype)
    sums = values[:, None] + values[None, :]
    product = jnp.prod(sums[np.triu_indices(len(sums), 1)]).real[None] if len(sums) > 1 else jnp.ones(1, v.dtype)
    crossing = det(jnp.concatenate([jacobian, tangent[None]]))[None]
    return dict(zip(KINDS, (tangent[-1:], product, crossing, _limits(equation, v)), strict=True)), values


def _limits(equation: Balance, v: Array) -> Array:
    """The limits of the mode, those that are not armed too."""
    x, values = equation.split(v)
    return limits_of(equation.start.system, equation.start.mode, x, equation.params_at(values), armed=False)


def _point(equation: Balance, kind: str, limit: int, place: Place) -> EquilibriumPoint | None:
    """The special point at a place; `None` for a guard that is not armed there."""
    v, residual = jnp.asarray(place.near.v), jnp.asarray(place.near.residual)
    _, (value,) = equation.split(v)
    found, nan = equation.at(v), jnp.full((), jnp.nan, v.dtype)
    frequency, coefficient, form, beyond = nan, nan, None, None
    if kind == "hopf":
        frequency = _growth(place).imag / equation.time_scale
        form = hopf_form(equation, v, frequency)
        coefficient = form.c.real / frequency
        if not abs(form.growth.real) * equation.scale[0] > FLAT * frequency:
            return None  # The pair stays on the axis, as of a conservative system.
        apart = np.abs(np.abs(np.asarray(found.eigenvalues.imag)) - float(frequency)) + np.abs(found.eigenvalues.real)
        decays = bool(np.all(found.eigenvalues.real[np.argsort(apart)[2:]] < 0))
        meaning = _of_hopf(float(coefficient), float(form.growth.real), decays, float(size_of(found.x)))
    elif kind == "fold":
        coefficient, push = map(float, fold_form(equation, v))
        meaning = "two equilibria for {} values, none for {} ones".format(*_sides(-push * coefficient))
        coefficient = jnp.asarray(coefficient, v.dtype)
    elif kind == "branch-point":
        meaning = "another branch of equilibria crosses"
    else:
        if not np.isfinite(found.limits[limit]):
            return None
        beyond, meaning = _beyond(found, found.params, equation.free, limit)
    return EquilibriumPoint(
        value, found, frequency, coefficient, residual, v, equation, form, beyond, kind=kind, meaning=meaning
    )


def _shifted(matrix: Array, omega: Scalar) -> Array:
    r"""$A - i\omega I$."""
    return jax.lax.complex(matrix, -omega * jnp.eye(len(matrix), dtype=matrix.dtype))


def _sides(sign: float) -> tuple[str, str]:
    return ("larger", "smaller") if sign > 0 else ("smaller", "larger")


def _of_hopf(coefficient: float, growth: float, others_decay: bool, size: float) -> str:
    if abs(coefficient) * size**2 < FLAT:
        return "degenerate: the first Lyapunov coefficient is zero, as where there is a centre, and decides nothing"
    side, _ = _sides(-growth * coefficient)
    name = "supercritical" if coefficient < 0 else "subcritical"
    stable = "a stable" if coefficient < 0 and others_decay else "an unstable"
    return f"{name}: {stable} periodic orbit for {side} values"


def _rate(equation: Balance, v: Array):
    """The equation in the units of the system, `(y, value) -> rate`; and the point."""
    start = equation.start
    x, (value,) = equation.split(v)

    def rate(y, value):
        return balance(start.system, start.mode, x.at[: y.size].set(y), equation.params_at(value[None]))

    return rate, x[: v.size - 1], value


@short_run
def hopf_form(equation: Balance, v: Array, omega: Scalar) -> HopfForm:
    """The normal form at a Hopf point, in units of the system."""
    rate, y, value = _rate(equation, v)
    A, by_value = jax.jacfwd(rate, argnums=(0, 1))(y, value)
    second, mixed = jax.jacfwd(jax.jacfwd(rate), argnums=(0, 1))(y, value)
    third = jax.jacfwd(jax.jacfwd(jax.jacfwd(rate)))(y, value)
    q, p = critical_vectors(A, jax.lax.complex(jnp.zeros_like(omega), omega))
    qb = jnp.conj(q)
    B = lambda a, b: jnp.einsum("ijk,j,k->i", second.astype(q.dtype), a.astype(q.dtype), b.astype(q.dtype))
    h20, h11 = solve(-_shifted(A, 2 * omega), B(q, q)), -solve(A, B(q, qb).real)
    c = p @ (jnp.einsum("ijkl,j,k,l->i", third.astype(q.dtype), q, q, qb) + B(qb, h20) + 2 * B(q, h11)) / 2
    moved = -solve(A, by_value)
    return HopfForm(q, p, c, h20, h11, p @ (mixed.astype(q.dtype) @ q + B(q, moved)), moved)


@short_run
def fold_form(equation: Balance, v: Array) -> tuple[Scalar, Scalar]:
    """`b` and $p f_\\lambda$ at a fold, in units of the system."""
    rate, y, value = _rate(equation, v)
    A, by_value = jax.jacfwd(rate, argnums=(0, 1))(y, value)
    q, p = (each.real for each in critical_vectors(A, jax.lax.complex(*jnp.zeros((2,), A.dtype))))
    sign = jnp.sign(q[jnp.argmax(jnp.abs(q))])
    q, p = sign * q, sign * p
    second = jax.jvp(lambda y: jax.jvp(lambda y: rate(y, value), (y,), (q,))[1], (y,), (q,))[1]
    return p @ second / 2, p @ by_value


# Boundary equilibria


def _beyond(found: Equilibrium, params: Params, free: tuple[int, ...], limit: int) -> tuple[Equilibrium | None, str]:
    """The equilibrium of the mode to which a guard that is zero leads, and what happens to both."""
    system, size = found.system, on_surface(found.x) * size_of(found.x)
    _, own = _limits_and_rates(system, found.mode, found.x, params, free)
    for way in map(system.way, system.ways_out(found.mode)):
        zero = jnp.zeros((), found.x.dtype)
        armed = way.armed is None or bool(way.armed(zero, found.x, params))
        if way.target == found.mode or not armed or not jnp.abs(way.guard(zero, found.x, params)) <= size:
            continue
        other = equilibrium_at(system, way.target, reset(way, zero, found.x, params), params)
        if other.result != RESULTS.successful:
            continue
        limits, rates = map(np.asarray, _limits_and_rates(system, way.target, other.x, params, free))
        at_limit = np.abs(limits) <= size
        if not np.any(at_limit):
            return other, f"mode {way.target!r} has an equilibrium there that is valid on both sides"
        this, that = float(own[limit]), float(rates[at_limit][0])
        if this * that < 0:
            before, after = (found.mode, way.target) if this < 0 else (way.target, found.mode)
            return (
                other,
                f"persistence: an equilibrium of mode {before!r} for smaller values, of {after!r} for larger ones",
            )
        return other, "nonsmooth fold: equilibria of modes {!r} and {!r} for {} values, none for {} ones".format(
            found.mode, way.target, *_sides(this)
        )
    return None, f"no equilibrium of another mode for {_sides(float(own[limit]))[1]} values"


@short_run
def _limits_and_rates(system: HybridSystem, mode: str, x: Array, params: Params, free: tuple[int, ...]):
    """The limits of a mode at an equilibrium, and how fast they change with the parameter along its branch."""
    k = flowing(system, mode)
    (value,) = (jnp.asarray(jax.tree.leaves(params)[i], x.dtype) for i in free)
    at = lambda value: with_leaves(params, free, value[None])
    A, by_value = jax.jacfwd(lambda y, value: balance(system, mode, x.at[:k].set(y), at(value)), argnums=(0, 1))(
        x[:k], value
    )
    limits = lambda y, value: limits_of(system, mode, x.at[:k].set(y), at(value), armed=False)
    return jax.jvp(limits, (x[:k], value), (-solve(A, by_value), jnp.ones_like(value)))
