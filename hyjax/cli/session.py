"""Configuration of JAX for the command line: float64, compiled programs cached on disk, quick compilation."""

import os


def start_jax() -> str:
    """Configure JAX; returns the cache directory: `HYJAX_CACHE_DIR`, or the user's cache directory."""
    import jax

    from .._numerics.compilation_cache import enable_cache

    # A command spends most of its time on compilation, and with XLA's older emitters this takes a quarter to a third less time.
    # A version of XLA without this flag aborts the process: the flag is set only for versions known to have it.
    flag = "xla_cpu_use_fusion_emitters"
    if jax.__version__.startswith("0.10.") and flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --{flag}=false"
    jax.config.update("jax_enable_x64", True)
    return str(enable_cache())
