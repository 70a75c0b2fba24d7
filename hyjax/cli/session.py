"""Configuration of JAX for the command line: float64, compiled programs cached on disk, quick compilation."""

import os


def start_jax() -> str:
    """Configure JAX; returns the cache directory: `HYJAX_CACHE_DIR`, or the user's cache directory."""
    import jax
    import platformdirs

    # A command spends most of its time on compilation, and with XLA's older emitters this takes a quarter to a third less time.
    # A version of XLA without this flag aborts the process: the flag is set only for versions known to have it.
    flag = "xla_cpu_use_fusion_emitters"
    if jax.__version__.startswith("0.10.") and flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --{flag}=false"
    cache = os.environ.get("HYJAX_CACHE_DIR") or platformdirs.user_cache_dir("hyjax")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return cache
