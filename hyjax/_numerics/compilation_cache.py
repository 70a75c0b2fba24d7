"""JAX's persistent compilation cache: compiled programs on disk, for the next process."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import jax


def enable_cache(directory: str | Path | None = None) -> Path:
    """Keep compiled programs on disk: a new process that computes the same again does not compile again (it traces again).

    Call it once, at the start of a script or notebook. The cache belongs to JAX, and holds programs of other libraries too.

    **Arguments:** `directory`: by default `HYJAX_CACHE_DIR`, or the user's cache directory, which the command line uses.

    **Returns:** the directory. A directory that cannot be written is no error: JAX warns, and compiles as without a cache.

    **Example:**

    >>> import tempfile
    >>> directory = hj.enable_cache(tempfile.mkdtemp())
    >>> directory.is_dir()
    True

    Source: JAX documentation, *Persistent compilation cache*.
    """
    from jax.experimental.compilation_cache import compilation_cache

    path = default_directory() if directory is None else Path(directory)
    jax.config.update("jax_compilation_cache_dir", str(path))
    # By default JAX keeps only programs that took more than a second to compile.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # JAX decides at its first compilation whether a cache is used.
    compilation_cache.reset_cache()
    return path


@contextlib.contextmanager
def without_cache() -> Iterator[None]:
    """Within, JAX neither reads compiled programs from disk nor writes them, in all threads."""
    from jax.experimental.compilation_cache import compilation_cache

    directory = jax.config.jax_compilation_cache_dir  # pyright: ignore
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update("jax_compilation_cache_dir", directory)
        compilation_cache.reset_cache()


def default_directory() -> Path:
    """`HYJAX_CACHE_DIR`, or `hyjax` in the user's cache directory."""
    if named := os.environ.get("HYJAX_CACHE_DIR"):
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hyjax"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "hyjax" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hyjax"
