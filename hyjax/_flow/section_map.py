r"""The map from a section to its next crossing, through any number of jumps.

The system is given a terminal mode, which the section's surface leads to and in which nothing flows. So the state at the crossing
has the derivatives of a Poincaré map: the saltation matrix of an event after which the flow is zero is the projection along the
flow onto the surface,

$$\Xi = I + \frac{(0 - f)\,D_xs}{D_ts + D_xs\,f}$$
"""

from collections.abc import Iterable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._numerics.eager import short_run
from .._numerics.one_kernel import in_one_kernel
from .._results.shown import Shown
from .._system.results import choose, nan_unless, RESULTS
from .._system.section import Section, SectionLike, Stroboscope
from .._system.system import Guard, HybridSystem, Mode, Reset, Transition, unchanged
from .._system.types import Matrix, Params, Scalar, State, Time
from .automaton import Automaton, Index, Padded
from .check import check_params
from .integrator import IntegratorLike, Integrators, pushable
from .simulate import check_simulation, first_arc, follow_arc, run_simulation


def with_terminal_modes(
    system: HybridSystem, sources: Iterable[str], ends: Mapping[str, Guard], reset: Reset = unchanged
) -> HybridSystem:
    """The system with a terminal mode for each of the modes `sources` and each guard of `ends`, in this order, entered from that
    mode through that guard and never left. They come last, and so do their transitions."""
    modes, transitions = dict(system.modes), list(system.transitions)
    for source in dict.fromkeys(sources):
        for name, guard in ends.items():
            target = f"{name} from {source}"
            modes[target] = Mode(_rest, system.mode(source).coordinates, units=system.mode(source).units)
            transitions.append(Transition(source, target, guard, reset))
    return HybridSystem(modes, tuple(transitions), system.time_unit)


def for_terminal_modes(integrator: Integrators, extended: HybridSystem) -> Integrators:
    """The integrators of a system with terminal modes: in those, that of its first mode."""
    known = len(extended.names) - sum(mode.vector_field is _rest for mode in extended.modes.values())
    sources = [name if k < known else extended.names[0] for k, name in enumerate(extended.names)]
    return integrator.renamed(extended.names, sources)


def _rest(t, x, params):
    return jnp.zeros_like(x)


# The name of the end at a section.
AT_SECTION = "section"


class Crossing(Shown):
    """The next crossing of a section, from a `ReturnMap`.

    **Attributes:** `x`: the state there, of the section's mode; for a `Stroboscope` padded with zeros to the largest dimension of
    a mode. `time`: the duration, in units of time. `mode`: the index of the mode, in the order of `system.modes`. `transitions`:
    those taken on the way, indices into `system.transitions`, -1 in unused rows, shape `(max_jumps,)`; `indices`: the numbers of
    their guards in families of transitions, else -1, shape `(max_jumps,)`. `jumps`: their number.
    `result`: a code; unless `result` is `successful`, `x` and `time` are NaN.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> upright = hj.Section("stance", lambda t, x, p: -x[0])
    >>> crossing = hj.ReturnMap(wheel.system, section=upright)(jnp.array([0.1, 0.8]), params)
    >>> print(crossing.jumps, crossing.transitions[:3])
    1 [ 0 -1 -1]
    """

    x: State
    time: Scalar
    mode: Int[Array, ""]
    transitions: Int[Array, " max_jumps"]
    indices: Int[Array, " max_jumps"]
    jumps: Int[Array, ""]
    result: RESULTS


class SectionPass(eqx.Module):
    """A pass of a map on states and modes. `end`: the number of the terminal mode that ended the motion, -1 for none.
    `arcs`: the number of arcs."""

    x: Padded
    time: Scalar
    mode: Index
    end: Index
    arcs: Int[Array, ""]
    result: RESULTS


class SectionMap(eqx.Module):
    """The map of a section for programs that iterate it: differentiable in forward mode.

    **Attributes:** `system`: with terminal modes, the last of which is the section's for a `Section`. `ordinary`: the number of
    its modes that are not terminal. `max_jumps`: in one pass. `judges`: see `Automaton`.
    """

    system: HybridSystem
    section: SectionLike
    ordinary: int = eqx.field(static=True)
    max_jumps: int = eqx.field(static=True)
    integrator: Integrators
    judges: bool = eqx.field(static=True, default=True)

    def __call__(self, t: Time, z: Padded, mode: Index, params: Params) -> SectionPass:
        """The next crossing after the state `z`, padded, of a mode at the time `t`."""
        automaton, at = Automaton(self.system, judges=self.judges), self.system.number(self.section.mode)
        t1 = t + _longest(self.section, params, self.integrator, z.dtype)
        start, most = first_arc(automaton, z, mode, t, t1), self.max_jumps + isinstance(self.section, Section)

        def one(carry):
            now, k = carry
            now, _ = follow_arc(automaton, now, k == most, start, t1, params, self.integrator)
            return now, k + 1

        going = lambda carry: ~carry[0].done & (carry[0].mode < self.ordinary)
        now, arcs = in_one_kernel(lambda *start: jax.lax.while_loop(going, one, start))(start, jnp.array(0))
        ended, result, reached = now.mode >= self.ordinary, now.result, now.mode
        if isinstance(self.section, Section):
            crossed = now.mode == len(self.system.names) - 1
            result = choose((result == RESULTS.successful) & ~ended, RESULTS.no_crossing, result)
            ended, reached = ended & ~crossed, jnp.array(at)
        return SectionPass(now.z, now.t - t, reached, jnp.where(ended, now.mode - self.ordinary, -1), arcs, result)


