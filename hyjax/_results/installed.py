"""What is installed: the version of hyjax, and packages that only an extra installs, imported at first use."""

import importlib
import importlib.metadata
from types import ModuleType


def version() -> str:
    """The version of the installed package; "unknown" for source code that is not installed."""
    try:
        return importlib.metadata.version("hyjax-dynamics")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def needed(package: str, extra: str, what: str) -> ModuleType:
    """A package. `ImportError` with the command that installs it, such as "Datasets need xarray: pip install ...".

    **Arguments:** `package`: its name, also of a module inside. `extra`: of this distribution. `what`: needs it, in the plural.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        missing = package.partition(".")[0]
        # A package that is there, but lacks something itself, states its own trouble.
        if (error.name or missing).partition(".")[0] != missing:
            raise
        raise ImportError(f"{what} need {missing}: pip install 'hyjax-dynamics[{extra}]'.") from error


def load_xarray() -> ModuleType:
    """The module `xarray`, or an `ImportError` with the command that installs it."""
    return needed("xarray", "data", "Datasets")
