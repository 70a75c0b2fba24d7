"""The saltation matrix against exact rationals and closed forms; the monodromy matrix against the return map."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import case
from systems import ROLLED, same, still

import hyjax as hj
from hyjax.models import bouncing_ball

# A ball on a slope (Kong et al. 2024, Sec. IV): it slides, sticks, or bounces


def ballistic(t, x, p):
    return jnp.stack([x[2], x[3], jnp.zeros(()), -p["g"]])


def slide(t, x, p):
    s, c = p["sin"], p["cos"]
    return jnp.stack([x[2], x[3], p["g"] * c * s, -p["g"] * s**2])


def height(t, x, p):
    return p["sin"] * x[0] + p["cos"] * x[1]


def to_slide(t, x, p):
    q1, q2, v1, v2 = x
    s, c = p["sin"], p["cos"]
    return jnp.stack([q1, q2, v1 * c**2 - v2 * c * s, v2 * s**2 - v1 * c * s])


def to_stick(t, x, p):
    return x * jnp.array([1.0, 1.0, 0.0, 0.0])


def to_bounce(t, x, p):
    normal = jnp.stack([p["sin"], p["cos"]])
    return jnp.concatenate([x[:2], x[2:] - (1 + p["e"]) * (normal @ x[2:]) * normal])


NAMES = ("q1", "q2", "q1_rate", "q2_rate")
SLOPE = hj.HybridSystem(
    {
        "flight": hj.Mode(ballistic, NAMES),
        "slide": hj.Mode(slide, NAMES),
        "stick": hj.Mode(still, NAMES),
    },
    (
        hj.Transition("flight", "slide", height, to_slide),
        hj.Transition("flight", "stick", height, to_stick),
        hj.Transition("flight", "flight", height, to_bounce),
    ),
)
_ball = case("E_ball_on_slope")
HIT = jnp.concatenate([jnp.asarray(_ball["q"]), jnp.asarray(_ball["qdot_minus"])])


def slope_params(e=1.0):
    values = {"sin": _ball["sin_theta"], "cos": _ball["cos_theta"], "g": _ball["a_g"], "e": e}
    return {name: jnp.array(value) for name, value in values.items()}


@pytest.mark.parametrize("i, kind", list(enumerate(["slide", "stick", "elastic_e=1", "elastic_e=7/10"])))
def test_ball_on_a_slope(i, kind):
    """Exact rationals. 0.6 and 0.8 are not floats: each entry is some four roundings of numbers of its size."""
    record, params = _ball[kind], slope_params(e=_ball[kind].get("e", 1.0))
    transition = SLOPE.transitions[min(i, 2)]
    saltation = hj.saltation_matrix(SLOPE, transition, 0.0, HIT, params)
    assert_allclose(saltation, record["Xi"], rtol=1e-15, atol=1e-15)
    after = transition.reset(0.0, HIT, params)
    assert_allclose(after[2:], record["qdot_plus"], rtol=1e-15)
    if "det" in record:
        assert_allclose(jnp.linalg.det(saltation), record["det"], rtol=1e-14)


def stick_closed_form(x, p):
    """Kong et al. (2024), eqs. 55-56."""
    _, _, v1, v2 = x
    s, c = p["sin"], p["cos"]
    block = jnp.stack([jnp.stack([v2 * c, -v1 * c]), jnp.stack([-v2 * s, v1 * s])]) / (v2 * c + v1 * s)
    return jnp.zeros((4, 4)).at[:2, :2].set(block)


@pytest.mark.medium
@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_saltation_matrix_is_differentiable(jacobian):
    """In state and parameters, under jit and vmap; the transition is given by number."""
    rates = np.random.default_rng(0).uniform(0.5, 2, (20, 2)) * [1, -2]
    states = jnp.concatenate([jnp.tile(HIT[:2], (20, 1)), jnp.asarray(rates)], axis=1)
    params = slope_params()
    got = lambda x, p: hj.saltation_matrix(SLOPE, 1, 0.0, x, p)
    batch = lambda f: jax.jit(jax.vmap(f, in_axes=(0, None)))(states, params)
    assert_allclose(batch(got), batch(stick_closed_form), rtol=1e-14, atol=1e-15)
    by_x, by_p = batch(jacobian(got, argnums=(0, 1)))
    expected_by_x, expected_by_p = batch(jax.jacfwd(stick_closed_form, argnums=(0, 1)))
    assert_allclose(by_x, expected_by_x, rtol=1e-13, atol=1e-14)
    for name in params:
        assert_allclose(by_p[name], expected_by_p[name], rtol=1e-13, atol=1e-14)


def test_saltation_matrix_is_not_finite_where_the_flow_is_tangent():
    """A vertical wall, and a ball that falls along it."""
    wall = slope_params() | {"sin": jnp.array(1.0), "cos": jnp.array(0.0)}
    saltation = hj.saltation_matrix(SLOPE, 1, 0.0, jnp.array([0.0, 3.0, 0.0, -1.0]), wall)
    assert np.isinf(saltation[1, 0])


# Terms in time: a ball on a table that moves as A sin(Omega t + phase)


def table(t, p):
    return p["A"] * jnp.sin(p["Omega"] * t + p["phase"])


def table_rate(t, p):
    return p["A"] * p["Omega"] * jnp.cos(p["Omega"] * t + p["phase"])


shaken = hj.HybridSystem(
    {"flight": hj.Mode(lambda t, x, p: jnp.stack([x[1], -p["g"]]), ("y", "y_rate"))},
    (
        hj.Transition(
            "flight",
            "flight",
            lambda t, x, p: x[0] - table(t, p),
            lambda t, x, p: jnp.stack([x[0], -p["e"] * x[1] + (1 + p["e"]) * table_rate(t, p)]),
        ),
    ),
)


def one_bounce_per_period(g, e, omega, amplitude):
    """A Omega cos(phase) = (1 - e) g T / (2 (1 + e)), and the ball meets the table with -g T / 2."""
    period = 2 * np.pi / omega
    phase = np.arccos((1 - e) * g * period / (2 * (1 + e)) / (amplitude * omega))
    values = {"g": g, "e": e, "Omega": omega, "A": amplitude, "phase": phase}
    params = {name: jnp.array(value) for name, value in values.items()}
    return params, period, jnp.array([amplitude * np.sin(phase), g * period / 2])


@pytest.mark.medium
@pytest.mark.parametrize(
    "g, e, omega, amplitude", [(1.0, 0.8, 2 * np.pi, 0.02), (9.81, 0.5, 40.0, 0.02), (2.0, 0.95, 3.0, 0.4)]
)
def test_table_saltation_and_monodromy(g, e, omega, amplitude):
    params, period, x = one_bounce_per_period(g, e, omega, amplitude)
    through = hj.ReturnMap(shaken, sequence=("flight",), integrator=ROLLED)(x, params)
    # The table's phase after a period is good to its rounding, 1e-15 rad.
    assert_allclose(through.time, period, rtol=1e-14)
    assert_allclose(through.x, x, rtol=1e-13, atol=1e-14)

    curve = -amplitude * omega**2 * np.sin(params["phase"])
    before = jnp.array([x[0], -g * period / 2])
    closing = before[1] - amplitude * omega * np.cos(params["phase"])
    expected = np.array([[-e, 0], [-(1 + e) * (g + curve) / closing, -e]])
    at_period = hj.saltation_matrix(shaken, 0, period, before, params)
    assert_allclose(at_period, expected, rtol=1e-14, atol=1e-15)

    monodromy = hj.ReturnMap(shaken, sequence=("flight",), integrator=ROLLED).monodromy(x, params)
    assert_allclose(monodromy, expected @ np.array([[1, period], [0, 1]]), rtol=1e-12, atol=1e-13)
    assert_allclose(np.linalg.det(monodromy), e**2, rtol=1e-12)
    assert_allclose(np.trace(monodromy), -2 * e + (1 + e) ** 2 * (g + curve) / g, rtol=1e-12)


# The same matrix by another route: flow, jump and flow, differentiated at a fixed time


def swirl(t, x, p):
    a, b = x
    return jnp.stack([b + 0.3 * jnp.cos(t), -a - 0.1 * b**3 + p["push"] * jnp.sin(2 * t)])


def lifted(t, x, p):
    a, b, c = x
    return jnp.stack([b * c, -a + jnp.sin(t), 0.5 * a - c * t])


def moving_wall(t, x, p):
    return 0.8 - 0.2 * jnp.sin(3 * t) - x[0] - 0.1 * x[1] ** 2


def lift(t, x, p):
    a, b = x
    return jnp.stack([a * jnp.cos(t), b**2 - p["push"] * t, jnp.exp(0.3 * t) * a * b])


STOP = lambda t, x, p: p["end"] - t
wider = hj.HybridSystem(
    {
        "swirl": hj.Mode(swirl, ("a", "b")),
        "lifted": hj.Mode(lifted, ("a", "b", "c")),
        "end of swirl": hj.Mode(still, ("a", "b")),
        "end of lifted": hj.Mode(still, ("a", "b", "c")),
    },
    (
        hj.Transition("swirl", "lifted", moving_wall, lift),
        hj.Transition("lifted", "end of lifted", STOP, same),
    ),
)
# The same field without the wall, to know the flow alone.
swirl_alone = hj.HybridSystem(
    {"swirl": wider.modes["swirl"], "end": hj.Mode(still, ("a", "b"))}, (hj.Transition("swirl", "end", STOP, same),)
)


@pytest.mark.medium
def test_saltation_between_dimensions_with_time_in_everything():
    """D x(end) = Phi_2 Xi Phi_1: on the left by differentiation through the event, on the right by the formula."""
    params = {"push": jnp.array(0.4), "end": jnp.array(2.5)}
    start = jnp.array([0.1, 0.9])

    def after(t, x):
        return hj.flow_to_guard(wider, "lifted", t, x, params, integrator=ROLLED).x

    def whole(x):
        met = hj.flow_to_guard(wider, "swirl", 0.0, x, params, integrator=ROLLED)
        return after(met.t, lift(met.t, met.x, params)), met

    through, met = jax.jit(jax.jacfwd(whole, has_aux=True))(start)
    assert met.result == hj.RESULTS.successful
    assert 0.3 < met.t < 2.2
    until = params | {"end": met.t}
    alone = lambda x: hj.flow_to_guard(swirl_alone, "swirl", 0.0, x, until, integrator=ROLLED).x
    first = jax.jit(jax.jacfwd(alone))(start)
    second = jax.jit(jax.jacfwd(after, argnums=1))(met.t, lift(met.t, met.x, params))
    saltation = hj.saltation_matrix(wider, 0, met.t, met.x, params)
    assert saltation.shape == (3, 2)
    # Two integrations at 1e-14 each, of matrices with entries near 1.
    assert_allclose(second @ saltation @ first, through, rtol=0, atol=1e-12)
    # The terms in time are no small matter here.
    frozen = hj.saltation_matrix(
        hj.HybridSystem(
            wider.modes,
            [hj.Transition("swirl", "lifted", lambda t, x, p: moving_wall(met.t, x, p), lambda t, x, p: lift(met.t, x, p))],
        ),
        0, met.t, met.x, params,
    )  # fmt: skip
    assert np.max(np.abs(frozen - saltation)) > 0.1


# Two matrices of one orbit


def distance(a, b):
    """The largest difference of two spectra, matched as well as they can be."""
    a, b = np.asarray(a), np.asarray(b)
    return min(np.max(np.abs(a - b[list(order)])) for order in itertools.permutations(range(b.size)))


def check_spectra(around, section):
    """Section to section the flow's direction has the multiplier 0, and around at fixed time 1."""
    multipliers = np.linalg.eigvals(section)
    assert np.min(np.abs(multipliers)) < 1e-7
    multipliers[np.argmin(np.abs(multipliers))] = 1
    # A reset that forgets coordinates leaves zeros that repeat in a Jordan block: rounding, 1e-14, moves them by its square root.
    assert distance(np.linalg.eigvals(around), multipliers) < 1e-7


