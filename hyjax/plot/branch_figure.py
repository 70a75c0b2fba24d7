"""Bifurcation diagrams of branches, with their special points; loci in the plane of two parameters."""

from collections.abc import Collection, Iterator, Sequence
from types import ModuleType
from typing import Any, TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from .._continuation.detection import each_once
from .._continuation.grazing import ENDS
from .._continuation.special_points import SpecialPoint
from .._results.labels import chosen_unit, units_of, units_of_params
from .figure import axis_of, COLOURS, GREY, open_axes, PALE, put_title, symbol, telling, title_of, unit, with_unit

if TYPE_CHECKING:
    import matplotlib.axes

    from .._continuation.branch import Branch, Height
    from .._continuation.equilibrium_branch import EquilibriumBranch
    from .._continuation.equilibrium_locus import EquilibriumLocus
    from .._continuation.locus import Locus
    from .._sweep.bifurcation_diagram import Diagram


MARKS = {
    "fold": ("o", "fold"),
    "period-doubling": ("s", "period doubling"),
    "neimark-sacker": ("D", "Neimark-Sacker"),
    "branch-point": ("^", "branch point"),
    "hopf": ("D", "Hopf"),
    "boundary": ("P", "boundary equilibrium"),
    "grazing": ("v", "grazing"),
    "corner": ("P", "corner"),
    "swap": ("x", "swap of events"),
    "grazing-sliding": ("v", "grazing-sliding"),
    "adding-sliding": ("<", "adding-sliding"),
    "crossing-sliding": (">", "crossing-sliding"),
    "switching-sliding": ("X", "switching-sliding"),
}


def branch_diagram(
    branches: "Branch | Sequence[Branch]",
    coordinate: "Height | None" = None,
    ax: "matplotlib.axes.Axes | None" = None,
    parameter: str = "",
    model: ModuleType | None = None,
    degrees: Collection[str] = (),
    against: "Height | None" = None,
) -> "matplotlib.axes.Axes":
    """The bifurcation diagram of branches: a coordinate of every node of the orbits over the parameter.

    Stable orbits are drawn solid, unstable orbits dashed, up to the special point where the stability changes. Branches of
    different numbers of strides have different colours, and so have several branches of one number. Special points are marked;
    a branch of doubled orbits begins at its period doubling.

    **Arguments:** `branches`: one branch, or several of one system. `coordinate`: a name, or `period`, the period per stride, or
    a function `(orbit, params) -> number`, as those of `hyjax.objectives`, drawn once for an orbit; by default the first
    coordinate of the mode in which the orbits start that is not constant, nor linear in the parameter, as one that a reset sets.
    `against`: what is drawn to the right in place of the parameter, a name, of whose values the first is taken, or a function.
    `ax`: axes to draw in; by default new ones, with a title. `parameter`: its name, for the axis label; by default that of the
    branch. `model`: supplies the title, and the units of the axes. `degrees`: names of the parameters that are shown in degrees.

    **Returns:** the axes. `ValueError` for an unknown coordinate; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> branch = hj.continuation(orbit, where=lambda p: p.slope, stop=0.25)
    >>> axes = hj.plot.branch_diagram(branch, "period", parameter="slope")
    >>> axes.figure.savefig("branch.png")
    """
    branches = list(branches) if isinstance(branches, Sequence) else [branches]
    unfolding = branches[0].unfolding
    problem, params = unfolding.problem, unfolding.params
    names = problem.system.mode(problem.sequence[0]).coordinates
    if coordinate is None:
        columns = {name: np.concatenate([branch.heights(name)[:, :1] for branch in branches]) for name in names}
        coordinate = telling(columns, np.concatenate([branch.values for branch in branches])[:, None])
    for each in (coordinate, against):
        if isinstance(each, str) and each not in (*names, "period"):
            raise ValueError(
                f"branch_diagram: there is no coordinate {each!r}; use one of {', '.join((*names, 'period'))}, or a function "
                "of an orbit and its parameters."
            )
    axes = open_axes(ax, (6.4, 4.4))
    own = branches[0].parameter
    across = lambda values: values if against else axis_of(own, values, "", degrees)[0]
    strides = [branch.unfolding.problem.strides for branch in branches]
    numbers = sorted(set(strides))
    kinds: dict[str, None] = {}
    styles: set[str] = set()
    for k, (branch, curves) in enumerate(zip(branches, curves_of(branches, coordinate, against), strict=True)):
        colour = COLOURS[(numbers.index(strides[k]) if len(numbers) > 1 else k) % len(COLOURS)]
        for values, heights, stable in curves:
            styles.add("-" if stable else "--")
            axes.plot(across(values), heights, color=colour, lw=1.6, ls="-" if stable else "--")
        for point in branch.special_points:
            heights = heights_at(point, coordinate)
            at = np.full(heights.size, float(across(place_of(point, against))))
            axes.plot(at, heights, MARKS[point.kind][0], color=colour, mfc="white", ms=6, zorder=4, gid=point.kind)
            kinds.setdefault(point.kind)
    for style, label in (("-", "stable"), ("--", "unstable")):
        if style in styles:
            axes.plot([], [], color=GREY, ls=style, label=label)
    for i, number in enumerate(numbers if len(numbers) > 1 else ()):
        axes.plot([], [], color=COLOURS[i % len(COLOURS)], lw=3, label=f"{number} stride" + "s" * (number > 1))
    for kind in kinds:
        axes.plot([], [], MARKS[kind][0], color=GREY, mfc="white", ms=6, label=MARKS[kind][1])
    axes.legend(
        frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, fontsize=9, columnspacing=1.2, handlelength=1.8,
        borderaxespad=0.2,
    )  # fmt: skip
    printed = chosen_unit(units_of_params(params).get(own, ""), params)
    units = units_of(model, params, problem.system)
    period = with_unit("$T$ per stride" if numbers != [1] else "$T$", unit(units.time))

    def printed_name(height: "Height") -> str:
        if callable(height):
            return getattr(height, "__name__", "").strip("<>").replace("_", " ")
        return period if height == "period" else with_unit(symbol(height), unit(units.coordinates.get(height, "")))

    axes.set(
        xlabel=printed_name(against) if against else axis_of(own, 0.0, printed, degrees, parameter)[1],
        ylabel=printed_name(coordinate),
    )
    if ax is None:
        put_title(axes.figure, title_of(model, params, degrees, without=(own,), system=problem.system), 11)
    return axes


