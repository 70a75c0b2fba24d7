"""What results show of themselves: numbers, as many digits as they have, and names of codes."""

import jax
import jax.numpy as jnp
import pytest

import hyjax as hj
from hyjax.models import rimless_wheel as wheel


def gait(slope=0.2, dtype=jnp.float64):
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), wheel.Params(slope=slope))
    guess = jnp.array([-0.5, 0.8], dtype)
    return hj.periodic_orbit(wheel.system, guess, params, sequence=wheel.sequence, throw=False)


@pytest.fixture(scope="module")
def orbit():
    return gait()


def test_an_orbit_on_a_line_of_its_own_is_its_table(orbit):
    assert repr(orbit) == str(orbit) and "theta_rate       +0.460341126609" in repr(orbit)
    assert orbit._repr_html_().startswith("<pre>PeriodicOrbit\n") and "-&gt;" not in repr(orbit)


def test_a_batch_counts_its_codes():
    """A slope on which the wheel speeds up, and one on which it rolls backwards."""
    text = repr(jax.vmap(gait)(jnp.array([0.15, 0.2, -0.2])))
    assert "3 PeriodicOrbits" in text and "         2  successful" in text and "         1  " in text


def test_codes_have_names(orbit):
    """A code prints as its name and compares with it: alone, in a batch, under `jit`, and as its PyTree is rebuilt."""
    assert repr(orbit.result) == str(orbit.result) == f"{orbit.result}" == "successful"
    assert orbit.result == "successful" and orbit.result != "zeno" and orbit.result == hj.RESULTS.successful
    orbits = jax.vmap(gait)(jnp.array([0.15, 0.2, -0.2]))
    assert str(orbits.result) == "2 successful, 1 orbit_not_converged"
    names = lambda orbits: (
        orbits.result == "successful",
        orbits.result != "orbit_not_converged",
        orbits.result == "zeno",
    )
    for found in (names(orbits), jax.jit(names)(orbits)):
        assert [each.tolist() for each in found] == [[True, True, False], [True, True, False], [False] * 3]
    assert str(orbits[2].result) == "orbit_not_converged"
    chosen = hj.RESULTS.where(jnp.array(True), orbit.result, hj.RESULTS.zeno)
    assert jax.tree.structure(chosen) == jax.tree.structure(hj.RESULTS.zeno) and str(chosen) == "successful"
    with pytest.raises(ValueError, match=r"'sucessful'\. Did you mean 'successful'"):
        assert orbit.result == "sucessful"
    with pytest.raises(ValueError, match="same type"):
        assert orbit.result == 0


def test_single_precision_shows_its_digits():
    text = str(gait(dtype=jnp.float32))
    period = next(line for line in text.splitlines() if "period" in line).split()[-1]
    assert len(period.replace(".", "")) <= 6 and "float32" in text


def test_what_is_no_number_shows_its_structure(orbit):
    empty = jax.tree.map(lambda leaf: None, orbit)
    assert "period=None" in repr(empty)
    shapes = jax.eval_shape(lambda: gait())
    assert "ShapeDtypeStruct" in repr(shapes)
    seen = []
    jax.jit(lambda slope: seen.append(repr(gait(slope))))(0.2)
    assert "period=f64[]" in seen[0]


def test_trajectories_show_their_arcs():
    walk = hj.simulate(wheel.system, jnp.array([-0.5, 0.8]), wheel.Params(), mode="stance", t1=3.0)
    assert repr(walk) == str(walk) and "jumps" in repr(walk) and "result  successful" in repr(walk)


def test_results_are_animated(orbit):
    """By the figure's first frame: the wheel, drawn."""
    walk = hj.simulate(wheel.system, jnp.array([-0.5, 0.8]), wheel.Params(), mode="stance", t1=3.0)
    for animation in (orbit.animate(wheel, steps=1), walk.animate(wheel, fps=10)):
        animation._init_draw()
        (axes,) = animation._fig.axes
        assert len(axes.lines) + len(axes.collections) > 0


def test_the_package_has_its_parts():
    assert hj.animate.animate_orbit is hj.plot.animate_orbit
    assert hj.__version__.count(".") >= 1
