"""Multiple shooting: one unknown state for each arc of the orbit."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.flow import run_to_guard
from .._flow.in_step import each_in_step, nothing_owed, owed_after, without_order
from .._flow.jump import reset
from .._flow.mode_integrators import Integrators
from .._numerics.linearize import with_columns
from .._numerics.newton import DampedNewton, Evaluation, RootFinder
from .._system.results import choose, RESULTS
from .._system.types import Params
from .chain import Chain
from .problem import Problem
from .shooting import AbstractShooting, Found, largest_row, outcome
from .stride import run_stride
from .tolerance_stages import COARSE, find_root_by_stages


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
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence, method=method)
    >>> print(orbit.result)
    successful

    Source: the method is classical; see Ascher, Mattheij, Russell (1995), *Numerical solution of boundary value problems*,
    ch. 4.
    """

    max_iterations: int = 30
    accept: float | None = None
    root_finder: RootFinder = DampedNewton()
    coarse: tuple[float, ...] = COARSE

    def search(self, problem: Problem, guess: Array, params: Params, integrator: Integrators) -> Found:
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
        return Found(chain, jacobian, jnp.maximum(off, chain.residual), closing, root.iterations, result)


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
        into = problem.system.transitions[route[j - 1]]
        before = z[:, corners[j - 1] : corners[j]] if j else jnp.roll(z[:, corners[-2] :], 1, axis=0)
        # The first arc starts at time 0: the jump before it is taken at time 0, not at the time of the unknown.
        running = (each > 0) if j == 0 else jnp.ones(strides, bool)

        def jump(before, running, into=into):
            t = jnp.where(running, before[0], 0)
            return jnp.append(t, reset(into, t, before[1:], params))

        def arc(start, mode=mode, expected=route[j], may=may[j : j + 1]):
            start, owed = start
            within = None if owed is None else owed.within(jnp.array(problem.system.leaving(mode)))
            impact = run_to_guard(problem.system, mode, start[0], start[1:], params, integrator, expected, within)
            owed = None if owed is None else owed_after(impact, start[0], owed)
            (impact,) = without_order(problem.system, (mode,), may, (impact,), params)
            wrong = (impact.result == RESULTS.successful) & (impact.transition != expected)
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
        out = problem.system.transitions[route[j]]

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
