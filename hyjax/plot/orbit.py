"""Pictures of orbits: take a result, return matplotlib axes."""

import dataclasses
import itertools
import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import jax
import numpy as np

from .._orbit.orbit import Arc, PeriodicOrbit
from .._system.results import RESULTS
from .figure import BLUE, COLOURS, GREY, INK, PALE, pyplot, symbol, tidy, unit, VERMILION

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


def phase_portrait(
    orbit: PeriodicOrbit,
    ax: "matplotlib.axes.Axes | None" = None,
    pairs: Sequence[tuple[str, str]] | None = None,
    model: ModuleType | None = None,
) -> "matplotlib.axes.Axes":
    """Each coordinate against its rate: the flow as lines with the sense of time, the jumps dashed.

    **Arguments:** `pairs`: names of coordinates, (across, up); without them, every `name` that has a `name_rate`, or where
    none has, the first two coordinates. In a mode without the coordinate `name_rate`, it is the rate of `name`. `model`:
    gives the axes their units.

    **Returns:** the axes. An orbit that was not found, or a name that no mode has, is a `ValueError`.
    """
    arcs, names = arcs_of(orbit), _names(orbit)
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
            x, y = _along(orbit, arc, across), _along(orbit, arc, up)
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
    """The coordinates that are not rates over one period, arc by arc, the jumps dashed.

    **Arguments:** `model`: gives the axes their units.

    **Returns:** the axes. An orbit that was not found is a `ValueError`.
    """
    arcs = arcs_of(orbit)
    names = [name for name in _names(orbit) if not name.endswith("_rate")]
    ax = tidy(ax)
    for name, colour in zip(names, itertools.cycle(COLOURS), strict=False):
        for arc in arcs:
            if (x := _along(orbit, arc, name)).size:
                ax.plot(arc.t, x, color=colour, lw=1.8, label=symbol(name))
        for before, after in zip(arcs, arcs[1:] + arcs[:1], strict=True):
            _jump(ax, np.repeat(before.t[-1], 2), _ends(orbit, before, after, name), colour)
    ax.set_xlabel(_bracket("$t$", unit(model.time_unit) if model else ""))
    ax.set_ylabel(_label(names, model))
    _legend(ax)
    return ax


def multiplier_plane(
    orbits: PeriodicOrbit | Sequence[PeriodicOrbit], ax: "matplotlib.axes.Axes | None" = None
) -> "matplotlib.axes.Axes":
    r"""The multipliers in the complex plane, with the unit circle.

    **Arguments:** `orbits`: one, a batch, or several; those that were not found are left out.

    **Returns:** the axes. Multipliers with $|\lambda| < 1$ are round and blue, the others square and vermilion.
    """
    from matplotlib.patches import Circle

    values = np.concatenate([np.ravel(orbit.multipliers) for orbit in _each(orbits)] or [np.zeros(0)])
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


def gait_figure(
    orbits: PeriodicOrbit | Sequence[PeriodicOrbit], model: ModuleType | None = None
) -> "matplotlib.figure.Figure":
    """A row for each orbit: phase portrait, coordinates over time, multipliers; above it period and stability.

    **Arguments:** `orbits`: one, a batch, or several. `model`: gives the title, and the axes their units.

    **Returns:** the figure. Where an orbit was not found, its row says why. No orbit at all is a `ValueError`.
    """
    rows = _each(orbits)
    if not rows:
        raise ValueError("gait_figure: there is no orbit to draw: the batch has length 0.")
    fig = pyplot().figure(figsize=(11, 3.6 * len(rows) + 0.4), layout="constrained")
    settings = [_setting(orbit.params) for orbit in rows]
    shared = {key: value for key, value in settings[0].items() if all(other.get(key) == value for other in settings)}
    title = ": ".join(text for text in (getattr(model, "title", ""), _print(shared)) if text)
    if title:
        fig.suptitle(textwrap.fill(title, 100), fontsize=13)
    for orbit, setting, part in zip(rows, settings, np.ravel(fig.subfigures(len(rows), 1, squeeze=False)), strict=True):
        own = _print({key: value for key, value in setting.items() if key not in shared})
        part.suptitle(", ".join(text for text in (own, _summary(orbit, model)) if text), fontsize=11)
        if not np.isfinite(orbit.period):
            continue
        left, middle, right = part.subplots(1, 3, width_ratios=(1.1, 1.1, 1))
        phase_portrait(orbit, left, model=model)
        time_series(orbit, middle, model=model)
        multiplier_plane(orbit, right)
    return fig


