"""What is imported when it is first used: packages that only an extra installs; and functions by type of result, and the
collection of models, given from below, so that results import no picture and no model.

`hyjax.plot`, and other folders with pictures of their results, register functions for `draw` and `animate` when they are
imported.
"""

import functools
import importlib
import importlib.metadata
from collections.abc import Callable
from types import ModuleType
from typing import Any

_importers: dict[str, Callable[[], ModuleType]] = {}


def connect(**importers: Callable[[], ModuleType]) -> None:
    """Set how `plot`, pictures of `proofs`, `models`, the stores of `sweeps` and `diagrams` over two parameters are imported when
    first used: by `hyjax/__init__.py`, which knows all folders."""
    _importers.update(importers)


def models() -> ModuleType:
    """The collection of models that files and titles refer to by name, with `names` and `load`."""
    return _importers["models"]()


def pictures() -> ModuleType:
    """The module `hyjax.plot`."""
    return _importers["plot"]()


def sweeps() -> ModuleType:
    """The stores of sweeps, with `open_sweep`."""
    return _importers["sweeps"]()


def diagrams() -> ModuleType:
    """The file of bifurcation diagrams over two parameters."""
    return _importers["diagrams"]()


@functools.singledispatch
def draw(result: Any, /, *args: Any, **options: Any) -> Any:
    """The picture of a result: the figure or the axes that `result.plot()` returns.

    **Arguments:** `result`: an orbit, a trajectory, a branch, an optimum, estimates or another result that has a method `plot`.
    The others: those of the function that draws a result of this type, such as `hyjax.plot.orbit_figure` for an orbit. A type of
    your own is added by `hyjax.plot.draw.register`, as for every function of `functools.singledispatch`.

    **Returns:** a matplotlib figure, or axes. `TypeError` for a type without a picture; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> hj.plot.draw(orbit).savefig("orbit.png")
    """
    return _registered(draw, result)(result, *args, **options)


@functools.singledispatch
def animate(result: Any, model: Any, /, **options: Any) -> Any:
    """The animation of a model along a result, for `hyjax.plot.save_animation`: what `result.animate(model)` returns.

    **Arguments:** `result`: an orbit, a trajectory or an optimized orbit. `model`: with an `outline`. `options`: those of the
    function that animates a result of this type, such as `hyjax.plot.animate_orbit`.

    **Returns:** a `matplotlib.animation.FuncAnimation`. `TypeError` for a type without an animation; `ImportError` without
    matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> hj.plot.save_animation(hj.plot.animate(orbit, wheel, strides=2, fps=5), "wheel.gif")
    """
    return _registered(animate, result)(result, model, **options)


def _registered(function: Any, result: Any) -> Callable:
    """The function for the type of a result, once pictures are imported; `TypeError` for a type that has none."""
    pictures()
    if function.dispatch(type(result)) is function.dispatch(object):
        _importers["proofs"]()
    found = function.dispatch(type(result))
    if found is function.dispatch(object):
        known = ", ".join(sorted(each.__name__ for each in function.registry if each is not object))
        raise TypeError(
            f"hyjax.plot.{function.__name__}: there is no picture of a {type(result).__name__}; there is one of {known}."
        )
    return found


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
