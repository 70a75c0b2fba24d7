r"""The smallest push that takes an orbit out of its basin: a constrained minimum on the stable manifold of an edge state.

At the time $\tau$ of the orbit its state changes by $\sum_i u_i d_i$. The state after that lap is on the stable manifold of the
edge state $x_e$, with the multiplier $\lambda$, $|\lambda| > 1$, and its left eigenvector $p$, if

$$c(u, \tau) = \lim_{k \to \infty} \lambda^{-k}\,p \cdot \big(S^k(x(u, \tau)) - x_e\big) = 0,$$

and the smallest push solves $u + \nu\,c_u = 0$, $c_\tau = 0$, $c = 0$ (Karush, Kuhn, Tucker) by Newton's method with exact second
derivatives, for a number $k$ that grows until the push no longer changes. It starts from pushes along many directions at many
instants, whose size at the border of the basin is found by iteration and bisection.

Source: Kerswell, Pringle, Willis (2014), *An optimization approach for analysing nonlinear stability*, Rep. Prog. Phys. 77,
085901, for minimal seeds; Halekotte, Feudel (2020), *Minimal fatal shocks in multistable complex networks*, Sci. Rep. 10, 11783.
"""

import itertools
from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._numerics.eager import short_run
from .._orbit.orbit import PeriodicOrbit
from .._orbit.periodic_orbit import periodic_orbit
from .._orbit.problem import Lap, lap_of
from .._results.failure import raise_failure
from .._results.labels import described, meanings_of
from .._results.registry import load_xarray
from .._results.shown import require_known, Shown
from .._results.table import Table
from .._system.results import choose, RESULTS
from .._system.types import Params, Scalar, State
from .._system.where import free_leaves, leaf_names, Where, with_leaves
from .edge_state import bisected, THIN, tracked
from .grid import grid_over, points_over
from .matched import reach_of
from .pushed_laps import Basin, Border, border_of, conditions_of, Pushed, pushes_of, returns_of, states_of
from .store import code_attributes

if TYPE_CHECKING:
    import xarray

# Sizes of a push along each direction that are tried, and directions in more than one dimension; instants of an arc; starts of
# Newton's method; its iterations for each number of strides.
SIZES, DIRECTIONS, INSTANTS, STARTS, ITERATIONS = 16, 12, 6, 4, 15
# Distances from the edge state in units of that of the orbit: where Newton's method starts, and where rounding may end it.
NEAR, SETTLED = 5.0, 1e-3
# The largest numbers of strides, and of bisections that lead to an edge state.
LONGEST, ROUNDS = 60, 30


