"""`hyjax optimize` as a person uses it: one optimization that all tests share, and what is refused before any compilation."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import matplotlib.pyplot
import numpy as np
import pytest
from numpy.testing import assert_allclose
from PIL import Image
from scipy.integrate import quad
from systems import ROLLED

import hyjax as hj
from hyjax._testing import (
    Misuse,
    no_optimum,
    optimization_figure,
    orbit_figure,
    parse_bounds,
    parse_constraints,
    quantities,
)
from hyjax.models import load, powered_walker, rimless_wheel

WHEEL = ("optimize", "rimless_wheel", "--objective", "period")
SPEED, SLOPE = 0.6, 0.2
AT_SPEED = ("--subject-to", f"speed={SPEED}")
VARIED = ("--over", "slope=0.05:0.5", "--over", "spokes=5:8")
OVER = ("--over", "push_off=0.01:0.5", "--over", "stiffness=0:6")
# A step has the length 2 sin(pi/n): at a speed that with the most spokes allowed takes the least time.
LEAST = 2 * np.sin(np.pi / 8) / SPEED


def first_period():
    """Of the wheel with six spokes, by its energy: the rate after a strike in closed form, and a quadrature."""
    half, inertia, mu = np.pi / 6, 2 / 3, 2 / 3
    start = 4 * mu**2 * inertia * np.sin(half) * np.sin(SLOPE) / (1 - mu**2)
    squared = lambda theta: start + 2 * inertia * (np.cos(SLOPE - half) - np.cos(SLOPE + theta))
    return quad(lambda theta: squared(theta) ** -0.5, -half, half, epsabs=1e-14, epsrel=1e-13)[0]


BEFORE = first_period()


@pytest.fixture(scope="module")
def found():
    """Results by whether the objective is a negative; the first command fills that of the objective itself."""
    return {}


@pytest.fixture
def optimize(command, monkeypatch, found):
    """The command, with one optimization for all calls: a later one gets the result of the first. That is by first derivatives,
    which are compiled in half the time."""
    from hyjax._testing import optimize_module as module

    run = module.optimize

    def once(orbit, objective, **options):
        negated = isinstance(objective, hj.objectives.Negative)
        found["second_order"] = options["method"].second_order
        if negated not in found:
            found[negated] = run(
                orbit, objective, **options | {"method": hj.objectives.InteriorPoint(), "integrator": ROLLED}
            )
        return found[negated]

    monkeypatch.setattr(module, "optimize", once)
    return command


@pytest.fixture
def gait(optimize, found):
    """The optimal gait, by the first command if it has not run."""
    if False not in found:
        optimize(*WHEEL, *VARIED, *AT_SPEED)
    return found[False]


@pytest.mark.slow
def test_the_shortest_period(optimize, gait, found):
    ran = optimize(*WHEEL, *VARIED, *AT_SPEED, "--json", "--plot", "best.png", "--animate", "best.gif")
    assert ran.returncode == 0, ran.stderr
    assert "from the gait near the model's guess" in ran.stderr
    assert "wrote best.png" in ran.stderr and "wrote best.gif" in ran.stderr
    assert found["second_order"] is True
    printed = json.loads(ran.stdout)
    assert printed["model"] == "rimless_wheel" and printed["result"] == "successful"
    objective = printed["objective"]
    assert objective["name"] == "period" and objective["maximized"] is False
    assert_allclose(objective["before"], BEFORE, rtol=1e-12)
    assert_allclose(objective["after"], LEAST, rtol=1e-12)
    slope, spokes = printed["varied"]
    assert [slope["name"], slope["low"], slope["high"], slope["at"]] == ["slope", 0.05, 0.5, None]
    assert spokes["at"] == "high" and spokes["after"] == 8
    # The derivative of the least period by the number of spokes, at the speed.
    assert_allclose(spokes["bound_multiplier"], -2 * np.cos(np.pi / 8) * np.pi / 64 / SPEED, rtol=1e-7)
    assert printed["params"] == {"spokes": 8.0, "inertia_ratio": 2 / 3, "slope": slope["after"]}
    (speed,) = printed["constraints"]
    assert speed["name"] == "speed" and speed["relation"] == "=" and speed["limit"] == SPEED and speed["active"]
    assert_allclose(speed["before"], 1 / BEFORE, rtol=1e-12)
    assert_allclose(speed["after"], SPEED, rtol=0, atol=1e-12)
    assert_allclose(speed["multiplier"], -LEAST / SPEED, rtol=1e-7)
    # The speed from the gait itself: theta just after the strike, and the period.
    orbit = printed["after"]
    assert_allclose(orbit["period"], objective["after"], rtol=1e-14)
    assert_allclose(-2 * np.sin(orbit["x0"][0]) / orbit["period"], speed["after"], rtol=1e-14)
    assert orbit["residual"] < 1e-14 and orbit["stable"]
    assert_allclose([each["gradient"] for each in printed["varied"]], gait.gradient, rtol=0, atol=0)
    assert printed["optimality_residual"] < 1e-7 and printed["gradient_error"] < 1e-7
    (start,) = printed["starts"]
    assert start["value"] == objective["after"] and start["optimum"] == printed["best"] == 1
    assert start["evaluations"] == printed["evaluations"] == len(printed["history"]) < 30
    assert_allclose(printed["history"][0]["objective"], objective["before"], rtol=1e-12)
    assert all((each["objective"] is None) == (each["result"] != "successful") for each in printed["history"])
    figure = ran.figures["best.png"]
    assert "Rimless wheel: period" in figure.get_suptitle()
    with Image.open("best.gif") as film:
        # Four steps of the slower gait, as with legs of 1 m.
        assert getattr(film, "n_frames", 1) == round(4 * printed["before"]["period"] / 9.81**0.5 * 25)


@pytest.mark.slow
def test_the_table(optimize, found):
    ran = optimize(*WHEEL, *VARIED, *AT_SPEED, "--first-order")
    assert ran.returncode == 0, ran.stderr
    assert found["second_order"] is False
    lines = {line.strip().split("  ")[0]: line for line in ran.stdout.splitlines()}
    assert "Rimless wheel: period minimized; inertia_ratio = 0.6666666667" in ran.stdout
    assert f"{BEFORE:.12g}" in lines["period"] and f"{LEAST:.12g}" in lines["period"]
    assert "at its upper bound, multiplier -0.151169" in lines["spokes"]
    assert "multiplier -2.12602" in lines["speed = 0.6"]
    assert "yes" in lines["stable"] and " evaluations: successful" in ran.stdout
    assert "optimum 1" not in ran.stdout


@pytest.mark.slow
def test_a_maximum_is_that_of_the_negative(optimize, found, gait):
    """The value, its gradient and the multipliers change sign, on paper: no other optimization is run."""
    found[True] = gait
    ran = optimize(*WHEEL, *VARIED, *AT_SPEED, "--maximize", "--json")
    printed = json.loads(ran.stdout)
    assert_allclose(printed["objective"]["after"], -LEAST, rtol=0, atol=6e-14)
    assert printed["objective"]["maximized"] is True
    assert_allclose(printed["varied"][0]["gradient"], -gait.gradient[0], rtol=0, atol=0)
    assert_allclose(printed["constraints"][0]["multiplier"], -gait.multipliers[0], rtol=0, atol=0)
    assert printed["varied"][1]["at"] == "high" and printed["starts"][0]["value"] == printed["objective"]["after"]


@pytest.mark.slow
def test_no_optimum_is_status_1(optimize, found, gait):
    import equinox as eqx

    lost = eqx.tree_at(lambda gait: gait.result, gait, hj.RESULTS.infeasible)
    found[True] = lost
    ran = optimize(*WHEEL, *VARIED, *AT_SPEED, "--maximize", "--plot", "lost.png")
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("hyjax: rimless_wheel: no optimum was found. infeasible: a constraint is violated")
    # Where the search ended is drawn, and is not called an optimum.
    titles = [ax.get_title() for part in ran.figures["lost.png"].subfigs for ax in part.axes]
    assert any(title.startswith("last gait, not an optimum") for title in titles), titles


@pytest.mark.slow
def test_lost_gaits_are_counted(optimize, found, gait):
    """In the JSON record the trial has no objective, and in the table its code is counted."""
    import equinox as eqx

    history = jax.tree.map(lambda leaf: np.array(leaf), gait.starts.history)
    history.codes[0, 1], history.objective[0, 1] = int(hj.RESULTS.far_from_guess._value), np.nan
    found[True] = eqx.tree_at(lambda gait: gait.starts.history, gait, history)
    ran = optimize(*WHEEL, *VARIED, *AT_SPEED, "--maximize", "--json")
    trial = json.loads(ran.stdout)["history"][1]
    assert trial["result"] == "far_from_guess" and trial["objective"] is None
    assert "because the gait was lost: 1 far_from_guess" in optimize(*WHEEL, *VARIED, *AT_SPEED, "--maximize").stdout


def test_the_edge_of_the_gaits_existence_is_named():
    """A search that ended at an unstable gait, on whose way gaits were lost: the constraint that keeps it away."""
    lost = {"result": "orbit_not_converged"}
    record = {
        "best": 1, "starts": [{"violation": 0.0, "optimality_residual": 0.05}], "result": "optimum_not_found", "evaluations": 83,
        "history": [lost, lost], "objective": {"name": "speed"}, "constraints": [], "before": {"spectral_radius": 0.8},
        "after": {"spectral_radius": 3e4},
    }  # fmt: skip
    said = no_optimum(record, None, first_order=False)  # pyright: ignore
    assert "lost: 2 orbit_not_converged" in said and "radius 3e+04" in said and "contraction<=0.95" in said
    fold = record | {"before": {"spectral_radius": 0.96}, "after": {"spectral_radius": 0.99999997}}
    assert "spectral_radius<=1" in no_optimum(fold, None, first_order=False)  # pyright: ignore
    stable = no_optimum(record | {"after": {"spectral_radius": 0.9}}, None, first_order=False)  # pyright: ignore
    assert "--subject-to" not in stable


@pytest.mark.slow
def test_several_starts_are_counted(optimize, found, gait):
    """Of three starts two led to one optimum, and one was lost."""
    import equinox as eqx

    starts = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf), 3, axis=0), gait.starts)
    codes = starts.result._value.copy()
    codes[1] = int(hj.RESULTS.no_crossing._value)
    starts = eqx.tree_at(lambda s: (s.optimum, s.result._value), starts, (np.array([0, -1, 0]), codes))
    found[True] = eqx.tree_at(lambda gait: gait.starts, gait, starts)
    ran = optimize(*WHEEL, *VARIED, *AT_SPEED, "--maximize")
    assert ran.returncode == 0, ran.stderr
    notes = [line.split() for line in ran.stdout.splitlines()[-2:]]
    assert notes[0][:4] == ["2", "optimum", "1:", f"{-LEAST:.9g}"] and notes[1][:2] == ["1", "no_crossing:"]


@pytest.mark.slow
def test_the_figure(gait):
    """What is drawn is what was computed: both gaits, the accepted evaluations, the multipliers of both."""
    figure = optimization_figure(gait, rimless_wheel)
    gaits, course = figure.subfigs
    # Row by row: the portraits, the coordinates over time.
    columns = np.reshape(gaits.axes, (2, 2)).T
    for orbit, axes in zip((gait.before, gait.orbit), columns, strict=True):
        alone = orbit_figure(orbit, rimless_wheel).axes[:2]
        for ax, other in zip(axes, alone, strict=True):
            for line, same in zip(ax.lines, other.lines, strict=True):
                np.testing.assert_array_equal(line.get_xydata(), same.get_xydata())
    assert columns[0][0].get_xlim() == columns[1][0].get_xlim()
    assert columns[0][1].get_ylim() == columns[1][1].get_ylim()
    assert "1.27561" in columns[1][0].get_title()
    objective, violation, plane = course.axes
    taken = np.asarray(gait.history.accepted)
    (drawn,) = (line for line in objective.lines if line.get_gid() == "objective")
    np.testing.assert_array_equal(drawn.get_ydata(), np.asarray(gait.history.objective)[taken])
    (drawn,) = (line for line in violation.lines if line.get_gid() == "violation")
    np.testing.assert_array_equal(drawn.get_ydata(), np.maximum(np.asarray(gait.history.violation)[taken], 1e-17))
    (before,) = (line for line in plane.lines if line.get_gid() == "before")
    np.testing.assert_array_equal(before.get_xydata() @ [1, 1j], gait.before.multipliers)
    assert before.get_xydata()[:, 0].max() < plane.get_xlim()[1]
    figure.canvas.draw()
    assert gait.plot(rimless_wheel).axes
    matplotlib.pyplot.close("all")


@pytest.mark.slow
def test_both_gaits_walk_side_by_side(gait):
    """At the same time each half shows its own gait, at the same scale, with the value of the objective."""
    animation = gait.animate(rimless_wheel, strides=2, fps=10)
    figure = animation._fig
    frames, duration = len(list(animation.new_frame_seq())), 2 * float(gait.before.period)
    assert frames == 20  # two seconds, the least
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["before: 2.31001", "after: 1.27561"]
    assert figure.texts[0].get_text() == "Rimless wheel: period, minimized"
    times = np.arange(frames) / frames * duration
    for frame in (0, frames // 3, frames - 1):
        animation._draw_frame(frame)
        assert f"{times[frame]:.2f}" in figure.texts[1].get_text()
        for orbit, ax in zip((gait.before, gait.orbit), figure.axes, strict=True):
            legs = [line.get_xydata() for line in ax.lines if str(line.get_gid()).startswith("leg")]
            # Angles to the vertical, but for those between spokes; between 200 times on the arc to the square of their spacing.
            t = times[frame] % float(orbit.period)
            arc = orbit.sample(400)[0]
            angle, n = np.interp(t, arc.t, arc.x[:, 0]) + float(orbit.params.slope), int(orbit.params.spokes)
            spokes = np.array([a - b for a, b in legs]) @ [1j, 1]
            assert len(legs) == n
            assert_allclose(spokes**n, np.full(n, np.exp(1j * n * angle)), rtol=0, atol=n * 1e-4)
    one, other = figure.axes
    # One scale in both panels, up to the rounding of a difference of limits.
    for limits in ("xlim", "ylim"):
        assert_allclose(*(np.ptp(getattr(panel, f"get_{limits}")()) for panel in (one, other)), rtol=1e-14)
    matplotlib.pyplot.close("all")
    with pytest.raises(ValueError, match="animate_optimization: strides=0"):
        gait.animate(rimless_wheel, strides=0)


@pytest.mark.slow
def test_a_maximum_is_drawn_as_such(gait):
    """The same optimization under another name: the negative of minus the period."""
    period = gait.program.objective

    def minus_period(orbit, params):
        return -period(orbit, params)

    program = dataclasses.replace(gait.program, objective=hj.objectives.Negative(minus_period))
    maximum = dataclasses.replace(gait, program=program)
    figure = optimization_figure(maximum, rimless_wheel)
    assert figure.get_suptitle().startswith("Rimless wheel: minus period, maximized;")
    gaits, course = figure.subfigs
    assert [ax.get_title().partition(",")[0] for ax in gaits.axes[:2]] == [
        "starting gait: −2.31001",
        "optimal gait: −1.27561",
    ]
    (drawn,) = (line for line in course.axes[0].lines if line.get_gid() == "objective")
    taken = np.asarray(gait.history.accepted)
    np.testing.assert_array_equal(drawn.get_ydata(), -np.asarray(gait.history.objective)[taken])
    assert course.axes[0].get_ylabel() == "minus period,\nmaximized"
    assert optimization_figure(gait).subfigs[1].axes[0].get_ylabel() == "period,\nminimized"
    both = [ax.get_title() for ax in maximum.animate(rimless_wheel, strides=1, fps=4)._fig.axes]
    assert both == ["before: −2.31001", "after: −1.27561"]
    assert maximum.program.objective(gait.orbit, gait.params) == period(gait.orbit, gait.params)
    matplotlib.pyplot.close("all")


def test_quantities():
    """Those of every gait, of one that moves over the ground, on a slope, or driven, and the model's objectives."""
    still = {"period", "spectral_radius", "contraction"}
    assert set(quantities(load("buck_converter"))) == still
    assert set(quantities(load("rimless_wheel"))) == still | {"speed", "step_length", "slope_sensitivity"}
    driven = {"positive_work", "negative_work", "mechanical_cost_of_transport"}
    assert set(quantities(load("bhounsule_walker"))) == still | driven | {"speed", "step_length", "effort"}
    assert quantities(powered_walker)["period"][1] == "sqrt(l/g)"
    assert quantities(powered_walker)["slope_sensitivity"][1] == "sqrt(l/g)/rad"


