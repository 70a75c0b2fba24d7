r"""What orbits come to in the long run, over parameters."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.check import check
from .._flow.dataset import load_xarray
from .._flow.integrator import Integrator, PlainForward, with_adjoint
from .._orbit.orbit import PeriodicOrbit
from .._orbit.stride import run_stride
from .._system.results import choose, RESULTS
from .._system.system import HybridSystem
from .._system.types import Params
from .._system.where import Where, with_leaves
from .batches import Lanes
from .grid import Grid, grid_over, named_leaves
from .progress import progress_bar
from .store import chunk_shape, chunks_of, code_attributes
from .sweep import sweep

if TYPE_CHECKING:
    import xarray

# How closely the state returns on a periodic attractor, relative to its size.
CLOSE = 1e-5
Starts = PeriodicOrbit | Float[Array, "..."] | Callable[[Params], Float[Array, "..."]]


class Iterate(eqx.Module):
    r"""Stride after stride from one start, and one tangent with it: $x \mapsto S(x)$, $v \mapsto DS(x)\,v / |DS(x)\,v|$."""

    system: HybridSystem
    free: tuple[int, ...] = eqx.field(static=True)
    sequence: tuple[str, ...] = eqx.field(static=True)
    keep: int = eqx.field(static=True)
    integrator: Integrator

    def __call__(self, common, lane: tuple[Array, Array]) -> dict[str, Array]:
        (params, strides, transients), (values, x0) = common, lane
        params = with_leaves(params, self.free, values)
        n, tiny = x0.size, jnp.finfo(x0.dtype).tiny
        zero, fresh = jnp.zeros((), x0.dtype), jnp.full_like(x0, 1 / np.sqrt(x0.size))

        def end(t, x):
            stride = run_stride(self.system, t, x, params, self.sequence, self.integrator)
            # Coordinates in time too: in a system that depends on time, the next stride starts when this one ends.
            return (stride.x, stride.time), stride.result

        def one(i, carry):
            t, dt, x, v, growth, duration, kept, result, count = carry
            (x, time), (v, dtime), code = jax.jvp(end, (t, x), (dt, v), has_aux=True)
            good = (result == RESULTS.successful) & (code == RESULTS.successful)
            result = choose(result == RESULTS.successful, code, result)
            size = jnp.sqrt(v @ v)
            v = jnp.where(size > 0, v / jnp.where(size > 0, size, 1), fresh)
            dt = jnp.where(size > 0, (dt + dtime) / jnp.where(size > 0, size, 1), 0)
            later = i >= transients
            growth = growth + jnp.where(later, jnp.log(jnp.maximum(size, tiny)), 0)
            duration = duration + jnp.where(later, time, 0)
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


def attractor(
    system: HybridSystem,
    start: Starts,
    params: Params,
    *,
    where: Where,
    values: Any,
    sequence: tuple[str, ...],
    strides: int = 1000,
    transients: int | None = None,
    keep: int = 128,
    max_period: int = 64,
    integrator: Integrator | None = None,
    progress: bool | None = None,
) -> "xarray.Dataset":
    r"""The long-run behaviour over a grid of parameters: the stride map iterated, $x_{k+1} = S(x_k, \lambda)$.

    **Arguments:** `start`: a state, shape `(n,)`; several, `(starts, n)`, where attractors may coexist; a function of the
    parameters that returns either; or a periodic orbit, which is followed over the grid and left by a ten-thousandth of its
    size: where it is unstable, its attractor is what it leaves for. `where`, `values`: as for `sweep`. `strides`: how many in
    all; `transients`: how many of them are not measured, by default half. `keep`: at most so many of the measured states,
    the last, are kept. `max_period`: the longest period that is looked for. `integrator`: by default Dopri8 at 1e-9: what is
    chaotic forgets more than that within a few strides, and what is not forgets the error.

    **Returns:** an `xarray.Dataset` over the parameters' dimensions, and `start` where there are several: `x` (the last states),
    `period` (strides after which the last states repeat, or 0), `lyapunov` (largest exponent, per stride), `stride_time` (mean),
    `strides` (how many succeeded) and `result`, the code of the stride that failed. Where one fails the numbers are NaN.

    The exponent is the mean of $\log |DS(x_k)\,v_k|$ along one tangent, which is normalized after each stride.

    Source: Strogatz (1994), *Nonlinear Dynamics and Chaos*, Sec. 10.5; Benettin, Galgani, Giorgilli, Strelcyn (1980).
    """
    xarray = load_xarray()
    transients = strides // 2 if transients is None else transients
    if not 0 <= transients < strides:
        raise ValueError(f"attractor: transients={transients} must be at least 0 and less than strides={strides}.")
    if keep < 1 or max_period < 1:
        raise ValueError(f"attractor: keep={keep} and max_period={max_period} must be at least 1.")
    grid = grid_over(params, where, values)
    lanes = grid.points()
    states = _starts(system, start, grid, lanes, where, progress)
    several = states.ndim == 3
    if integrator is None:
        tolerance = 1e-9 if states.dtype == np.float64 else 1e-5
        integrator = Integrator(rtol=tolerance, atol=tolerance)
    flat = states.reshape(-1, states.shape[-1])
    sample = flat[int(np.argmax(np.isfinite(flat).all(axis=1)))]
    check(system, 0.0, jnp.asarray(sample), params, sequence, integrator)
    plain = with_adjoint(integrator, PlainForward())
    iterate = Iterate(system, grid.free, tuple(sequence), min(keep, strides - transients), plain)
    run = Lanes(iterate, (params, np.asarray(strides), np.asarray(transients)))

    lanes = np.repeat(lanes, len(flat) // len(lanes), axis=0)
    # Pieces small enough to show how it goes on, and for all threads to have some to the end.
    boxes = chunks_of((len(flat),), chunk_shape((len(flat),), 4 * run.width * len(run.devices)))
    parts = []
    with progress_bar("attractors", len(flat), 0, progress) as advance, ThreadPoolExecutor(run.threads) as pool:
        for part in pool.map(lambda box: run((lanes[box[0]], flat[box[0]])), boxes):
            parts.append(part)
            advance(len(part["result"]))
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    good = found["result"] == int(RESULTS.successful._value)
    for name in ("x", "lyapunov", "stride_time"):
        found[name][~good] = np.nan
    found["period"] = np.where(good, _period(found["x"], max_period), 0).astype(np.int32)
    found["result"] = found["result"].astype(np.int8)

    dims = grid.names + (("start",) if several else ())
    shape = grid.shape + ((states.shape[1],) if several else ())
    own = {"x": ("stride", "coordinate")}
    attributes = {
        "lyapunov": {"long_name": "largest Lyapunov exponent per stride", "units": "1"},
        "period": {"long_name": "strides after which the state repeats, 0 for none found", "units": "1"},
        "result": code_attributes(),
    }
    data = {
        name: ((*dims, *own.get(name, ())), column.reshape(*shape, *column.shape[1:]), attributes.get(name, {}))
        for name, column in found.items()
    }
    coords = grid.coordinates | {"coordinate": list(system.mode(sequence[0]).coordinates)}
    about = {
        "parameters": str({k: v for k, v in named_leaves(params).items() if k not in grid.names}),
        "sequence": " -> ".join(sequence),
        "strides": strides,
        "transients": transients,
    }
    return xarray.Dataset(data, coords, about)


def _starts(system, start: Starts, grid: Grid, lanes: np.ndarray, where: Where, progress) -> np.ndarray:
    """States for each point of the grid: shape `(points, n)` or `(points, starts, n)`."""
    if isinstance(start, PeriodicOrbit):
        found = sweep(system, start, where=where, values=grid.values, progress=progress)
        x = np.asarray(found["x"]).reshape(len(lanes), -1)
        return x * (1 + 1e-4)
    if callable(start):
        each = jax.vmap(lambda values: jnp.asarray(start(with_leaves(grid.params, grid.free, values))))
        states = np.asarray(each(lanes))
        if states.ndim not in (2, 3):
            raise ValueError(f"attractor: start(params) must return shape (n,) or (starts, n), not {states.shape[1:]}.")
        return states
    states = np.asarray(start)
    if states.ndim not in (1, 2):
        raise ValueError(f"attractor: start must have shape (n,) or (starts, n), not {states.shape}.")
    return np.broadcast_to(states, (len(lanes), *states.shape)).copy()


def _period(x: Float[np.ndarray, "lanes keep n"], longest: int) -> np.ndarray:
    """The smallest number of strides after which the kept states repeat; 0 where there is none."""
    size = np.max(np.abs(x), axis=(1, 2))
    period = np.zeros(len(x), int)
    for p in range(min(longest, x.shape[1] // 2), 0, -1):
        apart = np.max(np.abs(x[:, p:] - x[:, :-p]), axis=(1, 2))
        period[apart <= CLOSE * size] = p
    return period
