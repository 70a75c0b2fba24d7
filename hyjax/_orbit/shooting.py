r"""Shooting methods for periodic orbits: single shooting, with one unknown state for the whole orbit, and multiple shooting, with
one for each arc.

Both solve by stages: with coarse tolerances of the integrator while the residual is large, then with its own. Far from the root a
residual needs no more digits than the next Newton step removes: a stride with tolerance $\tau$ serves until the residual is about
$\sqrt\tau$, from where one step leads to about $\tau$. Each stage is a search of its own, so that all lanes of a batch have the
same tolerance at the same time: a lane that has settled waits for the others, and its result does not depend on them.

Source: Deuflhard (2004), *Newton Methods for Nonlinear Problems*, Sec. 2.1, inexact Newton methods.
"""

import abc
import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._flow.flow import run_to_guard
from .._flow.in_step import each_in_step, nothing_owed, owed_after, without_order
from .._flow.integrator import coarsened, Integrators, Limits, with_limits
from .._flow.jump import reset
from .._numerics.eager import short_run
from .._numerics.elimination import solve_positive
from .._numerics.linearize import with_columns
from .._numerics.newton import DampedNewton, Evaluation, find_root, Root, RootFinder
from .._numerics.trees import select, without_tangents
from .._system.results import choose, RESULTS
from .._system.types import Matrix, Params, require_kind, Scalar, State
from .chain import Chain, follow_chain, return_matrices
from .problem import Problem
from .stride import run_stride

# The default of `coarse`.
COARSE = (1e-6, 1e-9)
# The residual, relative to the state, at which a stage with the tolerance tau ends is this power of tau.
SETTLE = 0.5
# Below this residual a stage also ends when the residual stops falling: its strides are not accurate enough for more digits.
NEARBY = 1e-2


def find_root_by_stages(
    equation: Callable[[Integrators], Callable[[Array, Bool[Array, ""]], Evaluation]],
    y0: Float[Array, " n"],
    integrator: Integrators,
    coarse: tuple[float, ...],
    *,
    max_iterations: int | Array,
    accept: float | Array,
    root_finder: RootFinder,
    size: Float[Array, ""],
    settle: bool,
) -> Root:
    """`find_root` for an equation of strides, with `DampedNewton` by stages.

    Where the coarse stages do not lead to a root, the search is repeated from the start with the integrator's own tolerances.
    **Arguments:** `equation`: `integrator -> evaluate` (see `find_root`). `coarse`: decreasing relative tolerances; those that
    the integrator's own exceeds are omitted. `settle`: whether the last stage ends at a residual of half the tolerance, which is
    the integrator's error: a further step would change, but not reduce it. Else it ends where the residual stops falling.
    """
    own, smallest = integrator.tolerances(y0.dtype)
    last = (own + smallest) / 2 if settle else 0.0
    # A traced tolerance may have any value: stages are for known tolerances only.
    coarse = tuple(each for each in coarse if isinstance(own, float) and each > own)
    options = {"size": size, "max_iterations": max_iterations}
    if not (isinstance(root_finder, DampedNewton) and coarse):
        return find_root(equation(integrator), y0, accept=accept, root_finder=root_finder, **options)

    finder, no = root_finder, jnp.array(False)

    # Under `jit` the search is traced once, for its shapes and for the scan.
    @jax.jit
    def search(y, tolerance, enough, first, most) -> Root:
        return find_root(
            equation(coarsened(integrator, tolerance, y0.dtype)), y, accept=jnp.where(tolerance > 0, NEARBY, accept),
            root_finder=dataclasses.replace(finder, settle=jnp.maximum(enough, finder.settle)), first=first,
            size=size, max_iterations=most,
        )  # fmt: skip

    def stage(carry, each):
        y, best, iterations, lost = carry
        tolerance, enough, first, again = each
        # The last row repeats the search from the start, for lanes in which the stages led to no root.
        idle = jnp.where(again, best.converged & ~lost, lost)
        found = search(
            jnp.where(again, y0, y), tolerance, enough, first, jnp.where(idle, 0, jnp.asarray(max_iterations))
        )
        kept = select(idle, best, found)
        ahead = jnp.where(idle, y, found.ahead)
        return (ahead, kept, iterations + found.iterations, ~again & (lost | ~found.converged & (tolerance > 0))), None

    count = len(coarse)
    rows = (
        np.array([*coarse, 0, 0], y0.dtype),
        np.array([*(each**SETTLE for each in coarse), last, last], y0.dtype),
        np.array([True, *[False] * count, True]),
        np.array([*[False] * (count + 1), True]),
    )
    zero = jnp.zeros((), y0.dtype)
    shapes = jax.eval_shape(search, y0, zero, zero, no, jnp.asarray(max_iterations))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    (_, root, iterations, _), _ = jax.lax.scan(stage, (y0, nothing, jnp.array(0), no), jax.tree.map(jnp.asarray, rows))
    return dataclasses.replace(root, iterations=iterations)


