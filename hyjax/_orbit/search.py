r"""Newton's method from many starts in a region, until it is unlikely that further starts lead to other orbits.

The starts fill the region evenly, or lie on the edge of the states whose stride succeeds; a count of the starts and of the
orbits to which they led ends the search.

Results of Newton's method are the same orbit if they lie within their error bounds: a result $x$ with the residual
$r = S^m(x) - x$ lies within about $|(I - DS^m)^{-1}|\,|r|$ of an orbit. Near a bifurcation the matrix is nearly singular, and
results that differ by far more than rounding are one orbit.

Source: Deuflhard (2004), *Newton Methods for Nonlinear Problems*, ch. 2, for the estimate of the error by Newton's correction.
"""

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .._flow.integrator import Integrators, limits_of
from .._numerics.eager import long_run
from .._system.results import RESULTS
from .._system.types import Matrix, Params, Scalar
from .orbit import PeriodicOrbit, run_orbit
from .problem import Problem
from .shooting import AbstractShooting, SearchLimits


class FixedPoint(eqx.Module):
    """A fixed point of the map of a section, iterated: the numbers of a `PeriodicOrbit` that tell orbits apart, and the number of
    arcs. Near grazing, orbits with and without an impact are close to each other."""

    nodes: Float[Array, "strides n"]
    arcs: Int[Array, ""]
    period: Scalar
    return_jacobian: Matrix
    residual: Scalar
    distance: Scalar
    result: RESULTS


# The result of a search, along a sequence of modes or by a section.
Solved = PeriodicOrbit | FixedPoint


class FoundOrbit(NamedTuple):
    """A periodic orbit found by Newton's method.

    **Attributes:** `nodes`: shape `(strides, n)`. `close`: how close to a node another state must be, to be that
    node, shape `(n,)`. `arcs`: the number of arcs, where orbits that differ in it are searched together.
    """

    nodes: np.ndarray
    close: np.ndarray
    arcs: int = 0

    def meets(self, other: "FoundOrbit") -> bool:
        """Whether both are one orbit: some stride of the other starts where this starts, or the reverse."""
        if self.arcs != other.arcs:
            return False
        close = np.maximum(self.close, other.close)
        pairs = (other.nodes, self.nodes[0]), (self.nodes, other.nodes[0])
        return any(bool(_near(nodes, start, close).any()) for nodes, start in pairs)

    @property
    def repeats(self) -> bool:
        """Whether the orbit closes after fewer strides."""
        return bool(_near(self.nodes[1:], self.nodes[0], self.close).any())

    def inside(self, low: np.ndarray, high: np.ndarray) -> int | None:
        """The first stride that starts in the box, if any."""
        found = np.flatnonzero(np.all((self.nodes >= low - self.close) & (self.nodes <= high + self.close), axis=-1))
        return int(found[0]) if found.size else None


def result_of(orbits, i: int, size: np.ndarray, least: float, factor: float) -> FoundOrbit:
    """Orbit `i` of a batch. Another state is a node of it within `factor` times the error bound, at least `least` and at most
    0.01 of the coordinates' sizes. **Arguments:** `size`: of each coordinate, shape `(n,)`."""
    nodes, jacobian = np.asarray(orbits.nodes[i]), np.asarray(orbits.return_jacobian[i])
    size = np.maximum(size, np.max(np.abs(nodes), axis=0))
    # Where a coordinate is zero but for rounding, such as a clock that is reset, allow rounding of the largest.
    size = np.maximum(size, 1e-6 * np.max(size)) + np.finfo(size.dtype).tiny
    residual = float(orbits.residual[i]) + 4 * np.finfo(size.dtype).eps * np.max(np.abs(nodes))
    # Least squares, which is bounded where the matrix is singular.
    inverse = np.linalg.pinv(np.eye(len(jacobian)) - jacobian, rcond=np.finfo(size.dtype).eps)
    error = factor * residual * np.sum(np.abs(inverse), axis=1)
    arcs = int(orbits.arcs[i]) if hasattr(orbits, "arcs") else 0
    return FoundOrbit(nodes, np.clip(error, least * size, 1e-2 * size), arcs)


def _near(states: np.ndarray, state: np.ndarray, close: np.ndarray) -> np.ndarray:
    return np.all(np.abs(states - state) <= close, axis=-1)


