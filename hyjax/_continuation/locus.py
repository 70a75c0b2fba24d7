r"""Loci: curves of folds, period doublings, Neimark-Sacker points or grazing orbits over two parameters.

The unknowns are the orbit and both parameters; $H(y, \lambda_1, \lambda_2) = 0$ is the orbit's equation with the condition of
the special point, see `codimension_two.py`.
"""

import dataclasses
import functools as ft
import math
from typing import overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._orbit.problem import Problem
from .._results.registry import draw
from .._results.shown import computed_once, is_traced
from .._results.table import Table, without_rounding
from .._system.types import require_kind, Scalar
from .._system.where import one_leaf, Where
from ..phase.equilibrium import rounding
from .branch import orbit_at, OrbitCurve
from .branch_report import special_points_table
from .codimension_two import apart, at_end, LocusEquation, PAIR, special_points_along, witness
from .curve import Curve, curves_from, interval_to, PseudoArclength, raise_branch, Stop
from .equilibrium_branch import EquilibriumPoint
from .equilibrium_locus import CROSSING, EquilibriumLocus, LOOSER
from .grazing import Touch
from .location import Followed, NOTHING
from .normal_form import expansion, FORMS
from .special_points import SpecialPoint
from .unfolding import Equation, SHIFTS, Unfolding

# The curves that pass through points, of orbits or of equilibria. At a cusp one curve turns.
CURVES = {
    "resonance-1:1": ("fold", PAIR),
    "resonance-1:2": ("period-doubling", PAIR, f"doubled-{PAIR}"),
    "resonance-1:3": (PAIR,),
    "resonance-1:4": (PAIR,),
    "chenciner": (PAIR,),
    "generalized-flip": ("period-doubling", "doubled-fold"),
    "fold-flip": ("fold", "period-doubling", f"doubled-{PAIR}"),
    "fold-neimark-sacker": ("fold", PAIR),
    "flip-neimark-sacker": ("period-doubling", PAIR, f"doubled-{PAIR}"),
    "hopf": ("hopf",),
    "bogdanov-takens": ("fold", "hopf"),
    "generalized-hopf": ("hopf",),
    "fold-hopf": ("fold", "hopf"),
} | {kind: (kind,) for kind in (*SHIFTS, PAIR)}
# Where a locus of grazing meets another one: the curve of grazing is followed.
MEETINGS = ("fold-", "flip-", "neimark-sacker-")
# The laps of the orbits of curves that begin at a point.
LAPS = {"doubled-": 2, "quadrupled-": 4, "second-quadrupled-": 4}
# The amplitudes at which a curve of such orbits begins, each tried where the last failed.
AMPLITUDES = (1e-2, 2.5e-3, 6e-4)


