"""Pictures of one periodic orbit: phase portrait, coordinates over time, multipliers in the complex plane."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, TYPE_CHECKING

import jax
import numpy as np

from .._flow.trajectory import Arc
from .._numerics.eigenvalues import inside_circle
from .._orbit.orbit import PeriodicOrbit
from .._results.labels import Units, units_of
from .._system.results import RESULTS
from .figure import BLUE, COLOURS, GREY, INK, PALE, symbol, tidy, unit, VERMILION, with_unit

if TYPE_CHECKING:
    import matplotlib.axes


# Beyond this modulus the unit circle would be small: outside of it the axes are logarithmic.
LARGE = 6.0


def draw_plane(ax: "matplotlib.axes.Axes | None", reach: float) -> "matplotlib.axes.Axes":
    """Axes of the complex plane with the unit circle, and room for numbers up to a modulus.

    Where the modulus is large, the axes are linear up to the unit circle, which stays a circle, and logarithmic beyond it.

    **Arguments:** `ax`: axes to draw in; by default new ones. `reach`: the largest modulus.
    """
    ax = tidy(ax)
    from matplotlib.patches import Circle

    ax.grid(False)
    ax.add_patch(Circle((0, 0), 1, facecolor=PALE, edgecolor=INK, lw=1.2, alpha=0.6, gid="unit circle"))
    ax.axhline(0, color=GREY, lw=0.6)
    ax.axvline(0, color=GREY, lw=0.6)
    ax.set(aspect="equal", xlabel=r"Re $\lambda$", ylabel=r"Im $\lambda$")
    widen(ax, reach)
    return ax


def widen(ax: "matplotlib.axes.Axes", reach: float) -> None:
    """Limits of the plane for numbers up to a modulus, unless they are wide enough."""
    if reach > LARGE and ax.get_xscale() == "linear":
        powers = int(np.ceil(np.log10(1.15 * reach)))
        # The circle takes up half of each axis.
        style = {"linthresh": 1.0, "linscale": powers}
        ax.set_xscale("symlog", **style)
        ax.set_yscale("symlog", **style)
        ticks = [-(10.0**powers), -1, 0, 1, 10.0**powers]
        labels = [f"$-10^{powers}$", "$-1$", "0", "1", f"$10^{powers}$"]
        ax.set_xticks(ticks, labels)
        ax.set_yticks(ticks, labels)
        ax.minorticks_off()
        ax.text(
            0.02, 0.02, "logarithmic outside\nthe unit circle", transform=ax.transAxes, fontsize=8, color=INK, va="bottom"
        )  # fmt: skip
        limit = 1.15 * 10.0**powers
    else:
        limit = 1.15 * max(reach, 1.1)
    # Before the first call the limits are those of the circle.
    limit = max(limit, ax.get_xlim()[1])
    ax.set(xlim=(-limit, limit), ylim=(-limit, limit))


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
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> axes = hj.plot.phase_portrait(orbit, model=wheel)
    >>> axes.figure.savefig("portrait.png")
    """
    arcs, names = arcs_of(orbit), coordinates_of(orbit)
    if pairs is None:
        pairs = [pair for panel in portrait_panels(orbit, model) for pair in panel]
    for name in (name for pair in pairs for name in pair):
        if name not in names:
            raise ValueError(
                f"phase_portrait: there is no coordinate {name!r}. The coordinates are: {', '.join(names)}."
            )
    ax = tidy(ax)
    for across, up in pairs:
        colour = _colour(names, across)
        for arc in arcs:
            x, y = _on_arc(orbit, arc, across), _on_arc(orbit, arc, up)
            if x.size and y.size:
                # A single curve is named by the axes.
                ax.plot(x, y, color=colour, lw=1.8, label=symbol(across) if len(pairs) > 1 else None)
                _arrow(ax, x, y, colour)
        for before, after in zip(arcs, arcs[1:] + arcs[:1], strict=True):
            x, y = _ends(orbit, before, after, across), _ends(orbit, before, after, up)
            moves = _moves(orbit, arcs, across, x) or _moves(orbit, arcs, up, y)
            _jump(ax, x, y, moves, colour, before.mode != after.mode)
    units = units_of(model, orbit.params, orbit.system)
    ax.set_xlabel(_label([across for across, _ in pairs], units))
    ax.set_ylabel(_label([up for _, up in pairs], units))
    _legend(ax)
    return ax


