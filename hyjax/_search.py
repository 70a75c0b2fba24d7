"""All the orbits in a region, without a guess."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ._check import check
from ._integrator import Integrator
from ._orbit import PeriodicOrbit, run_orbit
from ._result import RESULTS
from ._shooting import SingleShooting
from ._system import HybridSystem
from ._types import Params

Region = tuple[Float[Array, " n"], Float[Array, " n"]]


@eqx.filter_jit
def _many(system, guesses, params, limits, sequence, strides, method, integrator):
    # Tolerances are arguments here, so that the coarse search and the last digits share one compiled program.
    return eqx.filter_vmap(
        lambda guess: run_orbit(system, guess, params, sequence, strides, method, integrator, limits)
    )(guesses)


def find_orbits(
    system: HybridSystem,
    params: Params,
    *,
    sequence: tuple[str, ...],
    region: Region,
    starts: int = 128,
    strides: int = 1,
    key: PRNGKeyArray | None = None,
    method: SingleShooting = SingleShooting(),
    integrator: Integrator = Integrator(),
) -> PeriodicOrbit:
    r"""All periodic orbits in a region that are reached by Newton's method from random starts in it.

    From each start a coarse Newton iteration (tolerance 1e-6), all in one batch; what converges inside the region is
    merged, then solved with the integrator's own tolerance.

    **Arguments:** `region`: `(low, high)`, two states: the box of states just after the jump that closes the sequence. It
    may be generous: only the image of the reset is searched. `starts`: how many. `key`: of `jax.random`; the same key
    gives the same orbits. `strides`: finds orbits of exactly so many strides, which no smaller number closes.

    **Returns:** one `PeriodicOrbit` whose arrays have a leading axis, over the distinct orbits found, in the order of
    decreasing period; its length is 0 where there is none. Not for use under `jit`: how many orbits there are is not known
    before. Each orbit is isolated; continuous families are not listed.
    """
    low, high = (jnp.asarray(bound, float) for bound in region)
    for bound in (low, high):
        check(system, 0.0, bound, params, sequence, integrator)
    if not bool(jnp.all(low <= high)):
        raise ValueError(f"region: low {low} must not exceed high {high}.")
    if strides < 1 or starts < 1:
        raise ValueError(f"find_orbits: strides={strides} and starts={starts} must be positive.")
    key = jax.random.key(0) if key is None else key
    guesses = low + (high - low) * jax.random.uniform(key, (starts, low.size), low.dtype)
    fine = (*integrator.tolerances(low.dtype), integrator.max_steps)
    loose = 1e-6 if low.dtype == jnp.float64 else 1e-4
    # A start that falls over may flow for long: in the coarse search an arc has few steps.
    coarse = (*(max(loose, tolerance) for tolerance in fine[:2]), min(100, integrator.max_steps))

    def solve(guesses, limits):
        limits = (*(jnp.asarray(tolerance, low.dtype) for tolerance in limits[:2]), jnp.asarray(limits[2]))
        return _many(system, guesses, params, limits, tuple(sequence), strides, method, integrator)

    def kept(orbits, closeness):
        nodes = np.asarray(orbits.nodes)
        good = np.asarray(orbits.result == RESULTS.successful)
        slack = closeness * np.maximum(np.abs(low), np.abs(high))
        good &= np.all((nodes[:, 0] >= low - slack) & (nodes[:, 0] <= high + slack), axis=-1)
        return _distinct(nodes, np.asarray(orbits.period), good, closeness)

    found = kept(rough := solve(guesses, coarse), 1e-4)
    if found:
        lanes = np.resize(found, starts)
        orbits = solve(rough.x[lanes], fine)
        found = [i for i in kept(orbits, 1e-9)]
    else:
        orbits = rough
    return orbits[jnp.asarray(found, int)]


def _distinct(nodes: np.ndarray, period: np.ndarray, good: np.ndarray, closeness: float) -> list[int]:
    """Indices of the good orbits, one of each kind, by decreasing period.

    Two orbits are one if some stride of one starts where the other does. An orbit which returns after fewer strides is
    left out.
    """
    scale = np.max(np.abs(nodes[good]), axis=(0, 1), initial=0) + np.finfo(float).tiny
    same = lambda a, b: np.max(np.abs(a - b) / np.max(scale)) < closeness  # noqa: E731
    chosen: list[int] = []
    for i in np.flatnonzero(good):
        if any(same(nodes[i, 0], node) for node in nodes[i, 1:]):
            continue
        if not any(same(nodes[j, 0], node) for j in chosen for node in nodes[i]):
            chosen.append(int(i))
    return sorted(chosen, key=lambda i: -period[i])
