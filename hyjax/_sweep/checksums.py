"""Checksums of a store: of the files that never change, and of each chunk of the results.

Zarr's codec `crc32c` notices a damaged chunk, but not a chunk in the wrong place. The checksum of a part of a chunk is therefore
one of its values together with the sweep, the name of the variable and the place of the chunk. A sweep is identified by the
checksums of its files that never change: metadata, coordinates, initial guesses.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

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
