"""Phase and isostable response through modes of different dimension and of a walker: the derivative of the period, simulation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED
from test_phase_response import wave

import hyjax as hj
from hyjax._testing import pyplot


# A mode of two coordinates and one of three, with a parameter in the flow, one in a guard and one in a reset.
def heat(t, x, p):
    a, b = x
    return jnp.stack([b, p["drive"] - a - 0.5 * b + 0.1 * a * b])


def cool(t, x, p):
    a, b, c = x
    return jnp.stack([b, -1 - a - 0.3 * b + 0.5 * c + 0.1 * p["drive"] * a**2, 0.2 * a * b - c])


THERMOSTAT = hj.HybridSystem(
    {"heat": hj.Mode(heat, ("a", "b")), "cool": hj.Mode(cool, ("a", "b", "c"))},
    (
        hj.Transition(
            "heat",
            "cool",
            lambda t, x, p: p["level"] - x[0] - 0.05 * x[1] ** 2,
            lambda t, x, p: jnp.stack([x[0], p["loss"] * x[1], x[0] * x[1]]),
        ),
        hj.Transition(
            "cool",
            "heat",
            lambda t, x, p: x[0] + 0.1 * x[2] - 0.2 * p["level"],
            lambda t, x, p: jnp.stack([x[0] + 0.1 * x[2], p["loss"] * x[1] + 0.3 * x[2]]),
        ),
    ),
)
START = {"drive": jnp.array(2.0), "level": jnp.array(1.2), "loss": jnp.array(0.5)}


def thermostat(params):
    return hj.periodic_orbit(
        hj.ReturnMap(THERMOSTAT, sequence=("heat", "cool"), integrator=ROLLED), jnp.array([0.2, -0.3]), params
    )


@pytest.fixture(scope="module")
def swinging():
    """The thermostat's orbit, the derivative of its period, and its phase response."""

    def period(params):
        orbit = thermostat(params)
        return orbit.period, orbit

    slope, orbit = jax.jit(jax.grad(period, has_aux=True))(START)
    return slope, hj.phase.phase_response(orbit, n_samples=41, throw=False)


@pytest.mark.medium
def test_modes_of_different_dimension(swinging):
    """The derivative of the period is minus the advance of the phase: along the arcs by D_p f, and at the events by
    D_p R + (f+ - D_x R f-) D_p g / (D_x g f-), after the jump. Both sides of each event are samples: there Z f = 1 too."""
    slope, response = swinging
    orbit, params, arcs = response.orbit, response.orbit.params, response.arcs
    assert response.residual < 1e-13 and orbit.stable
    advance = jax.tree.map(jnp.zeros_like, params)
    for k, arc in enumerate(arcs):
        field = THERMOSTAT.modes[arc.mode].vector_field
        by = jax.vmap(lambda x, field=field: jax.jacfwd(field, argnums=2)(0.0, x, params))(arc.x)
        along = jax.tree.map(lambda by, arc=arc: jnp.sum(arc.weights * jnp.sum(arc.z * by, axis=1)), by)
        way, after, x = THERMOSTAT.transitions[k], arcs[1 - k], arc.x[-1]
        reset_x, reset_p = jax.jacfwd(way.reset, argnums=(1, 2))(0.0, x, params)
        guard_x, guard_p = jax.grad(way.guard, argnums=(1, 2))(0.0, x, params)
        f, f_after = field(0.0, x, params), THERMOSTAT.modes[after.mode].vector_field(0.0, after.x[0], params)
        late = (f_after - reset_x @ f) / (guard_x @ f)
        at_event = jax.tree.map(lambda r, g: after.z[0] @ (r + late * g), reset_p, guard_p)  # noqa: B023
        advance = jax.tree.map(lambda *each: sum(each), advance, along, at_event)
        # Across the event, by the saltation matrix, up to the state's rounding.
        xi = hj.saltation_matrix(THERMOSTAT, k, 0.0, x, params)
        assert_allclose(arc.z[-1], xi.T @ after.z[0], rtol=1e-12)
    for name, value in slope.items():
        # 41 points integrate to rounding; the slopes are of order 1.
        assert_allclose(-advance[name], value, rtol=0, atol=1e-11, err_msg=name)


@pytest.mark.slow
def test_walker(walker):
    """The long gait at slope 0.009: a complex pair of multipliers, whose response is a left eigenvector of the monodromy
    matrix."""
    orbit = walker["long_0.009"]
    isostable = hj.phase.isostable_response(orbit, n_samples=31)
    (arc,) = isostable.arcs
    matrix, value, direction = (
        np.asarray(orbit.monodromy()),
        complex(isostable.multiplier),
        np.asarray(isostable.direction),
    )
    assert abs(value.imag) > 0.1
    # The gait's multipliers are accurate to 2e-13, and the responses are of order 10.
    assert isostable.residual < 1e-11
    i = np.asarray(arc.z[0])
    assert_allclose(i @ matrix, value * i, rtol=0, atol=1e-10)
    assert_allclose(matrix @ direction, value * direction, rtol=0, atol=1e-12)
    assert_allclose(i @ direction, 1, rtol=1e-12)
    # Along the arc: the adjoint equations, with the derivative of the polynomial through the Chebyshev points.
    start, end, kappa = arc.t[0], arc.t[-1], complex(isostable.exponent)
    places, z = np.asarray(2 * (arc.t - start) / (end - start) - 1), np.asarray(arc.z)
    field = orbit.system.modes["swing"].vector_field
    a = jax.vmap(lambda x: jax.jacfwd(field, argnums=1)(0.0, x, orbit.params))(arc.x)
    for part in (np.real, np.imag):
        series = np.polynomial.chebyshev.chebfit(places, part(z), 30)
        slopes = np.polynomial.chebyshev.chebder(series)
        rate = np.polynomial.chebyshev.chebval(places, slopes).T * 2 / (end - start)
        assert_allclose(rate, part(kappa * z - np.einsum("nij,ni->nj", a, z)), rtol=0, atol=1e-8)


@pytest.mark.medium
def test_figures(swinging):
    """The curves are the samples, and a mode that is not named is not pushed."""
    _, response = swinging
    fig = response.plot()
    lines = [[line for line in ax.lines if line.get_gid() != "jump"] for ax in fig.axes]
    assert [len(each) for each in lines] == [2, 2, 1]
    assert_allclose(lines[2][0].get_ydata(), response.arcs[1].z[:, 2])
    assert_allclose(
        [line.get_xdata()[0] for line in fig.axes[0].lines if line.get_gid() == "jump"], response.arcs[1].t[0]
    )
    pushed, (arc, _) = hj.phase.entrainment(response, {"heat": wave}), response.arcs
    cosine = np.cos(2 * np.pi * arc.t / response.period)
    assert_allclose(pushed.interaction[0], arc.weights * cosine @ np.sum(arc.z, axis=1) / response.period, rtol=1e-13)
    left, right = pushed.plot(0.2).axes
    assert_allclose(left.lines[0].get_ydata()[:-1], pushed.interaction)
    assert_allclose([line.get_xdata()[-1] for line in right.lines], pushed.tongue(0.2))
    lost = eqx.tree_at(lambda r: r.result, response, hj.RESULTS.orbit_not_converged)
    with pytest.raises(ValueError, match="there is no response to draw"):
        lost.plot()
    pyplot().close("all")
