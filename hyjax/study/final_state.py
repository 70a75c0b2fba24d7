"""The final state of a simulation as a quantity of the integrator, for studies."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.automaton import Automaton
from .._flow.integrator import for_modes, IntegratorLike, PlainForward, with_adjoint
from .._flow.simulate import end_of_simulation, first_arc
from .._system.results import RESULTS
from .._system.system import HybridSystem
from .._system.types import Params, State, Time


def final_state(
    system: HybridSystem, mode: str, params: Params, max_jumps: int = 100
) -> Callable[[IntegratorLike, State, Time, Time], Float[Array, " size"]]:
    """The function `(integrator, x0, t0, t1)` to the final state, padded; NaN where the simulation fails.

    It takes as many arcs as the run has, and allows traced tolerances, unlike `simulate`, whose result keeps its integrator. Not
    differentiable in reverse mode.
    """
    automaton = Automaton(system)
    index = automaton.names.index(mode)

    def final(given: IntegratorLike, x0: State, t0: Time, t1: Time) -> Float[Array, " size"]:
        integrator = with_adjoint(for_modes(system, given), PlainForward())
        first = first_arc(
            automaton, automaton.pad(x0), jnp.array(index), jnp.asarray(t0, x0.dtype), jnp.asarray(t1, x0.dtype)
        )
        last, _ = end_of_simulation(automaton, first, jnp.asarray(t1, x0.dtype), params, max_jumps, integrator)
        return jnp.where(last.result == RESULTS.successful, last.z, jnp.nan)

    return final
