"""Branches: a periodic orbit followed over a parameter."""

import math

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jaxtyping import Array

from ._branch import Branch
from ._curve import follow, NaturalParameter, PseudoArclength
from ._integrator import Integrator, PlainForward
from ._newton import newton
from ._orbit import PeriodicOrbit
from ._shooting import before_reset, Problem
from ._special import SpecialPoint
from ._unfolding import free_leaves, Unfolding, Where, with_columns

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
    # Times are needed by resets that depend on them, and a guess will do.
    times = orbit.period * jnp.linspace(0, 1, orbit.strides, endpoint=False, dtype=orbit.period.dtype)
    y = jax.vmap(lambda x, t: before_reset(problem, x, orbit.params, t))(orbit.nodes, times)
    size = jnp.maximum(jnp.max(jnp.abs(orbit.nodes)), jnp.max(jnp.abs(y)))
    unfolding = _unfolding(problem, orbit.params, free, integrator, jnp.where(size > 0, size, 1), values, scale[None])
    v0 = unfolding.join(y, values)
    natural = jnp.zeros_like(v0).at[-1].set(1)
    return _branch(unfolding, v0, natural, directions[:, None] * natural, (low, high), method)


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


def _unfolding(problem, params, free, integrator, size, values, scale) -> Unfolding:
    """The state in units of its size, and of all strides together: more strides do not make a branch longer."""
    plain = eqx.tree_at(lambda i: i.adjoint, integrator, PlainForward())
    return Unfolding(problem, params, free, plain, size * math.sqrt(problem.strides), values, scale)


@eqx.filter_jit
def _branch(unfolding: Unfolding, v0: Array, border: Array, ways: Array, bounds, method: Method) -> Branch:
    """The branch from the point where `border @ (v - v0)` is zero, once in each of `ways`, shape `(directions, n + 1)`."""
    low, high = ((bound - unfolding.origin[0]) / unfolding.scale[0] for bound in bounds)
    accept = jnp.asarray(100 * sum(unfolding.integrator.tolerances(v0.dtype)), v0.dtype)
    curves = jax.vmap(lambda way: follow(unfolding.evaluate, v0, border, way, (low, high), method, accept))(ways)
    return Branch(unfolding, curves, accept, method)


def switch_branch(
    point: SpecialPoint,
    *,
    stop: float | tuple[float, float],
    amplitude: float = 1e-2,
    method: Method = PseudoArclength(),
) -> Branch:
    r"""The other branch that starts at a special point.

    At a period doubling, the orbit of twice as many strides, near $y \pm a w$ with the eigenvector $w$ of -1; at a branch
    point, the branch that crosses. The amplitude $a$ of the first point is fixed, and the parameter solved for: so it does not
    matter to which side the branch goes.

    **Arguments:** `stop`: the parameter at which to end, or the pair of bounds. `amplitude`: in units of the state's size; at a
    doubling, a smaller one is taken where it is too large. **Returns:** `Branch`. `ValueError` for a fold or
    a Neimark-Sacker point, from which no branch of periodic orbits starts.

    Source: Kuznetsov (2004), Sec. 10.3.
    """
    if point.kind not in ("period-doubling", "branch-point"):
        raise ValueError(f"switch_branch: no other branch of periodic orbits starts at a {point.kind}.")
    old = point.unfolding
    doubling = point.kind == "period-doubling"
    problem = Problem(old.problem.system, old.problem.sequence, old.problem.strides * (2 if doubling else 1))
    y, values = old.split(point.v)
    size = old.state_scale / math.sqrt(old.problem.strides)
    if isinstance(stop, tuple | list):
        low, high = (jnp.asarray(each, y.dtype) for each in stop)
        span = high - low
    else:
        span = jnp.abs(stop - values[0])
        low, high = values[0] - span, values[0] + span
    unfolding = _unfolding(problem, old.params_at(values), old.free, old.integrator, size, values, span[None])
    if doubling:
        w = point.kernel[0, :-1]
        along = jnp.concatenate([w, -w, jnp.zeros(1, w.dtype)]) / math.sqrt(2)
        v0 = _doubled(unfolding, point.v[:-1], w, jnp.asarray(amplitude, y.dtype))
    else:
        # In the plane of both branches, at right angles to the one that is known; in the new units.
        rescale = jnp.append(jnp.ones_like(point.v[:-1]), old.scale[0] / unfolding.scale[0])
        plane, known = point.kernel * rescale, point.tangent * rescale
        q, _ = jnp.linalg.qr(plane.T)
        inside = q.T @ known
        along = q @ jnp.stack([-inside[1], inside[0]])
        along = along / jnp.sqrt(along @ along)
        v0 = unfolding.join(y, values) + amplitude * along
    return _branch(unfolding, v0, along, along[None], (low, high), method)


@eqx.filter_jit
def _doubled(unfolding: Unfolding, s0: Array, w: Array, amplitude: Array) -> Array:
    r"""A point of the doubled orbit, whose unfolding is given, near a doubling of the orbit `s0` with the kernel `w`.

    The doubled orbit's strides are $s \pm a d$, in turn. Half the sum and, over $a$, half the difference of its two rounds'
    equations are regular for $a \to 0$, where they become those of the doubling itself; and $w \cdot d = 1$.
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
