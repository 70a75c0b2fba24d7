"""Branches: closed forms of folds, doublings and crossings; the walker's cascade."""

import functools as ft
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray
from counting import compiled
from numpy.testing import assert_allclose, assert_array_equal
from pages import cells
from readme import claimed
from systems import CLOCK

import hyjax as hj
from hyjax._testing import branches_dataset, choose, crossing_branches, follow_curve, Interval, joined_points as joined
from hyjax.models import simplest_walker

RESULTS = hj.RESULTS


@ft.cache
def mapping(f, dimension=1):
    """A hybrid system whose stride is a map: flow for a unit of time, then jump to `f(x, params)`. One object for each map, so
    that its programs are compiled once."""
    names = (*(f"x{k}" for k in range(dimension)), "clock")
    field = lambda t, x, p: jnp.zeros_like(x).at[-1].set(1)
    jump = lambda t, x, p: jnp.append(f(x[:-1], p), 0.0)
    way = hj.Transition("run", "run", lambda t, x, p: 1 - x[-1], jump)
    return hj.HybridSystem({"run": hj.Mode(field, names)}, (way,))


def logistic(x, p):
    return p["r"] * x * (1 - x)


def valley(x, p):
    """x = x + mu - x^2 has a fold at mu = 0."""
    return x + p["mu"] - x**2


def fork(x, p):
    """A pitchfork at mu = 0, of a branch that moves: x = mu + z, z -> (1 + mu) z - z^3."""
    z = x - p["mu"]
    return p["mu"] + (1 + p["mu"]) * z - z**3


def start(f, guess, params):
    step = hj.ReturnMap(mapping(f), sequence=("run",), integrator=CLOCK)
    return hj.periodic_orbit(step, jnp.append(jnp.asarray(guess), 0.0), params)


class Passed(eqx.Module):
    result: hj.RESULTS


def test_points_whose_strides_fail_are_no_points_of_a_curve():
    """The line x = p, whose strides take another transition from p = 0.5 on, where the equation holds as well."""

    def evaluate(v):
        result = choose(v[1] < 0.5, hj.RESULTS.successful, hj.RESULTS.unexpected_transition)
        return v[:1] - v[1:], jnp.array([[1.0, -1.0]]), Passed(result)

    up, no, method = jnp.array([0.0, 1.0]), jnp.array(False), hj.PseudoArclength()
    interval = Interval(jnp.array(-1.0), jnp.array(1.0), no, ~no, jnp.array(1.0), jnp.ones(1))
    judge = lambda v, aux: aux
    curve, *_ = follow_curve(evaluate, jnp.zeros(2), up, up, interval, method, 1e-12, judge)
    last = curve.v[curve.count - 1]
    assert curve.stuck and curve.last.result == hj.RESULTS.unexpected_transition
    # The last step tried is shorter than the shortest that the method takes.
    assert 0 < 0.5 - last[1] < 2 * method.min_step


def test_a_curve_that_has_ended_does_not_search_while_others_go_on():
    """Of two lines x = 1 + p in a batch one fails at its first step, beyond p = 0, where the residual does not fall and Newton's
    method shortens its steps until it is hopeless."""
    seen = []

    def evaluate(v, end):
        jax.debug.callback(lambda v: seen.append(float(v[1])), v)
        residual = jnp.where(v[1] <= end, v[0] - v[1] - 1, 0.1)
        return residual[None], jnp.array([[1.0, -1.0]]), Passed(hj.RESULTS.successful)

    up, no, method = jnp.array([0.0, 1.0]), jnp.array(False), hj.PseudoArclength(step=0.01, max_step=0.01)
    interval = Interval(jnp.array(-1.0), jnp.array(1.0), no, ~no, jnp.array(1.0), jnp.ones(1))

    def follow(end):
        evaluated, judge = lambda v: evaluate(v, end), lambda v, aux: aux
        return follow_curve(evaluated, jnp.array([1.0, 0.0]), up, up, interval, method, 1e-12, judge)[0]

    curves = jax.jit(jax.vmap(follow))(jnp.array([0.0, 2.0]))
    jax.effects_barrier()
    short, long = (jax.tree.map(lambda leaf, k=k: leaf[k], curves) for k in (0, 1))
    assert short.stuck and short.count == 1 and long.arrived and long.count > 70
    # A step of the line that goes on takes one evaluation or two, and the other line is evaluated with it.
    assert len(seen) < 2 * (method.max_iterations * short.attempts + 2 * long.count)