def with_section_mode(system: HybridSystem, section: SectionLike) -> HybridSystem:
    """The system with a terminal mode at which a `Section` is reached; unchanged for a `Stroboscope`."""
    if not isinstance(section, Section):
        return system
    return with_terminal_modes(system, (section.mode,), {AT_SECTION: section.surface}, section.reset)


def check_section(
    system: HybridSystem,
    section: SectionLike,
    x: State,
    params: Params,
    t: float | Time | None,
    integrator: IntegratorLike,
) -> tuple[HybridSystem, Time, State, Params, Integrators]:
    """Check the arguments of an analysis by a section. **Returns:** `(system, t, x, params, integrator)`, the numbers as arrays;
    the phase of a `Stroboscope` where `t` is `None`, or else 0; the system knows the sizes of its families."""
    params = check_params(params)
    if t is None:
        t = section.start(params, jnp.asarray(x).dtype) if isinstance(section, Stroboscope) else 0.0
    system, t, x, _, params, integrator = check_simulation(system, x, params, section.mode, t, jnp.inf, 0, integrator)
    if isinstance(section, Section):
        for name, shape in (("surface", ()), ("reset", x.shape)):
            found = eqx.filter_eval_shape(getattr(section, name), t, x, params)
            if getattr(found, "shape", None) != shape or found.dtype != x.dtype:
                raise ValueError(f"section: {name} must return shape {shape} of dtype {x.dtype.name}, not {found}.")
    return system, t, x, params, integrator


@short_run
def crossing_of(
    system: HybridSystem, section: SectionLike, t, x, params, max_jumps: int, integrator, passes: int, judges: bool
) -> Crossing:
    """The state after `passes` crossings of the section, each by at most `max_jumps` jumps. **Arguments:** `judges`: see
    `Automaton`."""
    if passes == 1:
        return _next_crossing(system, section, t, x, params, max_jumps, integrator, judges)
    if isinstance(section, Stroboscope):
        # The state after a period may be in any mode: the passes are one flow.
        return _next_crossing(system, section.lasting(passes), t, x, params, passes * max_jumps, integrator, judges)
    each = _next_crossing(system, section, t, x, params, max_jumps, integrator, judges)
    time, jumps, taken, result = each.time, each.jumps, [(each.transitions, each.indices)], each.result
    for _ in range(passes - 1):
        each = _next_crossing(system, section, t + time, each.x, params, max_jumps, integrator, judges)
        time, jumps = time + each.time, jumps + each.jumps
        taken.append((each.transitions, each.indices))
        result = choose(result == RESULTS.successful, each.result, result)
    rows, indices = (jnp.concatenate(column) for column in zip(*taken, strict=True))
    # Those taken come first, as after one pass.
    first = jnp.argsort(rows < 0, stable=True)
    return Crossing(each.x, time, each.mode, rows[first], indices[first], jumps, result)


def _next_crossing(
    system: HybridSystem, section: SectionLike, t, x, params, max_jumps: int, integrator, judges: bool
) -> Crossing:
    extended = with_section_mode(system, section)
    inner, t1 = for_terminal_modes(integrator, extended), t + _longest(section, params, integrator, x.dtype)
    on_surface = isinstance(section, Section)
    flown = run_simulation(
        Automaton(extended, system.names, judges=judges), x, section.mode, t, t1, params, max_jumps + on_surface, inner, None,
    )  # fmt: skip
    result, mode, jumps, end = flown.result, flown.mode, flown.jumps, flown.t
    if on_surface:
        reached = mode == len(system.names)
        result = choose((result == RESULTS.successful) & ~reached, RESULTS.no_crossing, result)
        mode, jumps = jnp.array(system.number(section.mode)), jumps - 1
        # The time at which the last arc, in which nothing flows, starts.
        end = flown.start_times[jnp.maximum(flown.jumps, 0)]
    good = result == RESULTS.successful
    taken = flown.transitions[:max_jumps]
    taken = jnp.where(taken < len(system.transitions), taken, -1)
    z = flown.x[: x.size] if on_surface else flown.x
    indices, jumps = flown.indices[:max_jumps], jnp.maximum(jumps, 0)
    return Crossing(nan_unless(good, z), nan_unless(good, end - t), mode, taken, indices, jumps, result)


@short_run
def jacobian_of_crossing(
    system, section, t, x, params, max_jumps: int, integrator, passes: int, judges: bool
) -> tuple[Matrix, RESULTS]:
    """The Jacobian of the state after `passes` crossings, NaN where one fails; and the code."""

    def end(x):
        crossing = crossing_of(system, section, t, x, params, max_jumps, pushable(integrator), passes, judges)
        return crossing.x, crossing.result

    jacobian, result = jax.jacfwd(end, has_aux=True)(x)
    return nan_unless(result == RESULTS.successful, jacobian), result


def _longest(section: SectionLike, params: Params, integrator: Integrators, dtype) -> Float[Array, ""]:
    """The longest time to the next crossing."""
    if isinstance(section, Stroboscope):
        # Without a period the state would be that of the start.
        period = section.duration(params, dtype)
        return jnp.where(period > 0, period, jnp.nan)
    return jnp.asarray(integrator.of(section.mode).max_time, dtype)
