r"""Close a stride upon itself: Newton's equation for a periodic orbit.

The unknown is the state *before* the last jump, $y$, and the map is $y \mapsto \text{flow}(R(y))$: so every arc starts on
the image of the reset. (A state slightly off it may meet its guard at once, or never.)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ._integrator import Integrator, PlainForward
from ._jump import reset
from ._linearize import perturbed, with_jacobian
from ._newton import newton
from ._result import RESULTS
from ._stride import run_stride
from ._system import HybridSystem
from ._types import Matrix, Params, Scalar, State


class Closure(eqx.Module):
    """What one evaluation of a closed chain of strides knows. `nodes[i]` is the start of stride `i`."""

    nodes: Float[Array, "strides n"]
    end: State
    period: Scalar
    jacobian: Matrix
    guard_rates: Float[Array, " arcs"]
    result: RESULTS


class SingleShooting(eqx.Module):
    """One unknown state for the whole orbit.

    **Arguments:** `max_iterations`: of Newton's method; each costs one orbit and its Jacobian. `accept`: the largest
    residual of an orbit relative to its state, by default a hundred times the integrator's tolerance.
    """

    max_iterations: int = 30
    accept: float | None = None


class Problem(eqx.Module):
    """Which orbit: everything that Newton's method does not change."""

    system: HybridSystem
    sequence: tuple[str, ...] = eqx.field(static=True)
    strides: int = eqx.field(static=True)

    def last_reset(self, y: State, params: Params) -> State:
        """The jump that closes the sequence. It is taken at time 0: a system that depends on time repeats itself."""
        taken = self.system.transitions[self.system.route(self.sequence)[-1]]
        return reset(taken, jnp.zeros((), y.dtype), y, params)


def follow(problem: Problem, x: State, params: Params, integrator: Integrator) -> tuple[Closure, Array]:
    """All strides of an orbit that starts at `x`, and the Jacobian of the state before the last jump.

    The tangents are pushed forward with the strides, through one loop.
    """
    n = x.shape[0]
    # A later stride starts when the one before it ends: in a system that depends on time, that matters.
    timed = problem.strides > 1

    def with_tangents(t, x):
        def run(t, x):
            stride = run_stride(problem.system, t, x, params, problem.sequence, integrator)
            return (t + stride.time, stride.x, stride.impacts[-1].x), stride

        def push(v):
            dt, dx = (v[0], v[1:]) if timed else (jnp.zeros_like(t), v)
            _, tangent, primal = jax.jvp(run, (t, x), (dt, dx), has_aux=True)
            return tangent, primal

        return jax.vmap(push, out_axes=(-1, None))(jnp.eye(n + timed, dtype=x.dtype))

    def one(carry, _):
        t, x, total, result = carry
        (dt, dx, dy), stride = with_tangents(t, x)
        result = RESULTS.where(result == RESULTS.successful, stride.result, result)
        down = jnp.concatenate([dt[None], dx]) @ total if timed else dx
        rates, before = stride.guard_rates, stride.impacts[-1].x
        return (t + stride.time, stride.x, down, result), (x, rates, before, dy @ total)

    first = jnp.concatenate([jnp.zeros((1, n), x.dtype), jnp.eye(n, dtype=x.dtype)]) if timed else jnp.eye(n, dtype=x.dtype)
    start = (jnp.zeros((), x.dtype), x, first, RESULTS.successful)
    if timed:
        (t, end, total, result), outs = jax.lax.scan(one, start, length=problem.strides)
        nodes, rates, before, before_jacobian = outs
        total, before, before_jacobian = total[1:], before[-1], before_jacobian[-1]
    else:
        (t, end, total, result), (x, rates, before, before_jacobian) = one(start, None)
        nodes = x[None]
    closure = Closure(nodes, end, t, total, rates.reshape(-1), result)
    return closure, (before, before_jacobian)


