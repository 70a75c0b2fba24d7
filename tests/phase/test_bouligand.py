"""Guards that fall together: the Bouligand derivative against finite differences in each cone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import line, ROLLED, same

import hyjax as hj


def legs():
    """A body over two springy legs: height and pitch; each foot adds its spring, its damper and some thrust. Together they push
    harder: forces that only add up would make both orders the same to first order."""

    def feet(x):
        return x[0] - 0.3 * x[1], x[0] + 0.3 * x[1]

    def rates(x):
        return x[2] - 0.3 * x[3], x[2] + 0.3 * x[3]

    def field(left, right):
        def flow(t, x, p):
            force = [
                on * (1 + 0.5 * left * right) * (p["thrust"] - p["k"] * foot - p["c"] * rate)
                for on, foot, rate in zip((left, right), feet(x), rates(x), strict=True)
            ]
            return jnp.stack([x[2], x[3], force[0] + force[1] - 1, 0.3 * (force[1] - 1.5 * force[0]) / p["inertia"]])

        return flow

    names = ("height", "pitch", "height_rate", "pitch_rate")
    modes = {
        name: hj.Mode(field(*on), names)
        for name, on in dict(air=(0, 0), left=(1, 0), right=(0, 1), both=(1, 1)).items()
    }
    lands = [lambda t, x, p: feet(x)[0], lambda t, x, p: feet(x)[1]]
    ways = (
        hj.Transition("air", "left", lands[0], same),
        hj.Transition("air", "right", lands[1], same),
        hj.Transition("left", "both", lands[1], same),
        hj.Transition("right", "both", lands[0], same),
    )
    params = {name: jnp.array(value) for name, value in dict(k=20.0, c=0.7, thrust=0.4, inertia=0.08).items()}
    return hj.HybridSystem(modes, ways), "air", jnp.array([0.0, 0.0, -1.2, 0.1]), params


def corner():
    """A particle runs into a corner of two oblique fields of honey: each wall lets it through, and changes its flow."""
    modes = {
        "out": hj.Mode(lambda t, x, p: jnp.stack([-jnp.ones(()), -p["b"] * jnp.ones(())]), ("x", "y")),
        "through_x": hj.Mode(lambda t, x, p: jnp.stack([-0.4 + x[1], -jnp.ones(()) + 0.3 * x[0]]), ("x", "y")),
        "through_y": hj.Mode(lambda t, x, p: jnp.stack([-0.9 + 0.2 * t, jnp.asarray(-0.3) * p["b"]]), ("x", "y")),
        "in": hj.Mode(lambda t, x, p: jnp.stack([jnp.asarray(-0.2), -0.1 + x[0]]), ("x", "y")),
    }
    wall_x, wall_y = (lambda t, x, p: x[0] + 0.2 * x[1]), (lambda t, x, p: x[1] - 0.1 * jnp.sin(t))
    ways = (
        hj.Transition("out", "through_x", wall_x, same),
        hj.Transition("out", "through_y", wall_y, same),
        hj.Transition("through_x", "in", wall_y, same),
        hj.Transition("through_y", "in", wall_x, same),
    )
    return hj.HybridSystem(modes, ways), "out", jnp.array([0.0, 0.0]), {"b": jnp.array(0.8)}


def walls():
    """An elastic ball in a right-angled corner: both orders bounce it straight back."""
    mode = hj.Mode(lambda t, x, p: jnp.stack([x[2], x[3], 0.3 * x[1], -p["g"]]), ("x", "y", "x_rate", "y_rate"))
    flip = lambda k: lambda t, x, p: x.at[k + 2].multiply(-p["e"])
    ways = tuple(hj.Transition("free", "free", lambda t, x, p, k=k: x[k], flip(k)) for k in (0, 1))
    return (
        hj.HybridSystem({"free": mode}, ways),
        "free",
        jnp.array([0.0, 0.0, -1.0, -0.7]),
        {
            "g": jnp.array(1.0),
            "e": jnp.array(0.9),
        },
    )


CASES = {"touchdown": legs, "corner": corner, "walls": walls}


@pytest.fixture(scope="module", params=CASES, ids=CASES)
def together(request):
    """The derivative, and the variation of the flow itself by differences: back for a while, on for a while."""
    system, mode, x, params = CASES[request.param]()
    derivative = hj.phase.bouligand_derivative(system, mode, 0.0, x, params)
    before, after = 0.02, 0.02

    def back(v):
        # A start whose free flow is at x + v when t = 0: the event is ahead of every neighbour.
        reverse = lambda t, x, p: -system.modes[mode].vector_field(-t, x, p)
        alone = hj.HybridSystem({"back": hj.Mode(reverse, system.modes[mode].coordinates)}, ())
        return hj.simulate(alone, x + v, params, mode="back", t1=before, max_jumps=0, integrator=ROLLED).x

    def on(start):
        return hj.simulate(system, start, params, mode=mode, t0=-before, t1=after, max_jumps=3, integrator=ROLLED)

    def undo(x_end):
        # The flow of the last mode, back to t = 0.
        last = system.modes[derivative.mode]
        reverse = lambda t, x, p: -last.vector_field(after - t, x, p)
        alone = hj.HybridSystem({"back": hj.Mode(reverse, last.coordinates)}, ())
        return hj.simulate(alone, x_end, params, mode="back", t1=after, max_jumps=0, integrator=ROLLED).x

    def varied(v):
        ended = on(back(v))
        return undo(ended.x), ended.transitions, ended.result

    return derivative, jax.jit(jax.vmap(varied)), x


@pytest.mark.medium
@pytest.mark.parametrize("together", ["corner"], indirect=True)
def test_in_each_cone_against_finite_differences(together):
    """One-sided differences: their error is the square of the step by the curvature, over the step."""
    derivative, varied, x = together
    v = np.random.default_rng(0).normal(size=(64, x.size))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    images, taken = [], []
    for h in (2e-5, 1e-5):
        end, transitions, result = varied(jnp.asarray(h * v))
        assert np.all(result == hj.RESULTS.successful)
        images.append((np.asarray(end) - np.asarray(derivative.x[0])) / h)
        taken.append(np.asarray(transitions))
    # Richardson: the error of first order in h cancels, what is left is 1e-10 by its square and 1e-14 / 1e-5 by rounding.
    difference = 2 * images[1] - images[0]
    got = jax.vmap(derivative)(jnp.asarray(v))
    orders = np.asarray(jax.vmap(derivative.order)(jnp.asarray(v)))
    assert set(orders) == {0, 1}
    for k in range(v.shape[0]):
        assert tuple(taken[1][k, :2]) == derivative.orders[orders[k]]
    assert_allclose(got, difference, rtol=0, atol=3e-8 * np.max(np.abs(got)))


def test_no_matrix_does_it_all(together):
    """The cones' matrices differ, but of walls at right angles; and agree on the border between the cones."""
    derivative, _, x = together
    first, second = derivative.matrices
    apart = np.max(np.abs(first - second))
    assert apart < 1e-14 if derivative.mode == "free" else apart > 0.05
    times = derivative.times[0]
    border = np.linalg.svd(np.asarray(times[:1] - times[1:]))[2][1:]
    assert_allclose(first @ border.T, second @ border.T, rtol=0, atol=1e-12)
    assert derivative.orders == ((0, 2), (1, 3)) or derivative.orders == ((0, 1), (1, 0))
    v = jnp.arange(1.0, 1.0 + x.size)
    assert_allclose(derivative(3 * v), 3 * derivative(v), rtol=1e-13)


