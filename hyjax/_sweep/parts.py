"""Unfinished directories: a store is made in a directory of another name, and renamed when it is complete.

A process holds a lock in the directory that it fills. So a directory whose lock is free was left by a process that was killed.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .locks import LOCKS, Locks


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


def _locked_part(path: Path) -> tuple[Path, Locks]:
    while True:
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
        (part / LOCKS).parent.mkdir(parents=True)
        lock = Locks(part / LOCKS)
        # Between the two lines above another process may have taken the directory for one that was left.
        if lock.take(0) and (part / LOCKS).exists():
            return part, lock
        lock.close()


def _remove_if_left(part: Path) -> None:
    if not (part / LOCKS).exists():
        return
    lock = Locks(part / LOCKS)
    if lock.take_surely(0):
        shutil.rmtree(part, ignore_errors=True)
    lock.close()