@overload
def locus(
    point: SpecialPoint, *, where: Where, stop: Stop, kind: str | None = ..., method: PseudoArclength = ..., throw: bool = ...
) -> "Locus": ...  # fmt: skip
@overload
def locus(
    point: EquilibriumPoint, *, where: Where, stop: Stop, kind: str | None = ..., method: PseudoArclength = ..., throw: bool = ...
) -> EquilibriumLocus: ...  # fmt: skip
def locus(
    point: SpecialPoint | EquilibriumPoint,
    *,
    where: Where,
    stop: Stop,
    kind: str | None = None,
    method: PseudoArclength = PseudoArclength(),
    throw: bool = True,
) -> "Locus | EquilibriumLocus":
    r"""Follow a special point over a second parameter: the curve $H(y, \lambda_1, \lambda_2) = 0$ of folds, doublings,
    Neimark-Sacker points, or the points at which branches end, such as grazing; or of folds and Hopf points of equilibria.

    **Arguments:** `point`: from `Branch.special_points`, of any kind but `branch-point` and `swap`; the parameter of its branch
    stays free. Or from `Locus.special_points`, where several curves meet; or a fold or Hopf point of an `EquilibriumBranch`, or a
    point of an `EquilibriumLocus`, where the other kind of curve begins. `where`: selects the second parameter; at a point of a
    locus, one of both. `stop`: the value of the second parameter, in its own unit, at which to end; or bounds `(low, high)`, to
    follow the curve in both directions. `kind`: of the curve, where several meet: `fold`, `period-doubling`, `neimark-sacker`; of
    orbits of twice as many strides `doubled-fold`, at a generalized flip, and `doubled-neimark-sacker`, at a resonance 1:2, a
    fold-flip and a flip-Neimark-Sacker point; of four times as many, at a resonance 1:4 whose coefficient $A_0$ has them,
    `quadrupled-fold`, `second-quadrupled-fold` and `quadrupled-neimark-sacker`.
    `method`: as for `continuation`. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.

    **Returns:** `Locus`, of equilibria `EquilibriumLocus`, with `values` of shape `(points, 2)`. `Locus.result` is `successful`
    where `stop` was reached, otherwise a code as for `continuation`. `ValueError` for a point of another kind, a curve that does
    not pass through the point, and where both parameters are the same.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 1.0]), coordinates=("size", "clock"))
    >>> births = lambda t, x, p: jnp.stack([p["rate"] * x[0] * (1 - x[0]) - p["caught"], 0 * x[1]])
    >>> herd = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[1], births),))
    >>> params = {"rate": jnp.array(2.9), "caught": jnp.array(0.0)}
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(herd, sequence=("year",)), jnp.array([0.6, 0.0]), params)
    >>> branch = hj.continuation(orbit, where=lambda p: p["rate"], stop=3.2)
    >>> (point,) = branch.special_points
    >>> locus = hj.locus(point, where=lambda p: p["caught"], stop=0.05)
    >>> print(locus.values[-1].round(4), locus.result)
    [3.1518 0.05  ] successful

    Source: Kuznetsov (2004), Sec. 10.2; Thota, Dankowicz (2006), for grazing.
    """
    require_kind(point, SpecialPoint | EquilibriumPoint, "locus", "the first argument", "one of branch.special_points")
    known, of_equilibria = curves_through(point), isinstance(point, EquilibriumPoint)
    kind = known[0] if kind is None and len(known) == 1 else str(kind)
    if kind not in known:
        remedy = f"kind={kind} must be one of {', '.join(known)}." if known else "no curve is followed from there."
        raise ValueError(f"locus: at a {point.kind} point {'of equilibria ' * of_equilibria}{remedy}")
    if kind == "fold" and branches_cross(point):
        raise ValueError(f"locus: at this {point.kind} point branches cross along another curve, and there is no fold.")
    old: Equation = point.unfolding
    second = one_leaf(where, old.params, "locus")
    first, *own = [each for each in old.free if each != second] or [None]
    if first is None or own:
        raise ValueError(
            "locus: where picks the parameter of the branch; pick a second one, and at a point of a locus one of its two."
        )
    y, values = old.split(point.v)
    params, (base, times) = old.params_at(values), laps_of(kind)
    origin = jnp.stack([jnp.asarray(jax.tree.leaves(params)[each], y.dtype) for each in (first, second)])
    # A curve of orbits of several laps begins beside the point, and may go to either side.
    interval = interval_to(stop, origin[1], "locus", behind=1.0 if times > 1 else 0.0)
    scale = jnp.stack([old.scale[old.free.index(first)], interval.span])
    if isinstance(point, EquilibriumPoint):
        # Residuals are relative to the unknowns: the scaled parameters are not zero within the interval, as the state may be.
        fields = {"start": point.equilibrium, "free": (first, second), "origin": origin - 4 * scale, "scale": scale}
        unfolding: Equation = dataclasses.replace(old, **fields)
        touch, loosest, made = None, LOOSER * rounding(y), EquilibriumLocus
    else:
        problem = Problem(old.problem.system, old.problem.sequence, times * old.problem.strides)
        size = old.state_scale * math.sqrt(times)
        unfolding = Unfolding(problem, params, (first, second), old.integrator, size, old.sizes, origin, scale)
        touch, loosest = point.touch, 1e5 * sum(old.integrator.tolerances(y.dtype))
        made = ft.partial(Locus, touch=touch)
    v0 = unfolding.join(jnp.concatenate([y] * times), origin)
    natural = jnp.zeros_like(v0).at[-1].set(1)
    equation, accept = LocusEquation(unfolding, touch, base), jnp.asarray(loosest, v0.dtype)
    away = bend = natural
    if times == 2:
        # The eigenvector of -1; at a fold-flip the kernel is that of 1.
        w = jnp.linalg.svd(old.shifted(point.jacobian, -1.0))[2][-1]  # pyright: ignore[reportAttributeAccessIssue]
        away, bend = jnp.concatenate([w, -w, jnp.zeros(2, w.dtype)]) / jnp.sqrt(2 * w @ w), 0 * natural
    elif times == 4:
        assert isinstance(point, SpecialPoint)
        first_order, second_order = computed_once(quadrupled, point)[kind]
        order, n = [old.free.index(each) for each in (first, second)], y.size
        unit = old.scale[jnp.array(order)] / scale
        laps = lambda rows: jnp.append(rows[:, :n].ravel() / 2, rows[0, n:][jnp.array(order)] * unit)
        away, bend = laps(first_order), laps(second_order)
        length = jnp.sqrt(away @ away)
        away, bend = away / length, bend / length**2
    ways = away[None] if times > 1 else interval.ways[:, None] * natural
    for amplitude in AMPLITUDES if times > 1 else (0.0,):
        start, border = (
            jnp.broadcast_to(each, ways.shape) for each in (v0 + amplitude * away + amplitude**2 * bend, away)
        )
        curves = curves_from(equation, start, border, ways, interval, method, accept)
        if is_traced(curves) or curves.started.all():
            break
    found = made(unfolding, curves, accept, equation.kind, method)
    return raise_branch("locus", found) if throw else found