class SmallestPush(Shown):
    r"""The smallest push that takes an orbit out of its basin, from `smallest_push`: $|u|$ is least where $c(u, \tau) = 0$.

    **Attributes:** `push`: $u$, along each direction and of each parameter, shape `(pushes,)`; `size`: its length $|u|$;
    `instant`: the time $\tau$ of the orbit, from its start; `before`, `after`: the states before and after the push. `edge`: the
    edge state to which the pushed orbit comes, `None` where none is known. `force`: $\nu$, of $u + \nu\,c_u = 0$. `strides`: $k$.
    `certified`: the smallest of 1e-12, 1e-11, ... for which the push smaller by that part comes back to the orbit, and the one
    larger by it does not, by iteration; infinite where none does. `result`: `optimum_not_found` where iteration does not
    certify the push, Newton's method did not converge, or a smaller push was seen to leave the basin, one that is not on the
    stable manifold of the edge state; then `push` is that one. `pushed`, `border`, `orbit`, `names`: what was computed with.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 1.0]), coordinates=("size", "clock"))
    >>> herd = lambda t, x, p: jnp.stack([p["rate"] * x[0] ** 2, 0 * x[1]])
    >>> system = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[1], herd),))
    >>> params = {"rate": jnp.array(2.0)}
    >>> extinct = hj.periodic_orbit(hj.ReturnMap(system, sequence=("year",)), jnp.array([0.1, 0.0]), params)
    >>> least = hj.smallest_push(extinct, directions=("size",), instants=(0.5,))
    >>> print(f"{least.size:.12f} {least.certified} {least.gradient()['rate']:.9f}")
    0.500000000000 1e-12 -0.250000000

    Source: Halekotte, Feudel (2020), Sci. Rep. 10, 11783.
    """

    push: Float[Array, " pushes"]
    size: Scalar
    instant: Scalar
    before: State
    after: State
    edge: PeriodicOrbit | None
    force: Scalar
    strides: int
    certified: float
    result: RESULTS
    pushed: Pushed
    border: Border | None
    orbit: PeriodicOrbit
    names: tuple[str, ...] = eqx.field(static=True)

    def _tables(self):
        rows = [("size", f"{float(self.size):.9g}"), ("push", str(np.asarray(self.push)))]
        rows += [("instant", f"{float(self.instant):.6g}"), ("certified", f"{self.certified:g}")]
        return (Table("smallest push", [*rows, ("result", str(self.result))]),)

    def gradient(self) -> Params:
        r"""The derivative $\nu\,c_p / |u|$ of `size`, shaped like the parameters; `ValueError` where no edge state is known."""
        edge, border = self.edge, self.border
        if edge is None or border is None:
            raise ValueError("gradient: no edge state is known, on whose stable manifold the push ends.")
        v, starts = jnp.append(self.push, self.instant), (self.orbit.x, edge.x)
        slope = _height_by_parameters(self.pushed, border, starts, v, jnp.asarray(self.strides))
        return jax.tree.map(lambda each: self.force * each / self.size, slope)

    def sweep(self, *, phases: Any = None, where: Where | None = None, values: Any = None) -> "xarray.Dataset":
        """The smallest pushes at given phases of the orbit, and over parameters of the system.

        From each solution Newton's method goes to those next to it; where it fails, pushes along many directions are tried anew,
        as for this push. So each is a smallest push among those near it, which `certified` checks by iteration.

        **Arguments:** `phases`: instants as parts of the period, at least 0 and less than 1; by default any instant within the
        arc of this push. `where`, `values`: the parameters and their values, as for `hyjax.sweep`, by default those of the orbit.

        **Returns:** an `xarray.Dataset` over the parameters and `phase`: `size`, `push`, over `direction`, `instant`, `certified`
        and `result`: `successful`, the code of the orbit or of the edge state where one is not found, `not_stabilized` where the
        orbit is not stable, or `optimum_not_found`, also where iteration does not certify; the numbers are NaN where there is a
        code. `found["size"].plot()` draws a curve or a map. `ValueError` where no edge state is known, and for phases or values
        that cannot be used.
        """
        return _swept(self, phases, where, values)


