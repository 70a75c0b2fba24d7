"""Hybrid iLQR: optimal control through whatever events come.

Each iteration makes rollouts along several directions as one batch, and about the best of them the quadratic model.
"""

from collections.abc import Mapping

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._flow.automaton import functions_by_mode
from .._flow.check import check_state
from .._flow.integrator import integrator_to, IntegratorLike, rolled, without_jacobian
from .._flow.simulate import check_simulation
from .._numerics.eager import long_run
from .._numerics.linearize import linearizable
from .._numerics.trees import select, without_tangents
from .._results.failure import raise_failure
from .._results.registry import draw
from .._results.shown import Shown
from .._results.table import Table
from .._system.results import choose, nan_unless, RESULTS
from .._system.system import HybridSystem
from .._system.types import Flag, Params, require_counts, Scalar, State
from .._system.where import free_leaves, Where
from .rollout import (
    ArcTable,
    control_gradient,
    ControlProblem,
    Direction,
    direction,
    no_policy,
    no_rollout,
    Policy,
    quadratic_model,
    QuadraticModel,
    released,
    roll_out,
    Rollout,
    StageCost,
    TerminalCost,
)


class IlqrHistory(Shown):
    """The iterations of hybrid iLQR; row 0 is the initial guess, and rows beyond the last iteration are NaN or -1.

    **Attributes:** `cost`: shape `(rows,)`. `decrement`: $-\\mathrm dJ/\\mathrm d\\alpha$ along the full step of the model,
    twice the decrease of the cost that the model promises, shape `(rows,)`. `events`: the number of events, shape `(rows,)`.
    `modes`: the sequence of modes, as indices, -1 after its end, shape `(rows, arcs)`.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> solution = hj.control.ilqr(
    ...     ball.system, x0, params, mode="flight", times=jnp.linspace(0.0, 0.6, 7), where=lambda p: p.gravity,
    ...     stage_cost=lambda t, x, u, p: 0.01 * jnp.sum(u**2), terminal_cost=lambda t, x, p: (x[0] - 0.5) ** 2,
    ... )
    >>> cost = solution.history.cost[: solution.iterations + 1]
    >>> bool(jnp.all(jnp.diff(cost) <= 0))
    True
    """

    cost: Float[Array, "*batch rows"]
    decrement: Float[Array, "*batch rows"]
    events: Int[Array, "*batch rows"]
    modes: Int[Array, "*batch rows arcs"]

    @classmethod
    def empty(cls, rows: int, problem: ControlProblem) -> "IlqrHistory":
        """A history of that number of rows, without an iteration."""
        none, arcs = jnp.full(rows, jnp.nan, problem.x0.dtype), problem.max_jumps + 1
        return cls(none, none, jnp.full(rows, -1), jnp.full((rows, arcs), -1))

    def with_row(self, row: Int[Array, ""], found: Rollout, decrement: Scalar) -> "IlqrHistory":
        """The history with one more iteration."""
        return IlqrHistory(
            self.cost.at[row].set(found.cost), self.decrement.at[row].set(decrement),
            self.events.at[row].set(found.events), self.modes.at[row].set(found.arcs.modes),
        )  # fmt: skip