def _each(orbits) -> list[PeriodicOrbit]:
    if not isinstance(orbits, PeriodicOrbit):
        return [one for orbit in orbits for one in _each(orbit)]
    return [orbits] if np.ndim(orbits.period) == 0 else [orbits[i] for i in range(len(orbits))]


def _message(orbit: PeriodicOrbit) -> str:
    return RESULTS[orbit.result]  # pyright: ignore


def arcs_of(orbit: PeriodicOrbit, n: int = 200) -> tuple[Arc, ...]:
    if np.ndim(orbit.period):
        raise ValueError(f"This is a batch of {len(orbit)} orbits: choose one, for example orbits[0].")
    if not np.isfinite(orbit.period):
        raise ValueError(f"There is no orbit to draw: {_message(orbit)}")
    return orbit.sample(n)


def _names(orbit: PeriodicOrbit) -> list[str]:
    return list(dict.fromkeys(name for mode in orbit.sequence for name in orbit.system.modes[mode].coordinates))


def _along(orbit: PeriodicOrbit, arc: Arc, name: str) -> np.ndarray:
    """A coordinate along an arc; a rate also where the arc's mode has it from its vector field; else empty."""
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
    return np.concatenate([_along(orbit, before, name)[-1:], _along(orbit, after, name)[:1]])


def _summary(orbit: PeriodicOrbit, model: ModuleType | None) -> str:
    if not np.isfinite(orbit.period):
        return f"not found: {_message(orbit).partition('.')[0]}"
    period = f"$T$ = {float(orbit.period):#.5g} {unit(model.time_unit) if model else ''}".strip()
    # A multiplier that is zero to rounding is zero.
    largest = float(orbit.spectral_radius)
    radius = f"max $|\\lambda|$ = {largest:#.3g}" if largest > 1e-12 else "all $\\lambda$ = 0"
    return ", ".join((period, "stable" if bool(orbit.stable) else "unstable", radius))


def _setting(params) -> dict[str, float]:
    """The scalars of `params`, by name."""
    if not dataclasses.is_dataclass(params):
        return {}
    values = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    return {name: float(value) for name, value in values.items() if np.ndim(value) == 0 and np.isreal(value)}


def _print(setting: dict[str, float]) -> str:
    # No line breaks inside an equation.
    return ", ".join(
        f"{symbol(name)}\u00a0=\u00a0{value:.4g}".replace(" ", "\u00a0") for name, value in setting.items()
    )


def _bracket(text: str, inside: str) -> str:
    return f"{text} ({inside})" if inside and inside != "1" else text


def _label(names: Sequence[str], model: ModuleType | None) -> str:
    """Symbols with their units, the unit once where all have the same. (A mode may have coordinates of its own.)"""
    units = dict(zip(model.coordinates, map(unit, model.units), strict=True)) if model else {}
    found = {units[name] for name in names if name in units}
    if len(found) <= 1:
        return _bracket(", ".join(map(symbol, names)), found.pop() if found else "")
    return ", ".join(_bracket(symbol(name), units.get(name, "")) for name in names)


def _jump(ax, x: np.ndarray, y: np.ndarray, colour: str) -> None:
    if min(x.size, y.size) < 2:
        return
    ax.plot(x, y, "--", color=colour, lw=1, alpha=0.8, gid="jump")
    ax.plot(x[:1], y[:1], "o", ms=5, mfc="white", mec=colour, mew=1.3, zorder=3, gid="before")
    ax.plot(x[1:], y[1:], "o", ms=5, mfc=colour, mec=colour, mew=1.3, zorder=3, gid="after")


def _arrow(ax, x, y, colour: str) -> None:
    """An arrowhead half-way along the curve."""
    # Between neighbouring samples the arrow is a pixel long, and points anywhere.
    tip, tail = len(x) // 2 + len(x) // 20, len(x) // 2
    style = {"arrowstyle": "-|>,head_width=0.22,head_length=0.75", "mutation_scale": 15, "lw": 0, "color": colour}
    ax.annotate("", (x[tip], y[tip]), (x[tail], y[tail]), arrowprops={**style, "shrinkA": 0, "shrinkB": 0})


def _legend(ax) -> None:
    """Above the axes, clear of the curves, with the marks of a jump where there are some."""
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
