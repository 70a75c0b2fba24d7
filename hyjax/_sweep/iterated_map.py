r"""An iterated map with a tangent vector for each Lyapunov exponent, for one lane of an attractor."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._flow.section_map import SectionMap
from .._numerics.orthonormal import orthonormal
from .._system.results import choose, RESULTS
from .._system.where import with_leaves
from .sequence_map import SequenceMap


class IteratedMap(eqx.Module):
    r"""A map $P$, iterated from one state with tangent vectors: $x \mapsto P(x)$, $V \mapsto Q$ where $DP(x)\,V = QR$.

    **Attributes:** `free`: indices of the varied leaves of the parameters. `keep`: number of last states to return. `count`: of
    tangent vectors. `timed`: whether the map depends on time. Then the next pass starts when this one ends, and the time is a
    coordinate of the tangent vectors.

    Called with `common = (params, passes, transients)` and `lane = (values, x0, mode0)`. Returns `x`, shape `(keep, size)`, and
    `mode`, shape `(keep,)`; `exponents`, shape `(count,)`, and `stride_time`, means over the passes after the transients;
    `strides`, the number that succeeded; and `result`.
    """

    map: SequenceMap | SectionMap
    free: tuple[int, ...] = eqx.field(static=True)
    keep: int = eqx.field(static=True)
    count: int = eqx.field(static=True)
    timed: bool = eqx.field(static=True)

    def __call__(self, common, lane: tuple[Array, Array, Array]) -> dict[str, Array]:
        (params, passes, transients), (values, x0, mode0) = common, lane
        params = with_leaves(params, self.free, values)
        zero, timed = jnp.zeros((), x0.dtype), int(self.timed)
        # Any directions serve; these are orthonormal and lie in no coordinate plane.
        spread = np.random.default_rng(0).normal(size=(x0.size + timed, self.count))
        tangents = jnp.asarray(np.linalg.qr(spread)[0].T, x0.dtype)

        def end(t, x, mode):
            passed = self.map(t, x, mode, params)
            good = passed.end < 0
            result = choose((passed.result == RESULTS.successful) & ~good, RESULTS.unexpected_transition, passed.result)
            return (t + passed.time, passed.x), (passed.time, passed.mode, result)

        def one(i, carry):
            t, x, mode, tangents, growth, duration, kept, modes, result, count = carry

            def push(v):
                dt = v[0] if timed else zero
                return jax.jvp(lambda t, x: end(t, x, mode), (t, x), (dt, v[timed:]), has_aux=True)

            (t, x), (dt, dx), (time, mode, code) = jax.vmap(push, out_axes=((None, None), 0, None))(tangents)
            good = (result == RESULTS.successful) & (code == RESULTS.successful)
            result = choose(result == RESULTS.successful, code, result)
            tangents, grown = orthonormal(jnp.concatenate([dt[:, None], dx], axis=1) if timed else dx)
            measured = i >= transients
            growth = growth + jnp.where(measured, grown, 0)
            duration = duration + jnp.where(measured, time, 0)
            kept = jax.lax.dynamic_update_index_in_dim(kept, x, i % self.keep, 0)
            modes = jax.lax.dynamic_update_index_in_dim(modes, mode, i % self.keep, 0)
            return t, x, mode, tangents, growth, duration, kept, modes, result, count + jnp.where(good, 1, 0)

        start = (
            zero, x0, mode0, tangents, jnp.zeros(self.count, x0.dtype), zero,
            jnp.full((self.keep, x0.size), jnp.nan, x0.dtype), jnp.full(self.keep, -1), RESULTS.successful, jnp.array(0),
        )  # fmt: skip
        *_, growth, duration, kept, modes, result, count = jax.lax.fori_loop(0, passes, one, start)
        measured = (passes - transients).astype(x0.dtype)
        order = lambda rows: jnp.roll(rows, -(passes % self.keep), axis=0)
        return {
            "x": order(kept),
            "mode": order(modes),
            "exponents": growth / measured,
            "stride_time": duration / measured,
            "strides": count.astype(jnp.int32),
            "result": jnp.asarray(result._value, jnp.int32),
        }
