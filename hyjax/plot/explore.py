"""A page of a notebook: a gait with its animation, multipliers and numbers, and a slider for each parameter of its model.

The animation is one SVG image: keyframes without scripts, which notebooks show also without a kernel.
"""

import base64
import html
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import tree_leaves_with_path

from .._flow.integrator import Integrator
from .._orbit.find_orbits import find_orbits
from .._orbit.orbit import PeriodicOrbit
from .._orbit.orbit_report import orbit_table
from .._orbit.periodic_orbit import periodic_orbit
from .._orbit.return_map import ReturnMap
from .._orbit.shooting import SingleShooting
from .._results.labels import metadata_of, named_params
from .._results.registry import needed
from .._system.results import described_code, RESULTS, SolveError
from .._system.types import Params
from .._system.where import leaf_names, with_leaves
from .animation import check_outline
from .figure import BLUE, GREY, INK, PALE, VERMILION
from .scene import footholds, frame_times, Model, PlacedArc, Shapes, shapes, touches, vertical_frame, view_of, walk

if TYPE_CHECKING:
    import ipywidgets

# Of the image, in pixels; passes through the sequence, of which two repeat a biped without a jump; samples of an arc.
WIDTH, STRIDES, SAMPLES = 360, 2, 20


def moving_svg(orbit: PeriodicOrbit, model: Model) -> str:
    """The SVG image of a model along its orbit, repeated forever; the camera follows with the mean velocity.

    The states at the samples of each arc are keyframes, at their times; between them points move on straight lines.

    **Arguments:** `model`: as for `animate_orbit`. **Returns:** the text of the image. `ValueError` for an orbit that was not
    found.
    """
    placed = walk(orbit, model, STRIDES, SAMPLES)
    poses = [shapes(model, arc.mode, arc.x, orbit.params, arc.foot, arc.t) for arc in placed]
    times = np.concatenate([arc.t for arc in placed]) / placed[-1].t[-1]
    path = placed[-1].landing * times[:, None]
    shown = np.split(path, len(placed))
    drawn = np.concatenate(
        [(points - here[:, None]).reshape(-1, 2) for pose, here in zip(poses, shown, strict=True) for points in pose.values()]
    )  # fmt: skip
    view = view_of(np.stack([drawn.min(axis=0), drawn.max(axis=0)]))
    scale = WIDTH / (view[0, 1] - view[0, 0])
    height = scale * (view[1, 1] - view[1, 0])
    to_pixels = lambda points: (points - [view[0, 0], view[1, 1]]) * [scale, -scale]

    seconds = len(frame_times(placed[-1].t[-1], model, orbit.params, 50, None)) / 50
    clock = f'dur="{seconds:.2f}s" repeatCount="indefinite" keyTimes="{";".join(f"{t:.4g}" for t in times)}"'
    ground = _ground(model, orbit, placed, poses, to_pixels, view) if hasattr(model, "ground") else ""
    moved = to_pixels(placed[-1].landing) - to_pixels(np.zeros(2))
    camera = (
        f'<animateTransform attributeName="transform" type="translate" values="0 0;{-moved[0]:.1f} {-moved[1]:.1f}" '
        f'dur="{seconds:.2f}s" repeatCount="indefinite"/>'
    )
    bodies = _lines(model, placed, poses, to_pixels, clock) + _dots(placed, poses, to_pixels, clock)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'stroke-linecap="round" stroke-linejoin="round"><rect width="100%" height="100%" fill="white"/>'
        f"<g>{camera}{ground}{bodies}</g></svg>"
    )