# A guess is nearly an orbit if the orbit's strides end within this distance of it, relative to the state; the second where the
# closing jump is far from linear there.
NEAR, BENT = 1e-2, 0.25


class ShootingResult(eqx.Module):
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
        wanted = "a root finder of optimistix, such as optimistix.Newton(rtol=1e-10, atol=1e-10)"
        require_kind(self.root_finder, RootFinder, type(self).__name__, "root_finder", wanted)
        sound = lambda each: isinstance(each, float) and 0 < each < 1
        if not isinstance(self.coarse, tuple) or not all(map(sound, self.coarse)):
            raise ValueError(
                f"{type(self).__name__}: coarse={self.coarse!r} must be a tuple of relative tolerances between 0 and 1, such as "
                "(1e-6, 1e-9), or () for none."
            )

    @abc.abstractmethod
    def search(self, problem: Problem, guess: Array, params: Params, integrator: Integrators) -> ShootingResult:
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
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params, method=method)
    >>> print(orbit.result)
    successful

    Source: Bhounsule (2014), Sec. 2; Deuflhard (2004), *Newton Methods for Nonlinear Problems*, ch. 3.
    """

    max_iterations: int = 30
    accept: float | None = None
    root_finder: RootFinder = DampedNewton()
    coarse: tuple[float, ...] = COARSE

    def search(self, problem: Problem, guess: Array, params: Params, integrator: Integrators) -> ShootingResult:
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
        return ShootingResult(
            chain, jacobian, chain.residual, closing, root.iterations, outcome(root.converged, chain.result)
        )


@short_run
def onto_image(problem: Problem, guess: State, params: Params) -> tuple[State, Array]:
    r"""The projection of a guess $x$ to the image of the closing reset: $(R(y), y)$ with the least $|R(y) - x|$.

    A guess slightly off the image of the reset may meet its guard at once. By the Levenberg-Marquardt method; where it fails, or
    ends at an image farther than a quarter of the guess's size, the guess itself is returned.
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
        step = solve_positive(damped, slope.T @ (guess - image))[0]
        ends = jnp.where(~jnp.isfinite(least) | (settled & (tries > 0)), 1, 0)
        return tries + 1, y + step, y, image, slope, least, damping, ends

    slope = jnp.zeros((guess.size, n), guess.dtype)
    start = jnp.array(0), y, y, guess, slope, jnp.full((), jnp.inf, y.dtype), jnp.asarray(1e-2, y.dtype), jnp.array(0)
    # Hazard: the condition must depend on two carried numbers, see `run` in `hyjax/_flow/loop.py`.
    # The initial image is the guess itself, which stays if no better one is found.
    end = jax.lax.while_loop(lambda carry: (carry[0] < 25) & (carry[-1] < 1), improve, start)
    far = 16 * end[5] > jnp.sum(guess**2)
    return jnp.where(far, guess, end[3]), end[2]


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
            image1, along = jax.jvp(lambda y: problem.closing_jump(y, params), (y1,), (y1 - y,))
            gap = jnp.max(jnp.abs(image1 - x))
            # Where the jump bends on the way from y to y1, its preimage y of the guess may be another than the orbit's.
            bends = 2 * jnp.max(jnp.abs(image1 - image - along)) > gap
            near = first & (gap <= jnp.where(bends, BENT, NEAR) * jnp.max(jnp.abs(x)))
            # Also where it is far from the jump of y, see `onto_image`.
            near |= first & (jnp.max(jnp.abs(image - x)) > NEAR * jnp.max(jnp.abs(x)))
            at = jnp.where(near, y1, y)
        image, slope = with_slope(lambda y: problem.closing_jump(y, params), at)
        eye = jnp.eye(y.size, dtype=y.dtype)
        r = jnp.where(near, by_before @ (image - x), y1 - at)
        # The distance |R(y1) - x0| is a lower bound of the residual: a stride whose end does not depend on its start has D = 0.
        off = jnp.where(near, jnp.max(jnp.abs(image - x)), 0)
        kept = chain if problem.varied else dataclasses.replace(chain, jacobians=None)
        return Evaluation(r, by_before @ slope - eye, at, (kept, by_end, largest_row(slope)), off, jnp.max(jnp.abs(y1)))

    return evaluate