class OrbitRegister:
    """A register of the orbits in a box.

    **Attributes:** `orbits`: one PyTree of numbers each. `hits`: how many starts led to each. `outside`: a state of each orbit
    outside of the box to which a start led.
    """

    def __init__(self, low: np.ndarray, high: np.ndarray):
        self.low, self.high = low, high
        self.size = np.maximum(np.abs(low), np.abs(high))
        self.orbits, self.results, self.hits, self.outside = [], [], [], []
        # Coarse results that were solved accurately, with the number of the orbit, or None where that failed.
        self.seen: list[tuple[FoundOrbit, int | None]] = []

    def sort(self, orbits: Solved, merge: bool) -> list[list[FoundOrbit]]:
        """Count the coarse results that are known; group the others by orbit. Without `merge` each is a group of its own: near a
        fold or grazing two orbits may be nearer than the error of a coarse result."""
        groups: list[list[FoundOrbit]] = []
        for i in np.flatnonzero(orbits.result._value == RESULTS.successful._value).tolist():
            result = result_of(orbits, i, self.size, 1e-3, 3.0)
            if result.inside(self.low, self.high) is None:
                self.outside.append(np.asarray(result.nodes[0]))
                continue
            if not merge:
                groups.append([result])
                continue
            same = [k for other, k in self.seen if result.meets(other)]
            if same:
                self._count([k for k in same if k is not None][:1], 1)
            elif group := next((group for group in groups if result.meets(group[0])), None):
                group.append(result)
            else:
                groups.append([result])
        return groups

    def add(self, orbits: Solved, groups: list[list[FoundOrbit]]) -> None:
        """Add the accurate solution of each group, unless it is known, or none."""
        good = orbits.result._value == RESULTS.successful._value
        least = float(np.finfo(self.low.dtype).eps) ** 0.6
        results = [result_of(orbits, i, self.size, least, 10.0) if good[i] else None for i in range(len(groups))]
        # The best-conditioned result first: a further result that agrees within its own, larger error is the same orbit.
        errors = [np.inf if result is None else np.max(result.close) for result in results]
        for i in np.argsort(errors, kind="stable").tolist():
            number = self._number(results[i], jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], orbits))
            self.seen.append((groups[i][0], number))
            self._count([] if number is None else [number], len(groups[i]))

    def _number(self, result: FoundOrbit | None, orbit: Solved) -> int | None:
        if result is None or result.repeats or result.inside(self.low, self.high) is None:
            return None
        for k, other in enumerate(self.results):
            if result.meets(other):
                if np.max(result.close) < np.max(other.close):
                    self.results[k], self.orbits[k] = result, orbit
                return k
        self.orbits.append(orbit)
        self.results.append(result)
        self.hits.append(0)
        self.seen.append((result, len(self.orbits) - 1))
        return len(self.orbits) - 1

    def _count(self, numbers: list[int], hits: int) -> None:
        for k in numbers:
            self.hits[k] += hits


# The largest expected share of the starts that lead to orbits, and yet lead to none of those found.
UNSEEN = 2.5e-4
# So many starts without any orbit end a search: at 95 % confidence, fewer than 0.6 % of the starts lead to one.
FRUITLESS = 512


@dataclasses.dataclass(frozen=True)
class Census:
    """How many starts were tried, how many of them led to each orbit, how many to a state that returns at another phase of the
    system's time dependence, and a state of each orbit `outside` of the region to which one led.

    If any division of the starts among $w$ orbits is equally likely beforehand, then after $n$ starts that led to $w$ orbits the
    expected share of starts that lead to others is $w(w + 1)/n(n - 1)$. An orbit to which only one start led makes others likely
    (Good's estimate of their share is the number of such orbits over $n$).

    Source: Boender, Rinnooy Kan (1987), *Bayesian stopping rules for multistart global optimization methods*, Math. Program. 37,
    59-80; Good (1953), *The population frequencies of species*, Biometrika 40, 237-264.
    """

    tried: int = 0
    hits: tuple[int, ...] = ()
    out_of_phase: int = 0
    outside: tuple[tuple[float, ...], ...] = ()

    @property
    def unseen(self) -> float:
        """The expected share, among the starts that lead to orbits, of those that lead to orbits not yet found."""
        n, w = sum(self.hits), len(self.hits)
        return min(1.0, w * (w + 1) / (n * (n - 1))) if n > 1 else 1.0

    @property
    def complete(self) -> bool:
        """Whether the search may end."""
        if not self.hits:
            return self.tried >= FRUITLESS
        return self.unseen <= UNSEEN and min(self.hits) > 1

    @property
    def hint(self) -> str:
        """Advice for a search whose starts led out of the region, or to states that return at another phase; else empty."""
        hints = []
        if self.outside:
            state = ", ".join(f"{each:.6g}" for each in self.outside[0])
            hints.append(
                f"{len(self.outside)} starts led to an orbit outside of the region, such as one near ({state}). Give a region "
                "that holds it."
            )
        if self.out_of_phase:
            hints.append(self._phase)
        return " ".join(hints)

    @property
    def _phase(self) -> str:
        return (
            f"{self.out_of_phase} starts led to a state that returns at another phase of the system's time dependence "
            "(out_of_phase), which is no orbit: an orbit of a forced system closes after a multiple of the forcing's period. "
            "Give as many strides as close then, or section=hj.Stroboscope(mode, period), or make the phase a coordinate."
        )

    def __str__(self) -> str:
        n, w = sum(self.hits), len(self.hits)
        return (
            f"{n} of {self.tried} starts led to {w} orbit{'s' * (w != 1)}; the expected share of such starts that lead to orbits "
            f"not yet found is {self.unseen:.2g}{'. ' * bool(self.hint)}{self.hint.removesuffix('.')}"
        )