def _lines(model: Model, placed: tuple[PlacedArc, ...], poses: list[Shapes], to_pixels, clock: str) -> str:
    """The outline's lines: each keeps its number and colour when a jump gives the line another name."""
    scenery, named = (
        getattr(model, "scenery", ()),
        [{number: name for name, number in arc.legs.items()} for arc in placed],
    )
    text = ""
    for number in sorted({number for names in named for number in names}, reverse=True):
        names = [each.get(number) for each in named]
        longest = max(len(pose[name][0]) for pose, name in zip(poses, names, strict=True) if name)
        points, widths = [], []
        for arc, pose, name in zip(placed, poses, names, strict=True):
            line = (
                np.broadcast_to(arc.foot, (len(arc.t), longest, 2)) if name is None else _of_length(pose[name], longest)
            )
            stands = name is not None and hasattr(model, "ground") and touches(pose[name][0], arc.foot)
            points += [_points(each) for each in to_pixels(line)]
            widths += ["0" if name is None else "5" if stands else "3"] * len(arc.t)
        colour = GREY if any(name in scenery for name in names) else VERMILION if number == 0 else BLUE
        text += (
            f'<polyline fill="none" stroke="{colour}" points="{points[0]}" stroke-width="{widths[0]}">'
            f'<animate attributeName="points" values="{";".join(points)}" {clock}/>'
            f'<animate attributeName="stroke-width" calcMode="discrete" values="{";".join(widths)}" {clock}/></polyline>'
        )
    return text


def _dots(placed: tuple[PlacedArc, ...], poses: list[Shapes], to_pixels, clock: str) -> str:
    """The outline's single points, such as a hip."""
    text = ""
    for name in dict.fromkeys(name for pose in poses for name, points in pose.items() if points.shape[1] == 1):
        at = [to_pixels(pose[name][:, 0]) if name in pose else np.full((len(arc.t), 2), np.nan)
              for arc, pose in zip(placed, poses, strict=True)]  # fmt: skip
        place = np.concatenate(at)
        radii = ["5" if np.isfinite(x) else "0" for x in place[:, 0]]
        place = np.nan_to_num(place)
        moves = "".join(
            f'<animate attributeName="{axis}" values="{";".join(f"{x:.1f}" for x in column)}" {clock}/>'
            for axis, column in zip(("cx", "cy"), place.T, strict=True)
        )
        moves += f'<animate attributeName="r" calcMode="discrete" values="{";".join(radii)}" {clock}/>'
        text += f'<circle cx="{place[0, 0]:.1f}" cy="{place[0, 1]:.1f}" r="{radii[0]}" fill="{INK}">{moves}</circle>'
    return text


def _ground(
    model: Model, orbit: PeriodicOrbit, placed: tuple[PlacedArc, ...], poses: list[Shapes], to_pixels, view
) -> str:
    """The ground under the camera's path, with a mark at each foothold."""
    standing = [
        arc for arc, pose in zip(placed, poses, strict=True) if any(touches(p[0], arc.foot) for p in pose.values())
    ]
    stride, (width, height) = placed[-1].landing, np.diff(view, axis=1)[:, 0]
    feet = np.stack([arc.foot for arc in standing or placed[:1]])
    line = footholds(feet, stride, vertical_frame(model, orbit.params)[0], width)
    deep = line[:, 1].min() - 2 * height
    under = np.concatenate([line, [[line[-1, 0], deep], [line[0, 0], deep]]])
    marks = to_pixels(line) if np.any(stride != 0) and standing else ()
    return (
        f'<polygon fill="{PALE}" points="{_points(to_pixels(under))}"/>'
        f'<polyline fill="none" stroke="{GREY}" stroke-width="1.5" points="{_points(to_pixels(line))}"/>'
        + "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{GREY}"/>' for x, y in marks)
    )


def _of_length(line: np.ndarray, longest: int) -> np.ndarray:
    """Lines, shape `(samples, k, 2)`, with the last point repeated: SVG moves lines of one number of points only."""
    return np.concatenate([line, np.repeat(line[:, -1:], longest - line.shape[1], axis=1)], axis=1)


def _points(line: np.ndarray) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in line)


# The shortest step to other parameters, as a part of the way.
SHORTEST = 1 / 16
# A warm start that needs more iterations is hardly one.
METHOD = SingleShooting(max_iterations=15)

# Ends of a slider, and its step if that is not a hundredth of the way.
Range = Sequence[float | int]


