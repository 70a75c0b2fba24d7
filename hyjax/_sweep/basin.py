"""Basins of attraction: the outcome of each initial state of a grid, at one or many values of parameters.

The outcome is that of passes of a map until an orbit is near, or until a guard ends the motion. Where no orbits are given, the
last states tell the attractors apart (`matched.py`).
"""

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._flow.integrator import integrator_to
from .._numerics.eager import compiles_fast
from .._orbit.orbit import PeriodicOrbit
from .._orbit.return_map import require_map, ReturnMap
from .._results.failure import raise_if_none
from .._results.labels import described, in_words, meanings_of, units_attribute, units_of
from .._results.registry import load_xarray
from .._results.shown import require_known
from .._results.working import progress_bar
from .._system.results import choose, RESULTS
from .._system.system import Guard
from .._system.types import Params, require_kind, State
from .._system.where import Where, with_leaves
from .attractor import ChosenMap, map_of, PassMap
from .batches import BatchMap
from .grid import Grid, grid_over, named_leaves, points_over, share_error
from .matched import check_numbers, FEW, LAST, numbered, reach_of
from .store import box_text, chunk_shape, chunks_of, code_attributes
from .workers import Workers

if TYPE_CHECKING:
    import xarray


# The names of the dataset's own variables and dimensions.
RESERVED = {
    "outcome", "strides", "result", "last", "coordinate", "fate", "share", "share_error", "uncertainty_exponent",
    "border_dimension", "change",
}  # fmt: skip


def passes_to_outcome(pass_map: PassMap, free: tuple[int, ...], n_outcomes: int, common, lane) -> dict[str, Array]:
    """Passes of a map from one initial state, until a state is near an orbit or a terminal mode is entered.

    **Arguments:** `pass_map`: of a system with terminal modes. `free`: indices of the varied leaves of the parameters.
    `n_outcomes`: the number of guards that end the motion.
    `common = (params, nodes, owner, closeness)`, where `owner` is the number of the orbit to which each of the `nodes` belongs.
    `lane = (values, t, x, mode, most)`, where `most` is the largest number of passes.

    **Returns:** columns, in which `orbit` and `outcome` are -1 for none.
    """
    (params, nodes, owner, closeness), (values, t0, x0, mode0, most) = common, lane
    params = with_leaves(params, free, values)

    def near(x):
        """The number of the orbit near the state, or -1."""
        if not nodes.shape[0]:
            return jnp.array(-1)
        apart = jnp.max(jnp.abs(x - nodes), axis=1)
        nearest = jnp.argmin(apart)
        return jnp.where(apart[nearest] <= closeness, owner[nearest], -1)

    def one(carry):
        i, t, x, mode, *_ = carry
        passed = pass_map(t, x, mode, params)
        outcome = jnp.where(passed.end >= 0, passed.end % max(n_outcomes, 1), -1)
        result = choose(outcome >= 0, RESULTS.successful, passed.result)
        good = (outcome < 0) & (result == RESULTS.successful)
        orbit = jnp.where(good, near(passed.x), -1)
        x = jnp.where(good, passed.x, jnp.nan)
        return i + 1, t + passed.time, x, passed.mode, orbit, outcome, result

    def going(carry):
        i, _, _, _, orbit, outcome, result = carry
        return (i < most) & (orbit < 0) & (outcome < 0) & (result == RESULTS.successful)

    start = (jnp.array(0), t0, x0, mode0, near(x0), jnp.array(-1), RESULTS.successful)
    i, t, x, mode, orbit, outcome, result = jax.lax.while_loop(going, one, start)
    code = jnp.asarray(result._value)
    return {"strides": i, "t": t, "x": x, "mode": mode, "orbit": orbit, "outcome": outcome, "result": code}


