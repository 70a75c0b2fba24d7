"""How many digits are right: closed forms and high-precision references, model by model.

The default integrator: Dopri8 at 1e-14. Tolerances are those that docs/accuracy.md claims, or a few units of the last place of
the largest number involved, times the condition of the number that is compared; each is stated where it is more.
"""

import functools as ft
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from bhounsule import LONG, SHORT
from numpy.testing import assert_allclose
from readme import ACCURACY, claimed
from reference import case
from systems import ROLLED

import hyjax as hj
from hyjax.models import compass_gait, rimless_wheel, simplest_walker

GAITS = ("long_0.004", "short_0.004", "long_0.009", "short_0.009")


# Rimless wheel: closed form


@pytest.mark.medium
def test_rimless_wheel_reference(wheel):
    """Coleman's wheel: n = 6, lambda^2 = 2/3, alpha = 0.2."""
    record = case("A_rimless_wheel")
    # Some ten roundings of numbers near 1; the period is near 2.
    close = dict(rtol=0, atol=claimed("rimless wheel: state, period, Jacobian, multipliers"))
    assert_allclose(wheel.x, record["x0"], **close)
    assert_allclose(wheel.period, record["T"], **close)
    assert_allclose(wheel.return_jacobian, record["J"], **close)
    assert_allclose(wheel.multipliers, record["eigenvalues"][::-1], **close)


def wheel_closed_form(n, ratio, slope):
    """State after the collision, period and return Jacobian (Bhounsule 2014, eqs. 19-20), with the period by quadrature."""
    mp = mpmath.mp
    with mp.workdps(30):
        n, ratio, slope = mp.mpf(n), mp.mpf(ratio), mp.mpf(slope)
        half = mp.pi / n
        mu = 1 + ratio * (mp.cos(2 * half) - 1)
        rate = mp.sqrt(4 * mu**2 * ratio * mp.sin(half) * mp.sin(slope) / (1 - mu**2))
        speed = lambda theta: mp.sqrt(rate**2 + 2 * ratio * (mp.cos(slope - half) - mp.cos(theta + slope)))
        period = mp.quad(lambda theta: 1 / speed(theta), [-half, -slope, 0, half])
        jacobian = [[0, 0], [-(mu**2) * ratio * mp.sin(slope - half) / rate, mu**2]]
        return np.array([-half, rate], float), float(period), np.array(jacobian, float)


@pytest.mark.parametrize(
    "n, ratio, slope",
    [(6, 2 / 3, 0.2), (4, 0.5, 0.5), (6, 1.0, 0.3), (8, 0.9, 0.1), (10, 2 / 3, 0.35), (12, 0.3, 0.05), (40, 0.7, 0.02)],
)
def test_rimless_wheel_closed_form(n, ratio, slope):
    x, period, jacobian = wheel_closed_form(n, ratio, slope)
    params = rimless_wheel.Params(spokes=n, inertia_ratio=ratio, slope=slope)
    orbit = hj.periodic_orbit(rimless_wheel.step, jnp.asarray(x) * jnp.array([1.0, 1.1]), params)
    # The wheel's speed at the top is the difference of two energies: what it loses, the period and the slope lose.
    assert_allclose(orbit.x, x, rtol=2e-14)
    assert_allclose(orbit.period, period, rtol=2e-14)
    assert_allclose(orbit.return_jacobian, jacobian, rtol=2e-14, atol=2e-14)


# Simplest walker: 35-digit reference


@pytest.mark.medium
@pytest.mark.parametrize("gait", GAITS)
def test_walker_state_and_period(walker, gait):
    orbit, record = walker[gait], case("B_simplest_walker", gait)
    assert_allclose(
        orbit.x, record["x0"], rtol=0, atol=claimed("simplest walker, both gaits at slopes 0.004 and 0.009: state")
    )
    # The guard is met at a rate of 0.2 to 0.4: the state's rounding is multiplied by up to 5.
    assert_allclose(orbit.period, record["T"], rtol=0, atol=claimed("… period"))


