"""Pictures: what is drawn is what was computed."""

import itertools
import re
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.animation
import numpy as np
import pytest

import hyjax as hj
from hyjax._testing import animate_orbit, line_numbers, orbit_figure, pyplot, save_animation, shapes, symbol, unit, walk
from hyjax.models import load, simplest_walker as walker
from hyjax.plot import multiplier_plane, phase_portrait, time_series

matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore:Animation was deleted")

# A state on the guard of each model: the leg about to land.
STRIKES = {
    "simplest_walker": lambda p: jnp.array([-0.2, -0.2, -0.4, 0.1]),
    "powered_walker": lambda p: jnp.array([-0.2, -0.2, -0.4, 0.1]),
    "compass_gait": lambda p: jnp.stack([-0.25 - p.slope, 0.25 - p.slope, -0.3 + 0 * p.slope, 0.2 + 0 * p.slope]),
    "powered_compass_gait": lambda p: jnp.stack(
        [-0.25 - p.slope, 0.25 - p.slope, -0.3 + 0 * p.slope, 0.2 + 0 * p.slope]
    ),
    "rimless_wheel": lambda p: jnp.stack([jnp.pi / p.spokes, 0.5 + 0 * p.spokes]),
}


@pytest.fixture(scope="module")
def orbit():
    params = walker.Params()
    return hj.periodic_orbit(walker.step, walker.guess(params), params)


@pytest.fixture(scope="module")
def batch(orbit):
    return jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), orbit)


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot().close("all")


def marked(ax, gid):
    return [np.asarray(line.get_xydata()) for line in ax.lines if line.get_gid() == gid]


@pytest.mark.medium
def test_phase_portrait_jumps_from_strike_to_node(orbit):
    ax = phase_portrait(orbit, model=walker)
    (theta, phi) = marked(ax, "jump")
    after = np.concatenate([theta[1], phi[1]])
    before = jnp.asarray(np.concatenate([theta[0], phi[0]]))
    # The sampled arc and the located strike end with different solver steps: the integrator's tolerance.
    np.testing.assert_array_equal(after, orbit.nodes[0])
    np.testing.assert_allclose(walker.heel_strike(0.0, before, orbit.params), orbit.nodes[0], atol=1e-9)
    # The curves: of the stance leg, a pendulum upside down, energy is conserved; the swing leg starts where the orbit does.
    stance, swing = marked(ax, None)
    energy = stance[:, 1] ** 2 / 2 + np.cos(stance[:, 0] - orbit.params.slope)
    np.testing.assert_allclose(energy, energy[0], rtol=0, atol=1e-13)
    np.testing.assert_array_equal(swing[0], orbit.x[2:])
    np.testing.assert_allclose([stance[-1], swing[-1]], [theta[0], phi[0]], rtol=0, atol=0)
    assert ax.get_xlabel() == r"$\theta$, $\phi$ (rad)"
    assert ax.get_ylabel() == r"$\dot{\theta}$, $\dot{\phi}$ (rad $\sqrt{g/l}$)"


def test_phase_portrait_takes_pairs_and_axes(orbit):
    _, given = pyplot().subplots()
    ax = phase_portrait(orbit, given, pairs=[("theta", "phi")])
    assert ax is given
    (jump,) = marked(ax, "jump")
    np.testing.assert_array_equal(jump[1], orbit.nodes[0][jnp.array([0, 2])])
    with pytest.raises(ValueError, match=r"'psi'.*theta, theta_rate, phi"):
        phase_portrait(orbit, pairs=[("psi", "phi")])


def test_time_series_covers_one_period(orbit):
    ax = time_series(orbit, model=walker)
    curves = [np.asarray(line.get_xydata()) for line in ax.lines if line.get_gid() is None]
    assert len(curves) == 2
    for curve, start in zip(curves, orbit.x[jnp.array([0, 2])], strict=True):
        np.testing.assert_array_equal(curve[0], [0.0, start])
        np.testing.assert_allclose(curve[-1, 0], orbit.period, rtol=1e-14)
    # Ordinates and times belong together: the slope of each curve is the rate that the portrait shows, to the square of the
    # spacing, 4e-4, by a third derivative of up to 0.5.
    rates = [curve[:, 1] for curve in marked(phase_portrait(orbit), None)]
    for (t, angle), rate in zip((curve.T for curve in curves), rates, strict=True):
        np.testing.assert_allclose(np.gradient(angle, t)[1:-1], rate[1:-1], rtol=0, atol=2e-4)
    assert ax.get_xlabel() == r"$t$ ($\sqrt{l/g}$)"