def outcomes_of(
    run: BatchMap, values: np.ndarray, x: np.ndarray, mode: np.ndarray, strides: int, keep: int
) -> dict[str, np.ndarray]:
    """The outcomes of initial states, shape `(points, n)`, in modes of these indices, after at most `strides` passes. `values`:
    of the varied parameters. `kept`: the last `keep` states, each with its mode, NaN after an outcome."""
    count, first = len(x), strides - keep
    found = {
        "orbit": np.full(count, -1),
        "outcome": np.full(count, -1),
        "strides": np.zeros(count, np.int32),
        "result": np.zeros(count, np.int8),
        "x": x.copy(),
        "t": np.zeros(count, x.dtype),
        "mode": mode.copy(),
        "kept": np.full((count, keep, x.shape[1] + 1), np.nan, x.dtype),
    }
    alive, most, taken = np.arange(count), 1, 0
    # Rounds of 1, 2, 4, ... passes, and of one for each state to keep; after each, lanes whose outcome is known are removed.
    while alive.size and taken < strides:
        more = max(1, min(most, first - taken))
        part = run((values[alive], *(found[name][alive] for name in ("t", "x", "mode")), np.full(alive.size, more)))
        found["strides"][alive] += part["strides"].astype(np.int32)
        for name in ("orbit", "outcome", "x", "t", "mode", "result"):
            found[name][alive] = part[name]
        if taken >= first:
            found["kept"][alive, taken - first] = np.append(part["x"], part["mode"][:, None], axis=1)
        ended = (found["orbit"] >= 0) | (found["outcome"] >= 0) | (found["result"] != 0)
        alive, taken, most = alive[~ended[alive]], taken + more, 2 * most
    return found


