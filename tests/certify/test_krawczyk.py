"""Proofs of periodic orbits: closed forms, high-precision digits, and orbits that are none."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import hyjax as hj
from hyjax._testing import krawczyk
from hyjax.models._common import parameter


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
    return hj.periodic_orbit(hj.ReturnMap(circle, sequence=("plane",)), jnp.array([-1.1, 0.0]), Rate())


def holds_eigenvalue(multipliers, value):
    """Whether a disc holds a number; `value` is rounded to 1e-16."""
    return np.any(np.abs(multipliers.centres - value) <= multipliers.radii + 1e-16)


@pytest.mark.medium
def test_the_circle_of_a_plane_field(round_orbit):
    proved = krawczyk(round_orbit, steps=48)
    assert proved.proved, proved.reasons
    assert proved.period.contains("6.28318530717958647692528676656")
    assert proved.period.radius < 1e-15
    assert np.all(proved.coordinates.contains([-1.0]))
    assert np.all(proved.state.contains([-1.0, 0.0]))
    assert np.all(proved.radius < 1e-20)
    assert holds_eigenvalue(proved.multipliers, np.exp(-0.4 * np.pi))
    assert len(proved.multipliers.centres) == 1
    assert "unique within" in str(proved) and "assumption" in str(proved)


@pytest.mark.medium
def test_a_proof_reads_its_functions_anew():
    """A function of the system may read a number that has changed: no proof is that of the number before."""
    rate = {"now": 0.1}
    field = lambda t, x, p: spiral(t, x, Rate(rate=rate["now"]))
    system = hj.HybridSystem(
        {"plane": hj.Mode(field, ("x", "y"))}, (hj.Transition("plane", "plane", guard=line, reset=onto_the_line),)
    )
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("plane",)), jnp.array([-1.1, 0.0]), None)
    for rate["now"] in (0.1, 0.2):
        proved = krawczyk(orbit, steps=48)
        assert proved.proved and holds_eigenvalue(proved.multipliers, np.exp(-4 * np.pi * rate["now"]))


@pytest.mark.medium
def test_a_circle_with_a_multiplier_1_is_not_proved(round_orbit):
    # Without attraction all circles are orbits, and this one's multiplier is 1.
    family = eqx.tree_at(lambda orbit: orbit.params.rate, round_orbit, jnp.array(0.0))
    refused = krawczyk(family, steps=48)
    assert refused.status == "not proved" and "multiplier 1" in refused.reasons[0]
    assert np.isnan(refused.unique_within) and np.all(np.isnan(refused.center)) and refused.multipliers is None
    with pytest.raises(ValueError, match="multiplier 1"):
        _ = refused.state


@pytest.mark.medium
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


@pytest.mark.medium
def test_a_clock_is_not_proved_and_says_what_is():
    """A sampled feedback: x' = a x + u, u = -k x at the ticks, so x is multiplied by exp(a T) - k (exp(a T) - 1) / a."""
    a, k, period = 0.3, 1.2, 0.5
    multiplier = math.exp(a * period) - k * math.expm1(a * period) / a

    def proof(clocked: bool):
        rate = lambda t, x, p: jnp.concatenate([(a * x[:1] + x[1:2]), jnp.zeros(1), jnp.ones(len(x) - 2)])
        sample = lambda t, x, p: jnp.concatenate([x[:1], -k * x[:1], 0 * x[2:]])
        names = ("x", "u") if clocked else ("x", "u", "since")
        tick = hj.Transition("m", "m", lambda t, x, p: period - x[2], sample)
        system = hj.HybridSystem({"m": hj.Mode(rate, names)}, (hj.every(period, sample) if clocked else tick,))
        orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("m",)), jnp.zeros(len(names)), None)
        return hj.certify.krawczyk(orbit, steps=8, orders=8)

    by_clock, by_coordinate = proof(clocked=True), proof(clocked=False)
    assert by_clock.status == "not proved"
    assert "Clock.__call__" in by_clock.reasons[0] and "coordinate with the rate 1" in by_clock.reasons[0]
    assert by_coordinate.proved
    found = by_coordinate.multipliers
    near = np.argmin(np.abs(found.centres - multiplier))
    assert abs(found.centres[near] - multiplier) <= found.radii[near] + 1e-15 and found.radii[near] < 1e-6