def test_points_of_parallel_curves_are_not_joined():
    """On a circle and on a cubic with 20 degrees between the tangents they are; on lines that are a step's half apart not."""
    unit = lambda v: v / np.linalg.norm(v)
    circle = lambda s: (np.array([np.sin(s), 1 - np.cos(s)]), np.array([np.cos(s), np.sin(s)]))
    cubic = lambda s: (np.array([s, s**3]), unit([1, 3 * s**2]))
    for curve, a, b in ((circle, 0.0, 0.35), (cubic, 0.0, 0.35), (cubic, -0.35, 0.0)):
        assert joined(*map(jnp.asarray, (*curve(a), *curve(b))))
    along = jnp.array([1.0, 0.0])
    for apart, same in ((0.5, False), (0.1, False), (0.01, True)):
        assert bool(joined(jnp.zeros(2), along, jnp.array([1.0, apart]), along)) == same


@pytest.fixture(scope="module")
def doubling():
    orbit = start(logistic, [0.6], {"r": jnp.array(2.6)})
    return hj.continuation(orbit, where=lambda p: p["r"], stop=3.3)


@pytest.mark.medium
def test_period_doubling_of_the_logistic_map(doubling):
    """x = 1 - 1/r, with the multiplier 2 - r: -1 at r = 3."""
    assert doubling.result == RESULTS.successful
    r = doubling.values
    assert_allclose(r[[0, -1]], [2.6, 3.3], rtol=1e-14)
    assert np.all(np.diff(r) > 0)
    assert_allclose(doubling.x[:, 0], 1 - 1 / r, rtol=1e-13)
    assert_allclose(doubling.multipliers[:, 0], 2 - r, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(doubling.stable, r < 3)
    # A print shows what is known: it locates nothing.
    assert "located by branch.special_points" in str(doubling) and doubling.located is None
    structure = jax.tree.structure(doubling)
    (point,) = doubling.special_points
    # What has been read is no part of the branch, whose program JAX would compile again otherwise.
    assert jax.tree.structure(doubling) == structure and doubling.located == (point,)
    assert point.kind == "period-doubling"
    # Newton's method on the doubling itself: to rounding, of which the two conditions together lose a digit.
    assert_allclose(point.value, 3, rtol=1e-14)
    assert_allclose(point.orbit.x, [2 / 3, 0], rtol=1e-13)
    assert_allclose(point.multiplier, -1, rtol=1e-13)
    assert point.residual < 1e-13
    assert re.search(r"^ *period-doubling +3 ", str(doubling), re.MULTILINE)


@pytest.mark.medium
def test_a_branch_with_other_numbers_and_steps_compiles_nothing(doubling, caplog):
    def again():
        orbit = start(logistic, [0.6], {"r": jnp.array(2.7)})
        method = hj.PseudoArclength(step=0.02, min_step=1e-6, max_step=0.1)
        (point,) = hj.continuation(orbit, where=lambda p: p["r"], stop=3.2, method=method).special_points
        assert_allclose(point.value, 3, rtol=1e-14)

    assert doubling.special_points and compiled(caplog, again) == []


@pytest.mark.medium
def test_natural_parameter_ends_at_the_fold():
    orbit = start(valley, [0.5], {"mu": jnp.array(0.25)})
    branch = hj.continuation(
        orbit,
        where=lambda p: p["mu"],
        stop=-0.5,
        method=hj.PseudoArclength(step=0.05, min_step=1e-4, natural=True),
        throw=False,
    )
    assert branch.result == RESULTS.orbit_not_converged
    # The branch ends within the smallest step, 1e-4 of the interval of 0.75, of where it turns.
    assert 0 <= branch.values[-1] < 1e-4
    assert_allclose(branch.x[:, 0], np.sqrt(branch.values), rtol=1e-11)


@pytest.mark.slow
def test_branch_point_and_the_branch_that_crosses():
    orbit = start(fork, [-0.5], {"mu": jnp.array(-0.5)})
    branch = hj.continuation(orbit, where=lambda p: p["mu"], stop=0.55, throw=False)
    assert_allclose(branch.x[:, 0], branch.values, rtol=0, atol=1e-12)
    points = [point for point in branch.special_points if point.kind == "branch-point"]
    assert len(points) == 1 and not [point for point in branch.special_points if point.kind == "fold"]
    assert_allclose(points[0].value, 0, atol=1e-13)
    other = hj.switch_branch(points[0], stop=0.4, amplitude=1e-2, throw=False)
    mu, z = other.values, other.x[:, 0] - other.values
    assert mu[-1] > 0.39 and np.min(np.abs(z[1:])) > 1e-3
    assert_allclose(z**2, mu, rtol=1e-9, atol=1e-12)
    # The amplitude fits to how near `stop` is.
    # Both halves lead upwards, and none down.
    both = hj.switch_branch(points[0], stop=(-0.4, 0.4), amplitude=1e-2, throw=False)
    assert_allclose(both.values[[0, -1]], 0.4, rtol=1e-14)
    assert_allclose((both.x[:, 0] - both.values) ** 2, both.values, rtol=1e-9, atol=1e-12)
    assert both.x[0, 0] * both.x[-1, 0] < 0 and both.result == RESULTS.successful
    assert hj.switch_branch(points[0], stop=-0.4, amplitude=1e-2, throw=False).result == RESULTS.stop_not_reached
    near = hj.switch_branch(points[0], stop=1e-6, throw=False)
    assert 0 <= near.values[0] < 1e-6 and near.values[-1] == 1e-6
    # The command line follows it by itself, from the two branches that meet it once.
    (crossing,) = crossing_branches([branch, branch], stop=(-0.5, 0.55), method=hj.PseudoArclength())
    assert_allclose((crossing.x[:, 0] - crossing.values) ** 2, crossing.values, rtol=1e-9, atol=1e-12)


def exchange(x, p):
    """A transcritical point at mu = 0, of x = 0 and x = mu."""
    return x + p["mu"] * x - x**2


@pytest.mark.medium
def test_the_half_that_leads_to_stop(unchecked):
    """The branch that crosses x = 0 is x = mu, positive above and negative below."""
    orbit = start(exchange, [0.0], {"mu": jnp.array(-0.5)})
    branch = hj.continuation(orbit, where=lambda p: p["mu"], stop=0.5)
    (point,) = branch.special_points
    assert point.kind == "branch-point"
    (crossing,) = branch.connected(stop=(-0.4, 0.4))
    assert_allclose(crossing.x[:, 0], crossing.values, rtol=1e-9)
    with pytest.raises(ValueError, match=r"^connected: the parameter's value .* within stop=\(0\.1, 0\.4\)"):
        branch.connected(stop=(0.1, 0.4))
    # The bounds are looked at also where there is no special point.
    short = hj.continuation(orbit, where=lambda p: p["mu"], stop=-0.4)
    assert short.connected(stop=(-0.5, 0.5)) == []
    for bounds, said in ((0.5, r"a pair \(low, high\)"), ((0.5, -0.5), ".* low < high"), ((-0.5, np.inf), "finite")):
        for each in (branch, short):
            with pytest.raises(ValueError, match=rf"^connected: stop={re.escape(repr(bounds))} must be {said}"):
                each.connected(stop=bounds)
    for stop in (0.4, -0.4):
        half = hj.switch_branch(point, stop=stop)
        assert half.result == RESULTS.successful and half.values[-1] == stop
        assert np.all(np.sign(half.values) == np.sign(stop))
        assert_allclose(half.x[:, 0], half.values, rtol=1e-9)
    whole = hj.switch_branch(point, stop=(-0.4, 0.3))
    assert whole.result == RESULTS.successful
    assert_allclose(np.sort(whole.values[[0, -1]]), [-0.4, 0.3], rtol=1e-14)
    assert np.all(np.diff(whole.values) > 0) or np.all(np.diff(whole.values) < 0)
    assert_allclose(whole.x[:, 0], whole.values, rtol=1e-9)
    assert_array_equal(whole.stable, whole.values > 0)


@pytest.mark.medium
def test_a_branch_that_does_not_lead_to_stop():
    """x = mu^(1/2) turns at mu = 0, but for a rounding of the map, and leaves the interval on the other side, three times as far
    from the start."""
    orbit = start(lambda x, p: valley(x, p) + (3 * 0.1 - 0.3), [0.5], {"mu": jnp.array(0.25)})
    branch = hj.continuation(orbit, where=lambda p: p["mu"], stop=-0.1, throw=False)
    assert branch.result == RESULTS.stop_not_reached
    assert_allclose(branch.values[-1], 0.25 + 3 * 0.35, rtol=1e-14)
    assert_allclose(branch.x[-1, 0], -np.sqrt(branch.values[-1]), rtol=1e-12)
    # Within bounds it is whole.
    whole = hj.continuation(orbit, where=lambda p: p["mu"], stop=(-0.1, 0.5), throw=False)
    (fold,) = whole.special_points
    assert whole.result == RESULTS.successful
    # The fold is at a rounding, which no text shows.
    assert abs(float(fold.value)) < 1e-15
    assert fold.normal_form.criticality == "two orbits for mu > 0, none beyond"
    assert "fold            0   0      0" in str(whole)
    moved = lambda by: str(eqx.tree_at(lambda point: point.v, fold, fold.v + by))
    assert all(moved(by).startswith("fold at 0: x = (+0, +0)") for by in (0.0, 1e-15, -1e-15))
    assert not moved(1e-9).startswith("fold at 0: x = (+0, +0)")


@pytest.mark.medium
def test_a_small_coordinate_of_a_special_point_is_shown():
    """Charges of 1e-15 C beside a length at whose zero is a fold: x -> x + mu - x^2, q -> (q + 1e-15 (1 + mu)) / 2."""
    law = lambda x, p: jnp.stack([x[0] + p - x[0] ** 2, (x[1] + 1e-15 * (1 + p)) / 2])
    step = hj.ReturnMap(mapping(law, 2), sequence=("run",), integrator=CLOCK)
    orbit = hj.periodic_orbit(step, jnp.array([0.5, 1e-15, 0.0]), jnp.array(0.25))
    (fold,) = hj.continuation(orbit, where=lambda p: p, stop=(-0.1, 0.5), throw=False).special_points
    assert str(fold).startswith("fold at 0: x = (+0, +1e-15, +0)")


@pytest.mark.medium
def test_a_flag_stays_what_it_is_along_a_branch():
    """A held flag that each jump sets to 0 is 0 in every step of a doubled branch, not a rounding, which another law would take
    for a flag that is set. With b = 3 a / 13 the fixed point has r (1 - a) = 127 / 130, and its doubling 127 / 65 + 67 / 70."""
    law = lambda a, b, r: (r * a * (1 - a) + 0.1 * b, 0.3 * (a - b))
    field = lambda t, x, r: jnp.zeros(3, x.dtype).at[2].set(1)

    def jump(t, x, r):
        a, b = law(x[0], x[1], r)
        return jnp.stack([jnp.where(x[3] > 0, 1.0, a), b, 0 * x[2], 0 * x[3]])

    way = hj.Transition("run", "run", lambda t, x, r: 1 - x[2], jump)
    system = hj.HybridSystem({"run": hj.Mode(field, ("a", "b", "clock"), held=("flag",))}, (way,))
    step = hj.ReturnMap(system, sequence=("run",), integrator=CLOCK)
    orbit = hj.periodic_orbit(step, jnp.array([0.6, 0.1, 0.0, 0.0]), jnp.array(2.8))
    (point,) = hj.continuation(orbit, where=lambda r: r, stop=3.0).special_points
    assert_allclose(point.value, 127 / 65 + 67 / 70, rtol=1e-13)
    doubled = hj.switch_branch(point, stop=3.2)
    nodes = np.asarray(doubled.orbits.nodes)
    assert doubled.result == RESULTS.successful and np.all(nodes[..., 3] == 0)
    a, b = nodes[-1, :, 0], nodes[-1, :, 1]
    assert_allclose(np.stack(law(a, b, 3.2)), np.stack([a[::-1], b[::-1]]), atol=1e-12)
    assert abs(a[0] - a[1]) > 0.1


@pytest.mark.medium
def test_branches_of_a_batch(doubling):
    """Several starts in one program; each as alone."""
    mapping(logistic)
    orbits = [start(logistic, [0.6], {"r": jnp.array(r)}) for r in (2.5, 2.6, 2.7)]
    branches = eqx.filter_jit(eqx.filter_vmap(lambda orbit: hj.continuation(orbit, where=lambda p: p["r"], stop=3.3)))
    batch = branches(jax.tree.map(lambda *each: jnp.stack(each), *orbits))
    alone = batch[1]
    assert_allclose(alone.values, doubling.values, rtol=1e-12)
    assert_allclose(batch[2].special_points[0].value, 3, rtol=1e-13)
    with pytest.raises(IndexError):
        batch[3]
    with pytest.raises(TypeError, match="batch of branches"):
        _ = batch.values


# The simplest walker


@pytest.fixture(scope="module")
def walk():
    params = simplest_walker.Params(0.0145)
    orbit = hj.periodic_orbit(simplest_walker.step, simplest_walker.guess(params), params)
    return hj.continuation(orbit, where=lambda p: p.slope, stop=0.0155)


@pytest.mark.slow
def test_first_doubling_of_the_walker(walk):
    """At the point the orbit's own Jacobian, by other code, has the multiplier -1; and so it has on either side by sign."""
    (point,) = walk.special_points
    assert point.kind == "period-doubling"
    gait = hj.periodic_orbit(simplest_walker.step, point.orbit.x, simplest_walker.Params(point.value))
    # A multiplier's error of 1e-13 over its rate in the slope, of the order of -200.
    assert_allclose(min(gait.multipliers.real), -1, rtol=0, atol=1e-11)
    assert_allclose(point.orbit.x, gait.x, rtol=0, atol=1e-12)
    assert point.residual < 1e-12
    # Variational equations by Taylor series in 80-bit arithmetic, and a root of the multiplier's distance from -1.
    assert_allclose(point.value, 0.01508843794111946, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_cascade_of_the_walker(walk):
    """Each orbit of twice as many strides, to its own doubling, 16 to 32; Feigenbaum's ratios. The expected values are roots of
    det(D + I), with heyoka's variational equations (Taylor series) and Newton's method on all strides in NumPy; they scatter by
    1e-15."""
    branches = [walk, *walk.special_points[0].cascade(doublings=4, stop=0.0186)]
    points = [next(each for each in branch.special_points if each.kind == "period-doubling") for branch in branches]
    assert [point.orbit.strides for point in points] == [1, 2, 4, 8, 16]
    assert max(float(point.residual) for point in points) < 1e-13
    values = np.array([float(point.value) for point in points])
    expected = [0.01508843794111946, 0.0176693748624628, 0.0181601195635692, 0.0182648118504814, 0.0182872718199725]
    # Each doubling moves as much as the map does, in which a stride has an error of 1e-15.
    assert_allclose(values, expected, rtol=0, atol=claimed("… period doublings, from one stride to 16 → 32"))
    gaps = np.diff(values)
    assert_allclose(gaps[:-1] / gaps[1:], [5.26, 4.69, 4.66], atol=0.01)
    # Towards a distant end: the amplitude of 1e-2, or a twentieth of the way, would lead to the next doubling or beyond.
    distant = hj.switch_branch(points[2], stop=0.02)
    assert distant.result == RESULTS.successful and distant.unfolding.problem.strides == 8
    assert 0.05 * (0.02 - values[2]) > 0.5 * gaps[2] and 0 < distant.values[0] - values[2] < 0.2 * gaps[2]


@pytest.mark.slow
def test_tables(walk, tmp_path):
    columns = walk.columns()
    assert list(columns) == [
        "parameter", *simplest_walker.coordinates, "period", "spectral_radius", "stable", "residual"
    ]  # fmt: skip
    # As a batch of orbits, and as one: the states and periods of the columns, to rounding.
    assert_allclose(walk.orbits.period, columns["period"], rtol=1e-14)
    assert sum(1 for _ in walk.orbits) == len(walk)
    assert_allclose(walk.orbits.x[:, 1], columns["theta_rate"], rtol=1e-14)
    assert_allclose(walk.orbits.spectral_radius, columns["spectral_radius"], rtol=1e-12)
    assert_allclose(walk.orbit(3).x, walk.x[3], rtol=1e-14)
    for name, column in walk.to_pandas().items():
        np.testing.assert_array_equal(column, columns[name])
    first, *special = cells(walk._repr_html_())[:3], cells(walk.special_points[0]._repr_html_())
    assert [row[2] for row in first] == ["rad", "sqrt(l/g)".replace("sqrt", "√"), ""]
    ((head, row),) = special
    assert head[:2] == ["special point", "slope rad"] and len(head) == len(row) and row[0] == "period-doubling"
    assert f"{row[1]}" in str(walk.special_points[0]) and row in cells(walk._repr_html_())
    walk.to_xarray().to_netcdf(tmp_path / "branch.nc", engine="scipy")
    with xarray.open_dataset(tmp_path / "branch.nc", engine="scipy") as data:
        assert data.attrs["result"] == "successful" and data["special_kind"].values == ["period-doubling"]
        assert_allclose(data["special_slope"], [walk.special_points[0].value], rtol=0)
        for k, name in enumerate(simplest_walker.coordinates):
            np.testing.assert_array_equal(data["x"][:, k], columns[name])
        for name in ("period", "stable", "residual"):
            np.testing.assert_array_equal(data[name], columns[name])
        np.testing.assert_array_equal(data["slope"], columns["parameter"])
        assert data["slope"].attrs["units"] == "rad" and data["period"].attrs["units"] == "sqrt(l/g)"
        assert data["x"].attrs["units"] == data["special_x"].attrs["units"] == "rad, rad sqrt(g/l), rad, rad sqrt(g/l)"
        np.testing.assert_array_equal(data["multipliers_real"] + 1j * data["multipliers_imag"], walk.multipliers)


@pytest.mark.medium
def test_branches_in_one_dataset(doubling):
    data = branches_dataset([doubling, doubling])
    np.testing.assert_array_equal(data["r"], np.tile(doubling.values, 2))
    np.testing.assert_array_equal(data["branch"], np.repeat([1, 2], len(doubling)))
    np.testing.assert_array_equal(data["special_branch"], [1, 2])
    assert list(data["result"].values) == ["successful"] * 2 and list(data["strides"].values) == [1, 1]
    np.testing.assert_array_equal(data["x"], np.tile(doubling.x, (2, 1)))


def test_diagram(doubling):
    """Solid up to the doubling, dashed from there, without a gap; the doubling marked where it is; the period, which is 1."""
    ax = doubling.plot("x0")
    solid, dashed = (np.asarray(line.get_xydata()) for line in ax.lines if len(line.get_xdata()) > 1)
    for curve in (solid, dashed):
        assert_allclose(curve[:, 1], 1 - 1 / curve[:, 0], rtol=1e-13)
    # The doubling itself is where one line ends and the other begins.
    np.testing.assert_array_equal(np.concatenate([solid[:-1], dashed[1:]])[:, 0], doubling.values)
    assert_allclose(solid[-1], [3, 2 / 3], rtol=1e-12)
    np.testing.assert_array_equal(solid[-1], dashed[0])
    assert [line.get_linestyle() for line in ax.lines[:2]] == ["-", "--"]
    (mark,) = [line for line in ax.lines if line.get_gid() == "period-doubling"]
    assert_allclose(mark.get_xydata(), [[3, 2 / 3]], rtol=1e-12)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["stable", "unstable", "period doubling"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("$r$", "$x_{0}$")
    periods = np.concatenate([line.get_ydata() for line in doubling.plot("period").lines])
    assert_allclose(periods, 1, rtol=1e-14)
    with pytest.raises(ValueError, match="no coordinate 'psi'"):
        doubling.plot("psi")
    plt.close("all")


def test_diagram_of_functions_of_the_orbit(doubling):
    """Functions on both axes, at points and at special points: the fixed point 1 - 1/r and its square."""
    state = lambda orbit, params: orbit.x[0]
    square = lambda orbit, params: (1 - 1 / params["r"]) ** 2
    heights = doubling.heights(state)
    assert heights.shape == (len(doubling), 1)
    assert_array_equal(heights, doubling.heights("x0")[:, :1])
    ax = doubling.plot(state, against=square)
    marks = [line.get_xydata() for line in ax.lines if line.get_gid() == "period-doubling"]
    assert len(marks) == 1
    for line in (*marks, *(each.get_xydata() for each in ax.lines if len(each.get_xdata()) > 1)):
        # The fixed point to the accuracy of Newton's method.
        assert_allclose(line[:, 0], line[:, 1] ** 2, rtol=1e-12)
    line = doubling.plot("period", against="x0").lines[0]
    # The clock's flow to its guard, to rounding.
    assert_allclose(line.get_ydata(), 1, rtol=1e-14)
    with pytest.raises(ValueError, match="psi"):
        doubling.plot("x0", against="psi")
    plt.close("all")


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(stop=2.6), "continuation: stop=2.6 is the parameter's value at the start already"),
        (dict(stop=(3.5, 2.0)), "low < high"),
        (dict(stop=float("nan")), "must be finite"),
        (dict(where=lambda p: (p["r"], p["r"])), r"where picks r more than once\. Pick each leaf"),
        (dict(stop=(3.0, 3.5)), "does not lie within"),
        (dict(where=lambda p: 2 * 3), "must pick scalar leaves"),
    ],
)
def test_misuse(change, message):
    orbit = start(logistic, [0.6], {"r": jnp.array(2.6)})
    with pytest.raises(ValueError, match=message):
        hj.continuation(orbit, **dict(where=lambda p: p["r"], stop=3.0) | change)


def test_misuse_of_methods():
    with pytest.raises(ValueError, match="in that order"):
        hj.PseudoArclength(step=0.1, max_step=0.01)
    with pytest.raises(ValueError, match="max_points=0"):
        hj.PseudoArclength(max_points=0)
