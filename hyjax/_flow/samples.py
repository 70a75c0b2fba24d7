"""States of a trajectory at given times, by integration along the arcs."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int

from .._system.results import nan_unless, RESULTS
from .._system.types import Params, Time
from .automaton import Automaton
from .automaton_flow import follow_automaton
from .mode_integrators import Integrators


class Samples(eqx.Module):
    """States of a trajectory at the times given by `simulate(save=...)`.

    **Attributes:** `t`: shape `(times,)`. `x`: shape `(times, size)`, padded with zeros to the largest dimension; at the time of
    an event, the state after the jump. `mode`: indices of the modes, shape `(times,)`. At a time that the trajectory does not
    reach, `x` is NaN and `mode` is -1.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> run = hj.simulate(ball.system, x0, params, mode="flight", t1=1.0, save=jnp.array([0.0, 0.5, 1.0]))
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