class Explorer:
    """A gait that follows the sliders of a model's parameters; a notebook shows the sliders and the page below them.

    **Attributes:** `orbit`: the gait on the page, a `PeriodicOrbit`. `message`: why that is not the gait at the sliders'
    values, or the empty string. `sliders`: from the names of parameters to widgets of ipywidgets;
    `explorer.sliders["slope"].value = 0.01` moves one. `controls`: all sliders and the button that resets them, one widget.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> page = hj.plot.explore(wheel)
    >>> page.message
    ''
    """

    def __init__(self, model: Model, orbit: PeriodicOrbit, ranges: Mapping[str, Range], near: float):
        widgets = ipywidgets_module()
        self.orbit, self.message = orbit, ""
        self._model, self._first, self._near, self._shown = model, orbit, near, []
        self._leaves = {name: k for k, name in enumerate(leaf_names(orbit.params)) if name in ranges}
        self.sliders: dict[str, ipywidgets.FloatSlider] = {}
        for name, (path, leaf) in zip(leaf_names(orbit.params), tree_leaves_with_path(orbit.params), strict=True):
            if name in ranges:
                about = metadata_of(orbit.params, path)
                self.sliders[name] = _slider(widgets, name, about, float(leaf), ranges[name])
        reset = widgets.Button(description="reset", tooltip="back to the first gait")
        reset.on_click(lambda button: self.reset())
        self.controls: ipywidgets.VBox = widgets.VBox([*self.sliders.values(), reset])
        for slider in self.sliders.values():
            slider.observe(lambda change: self._move(), names="value")

    @property
    def page(self) -> str:
        """The page as HTML: the message if there is one, animation, multipliers and numbers of `orbit`."""
        return gait_page(self.orbit, self._model, self.message)

    def reset(self) -> None:
        """Go back to the first gait, and the sliders to its parameters."""
        self.orbit, leaves = self._first, jax.tree.leaves(self._first.params)
        for name, k in self._leaves.items():
            self.sliders[name].value = float(leaves[k])
        self._move()

    def _move(self) -> None:
        values = jnp.asarray([slider.value for slider in self.sliders.values()], self.orbit.x.dtype)
        params = with_leaves(self._first.params, tuple(self._leaves.values()), values)
        where = ", ".join(f"{name} = {slider.value:.6g}" for name, slider in self.sliders.items())
        try:
            getattr(params, "__check_init__", lambda: None)()
        except ValueError as error:
            self.message = f"{error} The page shows the last gait."
        else:
            self.orbit, result = follow(self.orbit, params, self._near)
            self.message = "" if result == RESULTS.successful else (
                f"No gait at {where}: {described_code(result)} The page shows the last gait, at {setting(self.orbit)}."
            )  # fmt: skip
        self._update()

    def _update(self) -> None:
        from IPython.display import HTML

        for handle in self._shown:
            handle.update(HTML(self.page))

    def _ipython_display_(self) -> None:
        """The sliders, and below them the page as an output of its own: it stays in the notebook's file, and is shown without a
        kernel."""
        from IPython.display import display, HTML

        display(self.controls)
        self._shown.append(display(HTML(self.page), display_id=True))


def explore(
    model: Model, orbit: PeriodicOrbit | None = None, *, ranges: Mapping[str, Range] | None = None, near: float = 0.1
) -> Explorer:
    r"""A page of a notebook with a slider for each parameter of a model; gait, multipliers and animation follow.

    A gait is followed from the last one by Newton's method, $S^m(x) = x$, in steps of the parameters that are halved, down to
    a sixteenth of the way, where the gait is lost. All steps run one compiled program. A gait that cannot be followed stays
    on the page, with the result code of the search that failed.

    **Arguments:** `model`: a module of `hyjax.models`, or an own module or `types.SimpleNamespace`, with `outline(mode, x,
    params)` as for `hyjax.plot.animate_orbit`; without `orbit` also with `system`, `sequence`, `Params` and `guess(params)`.
    `orbit`: the gait to start from, with its parameters; by default that of `Params()`. `ranges`: from names of parameters to
    `(low, high)` or `(low, high, step)`, for sliders with other ends than the model's; the value should lie on a step. These
    are the metadata `range` of the field in `Params`; a parameter without it goes from half to twice its value, and one that
    is 0 from -0.1 to 0.1. Units and meanings are those of the metadata `unit` and `meaning`. `near`: as for `periodic_orbit`,
    the largest distance from one step's gait to the next.

    **Returns:** an `Explorer`. As the last expression of a cell it shows itself. `ImportError` without ipywidgets;
    `ValueError` for a model that lacks something, a batch of orbits, an orbit that was not found, and a range of an unknown
    parameter; `SolveError` where the model's guess leads to no gait and its region holds none.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> page = hj.plot.explore(wheel)
    >>> page.sliders["slope"].value = 0.21
    >>> page.orbit.result
    successful
    """
    ipywidgets_module()
    check_outline(model, "explore")
    orbit = _first_gait(model) if orbit is None else orbit
    if np.ndim(orbit.period) or not np.isfinite(orbit.period):
        raise ValueError("explore: orbit must be one orbit that was found; choose one of a batch, such as orbits[0].")
    check_outline(model, "explore", orbit)
    return Explorer(model, orbit, _ranges(orbit.params, ranges or {}), near)


