"""Branch switching at period doublings and branch points; cascades of period doublings."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._flow.linearize import with_columns
from .._orbit.newton import newton
from .._orbit.problem import Problem
from .branch import Branch
from .continuation import branch_from, Method, unfolding_of
from .curve import PseudoArclength
from .interval import interval_to, Stop
from .special_points import SpecialPoint
from .unfolding import Unfolding

# Feigenbaum's constants: by these factors the parameter's intervals and the orbit's splitting shrink with each doubling.
DELTA, ALPHA = 4.669201609, 2.502907875


def switch_branch(
    point: SpecialPoint,
    *,
    stop: Stop,
    amplitude: float = 1e-2,
    method: Method = PseudoArclength(),
) -> Branch:
    r"""Follow the other branch through a period doubling or a branch point.

    At a period doubling: orbits of twice as many strides, first $y \pm a w$ with the eigenvector $w$ of the multiplier -1. At a
    branch point: the branch that crosses. The amplitude $a$ of the first point is given and its parameter is solved for, so the
    branch may go to either side.

    **Arguments:** `stop`: the value of the parameter, in its own unit, at which to end, or bounds `(low, high)`. `amplitude`: in
    units of the state's size; at a doubling it is reduced where no orbit is found. `method`: as for `continuation`.

    **Returns:** `Branch`, states of shape `(points, n)`, with a `result` as for `continuation`. `ValueError` for a fold, a
    Neimark-Sacker point or grazing: no other branch is followed from these.

    Source: Kuznetsov (2004), Sec. 10.3.
    """
    if point.kind not in ("period-doubling", "branch-point"):
        raise ValueError(
            f"switch_branch: no other branch of periodic orbits starts at a {point.kind} point; period-doubling and "
            "branch-point have one."
        )
    old = point.unfolding
    doubling = point.kind == "period-doubling"
    problem = Problem(old.problem.system, old.problem.sequence, old.problem.strides * (2 if doubling else 1))
    y, values = old.split(point.v)
    size = old.state_scale / math.sqrt(old.problem.strides)
    # Room on both sides of the start: the branch may go to either.
    interval = interval_to(stop, values[0], "switch_branch", behind=1.0)
    params, span = old.params_at(values), interval.span[None]
    unfolding = unfolding_of(problem, params, old.free, old.integrator, size, values, span)
    if doubling:
        w = point.kernel[0, :-1]
        along = jnp.concatenate([w, -w, jnp.zeros(1, w.dtype)]) / math.sqrt(2)
        v0 = _doubled(unfolding, point.v[:-1], w, jnp.asarray(amplitude, y.dtype))
    else:
        # In the plane of the tangents of both branches, at right angles to the known tangent; in the new units.
        rescale = jnp.append(jnp.ones_like(point.v[:-1]), old.scale[0] / unfolding.scale[0])
        plane, known = point.kernel * rescale, point.tangent * rescale
        q, _ = jnp.linalg.qr(plane.T)
        inside = q.T @ known
        along = q @ jnp.stack([-inside[1], inside[0]])
        along = along / jnp.sqrt(along @ along)
        v0 = unfolding.join(y, values) + amplitude * along
    return branch_from(unfolding, v0, along, along[None], (interval.low, interval.high), method)


@eqx.filter_jit
def _doubled(unfolding: Unfolding, s0: Array, w: Array, amplitude: Array) -> Array:
    r"""A point on the branch of doubled orbits with the equations `unfolding`, near the doubling of `s0` with the kernel `w`.

    The doubled orbit is $s + a d$ in its first half and $s - a d$ in its second. The equations are half the sum of the residuals
    of both halves, half their difference divided by $a$, and $w \cdot d = 1$: regular for $a \to 0$, where they become the
    equations of the period doubling.
    """
    unfolding, n = unfolding.rolled(), w.size
    accept = 1e4 * sum(unfolding.integrator.tolerances(w.dtype))

    def start(a):
        def point(unknowns):
            s, d, value = unknowns[:n], unknowns[n : 2 * n], unknowns[2 * n :]
            return jnp.concatenate([jnp.concatenate([s + a * d, s - a * d]) / math.sqrt(2), value])

        def system(unknowns):
            first, second = unfolding.residual(point(unknowns))[0].reshape(2, n)
            border = (w @ unknowns[n : 2 * n] - 1)[None]
            return jnp.concatenate([(first + second) / 2, (first - second) / (2 * a), border]), None

        u0 = jnp.concatenate([s0, w, jnp.zeros(1, w.dtype)])
        root = newton(lambda u: with_columns(system, u), u0, max_iterations=12, accept=accept / a)
        return point(root.y), root.converged

    points, converged = jax.lax.map(start, amplitude * jnp.array([1, 0.25, 0.0625, 0.015625], w.dtype))
    return points[jnp.argmax(converged)]


def cascade(
    point: SpecialPoint, *, doublings: int, stop: float, method: Method = PseudoArclength()
) -> tuple[Branch, ...]:
    r"""Follow a cascade of period doublings: the branch of orbits of twice as many strides, the one from its own doubling, ...

    The first branch ends at `stop`. The next doubling is expected at the distance $(\lambda_k - \lambda_{k-1}) / \delta$ from
    the doubling $\lambda_k$; each later branch ends at 1.5 times this distance. The amplitude of its first point is smaller by
    $\alpha$ with each doubling. $\delta$, $\alpha$: Feigenbaum's constants.

    **Arguments:** `point`: of kind `period-doubling`. `doublings`: the number of branches. `stop`: value of the parameter, in
    its own unit. `method`: as for `continuation`. **Returns:** the branches, fewer than `doublings` where one of them has no
    period doubling of its own; states of shape `(points, n)`. `ValueError` for a point of another kind.

    Source: Feigenbaum (1978), *Quantitative universality for a class of nonlinear transformations*, J. Stat. Phys. 19, 25-52.
    """
    if point.kind != "period-doubling":
        raise ValueError(f"cascade: point must be a period-doubling point, not a {point.kind} point.")
    found: list[Branch] = []
    reach = stop
    while len(found) < doublings:
        branch = switch_branch(point, stop=reach, amplitude=1e-2 / ALPHA ** len(found), method=method)
        found.append(branch)
        if not branch.curves.started.all():
            break
        own = [each for each in branch.special_points if each.kind == "period-doubling"]
        if not own:
            break
        reach = float(own[0].value + 1.5 * (own[0].value - point.value) / DELTA)
        point = own[0]
    return tuple(found)


def crossing_branches(branches: Sequence[Branch], *, stop: tuple[float, float], method: Method) -> list[Branch]:
    """The branches that cross the given branches at branch points, each once."""

    def same(a: SpecialPoint, b: SpecialPoint) -> bool:
        near = lambda x, y, size: bool(np.max(np.abs(np.asarray(x) - np.asarray(y))) < 1e-6 * size)
        return near(a.value, b.value, abs(stop[1] - stop[0])) and near(
            a.orbit.x, b.orbit.x, float(a.unfolding.state_scale)
        )

    branch_points = lambda branch: [point for point in branch.special_points if point.kind == "branch-point"]
    found, met = [], []
    for point in [point for branch in branches for point in branch_points(branch)]:
        if any(same(point, each) for each in met):
            continue
        met.append(point)
        branch = switch_branch(point, stop=stop, method=method)
        if branch.curves.started.all():
            found.append(branch)
            met += branch_points(branch)
    return found
