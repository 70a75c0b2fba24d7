"""The chunks of a sweep, computed by threads or by an executor's workers: into memory, or into a store.

A chunk is a pure function of the solved coarse grid and of the chunk's values on the axes. This process alone writes the store.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TYPE_CHECKING

import numpy as np

from .._results.dataset import load_xarray
from .._results.long_names import described
from .._results.progress import progress_bar
from .._results.warn import warn
from .._results.working import working
from .chunk_solver import ChunkSolver, kept_columns
from .continued_starts import CoarseGrid
from .remote import device_kind
from .store import attributes_of, box_text, chunks_of, create, INDEX, NOT_AS_WRITTEN, require_same, Store, StoreError
from .variables import Variables
from .workers import Workers

if TYPE_CHECKING:
    import xarray

COARSE = "sweep: the coarse grid"


class Sweep(NamedTuple):
    """The task of a sweep, and the workers that compute it.

    **Attributes:** `metadata`: the provenance, without the kind of device. `chunk`: the shape of a chunk. `progress`: whether to
    show a bar.
    """

    solver: ChunkSolver
    variables: Variables
    metadata: dict[str, Any]
    chunk: tuple[int, ...]
    workers: Workers
    progress: bool | None

    def coarse(self) -> tuple[CoarseGrid, dict[str, np.ndarray], str]:
        """The solved coarse grid, the columns of one lane, and the kind of device."""
        with working("compiling, and following the orbit over a coarse grid", self.progress):
            unsolved = self.solver.unsolved(self.variables.grid.values)
            (coarse, lane), device = self.workers.call("coarse", unsolved, what=COARSE)
        return coarse, lane, device

    def solved(
        self, coarse: CoarseGrid, boxes: list[INDEX], done: int, device: str, remedy: str
    ) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """The number of each box with its columns, in the order in which they are finished. **Arguments:** `done`: points of the
        grid finished before. `device`: the only kind of device whose results are taken."""
        grid = self.variables.grid
        named = lambda i: f"sweep: the chunk {box_text(grid.names, boxes[i])}"
        calls = ((coarse, grid.axes(box)) for box in boxes)
        with progress_bar("orbits", grid.size, done, self.progress) as advance:
            for i, columns in self.workers.each("solve", calls, named, remedy, device):
                yield i, columns
                advance(columns["result"].size)


def solve_in_memory(sweep: Sweep) -> "xarray.Dataset":
    """All chunks, as a dataset in memory."""
    xarray = load_xarray()
    coarse, _, device = sweep.coarse()
    variables, grid, whole = sweep.variables, sweep.variables.grid, {}
    boxes = chunks_of(grid.shape, sweep.chunk)
    for i, columns in sweep.solved(coarse, boxes, 0, device, ""):
        for name, column in columns.items():
            if name not in whole:
                whole[name] = variables.dims(name, column), np.zeros((*grid.shape, *column.shape[1:]), column.dtype)
            place = whole[name][1][boxes[i]]
            place[...] = column.reshape(place.shape)
    data = {name: (dims, column, variables.attributes(name)) for name, (dims, column) in whole.items()}
    coords = {name: tuple(each) for name, each in grid.coordinates.items()}
    found = xarray.Dataset(data, coords, sweep.metadata | {"device": device})
    return described(found.assign_coords(coordinate=list(variables.coordinates)))


def solve_in_store(sweep: Sweep, path: Path, resume: bool) -> "xarray.Dataset":
    """All chunks, in a store that is created, or completed with `resume`; as a dataset read from the store."""
    load_xarray()
    if not path.exists():
        _create(sweep, path)
    elif not resume:
        raise StoreError(f"{path}: the path exists already. Resume the store, or write to another path.")
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
    grid, variables = sweep.variables.grid, {}
    for name, column in kept_columns(lane).items():
        inner = column.shape[1:]
        shapes = (*grid.shape, *inner), (*sweep.chunk, *inner)
        variables[name] = sweep.variables.dims(name, column), *shapes, column.dtype, sweep.variables.attributes(name)
    nodes = tuple(f"start_{name}" for name in grid.names)
    coordinates = grid.coordinates | {node: ((node,), axis, {}) for node, axis in zip(nodes, coarse.axes, strict=True)}
    starts = {"start_y": ((*nodes, "start_coordinate"), coarse.y, {"long_name": "initial guesses on a coarse grid"})}
    create(path, sweep.metadata | {"device": device}, coordinates | starts, variables)


def _complete(sweep: Sweep, store: Store, device: str) -> None:
    """Compute the chunks that are missing or damaged."""
    coarse = sweep.solver.unsolved(sweep.variables.grid.values)
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
    done = sweep.variables.grid.size - sum(int(np.prod([each.stop - each.start for each in box])) for box in boxes)
    remedy = f"Every finished chunk is in {store.path}: sweep again with resume=True."
    for k, columns in sweep.solved(coarse, boxes, done, device, remedy):
        store.write(left[k], columns)
