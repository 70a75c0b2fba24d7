"""Pictures by the type of a result: `hj.plot.draw`, `hj.plot.animate`, and the methods `plot` and `animate` of results."""

import subprocess
import sys

import drawn_orbits
import matplotlib
import numpy as np
import pytest

import hyjax as hj
from hyjax._testing import draw, printed_number, telling
from hyjax.models import bouncing_ball as ball, slip

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


def test_pictures_of_proofs_are_imported_when_the_first_is_drawn():
    ask = """
import sys, numpy as np, hyjax as hj
number = hj.certify.Enclosed(np.array([1.0]), np.array([1e-9]))
print({"hyjax.plot", "matplotlib"} & set(sys.modules), {"certified_set", "krawczyk"} <= set(dir(hj.certify)))
try:
    hj.plot.draw(number)
except TypeError as error:
    print("Enclosed; there is one of" in str(error), "ProvedOrbit" in str(error))
print(hj.certify.certified_set.__name__, hasattr(hj.certify, "certified_nothing"))
"""
    asked = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    assert asked.stdout == "set() True\nTrue True\ncertified_set False\n", asked.stderr


def test_every_result_with_a_method_has_a_picture_of_its_type():
    """Each class of hyjax that defines `plot` or `animate` is registered by its own name, also those of `hyjax.certify`."""
    assert hj.plot.draw is draw and hj.certify.certified_set
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


def test_a_coordinate_has_one_colour_in_all_panels():
    """Those of the two portraits, and of their series, of the runner; the jump of a system of one mode is no change of mode."""
    figure = hj.plot.orbit_figure(drawn_orbits.running(), slip)
    axes = [ax for part in figure.subfigs for ax in part.axes]
    named = {"$x$": set(), "$y$": set()}
    for ax in axes[:-1]:
        for name, colours in named.items():
            label = (ax.get_xlabel() if ax.get_ylabel().startswith("$\\dot") else ax.get_ylabel()).partition(" ")[0]
            colours |= {line.get_color() for line in ax.lines if line.get_linestyle() == "-" and label == name}
    assert all(len(colours) == 1 for colours in named.values()) and len(set.union(*named.values())) == 2, named
    gids = {line.get_gid() for ax in axes for line in ax.lines}
    assert "change of mode" in gids
    orbit = drawn_orbits.orbit_of(ball, [("flight", np.linspace(0, 1, 9), np.ones((9, 2)))], [0.5, 0.0])
    drawn = [ax for part in hj.plot.orbit_figure(orbit, ball).subfigs for ax in part.axes]
    assert "change of mode" not in {line.get_gid() for ax in drawn for line in ax.lines}


def test_the_coordinate_that_tells():
    """One that is neither constant nor linear in the parameter; where there is none the first."""
    values = np.linspace(0, 1, 5)[:, None]
    columns = {"fixed": 0 * values + 0.3, "set": np.tile(2 * values - 1, 3), "free": values**2 + [0, 1e-3, np.nan]}
    assert telling(columns, values) == "free"
    assert telling({name: columns[name] for name in ("fixed", "set")}, values) == "fixed"
    assert telling({"zero": 1e-16 * columns["free"]} | columns, values) == "free"
    # Two values of a parameter lie on a line always.
    assert telling({name: column[:2] for name, column in columns.items()}, values[:2]) == "set"


def test_a_true_minus_sign():
    assert printed_number(-815.2) == "\N{MINUS SIGN}815" and printed_number(-2e-7) == "$-2.00\\cdot 10^{-7}$"
    figure = hj.plot.orbit_figure(drawn_orbits.swinging(slope=-0.05))
    titles = [part.get_suptitle() for part in (figure, *figure.subfigs)]
    assert "\N{MINUS SIGN}0.05" in " ".join(titles)
