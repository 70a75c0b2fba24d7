r"""Close a chain of strides upon itself: Newton's equation for a periodic orbit.

The unknown is the state *before* a jump, $y$, and the map is $y \mapsto \text{flow}(R(y))$: so every arc starts on the image
of the reset. (A state slightly off it may meet its guard at once, or never.)
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from .._flow.integrator import Integrator
from .._flow.jump import reset
from .._flow.linearize import with_columns
from .._system.results import choose, RESULTS
from .._system.system import HybridSystem
from .._system.types import Matrix, Params, Scalar, State
from .newton import newton
from .stride import traced_stride


class Problem(eqx.Module):
    """Which orbit: everything that Newton's method does not change."""

    system: HybridSystem
    sequence: tuple[str, ...] = eqx.field(static=True)
    strides: int = eqx.field(static=True)
    # Strides with `Integrator(unroll=False)`: where an orbit is found once, compile time weighs more than run time.
    rolled: bool = eqx.field(static=True, default=False)
    # Where the orbit is differentiated: which leaves of `(system, params)` move, so that the strides' Jacobians have columns
    # for them too. Empty where it is not.
    moving: tuple[bool, ...] = eqx.field(static=True, default=())

    def split(self, params: Params) -> tuple[PyTree, PyTree]:
        """`(system, params)`: what moves, and what does not."""
        leaves, tree = jax.tree.flatten((self.system, params))
        flags = self.moving or (False,) * len(leaves)
        return eqx.partition((self.system, params), jax.tree.unflatten(tree, flags))

    def last_reset(self, y: State, params: Params, t: Scalar | None = None) -> Array:
        """The jump that closes the sequence. That which closes the orbit is taken at time 0, as if none is given: a system
        that depends on time repeats itself."""
        taken = self.system.transitions[self.system.route(self.sequence)[-1]]
        return reset(taken, jnp.zeros((), y.dtype) if t is None else t, y, params)


class Closure(eqx.Module):
    """A closed chain of strides. `nodes[i]` and `starts[i]` are state and time at the start of stride `i`; `end` is
    where the last stride ends, which is `nodes[0]` but for the residual. `by`: where the problem names what moves, the
    strides' Jacobians; see `stride_jacobian`."""

    nodes: Float[Array, "strides n"]
    starts: Float[Array, " strides"]
    end: State
    period: Scalar
    jacobian: Matrix
    guard_rates: Float[Array, " arcs"]
    by: tuple[Array, Array, Array] | None = None


class Found(eqx.Module):
    """What a search ends with, whether it found an orbit or not."""

    closure: Closure
    residual: Scalar
    iterations: Int[Array, ""]
    result: RESULTS


class AbstractShooting(eqx.Module):
    """How a periodic orbit is solved for."""

    max_iterations: eqx.AbstractVar[int]
    accept: eqx.AbstractVar[float | None]

    @abc.abstractmethod
    def search(self, problem: Problem, guess: Array, params: Params, integrator: Integrator) -> Found:
        """The closed orbit near a guess, with the evaluation that closed it. Not differentiable."""

    def acceptable(self, integrator: Integrator, dtype) -> float | Array:
        """The largest residual, relative to the state, of what is called an orbit."""
        return 100 * sum(integrator.tolerances(dtype)) if self.accept is None else self.accept


def stride_jacobian(problem: Problem, t: Scalar, x: State, params: Params, integrator: Integrator):
    """One stride from `(t, x)`, with its tangents pushed along, through one loop.

    **Returns:** the Jacobians of the end `(t, x)`, of the duration and of the guards' rates by the start `(t, x)` and by
    what moves in the problem; that of the state before the last jump by the start; and the stride. A later stride starts when
    the one before it ends, which matters in a system that depends on time; for an orbit of one stride, the start's time is
    fixed, and its column left out.
    """
    timed = problem.strides > 1
    moving, still = problem.split(params)
    start, unravel = ravel_pytree(((t, x) if timed else (x,), moving))

    def run(start):
        state, moving = unravel(start)
        system, params = eqx.combine(moving, still)
        stride = traced_stride(system, state[0] if timed else t, state[-1], params, problem.sequence, integrator)
        end = jnp.append(state[0] + stride.time, stride.x) if timed else stride.x
        return (end, stride.time, stride.guard_rates, stride.impacts[-1].x), stride

    _, (*by, before), stride = with_columns(run, start)
    return tuple(by), before[:, : x.size + timed], stride