def laps_of(kind: str) -> tuple[str, int]:
    """The kind of the special points of a curve, and the laps of its orbits in laps of the point's orbit."""
    return next(((kind.removeprefix(each), laps) for each, laps in LAPS.items() if kind.startswith(each)), (kind, 1))


def quadrupled(point: SpecialPoint) -> dict[str, tuple[Array, Array]]:
    r"""The curves of orbits of four laps that leave a resonance 1:4, by kind: first and second order in the amplitude, in
    unknowns of the point for each lap, shape `(4, unknowns)`.

    $z, iz, -z, -iz$ is an orbit of the normal form where $\dot\mu\,\delta = -i |d|\,|z|^2 (A_0 + e^{i\psi})$ with $e^{i\psi} = -i
    (d / |d|) e^{-4 i \arg z}$. It is a fold where $\mathrm{Re}(\bar A_0 e^{i\psi}) = -1$, on two curves if $|A_0| > 1$, and its
    multipliers are a pair on the circle where $\cos\psi = \mathrm{Re} A_0$ and $\mathrm{Re}(\bar A_0 e^{i\psi}) < -1$.
    Source: Kuznetsov (2004), Sec. 9.5.4.
    """
    form = FORMS[point.kind]._replace(parameters=2)
    quarter = np.array([1j, -1j])
    found = expansion(point.unfolding, point.v, point.jacobian, jnp.asarray(quarter), form)
    of = dict(zip(form.monomials, np.asarray(found.reduced)[:, 0], strict=True))
    c, d, rates = of[2, 1, 0, 0], of[0, 3, 0, 0], np.array([of[1, 0, 1, 0], of[1, 0, 0, 1]])
    ratio = -1j * c / abs(d)
    angles = {}
    if abs(ratio) > 1:
        half = np.arccos(-1 / abs(ratio))
        angles = {f"{way}quadrupled-fold": np.angle(ratio) + sign * half for way, sign in (("", 1), ("second-", -1))}
    psi = -np.copysign(np.arccos(np.clip(ratio.real, -1, 1)), ratio.imag)
    if abs(ratio.real) < 1 and (np.conj(ratio) * np.exp(1j * psi)).real < -1:
        angles[f"quadrupled-{PAIR}"] = psi
    curves = {}
    for kind, psi in angles.items():
        z = np.exp(-0.25j * np.angle(1j * np.exp(1j * psi) / d)) * 1j ** np.arange(4)
        moved = -1j * abs(d) * (ratio + np.exp(1j * psi))
        shift = np.linalg.lstsq(np.stack([np.real(rates), np.imag(rates)]), [moved.real, moved.imag])[0]
        at = np.stack([z, z.conj(), *(np.full(4, each) for each in shift)], axis=1)
        powers = np.prod(at[:, None] ** np.array(form.monomials), axis=-1)
        # The parameters are of second order in the amplitude.
        degrees = np.array(form.monomials) @ [1, 1, 2, 2]
        one, two = (((powers * (degrees == j)) @ np.asarray(found.manifold)).real for j in (1, 2))
        curves[kind] = jnp.asarray(one, point.v.dtype), jnp.asarray(two, point.v.dtype)
    return curves


def curves_through(point: SpecialPoint | EquilibriumPoint) -> tuple[str, ...]:
    """The kinds of the curves over two parameters that pass through a point or begin there."""
    if isinstance(point, EquilibriumPoint) or point.touch is None:
        known = CURVES.get(point.kind, ())
        if isinstance(point, EquilibriumPoint) or point.kind != "resonance-1:4" or is_traced(point):
            return known
        return (*known, *computed_once(quadrupled, point))
    if point.touch.of_rate:
        # Another parameter may break the symmetry, and the guard is not zero where its rate is.
        return ()
    return (next(point.kind.removeprefix(each) for each in (*MEETINGS, "") if point.kind.startswith(each)),)