def equilibrium_diagram(
    branch: "EquilibriumBranch", coordinate: str | None = None, ax: "matplotlib.axes.Axes | None" = None
) -> "matplotlib.axes.Axes":
    """A coordinate of a branch of equilibria over the parameter: stable ones solid, unstable ones dashed, and virtual ones
    dotted, with marks at special points.

    **Arguments:** `branch`: an `EquilibriumBranch`. `coordinate`: a name; by default the first that is not constant nor linear in
    the parameter. `ax`: axes to draw in, such as those of the diagram of the orbits from a Hopf point; by default new ones.

    **Returns:** the axes. `ValueError` for an unknown coordinate; `ImportError` without matplotlib.

    **Example:**

    >>> system = hj.HybridSystem({"flow": hj.Mode(lambda t, x, p: p - x**2, ("x",))}, ())
    >>> rest = hj.phase.equilibrium(system, "flow", jnp.array([1.2]), jnp.array(1.0))
    >>> branch = hj.continuation(rest, where=lambda p: p, stop=(-1.0, 2.0))
    >>> hj.plot.equilibrium_diagram(branch).figure.savefig("fold.png")
    """
    start = branch.unfolding.start
    names = start.system.mode(start.mode).coordinates
    heights = dict(zip(names, branch.x.T[:, :, None], strict=True))
    coordinate = telling(heights, branch.values[:, None]) if coordinate is None else coordinate
    if coordinate not in names:
        raise ValueError(f"equilibrium_diagram: there is no coordinate {coordinate!r}; use one of {', '.join(names)}.")
    axes = open_axes(ax, (6.4, 4.4))
    styles = np.where(branch.kinds == "virtual", ":", np.where(branch.stable, "-", "--"))
    words, shown = {"-": "stable", "--": "unstable", ":": "virtual"}, set()
    first = 0
    for last in [*np.flatnonzero(styles[1:] != styles[:-1]), len(branch) - 1]:
        style, part = styles[first], slice(first, last + 2)
        label = None if style in shown else f"{words[style]} equilibrium"
        axes.plot(branch.values[part], heights[coordinate][part, 0], style, color=GREY, lw=1.6, label=label)
        shown.add(style)
        first = last + 1
    for kind in dict.fromkeys(point.kind for point in branch.special_points):
        points = [point for point in branch.special_points if point.kind == kind]
        across, up = (
            [point.value for point in points],
            [point.equilibrium.x[names.index(coordinate)] for point in points],
        )
        axes.plot(across, up, MARKS[kind][0], color=GREY, mfc="white", ms=6, zorder=4, gid=kind, label=MARKS[kind][1])
    _legend_of(axes)
    if ax is None:
        axes.set(xlabel=axis_of(branch.parameter, 0.0, "", ())[1], ylabel=symbol(coordinate))
    return axes


