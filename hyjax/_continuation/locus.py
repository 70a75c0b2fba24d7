r"""Loci: curves of folds, period doublings or grazing orbits over two parameters.

The unknowns are the orbit and both parameters; $H(y, \lambda_1, \lambda_2) = 0$ is the orbit's equation with the condition of
the special point. For folds and doublings this condition is $g = 0$ of `unfolding.py`, with borders that are computed anew at
every evaluation: the zeros of $g$ do not depend on the borders, so Newton's method, which takes them as constant, stays
quadratic.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array

from .._numerics.eager import long_run
from .._numerics.linearize import with_columns
from .._results.registry import draw
from .._results.table import Table
from .._system.where import one_leaf, Where
from .branch import Points, raise_branch
from .curve import Curve, follow_curve, Interval, interval_to, PseudoArclength, Stop
from .grazing import grazing_equation, Touch
from .special_points import SpecialPoint
from .unfolding import bordered, borders, Unfolding

SHIFTS = {"fold": 1.0, "period-doubling": -1.0}


def locus(
    point: SpecialPoint, *, where: Where, stop: Stop, method: PseudoArclength = PseudoArclength(), throw: bool = True
) -> "Locus":
    r"""Follow a special point over a second parameter: the curve $H(y, \lambda_1, \lambda_2) = 0$ of folds, doublings, or
    the points at which branches end, such as grazing.

    **Arguments:** `point`: from `Branch.special_points`, of kind `fold`, `period-doubling`, `grazing`, `corner`, or one of those
    that end in `-sliding`; the parameter of its branch stays free. `where`: selects the second parameter. `stop`: the value of
    the second parameter, in its own unit, at which to end; or bounds `(low, high)`, to follow the curve in both directions.
    `method`: as for `continuation`. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.

    **Returns:** `Locus`, with `values` of shape `(points, 2)`. `Locus.result` is `successful` where `stop` was reached,
    otherwise a code as for `continuation`. `ValueError` for a point of another kind, and where both parameters are the same.

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
    if point.kind not in SHIFTS and point.touch is None:
        raise ValueError(
            f"locus: a {point.kind} point cannot be followed; fold, period-doubling and the ends of branches, such as grazing, "
            "can."
        )
    old = point.unfolding
    second = one_leaf(where, old.params, "locus")
    if second == old.free[0]:
        raise ValueError("locus: where picks the parameter of the branch; pick a second one.")
    y, first = old.split(point.v)
    value = jnp.asarray(jax.tree.leaves(old.params)[second], y.dtype)
    interval = interval_to(stop, value, "locus", behind=0.0)
    unfolding = Unfolding(
        old.problem, old.params_at(first), (old.free[0], second), old.integrator, old.state_scale,
        jnp.stack([first[0], value]), jnp.stack([old.scale[0], interval.span]),
    )  # fmt: skip
    v0 = unfolding.join(y, unfolding.origin)
    curves = _follow(unfolding, v0, point.touch, point.kind, interval, method)
    found = Locus(unfolding, curves, point.kind)
    return raise_branch("locus", found) if throw else found


class Locus(Points):
    r"""A curve of special points in the plane of two parameters, $H(y, \lambda_1, \lambda_2) = 0$, from `locus`.

    **Attributes:** `kind`: the kind of the special points. In the order along the curve: `values`, shape `(points, 2)`; `x`,
    `(points, n)`; `periods`; `multipliers`, `(points, n)`, at grazing with the jump at the touched guard; `residuals`.
    `result`. `TypeError` for reading these under `jit`.

    Source: Kuznetsov (2004), Sec. 10.2.
    """

    unfolding: Unfolding
    curves: Curve
    kind: str = eqx.field(static=True)

    def _tables(self):
        values = self.values
        ends = ", ".join(f"({a:.10g}, {b:.10g})" for a, b in values[[0, -1]])
        return (Table(f"Locus of {self.kind}: {len(values)} points, from and to {ends}", []),)

    @property
    def values(self) -> np.ndarray:
        """Values of both parameters, shape `(points, 2)`."""
        return self._points["values"]

    def plot(self, ax=None):
        """Draw the curve in the plane of both parameters; see `hyjax.plot.locus_diagram`."""
        return draw(self, ax)


@long_run
def _follow(
    unfolding: Unfolding, v0: Array, touch: Touch | None, kind: str, interval: Interval, method: PseudoArclength
) -> Curve:
    # The Jacobian of H has second derivatives of the flow: compile time dominates, so the loops are rolled.
    unfolding = unfolding.rolled(order=2)
    equations = _equations(unfolding, touch, kind)
    bounds = interval.scaled(unfolding.origin[1], unfolding.scale[1])
    accept = jnp.asarray(1e5 * sum(unfolding.integrator.tolerances(v0.dtype)), v0.dtype)
    natural = jnp.zeros_like(v0).at[-1].set(1)

    evaluate = lambda v: with_columns(equations, v)
    # A grazing orbit touches a guard that may fire in the next lap.
    judge = (lambda v, jacobian, passed: unfolding.judged(v, jacobian[:-1], passed, accept)) if touch is None else None
    follow = lambda way: follow_curve(evaluate, v0, natural, way * natural, bounds, method, accept, judge)[0]
    return jax.vmap(follow)(interval.ways)


def _equations(unfolding: Unfolding, touch: Touch | None, kind: str) -> Callable:
    """The function `v -> (H, strides)` of the locus."""

    def of_touch(v: Array):
        assert touch is not None
        residual, (strides, _) = grazing_equation(unfolding, touch, v)
        return residual, strides

    def of_multiplier(v: Array):
        residual, dF, strides = unfolding.evaluate(v)
        matrix = unfolding.shifted(dF, SHIFTS[kind])
        b, c = borders(stop_gradient(matrix), 1)
        return jnp.append(residual, bordered(matrix, b, c)[0, 0]), strides

    return of_multiplier if touch is None else of_touch