def branches_cross(point: SpecialPoint | EquilibriumPoint) -> bool:
    """Whether branches cross at a point of codimension two: the derivative by state and both parameters is singular."""
    if isinstance(point, EquilibriumPoint):
        return point.meaning == CROSSING
    sizes = np.ones(1) if is_traced(point) else np.linalg.svd(point.jacobian, compute_uv=False)
    return len(curves_through(point)) > 1 and bool(np.any(sizes[..., -1] < np.finfo(sizes.dtype).eps ** NOTHING))


class Locus(OrbitCurve):
    r"""A curve of special points in the plane of two parameters, $H(y, \lambda_1, \lambda_2) = 0$, from `locus`.

    **Attributes:** `kind`: the kind of the special points. In the order along the curve: `values`, shape `(points, 2)`; `x`,
    `(points, n)`; `periods`; `multipliers`, `(points, n)`, at grazing with the jump at the touched guard; `residuals`. `neutral`,
    `result`. `parameters`: the names of both. `touch`: of grazing. `accept`, `method`: the largest residual,
    and the method of `locus`. `TypeError` for reading these under `jit`.

    `special_points`: of codimension two, on a curve of folds `cusp`, `resonance-1:1`, `fold-flip`, `fold-neimark-sacker`; of
    doublings `generalized-flip`, `resonance-1:2`, `fold-flip`, `flip-neimark-sacker`; of Neimark-Sacker points `chenciner`,
    `resonance-1:1` to `resonance-1:4`, `fold-neimark-sacker`, `flip-neimark-sacker`, `double-neimark-sacker`; and where such a
    curve meets grazing, or another end of branches, `fold-grazing`, `flip-grazing`, `neimark-sacker-grazing`.
    `unresolved`: intervals of the second parameter in which two of them may lie, or none.

    A curve of Neimark-Sacker points, $\mu_1 \mu_2 = 1$, passes through the resonances 1:1 and 1:2, beyond which the pair is real:
    neutral saddles.

    Source: Kuznetsov (2004), ch. 9 and Sec. 10.2.
    """

    unfolding: Unfolding
    curves: Curve
    accept: Scalar
    kind: str = eqx.field(static=True)
    method: PseudoArclength = eqx.field(static=True)
    touch: Touch | None = None

    def _tables(self):
        values = self.values
        shown = without_rounding(values[[0, -1]], self.unfolding.scale)
        ends = ", ".join(f"({a:.10g}, {b:.10g})" for a, b in shown)
        whole = Table(f"Locus of {self.kind}: {len(values)} points, from and to {ends}", [], notes=self._notes())
        return (whole, special_points_table(self.located)) if self.located else (whole,)

    @property
    def neutral(self) -> np.ndarray:
        """Whether a point is a neutral saddle, of a pair of real multipliers, where no orbit bifurcates, shape `(points,)`."""
        real = lambda row: not np.any(np.imag(apart(self.kind, row)[0]))
        return np.array([self.kind == PAIR and real(row) for row in self.multipliers])

    def _search(self) -> tuple[tuple[SpecialPoint, ...], tuple[tuple[float, float], ...]]:
        points, unfolding = self._points, self.unfolding
        equation, stuck = LocusEquation(unfolding, self.touch, self.kind), np.asarray(self.curves.stuck)
        curve = Followed(equation, len(stuck), self.method, self.accept, witness)
        inside, unresolved = special_points_along(curve, points)

        def beyond(at: int, way: int) -> tuple[SpecialPoint, ...]:
            if way >= len(stuck) or not stuck[way] or self.touch is not None:
                return ()
            v, tangent, chain = jax.tree.map(
                lambda leaf: jnp.asarray(leaf[at]), [points[k] for k in ("v", "tangent", "aux")]
            )
            point = at_end(unfolding, self.kind, orbit_at(unfolding, v, chain), v, tangent, self.method, self.accept)
            return () if point is None else (point,)

        # The first of the points is the end in the second direction.
        return (*beyond(0, 1), *inside, *beyond(-1, 0)), unresolved

    def plot(self, ax=None):
        """Draw the curve in the plane of both parameters; see `hyjax.plot.locus_diagram`."""
        return draw(self, ax)
