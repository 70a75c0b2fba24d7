"""The file of a saved result: a zip archive of NumPy arrays, `.npz`, and one JSON text that describes them.

No pickle: nothing in a file is executed. The text holds a checksum of each array, and the archive one of the text.
"""

import hashlib
import io
import json
import os
import uuid
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "hyjax result"
VERSION = 1
_TEXT, _CHECKSUM = "result.json", "result.json.sha256"


def write_archive(path: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a file, complete or not at all: another file of that name is replaced at the end. `OSError` where this fails."""
    parts = {f"{name}.npy": _npy(array) for name, array in arrays.items()}
    sums = {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}
    text = json.dumps({"format": FORMAT, "version": VERSION} | about | {"checksums": sums}, indent=1).encode()
    parts = {_TEXT: text, _CHECKSUM: hashlib.sha256(text).hexdigest().encode()} | parts
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, part in parts.items():
                archive.writestr(name, part)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_text(path: Path) -> dict[str, Any]:
    """The description in a file. `ValueError` for a file of another kind, of a newer format, or damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            if _TEXT not in archive.namelist():
                raise ValueError(f"{path}: this is not a result that hj.save wrote: it has no {_TEXT}.")
            text = _member(path, archive, _TEXT)
            checksum = _member(path, archive, _CHECKSUM)
    except zipfile.BadZipFile:
        raise ValueError(
            f"{path}: this is not a result that hj.save wrote, or it is damaged: it is no zip archive. A dataset (.nc) is "
            "read by xarray.load_dataset, the store of a sweep by hj.load."
        ) from None
    if hashlib.sha256(text).hexdigest().encode() != checksum:
        raise _damaged(path, _TEXT)
    about = json.loads(text)
    if about.get("format") != FORMAT:
        raise ValueError(f"{path}: this is not a result that hj.save wrote: its format is {about.get('format')!r}.")
    if about["version"] != VERSION:
        raise ValueError(
            f"{path}: the file has version {about['version']} of the format, written by hyjax "
            f"{about.get('versions', {}).get('hyjax')}; this hyjax reads version {VERSION}. Read it with that hyjax."
        )
    return about


def read_arrays(path: Path, about: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a file by name. `ValueError` for one that is missing, or differs from its checksum."""
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for name, checksum in about["checksums"].items():
            part = _member(path, archive, name)
            if hashlib.sha256(part).hexdigest() != checksum:
                raise _damaged(path, name)
            arrays[name.removesuffix(".npy")] = np.lib.format.read_array(io.BytesIO(part), allow_pickle=False)
    return arrays


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        return archive.read(name)
    except KeyError:
        raise ValueError(f"{path}: the file is damaged: its part {name} is missing. Restore it from a copy.") from None
    except Exception:  # by the archive's own checksum, or any decoder before it
        raise _damaged(path, name) from None


def _damaged(path: Path, name: str) -> ValueError:
    return ValueError(
        f"{path}: the file is damaged: its part {name} differs from its checksum. Restore it from a copy."
    )


def _npy(array: np.ndarray) -> bytes:
    whole = io.BytesIO()
    np.lib.format.write_array(whole, array, allow_pickle=False)
    return whole.getvalue()
