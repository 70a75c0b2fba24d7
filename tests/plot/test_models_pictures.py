"""Outlines of models that are forced, sprung or at rest: nothing moves in a jump, and what is drawn is where it is."""

import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax import models
from hyjax._testing import animate_trajectory, Arc, check_outline, orbit_figure, placed_arcs, pyplot, shapes, unit
from hyjax.models import (
    buck_converter,
    duffing_impact_oscillator,
    friction_oscillator,
    paddle_juggler,
    slip,
    vibrating_table,
)
from hyjax.plot import phase_portrait, time_series

matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore:Animation was deleted")


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot().close("all")


def lift_off(params):
    """On the circle r = 1, beyond the foot, rising, with the model's energy."""
    y = np.sqrt(1 - 0.35**2)
    return jnp.stack([jnp.array(0.35), jnp.array(y), jnp.sqrt(2 * (params.energy - y) - 0.5**2), jnp.array(0.5)])


# Of each model, mode by mode: a state before the jump that ends it.
BEFORE = {
    "slip": {
        "descent": lambda p: jnp.stack([jnp.sin(p.attack_angle), -0.4 + 0 * p.energy]),
        "stance": lift_off,
        "ascent": lambda p: jnp.array([1.1, 0.0]),
    },
    "slip_retraction": {
        "descent": lambda p: jnp.stack([jnp.sin(p.retraction_angle + 0.4 * p.retraction_rate), -0.4 + 0 * p.energy]),
        "stance": lift_off,
        "ascent": lambda p: jnp.array([1.1, 0.0]),
    },
    "vibrating_table": {"before": lambda p: jnp.array([0.0, -3.0]), "after": lambda p: jnp.array([0.2, -1.0])},
    "duffing_impact_oscillator": {
        "before": lambda p: jnp.stack([duffing_impact_oscillator.wall(jnp.array(0.7), p), 1.0 + 0 * p.force]),
        "after": lambda p: jnp.array([-0.3, 0.4]),
    },
    "friction_oscillator": {"stick": lambda p: jnp.array([0.0981]), "slip": lambda p: jnp.array([0.049, 0.1])},
    "paddle_juggler": {"down": lambda p: jnp.array([0.0, -3.0]), "up": lambda p: jnp.array([0.5, 0.0])},
    "relief_valve": {"open": lambda p: jnp.array([0.0, -3.0, 12.0])},
    "integrate_and_fire": {"first": lambda p: jnp.array([0.7, 1.0]), "second": lambda p: jnp.array([1.0, 0.7])},
}
MOVES = {"integrate_and_fire"}  # a column falls when its neuron fires


@pytest.mark.parametrize("name", BEFORE)
def test_outline(name):
    """Every mode of the sequence: points in the plane, the same lines before the jump and after it, at the same places."""
    model = models.load(name)
    params, t = model.Params(), np.array([0.7])
    for mode, target in zip(model.sequence, (*model.sequence[1:], model.sequence[0]), strict=True):
        before = BEFORE[name][mode](params)
        transition = model.system.transitions[model.system.between(mode, target)]
        after = transition.reset(jnp.array(0.7), before, params)
        travel = getattr(model, "travel", lambda mode, x, params: jnp.zeros(2))(mode, before, params)
        old = shapes(model, mode, before[None], params, np.zeros(2), t)
        new = shapes(model, target, after[None], params, np.asarray(travel), t)
        assert old.keys() == new.keys() and len(old) > 0
        for line, points in old.items():
            assert points.ndim == 3 and points.shape[2] == 2 and np.all(np.isfinite(points))
            # The spring of a runner starts at the foot in stance and in flight: it is drawn over itself.
            if name not in MOVES and (line, mode) != ("leg", "stance"):
                assert_allclose(new[line], points, rtol=0, atol=1e-12, err_msg=f"{line} at {mode} -> {target}")
        # After lift-off the leg swings forward; the body stays.
        if mode == "stance":
            assert_allclose(old["leg"][0, -1], old["body"][0, 0], atol=1e-15)
    assert set(getattr(model, "scenery", ())) <= old.keys()


