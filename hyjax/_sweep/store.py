"""A sweep on disk: one zarr store, written chunk by chunk, with the provenance of its results.

A chunk is finished when its result codes exist and all its parts agree with their checksums, which also say where each part
belongs: the codes are written last, and zarr writes every file atomically. While a process completes the store it holds the
store's lock, which the operating system releases when the process ends in any way.

A new store is made in a directory of another name, and renamed when it is complete. A process holds a lock in the directory that
it fills, so a directory whose lock is free was left by a process that was killed.

Zarr's codec `crc32c` notices a damaged chunk, but not a chunk in the wrong place. The checksum of a part of a chunk is therefore
one of its values together with the sweep, the name of the variable and the place of the chunk. A sweep is identified by the
checksums of its files that never change: metadata, coordinates, initial guesses.
"""

import functools as ft
import hashlib
import json
import os
import shutil
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TYPE_CHECKING

import numpy as np

from .._results.labels import described
from .._results.registry import load_xarray, needed
from .._system.results import code_flags, SolveError

if TYPE_CHECKING:
    import xarray


# The file of a store's lock: in the directory of an array, where zarr does not look for other arrays.
LOCK = Path("result") / "lock"


def lock(path: Path) -> tuple[bool | None, Callable[[], None]]:
    """A lock on a file, held by at most one caller of one process: whether it was free, and is held now, `None` on a system or a
    file system without locks; and the function that releases it."""
    file, taken = None, None
    try:
        import fcntl

        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        taken = True
    except BlockingIOError:
        taken = False
    except (ImportError, OSError):
        pass
    return taken, (lambda: None) if file is None else ft.partial(os.close, file)


