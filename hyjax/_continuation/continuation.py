"""Continuation of a periodic orbit over a parameter."""

import math

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jaxtyping import Array

from .._flow.integrator import PlainForward
from .._flow.mode_integrators import for_modes, IntegratorLike, with_adjoint
from .._orbit.orbit import PeriodicOrbit
from .._orbit.problem import Problem
from .._system.where import one_leaf, Where
from .branch import Branch
from .curve import follow_curve, NaturalParameter, PseudoArclength
from .interval import interval_to, Stop
from .unfolding import Unfolding

Method = PseudoArclength | NaturalParameter


def continuation(
    system,
    orbit: PeriodicOrbit,
    *,
    where: Where,
    stop: Stop,
    method: Method = PseudoArclength(),
    integrator: IntegratorLike | None = None,
) -> Branch:
    r"""Follow a periodic orbit over a parameter: the branch $F(y, \lambda) = \text{flow}(R(y), \lambda) - y = 0$, through folds.

    **Arguments:** `orbit`: the start; a periodic orbit of any sequence and number of strides, autonomous or forced. `where`:
    selects the parameter $\lambda$, as `lambda params: params.slope`. `stop`: the value of the parameter, in its own unit, at
    which to end; or bounds `(low, high)`, to follow the branch in both directions. `method`: `PseudoArclength` or
    `NaturalParameter`. `integrator`: an `Integrator`, or one for each mode, `{"stance": ..., "flight": ...}`; by default the
    orbit's.

    **Returns:** `Branch`, with states of shape `(points, n)`. The call may stand under `jit`, and under `vmap` over orbits and
    their parameters. Special points are located when `Branch.special_points` is first read.

    `Branch.result` is `successful` where every end was reached, and `max_points_reached` where `max_points` were not enough.
    Where the corrector failed, it is the code of the stride there, such as `grazing`, or `orbit_not_converged`. `ValueError`
    unless `where` picks one scalar leaf and `stop` fits its value.

    Source: Keller (1977); Kuznetsov (2004), ch. 10.
    """
    free = one_leaf(where, orbit.params, "continuation")
    values = jnp.asarray(jax.tree.leaves(orbit.params)[free])[None]
    values = values.astype(orbit.x.dtype) if jnp.issubdtype(values.dtype, jnp.integer) else values
    # Room on the other side of the start: a branch that turns at a fold may return past its start.
    interval = interval_to(stop, values[0], "continuation", behind=3.0)
    integrator = orbit.integrator if integrator is None else for_modes(system, integrator)
    problem = Problem(system, orbit.sequence, orbit.strides)
    size = jnp.maximum(jnp.max(jnp.abs(orbit.nodes)), jnp.max(jnp.abs(orbit.before)))
    size = jnp.where(size > 0, size, 1)
    unfolding = unfolding_of(problem, orbit.params, (free,), integrator, size, values, interval.span[None])
    v0 = unfolding.join(orbit.before, values)
    natural = jnp.zeros_like(v0).at[-1].set(1)
    along = interval.ways[:, None] * natural
    return branch_from(unfolding, v0, natural, along, (interval.low, interval.high), method)


def unfolding_of(problem, params, free, integrator, size, values, scale) -> Unfolding:
    """The unfolding whose state is scaled by `size` times the root of the number of strides, so that a branch has the same length
    for one orbit traversed once or several times."""
    plain = with_adjoint(integrator, PlainForward())
    return Unfolding(problem, params, free, plain, size * math.sqrt(problem.strides), values, scale)


@eqx.filter_jit
def branch_from(unfolding: Unfolding, v0: Array, border: Array, ways: Array, bounds, method: Method) -> Branch:
    """The branch through the point near `v0` at which `border @ (v - v0)` is zero, followed in each of the directions `ways`,
    shape `(directions, unknowns)`."""
    low, high = ((bound - unfolding.origin[0]) / unfolding.scale[0] for bound in bounds)
    accept = jnp.asarray(100 * sum(unfolding.integrator.tolerances(v0.dtype)), v0.dtype)
    curves = jax.vmap(lambda way: follow_curve(unfolding.evaluate, v0, border, way, (low, high), method, accept))(ways)
    return Branch(unfolding, curves, accept, method)