def smallest_push(
    orbit: PeriodicOrbit,
    *,
    directions: Sequence[str] | Float[Array, "directions n"] = (),
    where: Where | None = None,
    instants: Sequence[float] | None = None,
    edge: PeriodicOrbit | None = None,
    largest: float | None = None,
    max_strides: int = 100,
    closeness: float = 1e-2,
    throw: bool = True,
) -> SmallestPush:
    r"""The smallest push that takes a stable orbit out of its basin. $\min |u|$ such that $c(u, \tau) = 0$

    A push changes the state at once, at any time of the orbit, by $\sum_i u_i d_i$. Pushes of several sizes along several
    directions are followed by iteration of the return map; from those on the border of the basin with the smallest sizes Newton's
    method goes to the smallest one of all near there, on the stable manifold of an edge state. A smaller one in a gap between the
    pushes that were tried is not found. Parameters may be kicked too: they change at that time, until the end of the lap. A
    pushed state goes on through whatever modes it meets, from a mode with a domain, as of `hj.filippov`, in the mode that holds
    it, and with the set of contacts that holds there, after an impact where it is due: each lap ends when the jump that closes
    the orbit has been taken as often as in a lap of the orbit.

    **Arguments:** `orbit`: a stable `PeriodicOrbit`. `directions`: names of coordinates, each a direction, or the directions
    $d_i$, shape `(k, n)`. `where`: the parameters that are kicked, such as `lambda p: p.slope`; their changes are further entries
    of $u$. `instants`: times of the orbit in its first period, at which the push may be; by default any. `edge`: the edge
    state, a `PeriodicOrbit` with one multiplier outside of the unit circle; by default that to which a trajectory on the border
    leads, as for `edge_state`. `largest`: the largest size $|u|$ that is tried, by default that which moves a coordinate by the
    largest one of the orbit, or that number for parameters. `max_strides`, `closeness`: as for `edge_state`, relative to the
    displacement $\sum_i u_i d_i$ of the largest push if that is more than the largest coordinate; at most a third of the distance
    to the edge state, and of that displacement unless parameters are kicked. `throw`: raise a `SolveError` on failure; with
    `False`, `result` holds the code.

    **Returns:** a `SmallestPush`, whose `gradient()` is that of the size. `result` is `optimum_not_found` where no minimum on the
    stable manifold of an edge state is smaller than the pushes that were seen to leave the basin, `outside_domain` where the
    smallest of these leads to where no mode, or several, hold the state. `ValueError` for an orbit or directions that cannot be
    used, and where no push that was tried leaves the basin.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 1.0]), coordinates=("size", "clock"))
    >>> herd = lambda t, x, p: jnp.stack([x[0] ** 2, 0 * x[1]])
    >>> system = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[1], herd),))
    >>> extinct = hj.periodic_orbit(hj.ReturnMap(system, sequence=("year",)), jnp.array([0.1, 0.0]), {})
    >>> least = hj.smallest_push(extinct, directions=("size",), instants=(0.5,), largest=3.0)
    >>> print(f"{least.size:.12f} {least.edge.x.round(9)}")
    1.000000000000 [1. 0.]

    Source: Halekotte, Feudel (2020), Sci. Rep. 10, 11783.
    """
    gradient = "Call it outside; its gradient is that of its result, push.gradient()."
    require_known("smallest_push", orbit, directions, instants, edge, largest, remedy=gradient)
    if not isinstance(orbit, PeriodicOrbit) or np.ndim(orbit.period) or not bool(orbit.stable):
        raise ValueError("smallest_push: orbit must be a stable hj.PeriodicOrbit, one and not a batch.")
    free = () if where is None else free_leaves(where, orbit.params)
    if not len(directions) + len(free):
        raise ValueError("smallest_push: give directions=, such as names of coordinates, or where=, parameters.")
    names = tuple(each for each in directions if isinstance(each, str))
    size = float(max(jnp.max(jnp.abs(each)) for each in (orbit.nodes, *orbit.arc_ends)))
    rate = _rate(jnp.eye(1) if names else jnp.asarray(directions), free)
    largest = size / (rate if 0 < rate < np.inf else 1.0) if largest is None else largest
    moved = rate * largest
    size = max(size, moved) if moved < np.inf else size or largest
    # The displacement of the largest push stands for the distance to an edge state that is not known.
    near = min(_reach(closeness * size, orbit, edge), moved / 3)
    basin = Basin(jnp.asarray(orbit.nodes), jnp.asarray(near), jnp.asarray(max_strides), jnp.asarray(largest))
    begin, period = float(orbit.start_times[0]), float(orbit.period)
    # Up to the rounding of a part of the period.
    low, high = begin - 1e-9 * period, begin + (1 + 1e-9) * period
    if instants is not None and not (len(instants) and all(low <= t <= high for t in instants)):
        raise ValueError(
            f"smallest_push: instants={instants} must be times of the orbit, which begins at {begin:.10g}, in its period "
            f"{period:.10g}."
        )
    found: list[tuple[Any, Pushed]] = []
    arcs = _arcs(orbit, directions, free, basin)
    given = [(t, _arc_at(arcs, t)) for t in (() if instants is None else instants)]
    for pushed in arcs:
        times = _instants(pushed) if instants is None else [_clipped(t, own) for t, own in given if own is pushed]
        found += [(start, pushed) for start in _starts(pushed, times)]
    if not found:
        raise ValueError(
            f"smallest_push: no push up to largest={largest} left the basin. Give a larger one, or a smaller closeness."
        )
    found.sort(key=lambda each: np.linalg.norm(each[0][1][:-1]))
    if edge is None:
        lap = found[0][1].lap
        back = lambda x: returns_of(lap, basin, jnp.asarray(x))
        pairs = (pushed.fates(np.stack(start))[1] for start, pushed in found[:STARTS])
        led = (tracked(lap, (pair[0], pair[1]), back, min(size, 10 * moved), ROUNDS) for pair in pairs)
        edge = next((each for each in led if each is not None), None)
        if edge is not None and _reach(near, orbit, edge) < near:
            return smallest_push(
                orbit, directions=directions, where=where, instants=instants, edge=edge, largest=largest,
                max_strides=max_strides, closeness=closeness, throw=throw,
            )  # fmt: skip
    border = None if edge is None else border_of(edge)
    best = None if border is None else _least(found, border, instants is None)
    (inside, seen), pushed = found[0]
    missed = best is None or np.linalg.norm(seen[:-1]) < (1 - 1e-6) * np.linalg.norm(best[0][:-1])
    if missed:
        _, seen = bisected(inside, seen, 0.0, lambda v: pushed.fates(v)[0])
    v, force, strides, pushed = best if best is not None and not missed else (seen, np.nan, 0, pushed)
    certified = _certified(pushed, v)
    code = choose(jnp.asarray(missed or certified == np.inf), RESULTS.optimum_not_found, RESULTS.successful)
    if missed and pushed.fates(seen[None])[2][0] == RESULTS.outside_domain._value:
        code = RESULTS.outside_domain
    before, after = states_of(pushed, jnp.asarray(v))
    push = jnp.asarray(v[:-1])
    result = SmallestPush(
        push, jnp.sqrt(push @ push), jnp.asarray(v[-1]), before, after, edge, jnp.asarray(force), strides,
        certified, code, pushed, border, orbit, names,
    )  # fmt: skip
    remedy = (
        "Give edge=, an orbit on the border of the basin, other instants=, or a smaller largest=. With throw=False the smallest "
        "push that was seen to leave the basin is returned."
    )
    return raise_failure("smallest_push", result, remedy=remedy) if throw else result