@contextmanager
def renamed_when_complete(path: Path) -> Iterator[Path]:
    """An empty directory beside `path`, renamed to `path` at the end; deleted after an error, which goes on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.iterdir():
        if left.name.startswith(f"{path.name}.") and left.suffix == ".part" and (left / LOCK).exists():
            taken, release = lock(left / LOCK)
            if taken:
                shutil.rmtree(left, ignore_errors=True)
            release()
    part, release = _locked_part(path)
    try:
        yield part
        os.rename(part, path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    finally:
        release()


def _locked_part(path: Path) -> tuple[Path, Callable[[], None]]:
    """A new directory beside `path`, and the function that releases its lock."""
    while True:
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
        (part / LOCK).parent.mkdir(parents=True)
        taken, release = lock(part / LOCK)
        # Between the two lines above another process may have taken the directory for one that was left.
        if taken is not False and (part / LOCK).exists():
            return part, release
        release()


# In the directory of an array, where zarr does not look for other arrays.
_CHECKSUMS, _CHUNKS = Path("result") / "checksums", Path("result") / "chunks"
# The attribute of a store whose chunks have checksums.
BOUND = {"chunk_checksums": "sha256 of sweep, variable, place and values"}


def record_checksums(store: Path) -> None:
    """Write the checksums of all files of a new store."""
    metadata = store / "zarr.json", *sorted(store.glob("*/zarr.json"))
    files = (*metadata, *(path for path in sorted(store.glob("*/c/**/*")) if path.is_file()))
    sums = {path.relative_to(store).as_posix(): _digest(path) for path in files}
    (store / _CHECKSUMS).write_text(json.dumps(sums))
    (store / _CHUNKS).mkdir(exist_ok=True)


def require_unchanged(store: Path) -> str:
    """The identity of the sweep. `ValueError` with the file of a store that is missing or differs from its checksum, or with an
    array that the sweep does not have."""
    try:
        text = (store / _CHECKSUMS).read_text()
        sums = dict(json.loads(text))
    except (OSError, ValueError, TypeError):
        raise ValueError(f"the file {_CHECKSUMS} is missing or damaged.") from None
    for name, digest in sums.items():
        try:
            same = _digest(store / name) == digest
        except (OSError, ValueError):
            raise ValueError(f"the file {name} is missing or cannot be read.") from None
        if not same:
            raise ValueError(f"the file {name} is damaged: it differs from its checksum.")
    for path in sorted(store.glob("*/zarr.json")):
        if path.relative_to(store).as_posix() not in sums:
            raise ValueError(f"the array {path.parent.name} is not one of this sweep.")
    return hashlib.sha256(text.encode()).hexdigest()


def chunk_checksum(sweep: str, variable: str, place: tuple[int, ...], values: np.ndarray) -> str:
    """The checksum of the values of a variable in the chunk at a place of a sweep."""
    bound = json.dumps([sweep, variable, place, values.dtype.str, values.shape])
    return hashlib.sha256(bound.encode() + np.ascontiguousarray(values).tobytes()).hexdigest()


def chunk_checksums_file(store: Path, i: int) -> Path:
    """The file with the checksums of chunk `i`."""
    return store / _CHUNKS / str(i)


def write_chunk_checksums(store: Path, i: int, sums: dict[str, str]) -> None:
    """Write the checksums of chunk `i`, by variable, atomically."""
    path = chunk_checksums_file(store, i)
    part = path.with_name(f"{i}.part")
    part.write_text(json.dumps(sums))
    os.replace(part, path)


def chunk_checksums(store: Path, i: int) -> dict[str, Any] | None:
    """The checksums of chunk `i`; `None` where they are missing or damaged."""
    try:
        return dict(json.loads(chunk_checksums_file(store, i).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# The result code of a point that has not been computed.
PENDING = -1
NOT_AS_WRITTEN = "missing, or not what the checksum says of this sweep and place"
INDEX = tuple[slice, ...]


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


def box_text(names: tuple[str, ...], box: INDEX) -> str:
    """A box of a grid, for a message."""
    return ", ".join(f"{name} {each.start}:{each.stop}".strip() for name, each in zip(names, box, strict=True))


class Store:
    """An existing store of a sweep. `SolveError` where metadata, coordinates or initial guesses are damaged.

    **Attributes:** `dims`: the names of the grid's dimensions. `chunks`: the boxes of the grid.
    """

    def __init__(self, path: Path):
        zarr = needed("zarr", "data", "Stores of sweeps")

        try:
            self._sweep = require_unchanged(path)
        except ValueError as error:
            raise SolveError(f"{path}: {error} Restore it from a copy, or delete the store and sweep again.") from None
        self.path = path
        group = zarr.open_group(path, mode="r")
        if not BOUND.items() <= dict(group.attrs).items():
            raise SolveError(
                f"{path}: its chunks have no checksums that bind them to their places: another version of hyjax wrote this "
                "store. Sweep again, to another path."
            )
        arrays = dict(group.arrays())
        codes = arrays["result"]
        self.dims: tuple[str, ...] = tuple(codes.metadata.dimension_names or ())  # pyright: ignore
        self.chunks = chunks_of(codes.shape, codes.chunks)
        self._places = list(np.ndindex(*(-(-n // c) for n, c in zip(codes.shape, codes.chunks, strict=True))))
        over_grid = lambda array: (array.metadata.dimension_names or ())[: len(self.dims)] == self.dims
        self.arrays: dict[str, Any] = {
            name: array for name, array in arrays.items() if name not in self.dims and over_grid(array)
        }

    def damaged(self, i: int) -> list[str] | None:
        """The variables whose part of chunk `i` is missing, damaged, or of another place or sweep; `None` for a chunk not yet
        computed, without result codes."""
        if not self._file("result", i).exists():
            return None
        codes = self._read("result", i)
        if codes is not None and np.any(codes == PENDING):
            return None
        sums = chunk_checksums(self.path, i)
        if sums is None:
            return ["checksums"]
        return [name for name in sorted(self.arrays) if not self._agrees(name, i, sums)]

    def box(self, i: int) -> str:
        """Chunk `i`, for a message."""
        return box_text(self.dims, self.chunks[i])

    def discard(self, i: int) -> None:
        """Delete what is left of chunk `i`; the result codes first, so that the chunk counts as not computed."""
        for path in (*(self._file(name, i) for name in ("result", *self.arrays)), chunk_checksums_file(self.path, i)):
            # Even a directory may lie in the place of a file.
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def write(self, i: int, data: dict[str, np.ndarray]) -> None:
        """Write one chunk, from name to values, shape `(points, ...)`: its checksums, and the result codes last."""
        shape = tuple(each.stop - each.start for each in self.chunks[i])
        boxes = {
            name: values.reshape(*shape, *values.shape[1:]).astype(self.arrays[name].dtype)
            for name, values in data.items()
        }
        try:
            write_chunk_checksums(self.path, i, {name: self._checksum(name, i, box) for name, box in boxes.items()})
            for name in sorted(boxes, key=lambda name: (name == "result", name)):
                self._array(name)[self.chunks[i]] = boxes[name]
        except OSError as error:
            raise SolveError(
                f"{self.path}: the chunk {self.box(i)} could not be written ({error.strerror or error}). Every finished chunk "
                "is kept: free space on the disk, and resume."
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the store's lock. `SolveError` where another process holds the lock."""
        taken, release = lock(self.path / LOCK)
        try:
            if taken is False:
                raise SolveError(
                    f"{self.path}: another process computes this store. Wait until that process has ended, or write to another "
                    "path; to compute with several processes, give one sweep an executor."
                )
            yield
        finally:
            release()

    def guesses(self) -> np.ndarray:
        """The initial guesses on the coarse grid."""
        import zarr

        return np.asarray(zarr.open_array(self.path / "start_y", mode="r")[...])

    def open(self) -> "xarray.Dataset":
        """The dataset of the store, read on access."""
        import xarray

        found = xarray.open_zarr(self.path, consolidated=False, chunks=None)  # pyright: ignore
        found = found.drop_vars(["start_y", *(f"start_{name}" for name in self.dims)])
        found.attrs = {name: value for name, value in found.attrs.items() if name not in BOUND}
        return described(found.assign_coords(coordinate=list(found.attrs["coordinates"])))

    def _array(self, name: str):
        import zarr

        # A part equal to the fill value is written too: a part that is missing was never written, or is lost.
        with zarr.config.set({"array.write_empty_chunks": True}):
            return zarr.open_array(self.path / name, mode="r+")

    def _file(self, name: str, i: int) -> Path:
        array = self.arrays[name]
        inner = (0,) * (array.ndim - len(self.dims))
        return self.path / name / array.metadata.encode_chunk_key((*self._places[i], *inner))

    def _read(self, name: str, i: int) -> np.ndarray | None:
        """The part of a variable in chunk `i`, `None` where it is missing or differs from the checksum that zarr keeps in it."""
        # Where a directory lies in the place of its file, zarr takes a chunk as never written.
        if not self._file(name, i).is_file():
            return None
        try:
            return np.asarray(self.arrays[name][self.chunks[i]])
        except Exception:  # by the checksum or any decoder before it, whose errors zarr does not document
            return None

    def _checksum(self, name: str, i: int, values: np.ndarray) -> str:
        return chunk_checksum(self._sweep, name, self._places[i], values)

    def _agrees(self, name: str, i: int, sums: dict[str, Any]) -> bool:
        """Whether the part of a variable in chunk `i` is sound, and the one written there."""
        values = self._read(name, i)
        return values is not None and sums.get(name) == self._checksum(name, i, values)