class MultipleShooting(AbstractShooting):
    r"""Multiple shooting, for long and for very unstable orbits: one unknown for each arc, its pre-impact time and state.

    $z_{i+1} = \text{flow}_{i+1}(R_i(z_i))$ for every arc $i$ of every stride, cyclically; $z = (t, y)$. An error in one arc is
    not amplified by the instability of the following arcs, so orbits converge from distant guesses and stay accurate where single
    shooting loses digits. The guess of `periodic_orbit` may have shape `(strides, n)`: a state for each stride.

    **Arguments:** as for `SingleShooting`. Failures are the result codes of `periodic_orbit`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> method = hj.MultipleShooting()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params, method=method)
    >>> print(orbit.result)
    successful

    Source: the method is classical; see Ascher, Mattheij, Russell (1995), *Numerical solution of boundary value problems*,
    ch. 4.
    """

    max_iterations: int = 30
    accept: float | None = None
    root_finder: RootFinder = DampedNewton()
    coarse: tuple[float, ...] = COARSE

    def search(self, problem: Problem, guess: Array, params: Params, integrator: Integrators) -> ShootingResult:
        sizes = [1 + problem.system.mode(mode).dimension for mode in problem.sequence]
        shape = (problem.strides, sum(sizes))

        def equation(integrator: Integrators):
            def evaluate(flat, first):
                residual, jacobian, aux = _arc_equations(problem, sizes, flat.reshape(shape), params, integrator)
                return Evaluation(residual.reshape(-1), jacobian.reshape(flat.size, flat.size), flat, (*aux, residual))

            return evaluate

        start = _forward(problem, guess, params, integrator).reshape(-1)
        root = find_root_by_stages(
            equation, start, integrator, self.coarse, max_iterations=self.max_iterations,
            accept=self.acceptable(integrator, guess.dtype), root_finder=self.root_finder,
            size=jnp.max(jnp.abs(start)), settle=False,
        )  # fmt: skip
        chain, jacobian, closing, residual = root.aux
        # Times may be much larger than states: each has its own size.
        times = np.isin(np.arange(shape[1]), np.cumsum([0, *sizes[:-1]]))
        largest = lambda z, chosen: jnp.max(jnp.abs(z.reshape(shape)[:, chosen]))
        accept = self.acceptable(integrator, guess.dtype)
        size = jnp.maximum(largest(root.y, ~times), jnp.max(jnp.abs(guess)))
        off = largest(residual, ~times)
        closed = (off <= accept * size) & (largest(residual, times) <= accept * largest(root.y, times))
        result = outcome(root.converged & closed, chain.result)
        return ShootingResult(chain, jacobian, jnp.maximum(off, chain.residual), closing, root.iterations, result)


def _forward(problem: Problem, guess: Array, params: Params, integrator: Integrators) -> Float[Array, "strides z"]:
    """Pre-impact times and states along consecutive strides from the guess; after a stride that failed, again from the guess."""
    given = jnp.broadcast_to(guess, (problem.strides, guess.shape[-1]))

    def one(carry, given):
        t, x = carry
        x = given if guess.ndim == 2 else jnp.where(jnp.all(jnp.isfinite(x)), x, given)
        stride = run_stride(problem.system, t, x, params, problem.sequence, integrator)
        ends = jnp.concatenate([jnp.append(impact.t, impact.x) for impact in stride.impacts])
        t = t + jnp.where(jnp.isfinite(stride.time), stride.time, 1)
        return (t, stride.x), jnp.where(jnp.isfinite(ends), ends, 0)

    return jax.lax.scan(one, (jnp.zeros((), guess.dtype), given[0]), given)[1]


