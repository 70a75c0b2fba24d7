"""Single shooting: one unknown state for the whole orbit."""

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._flow.elimination import solve
from .._flow.linearize import with_columns
from .._flow.mode_integrators import Integrators
from .._system.results import choose, RESULTS
from .._system.types import Matrix, Params, Scalar, State
from .chain import Chain, follow_chain, return_matrices
from .newton import DampedNewton, Evaluation, find_root, RootFinder
from .problem import Problem

# A stride that ends so near to where it started, relative to the state, is nearly an orbit.
NEAR = 1e-2


class Found(eqx.Module):
    """What a search ends with, whether an orbit was found or not.

    **Attributes:** `chain`: the strides of the last evaluation. `jacobian`: of the return map, section to section.
    """

    chain: Chain
    jacobian: Matrix
    residual: Scalar
    iterations: Int[Array, ""]
    result: RESULTS


class AbstractShooting(eqx.Module):
    """How a periodic orbit is solved for."""

    max_iterations: eqx.AbstractVar[int]
    accept: eqx.AbstractVar[float | None]
    root_finder: eqx.AbstractVar[RootFinder]

    @abc.abstractmethod
    def search(self, problem: Problem, guess: Array, params: Params, integrator: Integrators) -> Found:
        """The closed orbit near a guess, with the evaluation that closed it. Not differentiable."""

    def acceptable(self, integrator: Integrators, dtype) -> float | Array:
        """The largest residual, relative to the state, of what is called an orbit."""
        return 100 * sum(integrator.tolerances(dtype)) if self.accept is None else self.accept


def outcome(converged, result) -> RESULTS:
    """The code of a search: a stride that failed says why; a sound stride that does not return is not an orbit."""
    return choose((result == RESULTS.successful) & ~converged, RESULTS.orbit_not_converged, result)


def with_slope(fn, y: Array) -> tuple[Array, Array]:
    """`fn(y)` and its Jacobian."""
    return fn(y), jax.jacfwd(fn)(y)


class SingleShooting(AbstractShooting):
    r"""One unknown state for the whole orbit: the cheapest, for orbits that are not very unstable.

    $\text{flow}^m(R(y)) = y$. The first evaluation flows from the guess itself: no state that jumps to the guess is sought, for
    there may be several.

    **Arguments:** `max_iterations`: of the root finder; each costs one orbit and its Jacobian. `accept`: the largest
    residual of an orbit relative to its state, by default a hundred times the integrator's tolerances. `root_finder`: any of
    optimistix, such as `optimistix.Newton(rtol=1e-12, atol=1e-12)`, `Dogleg` or `LevenbergMarquardt`; whether its result is an
    orbit is judged from the residual. `find_orbits` limits the steps of the default one alone in its coarse search.
    """

    max_iterations: int = 30
    accept: float | None = None
    root_finder: RootFinder = DampedNewton()

    def search(self, problem: Problem, guess: Array, params: Params, integrator: Integrators) -> Found:
        size = jnp.max(jnp.abs(guess))
        guess, before = onto_image(problem, guess, params)
        if not isinstance(self.root_finder, DampedNewton):
            # Others cannot start from the guess itself, but from the state before its next jump.
            chain, ends = follow_chain(problem, guess, params, integrator)
            before = jnp.where(chain.result == RESULTS.successful, ends[-1], before)
        root = find_root(
            orbit_equation(problem, guess, params, integrator), before, max_iterations=self.max_iterations,
            accept=self.acceptable(integrator, guess.dtype), root_finder=self.root_finder, size=size,
        )  # fmt: skip
        chain, jacobian = root.aux
        residual = jnp.max(jnp.abs(chain.end - chain.nodes[0]))
        return Found(chain, jacobian, residual, root.iterations, outcome(root.converged, chain.result))


