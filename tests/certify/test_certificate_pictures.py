"""Pictures of certificates: what is drawn is the set, its image, the tube about the orbit, and the set in a basin's plane."""

import json

import disturbed_walker as walker_flight
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import (
    certificate_figure,
    certificate_record,
    certified_region,
    disturbed_ends,
    EigenvalueEnclosure,
    pyplot,
    relative_tube,
    SectionChart,
    Tube,
)
from hyjax.certify import certified_set, certified_tube
from hyjax.models import simplest_walker as model

matplotlib.use("Agg")
STEPS = 32
ANGLES = 2 * np.pi * np.arange(16) / 16
ROUND = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
AXES = np.array([[-0.66, 0.05], [-0.75, 0.0]])
# How far the tube made here is above and below the orbit, for each coordinate.
UP, DOWN = np.array([1e-3, 2e-3, 3e-3, 4e-3]), np.array([2e-3, 1e-3, 4e-3, 3e-3])
SECTION = SectionChart(
    lift=lambda z, params: model.heel_strike(0.0, jnp.concatenate([z, jnp.zeros(2)]), params),
    chart=lambda y, params: y[:2],
    names=("theta", "theta_rate"),
)


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot().close("all")


@pytest.fixture(scope="module")
def orbit(walker):
    return walker["long_0.009"]


@pytest.fixture(scope="module")
def arc(orbit):
    (arc,) = orbit.sample(401)
    return arc


def tube_about(arc, early, down=DOWN):
    """Bounds about the orbit by known distances; the steps end earlier than the arc."""
    t, x = np.asarray(arc.t), np.asarray(arc.x)
    at = np.linspace(0, t[-1] - early, STEPS + 1)
    states = np.stack([np.interp(at, t, column) for column in x.T], axis=1)
    inner = np.linspace(at, np.append(at[1:], t[-1]), 20)
    during = np.stack([np.interp(inner, t, column) for column in x.T], axis=-1)
    low, high = during.min(axis=0) - 2 * down, during.max(axis=0) + 2 * UP
    return Tube(low, high, at, float(t[-1] + early), states - down, states + UP)


@pytest.fixture(scope="module")
def certificate(orbit, arc):
    return hj.certify.Certificate(
        status="proved", ratio=0.75, reasons=(), polygon=4e-3 * ROUND, image=3e-3 * ROUND, section=SECTION,
        center=np.asarray(orbit.arc_ends[-1][-1])[:2], rows=np.linalg.inv(AXES), disturbance=hj.certify.Disturbance(1e-4),
        converges=False, norm=0.9, sets=3, tubes=(tube_about(arc, 1e-3),), pieces=32, assumptions=("floats",), seconds=1.0,
        compile_seconds=2.0, orbit=orbit,
    )  # fmt: skip


# Of the fixed steps of another integrator, before the last one, to the event.
FLOWN = 780


def disturbed_return(z, winds, period):
    """Pre-impact (theta, theta') of the next strike, shape (count, 2); winds by steps, shape (count, FLOWN + 1, 4)."""
    wide = (jnp.full((FLOWN + 1, 4), -jnp.inf), jnp.full((FLOWN + 1, 4), jnp.inf))
    fly = jax.jit(jax.vmap(lambda z, w: walker_flight.stride(z, 0.99 * period / FLOWN, w, wide, wide)[0]))
    return np.asarray(fly(jnp.asarray(z), jnp.asarray(winds)))


def drawn(ax):
    """The polygons of axes by their labels."""
    return {patch.get_label(): patch.get_xy()[:-1] for patch in ax.patches}


