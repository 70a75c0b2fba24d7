"""Differentiable simulation and stability analysis of hybrid dynamical systems.

The examples in the docstrings assume `import hyjax as hj`, `import jax`, `import jax.numpy as jnp` and 64-bit floats,
`jax.config.update("jax_enable_x64", True)`.
"""

import importlib
from typing import Any

import lazy_loader

from ._results import registry as _registry
from .cli import process as _process  # noqa: F401  # before JAX is imported, which takes a second

# The public names are those of `__init__.pyi`. Each is imported when it is first used: the whole package takes 0.3 s.
_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """A public name; `__version__`; modules of folders, which lazy_loader does not import."""
    if name == "__version__":
        from ._results.registry import version

        return version()
    if name in _FILES:
        return importlib.import_module(_FILES[name], __name__)
    # The former name of what `load` does for the store of a sweep.
    return _imported("load" if name == "open_sweep" else name)


_FILES = {
    "fast": "._numerics.fast", "objectives": "._optimize.objectives", "_store": "._sweep.store",
    "_diagram": "._sweep.bifurcation_diagram", "_proof_figures": ".certify.proof_figures",
}  # fmt: skip
_registry.connect(
    plot=lambda: _imported("plot"), models=lambda: _imported("models"), sweeps=lambda: __getattr__("_store"),
    diagrams=lambda: __getattr__("_diagram"), proofs=lambda: __getattr__("_proof_figures"),
)  # fmt: skip