def open_sweep(path: str | Path) -> "xarray.Dataset":
    """The dataset of a store that `sweep(out=...)` wrote, for `hyjax.load`."""
    load_xarray()
    path = Path(path)
    remedy = "Restore it from a copy; a store of another program is read by xarray.open_zarr."
    if not BOUND.items() <= attributes_of(path, remedy).items() and not (path / "result").is_dir():
        raise SolveError(f"{path}: neither a sweep nor hj.save wrote this store. {remedy}")
    store = Store(path)
    for i in range(len(store.chunks)):
        if names := store.damaged(i):
            raise SolveError(
                f"{path}: the chunk {store.box(i)} is damaged ({', '.join(names)} {NOT_AS_WRITTEN}). Sweep "
                "again with resume: the chunk is computed again."
            )
    return store.open()


def create(
    path: Path,
    metadata: dict[str, Any],
    coordinates: dict[str, tuple[tuple[str, ...], np.ndarray, dict]],
    variables: dict[str, tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...], Any, dict]],
) -> None:
    """Create an empty store, atomically. `SolveError` where it cannot be made, or another process has made it meanwhile.

    **Arguments:** `metadata`: attributes of the store. `coordinates`: `name -> (dimensions, values, attributes)`. `variables`:
    `name -> (dimensions, shape, chunk, dtype, attributes)`.
    """
    zarr = needed("zarr", "data", "Stores of sweeps")
    from zarr.codecs import Crc32cCodec, ZstdCodec

    codecs = (ZstdCodec(), Crc32cCodec())
    try:
        with renamed_when_complete(path) as part:
            root = zarr.create_group(part, zarr_format=3, attributes=metadata | BOUND)
            for name, (dims, values, attributes) in coordinates.items():
                array = root.create_array(
                    name, shape=values.shape, chunks=values.shape, dtype=values.dtype, dimension_names=dims,
                    attributes=attributes, compressors=codecs, config={"write_empty_chunks": True},
                )  # fmt: skip
                array[...] = values
            for name, (dims, shape, chunk, dtype, attributes) in variables.items():
                kind = np.dtype(dtype).kind
                fill: Any = PENDING if name == "result" else np.nan if kind in "fc" else np.zeros((), dtype)[()]
                root.create_array(
                    name, shape=shape, chunks=chunk, dtype=dtype, dimension_names=dims, attributes=attributes,
                    fill_value=fill, compressors=codecs,
                )  # fmt: skip
            consolidate(part)
            record_checksums(part)
    except OSError as error:
        reason = "another process has made it meanwhile" if path.exists() else error.strerror or error
        raise SolveError(f"{path}: the store cannot be made ({reason}). Write to another path.") from error


