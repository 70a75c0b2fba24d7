"""Pictures, looked up by name when one is asked for: so results know nothing of how they are drawn."""

import importlib
from collections.abc import Callable


def picture(name: str) -> Callable:
    """The function of that name in `hyjax.plot`; `ImportError` with the remedy where matplotlib is missing."""
    return getattr(importlib.import_module("hyjax.plot"), name)
