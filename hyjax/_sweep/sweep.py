r"""Periodic orbits over many parameters at once: in chunks, on all devices, stored as they come."""

import dataclasses
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TYPE_CHECKING

import jax
import numpy as np

from .._continuation.branch import Branch
from .._flow.integrator import Integrator, PlainForward, with_adjoint
from .._orbit.orbit import PeriodicOrbit
from .._orbit.problem import Problem
from .._system.results import RESULTS
from .._system.where import Where
from .batches import Lanes
from .branch_starts import along_branch, first_point
from .grid import Grid, grid_over
from .lane import Nearby, Record
from .progress import progress_bar
from .provenance import provenance
from .starts import Coarse, solve_coarse
from .store import chunk_shape, chunks_of, code_attributes, create, refuse_different, Store, StoreError

if TYPE_CHECKING:
    import xarray


def sweep(
    system,
    start: PeriodicOrbit | Branch,
    *,
    where: Where,
    values: Any,
    record: Record | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    integrator: Integrator | None = None,
    chunk: int | None = None,
    units: dict[str, str] | None = None,
    progress: bool | None = None,
) -> "xarray.Dataset":
    r"""The periodic orbit over a grid of parameters. $S^m(x, \lambda) = x$ for all $\lambda$ of the grid.

    A coarse part of the grid is followed from the given orbit, each other point starts by interpolation in it; so most need
    Newton's method for two strides. What a point's result is depends on the grid alone: not on the chunks, the devices, what
    else is computed, or whether it was resumed.

    **Arguments:** `start`: an orbit at some parameters, best on the grid or near it; or a branch, whose points then are the
    starts (in one parameter; of a branch with folds, the part nearest its start). `where`: which leaves of the parameters vary:
    `lambda params: params.slope`, or a tuple of leaves. `values`: an array for each. `record`: `orbit -> {name: array}`, what
    else to keep of each orbit. `out`: a zarr store to write, chunk by chunk. `resume`: go on with the store that is there.
    `integrator`: by default the orbit's. `chunk`: at most so many points are written at once. `units`: of coordinates and of
    `time`, by name. `progress`: a bar on stderr; by default on a terminal.

    **Returns:** an `xarray.Dataset` over dimensions named as the parameters: `x` (state just after the jump), `period`,
    `multipliers_real`, `multipliers_imag`, `stable`, `residual`, `iterations` (of Newton's method, a stride each), what `record`
    gives, and `result`, a code of `RESULTS` for each point. A point without an orbit is NaN. With `out`, read from the store when
    asked for.

    Several processes may call with the same `out`, those of `jax.distributed` or others (then with `resume`): they share the
    chunks. `StoreError` where the store cannot be written, which keeps every finished chunk, or was made from something else.
    """
    orbit = start.orbit(first_point(start)) if isinstance(start, Branch) else start
    if orbit.period.ndim:
        raise ValueError(f"sweep: start is a batch of {len(orbit)} orbits. Take one of them, such as orbits[0].")
    if int(orbit.result._value) != int(RESULTS.successful._value):
        raise ValueError("sweep: start is not an orbit: its search did not succeed.")
    if chunk is not None and chunk < 1:
        raise ValueError(f"sweep: chunk={chunk} must be at least 1.")
    if out is None and resume:
        raise ValueError("sweep: resume needs the path of a store: give out=.")
    grid = grid_over(orbit.params, where, values)
    integrator = orbit.integrator if integrator is None else integrator
    integrator.tolerances(orbit.x.dtype)
    problem = Problem(system, orbit.sequence, orbit.strides)
    plain = with_adjoint(integrator, PlainForward())
    lanes = Lanes(Nearby(problem, grid.free, plain, record), grid.params)
    work = _Work(problem, grid, lanes, start, orbit, {} if units is None else units)
    branch = start if isinstance(start, Branch) else None
    about = provenance(problem, grid, orbit, branch, record, integrator)
    boxes = chunk_shape(grid.shape, max(lanes.capacity, 4096) if chunk is None else chunk)
    if out is None:
        return _in_memory(work, about, boxes, progress)
    return _in_store(work, about, boxes, Path(out), resume, progress)


