"""The interactive page, without a browser: sliders, the gait that follows them, what is said when it is lost, the moving picture.

`tools/browse.py` operates the page in a browser.
"""

import base64
import re
import sys
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax import models
from hyjax._testing import Arc, moving_svg, placed_arcs
from hyjax.models import rimless_wheel, simplest_walker

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def explorer():
    return hj.plot.explore(rimless_wheel, ranges={"inertia_ratio": (0.3, 1.2)})


@pytest.fixture(autouse=True)
def back(explorer):
    yield
    explorer.reset()


def rate(p):
    """The closed form of the wheel's speed just after a collision."""
    mu = 1 + p.inertia_ratio * (np.cos(2 * np.pi / p.spokes) - 1)
    return np.sqrt(4 * mu**2 * p.inertia_ratio * np.sin(np.pi / p.spokes) * np.sin(p.slope) / (1 - mu**2))


@pytest.mark.medium
def test_sliders_are_the_models_parameters(explorer):
    slope = explorer.sliders["slope"]
    assert (slope.min, slope.max, slope.value, slope.description) == (0.05, 0.5, 0.2, "slope (rad)")
    assert slope.tooltip == "slope of the ground alpha, downhill positive"
    spokes, ratio = explorer.sliders["spokes"], explorer.sliders["inertia_ratio"]
    assert (spokes.min, spokes.max, spokes.step, spokes.description) == (4, 12, 1, "spokes")
    assert (ratio.min, ratio.max) == (0.3, 1.2)
    for each in explorer.sliders.values():
        steps = (each.value - each.min) / each.step
        assert_allclose(steps, round(steps), rtol=1e-12)
        assert 50 <= (each.max - each.min) / each.step <= 200 or each is spokes
    assert explorer.controls.children[:3] == (spokes, ratio, slope)


@pytest.mark.medium
def test_the_gait_follows_all_sliders_without_a_new_program(explorer, caplog):
    explorer.sliders["slope"].value = 0.21
    with jax.log_compiles():
        eqx.filter_jit(lambda x: x + 0.123)(jnp.array(1.0))
        # Compilations are in the log.
        assert "Compiling" in caplog.text
    caplog.clear()
    with jax.log_compiles():
        for name, value in (("slope", 0.45), ("inertia_ratio", 0.5), ("spokes", 8.0), ("slope", 0.12)):
            explorer.sliders[name].value = value
            assert explorer.message == "" and float(getattr(explorer.orbit.params, name)) == value
            assert_allclose(explorer.orbit.x[1], rate(explorer.orbit.params), rtol=1e-12)
            printed = np.array(re.findall(r"\d+\.\d+", explorer.page), float)
            for number in (explorer.orbit.x[1], explorer.orbit.spectral_radius):
                # Ten digits and more are printed.
                assert np.min(np.abs(printed - number)) < 1e-9
    assert "run_orbit" not in caplog.text
    assert "Rimless wheel at spokes = 8, inertia_ratio = 0.5, slope = 0.12 rad" in explorer.page


@pytest.mark.medium
def test_a_gait_that_is_lost_stays_with_the_code(explorer):
    """Below this slope the wheel no longer passes its highest point."""
    explorer.sliders["slope"].value = 0.05
    kept = float(explorer.orbit.params.slope)
    assert 0.1 < kept < 0.12 and np.isfinite(explorer.orbit.period)
    assert explorer.message.startswith("No gait at spokes = 6, inertia_ratio = 0.666667, slope = 0.05: ")
    assert re.search(r": (no_crossing|orbit_not_converged|far_from_guess): ", explorer.message)
    assert (
        f"The page shows the last gait, at spokes = 6, inertia_ratio = 0.666667, slope = {kept:.6g} rad."
        in explorer.message
    )
    assert 'role="alert"' in explorer.page and f"{explorer.orbit.period:.8f}" in explorer.page
    explorer.sliders["slope"].value = 0.3
    assert explorer.message == "" and float(explorer.orbit.params.slope) == 0.3