def test_forced_outlines_know_the_time():
    times, params = np.linspace(0, 2, 7), vibrating_table.Params()
    drawn = shapes(vibrating_table, "after", np.tile([0.3, 0.0], (7, 1)), params, np.zeros(2), times)
    table = 0.05 * np.sin(10 * times)
    assert_allclose(drawn["table"][:, 0, 1], table, rtol=0, atol=1e-15)
    # The ball's lowest point is its height above the table.
    assert_allclose(drawn["ball"][..., 1].min(axis=1) - table, 0.3, rtol=1e-14)

    params = duffing_impact_oscillator.Params()
    drawn = shapes(duffing_impact_oscillator, "after", np.tile([0.3, 0.0], (7, 1)), params, np.zeros(2), times)
    assert_allclose(drawn["wall"][:, 0, 0], 0.7 + 0.1 * np.sin(1.9 * times), rtol=1e-14)
    assert_allclose(drawn["mass"][..., 0].max(axis=1), 0.3, rtol=1e-14)


@pytest.mark.medium
def test_a_runner_moves_over_the_ground():
    """Apex, foot, apex: the step's length is flight, contact and flight."""
    params = slip.Params()
    before = BEFORE["slip"]
    arcs = [Arc(mode, jnp.array([0.0, 1.0]), jnp.stack([state(params)] * 2)) for mode, state in before.items()]
    descent, stance, ascent = placed_arcs(arcs, slip, params)
    # From the apex: 0.4 units of time at the horizontal speed, then the leg ahead.
    speed = np.sqrt(2 * (2.25 - np.sin(1.2)) - 0.4**2)
    assert_allclose(stance.foot, [0.4 * speed + np.cos(1.2), 0], rtol=1e-14)
    # From the foot: to where it lifts off, then 0.5 units of time until the apex.
    speed = np.sqrt(2 * (2.25 - np.sqrt(1 - 0.35**2)) - 0.5**2)
    assert_allclose(ascent.foot - stance.foot, [0.35 + 0.5 * speed, 0], rtol=1e-14, atol=1e-15)
    assert_allclose(ascent.landing, ascent.foot)
    assert descent.t[-1] == stance.t[0] and stance.t[-1] == ascent.t[0]


def test_model_without_outline_is_refused():
    with pytest.raises(ValueError, match=r"^animate_orbit: buck_converter does not define outline"):
        check_outline(buck_converter, "animate_orbit")


@pytest.mark.medium
def test_trajectory_in_motion():
    params = paddle_juggler.Params()
    mode, x = paddle_juggler.start(params)
    trajectory = hj.simulate(paddle_juggler.system, x, params, mode=mode, t1=3.0, max_jumps=20)
    animation = animate_trajectory(trajectory, paddle_juggler, fps=10)
    assert len(list(animation.new_frame_seq())) == 30  # seconds in real time
    (ax,) = pyplot().gcf().axes
    lines = {line.get_gid(): line for line in ax.lines if str(line.get_gid()).startswith("leg")}
    heights = []
    for frame in range(30):
        animation._draw_frame(frame)  # pyright: ignore
        ball, paddle = (np.asarray(lines[f"leg {k}"].get_xydata()) for k in range(2))
        heights.append(ball[:, 1].min())
        # Samples lie a hundredth of an arc apart, and are joined by straight lines.
        assert ball[:, 1].min() > paddle[0, 1] - 1e-3
    # Where the simulation has it at the frames' times; on straight lines between samples.
    times = jnp.linspace(0.0, 3.0, 30, endpoint=False)
    simulated = hj.simulate(paddle_juggler.system, x, params, mode=mode, t1=3.0, max_jumps=20, times=times).samples
    assert_allclose(heights, simulated.x[:, 0], rtol=0, atol=1e-3)
    with pytest.raises(ValueError, match="fps=0"):
        animate_trajectory(trajectory, paddle_juggler, fps=0)


