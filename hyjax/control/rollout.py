r"""An optimal control problem of a hybrid system with piecewise constant controls, its rollouts, and its quadratic model.

$$x_{k+1} = F_k(x_k, u_k), \qquad J = \sum_{k=0}^{N-1} \ell(t_k, x_k, u_k) + \varphi(t_N, x_N)$$

$F_k$ is the solution from $t_k$ to $t_{k+1}$ through whatever events come, with the control $u_k$ held.

**Rollouts,** with given controls, or with feedback about another rollout, through other events. A solution that is early or
late at an event is compared with the arc of the reference in its own mode, continued beyond that event by the flow of this mode
with guards ignored and the control of the step with the event held; and its own control, feedforward and gain are those of this
step. After a jump the solution is compared with the arc, of its new mode, that starts nearest in time, as in
`Regulator.simulate`.

An event near a grid time passes it under the smallest change, and then the solution is early or late for a whole step. There
the extended policy does not tend to the reference's controls with $\alpha$, and the cost jumps. A policy that is not extended
takes the controls that the model predicts, $\bar u + \alpha\,\delta u$, and has no feedback there.

**The quadratic model** about a rollout gives the directions in which the cost falls. With $A_k = D_xF_k$, $B_k = D_uF_k$,
through the events of the step, hence with their saltation matrices, and with the derivatives of the costs:

$$Q_x = \ell_x + A^\top V_x, \quad Q_u = \ell_u + B^\top V_x, \quad
  Q_{xx} = \ell_{xx} + A^\top V_{xx} A, \quad Q_{ux} = \ell_{ux} + B^\top V_{xx} A, \quad
  Q_{uu} = \ell_{uu} + B^\top V_{xx} B$$
$$k = -Q_{uu}^{-1} Q_u, \qquad K = -Q_{uu}^{-1} Q_{ux}$$
$$V_x = Q_x + K^\top Q_{uu} k + K^\top Q_u + Q_{ux}^\top k, \qquad
  V_{xx} = Q_{xx} + K^\top Q_{uu} K + K^\top Q_{ux} + Q_{ux}^\top K$$

The second derivatives of $F$ are left out, as in the method of Gauss and Newton, and those of a cost that are not those of a
convex function are made so by larger diagonals: then $Q$ is convex and every direction a descent. $k$ and $K$ are those of
$Q_{uu} + \mu\operatorname{diag}|Q_{uu}|$ with a damping $\mu \ge 0$.

Source: Tassa, Erez, Todorov (2012), *Synthesis and stabilization of complex behaviors through online trajectory optimization*,
IROS, eqs. 5 and 11; Kong, Council, Johnson (2021), *iLQR for piecewise-smooth hybrid dynamical systems*, IEEE CDC, for events.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._flow.automaton import Automaton, ByMode, follow_automaton, Index, Padded
from .._flow.integrator import Integrators
from .._flow.joint import retimed
from .._flow.simulate import ArcStart, first_arc, follow_arc
from .._numerics.elimination import smallest_pivot, solve
from .._numerics.linearize import with_columns
from .._numerics.trees import select
from .._orbit.orbit import leaf_values
from .._system.results import choose, RESULTS
from .._system.system import HybridSystem
from .._system.types import Flag, Matrix, Params, Scalar, State, Time
from .._system.where import with_leaves

Control = Float[Array, " m"]
StageCost = Callable[[Time, State, Control, Params], Scalar]
TerminalCost = Callable[[Time, State, Params], Scalar]


class ControlProblem(eqx.Module):
    """The arguments of `ilqr`, checked. **Attributes:** `x0`: padded. `times`: the grid, shape `(steps + 1,)`. `stage`,
    `terminal`: the costs. `initial`: the mode of `x0`. `free`: the leaves of the parameters that act."""

    system: HybridSystem
    params: Params
    x0: Padded
    times: Float[Array, " times"]
    stage: ByMode
    terminal: ByMode
    integrator: Integrators
    initial: str = eqx.field(static=True)
    free: tuple[int, ...] = eqx.field(static=True)
    max_jumps: int = eqx.field(static=True)

    @property
    def automaton(self) -> Automaton:
        return Automaton(self.system)

    @property
    def mode0(self) -> Index:
        return jnp.array(self.system.names.index(self.initial))

    def acted_on(self, u: Control) -> Params:
        """The parameters with the control added to those that act."""
        return with_leaves(self.params, self.free, leaf_values(self.params, self.free, self.x0.dtype) + u)

    def stage_cost(self, t: Time, z: Padded, u: Control, mode: Index) -> Scalar:
        """The cost of one step."""
        return self.stage(mode, t, z, u, self.params)

    def terminal_cost(self, t: Time, z: Padded, mode: Index) -> Scalar:
        """The cost of the final state."""
        return self.terminal(mode, t, z, self.params)

    def interval(
        self, t: Time, until: Time, z: Padded, mode: Index, u: Control, log: PyTree, note: Callable, most: Index
    ) -> tuple[ArcStart, PyTree]:
        """The solution from `t` to `until` through whatever events come, at most `most` of them.

        **Arguments:** `log`: any PyTree. `note(log, row, after)`: the log after an event; `row` is the arc that the event ends,
        `after` the start of the next.
        """
        start, params = first_arc(self.automaton, z, mode, t, until), self.acted_on(u)

        def one(carry):
            now, log, count = carry
            after, row = follow_arc(self.automaton, now, count == most, start, until, params, self.integrator)
            return after, select(row.jumped, note(log, row, after), log), count + row.jumped.astype(count.dtype)

        end, log, _ = jax.lax.while_loop(lambda carry: ~carry[0].done, one, (start, log, jnp.zeros_like(most)))
        return end, log


class ArcTable(eqx.Module):
    """The arcs of a rollout, in `max_jumps + 1` rows. **Attributes:** `start_times`, `end_times`: shape `(arcs,)`. `x_starts`,
    `x_ends`: states after and before the jumps, padded, shape `(arcs, size)`. `modes`: -1 in unused rows, shape `(arcs,)`."""

    start_times: Float[Array, " arcs"]
    end_times: Float[Array, " arcs"]
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
    steps, rows, z, t = len(controls), problem.max_jumps + 1, problem.x0, problem.times[0]
    nowhere = jnp.full(steps + 1, -1)
    spread = lambda leaf: jnp.broadcast_to(leaf, (rows, *leaf.shape))
    return Rollout(
        x=jnp.broadcast_to(z, (steps + 1, z.size)), modes=nowhere, numbers=nowhere, controls=controls,
        arcs=ArcTable(spread(t), spread(t), spread(z), spread(z), jnp.full(rows, -1)), events=jnp.array(0),
        cost=jnp.full((), jnp.inf, z.dtype), result=RESULTS.successful,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


# The first and the last step that begins in each arc of a rollout, and whether there is one; shape `(arcs,)`.
Spans = tuple[Int[Array, " arcs"], Int[Array, " arcs"], Bool[Array, " arcs"]]


def spans(reference: Rollout) -> Spans:
    """The steps that begin in each arc."""
    begins = reference.numbers[:-1] == jnp.arange(len(reference.arcs.modes))[:, None]
    last = begins.shape[1] - 1 - jnp.argmax(begins[:, ::-1], axis=1)
    return jnp.argmax(begins, axis=1), last, jnp.any(begins, axis=1)


def _continued(problem: ControlProblem, t: Time, z: Padded, mode: Index, until: Time, params: Params) -> Padded:
    """The state at `until` by the flow of the mode from `(t, z)`, forward or back, with guards ignored."""
    automaton, zero = Automaton(retimed(problem.system)), jnp.zeros_like(t)
    # Over no time it takes no step.
    whole, along = jnp.where(until != t, 1, zero), (params, t, until - t)
    return follow_automaton(automaton, zero, z, mode, whole, along, problem.integrator, guarded=False).x


# The solution at a grid time: state, mode, the number of its arc, that of the arc of the reference with which it is compared, or
# -1; its arcs, cost and result until then.
_Now = tuple[Padded, Index, Index, Index, ArcTable, Scalar, RESULTS]


def _control(
    problem: ControlProblem, reference: Rollout, span: Spans, policy: Policy, alpha: Scalar, k: Index, now: _Now
) -> Control:
    """The control of the step `k` of a solution."""
    z, mode, _, beside, _, _, result = now
    arcs, t, arc = reference.arcs, problem.times[k], jnp.maximum(beside, 0)
    first, last, there = (column[arc] for column in span)
    compared = (beside >= 0) & there
    row = jnp.where(compared, jnp.clip(k, first, last), k)
    late, early = row < k, row > k
    t_known = jnp.where(late, arcs.end_times[arc], jnp.where(early, arcs.start_times[arc], t))
    x_known = jnp.where(late, arcs.x_ends[arc], jnp.where(early, arcs.x_starts[arc], reference.x[row]))
    going, kept = result == RESULTS.successful, problem.acted_on(reference.controls[row])
    wanted = _continued(problem, t_known, x_known, mode, jnp.where(going, t, t_known), kept)
    # Where the continuation does not exist, there is no feedback.
    deviation = jnp.where(compared & jnp.all(jnp.isfinite(wanted)), z - wanted, 0)
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
        away = jnp.where((known.modes == mode) & (order > 0), jnp.abs(known.start_times - t), jnp.inf)
        return jnp.where(jnp.any(away < jnp.inf), jnp.argmin(away), -1)

    def note(log, row, after):
        arcs, number, _ = log
        arcs = ArcTable(
            arcs.start_times.at[number + 1].set(after.t), arcs.end_times.at[number].set(row.end),
            arcs.x_starts.at[number + 1].set(after.z), arcs.x_ends.at[number].set(row.x_end),
            arcs.modes.at[number + 1].set(after.mode),
        )  # fmt: skip
        return arcs, number + 1, entered(after.t, after.mode)

    def one(now: _Now, k):
        z, mode, number, arc, arcs, spent, result = now
        t, going = problem.times[k], result == RESULTS.successful
        u = _control(problem, reference, span, policy, alpha, k, now)
        cost = spent + problem.stage_cost(t, z, u, mode)
        log, most = (arcs, number, arc), problem.max_jumps - number
        until = jnp.where(going, problem.times[k + 1], t)
        end, (arcs, after, arc) = problem.interval(t, until, z, mode, u, log, note, most)
        sound = jnp.all(jnp.isfinite(end.z)) & jnp.isfinite(cost)
        result = choose((end.result == RESULTS.successful) & ~sound, RESULTS.nonfinite, end.result)
        # A solution that failed stays where it was.
        return select(going, (end.z, end.mode, after, arc, arcs, cost, result), now), (z, mode, number, u)

    arcs = no_rollout(problem, reference.controls).arcs
    arcs = eqx.tree_at(lambda arcs: arcs.modes, arcs, arcs.modes.at[0].set(problem.mode0))
    arc = jnp.where(known.modes[0] == problem.mode0, jnp.array(0), -1)
    zero = jnp.zeros((), problem.x0.dtype)
    start: _Now = problem.x0, problem.mode0, jnp.array(0), arc, arcs, zero, RESULTS.successful  # pyright: ignore[reportAssignmentType]
    end, (x, modes, numbers, controls) = jax.lax.scan(one, start, jnp.arange(steps))
    z, mode, number, _, arcs, cost, result = end
    cost = cost + problem.terminal_cost(problem.times[-1], z, mode)
    sound = (result != RESULTS.successful) | jnp.isfinite(cost)
    result = choose(sound, result, RESULTS.nonfinite)
    arcs = eqx.tree_at(
        lambda arcs: (arcs.end_times, arcs.x_ends), arcs,
        (arcs.end_times.at[number].set(problem.times[-1]), arcs.x_ends.at[number].set(z)),
    )  # fmt: skip
    with_last = lambda rows, last: jnp.concatenate([rows, last[None]])
    return Rollout(
        x=with_last(x, z), modes=with_last(modes, mode), numbers=with_last(numbers, number), controls=controls,
        arcs=arcs, events=number, cost=jnp.where(result == RESULTS.successful, cost, jnp.inf), result=result,
    )  # fmt: skip


# The cost of the event's distance from the grid time, by the cost itself and the squared length of the step.
HOLD = 1e6


class QuadraticModel(eqx.Module):
    """The expansion about a rollout, over `v = (x, u)` at each step.

    **Attributes:** `move`: $(A, B)$, shape `(steps, size, size + m)`. `slope`, `bend`: first and second derivatives of the stage
    cost, `(steps, size + m)` and `(steps, size + m, size + m)`. `end_slope`, `end_bend`: of the terminal cost. `event_slope`: the
    derivative of the time of the last event of each step, `(steps, size + m)`. `event_off`: this time less that of the nearer
    end of the step, `(steps,)`. `away`: its size by the length of the step, infinite without an event, `(steps,)`. `hold`: the
    weight of `event_off` in a held direction, `(steps,)`.
    """

    move: Float[Array, "steps size both"]
    slope: Float[Array, "steps both"]
    bend: Float[Array, "steps both both"]
    end_slope: Float[Array, " size"]
    end_bend: Float[Array, "size size"]
    event_slope: Float[Array, "steps both"]
    event_off: Float[Array, " steps"]
    away: Float[Array, " steps"]
    hold: Float[Array, " steps"]


# A policy that lowers the model; $\mathrm dJ/\mathrm d\alpha$ at $\alpha = 0$, negative where the cost falls; and the times of
# the events less those of the nearer ends of their steps, after the step of the model, shape `(steps,)`.
Direction = tuple[Policy, Float[Array, "*batch"], Float[Array, "*batch steps"]]


def quadratic_model(problem: ControlProblem, about: Rollout) -> QuadraticModel:
    """The model about a rollout. All steps are one batch."""
    size = problem.x0.size

    def step(k):
        t, until, mode = problem.times[k], problem.times[k + 1], about.modes[k]

        def end(v):
            # The time of the last event; the start where there is none.
            last = lambda log, row, after: row.end
            found, event = problem.interval(t, until, v[:size], mode, v[size:], t, last, jnp.array(problem.max_jumps))
            return (found.z, event), None

        cost = lambda v: problem.stage_cost(t, v[:size], v[size:], mode)
        v = jnp.concatenate([about.x[k], about.controls[k]])
        (_, event), (move, event_slope), _ = with_columns(end, v)
        off = jnp.where(event - t < until - event, event - t, event - until)
        away = jnp.where(event > t, jnp.abs(off) / (until - t), jnp.inf)
        return move, jax.jacfwd(cost)(v), _convex(jax.jacfwd(jax.jacfwd(cost))(v)), event_slope, off, away

    move, slope, bend, event_slope, off, away = jax.vmap(step)(jnp.arange(len(about.controls)))
    final = lambda z: problem.terminal_cost(problem.times[-1], z, about.modes[-1])
    z = about.x[-1]
    return QuadraticModel(
        move=move, slope=slope, bend=bend, end_slope=jax.jacfwd(final)(z), end_bend=_convex(jax.jacfwd(jax.jacfwd(final))(z)),
        event_slope=event_slope, event_off=off, away=away, hold=HOLD * jnp.abs(about.cost) / jnp.diff(problem.times) ** 2,
    )  # fmt: skip


def _convex(bend: Matrix) -> Matrix:
    """A symmetric matrix that is positive semidefinite up to rounding; any other with its diagonal raised until it dominates."""
    largest, diagonal = jnp.max(jnp.abs(bend)), jnp.diagonal(bend)
    unit = jnp.where(largest > 0, largest, 1)
    sound = smallest_pivot(bend / unit + jnp.finfo(bend.dtype).eps ** 0.5 * jnp.eye(len(bend), dtype=bend.dtype)) > 0
    lacking = jnp.sum(jnp.abs(bend), axis=1) - jnp.abs(diagonal) - diagonal
    return bend + jnp.diag(jnp.where(sound, 0, jnp.maximum(lacking, 0)))


def direction(
    model: QuadraticModel, damping: Scalar, held: Bool[Array, " steps"], extended: Flag, shift: Float[Array, " steps"]
) -> Direction:
    """The direction of the model with a damping, in which the events of the steps `held` are led to the nearer grid times, or
    later than these by `shift`, and held there. `extended`: of its policy."""
    size = len(model.end_slope)
    weight = jnp.where(held, model.hold, 0)

    def back(carry, row):
        v_x, v_xx = carry
        move, slope, bend, event_slope, off, weight = row
        q = slope + move.T @ v_x + 2 * weight * off * event_slope
        h = bend + move.T @ v_xx @ move + 2 * weight * jnp.outer(event_slope, event_slope)
        q_x, q_u, q_ux, q_uu = q[:size], q[size:], h[size:, :size], h[size:, size:]
        scale = jnp.abs(jnp.diagonal(q_uu))
        # A control without effect and without cost stays as it is.
        damped = q_uu + jnp.diag(damping * scale + jnp.where(scale > 0, 0, 1))
        steps = -solve(damped, jnp.concatenate([q_u[:, None], q_ux], axis=1))
        k, gain = steps[:, 0], steps[:, 1:]
        pushed = q_uu @ gain + q_ux
        v_x = q_x + pushed.T @ k + gain.T @ q_u
        v_xx = h[:size, :size] + gain.T @ pushed + q_ux.T @ gain
        return (v_x, (v_xx + v_xx.T) / 2), (k, gain)

    rows = model.move, model.slope, model.bend, model.event_slope, model.event_off - shift, weight
    _, (k, gain) = jax.lax.scan(back, (model.end_slope, model.end_bend), rows, reverse=True)

    def ahead(carry, row):
        dx, falls = carry
        k, gain, move, slope, event_slope = row
        du = k + gain @ dx
        dv = jnp.concatenate([dx, du])
        return (move @ dv, falls + slope @ dv), (du, event_slope @ dv)

    start = jnp.zeros_like(model.end_slope), jnp.zeros((), model.slope.dtype)
    (dx, falls), (du, moved) = jax.lax.scan(ahead, start, (k, gain, model.move, model.slope, model.event_slope))
    return Policy(k, gain, du, extended), falls + model.end_slope @ dx, model.event_off + moved


def released(
    model: QuadraticModel, held: Bool[Array, " steps"], after: Float[Array, " steps"]
) -> Bool[Array, " steps"]:
    """The events that stay held, of those held in a direction: all but the one that pulls hardest to the side on which it is.
    **Arguments:** `after`: `event_off` after the step of the model.

    The weight leaves an event off its grid time by its multiplier, so by how the cost of the model falls with its time. The model
    is that of the side on which the event is now.
    """
    pull = jnp.where(held & (after * model.event_off > 0), jnp.abs(after) * model.hold, 0)
    return held & ~((jnp.arange(len(pull)) == jnp.argmax(pull)) & (pull > 0))


def control_gradient(model: QuadraticModel) -> Float[Array, "steps m"]:
    """The gradient of the cost by the controls: the adjoint equation backward through the events."""
    size = len(model.end_slope)

    def back(v_x, row):
        move, slope = row
        q = slope + move.T @ v_x
        return q[:size], q[size:]

    _, gradient = jax.lax.scan(back, model.end_slope, (model.move, model.slope), reverse=True)
    return gradient
