r"""Root finding for equations whose evaluation is expensive and returns the Jacobian with the residual.

`optimistix.root_find` runs the search. An evaluation costs strides, so the derivative of the function given to optimistix is the
Jacobian that the evaluation returns, without further strides. Any root finder of optimistix can be used; `DampedNewton` also
returns the evaluation at the root, so that none is repeated.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, Int, PyTree

from .elimination import solve
from .linearize import with_columns
from .trees import select

RootFinder = optx.AbstractRootFinder | optx.AbstractLeastSquaresSolver


class Root(eqx.Module):
    """The result of a root search.

    **Attributes:** `y`: the best iterate. `aux`: the `aux` of its evaluation. `residual`: the largest component of its residual.
    `converged`: whether the residual is acceptable. `iterations`: the number of steps of the root finder. `ahead`: the next
    iterate of `DampedNewton`, which was not evaluated; `y` of another root finder.
    """

    y: Float[Array, " n"]
    aux: PyTree
    residual: Float[Array, ""]
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    ahead: Float[Array, " n"]


class Evaluation(NamedTuple):
    """The residual `r` and its Jacobian at the point `at`, with auxiliary output `aux`. `off`: a lower bound of the residual's
    size, where `r` itself may underestimate the error. `size`: of the states that the evaluation meets, where those may be larger
    than the point: a step of this length is not too long."""

    r: Float[Array, " n"]
    jacobian: Float[Array, "n n"]
    at: Float[Array, " n"]
    aux: PyTree
    off: float | Float[Array, ""] = 0.0
    size: float | Float[Array, ""] = 0.0


class _NewtonSearch(eqx.Module):
    """The best iterate `y` so far, its Newton step, residual and `aux`; the next trial is `y + fraction * step`."""

    y: Float[Array, " n"]
    step: Float[Array, " n"]
    fraction: Float[Array, ""]
    residual: Float[Array, ""]
    aux: PyTree
    iterations: Int[Array, ""]
    done: Bool[Array, ""]


class DampedNewton(optx.AbstractRootFinder):
    r"""Damped Newton's method with one evaluation per iteration: $y \leftarrow y - \alpha J^{-1} r$.

    A step that does not lower the residual, or whose evaluation fails (is not finite), is shortened. The iteration ends where the
    residual stops falling, at rounding. So `rtol` and `atol` are no stopping criterion, but the largest residual of a root:
    `atol + rtol * size`, where `size` is that of the iterate or of the start, whichever is larger (a root at zero has size 0).
    With `settle` above zero, it ends as soon as the residual is at most `settle * size`.
    The `aux` of the solution belongs to the returned iterate itself.

    **Options** of `optimistix.root_find`: `accept`, in place of `rtol` (may be traced). `size`: of the start, by default
    `max(abs(y0))`. `first`: the `args` of the first evaluation. `base`: a function of `aux` that returns the point of the
    evaluation, which may differ from the iterate, a lower bound of the residual, and the length of a step that is not too long.

    Source: Deuflhard (2004), *Newton Methods for Nonlinear Problems*, ch. 3, for damping.
    """

    rtol: float = 1e-10
    atol: float = 0.0
    settle: float | Float[Array, ""] = 0.0
    norm: Callable[[PyTree], Array] = optx.max_norm

    def init(self, fn, y, args, options, f_struct, aux_struct, tags) -> _NewtonSearch:
        aux = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), aux_struct)
        infinite = jnp.full((), jnp.inf, y.dtype)
        return _NewtonSearch(
            y, jnp.zeros_like(y), jnp.ones_like(infinite), infinite, aux, jnp.array(0), jnp.array(False)
        )

    def step(self, fn, y, args, options, state: _NewtonSearch, tags) -> tuple[Array, _NewtonSearch, PyTree]:
        eps = jnp.finfo(y.dtype).eps
        first = state.iterations == 0
        if "first" in options:
            args = select(first, options["first"], args)
        r, jacobian, aux = with_columns(lambda y: fn(y, args), y)
        here, least, reach = options["base"](aux) if "base" in options else (y, 0.0, 0.0)
        r = r + jacobian @ (here - y) if "base" in options else r
        finite = jnp.all(jnp.isfinite(r)) & jnp.all(jnp.isfinite(jacobian)) & jnp.all(jnp.isfinite(here))
        here = jnp.where(finite, here, y)
        size = self._size(state.y, options)
        residual = jnp.where(finite, jnp.maximum(jnp.max(jnp.abs(r)), least), jnp.inf)
        # At the root the residual is rounding and no longer falls. Towards a triple root, as near a pitchfork, it falls to 0.3.
        rounding = (residual <= self._accept(size, options)) & (residual >= state.residual / 3)
        better = (residual < state.residual) | first

        step = jnp.where(better, _newton_step(jnp.where(finite, jacobian, 0), jnp.where(finite, r, 0)), state.step)
        usable = jnp.all(jnp.isfinite(step))
        fraction = jnp.where(better, jnp.minimum(1, 4 * state.fraction), state.fraction / 4)
        # The linearization is not trusted over a step longer than the state itself. At the start this is also the state to which
        # the flow leads: the state before a jump to zero is not small.
        length, reach = jnp.max(jnp.abs(step)), jnp.maximum(size, jnp.where(finite & first, reach, 0))
        fraction = jnp.minimum(fraction, jnp.where(reach * length > 0, reach / jnp.where(length > 0, length, 1), 1))
        best = jnp.where(better, here, state.y)
        kept = select(better, aux, state.aux)
        tiny = better & (length <= 4 * eps * jnp.max(jnp.abs(best))) & finite
        # A zero step from the first evaluation is no root if the lower bound of the residual is too large.
        tiny = tiny & ~(first & (least > self._accept(size, options)))
        settled = better & finite & (residual <= self.settle * size)
        hopeless = ~usable | (fraction < 1e-3) | (first & ~finite)
        after = _NewtonSearch(
            y=best,
            step=step,
            fraction=fraction,
            residual=jnp.where(better, residual, state.residual),
            aux=kept,
            iterations=state.iterations + 1,
            done=tiny | rounding | settled | hopeless,
        )
        # The loop of optimistix carries the last `aux` too; zeros cost nothing, and `postprocess` returns the best iterate's.
        return best + fraction * step, after, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), aux)

    def terminate(self, fn, y, args, options, state: _NewtonSearch, tags):
        sound = state.residual <= self._accept(self._size(state.y, options), options)
        code = optx.RESULTS.where(state.done & ~sound, optx.RESULTS.nonlinear_divergence, optx.RESULTS.successful)
        return state.done, code

    def postprocess(self, fn, y, aux, args, options, state: _NewtonSearch, tags, result):
        return state.y, state.aux, {"residual": state.residual}

    def _size(self, y: Array, options: dict[str, Any]) -> Array:
        return jnp.maximum(jnp.max(jnp.abs(y)), options.get("size", 0.0))

    def _accept(self, size: Array, options: dict[str, Any]) -> Array:
        return self.atol + options.get("accept", self.rtol) * size


class _Limited(optx.AbstractAdjoint):
    """The search as a plain loop of at most `most` steps, which may be traced. The search is not differentiated."""

    most: int | Int[Array, ""]

    def apply(self, primal_fn, rewrite_fn, inputs, tags):
        def loop(condition, body, start, *, max_steps):
            # Hazard: the condition must depend on two carried numbers, see `run` in `hyjax/_flow/loop.py`.
            going = lambda carry: condition(carry[1]) & (carry[0] < self.most)
            return jax.lax.while_loop(going, lambda carry: (carry[0] + 1, body(carry[1])), (jnp.array(0), start))[1]

        return primal_fn((*inputs, loop))


def find_root(
    evaluate: Callable[[Array, Bool[Array, ""]], Evaluation],
    y0: Array,
    *,
    max_iterations: int | Int[Array, ""],
    accept: float | Float[Array, ""],
    root_finder: RootFinder = DampedNewton(),
    size: float | Float[Array, ""] | None = None,
    first: bool | Bool[Array, ""] = True,
) -> Root:
    r"""Solve $r(y) = 0$ by a root finder of optimistix. Not differentiable.

    **Arguments:** `evaluate`: `(y, first) -> Evaluation`, at `y`, or if `first` at a point of its own choice; `first` is true
    only in the first evaluation of `DampedNewton`, and with `first=False` never. `accept`: the largest residual of a root,
    relative to the root or to `size` (by default that of `y0`), whichever is larger.
    """

    def fn(y, first):
        r, jacobian, at, aux, *bounds = evaluate(stop_gradient(y), first)
        return r + jacobian @ (y - at), (at, *(jnp.asarray(bound, y.dtype) for bound in bounds), aux)

    size = jnp.max(jnp.abs(y0)) if size is None else jnp.asarray(size, y0.dtype)
    ours = isinstance(root_finder, DampedNewton)
    options = {"accept": accept, "size": size, "first": jnp.asarray(first), "base": lambda aux: aux[:3]} if ours else {}
    found = optx.root_find(
        fn, root_finder, y0, jnp.array(False), options, has_aux=True, max_steps=None, throw=False,
        adjoint=_Limited(max_iterations),
    )  # fmt: skip
    y, ahead, aux = found.value, found.value, found.aux
    if ours:
        residual, ahead = found.stats["residual"], found.state.y + found.state.fraction * found.state.step
        *_, aux = aux
    else:
        # The root finders of optimistix return the evaluation of the previous iterate.
        r, _, _, aux, *_ = evaluate(y, jnp.array(False))
        residual = jnp.where(jnp.all(jnp.isfinite(r)), jnp.max(jnp.abs(r)), jnp.inf)
    converged = residual <= accept * jnp.maximum(jnp.max(jnp.abs(y)), size)
    return Root(y, aux, residual, converged, found.stats["num_steps"], ahead)


def newton(
    evaluate: Callable[[Array], tuple[Array, Array, PyTree]],
    y0: Array,
    *,
    max_iterations: int | Int[Array, ""],
    accept: float | Float[Array, ""],
) -> Root:
    """`find_root` by `DampedNewton`, of an equation `y -> (r, dr/dy, aux)`."""

    def at_itself(y, first):
        r, jacobian, aux = evaluate(y)
        return Evaluation(r, jacobian, y, aux)

    return find_root(at_itself, y0, max_iterations=max_iterations, accept=accept)


def _newton_step(jacobian, r):
    """The Newton step `-jacobian^-1 r`; where the Jacobian is singular, the damped least-squares step.

    The columns are scaled to length 1 first, so that the units of an unknown do not make the system look singular.
    """
    lengths = jnp.sqrt(jnp.sum(jacobian**2, axis=0))
    lengths = jnp.where(lengths > 0, lengths, 1)
    columns = jacobian / lengths
    damping = jnp.finfo(r.dtype).eps ** 0.75 * r.size * jnp.eye(r.size, dtype=r.dtype)
    # Both systems in one batch, so that one loop is compiled.
    matrices = jnp.stack([columns, columns.T @ columns + damping])
    step, damped = -jax.vmap(solve)(matrices, jnp.stack([r, columns.T @ r]))
    singular = ~jnp.all(jnp.isfinite(step)) | (jnp.max(jnp.abs(step)) > 1e3 * jnp.max(jnp.abs(damped)))
    return jnp.where(singular, damped, step) / lengths