@short_run
def _height_by_parameters(
    pushed: Pushed, border: Border, starts: tuple[State, State], v: Array, strides: Array
) -> Params:
    """$c_p$ of a push, shaped like the parameters; the orbit and the edge state move, from `starts`."""
    flat, unravel = ravel_pytree(pushed.lap.params)

    def height(flat):
        params = unravel(flat)
        laps = (pushed.lap, border.lap)
        orbit, saddle = (periodic_orbit(lap.step, x, params, throw=False) for lap, x in zip(laps, starts, strict=True))
        own, there = Lap(pushed.lap.step, params, orbit.period), Lap(border.lap.step, params, saddle.period)
        moved = pushes_of(orbit, own, pushed.arc, pushed.directions, pushed.free, pushed.basin)
        manifold = Border(there, saddle.x, border.multiplier, border.left)
        return manifold.height(*moved.after(v, there.step), strides, pushed.basin.most)[0]

    return unravel(jax.jacfwd(height)(flat))


def _rate(directions: Array, free: tuple[int, ...]) -> float:
    """How far a push of size 1 moves a coordinate at most; infinite where parameters, of other units, are kicked."""
    return np.inf if free else float(np.max(np.linalg.norm(directions, axis=0)))


def _reach(near: float, orbit: PeriodicOrbit, edge: PeriodicOrbit | None) -> float:
    """How near to the orbit a state is to be, to have come back: at most a third of the distance to the edge state."""
    nodes = np.asarray(orbit.nodes if edge is None else jnp.vstack([orbit.nodes, edge.nodes]))
    owner = (np.arange(len(nodes)) >= len(orbit.nodes)).astype(int)
    return reach_of(near, float(np.max(np.abs(nodes))), nodes, owner)[0]


def _arcs(orbit: PeriodicOrbit, directions: Sequence[str] | Array, free: tuple[int, ...], basin: Basin) -> list[Pushed]:
    """The pushes within each arc of the orbit."""
    lap, arcs = lap_of(orbit.step, orbit.params, orbit.period), orbit.strides * len(orbit.sequence)
    return [pushes_of(orbit, lap, arc, directions, free, basin) for arc in range(arcs)]


