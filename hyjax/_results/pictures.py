"""Import of a plotting function at its first call, so that `import hyjax` does not import matplotlib."""

import importlib
from collections.abc import Callable


def picture(name: str) -> Callable:
    """The function `hyjax.plot.<name>`. `ImportError` with the remedy if matplotlib is missing."""
    return getattr(importlib.import_module("hyjax.plot"), name)
