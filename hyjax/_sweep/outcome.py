"""The outcome of one initial state: strides until an orbit is near, or until a guard ends the motion."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp

from .._flow.mode_integrators import Integrators
from .._orbit.stride import run_stride
from .._system.results import choose, RESULTS
from .._system.system import Guard, HybridSystem, Mode, Transition


class StridesToOutcome(eqx.Module):
    """Strides from one initial state, until a state is near an orbit or a terminal mode is entered.

    **Attributes:** `system`: with terminal modes, as made by `with_terminal_modes`. `ordinary`: the number of transitions that
    do not end in a terminal mode. `fates`: the number of guards that end the motion.

    Called with `common = (params, nodes, owner, closeness, most)` and `lane = (t, x)`, where `owner` is the number of the orbit
    to which each of the `nodes` belongs, and `most` the largest number of strides. In the result `orbit` and `fate` are -1 for
    none.
    """

    system: HybridSystem
    sequence: tuple[str, ...] = eqx.field(static=True)
    ordinary: int = eqx.field(static=True)
    fates: int = eqx.field(static=True)
    integrator: Integrators

    def __call__(self, common, lane):
        params, nodes, owner, closeness, most = common
        t0, x0 = lane

        def near(x):
            """The number of the orbit near the state, or -1."""
            if not nodes.shape[0]:
                return jnp.array(-1)
            apart = jnp.max(jnp.abs(x - nodes), axis=1)
            nearest = jnp.argmin(apart)
            return jnp.where(apart[nearest] <= closeness, owner[nearest], -1)

        def one(carry):
            i, t, x, _, fate, _ = carry
            stride = run_stride(self.system, t, x, params, self.sequence, self.integrator)
            for impact in stride.impacts[::-1]:
                terminal = impact.transition >= self.ordinary
                fate = jnp.where(terminal, (impact.transition - self.ordinary) % max(self.fates, 1), fate)
            good = stride.result == RESULTS.successful
            orbit = jnp.where(good, near(stride.x), -1)
            return i + 1, t + stride.time, stride.x, orbit, fate, choose(fate >= 0, RESULTS.successful, stride.result)

        def going(carry):
            i, _, _, orbit, fate, result = carry
            return (i < most) & (orbit < 0) & (fate < 0) & (result == RESULTS.successful)

        none = jnp.array(-1)
        start = (jnp.array(0), t0, x0, near(x0), none, RESULTS.successful)
        i, t, x, orbit, fate, result = jax.lax.while_loop(going, one, start)
        return {"strides": i, "t": t, "x": x, "orbit": orbit, "fate": fate, "result": jnp.asarray(result._value)}


def with_terminal_modes(system: HybridSystem, sequence: tuple[str, ...], fates: Mapping[str, Guard]) -> HybridSystem:
    """The system with a terminal mode for each guard of `fates`, entered from every mode of the sequence and never left."""
    modes, transitions = dict(system.modes), list(system.transitions)
    for source in dict.fromkeys(sequence):
        for name, guard in fates.items():
            target = f"{name} from {source}"
            modes[target] = Mode(_rest, system.mode(source).coordinates)
            transitions.append(Transition(source, target, guard, _unchanged))
    return HybridSystem(modes, tuple(transitions))


def _rest(t, x, params):
    return jnp.zeros_like(x)


def _unchanged(t, x, params):
    return x