@pytest.mark.parametrize("gait", GAITS)
def test_walker_multipliers(walker, gait):
    orbit, values = walker[gait], case("B_simplest_walker", gait, "eigenvalues")
    expected = values["re"] + 1j * values["im"]
    error = np.abs(np.asarray(orbit.multipliers) - expected)
    # Two multipliers near 0.5 out of a matrix with entries near 7: the entries' rounding, 1e-14, is multiplied by the
    # condition of the eigenvalues, about 20.
    assert np.all(error <= claimed("… multipliers")), error
    # Two of the four are zeros, because the reset forgets phi and its rate: rounding alone.
    assert np.all(error[2:] < 1e-14), error


def test_walker_multipliers_as_they_are_printed():
    """docs/accuracy.md says by how much Table 1 of Bhounsule (2014) is off; the reference, not ours, says so."""
    off = []
    for gait, printed in (("long_0.009", LONG), ("short_0.009", SHORT)):
        values = case("B_simplest_walker", gait, "eigenvalues")
        first = [values["re"][0], values["im"][0]] if values["im"][0] else values["re"][:2]
        paper = [float(paper) for name, (paper, _) in printed.items() if name.startswith("multiplier")]
        off += list(np.abs(np.array(paper) - first))
    (said,) = re.findall(r"Table 1 of Bhounsule 2014: (\S+)\)", ACCURACY)
    assert f"{max(off):.1e}" == said


@pytest.mark.parametrize("gait", ("long_0.009", "short_0.009"))
def test_walker_return_jacobian(walker, gait):
    """All sixteen entries: a wrong order of the factors leaves the eigenvalues and changes these."""
    orbit, record = walker[gait], case("B_simplest_walker", gait)
    expected = record["J4x4"]
    # Entry by entry. The smallest is 0.03, of rows whose largest is 7: so 1e-14 of the row may be a hundred times that of it.
    assert_allclose(orbit.return_jacobian, expected, rtol=3e-13)
    assert_allclose(-orbit.guard_rates[0], record["guard_rate"], rtol=3e-14)


@pytest.mark.medium
def test_walker_batch_is_the_single_orbit(walker):
    """`vmap` over both slopes and gaits: the same digits."""
    params = simplest_walker.Params(jnp.array([case("B_simplest_walker", gait)["gamma"] for gait in GAITS]))
    guesses = jnp.stack([jnp.round(walker[gait].x, 3) for gait in GAITS])
    find = ft.partial(hj.periodic_orbit, simplest_walker.step, throw=False)
    batch = jax.vmap(find)(guesses, params)
    for i, gait in enumerate(GAITS):
        # Other instructions, so other roundings: the accuracy of each is tested above.
        assert_allclose(batch.x[i], walker[gait].x, rtol=0, atol=2e-14)
        assert_allclose(batch.period[i], walker[gait].period, rtol=0, atol=1e-13)
        assert_allclose(batch.multipliers[i], walker[gait].multipliers, rtol=6e-13, atol=6e-13)


def _along_branch(slope, guess):
    params = simplest_walker.Params(slope)
    orbit = hj.periodic_orbit(simplest_walker.step, guess, params, throw=False)
    return {"x0": orbit.x, "T": orbit.period, "rho": orbit.spectral_radius, "eig": orbit.multipliers[:2]}


# With LLVM's optimization, as in a user's session: the digits of docs/accuracy.md are those with fused multiply-add, whose errors
# are smaller.
@ft.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 1})
@ft.partial(jax.jacfwd, has_aux=True)
def _twice_along_branch(slope, guess):
    first = jax.jacfwd(_along_branch)(slope, guess)
    return first, first


