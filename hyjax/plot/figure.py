"""The common style of all pictures: colours, axes, symbols and units; and titles, the model and the values of its parameters, in
the units in which they were given."""

import math
import re
import textwrap
from collections.abc import Collection, Mapping
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from .._results.encoding import model_of
from .._results.labels import chosen_unit, named_params
from .._results.registry import needed
from .._system.system import HybridSystem
from .._system.types import Params

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


# The colours of Okabe and Ito (2008), which colour-blind readers can distinguish.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
INK, GREY, PALE = "#222222", "#888888", "#E4E6E9"
GREEK = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "kappa",
    "lambda",
    "mu",
    "nu",
    "xi",
    "rho",
    "sigma",
    "tau",
    "phi",
    "chi",
    "psi",
    "omega",
]


def pyplot() -> ModuleType:
    """`matplotlib.pyplot`, or an `ImportError` with the command that installs it."""
    return needed("matplotlib.pyplot", "plot", "Pictures")


def symbol(name: str) -> str:
    r"""The symbol of a coordinate: `theta_s_rate` becomes $\dot\theta_{s}$; a name that is a word stays a word."""
    base = name.removesuffix("_rate")
    head = base.partition("_")[0].rstrip("0123456789")
    index = base[len(head) :].lstrip("_")
    if head not in GREEK and len(head) > 1:
        return name.replace("_", " ")
    letter = f"\\{head}" if head in GREEK else head
    letter = f"\\dot{{{letter}}}" if base != name else letter
    return f"${letter}_{{{index}}}$" if index else f"${letter}$"


def unit(text: str) -> str:
    r"""A unit in mathematical type: `rad sqrt(g/l)` becomes rad $\sqrt{g/l}$, and `1/omega_0` becomes 1/$\omega_{0}$."""
    if text in ("l", "T", "l/T"):
        # Upright, an l is like a 1.
        return f"${text}$"
    text = re.sub(r"sqrt\(([^)]*)\)", r"$\\sqrt{\1}$", text)
    greek = lambda found: f"$\\{found[1]}_{{{found[3]}}}$" if found[3] else f"$\\{found[1]}$"
    text = re.sub(rf"\b({'|'.join(GREEK)})(_(\w+))?(?![a-z_])", greek, text)
    return re.sub(r"\^(-?\d+)", r"$^{\1}$", text)


def with_unit(text: str, printed: str) -> str:
    """An axis label: the text and, in brackets, a printed unit, unless that is empty or 1."""
    return f"{text} ({printed})" if printed and printed != "1" else text


def signed(text: str) -> str:
    """A number with a true minus sign in place of the hyphen."""
    return text.replace("-", "\N{MINUS SIGN}")


def number(value: float, digits: int = 3) -> str:
    """A number of so many significant digits in mathematical type: `815`, `4.00`, and a power of ten where it is long."""
    text = f"{value:#.{digits}g}"
    mantissa, _, exponent = text.partition("e")
    if exponent:
        return f"${mantissa.rstrip('.')}\\cdot 10^{{{int(exponent)}}}$"
    return signed(text.removesuffix("."))


def ratio(over: str, under: str) -> str:
    """The unit of a quotient: `s/(m/s)`; empty where one of the units is not known."""
    if not over or not under or under == "1":
        return over if under else ""
    return f"{over}/({under})" if set(under) & set(" /") else f"{over}/{under}"


def quantity(text: str, printed: str) -> str:
    """A number with its printed unit, unless that is empty or 1."""
    return f"{text} {printed}" if printed and printed != "1" else text


def open_axes(
    given: "matplotlib.axes.Axes | None", figsize: tuple[float, float] | None = None
) -> "matplotlib.axes.Axes":
    """The given axes, or new axes of that size, without the frame at top and right."""
    ax: matplotlib.axes.Axes = pyplot().subplots(figsize=figsize, layout="constrained")[1] if given is None else given
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def telling(columns: Mapping[str, np.ndarray], values: np.ndarray) -> str:
    """The name of the first coordinate that is not constant, nor on one line or plane with the parameters, as one is that a reset
    sets, to the rounding of the largest; the first of all where there is none.

    **Arguments:** `columns`: the coordinates by name, shape `(points, k)` each. `values`: of the parameters, shape `(points, q)`.
    """
    line = len(np.unique(values, axis=0)) > values.shape[1] + 1
    least = 1e-13 * max(np.max(np.abs(each), initial=0, where=np.isfinite(each)) for each in columns.values())
    basis = np.column_stack([np.ones(len(values)), *(values.T if line else ())])
    for name, column in columns.items():
        at, height = np.repeat(basis, column.shape[1], axis=0), column.ravel()
        at, height = at[np.isfinite(height)], height[np.isfinite(height)]
        apart = height - at @ np.linalg.lstsq(at, height)[0] if height.size else height
        if np.max(np.abs(apart), initial=0) > max(1e-9 * np.max(np.abs(height), initial=0), least):
            return name
    return next(iter(columns))


def mode_legend(figure: "matplotlib.figure.Figure", colours: Mapping[str, str]) -> None:
    """A legend of modes above the first axes of a figure, under its title; a line for each in its colour."""
    handles = [pyplot().Line2D([], [], color=colour, lw=2, label=name) for name, colour in colours.items()]
    place = {"loc": "lower right", "bbox_to_anchor": (1, 1)}
    # As many in a row as fit beside each other.
    columns = max(1, min(len(handles), 72 // (6 + max(map(len, colours)))))
    figure.axes[0].legend(handles=handles, ncols=columns, frameon=False, **place)


def tidy(given: "matplotlib.axes.Axes | None") -> "matplotlib.axes.Axes":
    """The given axes, or new axes, with a grid and few tick labels."""
    ax = open_axes(given)
    ax.grid(True, color=PALE, lw=0.8)
    ax.set_axisbelow(True)
    ax.locator_params(axis="x", nbins=5)
    ax.locator_params(axis="y", nbins=6)
    return ax


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