class IlqrSolution(Shown):
    r"""A controlled trajectory from `ilqr`, its feedback, and the iterations that led to it.

    States are padded with zeros to the largest dimension of a mode, `size`.

    **Attributes:** `times`: the grid, shape `(steps + 1,)`. `x`, `modes`: states and indices of the modes there, shapes `(steps +
    1, size)` and `(steps + 1,)`; at the time of an event, those after the jump. `controls`: the deviations of the parameters that
    act from `params`, shape `(steps, m)`. `gains`: $K$ of the feedback $u = \bar u + K\,(x - \bar x)$, shape `(steps, m, size)`.
    `cost`. `gradient`: $\mathrm dJ/\mathrm du$, shape `(steps, m)`; at a kink, that of one side. `arcs`: its arcs, an `ArcTable`
    with `start_times`, `end_times`, `x_starts`, `x_ends` and `modes`, -1 in unused rows. `numbers`: the number of the arc at
    each grid time. `events`: the number of its events. `iterations`. `history`: by iteration, an `IlqrHistory`. `result`: a
    code of `RESULTS`; see `ilqr`. `given`, `functions`: the arrays and the functions of the problem.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> solution = hj.control.ilqr(
    ...     ball.system, x0, params, mode="flight", times=jnp.linspace(0.0, 0.6, 7), where=lambda p: p.gravity,
    ...     stage_cost=lambda t, x, u, p: 0.01 * jnp.sum(u**2), terminal_cost=lambda t, x, p: (x[0] - 0.5) ** 2,
    ... )
    >>> solution.controls.shape, solution.gains.shape, int(solution.events)
    ((6, 1), (6, 1, 2), 1)
    """

    times: Float[Array, "*batch grid"]
    x: Float[Array, "*batch grid size"]
    modes: Int[Array, "*batch grid"]
    controls: Float[Array, "*batch steps m"]
    gains: Float[Array, "*batch steps m size"]
    cost: Float[Array, "*batch"]
    gradient: Float[Array, "*batch steps m"]
    arcs: ArcTable
    numbers: Int[Array, "*batch grid"]
    events: Int[Array, "*batch"]
    iterations: Int[Array, "*batch"]
    history: IlqrHistory
    result: RESULTS
    given: ControlProblem
    functions: ControlProblem = eqx.field(static=True)

    @property
    def problem(self) -> ControlProblem:
        """The problem that was solved."""
        return eqx.combine(self.given, self.functions)

    def _tables(self):
        if self.cost.ndim:
            return (Table(f"{self.cost.size} solutions of hybrid iLQR", []),)
        title = f"Hybrid iLQR: {self.result}, cost {float(self.cost):.10g} after {int(self.iterations)} iterations"
        lines, last = [], None
        for k in range(int(self.iterations) + 1):
            sequence = self._sequence(np.asarray(self.history.modes[k]))
            if sequence != last:
                lines.append(f"from iteration {k:3d}: cost {float(self.history.cost[k]):.10g}, {sequence}")
            last = sequence
        times = ", ".join(f"{float(t):.9g}" for t in self.event_times)
        return (Table(title, [], notes=[*lines, f"events at {times}" if times else "no event"]),)

    @property
    def event_times(self) -> Float[np.ndarray, " events"]:
        """The times of the events; `TypeError` for a batch."""
        if self.cost.ndim:
            raise TypeError("This is a batch of solutions. Choose one: jax.tree.map(lambda leaf: leaf[0], batch).")
        return np.asarray(self.arcs.end_times[: int(self.events)])

    def _sequence(self, modes: np.ndarray) -> str:
        """The sequence of modes as text, with the number of repetitions of each."""
        names, runs = self.problem.system.names, []
        for mode in modes[modes >= 0]:
            if runs and runs[-1][0] == mode:
                runs[-1][1] += 1
            else:
                runs.append([mode, 1])
        return " ".join(names[mode] + (f" x {count}" if count > 1 else "") for mode, count in runs)

    def track(self, x0: State, *, throw: bool = True) -> Rollout:
        r"""The closed loop $u_k = \bar u_k + K_k\,(x_k - \bar x_k)$ from another initial state in the initial mode.

        Before and after an event that is early or late the solution is compared with the continuation of the arc of its own mode,
        with the control and the gain of the step with the event held; in a mode that the reference does not visit there is no
        feedback.

        **Returns:** a `Rollout` with `x`, `modes`, `controls`, `arcs`, `events`, `cost` and `result`, also under `jit` and
        `vmap`. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.
        """
        problem = self.problem
        x0 = check_state(x0, problem.system.mode(problem.initial).dimension, problem.initial)
        found = _track(self, jnp.pad(x0, (0, problem.x0.size - x0.size)))
        return raise_failure("IlqrSolution.track", found) if throw else found

    def plot(self):
        """A figure of states, controls and costs by iteration; see `hyjax.plot.ilqr_figure`."""
        return draw(self)


