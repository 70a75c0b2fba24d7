"""Pictures by the type of a result: `hj.plot.draw`, `hj.plot.animate`, and the methods `plot` and `animate` of results."""

import subprocess
import sys

import drawn_orbits
import matplotlib
import pytest

import hyjax as hj
from hyjax._testing import draw
from hyjax.models import bouncing_ball as ball

matplotlib.use("Agg")


def test_the_method_alone_imports_the_pictures():
    ask = """
import sys
import jax, jax.numpy as jnp, hyjax as hj
from hyjax.models import bouncing_ball as ball
run = hj.simulate(ball.system, jnp.array([1.0, 0.0]), ball.Params(), mode="flight", t1=0.3)
before = {"hyjax.plot", "matplotlib"} & set(sys.modules)
print(before, len(run.plot().axes), "hyjax.plot" in sys.modules, "hyjax.certify" in sys.modules)
"""
    asked = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, env=None)
    assert asked.stdout == "set() 2 True False\n", asked.stderr


def test_every_result_with_a_method_has_a_picture_of_its_type():
    """Each class of hyjax that defines `plot` or `animate` is registered by its own name, also those of `hyjax.certify`."""
    assert hj.plot.draw is draw and hj.certify
    for name in ("plot", "animate"):
        verb = getattr(hj.plot, "draw" if name == "plot" else name)
        defined = {
            each
            for module in list(sys.modules.values())
            if getattr(module, "__name__", "").startswith("hyjax.")
            for each in vars(module).values()
            if isinstance(each, type) and name in vars(each) and each.__module__ == module.__name__
        }
        assert defined and defined == set(verb.registry) - {object}


def test_draw_is_the_method_and_others_are_refused():
    orbit = drawn_orbits.swinging()
    by_verb, by_method = hj.plot.draw(orbit), orbit.plot()
    assert len(by_verb.axes) == len(by_method.axes) and by_verb.axes[0].get_xlabel() == by_method.axes[0].get_xlabel()
    with pytest.raises(TypeError, match=r"draw: there is no picture of a dict; there is one of .*PeriodicOrbit"):
        hj.plot.draw({})
    with pytest.raises(TypeError, match=r"animate: there is no picture of a Params; .*Trajectory"):
        hj.plot.animate(ball.Params(), ball)


def test_a_type_of_ones_own():
    class Height(float):
        pass

    hj.plot.draw.register(Height, lambda height, scale=1: scale * float(height))
    assert hj.plot.draw(Height(2.0), scale=3) == 6.0
