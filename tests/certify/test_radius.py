"""The radius of the tube after a step of Euler's method: the formulas as published, in 50 digits, and their limits."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose

from hyjax._testing import phi_functions
from hyjax.certify import published_radius, sharp_radius

TAU = 2e-5
# Numbers of the order of those of a walker, of a stiff flow, and so small that the printed formulas lose all digits.
OSL = [*(sign * size for size in (1e-9, 0.0621, 1.12, 37.0, 4e3, 2e5) for sign in (-1, 1)), 0.0]


def printed(radius, t, osl, slope, disturbance):
    """The published formulas, one for each sign of lambda, as they are printed: with |W| = 2 b and gamma = 1."""
    mp = mpmath.mp
    r, t, lam, c = (mp.mpf(float(each)) for each in (radius, t, osl, slope))
    w = 2 * mp.mpf(float(disturbance))
    if lam < 0:
        e = mp.exp(lam * t)
        inner = w**2 / 4 / -lam * (e - 1) + lam * r**2 * e
        squared = c**2 / -(lam**4) * (-(lam**2) * t**2 - 2 * lam * t + 2 * e - 2)
        squared += (c * w / -lam * (-lam * t + e - 1) + lam * inner) / lam**2
    elif lam == 0:
        e = mp.exp(t)
        squared = c**2 * (-(t**2) - 2 * t + 2 * e - 2) + c * w * (-t + e - 1) + w**2 / 4 * (e - 1) + r**2 * e
    else:
        e = mp.exp(3 * lam * t)
        inner = w**2 / 4 / lam * (e - 1) + 3 * lam * r**2 * e
        squared = c**2 / lam * (-9 * lam**2 * t**2 - 6 * lam * t + 2 * e - 2)
        squared += 3 * lam * (c * w / lam * (-3 * lam * t + e - 1) + 3 * lam * inner)
        squared /= (3 * lam) ** 3
    return mp.sqrt(squared)


def undisturbed(radius, t, osl, slope):
    """The published formulas without disturbance, which are printed in another form."""
    mp = mpmath.mp
    r, t, lam, c = (mp.mpf(float(each)) for each in (radius, t, osl, slope))
    if lam < 0:
        e = mp.exp(lam * t)
        return mp.sqrt(r**2 * e + c**2 / lam**2 * (t**2 + 2 * t / lam + 2 / lam**2 * (1 - e)))
    if lam == 0:
        return mp.sqrt(r**2 * mp.exp(t) + c**2 * (-(t**2) - 2 * t + 2 * (mp.exp(t) - 1)))
    e = mp.exp(3 * lam * t)
    return mp.sqrt(r**2 * e + c**2 / (3 * lam**2) * (-(t**2) - 2 * t / (3 * lam) + 2 / (9 * lam**2) * (e - 1)))


def comparison(radius, t, osl, slope, disturbance):
    """The solution of d' = lambda d + b + C t."""
    mp = mpmath.mp
    r, t, lam, c, b = (mp.mpf(float(each)) for each in (radius, t, osl, slope, disturbance))
    if lam == 0:
        return r + b * t + c * t**2 / 2
    e = mp.exp(lam * t)
    return r * e + b * (e - 1) / lam + c * (e - 1 - lam * t) / lam**2


@pytest.fixture(autouse=True)
def digits():
    # Of the smallest lambda t, 2e-14, the printed forms lose the fourth power: 55 digits.
    with mpmath.workdps(120):
        yield


