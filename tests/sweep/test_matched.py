"""Attractors over a parameter, with the numbers that they keep, and the shares of initial states."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray
from numpy.testing import assert_allclose, assert_array_equal
from systems import CLOCK, ROLLED
from test_continuation import mapping

import hyjax as hj
from hyjax._testing import share_error

# Attractors 1 and -1 and the border e between them.
TILTED = mapping(lambda x, p: x + (x - p["e"]) * (1 - x**2) / 2, 1)
# An odd map, whose two chaotic attractors are the mirror images of each other until they merge at r = 3 sqrt(3) / 2.
ODD = mapping(lambda x, p: p["r"] * x - x**3, 1)


def starts(n, low, high):
    x = low + (np.arange(n) + 0.5) * (high - low) / n
    return jnp.stack([x, np.zeros(n)], axis=1)


def over(system, name, values, x0, **given):
    params = {name: jnp.array(1.0)}
    step = hj.ReturnMap(system, sequence=("run",), integrator=CLOCK)
    return hj.attractor(step, x0, params, where=lambda p: p[name], values=values, progress=False, **given)


def test_shares_of_two_attractors():
    # Not in their order: numbers go from neighbour to neighbour.
    values = np.array([0.6, -0.8, -0.2, 0.2, -0.4])
    found = over(TILTED, "e", values, starts(100, -1, 1), n_strides=300, keep=8)
    assert found["attractor"].dims == ("e", "start")
    # The starts below e, of 100 that are equally far apart, none at e itself.
    assert_allclose(found["share"].sel(number=1), (1 + values) / 2)
    assert_allclose(found["share"].sum("number"), 1)
    assert_allclose(found["x"].where(found["attractor"] == 2).mean(("start", "stride"))[:, 0], 1, atol=1e-9)
    axes = hj.plot.basin_figure(found)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["attractor 1", "attractor 2"]
    plt.close("all")


@pytest.mark.medium
def test_attractors_that_double_and_merge():
    """Fixed points, cycles and chaos keep their numbers, until both are one."""
    values = np.array([1.6, 2.05, 2.2, 2.32, 2.45, 2.55, 2.65, 2.75])
    found = over(ODD, "r", values, starts(40, -0.9, 0.9), n_strides=600, keep=128)
    numbers, chaotic = found["attractor"].values, found["lyapunov"].values > 0.02
    # Starts of both signs: where the maps of both halves differ, so do the numbers.
    assert np.all((numbers[:6] == numbers[:6, :1]) | (numbers[:6] == 3 - numbers[:6, :1]))
    assert_allclose(found["share"].sel(number=[1, 2])[:6], 0.5)
    assert_array_equal(chaotic.all(axis=1)[[0, 1, 5, 6]], [False, False, True, True])
    assert found["share"].sizes["number"] == 3
    assert np.all(np.sort(found["share"].sel(number=[1, 2])[6:], axis=1) == [0, 1])
    # The attractor on the side of positive x keeps its number.
    x = found["x"].values[..., 0]
    assert len({int(n) for n in numbers[:6][x[:6, :, 0] > 0]}) == 1


def test_starts_without_an_attractor():
    found = over(
        mapping(lambda x, p: p["r"] * x**2, 1), "r", np.array([0.5, 1.0]), starts(10, 0, 2), n_strides=60, keep=4
    )
    assert_array_equal(found["attractor"] == 0, found["result"] != 0)
    assert_allclose(found["share"], [[0, 1], [0.5, 0.5]])


def at_one(system, name, value, x, **given):
    """The dataset of several initial states at one value of a parameter."""
    x0 = jnp.asarray(np.append(x, np.zeros((len(x), 1)), axis=1))
    return over(system, name, np.array([value]), x0, **given).isel({name: 0})


LINEAR = mapping(lambda x, p: jnp.stack([p["a"] * x[0], 0.8 * x[1] + 0.1 * x[0]]), 2)
# Attractors 1 and -1 of the second coordinate, which grows without end beyond 2, by 100 (s - 1) % a stride; the first stays.
BISTABLE = mapping(
    lambda x, p: jnp.stack([x[0], x[1] * jnp.where(x[1] ** 2 > 4, p["s"], 0.5 + 0.5 / jnp.abs(x[1]))]), 2
)


@pytest.mark.filterwarnings("ignore:The reset of transition")
@pytest.mark.parametrize("grows", [1.02, 1.2])
@pytest.mark.parametrize("escaping", [[3.0], [2.5, 3.0, 4.0, 5.0, 6.0, 7.0]], ids=["one", "most"])
def test_states_that_escape_do_not_merge_the_others(escaping, grows):
    y = np.array([*escaping, 0.5, -0.5, 1.5, -1.5])
    x = np.stack([np.ones_like(y), y], axis=1)
    numbers = at_one(BISTABLE, "s", grows, x, n_strides=400, keep=64)["attractor"].values
    plus, minus, *others = numbers[-4:]
    assert [plus, minus] == others
    assert plus != minus
    assert not {plus, minus} & set(numbers[:-4].tolist())


@pytest.mark.filterwarnings("ignore:The reset of transition")
def test_a_large_coordinate_does_not_hide_another():
    x = np.stack([np.full(4, 300.0), [0.5, -0.5, 1.5, -1.5]], axis=1)
    found = at_one(BISTABLE, "s", 1.02, x, n_strides=400, keep=64)
    assert_array_equal(found["attractor"], [1, 2, 1, 2])


def test_an_attractor_at_the_origin_is_one():
    x = np.linspace(-0.9, 0.9, 8)
    # After 60 strides at 0.9^60 = 2e-3 of the start; the second coordinate may have no size at the start.
    for n_strides, second in ((60, x), (200, 0 * x), (2000, 0 * x)):
        found = at_one(LINEAR, "a", 0.9, np.stack([x, second], axis=1), n_strides=n_strides, keep=1)
        assert_array_equal(found["attractor"], 1)


def test_more_attractors_than_are_told_apart():
    x = np.arange(1.0, 151)
    found = at_one(LINEAR, "a", 1.0, np.stack([x, x], axis=1), n_strides=100, keep=1, closeness=1e-4)
    assert_array_equal(found["attractor"], np.where(x <= 64, x, 0))
    assert_array_equal(found["result"], 0)


def test_errors_of_shares():
    random = np.random.default_rng(0)
    for truth in (0.02, 0.1, 0.5, 0.97):
        # Two errors about the share hold the truth in 95 % of normal samples; in at least 85 % also of 20 states, of which often
        # all or none have the attractor: sqrt(p (1 - p) / N) is 0 there, and holds 0.02 in 33 %.
        for count in (20, 200):
            shares = random.binomial(count, truth, 2000) / count
            assert np.mean(np.abs(shares - truth) <= 2 * share_error(shares, count)) > 0.85
        # Of many states the error is the scatter of the shares, which 2000 samples know to 1.6 %: four of these.
        shares = random.binomial(5000, truth, 2000) / 5000
        assert_allclose(share_error(shares, 5000).mean(), shares.std(), rtol=0.064)


def test_figures_that_cannot_be_drawn():
    found = lambda x0: over(TILTED, "e", np.array([-0.2, 0.2]), x0, n_strides=100, keep=8)
    with pytest.raises(ValueError, match=r"several initial states.*attractor_figure"):
        hj.plot.basin_figure(found(jnp.array([0.5, 0.0])))
    several = found(starts(1, 0, 1))
    # A share of one state says little.
    assert np.all(several["share_error"] > 0.2)
    several = several.expand_dims(q=[1.0])
    with pytest.raises(ValueError, match=r"'q', 'e'.*found\.sel"):
        hj.plot.basin_figure(several)
    hj.plot.basin_figure(several.sel(q=1.0))
    plt.close("all")


# 0 attracts; of the others, 1 +- sqrt(1 - 1 / r), the larger one is born with the smaller one, its border, at the fold r = 1.
FOLDED = mapping(lambda x, p: x + x * (p["r"] * x * (2 - x) - 1) / 4, 1)
BORN = np.array([1.25, 0.5, 0.9, 1.05, 2.0, 1.02])


@pytest.fixture(scope="module")
def folded():
    """Basins on [0, 2) by 200 points, none of them at the border."""
    step, x = hj.ReturnMap(FOLDED, sequence=("run",), integrator=CLOCK), (np.arange(200) + 0.5) / 100
    options = dict(axes={"x": x}, initial=lambda p, x: jnp.stack([x, 0 * x]), progress=False)
    many = lambda **more: hj.basin(
        step, {"r": jnp.array(1.0)}, where=lambda p: p["r"], values=BORN, max_strides=300, **options, **more
    )
    return many, lambda r, **more: hj.basin(step, {"r": jnp.array(r)}, max_strides=300, **options, **more)


def test_a_basin_that_is_born_at_a_fold(folded, tmp_path):
    found = folded[0]()
    assert found["outcome"].dims == ("r", "x") and found["share"].dims == ("r", "fate")
    assert found["fate"].values.tolist() == ["attractor 1", "attractor 2", "no step", "undecided"]
    # The border is the smaller fixed point, and its preimage beyond 2 is none: of points 1 / 100 apart half a one is off.
    border = 1 - np.sqrt(np.maximum(1 - 1 / BORN, 0))
    share = np.where(BORN > 1, 1 - border / 2, 0)
    assert_allclose(found["share"].sel(fate="attractor 2"), share, atol=0.5 / 200)
    assert_allclose(found["share"].sum("fate"), 1)
    assert_allclose(found["share_error"], share_error(found["share"].values, 200))
    top = found["last"][..., 0].where(found["outcome"] == 1).mean("x")
    assert_allclose(top[BORN > 1], 2 - border[BORN > 1], rtol=1e-9)
    # In ascending order the second one is born at 1.02, and nothing is lost.
    assert_array_equal(found["change"].sel(fate="attractor 2"), BORN == 1.02)
    assert_array_equal(found["change"].sel(fate=["attractor 1", "no step", "undecided"]), 0)
    found.to_netcdf(tmp_path / "basins.nc")
    with xarray.open_dataset(tmp_path / "basins.nc") as stored:
        assert stored.equals(found)
    axes = hj.plot.basin_figure(found)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["attractor 1", "attractor 2"]
    plt.close("all")


@pytest.mark.medium
def test_basins_at_one_value_are_those_along_the_parameter(folded):
    many, one = folded
    found, alone = many(), one(1.25)
    assert_array_equal(alone["outcome"], found["outcome"].sel(r=1.25))
    assert_allclose(alone["share"], found["share"].sel(r=1.25))
    assert "change" not in alone and alone["uncertainty_exponent"].dims == ()
    # One attractor is told apart, the other is left undecided.
    fewer = one(1.25, max_attractors=1)
    assert_allclose(sorted(fewer["share"].values), sorted([0, *alone["share"].values[:2]]))
    orbit = hj.periodic_orbit(
        hj.ReturnMap(FOLDED, sequence=("run",), integrator=CLOCK), jnp.array([1.5, 0.0]), {"r": jnp.array(1.25)}
    )
    # By the orbit it is known earlier which states come to it.
    near = one(1.25, orbits=orbit)
    assert_array_equal(near["outcome"] == 0, alone["outcome"] == 1)
    with pytest.raises(ValueError, match="without orbits="):
        many(orbits=orbit)
    with pytest.raises(ValueError, match="max_attractors=0"):
        one(1.25, max_attractors=0)


def test_outcomes_and_failures_along_a_parameter():
    """Of x -> r x: where r > 1, states leave at 4, and otherwise come to 0; negative ones fail."""
    system = mapping(lambda x, p: jnp.where(x < 0, jnp.nan, p["r"] * x), 1)
    found = hj.basin(
        hj.ReturnMap(system, sequence=("run",), integrator=CLOCK), {"r": jnp.array(1.0)}, where=lambda p: p["r"],
        values=np.array([0.5, 1.5]), axes={"x": np.linspace(-0.9, 1.1, 20)}, max_strides=60, progress=False,
        initial=lambda p, x: jnp.stack([x, 0 * x]), outcomes={"left": lambda t, x, p: 4 - x[0] * x[1]},
    )  # fmt: skip
    x = found["x"].values
    names = np.array(found["fate"].values)[found["outcome"].values]
    # Guards are those of the flow, in which the second coordinate grows from 0 to 1.
    assert_array_equal(names, np.where(x < 0, "no step", [["attractor 1"], ["left"]]))
    assert_array_equal(found["change"].sel(fate=["attractor 1", "left"]), [[0, 0], [-1, 1]])


def shares_of(system, value, axes, **given):
    """The share of each outcome, of a map whose coordinates but the clock are the axes."""
    initial = lambda p, *x: jnp.stack([*x, 0 * x[0]])
    step = hj.ReturnMap(system, sequence=("run",), integrator=CLOCK)
    found = hj.basin(step, jnp.array(value), axes=axes, initial=initial, progress=False, **given)
    return dict(zip(found["fate"].values.tolist(), found["share"].values.tolist(), strict=True))


def test_states_that_still_drift_have_no_attractor():
    """Of x -> 1 + r (x - 1) each state is led to 1, by 400 strides at r = 0.99 to 2 % of its distance."""
    drifting, x = mapping(lambda x, p: 1 + p * (x - 1), 1), {"x": np.linspace(0, 2, 20)}
    assert shares_of(drifting, 0.5, x, max_strides=60) == {"attractor 1": 1, "no step": 0, "undecided": 0}
    for strides in (1, 100):
        assert shares_of(drifting, 0.99, x, max_strides=strides) == {"no step": 0, "undecided": 1}
    assert shares_of(drifting, 0.99, x, max_strides=400) == {"attractor 1": 1, "no step": 0, "undecided": 0}
    system = mapping(lambda x, p: 1 + p["r"] * (x - 1), 1)
    for strides, number in ((100, 0), (400, 1)):
        found = at_one(system, "r", 0.99, x["x"][:, None], n_strides=strides, keep=16)
        assert_array_equal(found["attractor"], number)
        assert_array_equal(found["result"], 0)


def test_a_chaotic_attractor_of_few_states_is_one():
    henon = mapping(lambda x, p: jnp.stack([1 - p * x[0] ** 2 + x[1], 0.3 * x[0]]), 2)
    axes = {"x": np.linspace(-0.5, 0.5, 5), "y": np.linspace(-0.1, 0.1, 3)}
    for a in (1.2, 1.4):
        assert shares_of(henon, a, axes, max_strides=100)["attractor 1"] == 1


@pytest.fixture(scope="module")
def two_modes():
    """A flow that is led to 1 in the mode `low`, and from beyond 2 to `high`, where it is led to c."""
    low, high = lambda t, x, p: (x - 1) * (x - 2), lambda t, x, p: p["c"] - x
    system = hj.HybridSystem(
        {"low": hj.Mode(low, ("x",)), "high": hj.Mode(high, ("x",))},
        (hj.Transition("low", "high", lambda t, x, p: 3 - x[0], lambda t, x, p: x),),
    )
    step = hj.ReturnMap(system, section=hj.Stroboscope("low", 1.0), integrator=ROLLED)
    return step, (np.arange(15) + 0.5) / 5, {"where": lambda p: p["c"], "progress": False}


@pytest.mark.medium
def test_attractors_are_led_on_in_their_modes(two_modes):
    """At c = 1 both attractors are at 1."""
    step, x, options = two_modes
    values, params = np.array([1.0, 1.3, 1.32, 1.34]), {"c": jnp.array(1.0)}
    found = hj.basin(
        step, params, axes={"x": x}, initial=lambda p, x: x[None], values=values, max_strides=60, **options
    )
    assert found["fate"].values.tolist() == ["attractor 1", "attractor 2", "no step", "undecided"]
    assert_array_equal(found["outcome"], np.tile(x > 2, (4, 1)))
    assert_array_equal(found["change"], 0)
    iterated = hj.attractor(step, x[:, None], params, values=values, n_strides=60, **options)
    assert_array_equal(iterated["attractor"], 1 + found["outcome"].values)


def test_outcomes_and_numbers_that_cannot_be(folded):
    for name in ("attractor 1", "orbit 12", "no step", "undecided"):
        with pytest.raises(ValueError, match=rf"outcomes \['{name}'\]"):
            folded[1](1.0, outcomes={name: lambda t, x, p: x[0]})
    for bad in ({"max_attractors": "3"}, {"max_attractors": 2.5}, {"closeness": "1"}):
        with pytest.raises(ValueError, match=f"={next(iter(bad.values()))!r}"):
            folded[1](1.0, **bad)
