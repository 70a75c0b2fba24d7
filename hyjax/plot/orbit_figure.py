"""Pictures of trajectories, coordinates over time, coloured by mode, and rasters of the events of families; of periodic orbits,
with phase portrait and multipliers; of invariant manifolds; of phase and isostable responses, and of Arnold tongues."""

from collections.abc import Collection, Sequence
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from .._flow.trajectory_report import arc_labels
from .._orbit.manifold import Manifold
from .._orbit.orbit import PeriodicOrbit
from .._results.labels import units_of
from .._results.table import without_rounding
from .._system.results import RESULTS
from ..phase.entrainment import Entrainment
from ..phase.responses import IsostableResponse, PhaseResponse
from .figure import (
    BLUE,
    COLOURS,
    GREY,
    INK,
    mode_legend,
    number,
    PALE,
    parameter_texts,
    put_title,
    pyplot,
    quantity,
    ratio,
    symbol,
    tidy,
    title_of,
    unit,
    VERMILION,
    with_unit,
)
from .orbit_axes import (
    each_orbit,
    message_of,
    multiplier_plane,
    phase_portrait,
    portrait_panels,
    series_panels,
    time_series,
)

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

    from .._flow.trajectory import Trajectory


# The largest number of coordinates that are drawn where a family's raster shows what happens.
MOST_PANELS = 8


def trajectory_figure(
    trajectory: "Trajectory",
    model: ModuleType | SimpleNamespace | None = None,
    n_samples: int = 100,
    degrees: Collection[str] = (),
) -> "matplotlib.figure.Figure":
    """The coordinates of a trajectory over time, one below the other: arcs coloured by mode, jumps as thin dotted lines.

    Below, for each family of transitions, a raster: a mark for each event, at its time and the number of its guard. Of a system
    with a family and more than 8 coordinates the rasters alone.

    **Arguments:** `trajectory`: one result of `hyjax.simulate`. `model`: supplies `title`, `time_unit`, and `units` for its
    `coordinates`. `n_samples`: sample times on each arc. `degrees`: names of the parameters that the title gives in degrees.

    **Returns:** the figure, with the coordinates of the modes that were visited. `TypeError` for a batch of trajectories;
    `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> run = hj.simulate(ball.system, x0, params, mode="flight", t1=1.0)
    >>> figure = hj.plot.trajectory_figure(run, model=ball)
    >>> figure.savefig("trajectory.png")
    """
    plt = pyplot()
    modes, ways = trajectory.system.modes, trajectory.system.transitions
    said = [name for name, mode in modes.items() if mode.shown != mode.coordinates]
    families = [k for k, way in enumerate(ways) if way.is_family and way.source not in said]
    rasters_alone = families and max(mode.dimension for mode in modes.values()) > MOST_PANELS
    arcs = () if rasters_alone else trajectory.sample(n_samples)
    labels = arc_labels(trajectory) if arcs else []
    visited = dict.fromkeys(labels) or dict.fromkeys(modes)
    flown = dict.fromkeys(arc.mode for arc in arcs) or modes
    names = () if rasters_alone else tuple(dict.fromkeys(name for mode in flown for name in modes[mode].shown))
    # Modes in their order have the same colours in every picture; contacts by name take those that are left.
    colours = {label: COLOURS[k % len(COLOURS)] for k, label in enumerate(dict.fromkeys((*modes, *visited)))}
    units = units_of(model, trajectory.params, trajectory.system)
    heights = [1.2] * len(names) + [2.4] * len(families)
    fig, rows = plt.subplots(
        len(heights), 1, sharex=True, squeeze=False, figsize=(7.0, 1.4 + sum(heights)), layout="constrained",
        height_ratios=heights,
    )  # fmt: skip
    for k, ax in zip(families, rows[len(names) :, 0], strict=True):
        events = [event for event in trajectory.events if event.transition == k]
        times, numbers = [event.t for event in events], [event.index for event in events]
        ax.plot(times, numbers, ls="", marker="|", color=INK, ms=5 if trajectory.system.sizes[k] < 60 else 2)
        ax.set_ylabel(f"guard of\n{ways[k].source} → {ways[k].target}", color=INK)
        ax.set_ylim(-0.6, trajectory.system.sizes[k] - 0.4)
        ax.yaxis.get_major_locator().set_params(integer=True)
        ax.spines[["top", "right"]].set_visible(False)
    for name, ax in zip(names, rows[: len(names), 0], strict=True):
        last = None
        for arc, label in zip(arcs, labels, strict=True):
            known = modes[arc.mode].coordinates
            if name not in known:
                last = None
                continue
            t, x = np.asarray(arc.t), np.asarray(arc.x[:, known.index(name)])
            if last is not None and last[1] != x[0]:
                ax.plot([last[0], t[0]], [last[1], x[0]], color=GREY, lw=0.8, ls=":")
            ax.plot(t, x, color=colours[label], lw=1.6)
            last = t[-1], x[-1]
        ax.set_ylabel(
            with_unit(f"{symbol(name)}", unit(units.coordinates.get(name, ""))).replace(" (", "\n("), color=INK
        )
        ax.spines[["top", "right"]].set_visible(False)
    fig.align_ylabels(rows[:, 0])
    rows[-1, 0].set_xlabel(with_unit("$t$", unit(units.time)))
    if len(modes) > 1 or len(visited) > 1:
        mode_legend(fig, {label: colours[label] for label in visited})
    put_title(fig, title_of(model, trajectory.params, degrees, system=trajectory.system))
    return fig


