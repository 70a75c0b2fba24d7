r"""The hybrid system of a section: the crossing is a transition, and the sequence of modes identifies every transition.

The crossing, of the section's surface or of the end of a period of the forcing, is a transition with the identity as its reset.
Transitions that share source and target mode enter copies of the target mode, so that the mode tells which of them was taken.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from .._flow.terminal import unchanged
from .._system.section import Section, SectionLike, Stroboscope
from .._system.system import HybridSystem, Transition
from .._system.types import Params, Scalar, State, Time


class _PeriodEnds(eqx.Module):
    r"""$-\sin(2\pi t/T)$, which falls through zero at the times $kT$."""

    section: Stroboscope

    def __call__(self, t: Time, x: State, params: Params) -> Scalar:
        return -jnp.sin(2 * jnp.pi * t / self.section.duration(params, x.dtype))


def with_copies(system: HybridSystem, copies: Mapping[int, str]) -> HybridSystem:
    """The system in which transition `k` enters a copy of its target mode, named `copies[k]`."""
    targets = [copies.get(k, way.target) for k, way in enumerate(system.transitions)]
    modes, ways = dict(system.modes), []
    same = {name: [name] for name in system.modes}
    for k, name in copies.items():
        original = system.transitions[k].target
        modes[name] = system.mode(original)
        same[original].append(name)
    for way, target in zip(system.transitions, targets, strict=True):
        ways += [dataclasses.replace(way, source=name, target=target) for name in same[way.source]]
    return HybridSystem(modes, tuple(ways), system.time_unit)


class OnSection(NamedTuple):
    """The system on a section.

    **Attributes:** `system`: with the section's crossing as its last transition. `copies`: the names of the modes that
    transitions enter, by the number of the transition, where these are copies. `sources`: for each mode the one of which it is a
    copy, or itself.
    """

    system: HybridSystem
    copies: dict[int, str]
    sources: tuple[str, ...]

    @property
    def home(self) -> str:
        """The mode that is entered at the section."""
        return self.copies[max(self.copies)]

    def entered(self, transition: int, target: str) -> str:
        """The mode of this system that a transition of the original system enters."""
        return self.copies.get(transition, target)


def on_section(system: HybridSystem, section: SectionLike) -> OnSection:
    """The system on a section, in which the crossing enters a copy of the section's mode, and transitions that share source and
    target mode enter one copy each of the target mode."""
    guard = section.surface if isinstance(section, Section) else _PeriodEnds(section)
    ways = (*system.transitions, Transition(section.mode, section.mode, guard, unchanged))
    pairs = [(way.source, way.target) for way in system.transitions]
    copies = {k: f"{pair[1]} after {k}" for k, pair in enumerate(pairs) if pairs.count(pair) > 1}
    copies[len(pairs)] = f"{section.mode} from the section"
    extended = with_copies(HybridSystem(system.modes, ways, system.time_unit), copies)
    return OnSection(extended, copies, (*system.names, *(ways[k].target for k in copies)))
