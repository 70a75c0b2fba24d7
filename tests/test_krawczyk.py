"""Proofs of periodic orbits: closed forms, high-precision digits, and orbits that are none."""

import json
import pathlib

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import hyjax as hj
from hyjax.certify import krawczyk
from hyjax.models import compass_gait, linear_impact_oscillator, piecewise, simplest_walker as walker, slip
from hyjax.models._parameter import parameter


class Rate(eqx.Module):
    rate: Float[Array, ""] = parameter(0.1, "1", "rate of attraction of the circle")
    size: Float[Array, ""] = parameter(1.0, "1", "radius of the circle")


def spiral(t, x, params):
    x, y = x
    growth = params.rate * (params.size**2 - x**2 - y**2)
    return jnp.stack([growth * x - y, growth * y + x])


def line(t, x, params):
    return x[1]


def onto_the_line(t, x, params):
    return jnp.stack([x[0], jnp.zeros_like(x[1])])


# The unit circle, of period 2 pi; r' = rate r (1 - r^2) has the derivative -2 rate at r = 1.
circle = hj.HybridSystem(
    modes={"plane": hj.Mode(spiral, ("x", "y"))},
    transitions=(hj.Transition("plane", "plane", guard=line, reset=onto_the_line),),
)


@pytest.fixture(scope="module")
def round_orbit():
    return hj.periodic_orbit(circle, jnp.array([-1.1, 0.0]), Rate(), sequence=("plane",))


def of_model(model, guess=None):
    params = model.Params()
    guess = model.guess(params) if guess is None else guess
    return hj.periodic_orbit(model.system, guess, params, sequence=model.sequence)


def holds_eigenvalue(multipliers, value):
    """Whether a disc holds a number; `value` is rounded to 1e-16."""
    return np.any(np.abs(multipliers.centres - value) <= multipliers.radii + 1e-16)


def test_the_circle_of_a_plane_field(round_orbit):
    proved = krawczyk(round_orbit, steps=48)
    assert proved.proved, proved.reasons
    assert proved.period.contains(2 * np.pi)
    assert proved.period.radius < 1e-11
    assert np.all(proved.coordinates.contains([-1.0]))
    assert np.all(proved.state.contains([-1.0, 0.0]))
    assert np.all(proved.radius < 1e-12)
    assert holds_eigenvalue(proved.multipliers, np.exp(-0.4 * np.pi))
    assert len(proved.multipliers.centres) == 1
    assert "unique within" in str(proved) and "assumption" in str(proved)


@pytest.mark.slow
def test_a_circle_with_a_multiplier_1_is_not_proved(round_orbit):
    # Without attraction all circles are orbits, and this one's multiplier is 1.
    family = eqx.tree_at(lambda orbit: orbit.params.rate, round_orbit, jnp.array(0.0))
    refused = krawczyk(family, steps=48)
    assert refused.status == "not proved" and "multiplier 1" in refused.reasons[0]
    assert np.isnan(refused.unique_within) and np.all(np.isnan(refused.center)) and refused.multipliers is None
    with pytest.raises(ValueError, match="multiplier 1"):
        _ = refused.state


@pytest.mark.slow
def test_an_orbit_of_another_system_is_not_proved(round_orbit):
    larger = eqx.tree_at(lambda orbit: orbit.params.size, round_orbit, jnp.array(1.00001))
    refused = krawczyk(larger, steps=48)
    # The orbit of the changed system is 1e-5 away, outside of the box of 1e-8.
    assert not refused.proved and "no periodic orbit" in refused.reasons[0]


def test_bad_arguments(round_orbit):
    with pytest.raises(ValueError, match=r"radius=-1"):
        krawczyk(round_orbit, radius=-1.0)
    with pytest.raises(ValueError, match="steps=0"):
        krawczyk(round_orbit, steps=0)


