"""Checksums of the files of a store that never change: metadata, coordinates, initial guesses.

The chunks of the results have their own checksums, by zarr's codec `crc32c`.
"""

import hashlib
import json
from pathlib import Path

# In the directory of an array, where zarr does not look for other arrays.
_CHECKSUMS = Path("result") / "checksums"


def record_checksums(store: Path) -> None:
    """Write the checksums of all files of a new store."""
    metadata = store / "zarr.json", *sorted(store.glob("*/zarr.json"))
    files = (*metadata, *(path for path in sorted(store.glob("*/c/**/*")) if path.is_file()))
    sums = {path.relative_to(store).as_posix(): _digest(path) for path in files}
    (store / _CHECKSUMS).write_text(json.dumps(sums))


def require_unchanged(store: Path) -> None:
    """`ValueError` with the file of a store that is missing or differs from its checksum."""
    try:
        sums = dict(json.loads((store / _CHECKSUMS).read_text()))
    except (OSError, ValueError, TypeError):
        raise ValueError(f"the file {_CHECKSUMS} is missing or damaged.") from None
    for name, digest in sums.items():
        try:
            same = _digest(store / name) == digest
        except (OSError, ValueError):
            raise ValueError(f"the file {name} is missing or cannot be read.") from None
        if not same:
            raise ValueError(f"the file {name} is damaged: it differs from its checksum.")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
