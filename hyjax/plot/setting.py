"""Titles of pictures: the model and the values of its parameters, in the units in which they were given."""

import math
import textwrap
from collections.abc import Collection
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from .._results.fingerprint import model_of
from .._results.labels import chosen_unit, named_params
from .._system.system import HybridSystem
from .._system.types import Params
from .figure import quantity, signed, symbol, unit, with_unit

if TYPE_CHECKING:
    import matplotlib.figure

Model = ModuleType | SimpleNamespace | None


def parameter_texts(params: Params, degrees: Collection[str] = ()) -> dict[str, str]:
    """`name = value unit` of each parameter that is a number, without line breaks inside.

    **Arguments:** `degrees`: names of the angles that are printed in degrees.
    """
    texts = {}
    for name, (leaf, about) in named_params(params).items():
        # Numbers of a tuple have no names of their own.
        if leaf.ndim == 0 and np.isrealobj(leaf) and not name.rpartition(".")[2].isdigit():
            value, printed = float(leaf), unit(chosen_unit(about.get("units", ""), params))
            shown = (
                signed(f"{math.degrees(value):.4g}") + "°"
                if name in degrees
                else quantity(signed(f"{value:.4g}"), printed)
            )
            texts[name] = unbroken(f"{symbol(name.rpartition('.')[2])} = {shown}")
    return texts


def unbroken(text: str) -> str:
    """The text with no-break spaces, but in its formulas, where a space is none."""
    parts = text.split("$")
    return "$".join(part if k % 2 else part.replace(" ", "\u00a0") for k, part in enumerate(parts))


def title_of(
    model: Model,
    params: Params = None,
    degrees: Collection[str] = (),
    without: Collection[str] = (),
    system: HybridSystem | None = None,
) -> str:
    """The model's title and its parameters but for those `without`, which vary; of a model whose quantities have no units, that
    they have none. **Arguments:** as for `head_of`."""
    values = [text for name, text in parameter_texts(params, degrees).items() if name not in without]
    return ": ".join(text for text in (head_of(model, system), ", ".join(values)) if text)


def head_of(model: Model, system: HybridSystem | None = None) -> str:
    """The model's title. **Arguments:** `model`: the one given; by default that of `hyjax.models` which has the `system`."""
    model = model_of(system) if model is None else model
    time_unit = getattr(model, "time_unit", "") or getattr(system, "time_unit", "")
    return " ".join([getattr(model, "title", ""), "(dimensionless)" if time_unit == "1" else ""]).strip()


def put_title(fig: "matplotlib.figure.Figure | matplotlib.figure.SubFigure", text: str, size: int = 12) -> None:
    """A title above a figure, broken into lines that its width holds."""
    if text:
        # A letter is about half as wide as high.
        columns = int(fig.bbox.width / fig.dpi * 72 / (0.56 * size))
        fig.suptitle(textwrap.fill(text, columns), fontsize=size)


def axis_of(name: str, values, printed: str, degrees: Collection[str] = (), label: str = "") -> tuple[np.ndarray, str]:
    """The values of a parameter along an axis, and the axis' label with the unit.

    **Arguments:** `printed`: the unit of the values. `label`: a name in place of the parameter's own.
    """
    # The name of parameters that are one number.
    own = "parameter" if name == "params" else name.rpartition(".")[2]
    text = symbol(label or own)
    if name in degrees:
        return np.rad2deg(np.asarray(values)), with_unit(text, "°")
    return np.asarray(values), with_unit(text, unit(printed))