def solve(
    problem: Problem, guess: State, params: Params, method: SingleShooting, integrator: Integrator
) -> tuple[Closure, tuple]:
    """**Returns:** the closed orbit, and `(residual, iterations, result)`. Differentiable in `params`."""
    return _solve(problem, guess, params, method, integrator)


@eqx.filter_custom_jvp
def _solve(problem, guess, params, method, integrator):
    plain = eqx.tree_at(lambda i: i.adjoint, integrator, PlainForward())
    accept = method.accept
    if accept is None:
        rtol, atol = integrator.tolerances(guess.dtype)
        accept = 100 * (rtol + atol)

    def evaluate(y):
        x, dx = _with_jacobian(lambda y: problem.last_reset(y, params), y)
        closure, (before, jacobian) = follow(problem, x, params, plain)
        return before - y, jacobian @ dx - jnp.eye(y.size, dtype=y.dtype), closure

    root = newton(evaluate, _before(problem, guess, params), max_iterations=method.max_iterations, accept=accept)
    closure = root.aux
    result = RESULTS.where(
        (closure.result == RESULTS.successful) & ~root.converged, RESULTS.orbit_not_converged, closure.result
    )
    residual = jnp.max(jnp.abs(closure.end - closure.nodes[0]))
    return closure, (residual, root.iterations, result)


def _with_jacobian(fn, y):
    return fn(y), jax.jacfwd(fn)(y)


def _before(problem: Problem, x: State, params: Params) -> State:
    """A state `y` that the last reset takes to `x`, or as near to it as its image allows (Gauss-Newton, damped).

    Coordinates that the reset forgets are left alone: they do not matter to what follows.
    """
    mode = problem.system.mode(problem.sequence[-1])
    y = x if mode.dimension == x.size else jnp.zeros(mode.dimension, x.dtype)

    def improve(_, y):
        image, slope = _with_jacobian(lambda y: problem.last_reset(y, params), y)
        normal = slope.T @ slope
        damping = 1e-9 * jnp.trace(normal) + jnp.finfo(x.dtype).tiny
        step = jnp.linalg.solve(normal + damping * jnp.eye(y.size, dtype=y.dtype), slope.T @ (x - image))
        return y + jnp.where(jnp.all(jnp.isfinite(step)), step, 0)

    return jax.lax.fori_loop(0, 8, improve, y)


@_solve.def_jvp
def _solve_jvp(primals, tangents):
    problem, guess, params, method, integrator = primals
    dparams = tangents[2]
    closure, info = _solve(problem, guess, params, method, integrator)
    x = closure.nodes[0]
    moving, still = eqx.partition(params, perturbed(dparams))
    # Second derivatives of the flow, taken once and not in Newton's loop: what counts is the time to compile them.
    plain = eqx.tree_at(lambda i: i.adjoint, integrator, PlainForward(rolled=True))

    def evaluate(inputs):
        (x, moving), still = inputs
        found, _ = follow(problem, x, eqx.combine(moving, still), plain)
        out = (found.nodes, found.end, found.period, found.jacobian, found.guard_rates)
        return out, None

    # S(x(p), p) = x(p), so dx = (I - S_x)^-1 S_p dp; then everything else moves with both.
    out, jacobian, _ = with_jacobian(evaluate, (x, moving), still)
    _, unravel = ravel_pytree(out)
    dp = ravel_pytree(dparams)[0]
    by_x, by_p = jacobian[:, : x.size], jacobian[:, x.size :] @ dp
    forced = unravel(by_p)[1]
    operator = lx.MatrixLinearOperator(jnp.eye(x.size, dtype=x.dtype) - closure.jacobian)
    dx = lx.linear_solve(operator, forced, lx.LU(), throw=False).value
    dnodes, dend, dperiod, djacobian, drates = unravel(by_x @ dx + by_p)
    none = jax.tree.map(lambda _: None, (closure.result, info))
    return (closure, info), (Closure(dnodes, dend, dperiod, djacobian, drates, none[0]), none[1])
