"""States along a stride of an orbit, between its jumps."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp

from .._flow.flow import flow_for
from .._flow.jump import reset
from .._system.types import Scalar, State
from .stride import run_stride

if TYPE_CHECKING:
    from .orbit import PeriodicOrbit


@eqx.filter_jit
def arcs_of_stride(orbit: "PeriodicOrbit", x: State, t: Scalar, n: int):
    """For each arc of the stride from `x` at the time `t`: `n` times, and the states there."""
    through = run_stride(orbit.system, t, x, orbit.params, orbit.sequence, orbit.integrator)
    taken = orbit.system.route(orbit.sequence)
    arcs = []
    for mode, index, impact in zip(orbit.sequence, taken, through.impacts, strict=True):
        times = jnp.linspace(t, impact.t, n)

        def at(time, mode=mode, t=t, x=x):
            return flow_for(orbit.system, mode, t, x, time, orbit.params, orbit.integrator)

        arcs.append((times, jax.vmap(at)(times)))
        t, x = impact.t, reset(orbit.system.transitions[index], impact.t, impact.x, orbit.params)
    return arcs
