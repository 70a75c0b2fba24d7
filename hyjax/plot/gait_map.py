"""Gait maps: branches of orbits as a page of HTML, whose gaits are looked at by pointing at them."""

import html
import itertools
import json
import pathlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Float

from .._flow.trajectory import Arc
from .._optimize import objectives
from .._orbit.footfalls import Footfalls
from .._orbit.orbit import PeriodicOrbit
from .._results.encoding import model_of
from .._results.labels import units_of, units_of_params
from .._system.system import HybridSystem
from .._system.types import require_counts
from .animation import check_outline
from .figure import COLOURS, GREY, head_of, INK, with_unit
from .scene import Model, placed_arcs, SECONDS, shapes, view_of

if TYPE_CHECKING:
    from .._continuation.branch import Branch, Height

# Of an arc; odd, for Simpson's rule.
SAMPLES = 9
# Of the map and of the moving gait, in pixels.
MAP, GAIT = (540, 480), 340


class GaitPoint(NamedTuple):
    """A point of the map; `motion`: of the gaits that move."""

    branch: int
    across: float
    up: float
    stable: bool
    orbit: PeriodicOrbit
    feet: Footfalls
    motion: dict[str, Any] | None


class GaitMap:
    """A page of HTML with the gait map of branches; a notebook shows it, also without a kernel.

    **Attributes:** `page`: the text of the page, whole: it needs no other file, no network and no kernel. `gaits`: the names of
    the gaits at the points of each branch. `parts`: what the page has of its own beside the script that draws any map, texts by
    name; the page is that of `GaitMap(parts)`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> branch = hj.continuation(orbit, where=lambda p: p.slope, stop=0.25)
    >>> branch.explore(wheel).save("wheel.html")
    """

    def __init__(self, parts: Mapping[str, str], gaits: tuple[tuple[str, ...], ...] = ()):
        self.parts, self.gaits = dict(parts), gaits
        self.page = re.sub(r"@(\w+)@", lambda found: self.parts[found[1]], PAGE)

    def save(self, path: str | pathlib.Path) -> None:
        """Write the page to a file `.html`, which a browser opens."""
        if pathlib.Path(path).suffix != ".html":
            raise ValueError(f"GaitMap.save: {path}: give a path with the suffix .html.")
        pathlib.Path(path).write_text(self.page, encoding="utf-8")

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{MAP[1] + 200}px;border:0"
        return f'<iframe title="gait map" srcdoc="{html.escape(self.page)}" style="{style}"></iframe>'


