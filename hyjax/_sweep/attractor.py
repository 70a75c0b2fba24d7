"""Attractors over a grid of parameters, by iteration of a return map or of the map of a section.

The map that an attractor or a basin iterates is that of a sequence of modes, or of a section. A tangent vector for each Lyapunov
exponent is iterated with the state. Attractors of several initial states are numbered.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, NamedTuple, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.automaton import Index
from .._flow.check import check
from .._flow.integrator import Integrator, integrator_to, Integrators, without_jacobian
from .._flow.section_map import (
    check_section,
    for_terminal_modes,
    SectionMap,
    SectionPass,
    with_section_mode,
    with_terminal_modes,
)
from .._numerics.eager import compiles_fast
from .._numerics.elimination import orthonormal
from .._orbit.orbit import PeriodicOrbit
from .._orbit.problem import depends_on_time, Problem, uses_time
from .._orbit.return_map import require_map, ReturnMap
from .._orbit.stride import run_stride
from .._results.failure import raise_if_none
from .._results.labels import described, meanings_of, Units, units_attribute, units_of
from .._results.registry import load_xarray
from .._results.shown import require_known
from .._results.working import progress_bar
from .._system.results import choose, RESULTS
from .._system.section import at_phase, Section, Stroboscope
from .._system.system import Guard, HybridSystem
from .._system.types import Params, State, Time
from .._system.where import Where, with_leaves
from .batches import BatchMap
from .grid import Grid, grid_over, named_leaves, points_over, share_error
from .matched import check_numbers, numbered, sizes_of
from .store import box_text, chunk_shape, chunks_of, code_attributes
from .sweep import sweep
from .workers import Workers

if TYPE_CHECKING:
    import xarray


# A map that is iterated, `(t, x, mode, params) -> SectionPass`: a `SectionMap`, or that of a sequence.
PassMap = Callable[[Time, State, Index, Params], SectionPass]


def pass_of_sequence(
    system: HybridSystem,
    sequence: tuple[str, ...],
    ordinary: int,
    integrator: Integrators,
    t: Time,
    x: State,
    mode: Index,
    params: Params,
) -> SectionPass:
    """The return map along a sequence of modes of a system that may have terminal modes. `ordinary`: the number of ways
    that do not end in one."""
    stride, end = run_stride(system, t, x, params, sequence, integrator), jnp.array(-1)
    for impact in stride.impacts[::-1]:
        end = jnp.where(impact._way >= ordinary, impact._way - ordinary, end)
    return SectionPass(stride.x, stride.time, mode, end, jnp.array(len(sequence)), stride.result)


class ChosenMap(NamedTuple):
    """A map for a program that iterates it.

    **Attributes:** `params`: as arrays. `mode`: the index of the initial mode. `size`: of the states. `timed`: whether the map
    depends on time, and the time of a pass on the state. `coordinates`: the names of the states' entries. `several_modes`:
    whether passes may end in several modes. `described`: the map in words, for the attributes of a dataset.
    """

    map: PassMap
    params: Params
    mode: int
    size: int
    timed: bool
    coordinates: tuple[str, ...]
    several_modes: bool
    described: dict[str, str]

    def padded(self, states: Float[np.ndarray, "rows n"]) -> Float[np.ndarray, "rows size"]:
        """States with zeros in the padding."""
        return np.pad(states, ((0, 0), (0, self.size - states.shape[1])))


def map_of(
    caller: str,
    step: ReturnMap,
    x: State,
    params: Params,
    default: Integrator,
    outcomes: Mapping[str, Guard] | None = None,
) -> ChosenMap:
    """The map, after a check of the arguments of `caller`. `default`: the integrator, if `step` has none. `outcomes`: guards
    that end the motion."""
    system, section, outcomes = step.system, step.section, {} if outcomes is None else outcomes
    mode, coordinates = system.number(step.mode), system.mode(step.mode).coordinates
    integrator = step.integrator_or(default)
    plain = without_jacobian(integrator)
    if step.sequence is not None:
        sequence = step.sequence * step.strides
        system, _, _, params = check(system, 0.0, x, params, step.sequence, integrator)
        timed = depends_on_time(Problem(system, sequence, 1), params, x)
        ending = with_terminal_modes(system, sequence, outcomes)
        described = {"sequence": " -> ".join(sequence)}
        chosen = eqx.Partial(pass_of_sequence, ending, sequence, len(system.ways), plain)
        return ChosenMap(chosen, params, mode, x.size, timed, coordinates, False, described)
    assert section is not None
    if step.strides > 1 and isinstance(section, Section):
        raise ValueError(
            f"{caller}: the map of a Section is iterated pass by pass: give it strides=1, not {step.strides}, and more strides."
        )
    system, _, x, params, _ = check_section(system, section, x, params, None, integrator)
    system, section = at_phase(system, section)
    if isinstance(section, Stroboscope):
        section = section.lasting(step.strides)
    on_surface = isinstance(section, Section)
    ending = with_section_mode(with_terminal_modes(system, system.names, outcomes), section)
    most = step.max_jumps * step.strides
    chosen = SectionMap(ending, section, len(system.names), most, for_terminal_modes(plain, ending))
    size = max(each.dimension for each in system.modes.values())
    if size != len(coordinates):
        coordinates = tuple(f"x_{i}" for i in range(size))
    described = {"section": ("surface in " if on_surface else "period, from ") + section.mode}
    several = not on_surface and len(system.names) > 1
    # The time of a stroboscope's pass does not depend on the state.
    timed = on_surface and uses_time(ending, ending.names, range(len(ending.ways)), params, x.dtype)
    return ChosenMap(chosen, params, mode, size, timed, coordinates, several, described)


def iterated(
    pass_map: PassMap, free: tuple[int, ...], keep: int, n_exponents: int, timed: bool, common, lane
) -> dict[str, Array]:
    r"""A map $P$, iterated from one state with tangent vectors: $x \mapsto P(x)$, $V \mapsto Q$ where $DP(x)\,V = QR$.

    **Arguments:** `free`: indices of the varied leaves of the parameters. `keep`: number of last states to return. `n_exponents`:
    of tangent vectors. `timed`: whether the map depends on time. Then the next pass starts when this one ends, and the time is a
    coordinate of the tangent vectors. `common = (params, passes, transients)`, `lane = (values, x0, mode0)`.

    **Returns:** `x`, shape `(keep, size)`, and `mode`, shape `(keep,)`; `exponents`, shape `(n_exponents,)`, and `stride_time`,
    means over the passes after the transients; `strides`, the number that succeeded; and `result`.
    """
    (params, passes, transients), (values, x0, mode0) = common, lane
    params = with_leaves(params, free, values)
    zero, shift = jnp.zeros((), x0.dtype), int(timed)
    # Any directions serve; these are orthonormal and lie in no coordinate plane.
    spread = np.random.default_rng(0).normal(size=(x0.size + shift, n_exponents))
    tangents = jnp.asarray(np.linalg.qr(spread)[0].T, x0.dtype)

    def end(t, x, mode):
        passed = pass_map(t, x, mode, params)
        good = passed.end < 0
        result = choose((passed.result == RESULTS.successful) & ~good, RESULTS.unexpected_transition, passed.result)
        return (t + passed.time, passed.x), (passed.time, passed.mode, result)

    def one(i, carry):
        t, x, mode, tangents, growth, duration, kept, modes, result, count = carry

        def push(v):
            dt = v[0] if timed else zero
            return jax.jvp(lambda t, x: end(t, x, mode), (t, x), (dt, v[shift:]), has_aux=True)

        (t, x), (dt, dx), (time, mode, code) = jax.vmap(push, out_axes=((None, None), 0, None))(tangents)
        good = (result == RESULTS.successful) & (code == RESULTS.successful)
        result = choose(result == RESULTS.successful, code, result)
        tangents, grown = orthonormal(jnp.concatenate([dt[:, None], dx], axis=1) if timed else dx)
        measured = i >= transients
        growth = growth + jnp.where(measured, grown, 0)
        duration = duration + jnp.where(measured, time, 0)
        kept = jax.lax.dynamic_update_index_in_dim(kept, x, i % keep, 0)
        modes = jax.lax.dynamic_update_index_in_dim(modes, mode, i % keep, 0)
        return t, x, mode, tangents, growth, duration, kept, modes, result, count + jnp.where(good, 1, 0)

    start = (
        zero, x0, mode0, tangents, jnp.zeros(n_exponents, x0.dtype), zero,
        jnp.full((keep, x0.size), jnp.nan, x0.dtype), jnp.full(keep, -1), RESULTS.successful, jnp.array(0),
    )  # fmt: skip
    *_, growth, duration, kept, modes, result, count = jax.lax.fori_loop(0, passes, one, start)
    measured = (passes - transients).astype(x0.dtype)
    order = lambda rows: jnp.roll(rows, -(passes % keep), axis=0)
    return {
        "x": order(kept),
        "mode": order(modes),
        "exponents": growth / measured,
        "stride_time": duration / measured,
        "strides": count.astype(jnp.int32),
        "result": jnp.asarray(result._value, jnp.int32),
    }


# The largest distance between states that count as equal in the search for a period, relative to the size of each coordinate.
CLOSE = 1e-5
# The size of a coordinate beside that of its initial states, below which it goes to zero.
REST = 1e-2
InitialStates = PeriodicOrbit | Float[Array, "..."] | Callable[[Params], Float[Array, "..."]]


def attractor(
    step: ReturnMap,
    x0: InitialStates,
    params: Params,
    *,
    where: Where,
    values: Any,
    n_strides: int = 1000,
    discard: int | None = None,
    keep: int = 128,
    max_period: int = 64,
    closeness: float = 1e-2,
    max_attractors: int = 64,
    executor: Executor | None = None,
    progress: bool | None = None,
    throw: bool = True,
) -> "xarray.Dataset":
    r"""Long-run states, periods and Lyapunov exponents over a grid of parameters: $x_{k+1} = S(x_k, \lambda)$, iterated.

    The Lyapunov exponents are the means of $\log |R_{ii}|$, where $DS(x_k)\,Q_k = Q_{k+1} R$; of a map that depends on time with
    the time as a coordinate.

    **Arguments:**

    - `step`: the `ReturnMap` $S$, of a sequence of modes or of a section; by default integrated by Dopri8 at tolerances of 1e-9.
      (On a chaotic attractor rounding grows beyond this error within a few strides; on a stable orbit the error decays.)
    - `x0`: the initial state, shape `(n,)`, just after a jump, or in the mode of the section; several, shape `(starts, n)`, where
      attractors coexist; a function of the parameters that returns either; or a periodic orbit, which is swept over the grid and
      perturbed by `1e-4` of its size, so that iteration from an unstable orbit reaches a neighbouring attractor.
    - `params`: the parameters, a PyTree. `where`, `values`: as for `sweep`.
    - `n_strides`: the number of strides; `discard`: of these, the number that are not measured, by default half.
    - `keep`: the largest number of last states to keep; chaotic attractors are numbered by them, and need many, since a few
      states of one need not come near those of another start. `max_period`: the longest period that is recognized, in strides.
    - `closeness`: how near to each other states of one attractor come that start elsewhere, relative in each coordinate to its
      largest size on the attractor, or to the median size of the initial states if that is more.
    - `max_attractors`: the largest number of attractors that are told apart at one point.
    - `executor`: whose workers compute the chunks, as for `sweep`. `progress`: show a bar on stderr; by default on a terminal.
    - `throw`: raise a `SolveError` where no lane succeeds.

    **Returns:** an `xarray.Dataset` over the parameters' dimensions, and over `start` if several are given: `x` (the last states,
    over `stride` and `coordinate`), `period` (number of strides after which the last states repeat, 0 for none found), `lyapunov`
    (largest exponent, per stride), `exponents` (all of them, largest first, over `exponent`; `-inf` for directions of which a
    stride leaves nothing), `stride_time` (mean duration, in units of time), `strides` (number that succeeded) and `result`, the
    code of the stride that failed. Where a stride failed, the floating-point numbers are NaN and the period is 0. Of several
    initial states also `attractor`, the number of the attractor, 0 where a stride failed, the same at neighbouring points of the
    grid if the states of the one lead to the other, or fail near it: along the last axis, and from line to line at its least
    value, then likewise along the axes before. Each attractor is iterated on by `n_strides`: states that do not come back to
    themselves still drift and have the number 0, as have those beyond the `max_attractors` that are told apart at a point; their
    result is 0 (more strides, a larger `keep`, of which chaotic attractors need some hundred, or a larger `closeness` is needed).
    With the states as a sample, `share` is the part of them with each attractor, over `number`, and `share_error` half the width
    of Wilson's interval at one standard deviation, $\sqrt{p(1 - p)/N + 1/(4N^2)}\,/\,(1 + 1/N)$, not 0 for a share $p$ of 0 or 1
    of $N$ states; `basin_figure` draws both over one parameter. Attractors that no initial state leads to are not seen.
    `ValueError` for arguments that do not fit each other; `SolveError` where the executor's workers fail; `ImportError` without
    xarray.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> found = hj.attractor(
    ...     wheel.step, wheel.guess(params), params, where=lambda p: p.slope, values=jnp.array([0.2, 0.25]),
    ...     n_strides=50, keep=4, progress=False,
    ... )
    >>> found.period.values.tolist(), found.lyapunov.round(4).values.tolist()
    ([1, 1], [-0.8109, -0.8109])

    Source: Strogatz (1994), *Nonlinear Dynamics and Chaos*, Sec. 10.5; Benettin, Galgani, Giorgilli, Strelcyn (1980).
    """
    xarray = load_xarray()
    require_map(step, "attractor")
    require_known("attractor", step, x0, params, values)
    counts = {"keep": keep, "max_period": max_period, "max_attractors": max_attractors}
    check_numbers("attractor", closeness, n_strides=n_strides, **counts)
    discard = n_strides // 2 if discard is None else discard
    if np.asarray(discard).dtype.kind != "i" or not 0 <= discard < n_strides:
        raise ValueError(f"attractor: discard={discard!r} must be a whole number from 0 to less than {n_strides=}.")
    grid = grid_over(params, where, values)
    lanes = points_over(grid.values)
    states = _initial_states(x0, grid, lanes, where, executor, progress)
    flat = states.reshape(-1, states.shape[-1])
    sample = jnp.asarray(flat[int(np.argmax(np.isfinite(flat).all(axis=1)))])
    chosen = map_of("attractor", step, sample, params, integrator_to(1e-9, states.dtype))
    iterate = eqx.Partial(iterated, chosen.map, grid.free, min(keep, n_strides - discard), sample.size, chosen.timed)
    common = chosen.params, np.asarray(n_strides), np.asarray(discard)

    points, count = len(lanes), states.shape[1] if states.ndim == 3 else None
    lanes = np.repeat(lanes, len(flat) // points, axis=0)
    flat, modes = chosen.padded(flat), np.full(len(flat), chosen.mode)
    few, one = compiles_fast(len(flat) * n_strides), (lanes[:1], flat[:1], modes[:1])
    run = BatchMap(iterate, common, few=few, sample=one)
    workers = Workers(run, executor, run.threads)
    workers.compile("compiling the stride", progress)

    def ends(lanes, flat, modes) -> dict[str, np.ndarray]:
        # Pieces small enough to advance the progress bar, and to keep all threads busy to the end.
        boxes = chunks_of((len(flat),), chunk_shape((len(flat),), 4 * run.width * len(run.devices)))
        named = lambda i: f"attractor: the lanes {box_text(('',), boxes[i])}"
        chunks = (((lanes[box], flat[box], modes[box]),) for (box,) in boxes)
        with progress_bar("attractors", len(flat), 0, progress) as advance:
            found = workers.gathered(BatchMap.__call__, chunks, named, advance)
        for name in ("x", "exponents", "stride_time"):
            found[name][found["result"] != int(RESULTS.successful._value)] = np.nan
        return found

    found = ends(lanes, flat, modes)
    good = found["result"] == int(RESULTS.successful._value)
    if count is not None:
        states = lambda found: np.concatenate([found["x"], found["mode"][..., None]], axis=2)
        lead = lambda to, k: states(ends(lanes[to * count], found["x"][k, -1], found["mode"][k, -1]))
        last = states(found).reshape(points, count, found["x"].shape[1], -1)
        found["attractor"] = numbered(grid.values, np.asarray(flat), last, closeness, max_attractors, lead)
    found["lyapunov"] = found["exponents"][:, 0]
    if not chosen.several_modes:
        del found["mode"]
    found["period"] = np.where(good, _period(found["x"], max_period, np.abs(flat)), 0).astype(np.int32)
    found["result"] = found["result"].astype(np.int8)

    metadata = chosen.described | {"strides": n_strides, "discarded": discard}
    found = _labelled(xarray, found, grid, count, chosen.coordinates, units_of(None, params, step.system), metadata)
    return raise_if_none("attractor", found) if throw else found


def _labelled(
    xarray,
    found: dict[str, np.ndarray],
    grid: Grid,
    starts: int | None,
    coordinates: tuple[str, ...],
    units: Units,
    metadata: dict[str, Any],
) -> "xarray.Dataset":
    """The dataset of the attractors. **Arguments:** `starts`: the number of initial states at each point, `None` for one."""
    dims = grid.names + (() if starts is None else ("start",))
    shape = grid.shape + (() if starts is None else (starts,))
    own = {"x": ("stride", "coordinate"), "mode": ("stride",), "exponents": ("exponent",)}
    attributes = {
        "x": units_attribute(coordinates, units.coordinates),
        "stride_time": units_attribute(("time",), {"time": units.time}),
        "period": {"long_name": "number of strides after which the state repeats, 0 for none found", "units": "1"},
        "result": code_attributes(),
    }
    if "section" in metadata:
        attributes["lyapunov"] = {"long_name": "largest Lyapunov exponent per return"}
        attributes["exponents"] = {"long_name": "Lyapunov exponents per return"}
    data: dict[str, Any] = {
        name: ((*dims, *own.get(name, ())), column.reshape(*shape, *column.shape[1:]), attributes.get(name, {}))
        for name, column in found.items()
    }
    coords = grid.coordinates | {"coordinate": list(coordinates)}
    if starts is not None:
        coords["number"] = np.arange(1 + found["attractor"].max())
        share = np.mean(data["attractor"][1][..., None] == coords["number"], axis=-2)
        data["share"] = ((*grid.names, "number"), share)
        data["share_error"] = ((*grid.names, "number"), share_error(share, starts))
    fixed = {name: value for name, value in named_leaves(grid.params).items() if name not in grid.names}
    return described(xarray.Dataset(data, coords, {"parameters": str(fixed)} | metadata), meanings_of(grid.params))


def _initial_states(
    start: InitialStates, grid: Grid, lanes: np.ndarray, where: Where, executor, progress
) -> np.ndarray:
    """Initial states for each point of the grid: shape `(points, n)` or `(points, starts, n)`."""
    if isinstance(start, PeriodicOrbit):
        found = sweep(start, where=where, values=grid.values, executor=executor, progress=progress)
        x = np.asarray(found["x"]).reshape(len(lanes), -1)
        return x * (1 + 1e-4)
    if callable(start):
        each = jax.vmap(lambda values: jnp.asarray(start(with_leaves(grid.params, grid.free, values))))
        states = np.asarray(each(lanes))
        if states.ndim not in (2, 3):
            raise ValueError(f"attractor: x0(params) must return shape (n,) or (starts, n), not {states.shape[1:]}.")
        return states
    states = np.asarray(start)
    if states.ndim not in (1, 2):
        raise ValueError(f"attractor: x0 must have shape (n,) or (starts, n), not {states.shape}.")
    return np.broadcast_to(states, (len(lanes), *states.shape)).copy()


def _period(x: Float[np.ndarray, "lanes keep n"], longest: int, begun: Float[np.ndarray, "lanes n"]) -> np.ndarray:
    """The smallest number of strides, up to `longest`, after which the kept states repeat; 0 for none. `begun`: the size of the
    initial states, beside which those that decay to the origin repeat."""
    size = np.maximum(np.max(np.abs(x), axis=1), REST * sizes_of(begun, 1.0))
    # Of a coordinate that is zero, rounding is that of the others.
    size = np.maximum(size, min(1.0, 1e3 * np.finfo(x.dtype).eps / CLOSE) * size.max(axis=1, keepdims=True))
    period = np.zeros(len(x), int)
    for p in range(min(longest, x.shape[1] // 2), 0, -1):
        apart = np.max(np.abs(x[:, p:] - x[:, :-p]), axis=1)
        period[np.all(apart <= CLOSE * size, axis=1)] = p
    return period
