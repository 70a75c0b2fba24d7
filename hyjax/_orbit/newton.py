"""Newton's method with one evaluation per iteration, which keeps what the last evaluation knew."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Bool, Float, Int, PyTree


class Root(eqx.Module):
    """**Attributes:** `y`: the best iterate. `aux`: what its evaluation returned. `residual`: its largest residual.
    `converged`: whether the residual is down to rounding. `iterations`: how often `evaluate` was called."""

    y: Float[Array, " n"]
    aux: PyTree
    residual: Float[Array, ""]
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]


class _Search(eqx.Module):
    trial: Float[Array, " n"]
    y: Float[Array, " n"]
    step: Float[Array, " n"]
    fraction: Float[Array, ""]
    residual: Float[Array, ""]
    aux: PyTree
    iterations: Int[Array, ""]
    done: Bool[Array, ""]


def newton(
    evaluate: Callable[[Array], tuple[Array, Array, PyTree]],
    y0: Array,
    *,
    max_iterations: int | Int[Array, ""],
    accept: float | Float[Array, ""],
) -> Root:
    r"""Solve $r(y) = 0$ by Newton's method, shortening a step that does not lower the residual.

    An evaluation may fail (its numbers are not finite): such a step is shortened too. The iteration ends where the
    residual stops falling, which is at rounding; so nothing is left to a tolerance, and `aux` belongs to the solution
    itself: no further evaluation is needed to know the orbit's Jacobian.

    **Arguments:** `evaluate`: `y -> (r, dr/dy, aux)`. `accept`: the largest residual of a root, relative to `y` or to `y0`,
    whichever is larger: a root at zero has no size of its own.
    """
    eps = jnp.finfo(y0.dtype).eps
    evaluate = jax.jit(evaluate)  # one trace, for its shape and for the loop
    _, _, aux = jax.eval_shape(evaluate, y0)
    aux = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0, leaf.dtype), aux)
    infinite = jnp.full((), jnp.inf, y0.dtype)
    start = _Search(y0, y0, jnp.zeros_like(y0), jnp.ones_like(infinite), infinite, aux, jnp.array(0), jnp.array(False))

    def size_of(y: Array) -> Array:
        return jnp.maximum(jnp.max(jnp.abs(y)), jnp.max(jnp.abs(y0)))

    def body(search: _Search) -> _Search:
        r, jacobian, aux = evaluate(search.trial)
        finite = jnp.all(jnp.isfinite(r)) & jnp.all(jnp.isfinite(jacobian))
        size = size_of(search.y)
        residual = jnp.where(finite, jnp.max(jnp.abs(r)), jnp.inf)
        first = search.iterations == 0
        # Near the root the residual is rounding, and no longer falls.
        rounding = (residual <= accept * size) & (residual >= search.residual / 4)
        better = (residual < search.residual) | first

        step = jnp.where(better, _newton_step(jnp.where(finite, jacobian, 0), jnp.where(finite, r, 0)), search.step)
        usable = jnp.all(jnp.isfinite(step))
        fraction = jnp.where(better, jnp.minimum(1, 4 * search.fraction), search.fraction / 4)
        # A step longer than the state itself says that the linearization is worthless so far out.
        length = jnp.max(jnp.abs(step))
        fraction = jnp.minimum(fraction, jnp.where(size > 0, size / jnp.where(length > 0, length, 1), 1))
        y = jnp.where(better, search.trial, search.y)
        kept = jax.tree.map(lambda new, old: jnp.where(better, new, old), aux, search.aux)
        tiny = better & (length <= 4 * eps * jnp.max(jnp.abs(y))) & finite
        hopeless = ~usable | (fraction < 1e-3) | (first & ~finite)
        return _Search(
            trial=y + fraction * step,
            y=y,
            step=step,
            fraction=fraction,
            residual=jnp.where(better, residual, search.residual),
            aux=kept,
            iterations=search.iterations + 1,
            done=tiny | rounding | hopeless | (search.iterations + 1 >= max_iterations),
        )

    end = jax.lax.while_loop(lambda search: ~search.done, body, start)
    return Root(end.y, end.aux, end.residual, end.residual <= accept * size_of(end.y), end.iterations)


def _newton_step(jacobian, r):
    """`-jacobian^-1 r`; where the Jacobian is singular, the shortest step of least residual, damped.

    Columns are brought to length 1 first: an unknown in small units does not make a system singular.
    """
    lengths = jnp.sqrt(jnp.sum(jacobian**2, axis=0))
    lengths = jnp.where(lengths > 0, lengths, 1)
    columns = jacobian / lengths
    step = -lx.linear_solve(lx.MatrixLinearOperator(columns), r, lx.LU(), throw=False).value
    damping = jnp.finfo(r.dtype).eps ** 0.75 * r.size * jnp.eye(r.size, dtype=r.dtype)
    normal = lx.MatrixLinearOperator(columns.T @ columns + damping)
    damped = -lx.linear_solve(normal, columns.T @ r, lx.LU(), throw=False).value
    singular = ~jnp.all(jnp.isfinite(step)) | (jnp.max(jnp.abs(step)) > 1e3 * jnp.max(jnp.abs(damped)))
    return jnp.where(singular, damped, step) / lengths