@long_run
def _track(solution: IlqrSolution, x0: State) -> Rollout:
    problem = eqx.tree_at(lambda problem: problem.x0, solution.problem, x0)
    reference = Rollout(
        x=solution.x, modes=solution.modes, numbers=solution.numbers, controls=solution.controls, arcs=solution.arcs,
        events=solution.events, cost=solution.cost, result=solution.result,
    )  # fmt: skip
    none = jnp.zeros_like(solution.controls)
    policy = Policy(none, solution.gains, none, jnp.array(True))
    found = roll_out(problem, reference, policy, jnp.zeros((), solution.cost.dtype))
    # NaN only where there is no reference.
    result = choose(jnp.isnan(solution.cost), solution.result, found.result)
    return eqx.tree_at(lambda found: found.result, found, result)


# The directions of each iteration: damping; how near a grid time events are held there, -1 for none, in parts of a step; and
# whether the policy is extended; and to which grid time they are led, the nearest, that before or that after. The first is that
# of the model itself; the last holds only events that are on a kink, and one more direction all of these but one.
DAMPING = np.array([0.0, 1.0, 100.0, 0.0, 0.0, 30.0, 0.0, 0.0, 0.0])
WITHIN = np.array([-1.0, -1.0, -1.0, -1.0, 0.1, 1e-3, 1e-3, 1e-3, 1e-3])
EXTENDED = np.array([True, True, True, False, False, False, False, False, False])
SHIFT = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0, 1.0, 0.0])
# The trial steps: the number of the direction, and the step length along it.
ALONG, PARTS = np.repeat(np.arange(10), 8), np.tile(0.4 ** np.arange(8), 10)
# A step must lower the cost by this part of what its slope promises (Armijo).
ARMIJO = 1e-4


# The state of the iteration: the number of steps accepted, from -1 before the first rollout; the rollout, the directions from it,
# the gradient by the controls, and its model's `move`; the history; whether the iteration has ended, and with which code.
_State = tuple[
    Int[Array, ""],
    Rollout,
    Direction,
    Float[Array, "steps m"],
    Float[Array, "steps size both"],
    IlqrHistory,
    Flag,
    RESULTS,
]