@pytest.mark.medium
def test_parameters_out_of_range_are_refused_in_the_models_words(explorer):
    explorer.sliders["inertia_ratio"].value = 1.1
    assert explorer.message == "Params: inertia_ratio=1.1 must lie in (0, 1]. The page shows the last gait."
    assert float(explorer.orbit.params.inertia_ratio) == 2 / 3


@pytest.mark.medium
def test_the_page_in_a_notebook_is_updated(explorer, monkeypatch):
    import IPython.display

    class Handle:
        def update(self, shown):
            self.html = shown.data

    shown, handle = [], Handle()
    monkeypatch.setattr(IPython.display, "display", lambda what, display_id=None: shown.append(what) or handle)
    explorer._ipython_display_()
    assert shown[0] is explorer.controls and shown[1].data == explorer.page
    explorer.sliders["slope"].value = 0.25
    assert handle.html == explorer.page and "slope = 0.25 rad" in handle.html


def images(page):
    return [ElementTree.fromstring(base64.b64decode(each)) for each in re.findall(r"base64,([^\"]+)\"", page)]


@pytest.mark.medium
def test_the_picture_moves_on_the_orbit(explorer):
    """After two strides of the wheel, each spoke is where another one was, and the camera has moved by both."""
    moving, circle = images(explorer.page)
    spokes = [line for line in moving.iter(f"{SVG}polyline") if line.find(f"{SVG}animate") is not None]
    assert len(spokes) == 6
    (camera,) = moving.iter(f"{SVG}animateTransform")
    shift = np.array(camera.get("values", "").split(";")[1].split(), float)
    first, last = [], []
    for spoke in spokes:
        moves = {each.get("attributeName"): each for each in spoke.iter(f"{SVG}animate")}
        times = np.array(moves["points"].get("keyTimes").split(";"), float)
        frames = moves["points"].get("values").split(";")
        assert times[0] == 0 and times[-1] == 1 and np.all(np.diff(times) >= 0)
        assert len(frames) == len(times) == len(moves["stroke-width"].get("values").split(";")) == 40
        points = np.array([[point.split(",") for point in frame.split()] for frame in frames], float)
        first.append(points[0])
        last.append(points[-1] + shift)
    tips = lambda lines: np.array(sorted(line[1].tolist() for line in lines))
    # Coordinates have one decimal.
    assert_allclose(tips(last), tips(first), rtol=0, atol=0.2)
    dots = [each for each in circle.iter(f"{SVG}circle") if each.get("r") == "5"]
    radius = float(next(each.get("r") for each in circle.iter(f"{SVG}circle") if each.get("fill") == "none"))
    assert_allclose((float(dots[0].get("cx")) - 90) / radius, 4 / 9, rtol=0, atol=1e-3)


@pytest.mark.medium
def test_an_own_system_needs_an_outline_and_a_gait(explorer):
    """Of the wheel's system, with another outline, no title, no units, and parameters that say nothing about themselves."""

    class Params(eqx.Module):
        slope: jax.Array
        offset: jax.Array
        count: jax.Array

    outline = lambda mode, x, p: {"spoke": jnp.stack([jnp.zeros(2), jnp.stack([jnp.sin(x[0]), jnp.cos(x[0])])])}
    model, gait = SimpleNamespace(__name__="my_wheel", outline=outline), explorer.orbit
    own = hj.plot.explore(model, gait)
    own.sliders["slope"].value = 0.21
    assert own.message == "" and "Gait at spokes = 6, inertia_ratio = 0.666667, slope = 0.21 rad" in own.page
    assert len(images(own.page)) == 2
    plain = eqx.tree_at(lambda orbit: orbit.params, gait, Params(jnp.array(0.2), jnp.array(0.0), jnp.array(3)))
    sliders = hj.plot.explore(model, plain, ranges={"slope": (0.1, 0.4, 0.05)}).sliders
    assert {name: (each.min, each.max, each.step) for name, each in sliders.items()} == {
        "slope": (0.1, 0.4, 0.05),
        "offset": (-0.1, 0.1, 0.002),
    }
    with pytest.raises(
        ValueError, match=r"my_wheel does not define system, sequence, Params, guess. Give a gait: hj.plot.explore"
    ):
        hj.plot.explore(model)
    with pytest.raises(ValueError, match="there is no parameter slop; sliders move slope, offset"):
        hj.plot.explore(model, plain, ranges={"slop": (0.1, 0.4)})
    with pytest.raises(ValueError, match="no floating-point number that a slider could move"):
        hj.plot.explore(model, eqx.tree_at(lambda orbit: orbit.params, gait, {"count": jnp.array(3)}))
    with pytest.raises(ValueError, match="orbit must be one orbit that was found"):
        hj.plot.explore(model, jax.tree.map(lambda leaf: leaf[None], gait))