@eqx.filter_jit
def onto_image(problem: Problem, guess: State, params: Params) -> tuple[State, Array]:
    r"""The state nearest to a guess that the closing jump can lead to, and a state that jumps there. $(R(y), y)$ with the least
    $|R(y) - x|$.

    A guess slightly off the image of the reset may meet its guard at once. By the Levenberg-Marquardt method. The guess itself
    where nothing near it is found.
    """
    n = problem.before_dimension
    y = jnp.concatenate([guess, jnp.zeros(n, guess.dtype)])[:n] if n != guess.size else guess
    jump = lambda y: (problem.closing_jump(y, params), None)

    def improve(carry):
        tries, trial, y, image, slope, least, damping, _ = carry
        image1, slope1, _ = with_columns(jump, trial)
        distance = jnp.sum((image1 - guess) ** 2)
        better = distance < least
        settled = better & (jnp.max(jnp.abs(trial - y)) <= jnp.finfo(y.dtype).eps ** 0.5 * jnp.max(jnp.abs(y)))
        y, image, slope, least = jax.tree.map(
            lambda new, old: jnp.where(better, new, old), (trial, image1, slope1, distance), (y, image, slope, least)
        )
        damping = jnp.clip(jnp.where(better, damping / 10, damping * 10), 1e-9, 1e6)
        normal = slope.T @ slope
        damped = normal + (damping * jnp.trace(normal) + jnp.finfo(y.dtype).tiny) * jnp.eye(n, dtype=y.dtype)
        step = solve(damped, slope.T @ (guess - image))
        ends = jnp.where(~jnp.isfinite(least) | (settled & (tries > 0)), 1, 0)
        return tries + 1, y + step, y, image, slope, least, damping, ends

    slope = jnp.zeros((guess.size, n), guess.dtype)
    start = jnp.array(0), y, y, guess, slope, jnp.full((), jnp.inf, y.dtype), jnp.asarray(1e-2, y.dtype), jnp.array(0)
    # On two carried numbers: see `_flow/loop.py`. The image is the guess itself as long as nothing better is found.
    end = jax.lax.while_loop(lambda carry: (carry[0] < 25) & (carry[-1] < 1), improve, start)
    return end[3], end[2]


def orbit_equation(problem: Problem, guess: State | None, params: Params, integrator: Integrators):
    r"""$\text{flow}^m(R(y)) - y$ as `find_root` asks for it; `aux` is the chain and the return Jacobian.

    The first evaluation flows from the guess $x_0$, where there is one, to $y_1$. Where the guess is nearly an orbit, $y_1$ is
    nearly the state that jumps to it, whatever other preimages $x_0$ has; so the equation is linearized there:
    $r = D\,(R(y_1) - x_0)$ with $D = \partial y_1/\partial x_0$.
    """

    def evaluate(y: Array, first) -> Evaluation:
        image = problem.closing_jump(y, params)
        x = image if guess is None else jnp.where(first, guess, image)
        chain, ends = follow_chain(problem, x, params, integrator)
        assert chain.jacobians is not None
        by_end, by_before = return_matrices(problem, chain.jacobians)
        y1, at, near = ends[-1], y, jnp.array(False)
        if guess is not None:
            gap = jnp.max(jnp.abs(problem.closing_jump(y1, params) - x))
            near = first & (gap <= NEAR * jnp.max(jnp.abs(x)))
            at = jnp.where(near, y1, y)
        image, slope = with_slope(lambda y: problem.closing_jump(y, params), at)
        eye = jnp.eye(y.size, dtype=y.dtype)
        r = jnp.where(near, by_before @ (image - x), y1 - at)
        # How far the guess is from its own image counts too: a stride that forgets where it started has D = 0.
        off = jnp.where(near, jnp.max(jnp.abs(image - x)), 0)
        kept = chain if problem.varied else dataclasses.replace(chain, jacobians=None)
        return Evaluation(r, by_before @ slope - eye, at, (kept, by_end), off)

    return evaluate