@long_run
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
        fewer = released(model, held[-1], found[2][-1])
        more = direction(model, damping[-1], fewer, ~hold, shift[-1])
        return jax.tree.map(lambda leaf, one: jnp.concatenate([leaf, one[None]]), found, more)

    def body(now: _State) -> _State:
        iteration, current, (policies, slopes, _), _, _, history, _, _ = now
        policy = lambda number: jax.tree.map(lambda leaf: leaf[number], policies)
        trial = lambda number, part: roll_out(problem, current, policy(number), part)
        tried = jax.vmap(trial)(jnp.asarray(ALONG), parts)
        before = current.cost
        promised = slopes[ALONG] * parts
        # The first rollout has no reference: its cost is compared with infinity.
        lower = (tried.cost < before) & (tried.cost <= before + ARMIJO * promised)
        best = jnp.argmin(jnp.where(lower, tried.cost, jnp.inf))
        chosen = jax.tree.map(lambda leaf: leaf[best], tried)
        accepted = jnp.any(lower)
        after = select(accepted, chosen, current)
        iteration = iteration + accepted.astype(iteration.dtype)

        model = quadratic_model(problem, after)
        directions = all_directions(model)
        # Relative to the cost, or to what it has fallen by: the least cost may be zero.
        first = jnp.where(iteration > 0, history.cost[0], after.cost)
        small = tolerance * jnp.maximum(jnp.abs(after.cost), jnp.abs(first - after.cost))
        _, slopes, _ = directions
        free, along_kink = -slopes[0], -slopes[-2:]
        level = jnp.abs(free) <= small
        slow = ~accepted | (before - after.cost <= small)
        at_kink = hold & jnp.any(model.away <= WITHIN[-1]) & jnp.all(jnp.abs(along_kink) <= 10 * small)
        optimal = level | (slow & (at_kink | (jnp.abs(free) <= 10 * small)))

        failed = (iteration < 0) & ~accepted
        result = choose(optimal, RESULTS.successful, choose(slow, RESULTS.stalled, RESULTS.optimum_not_found))
        result = choose(failed, chosen.result, result)
        done = failed | optimal | slow | (iteration >= max_iterations)
        history = select(accepted, history.with_row(iteration, after, free), history)
        return iteration, after, directions, control_gradient(model), model.move, history, done, result

    first = no_rollout(problem, controls)
    none = no_policy(problem, controls)
    spread = lambda leaf: jnp.broadcast_to(leaf, (len(damping) + 1, *leaf.shape))
    start: _State = (
        jnp.array(-1), first,
        jax.tree.map(spread, (none, jnp.zeros((), controls.dtype), jnp.zeros_like(controls[:, 0]))),
        jnp.zeros_like(controls),
        jnp.zeros((len(controls), problem.x0.size, problem.x0.size + controls.shape[1]), controls.dtype),
        IlqrHistory.empty(max_iterations + 1, problem), jnp.array(False),
        RESULTS.successful,  # pyright: ignore[reportAssignmentType]
    )  # fmt: skip
    ended = lambda now: now[-2]
    iteration, found, directions, gradient, move, history, _, result = jax.lax.while_loop(
        lambda now: ~ended(now), body, start
    )
    sound = iteration >= 0
    saddle = (result == RESULTS.successful) & falls_aside(problem, found, move)
    result = choose(saddle, RESULTS.optimum_not_found, result)
    cost = nan_unless(sound, _optimal_cost(found.cost, given, found.controls))
    arrays, functions = eqx.partition(problem, eqx.is_array)
    kept = lambda rows: nan_unless(sound, rows)
    return IlqrSolution(
        times=problem.times, x=kept(found.x), modes=jnp.where(sound, found.modes, -1), controls=kept(found.controls),
        gains=kept(directions[0].gain[0]), cost=cost, gradient=kept(gradient), arcs=found.arcs,
        numbers=found.numbers, events=found.events, iterations=jnp.maximum(iteration, 0), history=history,
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


def ilqr(
    system: HybridSystem,
    x0: State,
    params: Params,
    *,
    mode: str,
    times: Float[Array, " times"],
    where: Where,
    stage_cost: StageCost | Mapping[str, StageCost],
    terminal_cost: TerminalCost | Mapping[str, TerminalCost],
    controls: Float[Array, "steps m"] | None = None,
    max_iterations: int = 100,
    max_jumps: int = 20,
    tolerance: float | None = None,
    hold: bool | Flag = True,
    integrator: IntegratorLike | None = None,
    throw: bool = True,
) -> IlqrSolution:
    r"""Optimal control of a hybrid system by iLQR: the sequence of modes is found with the controls, and is free to change.

    $$\min_u\ \sum_{k=0}^{N-1} \ell(t_k, x_k, u_k) + \varphi(t_N, x_N), \qquad x_{k+1} = F_k(x_k, u_k)$$

    where $F_k$ leads from $t_k$ to $t_{k+1}$ through whatever events come, with the control $u_k$ held. Each iteration

    1. expands the cost to second and $F_k$ to first order about the last trajectory; the derivatives of $F_k$ contain the
       saltation matrices of its events;
    2. goes backward with the recursion of Riccati, to $k_k$ and $K_k$;
    3. simulates $u = \bar u + \alpha k + K\,(x - \bar x)$ through the events that now come, for 8 steps $\alpha$ from 1 to 0.0016
       along each of several directions, as one batch, and takes the trajectory of the lowest cost: so the cost falls in every
       iteration. The directions are those of the model with dampings 0, 1 and 100 of $Q_{uu}$, and with `hold` those below.

    **Extensions.** A solution that is early or late at an event is compared with the arc of the last trajectory in its own mode,
    continued beyond that event by the flow of this mode, with guards ignored, and with the control $\bar u$, the feedforward $k$
    and the gain $K$ of the step with the event held. After a jump it is compared with the arc of its mode that starts nearest in
    time; in a mode that the last trajectory does not visit its controls are $\bar u$, without feedback.

    **Kinks.** An event at a grid time sees the control of one step before it, and of the other step after. The saltation matrix
    contains the vector fields at the event: so where an event passes a grid time, the derivatives of the cost jump, the cost has
    a kink, and a minimum may lie there. At a point of a kink that is no minimum, each of the two smooth pieces has its descent
    direction across the kink, and on the other piece the cost rises: the line search fails, and a local method stalls. Moreover
    a solution that is late for a whole step because its event has just passed a grid time has the control of the step before, by
    the extension, and the cost jumps. With `hold`, which goes beyond the source, further directions are tried: without feedback
    where the solution is early or late, so that the cost is continuous along them; and with events that are near a grid time led
    to it and held there in the model, while the other degrees of freedom minimize: all that are within a tenth or a thousandth of
    a step, all of these but the one with the multiplier that pulls hardest away from its kink, and all led to the next or the
    previous grid time. Where none of these lowers the cost, the trajectory is optimal along its kinks. As there may be a kink at
    each grid time, there may be such a minimum at each; several initial guesses help, and a finer grid lowers the barriers.

    **Arguments:** `system`, `params`: a `HybridSystem` and its parameters, a PyTree. `x0`: shape `(n,)`. `mode`: that of `x0`.
    `times`: the grid, increasing, shape `(steps + 1,)`. `where`: selects the $m$ parameters that act, as
    `lambda p: (p.torque, p.push_off)`; vector fields, guards and resets see them. `controls`: the initial guess of their
    deviations from `params`, shape `(steps, m)`; by default zero. It decides which minimum is found. `stage_cost`:
    $\ell(t, x, u, p)$, `terminal_cost`: $\varphi(t, x, p)$, with values of shape `()`, each a function or one for each mode by
    name; `x` has the dimension of its mode, `u` shape `(m,)`, and `p` is `params`. Both twice differentiable; convex costs give
    better directions. `max_iterations`, `max_jumps` (of one trajectory): static. `tolerance`: of the decrease that the model
    promises, relative to the cost or to what it has fallen by, whichever is larger; by default 1e-9 in float64. `integrator`: an
    `Integrator`, or one for each mode; by default Dopri8 at tolerances of 1e-10. `throw`: raise a `SolveError` on failure; with
    `False`, `result` holds the code.

    **Returns:** `IlqrSolution`, also under `jit` and `vmap`: as for `controls`, several initial guesses are one batch. Its
    `cost` is differentiable in `x0`, `params` and `times`, with the controls held: by the envelope theorem this is the
    derivative of the minimum. `result`: `successful` where the model promises no decrease, or none along a kink; `stalled`
    where it promises one and no step that was tried has it; `optimum_not_found` after `max_iterations`, and at a stationary
    point that is no minimum, such as the top between two wells of a cost that is not convex, where start elsewhere; a code of
    `simulate` if the initial guess fails, and then the numbers are NaN. Trial steps that fail are only refused. `ValueError`
    for arguments of a wrong shape or dtype, or that are not finite.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> solution = hj.control.ilqr(
    ...     ball.system, x0, params, mode="flight", times=jnp.linspace(0.0, 0.6, 7), where=lambda p: p.gravity,
    ...     stage_cost=lambda t, x, u, p: 0.01 * jnp.sum(u**2), terminal_cost=lambda t, x, p: (x[0] - 0.5) ** 2,
    ... )
    >>> print(solution.result, f"{solution.cost:.6f}")
    successful 0.005996

    Source: Kong, Council, Johnson (2021), *iLQR for piecewise-smooth hybrid dynamical systems*, IEEE CDC, 5374-5381; Tassa, Erez,
    Todorov (2012), *Synthesis and stabilization of complex behaviors through online trajectory optimization*, IROS. In Kong,
    Payne, Zhu, Johnson (2024): Sec. II, hybrid iLQR; eq. 33 for the derivatives of $F_k$ and eq. 40 at its events; in Table I
    the co-vector quadratic matrix $P$ of eq. 40 and the loss function of eq. 144.
    """
    dtype = jnp.asarray(x0).dtype
    integrator = rolled(integrator_to(1e-10, dtype, 1e-6)) if integrator is None else integrator
    times = _check_times(times, dtype)
    require_counts("ilqr", 0, max_jumps=max_jumps)
    system, _, x0, _, params, integrator = check_simulation(
        system, x0, params, mode, times[0], times[-1], max_jumps, integrator
    )
    system.refuse_at_once("ilqr")
    free = free_leaves(where, params)
    steps, m = len(times) - 1, len(free)
    controls = jnp.zeros((steps, m), x0.dtype) if controls is None else jnp.asarray(controls, x0.dtype)
    if controls.shape != (steps, m):
        raise ValueError(
            f"ilqr: controls of shape {controls.shape} must have shape {(steps, m)}: one row for each step of the grid, one "
            "column for each parameter that acts."
        )
    if not isinstance(controls, jax.core.Tracer) and not np.all(np.isfinite(controls)):
        k = int(np.argmin(np.all(np.isfinite(controls), axis=1)))
        raise ValueError(f"ilqr: controls[{k}] = {controls[k]} is not finite. Give finite numbers.")
    require_counts("ilqr", 1, max_iterations=max_iterations)
    tolerance = (1e-9 if dtype == np.float64 else 1e-4) if tolerance is None else tolerance
    if not 0 < tolerance < 1:
        raise ValueError(f"ilqr: tolerance={tolerance!r} must lie between 0 and 1, for example 1e-9.")
    u = jax.ShapeDtypeStruct((m,), x0.dtype)
    size = max(each.dimension for each in system.modes.values())
    placed = lambda given, more, label: functions_by_mode(
        system, given, more, (), times[0], x0.dtype, label, "but it must return one number, shape ()"
    )
    problem = ControlProblem(
        system=system, params=params, x0=jnp.pad(x0, (0, size - x0.size)), initial=mode, times=times,
        stage=placed(stage_cost, (u, params), "ilqr: stage_cost"),
        terminal=placed(terminal_cost, (params,), "ilqr: terminal_cost"),
        integrator=without_jacobian(integrator), free=free, max_jumps=max_jumps,
    )  # fmt: skip
    found = run_ilqr(problem, controls, max_iterations, jnp.asarray(tolerance, x0.dtype), jnp.asarray(hold))
    return raise_failure("ilqr", found) if throw else found


def _check_times(times, dtype) -> Float[Array, " times"]:
    times = jnp.asarray(times, dtype)
    if times.ndim != 1 or len(times) < 2:
        raise ValueError(f"ilqr: times of shape {times.shape} must have shape (steps + 1,), with at least one step.")
    if not isinstance(times, jax.core.Tracer) and not (np.all(np.isfinite(times)) and np.all(np.diff(times) > 0)):
        k = int(np.argmin(np.diff(times) > 0)) + 1
        raise ValueError(f"ilqr: the times must be finite and increase; times[{k}] is {times[k]}.")
    return times