def consolidate(store: Path) -> None:
    """Copy the metadata of all arrays, which never change, into the file of the store: xarray reads only one file, and does not
    warn that there is none of that kind."""
    import zarr

    with warnings.catch_warnings():
        # zarr 3.1.6 warns that this is not yet part of version 3 of the format; every reader may ignore it.
        warnings.filterwarnings("ignore", "Consolidated metadata")
        zarr.consolidate_metadata(store)


def attributes_of(path: Path, remedy: str = "Write to another path.") -> dict[str, Any]:
    """The attributes of an existing store; `SolveError` where the path is none, with the remedy."""
    try:
        found = json.loads((path / "zarr.json").read_text())
        return dict(found["attributes"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SolveError(
            f"{path}: this is not a store of a sweep, or is damaged ({type(error).__name__}: {error}). {remedy}"
        ) from error


def require_same(path: Path, stored: dict[str, Any], metadata: dict[str, Any]) -> None:
    """`SolveError` where `stored`, the attributes of an existing store, differ from `metadata`."""
    metadata = json.loads(json.dumps(metadata))
    differing = [name for name in metadata if stored.get(name) != metadata[name]]
    if differing:
        name = differing[0]
        raise SolveError(
            f"{path}: cannot be resumed: its {name} is {_brief(stored.get(name))}, that of this call "
            f"{_brief(metadata[name])}. Request the same sweep, or write to another path."
        )


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:120]} ... {text[-60:]}"


def code_attributes() -> dict[str, Any]:
    """Attributes of a variable of result codes, with the code of a point that has not been computed."""
    return code_flags(pending=PENDING)