@pytest.mark.parametrize("t", [TAU, 0.5])
@pytest.mark.parametrize(
    "radius, slope, disturbance", [(1e-3, 0.4, 1e-4), (0.0, 0.4, 0.0), (0.0, 0.0, 1e-4), (0.0, 2.0, 0.3)]
)
def test_the_formulas_in_fifty_digits(t, radius, slope, disturbance):
    """All terms, and each alone, where it is not hidden by the first."""
    osl = [each for each in OSL if abs(each) * t < 200]
    # 1e-14: some 40 units in the last place. The exponent 3 lambda t of up to 600 is rounded, and its rounding is multiplied.
    digits = lambda lam: 1e-14 * (1 + abs(lam) * t)
    for lam in osl:
        given = radius, t, lam, slope, disturbance
        assert_allclose(float(published_radius(*given)), float(printed(*given)), rtol=digits(lam))
        assert_allclose(float(sharp_radius(*given)), float(comparison(*given)), rtol=digits(lam))
        if not disturbance:
            assert_allclose(float(published_radius(*given[:4])), float(undisturbed(*given[:4])), rtol=digits(lam))


def test_the_functions_phi():
    """On both sides of |z| = 1, where the series ends, and far out."""
    z = np.concatenate([s * np.concatenate([np.logspace(-12, 2, 57), [1 - 1e-15, 1, 1 + 1e-15]]) for s in (-1, 1)])
    z = np.append(z, [0.0, -1e200])
    found = phi_functions(jnp.asarray(z))
    for k, values in enumerate(found, 1):
        sums = [
            (mpmath.exp(v) - sum(v**j / mpmath.factorial(j) for j in range(k))) / v**k for v in map(mpmath.mpf, z) if v
        ]
        exact = [float(each) for each in sums]
        exact.insert(len(z) - 2, 1 / float(mpmath.factorial(k)))
        assert_allclose(values, exact, rtol=5e-15)


def test_limits_at_zero():
    """The sharp radius is continuous at lambda = 0; the published one jumps there, and grows like the root of 1/|lambda|."""
    at = lambda formula, lam: float(formula(1e-3, TAU, lam, 0.4, 1e-4))
    for tiny in (1e-300, -1e-300, 1e-12, -1e-12):
        assert_allclose(at(sharp_radius, tiny), at(sharp_radius, 0.0), rtol=1e-15)
    assert_allclose(at(sharp_radius, 0.0), 1e-3 + 1e-4 * TAU + 0.2 * TAU**2, rtol=1e-15)
    assert at(published_radius, 1e-12) > 10 * at(published_radius, 0.0)
    # Of b^2 t / |lambda|, of which the other terms are a relative 1e-1 at most.
    assert_allclose(at(published_radius, -1e-14), at(published_radius, -1e-12) * 10, rtol=0.1)


def test_the_sharp_radius_is_never_larger():
    """For random constants of either sign."""
    rng = np.random.default_rng(1)
    size = lambda low, high: 10 ** rng.uniform(low, high, 20_000)
    t = size(-6, 0)
    # exp(3 lambda t) is a number.
    osl = rng.choice([-1, 1], 20_000) * size(-6, 2) / t
    given = [jnp.asarray(each) for each in (size(-8, 0), t, osl, size(-4, 3), size(-6, 1))]
    sharp, published = sharp_radius(*given), published_radius(*given)
    assert np.all(np.isfinite(sharp)) and np.all(sharp <= published * (1 + 1e-14))
    assert np.mean(sharp < 0.9 * published) > 0.1


def test_single_precision_and_derivatives():
    given = [jnp.float32(each) for each in (1e-3, TAU, 1.12, 0.4, 1e-4)]
    for formula in (sharp_radius, published_radius):
        assert formula(*given).dtype == jnp.float32
        assert_allclose(formula(*given), formula(*map(float, given)), rtol=1e-6)
        assert formula(given[0], TAU, 1.12, 0.4).dtype == jnp.float32
    # Of delta_0 t + b t^2/2 + C t^3/6, the derivative at lambda = 0.
    assert_allclose(
        jax.grad(lambda lam: sharp_radius(1e-3, 0.1, lam, 0.4, 1e-4))(0.0), 1e-4 + 1e-4 * 0.005 + 0.4 * 1e-3 / 6
    )
