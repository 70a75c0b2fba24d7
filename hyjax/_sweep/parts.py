"""Unfinished directories: a store is made in a directory of another name, and renamed when it is complete.

A process holds a lock in the directory that it fills. So a directory whose lock is free was left by a process that was killed.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .lock import LOCK, Lock


@contextmanager
def renamed_when_complete(path: Path) -> Iterator[Path]:
    """An empty directory beside `path`, renamed to `path` at the end; deleted after an error, which goes on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.iterdir():
        if left.name.startswith(f"{path.name}.") and left.suffix == ".part":
            _remove_if_left(left)
    part, lock = _locked_part(path)
    try:
        yield part
        os.rename(part, path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    finally:
        lock.close()


def _locked_part(path: Path) -> tuple[Path, Lock]:
    while True:
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
        (part / LOCK).parent.mkdir(parents=True)
        lock = Lock(part / LOCK)
        # Between the two lines above another process may have taken the directory for one that was left.
        if lock.taken is not False and (part / LOCK).exists():
            return part, lock
        lock.close()


def _remove_if_left(part: Path) -> None:
    if not (part / LOCK).exists():
        return
    lock = Lock(part / LOCK)
    if lock.taken:
        shutil.rmtree(part, ignore_errors=True)
    lock.close()