@dataclasses.dataclass(frozen=True)
class _Work:
    """What all chunks have in common."""

    problem: Problem
    grid: Grid
    lanes: Lanes
    start: PeriodicOrbit | Branch
    orbit: PeriodicOrbit
    units: dict[str, str]

    def coarse(self) -> tuple[Coarse, dict[str, np.ndarray]]:
        """The starts of all points; and a lane, for the shapes of what is kept."""
        y = np.asarray(self.orbit.before[0])
        first = np.array([np.asarray(jax.tree.leaves(self.orbit.params)[i]) for i in self.grid.free])
        lane = self.lanes((first[None], y[None]))
        y = np.where(np.isfinite(lane["_y"][0]), lane["_y"][0], y)

        def solve(values, y):
            found = self.lanes((values, y))
            return found["_y"], found["iterations"]

        coarse = Coarse(self.grid.values, y.size, y.dtype)
        along = None
        if isinstance(self.start, Branch):
            if self.start.unfolding.free == self.grid.free:
                along = along_branch(self.start)
            elif set(self.start.unfolding.free) - set(self.grid.free):
                raise ValueError(
                    "sweep: the branch's parameter is not among those that vary. Start from one of its orbits."
                )
        return solve_coarse(coarse, solve, (first, y), along), lane

    def chunk(self, coarse: Coarse, box: tuple[slice, ...]) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """What is kept of the orbits in a box of the grid: `name -> (dimensions, values)`."""
        shape = tuple(each.stop - each.start for each in box)
        values = self.grid.points(box)
        seeds, reach = coarse.seeds(values)
        found = self.lanes((values, seeds))
        # An orbit far from where it was expected is another one.
        far = np.max(np.abs(found["_y"] - seeds), axis=1) > reach + 1e-6 * np.max(np.abs(seeds), axis=1)
        found["result"] = np.where(far, int(RESULTS.orbit_not_converged._value), found["result"])
        for name, column in found.items():
            if column.dtype.kind in "fc":
                column = column.copy()
                column[far] = np.nan
                found[name] = column
        kept = kept_columns(found)
        return {
            name: (self.dims(name, column), column.reshape(*shape, *column.shape[1:])) for name, column in kept.items()
        }

    def dims(self, name: str, column: np.ndarray) -> tuple[str, ...]:
        own = {"x": ("coordinate",), "multipliers_real": ("multiplier",), "multipliers_imag": ("multiplier",)}
        return self.grid.names + own.get(name, tuple(f"{name}_{k}" for k in range(column.ndim - 1)))

    @property
    def names(self) -> tuple[str, ...]:
        return self.problem.system.mode(self.problem.sequence[0]).coordinates

    def attributes(self, name: str) -> dict[str, Any]:
        time_unit = self.units.get("time", "")
        known = {
            "x": {"long_name": "state after the jump", "units": ", ".join(self.units.get(n, "") for n in self.names)},
            "period": {"units": time_unit},
            "iterations": {"long_name": "strides that Newton's method took", "units": "1"},
            "residual": {"long_name": "largest component of S(x) - x"},
            "result": code_attributes(),
        }
        return {key: value for key, value in known.get(name, {}).items() if value != ""}