# Independent reference: Taylor series in 75 and 90 digits, which agree in 40. The state after the strike, the period, and the
# multipliers that are not zero.
LONG = (
    (0.2003109005442470894, -0.1998324730049523545, 0.4006218010884941787),
    3.882463752851374138,
    (-0.1900998410658881461 + 0.5575987766820682688j, -0.1900998410658881461 - 0.5575987766820682688j),
)
SHORT = (
    (0.1939373698101818085, -0.2038669274420069268, 0.3878747396203636171),
    3.096105868078163700,
    (4.003864358929707179, 0.4595895897976715876),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "reference",
    [pytest.param(LONG, id="stable"), pytest.param(SHORT, id="saddle", marks=pytest.mark.exhaustive)],
)
def test_the_walkers_gaits(reference):
    state, period, multipliers = reference
    orbit = of_model(walker, walker.after_strike(walker.Params(), *jnp.array(state[:2])))
    proved = krawczyk(orbit)
    assert proved.proved, proved.reasons
    assert proved.names == ("theta", "theta_rate")
    assert np.all(proved.state.contains(orbit.x)[:3]) and np.all(proved.state.contains([*state, orbit.x[3]]))
    # The rounding of 64 steps along a stride that stretches by ten is some 1e-13.
    assert np.all(proved.state.radius < 1e-11) and proved.period.radius < 1e-10
    assert proved.period.contains(period)
    assert len(proved.multipliers.centres) == 2 and np.all(proved.multipliers.radii < 1e-7)
    assert all(holds_eigenvalue(proved.multipliers, value) for value in multipliers)
    assert proved.unique_within == 1e-8


@pytest.mark.exhaustive
def test_a_walker_that_is_no_orbit():
    orbit = of_model(walker)
    moved = eqx.tree_at(
        lambda o: (o.nodes, o.arc_ends), orbit, (orbit.nodes + 1e-6, tuple(end + 1e-6 for end in orbit.arc_ends))
    )
    assert "no periodic orbit" in krawczyk(moved).reasons[0]
    steeper = eqx.tree_at(lambda o: o.params.slope, orbit, jnp.array(0.00901))
    assert "no periodic orbit" in krawczyk(steeper).reasons[0]


def reference_of(name, case, index):
    """A stable orbit of `model_reference.json`: Taylor series of 40 digits."""
    path = pathlib.Path(__file__).parent / "model_reference.json"
    return json.loads(path.read_text())[name][case]["orbits"][index]


@pytest.mark.exhaustive
def test_the_springy_runner():
    reference = reference_of("slip", "flat and high", 1)
    params = eqx.tree_at(
        lambda p: (p.stiffness, p.attack_angle, p.energy), slip.Params(), tuple(map(jnp.array, (30.0, 1.2, 2.25)))
    )
    orbit = hj.periodic_orbit(slip.system, jnp.array([0.975, 0.0]), params, sequence=slip.sequence)
    proved = krawczyk(orbit)
    assert proved.proved, proved.reasons
    assert proved.period.contains(float(reference["period"])) and proved.period.radius < 1e-8
    assert proved.coordinates.contains([float(reference["x0"][0])])[0]
    assert holds_eigenvalue(proved.multipliers, float(reference["multiplier"]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", [linear_impact_oscillator, piecewise, compass_gait], ids=lambda m: m.__name__)
def test_orbits_of_models(model):
    orbit = of_model(model)
    proved = krawczyk(orbit)
    assert proved.proved, proved.reasons
    # The orbit is known to 1e-13 or so; the enclosure holds it, and is not much wider.
    assert np.all(np.abs(proved.state.midpoint - np.asarray(orbit.x)) < proved.state.radius + 1e-12)
    assert np.all(proved.state.radius < 1e-9) and proved.period.radius < 1e-8
    assert abs(proved.period.midpoint - float(orbit.period)) < proved.period.radius + 1e-12
    known = np.asarray(orbit.multipliers)
    for centre, radius in zip(proved.multipliers.centres, proved.multipliers.radii, strict=True):
        assert np.min(np.abs(known - centre)) < radius + 1e-11
