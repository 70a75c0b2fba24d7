"""The chunks of a sweep, computed by threads or by an executor's workers: into memory, or into a store.

A chunk is a pure function of the solved coarse grid and of the chunk's values on the axes: initial guesses by interpolation, then
Newton's method. This process alone writes the store.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TYPE_CHECKING

import numpy as np

from .._numerics.eigenvalues import inside_circle
from .._results.labels import cf_attributes, described, units_attribute
from .._results.registry import load_xarray
from .._results.working import progress_bar, warn, working
from .._system.results import RESULTS, SolveError
from .batches import BatchMap
from .continued_starts import CoarseGrid, follow_tangents, is_far, solve_coarse_grid
from .grid import Grid, points_over
from .store import (
    attributes_of,
    box_text,
    chunks_of,
    code_attributes,
    create,
    INDEX,
    NOT_AS_WRITTEN,
    require_same,
    Store,
)
from .workers import device_kind, Workers

if TYPE_CHECKING:
    import xarray


@dataclasses.dataclass(frozen=True)
class ChunkSolver:
    """The solver of a sweep's chunks, with the data that all chunks share.

    **Attributes:** `lanes`: the program for one orbit, mapped over many. `first`: the values on the grid's axes and the unknowns
    of the orbit from which the sweep starts. `guess`: `values -> y` on a branch from which the sweep starts, if any. `solved`:
    names of the parameters that are solved for. `noise`: the error of an orbit by the integrator's tolerance, relative to its
    largest coordinate.
    """

    lanes: BatchMap
    first: tuple[np.ndarray, np.ndarray]
    guess: Callable[[np.ndarray], np.ndarray] | None
    solved: tuple[str, ...]
    noise: float

    def unsolved(self, axes: tuple[np.ndarray, ...]) -> CoarseGrid:
        """The coarse grid of these axes, before it is solved. Where parameters are solved for, which are not on the axes,
        families of orbits may cross."""
        _, y = self.first
        return CoarseGrid(axes, y.size, y.dtype, strict=bool(self.solved))

    def compile(self) -> None:
        self.lanes.compile()

    def coarse(self, coarse: CoarseGrid) -> tuple[CoarseGrid, dict[str, np.ndarray]]:
        """The coarse grid, solved; and the columns of one lane, which show the shapes of all."""
        first, y = self.first
        lane = self.lanes((first[None], y[None]))
        if lane["result"][0] == int(RESULTS.not_isolated._value):
            raise ValueError(
                f"sweep: at the start orbit the prescribed quantities do not determine {', '.join(self.solved)}. Prescribe "
                "quantities that depend on each of these parameters, independently of each other."
            )
        y = np.where(np.isfinite(lane["_y"][0]), lane["_y"][0], y)

        def found_from(values, y):
            # The fractions of a line that a step takes are float64, whatever the orbits are.
            return self.lanes((values.astype(first.dtype), y.astype(coarse.y.dtype)))

        def solve(values, y):
            found = found_from(values, y)
            return found["_y"], found["iterations"]

        if self.solved:

            def solve_with_slope(values, y):
                found = found_from(values, y)
                return found["_y"], found["_slope"], found["iterations"]

            return follow_tangents(coarse, solve_with_slope, (first, y, lane["_slope"][0])), lane

        return solve_coarse_grid(coarse, solve, (first, y), self.guess, noise=self.noise), lane

    def solve(self, coarse: CoarseGrid, axes: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
        """The columns of the orbits at all points over the axes of a chunk; the last axis varies fastest."""
        values = points_over(axes)
        guesses, reach = coarse.guesses(values)
        found = self.lanes((values, guesses))
        far = is_far(found["_y"], guesses, reach, self.noise)
        found["result"] = np.where(far, int(RESULTS.orbit_not_converged._value), found["result"])
        for name, column in found.items():
            if column.dtype.kind in "fc":
                column = column.copy()
                column[far] = np.nan
                found[name] = column
        return kept_columns(found)


def kept_columns(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of a dataset, from those of the lanes."""
    kept = {name: column for name, column in found.items() if not name.startswith("_")}
    kept["stable"] = inside_circle(found["multipliers_real"] + 1j * found["multipliers_imag"])
    kept["result"] = found["result"].astype(np.int8)
    return kept


COARSE = "sweep: the coarse grid"