@pytest.mark.slow
@pytest.mark.parametrize("gait", GAITS)
def test_walker_derivatives_along_the_branch(walker, gait):
    """d/dslope of the gait, its period and its multipliers, once and twice: the whole chain of implicit functions."""
    record, branch = case("B_simplest_walker", gait), case("B_branch", gait)
    second, first = _twice_along_branch(jnp.asarray(record["gamma"]), walker[gait].x)
    # The multipliers' error times a second derivative of 1e3 to 1e4 over a first derivative of 1e1 to 1e2; and once more so.
    once = claimed("… derivatives of state, period and multipliers by the slope, relative")
    twice = claimed("… second derivatives")
    for order, got, rtol in (("d", first, once), ("d2", second, twice)):
        for name in ("x0", "T", "rho"):
            assert_allclose(got[name], branch[f"{order}{name}"], rtol=rtol, err_msg=f"{order}{name}")
        # Of a complex pair the reference has real and imaginary part, of two real multipliers both.
        pair = record["eigenvalues"]["im"][0] != 0
        ours = np.array([got["eig"][0].real, got["eig"][0].imag]) if pair else np.asarray(got["eig"])
        assert_allclose(ours, branch[f"{order}eig"], rtol=rtol, err_msg=f"{order}eig")


# Compass gait: 30-digit reference


@pytest.mark.medium
def test_compass_gait(compass):
    record = case("C_compass_gait")
    # Some fifty roundings of the reset's two-by-two solve, of numbers near 1.
    close = dict(rtol=0, atol=claimed("compass gait at 3°: state, period, multipliers"))
    assert_allclose(compass.x, record["x0"], **close)
    assert_allclose(compass.period, record["T"], **close)
    values = record["eigenvalues"]
    # The state has one coordinate more than the section: one more multiplier, zero.
    expected = np.append(values["re"] + 1j * values["im"], 0)
    assert_allclose(compass.multipliers, expected, **close)


@pytest.mark.medium
def test_compass_gait_return_jacobian_on_the_section(compass):
    """The reference's variations keep `theta_ns = -theta_s - 2 slope`; ours are free: multiply by the embedding."""
    record = case("C_compass_gait")
    embed = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, 0, 1]])
    keep = [0, 2, 3]
    reduced = (np.asarray(compass.return_jacobian) @ embed)[keep]
    # Entries up to 2, which are differences of ours: a dozen roundings each.
    assert_allclose(reduced, record["J_reduced_(theta_s,omega_s,omega_ns)"], rtol=0, atol=5e-14)


@pytest.mark.medium
def test_compass_gait_has_units(compass):
    """Gravity and leg length rescale time: rates by sqrt(g/l), the period by its inverse; the multipliers stay."""
    record = case("C_compass_gait")
    params = compass_gait.Params(slope=np.deg2rad(record["slope_deg"]), gravity=9.81)
    guess = compass.x * jnp.array([1.0, 1.0, 3.0, 3.0])
    orbit = hj.periodic_orbit(compass.step, guess, params)
    # As in units of its own, times sqrt(g/l) = 3.
    assert_allclose(orbit.x, record["x0_g9.81_l1"], rtol=0, atol=3e-14)
    assert_allclose(orbit.period, record["T_g9.81_l1"], rtol=0, atol=1e-14)
    assert_allclose(orbit.multipliers, compass.multipliers, rtol=0, atol=4e-14)


# Bouncing ball: closed form, for states, gradients and Hessians after many bounces


class Ball(eqx.Module):
    restitution: jax.Array
    gravity: jax.Array
    drop: jax.Array
    end: jax.Array


def fall(t, x, params):
    return jnp.stack([x[1], -params.gravity])


BALL = hj.HybridSystem(
    modes={"flight": hj.Mode(fall, ("y", "y_rate")), "end": hj.Mode(fall, ("y", "y_rate"))},
    transitions=(
        hj.Transition("flight", "flight", lambda t, x, p: x[0], lambda t, x, p: x * jnp.stack([1.0, -p.restitution])),
        hj.Transition("flight", "end", lambda t, x, p: p.end - t, lambda t, x, p: x),
    ),
)