def basin(
    step: ReturnMap,
    params: Params,
    *,
    axes: Mapping[str, Any],
    initial: Callable[..., State] | None = None,
    orbits: PeriodicOrbit | None = None,
    outcomes: Mapping[str, Guard] | None = None,
    where: Where | None = None,
    values: Any = None,
    max_strides: int = 100,
    closeness: float = 1e-2,
    max_attractors: int = 64,
    executor: Executor | None = None,
    progress: bool | None = None,
    throw: bool = True,
) -> "xarray.Dataset":
    r"""Basins of attraction: the outcome of each initial state of a grid, at each value of a parameter if these are given.

    $x_{k+1} = S(x_k)$ is iterated until a state is near one of the orbits, or one of the guards `outcomes` falls through zero;
    without orbits the last states tell to which attractor they belong.

    **Arguments:**

    - `step`: the `ReturnMap` $S$, of a sequence of modes or of a section; by default integrated by Dopri8 at tolerances of 1e-8.
      `params`: the parameters of its system, a PyTree.
    - `axes`: a mapping from name to values, one for each dimension of the grid. `initial`: `(params, *values) -> x`, shape
      `(n,)`, the initial state at a point of the grid, just after a jump, or in the mode of the section; by default the axes
      are all coordinates of that mode, in their order and units.
    - `orbits`: one orbit or a batch of orbits, whose nodes lie just after the last jump of the sequence, or on the section, as
      those from `find_orbits`; an initial state belongs to the basin of an orbit if the state after some stride is within
      `closeness` of one of the orbit's nodes, relative to the largest coordinate of all nodes, or of all initial states if that
      is 0, and within a third of the distance between two orbits. By default the attractors are those that initial states lead
      to, matched from value to value as by `hyjax.attractor`, with the lengths of its `closeness`: each is iterated on, by
      `max_strides` but at least 256 strides, and is undecided unless it comes back to itself, so that only states that drift by
      less than `closeness` in that time pass for an attractor. Chaotic attractors of which 128 states do not come near each other
      stay two.
    - `outcomes`: from the name of an outcome to a guard, `g(t, x, params)`, whose fall through zero ends the motion, such as
      `{"fell forward": lambda t, x, p: x[0] + jnp.pi / 2}`.
    - `where`, `values`: parameters, and the values of each, as for `sweep`, at which the basins are computed, without `orbits`.
    - `max_strides`: the largest number of strides. `max_attractors`: the largest number of attractors that are told apart at one
      value. `executor`: whose workers compute the chunks, as for `sweep`. `progress`: show a bar on stderr; by default on a
      terminal. `throw`: raise a `SolveError` where no lane succeeds.

    **Returns:** an `xarray.Dataset` over the parameters, then the axes: `outcome`, the number of the outcome, with the names of
    all outcomes in its attribute `flag_meanings` (the orbits in their order, or the attractors, counted from 1, the `outcomes`,
    `no step` where a stride failed for another reason, such as a mode that is not in the sequence, and `undecided`: near no orbit
    after the largest number of strides, still drifting, or at none of the attractors that are told apart); `strides`, the number
    taken; `last`, the last state (NaN after an outcome of `outcomes` or a failure); and `result`, the code of a stride that
    failed. At each value, of the grid as a sample: `share`, the part of the points with each outcome, over `fate`, its name, with
    its error `share_error`, as of `hyjax.attractor`; `uncertainty_exponent` $\alpha$, of the share $\epsilon^\alpha$ of pairs of
    points at the distance $\epsilon$ whose outcomes differ, for equidistant axes of 8 points or more, 1 where the border is
    smooth; and `border_dimension`, the number of axes less $\alpha$. `change`: 1, `born`, where points have an outcome that none
    has at the next lower value of the last parameter, -1, `lost`, in the opposite case, and else 0. `ValueError` for axes, orbits
    or values that cannot be used; `SolveError` where the executor's workers fail; `ImportError` without xarray.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> found = hj.basin(
    ...     wheel.step, params, orbits=orbit, max_strides=20, progress=False,
    ...     axes={"theta": jnp.array([-0.5, -0.3]), "theta_rate": jnp.array([0.1, 0.8])},
    ... )
    >>> found.outcome.values.tolist(), found.outcome.flag_meanings
    ([[1, 0], [0, 0]], 'orbit_1 no_step undecided')

    Source: Schwab and Wisse (2001), *Basin of attraction of the simplest walking model*, Proc. DETC, VIB-21363; McDonald,
    Grebogi, Ott, Yorke (1985), *Fractal basin boundaries*, Physica D 17, 125-153, for the exponent.
    """
    xarray = load_xarray()
    require_map(step, "basin")
    require_known("basin", step, params, axes, orbits, values)
    check_numbers("basin", closeness, max_strides=max_strides, max_attractors=max_attractors)
    if (where is None) != (values is None) or (where is not None and orbits is not None):
        raise ValueError(
            "basin: where= and values= come together, and without orbits=, which are those of one value: the attractors at each "
            "value are found."
        )
    outcomes, keep = {} if outcomes is None else outcomes, 0 if orbits is not None else min(LAST, max_strides)
    if clash := [name for name in outcomes if re.fullmatch(r"(orbit|attractor)[ _]\d+|no[ _]step|undecided", name)]:
        raise ValueError(f"basin: the outcomes {clash} have names of other fates. Choose other names.")
    coordinates = step.system.mode(step.mode).coordinates
    on_axes = _checked_axes(axes, coordinates if initial is None else None)
    grid = Grid(params, (), (), (), ()) if where is None else grid_over(params, where, values)
    if clash := sorted({*grid.names} & {*on_axes, *RESERVED}):
        raise ValueError(
            f"basin: the parameters {clash} have names of axes or variables. Choose other names of the axes."
        )
    points, make = points_over(tuple(on_axes.values())), initial or (lambda params, *values: jnp.stack(values))
    lanes = np.zeros((1, 0)) if where is None else points_over(grid.values)
    start = lambda lane, each: jnp.asarray(make(with_leaves(params, grid.free, lane), *each))
    x = np.array(
        jax.vmap(lambda lane: jax.vmap(lambda each: start(lane, each))(jnp.asarray(points)))(jnp.asarray(lanes))
    )
    x = x.reshape(-1, x.shape[-1])
    chosen = map_of("basin", step, jnp.asarray(x[0]), params, integrator_to(1e-8, x.dtype), outcomes)
    names, nodes, owner = _nodes(orbits, len(coordinates), x.dtype)
    size, spread = np.max(np.abs(nodes), initial=0), np.max(np.abs(x))
    # Orbits at the origin have no size of their own.
    size = size if size > np.finfo(x.dtype).eps ** 0.5 * spread else spread
    near, _ = reach_of(closeness * size, size, nodes, owner)
    common = (chosen.params, chosen.padded(nodes), owner, np.asarray(near, x.dtype))
    x, lanes = chosen.padded(x), np.repeat(lanes, len(points), axis=0)
    lane, one = eqx.Partial(passes_to_outcome, chosen.map, grid.free, len(outcomes)), np.full(1, 1)
    sample = lanes[:1], np.zeros(1, x.dtype), x[:1], np.full(1, chosen.mode), one
    run = BatchMap(lane, common, few=compiles_fast(len(x)), sample=sample)
    workers = Workers(run, executor, run.threads)
    workers.compile("compiling the stride", progress)

    def ends(lanes, x, modes, strides, keep) -> dict[str, np.ndarray]:
        boxes = chunks_of((len(x),), chunk_shape((len(x),), run.capacity))
        named = lambda i: f"basin: the initial states {box_text(('',), boxes[i])}"
        chunks = ((lanes[box], x[box], modes[box], strides, keep) for box in boxes)
        with progress_bar("initial states", len(x), 0, progress) as advance:
            return workers.gathered(outcomes_of, chunks, named, advance)

    found = ends(lanes, x, np.full(len(x), chosen.mode), max_strides, keep)
    if orbits is None:
        kept = found["kept"].reshape(-1, len(points), *found["kept"].shape[1:])
        # As many states as tell chaotic attractors apart, after as many passes.
        more = max(max_strides, 2 * FEW), FEW
        lead = lambda to, k: ends(lanes[to * len(points)], found["x"][k], found["mode"][k], *more)["kept"]
        found["orbit"] = numbered(grid.values, x, kept, closeness, max_attractors, lead) - 1
        names = [f"attractor {k}" for k in range(1, 2 + found["orbit"].max())]
    units = units_of(None, params, step.system).coordinates
    found = _labelled(xarray, found, grid, on_axes, names, tuple(outcomes), chosen, units)
    return raise_if_none("basin", found) if throw else found


