"""Parsing of a command's arguments: model, parameters, sequence of modes, initial state."""

import contextlib
import dataclasses
import difflib
import math
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from .process import Misuse as Misuse, NotFound as NotFound

# The name of the value of what a model conserves.
LEVEL = "conserved"


@contextlib.contextmanager
def as_misuse() -> Iterator[None]:
    """Convert `ValueError`, `ImportError` and `OSError` of the library to `Misuse`."""
    try:
        yield
    except (ValueError, ImportError, OSError) as error:
        raise Misuse(str(error)) from None


def load(name: str, sequence: str | None = None, free: bool = False) -> Any:
    """The model of that name, or of a Python file or a robot's, where the `sequence` may name sets of contacts. `free`: see
    `load_robot`."""
    from .. import models
    from .own_module import is_file, load_file
    from .robot_file import load_robot, robot_and_contacts

    if is_file(name):
        return load_file(name)
    if robot_and_contacts(name):
        with as_misuse():
            return load_robot(name, sequence=sequence, free=free)
    try:
        return models.load(name)
    except ValueError as error:
        near = resembling(name, models.names)
        raise Misuse(f"{error}{near} For a system of your own give its file, as path/to/file.py:system.") from None


def parse_number(text: str, option: str, unit: str = "rad") -> float:
    """A number written as `0.1`, `2/3`, `3deg` or `0.05rad`; degrees become radians.

    **Arguments:** `unit`: of the number; `deg` and `rad` are refused where the unit has no radians.
    """
    value, scale = text.strip(), 1.0
    for suffix, factor in (("deg", math.pi / 180), ("rad", 1.0)):
        if value.endswith(suffix):
            if "rad" not in unit:
                raise Misuse(
                    f"{option}: {text!r} is an angle; the unit is {unit or '1'}. Write a number without deg or rad."
                )
            value, scale = value.removesuffix(suffix), factor
    try:
        if not value.isascii():
            raise ValueError(value)
        above, _, below = value.partition("/")
        return float(above) / (float(below) if below else 1.0) * scale
    except (ValueError, ZeroDivisionError):
        raise Misuse(f"{option}: {text!r} is not a number. Write for example 0.009, 2/3 or 3deg.") from None


def parse_finite(text: str, option: str, unit: str = "rad") -> float:
    """A number that is neither infinite nor NaN."""
    value = parse_number(text, option, unit)
    # Beyond that, sums of squares overflow.
    if not abs(value) <= 1e100:
        raise Misuse(f"{option}: {text!r} must be finite, and not above 1e100.")
    return value


def check_count(option: str, value: int, least: int, most: int) -> None:
    """`Misuse` for a number of things that is too small to mean anything, or too large for the memory of a computer."""
    if not least <= value <= most:
        raise Misuse(f"{option}: {value} must lie between {least} and {most}.")


def resembling(name: str, known: Sequence[str]) -> str:
    """A question that names what was probably meant, or nothing."""
    near = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def parse_parameters(
    model: ModuleType, settings: list[str] | None, varied: dict[str, float] | None = None, levels: bool = False
):
    """The model's parameters, and their values by name.

    **Arguments:** `settings`: the texts `name=value` of `--param`. `varied`: values of the parameters named by `--where`.
    `levels`: whether what the model conserves has a value, `conserved`, by default that of its guess: parameters are a `Level`.
    """
    known = [field.name for field in parameter_fields(model)]
    values = {}
    for setting in settings or []:
        name, equals, text = setting.partition("=")
        if not equals:
            raise Misuse(f"--param: {setting!r} is not name=value, such as {known[0]}=0.1.")
        check_parameter(model, name, "--param", levels)
        if name in values:
            raise Misuse(f"--param: {name} is given twice. Give each parameter once.")
        values[name] = parse_finite(text, f"--param {name}", unit_of_parameter(model, name))
    for name, value in (varied or {}).items():
        check_parameter(model, name, "--where", levels)
        if name in values:
            raise Misuse(f"--param: {name} is varied by --where. Give a parameter its value, or vary it.")
        values[name] = value
    if absent := [field.name for field in parameter_fields(model) if is_required(field) and field.name not in values]:
        raise Misuse(f"--param: {', '.join(absent)} has no default. Give --param {absent[0]}=VALUE.")
    import jax

    try:
        # A class without converters keeps the numbers of Python that it is given.
        params = jax.tree.map(_as_array, model.Params(**_own(values)))
    except (ValueError, TypeError) as error:
        raise Misuse(str(error)) from None
    if levels and hasattr(model, "conserved"):
        from .._orbit.level import Level

        value = values[LEVEL] if LEVEL in values else model.conserved(0.0, model.guess(params), params)
        params, known = Level(params, _as_array(float(value))), [*known, LEVEL]
    return params, {name: float(getattr(params, name)) for name in known}


