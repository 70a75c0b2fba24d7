r"""Special points of a branch: detected by the sign change of a test function, located as zeros of functions along the branch.

| kind | test function | located as zero of |
|---|---|---|
| fold | the tangent's component along the parameter | the same |
| period-doubling | $\det(D + I)$ | the same |
| neimark-sacker | $\prod_{i<j} (\mu_i \mu_j - 1)$ | $\lvert\mu\rvert - 1$ of the complex multiplier next to the circle |
| branch-point | $\det$ of $dF$ bordered by the tangent | $g$ of this matrix, interpolated |
| with $r$ multipliers 1 | their number above 1 | the same with $g$ of shape $(r, r)$ |
| grazing | none: the branch ends | the guard is zero at its extremum, or by symmetry its rate, see `grazing.py` |
| corner | none: the branch ends | the guard is zero at the start of an arc, see `grazing.py` |
| swap | none: the branch ends | the duration of an arc, or the time to a guard at its end, is zero, extrapolated |
| grazing-, adding-sliding | none: the branch ends | as grazing, of a Filippov system |
| crossing-, switching-sliding | none: the branch ends | the field beyond a surface is tangent to it at the end of an arc |
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from .._flow.check import warn_of_kinks
from .._numerics.eager import long_run
from .._numerics.eigenvalues import eigenvalues
from .._numerics.elimination import det
from .._numerics.newton import newton, Root
from .._orbit.chain import Chain
from .._orbit.level import Family
from .._orbit.orbit import orbit_of, PeriodicOrbit
from .._orbit.orbit_report import shown_state
from .._results.failure import raise_failure
from .._results.registry import diagrams
from .._results.shown import computed_once, Shown
from .._results.table import without_rounding
from .._system.every import Clock
from .._system.filippov import border_of, is_tangency, leads_in
from .._system.results import code_of
from .._system.types import Scalar
from .curve import Near, PseudoArclength, Stop
from .grazing import AtTouch, possible_touches, solve_grazing, TOGETHER, Touch, two_fall
from .invariant_circle import invariant_circles, InvariantCircles
from .isotropy import APART, checked_symmetries, fixed_axes, isotropies
from .nonsmooth_normal_form import nonsmooth_form, NonsmoothForm
from .normal_form import normal_form, NormalForm
from .unfolding import Unfolding

if TYPE_CHECKING:
    from .branch import Branch

# A branch that ends where two events fall together ends nearer to it than so many of its shortest steps. Points nearer than steps
# of this length are extrapolated.
SWAP, NEAREST = 16, 1e-7
# Below this scaled rate along the branch a guard counts as constant.
STILL = 1e-6
KINDS = ("fold", "period-doubling", "neimark-sacker", "branch-point")


class SpecialPoint(Shown):
    r"""A bifurcation or grazing orbit on a branch: $F(y, \lambda) = 0$ with the condition of its `kind`.

    **Attributes:** `kind`: one of `fold`, `period-doubling`, `neimark-sacker`, `branch-point`, `grazing`, `corner`, `swap`; in a
    Filippov system also `grazing-sliding`, `adding-sliding`, `crossing-sliding`, `switching-sliding`. `value`: the parameter, in
    its own unit. `orbit`: the `PeriodicOrbit` there. `multiplier`: the critical multiplier: 1, -1 or one of a pair on the unit
    circle. `eigenvector`: its eigenvector, a variation of the pre-impact state, shape `(n,)`, length 1. `residual`: the
    largest residual of the orbit, in units of the state's size, or the smallest singular value of the critical matrix, whichever
    is larger; at a `branch-point`, which is interpolated, the orbit's may be 1e3 times that of other points. `v`,
    `tangent`: scaled unknowns, tangent of the branch.
    `kernel`: null vectors of the singular matrix. `jacobian`: dF. `unfolding`: the equation `F`. `symmetries`: those given by
    `with_symmetries`, else `None`.

    On a locus, of codimension two, the kinds are those of `Locus.special_points`; `values` are both parameters, `value` is the
    first, and `multiplier` is that of a pair where there is one.

    At `grazing` one multiplier is infinite on the side where the guard is crossed, and no multiplier is critical: `multiplier`
    and `eigenvector` are NaN; so is the orbit's return Jacobian, which differs between both sides. The orbit's multipliers are
    those of the side that misses the guard. `touch`: the guard that is touched, and the arc; `touch.of_rate` where by symmetry
    three crossings of a section are one, beyond which the orbits go on by another section. At a `corner` an arc begins on the
    surface of a guard, and the multipliers are those of the branch. Where a branch of a Filippov system with one surface ends
    because its sliding arcs appear, vanish or divide, `kind` says how; the return map is continuous there, and its multipliers
    are not. At a `swap` two events fall together, and beyond they follow each other in the other order: `switch_branch` follows
    the branch there, `beyond` is the orbit at a small distance as extrapolated, and `multiplier` and `eigenvector` are NaN.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 1.0]), coordinates=("size", "clock"))
    >>> births = lambda t, x, p: jnp.stack([p["rate"] * x[0] * (1 - x[0]) - p["caught"], 0 * x[1]])
    >>> herd = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[1], births),))
    >>> params = {"rate": jnp.array(2.9), "caught": jnp.array(0.0)}
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(herd, sequence=("year",)), jnp.array([0.6, 0.0]), params)
    >>> branch = hj.continuation(orbit, where=lambda p: p["rate"], stop=3.2)
    >>> (point,) = branch.special_points
    >>> print(point.kind, f"{point.value:.6f} {point.multiplier.real:.6f}")
    period-doubling 3.000000 -1.000000
    >>> two, four = point.cascade(doublings=2, stop=3.5)
    >>> print(f"{two.special_points[0].value:.6f}, {1 + jnp.sqrt(6):.6f}", four.orbits.strides)
    3.449490, 3.449490 4

    Source: Kuznetsov (2004), Secs. 10.2-10.3.
    """

    value: Scalar
    orbit: PeriodicOrbit
    multiplier: Complex[Array, ""]
    eigenvector: Complex[Array, " n"]
    residual: Scalar
    v: Float[Array, " unknowns"]
    tangent: Float[Array, " unknowns"]
    kernel: Float[Array, "rows unknowns"]  # of the singular matrix; at a branch point with the parameter
    jacobian: Float[Array, "k unknowns"]
    unfolding: Unfolding
    kind: str = eqx.field(static=True)
    touch: Touch | None = None
    beyond: PeriodicOrbit | None = None
    symmetries: dict[str, Float[np.ndarray, "n n"]] | None = None

    @property
    def daughters(self) -> np.ndarray:
        """The directions of the branches that cross at a branch point, in the scaled unknowns `v`, shape `(daughters, k + 1)`,
        each once and without the branch itself: the solutions of $F = 0$ on a small sphere about the point in the
        kernel. None where no branch crosses. Where events in step part, each half of a branch that has another order of events
        than the other half is a daughter by itself.

        Where the terms of lowest order leave all directions alike, as those of third order do for two equal modes in a system
        with the symmetry of a hexagon, directions are taken from a wider sphere, up to a tenth of the state's size; where higher
        orders do not tell them apart there either, as of a mass that is alike in all directions, those that a symmetry keeps, of
        `with_symmetries` or of the exchanges of labels of `isotropies`, and without one `ValueError`."""
        if self.kind != "branch-point":
            return np.zeros((0, self.v.size))
        if (found := computed_once(found_daughters, self)) is None:
            raise ValueError(
                f"daughters: the directions of the branches that leave the branch point at {float(self.value):.10g} are "
                f"undetermined: up to the distance {WIDER[-1]} of the state's size the solutions next to it differ by rounding, "
                "and no symmetry keeps one direction. Give one that does, such as a reflection, by "
                "point.with_symmetries({name: matrix}), or break the continuous symmetry."
            )
        return found

    def with_symmetries(self, symmetries: Mapping[str, Float[Array | np.ndarray, "n n"]]) -> "SpecialPoint":
        r"""The same point, of whose return map symmetries are known: `daughters` and `isotropies` use these instead of those that
        are found.

        **Arguments:** `symmetries`: by name, matrices $M$ with $P(M x) = M P(x)$ for the states $x$ of the map, shape `(n, n)`;
        also their products count. **Returns:** `SpecialPoint`. `ValueError` for a matrix that moves the orbit at the point or
        does not commute with its return Jacobian, and for more than 1000 products.
        """
        return dataclasses.replace(self, symmetries=checked_symmetries(self, symmetries))

    def isotropies(
        self, symmetries: Mapping[str, Float[Array | np.ndarray, "n n"]] | None = None
    ) -> dict[int, tuple[str, ...]]:
        r"""One of the `daughters` out of each set of those that symmetries of the return map take into each other, by its number
        for `switch_branch`, and the symmetries that it keeps.

        **Arguments:** `symmetries`: as for `with_symmetries`. By default those given there, else the exchanges of labels in the
        names of coordinates, such as of `left` and `right` or of `x0` and `x1`, called `"left <> right"`, under which vector
        fields, guards and resets prove the same to rounding at random states near the orbit, also at another value of the
        parameter; none for a system without symmetry.

        **Returns:** for each number the names of the symmetries $M x = x$ of the states of this branch, but the identity;
        products as `"one * other"`. `ValueError` as for `with_symmetries`, and for a matrix that takes a daughter to none of
        them.

        Source: Golubitsky, Stewart, Schaeffer (1988), *Singularities and Groups in Bifurcation Theory* II, ch. XIII.
        """
        return isotropies(self, symmetries)

    @property
    def values(self) -> np.ndarray:
        """The free parameters, in their own units: one on a branch, two on a locus."""
        return np.asarray(self.unfolding.split(self.v)[1])

    @property
    def normal_form(self) -> NormalForm | NonsmoothForm:
        """What the return map does near the point: coefficients, criticality, and a predictor of the orbits that leave it. At
        grazing, grazing-sliding and corners, what it does on both sides; of another end of the branch, and where events in
        step part or are swapped, `ValueError`. A warning where the vector field has a kink, as of `jnp.maximum`."""
        if self.touch is not None:
            return nonsmooth_form(self.kind, self.unfolding, self.v, self.touch)
        around = (self.v + way * RADIUS * row for row in self.kernel for way in (1, -1))
        if self.kind == "swap" or len({self.unfolding.sequence_met(each) for each in around}) > 1:
            raise ValueError(
                "normal_form: events in step part here, or are swapped: the return map has no second derivative."
            )
        orbit = self.orbit
        warn_of_kinks(
            self.unfolding.problem.system, orbit.sequence, jnp.zeros_like(orbit.period), orbit.x, orbit.params
        )
        rank = len(self.kernel) - 1 if self.kind == "branch-point" else 1
        return normal_form(self.kind, self.unfolding, self.v, self.jacobian, self.orbit.multipliers, self.tangent, rank)

    def cascade(
        self, *, doublings: int, stop: float, method: PseudoArclength = PseudoArclength()
    ) -> "tuple[Branch, ...]":
        r"""Follow a cascade of period doublings: the branch of orbits with twice as many strides, then four times, ...

        The first branch ends at `stop`. The next doubling is expected at the distance $(\lambda_k - \lambda_{k-1}) / \delta$ from
        the doubling $\lambda_k$; each later branch ends at 1.5 times this distance. $\delta$: Feigenbaum's constant.

        **Arguments:** `doublings`: the number of branches. `stop`: value of the parameter, in its own unit. `method`: as for
        `continuation`. **Returns:** the branches, fewer than `doublings` where one of them has no period doubling of its own;
        states of shape `(points, n)`. `ValueError` for a point of another kind.

        Source: Feigenbaum (1978), *Quantitative universality for a class of nonlinear transformations*, J. Stat. Phys. 19, 25-52.
        """
        return diagrams().cascade_of(self, doublings, stop, method)

    def invariant_circles(
        self,
        *,
        stop: Stop,
        amplitude: float | None = None,
        n_angles: int = 63,
        method: PseudoArclength = PseudoArclength(),
        throw: bool = True,
    ) -> InvariantCircles:
        r"""The invariant circles that are born at a Neimark-Sacker point, followed over the parameter while they are smooth.

        **Arguments:** `stop`: the value of the parameter, in its own unit, at which to end, or bounds `(low, high)`. `amplitude`:
        of the first circle, in units of the state's size; by default at most 0.05, and so small that its parameter is not
        further than a tenth of the way to `stop`. `n_angles`: odd, the number of states on a circle, static. `method`: as for
        `continuation`. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.

        **Returns:** `InvariantCircles`. `stop_not_reached` where the circles are on the other side; `orbit_not_converged` where a
        circle is no longer smooth: its Fourier coefficients of high order are not below 1e-6 of the largest, as where the map
        locks to a resonance. `ValueError` at a point of another kind. Source: Kuznetsov (2004), Sec. 7.3.
        """
        if self.kind != "neimark-sacker":
            raise ValueError(
                f"invariant_circles: circles are born at a neimark-sacker point, not at a {self.kind} point."
            )
        form = self.normal_form
        assert isinstance(form, NormalForm)
        if form.kind != self.kind:
            raise ValueError(f"invariant_circles: the multipliers at this point are those of a {form.kind} point.")
        found = invariant_circles(self.unfolding, form, stop, amplitude, n_angles, method)
        remedy = "Beyond the last circle, in the attribute `result` of this error, give more n_angles, or stop before."
        return raise_failure("invariant_circles", found, remedy=remedy) if throw else found

    def _shown(self) -> tuple[np.ndarray, np.ndarray]:
        """The `values` and the state as they are shown: what is rounding in its own unit is zero."""
        old, orbit = self.unfolding, self.orbit
        x = shown_state(orbit.x, orbit.system, orbit.sequence[0], orbit.params, old.sizes)
        return without_rounding(self.values, old.scale), x

    def __str__(self) -> str:
        values, x = self._shown()
        values, x = (", ".join(map(form, each)) for form, each in (("{:.13g}".format, values), ("{:+.10g}".format, x)))
        return (
            f"{self.kind} at {values}: x = ({x}), period {float(self.orbit.period):.10g}, "
            f"{self.orbit.strides} stride(s), residual {float(self.residual):.1e}"
        )

    def _tables(self):
        from .branch_report import special_points_table

        return (special_points_table((self,)),)


def test_functions(unfolding: Unfolding, jacobian: Array, tangent: Array, multipliers: Array) -> dict[str, Array]:
    """The test functions at a point, whose sign changes show special points. `jacobian`: dF, shape `(k, k + 1)`."""
    pairs = multipliers[:, None] * multipliers[None, :] - 1
    upper = np.triu_indices(multipliers.size, 1)
    tests = {
        "fold": tangent[-1],
        "period-doubling": det(unfolding.shifted(jacobian, -1.0)),
        "neimark-sacker": jnp.prod(pairs[upper]).real,
        "branch-point": det(jnp.concatenate([jacobian, tangent[None]])),
    }
    if isinstance(unfolding.params, Family):
        # The distance may have an extremum, and dF lose rank, where no multiplier passes 1.
        tests |= {"fold": jnp.ones_like(tests["fold"]), "branch-point": det(unfolding.shifted(jacobian, 1.0))}
    return tests


@long_run
def point_on(unfolding: Unfolding, near: Near, multiplier: Array) -> SpecialPoint:
    """The special point at a point of a curve, where `multiplier` is critical, without its `kind`."""
    orbit, v, dF = unfolding.orbit(near.v, near.aux), near.v, near.jacobian
    _, sizes, rows = jnp.linalg.svd(unfolding.shifted(dF.astype(multiplier.dtype), multiplier))
    null = jnp.conj(rows[-1])
    at_start = _complex(null[: unfolding.dimension])
    _, values = unfolding.split(v)
    return SpecialPoint(
        value=values[0], orbit=orbit, multiplier=_complex(multiplier),
        eigenvector=at_start / _complex(jnp.linalg.norm(at_start)), residual=jnp.maximum(near.residual, sizes[-1]), v=v,
        tangent=near.tangent, kernel=jnp.append(null.real, jnp.zeros(values.size))[None], jacobian=dF, unfolding=unfolding,
        kind="",
    )  # fmt: skip


def _complex(x: Array) -> Array:
    return x if jnp.iscomplexobj(x) else jax.lax.complex(x, jnp.zeros_like(x))


# Of the spheres on which the daughters of a branch point are looked for, in scaled units: the radius, and those for directions
# that are undetermined there, as errors may turn them by more than this angle. The number of starts for each dimension of the
# kernel.
RADIUS, WIDER, TURNED, STARTS = 1e-3, (1e-2, 3e-2, 1e-1), 1e-2, 32
# Scaled singular values above this are those of directions that terms of the lowest order determine; the largest turn in another
# one, and the number of turns on a wider sphere, and from there to a smaller one.
STRONG, TURN, TURNS = 0.03, 0.1, (12, 4)


def found_daughters(point: SpecialPoint) -> np.ndarray | None:
    """See `SpecialPoint.daughters`; None where their directions are undetermined."""
    count = len(point.kernel)
    axes = np.array([each for each in itertools.product((-1, 0, 1), repeat=count) if any(each)], float)
    starts = np.concatenate([axes, np.random.default_rng(0).standard_normal((STARTS * count, count))])
    kernel, tangent = np.asarray(point.kernel), np.asarray(point.tangent)
    unit = lambda ways: ways / np.linalg.norm(ways, axis=-1, keepdims=True)
    inside = unit(kernel @ tangent)
    # Two halves of one branch may bend to one side: they are told apart at right angles to the known branch.
    across = lambda ends: ends - np.outer(ends @ inside, inside)

    def ends_of(solve: Callable, unfolding: Unfolding, starts: np.ndarray, *more: Array) -> tuple[np.ndarray, bool]:
        """The ends beside the known branch, in the kernel, and whether directions are undetermined: on a wider sphere they are
        where there is none."""
        u, converged, loose = map(np.asarray, solve(unfolding, point.v, point.kernel, jnp.asarray(unit(starts)), *more))
        ends = u @ kernel.T
        kept = converged & (np.linalg.norm(across(ends), axis=1) > APART * np.linalg.norm(ends, axis=1))
        return ends[kept], bool(np.any(loose[kept]) or (solve is _nearest and not np.any(kept)))

    def spread(ends: np.ndarray) -> np.ndarray:
        """So many of the ends, or these repeatedly, as one program takes."""
        return ends[np.linspace(0, len(ends) - 1, len(starts) // 2).round().astype(int)]

    ends = []
    for unfolding in point.unfolding.orders():
        radii, turns, wider = jnp.array([RADIUS, *WIDER], point.v.dtype), jnp.array(TURNS), 0
        first, loose = ends_of(_on_sphere, unfolding, starts, radii[0])
        here = first
        # Where the terms of lowest order leave directions alike, those of higher orders count farther from the point.
        while loose and wider < len(WIDER):
            wider += 1
            here, loose = ends_of(_nearest, unfolding, spread(first), radii[wider], turns[0])
        if loose:
            lines = fixed_axes(point)
            apart: list[np.ndarray] = []
            for way in unit(across(here)):
                apart += [way] * all(np.linalg.norm(way - each) >= APART for each in apart)
            # So few are multiple solutions: equations of third order have no more without a continuum.
            if len(lines) or len(apart) >= 3 ** (count - 1):
                here, wider = np.concatenate([lines, -lines]), 1
        for radius in radii[:wider][::-1]:
            if len(here):
                here, _ = ends_of(_nearest, unfolding, spread(here), radius, turns[1])
        if wider and not len(here):
            return None
        ends += [(end, unfolding) for end in here]
    found: list[np.ndarray] = []
    ways: list[tuple[np.ndarray, tuple[str, ...]]] = []
    for end, unfolding in ends:
        (way,) = unit(across(end[None]))
        if not any(np.linalg.norm(way - each) < APART for each, _ in ways):
            met, number = unfolding.sequence_met(np.asarray(point.v) + RADIUS * end @ kernel), point.orbit.system.number
            if [*map(number, met)] != [*map(number, unfolding.problem.sequence)]:
                continue
            opposite = [order for each, order in ways if np.linalg.norm(way + each) < APART]
            ways.append((way, met))
            if met not in opposite:
                found.append(end / np.linalg.norm(end))
    return np.array(found).reshape(-1, count) @ kernel


def _sphere(unfolding: Unfolding, v: Array, kernel: Array, starts: Array, radius: Array) -> tuple[Callable, Array]:
    """The equation of the solutions of F = 0 at the distance `radius` from a branch point in its kernel, from the point, in units
    of the radius, with its matrix twice; and the rounding of its residual."""
    unfolding = unfolding.rolled()
    # In the kernel F is of second order in the radius, or of third by symmetry; the sphere's equation of order one.
    # From some starts guards are not met in the order of the sequence.
    size = jnp.nanmax(jax.lax.map(lambda u: jnp.max(jnp.abs(unfolding.residual(v + radius * u @ kernel)[0])), starts))
    rounding = 10 * sum(unfolding.integrator.tolerances(v.dtype))
    size = jnp.maximum(size, rounding)

    def evaluate(u):
        residual, dF, _ = unfolding.evaluate(v + radius * u)
        along = kernel @ u
        rows = jnp.append(residual / size, (along @ along - 1) / 2)
        matrix = jnp.concatenate([dF * (radius / size), (along @ kernel)[None]])
        return rows, matrix, matrix

    return evaluate, rounding / size


@long_run
def _on_sphere(
    unfolding: Unfolding, v: Array, kernel: Array, starts: Array, radius: Array
) -> tuple[Array, Array, Array]:
    """The solutions on a sphere in the kernel, each from a start on it, whether Newton's method found them, and whether errors
    leave their directions undetermined."""
    evaluate, rounding = _sphere(unfolding, v, kernel, starts, radius)

    def one(start):
        root = newton(evaluate, start @ kernel, max_iterations=30, accept=1e-6 + rounding)
        least = jnp.linalg.svd(root.aux, compute_uv=False)[-1]
        return root.y, root.converged, rounding > TURNED * least

    # One after another: those that miss a guard run to the end of its time, and a batch would wait for them in each iteration.
    return jax.lax.map(one, starts)


@long_run
def _nearest(
    unfolding: Unfolding, v: Array, kernel: Array, starts: Array, radius: Array, turns: Array
) -> tuple[Array, Array, Array]:
    """As `_on_sphere`, where terms of the lowest order leave directions alike: of the steps of Newton's method the parts along
    these are short, and taken when the others have converged; in directions that errors leave undetermined there is none."""
    evaluate, rounding = _sphere(unfolding, v, kernel, starts, radius)

    def step(k, at):
        rows, matrix, _ = evaluate(at[0])
        left, sizes, right = jnp.linalg.svd(matrix)
        moves = sizes > jnp.where(k % 3 == 2, rounding / TURNED, STRONG)
        along = jnp.where(moves, left.T @ rows, 0) / jnp.where(moves, sizes, 1)
        return at[0] - right.T @ jnp.clip(along, -TURN, TURN), jnp.max(jnp.abs(rows)), sizes[-1]

    def one(start):
        u, residual, least = jax.lax.fori_loop(0, 3 * turns, step, (start @ kernel, rounding, rounding))
        loose = rounding > TURNED * least
        return u, residual <= jnp.where(loose, 1e-6, TURNED * least) + rounding, loose

    return jax.lax.map(one, starts)


def locate_grazing(
    unfolding: Unfolding, orbit: PeriodicOrbit, v: Array, tangent: Array, accept: Array
) -> SpecialPoint | None:
    """The grazing orbit or the corner near the last point `v` of a branch and its `orbit`, or None if there is none."""
    n = unfolding.dimension
    v, tangent = (jnp.append(each[:n], each[-1]) for each in (v, tangent))
    for touch in possible_touches(orbit)[:3]:
        root = solve_grazing(unfolding, touch, v, accept, jnp.array(12))
        if touch.brief and not _vanishes(touch, *root.aux[1:]):
            touch = dataclasses.replace(touch, brief=False)
            root = solve_grazing(unfolding, touch, v, accept, jnp.array(12))
        if not root.converged or not jnp.max(jnp.abs(root.y - v)) < 0.1:
            continue
        _, chain, (t, x, image, _) = root.aux
        if touch.of_rate and not _crosses_thrice(unfolding, touch, root.y, chain, t, x):
            continue
        if (touch.at_start or touch.at_border) and not jnp.abs(root.aux[0][-1] @ tangent) > STILL:
            # The guard is zero at the start of the arc, or the border at its end, all along the branch.
            continue
        miss = missing(touch, x, image)
        columns = root.aux[0] if miss is touch else solve_grazing(unfolding, miss, root.y, accept, jnp.array(1)).aux[0]
        near = Near(root.y, tangent, columns[:n], root.residual, root.aux[1], root.converged)
        return grazing_point(unfolding, _kind_of_end(unfolding, touch, root), touch, near, root.iterations)
    return None


def locate_swap(
    unfolding: Unfolding, near: dict, far: dict, points: dict, orbit: Callable[..., PeriodicOrbit],
    nearer: Callable[..., Near], shortest: float,
) -> SpecialPoint | None:  # fmt: skip
    """The orbit in which two events fall together, so that the arc between them vanishes, or a guard falls at the end of an arc
    after which it is not met, beyond the last point `near` of a branch by no more than steps of the length `shortest`, from the
    line through that point and the point `far` before it; or `None`. **Arguments:** `points`: all points. `orbit`: of unknowns
    and strides. `nearer`: the point of the branch near unknowns, by a tangent."""
    # Of events in step, which are together all along the branch, rounding decides.
    chain, middle = points["aux"], len(points["v"]) // 2
    lasting = np.diff(chain.elapsed, axis=-1, prepend=0) > TOGETHER * np.asarray(chain.period)[:, None, None]
    left = _times_left(unfolding, jax.tree.map(lambda each: each[middle], points))
    lasts = np.append(np.any(lasting, axis=0), np.isfinite(left) & (left > TOGETHER * chain.period[middle]), axis=-1)
    spans = lambda point: np.append(
        np.diff(point["aux"].elapsed, axis=-1, prepend=0), _times_left(unfolding, point), axis=-1
    )
    while True:
        durations, before = spans(near), spans(far)
        known = lasts & np.isfinite(before) & np.isfinite(durations)
        shrinks = np.subtract(before, durations, out=np.zeros_like(before), where=known)
        share = float(np.min(np.where(shrinks > 0, durations / np.where(shrinks > 0, shrinks, 1), np.inf)))
        step = float(np.linalg.norm(near["v"] - far["v"]))
        if not share * step < SWAP * shortest:
            return None
        if share * step < SWAP * max(NEAREST, 16 * float(np.finfo(near["v"].dtype).eps)):
            break
        found = nearer(near["v"] + 0.9 * share * (near["v"] - far["v"]), near["tangent"])
        if not found.found:
            return None
        # The next one is nearer, or there is none.
        shortest, far, near = share * step / SWAP, near, found._asdict()

    def at(share: float) -> tuple[Array, Chain]:
        line = lambda a, b: a + share * (a - b) if np.issubdtype(a.dtype, np.floating) else a
        return jax.tree.map(lambda a, b: jnp.asarray(line(a, b)), *((each["v"], each["aux"]) for each in (near, far)))

    v, chain = at(share)
    here, nan = orbit(unfolding, v, chain), jnp.full((), jnp.nan, v.dtype)
    stride, k = divmod(int(np.argmin(np.where(known, durations, np.inf))), durations.shape[-1])
    arcs = durations.shape[-1] // 2
    if not two_fall(here, stride * arcs + (k - 1 if k < arcs else k - arcs)):
        return None
    outward = jnp.asarray(near["tangent"] * np.sign(near["tangent"] @ (near["v"] - far["v"])), v.dtype)
    _, values = unfolding.split(v)
    return SpecialPoint(
        value=values[0], orbit=here, multiplier=_complex(nan), eigenvector=_complex(jnp.full(unfolding.dimension, nan)),
        residual=here.residual, v=v, tangent=jnp.asarray(near["tangent"]), kernel=outward[None],
        jacobian=jnp.asarray(near["jacobian"]), unfolding=unfolding, kind="swap",
        beyond=orbit(unfolding, *at(share + RADIUS / step)),
    )  # fmt: skip


def _times_left(unfolding: Unfolding, point: dict) -> Float[np.ndarray, "strides arcs"]:
    """For each arc the time that is left at its end until another guard of its mode falls, to first order; infinite for none."""
    problem, chain = unfolding.problem, jax.tree.map(jnp.asarray, point["aux"])
    params = unfolding.params_at(unfolding.split(jnp.asarray(point["v"]))[1])
    system, sequence = problem.system, problem.sequence
    left = np.full(chain.elapsed.shape, np.inf)
    for k, (name, taken) in enumerate(zip(sequence, system.route(sequence), strict=True)):
        for e in system.ways_out(name):
            way, field = system.way(e), system.mode(name).vector_field
            if e == taken or isinstance(way.guard, Clock):
                continue
            for stride, x in enumerate(chain.arc_ends[k]):
                t = chain.starts[stride] + chain.elapsed[stride, k]
                along = jnp.ones_like(t), field(t, x, params)
                value, rate = jax.jvp(lambda t, x, way=way: way.guard(t, x, params), (t, x), along)
                if value > 0 and rate < 0 and (way.armed is None or way.armed(t, x, params)):
                    left[stride, k] = min(left[stride, k], float(-value / rate))
    return left


def _vanishes(touch: Touch, chain: Chain, at_touch: AtTouch) -> bool:
    """Whether the arc after the touch begins and ends there: its guard is zero, and does not rise."""
    rising = chain.guard_rates[touch.arc + 1] * chain.period / touch.next_size
    return bool((jnp.abs(at_touch[3]) < 1e-8) & (rising < 1e-6))


def _crosses_thrice(unfolding: Unfolding, touch: Touch, v: Array, chain: Chain, t: Scalar, x: Array) -> bool:
    """Whether the guard is zero, too, where its rate is zero at an extremum."""
    params = unfolding.params_at(unfolding.split(v)[1])
    guard = unfolding.problem.system.way(touch.transition).guard(t, x, params)
    return bool(jnp.abs(guard) <= float(jnp.finfo(x.dtype).eps) ** 0.5 * touch.size * chain.period)


def missing(touch: Touch, x: Array, image: Array) -> Touch:
    """The touch on the side that misses the guard, where the reset of a taken one changes nothing: the orbit is the same without
    the reset, and has finite multipliers."""
    same = image.shape == x.shape and bool(jnp.allclose(image, x, rtol=1e-6))
    misses = same and touch.taken and not (touch.at_start or touch.at_border or touch.of_rate)
    return eqx.tree_at(lambda touch: touch.jump, touch, jnp.array(False)) if misses else touch


def grazing_point(unfolding: Unfolding, kind: str, touch: Touch, near: Near, iterations: Array) -> SpecialPoint:
    """The special point at a root of `grazing_equation`. `near`: with its strides, and dF on the side that misses the guard."""
    problem, chain, dF = unfolding.problem, near.aux, near.jacobian
    _, values = unfolding.split(near.v)
    n, x = len(dF), chain.nodes[0]
    spectrum = eigenvalues(unfolding.around(dF))
    nan = jnp.full((), jnp.nan, x.dtype)
    multipliers, none = jnp.pad(spectrum, (0, max(0, x.size - n)))[: x.size], jnp.zeros((0, x.size), x.dtype)
    params, integrator = unfolding.params_at(values), unfolding.integrator
    orbit = orbit_of(problem, chain, none, params, integrator, multipliers, near.residual, iterations, code_of(0))
    orbit = dataclasses.replace(orbit, return_jacobian=jnp.full((x.size, x.size), nan))
    return SpecialPoint(
        value=values[0], orbit=orbit, multiplier=_complex(nan), eigenvector=_complex(jnp.full(n, nan)),
        residual=near.residual, v=near.v, tangent=near.tangent, kernel=near.tangent[None], jacobian=dF, unfolding=unfolding,
        kind=kind, touch=touch,
    )  # fmt: skip


def _kind_of_end(unfolding: Unfolding, touch: Touch, root: Root) -> str:
    """The kind of a point at which a branch ends, by time and state at its touch."""
    _, _, (t, x, *_) = root.aux
    way, params = unfolding.problem.system.way(touch.transition), unfolding.params_at(unfolding.split(root.y)[1])
    border = border_of(way)
    if touch.at_start:
        return "corner"
    if touch.at_border:
        assert border is not None
        return "switching-sliding" if leads_in(border, t, x, params) else "crossing-sliding"
    if border is not None:
        # The field before the surface is tangent to it: beyond, the flow slides where the other field leads back.
        return "grazing-sliding" if border(t, x, params) > 0 else "grazing"
    return "adding-sliding" if is_tangency(way) else "grazing"