@pytest.mark.medium
def test_the_figure_has_the_set_its_image_and_the_tube(certificate):
    figure = certificate.plot(model)
    section, own, *rows = figure.axes
    assert (
        len(rows) == 4
        and figure.get_suptitle().replace("\xa0", " ")
        == r"Simplest walker: slope = 0.009 rad; proved, ratio 0.7500, $\|w\|_{2} \leq 10^{-4}$"
    )
    assert_allclose(drawn(section)["set"], certificate.center + 4e-3 * ROUND @ AXES.T, rtol=1e-14)
    assert_allclose(drawn(section)["bound of its image"], certificate.center + 3e-3 * ROUND @ AXES.T, rtol=1e-14)
    # To the rounding of the inverse of the axes, on numbers of 0.2.
    assert_allclose(drawn(own)["bound of its image"], 3e-3 * ROUND, rtol=0, atol=1e-13)
    (cross,) = [line for line in section.lines if line.get_gid() == "orbit"]
    assert_allclose(np.ravel(cross.get_xydata()), certificate.center, rtol=0)
    assert section.get_xlabel() == r"$\theta$ (rad)" and own.get_aspect() == 1
    assert [ax.get_ylabel().split("\n")[0] for ax in rows] == [
        r"$\theta$",
        r"$\dot{\theta}$",
        r"$\phi$",
        r"$\dot{\phi}$",
    ]
    figure.canvas.draw()


@pytest.mark.medium
def test_what_is_not_bounded_is_not_drawn(certificate):
    lost = certificate.image * np.nan
    bounds = Tube(*([each * np.nan for each in vars(certificate.tubes[0]).values()]))
    values = {name: getattr(certificate, name) for name in vars(certificate)}
    other = hj.certify.Certificate(
        **values | {"status": "not proved", "reasons": ("no",), "ratio": np.inf, "image": lost, "tubes": (bounds,)}
    )
    assert set(drawn(certified_set(other))) == {"set"}
    figure = certificate_figure(other)
    assert "; not proved, $" in figure.get_suptitle()
    figure.canvas.draw()
    record = json.loads(json.dumps(certificate_record("simplest_walker", {}, other)))
    assert record["ratio"] is None and record["image"][0] == [None, None] and record["tubes"][0]["last"] is None


@pytest.mark.medium
def test_the_tube_is_that_about_the_orbit(arc):
    """The steps end before the event, by a length that the bounds do not state."""
    early = 4e-3
    found = relative_tube(tube_about(arc, early, UP), np.asarray(arc.t), np.asarray(arc.x))
    # Of the second order in the length, 2e-5 by accelerations of up to 0.5; the orbit is interpolated with an error of 1e-5.
    assert abs(found.elapsed[-1] - (arc.t[-1] - early)) < 1e-4
    for bounds, expected in zip(
        (found.low, found.high, found.start_low, found.start_high), (-2 * UP, 2 * UP, -UP, UP), strict=True
    ):
        assert_allclose(bounds[:-1], np.broadcast_to(expected, bounds[:-1].shape), rtol=0, atol=5e-5)
    # The last step has the window.
    assert np.all(found.high[-1] > 2 * UP - 5e-5) and np.all(found.low[-1] < -2 * UP + 5e-5)


@pytest.mark.medium
def test_the_drawn_tube_is_that_of_the_bounds(certificate, arc):
    figure = certified_tube(certificate)
    found = relative_tube(certificate.tubes[0], np.asarray(arc.t), np.asarray(arc.x))
    for k, ax in enumerate(figure.axes):
        (stairs,) = [patch for patch in ax.patches if patch.get_gid() == "during the steps"]
        values, edges, baseline = stairs.get_data()
        # The orbit is interpolated on another grid: the square of its spacing.
        assert_allclose(values, found.high[:, k], rtol=0, atol=2e-5)
        assert_allclose(baseline, found.low[:, k], rtol=0, atol=2e-5)
        assert_allclose(edges, found.elapsed, rtol=0, atol=2e-4)