def locus_diagram(
    loci: "Locus | EquilibriumLocus | Sequence[Locus | EquilibriumLocus]",
    ax: "matplotlib.axes.Axes | None" = None,
    parameters: tuple[str, str] = ("", ""),
) -> "matplotlib.axes.Axes":
    """Loci of special points in the plane of two parameters, labelled by kind; the branch's own parameter is horizontal. Neutral
    saddles, at which no orbit bifurcates, are dotted. Points of codimension two are dots with names, if they have been located:
    read `Locus.special_points` before.

    **Arguments:** `loci`: one or several. `ax`: axes to draw in; by default new ones, with a title. `parameters`: the names of
    the two parameters, for the axis labels; by default those of the loci.

    **Returns:** the axes. `ImportError` without matplotlib.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 1.0]), coordinates=("size", "clock"))
    >>> births = lambda t, x, p: jnp.stack([p["rate"] * x[0] * (1 - x[0]) - p["caught"], 0 * x[1]])
    >>> herd = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[1], births),))
    >>> params = {"rate": jnp.array(2.9), "caught": jnp.array(0.0)}
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(herd, sequence=("year",)), jnp.array([0.6, 0.0]), params)
    >>> branch = hj.continuation(orbit, where=lambda p: p["rate"], stop=3.2)
    >>> (point,) = branch.special_points
    >>> locus = hj.locus(point, where=lambda p: p["caught"], stop=0.05)
    >>> axes = hj.plot.locus_diagram(locus, parameters=("rate", "caught"))
    >>> axes.figure.savefig("locus.png")
    """
    loci = list(loci) if isinstance(loci, Sequence) else [loci]
    axes = open_axes(ax, (5.4, 4.2))
    kinds: list[str] = []
    # Of orbits the problem, of equilibria one of them.
    unfoldings: list[Any] = [locus.unfolding for locus in loci]
    about = [each.start if hasattr(each, "start") else each.problem for each in unfoldings]
    strides = [getattr(each, "strides", 1) for each in about]
    for locus, many in zip(loci, strides, strict=True):
        kind = MARKS[locus.kind][1] + (f", {many} strides" if many > min(strides) else "")
        kinds += [] if kind in kinds else [kind]
        k = kinds.index(kind)
        neutral, colour = locus.neutral, COLOURS[k % len(COLOURS)]
        # Each part with the ends of the other, so that no piece of the curve is missing.
        inside = neutral & np.roll(neutral, 1) & np.roll(neutral, -1)
        axes.plot(*np.where(inside, np.nan, locus.values.T), color=colour, lw=1.6, label=kind)
        if neutral.any():
            axes.plot(*np.where(neutral, locus.values.T, np.nan), color=colour, lw=1, ls=":", label="neutral saddle")
    located = [point for locus in loci for point in locus.located or ()]
    orbits = [point for point in located if isinstance(point, SpecialPoint)]
    for point in [*each_once(orbits), *(point for point in located if not isinstance(point, SpecialPoint))]:
        axes.plot(*point.values, "o", color="black", ms=4, zorder=4, gid=point.kind)
        text = point.kind.removeprefix("resonance-").replace("neimark-sacker", "NS")
        axes.annotate(text, tuple(point.values), (4, 4), textcoords="offset points", fontsize=8)
    _legend_of(axes)
    params, own = loci[0].unfolding.params, loci[0].parameters
    units = units_of_params(params)
    printed = [chosen_unit(units.get(name, ""), params) for name in own]
    across, up = (
        axis_of(name, 0.0, unit, label=label)[1] for name, unit, label in zip(own, printed, parameters, strict=True)
    )
    axes.set(xlabel=across, ylabel=up)
    if ax is None:
        put_title(axes.figure, title_of(None, params, without=own, system=about[0].system), 11)
    return axes


