"""The version of the installed package."""

import importlib.metadata


def version() -> str:
    """The version of the installed package; "unknown" for source code that is not installed."""
    try:
        return importlib.metadata.version("hyjax-dynamics")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