def bounces(q, most: int):
    """Times and speeds after each of `most` bounces, from a drop with (e, g, h0) = q."""
    params = Ball(*q, end=jnp.array(1e3))
    bounce = BALL.transitions[0].reset

    def one(carry, _):
        t, x = carry
        impact = hj.flow_to_guard(BALL, "flight", t, x, params, integrator=ROLLED)
        after = impact.t, bounce(impact.t, impact.x, params)
        return after, after

    start = jnp.zeros(()), jnp.stack([params.drop, jnp.zeros(())])
    return jax.lax.scan(one, start, length=most)[1]


def at_end(q, end, count, most: int):
    """The state at time `end`, after `count` bounces."""
    params = Ball(*q, end=end)
    t, x = bounces(q, most)
    t, x = t[count - 1], x[count - 1]
    return hj.flow_to_guard(BALL, "flight", t, x, params, integrator=ROLLED).x


CASES = ("case1", "case2", "case3")


@pytest.fixture(scope="module")
def balls():
    """Values, Jacobians and Hessians in (e, g, h0) of the three balls, from two compiled batches."""
    records = [case("F_bouncing_ball", name) for name in CASES]
    q = jnp.array([[r["e"], r["g"], r["h0"]] for r in records])
    end = jnp.array([r["t_final"] for r in records])
    count = jnp.array([r["bounces_before_t_final"] for r in records])
    # At least ten bounces are listed; the most before the end time are sixteen.
    with_values = lambda f: lambda *at: (f(*at),) * 2
    by_q, each = jax.jit(jax.vmap(jax.jacfwd(with_values(lambda q: bounces(q, 10)), has_aux=True)))(q)

    def slope(q, end, count):
        by_q, last = jax.jacfwd(with_values(ft.partial(at_end, most=16)), has_aux=True)(q, end, count)
        return by_q, (by_q, last)

    end_by_qq, (end_by_q, last) = jax.jit(jax.vmap(jax.jacfwd(slope, has_aux=True)))(q, end, count)
    return {"bounces": each, "by_q": by_q, "end": last, "end_by_q": end_by_q, "end_by_qq": end_by_qq}


@pytest.mark.medium
@pytest.mark.parametrize("i", range(3), ids=CASES)
def test_bounces(balls, i):
    record = case("F_bouncing_ball", CASES[i])
    t, x = balls["bounces"]
    assert_allclose(t[i], record["impact_times"][:10], rtol=1e-13)
    dt, dx = balls["by_q"]
    for each in record["after_k_bounces"]:
        k = each["k"] - 1
        assert_allclose(x[i, k, 1], each["v_post"], rtol=1e-12)
        # Each bounce multiplies what the one before has lost: ten times a few roundings.
        assert_allclose(dt[i, k], each["dt_k_d(e,g,h0)"], rtol=1e-11, atol=1e-13)
        assert_allclose(dx[i, k, 1], each["dv_post_d(e,g,h0)"], rtol=1e-11)


@pytest.mark.medium
@pytest.mark.parametrize("i", range(3), ids=CASES)
def test_ball_at_a_fixed_time(balls, i):
    record = case("F_bouncing_ball", CASES[i])
    value = np.array([record["y(t_final)"], record["v(t_final)"]])
    gradient = np.array([record["dy_d(e,g,h0)"], record["dv_d(e,g,h0)"]])
    hessian = np.array([record["hessian_y_(e,g,h0)"], record["hessian_v_(e,g,h0)"]])
    assert_allclose(balls["end"][i], value, rtol=0, atol=1e-12)
    assert_allclose(balls["end_by_q"][i], gradient, rtol=1e-11)
    assert_allclose(balls["end_by_qq"][i], hessian, rtol=1e-10)
