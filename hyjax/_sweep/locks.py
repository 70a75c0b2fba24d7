"""Locks by which several processes share a store, held by the operating system until the process ends in any way."""

import contextlib
import os
from pathlib import Path

# The file of a store's locks: in the directory of an array, where zarr does not look for other arrays.
LOCKS = Path("result") / "locks"


class Locks:
    """Locks numbered from 0, one byte of a file each, held by at most one process."""

    def __init__(self, path: Path):
        self.path = path
        try:
            import fcntl

            self._lock = fcntl
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except (ImportError, OSError):
            self._lock = None

    def take(self, i: int) -> bool:
        """Take lock `i`; whether it was free. Without file locks every lock is free: two processes may compute one chunk, with
        equal results."""
        return self.take_surely(i) is not False

    def take_surely(self, i: int) -> bool | None:
        """Take lock `i`; whether it was free, `None` on a system or a file system without locks."""
        if self._lock is None:
            return None
        try:
            self._lock.lockf(self._file, self._lock.LOCK_EX | self._lock.LOCK_NB, 1, i)
        except BlockingIOError:
            return False
        except OSError:
            return None
        return True

    def release(self, i: int) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._lock.lockf(self._file, self._lock.LOCK_UN, 1, i)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._file)
            self._lock = None
