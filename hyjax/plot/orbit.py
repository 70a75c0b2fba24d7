"""Pictures of one periodic orbit: phase portrait, coordinates over time, multipliers in the complex plane."""

import itertools
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import jax
import numpy as np

from .._flow.arc import Arc
from .._orbit.orbit import PeriodicOrbit
from .._system.results import RESULTS
from .figure import BLUE, COLOURS, GREY, INK, PALE, pyplot, symbol, tidy, unit, VERMILION, with_unit

if TYPE_CHECKING:
    import matplotlib.axes


def phase_portrait(
    orbit: PeriodicOrbit,
    ax: "matplotlib.axes.Axes | None" = None,
    pairs: Sequence[tuple[str, str]] | None = None,
    model: ModuleType | None = None,
) -> "matplotlib.axes.Axes":
    """The phase portrait of an orbit: each coordinate against its rate, with an arrow in the direction of time, jumps dashed.

    **Arguments:** `orbit`: one orbit. `ax`: axes to draw in; by default new ones. `pairs`: names of coordinates, (horizontal,
    vertical); by default every `name` that has a `name_rate`, and the first two coordinates where no coordinate has a rate. In a
    mode without the coordinate `name_rate` the rate of `name` is computed by the vector field. `model`: supplies the units of the
    axes.

    **Returns:** the axes. `ValueError` for an orbit that was not found, and for an unknown coordinate.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> axes = hj.plot.phase_portrait(orbit, model=wheel)
    >>> axes.figure.savefig("portrait.png")
    """
    arcs, names = arcs_of(orbit), _coordinates(orbit)
    if pairs is None:
        rates = [(name, f"{name}_rate") for name in names if f"{name}_rate" in names]
        pairs = rates or [(names[0], names[min(1, len(names) - 1)])]
    for name in (name for pair in pairs for name in pair):
        if name not in names:
            raise ValueError(
                f"phase_portrait: there is no coordinate {name!r}. The coordinates are: {', '.join(names)}."
            )
    ax = tidy(ax)
    for (across, up), colour in zip(pairs, itertools.cycle(COLOURS), strict=False):
        for arc in arcs:
            x, y = _on_arc(orbit, arc, across), _on_arc(orbit, arc, up)
            if x.size and y.size:
                ax.plot(x, y, color=colour, lw=1.8, label=symbol(across))
                _arrow(ax, x, y, colour)
        for before, after in zip(arcs, arcs[1:] + arcs[:1], strict=True):
            _jump(ax, _ends(orbit, before, after, across), _ends(orbit, before, after, up), colour)
    ax.set_xlabel(_label([across for across, _ in pairs], model))
    ax.set_ylabel(_label([up for _, up in pairs], model))
    _legend(ax)
    return ax


def time_series(
    orbit: PeriodicOrbit, ax: "matplotlib.axes.Axes | None" = None, model: ModuleType | None = None
) -> "matplotlib.axes.Axes":
    """The coordinates of an orbit, except rates, over one period: the arcs as lines, the jumps dashed.

    **Arguments:** `orbit`: one orbit. `ax`: axes to draw in; by default new ones. `model`: supplies the units of the axes.

    **Returns:** the axes. `ValueError` for an orbit that was not found.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> axes = hj.plot.time_series(orbit, model=wheel)
    >>> axes.figure.savefig("series.png")
    """
    arcs = arcs_of(orbit)
    names = [name for name in _coordinates(orbit) if not name.endswith("_rate")]
    ax = tidy(ax)
    for name, colour in zip(names, itertools.cycle(COLOURS), strict=False):
        for arc in arcs:
            if (x := _on_arc(orbit, arc, name)).size:
                ax.plot(arc.t, x, color=colour, lw=1.8, label=symbol(name))
        for before, after in zip(arcs, arcs[1:] + arcs[:1], strict=True):
            _jump(ax, np.full(2, before.t[-1]), _ends(orbit, before, after, name), colour)
    ax.set_xlabel(with_unit("$t$", unit(model.time_unit) if model else ""))
    ax.set_ylabel(_label(names, model))
    _legend(ax)
    return ax


def multiplier_plane(
    orbits: PeriodicOrbit | Sequence[PeriodicOrbit], ax: "matplotlib.axes.Axes | None" = None
) -> "matplotlib.axes.Axes":
    r"""The multipliers of orbits in the complex plane, with the unit circle.

    **Arguments:** `orbits`: one, a batch, or several; orbits that were not found are omitted. `ax`: axes to draw in; by default
    new ones.

    **Returns:** the axes. Multipliers with $|\lambda| < 1$ are drawn as blue circles, the others as vermilion squares.
    `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> axes = hj.plot.multiplier_plane(orbit)
    >>> axes.figure.savefig("multipliers.png")
    """
    pyplot()
    from matplotlib.patches import Circle

    values = np.concatenate([np.ravel(orbit.multipliers) for orbit in each_orbit(orbits)] or [np.zeros(0)])
    values = values[np.isfinite(values)]
    ax = tidy(ax)
    ax.grid(False)
    ax.add_patch(Circle((0, 0), 1, facecolor=PALE, edgecolor=INK, lw=1.2, alpha=0.6))
    ax.axhline(0, color=GREY, lw=0.6)
    ax.axvline(0, color=GREY, lw=0.6)
    inside, outside = values[np.abs(values) < 1], values[np.abs(values) >= 1]
    kinds = (inside, "o", BLUE, r"$|\lambda| < 1$"), (outside, "s", VERMILION, r"$|\lambda| \geq 1$")
    for chosen, marker, colour, label in kinds:
        if chosen.size:
            style = {"color": colour, "ms": 6.5, "mec": "white", "mew": 0.8, "clip_on": False}
            ax.plot(chosen.real, chosen.imag, marker, label=label, **style)
    reach = 1.15 * np.max(np.abs(values), initial=1.1)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel=r"Re $\lambda$", ylabel=r"Im $\lambda$")
    _legend(ax)
    return ax