def orbit_figure(
    orbits: PeriodicOrbit | Sequence[PeriodicOrbit], model: ModuleType | None = None, degrees: Collection[str] = ()
) -> "matplotlib.figure.Figure":
    """The summary figure of periodic orbits, with a row for each: phase portrait, coordinates over time, multipliers.

    Above each row are the orbit's period and stability; for an orbit that was not found, the reason. Coordinates of different
    units have axes of their own, and so have coordinates that are no angles, and those that only some modes have.

    **Arguments:** `orbits`: one, a batch, or several. `model`: supplies the title, and the units of the axes. `degrees`: names of
    the parameters that the title gives in degrees.

    **Returns:** the figure. `ValueError` for a batch of length 0; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> figure = hj.plot.orbit_figure(orbit, model=wheel)
    >>> figure.savefig("gait.png")
    """
    rows = each_orbit(orbits)
    if not rows:
        raise ValueError("orbit_figure: there is no orbit to draw: the batch has length 0.")
    heights = [_height(orbit, model) for orbit in rows]
    fig = pyplot().figure(figsize=(11, sum(heights) + 0.4), layout="constrained")
    settings = [parameter_texts(orbit.params, degrees) for orbit in rows]
    varied = {name for name in settings[0] if any(other.get(name) != settings[0][name] for other in settings)}
    put_title(fig, title_of(model, rows[0].params, degrees, without=varied, system=rows[0].system), 13)
    parts = fig.subfigures(len(rows), 1, squeeze=False, height_ratios=heights)
    for k, (orbit, setting, part) in enumerate(zip(rows, settings, np.ravel(parts), strict=True), 1):
        own = [text for name, text in setting.items() if name in varied]
        numbered = [f"gait {k}"] if len(rows) > 1 else []
        part.suptitle(", ".join((*numbered, *own, _summary(orbit, model))), fontsize=11)
        if np.isfinite(orbit.period):
            _draw_row(orbit, part, model)
    return fig


def _height(orbit: PeriodicOrbit, model: ModuleType | None) -> float:
    """The height of an orbit's row, in inches."""
    if not np.isfinite(orbit.period):
        return 0.6
    most = max(len(portrait_panels(orbit, model)), len(series_panels(orbit, model)))
    return 3.6 if most == 1 else 2.5 * most + 0.3


def _draw_row(orbit: PeriodicOrbit, part, model: ModuleType | None) -> None:
    """Portrait, series and multipliers side by side; panels of the first two one below the other."""
    portraits, series = portrait_panels(orbit, model), series_panels(orbit, model)
    columns = part.add_gridspec(1, 3, width_ratios=(1.1, 1.1, 1))
    for cell, pairs in zip(columns[0].subgridspec(len(portraits), 1), portraits, strict=True):
        phase_portrait(orbit, part.add_subplot(cell), pairs, model)
    for cell, names in zip(columns[1].subgridspec(len(series), 1), series, strict=True):
        time_series(orbit, part.add_subplot(cell), model, names)
    multiplier_plane(orbit, part.add_subplot(columns[2]))