def time_series(
    orbit: PeriodicOrbit,
    ax: "matplotlib.axes.Axes | None" = None,
    model: ModuleType | None = None,
    coordinates: Sequence[str] | None = None,
) -> "matplotlib.axes.Axes":
    """The coordinates of an orbit, except rates, over one period: the arcs as lines, the jumps dashed.

    **Arguments:** `orbit`: one orbit. `ax`: axes to draw in; by default new ones. `model`: supplies the units of the axes.
    `coordinates`: the names of those that are drawn.

    **Returns:** the axes. `ValueError` for an orbit that was not found, and for an unknown coordinate.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> axes = hj.plot.time_series(orbit, model=wheel)
    >>> axes.figure.savefig("series.png")
    """
    arcs, known = arcs_of(orbit), coordinates_of(orbit)
    names = [name for name in known if not name.endswith("_rate")] if coordinates is None else list(coordinates)
    for name in names:
        if name not in known:
            raise ValueError(f"time_series: there is no coordinate {name!r}. The coordinates are: {', '.join(known)}.")
    ax = tidy(ax)
    for name in names:
        colour = _colour(known, name)
        for arc in arcs:
            if (x := _on_arc(orbit, arc, name)).size:
                ax.plot(arc.t, x, color=colour, lw=1.8, label=symbol(name))
        for before, after in zip(arcs, arcs[1:] + arcs[:1], strict=True):
            x = _ends(orbit, before, after, name)
            moves, t = _moves(orbit, arcs, name, x), np.full(x.size, before.t[-1])
            _jump(ax, t, x, moves, colour, before.mode != after.mode)
    units = units_of(model, orbit.params, orbit.system)
    ax.set_xlabel(with_unit("$t$", unit(units.time)))
    ax.set_ylabel(_label(names, units))
    _legend(ax)
    return ax


def portrait_panels(orbit: PeriodicOrbit, model: ModuleType | None = None) -> list[list[tuple[str, str]]]:
    """The pairs of a phase portrait, divided into those that axes can share: angles of the same modes, or coordinates of the same
    modes whose units are unknown; every other pair has axes of its own."""
    names, units = coordinates_of(orbit), units_of(model, orbit.params, orbit.system).coordinates
    pairs = [(name, f"{name}_rate") for name in names if f"{name}_rate" in names]
    pairs = pairs or [(names[0], names[min(1, len(names) - 1)])]
    kind = lambda pair: (units.get(pair[0], ""), _modes_with(orbit, pair[0]))
    shares = lambda pair: kind(pair)[0] in ("", "rad")
    panels: list[list[tuple[str, str]]] = []
    for pair in pairs:
        joined = [panel for panel in panels if shares(pair) and kind(panel[0]) == kind(pair)]
        if joined:
            joined[0].append(pair)
        else:
            panels.append([pair])
    return panels


def series_panels(orbit: PeriodicOrbit, model: ModuleType | None = None) -> list[list[str]]:
    """The coordinates, except rates, divided by their units: axes show one unit only."""
    units = units_of(model, orbit.params, orbit.system).coordinates
    panels: dict[str, list[str]] = {}
    for name in coordinates_of(orbit):
        if not name.endswith("_rate"):
            panels.setdefault(units.get(name, ""), []).append(name)
    return list(panels.values())


def _modes_with(orbit: PeriodicOrbit, name: str) -> tuple[str, ...]:
    modes = orbit.system.modes
    return tuple(mode for mode in dict.fromkeys(orbit.mode_names) if name in modes[mode].coordinates)


def multiplier_plane(
    orbits: PeriodicOrbit | Sequence[PeriodicOrbit], ax: "matplotlib.axes.Axes | None" = None
) -> "matplotlib.axes.Axes":
    r"""The multipliers of orbits in the complex plane, with the unit circle.

    **Arguments:** `orbits`: one, a batch, or several; orbits that were not found are omitted. `ax`: axes to draw in; by default
    new ones.

    **Returns:** the axes. Multipliers with $|\lambda| < 1$, by more than rounding, are drawn as blue circles, the others as
    vermilion squares. `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> axes = hj.plot.multiplier_plane(orbit)
    >>> axes.figure.savefig("multipliers.png")
    """
    values = np.concatenate([np.ravel(orbit.multipliers) for orbit in each_orbit(orbits)] or [np.zeros(0)])
    values = values[np.isfinite(values)]
    ax = draw_plane(ax, np.max(np.abs(values), initial=0.0))
    within = inside_circle(values[:, None])
    inside, outside = values[within], values[~within]
    kinds = (inside, "o", BLUE, r"$|\lambda| < 1$"), (outside, "s", VERMILION, r"$|\lambda| \geq 1$")
    for chosen, marker, colour, label in kinds:
        if chosen.size:
            style = {"color": colour, "ms": 6.5, "mec": "white", "mew": 0.8, "clip_on": False}
            ax.plot(chosen.real, chosen.imag, marker, label=label, **style)
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


