r"""The iteration of hybrid iLQR: rollouts along several directions as one batch, the best of them, its quadratic model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._flow.linearize import linearizable
from .._flow.trees import select, without_tangents
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
        small = tolerance * jnp.abs(current.cost)
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
        return _State(iteration, current, directions, control_gradient(model), history, done, result)

    first = no_rollout(problem, controls)
    none = no_policy(problem, controls)
    spread = lambda leaf: jnp.broadcast_to(leaf, (len(damping) + 1, *leaf.shape))
    start = _State(
        iteration=jnp.array(-1), current=first,
        directions=jax.tree.map(spread, Direction(none, jnp.zeros((), controls.dtype), jnp.zeros_like(controls[:, 0]))),
        gradient=jnp.zeros_like(controls), history=IlqrHistory.empty(max_iterations + 1, problem),
        done=jnp.array(False), result=RESULTS.successful,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    end = jax.lax.while_loop(lambda now: ~now.done, body, start)
    found, sound = end.current, end.iteration >= 0
    cost = nan_unless(sound, _optimal_cost(found.cost, given, found.controls))
    arrays, functions = eqx.partition(problem, eqx.is_array)
    kept = lambda rows: nan_unless(sound, rows)
    return IlqrSolution(
        times=problem.times, x=kept(found.x), modes=jnp.where(sound, found.modes, -1), controls=kept(found.controls),
        gains=kept(end.directions.policy.gain[0]), cost=cost, gradient=kept(end.gradient), arcs=found.arcs,
        numbers=found.numbers, events=found.events, iterations=jnp.maximum(end.iteration, 0), history=end.history,
        result=end.result, given=arrays, functions=functions,
    )  # fmt: skip


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