def each_orbit(orbits) -> list[PeriodicOrbit]:
    """The single orbits of an orbit, a batch, or a sequence of either."""
    if not isinstance(orbits, PeriodicOrbit):
        return [one for orbit in orbits for one in each_orbit(orbit)]
    if np.ndim(orbits.period) == 0:
        return [orbits]
    return [one for i in range(len(orbits)) for one in each_orbit(orbits[i])]


def message_of(orbit: PeriodicOrbit) -> str:
    """Why an orbit was not found."""
    return RESULTS[orbit.result]  # pyright: ignore


def arcs_of(orbit: PeriodicOrbit, n: int = 200) -> tuple[Arc, ...]:
    """The sampled arcs of an orbit; `ValueError` for a batch, and for an orbit that was not found."""
    if np.ndim(orbit.period):
        raise ValueError(f"This is a batch of {len(orbit)} orbits: choose one, for example orbits[0].")
    if not np.isfinite(orbit.period):
        raise ValueError(f"There is no orbit to draw: {message_of(orbit)}")
    return orbit.sample(n)


def _coordinates(orbit: PeriodicOrbit) -> list[str]:
    """The coordinates of all modes of the orbit, each name once."""
    return list(dict.fromkeys(name for mode in orbit.sequence for name in orbit.system.modes[mode].coordinates))


def _on_arc(orbit: PeriodicOrbit, arc: Arc, name: str) -> np.ndarray:
    """A coordinate along an arc: from the state, or a rate from the mode's vector field; empty where the mode has neither."""
    mode = orbit.system.modes[arc.mode]
    if name in mode.coordinates:
        return np.asarray(arc.x)[:, mode.coordinates.index(name)]
    moved = name.removesuffix("_rate")
    if moved == name or moved not in mode.coordinates:
        return np.zeros(0)
    rates = jax.vmap(lambda t, x: mode.vector_field(t, x, orbit.params))(arc.t, arc.x)
    return np.asarray(rates)[:, mode.coordinates.index(moved)]


def _ends(orbit: PeriodicOrbit, before: Arc, after: Arc, name: str) -> np.ndarray:
    """A coordinate just before and just after a jump."""
    return np.concatenate([_on_arc(orbit, before, name)[-1:], _on_arc(orbit, after, name)[:1]])


def _label(names: Sequence[str], model: ModuleType | None) -> str:
    """An axis label: the symbols of the coordinates with their units; a unit that all share is printed once."""
    # The model gives the units of its first mode's coordinates alone.
    units = dict(zip(model.coordinates, map(unit, model.units), strict=True)) if model else {}
    found = {units[name] for name in names if name in units}
    if len(found) <= 1:
        return with_unit(", ".join(map(symbol, names)), found.pop() if found else "")
    return ", ".join(with_unit(symbol(name), units.get(name, "")) for name in names)


def _jump(ax, x: np.ndarray, y: np.ndarray, colour: str) -> None:
    """A dashed line from the state before a jump to the state after it."""
    if min(x.size, y.size) < 2:
        return
    ax.plot(x, y, "--", color=colour, lw=1, alpha=0.8, gid="jump")
    ax.plot(x[:1], y[:1], "o", ms=5, mfc="white", mec=colour, mew=1.3, zorder=3, gid="before")
    ax.plot(x[1:], y[1:], "o", ms=5, mfc=colour, mec=colour, mew=1.3, zorder=3, gid="after")


def _arrow(ax, x, y, colour: str) -> None:
    """An arrowhead half-way along the curve."""
    # Between neighbouring samples the arrow would be one pixel long, and its direction rounding.
    tip, tail = len(x) // 2 + len(x) // 20, len(x) // 2
    style = {"arrowstyle": "-|>,head_width=0.22,head_length=0.75", "mutation_scale": 15, "lw": 0, "color": colour}
    ax.annotate("", (x[tip], y[tip]), (x[tail], y[tail]), arrowprops={**style, "shrinkA": 0, "shrinkB": 0})


def _legend(ax) -> None:
    """A legend above the axes; it includes the marks of a jump if one is drawn."""
    from matplotlib.lines import Line2D

    handles = list({label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}.values())
    if any(line.get_gid() == "jump" for line in ax.lines):
        marks = {"ls": "none", "marker": "o", "ms": 5, "mec": GREY, "mew": 1.3}
        handles.append(Line2D([], [], mfc="white", label="before the jump", **marks))
        handles.append(Line2D([], [], mfc=GREY, label="after", **marks))
    ax.legend(
        handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(handles), frameon=False,
        fontsize=9, columnspacing=1.0, handletextpad=0.4, handlelength=1.4,
    )  # fmt: skip