def _summary(orbit: PeriodicOrbit, model: ModuleType | None) -> str:
    """Period, stability and spectral radius of one orbit, or why there is no orbit."""
    if not np.isfinite(orbit.period):
        return f"not found: {message_of(orbit).partition('.')[0]}"
    time = unit(units_of(model, orbit.params, orbit.system).time)
    largest = float(without_rounding(np.asarray(orbit.spectral_radius)))
    radius = f"max $|\\lambda|$ = {number(largest)}" if largest else "all $\\lambda$ = 0"
    stability = "stable" if bool(orbit.stable) else "unstable"
    return ", ".join((f"$T$ = {quantity(number(float(orbit.period), 5), time)}", stability, radius))


def manifold_figure(
    found: Manifold, ax: "matplotlib.axes.Axes | None" = None, coordinates: Sequence[str] | None = None
) -> "matplotlib.axes.Axes":
    """A manifold of an orbit: a curve in the plane of two coordinates, or in space, and a surface in space, as its mesh.

    Stable manifolds are blue, unstable ones vermilion, and the orbit is a point. The axes of one picture take another manifold.

    **Arguments:** `found`: a `Manifold`. `ax`: axes to draw in, those of a surface with `projection="3d"`; by default new ones.
    `coordinates`: the names of two coordinates, of three in space; by default the first that are not constant.

    **Returns:** the axes. `ValueError` for other coordinates, and for a manifold without points.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 0.0, 0.0, 1.0]), coordinates=("x", "y", "z", "clock"))
    >>> jump = lambda t, x, p: jnp.stack([1.5 * x[0], 2.5 * x[1] + x[0] ** 2, 0.5 * x[2], 0 * x[3]])
    >>> system = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[3], jump),))
    >>> saddle = hj.periodic_orbit(hj.ReturnMap(system, sequence=("year",)), jnp.zeros(4), {})
    >>> axes = hj.plot.manifold_figure(saddle.manifold("unstable", length=1.0, spacing=0.3), coordinates=("x", "y", "z"))
    >>> axes.figure.savefig("manifold.png")
    """
    if not len(found.s) > 1:
        raise ValueError(f"manifold_figure: the manifold has no points: it is {found.result}.")
    step = found.lap.step
    known = step.system.mode(step.mode).coordinates
    solid = ax.name == "3d" if ax is not None else found.triangles is not None
    if coordinates is None:
        moving = np.ptp(found.x, axis=0) > 1e-9 * np.max(np.abs(found.x))
        coordinates = [name for name, moves in zip(known, moving, strict=True) if moves][: 2 + solid]
    if len(coordinates) != 2 + solid or set(coordinates) - set(known) or (found.triangles is not None and not solid):
        raise ValueError(
            f"manifold_figure: coordinates={tuple(coordinates)} must be two of {known}, or three for a surface, in axes "
            'with projection="3d".'
        )
    columns = found.x[:, [known.index(name) for name in coordinates]].T
    at = columns[:, int(np.argmin(np.sum(found.s.reshape(len(found.s), -1) ** 2, axis=1)))]
    colour = BLUE if np.abs(np.linalg.det(np.atleast_2d(found.multiplier))) < 1 else VERMILION
    if ax is None and solid:
        ax = pyplot().figure(figsize=(6.4, 4.8), layout="constrained").add_subplot(projection="3d")
    ax = tidy(ax) if not solid else ax
    assert ax is not None
    if found.triangles is None:
        ax.plot(*columns, color=colour, lw=1.2)
    else:
        ax.plot_trisurf(  # pyright: ignore[reportAttributeAccessIssue]
            *columns, triangles=found.triangles, color=colour, edgecolor=INK, lw=0.2, alpha=0.6
        )
    ax.plot(*at[:, None], marker="o", color=INK, ls="none")
    units = units_of(None, found.lap.params, step.system).coordinates
    for axis, name in zip("xyz", coordinates, strict=False):
        ax.set(**{f"{axis}label": with_unit(symbol(name), unit(units.get(name, "")))})
    return ax