def _arc_equations(
    problem: Problem, sizes: list[int], z: Float[Array, "strides z"], params: Params, integrator: Integrators
):
    """The residual, shape `(strides, z)`; its Jacobian, shape `(strides, z, strides, z)`; the chain, its return Jacobian,
    and the largest sum of a row of the closing jump's Jacobian."""
    strides, width = z.shape
    route, dtype = problem.system.route(problem.sequence), z.dtype
    corners = [sum(sizes[:j]) for j in range(len(sizes) + 1)]
    each = jnp.arange(strides)
    jacobian = jnp.zeros((strides, width, strides, width), dtype).at[each, :, each, :].set(-jnp.eye(width, dtype=dtype))
    ends, rates, result = [], [], RESULTS.successful
    across = jnp.broadcast_to(jnp.eye(sizes[0], dtype=dtype), (strides, sizes[0], sizes[0]))
    nodes = starts = closing = end = owed = None
    may = each_in_step(problem.system, problem.sequence)
    if any(may):
        none = nothing_owed(problem.system, dtype)
        owed = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (strides, *leaf.shape)), none)
    for j, mode in enumerate(problem.sequence):
        into = problem.system.way(route[j - 1])
        before = z[:, corners[j - 1] : corners[j]] if j else jnp.roll(z[:, corners[-2] :], 1, axis=0)
        # The first arc starts at time 0: the jump before it is taken at time 0, not at the time of the unknown.
        running = (each > 0) if j == 0 else jnp.ones(strides, bool)

        def jump(before, running, into=into):
            t = jnp.where(running, before[0], 0)
            return jnp.append(t, reset(into, t, before[1:], params))

        # The jump that ends this arc.
        out = problem.system.way(route[j])

        def arc(start, mode=mode, expected=route[j], may=may[j : j + 1], out=out):
            start, owed = start
            within = None if owed is None else owed.within(jnp.array(problem.system.ways_out(mode)))
            impact = run_to_guard(problem.system, mode, start[0], start[1:], params, integrator, expected, within)
            if owed is not None:
                t, x, still = without_tangents((impact.t, impact.x, params))
                owed = owed_after(problem.system, impact, reset(out, t, x, still), start[0], owed, params)
            (impact,) = without_order(problem.system, (mode,), may, (impact,), params)
            wrong = (impact.result == RESULTS.successful) & (impact._way != expected)
            code = choose(wrong, RESULTS.unexpected_transition, impact.result)
            return jnp.append(impact.t, impact.x), (impact.guard_rate, code, owed)

        start = jax.vmap(jump)(before, running)
        through_jump = jax.vmap(jax.jacfwd(jump))(before, running)
        along_arc = lambda start, owed, arc=arc: with_columns(lambda start: arc((start, owed)), start)
        reached, along, (rate, codes, owed) = jax.vmap(along_arc)(start, owed)
        if j == 0:
            nodes, starts, closing = start[:, 1:], start[:, 0], largest_row(through_jump[0, 1:, 1:])
            jacobian = jacobian.at[each, : corners[1], (each - 1) % strides, corners[-2] :].add(along @ through_jump)
        else:
            block = (each, slice(corners[j], corners[j + 1]), each, slice(corners[j - 1], corners[j]))
            jacobian = jacobian.at[block].add(along @ through_jump)
        for i in range(strides):
            code = jax.tree.map(lambda leaf, i=i: leaf[i], codes)
            result = choose(result == RESULTS.successful, code, result)
        ends.append(reached)
        rates.append(rate)

        # The stride's Jacobian from section to section: this arc, then the jump that ends it.
        def leave(end, out=out):
            return jnp.append(end[0], reset(out, end[0], end[1:], params))

        across = jax.vmap(jax.jacfwd(leave))(reached) @ along @ across
        end = jax.vmap(leave)(reached)
    total, _ = jax.lax.scan(lambda total, one: (one @ total, None), jnp.eye(sizes[0], dtype=dtype), across)
    assert nodes is not None and starts is not None and end is not None
    before = jnp.roll(z[:, corners[-2] + 1 :], 1, axis=0)
    guard_rates = jnp.stack(rates, axis=1).reshape(-1)
    chain = Chain(
        nodes, starts, before, tuple(each[:, 1:] for each in ends),
        jnp.stack([each[:, 0] for each in ends], axis=1) - starts[:, None],
        end[-1, 1:], end[-1, 0], guard_rates, None,
        result,  # pyright: ignore
    )  # fmt: skip
    residual = jnp.concatenate(ends, axis=1) - z
    return residual, jacobian, (chain, total[1:, 1:], closing)


class SearchLimits(eqx.Module):
    """Limits of the integrator's parts and of the root finder.

    **Attributes:** `parts`: one for each part of the integrator. `iterations`: of the root finder. `settle`: the residual,
    relative to the state, at which `DampedNewton` ends.
    """

    parts: tuple[Limits, ...]
    iterations: int | Array | np.ndarray
    settle: float | Array | np.ndarray

    def imposed_on(self, integrator: Integrators, method: AbstractShooting) -> tuple[Integrators, AbstractShooting]:
        """The integrator and the method with these limits."""
        method = eqx.tree_at(lambda method: method.max_iterations, method, self.iterations)
        if isinstance(method.root_finder, DampedNewton):
            method = eqx.tree_at(lambda method: method.root_finder.settle, method, self.settle)
        return with_limits(integrator, self.parts), method