def gait_map(
    branches: "Branch | Iterable[Branch] | Mapping[str, Branch]",
    model: Model | None = None,
    across: "Height | None" = None,
    up: "Height" = "period",
    *,
    legs: Sequence[str] | Mapping[str, Collection[str]] | None = None,
    gaits: int = 60,
) -> GaitMap:
    """A map of the gaits of branches, and each gait moving beside it: footfalls, forces of the legs and multipliers.

    Every point of a branch is a point of the map, coloured by the name of its gait, see `PeriodicOrbit.footfalls`; filled where
    the gait is stable, hollow where not. Pointing at one shows its numbers and a drawing, a click its motion; arrow keys go on
    along the branch.

    **Arguments:** `branches`: one, or several of one system, also by name. `model`: with `outline`, as for
    `animate_orbit`, by default that of `hyjax.models` which has the branches' system; where it has `forces(mode, x, params)`, the
    vertical forces of the legs, shape `(legs,)`, these are shown. `across`, `up`: what the map shows, by default the speed, or
    the parameter where the model has none, and the period; the name `speed`, `period`, `duty_factor`, `spectral_radius`, of the
    parameter or of a coordinate at the start; or a function `(orbit, params) -> number`, as those of `hyjax.objectives`. The
    speed is that of the model's `travel`, or the mean of the coordinate `x_rate`, by Simpson's rule. `legs`: as for `footfalls`.
    `gaits`: how many of all move; each takes 10 to 25 kB.

    **Returns:** a `GaitMap`. `ValueError` for an unknown name, a system that is of no model, a model without an outline or of
    another system, and `gaits` below 1.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> branch = hj.continuation(orbit, where=lambda p: p.slope, stop=0.25)
    >>> page = hj.plot.gait_map(branch, wheel, "slope", gaits=5)
    >>> len(page.page) < 100_000
    True

    Source: Gan, Yesilevskiy, Zaytsev, Remy (2018), J. R. Soc. Interface 15, 20180455, for maps of gaits of one model.
    """
    require_counts("gait_map", 1, gaits=gaits)
    branches = branches.values() if isinstance(branches, Mapping) else branches
    branches = list(branches) if isinstance(branches, Iterable) else [branches]
    if not branches or not all(hasattr(each, "heights") for each in branches):
        raise ValueError(
            f"gait_map: give branches, as hj.continuation returns them, at least one; not {[type(x).__name__ for x in branches]}."
        )
    system = branches[0].unfolding.problem.system
    model = model_of(system) if model is None else model
    if model is None:
        raise ValueError(
            "gait_map: the system of the branches is of no model of hyjax.models. Give model=, a module or a "
            "types.SimpleNamespace with a function outline(mode, x, params)."
        )
    for branch in branches:
        check_outline(model, "gait_map", branch.orbit(0))
    if across is None:
        known = hasattr(model, "travel") or any("x_rate" in mode.coordinates for mode in system.modes.values())
        across = "speed" if known else branches[0].parameter
    total, points = sum(map(len, branches)), []
    for number, branch in enumerate(branches):
        orbits = jax.tree.map(np.asarray, branch.orbits)
        each = [orbits[i] for i in range(len(branch))]
        arcs = [orbit.sample(SAMPLES) for orbit in each]
        feet = [_footfalls(orbit, legs) for orbit in each]
        columns = [_column(branch, height, model, arcs, feet) for height in (across, up)]
        moving = np.unique(np.linspace(0, len(branch) - 1, max(2, round(gaits * len(branch) / total))).astype(int))
        for i, orbit in enumerate(each):
            drawn = _motion(orbit, arcs[i], model) if i in moving else None
            x, y = (float(column[i]) for column in columns)
            points.append(GaitPoint(number, x, y, bool(branch.stable[i]), orbit, feet[i], drawn))
    for height, known in ((across, [point.across for point in points]), (up, [point.up for point in points])):
        if not np.isfinite(known).any():
            what = repr(height) if isinstance(height, str) else getattr(height, "__name__", height)
            raise ValueError(
                f"gait_map: {what} is known at no point: a speed needs the model's `travel` or the coordinate x_rate, a duty "
                f"factor legs=. Give another as across= or up=, such as {branches[0].parameter!r} or a function of an orbit."
            )
    names = [_printed(height, branches[0], model) for height in (across, up)]
    named = tuple(tuple(point.feet.name for point in points if point.branch == k) for k in range(len(branches)))
    seconds = SECONDS.get(units_of(model, branches[0].unfolding.params, system).time, 1.0)
    return GaitMap(_parts(points, names, head_of(model, system), seconds), named)


def _footfalls(orbit: PeriodicOrbit, legs) -> Footfalls:
    """The footfalls; none where the orbit does not say which legs stand."""
    try:
        return orbit.footfalls(legs)
    except ValueError:
        if legs is not None:
            raise
        return Footfalls((), ())


def _column(
    branch: "Branch", height: "Height", model: Model, arcs: list[tuple[Arc, ...]], feet: list[Footfalls]
) -> np.ndarray:
    """What an axis of the map shows, shape `(points,)`."""
    if callable(height):
        return branch.heights(height)[:, 0]
    if height == "speed" and hasattr(model, "travel"):
        return branch.heights(objectives.speed(model.travel))[:, 0]
    if height == "speed":
        ways = [_way(branch.unfolding.problem.system, each) for each in arcs]
        return np.array([np.nan if way is None else way[-1] for way in ways]) / branch.periods
    duty = np.array([np.mean(each.duty_factors) if each.legs else np.nan for each in feet])
    known = branch.columns() | {branch.parameter: branch.values, "duty_factor": duty}
    if height not in known:
        raise ValueError(
            f"gait_map: there is no {height!r}; use one of speed, {', '.join(known)}, or a function of an orbit."
        )
    return known[height]