def coordinates_of(orbit: PeriodicOrbit) -> list[str]:
    """The coordinates of all modes of the orbit, each name once."""
    return list(dict.fromkeys(name for mode in orbit.sequence for name in orbit.system.mode(mode).coordinates))


def _on_arc(orbit: PeriodicOrbit, arc: Arc, name: str) -> np.ndarray:
    """A coordinate along an arc: from the state, or a rate from the mode's vector field; empty where the mode has neither."""
    mode = orbit.system.mode(arc.mode)
    if name in mode.coordinates:
        return np.asarray(arc.x)[:, mode.coordinates.index(name)]
    moved = name.removesuffix("_rate")
    if moved == name or moved not in mode.coordinates:
        return np.zeros(0)
    rates = jax.vmap(lambda t, x: mode.vector_field(t, x, orbit.params))(arc.t, arc.x)
    return np.asarray(rates)[:, mode.coordinates.index(moved)]


def _colour(names: Sequence[str], name: str) -> str:
    """The colour of a coordinate, the same in all panels of an orbit."""
    moved = [each for each in names if not each.endswith("_rate")]
    return COLOURS[(moved.index(name) if name in moved else names.index(name)) % len(COLOURS)]


def _ends(orbit: PeriodicOrbit, before: Arc, after: Arc, name: str) -> np.ndarray:
    """A coordinate just before and just after a jump."""
    return np.concatenate([_on_arc(orbit, before, name)[-1:], _on_arc(orbit, after, name)[:1]])


def _label(names: Sequence[str], units: Units) -> str:
    """An axis label: the symbols of the coordinates with their units; a unit that all share is printed once."""
    known = {name: unit(text) for name, text in units.coordinates.items()}
    found = {known[name] for name in names if name in known}
    if len(found) <= 1:
        return with_unit(", ".join(map(symbol, names)), found.pop() if found else "")
    return ", ".join(with_unit(symbol(name), known.get(name, "")) for name in names)


def _jump(ax, x: np.ndarray, y: np.ndarray, moves: bool, colour: str, to_another: bool) -> None:
    """A dashed line from the state before a jump to the state after it; one mark where the state does not move, but the mode
    changes."""
    if min(x.size, y.size) < 2 or not (moves or to_another):
        return
    if not moves:
        ax.plot(x[1:], y[1:], "o", ms=4, mfc=colour, mec=colour, mew=0, zorder=3, gid="change of mode")
        return
    ax.plot(x, y, "--", color=colour, lw=1, alpha=0.8, gid="jump")
    ax.plot(x[:1], y[:1], "o", ms=5, mfc="white", mec=colour, mew=1.3, zorder=3, gid="before")
    ax.plot(x[1:], y[1:], "o", ms=5, mfc=colour, mec=colour, mew=1.3, zorder=3, gid="after")


def _moves(orbit: PeriodicOrbit, arcs: Sequence[Arc], name: str, ends: np.ndarray) -> bool:
    """Whether a jump changes a coordinate by more than could be seen."""
    size = max((np.max(np.abs(_on_arc(orbit, arc, name)), initial=0.0) for arc in arcs), default=0.0)
    return ends.size == 2 and bool(abs(ends[1] - ends[0]) > 1e-6 * size)


def _arrow(ax, x, y, colour: str) -> None:
    """An arrowhead half-way along the curve."""
    # Between neighbouring samples the arrow would be one pixel long, and its direction rounding.
    tip, tail = len(x) // 2 + len(x) // 20, len(x) // 2
    style = {"arrowstyle": "-|>,head_width=0.22,head_length=0.75", "mutation_scale": 15, "lw": 0, "color": colour}
    ax.annotate("", (x[tip], y[tip]), (x[tail], y[tail]), arrowprops={**style, "shrinkA": 0, "shrinkB": 0})


def _legend(ax) -> None:
    """A legend above the axes; it includes the marks of jumps and changes of mode that are drawn."""
    from matplotlib.lines import Line2D

    handles = list({label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}.values())
    drawn = {line.get_gid() for line in ax.lines}
    marks: dict[str, Any] = {"ls": "none", "marker": "o", "ms": 5, "mec": GREY, "mew": 1.3}
    if "jump" in drawn:
        handles.append(Line2D([], [], mfc="white", label="before the jump", **marks))
        handles.append(Line2D([], [], mfc=GREY, label="after", **marks))
    if "change of mode" in drawn:
        marks |= {"ms": 4, "mew": 0}
        handles.append(Line2D([], [], mfc=GREY, label="change of mode", **marks))
    ax.legend(
        handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=min(3, len(handles)), frameon=False,
        fontsize=9, columnspacing=1.0, handletextpad=0.4, handlelength=1.4,
    )  # fmt: skip