def quasi_random_states(
    low: np.ndarray, high: np.ndarray, count: int, key: PRNGKeyArray
) -> Float[np.ndarray, "count n"]:
    r"""The first `count` states of a sequence that fills the box evenly: $u_k = u_0 + k\alpha \bmod 1$, with a random $u_0$.

    $\alpha_i = \varphi^{-i}$, where $\varphi^{d+1} = \varphi + 1$ and $d$ is the number of coordinates in which the box has
    a width; for $d = 1$ the golden ratio. Each part of the box gets its share of the states with an error of order $1/k$ up to
    logarithms, where independent states have $1/\sqrt k$.

    Source: Niederreiter (1992), *Random Number Generation and Quasi-Monte Carlo Methods*, ch. 3; Krieg, Roberts (2018) for
    $\alpha$.
    """
    wide = high > low
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (wide.sum() + 1))
    first = np.asarray(jax.random.uniform(key, low.shape, low.dtype))[wide]
    alpha = ratio ** -np.arange(1.0, wide.sum() + 1)
    states = np.broadcast_to(low, (count, low.size)).copy()
    states[:, wide] += (high - low)[wide] * ((first + np.arange(count)[:, None] * alpha) % 1)
    return states


# Halvings of the way: the edge is found to 1e-6 of it.
HALVINGS = 20


def states_on_edge(
    inside: Float[np.ndarray, "count n"],
    outside: Float[np.ndarray, "others n"],
    contains: Callable[[np.ndarray], Bool[np.ndarray, " count"]],
) -> Float[np.ndarray, "count n"]:
    """For each state inside, the last state inside on the way to the nearest state outside, by bisection.

    Near grazing the return map has a square root at the edge of its domain, and Newton's method converges only from a strip along
    the edge, which states that are spread evenly hardly meet.
    """
    width = np.ptp(np.concatenate([inside, outside]), axis=0)
    apart = np.abs(inside[:, None] - outside[None]) / np.where(width > 0, width, 1)
    beyond = outside[np.argmin(np.max(apart, axis=-1), axis=1)]
    for _ in range(HALVINGS):
        middle = (inside + beyond) / 2
        within = contains(middle)[:, None]
        inside, beyond = np.where(within, middle, inside), np.where(within, beyond, middle)
    return inside


class Batch(eqx.Module):
    """The arguments of a search along a sequence of modes."""

    problem: Problem
    params: Params
    method: AbstractShooting
    integrator: Integrators


Region = tuple[Float[Array, " n"], Float[Array, " n"]]
# The orbits near guesses, with the limits of the search.
Solve = Callable[[Array, SearchLimits], Solved]

# The number of starts in a round, and of those in one batch on a CPU.
ROUND, BLOCK = 128, 16
# Where fewer of the starts than this lead to an orbit, others are tried on the edge of the starts whose stride succeeds.
FEW = 1 / 32
SUCCESSFUL, OUT_OF_PHASE = RESULTS.successful._value, RESULTS.out_of_phase._value
# Codes after one evaluation whose stride did not fail.
SOUND = (SUCCESSFUL, RESULTS.orbit_not_converged._value)


@long_run
def solve_batch(batch: Batch, guesses: Array, limits: SearchLimits) -> PeriodicOrbit:
    """The orbit near each guess. `limits` are traced, so that the coarse and the accurate search share one compiled program."""
    one = lambda guess: run_orbit(batch.problem, guess, batch.params, batch.method, batch.integrator, limits=limits)[0]
    return eqx.filter_vmap(one)(guesses)