def kept_columns(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of a dataset, from those of the lanes."""
    kept = {name: column for name, column in found.items() if not name.startswith("_")}
    kept["stable"] = np.max(np.hypot(found["multipliers_real"], found["multipliers_imag"]), axis=-1) < 1
    kept["result"] = found["result"].astype(np.int8)
    return kept


def _in_memory(work: _Work, about: dict, boxes, progress) -> "xarray.Dataset":
    from .._flow.dataset import load_xarray

    xarray = load_xarray()
    coarse, _ = work.coarse()
    whole: dict[str, tuple] = {}
    chunks = chunks_of(work.grid.shape, boxes)
    with progress_bar("orbits", work.grid.size, 0, progress) as advance, ThreadPoolExecutor(work.lanes.threads) as pool:
        for box, part in zip(chunks, pool.map(lambda box: work.chunk(coarse, box), chunks), strict=True):
            for name, (dims, column) in part.items():
                if name not in whole:
                    whole[name] = dims, np.zeros((*work.grid.shape, *column.shape[len(box) :]), column.dtype)
                whole[name][1][box] = column
            advance(part["result"][1].size)
    data = {name: (dims, column, work.attributes(name)) for name, (dims, column) in whole.items()}
    coords = {name: tuple(each) for name, each in work.grid.coordinates.items()}
    return xarray.Dataset(data, coords, about).assign_coords(coordinate=list(work.names))


def _in_store(work: _Work, about: dict, boxes, path: Path, resume: bool, progress) -> "xarray.Dataset":
    from .._flow.dataset import load_xarray

    load_xarray()
    if path.exists():
        # Of several processes that start together, one makes the store.
        if not resume and jax.process_index() == 0:
            raise StoreError(f"{path}: there is something already. Resume it, or write to another path.")
    else:
        coarse, lane = work.coarse()
        kept = kept_columns(lane)
        variables = {}
        for name, column in kept.items():
            dims = work.dims(name, column)
            inner = column.shape[1:]
            variables[name] = dims, (*work.grid.shape, *inner), (*boxes, *inner), column.dtype, work.attributes(name)
        nodes = tuple(f"start_{name}" for name in work.grid.names)
        coordinates = work.grid.coordinates | {
            node: ((node,), axis, {}) for node, axis in zip(nodes, coarse.axes, strict=True)
        }
        starts = {"start_y": ((*nodes, "start_coordinate"), coarse.y, {"long_name": "where Newton's method starts"})}
        create(path, about | {"chunk": list(boxes)}, coordinates | starts, variables)
    made = refuse_different(path, about)
    return _fill(work, path, tuple(made["chunk"]), progress)


def _fill(work: _Work, path: Path, boxes: tuple[int, ...], progress) -> "xarray.Dataset":
    """Compute what is not there yet. Chunks that other processes work on are left to them, and looked at again at the end."""
    chunks = chunks_of(work.grid.shape, boxes)
    store = Store(path, work.grid.names, chunks)
    coarse = Coarse(work.grid.values, 1, float)
    coarse.y = np.asarray(store.open()["start_y"])
    done = store.finished()
    size = lambda i: int(np.prod([each.stop - each.start for each in chunks[i]]))
    # Each process begins with chunks of its own.
    mine = lambda i: (i % jax.process_count() != jax.process_index(), i)
    queue = deque(sorted((int(i) for i in np.flatnonzero(~done)), key=mine))
    elsewhere, running = deque(), {}
    finished = sum(size(i) for i in np.flatnonzero(done))
    pool = ThreadPoolExecutor(work.lanes.threads)
    try:
        with progress_bar("orbits", work.grid.size, finished, progress) as advance:
            while queue or running or elsewhere:
                while queue and len(running) <= work.lanes.threads:
                    i = queue.popleft()
                    if not store.locks.take(i):
                        elsewhere.append(i)
                    elif store.is_finished(i):
                        store.locks.release(i)
                        advance(size(i))
                    else:
                        running[pool.submit(work.chunk, coarse, chunks[i])] = i
                if running:
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        i = running.pop(future)
                        store.write(i, future.result())
                        store.locks.release(i)
                        advance(size(i))
                elif elsewhere:
                    time.sleep(0.2)
                    queue, elsewhere = elsewhere, deque()
    finally:
        pool.shutdown(cancel_futures=True)
        store.locks.close()
    hidden = ["start_y", *(f"start_{name}" for name in work.grid.names)]
    found = store.open().drop_vars(hidden)
    return found.assign_coords(coordinate=list(work.names))
