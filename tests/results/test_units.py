"""Units that a system and its parameters name: in datasets, tables and pictures."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj
from hyjax import models
from hyjax._testing import cf_attributes, long_name, units_of


class Params(eqx.Module):
    """A wheel's parameters, with units; one without a default, one of another kind of declaration."""

    slope: jax.Array = hj.parameter(0.2, "rad", "slope of the ground")
    ratio: jax.Array = hj.parameter(unit="1")
    spare: float = 0.0

    def __init__(self, ratio, slope=0.2):
        self.ratio, self.slope, self.spare = ratio, slope, 0.0


def roll(t, x, p):
    return jnp.stack([x[1], p.ratio * jnp.sin(x[0] + p.slope)])


WHEEL = hj.HybridSystem(
    {"stance": hj.Mode(roll, ("angle", "angle_rate"), units=("rad", "rad/T"))},
    (
        hj.Transition(
            "stance", "stance", lambda t, x, p: jnp.pi / 6 - x[0], lambda t, x, p: jnp.stack([-x[0], x[1] / 1.5])
        ),
    ),
    time_unit="T",
)


@pytest.fixture(scope="module")
def orbit():
    return hj.periodic_orbit(hj.ReturnMap(WHEEL, sequence=("stance",)), jnp.array([-0.5, 0.8]), Params(2 / 3))


@pytest.mark.medium
def test_parameters(orbit):
    """Numbers become arrays of floating-point numbers, and keep their units through a transformation."""
    params = Params(1, slope=np.float32(0.5))
    assert params.ratio.dtype == params.slope.dtype == jnp.float64 and params.ratio == 1
    found = orbit.to_xarray()
    assert found["slope"].attrs["units"] == "rad" and found["spare"].attrs == {"long_name": "spare"}
    with pytest.raises((TypeError, ValueError)):
        hj.models.rimless_wheel.Params(slope="steep")

    class Required(eqx.Module):
        slope: jax.Array = hj.parameter(unit="rad")

    assert Required(1).slope == 1.0
    with pytest.raises(TypeError, match="slope"):
        Required()  # pyright: ignore


@pytest.mark.medium
def test_datasets_name_the_units_of_the_system(orbit):
    found = orbit.to_xarray()
    assert found["x"].attrs["units"] == "rad, rad/T" and found["period"].attrs["units"] == "T"
    walk = hj.simulate(WHEEL, orbit.x, orbit.params, mode="stance", t1=1.0).to_xarray(n_samples=3)
    assert walk["angle_rate"].attrs["units"] == "rad/T" and walk["time"].attrs["units"] == "T"
    swept = hj.sweep(orbit, where=lambda p: p.slope, values=np.array([0.2, 0.21]), progress=False)
    assert swept["x"].attrs["units"] == "rad, rad/T" and swept["period"].attrs["units"] == "T"
    assert swept["slope"].attrs["units"] == "rad"
    named = lambda found: {name: each.attrs["long_name"] for name, each in found.variables.items()}
    assert (
        named(found)["multipliers_real"] == "Floquet multipliers, real part" and named(swept)["x"] == named(found)["x"]
    )
    assert found["multipliers_real"].attrs["units"] == swept["iterations"].attrs["units"] == "1"
    assert named(walk)["angle_rate_before"] == "rate of angle before the jump" and named(walk)["time"] == "time"


def test_long_names():
    """Parameters by their meaning, also under a prefix; coordinates in words, also those that are called as another variable."""
    meanings = {"slope": "slope of the ground", "x": "x"}
    ground, special = "slope of the ground", "slope of the ground at the special point"
    given = {"slope": ground, "param_slope": ground, "special_slope": special, "x": "x", "x_rate": "rate of x"}
    given |= {"hip_angle_rate_after": "rate of hip angle after the jump", "period": "period of the orbit"}
    assert {name: long_name(name, meanings) for name in given} == given
    assert cf_attributes("strides", {}) == {"long_name": "number of strides", "units": "1"}
    assert cf_attributes("strides", {"strides": "steps"}) == {"long_name": "steps"}


@pytest.mark.parametrize("name", models.names)
def test_models_state_their_units_in_one_place(name):
    """What the module lists is what its system names, and every mode names units."""
    model = models.load(name)
    known = units_of(None, model.Params(), model.system)
    first = model.system.modes[(model.sequence or model.system.names)[0]]
    assert first.units == model.units and model.system.time_unit == model.time_unit
    assert all(len(mode.units) == mode.dimension for mode in model.system.modes.values())
    assert known == units_of(model, model.Params(), model.system) and known.time


def test_units_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"units must be a text for each of the coordinates .*got \('rad',\)"):
        hj.Mode(roll, ("angle", "angle_rate"), units=("rad",))
    with pytest.raises(ValueError, match=r"units must be a text for each"):
        hj.Mode(roll, ("angle", "angle_rate"), units=("rad", 1))  # pyright: ignore
    one, other = (hj.Mode(roll, ("angle", name), units=(unit, "1")) for name, unit in (("a", "rad"), ("b", "deg")))
    with pytest.raises(ValueError, match="coordinate 'angle' has the units 'rad' and 'deg' in two modes"):
        hj.HybridSystem({"one": one, "other": other}, ())


def test_contacts_take_units():
    system = models.load("rocking_block").system
    units = ("m", "m", "rad", "m/s", "m/s", "rad/s", "1", "1")
    assert system.modes["contacts"].units == units and system.time_unit == "s"