def search(
    solve: Solve,
    method: AbstractShooting,
    integrator: Integrators,
    region: tuple,
    starts: int,
    key: PRNGKeyArray | None,
) -> tuple[Any, Census]:
    """`find_orbits` without the checks of its arguments, and the count of starts. `solve` is `solve_batch` of a batch, a stored
    program of it, or another that returns the numbers of a `PeriodicOrbit` that tell orbits apart."""
    low, high = region
    quick, thorough, fine = stage_limits(method, integrator, low.dtype)
    width = min(starts, BLOCK if jax.default_backend() == "cpu" else ROUND)
    guesses = quasi_random_states(low, high, starts, jax.random.key(0) if key is None else key)
    register, census = OrbitRegister(low, high), Census()

    solved = lambda states, limits: solve_blocks(solve, states, limits, width)
    once = lambda states, limits: solved(states, dataclasses.replace(limits, iterations=np.asarray(1)))
    is_sound = lambda orbits: np.isin(orbits.result._value, SOUND)

    def tried(states: np.ndarray, limits: SearchLimits) -> tuple[Solved, np.ndarray]:
        """The results of Newton's method from the states that do not fail in their first stride; and the mask of these states."""
        first = once(states, limits)
        sound = is_sound(first)
        return solved(states[sound], limits) if np.any(sound) else rows(first, []), sound

    def counted(orbits: Solved, count: int, merge: bool = True) -> Census:
        """The census, after `count` further starts led to these orbits."""
        if groups := register.sort(orbits, merge):
            inside = np.stack([group[0].nodes[group[0].inside(low, high)] for group in groups])
            register.add(solved(inside, fine), groups)
        astray = int(np.sum(orbits.result._value == OUT_OF_PHASE))
        outside = tuple(tuple(map(float, each)) for each in register.outside)
        return Census(census.tried + count, tuple(register.hits), census.out_of_phase + astray, outside)

    rounds = iter(np.split(guesses, range(ROUND, starts, ROUND)))
    while not census.complete and census.tried < starts:
        block = next(rounds)
        orbits, sound = tried(block, quick)
        if not register.orbits and not np.any(orbits.result._value == SUCCESSFUL):
            orbits, _ = tried(block, thorough)
        census = counted(orbits, len(block))
        inside, room = block[sound], starts - census.tried
        if sum(census.hits) < FEW * census.tried and 0 < len(inside) < len(block) and room > 0:
            states = states_on_edge(inside[:room], block[~sound], lambda states: is_sound(once(states, quick)))
            census = counted(solved(states, quick), len(states), merge=False)
    order = sorted(range(len(register.orbits)), key=lambda k: -float(register.orbits[k].period))
    found = [register.orbits[k] for k in order]
    found = jax.tree.map(lambda *leaves: np.stack(leaves), *found) if found else rows(orbits, [])
    # Not `dataclasses.replace`, which would check that the other fields are arrays of JAX.
    found = eqx.tree_at(lambda orbits: orbits.distance, found, np.zeros_like(found.period))
    return jax.device_put(found), census


def stage_limits(
    method: AbstractShooting, integrator: Integrators, dtype
) -> tuple[SearchLimits, SearchLimits, SearchLimits]:
    """The limits of a quick, of a thorough and of an accurate search."""
    fine, most = limits_of(integrator, dtype), method.max_iterations
    loose = 1e-5 if dtype == jnp.float64 else 1e-3

    def limited(parts, iterations, settle) -> SearchLimits:
        number = lambda each: np.asarray(each, dtype if isinstance(each, float) else None)
        return jax.tree.map(number, SearchLimits(tuple(parts), iterations, settle))

    def coarse(steps, iterations):
        parts = [(max(loose, rtol), max(loose, atol), min(steps, allowed), time) for rtol, atol, allowed, time in fine]
        return limited(parts, min(iterations, most), 10 * loose)

    # A block waits for a start that flows for a long time or for which Newton's method diverges: limit both.
    return coarse(40, 8), coarse(max(steps for _, _, steps, _ in fine), most), limited(fine, most, 0.0)


def solve_blocks(solve: Solve, guesses: np.ndarray, limits: SearchLimits, width: int) -> Solved:
    """The orbits near all guesses, in blocks of one width, on the host."""
    # On a CPU the lanes of a block wait for the slowest lane, and other cores can solve other blocks.
    count = len(guesses)
    blocks = guesses[np.arange(-(-count // width) * width) % count].reshape(-1, width, guesses.shape[1])
    one = lambda block: jax.block_until_ready(solve(block, limits))
    # The first call compiles, and runs on while other blocks start.
    first = solve(blocks[0], limits)
    with ThreadPoolExecutor() as pool:
        done = [first, *pool.map(one, blocks[1:])]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *done)


def rows(orbits: Solved, chosen: list[int]) -> Solved:
    """Some orbits of a batch."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[np.asarray(chosen, int)], orbits)