def _arc_at(arcs: list[Pushed], instant: float) -> Pushed:
    """The arc of an instant; that which begins there at the end of another."""
    return next((each for each in arcs if instant <= each.end), arcs[-1])


def _clipped(instant: float, pushed: Pushed) -> float:
    return float(np.clip(instant, pushed.begin, pushed.end))


def _instants(pushed: Pushed) -> np.ndarray:
    """Times within an arc at which pushes are tried."""
    return np.linspace(float(pushed.begin), float(pushed.end), INSTANTS, endpoint=False)


def _least(starts: list[tuple[Any, Pushed]], border: Border, free: bool) -> tuple[np.ndarray, Any, int, Pushed] | None:
    """`(v, force, strides, pushed)`, the smallest of the pushes that Newton's method finds from the first of the starts, or
    `None`."""
    solved: list[Any] = [
        (*minimum[:3], pushed)
        for (_, outside), pushed in starts[:STARTS]
        if (minimum := _minimum(pushed, border, outside, free)) is not None and minimum[3]
    ]
    return min(solved, key=lambda each: np.linalg.norm(each[0][:-1]), default=None)


def _certified(pushed: Pushed, v: np.ndarray) -> float:
    """The smallest part by which a smaller push comes back and a larger one does not."""
    shares = 10.0 ** -np.arange(12, 2, -1)
    ends = [np.append(v[:-1] * (1 + sign * part), v[-1]) for part in shares for sign in (-1, 1)]
    back = pushed.fates(np.stack(ends))[0].reshape(-1, 2)
    return float(min(shares[back[:, 0] & ~back[:, 1]], default=np.inf))


def _starts(pushed: Pushed, times) -> list[tuple[np.ndarray, np.ndarray]]:
    """For the smallest pushes along several directions at several instants that leave the basin: the last inside of the border,
    and the first outside."""
    count, largest = len(pushed.directions) + len(pushed.free), float(pushed.basin.largest)
    if count == 1:
        units = np.array([[1.0], [-1.0]])
    else:
        units = np.random.default_rng(0).normal(size=(DIRECTIONS * (count - 1), count))
        if count == 2:
            angles = 2 * np.pi * (np.arange(DIRECTIONS) + 0.25) / DIRECTIONS
            units = np.column_stack([np.cos(angles), np.sin(angles)])
        units /= np.linalg.norm(units, axis=1, keepdims=True)
    rays = list(itertools.product(times, units))
    if not rays:
        return []
    # No round numbers, which may lead onto an unstable orbit amid the basin although all others near them come back; and 0.
    sizes = np.append(largest * (np.arange(1, SIZES + 1) / SIZES) ** 1.01, 0.0)
    tried = np.stack([np.append(size * unit, t) for t, unit in rays for size in sizes[:-1]])
    back = pushed.fates(tried)[0].reshape(len(rays), SIZES)
    first = np.where(back.all(axis=1), SIZES, np.argmin(back, axis=1))
    found = []
    for k in np.argsort(first, kind="stable")[:STARTS]:
        if first[k] < SIZES:
            t, unit = rays[k]
            inside, outside = (np.append(size * unit, t) for size in sizes[[first[k] - 1, first[k]]])
            found.append(bisected(inside, outside, THIN * largest, lambda v: pushed.fates(v)[0]))
    return found


