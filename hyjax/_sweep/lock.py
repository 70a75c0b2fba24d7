"""The lock of a store, held by the operating system until its process ends in any way."""

import os
from pathlib import Path

# The file of a store's lock: in the directory of an array, where zarr does not look for other arrays.
LOCK = Path("result") / "lock"


class Lock:
    """A lock on a file, held by at most one `Lock` of one process.

    **Attributes:** `taken`: whether the lock was free, and is held now; `None` on a system or a file system without locks.
    """

    def __init__(self, path: Path):
        self.taken, self._file = None, None
        try:
            import fcntl

            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.taken = True
        except BlockingIOError:
            self.taken = False
        except (ImportError, OSError):
            pass

    def close(self) -> None:
        """Release the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
