"""The outcome of one initial state: passes of a map until an orbit is near, or until a guard ends the motion."""

import equinox as eqx
import jax
import jax.numpy as jnp

from .._flow.section_map import SectionMap
from .._system.results import choose, RESULTS
from .sequence_map import SequenceMap


class MapsToOutcome(eqx.Module):
    """Passes of a map from one initial state, until a state is near an orbit or a terminal mode is entered.

    **Attributes:** `pass_map`: of a system with terminal modes. `fates`: the number of guards that end the motion.

    Called with `common = (params, nodes, owner, closeness, most)` and `lane = (t, x, mode)`, where `owner` is the number of the
    orbit to which each of the `nodes` belongs, and `most` the largest number of passes. In the result `orbit` and `fate` are -1
    for none.
    """

    pass_map: SequenceMap | SectionMap
    fates: int = eqx.field(static=True)

    def __call__(self, common, lane):
        params, nodes, owner, closeness, most = common
        t0, x0, mode0 = lane

        def near(x):
            """The number of the orbit near the state, or -1."""
            if not nodes.shape[0]:
                return jnp.array(-1)
            apart = jnp.max(jnp.abs(x - nodes), axis=1)
            nearest = jnp.argmin(apart)
            return jnp.where(apart[nearest] <= closeness, owner[nearest], -1)

        def one(carry):
            i, t, x, mode, *_ = carry
            passed = self.pass_map(t, x, mode, params)
            fate = jnp.where(passed.end >= 0, passed.end % max(self.fates, 1), -1)
            result = choose(fate >= 0, RESULTS.successful, passed.result)
            good = (fate < 0) & (result == RESULTS.successful)
            orbit = jnp.where(good, near(passed.x), -1)
            x = jnp.where(good, passed.x, jnp.nan)
            return i + 1, t + passed.time, x, passed.mode, orbit, fate, result

        def going(carry):
            i, _, _, _, orbit, fate, result = carry
            return (i < most) & (orbit < 0) & (fate < 0) & (result == RESULTS.successful)

        start = (jnp.array(0), t0, x0, mode0, near(x0), jnp.array(-1), RESULTS.successful)
        i, t, x, mode, orbit, fate, result = jax.lax.while_loop(going, one, start)
        code = jnp.asarray(result._value)
        return {"strides": i, "t": t, "x": x, "mode": mode, "orbit": orbit, "fate": fate, "result": code}