def _minimum(pushed: Pushed, border: Border, v: np.ndarray, free: bool):
    """`(v, force, strides, whether all pushes near it on the border are larger)` where the conditions of a smallest push hold,
    near a start on the border; `None` where Newton's method does not find that.

    **Arguments:** `free`: whether the instant is."""
    apart = float(jnp.max(jnp.abs(pushed.basin.nodes[0] - border.x)))
    at = lambda v, k: [
        np.asarray(each)[0] for each in conditions_of(pushed, border, jnp.asarray(v)[None], jnp.array(k))
    ]
    away = lambda x: float(np.max(np.abs(x - np.asarray(border.x))))
    first, found, nearest, force = 0, None, np.inf, None
    limits, rate = (float(pushed.begin), float(pushed.end)), _rate(pushed.directions, pushed.free)
    # Before that a push may have had no effect on the height yet.
    while not (away((begun := at(v, first))[3]) <= NEAR * apart and np.any(begun[1][:-1])):
        first += 1
        if first == LONGEST:
            return None
    for k in range(first, LONGEST):
        old = v
        for _ in range(ITERATIONS):
            value, slope, curvature, x = at(v, k)
            if not np.isfinite(value):
                return found
            force = -(v[:-1] @ slope[:-1]) / (slope[:-1] @ slope[:-1]) if force is None else force
            new, force = _newton(v, force, value, slope, curvature, free, limits)
            # Pushes that move a state, or the height on the border, by that distance, or their own size; and times.
            unit = max(apart / min(rate, np.linalg.norm(slope[:-1])), np.linalg.norm(new[:-1]))
            units = np.append(np.full(len(v) - 1, unit), np.max(np.abs(limits)))
            moved, v = np.max(np.abs(new - v) / units), new
            if moved <= 1e-14:
                break
        else:
            return found
        # Beyond, rounding that grows along the unstable direction is more than what is left of the way.
        if away(x) > 2 * nearest and nearest < SETTLED * apart:
            return found
        # Along the border the second derivatives, in units of the push and of the arc's time, are not negative.
        n = len(v) - 1 + (free and limits[0] < v[-1] < limits[1])
        scale = np.append(np.full(len(v) - 1, np.linalg.norm(v[:-1])), limits[1] - limits[0])[:n]
        along = np.linalg.svd((slope[:n] * scale)[None])[2][1:]
        second = (force * curvature + np.diag(np.append(np.ones(len(v) - 1), 0.0)))[:n, :n] * np.outer(scale, scale)
        least = np.all(np.linalg.eigvalsh(along @ second @ along.T) >= -1e-6 * np.max(np.abs(second)))
        found, nearest = (v, force, k, bool(least)), min(nearest, away(x))
        if k > first and np.max(np.abs(v - old) / units) <= 1e-15:
            return found
    return found


def _newton(v: np.ndarray, force: float, value, slope, curvature, free: bool, limits: tuple[float, float]):
    """A step of Newton's method on the conditions of a smallest push: `(v, force)`. The instant stays at a limit that the push
    would become smaller beyond."""
    u, beyond = v[:-1], -force * slope[-1]
    locked = not free or (v[-1] == limits[0] and beyond <= 0) or (v[-1] == limits[1] and beyond >= 0)
    n = len(u) + (not locked)
    matrix = force * curvature + np.diag(np.append(np.ones(len(u)), 0.0))
    whole = np.block([[matrix[:n, :n], slope[:n, None]], [slope[None, :n], np.zeros((1, 1))]])
    off = np.append((np.append(u, 0.0) + force * slope)[:n], value)
    # In units of the push and of the arc's time, and for a slope of 1.
    longest = np.append(np.full(len(u), 0.3 * np.linalg.norm(u)), 0.3 * (limits[1] - limits[0]))[:n]
    units = longest / longest[0]
    units = np.append(units, 1 / np.linalg.norm(slope[:n] * units))
    # Least squares: where all instants are alike the matrix is singular.
    change = -units * np.linalg.lstsq(units[:, None] * whole * units, units * off, rcond=1e-10)[0]
    part = min(1.0, float(np.min(longest / np.maximum(np.abs(change[:n]), 1e-300))))
    new = v.copy()
    new[:n] += part * change[:n]
    new[-1] = np.clip(new[-1], *limits)
    return new, force + part * change[n]


