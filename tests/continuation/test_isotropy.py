"""Symmetries found among exchanges of coordinates, by what vector fields, guards and resets compute."""

import jax.numpy as jnp
import numpy as np
import pytest
from systems import falling_drops

from hyjax._testing import exchanges, is_symmetry
from hyjax.models import quadruped_slip as quadruped


def test_exchanges_of_labels():
    found = exchanges(("x", "legLeft", "legLeft_rate", "legRight", "legRight_rate"))
    assert found["Left <> Right"] == {
        "x": "x", "legLeft": "legRight", "legLeft_rate": "legRight_rate", "legRight": "legLeft",
        "legRight_rate": "legLeft_rate",
    }  # fmt: skip
    assert found["Left_ <> Right_"]["legLeft"] == "legLeft"
    found = exchanges(("x0", "x1", "x10"))
    assert [*found] == ["0 <> 1", "0 <> 10", "1 <> 10"] and found["0 <> 1"]["x10"] == "x10"
    assert "theta <> phi" not in exchanges(("theta", "phi", "phi_rate"))


def images(names, a, b):
    """The names in whose place names are when a and b are exchanged."""
    return {name: name.replace(a, "*").replace(b, a).replace("*", b) for name in names}


def test_legs_with_transitions_of_their_own():
    """Modes that are named by the drop that has fallen change places; unless one drop grows otherwise."""
    system, names = falling_drops(), ("left", "right", "clock")
    states = {names: (np.zeros(8), np.random.default_rng(0).standard_normal((8, 3)))}

    def same(a, b, home="new", other=0.0, floor=0.0):
        params = {"r": jnp.array(0.8), "other": jnp.array(other), "floor": jnp.array(floor)}
        return is_symmetry(system, home, images(names, a, b), params, states)

    assert same("left", "right") and same("left", "right", home="both")
    assert not same("left", "right", home="left_fallen")
    assert not same("left", "right", other=1e-9) and not same("left", "right", floor=1e-9)
    assert not same("left", "clock")


@pytest.mark.medium
def test_legs_of_one_family():
    """Of the quadruped the legs of one end may change places, and no leg of the back with one of the front."""
    params, names = quadruped.Params(), quadruped.coordinates
    x = np.asarray(quadruped.guess(params)) + 0.3 * np.random.default_rng(0).standard_normal((8, 17))
    x[:, 13:] = np.random.default_rng(1).integers(0, 2, (8, 4))
    states = {names: (np.zeros(8), x)}
    same = lambda a, b: is_symmetry(quadruped.system, "gait", images(names, a, b), params, states)
    assert (
        same("back_left", "back_right") and not same("back_left", "front_left") and not same("left_rate", "right_rate")
    )