class Sweep(NamedTuple):
    """The task of a sweep, and the workers that compute it.

    **Attributes:** `coordinates`: the names of the state's. `units`: of the coordinates and of `time`, by name. `metadata`: the
    provenance, without the kind of device. `chunk`: the shape of a chunk. `progress`: whether to show a bar.
    """

    solver: ChunkSolver
    grid: Grid
    coordinates: tuple[str, ...]
    units: dict[str, str]
    metadata: dict[str, Any]
    chunk: tuple[int, ...]
    workers: Workers
    progress: bool | None

    def dims(self, name: str, column: np.ndarray) -> tuple[str, ...]:
        """The dimensions of a column, shape `(points, ...)`: those of the grid, then its own."""
        own = {"x": ("coordinate",), "multipliers_real": ("multiplier",), "multipliers_imag": ("multiplier",)}
        return self.grid.names + own.get(name, tuple(f"{name}_{k}" for k in range(column.ndim - 1)))

    def attributes(self, name: str) -> dict[str, Any]:
        """The attributes of a variable of the dataset."""
        known = {
            "x": units_attribute(self.coordinates, self.units),
            "period": {"units": self.units.get("time", "")},
            "result": code_attributes(),
        } | {solved: {"long_name": "parameter solved for", "units": unit} for solved, unit in self.grid.solved.items()}
        own = {key: value for key, value in known.get(name, {}).items() if value != ""}
        return cf_attributes(name, {}) | own

    def coarse(self) -> tuple[CoarseGrid, dict[str, np.ndarray], str]:
        """The solved coarse grid, the columns of one lane, and the kind of device."""
        with working("compiling, and following the orbit over a coarse grid", self.progress):
            unsolved = self.solver.unsolved(self.grid.values)
            (coarse, lane), device = self.workers.call(ChunkSolver.coarse, unsolved, what=COARSE)
        return coarse, lane, device

    def solved(
        self, coarse: CoarseGrid, boxes: list[INDEX], done: int, device: str, remedy: str
    ) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """The number of each box with its columns, in the order in which they are finished. **Arguments:** `done`: points of the
        grid finished before. `device`: the only kind of device whose results are taken."""
        grid = self.grid
        named = lambda i: f"sweep: the chunk {box_text(grid.names, boxes[i])}"
        calls = ((coarse, grid.axes(box)) for box in boxes)
        with progress_bar("orbits", grid.size, done, self.progress) as advance:
            for i, columns in self.workers.each(ChunkSolver.solve, calls, named, remedy, device):
                yield i, columns
                advance(columns["result"].size)


def solve_in_memory(sweep: Sweep) -> "xarray.Dataset":
    """All chunks, as a dataset in memory."""
    xarray = load_xarray()
    coarse, _, device = sweep.coarse()
    grid, whole = sweep.grid, {}
    boxes = chunks_of(grid.shape, sweep.chunk)
    for i, columns in sweep.solved(coarse, boxes, 0, device, ""):
        for name, column in columns.items():
            if name not in whole:
                whole[name] = sweep.dims(name, column), np.zeros((*grid.shape, *column.shape[1:]), column.dtype)
            place = whole[name][1][boxes[i]]
            place[...] = column.reshape(place.shape)
    data = {name: (dims, column, sweep.attributes(name)) for name, (dims, column) in whole.items()}
    coords = {name: tuple(each) for name, each in grid.coordinates.items()}
    found = xarray.Dataset(data, coords, sweep.metadata | {"device": device})
    return described(found.assign_coords(coordinate=list(sweep.coordinates)))


def solve_in_store(sweep: Sweep, path: Path, resume: bool) -> "xarray.Dataset":
    """All chunks, in a store that is created, or completed with `resume`; as a dataset read from the store."""
    load_xarray()
    if not path.exists():
        _create(sweep, path)
    elif not resume:
        raise SolveError(f"{path}: the path exists already. Resume the store, or write to another path.")
    stored = attributes_of(path)
    store = Store(path)
    # The kind of the workers' devices is known with their first result.
    here = sweep.metadata | ({"device": device_kind()} if sweep.workers.executor is None else {})
    require_same(path, stored, here)
    with store.locked():
        _complete(sweep, store, stored["device"])
    return store.open()


def _create(sweep: Sweep, path: Path) -> None:
    """Create a store with the solved coarse grid and without results."""
    coarse, lane, device = sweep.coarse()
    grid, variables = sweep.grid, {}
    for name, column in kept_columns(lane).items():
        inner = column.shape[1:]
        shapes = (*grid.shape, *inner), (*sweep.chunk, *inner)
        variables[name] = sweep.dims(name, column), *shapes, column.dtype, sweep.attributes(name)
    nodes = tuple(f"start_{name}" for name in grid.names)
    coordinates = grid.coordinates | {node: ((node,), axis, {}) for node, axis in zip(nodes, coarse.axes, strict=True)}
    starts = {"start_y": ((*nodes, "start_coordinate"), coarse.y, {"long_name": "initial guesses on a coarse grid"})}
    create(path, sweep.metadata | {"device": device}, coordinates | starts, variables)


def _complete(sweep: Sweep, store: Store, device: str) -> None:
    """Compute the chunks that are missing or damaged."""
    coarse = sweep.solver.unsolved(sweep.grid.values)
    coarse.y = store.guesses()
    left = []
    for i in range(len(store.chunks)):
        if (damaged := store.damaged(i)) != []:
            left.append(i)
        if damaged:
            warn(
                f"{store.path}: the chunk {store.box(i)} is damaged ({', '.join(damaged)} {NOT_AS_WRITTEN}). "
                "The chunk is computed again."
            )
            store.discard(i)
    if left:
        sweep.workers.compile("compiling", sweep.progress)
    boxes = [store.chunks[i] for i in left]
    done = sweep.grid.size - sum(int(np.prod([each.stop - each.start for each in box])) for box in boxes)
    remedy = f"Every finished chunk is in {store.path}: sweep again with resume=True."
    for k, columns in sweep.solved(coarse, boxes, done, device, remedy):
        store.write(left[k], columns)
