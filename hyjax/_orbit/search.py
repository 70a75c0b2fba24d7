"""All the orbits in a region, without a guess."""

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
from .orbit import PeriodicOrbit, run_orbit
from .shooting import AbstractShooting, SingleShooting

Region = tuple[Float[Array, " n"], Float[Array, " n"]]
Solve = Callable[..., PeriodicOrbit]

# So many starts are solved together on a CPU.
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
    r"""All periodic orbits in a region that are reached by Newton's method from random starts in it.

    From each start a coarse Newton iteration (tolerance 1e-5) with few steps, all in one batch; where none converges,
    again with as many as allowed. What converges inside the region is merged, then solved with the integrator's own
    tolerance.

    **Arguments:** `region`: `(low, high)`, two states: the box of states just after the jump that closes the sequence. It
    may be generous: only the image of the reset is searched. `starts`: how many. `key`: of `jax.random`; the same key
    gives the same orbits. `strides`: finds orbits of exactly so many strides, which no smaller number closes.

    **Returns:** one `PeriodicOrbit` whose arrays have a leading axis, over the distinct orbits found, in the order of
    decreasing period; its length is 0 where there is none. Not for use under `jit`: how many orbits there are is not known
    before. Each orbit is isolated; continuous families are not listed.
    """
    integrator = for_modes(system, integrator)
    for bound in region:
        _, _, params = check(system, 0.0, bound, params, sequence, integrator)
    low, high = (np.asarray(bound) for bound in region)
    if not np.all(low <= high):
        raise ValueError(f"region: low {low} must not exceed high {high}.")
    if strides < 1 or starts < 1:
        raise ValueError(f"find_orbits: strides={strides} and starts={starts} must be positive.")
    batch = Batch(system, params, tuple(sequence), strides, method, integrator)
    return search(batch, (low, high), starts, key, solve_batch)


class Batch(eqx.Module):
    """What all starts of a search have in common."""

    system: HybridSystem
    params: Params
    sequence: tuple[str, ...] = eqx.field(static=True)
    strides: int = eqx.field(static=True)
    method: AbstractShooting
    integrator: Integrators


@eqx.filter_jit
def solve_batch(batch: Batch, guesses: Array, limits: tuple) -> PeriodicOrbit:
    """The orbit near each guess. `limits`, of `run_orbit`, are arguments, so that the coarse search and the last digits share one
    compiled program."""
    return eqx.filter_vmap(
        lambda guess: run_orbit(
            batch.system, guess, batch.params, batch.sequence, batch.strides, batch.method, batch.integrator, limits
        )
    )(guesses)


def search(batch: Batch, region: tuple, starts: int, key: PRNGKeyArray | None, solve: Solve) -> PeriodicOrbit:
    """`find_orbits` without the checks of its arguments; `solve` is `solve_batch`, or a stored form of it."""
    low, high = region
    key = jax.random.key(0) if key is None else key
    guesses = low + (high - low) * np.asarray(jax.random.uniform(key, (starts, low.size), low.dtype))
    # On a CPU, lanes of a block wait for its slowest, and another core may solve another block.
    width = min(starts, BLOCK) if jax.default_backend() == "cpu" else starts
    fine, iterations = limits_of(batch.integrator, low.dtype), batch.method.max_iterations
    loose = 1e-5 if low.dtype == jnp.float64 else 1e-3
    coarse = lambda steps: tuple(Limits(max(loose, p.rtol), max(loose, p.atol), min(steps, p.max_steps)) for p in fine)
    # A start that falls over may flow for long, or lead Newton's method astray, while the batch waits: both end soon.
    quick = (coarse(40), min(8, iterations))
    thorough = (coarse(max(p.max_steps for p in fine)), iterations)

    size = np.maximum(np.abs(low), np.abs(high))

    def solved(guesses, limits):
        limits = jax.tree.map(lambda each: np.asarray(each, low.dtype if isinstance(each, float) else None), limits)
        count = len(guesses)
        blocks = guesses[np.arange(-(-count // width) * width) % count].reshape(-1, width, low.size)
        one = lambda block: jax.block_until_ready(solve(batch, block, limits))
        # The first compiles, and runs on while others start. What follows chooses among them, on the host.
        first = solve(batch, blocks[0], limits)
        with ThreadPoolExecutor() as pool:
            done = [first, *pool.map(one, blocks[1:])]
        return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *done)

    def kept(orbits, closeness):
        good = orbits.result._value == RESULTS.successful._value
        # Where the region is zero, such as on a clock that starts anew, rounding belongs to it.
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
    """Indices of the good orbits, one of each kind, by decreasing period.

    Two orbits are one if some stride of one starts where the other does. An orbit which returns after fewer strides is
    left out.
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
