"""A sweep on disk: one zarr store, written chunk by chunk, with the provenance of its results.

A chunk is finished when its result codes exist: they are written last, and zarr writes every file atomically. While a process
computes a chunk it locks one byte of a lock file; the operating system releases the lock when the process ends in any way.
"""

import contextlib
import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any, TYPE_CHECKING

import numpy as np

from .._system.results import RESULTS

if TYPE_CHECKING:
    import xarray

# The result code of a point that has not been computed.
PENDING = -1
INDEX = tuple[slice, ...]


class StoreError(RuntimeError):
    """The store of a sweep cannot be created, written or resumed; the message names the path and the remedy.

    Raised by `sweep(out=...)`: where the path exists without `resume`, where a file cannot be written (every finished chunk is
    kept), and where an existing store has another provenance (such as other parameters, grid, start or integrator).
    """


def chunk_shape(shape: tuple[int, ...], lanes: int) -> tuple[int, ...]:
    """The shape of the boxes of at most `lanes` points that tile a grid; the longest side is halved first."""
    chunk = list(shape)
    while np.prod(chunk) > lanes:
        longest = int(np.argmax(chunk))
        chunk[longest] = -(-chunk[longest] // 2)
    return tuple(chunk)


def chunks_of(shape: tuple[int, ...], chunk: tuple[int, ...]) -> list[INDEX]:
    """The boxes that tile a grid, in the order of the grid."""
    counts = [-(-n // c) for n, c in zip(shape, chunk, strict=True)]
    return [
        tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(place, chunk, shape, strict=True))
        for place in np.ndindex(*counts)
    ]


class Store:
    """An existing store of a sweep.

    **Attributes:** `dims`: the names of the grid's dimensions. `chunks`: the boxes of the grid.
    """

    def __init__(self, path: Path, dims: tuple[str, ...], chunks: list[INDEX]):
        self.path, self.dims, self.chunks = path, dims, chunks
        # In the directory of an array, where zarr does not look for other arrays.
        self.locks = Locks(path / "result" / "locks")

    def finished(self) -> np.ndarray:
        """Which chunks are finished, shape `(chunks,)`."""
        import zarr

        codes: Any = zarr.open_array(self.path / "result", mode="r")[...]
        return np.array([bool(np.all(codes[box] != PENDING)) for box in self.chunks])

    def is_finished(self, i: int) -> bool:
        """Whether chunk `i` is finished."""
        import zarr

        array = zarr.open_array(self.path / "result", mode="r")
        return bool(np.all(np.asarray(array[self.chunks[i]]) != PENDING))

    def write(self, i: int, data: dict[str, tuple[tuple[str, ...], np.ndarray]]) -> None:
        """Write one chunk, `name -> (dimensions, values)`; the result codes last."""
        import xarray

        box = dict(zip(self.dims, self.chunks[i], strict=True))
        try:
            for names in (set(data) - {"result"}, set(data) & {"result"}):
                if not names:
                    continue
                part = xarray.Dataset({name: data[name] for name in sorted(names)})
                part.to_zarr(self.path, region=box, mode="r+", consolidated=False)
        except OSError as error:
            where = ", ".join(f"{dim} {each.start}:{each.stop}" for dim, each in box.items())
            raise StoreError(
                f"{self.path}: the chunk {where} could not be written ({error.strerror or error}). Every finished chunk is "
                "kept: free space on the disk, and resume."
            ) from error

    def open(self) -> "xarray.Dataset":
        """The dataset of the store, read on access."""
        import xarray

        return xarray.open_zarr(self.path, consolidated=False, chunks=None)  # pyright: ignore


class Locks:
    """Locks of the chunks, each held by at most one process; on a system without file locks every lock is free."""

    def __init__(self, path: Path):
        try:
            import fcntl

            self._lock = fcntl
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except (ImportError, OSError):
            self._lock = None

    def take(self, i: int) -> bool:
        """Take lock `i`; whether it was free."""
        if self._lock is None:
            return True
        try:
            self._lock.lockf(self._file, self._lock.LOCK_EX | self._lock.LOCK_NB, 1, i)
        except BlockingIOError:
            return False
        except OSError:
            # A file system without locks: two processes may compute a chunk, with equal results.
            return True
        return True

    def release(self, i: int) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._lock.lockf(self._file, self._lock.LOCK_UN, 1, i)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._file)
            self._lock = None


def create(
    path: Path,
    metadata: dict[str, Any],
    coordinates: dict[str, tuple[tuple[str, ...], np.ndarray, dict]],
    variables: dict[str, tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...], Any, dict]],
) -> None:
    """Create an empty store, atomically; a store that another process has created meanwhile is left as it is.

    **Arguments:** `metadata`: attributes of the store. `coordinates`: `name -> (dimensions, values, attributes)`. `variables`:
    `name -> (dimensions, shape, chunk, dtype, attributes)`.
    """
    import zarr

    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        root = zarr.create_group(part, zarr_format=3, attributes=metadata)
        for name, (dims, values, attributes) in coordinates.items():
            array = root.create_array(
                name, shape=values.shape, chunks=values.shape, dtype=values.dtype, dimension_names=dims,
                attributes=attributes,
            )  # fmt: skip
            array[...] = values
        for name, (dims, shape, chunk, dtype, attributes) in variables.items():
            kind = np.dtype(dtype).kind
            fill: Any = PENDING if name == "result" else np.nan if kind in "fc" else np.zeros((), dtype)[()]
            root.create_array(
                name,
                shape=shape,
                chunks=chunk,
                dtype=dtype,
                dimension_names=dims,
                attributes=attributes,
                fill_value=fill,
            )
        os.rename(part, path)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        if not (path / "zarr.json").exists():
            raise StoreError(
                f"{path}: the store cannot be made ({error.strerror or error}). Write to another path."
            ) from error


def require_same(path: Path, metadata: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an existing store; `StoreError` where they differ from `metadata`."""
    try:
        stored = json.loads((path / "zarr.json").read_text()).get("attributes", {})
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{path}: this is not a store that can be resumed ({error}). Write to another path."
        ) from error
    metadata = json.loads(json.dumps(metadata))
    differing = [name for name in metadata if stored.get(name) != metadata[name]]
    if differing:
        name = differing[0]
        raise StoreError(
            f"{path}: cannot be resumed: its {name} is {_brief(stored.get(name))}, that of this call "
            f"{_brief(metadata[name])}. Request the same sweep, or write to another path."
        )
    return stored


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:120]} ... {text[-60:]}"


def code_attributes() -> dict[str, Any]:
    """Attributes of a variable of result codes, after the climate and forecast (CF) metadata conventions."""
    names = {int(item._value): name for name, item in RESULTS._name_to_item.items()}
    return {
        "long_name": "result code",
        "flag_values": [PENDING, *names],
        "flag_meanings": " ".join(["pending", *names.values()]),
    }