def test_multiplier_plane_shows_every_multiplier(orbit, batch):
    for given, expected in ((orbit, orbit.multipliers), (batch, batch.multipliers.ravel())):
        ax = multiplier_plane(given)
        drawn = np.concatenate([line.get_xydata() for line in ax.lines if line.get_linestyle() == "None"])
        np.testing.assert_array_equal(np.sort_complex(drawn @ [1, 1j]), np.sort_complex(np.asarray(expected)))
        assert ax.get_aspect() == 1


def test_multiplier_plane_tells_stable_from_unstable(orbit):
    unstable = eqx.tree_at(lambda o: o.multipliers, orbit, orbit.multipliers.at[0].set(-4.0))
    ax = multiplier_plane(unstable)
    (square,) = [line for line in ax.lines if line.get_marker() == "s"]
    np.testing.assert_array_equal(square.get_xydata(), [[-4.0, 0.0]])
    assert ax.get_xlim()[0] < -4


def test_gait_figure_has_a_row_for_each_orbit(orbit, batch):
    assert len(orbit_figure(orbit).axes) == 3
    lost = jax.tree.map(lambda leaf: leaf * jnp.nan if eqx.is_inexact_array(leaf) else leaf, orbit)
    lost = eqx.tree_at(lambda o: o.result, lost, hj.RESULTS.no_crossing)
    figure = orbit_figure([batch, lost], walker)
    assert len(figure.axes) == 6
    titles = [part.get_suptitle() for part in figure.subfigs]
    for title in titles[:2]:
        assert "$T$ = 3.8825" in title and ", stable, " in title and "= 0.589" in title
    assert "not found: No guard fell" in titles[2]
    # Each row is made of the pictures above.
    for portrait, series, plane in (figure.axes[:3], figure.axes[3:]):
        for drawn, alone in (
            (portrait, phase_portrait(orbit)),
            (series, time_series(orbit)),
            (plane, multiplier_plane(orbit)),
        ):
            for line, other in zip(drawn.lines, alone.lines, strict=True):
                np.testing.assert_array_equal(line.get_xydata(), other.get_xydata())
    figure.canvas.draw()


def test_misuse_is_named(orbit, batch):
    with pytest.raises(ValueError, match=r"batch of 2 orbits.*orbits\[0\]"):
        time_series(batch)
    with pytest.raises(ValueError, match="no orbit to draw"):
        phase_portrait(eqx.tree_at(lambda o: o.period, orbit, orbit.period * jnp.nan))
    with pytest.raises(ValueError, match="length 0"):
        orbit_figure(batch[:0])
    with pytest.raises(ValueError, match="does not define outline"):
        animate_orbit(orbit, sys)
    with pytest.raises(ValueError, match="strides=0"):
        animate_orbit(orbit, walker, strides=0)


def test_matplotlib_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"hyjax-dynamics\[plot\]"):
        pyplot()


@pytest.mark.parametrize(
    "name, printed",
    [
        ("theta", r"$\theta$"),
        ("theta_ns_rate", r"$\dot{\theta}_{ns}$"),
        ("phi2_rate", r"$\dot{\phi}_{2}$"),
        ("y", "$y$"),
        ("leg_length", "leg length"),
    ],
)
def test_symbols(name, printed):
    assert symbol(name) == printed


def test_units():
    assert unit("rad sqrt(g/l)") == r"rad $\sqrt{g/l}$"
    assert unit("m/s^2") == "m/s$^{2}$"


@pytest.mark.parametrize("name", STRIKES)
def test_a_strike_moves_no_leg(name):
    """Just before and just after the jump the same lines lie at the same places, under other names."""
    model = load(name)
    params = model.Params(slope=0.07)
    (mode,), (transition,) = model.sequence, model.system.transitions
    before = STRIKES[name](params)
    assert abs(transition.guard(0.0, before, params)) < 1e-15
    after = transition.reset(0.0, before, params)

    # The ground falls to the right by the slope, whichever frame the model draws in.
    angle = float(model.ground(params))
    fall = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    landing = fall @ np.asarray(model.travel(mode, before, params))
    np.testing.assert_allclose(np.arctan2(-landing[1], landing[0]), 0.07, atol=1e-14)

    old = {key: points[0] for key, points in shapes(model, mode, before[None], params, np.zeros(2)).items()}
    new = {key: points[0] for key, points in shapes(model, mode, after[None], params, landing).items()}
    numbers = line_numbers({}, {}, old)
    renamed = line_numbers(old, numbers, new)
    assert sorted(renamed.values()) == sorted(numbers.values()) == list(range(len(numbers)))
    # Each leg has a new name, and a line is drawn over itself, perhaps from its other end.
    was = {number: key for key, number in numbers.items()}
    for key, number in renamed.items():
        assert key != was[number]
        line, drawn = new[key], old[was[number]]
        assert min(np.abs(line - drawn).max(), np.abs(line - drawn[::-1]).max()) < 1e-12


