r"""The five defects of the argument of the ORBITADOR page, each with the numbers that show it.

D1: $\lambda$ is no one-sided Lipschitz constant. D2: $\sum\lambda < 0$ is not the condition of contraction of the recursion. D3:
the radius is not propagated through the impacts. D4: solutions leave the tube. D5: no ball is mapped into itself by the
stroboscopic map of a disturbed autonomous system, if it meets a limit cycle and does not hold all of it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from orbitador_page import LOWEST_UPPER, PARAMS, PERIODS, RADIUS, START, STEPS, TAU, W, walker
from orbitador_tube import field, strobes, Tubes

import hyjax as hj
from hyjax.models import simplest_walker

PERIOD = STEPS * TAU
# Sampled states of the ball, beside those in the directions that grow most; and strobes, within which the largest ball is left.
STARTS, STROBES = 200, 1000


class Impact(NamedTuple):
    """D3. Norms of the saltation matrix and of the reset's Jacobian; the spread of the times of impact of the ball; the distance
    of the states before and after the impact."""

    saltation: float
    reset: float
    spread: float
    jump: float


class Violation(NamedTuple):
    """D4. After one and two periods: the largest distance of a solution from the ball from the Euler state, and the radii by the
    published formula with b = w and b = 2 w."""

    reached: tuple[float, float]
    radii: tuple[float, float]
    doubled: tuple[float, float]


class Drift(NamedTuple):
    """D5. A ball about a state of the limit cycle: the number of strobes after which the state has left the ball, with the
    disturbances +eta f, -eta f and none."""

    radius: float
    faster: int
    slower: int
    undisturbed: int


class Defects(NamedTuple):
    orbit: hj.PeriodicOrbit
    impact: Impact
    violation: Violation
    speed: float
    drifts: tuple[Drift, ...]
    shift: float
    """The largest shift of the phase in a period by a disturbance of size 1, the integral of |Z|."""


def defects(found: Tubes) -> Defects:
    """What is computed besides the tubes: D3, D4 and D5."""
    orbit = hj.periodic_orbit(hj.ReturnMap(walker, sequence=("swing",)), simplest_walker.guess(PARAMS), PARAMS)
    response = hj.phase.phase_response(orbit)
    shift = float(sum(jnp.sum(arc.weights * jnp.linalg.norm(arc.z, axis=1)) for arc in response.arcs))
    impact, violation = _ball(found)
    speed, drifts = _drifts(found, orbit)
    return Defects(orbit, impact, violation, speed, drifts, shift)


def _ball(found: Tubes) -> tuple[Impact, Violation]:
    """Solutions from the ball about the page's start."""

    def run(x):
        """The states after one and two periods, and the time of the first impact."""
        went = hj.simulate(
            walker, x, PARAMS, mode="swing", t1=2 * PERIOD, max_jumps=3, times=jnp.array([PERIOD, 2 * PERIOD])
        )
        assert went.samples is not None
        return went.samples.x, went.end_times[0], (went.x_ends[0], went.x_starts[1])

    start = jnp.asarray(START)
    derivative, slope, _ = jax.jit(jax.jacfwd(run))(start)
    # The directions that grow most, to first order, and random ones.
    ways = [*(np.linalg.svd(each)[2][0] for each in np.asarray(derivative)), slope / np.linalg.norm(slope)]
    spread = np.random.default_rng(0).normal(size=(STARTS, len(START)))
    ways = np.concatenate([ways, -np.asarray(ways), spread / np.linalg.norm(spread, axis=1, keepdims=True)])
    starts = start + RADIUS * np.concatenate([np.zeros((1, 4)), ways])
    states, times, (before, after) = jax.tree.map(np.asarray, jax.jit(jax.vmap(run))(jnp.asarray(starts)))
    euler = strobes(found.page.states)
    reached = [float(np.max(np.linalg.norm(states[:, k] - euler[k + 1], axis=1))) for k in range(2)]
    radii = [found.borders["published"][name].radii for name in ("w", "2 w")]
    strike, x = walker.transitions[0], jnp.asarray(before[0])
    at = float(times[0])
    norm = lambda matrix: float(np.linalg.norm(matrix, 2))
    impact = Impact(
        norm(hj.saltation_matrix(walker, strike, at, x, PARAMS)),
        norm(jax.jacfwd(lambda x: strike.reset(jnp.asarray(at), x, PARAMS))(x)),
        float(np.ptp(times)),
        float(np.linalg.norm(after[0] - before[0])),
    )
    pair = lambda values: (float(values[1]), float(values[2]))
    return impact, Violation((reached[0], reached[1]), pair(radii[0]), pair(radii[1]))


def _drifts(found: Tubes, orbit: hj.PeriodicOrbit) -> tuple[float, tuple[Drift, ...]]:
    """The largest speed on the limit cycle, and strobes inside balls about the state of the cycle next to that of the page at 4T.

    With the disturbance w = eta f the state stays on the cycle and is after n strobes at the phase n T (1 + eta).
    """
    cycle = float(orbit.period)

    @jax.jit
    def at(phases):
        went = hj.simulate(walker, orbit.x, PARAMS, mode="swing", t1=2 * cycle, max_jumps=4, times=phases)
        assert went.samples is not None
        return went.samples.x

    counts = np.arange(1, STROBES)
    grid = np.linspace(0, 2 * cycle, 3 * len(counts) + 1)
    states = at(jnp.asarray(grid))
    speed = float(jnp.max(jnp.linalg.norm(jax.vmap(field)(states), axis=1)))
    strobe = strobes(found.page.states)[PERIODS - 1]
    nearest = grid[int(jnp.argmin(jnp.linalg.norm(states - strobe, axis=1)))]
    eta = W / speed
    phases = [np.mod(nearest + counts * (PERIOD * (1 + each) - cycle), cycle) for each in (eta, -eta, 0)]
    states = np.asarray(at(jnp.asarray(np.concatenate([*phases, [nearest]]))))
    distances = np.linalg.norm(states[:-1] - states[-1], axis=1).reshape(3, -1)
    published = found.borders["published"]
    radii = [published[name].radii[PERIODS - 1] for name in ("w", "sqrt(2) w")]
    # Of the page: the radius at the least value of the upper border, that of phi_1 just before the impact.
    radii.append(LOWEST_UPPER - float(np.min(found.last[:, 0])))
    first = lambda row, radius: int(counts[np.argmax(row > radius)])
    return speed, tuple(Drift(float(r), *(first(row, r) for row in distances)) for r in radii)