def _swept(least: SmallestPush, phases: Any, where: Where | None, values: Any) -> "xarray.Dataset":
    """`SmallestPush.sweep`."""
    xarray = load_xarray()
    orbit, edge, own, pushed = least.orbit, least.edge, least.orbit.params, least.pushed
    if edge is None:
        raise ValueError("sweep: no edge state is known, on whose stable manifold the pushes end.")
    if (where is None) != (values is None):
        raise ValueError("sweep: where= and values= of the parameters come together.")
    phase = float(least.instant / orbit.period)
    at = np.asarray([phase] if phases is None else phases, float)
    if at.ndim != 1 or not at.size:
        raise ValueError(f"sweep: phases={phases} must have the shape (phases,), such as [0.3, 0.6].")
    if not np.all((at >= 0) & (at < 1)):
        raise ValueError(f"sweep: phases={phases} must be parts of the period, at least 0 and less than 1.")
    grid = None if where is None else grid_over(own, where, values)
    free, axes = ((), ()) if grid is None else (grid.free, grid.values)
    # In units of the spans of the axes.
    spans = np.array([np.ptp(axis) or 1.0 for axis in axes])
    first = np.array([float(jax.tree.leaves(own)[i]) for i in free]) / spans
    points = np.zeros((1, 0)) if grid is None else points_over(axes) / spans
    codes, columns = (
        np.zeros((len(points), len(at)), np.int8),
        np.full((len(points), len(at), 3 + len(least.push)), np.nan),
    )
    # Solutions: point, orbit, edge state, and pushes: phase, push and arc.
    known = [(first, orbit, edge, [(phase, np.asarray(least.push), pushed.arc)])]
    for i in np.argsort(np.linalg.norm(points - first, axis=1), kind="stable"):
        _, orbit, edge, pushes = min(known, key=lambda each: np.linalg.norm(each[0] - points[i]))
        params = with_leaves(own, free, jnp.asarray(points[i] * spans))
        orbit, edge = (periodic_orbit(each.step, each.x, params, throw=False) for each in (orbit, edge))
        code = choose(orbit.result == RESULTS.successful, edge.result, orbit.result)
        code = choose((code == RESULTS.successful) & ~orbit.stable, RESULTS.not_stabilized, code)
        codes[i] = int(code._value)
        if code != RESULTS.successful:
            continue
        near = _reach(float(pushed.basin.near), orbit, edge)
        basin = pushed.basin._replace(nodes=jnp.asarray(orbit.nodes), near=jnp.asarray(near))
        arcs, border = _arcs(orbit, least.names or pushed.directions, pushed.free, basin), border_of(edge)
        pushes, new = list(pushes), []
        for k in np.argsort(np.abs(at - pushes[0][0]), kind="stable"):
            phase, u, arc = min(pushes, key=lambda each: abs(each[0] - at[k]))
            instant = float(phase if phases is None else at[k]) * float(orbit.period)
            here = arcs[arc] if phases is None else _arc_at(arcs, instant)
            start = np.append(u, _clipped(instant, here))
            solved = _least([((None, start), here)], border, phases is None)
            times = _instants(here) if phases is None else start[-1:]
            solved = solved or _least([(each, here) for each in _starts(here, times)], border, phases is None)
            part = np.inf if solved is None else _certified(here, solved[0])
            if solved is None or not np.isfinite(part):
                codes[i, k] = int(RESULTS.optimum_not_found._value)
                continue
            v = solved[0]
            columns[i, k] = np.linalg.norm(v[:-1]), v[-1], part, *v[:-1]
            new.append((float(v[-1] / orbit.period), v[:-1], here.arc))
            pushes.append(new[-1])
        known += [(points[i], orbit, edge, new)] * bool(new)
    dims, coords = ((), {}) if grid is None else (grid.names, dict(grid.coordinates))
    dims, coords = (dims, coords) if phases is None else ((*dims, "phase"), coords | {"phase": at})
    names = least.names or [f"direction_{j}" for j in range(len(pushed.directions))]
    coords |= {"direction": [*names, *[leaf_names(own)[j] for j in pushed.free]]}
    shape = tuple(len(coords[name][1] if grid is not None and name in grid.names else at) for name in dims)
    columns = columns.reshape(*shape, -1)
    data: dict[str, Any] = {name: (dims, columns[..., j]) for j, name in enumerate(("size", "instant", "certified"))}
    data["push"], data["result"] = (
        ((*dims, "direction"), columns[..., 3:]),
        (dims, codes.reshape(shape), code_attributes()),
    )
    return described(xarray.Dataset(data, coords), meanings_of(own))