# A doubled branch begins at most so far from its period doubling, relative to the state's size and to the branches' interval.
NEAR = 0.05


# A branch as a line through its points and its special points: the values, shape `(points,)`; the heights, shape
# `(points, curves)`; and for each point whether the way to the next is stable, shape `(points,)`.
Line = tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points curves"], Bool[np.ndarray, " points"]]
# A part of it that is stable, or unstable, throughout.
DrawnCurve = tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points curves"], bool]


def curves_of(branches: "Sequence[Branch]", coordinate: "Height", against: "Height | None") -> list[list[DrawnCurve]]:
    """The curves of each branch."""
    line = lambda branch: _begun(_line(branch, coordinate, against), branch, branches, coordinate, against)
    return [list(_cut(line(branch))) for branch in branches]


def place_of(point: "SpecialPoint", against: "Height | None") -> float:
    """The abscissa of a special point: the parameter, or what is drawn in its place."""
    return float(heights_at(point, against)[0] if against else point.value)


def heights_at(point: "SpecialPoint", coordinate: "Height") -> Float[np.ndarray, " strides"]:
    """The ordinates of a special point: one for each stride, or the period per stride, or the value of a function."""
    orbit = point.orbit
    if callable(coordinate):
        return np.atleast_1d(coordinate(orbit, orbit.params))
    if coordinate == "period":
        return np.asarray(orbit.period)[None] / orbit.strides
    names = orbit.system.mode(orbit.sequence[0]).coordinates
    return np.asarray(orbit.nodes)[:, names.index(coordinate)]


def _line(branch: "Branch", coordinate: "Height", against: "Height | None") -> Line:
    """The points of a branch with its special points between them, where the stability changes."""
    values = branch.heights(against)[:, 0] if against else branch.values
    heights, stable = branch.heights(coordinate), branch.stable
    inside: dict[int, list[SpecialPoint]] = {}
    for point in branch.special_points if len(values) > 1 else ():
        inside.setdefault(_segment(branch, point), []).append(point)
    rows = []
    for i in range(len(values)):
        rows.append((values[i], heights[i], bool(stable[i])))
        # Grazing points and others at which a branch ends lie beyond the ends.
        between = [point for point in inside.get(i, ()) if point.kind not in ENDS]
        for point in sorted(between, key=lambda point: abs(float(point.value) - branch.values[i])):
            rows.append((place_of(point, against), heights_at(point, coordinate), bool(stable[i + 1])))
    values, heights, stable = (np.array(column) for column in zip(*rows, strict=True))
    return values, heights, stable


def _segment(branch: "Branch", point: "SpecialPoint") -> int:
    """The number of the point before a special point: the way to the next point that the special point prolongs least."""
    v, there = np.asarray(branch._points["v"]), np.asarray(point.v)[: branch._points["v"].shape[1]]
    to = np.linalg.norm(v - there, axis=1)
    detour = to[:-1] + to[1:] - np.linalg.norm(np.diff(v, axis=0), axis=1)
    return int(np.argmin(detour))


def _begun(
    line: Line, branch: "Branch", branches: "Sequence[Branch]", coordinate: "Height", against: "Height | None"
) -> Line:
    """The line with the period doubling that it comes from, where one of the other branches has it."""
    (values, heights, stable), strides = line, branch.unfolding.problem.strides
    nodes = np.asarray(branch._points["aux"].nodes)
    span = max(np.ptp(each.values) for each in branches)
    for point in (point for other in branches if other is not branch for point in other.special_points):
        if point.kind != "period-doubling" or 2 * point.orbit.strides != strides:
            continue
        twice = np.tile(np.asarray(point.orbit.nodes), (2, 1))
        for end in (0, -1):
            apart = np.max(np.abs(nodes[end] - twice)) / np.max(np.abs(twice))
            if apart < NEAR and abs(branch.values[end] - float(point.value)) < NEAR * span:
                height = np.resize(heights_at(point, coordinate), heights.shape[1])
                place = 0 if end == 0 else len(values)
                return (
                    np.insert(values, place, place_of(point, against)),
                    np.insert(heights, place, height, axis=0),
                    np.insert(stable, place, stable[end]),
                )
    return line