def _checked_axes(axes: Mapping[str, Any], coordinates: tuple[str, ...] | None) -> dict[str, np.ndarray]:
    """The axes as arrays; `ValueError` where they cannot be used, or are not the given coordinates."""
    require_kind(
        axes, Mapping, "basin", "axes", 'a dictionary from name to values, such as {"theta": jnp.linspace(0, 1, 50)}'
    )
    values = {name: np.asarray(axis, float) for name, axis in axes.items()}
    for name, axis in values.items():
        if axis.ndim != 1 or not axis.size or not np.all(np.isfinite(axis)):
            raise ValueError(f"basin: the values of the axis {name} must be finite numbers in one dimension.")
    if clash := sorted(set(values) & RESERVED):
        raise ValueError(f"basin: the axes {clash} have names of the dataset's variables. Choose other names.")
    if coordinates is not None and tuple(values) != coordinates:
        raise ValueError(
            f"basin: the axes {tuple(values)} are not the coordinates {coordinates}: give initial=, a function "
            "(params, *values) -> x."
        )
    return values


def _nodes(orbits: PeriodicOrbit | None, n: int, dtype) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names of the orbits, the nodes of all, and the number of the orbit to which each node belongs."""
    if orbits is None:
        return [], np.zeros((0, n), dtype), np.zeros(0, int)
    nodes = np.asarray(orbits.nodes)
    nodes = nodes.reshape(-1, *nodes.shape[-2:])
    if not np.all(np.isfinite(nodes)):
        raise ValueError("basin: one of the orbits was not found (its nodes are NaN). Omit it.")
    each = nodes.shape[1]
    return (
        [f"orbit {k}" for k in range(1, len(nodes) + 1)],
        nodes.reshape(-1, n),
        np.repeat(np.arange(len(nodes)), each),
    )


def _labelled(
    xarray, found, grid: Grid, axes, orbits, outcomes, chosen: ChosenMap, units: dict[str, str]
) -> "xarray.Dataset":
    """The dataset of the outcomes, with the meaning of their numbers."""
    meanings = [*orbits, *outcomes, "no step", "undecided"]
    outcome = np.full(len(found["outcome"]), len(meanings) - 1)
    outcome[found["result"] != 0] = len(meanings) - 2
    outcome = np.where(found["outcome"] >= 0, len(orbits) + found["outcome"], outcome)
    outcome = np.where(found["orbit"] >= 0, found["orbit"], outcome).astype(np.min_scalar_type(-len(meanings)))
    dims, shape = (*grid.names, *axes), (*grid.shape, *(len(axis) for axis in axes.values()))
    flags = {
        "flag_values": list(range(len(meanings))),
        "flag_meanings": " ".join(meaning.replace(" ", "_") for meaning in meanings),
    }
    data = {
        "outcome": (dims, outcome.reshape(shape), flags),
        "strides": (dims, found["strides"].reshape(shape)),
        "result": (dims, found["result"].reshape(shape), code_attributes()),
        "last": ((*dims, "coordinate"), found["x"].reshape(*shape, -1), units_attribute(chosen.coordinates, units)),
    }
    each = outcome.reshape(-1, *shape[len(grid.names) :])
    share = np.array([np.bincount(at.ravel(), minlength=len(meanings)) / at.size for at in each])
    share, exponent = share.reshape(*grid.shape, -1), np.array([_exponent(at) for at in each]).reshape(grid.shape)
    data |= {
        "share": ((*grid.names, "fate"), share),
        "share_error": ((*grid.names, "fate"), share_error(share, each[0].size)),
        "uncertainty_exponent": (grid.names, exponent), "border_dimension": (grid.names, len(axes) - exponent),
    }  # fmt: skip
    if grid.names:
        order, change = np.argsort(grid.values[-1]), np.zeros(share.shape, np.int8)
        change[..., order[1:], :] = np.diff((share > 0)[..., order, :].astype(np.int8), axis=-2)
        flags = {"flag_values": [-1, 0, 1], "flag_meanings": "lost unchanged born"}
        data["change"] = ((*grid.names, "fate"), change, flags)
    coords: dict[str, Any] = {name: ((name,), axis, units_attribute((name,), units)) for name, axis in axes.items()}
    coords |= grid.coordinates | {"coordinate": list(chosen.coordinates), "fate": meanings}
    fixed = {name: value for name, value in named_leaves(chosen.params).items() if name not in grid.names}
    found = xarray.Dataset(data, coords, {"parameters": str(fixed)} | chosen.described)
    return described(found, {name: in_words(name) for name in axes} | meanings_of(grid.params))


def _exponent(outcome: np.ndarray) -> float:
    r"""The exponent $\alpha$ of the share $\epsilon^\alpha$ of pairs of points, $\epsilon = 1, 2, 4, \dots$ steps of the grid
    apart along an axis, whose outcomes differ: 1 for a smooth border. NaN unless two distances have such pairs."""
    steps = 2 ** np.arange(max(int(np.log2(min(outcome.shape))) - 1, 0))
    along = [np.moveaxis(outcome, axis, 0) for axis in range(outcome.ndim)]
    shares = np.array([np.mean(np.concatenate([np.ravel(x[k:] != x[:-k]) for x in along])) for k in steps])
    seen = shares > 0
    return float(np.polyfit(np.log(steps[seen]), np.log(shares[seen]), 1)[0]) if np.sum(seen) > 1 else np.nan