@pytest.mark.medium
def test_what_a_model_lacks_is_said(monkeypatch):
    with pytest.raises(ValueError, match=r"^explore: buck_converter does not define outline"):
        hj.plot.explore(models.buck_converter)
    with pytest.raises(ValueError, match=r"^explore: ball_on_slope does not define sequence, guess. Give a gait"):
        hj.plot.explore(models.ball_on_slope)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(
        ImportError, match=r"^Interactive pages need ipywidgets: pip install 'hyjax-dynamics\[notebook\]'"
    ):
        hj.plot.explore(simplest_walker)


@pytest.mark.medium
def test_lines_that_a_mode_lacks_vanish(explorer, monkeypatch):
    """SVG moves a line only among lines of one number of points: the others are filled up, or have no width."""
    x = jnp.array([[0.0], [1.0]])
    model = SimpleNamespace(
        outline=lambda mode, x, p: (
            {"rod": jnp.zeros((2 if mode == "a" else 3, 2)) + x}
            | ({} if mode == "a" else {"second": jnp.stack([x, x + 1])[..., [0, 0]], "dot": jnp.zeros((1, 2))})
        ),
    )
    arcs = Arc("a", jnp.array([0.0, 1.0]), x), Arc("b", jnp.array([1.0, 2.0]), x)
    placed = placed_arcs(arcs, model, None)
    monkeypatch.setattr(sys.modules[moving_svg.__module__], "walk", lambda orbit, model, strides, n_samples: placed)
    picture = ElementTree.fromstring(moving_svg(explorer.orbit, model))
    values = lambda line: {each.get("attributeName"): each.get("values").split(";") for each in line}
    second, rod = (values(line) for line in picture.iter(f"{SVG}polyline"))
    assert [len(frame.split()) for frame in rod["points"]] == [3, 3, 3, 3] and rod["stroke-width"] == ["3"] * 4
    assert second["stroke-width"] == ["0", "0", "3", "3"]
    (dot,) = picture.iter(f"{SVG}circle")
    assert next(each.get("values") for each in dot if each.get("attributeName") == "r") == "0;0;5;5"


@pytest.mark.medium
def test_a_sketch_has_the_outline_where_it_is():
    """In the middle of a step: the ground is straight, falls by the slope, and touches the stance foot."""
    x, params = jnp.array([0.1, -0.2, 0.5, 0.0]), simplest_walker.Params(slope=0.1)
    ax = hj.plot.sketch(simplest_walker, params, x, "swing")
    lines = {line.get_gid(): np.asarray(line.get_xydata()) for line in ax.lines}
    down = np.array([[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]])
    drawn = simplest_walker.outline("swing", x, params)
    assert_allclose(lines["leg 0"], drawn["stance leg"] @ down, rtol=0, atol=1e-15)
    assert_allclose(lines["leg 1"], drawn["swing leg"] @ down, rtol=0, atol=1e-15)
    assert_allclose(lines["ground"][:, 1], -np.tan(0.1) * lines["ground"][:, 0], rtol=0, atol=1e-14)
    ax = hj.plot.sketch(simplest_walker, params)
    tilted = {line.get_gid(): np.asarray(line.get_xydata()) for line in ax.lines}["leg 0"][1]
    assert_allclose(np.arctan2(-tilted[0], tilted[1]), simplest_walker.start(params)[1][0] - 0.1, rtol=1e-14)
    with pytest.raises(ValueError, match="does not define start"):
        hj.plot.sketch(SimpleNamespace(outline=simplest_walker.outline), params, x)
