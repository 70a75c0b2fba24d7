"""Shooting methods for periodic orbits; single shooting, with one unknown state for the whole orbit."""

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._flow.mode_integrators import Integrators
from .._numerics.elimination import solve_positive
from .._numerics.linearize import with_columns
from .._numerics.newton import DampedNewton, Evaluation, RootFinder
from .._system.results import choose, RESULTS
from .._system.types import Matrix, Params, Scalar, State
from .chain import Chain, follow_chain, return_matrices
from .problem import Problem
from .tolerance_stages import COARSE, find_root_by_stages

# A guess is nearly an orbit if the orbit's strides end within this distance of it, relative to the state.
NEAR = 1e-2


class Found(eqx.Module):
    """The end of a search for an orbit, successful or not.

    **Attributes:** `chain`: the strides of the last evaluation. `jacobian`: of the return map, from section to section.
    `residual`: the largest component of $S^m(x) - x$. `closing`: the largest sum of a row of the closing jump's Jacobian.
    `result`: the code of the search.
    """

    chain: Chain
    jacobian: Matrix
    residual: Scalar
    closing: Scalar
    iterations: Int[Array, ""]
    result: RESULTS


class AbstractShooting(eqx.Module):
    """A method that solves for a periodic orbit."""

    max_iterations: eqx.AbstractVar[int]
    accept: eqx.AbstractVar[float | None]
    root_finder: eqx.AbstractVar[RootFinder]
    coarse: eqx.AbstractVar[tuple[float, ...]]

    def __check_init__(self):
        sound = lambda each: isinstance(each, float) and 0 < each < 1
        if not isinstance(self.coarse, tuple) or not all(map(sound, self.coarse)):
            raise ValueError(
                f"{type(self).__name__}: coarse={self.coarse!r} must be a tuple of relative tolerances between 0 and 1, such as "
                "(1e-6, 1e-9), or () for none."
            )

    @abc.abstractmethod
    def search(self, problem: Problem, guess: Array, params: Params, integrator: Integrators) -> Found:
        """The orbit near a guess, with the evaluation at the solution. Not differentiable."""

    def acceptable(self, integrator: Integrators, dtype) -> float | Array:
        """The largest residual of an orbit, relative to the state."""
        return 100 * sum(integrator.tolerances(dtype)) if self.accept is None else self.accept


def outcome(converged, result) -> RESULTS:
    """The code of a search: that of a stride that failed, or `orbit_not_converged` where sound strides do not close."""
    return choose((result == RESULTS.successful) & ~converged, RESULTS.orbit_not_converged, result)


def largest_row(matrix: Matrix) -> Scalar:
    """The largest sum of the moduli in a row: the matrix's norm for the largest component of a vector."""
    return jnp.max(jnp.sum(jnp.abs(matrix), axis=1))


def with_slope(fn, y: Array) -> tuple[Array, Array]:
    """`fn(y)` and its Jacobian."""
    return fn(y), jax.jacfwd(fn)(y)


class SingleShooting(AbstractShooting):
    r"""Single shooting, the cheapest method for orbits that are not very unstable: one unknown, the pre-impact state $y$.

    $\text{flow}^m(R(y)) = y$, with the stride $\text{flow}(R(y))$. The first evaluation starts at the guess itself, which may
    have several pre-impact states.

    **Arguments:** `max_iterations`: of the root finder; an iteration costs the orbit's strides and their Jacobians. `accept`: the
    largest residual of an orbit relative to its state, by default 100 times the integrator's tolerances. `root_finder`: a root
    finder of optimistix, such as `optimistix.Newton(rtol=1e-12, atol=1e-12)`, `Dogleg` or `LevenbergMarquardt`; the residual
    decides whether its result is an orbit. `coarse`: relative tolerances of the integrator, from coarse to fine, with which the
    search begins, and which it leaves where the residual is about the root of the tolerance; the orbit itself has the
    integrator's own. `()`: all iterations have the integrator's own. Failures are the result codes of `periodic_orbit`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> method = hj.SingleShooting(max_iterations=50)
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence, method=method)
    >>> print(orbit.result)
    successful

    Source: Bhounsule (2014), Sec. 2; Deuflhard (2004), *Newton Methods for Nonlinear Problems*, ch. 3.
    """

    max_iterations: int = 30
    accept: float | None = None
    root_finder: RootFinder = DampedNewton()
    coarse: tuple[float, ...] = COARSE

    def search(self, problem: Problem, guess: Array, params: Params, integrator: Integrators) -> Found:
        size = jnp.max(jnp.abs(guess))
        guess, before = onto_image(problem, guess, params)
        if not isinstance(self.root_finder, DampedNewton):
            # Other root finders cannot start at the guess itself; they start at the pre-impact state of its last stride.
            chain, ends = follow_chain(problem, guess, params, integrator)
            before = jnp.where(chain.result == RESULTS.successful, ends[-1], before)
        root = find_root_by_stages(
            lambda integrator: orbit_equation(problem, guess, params, integrator), before, integrator, self.coarse,
            max_iterations=self.max_iterations, accept=self.acceptable(integrator, guess.dtype),
            root_finder=self.root_finder, size=size, settle=True,
        )  # fmt: skip
        chain, jacobian, closing = root.aux
        return Found(chain, jacobian, chain.residual, closing, root.iterations, outcome(root.converged, chain.result))


@eqx.filter_jit
def onto_image(problem: Problem, guess: State, params: Params) -> tuple[State, Array]:
    r"""The projection of a guess $x$ to the image of the closing reset: $(R(y), y)$ with the least $|R(y) - x|$.

    A guess slightly off the image of the reset may meet its guard at once. By the Levenberg-Marquardt method; where it fails, the
    guess itself is returned.
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
        step = solve_positive(damped, slope.T @ (guess - image))
        ends = jnp.where(~jnp.isfinite(least) | (settled & (tries > 0)), 1, 0)
        return tries + 1, y + step, y, image, slope, least, damping, ends

    slope = jnp.zeros((guess.size, n), guess.dtype)
    start = jnp.array(0), y, y, guess, slope, jnp.full((), jnp.inf, y.dtype), jnp.asarray(1e-2, y.dtype), jnp.array(0)
    # Hazard: the condition must depend on two carried numbers, see `run` in `hyjax/_flow/loop.py`.
    # The initial image is the guess itself, which stays if no better one is found.
    end = jax.lax.while_loop(lambda carry: (carry[0] < 25) & (carry[-1] < 1), improve, start)
    return end[3], end[2]


def orbit_equation(problem: Problem, guess: State | None, params: Params, integrator: Integrators):
    r"""The equation $\text{flow}^m(R(y)) - y = 0$ for `find_root`; `aux` is the chain, the return Jacobian, and the
    largest sum of a row of the closing jump's Jacobian.

    The first evaluation flows from the guess $x_0$, if given, to the pre-impact state $y_1$. Where the guess is nearly an orbit,
    $y_1$ is nearly a pre-impact state of the guess, also where $x_0$ has other preimages; then the equation is linearized at
    $y_1$: $r = D\,(R(y_1) - x_0)$ with $D = \partial y_1/\partial x_0$.
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
        # The distance |R(y1) - x0| is a lower bound of the residual: a stride whose end does not depend on its start has D = 0.
        off = jnp.where(near, jnp.max(jnp.abs(image - x)), 0)
        kept = chain if problem.varied else dataclasses.replace(chain, jacobians=None)
        return Evaluation(r, by_before @ slope - eye, at, (kept, by_end, largest_row(slope)), off, jnp.max(jnp.abs(y1)))

    return evaluate