def response_figure(
    response: PhaseResponse | IsostableResponse, model: ModuleType | None = None
) -> "matplotlib.figure.Figure":
    """The response to each coordinate over one period, of an isostable response the real part; dotted lines at the jumps.

    **Arguments:** `response`: of one orbit. `model`: supplies the title, and the unit of time.

    **Returns:** the figure. `ValueError` for a batch, and for a response that was not found; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.phase_response(orbit, n_samples=20)
    >>> figure = hj.plot.response_figure(response, model=wheel)
    >>> figure.savefig("response.png")
    """
    _require_one(response.result, np.ndim(response.residual), "response_figure")
    modes = {mode: response.orbit.system.mode(mode) for mode in response.orbit.mode_names}
    names = list(dict.fromkeys(name for mode in modes.values() for name in mode.coordinates))
    head = "Z" if isinstance(response, PhaseResponse) else r"\mathrm{Re}\,I"
    units = units_of(model, response.orbit.params, response.orbit.system)
    # An amplitude has no unit of its own.
    per = lambda name: ratio(units.time, units.coordinates.get(name, "")) if head == "Z" else ""
    size = (7, 1.5 * len(names) + 0.6)
    fig, axes = pyplot().subplots(len(names), 1, figsize=size, sharex=True, layout="constrained", squeeze=False)
    for name, ax, colour in zip(names, axes[:, 0], COLOURS * len(names), strict=False):
        tidy(ax)
        for arc in response.arcs:
            if name in (coordinates := modes[arc.mode].coordinates):
                ax.plot(arc.t, np.real(arc.z)[:, coordinates.index(name)], color=colour, lw=1.8)
        for arc in response.arcs[:-1]:
            ax.axvline(float(arc.t[-1]), color=GREY, lw=0.8, ls=":", gid="jump")
        ax.set_ylabel(with_unit(f"${head}$, {symbol(name)}", unit(per(name))).replace(" (", "\n(", 1))
    axes[-1, 0].set_xlabel(with_unit("$t$", unit(units.time)))
    put_title(fig, title_of(model, response.orbit.params, system=response.orbit.system), 11)
    return fig


def tongue_figure(found: Entrainment, strength: float = 0.1) -> "matplotlib.figure.Figure":
    r"""The interaction function over the phase difference, with its extremes, and the Arnold tongue up to a strength.

    **Arguments:** `found`: of one orbit. `strength`: the largest strength of the push.

    **Returns:** the figure. `ValueError` for a batch, and where the response was not found; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.phase_response(orbit, n_samples=20)
    >>> torque = lambda cycle, x, params: jnp.stack([0.0 * cycle, jnp.cos(2 * jnp.pi * cycle)])
    >>> found = hj.phase.entrainment(response, torque)
    >>> figure = hj.plot.tongue_figure(found, strength=0.05)
    >>> figure.savefig("tongue.png")
    """
    _require_one(found.result, np.ndim(found.lowest), "tongue_figure")
    fig, (left, right) = pyplot().subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    tidy(left).plot(np.append(found.lags, 1), np.append(found.interaction, found.interaction[0]), color=BLUE, lw=1.8)
    for extreme in (found.lowest, found.highest):
        left.axhline(float(extreme), color=GREY, lw=0.8, ls=":")
    left.set(xlabel=r"$\psi$ (cycles)", ylabel=r"$\Gamma$")
    strengths = np.linspace(0, strength, 2)
    low, high = found.tongue(strengths)
    tidy(right).fill_betweenx(strengths, low, high, color=PALE)
    right.plot(low, strengths, color=BLUE, lw=1.8)
    right.plot(high, strengths, color=BLUE, lw=1.8)
    right.set(xlabel="$T / P$", ylabel=r"strength $\varepsilon$")
    put_title(fig, title_of(None, found.orbit.params, system=found.orbit.system), 11)
    return fig


def _require_one(result: RESULTS, axes: int, caller: str) -> None:
    if axes:
        raise ValueError(f"{caller}: this is a batch. Choose one lane: jax.tree.map(lambda leaf: leaf[0], batch).")
    if result != RESULTS.successful:
        raise ValueError(f"{caller}: there is no response to draw: {RESULTS[result]}")  # pyright: ignore