def _cut(line: Line) -> Iterator[DrawnCurve]:
    """The parts of one stability, each with the point where the next begins."""
    values, heights, stable = line
    changes = np.flatnonzero(np.diff(stable.astype(int))) + 1
    for start, end in zip([0, *changes], [*changes, len(stable)], strict=True):
        piece = slice(start, min(end + 1, len(stable)))
        yield values[piece], heights[piece], bool(stable[start])


def _legend_of(axes: "matplotlib.axes.Axes", **options) -> None:
    """A legend with every label once."""
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    axes.legend(named.values(), named.keys(), frameon=False, **options)


# Of a diagram over two parameters, so many periods have colours of their own.
PERIODS = 8
# The part of the ranges by which special points outside may widen the picture.
MARGIN = 0.05


def diagram_figure(diagram: "Diagram", ax: "matplotlib.axes.Axes | None" = None) -> "matplotlib.axes.Axes":
    """The bifurcation diagram over two parameters: loci with their points of codimension two, over the periods of attractors.

    **Arguments:** `diagram`: a result of `Branch.diagram`. `ax`: axes to draw in; by default new ones, with a title.

    **Returns:** the axes, between the bounds of the diagram. Grey is where no period was found, white where the iteration failed.
    `ImportError` without matplotlib.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 1.0]), coordinates=("size", "clock"))
    >>> births = lambda t, x, p: jnp.stack([p["rate"] * x[0] * (1 - x[0]) - p["caught"], 0 * x[1]])
    >>> herd = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[1], births),))
    >>> params = {"rate": jnp.array(2.9), "caught": jnp.array(0.0)}
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(herd, sequence=("year",)), jnp.array([0.6, 0.0]), params)
    >>> branch = hj.continuation(orbit, where=lambda p: p["rate"], stop=3.4)
    >>> diagram = branch.diagram(where=lambda p: p["caught"], stop=(-0.1, 0.1), grid=(5, 3))
    >>> hj.plot.diagram_figure(diagram).figure.savefig("diagram.png")

    Source: Kuznetsov (2004), ch. 9.
    """
    axes, branch, found = open_axes(ax, (7.2, 4.6)), diagram.branch, diagram.attractors
    if found is not None:
        from matplotlib.colors import to_rgb

        across, up = (found[name].values for name in found["period"].dims)
        period, shown = found["period"].values, np.ones((*found["period"].shape, 3))
        pale = lambda colour, share: tuple(1 - share + share * each for each in to_rgb(colour))
        tints = [pale(each, share) for share in (0.25, 0.5) for each in COLOURS]
        names = [*(f"period {k}" for k in range(1, PERIODS + 1)), f"period above {PERIODS}", "no period"]
        last = np.where(period == 0, len(names), np.minimum(period, PERIODS + 1))
        for k, (name, colour) in enumerate(
            zip(names, [*tints[:PERIODS], to_rgb(GREY), to_rgb(PALE)], strict=True), start=1
        ):
            where = (last == k) & (found["result"].values == 0)
            shown[where] = colour
            if where.any():
                axes.plot([], [], "s", color=colour, mec=GREY, mew=0.5, ms=9, label=name)
        axes.pcolormesh(across, up, shown.transpose(1, 0, 2), shading="nearest", rasterized=True)
        # Points of codimension two a little outside are worth the room.
        low, high = np.array([[across.min(), up.min()], [across.max(), up.max()]])
        places = np.array([low, high, *(point.values for each in diagram.loci for point in each.located or ())])
        margin = MARGIN * (high - low)
        (left, bottom), (right, top) = np.maximum(places.min(0), low - margin), np.minimum(places.max(0), high + margin)
        axes.set(xlim=(left, right), ylim=(bottom, top))
    locus_diagram(diagram.loci, axes)
    _legend_of(axes, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=9)
    if ax is None:
        params = branch.unfolding.params
        own = diagram.loci[0].parameters
        put_title(axes.figure, title_of(None, params, without=own, system=branch.unfolding.problem.system), 11)
    return axes