def follow(orbit: PeriodicOrbit, params: Params, near: float) -> tuple[PeriodicOrbit, RESULTS]:
    """The orbit at other parameters, or the last one on the way to them, and the code of the last search: Newton's method from
    the last orbit, over the whole way if it leads to an orbit `near` the last one, otherwise in steps along the straight line of
    parameters, halved on failure.

    **Arguments:** `params`: of the structure and the dtypes of `orbit.params`, so that one compiled program serves all steps.
    `near`: as for `periodic_orbit`.
    """
    start, reached, step = orbit.params, 0.0, 1.0
    while True:
        found = periodic_orbit(
            orbit.step, orbit.x, _between(start, params, reached + step), method=METHOD, near=near, throw=False
        )
        if found.result == RESULTS.successful:
            orbit, reached = found, reached + step
            if reached == 1:
                return orbit, orbit.result
        elif step > SHORTEST:
            step /= 2
        else:
            return orbit, found.result


def _between(start: Params, end: Params, share: float) -> Params:
    """Parameters on the straight line; leaves that are no floating-point numbers are those of the end."""

    def one(a, b):
        if share == 1 or not eqx.is_inexact_array(b):
            return b
        return a + jnp.asarray(share, b.dtype) * (b - a)

    return jax.tree.map(one, start, end)


def ipywidgets_module() -> ModuleType:
    """`ipywidgets`, or an `ImportError` with the command that installs it."""
    return needed("ipywidgets", "notebook", "Interactive pages")


def _first_gait(model: Model) -> PeriodicOrbit:
    """The gait of the default parameters: from the guess, otherwise the first stable one of the region."""
    name = getattr(model, "__name__", str(model)).rpartition(".")[-1]
    missing = [each for each in ("system", "sequence", "Params", "guess") if not getattr(model, each, None)]
    if missing:
        raise ValueError(
            f"explore: {name} does not define {', '.join(missing)}. Give a gait: hj.plot.explore(model, orbit)."
        )
    params = model.Params()
    # Programs that run once or twice a second: compile time matters more than run time.
    step = ReturnMap(model.system, sequence=model.sequence, integrator=Integrator(unroll=False))
    orbit = periodic_orbit(step, model.guess(params), params, method=METHOD, near=jnp.inf, throw=False)
    if orbit.result == RESULTS.successful:
        return orbit
    if hasattr(model, "region"):
        orbits = find_orbits(step, params, region=model.region(params), method=METHOD, throw=False)
        if len(orbits):
            return orbits[int(np.argmax(np.asarray(orbits.stable)))]
    raise SolveError(
        f"explore: no gait of {name} was found at its default parameters: {described_code(orbit.result)} Give a gait: "
        "hj.plot.explore(model, orbit).",
        orbit.result._value,
        orbit,
    )


