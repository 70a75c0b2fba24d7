"""Terminal modes: a guard leads to them, and nothing flows in them."""

from collections.abc import Iterable, Mapping

import jax.numpy as jnp

from .._system.system import Guard, HybridSystem, Mode, Transition
from .mode_integrators import Integrators


def with_terminal_modes(system: HybridSystem, sources: Iterable[str], ends: Mapping[str, Guard]) -> HybridSystem:
    """The system with a terminal mode for each of the modes `sources` and each guard of `ends`, in this order, entered from that
    mode through that guard and never left. They come last, and so do their transitions."""
    modes, transitions = dict(system.modes), list(system.transitions)
    for source in dict.fromkeys(sources):
        for name, guard in ends.items():
            target = f"{name} from {source}"
            modes[target] = Mode(_rest, system.mode(source).coordinates, units=system.mode(source).units)
            transitions.append(Transition(source, target, guard, unchanged))
    return HybridSystem(modes, tuple(transitions), system.time_unit)


def for_terminal_modes(integrator: Integrators, extended: HybridSystem) -> Integrators:
    """The integrators of a system with terminal modes: in those, that of its first mode."""
    known = len(extended.names) - sum(mode.vector_field is _rest for mode in extended.modes.values())
    sources = [name if k < known else extended.names[0] for k, name in enumerate(extended.names)]
    return integrator.renamed(extended.names, sources)


def _rest(t, x, params):
    return jnp.zeros_like(x)


def unchanged(t, x, params):
    """The reset that changes nothing."""
    return x
