"""The map that an attractor or a basin iterates: of a sequence of modes, or of a section."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._flow.automaton import Index
from .._flow.check import check
from .._flow.integrator import Integrator, Integrators, without_jacobian
from .._flow.section_map import (
    check_section,
    for_terminal_modes,
    SectionMap,
    SectionPass,
    with_section_mode,
    with_terminal_modes,
)
from .._orbit.problem import depends_on_time, Problem, uses_time
from .._orbit.return_map import ReturnMap
from .._orbit.stride import run_stride
from .._system.section import at_phase, Section, Stroboscope
from .._system.system import Guard, HybridSystem
from .._system.types import Params, State, Time

# A map that is iterated, `(t, x, mode, params) -> SectionPass`: a `SectionMap`, or that of a sequence.
PassMap = Callable[[Time, State, Index, Params], SectionPass]


def pass_of_sequence(
    system: HybridSystem,
    sequence: tuple[str, ...],
    ordinary: int,
    integrator: Integrators,
    t: Time,
    x: State,
    mode: Index,
    params: Params,
) -> SectionPass:
    """The return map along a sequence of modes of a system that may have terminal modes. `ordinary`: the number of ways
    that do not end in one."""
    stride, end = run_stride(system, t, x, params, sequence, integrator), jnp.array(-1)
    for impact in stride.impacts[::-1]:
        end = jnp.where(impact._way >= ordinary, impact._way - ordinary, end)
    return SectionPass(stride.x, stride.time, mode, end, jnp.array(len(sequence)), stride.result)


class ChosenMap(NamedTuple):
    """A map for a program that iterates it.

    **Attributes:** `params`: as arrays. `mode`: the index of the initial mode. `size`: of the states. `timed`: whether the map
    depends on time, and the time of a pass on the state. `coordinates`: the names of the states' entries. `several_modes`:
    whether passes may end in several modes. `described`: the map in words, for the attributes of a dataset.
    """

    map: PassMap
    params: Params
    mode: int
    size: int
    timed: bool
    coordinates: tuple[str, ...]
    several_modes: bool
    described: dict[str, str]

    def padded(self, states: Float[np.ndarray, "rows n"]) -> Float[np.ndarray, "rows size"]:
        """States with zeros in the padding."""
        return np.pad(states, ((0, 0), (0, self.size - states.shape[1])))


def map_of(
    caller: str,
    step: ReturnMap,
    x: State,
    params: Params,
    default: Integrator,
    outcomes: Mapping[str, Guard] | None = None,
) -> ChosenMap:
    """The map, after a check of the arguments of `caller`. `default`: the integrator, if `step` has none. `outcomes`: guards
    that end the motion."""
    system, section, outcomes = step.system, step.section, {} if outcomes is None else outcomes
    mode, coordinates = system.number(step.mode), system.mode(step.mode).coordinates
    integrator = step.integrator_or(default)
    plain = without_jacobian(integrator)
    if step.sequence is not None:
        sequence = step.sequence * step.strides
        system, _, _, params = check(system, 0.0, x, params, step.sequence, integrator)
        timed = depends_on_time(Problem(system, sequence, 1), params, x)
        ending = with_terminal_modes(system, sequence, outcomes)
        described = {"sequence": " -> ".join(sequence)}
        chosen = eqx.Partial(pass_of_sequence, ending, sequence, len(system.ways), plain)
        return ChosenMap(chosen, params, mode, x.size, timed, coordinates, False, described)
    assert section is not None
    if step.strides > 1 and isinstance(section, Section):
        raise ValueError(
            f"{caller}: the map of a Section is iterated pass by pass: give it strides=1, not {step.strides}, and more strides."
        )
    system, _, x, params, _ = check_section(system, section, x, params, None, integrator)
    system, section = at_phase(system, section)
    if isinstance(section, Stroboscope):
        section = section.lasting(step.strides)
    on_surface = isinstance(section, Section)
    ending = with_section_mode(with_terminal_modes(system, system.names, outcomes), section)
    most = step.max_jumps * step.strides
    chosen = SectionMap(ending, section, len(system.names), most, for_terminal_modes(plain, ending))
    size = max(each.dimension for each in system.modes.values())
    if size != len(coordinates):
        coordinates = tuple(f"x_{i}" for i in range(size))
    described = {"section": ("surface in " if on_surface else "period, from ") + section.mode}
    several = not on_surface and len(system.names) > 1
    # The time of a stroboscope's pass does not depend on the state.
    timed = on_surface and uses_time(ending, ending.names, range(len(ending.ways)), params, x.dtype)
    return ChosenMap(chosen, params, mode, size, timed, coordinates, several, described)