def test_with_one_guard_it_is_the_saltation_matrix():
    system, mode, x, params = corner()
    x = x.at[1].set(0.5).at[0].set(-0.1)
    derivative = hj.phase.bouligand_derivative(system, mode, 0.0, x, params)
    assert derivative.orders == ((0,),)
    matrix = hj.saltation_matrix(system, 0, 0.0, x, params)
    assert_allclose(derivative(jnp.array([0.3, -2.0])), matrix @ jnp.array([0.3, -2.0]), rtol=1e-15)


@pytest.mark.medium
def test_is_continuous_only_where_the_orders_agree():
    """Walls that are not at right angles send an elastic ball to different sides."""
    turn = jnp.array([[1.0, 0.0], [0.5, np.sqrt(0.75)]])
    mode = hj.Mode(
        lambda t, x, p: jnp.stack([x[2], x[3], jnp.zeros(()), jnp.zeros(())]), ("x", "y", "x_rate", "y_rate")
    )

    def bounce(k):
        return lambda t, x, p: x.at[2:].add(-2 * turn[k] * (turn[k] @ x[2:]))

    ways = tuple(hj.Transition("free", "free", lambda t, x, p, k=k: turn[k] @ x[:2], bounce(k)) for k in (0, 1))
    system = hj.HybridSystem({"free": mode}, ways)
    with pytest.raises(ValueError, match="not continuous"):
        hj.phase.bouligand_derivative(system, "free", 0.0, jnp.array([0.0, 0.0, -1.0, -0.7]), None)


def test_misuse():
    system, mode, x, params = corner()
    with pytest.raises(ValueError, match=r"no guard of mode 'out' is zero and falling"):
        hj.phase.bouligand_derivative(system, mode, 0.0, x + 1, params)
    with pytest.raises(ValueError, match="must not be traced"):
        jax.jit(lambda x: hj.phase.bouligand_derivative(system, mode, 0.0, x, params).matrices)(x)
    ends = hj.HybridSystem(
        {name: hj.Mode(line, ("x",)) for name in "abc"},
        (
            hj.Transition("a", "b", lambda t, x, p: -x[0], same),
            hj.Transition("a", "c", lambda t, x, p: -2 * x[0], same),
        ),
    )
    with pytest.raises(ValueError, match=r"end in different modes \['b', 'c'\]"):
        hj.phase.bouligand_derivative(ends, "a", 0.0, jnp.zeros(1), None)
    with pytest.raises(ValueError, match="infinitely many events"):
        spin = hj.HybridSystem({"a": hj.Mode(line, ("x",))}, (hj.Transition("a", "a", lambda t, x, p: -x[0], same),))
        hj.phase.bouligand_derivative(spin, "a", 0.0, jnp.zeros(1), None)
