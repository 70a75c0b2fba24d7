"""The result of a simulation: arcs, events, and states in between."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._numerics.eager import short_run
from .._results.registry import animate, draw
from .._results.shown import lanes, Shown
from .._system.results import nan_unless, RESULTS
from .._system.system import HybridSystem
from .._system.types import Params, Scalar, State, Time
from .automaton import Automaton, follow_automaton
from .integrator import Integrators, pushable

if TYPE_CHECKING:
    import matplotlib.figure
    import xarray


class Arc(Shown):
    """States sampled along one arc, the flow between two jumps.

    **Attributes:** `mode`: name of its mode. `t`: times, shape `(n,)`, from the arc's start to its end, both included, on the
    clock of the whole orbit or trajectory. `x`: states, shape `(n, dimension)`, in the order of the mode's `coordinates`. Times
    and states are in the units of the vector field, and NaN where the flow fails.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> (arc,) = orbit.sample(5)
    >>> arc.mode, arc.t.shape, arc.x.shape
    ('stance', (5,), (5, 2))
    """

    mode: str = eqx.field(static=True)
    t: Float[Array, " n"]
    x: Float[Array, "n dimension"]


class Samples(Shown):
    """States of a trajectory at the times given by `simulate(times=...)`.

    **Attributes:** `t`: shape `(times,)`. `x`: shape `(times, size)`, padded with zeros to the largest dimension; at the time of
    an event, the state after the jump. `mode`: indices of the modes, shape `(times,)`. At a time that the trajectory does not
    reach, `x` is NaN and `mode` is -1.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> run = hj.simulate(ball.system, x0, params, mode="flight", t1=1.0, times=jnp.array([0.0, 0.5, 1.0]))
    >>> print(run.samples.x.round(4), run.samples.mode)
    [[ 1.      0.    ]
     [ 0.1603  3.068 ]
     [ 0.468  -1.837 ]] [0 0 0]
    """

    t: Float[Array, " times"]
    x: Float[Array, "times size"]
    mode: Int[Array, " times"]


def state_at(automaton: Automaton, arc: tuple, time: Time, params: Params, integrator: Integrators):
    """The padded state at a time of an arc `(start, end, state at the start, mode)`; the guards are ignored."""
    start, _, x, mode = arc
    end = follow_automaton(automaton, start, x, mode, time, params, integrator, guarded=False)
    return nan_unless(end.result == RESULTS.successful, end.x)


def samples_at(automaton: Automaton, arcs: tuple, times: Array, params: Params, integrator: Integrators) -> Samples:
    """States at times in any order; `arcs` are the columns `(starts, ends, states at the starts, modes)`."""
    starts, ends, _, modes = arcs

    def one(time):
        # The last arc that has begun; at the time of a jump, the arc after it, also where that time was found within rounding
        # after the one asked for, as at the end of a simulation. Comparisons with NaN are false.
        soon = time + 64 * float(jnp.finfo(time.dtype).eps) * jnp.abs(time)
        k = jnp.maximum(jnp.sum(starts <= soon) - 1, 0)
        inside = (starts[k] <= soon) & (time <= ends[k])
        arc = jax.tree.map(lambda column: column[k], arcs)
        within = time + stop_gradient(jnp.maximum(starts[k] - time, 0))
        x = state_at(automaton, arc, jnp.where(inside, within, starts[k]), params, integrator)
        return nan_unless(inside, x), jnp.where(inside, modes[k], -1)

    x, mode = jax.vmap(one)(times)
    return Samples(times, x, mode)


class Event(Shown):
    """A jump of a trajectory.

    **Attributes:** `t`: its time. `before`, `after`: the states before and after the jump, of the dimensions of the modes
    `source` and `target`. `transition`: index into `system.transitions`; `index`: the number of the guard in a family of
    transitions, else -1. `guard_rate`: `D_t g + D_x g f < 0` before the jump, in the guard's units per time. In the function
    `add` of `simulate(record=(start, add))` the states are padded to the largest dimension, and the modes have no names:
    `transition` says which they are.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> run = hj.simulate(ball.system, x0, params, mode="flight", t1=1.0)
    >>> event = run.events[0]
    >>> print(f"{event.t:.6f} {event.before[1]:.6f} {event.after[1]:.6f}")
    0.451524 -4.429447 3.543558
    """

    t: float | Time
    before: Float[Array, " source"]
    after: Float[Array, " target"]
    source: str = eqx.field(static=True)
    target: str = eqx.field(static=True)
    transition: int | Int[Array, ""]
    guard_rate: float | Scalar
    index: int | Int[Array, ""] = -1


class Trajectory(Shown):
    """An execution of a hybrid system: a chain of arcs with a jump between consecutive arcs, as `simulate` returns it.

    The arrays have `arcs = max_jumps + 1` rows; in unused rows, times and states are NaN, modes and transitions -1. Without a
    record of the arcs (`simulate(record=False)` or `(start, add)`) the arrays have no rows, and what needs the arcs raises
    `ValueError`. States are padded with zeros to the largest dimension, `size`; `final`, `events` and `sample` return states of
    their true sizes.

    **Attributes:** `t`, `x`, `mode`: final time, state and mode, shapes `()`, `(size,)`, `()`; modes are numbered in the order of
    `system.modes`. `start_times`, `end_times`: of the arcs, shape `(arcs,)`. `x_starts`, `x_ends`: states at the arcs' starts and
    ends, after and before the jumps, shape `(arcs, size)`. `modes`: shape `(arcs,)`. `transitions`: the transition whose guard
    ended the arc, -1 for none, shape `(arcs,)`. `indices`: the number of that guard in a family of transitions, else -1, shape
    `(arcs,)`. `guard_rates`: in the guards' units per time, shape `(arcs,)`. `at_once`: whether
    the jump was taken where the arc began, its guard beyond the surface (see `Transition`), shape `(arcs,)`. `jumps`: the
    number of jumps taken. `result`: a code of `RESULTS`. `samples`: states at the `times` given to `simulate`, or `None`.
    `recorded`: the value of `simulate(record=(start, add))`, or `None`.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> run = hj.simulate(ball.system, x0, params, mode="flight", t1=1.0)
    >>> run.sequence, run.events[0].source, run.start_times.shape
    (('flight',), 'flight', (101,))
    >>> print(run.sample(3)[0].x.shape)
    (3, 2)

    Source: Kong, Payne, Zhu, Johnson (2024), Definition 1.
    """

    t: Time
    x: Float[Array, " size"]
    mode: Int[Array, ""]
    start_times: Float[Array, " arcs"]
    end_times: Float[Array, " arcs"]
    x_starts: Float[Array, "arcs size"]
    x_ends: Float[Array, "arcs size"]
    modes: Int[Array, " arcs"]
    transitions: Int[Array, " arcs"]
    indices: Int[Array, " arcs"]
    guard_rates: Float[Array, " arcs"]
    at_once: Bool[Array, " arcs"]
    jumps: Int[Array, ""]
    result: RESULTS
    samples: Samples | None
    params: Params
    system: HybridSystem = eqx.field(static=True)
    integrator: Integrators = eqx.field(static=True)
    recorded: PyTree = None

    def _tables(self):
        from .trajectory_report import trajectory_table

        return (trajectory_table(self),)

    def __len__(self) -> int:
        """The number of trajectories in a batch; `TypeError` for one trajectory."""
        if self.t.ndim == 0:
            raise TypeError("This is one trajectory, not a batch of trajectories.")
        return self.t.shape[0]

    def __getitem__(self, i) -> "Trajectory":
        """One trajectory, or several, of a batch; `TypeError` for one, `IndexError` for one that is not there."""
        return lanes(self, self.t, i, "one trajectory, not a batch of trajectories")

    @property
    def final(self) -> State:
        """The final state, of the dimension of its mode."""
        return self.x[: self._dimension(self._one().mode)]

    @property
    def mode_names(self) -> tuple[str, ...]:
        """The names of the modes, in the order of the arcs."""
        names = tuple(self.system.modes)
        return tuple(names[k] for k in np.asarray(self._recorded().modes) if k >= 0)

    @property
    def events(self) -> tuple[Event, ...]:
        """The jumps, in the order of time."""
        self._recorded()
        names = tuple(self.system.modes)
        found = []
        for k in range(int(self.jumps)):
            source, target = int(self.modes[k]), int(self.modes[k + 1])
            before, after = self._dimension(source), self._dimension(target)
            found.append(
                Event(
                    t=float(self.end_times[k]),
                    before=self.x_ends[k, :before],
                    after=self.x_starts[k + 1, :after],
                    source=names[source],
                    target=names[target],
                    transition=int(self.transitions[k]),
                    guard_rate=float(self.guard_rates[k]),
                    index=int(self.indices[k]),
                )
            )
        return tuple(found)

    @property
    def sequence(self) -> tuple[str, ...]:
        """The cycle of modes at the end of the trajectory: a `sequence` for `periodic_orbit`, with the initial guess `guess`.

        The shortest cycle that is repeated at the end; without a repetition, the longest closed cycle. `ValueError` where no
        cycle closes.
        """
        return self._cycle()[0]

    @property
    def guess(self) -> State:
        """The state at the start of the last passage through `sequence`, just after a jump."""
        sequence, first = self._cycle()
        return self.x_starts[first, : self.system.mode(sequence[0]).dimension]

    def sample(self, n_samples: int = 100) -> tuple[Arc, ...]:
        """States along each arc, at `n_samples` equidistant times from its start to its end."""
        names = self.mode_names
        if not names:
            return ()
        t, x = _sample(self, n_samples)
        return tuple(Arc(name, t[k], x[k, :, : self.system.mode(name).dimension]) for k, name in enumerate(names))

    def fundamental_matrix(self) -> Float[Array, "final initial"]:
        r"""The fundamental matrix from the first state to the final state: $\Phi = \Phi_k\,\Xi_k \cdots \Xi_1\,\Phi_0$.

        The product of the arcs' flow Jacobians and the saltation matrices: the derivative of the final state with respect to the
        first, at fixed times, by another route than automatic differentiation of `simulate`.

        **Returns:** shape `(final, initial)`, the true dimensions; under `jit` `(size, size)`, padded with zeros. NaN where the
        simulation failed.

        Source: Kong, Payne, Zhu, Johnson (2024), eqs. 33-34.
        """
        matrix = _fundamental_matrix(self._with_arcs())
        if isinstance(self.mode, jax.core.Tracer):
            return matrix
        return matrix[: self._dimension(self._one().mode), : self._dimension(self.modes[0])]

    def to_xarray(self, n_samples: int = 100, model=None) -> "xarray.Dataset":
        """Samples over `time` and the events over `event`, as an `xarray.Dataset`.

        The variables are named after the coordinates; in a mode without the coordinate, the variable is NaN. Times increase
        strictly, so `sel(time=0.4, method="nearest")` selects one sample: the state before a jump is that at the jump's time, and
        is listed at the next smaller floating-point number. **Arguments:** `n_samples`: times on each arc. `model`: supplies
        units where the system names none. `ImportError` without xarray.
        """
        from .trajectory_report import trajectory_dataset

        return trajectory_dataset(self, n_samples, model)

    def plot(self) -> "matplotlib.figure.Figure":
        """A figure of the coordinates over time, coloured by mode; see `hyjax.plot.trajectory_figure`."""
        return draw(self)

    def animate(self, model, **options):
        """An animation of a model along the trajectory; see `hyjax.plot.animate_trajectory`."""
        return animate(self, model, **options)

    def _dimension(self, mode) -> int:
        return tuple(self.system.modes.values())[int(mode)].dimension

    def _one(self) -> "Trajectory":
        if self.t.ndim:
            raise TypeError(f"This is a batch of {len(self)} trajectories. Choose one, such as trajectory[0].")
        if isinstance(self.mode, jax.core.Tracer):
            raise TypeError("Modes are not known under jit. Use the padded arrays `x`, `x_ends`, `modes`.")
        return self

    def _with_arcs(self) -> "Trajectory":
        if not self.start_times.shape[-1]:
            raise ValueError(
                "The trajectory was simulated without a record of its arcs. Simulate with record=True "
                "for arcs, events, samples and pictures."
            )
        return self

    def _recorded(self) -> "Trajectory":
        return self._one()._with_arcs()

    def _cycle(self) -> tuple[tuple[str, ...], int]:
        """The closed sequence of `sequence`, and the index of the arc at which its last passage began."""
        names, jumps = self.mode_names, int(self.jumps)
        closed = [
            (length, names[jumps - length : jumps])
            for length in range(1, jumps + 1)
            if names[jumps - length] == names[jumps] and len(names) > jumps
        ]
        for length, cycle in closed:
            if names[jumps - 2 * length : jumps - length] == cycle and jumps >= 2 * length:
                return cycle, jumps - length
        if not closed:
            raise ValueError(f"sequence: the modes {names} do not close a cycle. Simulate for a longer time.")
        length, cycle = closed[-1]
        return cycle, jumps - length


def _columns(trajectory: Trajectory) -> tuple:
    """The columns `(starts, ends, states at the starts, modes)` of all rows; unused rows are arcs of length 0."""
    there = trajectory.modes >= 0
    fill = lambda column: jnp.where(there.reshape((-1,) + (1,) * (column.ndim - 1)), column, column[0])
    starts = fill(trajectory.start_times)
    return starts, jnp.where(there, trajectory.end_times, starts), fill(trajectory.x_starts), fill(trajectory.modes)


@short_run
def _sample(trajectory: Trajectory, n_samples: int):
    automaton = Automaton(trajectory.system)

    def one(arc):
        times = jnp.linspace(arc[0], arc[1], n_samples)
        at = lambda time: state_at(automaton, arc, time, trajectory.params, trajectory.integrator)
        return times, jax.vmap(at)(times)

    return jax.lax.map(one, _columns(trajectory))


@short_run
def _fundamental_matrix(trajectory: Trajectory) -> Float[Array, "size size"]:
    automaton, params, integrator = Automaton(trajectory.system), trajectory.params, pushable(trajectory.integrator)

    def one(carry, each):
        (total, delay), (there, k, arc, x_end, taken, at_once) = carry, each
        end = arc[1]

        def flow(x):
            return state_at(automaton, (arc[0], end, x, arc[3]), end, params, integrator)

        factor = jax.jacfwd(flow)(arc[2])
        if automaton.system.transitions:
            jacobian, slip, late = automaton.variation(end, x_end, jnp.maximum(taken, 0), params)
            jumped = k < trajectory.jumps
            # A jump that is taken at once is as late as the one before it, and at the start is not late.
            delay = jnp.where(jumped & ~at_once, late @ factor @ total, delay)
            after = jacobian @ factor @ total - jnp.outer(slip, delay)
            return (jnp.where(there, jnp.where(jumped, after, factor @ total), total), delay), None
        return (jnp.where(there, factor @ total, total), delay), None

    there = trajectory.modes >= 0
    arcs = _columns(trajectory)
    x_ends = jnp.where(there[:, None], trajectory.x_ends, trajectory.x_starts[0])
    ways = automaton.system.way_number(trajectory.transitions, trajectory.indices)
    each = (there, jnp.arange(there.size), arcs, x_ends, ways, trajectory.at_once)
    dimensions = jnp.array([mode.dimension for mode in automaton.modes])
    real = jnp.arange(automaton.size) < dimensions[trajectory.modes[0]]
    start = jnp.diag(real.astype(trajectory.x.dtype))
    (total, _), _ = jax.lax.scan(one, (start, jnp.zeros_like(start[0])), each)
    return nan_unless(trajectory.result == RESULTS.successful, total)