def _way(system: HybridSystem, arcs: Sequence[Arc]) -> Float[np.ndarray, " samples"] | None:
    """The integral of `x_rate` to the samples of all arcs, at even ones by Simpson's rule; `None` without this coordinate."""
    way, total = [], 0.0
    for arc in arcs:
        names = system.mode(arc.mode).coordinates
        if "x_rate" not in names:
            return None
        rate, step = np.asarray(arc.x)[:, names.index("x_rate")], float(arc.t[1] - arc.t[0])
        at = np.full(len(rate), total)
        at[2::2] += np.cumsum(rate[:-2:2] + 4 * rate[1::2] + rate[2::2]) * step / 3
        at[1::2] = at[:-1:2] + (rate[:-1:2] + rate[1::2]) * step / 2
        way, total = [*way, at], at[-1]
    return np.concatenate(way)


def _motion(orbit: PeriodicOrbit, arcs: tuple[Arc, ...], model: Model) -> dict[str, Any]:
    """The frames of a gait over one period: the time of each, the place of the camera over the ground, and the model's lines;
    and the vertical forces of the legs, with their times."""
    end = float(arcs[-1].t[-1])
    forces: dict[str, Any] = {"force_times": [], "forces": []}
    if hasattr(model, "forces"):
        force = lambda arc: jax.vmap(lambda x: model.forces(arc.mode, x, orbit.params))(arc.x)
        forces["force_times"] = np.concatenate([np.asarray(arc.t) for arc in arcs]) / end
        forces["forces"] = np.concatenate([np.asarray(force(arc)) for arc in arcs]).T
    # Legs that land together have arcs without duration between them.
    lasting = [float(arc.t[-1] - arc.t[0]) > 1e-9 * end for arc in arcs]
    # A part of the samples, with both ends of the arcs.
    some = slice(None, None, 1 if sum(lasting) <= 3 else 2 if sum(lasting) <= 9 else 4)
    way = _way(orbit.system, arcs)
    ways = np.zeros((len(arcs), SAMPLES)) if way is None else np.split(way, len(arcs))
    if not hasattr(model, "travel"):
        ways = [way for way, lasts in zip(ways, lasting, strict=True) if lasts]
        arcs = tuple(arc for arc, lasts in zip(arcs, lasting, strict=True) if lasts)
    arcs = tuple(Arc(arc.mode, arc.t[some], arc.x[some]) for arc in arcs)
    times = np.concatenate([np.asarray(arc.t) for arc in arcs]) / end
    if hasattr(model, "travel"):
        placed = placed_arcs(arcs, model, orbit.params)
        camera = placed[-1].landing * times[:, None]
        feet = [arc.foot - here for arc, here in zip(placed, np.split(camera, len(arcs)), strict=True)]
    else:
        camera = np.stack([np.concatenate([way[some] for way in ways]), np.zeros_like(times)], axis=1)
        feet = [np.zeros((len(arc.t), 2)) for arc in arcs]
    lines: list[list[tuple[str, np.ndarray]]] = []
    for arc, foot in zip(arcs, feet, strict=True):
        posed = shapes(model, arc.mode, arc.x, orbit.params, np.zeros(2), np.asarray(arc.t))
        lines += [[(name, points[k] + foot[k]) for name, points in posed.items()] for k in range(len(arc.t))]
    return {"times": times, "camera": camera, "lines": lines, **forces}


def _printed(height: "Height", branch: "Branch", model: Model) -> tuple[str, str]:
    """What an axis shows, and its unit where that is known."""
    name = height if isinstance(height, str) else getattr(height, "__name__", "function").strip("<>")
    units = units_of(model, branch.unfolding.params, branch.unfolding.problem.system)
    own = units_of_params(branch.unfolding.params).get(branch.parameter, "")
    known = {"period": units.time, "speed": units.coordinates.get("x_rate", ""), branch.parameter: own}
    unit = (units.coordinates | known).get(name, "")
    return name.replace("_", " "), "" if unit == "1" else unit