@pytest.mark.slow
def test_a_multiplier_is_the_derivative_by_the_limit(optimize, found, gait):
    """Of an upper limit it has the opposite sign of the lower one's, for a lower limit costs where an upper one spares."""
    (speed,) = gait.program.constraints
    printed = {}
    for option, relation in (("at_least", ">="), ("at_most", "<=")):
        limited = hj.Constraint(speed.function, name="speed", **{option: SPEED})
        program = dataclasses.replace(gait.program, constraints=(limited,), rows=((0, 1),))
        found[True] = dataclasses.replace(gait, active=jnp.array([True]), program=program)
        ran = optimize(*WHEEL, *VARIED, "--subject-to", f"speed{relation}{SPEED}", "--maximize", "--json")
        (printed[relation],) = json.loads(ran.stdout)["constraints"]
    assert_allclose(printed[">="]["multiplier"], -gait.multipliers[0], rtol=0, atol=0)
    assert_allclose(printed["<="]["multiplier"], gait.multipliers[0], rtol=0, atol=0)


def test_limits_of_one_quantity_are_one_constraint():
    two, one = parse_constraints(powered_walker, ["period >= 2", "speed=2/5", "period<=2.5"])
    assert two.name == "period" and float(two.at_least) == 2 and float(two.at_most) == 2.5
    assert one.name == "speed" and float(one.equals) == 0.4
    with pytest.raises(Misuse, match="give either"):
        parse_constraints(powered_walker, ["period=2", "period<=2.5"])


