"""Search for the periodic orbits in a region, without an initial guess."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._flow.check import check
from .._flow.integrator import Integrator
from .._flow.mode_integrators import for_modes, IntegratorLike, Integrators, Limits, limits_of
from .._system.results import RESULTS
from .._system.system import HybridSystem
from .._system.types import Params
from .._system.working import working
from .orbit import PeriodicOrbit, run_orbit
from .shooting import AbstractShooting, SingleShooting

Region = tuple[Float[Array, " n"], Float[Array, " n"]]
Solve = Callable[..., PeriodicOrbit]

# The number of starts in one batch on a CPU.
BLOCK = 32


def find_orbits(
    system: HybridSystem,
    params: Params,
    *,
    sequence: tuple[str, ...],
    region: Region,
    starts: int = 128,
    strides: int = 1,
    key: PRNGKeyArray | None = None,
    method: AbstractShooting = SingleShooting(),
    integrator: IntegratorLike = Integrator(),
) -> PeriodicOrbit:
    r"""Periodic orbits in a region, found by Newton's method from random starts in the region. $S^m(x) = x$ for $m$ = `strides`.

    Each start is solved with coarse tolerances (1e-5; 1e-3 in float32) and few Newton steps, then, only if no start converges,
    with as many as allowed. Orbits inside the region are merged, and solved with the integrator's own tolerances.

    **Arguments:** `sequence`: mode names, static. `region`: `(low, high)`, two states of shape `(n,)`, in the units of the vector
    fields: the box of states just after the jump that closes the sequence. It may be large: only the image of the reset is
    searched. `starts`: the number of random starts. `strides`: orbits that close after fewer strides are omitted. `key`: of
    `jax.random`; the same key gives the same orbits. `method`: as for `periodic_orbit`. `integrator`: an `Integrator`, or one for
    each mode, `{"stance": ..., "flight": ...}`.

    **Returns:** one `PeriodicOrbit` whose arrays have a leading axis over the distinct orbits found, by decreasing period; its
    length is 0 if none is found. Orbits of continuous families are omitted. Not for use under `jit`, because the number of orbits
    is not known in advance. `ValueError` for arguments of a wrong shape or dtype, or that are not finite.

    Source: multistart Newton's method on the return map of Bhounsule (2014), Sec. 2.
    """
    integrator = for_modes(system, integrator)
    for bound in region:
        _, _, params = check(system, 0.0, bound, params, sequence, integrator)
    low, high = (np.asarray(bound) for bound in region)
    if not np.all(low <= high):
        raise ValueError(f"region: low {low} must not exceed high {high}.")
    if strides < 1 or starts < 1:
        raise ValueError(f"find_orbits: strides={strides} and starts={starts} must be at least 1.")
    batch = Batch(system, params, tuple(sequence), strides, method, integrator)
    with working("searching for periodic orbits"):
        return search(batch, (low, high), starts, key, solve_batch)


class Batch(eqx.Module):
    """The arguments shared by all starts of a search."""

    system: HybridSystem
    params: Params
    sequence: tuple[str, ...] = eqx.field(static=True)
    strides: int = eqx.field(static=True)
    method: AbstractShooting
    integrator: Integrators


@eqx.filter_jit
def solve_batch(batch: Batch, guesses: Array, limits: tuple) -> PeriodicOrbit:
    """The orbit near each guess. `limits` of `run_orbit` are traced arguments, so that the coarse and the accurate search share
    one compiled program."""
    return eqx.filter_vmap(
        lambda guess: run_orbit(
            batch.system, guess, batch.params, batch.sequence, batch.strides, batch.method, batch.integrator, limits
        )
    )(guesses)


def search(batch: Batch, region: tuple, starts: int, key: PRNGKeyArray | None, solve: Solve) -> PeriodicOrbit:
    """`find_orbits` without the checks of its arguments; `solve` is `solve_batch`, or an exported program of it."""
    low, high = region
    key = jax.random.key(0) if key is None else key
    guesses = low + (high - low) * np.asarray(jax.random.uniform(key, (starts, low.size), low.dtype))
    # On a CPU the lanes of a block wait for the slowest lane, and other cores can solve other blocks.
    width = min(starts, BLOCK) if jax.default_backend() == "cpu" else starts
    fine, iterations = limits_of(batch.integrator, low.dtype), batch.method.max_iterations
    loose = 1e-5 if low.dtype == jnp.float64 else 1e-3
    coarse = lambda steps: tuple(Limits(max(loose, p.rtol), max(loose, p.atol), min(steps, p.max_steps)) for p in fine)
    # The whole batch waits for a start that flows for a long time or for which Newton's method diverges: limit both.
    quick = (coarse(40), min(8, iterations))
    thorough = (coarse(max(p.max_steps for p in fine)), iterations)

    size = np.maximum(np.abs(low), np.abs(high))

    def solved(guesses, limits):
        limits = jax.tree.map(lambda each: np.asarray(each, low.dtype if isinstance(each, float) else None), limits)
        count = len(guesses)
        blocks = guesses[np.arange(-(-count // width) * width) % count].reshape(-1, width, low.size)
        one = lambda block: jax.block_until_ready(solve(batch, block, limits))
        # The first call compiles, and runs on while other blocks start. The orbits are then selected on the host.
        first = solve(batch, blocks[0], limits)
        with ThreadPoolExecutor() as pool:
            done = [first, *pool.map(one, blocks[1:])]
        return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *done)

    def kept(orbits, closeness):
        good = orbits.result._value == RESULTS.successful._value
        # Where the region's bounds are zero, such as for a clock that is reset to zero, allow rounding.
        slack = closeness * np.maximum(size, 1e-6 * np.max(size))
        start = orbits.nodes[:, 0]
        good &= np.all((start >= low - slack) & (start <= high + slack), axis=-1)
        return _distinct(orbits.nodes, orbits.period, good, closeness)

    for limits in (quick, thorough):
        orbits = solved(guesses, limits)
        if found := kept(orbits, 1e-3):
            break
    if found:
        orbits = solved(orbits.x[found], (fine, iterations))
        found = kept(orbits, float(jnp.finfo(low.dtype).eps) ** 0.6)
    return jax.device_put(jax.tree.map(lambda leaf: leaf[np.asarray(found, int)], orbits))


def _distinct(nodes: np.ndarray, period: np.ndarray, good: np.ndarray, closeness: float) -> list[int]:
    """Indices of the distinct good orbits, by decreasing period.

    Two orbits are equal if some stride of one starts where the other starts. An orbit that closes after fewer strides is omitted.
    """
    # Each coordinate by its own size; one that is zero but for rounding by a small part of the largest.
    scale = np.max(np.abs(nodes[good]), axis=(0, 1), initial=0)
    scale = np.maximum(scale, 1e-6 * np.max(scale)) + np.finfo(float).tiny
    same = lambda a, b: np.max(np.abs(a - b) / scale) < closeness
    chosen: list[int] = []
    for i in np.flatnonzero(good):
        if any(same(nodes[i, 0], node) for node in nodes[i, 1:]):
            continue
        if not any(same(nodes[j, 0], node) for j in chosen for node in nodes[i]):
            chosen.append(int(i))
    return sorted(chosen, key=lambda i: -period[i])