@pytest.mark.medium
@pytest.mark.parametrize("gait", ["long_0.004", "short_0.004", "long_0.009", "short_0.009"])
def test_monodromy_of_the_walker_agrees_with_its_return_map(walker, gait):
    orbit = walker[gait]
    check_spectra(orbit.monodromy(), orbit.return_jacobian)
    # The eigenvector of 1 is the flow's direction; nothing else tests the time terms of an autonomous orbit so sharply.
    field = orbit.system.modes["swing"].vector_field(0.0, orbit.x, orbit.params)
    assert_allclose(orbit.monodromy() @ field, field, rtol=0, atol=1e-12)


@pytest.mark.medium
def test_monodromy_of_an_elastic_ball():
    """Not isolated: 1 on the section (any height returns), and a Jordan block of 1 around (higher takes longer)."""
    params = bouncing_ball.Params(restitution=1.0, gravity=1.0)
    x = jnp.array([0.0, 1.0])
    around = hj.ReturnMap(bouncing_ball.system, sequence=("flight",), integrator=ROLLED).monodromy(x, params)
    section = hj.ReturnMap(bouncing_ball.system, sequence=("flight",), integrator=ROLLED).jacobian(x, params)
    # T = 2 v: the elements are exact.
    assert_allclose(around, [[-1, -2], [2, 3]], rtol=1e-13)
    assert_allclose(section, [[0, 0], [1, 1]], rtol=0, atol=1e-14)
    check_spectra(around, section)
