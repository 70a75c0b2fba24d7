"""The chunks of a sweep, computed by several threads and processes: into memory, or into a store."""

import time
import warnings
from collections import deque
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TYPE_CHECKING

import jax
import numpy as np

from .._flow.dataset import load_xarray
from .._system.working import working
from .chunk_solver import ChunkSolver, kept_columns
from .progress import progress_bar
from .starts import CoarseGrid
from .store import attributes_of, chunks_of, create, require_same, Store, StoreError

if TYPE_CHECKING:
    import xarray


def solve_in_memory(
    solver: ChunkSolver, metadata: dict[str, Any], chunk: tuple[int, ...], progress: bool | None
) -> "xarray.Dataset":
    """All chunks, as a dataset in memory. **Arguments:** `chunk`: the shape of a chunk."""
    xarray = load_xarray()
    with working("compiling, and following the orbit over a coarse grid", progress):
        coarse, _ = solver.coarse()
    grid, whole = solver.grid, {}
    chunks = chunks_of(grid.shape, chunk)
    with progress_bar("orbits", grid.size, 0, progress) as advance, ThreadPoolExecutor(solver.lanes.threads) as pool:
        for box, part in zip(chunks, pool.map(lambda box: solver.solve(coarse, box), chunks), strict=True):
            for name, (dims, column) in part.items():
                if name not in whole:
                    whole[name] = dims, np.zeros((*grid.shape, *column.shape[len(box) :]), column.dtype)
                whole[name][1][box] = column
            advance(part["result"][1].size)
    data = {name: (dims, column, solver.attributes(name)) for name, (dims, column) in whole.items()}
    coords = {name: tuple(each) for name, each in grid.coordinates.items()}
    return xarray.Dataset(data, coords, metadata).assign_coords(coordinate=list(solver.coordinates))


def solve_in_store(
    solver: ChunkSolver,
    metadata: dict[str, Any],
    chunk: tuple[int, ...],
    path: Path,
    resume: bool,
    progress: bool | None,
) -> "xarray.Dataset":
    """All chunks, in a store that is created, or completed with `resume`; as a dataset read from the store."""
    load_xarray()
    if path.exists():
        # Of several processes that start together, one creates the store: so only process 0 takes an existing path for an error.
        if not resume and jax.process_index() == 0:
            raise StoreError(f"{path}: the path exists already. Resume the store, or write to another path.")
    else:
        with working("compiling, and following the orbit over a coarse grid", progress):
            _create(solver, metadata, chunk, path)
    stored = attributes_of(path)
    store = Store(path)
    require_same(path, stored, metadata)
    return _complete(solver, store, progress)


def _create(solver: ChunkSolver, metadata: dict[str, Any], chunk: tuple[int, ...], path: Path) -> None:
    """Create a store with the solved coarse grid and without results."""
    coarse, lane = solver.coarse()
    grid, variables = solver.grid, {}
    for name, column in kept_columns(lane).items():
        inner = column.shape[1:]
        shapes = (*grid.shape, *inner), (*chunk, *inner)
        variables[name] = solver.dims(name, column), *shapes, column.dtype, solver.attributes(name)
    nodes = tuple(f"start_{name}" for name in grid.names)
    coordinates = grid.coordinates | {node: ((node,), axis, {}) for node, axis in zip(nodes, coarse.axes, strict=True)}
    starts = {"start_y": ((*nodes, "start_coordinate"), coarse.y, {"long_name": "initial guesses on a coarse grid"})}
    create(path, metadata, coordinates | starts, variables)


def _complete(solver: ChunkSolver, store: Store, progress: bool | None) -> "xarray.Dataset":
    """Compute the chunks that are missing or damaged. A chunk that another process has locked is tried again at the end."""
    chunks, locks = store.chunks, store.locks()
    coarse = CoarseGrid(solver.grid.values, 1, float, solver.strict)
    coarse.y = store.guesses()
    done = np.array([store.is_finished(i) for i in range(len(chunks))])
    size = lambda i: int(np.prod([each.stop - each.start for each in chunks[i]]))
    # Each process begins with chunks of its own.
    order = lambda i: (i % jax.process_count() != jax.process_index(), i)
    queue = deque(sorted((int(i) for i in np.flatnonzero(~done)), key=order))
    elsewhere, running = deque(), {}
    finished = sum(size(i) for i in np.flatnonzero(done))
    pool = ThreadPoolExecutor(solver.lanes.threads)
    try:
        with progress_bar("orbits", solver.grid.size, finished, progress) as advance:
            while queue or running or elsewhere:
                while queue and len(running) <= solver.lanes.threads:
                    i = queue.popleft()
                    if not locks.take(i):
                        elsewhere.append(i)
                    elif store.is_finished(i):
                        locks.release(i)
                        advance(size(i))
                    else:
                        _discard_damaged(store, i)
                        running[pool.submit(solver.solve, coarse, chunks[i])] = i
                if running:
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        i = running.pop(future)
                        store.write(i, future.result())
                        locks.release(i)
                        advance(size(i))
                elif elsewhere:
                    time.sleep(0.2)
                    queue, elsewhere = elsewhere, deque()
    finally:
        pool.shutdown(cancel_futures=True)
        locks.close()
    return store.open()


def _discard_damaged(store: Store, i: int) -> None:
    """Delete what is left of a damaged chunk, with a warning that the chunk is computed again."""
    if names := store.damaged(i):
        warnings.warn(
            f"{store.path}: the chunk {store.box(i)} is damaged ({', '.join(names)} missing or not equal to the checksum). "
            "The chunk is computed again.",
            stacklevel=2,
        )
        store.discard(i)
