r"""The iterated return map with one tangent vector, for one lane of an attractor."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._flow.mode_integrators import Integrators
from .._orbit.stride import run_stride
from .._system.results import choose, RESULTS
from .._system.system import HybridSystem
from .._system.where import with_leaves


class IteratedStride(eqx.Module):
    r"""The return map $S$, iterated from one state with one tangent vector: $x \mapsto S(x)$, $v \mapsto DS(x)\,v / |DS(x)\,v|$.

    **Attributes:** `free`: indices of the varied leaves of the parameters. `keep`: number of last states to return.

    Called with `common = (params, strides, transients)` and `lane = (values, x0)`. Returns `x`, shape `(keep, n)`; `lyapunov`
    and `stride_time`, means over the strides after the transients; `strides`, the number that succeeded; and `result`.
    """

    system: HybridSystem
    free: tuple[int, ...] = eqx.field(static=True)
    sequence: tuple[str, ...] = eqx.field(static=True)
    keep: int = eqx.field(static=True)
    integrator: Integrators

    def __call__(self, common, lane: tuple[Array, Array]) -> dict[str, Array]:
        (params, strides, transients), (values, x0) = common, lane
        params = with_leaves(params, self.free, values)
        n, tiny = x0.size, jnp.finfo(x0.dtype).tiny
        zero, fresh = jnp.zeros((), x0.dtype), jnp.full_like(x0, 1 / np.sqrt(x0.size))

        def end(t, x):
            stride = run_stride(self.system, t, x, params, self.sequence, self.integrator)
            # The tangent has a component in time: in a non-autonomous system the next stride starts when this one ends.
            return (stride.x, stride.time), stride.result

        def one(i, carry):
            t, dt, x, v, growth, duration, kept, result, count = carry
            (x, time), (v, dtime), code = jax.jvp(end, (t, x), (dt, v), has_aux=True)
            good = (result == RESULTS.successful) & (code == RESULTS.successful)
            result = choose(result == RESULTS.successful, code, result)
            size = jnp.sqrt(v @ v)
            v = jnp.where(size > 0, v / jnp.where(size > 0, size, 1), fresh)
            dt = jnp.where(size > 0, (dt + dtime) / jnp.where(size > 0, size, 1), 0)
            measured = i >= transients
            growth = growth + jnp.where(measured, jnp.log(jnp.maximum(size, tiny)), 0)
            duration = duration + jnp.where(measured, time, 0)
            kept = jax.lax.dynamic_update_index_in_dim(kept, x, i % self.keep, 0)
            return t + time, dt, x, v, growth, duration, kept, result, count + jnp.where(good, 1, 0)

        start = (
            zero, zero, x0, fresh, zero, zero, jnp.full((self.keep, n), jnp.nan, x0.dtype), RESULTS.successful,
            jnp.array(0),
        )  # fmt: skip
        *_, growth, duration, kept, result, count = jax.lax.fori_loop(0, strides, one, start)
        measured = (strides - transients).astype(x0.dtype)
        return {
            "x": jnp.roll(kept, -(strides % self.keep), axis=0),
            "lyapunov": growth / measured,
            "stride_time": duration / measured,
            "strides": count.astype(jnp.int32),
            "result": jnp.asarray(result._value, jnp.int32),
        }