def _own(values: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if name != LEVEL}


def _as_array(leaf: Any) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(leaf, jnp.result_type(float)) if type(leaf) in (int, float) else leaf


def in_degrees(settings: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the parameters whose values are given in degrees, as in `slope=3deg`: pictures show them so."""
    pairs = (setting.partition("=") for setting in settings or ())
    return tuple(name for name, _, text in pairs if "deg" in text)


def parameter_fields(model: ModuleType) -> list[dataclasses.Field]:
    """The parameters that are numbers; a model may have others, such as the function that is its controller."""
    if not dataclasses.is_dataclass(model.Params):
        raise Misuse(
            f"{short_name(model)}: Params is no equinox.Module. Make it a class whose fields are the parameters."
        )
    return [field for field in dataclasses.fields(model.Params) if field.init and _is_number(field)]


def is_required(field: dataclasses.Field) -> bool:
    """Whether a parameter has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_number(field: dataclasses.Field) -> bool:
    import numpy as np

    if field.metadata.get("static", False):
        return False
    if is_required(field):
        return True
    default: Any = field.default
    number = isinstance(default, int | float) or hasattr(default, "dtype")
    return number and np.ndim(default) == 0 and np.result_type(default).kind in "iuf"


def unit_of_parameter(model: ModuleType, name: str) -> str:
    """The unit of a parameter; "rad", with which every number is allowed, for a name that is none (which is refused later)."""
    fields = {field.name: field for field in parameter_fields(model)}
    return fields[name].metadata.get("unit", "") if name in fields else "rad"


def check_parameter(model: ModuleType, name: str, option: str, levels: bool = False) -> None:
    """`Misuse` for a name that is not that of a parameter. `levels`: see `parse_parameters`."""
    known = [*(field.name for field in parameter_fields(model)), *[LEVEL] * (levels and hasattr(model, "conserved"))]
    if name not in known:
        raise Misuse(
            f"{option}: there is no parameter {name!r}.{resembling(name, known)} The parameters are: {', '.join(known)}."
        )


def check_coordinate(model: ModuleType, mode: str, name: str | None, *also: str) -> None:
    """`Misuse` for the value of `--coordinate` that is no coordinate of the mode, and none of `also`."""
    known = (*model.system.mode(mode).coordinates, *also)
    if name is not None and name not in known:
        raise Misuse(
            f"--coordinate: mode {mode!r} has no coordinate {name!r}.{resembling(name, known)} Give one of {', '.join(known)}."
        )


def check_ends(model: ModuleType, values: dict[str, float], name: str, ends: Sequence[float], bound: str) -> None:
    """`Misuse` for an end of the interval of a parameter that the model's `Params` refuses.

    **Arguments:** `values`: of all parameters by name. `bound`: what the message calls an end, such as `--to:`.
    """
    for end in ends:
        try:
            model.Params(**_own({**values, name: float(end)}))
        except (ValueError, TypeError) as error:
            raise Misuse(f"{bound} {end:g} is out of range. {error}") from None


def parse_sequence(model: ModuleType, text: str | None, levels: bool = False) -> tuple[str, ...]:
    """The sequence of modes given as `first,second`; by default the model's sequence. `levels`: of a model whose orbits are a
    family the mode of its map alone."""
    # A robot's file is of the sets of contacts that are named.
    given = text is not None and text != getattr(getattr(model, "module", None), "sets", None)
    if levels and hasattr(model, "conserved"):
        refuse_search(model, {"--sequence": text})
        return (model.step.mode,)
    sequence = tuple(each.strip() for each in text.split(",")) if text is not None and given else tuple(model.sequence)
    family = hasattr(model, "conserved") and not model.sequence
    if not sequence or family:
        other = "Its orbits are a family: use hyjax gait, continue or sweep" if family else "Use hyjax simulate"
        why = f" It is no walker: {model.no_steps}" if hasattr(model, "no_steps") else ""
        raise Misuse(f"{short_name(model)}: this model has no sequence of modes to search along. {other}.{why}")
    from .._orbit.return_map import ReturnMap

    try:
        step = ReturnMap(model.system, sequence=sequence)
    except ValueError as error:
        raise Misuse(f"--sequence: {error}") from None
    if step.system is not model.system:
        # Sets of contacts are modes of their own.
        vars(model).update(system=step.system)
    return step.sequence  # pyright: ignore[reportReturnType]


def refuse_search(model: ModuleType, options: dict[str, Any]) -> None:
    """`Misuse` for options of a search that are given for a model whose orbits are a family."""
    if given := [option for option, value in options.items() if value is not None]:
        raise Misuse(
            f"{', '.join(given)}: the orbits of {short_name(model)} are a family, of which that at the energy of its guess is "
            f"found, or at another one, --param {LEVEL}=VALUE. Leave this out."
        )


def parse_start(model: Any, start: Sequence[str]) -> Any:
    """The state at which the model starts, with the coordinates that are given as `name=value`."""
    mode = model.system.mode(model.system.names[0])
    units, (_, state) = dict(zip(mode.coordinates, mode.units, strict=True)), model.start(None)
    for each in start:
        name, equals, value = each.partition("=")
        if not equals or name not in units:
            raise Misuse(
                f"--start: {each!r} is not name=value of a coordinate.{resembling(name, mode.coordinates)} They are "
                f"{', '.join(mode.coordinates)}."
            )
        state = state.at[mode.coordinates.index(name)].set(parse_finite(value, f"--start {name}", units[name]))
    return state


def parse_state(text: str):
    """A state given as `1.0,0.5`."""
    import jax.numpy as jnp

    return jnp.array([parse_finite(each, "--x0") for each in text.split(",")])


def parse_region(text: str, coordinates: Sequence[str]):
    """The low and the high state of a box given as `0:1,-2:2,0`: for each coordinate two bounds, or its value."""
    import numpy as np

    parts = text.split(",")
    if len(parts) != len(coordinates):
        raise Misuse(
            f"--region: {text!r} has {len(parts)} parts. Give bounds or a value for each of {', '.join(coordinates)}, as "
            f"{','.join(['0:1'] * len(coordinates))}."
        )
    bounds = [[parse_finite(each, "--region") for each in part.split(":", 1)] for part in parts]
    low, high = (np.array([bound[k] for bound in bounds]) for k in (0, -1))
    if not np.all(low <= high):
        raise Misuse(f"--region: {text!r} has a lower bound above the upper one. Give bounds as low:high.")
    return low, high


def initial_condition(model: ModuleType, params, mode: str | None, x0: str | None):
    """Initial mode and state of a simulation, as given; by default those of the model."""
    import numpy as np

    from ..contact.contact_set import ContactSet
    from ..contact.start import start as placed

    of_file = mode is None and hasattr(model, "bodies")
    if mode is None and x0 is not None and len(model.system.names) == 1:
        mode = model.system.names[0]
    start: Any = (mode, None) if mode is not None and x0 is not None else model.start(params)
    first = start[0] if mode is None else mode
    with as_misuse():
        model.system.mode(first, "--mode")
    if x0 is None and first != start[0]:
        raise Misuse(f"--mode {first}: the model has an initial state for mode {start[0]} only; give --x0 too.")
    state = start[1] if x0 is None else parse_state(x0)
    # Bodies whose contacts have names, or are those of a robot's file, begin with the contacts that hold at the state.
    where = model.system.mode(first)
    bare = np.shape(state) == (where.dimension - len(where.held),)
    with as_misuse():
        in_contact = bare and (of_file or isinstance(where.domain, ContactSet))
        return placed(model.system, state, params) if in_contact else (first, state)


def short_name(model: ModuleType) -> str:
    """The name of a model, without its package."""
    return model.__name__.rpartition(".")[-1]
