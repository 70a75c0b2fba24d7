"""Parsing of `--section`: a surface in a mode, or the period of a forced system; and the state from which its map is iterated."""

import math
import re
from types import ModuleType

from .._system.section import Section, SectionLike, Stroboscope
from .arguments import as_misuse, check_parameter, Misuse, parse_finite, parse_state, resembling

FORMS = (
    "Write MODE:COORDINATE<VALUE, MODE:COORDINATE>VALUE, MODE:period=VALUE or MODE:period=2pi/PARAMETER, perhaps with "
    ",phase=VALUE, in quotes"
)


def parse_section(model: ModuleType, text: str) -> SectionLike:
    """The section `MODE:COORDINATE<VALUE`, at which a coordinate falls below a value, `MODE:COORDINATE>VALUE`, at which it rises
    above it, `MODE:period=VALUE`, or `MODE:period=2pi/PARAMETER` for a parameter that is an angular frequency, and then perhaps
    `,phase=VALUE`, in units of time."""
    found = re.fullmatch(r"\s*(\w+)\s*:\s*(\w+)\s*([<>=])\s*([^\s,]+)\s*(?:,\s*phase\s*=\s*(\S+)\s*)?", text)
    if found is None:
        raise Misuse(f"--section: {text!r} is no section. {FORMS}.")
    mode, name, relation, value, phase = found.groups()
    with as_misuse():
        coordinates = model.system.mode(mode, "--section").coordinates
    if relation == "=":
        if name != "period":
            raise Misuse(
                f"--section: {text!r}: = is for a period. Write {mode}:{name}<{value} where {name} falls, or "
                f"{mode}:{name}>{value} where it rises."
            )
        return Stroboscope(mode, _period(model, value), 0.0 if phase is None else parse_finite(phase, "--section"))
    if phase is not None:
        raise Misuse(f"--section: {text!r}: a phase is for a period. Write {mode}:period=VALUE,phase={phase}.")
    if name not in coordinates:
        raise Misuse(
            f"--section: mode {mode!r} has no coordinate {name!r}.{resembling(name, coordinates)} Its coordinates are: "
            f"{', '.join(coordinates)}."
        )
    place, level, sign = coordinates.index(name), parse_finite(value, "--section"), 1 if relation == "<" else -1
    return Section(mode, lambda t, x, params: sign * (x[place] - level))


def _period(model: ModuleType, text: str):
    """A period in units of the model's time: a number, or a function of the parameters for `2pi/PARAMETER`."""
    if text.startswith("2pi/"):
        name = text.removeprefix("2pi/")
        check_parameter(model, name, "--section")
        return lambda params: 2 * math.pi / getattr(params, name)
    period = parse_finite(text, "--section")
    if period <= 0:
        raise Misuse(f"--section: the period {text!r} must be positive.")
    return period


def state_at_section(model: ModuleType, params, section: SectionLike, x0: str | None):
    """The initial state, as given; by default the model's, as a function of the parameters. `Misuse` if that is of another
    mode at `params`."""
    if x0 is not None:
        return parse_state(x0)
    mode = model.start(params)[0]
    if mode != section.mode:
        raise Misuse(f"--section: the model has an initial state for mode {mode!r}, not {section.mode!r}; give --x0.")
    return lambda params: model.start(params)[1]
