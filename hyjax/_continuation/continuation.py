"""Branches: a periodic orbit followed over a parameter."""

import math

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jaxtyping import Array

from .._flow.integrator import Integrator, PlainForward, with_adjoint
from .._orbit.orbit import each_stride, PeriodicOrbit
from .._orbit.shooting import Problem
from .._system.where import free_leaves, Where
from .branch import Branch
from .curve import follow, NaturalParameter, PseudoArclength
from .unfolding import Unfolding

Method = PseudoArclength | NaturalParameter


def continuation(
    system,
    orbit: PeriodicOrbit,
    *,
    where: Where,
    stop: float | tuple[float, float],
    method: Method = PseudoArclength(),
    integrator: Integrator | None = None,
) -> Branch:
    r"""Follow a periodic orbit over a parameter. $F(y, \lambda) = 0$, through folds.

    **Arguments:** `orbit`: where to start; of any number of strides and any sequence, autonomous or forced. `where`: which
    leaf of the parameters is $\lambda$: `lambda params: params.slope`. `stop`: the value at which to end; or `(low, high)`, to
    follow the branch both ways. `method`: `PseudoArclength` or `NaturalParameter`.

    **Returns:** `Branch`. The call may stand under `jit`, and under `vmap` over orbits and their parameters; special points
    are located when they are asked for.

    `Branch.result` is `successful` where every end was reached; otherwise the branch ends where its corrector failed, at the
    code of the stride there, such as `grazing`, or with `max_points`, at `max_steps_reached`.

    Source: Keller (1977); Kuznetsov (2004), ch. 10.
    """
    free = free_leaves(where, orbit.params)
    values = jnp.stack([jnp.asarray(jax.tree.leaves(orbit.params)[i]) for i in free])
    low, high, scale, directions = _interval(values[0], stop)
    integrator = orbit.integrator if integrator is None else integrator
    problem = Problem(system, orbit.sequence, orbit.strides)
    # Before the jumps that start the strides: by flow, for several states may jump to the same.
    quick = with_adjoint(orbit.integrator, PlainForward(), rolled=True)
    y = jnp.roll(each_stride(orbit, quick)[1], 1, axis=0)
    size = jnp.maximum(jnp.max(jnp.abs(orbit.nodes)), jnp.max(jnp.abs(y)))
    unfolding = unfolding_of(problem, orbit.params, free, integrator, jnp.where(size > 0, size, 1), values, scale[None])
    v0 = unfolding.join(y, values)
    natural = jnp.zeros_like(v0).at[-1].set(1)
    return branch_from(unfolding, v0, natural, directions[:, None] * natural, (low, high), method)


def _interval(value: Array, stop) -> tuple[Array, Array, Array, Array]:
    """The parameter's bounds, a unit to measure it in, and in which directions to go."""
    both = isinstance(stop, tuple | list)
    bounds = tuple(stop) if both else (stop,)
    if len(bounds) not in (1, 2):
        raise ValueError(f"continuation: stop={stop!r} must be a number or a pair (low, high).")
    known = not any(isinstance(each, jax.core.Tracer) for each in (value, *bounds))
    if both:
        low, high = (jnp.asarray(each, value.dtype) for each in bounds)
        if known and not low <= value <= high:
            raise ValueError(f"continuation: the orbit's parameter {value} does not lie within stop={stop}.")
        return low, high, high - low, jnp.array([1.0, -1.0], value.dtype)
    end = jnp.asarray(stop, value.dtype)
    if known and end == value:
        raise ValueError(f"continuation: stop={stop} is where the orbit is already.")
    # The other way is free: a branch that turns at a fold may come back past its start.
    span = jnp.abs(end - value)
    way = jnp.where(end > value, 1, -1).astype(value.dtype)
    behind = value - 3 * way * span
    return jnp.minimum(behind, end), jnp.maximum(behind, end), span, way[None]


def unfolding_of(problem, params, free, integrator, size, values, scale) -> Unfolding:
    """The state in units of its size, and of all strides together: more strides do not make a branch longer."""
    plain = with_adjoint(integrator, PlainForward())
    return Unfolding(problem, params, free, plain, size * math.sqrt(problem.strides), values, scale)


@eqx.filter_jit
def branch_from(unfolding: Unfolding, v0: Array, border: Array, ways: Array, bounds, method: Method) -> Branch:
    """The branch from the point where `border @ (v - v0)` is zero, once in each of `ways`, shape `(directions, n + 1)`."""
    low, high = ((bound - unfolding.origin[0]) / unfolding.scale[0] for bound in bounds)
    accept = jnp.asarray(100 * sum(unfolding.integrator.tolerances(v0.dtype)), v0.dtype)
    curves = jax.vmap(lambda way: follow(unfolding.evaluate, v0, border, way, (low, high), method, accept))(ways)
    return Branch(unfolding, curves, accept, method)
