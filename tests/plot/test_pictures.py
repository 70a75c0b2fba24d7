"""Every kind of picture is compared with a stored one. The results are closed forms or made up: nothing is integrated.

Pictures whose results are computed by other tests are compared there, beside the fixtures.
"""

from types import SimpleNamespace

import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from compared import compared
from drawn_orbits import bouncing, orbit_of, run_of, running, sliding, swinging

import hyjax as hj
from hyjax import plot
from hyjax.models import bouncing_ball, buck_converter, compass_gait, friction_oscillator, simplest_walker, slip

xarray = pytest.importorskip("xarray")
pytestmark = pytest.mark.filterwarnings("ignore:Animation was deleted")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


@compared
def test_gait():
    """Angles of one mode in one portrait; the slope in degrees, as given; time without a unit of its own."""
    return plot.orbit_figure(swinging(), compass_gait, degrees=("slope",))


@pytest.mark.medium
@compared
def test_gait_of_several_modes():
    """A panel for the coordinate of stance alone; a change of mode is no jump."""
    return plot.orbit_figure(running(), slip)


@compared
def test_gait_of_two_units():
    """Volts and amperes have panels of their own; a multiplier of -815, and the unit circle."""
    t = np.linspace(0, 0.2, 50)
    turn = np.pi * t / 0.2
    half = np.stack([12 + 0.05 * np.sin(turn), 0.55 + 0.05 * np.cos(turn), 3.8 + 11 * t], axis=1)
    other = np.stack([12 - 0.05 * np.sin(turn), 0.55 - 0.05 * np.cos(turn), 6 + 11 * t], axis=1)
    arcs = [("off", t, half), ("on", t + 0.2, other)]
    return plot.orbit_figure(orbit_of(buck_converter, arcs, [-815.0, 0.2, 0.0]), buck_converter)


@pytest.mark.medium
@compared
def test_animation():
    """A frame: ground, legs, title, number and stability of the gait, clock."""
    animation = plot.animate_orbit(swinging(), compass_gait, label="gait 1 of 2")
    animation._draw_frame(20)  # pyright: ignore
    return matplotlib.pyplot.gcf()


@compared
def test_portrait():
    """While it sticks, the block has the speed of the belt."""
    return plot.phase_portrait(sliding(), model=friction_oscillator).figure


@compared
def test_trajectory():
    """A ball that bounces: parabolas, with units and the parameters above."""
    return plot.trajectory_figure(bouncing(), bouncing_ball)  # pyright: ignore


@pytest.mark.medium
@compared
def test_trajectory_of_several_modes():
    """The legend of the modes under a title of two lines; coordinates that one mode alone has."""
    orbit = running()
    return plot.trajectory_figure(run_of(orbit.arcs, system=slip.system, params=orbit.params), slip)  # pyright: ignore


LOGISTIC = hj.HybridSystem({"map": hj.Mode(lambda t, x, params: 0 * x, ("x",))}, ())


def logistic(strides):
    """A branch of the map a x (1 - x): its fixed point, or the pair from the doubling at 3, with the next at 1 + sqrt(6)."""
    if strides == 1:
        a = np.linspace(2.5, 3.8, 14)
        nodes, multipliers, at = (1 - 1 / a)[:, None], (2 - a)[:, None], 3.0
        doubled = np.array([[2 / 3]])
    else:
        a = np.concatenate([[3.002], np.linspace(3.05, 3.6, 12)])
        root = np.sqrt((a - 3) * (a + 1))
        nodes, multipliers = (
            np.stack([a + 1 + root, a + 1 - root], axis=1) / (2 * a)[:, None],
            (4 + 2 * a - a**2)[:, None],
        )
        at = 1 + np.sqrt(6)
        root = np.sqrt((at - 3) * (at + 1))
        doubled = np.array([[at + 1 + root], [at + 1 - root]]) / (2 * at)
    system = LOGISTIC
    problem = SimpleNamespace(system=system, sequence=("map",), strides=strides)
    orbit = SimpleNamespace(nodes=doubled, strides=strides, system=system, sequence=("map",), period=strides)
    v = np.concatenate([nodes, a[:, None]], axis=1)
    point = SimpleNamespace(kind="period-doubling", value=at, orbit=orbit, v=np.append(doubled[:, 0], at))
    return SimpleNamespace(
        values=a, heights=lambda name: nodes, stable=np.abs(multipliers[:, 0]) < 1, special_points=(point,), parameter="a",
        unfolding=SimpleNamespace(problem=problem, params={"a": jnp.array(3.0), "b": jnp.array(1.0)}, free=(0,)),
        _points={"v": v, "aux": SimpleNamespace(nodes=nodes[:, :, None])},
    )  # fmt: skip