def _ranges(params: Params, given: Mapping[str, Range]) -> dict[str, Range]:
    """A range for each parameter that is one floating-point number."""
    found: dict[str, Range] = {}
    for (path, leaf), name in zip(tree_leaves_with_path(params), leaf_names(params), strict=True):
        if eqx.is_array_like(leaf) and np.ndim(leaf) == 0 and jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            value, about = float(leaf), metadata_of(params, path)
            around = tuple(sorted((value / 2, 2 * value))) if value else (-0.1, 0.1)
            found[name] = given.get(name, about.get("range", around))
    if unknown := [name for name in given if name not in found]:
        raise ValueError(f"explore: there is no parameter {', '.join(unknown)}; sliders move {', '.join(found)}.")
    if not found:
        raise ValueError("explore: the parameters of the gait have no floating-point number that a slider could move.")
    return found


def _slider(
    widgets: ModuleType, name: str, about: Mapping[str, Any], value: float, limits: Range
) -> "ipywidgets.FloatSlider":
    low, high = min(limits[0], value), max(limits[1], value)
    # A browser moves a value to the nearest step, so the first value has to lie on one.
    below = round(100 * (value - low) / (high - low))
    step = limits[2] if len(limits) == 3 else (value - low) / below if below else (high - low) / 100
    unit, meaning = printed_unit(about.get("unit", "")), about.get("meaning", "")
    return widgets.FloatSlider(
        value=value, min=low, max=high, step=step,
        description=f"{name} ({unit})" if unit else name, tooltip=meaning, readout_format=".5g",
        style={"description_width": "16em"}, layout={"width": "min(40em, 100%)"},
    )  # fmt: skip


# Of the picture of the unit circle, in pixels.
SIZE = 180


def gait_page(orbit: PeriodicOrbit, model: Model, message: str = "") -> str:
    """The page as HTML. The pictures are images within it, which notebooks show also in a file that is not trusted.

    **Arguments:** `orbit`: one orbit that was found. `message`: a line of text above the pictures.
    """
    title = f"{getattr(model, 'title', 'Gait')} at {setting(orbit)}"
    said = f'<p role="alert"><b>{html.escape(message)}</b></p>' if message else ""
    return (
        f'<div>{said}<p>{html.escape(title)}</p><div style="display:flex;flex-wrap:wrap;gap:12px;align-items:center">'
        f"{_image(moving_svg(orbit, model), title)}{_image(_unit_circle(orbit), 'multipliers in the unit circle')}"
        f"{orbit_table(orbit).html()}</div></div>"
    )


def setting(orbit: PeriodicOrbit) -> str:
    """The parameters of an orbit with their units, for a sentence."""
    return ", ".join(
        f"{name} = {values:.6g} {printed_unit(about.get('units', ''))}".rstrip()
        for name, (values, about) in named_params(orbit.params).items()
        if values.ndim == 0
    )


def printed_unit(unit: str) -> str:
    """A unit, or nothing where the unit is 1."""
    return "" if unit == "1" else unit


def _unit_circle(orbit: PeriodicOrbit) -> str:
    """The multipliers in the complex plane; those farther out than 1.5 are drawn at the rim, hollow."""
    middle, radius = SIZE / 2, SIZE / 3.2
    dots = ""
    for each in np.asarray(orbit.multipliers):
        far = abs(each) > 1.5
        place = each / abs(each) * 1.5 if far else each
        dots += (
            f'<circle cx="{middle + radius * place.real:.1f}" cy="{middle - radius * place.imag:.1f}" r="5" '
            f'fill="{"white" if far else VERMILION}" stroke="{VERMILION}" stroke-width="2"/>'
        )
    axes = "".join(
        f'<line x1="{a}" y1="{b}" x2="{c}" y2="{d}" stroke="{PALE}"/>'
        for a, b, c, d in ((0, middle, SIZE, middle), (middle, 0, middle, SIZE))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIZE}" height="{SIZE}" viewBox="0 0 {SIZE} {SIZE}">'
        f'<rect width="100%" height="100%" fill="white"/>{axes}'
        f'<circle cx="{middle}" cy="{middle}" r="{radius}" fill="none" stroke="{GREY}" stroke-width="1.5"/>'
        f'<text x="6" y="16" font-family="sans-serif" font-size="13" fill="{INK}">multipliers</text>{dots}</svg>'
    )


def _image(svg: str, text: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{html.escape(text)}" src="data:image/svg+xml;base64,{data}">'
