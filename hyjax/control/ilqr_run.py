r"""The iteration of hybrid iLQR: rollouts along several directions as one batch, the best of them, its quadratic model."""

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._numerics.linearize import linearizable
from .._numerics.trees import select, without_tangents
from .._system.results import choose, nan_unless, RESULTS
from .._system.types import Flag, Scalar
from .control_problem import ControlProblem
from .ilqr_solution import IlqrHistory, IlqrSolution
from .quadratic_model import control_gradient, Direction, direction, quadratic_model, QuadraticModel, released
from .rollout import no_policy, no_rollout, roll_out, Rollout

# The directions of each iteration: damping; how near a grid time events are held there, -1 for none, in parts of a step; and
# whether the policy is extended; and to which grid time they are led, the nearest, that before or that after. The first is that
# of the model itself; the last holds only events that are on a kink, and one more direction all of these but one.
DAMPING = np.array([0.0, 1.0, 100.0, 0.0, 0.0, 30.0, 0.0, 0.0, 0.0])
WITHIN = np.array([-1.0, -1.0, -1.0, -1.0, 0.1, 1e-3, 1e-3, 1e-3, 1e-3])
EXTENDED = np.array([True, True, True, False, False, False, False, False, False])
SHIFT = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0, 1.0, 0.0])
# The trial steps: the number of the direction, and the part of it.
ALONG, PARTS = np.repeat(np.arange(10), 8), np.tile(0.4 ** np.arange(8), 10)
# A step must lower the cost by this part of what its slope promises (Armijo).
ARMIJO = 1e-4


class _State(eqx.Module):
    """The iteration. `iteration`: steps accepted, from -1 before the first rollout. `done`: with `result`."""

    iteration: Int[Array, ""]
    current: Rollout
    directions: Direction
    gradient: Float[Array, "steps m"]
    move: Float[Array, "steps size both"]
    history: IlqrHistory
    done: Flag
    result: RESULTS