@pytest.mark.medium
@compared
def test_branches():
    """Solid up to the doublings and dashed beyond; the doubled branch begins at its doubling; a legend of strides."""
    branches = [logistic(1), logistic(2)]
    return plot.branch_diagram(branches).figure  # pyright: ignore


@pytest.mark.medium
@compared
def test_loci():
    values = np.stack([np.linspace(0, 1, 20), np.linspace(0, 1, 20) ** 2], axis=1)
    params = {"a": jnp.array(1.0), "b": jnp.array(2.0), "c": jnp.array(3.0)}
    about = SimpleNamespace(params=params, free=(0, 1), problem=SimpleNamespace(system=LOGISTIC, strides=1))
    own = {"unfolding": about, "located": None, "neutral": np.zeros(20, bool), "parameters": ["a", "b"]}
    loci = [SimpleNamespace(values=scale * values, kind=kind, **own) for scale, kind in ((1, "fold"), (2, "grazing"))]
    return plot.locus_diagram(loci).figure  # pyright: ignore


@pytest.mark.medium
@compared
def test_diagram_over_two_parameters():
    """Curves of orbits of one and of two strides, a resonance, and periods: long ones grey, no period pale, failures white."""
    about = lambda strides: SimpleNamespace(
        params={"a": jnp.array(1.0), "b": jnp.array(2.0), "c": jnp.array(3.0)}, free=(0, 1),
        problem=SimpleNamespace(system=LOGISTIC, strides=strides),
    )  # fmt: skip
    values, none = np.stack([np.linspace(0, 1, 20), np.linspace(0, 1, 20) ** 2], axis=1), np.zeros(20, bool)
    resonance = SimpleNamespace(kind="resonance-1:4", values=np.array([0.5, 0.25]))
    loci = [
        SimpleNamespace(kind=kind, values=each, unfolding=about(k), located=points, neutral=none, parameters=["a", "b"])
        for k, kind, each, points in ((1, "neimark-sacker", values, (resonance,)), (2, "fold", 1 - values, None))
    ]
    period = np.arange(12).reshape(4, 3)
    attractors = xarray.Dataset(
        {"period": (("a", "b"), period), "result": (("a", "b"), np.where(period == 5, 1, 0))},
        {"a": np.linspace(0, 1, 4), "b": np.linspace(0, 1, 3)},
    )
    found = SimpleNamespace(branch=SimpleNamespace(unfolding=about(1)), loci=loci, attractors=attractors)
    return plot.diagram_figure(found).figure  # pyright: ignore


def swept(names, axes, theta, radius, units):
    """A dataset as of a sweep, with one coordinate and one multiplier."""
    coords = {name: (name, axis, {"units": unit}) for name, axis, unit in zip(names, axes, units, strict=True)}
    return xarray.Dataset(
        {
            "x": ((*names, "coordinate"), theta[..., None], {"units": "rad"}),
            "period": (names, 1 + theta, {"units": "sqrt(l/g)"}),
            "multipliers_real": ((*names, "multiplier"), radius[..., None]),
            "multipliers_imag": ((*names, "multiplier"), 0 * radius[..., None]),
            "stable": (names, radius < 1),
            "result": (names, np.where(np.isfinite(radius), 0, 1)),
        },
        coords={**coords, "coordinate": ["theta"]},
    )


@pytest.mark.medium
@compared
def test_sweep():
    """Over one parameter, in degrees as given: solid up to where the spectral radius is 1."""
    slope = np.deg2rad(np.linspace(1, 5, 9))
    found = swept(("slope",), (slope,), np.cbrt(slope), slope / np.deg2rad(3.3), ("rad",))
    return plot.sweep_figure(found, None, simplest_walker, simplest_walker.Params(), ("slope",))


@pytest.mark.medium
@compared
def test_sweep_over_two_parameters():
    """The line of spectral radius 1 is named, and where there is no orbit is grey."""
    slope, mu = np.linspace(0.01, 0.09, 9), np.linspace(1, 3, 11)
    radius = 20 * slope[:, None] * mu / 2
    radius[-1, -3:] = np.nan
    found = swept(("slope", "mu"), (slope, mu), np.cbrt(slope[:, None] * mu) + 0 * radius, radius, ("rad", "1"))
    return plot.sweep_figure(found, "period", compass_gait, compass_gait.Params())