def orbit_of(model, x):
    """An orbit as pictures need one: a start that is on it, the other numbers anything."""
    params = model.Params()
    n = model.system.modes[model.sequence[0]].dimension
    return hj.PeriodicOrbit(
        x=x, period=jnp.array(1.0), multipliers=jnp.zeros(n, complex), return_jacobian=jnp.zeros((n, n)),
        residual=jnp.array(0.0), guard_rates=jnp.array([-1.0, -1.0]), nodes=x[None], start_times=jnp.zeros(1),
        before=x[None], arc_ends=(x[None],) * len(model.sequence),
        jump_times=jnp.ones((1, len(model.sequence))), iterations=jnp.array(1), distance=jnp.array(0.0),
        result=hj.RESULTS.successful, params=params, system=model.system, sequence=model.sequence, strides=1,
        integrator=hj.Integrator(),
    )  # fmt: skip


def test_a_rate_that_a_mode_lacks_is_that_of_its_field(monkeypatch):
    """While it sticks, the block has the speed of the belt: the loop of the portrait is closed."""
    omega, begin, end, middle = np.sqrt(40), 0.2 * 9.81 / 40, 0.4 * 9.81 / 40, 0.3 * 9.81 / 40
    phase = np.linspace(0, np.pi + 2 * np.arctan(0.1 / (omega * (end - middle))), 50)
    x = middle + (end - middle) * np.cos(phase) + 0.1 / omega * np.sin(phase)
    x_rate = -(end - middle) * omega * np.sin(phase) + 0.1 * np.cos(phase)
    stick = Arc("stick", jnp.linspace(0, 1, 50), jnp.linspace(begin, end, 50)[:, None])
    slipping = Arc("slip", jnp.linspace(1, 2, 50), jnp.stack([x, x_rate], axis=1))
    monkeypatch.setattr("hyjax.plot.orbit_axes.arcs_of", lambda orbit, n=200: (stick, slipping))
    ax = phase_portrait(orbit_of(friction_oscillator, jnp.array([begin])), model=friction_oscillator)
    first, second = (np.asarray(line.get_xydata()) for line in ax.lines if line.get_gid() is None)
    assert_allclose(first[:, 1], 0.1, rtol=1e-15)
    assert_allclose(second[[0, -1]], first[[-1, 0]], rtol=1e-12)
    assert ax.get_xlabel() == "$x$ (m)"


def test_coordinates_without_rates(monkeypatch):
    """The first two against each other; a long title breaks between equations."""
    orbit = orbit_of(buck_converter, jnp.array([12.0, 0.6, 3.8]))
    x = jnp.linspace(0, 1, 50)[:, None] * jnp.array([0.1, -0.1, 4.4]) + orbit.x
    arcs = tuple(Arc(mode, k + jnp.linspace(0, 1, 50), x) for k, mode in enumerate(buck_converter.sequence))
    monkeypatch.setattr("hyjax.plot.orbit_axes.arcs_of", lambda orbit, n=200: arcs)
    ax = phase_portrait(orbit, model=buck_converter)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("voltage (V)", "current (A)")
    ax = time_series(orbit, model=buck_converter)
    assert ax.get_ylabel() == "voltage (V), current (A), ramp (V)"
    first, second = orbit_figure(orbit, buck_converter).get_suptitle().split("\n")
    assert len(first) <= 110 and first.endswith(",") and "ramp\u00a0period\u00a0=\u00a00.4\u00a0ms" in second


def test_units_in_greek():
    assert unit("1/omega_0") == r"1/$\omega_{0}$"
    assert unit("1/tau") == r"1/$\tau$"
    assert unit("m g/l") == "m g/l"
