"""Newton's method from many starts in a region, until it is unlikely that further starts lead to other orbits."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._flow.mode_integrators import Limits, limits_of
from .._system.results import RESULTS
from .census import Census
from .edge import edge
from .fixed_point import Solved
from .orbit import PeriodicOrbit, run_orbit
from .orbit_register import Known
from .search_batch import AnyBatch, Batch
from .search_limits import SearchLimits
from .spread import spread

Region = tuple[Float[Array, " n"], Float[Array, " n"]]
Solve = Callable[..., Solved]

# The number of starts in a round, and of those in one batch on a CPU.
ROUND, BLOCK = 128, 16
# Where fewer of the starts than this lead to an orbit, others are tried on the edge of the starts whose stride succeeds.
FEW = 1 / 32
SUCCESSFUL, OUT_OF_PHASE = RESULTS.successful._value, RESULTS.out_of_phase._value
# Codes after one evaluation whose stride did not fail.
SOUND = (SUCCESSFUL, RESULTS.orbit_not_converged._value)


@eqx.filter_jit
def solve_batch(batch: Batch, guesses: Array, limits: SearchLimits) -> PeriodicOrbit:
    """The orbit near each guess. `limits` are traced, so that the coarse and the accurate search share one compiled program."""
    return eqx.filter_vmap(
        lambda guess: run_orbit(
            batch.system,
            guess,
            batch.params,
            batch.sequence,
            batch.strides,
            batch.method,
            batch.integrator,
            limits=limits,
        )[0]
    )(guesses)


def search(batch: AnyBatch, region: tuple, starts: int, key: PRNGKeyArray | None, solve: Solve) -> tuple[Any, Census]:
    """`find_orbits` without the checks of its arguments, and the count of starts. `solve(batch, guesses, limits)` is
    `solve_batch`, an exported program of it, or another that returns the numbers of a `PeriodicOrbit` that tell orbits apart."""
    low, high = region
    quick, thorough, fine = stages(batch, low.dtype)
    width = min(starts, BLOCK if jax.default_backend() == "cpu" else ROUND)
    guesses = spread(low, high, starts, jax.random.key(0) if key is None else key)
    known, census = Known(low, high), Census()

    solved = lambda states, limits: solve_blocks(solve, batch, states, limits, width)
    once = lambda states, limits: solved(states, dataclasses.replace(limits, iterations=np.asarray(1)))
    is_sound = lambda orbits: np.isin(orbits.result._value, SOUND)

    def tried(states: np.ndarray, limits: SearchLimits) -> tuple[Solved, np.ndarray]:
        """The results of Newton's method from the states that do not fail in their first stride; and the mask of these states."""
        first = once(states, limits)
        sound = is_sound(first)
        return solved(states[sound], limits) if np.any(sound) else rows(first, []), sound

    def counted(orbits: Solved, count: int, merge: bool = True) -> Census:
        """The census, after `count` further starts led to these orbits."""
        if groups := known.sort(orbits, merge):
            inside = np.stack([group[0].nodes[group[0].inside(low, high)] for group in groups])
            known.add(solved(inside, fine), groups)
        astray = int(np.sum(orbits.result._value == OUT_OF_PHASE))
        outside = tuple(tuple(map(float, each)) for each in known.outside)
        return Census(census.tried + count, tuple(known.hits), census.out_of_phase + astray, outside)

    rounds = iter(np.split(guesses, range(ROUND, starts, ROUND)))
    while not census.complete and census.tried < starts:
        block = next(rounds)
        orbits, sound = tried(block, quick)
        if not known.orbits and not np.any(orbits.result._value == SUCCESSFUL):
            orbits, _ = tried(block, thorough)
        census = counted(orbits, len(block))
        inside, room = block[sound], starts - census.tried
        if sum(census.hits) < FEW * census.tried and 0 < len(inside) < len(block) and room > 0:
            states = edge(inside[:room], block[~sound], lambda states: is_sound(once(states, quick)))
            census = counted(solved(states, quick), len(states), merge=False)
    order = sorted(range(len(known.orbits)), key=lambda k: -float(known.orbits[k].period))
    found = [known.orbits[k] for k in order]
    found = jax.tree.map(lambda *leaves: np.stack(leaves), *found) if found else rows(orbits, [])
    # Not `dataclasses.replace`, which would check that the other fields are arrays of JAX.
    found = eqx.tree_at(lambda orbits: orbits.distance, found, np.zeros_like(found.period))
    return jax.device_put(found), census


def stages(batch: AnyBatch, dtype) -> tuple[SearchLimits, SearchLimits, SearchLimits]:
    """The limits of a quick, of a thorough and of an accurate search."""
    fine, most = limits_of(batch.integrator, dtype), batch.method.max_iterations
    loose = 1e-5 if dtype == jnp.float64 else 1e-3

    def limited(parts, iterations, settle) -> SearchLimits:
        number = lambda each: np.asarray(each, dtype if isinstance(each, float) else None)
        return jax.tree.map(number, SearchLimits(tuple(parts), iterations, settle))

    def coarse(steps, iterations):
        parts = [Limits(max(loose, p.rtol), max(loose, p.atol), min(steps, p.max_steps), p.max_time) for p in fine]
        return limited(parts, min(iterations, most), 10 * loose)

    # A block waits for a start that flows for a long time or for which Newton's method diverges: limit both.
    return coarse(40, 8), coarse(max(p.max_steps for p in fine), most), limited(fine, most, 0.0)


def solve_blocks(solve: Solve, batch: AnyBatch, guesses: np.ndarray, limits: SearchLimits, width: int) -> Solved:
    """The orbits near all guesses, in blocks of one width, on the host."""
    # On a CPU the lanes of a block wait for the slowest lane, and other cores can solve other blocks.
    count = len(guesses)
    blocks = guesses[np.arange(-(-count // width) * width) % count].reshape(-1, width, guesses.shape[1])
    one = lambda block: jax.block_until_ready(solve(batch, block, limits))
    # The first call compiles, and runs on while other blocks start.
    first = solve(batch, blocks[0], limits)
    with ThreadPoolExecutor() as pool:
        done = [first, *pool.map(one, blocks[1:])]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *done)


def rows(orbits: Solved, chosen: list[int]) -> Solved:
    """Some orbits of a batch."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[np.asarray(chosen, int)], orbits)