def _parts(points: list[GaitPoint], names: Sequence[tuple[str, str]], title: str, seconds: float) -> dict[str, str]:
    """The parts of the page: the map as an image, and the gaits as data that its script draws. **Arguments:** `seconds`: of a
    unit of time."""
    colours = dict(
        zip(dict.fromkeys(point.feet.name or "gait" for point in points), itertools.cycle(COLOURS), strict=False)
    )
    place = np.array([[point.across, point.up] for point in points])
    low, high = np.nanmin(place, axis=0), np.nanmax(place, axis=0)
    # What is constant but for rounding has a range of its own size.
    size = np.maximum(np.abs(low), np.abs(high))
    margin = 0.05 * np.where(high - low > 1e-9 * size, high - low, np.where(size > 0, size, 1))
    low, high = low - margin, high + margin
    to_map = lambda at: (at - low) / (high - low) * [MAP[0] - 80, 70 - MAP[1]] + [60, MAP[1] - 50]
    frames = [frame for point in points if point.motion for frame in point.motion["lines"]]
    corners = np.concatenate([line for frame in frames for _, line in frame])
    view = view_of(np.stack([corners.min(axis=0), corners.max(axis=0)]))
    scale = GAIT / (view[0, 1] - view[0, 0])
    deep = round(scale * (view[1, 1] - view[1, 0]))
    pixels = lambda at: np.rint((at - [view[0, 0], view[1, 1]]) * [scale, -scale]).astype(int).ravel().tolist()
    lines = list(dict.fromkeys(name for frame in frames for name, _ in frame))
    data, small, large = [], "", ""
    for point, (x, y) in zip(points, to_map(place), strict=True):
        if not np.isfinite(x + y):
            continue
        colour = colours[point.feet.name or "gait"]
        style = f'fill="{colour if point.stable else "white"}" stroke="{colour}" stroke-width="1.5"'
        if point.motion is None:
            small += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" {style}/>'
            continue
        large += f'<circle class="gait" data-k="{len(data)}" cx="{x:.1f}" cy="{y:.1f}" r="5" {style}/>'
        gait, feet = point.motion, point.feet
        said = [f"{feet.name or 'gait'}, {'stable' if point.stable else 'unstable'}"]
        said += [
            f"{name} = {value:.5g} {unit}" for (name, unit), value in zip(names, (point.across, point.up), strict=True)
        ]
        said += [f"{leg} duty factor {duty:.4f}" for leg, duty in zip(feet.legs, feet.duty_factors, strict=True)]
        data.append({
            "said": said,
            "period": float(point.orbit.period),
            "times": np.round(gait["times"], 5).tolist(),
            "moved": np.round(gait["camera"] * [scale, -scale], 1).tolist(),
            "lines": [[[lines.index(name), *pixels(line)] for name, line in frame] for frame in gait["lines"]],
            "legs": list(feet.legs),
            "stances": [np.round(each, 5).tolist() for each in feet.stances],
            "force_times": np.round(gait["force_times"], 5).tolist(),
            "forces": np.round(gait["forces"], 3).tolist(),
            "multipliers": [[round(m.real, 4), round(m.imag, 4)] for m in np.asarray(point.orbit.multipliers)],
        })  # fmt: skip
    ways = ""
    for k in range(1 + points[-1].branch):
        at = to_map(place[np.array([point.branch == k for point in points])])
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in at[np.isfinite(at).all(axis=1)])
        ways += f'<polyline fill="none" stroke="{GREY}" points="{way}"/>'
    legend = "".join(
        f'<span style="color:{colour}">&#9679;</span> {html.escape(name)} ' for name, colour in colours.items()
    )
    about = {"size": [GAIT, deep], "origin": pixels(np.zeros(2)), "colours": COLOURS, "gaits": data, "seconds": seconds}
    return {
        "title": html.escape(title or "Gait map"), "width": str(MAP[0]), "height": str(MAP[1]),
        "axes": _axes(low, high, to_map, names), "marks": ways + small + large, "legend": legend,
        "data": json.dumps(about, separators=(",", ":")).replace("</", "<\\/"),
    }  # fmt: skip