def test_bounds_have_units():
    values = {"slope": 0.0, "stiffness": 1.0, "push_off": 0.1}
    bounds = parse_bounds(powered_walker, ["slope=-1deg:1deg", "stiffness=0:6"], values)
    assert list(bounds) == ["slope", "stiffness"] and bounds["stiffness"] == (0, 6)
    assert_allclose(bounds["slope"], np.deg2rad([-1, 1]), rtol=1e-15)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--objective", "cost_of_transprt", *OVER), "Did you mean 'cost_of_transport'?"),
        (
            ("--objective", "cost", *OVER),
            "The quantities are: period, spectral_radius, contraction, speed, step_length",
        ),
        (("--objective", "period"), "--over"),
        (OVER, "--objective"),
        (("--objective", "period", "--over", "stifness=0:6"), "Did you mean 'stiffness'?"),
        (("--objective", "period", "--over", "stiffness"), "is not name=low:high"),
        (("--objective", "period", "--over", "stiffness=0:6:9"), "is not name=low:high"),
        (("--objective", "period", "--over", "stiffness=6:0"), "must have its low below its high"),
        (("--objective", "period", "--over", "stiffness=-1:6"), "its bound -1 is out of range"),
        (("--objective", "period", "--over", "stiffness=0:6deg"), "'6deg' is an angle"),
        (("--objective", "period", *OVER, "--over", "stiffness=1:2"), "stiffness is given twice"),
        (("--objective", "period", *OVER, "--subject-to", "sped=0.4"), "Did you mean 'speed'?"),
        (("--objective", "period", *OVER, "--subject-to", "speed"), "is not name=value, name>=value or name<=value"),
        (("--objective", "period", *OVER, "--subject-to", "speed<0.4"), "is not name=value"),
        (("--objective", "period", *OVER, "--subject-to", "speed==0.4"), "is not name=value"),
        (("--objective", "period", *OVER, "--subject-to", "speed=fast"), "'fast' is not a number"),
        (("--objective", "period", *OVER, "--subject-to", "speed=3deg"), "'3deg' is an angle"),
        (("--objective", "period", *OVER, "--subject-to", "speed=1", "--subject-to", "speed=2"), "given twice"),
        (("--objective", "period", *OVER, "--subject-to", "speed>=2", "--subject-to", "speed<=1"), "must be below"),
        (
            ("--objective", "period", "--over", "stiffness=0:6", "--subject-to", "speed=1", "--subject-to", "period=2"),
            "2 equations for 1 parameter leave no choice",
        ),
    ],
)
def test_misuse(command, monkeypatch, arguments, message):
    from hyjax._testing import periodic_orbit_module

    def computed(*_, **__):
        raise AssertionError("began to compute")

    monkeypatch.setattr(periodic_orbit_module, "periodic_orbit", computed)
    ran = command("optimize", "powered_walker", *arguments)
    assert ran.returncode == 2
    assert message in ran.stderr and len(ran.stderr.splitlines()) == 1 and ran.stdout == ""


def test_models_lists_the_objectives(command):
    assert "objectives: cost_of_transport" in command("models", "powered_walker").stdout
    printed = json.loads(command("models", "--json").stdout)
    driven = ["positive_work", "negative_work", "mechanical_cost_of_transport"]
    assert printed["bhounsule_walker"]["objectives"] == ["effort", *driven]
    assert printed["simplest_walker"]["objectives"] == []
