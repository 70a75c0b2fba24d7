"""The result of hybrid iLQR."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._flow.check import check_state
from .._results.pictures import picture
from .._results.shown import is_traced, Shown
from .._system.results import choose, RESULTS
from .._system.types import Scalar, State
from .control_problem import ControlProblem
from .rollout import ArcTable, Policy, roll_out, Rollout


class IlqrHistory(eqx.Module):
    """What happened, by iteration; row 0 is the initial guess, and rows beyond the last iteration are NaN or -1.

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
        """So many rows without an iteration."""
        none, arcs = jnp.full(rows, jnp.nan, problem.x0.dtype), problem.max_events + 1
        return cls(none, none, jnp.full(rows, -1), jnp.full((rows, arcs), -1))

    def with_row(self, row: Int[Array, ""], found: Rollout, decrement: Scalar) -> "IlqrHistory":
        """With one iteration more."""
        return IlqrHistory(
            self.cost.at[row].set(found.cost), self.decrement.at[row].set(decrement),
            self.events.at[row].set(found.events), self.modes.at[row].set(found.arcs.modes),
        )  # fmt: skip


class IlqrSolution(Shown):
    r"""A controlled trajectory from `ilqr`, its feedback, and how it was found.

    States are padded with zeros to the largest dimension of a mode, `size`.

    **Attributes:** `times`: the grid, shape `(steps + 1,)`. `x`, `modes`: states and indices of the modes there, shapes `(steps +
    1, size)` and `(steps + 1,)`; at the time of an event, those after the jump. `controls`: the deviations of the parameters that
    act from `params`, shape `(steps, m)`. `gains`: $K$ of the feedback $u = \bar u + K\,(x - \bar x)$, shape `(steps, m, size)`.
    `cost`. `gradient`: $\mathrm dJ/\mathrm du$, shape `(steps, m)`; at a kink, that of one side. `arcs`: its arcs, an `ArcTable`
    with `starts`, `ends`, `x_starts`, `x_ends` and `modes`, -1 in unused rows. `numbers`: the number of the arc at each grid
    time. `events`: the number of its events. `iterations`. `history`: by iteration, an `IlqrHistory`. `result`: a code of
    `RESULTS`; see `ilqr`. `given`, `functions`: the arrays and the functions of the problem.

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

    def __str__(self) -> str:
        if is_traced(self) or self.cost.ndim:
            return eqx.tree_pformat(self)
        lines = [f"Hybrid iLQR: {self.result}, cost {float(self.cost):.10g} after {int(self.iterations)} iterations"]
        last = None
        for k in range(int(self.iterations) + 1):
            sequence = self._sequence(np.asarray(self.history.modes[k]))
            if sequence != last:
                lines.append(f"  from iteration {k:3d}: cost {float(self.history.cost[k]):.10g}, {sequence}")
            last = sequence
        times = ", ".join(f"{float(t):.9g}" for t in self.event_times)
        return "\n".join([*lines, f"  events at {times}" if times else "  no event"])

    @property
    def event_times(self) -> Float[np.ndarray, " events"]:
        """The times of the events; `TypeError` for a batch."""
        if self.cost.ndim:
            raise TypeError("This is a batch of solutions. Choose one: jax.tree.map(lambda leaf: leaf[0], batch).")
        return np.asarray(self.arcs.ends[: int(self.events)])

    def _sequence(self, modes: np.ndarray) -> str:
        """The modes, with the number of repetitions of each."""
        names, runs = self.problem.system.names, []
        for mode in modes[modes >= 0]:
            if runs and runs[-1][0] == mode:
                runs[-1][1] += 1
            else:
                runs.append([mode, 1])
        return " ".join(names[mode] + (f" x {count}" if count > 1 else "") for mode, count in runs)

    def track(self, x0: State) -> Rollout:
        r"""The closed loop $u_k = \bar u_k + K_k\,(x_k - \bar x_k)$ from another initial state in the initial mode.

        Before and after an event that is early or late the solution is compared with the continuation of the arc of its own mode,
        with the control and the gain of the step with the event held; in a mode that the reference does not visit there is no
        feedback.

        **Returns:** a `Rollout` with `x`, `modes`, `controls`, `arcs`, `events`, `cost` and `result`, also under `jit` and
        `vmap`.
        """
        problem = self.problem
        x0 = check_state(x0, problem.system.mode(problem.initial).dimension, problem.initial)
        return _track(self, jnp.pad(x0, (0, problem.x0.size - x0.size)))

    def plot(self):
        """A figure of states, controls and costs by iteration; see `hyjax.plot.ilqr_figure`."""
        return picture("ilqr_figure")(self)


@eqx.filter_jit
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
