"""Late lookup of pictures by name, so that results do not import the code that draws them."""

import importlib
from collections.abc import Callable


def picture(name: str) -> Callable:
    """The function of that name in `hyjax.plot`; `ImportError` with the remedy where matplotlib is missing."""
    return getattr(importlib.import_module("hyjax.plot"), name)
