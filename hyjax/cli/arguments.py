"""What a command line asks for: a model, its parameters, files to write; and how it is refused."""

import contextlib
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType


class Misuse(Exception):
    """A request that cannot be understood: exit status 2."""


class NotFound(Exception):
    """A request that was understood, and has no answer: exit status 1."""


@contextlib.contextmanager
def as_misuse() -> Iterator[None]:
    """What the library refuses, or cannot write, was asked for wrongly."""
    try:
        yield
    except (ValueError, ImportError, OSError) as error:
        raise Misuse(str(error)) from None


def start_jax() -> str:
    """Float64, and compiled programs kept in the user's cache directory, which is returned."""
    import jax
    import platformdirs

    # The command compiles for longer than it runs, and XLA's older emitters compile two to three times faster. A flag that a
    # version does not know ends the process: so only where it is known.
    flag = "xla_cpu_use_fusion_emitters"
    if jax.__version__.startswith("0.10.") and flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --{flag}=false"
    cache = os.environ.get("HYJAX_CACHE_DIR") or platformdirs.user_cache_dir("hyjax")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return cache


def load(name: str) -> ModuleType:
    """The model of that name; a former name works, with a note on stderr."""
    from .. import models

    if name in models.FORMER:
        print(f"hyjax: the model {name} is now called {models.FORMER[name]}.", file=sys.stderr)
    with as_misuse():
        return models.load(name)


def number(text: str, option: str = "--param") -> float:
    """`0.1`, `2/3`, `3deg`, `0.05rad`."""
    value, scale = text.strip(), 1.0
    for suffix, factor in (("deg", math.pi / 180), ("rad", 1.0)):
        if value.endswith(suffix):
            value, scale = value.removesuffix(suffix), factor
    try:
        above, _, below = value.partition("/")
        return float(above) / (float(below) if below else 1.0) * scale
    except (ValueError, ZeroDivisionError):
        raise Misuse(f"{option}: {text!r} is not a number. Write for example 0.009, 2/3 or 3deg.") from None


def finite(text: str, option: str) -> float:
    """A number that is neither infinite nor NaN."""
    value = number(text, option)
    if not math.isfinite(value):
        raise Misuse(f"{option}: {text!r} must be finite.")
    return value


def parameters(model, settings: list[str]):
    import dataclasses

    known = [field.name for field in dataclasses.fields(model.Params)]
    values = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise Misuse(f"--param: {setting!r} is not name=value, such as {known[0]}=0.1.")
        if name not in known:
            raise Misuse(f"--param: there is no parameter {name!r}. The parameters are: {', '.join(known)}.")
        values[name] = number(text)
    with as_misuse():
        params = model.Params(**values)
    return params, {name: float(getattr(params, name)) for name in known}


def modes_in_turn(model: ModuleType, text: str | None) -> tuple[str, ...]:
    """The sequence of modes asked for, or the model's own."""
    sequence = tuple(each.strip() for each in text.split(",")) if text else tuple(getattr(model, "sequence", ()))
    if not sequence:
        raise Misuse(f"{model.__name__.split('.')[-1]}: this model has no periodic orbit. Use hyjax simulate.")
    try:
        model.system.route(sequence)
    except ValueError as error:
        raise Misuse(f"--sequence: {error}") from None
    return sequence


def found_orbits(model: ModuleType, name: str, params, sequence: tuple[str, ...], strides: int, cache: str):
    """All orbits in the model's region, by a program that is kept in the cache."""
    import jax
    import numpy as np

    from .._flow.integrator import Integrator
    from .._orbit.search import Batch, search
    from .._orbit.shooting import SingleShooting
    from .stored import stored_solver

    batch = Batch(model.system, params, sequence, strides, SingleShooting(), Integrator())
    # One program to load, not one for each operation.
    low, high = (np.asarray(bound) for bound in jax.jit(model.region)(params))
    return search(batch, (low, high), 128, None, stored_solver(cache, name))


def first_state(model: ModuleType, params, mode: str | None, x0: str | None):
    """Mode and state at the start of a simulation: those asked for, or the model's own."""
    import jax.numpy as jnp

    start = model.start(params)
    first = start[0] if mode is None else mode
    with as_misuse():
        model.system.mode(first, "--mode")
    if x0 is None:
        if first != start[0]:
            raise Misuse(f"--mode {first} needs a state of that mode: give --x0 too.")
        return start
    return first, jnp.array([finite(each, "--x0") for each in x0.split(",")])


def check_paths(plot: Path | None, animate: Path | None, out: Path | None = None) -> None:
    """Whether the files asked for can be written, before anything is computed for them."""
    if out is not None and out.suffix != ".nc":
        raise Misuse(
            f"{out}: a trajectory is written as netCDF; call the file for example {out.stem or 'trajectory'}.nc."
        )
    for path in (plot, animate, out):
        if path is not None and not path.absolute().parent.is_dir():
            raise Misuse(f"{path}: there is no directory {path.absolute().parent}.")
    with as_misuse():
        if plot is not None:
            from ..plot.figure import pyplot

            kinds = pyplot().figure().canvas.get_supported_filetypes()
            if plot.suffix.lower().removeprefix(".") not in kinds:
                raise Misuse(
                    f"{plot}: the suffix {plot.suffix!r} names no kind of picture; use one of {', '.join(kinds)}."
                )
        if out is not None:
            import xarray  # noqa: F401
        if animate is not None:
            from ..plot.animate import animation_suffix

            animation_suffix(animate)