@pytest.mark.medium
@pytest.mark.parametrize("axes", [1, 2])
def test_a_sweep_of_multipliers_on_the_circle(axes):
    """Of a conservative system: rounding makes no change of stability, as in the column `stable`."""
    values = np.linspace(0, 1, 6)
    radius = 1 + 1e-15 * np.resize([1.0, -1.0, 0.0, -1.0], (6,) * axes)
    names = ("slope", "mu")[:axes]
    figure = plot.sweep_figure(swept(names, (values,) * axes, 0 * radius + 2, radius, ("1",) * axes), "period")
    labels = {each.get_text() for legend in figure.legends for each in legend.get_texts()}
    assert labels == {"unstable"} if axes == 1 else not labels
    matplotlib.pyplot.close(figure)


def logistic_attractor(**about):
    """The attractors of the logistic map; one exponent is minus infinity."""
    a = np.linspace(2.8, 3.8, 41)
    x, total = np.full(a.size, 0.4), np.zeros(a.size)
    kept = []
    # Few strides: rounding grows twofold in each where the map is chaotic.
    for k in range(40):
        total += np.log(np.abs(a * (1 - 2 * x)))
        x = a * x * (1 - x)
        if k >= 24:
            kept.append(x)
    exponent = total / 40
    exponent[10] = -np.inf
    found = xarray.Dataset(
        {
            "x": (("a", "stride", "coordinate"), np.stack(kept, axis=1)[..., None], {"units": "m"}),
            "lyapunov": ("a", exponent),
            "exponents": (("a", "exponent"), np.stack([exponent, exponent - 1], axis=1)),
        },
        coords={"a": ("a", a, {"units": "1/s"}), "coordinate": ["x"]},
        attrs=about,
    )
    return plot.attractor_figure(found)


@pytest.mark.medium
@compared
def test_attractor():
    """The logistic map: dots that are seen, its exponents per stride, one of minus infinity."""
    return logistic_attractor()


@pytest.mark.medium
def test_the_exponents_of_a_section_are_per_return():
    assert logistic_attractor(section="surface in map").axes[1].get_ylabel() == "Lyapunov exponent\nper return"


@pytest.mark.medium
@compared
def test_basin():
    """Two orbits, two falls, a failure and what is undecided have six colours; the gait is marked."""
    theta, rate = np.linspace(0, 0.45, 24), np.linspace(-0.45, 0, 20)
    names = ["orbit_1", "orbit_2", "fell_forward", "fell_backward", "no_step", "undecided"]
    outcome = np.clip((rate[None, :] + 0.45) * 10 + theta[:, None] * 3, 0, 5).astype(np.int8)
    found = xarray.Dataset(
        {
            "outcome": (
                ("theta", "theta_rate"),
                outcome,
                {"flag_values": list(range(6)), "flag_meanings": " ".join(names)},
            )
        },
        coords={"theta": theta, "theta_rate": rate},
    )
    t = np.linspace(0, 1, 5)
    arcs = [("swing", t, np.tile([0.2, -0.2, 0.4, -0.02], (5, 1)))]
    orbit = orbit_of(simplest_walker, arcs, [0.5, 0.1, 0.0, 0.0])
    return plot.basin_figure(found, None, orbit, simplest_walker, simplest_walker.Params(), ("slope",)).figure


@compared
def test_work_and_precision():
    shape = ("set", "strategy", "solver", "rtol")
    tolerances = 10.0 ** -np.arange(4, 9)
    steps = np.array([1.0, 2.0, 0.5])[:, None] * 100 * tolerances**-0.2
    whole = lambda values: np.broadcast_to(values, (2, 1, *values.shape))
    study = xarray.Dataset(
        {
            "evaluations": (shape, whole(steps)),
            "integral_of_error": (shape, whole(np.array([1.0, 0.1, 10.0])[:, None] * tolerances)),
        },
        coords={"set": [1, 2], "strategy": ["events"], "solver": ["Tsit5", "Dopri8", "Kvaerno5"], "rtol": tolerances},
    )
    return plot.work_precision_figure(study)


@compared
def test_points():
    values = np.array([[[3.0, 2.0], [9.0, 8.0], [5.0, 8.0]]])
    points = xarray.Dataset(
        {
            "evaluations": (("strategy", "solver", "rtol"), values),
            "seconds": (("strategy", "solver", "rtol"), 10 - values),
        },
        coords={"strategy": ["events"], "solver": ["Tsit5", "Dopri8", "Kvaerno5"], "rtol": [1e-4, 1e-8]},
    )
    return plot.points_figure(points)