@eqx.filter_jit
def run_ilqr(
    problem: ControlProblem, controls: Float[Array, "steps m"], max_iterations: int, tolerance: Scalar, hold: Flag
) -> IlqrSolution:
    """`ilqr` without the checks of its arguments."""
    # Only the final cost has a derivative: see `_optimal_cost`.
    given, (problem, controls) = problem, without_tangents((problem, controls))
    parts = jnp.asarray(PARTS, problem.x0.dtype)
    damping = jnp.asarray(DAMPING, problem.x0.dtype)
    within = jnp.where(hold, jnp.asarray(WITHIN, problem.x0.dtype), -1)

    def all_directions(model: QuadraticModel) -> Direction:
        held = model.away <= within[:, None]
        shift = jnp.asarray(SHIFT, problem.x0.dtype)[:, None] * jnp.diff(problem.times)
        kinds = damping, held, jnp.asarray(EXTENDED) | ~hold, shift
        found = jax.vmap(lambda *kind: direction(model, *kind))(*kinds)
        fewer = released(model, held[-1], jax.tree.map(lambda leaf: leaf[-1], found))
        more = direction(model, damping[-1], fewer, ~hold, shift[-1])
        return jax.tree.map(lambda leaf, one: jnp.concatenate([leaf, one[None]]), found, more)

    def body(now: _State) -> _State:
        policy = lambda number: jax.tree.map(lambda leaf: leaf[number], now.directions.policy)
        trial = lambda number, part: roll_out(problem, now.current, policy(number), part)
        tried = jax.vmap(trial)(jnp.asarray(ALONG), parts)
        before = now.current.cost
        promised = now.directions.slope[ALONG] * parts
        # The first rollout has no reference: its cost is compared with infinity.
        lower = (tried.cost < before) & (tried.cost <= before + ARMIJO * promised)
        best = jnp.argmin(jnp.where(lower, tried.cost, jnp.inf))
        chosen = jax.tree.map(lambda leaf: leaf[best], tried)
        accepted = jnp.any(lower)
        current = select(accepted, chosen, now.current)
        iteration = now.iteration + accepted.astype(now.iteration.dtype)

        model = quadratic_model(problem, current)
        directions = all_directions(model)
        # Relative to the cost, or to what it has fallen by: the least cost may be zero.
        first = jnp.where(iteration > 0, now.history.cost[0], current.cost)
        small = tolerance * jnp.maximum(jnp.abs(current.cost), jnp.abs(first - current.cost))
        free, along_kink = -directions.slope[0], -directions.slope[-2:]
        level = jnp.abs(free) <= small
        slow = ~accepted | (before - current.cost <= small)
        at_kink = hold & jnp.any(model.away <= WITHIN[-1]) & jnp.all(jnp.abs(along_kink) <= 10 * small)
        optimal = level | (slow & (at_kink | (jnp.abs(free) <= 10 * small)))

        failed = (iteration < 0) & ~accepted
        result = choose(optimal, RESULTS.successful, choose(slow, RESULTS.stalled, RESULTS.optimum_not_found))
        result = choose(failed, chosen.result, result)
        done = failed | optimal | slow | (iteration >= max_iterations)
        history = select(accepted, now.history.with_row(iteration, current, free), now.history)
        return _State(iteration, current, directions, control_gradient(model), model.move, history, done, result)

    first = no_rollout(problem, controls)
    none = no_policy(problem, controls)
    spread = lambda leaf: jnp.broadcast_to(leaf, (len(damping) + 1, *leaf.shape))
    start = _State(
        iteration=jnp.array(-1), current=first,
        directions=jax.tree.map(spread, Direction(none, jnp.zeros((), controls.dtype), jnp.zeros_like(controls[:, 0]))),
        gradient=jnp.zeros_like(controls),
        move=jnp.zeros((len(controls), problem.x0.size, problem.x0.size + controls.shape[1]), controls.dtype),
        history=IlqrHistory.empty(max_iterations + 1, problem),
        done=jnp.array(False), result=RESULTS.successful,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    end = jax.lax.while_loop(lambda now: ~now.done, body, start)
    found, sound = end.current, end.iteration >= 0
    saddle = (end.result == RESULTS.successful) & falls_aside(problem, found, end.move)
    result = choose(saddle, RESULTS.optimum_not_found, end.result)
    cost = nan_unless(sound, _optimal_cost(found.cost, given, found.controls))
    arrays, functions = eqx.partition(problem, eqx.is_array)
    kept = lambda rows: nan_unless(sound, rows)
    return IlqrSolution(
        times=problem.times, x=kept(found.x), modes=jnp.where(sound, found.modes, -1), controls=kept(found.controls),
        gains=kept(end.directions.policy.gain[0]), cost=cost, gradient=kept(end.gradient), arcs=found.arcs,
        numbers=found.numbers, events=found.events, iterations=jnp.maximum(end.iteration, 0), history=end.history,
        result=result, given=arrays, functions=functions,
    )  # fmt: skip


def falls_aside(problem: ControlProblem, about: Rollout, move: Float[Array, "steps size both"]) -> Flag:
    r"""Whether a stationary solution is no minimum: the cost falls along a direction of negative curvature, to both sides or one.

    The direction is that of the last step whose $Q_{uu}$ is not positive semidefinite in the recursion of Riccati with the second
    derivatives of the cost as they are: one control along an eigenvector, and the feedback after it. The cost along it is that of
    rollouts, for 16 lengths to both sides. The costs of the usual kind are convex, and have no such step.
    """
    size, steps = problem.x0.size, jnp.arange(len(about.controls))
    eps = float(jnp.finfo(problem.x0.dtype).eps)

    def bend(k):
        stage = lambda v: problem.stage_cost(problem.times[k], v[:size], v[size:], about.modes[k])
        return jax.jacfwd(jax.jacfwd(stage))(jnp.concatenate([about.x[k], about.controls[k]]))

    final = lambda z: problem.terminal_cost(problem.times[-1], z, about.modes[-1])

    def back(v_xx, row):
        move, bend = row
        h = bend + move.T @ v_xx @ move
        values, vectors = jnp.linalg.eigh((h[size:, size:] + h[size:, size:].T) / 2)
        inverse = jnp.where(values > 0, 1 / jnp.where(values > 0, values, 1), 0)
        gain = -(vectors * inverse) @ (vectors.T @ h[size:, :size])
        v_xx = h[:size, :size] + h[:size, size:] @ gain
        below = values[0] < -(eps**0.5) * jnp.max(jnp.abs(h))
        return (v_xx + v_xx.T) / 2, (below, vectors[:, 0], gain)

    _, (below, vectors, gains) = jax.lax.scan(
        back, jax.jacfwd(jax.jacfwd(final))(about.x[-1]), (move, jax.vmap(bend)(steps)), reverse=True
    )

    def looked_at():
        at = jnp.max(jnp.where(below, steps, -1))

        def ahead(dx, row):
            k, vector, gain, move = row
            du = jnp.where(k == at, vector, jnp.where(k > at, gain @ dx, 0))
            return move @ jnp.concatenate([dx, du]), du

        _, along = jax.lax.scan(ahead, jnp.zeros(size, about.x.dtype), (steps, vectors, gains, move))
        unit = jnp.maximum(1, jnp.max(jnp.abs(about.controls)))
        lengths = jnp.asarray(np.outer([1, -1], 0.2 ** np.arange(16)).ravel(), about.x.dtype) * unit
        costs = jax.vmap(lambda length: _cost_of((problem, about.controls + length * along))[0])(lengths)
        return jnp.any(costs < about.cost - 64 * eps * jnp.abs(about.cost))

    suspect = jnp.any(below)
    # Rare: one flag for the whole batch.
    return suspect & jax.lax.cond(eqxi.unvmap_any(suspect), looked_at, lambda: jnp.array(False))


def _cost_of(inputs: tuple[ControlProblem, Float[Array, "steps m"]]) -> tuple[Scalar, None]:
    problem, controls = inputs
    found = roll_out(problem, no_rollout(problem, controls), no_policy(problem, controls), jnp.ones((), controls.dtype))
    return found.cost, None


@eqx.filter_custom_jvp
def _optimal_cost(cost: Scalar, problem: ControlProblem, controls: Float[Array, "steps m"]) -> Scalar:
    """The cost, whose derivative is that with the controls held: at an optimum, by the envelope theorem, that of the optimum."""
    return cost


@_optimal_cost.def_jvp
def _optimal_cost_jvp(primals, tangents):
    cost, *inputs = primals
    held = lambda problem, controls: linearizable(_cost_of, (problem, controls))[0]
    _, change = eqx.filter_jvp(held, tuple(inputs), tuple(tangents[1:]))
    return cost, change