def test_feet_stand_and_land(orbit):
    steps = walk(orbit, walker, strides=4)
    slope = float(orbit.params.slope)
    for step, after in itertools.pairwise(steps):
        drawn = shapes(walker, step.mode, step.x, orbit.params, step.foot)
        stance, swing = drawn["stance leg"][:, 0], drawn["swing leg"][:, 1]
        np.testing.assert_array_equal(stance, np.broadcast_to(step.foot, stance.shape))
        following = shapes(walker, after.mode, after.x[:1], orbit.params, after.foot)
        np.testing.assert_allclose(swing[-1], following["stance leg"][0, 0], atol=1e-9)
        np.testing.assert_allclose(swing[[0, -1]] @ [np.sin(slope), np.cos(slope)], 0, atol=1e-9)
        assert step.t[-1] == after.t[0]
        assert {step.legs["swing leg"], step.legs["stance leg"]} == {0, 1}
        assert step.legs["swing leg"] == after.legs["stance leg"]
    # Four steps of equal length, 2 sin(theta) each.
    length = np.linalg.norm(steps[-1].landing)
    np.testing.assert_allclose(length, 8 * np.sin(orbit.x[0]), rtol=1e-9)


@pytest.mark.medium
def test_frames_show_the_walk(orbit):
    animation = animate_orbit(orbit, walker, strides=2, fps=10)
    (ax,) = pyplot().gcf().axes
    (ground,), (feet,) = marked(ax, "ground"), marked(ax, "footholds")
    slope = float(orbit.params.slope)
    np.testing.assert_allclose(ground @ [np.sin(slope), np.cos(slope)], 0, atol=1e-9)
    # With legs of 1 m on the earth two steps take 2 T / sqrt(9.81) seconds.
    count = round(2 * float(orbit.period) / 9.81**0.5 * 10)
    assert len(list(animation.new_frame_seq())) == count
    stands = []
    for frame in (0, count // 4, 3 * count // 4):
        animation._draw_frame(frame)  # pyright: ignore
        legs = {line.get_gid(): line for line in ax.lines if str(line.get_gid()).startswith("leg")}
        thick = max(legs.values(), key=lambda line: line.get_linewidth())
        stands.append(thick.get_gid())
        assert np.min(np.linalg.norm(feet - thick.get_xydata()[0], axis=-1)) < 1e-12
        (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
        for line in legs.values():
            x, y = line.get_xydata().T
            assert np.all((left < x) & (x < right) & (low < y) & (y < high))
    assert stands == ["leg 0", "leg 0", "leg 1"]


@pytest.mark.medium
def test_gif_of_four_steps_is_small(orbit, tmp_path):
    from PIL import Image

    path = tmp_path / "walk.gif"
    save_animation(animate_orbit(orbit, walker), path)
    assert 10_000 < path.stat().st_size < 1_000_000
    with Image.open(path) as image:
        count = round(4 * float(orbit.period) / 9.81**0.5 * 25)
        assert getattr(image, "n_frames", 1) == count
        seen = []
        for frame in range(0, count, 10):
            image.seek(frame)
            seen.append(image.convert("RGB").tobytes())
        # The walker moves on; two steps later both legs are where they were, but the clock is not.
        assert len(set(seen)) == len(seen)


def test_html_and_refusals(orbit, tmp_path, monkeypatch):
    animation = animate_orbit(orbit, walker, strides=1, fps=3)
    save_animation(animation, tmp_path / "walk.html")
    page = (tmp_path / "walk.html").read_text()
    frames = re.findall(r'frames\[\d+\] = "data:image/png;base64,([^"]+)"', page)
    # A step of 1.24 s, which plays for 2 s: no shorter. All pictures differ.
    assert "<script" in page and len(set(frames)) == len(frames) == 6
    monkeypatch.setattr(matplotlib.animation.writers, "is_available", lambda name: name != "ffmpeg")
    with pytest.raises(ValueError, match=r"'\.avi'.*\.gif, \.html\.$"):
        save_animation(animation, tmp_path / "walk.avi")
    with pytest.raises(ValueError, match=r"ffmpeg.*not installed.*\.gif, \.html\.$"):
        save_animation(animation, tmp_path / "walk.mp4")
