"""Summary figures of periodic orbits: phase portrait, coordinates over time, multipliers."""

import dataclasses
import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import equinox as eqx
import numpy as np

from .._orbit.orbit import PeriodicOrbit
from .figure import pyplot, symbol, unit
from .orbit import each_orbit, message_of, multiplier_plane, phase_portrait, time_series

if TYPE_CHECKING:
    import matplotlib.figure


def gait_figure(
    orbits: PeriodicOrbit | Sequence[PeriodicOrbit], model: ModuleType | None = None
) -> "matplotlib.figure.Figure":
    """The summary figure of periodic orbits, with a row for each: phase portrait, coordinates over time, multipliers.

    Above each row are the orbit's period and stability; for an orbit that was not found, the reason.

    **Arguments:** `orbits`: one, a batch, or several. `model`: supplies the title, and the units of the axes.

    **Returns:** the figure. `ValueError` for a batch of length 0; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> figure = hj.plot.gait_figure(orbit, model=wheel)
    >>> figure.savefig("gait.png")
    """
    rows = each_orbit(orbits)
    if not rows:
        raise ValueError("gait_figure: there is no orbit to draw: the batch has length 0.")
    fig = pyplot().figure(figsize=(11, 3.6 * len(rows) + 0.4), layout="constrained")
    settings = [_scalars(orbit.params) for orbit in rows]
    shared = {key: value for key, value in settings[0].items() if all(other.get(key) == value for other in settings)}
    title = ": ".join(text for text in (getattr(model, "title", ""), _equations(shared)) if text)
    if title:
        fig.suptitle(textwrap.fill(title, 100), fontsize=13)
    for orbit, setting, part in zip(rows, settings, np.ravel(fig.subfigures(len(rows), 1, squeeze=False)), strict=True):
        own = _equations({key: value for key, value in setting.items() if key not in shared})
        part.suptitle(", ".join(text for text in (own, _summary(orbit, model)) if text), fontsize=11)
        if not np.isfinite(orbit.period):
            continue
        left, middle, right = part.subplots(1, 3, width_ratios=(1.1, 1.1, 1))
        phase_portrait(orbit, left, model=model)
        time_series(orbit, middle, model=model)
        multiplier_plane(orbit, right)
    return fig


def _summary(orbit: PeriodicOrbit, model: ModuleType | None) -> str:
    """Period, stability and spectral radius of one orbit, or why there is no orbit."""
    if not np.isfinite(orbit.period):
        return f"not found: {message_of(orbit).partition('.')[0]}"
    period = f"$T$ = {float(orbit.period):#.5g} {unit(model.time_unit) if model else ''}".strip()
    # A multiplier of the size of rounding is printed as zero.
    largest = float(orbit.spectral_radius)
    radius = f"max $|\\lambda|$ = {largest:#.3g}" if largest > 1e-12 else "all $\\lambda$ = 0"
    return ", ".join((period, "stable" if bool(orbit.stable) else "unstable", radius))


def _scalars(params) -> dict[str, float]:
    """The scalar fields of `params`, by name."""
    if not dataclasses.is_dataclass(params):
        return {}
    values = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    numbers = {name: value for name, value in values.items() if eqx.is_array_like(value) and np.ndim(value) == 0}
    return {name: float(value) for name, value in numbers.items() if np.isreal(value)}


def _equations(values: dict[str, float]) -> str:
    """`name = value` for each value, without line breaks inside an equation."""
    return ", ".join(f"{symbol(name)}\u00a0=\u00a0{value:.4g}".replace(" ", "\u00a0") for name, value in values.items())
