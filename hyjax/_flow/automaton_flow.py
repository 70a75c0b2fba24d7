"""The flow of an automaton, by the integrator of its current mode."""

import jax.numpy as jnp

from .._numerics.trees import select
from .._system.types import Params, Time
from .automaton import Automaton, Index, Padded
from .integrate import Arrival, Entry, integrate
from .mode_integrators import Integrators
from .surfaces import Guards, no_surfaces
from .watch import Watch


def follow_automaton(
    automaton: Automaton,
    t: Time,
    z: Padded,
    mode: Index,
    until: Time,
    params: Params,
    integrator: Integrators,
    guarded: bool = True,
    watch: Watch | None = None,
    owed: Guards | None = None,
    entry: Entry | None = None,
) -> Arrival:
    """Flow from `(t, z)` until a guard of the mode falls, the flow leaves the mode's domain, or the time is `until`;
    `guarded=False` ignores guards and domain. `watch`: what to record of every step. `owed`: see `integrate`. `entry`: see
    `loop.run`.

    Each distinct integrator has its own loop, over the modes that it integrates. A lane in another mode takes no step in that
    loop, and so does not prolong the loop for the batch.
    """
    arrival = None
    for own, names in integrator.groups:
        alone = automaton.restricted(names)
        surfaces = alone.surfaces_within(t, z, params) if guarded else no_surfaces()
        mine = alone.includes(mode)
        stop = jnp.where(mine, until, t - 1)
        found = integrate(
            alone.field, surfaces, t, z, stop, (mode, params), own, watch, guarded, owed=owed, entry=entry
        )
        watch = None if watch is None else watch._replace(seen=found.seen)
        arrival = found if arrival is None else select(mine, found, arrival)
    assert arrival is not None
    return arrival