@eqx.filter_jit
def before_reset(problem: Problem, x: State, params: Params) -> Array:
    """A state `y` that the last reset takes to `x`, or as near to it as its image allows (Gauss-Newton, damped).

    Coordinates that the reset forgets are left alone: they do not matter to what follows.
    """
    mode = problem.system.mode(problem.sequence[-1])
    y = x if mode.dimension == x.size else jnp.zeros(mode.dimension, x.dtype)

    def improve(_, y):
        image, slope = with_slope(lambda y: problem.last_reset(y, params), y)
        normal = slope.T @ slope
        damping = 1e-9 * jnp.trace(normal) + jnp.finfo(x.dtype).tiny
        step = jnp.linalg.solve(normal + damping * jnp.eye(y.size, dtype=y.dtype), slope.T @ (x - image))
        return y + jnp.where(jnp.all(jnp.isfinite(step)), step, 0)

    return jax.lax.fori_loop(0, 8, improve, y)


def with_slope(fn, y: Array) -> tuple[Array, Array]:
    """`fn(y)` and its Jacobian."""
    return fn(y), jax.jacfwd(fn)(y)


def outcome(converged, result) -> RESULTS:
    """The code of a search: a stride that failed says why; a sound stride that does not return is not an orbit."""
    return choose((result == RESULTS.successful) & ~converged, RESULTS.orbit_not_converged, result)


class SingleShooting(AbstractShooting):
    """One unknown state for the whole orbit: the cheapest, for orbits that are not very unstable.

    **Arguments:** `max_iterations`: of Newton's method; each costs one orbit and its Jacobian. `accept`: the largest
    residual of an orbit relative to its state, by default a hundred times the integrator's tolerances.
    """

    max_iterations: int = 30
    accept: float | None = None

    def search(self, problem: Problem, guess: Array, params: Params, integrator: Integrator) -> Found:
        def evaluate(y):
            x, slope = with_slope(lambda y: problem.last_reset(y, params), y)
            closure, before, jacobian, result = follow_orbit(problem, x, params, integrator)
            return before[-1] - y, jacobian @ slope - jnp.eye(y.size, dtype=y.dtype), (closure, result)

        accept = self.acceptable(integrator, guess.dtype)
        start = before_reset(problem, guess, params)
        root = newton(evaluate, start, max_iterations=self.max_iterations, accept=accept)
        closure, result = root.aux
        residual = jnp.max(jnp.abs(closure.end - closure.nodes[0]))
        return Found(closure, residual, root.iterations, outcome(root.converged, result))


def follow_orbit(
    problem: Problem,
    x: State,
    params: Params,
    integrator: Integrator,
    restarts: Float[Array, "strides before"] | None = None,
) -> tuple[Closure, Float[Array, "strides before"], Matrix, RESULTS]:
    """All strides of an orbit that starts at `x`; the states before their last jumps, the Jacobian of the last one by `x`, the
    code. With `restarts`, the states before their first jumps, each stride starts from its own."""
    n, timed = x.size, problem.strides > 1

    def one(carry, restart):
        t, x, total, result = carry
        x = x if restart is None else problem.last_reset(restart, params, t)
        by, before, stride = stride_jacobian(problem, t, x, params, integrator)
        result = choose(result == RESULTS.successful, stride.result, result)
        outs = (t, x, stride.guard_rates, stride.impacts[-1].x, before @ total, by if problem.moving else None)
        return (t + stride.time, stride.x, by[0][:, : n + timed] @ total, result), outs

    total = jnp.eye(n + timed, dtype=x.dtype)[:, timed:]
    start = (jnp.zeros((), x.dtype), x, total, RESULTS.successful)
    if timed:
        (t, end, total, result), outs = jax.lax.scan(one, start, restarts, length=problem.strides)
    else:
        (t, end, total, result), outs = one(start, None if restarts is None else restarts[0])
        outs = jax.tree.map(lambda leaf: leaf[None], outs)
    starts, nodes, rates, before, by_x, by = outs
    closure = Closure(nodes, starts, end, t, total[timed:], rates.reshape(-1), by)
    return closure, before, by_x[-1], result  # pyright: ignore