def _axes(low: np.ndarray, high: np.ndarray, to_map, names: Sequence[tuple[str, str]]) -> str:
    """The axes of the map, with marks at round numbers."""
    text = f'<path d="M60 20V{MAP[1] - 50}H{MAP[0] - 20}" fill="none" stroke="{INK}"/>'
    for k in (0, 1):
        span = high[k] - low[k]
        step = 10 ** np.floor(np.log10(span / 4))
        step *= next(each for each in (1, 2, 5, 10) if each * step >= span / 6)
        for value in np.arange(np.ceil(low[k] / step), np.floor(high[k] / step) + 1) * step:
            x, y = to_map(np.where(np.arange(2) == k, value, low))
            if k == 0:
                line, place = f"M{x:.1f} {y}v5", f'x="{x:.1f}" y="{y + 18}" text-anchor="middle"'
            else:
                line, place = f"M{x} {y:.1f}h-5", f'x="{x - 8}" y="{y + 4:.1f}" text-anchor="end"'
            text += f'<path d="{line}" stroke="{INK}"/><text {place}>{value:.6g}</text>'
    across, up = (html.escape(with_unit(*name)) for name in names)
    return text + (
        f'<text x="{MAP[0] / 2 + 20}" y="{MAP[1] - 12}" text-anchor="middle">{across}</text>'
        f'<text transform="translate(10 {MAP[1] / 2 - 15}) rotate(-90)" text-anchor="middle">{up}</text>'
    )


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>@title@</title><style>
body { font: 13px sans-serif; color: #222; background: white; margin: 8px }
main { display: flex; flex-wrap: wrap; gap: 16px; align-items: flex-start }
text { font: 12px sans-serif; fill: #222 } .gait { cursor: pointer } .gait.shown { stroke: #222; stroke-width: 3 }
#gait { width: 350px } #gait svg { display: block } #said { display: flex; justify-content: space-between }
#hint { position: absolute; pointer-events: none; background: white; border: 1px solid #888; padding: 4px; display: none }
</style></head><body><h3>@title@</h3><div>@legend@ filled: stable, hollow: unstable; large: point at it, or click</div>
<main><svg id="map" width="@width@" height="@height@" tabindex="0" role="img" aria-label="gait map">@axes@@marks@</svg>
<div id="gait"></div></main><div id="hint"></div>
<script type="application/json" id="data">@data@</script><script>
const data = JSON.parse(document.getElementById("data").textContent), [W, H] = data.size, gaits = data.gaits;
const colour = k => data.colours[k % data.colours.length], hint = document.getElementById("hint");
let shown = 0, start = performance.now();
// The lines at a part of the period, on straight lines between frames of the same lines.
function drawing(g, part) {
  let k = g.times.length - 2;
  while (k > 0 && g.times[k] > part) k--;
  const s = Math.min(1, (part - g.times[k]) / (g.times[k + 1] - g.times[k] || 1)), mix = (a, b) => a + s * (b - a);
  const [x, y] = data.origin, end = g.moved[g.moved.length - 1], way = Math.hypot(...end);
  const many = Math.max(1, Math.round(way / 50));
  const [dx, dy] = way > 1 ? [3 * W * end[0] / way, 3 * W * end[1] / way] : [3 * W, 0];
  const moved = g.moved[k].map((each, i) => mix(each, g.moved[k + 1][i]));
  let text = `<path d="M${x - dx} ${y - dy}L${x + dx} ${y + dy}" stroke="#888"/>`;
  for (let i = -20 * many; way > 1 && i <= 20 * many; i++) {
    const at = x + end[0] * i / many - moved[0];
    if (at > -5 && at < W + 5) text += `<circle cx="${at}" cy="${y + end[1] * i / many - moved[1]}" r="2.5" fill="#888"/>`;
  }
  g.lines[k].forEach((line, i) => {
    const next = g.lines[k + 1][i], same = next && next[0] === line[0] && next.length === line.length;
    const p = line.slice(1).map((each, j) => same ? mix(each, next[j + 1]).toFixed(1) : each), ink = colour(line[0]);
    text += p.length === 2 ? `<circle cx="${p[0]}" cy="${p[1]}" r="5" fill="${ink}"/>`
      : `<polyline points="${p.join(" ")}" fill="none" stroke="${ink}" stroke-width="2.5"/>`;
  });
  return text;
}
function bars(g) {
  let text = "";
  g.legs.forEach((leg, i) => {
    text += `<text x="0" y="${14 + 18 * i}">${leg.replace("_", " ")}</text>`;
    g.stances[i].forEach(([t, d]) => [t, t - 1].forEach(from => {
      const a = Math.max(0, from), b = Math.min(1, from + d), size = `y="${4 + 18 * i}" height="12"`;
      if (b > a) text += `<rect x="${80 + 250 * a}" width="${250 * (b - a)}" ${size} fill="${colour(i)}"/>`;
    }));
  });
  return text;
}
function forces(g) {
  if (!g.forces.length) return "";
  const top = Math.max(1e-9, ...g.forces.flat()), y = f => 84 - 72 * f / top;
  let text = `<path d="M80 12V84H330" fill="none" stroke="#222"/><text y="20">${top.toPrecision(3)}</text>`;
  g.forces.forEach((force, i) => {
    const p = force.map((f, k) => (80 + 250 * g.force_times[k]).toFixed(1) + "," + y(f).toFixed(1)).join(" ");
    text += `<polyline points="${p}" fill="none" stroke="${colour(i)}" stroke-width="1.5"/>`;
  });
  return text + '<text y="84">force</text>';
}
function circle(g) {
  let text = '<path d="M0 75H150M75 0V150" stroke="#E4E6E9"/><circle cx="75" cy="75" r="45" fill="none" stroke="#888"/>';
  g.multipliers.forEach(([a, b]) => {
    const size = Math.hypot(a, b), far = size > 1.5, s = 45 * (far ? 1.5 / size : 1), fill = far ? "white" : "#D55E00";
    text += `<circle cx="${75 + s * a}" cy="${75 - s * b}" r="4" fill="${fill}" stroke="#D55E00"/>`;
  });
  return text + '<text y="12">multipliers</text>';
}
function show(k) {
  shown = (k + gaits.length) % gaits.length; start = performance.now();
  const g = gaits[shown], rows = 18 * g.legs.length + 6;
  document.querySelectorAll(".gait").forEach(each => each.classList.toggle("shown", +each.dataset.k === shown));
  document.getElementById("gait").innerHTML = `<div id="said"><div>${g.said.join("<br>")}</div>
    <svg width="150" height="150">${circle(g)}</svg></div><svg id="moving" width="${W}" height="${H}"></svg>
    <svg width="340" height="${rows + 90}">${bars(g)}<g transform="translate(0 ${rows})">${forces(g)}</g>
    <path id="now" stroke="#222" d=""/></svg>`;
}
function tick(time) {
  const g = gaits[shown], part = Math.max(0, time - start) / 1000 / Math.min(12, Math.max(2, g.period * data.seconds)) % 1;
  document.getElementById("moving").innerHTML = drawing(g, part);
  document.getElementById("now").setAttribute("d", `M${80 + 250 * part} 0v${18 * g.legs.length + (g.forces.length ? 90 : 0)}`);
  requestAnimationFrame(tick);
}
document.querySelectorAll(".gait").forEach(each => {
  const g = gaits[+each.dataset.k];
  each.addEventListener("click", () => show(+each.dataset.k));
  each.addEventListener("pointerenter", event => {
    const size = `width="${W / 2}" height="${H / 2}" viewBox="0 0 ${W} ${H}"`;
    hint.innerHTML = `${g.said.slice(0, 3).join("<br>")}<br><svg ${size}>${drawing(g, 0)}</svg>`;
    Object.assign(hint.style, { left: `${event.pageX + 12}px`, top: `${event.pageY + 12}px`, display: "block" });
  });
  each.addEventListener("pointerleave", () => { hint.style.display = "none"; });
});
document.getElementById("map").addEventListener("keydown", event => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by) { show(shown + by); event.preventDefault(); }
});
show(0);
requestAnimationFrame(tick);
</script></body></html>
"""
