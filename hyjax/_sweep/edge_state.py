r"""Edge states: the saddle on the border of a basin of attraction, found by following a trajectory that stays on the border.

Two states near each other, of which one comes to the attractor and the other does not, are iterated. Along the unstable direction
of the border they part; then a point of the border between them is found once more by bisection. What remains is a trajectory on
the border, which goes to its attractor, the edge state: if that is periodic, Newton's method from there finds it.

Source: Skufca, Yorke, Eckhardt (2006), *Edge of chaos in a parallel shear flow*, Phys. Rev. Lett. 96, 174101; Battelino, Grebogi,
Ott, Yorke, Yorke (1988), *Multiple coexisting attractors, basin boundaries and basic sets*, Physica D 32, 296-305.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._numerics.eager import long_run, short_run
from .._numerics.eigenvalues import outside_circle
from .._orbit.orbit import PeriodicOrbit
from .._orbit.periodic_orbit import periodic_orbit
from .._orbit.problem import Lap, lap_of
from .._orbit.return_map import require_map, ReturnMap
from .._results.failure import raise_failure
from .._results.shown import require_known
from .._system.results import RESULTS
from .._system.types import Params, State
from .matched import reach_of

# Points on a segment that are tried at once; how near to each other the two states are made, and how far they may part, relative
# to the size of the states; in how many passes.
POINTS, THIN, WIDE, LATEST = 32, 1e-7, 1e-3, 100
# The longest edge state that is looked for, in strides of the map; how far from closing, and from the edge state, it may be.
LONGEST, CLOSED = 4, 0.03


def comes_back(
    onward: Callable[[State], tuple[State, RESULTS]],
    nodes: Float[Array, "nodes n"],
    x: State,
    closeness: Array | float,
    most: Array | int,
) -> Bool[Array, ""]:
    """Whether a state comes near one of the nodes of an orbit in at most so many passes `onward`; those that fail do not."""
    near = lambda x: jnp.any(jnp.max(jnp.abs(x - nodes), axis=1) <= closeness)

    def one(carry):
        k, x, _ = carry
        x, result = onward(x)
        good = result == RESULTS.successful
        return jnp.where(good, k + 1, most), jnp.where(good, x, jnp.inf), near(x) & good

    going = lambda carry: (carry[0] < most) & ~carry[2]
    return jax.lax.while_loop(going, one, (jnp.zeros_like(jnp.asarray(most)), x, near(x)))[2]


@long_run
def fates_of(lap: Lap, nodes, x: Float[Array, "points n"], closeness: Array, most: Array) -> Bool[Array, " points"]:
    return jax.vmap(lambda x: comes_back(lambda x: lap.onward(x)[1:], nodes, x, closeness, most))(x)


@short_run
def _jumps(lap: Lap, z: Float[Array, "points m"]) -> Float[Array, "points n"]:
    return jax.vmap(lap.jump)(z)


@short_run
def _passes(lap: Lap, x: Float[Array, "points n"]) -> tuple[Array, Array, Array]:
    """The states before and after the jumps that end a pass from states after a jump, and the codes."""

    def one(x):
        end, after, result = lap.onward(x)
        return end, after, jnp.asarray(result._value)

    return jax.vmap(one)(x)


def bisected(inside: np.ndarray, outside: np.ndarray, thin: float, fates: Callable) -> tuple[np.ndarray, np.ndarray]:
    """Two states on the segment within a distance `thin`: the first has the fate of `inside`, true, and the second not."""
    while True:
        fractions = np.linspace(0, 1, POINTS + 2)[1:-1, None]
        if not np.max(np.abs(outside - inside)) > thin:
            return inside, outside
        between = inside + fractions * (outside - inside)
        good = np.concatenate([[True], np.asarray(fates(between)), [False]])
        first, states = int(np.argmin(good)), np.vstack([inside, between, outside])
        if np.all(states[first - 1] == inside) and np.all(states[first] == outside):
            return inside, outside
        inside, outside = states[first - 1], states[first]


def edge_state(
    step: ReturnMap,
    params: Params,
    *,
    between: tuple[PeriodicOrbit | State, PeriodicOrbit | State],
    max_strides: int = 100,
    closeness: float = 1e-2,
    rounds: int = 30,
    throw: bool = True,
) -> PeriodicOrbit:
    r"""The saddle orbit on the border of a basin of attraction, to which a trajectory on the border leads.

    A state is in the basin of the first orbit of `between` if its iterates under the map come near to the orbit; others come near
    another attractor, or fail, as a walker that falls. From a point of the border on the segment between both, found by
    bisection, a trajectory is followed that is kept on the border by further bisections.

    **Arguments:** `step`: a `ReturnMap`, of which the orbits are fixed points. `params`: the parameters of its system. `between`:
    a stable orbit, and another orbit or a state outside of its basin, shape `(n,)`, just after a jump. `max_strides`: the number
    of passes after which a state that has not come near the orbit is not in its basin. `closeness`: how near, relative to the
    largest coordinate of both of `between`, and at most a third of the distance between both. `rounds`: the largest number of
    bisections. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.

    **Returns:** the `PeriodicOrbit`, of at most four times the map's strides. `result` is `orbit_not_converged` where the
    trajectory on the border does not come to one: it may be chaotic, or the border may be one of states at which the map fails.
    `ValueError` where both of `between` lead to the same.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 1.0]), coordinates=("size", "clock"))
    >>> herd = lambda t, x, p: jnp.stack([x[0] ** 2, 0 * x[1]])
    >>> system = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[1], herd),))
    >>> step = hj.ReturnMap(system, sequence=("year",))
    >>> extinct = hj.periodic_orbit(step, jnp.array([0.1, 0.0]), {})
    >>> edge = hj.edge_state(step, {}, between=(extinct, jnp.array([1.7, 0.0])))
    >>> edge.x.round(12), edge.multipliers[0].real.round(12)
    (Array([1., 0.], dtype=float64), Array(2., dtype=float64))

    Source: Skufca, Yorke, Eckhardt (2006), Phys. Rev. Lett. 96, 174101.
    """
    require_map(step, "edge_state")
    require_known("edge_state", step, params, between)
    if not isinstance(between, tuple | list) or len(between) != 2:
        raise ValueError(
            f"edge_state: between={between!r} must be a pair of a hj.PeriodicOrbit and an orbit or a state."
        )
    orbit, other = between
    if not isinstance(orbit, PeriodicOrbit) or np.ndim(orbit.period):
        raise ValueError("edge_state: the first of between must be a stable hj.PeriodicOrbit, one and not a batch.")
    outside = np.asarray(other.x if isinstance(other, PeriodicOrbit) else other)
    if not np.all(np.isfinite(outside)) or not np.all(np.isfinite(orbit.x)):
        raise ValueError(
            "edge_state: between must be finite; an orbit that was not found has NaN values, see its result."
        )
    if not bool(orbit.stable):
        radius = float(orbit.spectral_radius)
        raise ValueError(f"edge_state: the first of between must be stable; its spectral radius is {radius:.6g}.")
    lap, nodes = lap_of(step, params, orbit.period), jnp.asarray(orbit.nodes)
    both, inside = np.vstack([nodes, outside]), np.asarray(orbit.x)
    size = float(np.max(np.abs(both)))
    near, apart = reach_of(closeness * size, size, both, np.arange(len(both)) // len(nodes))
    # What lies between both may be far smaller than a coordinate, and is no larger than some times their distance.
    size = min(size, 10 * apart)
    limits = jnp.asarray(near), jnp.asarray(max_strides)
    fates = lambda x: fates_of(lap, nodes, jnp.asarray(x), *limits)
    if bool(fates(np.repeat(outside[None], POINTS, axis=0))[0]):
        raise ValueError("edge_state: both of between lead to the first orbit. Give a state outside of its basin.")
    found = tracked(lap, bisected(inside, outside, THIN * size, fates), fates, size, rounds)
    if found is None:
        # The border that is nearest to the state outside.
        beyond, within = bisected(outside, inside, THIN * size, lambda x: ~np.asarray(fates(x)))
        found = tracked(lap, (within, beyond), fates, size, rounds)
    if found is None:
        lost = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan) if eqx.is_inexact_array(leaf) else leaf, orbit)
        found = dataclasses.replace(lost, result=RESULTS.orbit_not_converged, params=params)
    return raise_failure("edge_state", found) if throw else found


def tracked(
    lap: Lap, pair: tuple[np.ndarray, np.ndarray], fates: Callable, size: float, rounds: int
) -> PeriodicOrbit | None:
    """The edge state from two states after the closing jump, close to each other, inside and outside of a basin, if it is found.
    Later states are those before that jump, so that those between two of them lead to its image."""
    z, x, codes = _passes(lap, jnp.asarray(np.stack(pair)))
    trail = [np.asarray(x)[0]]
    for _ in range(rounds):
        if np.any(np.asarray(codes)):
            return None
        ends = bisected(*np.asarray(z), THIN * size, lambda z: fates(_jumps(lap, jnp.asarray(z))))
        z = jnp.asarray(np.stack(ends))
        for _ in range(LATEST):
            if np.max(np.abs(z[1] - z[0])) > WIDE * size:
                break
            end, x, codes = _passes(lap, _jumps(lap, z))
            if np.any(np.asarray(codes)):
                break
            z, trail = end, [*trail, np.asarray(x)[0]]
        for strides in range(1, LONGEST + 1):
            if len(trail) > strides and np.max(np.abs(trail[-1] - trail[-1 - strides])) <= CLOSED * size:
                guess = jnp.asarray(trail[-1])
                found = periodic_orbit(lap.step.repeated(strides), guess, lap.params, throw=False)
                near = np.max(np.abs(found.x - guess)) <= CLOSED * size
                if near and int(np.sum(outside_circle(found.multipliers))) == 1:
                    return found
                break
    return None
