r"""Rollouts of a controlled hybrid system: with given controls, or with feedback about another rollout, through other events.

A solution that is early or late at an event is compared with the arc of the reference in its own mode, continued beyond that
event by the flow of this mode with guards ignored and the control of the step with the event held; and its own control,
feedforward and gain are those of this step. After a jump the solution is compared with the arc, of its new mode, that starts
nearest in time, as in `Regulator.simulate`.

An event near a grid time passes it under the smallest change, and then the solution is early or late for a whole step. There the
extended policy does not tend to the reference's controls with $\alpha$, and the cost jumps. A policy that is not extended takes
the controls that the model predicts, $\bar u + \alpha\,\delta u$, and has no feedback there.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._flow.automaton import Automaton, follow_automaton, Index, Padded
from .._numerics.trees import select
from .._system.results import choose, RESULTS
from .._system.system import HybridSystem, Mode, VectorField
from .._system.types import Flag, Params, Scalar, State, Time
from .control_problem import Control, ControlProblem


class ArcTable(eqx.Module):
    """The arcs of a rollout, in `max_events + 1` rows. **Attributes:** `starts`, `ends`: times, shape `(arcs,)`. `x_starts`,
    `x_ends`: states after and before the jumps, padded, shape `(arcs, size)`. `modes`: -1 in unused rows, shape `(arcs,)`."""

    starts: Float[Array, " arcs"]
    ends: Float[Array, " arcs"]
    x_starts: Float[Array, "arcs size"]
    x_ends: Float[Array, "arcs size"]
    modes: Int[Array, " arcs"]


class Rollout(eqx.Module):
    """A solution on the grid. **Attributes:** `x`: padded, shape `(steps + 1, size)`. `modes`, `numbers`: mode, and number of the
    arc, at the grid times, shape `(steps + 1,)`. `controls`: shape `(steps, m)`. `arcs`: its arcs. `events`: the number of its
    events. `cost`: infinite where the rollout failed. `result`: a code of `simulate`."""

    x: Float[Array, "grid size"]
    modes: Int[Array, " grid"]
    numbers: Int[Array, " grid"]
    controls: Float[Array, "steps m"]
    arcs: ArcTable
    events: Int[Array, ""]
    cost: Scalar
    result: RESULTS


class Spans(eqx.Module):
    """The first and the last step that begins in each arc of a rollout, and whether there is one; shape `(arcs,)`."""

    first: Int[Array, " arcs"]
    last: Int[Array, " arcs"]
    there: Bool[Array, " arcs"]


class Policy(eqx.Module):
    r"""$u = \bar u + \alpha\,k + K\,(x - \bar x)$ about a rollout. **Attributes:** `feedforward`: $k$, shape `(steps, m)`.
    `gain`: $K$, shape `(steps, m, size)`. `predicted`: $\delta u$, the change for $\alpha = 1$ by the model, shape `(steps, m)`.
    `extended`: whether there is feedback while the solution is early or late."""

    feedforward: Float[Array, "steps m"]
    gain: Float[Array, "steps m size"]
    predicted: Float[Array, "steps m"]
    extended: Flag


def no_policy(problem: ControlProblem, controls: Float[Array, "steps m"]) -> Policy:
    """Given controls without feedback."""
    none = jnp.zeros_like(controls)
    return Policy(none, jnp.zeros((*controls.shape, problem.x0.size), controls.dtype), none, jnp.array(True))


def no_rollout(problem: ControlProblem, controls: Float[Array, "steps m"]) -> Rollout:
    """A reference without arcs, with which no solution is compared: only its controls count."""
    steps, rows, z, t = len(controls), problem.max_events + 1, problem.x0, problem.times[0]
    nowhere = jnp.full(steps + 1, -1)
    spread = lambda leaf: jnp.broadcast_to(leaf, (rows, *leaf.shape))
    return Rollout(
        x=jnp.broadcast_to(z, (steps + 1, z.size)), modes=nowhere, numbers=nowhere, controls=controls,
        arcs=ArcTable(spread(t), spread(t), spread(z), spread(z), jnp.full(rows, -1)), events=jnp.array(0),
        cost=jnp.full((), jnp.inf, z.dtype), result=RESULTS.successful,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


def spans(reference: Rollout) -> Spans:
    """The steps that begin in each arc."""
    begins = reference.numbers[:-1] == jnp.arange(len(reference.arcs.modes))[:, None]
    last = begins.shape[1] - 1 - jnp.argmax(begins[:, ::-1], axis=1)
    return Spans(jnp.argmax(begins, axis=1), last, jnp.any(begins, axis=1))


class _Along(eqx.Module):
    """Where an arc of constant control is continued, and how far; a negative length leads back in time."""

    params: Params
    start: Time
    length: Time


class _Stretched(eqx.Module):
    """A vector field over the part of the way, from 0 to 1, in either direction of time."""

    vector_field: VectorField

    def __call__(self, s: Scalar, x: State, along: _Along) -> State:
        return along.length * self.vector_field(along.start + s * along.length, x, along.params)


def _continued(problem: ControlProblem, t: Time, z: Padded, mode: Index, until: Time, params: Params) -> Padded:
    """The state at `until` by the flow of the mode from `(t, z)`, forward or back, with guards ignored."""
    modes = {name: Mode(_Stretched(each.vector_field), each.coordinates) for name, each in problem.system.modes.items()}
    automaton, zero = Automaton(HybridSystem(modes, ())), jnp.zeros_like(t)
    # Over no time it takes no step.
    whole = jnp.where(until != t, 1, zero)
    along = _Along(params, t, until - t)
    return follow_automaton(automaton, zero, z, mode, whole, along, problem.integrator, guarded=False).x


class _Now(eqx.Module):
    """The state at a grid time. `number`: of the own arc. `arc`: that of the reference with which it is compared, or -1."""

    z: Padded
    mode: Index
    number: Index
    arc: Index
    arcs: ArcTable
    cost: Scalar
    result: RESULTS


def _control(
    problem: ControlProblem, reference: Rollout, span: Spans, policy: Policy, alpha: Scalar, k: Index, now: _Now
) -> Control:
    """The control of the step `k` of a solution that is compared with the arc `now.arc` of the reference."""
    arcs, t, arc = reference.arcs, problem.times[k], jnp.maximum(now.arc, 0)
    compared = (now.arc >= 0) & span.there[arc]
    row = jnp.where(compared, jnp.clip(k, span.first[arc], span.last[arc]), k)
    late, early = row < k, row > k
    t_known = jnp.where(late, arcs.ends[arc], jnp.where(early, arcs.starts[arc], t))
    x_known = jnp.where(late, arcs.x_ends[arc], jnp.where(early, arcs.x_starts[arc], reference.x[row]))
    going, kept = now.result == RESULTS.successful, problem.acted_on(reference.controls[row])
    wanted = _continued(problem, t_known, x_known, now.mode, jnp.where(going, t, t_known), kept)
    # Where the continuation does not exist, there is no feedback.
    deviation = jnp.where(compared & jnp.all(jnp.isfinite(wanted)), now.z - wanted, 0)
    fed_back = jnp.where(compared, alpha * policy.feedforward[row] + policy.gain[row] @ deviation, 0)
    matched = policy.extended | (compared & ~late & ~early)
    predicted = reference.controls[k] + alpha * policy.predicted[k]
    return jnp.where(matched, reference.controls[row] + fed_back, predicted)


def roll_out(problem: ControlProblem, reference: Rollout, policy: Policy, alpha: Scalar) -> Rollout:
    """The solution under a policy about a reference, from the problem's initial state."""
    known, span, steps = reference.arcs, spans(reference), len(reference.controls)
    order = jnp.arange(len(known.modes))

    def entered(t: Time, mode: Index) -> Index:
        """The arc of the reference that begins with a jump into the mode nearest in time."""
        away = jnp.where((known.modes == mode) & (order > 0), jnp.abs(known.starts - t), jnp.inf)
        return jnp.where(jnp.any(away < jnp.inf), jnp.argmin(away), -1)

    def note(log, row, after):
        arcs, number, _ = log
        arcs = ArcTable(
            arcs.starts.at[number + 1].set(after.t), arcs.ends.at[number].set(row.end),
            arcs.x_starts.at[number + 1].set(after.z), arcs.x_ends.at[number].set(row.x_end),
            arcs.modes.at[number + 1].set(after.mode),
        )  # fmt: skip
        return arcs, number + 1, entered(after.t, after.mode)

    def one(now: _Now, k):
        t, going = problem.times[k], now.result == RESULTS.successful
        u = _control(problem, reference, span, policy, alpha, k, now)
        cost = now.cost + problem.stage_cost(t, now.z, u, now.mode)
        log, most = (now.arcs, now.number, now.arc), problem.max_events - now.number
        until = jnp.where(going, problem.times[k + 1], t)
        end, log = problem.interval(t, until, now.z, now.mode, u, log, note, most)
        arcs, number, arc = log
        sound = jnp.all(jnp.isfinite(end.z)) & jnp.isfinite(cost)
        result = choose((end.result == RESULTS.successful) & ~sound, RESULTS.nonfinite, end.result)
        after = _Now(end.z, end.mode, number, arc, arcs, cost, result)
        # A solution that failed stays where it was.
        return select(going, after, now), (now.z, now.mode, now.number, u)

    arcs = no_rollout(problem, reference.controls).arcs
    arcs = eqx.tree_at(lambda arcs: arcs.modes, arcs, arcs.modes.at[0].set(problem.mode0))
    arc = jnp.where(known.modes[0] == problem.mode0, jnp.array(0), -1)
    zero = jnp.zeros((), problem.x0.dtype)
    start = _Now(problem.x0, problem.mode0, jnp.array(0), arc, arcs, zero, RESULTS.successful)  # pyright: ignore[reportArgumentType]
    end, (x, modes, numbers, controls) = jax.lax.scan(one, start, jnp.arange(steps))
    cost = end.cost + problem.terminal_cost(problem.times[-1], end.z, end.mode)
    sound = (end.result != RESULTS.successful) | jnp.isfinite(cost)
    result = choose(sound, end.result, RESULTS.nonfinite)
    arcs = eqx.tree_at(
        lambda arcs: (arcs.ends, arcs.x_ends), end.arcs,
        (end.arcs.ends.at[end.number].set(problem.times[-1]), end.arcs.x_ends.at[end.number].set(end.z)),
    )  # fmt: skip
    with_last = lambda rows, last: jnp.concatenate([rows, last[None]])
    return Rollout(
        x=with_last(x, end.z), modes=with_last(modes, end.mode), numbers=with_last(numbers, end.number), controls=controls,
        arcs=arcs, events=end.number, cost=jnp.where(result == RESULTS.successful, cost, jnp.inf), result=result,
    )  # fmt: skip
