"""Float64, strict promotion, a compilation cache on disk, shapes checked, and orbits that several files use."""

import os
import pathlib

import jax
import pytest
from jaxtyping import install_import_hook

_CACHE = pathlib.Path(__file__).parent.parent / ".cache" / "jax"

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR", str(_CACHE)))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

with install_import_hook("hyjax", "beartype.beartype"):
    import hyjax as hj
    from hyjax.models import simplest_walker
