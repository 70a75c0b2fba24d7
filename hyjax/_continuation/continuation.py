"""Continuation of a periodic orbit over a parameter."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._flow.integrator import for_modes, IntegratorLike, without_jacobian
from .._numerics.eager import long_run
from .._orbit.level import Level
from .._orbit.orbit import PeriodicOrbit
from .._orbit.problem import Problem
from .._results.shown import is_traced
from .._results.working import working
from .._system.where import leaf_names, one_leaf, Where
from .branch import Branch, raise_branch
from .curve import Curve, follow_curve, Interval, interval_to, PseudoArclength, start_of_curve, Stop
from .unfolding import Unfolding

# `CurveState` in all directions, along a leading axis.
CurveStates = tuple[Curve, Array, Array, Array]
# The number of attempted steps between two messages of progress.
SLICE = 10


def continuation(
    orbit: PeriodicOrbit,
    *,
    where: Where | None = None,
    stop: Stop,
    method: PseudoArclength = PseudoArclength(),
    integrator: IntegratorLike | None = None,
    throw: bool = True,
) -> Branch:
    r"""Follow a periodic orbit over a parameter: the branch $F(y, \lambda) = \text{flow}(R(y), \lambda) - y = 0$, through folds.

    **Arguments:** `orbit`: the start; a periodic orbit of any sequence and number of strides, autonomous or forced. `where`:
    selects the parameter $\lambda$, as `lambda params: params.slope`; by default, for an orbit that was found with a
    quantity that is `conserved`, the value of that quantity: its family. `stop`: the value of the parameter, in its own unit, at
    which to end; or bounds `(low, high)`, to follow the branch in both directions. `method`: a `PseudoArclength`. `integrator`:
    an `Integrator`, or one for each mode, `{"stance": ..., "flight": ...}`; by default the orbit's. `throw`: raise a
    `SolveError` on failure; with `False`, `result` holds the code.

    **Returns:** `Branch`, with states of shape `(points, n)`. The call may stand under `jit`, and under `vmap` over orbits and
    their parameters. Special points are located when `Branch.special_points` is first read.

    `Branch.result` is `successful` where `stop`, or with bounds either of them in each direction, was reached, or within bounds
    the branch closed; `stop_not_reached` where the branch leads to the other side of its start or is closed; and
    `max_points_reached` where `max_points` were not enough. Where the corrector failed, it is the code of the stride there, such
    as `grazing`, `out_of_phase` where the parameter takes a forced orbit out of step, or `orbit_not_converged`. `ValueError`
    unless `where` picks one scalar leaf and `stop` fits its value.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> branch = hj.continuation(orbit, where=lambda p: p.slope, stop=0.25)
    >>> print(branch.result, f"{branch.periods[-1]:.6f}")
    successful 1.943150

    Source: Keller (1977); Kuznetsov (2004), ch. 10.
    """
    if where is None:
        if not isinstance(orbit.params, Level):
            raise ValueError(
                "continuation: where= selects the parameter, such as lambda params: params.slope. Without it the family of a "
                "conserved quantity is followed, from an orbit of periodic_orbit(..., conserved=quantity)."
            )
        where = lambda level: level.conserved
    free = one_leaf(where, orbit.params, "continuation")
    values = jnp.asarray(jax.tree.leaves(orbit.params)[free])[None]
    values = values.astype(orbit.x.dtype) if jnp.issubdtype(values.dtype, jnp.integer) else values
    # Room on the other side of the start: a branch that turns at a fold may return past its start.
    interval = interval_to(stop, values[0], "continuation", behind=3.0)
    integrator = orbit.integrator if integrator is None else for_modes(orbit.system, integrator)
    problem = Problem(orbit.system, orbit.sequence, orbit.strides)
    size = jnp.maximum(jnp.max(jnp.abs(orbit.nodes)), jnp.max(jnp.abs(orbit.before)))
    size = jnp.where(size > 0, size, 1)
    unfolding = unfolding_of(problem, orbit.params, (free,), integrator, size, values, interval.span[None])
    v0 = unfolding.join(orbit.before, values)
    natural = jnp.zeros_like(v0).at[-1].set(1)
    along = interval.ways[:, None] * natural
    starts = jnp.broadcast_to(v0, along.shape)
    found = branch_from(unfolding, starts, jnp.broadcast_to(natural, along.shape), along, interval, method)
    return raise_branch("continuation", found) if throw else found


def unfolding_of(problem, params, free, integrator, size, values, scale) -> Unfolding:
    """The unfolding whose state is scaled by `size` times the root of the number of strides, so that a branch has the same length
    for one orbit traversed once or several times."""
    plain = without_jacobian(integrator)
    return Unfolding(problem, params, free, plain, size * math.sqrt(problem.strides), values, scale)


def branch_from(
    unfolding: Unfolding, v0: Array, border: Array, ways: Array, interval: Interval, method: PseudoArclength
) -> Branch:
    """The branch followed in the directions `ways`, each from the point near its `v0` at which `border @ (v - v0)` is zero; all
    of shape `(directions, unknowns)`."""
    accept = jnp.asarray(100 * sum(unfolding.integrator.tolerances(v0.dtype)), v0.dtype)
    bounds = interval.scaled(unfolding.origin[0], unfolding.scale[0])
    fixed = unfolding, v0, border, ways, bounds, method, accept
    if is_traced((unfolding, v0, bounds)):
        return Branch(unfolding, _follow(*fixed, None, jnp.inf)[0], accept, method)
    name = leaf_names(unfolding.params)[unfolding.free[0]]
    with working(f"following a branch over {name}") as say:
        state, attempts = _start(unfolding, v0, ways, bounds, method), 0
        while not np.all(state[0].ended):
            attempts += SLICE
            state = _follow(*fixed, state, jnp.array(attempts))
            points, way = np.asarray(state[0].count), np.argmin(state[0].ended)
            value = unfolding.origin[0] + unfolding.scale[0] * state[0].v[way, points[way] - 1, -1]
            say(f"point {np.sum(points) - len(points) + 1}, {name} = {float(value):.6g}")
    return Branch(unfolding, state[0], accept, method)


@long_run
def _follow(unfolding: Unfolding, v0, border, ways, bounds, method, accept, state, attempts) -> CurveStates:
    """The curves in all directions from their `state`, interrupted after so many attempts at a step."""
    evaluate = lambda v: _evaluate(unfolding, v)
    judge = lambda v, jacobian, chain: unfolding.judged(v, jacobian, chain, accept)

    def follow(v0, border, way, state):
        return follow_curve(evaluate, v0, border, way, bounds, method, accept, judge, state, attempts)

    return jax.vmap(follow)(v0, border, ways, state)


@long_run
def _start(unfolding: Unfolding, v0, ways, bounds, method) -> CurveStates:
    """The curves in all directions before their first point."""
    evaluate = lambda v: _evaluate(unfolding, v)
    return jax.vmap(lambda v0, way: start_of_curve(evaluate, v0, way, bounds, method))(v0, ways)


@long_run
def _evaluate(unfolding: Unfolding, v: Array):
    """The evaluation at `v`; under `jit`, so that `_start` and `_follow` trace it once."""
    return unfolding.evaluate(v)
