"""Pictures of proofs, estimates, control, optimization and responses are compared with stored ones.

The results are closed forms or made up: nothing is integrated.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from compared import compared
from drawn_orbits import bouncing, height, IMPACT, OMEGA, running, sliding, swinging

import hyjax as hj
from hyjax import certify, plot
from hyjax._testing import (
    ActiveSetChange,
    EigenvalueEnclosure,
    IsostableResponse,
    OptimizedOrbit,
    OptimumBranch,
    SearchHistory,
    SectionChart,
    Tube,
)
from hyjax.models import bouncing_ball, compass_gait, friction_oscillator, simplest_walker, slip

pytestmark = pytest.mark.filterwarnings("ignore:Animation was deleted")
matplotlib.use("Agg")
ANGLES = 2 * np.pi * np.arange(16) / 16
ROUND = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
AXES = np.array([[-0.66, 0.15], [-0.75, -0.1]])


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


def certificate():
    """A set on the section of the simplest walker, and a tube that narrows along the stride."""
    orbit = swinging(model=simplest_walker, slope=0.009)
    (arc,) = orbit.sample()
    t, x, at = np.asarray(arc.t), np.asarray(arc.x), np.linspace(0, 2.99, 17)
    states = np.stack([np.interp(at, t, column) for column in x.T], axis=1)
    far = np.exp(-at / 4)[:, None] * np.array([2e-3, 1e-3, 4e-3, 3e-3])
    steps = np.linspace(at, np.append(at[1:], t[-1]), 20)
    during = np.stack([np.interp(steps, t, column) for column in x.T], axis=-1)
    low, high = during.min(axis=0) - 1.5 * far, during.max(axis=0) + 1.5 * far
    section = SectionChart(lift=lambda z, params: z, chart=lambda y, params: y[:2], names=("theta", "theta_rate"))
    return hj.certify.Certificate(
        status="proved", ratio=0.75, reasons=(), polygon=4e-3 * ROUND, image=3e-3 * ROUND * [1, 0.6], section=section,
        center=x[-1, :2], rows=np.linalg.inv(AXES), disturbance=hj.certify.Disturbance(1e-4), converges=False, norm=0.9, sets=3,
        tubes=(Tube(low, high, at, 3.01, states - far, states + far),), pieces=32, assumptions=("floats",),
        seconds=1.0, compile_seconds=2.0, orbit=orbit,
    )  # fmt: skip


@compared
def test_certificate():
    """The set in two coordinate systems with its image, and the tube; what is proved in the title."""
    return certify.certificate_figure(certificate(), simplest_walker)


@compared
def test_certified_set():
    return certify.certified_set(certificate(), model=simplest_walker).figure


@compared
def test_certified_tube():
    return certify.certified_tube(certificate(), simplest_walker)


@compared
def test_certified_region():
    """Cells coloured by their strides to the set, whose outline is drawn above them."""
    square = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    places = np.stack(np.meshgrid(np.arange(-2, 3), np.arange(-2, 3)), axis=-1).reshape(-1, 1, 2)
    proved = certificate()
    cells = proved.center + 2.5e-3 * (square / 2 + places) @ AXES.T
    strides = np.max(np.abs(places), axis=(1, 2))
    basin = hj.certify.ProvedBasin(proved, cells, strides, 1e-5, 9, 1.0)
    return certify.certified_region(basin, strides=True).figure


@compared
def test_proved_orbit():
    """A disc inside the unit circle and one beyond it; radii beside the spacing of floats."""
    bounds = lambda values, radii: hj.certify.Enclosed(np.asarray(values), np.asarray(radii))
    discs = EigenvalueEnclosure(
        np.array([0.4 + 0.5j, 0.4 - 0.5j, 1.4]), np.array([0.15, 0.15, 1e-3]), np.array([0, 1, 2])
    )
    proved = hj.certify.ProvedOrbit(
        reasons=(), coordinates=bounds([1.0, -0.2], [1e-12, 3e-14]), unique_within=1e-8, period=bounds(3.0, 1e-11),
        multipliers=discs, names=("theta", "theta_rate"), near=np.array([1.0, -0.2]), starts=(), ends=(), seconds=1.0,
        assumptions=(), orbit=swinging(),
    )  # fmt: skip
    return certify.proved_orbit_figure(proved)


@pytest.mark.medium
@compared
def test_covariance():
    """A ball that bounces: without noise the covariance is that of the start, moved by time and by the saltation matrix."""
    fall = lambda s: np.array([[1.0, s], [0.0, 1.0]])
    saltation = np.array([[-0.8, 0.0], [1.8 / IMPACT, -0.8]])
    moved = lambda matrix: matrix @ np.diag([1.6e-3, 4e-2]) @ matrix.T
    after = saltation @ fall(IMPACT)
    times = np.array([0.25, 0.85])
    samples = SimpleNamespace(
        x=np.stack([height(times[0], 0, 1, 0), height(times[1], IMPACT, 0, 0.8 * 9.81 * IMPACT)]), mode=np.zeros(2, int)
    )
    found = SimpleNamespace(
        trajectory=bouncing(samples), sigma_starts=[moved(np.eye(2)), moved(after)],
        sigma_ends=[moved(fall(IMPACT)), moved(fall(1.1 - IMPACT) @ after)],
        sigma_samples=[moved(fall(times[0])), moved(fall(times[1] - IMPACT) @ after)],
    )  # fmt: skip
    return plot.covariance_figure(found, model=bouncing_ball)  # pyright: ignore


def estimates(model, times, modes, means, deviations):
    covariances = np.asarray(deviations)[..., None] ** 2 * np.eye(means.shape[1])
    return hj.noise.Estimates(*map(jnp.asarray, (times, means, covariances, modes)), model.Params(), model.system)


@pytest.mark.medium
@compared
def test_filter():
    """Bands of a ball that bounces, interrupted where the event is; measurements as crosses."""
    t = np.linspace(0.05, 1.05, 21)
    x = np.where((t < IMPACT)[:, None], height(t, 0, 1, 0), height(t, IMPACT, 0, 0.8 * 9.81 * IMPACT))
    far = np.stack([0.1 / np.sqrt(1 + np.arange(21)), 0.6 / np.sqrt(1 + np.arange(21))], axis=1)
    events = np.diff(t > IMPACT, prepend=0)
    means = x + 0.5 * far * np.sin(9 * t)[:, None]
    found = estimates(bouncing_ball, t, np.zeros(21, int), means, far)
    return plot.estimate_figure(found, {"y": x[:, 0] + 0.1 * np.cos(40 * t)}, events)


@pytest.mark.medium
@compared
def test_smoother():
    """Two modes, of which one has a coordinate more; a single time in a mode; after a failure nothing is drawn."""
    stick, slide = sliding().sample()
    t = np.concatenate([stick.t[::5], slide.t[5::5]])
    means = np.concatenate([np.pad(stick.x, ((0, 0), (0, 1)))[::5], np.asarray(slide.x)[5::5]])
    modes = np.repeat([0, 1], [10, 9])
    modes[-3:] = 0, -1, -1
    means[-2:] = np.nan
    far = np.where(modes[:, None] == 1, [4e-3, 2e-2], [4e-3, 0])
    return plot.estimate_figure(estimates(friction_oscillator, t, modes, means, far))


@pytest.mark.medium
@compared
def test_ilqr():
    """A ball that is pushed: heights, the jump, a control held for each step, costs with and without the event."""
    times = np.linspace(0, 1, 11)
    x = np.where((times < IMPACT)[:, None], height(times, 0, 1, 0), height(times, IMPACT, 0, 0.8 * 9.81 * IMPACT))
    first, second = bouncing().sample(40)
    one, both = np.stack([first.x[0], second.x[0]]), np.stack([first.x[-1], x[-1]])
    arcs = SimpleNamespace(
        modes=np.array([0, 0, -1]), start_times=np.array([0, IMPACT, np.nan]), end_times=np.array([IMPACT, 1, np.nan]),
        x_starts=one, x_ends=both,
    )  # fmt: skip
    params = bouncing_ball.Params()
    solution = SimpleNamespace(
        cost=np.array(0.02), problem=SimpleNamespace(system=bouncing_ball.system, params=params, free=(1,)),
        controls=2 * np.cos(6 * times[:-1])[:, None], times=times, x=x, arcs=arcs, numbers=(times > IMPACT).astype(int),
        events=1, event_times=np.array([IMPACT]), result=hj.RESULTS.successful,
        history=SimpleNamespace(cost=3.0 ** -np.arange(7.0), events=np.array([0, 0, 0, 1, 1, 1, 1])),
    )  # fmt: skip
    return plot.ilqr_figure(solution)  # pyright: ignore


def record(kind, **values):
    """A result of a class with some of its attributes: those that its picture shows."""
    found = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(found, name, value)
    return found


def optimized():
    """A gait that became slower and more stable, in five evaluations of which one was refused."""
    before = swinging(multipliers=(0.9, -0.5, 0.0, 0.0), slope=np.deg2rad(3))
    orbit = swinging(period=3.4, swing=0.25, slope=np.deg2rad(2))
    unknowns = SimpleNamespace(vector=lambda params: np.stack([params.slope]), scale=1.0, names=["slope"])
    history = record(
        SearchHistory, accepted=np.array([[True, True, False, True, True]]), objective=np.array([[0.9, 0.7, 2.0, 0.55, 0.5]]),
        violation=np.array([[0.0, 1e-2, 1.0, 1e-5, 1e-11]]), step=np.zeros((1, 5)), phase=np.ones((1, 5), int),
        codes=np.zeros((1, 5), int),
    )  # fmt: skip
    return record(
        OptimizedOrbit, before=before, orbit=orbit, value_before=0.9, value=0.5, result=hj.RESULTS.successful,
        constraints=np.zeros(1), best=0, starts=SimpleNamespace(iterations=[5], history=history),
        program=SimpleNamespace(unknowns=unknowns, objective=hj.objectives.spectral_radius),
    )  # fmt: skip


@pytest.mark.medium
@compared
def test_optimization():
    """Both gaits at the same scales; the refused evaluation is left out; the multipliers before as open circles."""
    return plot.optimization_figure(optimized(), compass_gait)


@pytest.mark.medium
@compared
def test_animated_optimization():
    """A frame: both gaits at the same scale, with their values."""
    animation = plot.animate_optimization(optimized(), compass_gait, strides=2, fps=10)
    animation._draw_frame(7)  # pyright: ignore
    return matplotlib.pyplot.gcf()


@pytest.mark.medium
@compared
def test_optimum():
    """A bound becomes active at the line; the parameter has its unit."""
    slope = np.linspace(0.01, 0.09, 17)
    orbits = SimpleNamespace(
        multipliers=np.stack([0.4 + 8 * slope, -0.2 + 0 * slope], axis=1), system=compass_gait.system,
        params=jax.tree.map(lambda leaf: jnp.full(17, leaf), compass_gait.Params()),
    )  # fmt: skip
    branch = record(
        OptimumBranch, orbits=orbits, numbers=slope, values=np.cbrt(slope), name="slope", names=("mu",),
        unknowns=np.maximum(2 - 20 * slope, 1)[:, None],
        changes=(ActiveSetChange(0.05, "lower bound of mu", True),),
    )  # fmt: skip
    return plot.optimum_figure(branch)


@pytest.mark.medium
@compared
def test_response():
    """Of a block on a belt: the response to its speed is defined only while it slips."""
    orbit = sliding()
    stick, slide = orbit.sample()
    turn = OMEGA * np.asarray(slide.t - 1) / 2
    z = 10 * np.ones((50, 1)), np.stack([10 * np.cos(turn), 10 / OMEGA * np.sin(turn)], axis=1)
    arcs = tuple(
        hj.phase.ResponseArc(arc.mode, arc.t, arc.x, jnp.asarray(each), jnp.ones(50))
        for arc, each in zip((stick, slide), z, strict=True)
    )
    found = hj.phase.PhaseResponse(arcs, jnp.array(0.0), orbit.result, orbit)
    return plot.response_figure(found, friction_oscillator)


@pytest.mark.medium
@compared
def test_isostable_response():
    """The real part of a response of complex numbers, through three modes."""
    orbit, arcs = running(), []
    for arc in orbit.sample():
        z = np.exp(complex(-0.5, 1) * np.asarray(arc.t))[:, None] * (1 + np.asarray(arc.x))
        arcs.append(hj.phase.ResponseArc(arc.mode, arc.t, arc.x, jnp.asarray(z), jnp.ones(40)))
    found = record(IsostableResponse, arcs=tuple(arcs), residual=jnp.array(0.0), result=orbit.result, orbit=orbit)
    return plot.response_figure(found, slip)


@pytest.mark.medium
@compared
def test_tongue():
    """An interaction function of two harmonics, between its extremes; the tongue is not symmetric."""
    lags = np.arange(60) / 60
    values = np.cos(2 * np.pi * lags) + 0.4 * np.cos(4 * np.pi * lags)
    # The minimum is where cos(2 pi psi) = -1/1.6.
    found = hj.phase.Entrainment(
        jnp.asarray(lags), jnp.asarray(values), jnp.array(-0.4 - 1 / 3.2), jnp.array(1.4), hj.RESULTS.successful,
        sliding(),
    )  # fmt: skip
    return plot.tongue_figure(found, strength=0.2)