@pytest.mark.medium
def test_the_set_in_the_plane_of_a_basin(certificate):
    """By the closed form of the heel strike; the picture of the model's basin shows the same states."""
    _, ax = pyplot().subplots()
    ax.fill([0, 1, 1], [0, 0, 1], label="orbit 1")
    ax.legend()
    assert certified_region(certificate, ax, ("theta", "theta_rate"), model.on_section) is ax
    points = drawn(ax)["proved: returns"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["orbit 1", "proved: returns"]
    theta, rate = certificate.vertices.T
    assert_allclose(points[::24], np.stack([-theta, np.cos(2 * theta) * rate], axis=1), rtol=1e-14)
    # Between the vertices the edges are curved: the middle of an edge goes where its states go.
    theta, rate = 0.5 * (certificate.vertices[0] + certificate.vertices[1])
    assert_allclose(points[12], [-theta, np.cos(2 * theta) * rate], rtol=1e-13)
    _, ax = pyplot().subplots()
    assert_allclose(drawn(certified_region(certificate, ax))["proved: returns"][::24], certificate.vertices, rtol=1e-14)


@pytest.fixture
def basin(certificate):
    """Three cells around the set, made by hand."""
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    own = 5e-3 * (square + np.array([[[-0.5, -0.5]], [[0.5, -0.5]], [[0.5, 0.5]]]))
    cells = certificate.center + own @ AXES.T
    return hj.certify.ProvedBasin(certificate, cells, np.array([0, 1, 3]), 1e-5, 9, 1.0)


@pytest.mark.medium
def test_the_cells_of_a_basin_in_its_plane(certificate, basin):
    """By the closed form of the heel strike; the limits of the basin's picture stay."""
    _, ax = pyplot().subplots()
    ax.fill([0, 1, 1], [0, 0, 1], label="orbit 1")
    ax.legend()
    ax.set(xlim=(0.199, 0.201), ylim=(-0.2, 0.3))
    certified_region(basin, ax, ("theta", "theta_rate"), model.on_section)
    (cells,) = ax.collections
    theta, rate = basin.cells[1].T
    drawn_cell = cells.get_paths()[1].vertices
    assert len(cells.get_paths()) == 3 and len(np.unique(cells.get_facecolors(), axis=0)) == 1
    assert_allclose(drawn_cell[:16:4], np.stack([-theta, np.cos(2 * theta) * rate], axis=1), rtol=1e-14)
    outline = drawn(ax)["set of the certificate"]
    theta, rate = certificate.vertices.T
    assert_allclose(outline[::24], np.stack([-theta, np.cos(2 * theta) * rate], axis=1), rtol=1e-14)
    assert ax.axis() == (0.199, 0.201, -0.2, 0.3)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["orbit 1", "proved: enters the set", "set of the certificate"]


@pytest.mark.medium
def test_the_cells_by_their_strides(certificate, basin):
    ax = basin.plot()
    (cells,) = ax.collections
    assert_allclose(cells.get_array(), [0, 1, 3])
    assert_allclose([path.vertices[0] for path in cells.get_paths()], basin.cells[:, 0], rtol=1e-14)
    ax.figure.canvas.draw()
    assert len(np.unique(cells.get_facecolors(), axis=0)) == 3 and ax.get_xlabel() == r"$\theta$ (rad)"
    low, high = ax.get_xlim()
    assert low < basin.cells[..., 0].min() and high > basin.cells[..., 0].max()
    with pytest.raises(ValueError, match="a certificate has no cells"):
        certified_region(certificate, strides=True)


@pytest.mark.medium
def test_another_plane_is_refused(certificate):
    _, ax = pyplot().subplots()
    with pytest.raises(ValueError, match="psi"):
        certified_region(certificate, ax, ("theta", "psi"))
    straight = lambda params, theta, rate: jnp.stack([theta, rate, 2 * theta, 0 * rate])
    with pytest.raises(ValueError, match=r"0\.01\d+ away from those of the section"):
        certified_region(certificate, ax, ("theta", "theta_rate"), straight)


@pytest.mark.medium
def test_disturbed_strides_end_where_another_integrator_has_them(orbit, certificate):
    """The same draws, by Runge and Kutta of order 4; the change of the disturbance is moved to a step's end there."""
    bound, count = 1e-4, 3
    wind = hj.certify.Disturbance(bound, "inf", ("theta_rate", "phi"))
    starts = certificate.vertices[:count]
    ends = disturbed_ends(orbit, SECTION, wind, starts, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    signs, parts = np.sign(rng.normal(size=(count, 2, 2, 1)))[..., 0], rng.uniform(0, 1, count)
    pushes = np.zeros((count, 2, 4))
    pushes[:, :, 1:3] = bound * signs
    late = np.arange(FLOWN + 1) * 0.99 / FLOWN >= parts[:, None]
    other = disturbed_return(starts, np.where(late[..., None], pushes[:, None, 1], pushes[:, None, 0]), orbit.period)
    still = disturbed_return(starts, np.zeros((count, FLOWN + 1, 4)), orbit.period)
    # A half step of a disturbance of which a whole stride, 3.9, moves the end by this.
    moved = np.max(np.abs(still - other))
    assert moved > 1e-4 and np.max(np.abs(ends - other)) < 5e-3 * moved


@pytest.mark.medium
def test_sampled_strides_start_in_the_set_and_are_drawn(certificate, orbit):
    ax = certified_set(certificate, n_samples=40)
    lines = {line.get_gid(): line.get_xydata() for line in ax.lines}
    starts, ends = lines["starts"], lines["ends of strides"]
    # Near the ends without disturbance: the gain of the disturbance is 44 (docs/orbitador.md: the phase's is 36).
    still = disturbed_return(starts, np.zeros((len(starts), FLOWN + 1, 4)), orbit.period)
    assert len(ends) == 40 and 1e-4 < np.max(np.abs(ends - still)) < 60e-4
    back = np.linalg.solve(AXES, (starts - certificate.center).T).T
    outward = np.stack([np.cos(ANGLES + np.pi / 16), np.sin(ANGLES + np.pi / 16)], axis=1)
    far = np.max(back @ outward.T, axis=1) / (4e-3 * np.cos(np.pi / 16))
    assert np.max(far) < 1 + 1e-9 and np.sum(far > 1 - 1e-9) == 20


@pytest.mark.medium
def test_a_proved_orbit_shows_its_discs_and_radii(wheel):
    bounds = lambda value, radius: hj.certify.Enclosed(np.asarray(value), np.asarray(radius))
    discs = EigenvalueEnclosure(np.array([0.5 + 0.5j, 1.2 + 0j]), np.array([0.1, 1e-3]), np.array([0, 1]))
    common = dict(names=("a",), near=np.array([1.0]), starts=(), ends=(), seconds=1.0, assumptions=(), orbit=wheel)
    proved = hj.certify.ProvedOrbit(
        reasons=(), coordinates=bounds([1.0], [1e-12]), unique_within=1e-8, period=bounds(3.0, 1e-11), multipliers=discs,
        **common,
    )  # fmt: skip
    figure = proved.plot()
    plane, bars = figure.axes
    circles = [patch for patch in plane.patches if patch.get_gid() == "disc"]
    assert [(each.center, each.radius) for each in circles] == [((0.5, 0.5), 0.1), ((1.2, 0.0), 1e-3)]
    assert circles[0].get_edgecolor() != circles[1].get_edgecolor()
    lines = {line.get_gid(): line.get_xdata() for line in bars.lines}
    assert_allclose(lines["radius"], [1e-12, 1e-11, 0.1, 1e-3])
    assert set(lines["unique within"]) == {1e-8}
    figure.canvas.draw()
    lost = hj.certify.ProvedOrbit(
        reasons=("The enclosure is not finite.",), coordinates=bounds([np.nan], [np.nan]), unique_within=np.nan,
        period=bounds(np.nan, np.nan), multipliers=None, **common,
    )  # fmt: skip
    with pytest.raises(ValueError, match="The enclosure is not finite"):
        lost.plot()
