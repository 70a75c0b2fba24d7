"""What data determine, in words; parameters that they do not determine; a chaotic record of what is measured after events."""

import re

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import undetermined_words

NAMES, VALUES = ("a", "b", "c", "d"), np.array([1.1, 2.3, 0.7, 3.0])


def loose_by(functions):
    """The projector onto relative changes that change none of the functions of the logarithms."""
    slopes = np.array([jax.grad(lambda logs, f=f: f(*jnp.exp(logs)))(jnp.log(VALUES)) for f in functions])
    null = np.linalg.svd(slopes)[2][np.linalg.matrix_rank(slopes) :]
    return null.T @ null


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ([lambda a, b, c, d: a / b], ["nothing about c", "nothing about d", "a and b only by their ratio"]),
        ([lambda a, b, c, d: a * b + c], ["nothing about d", "a, b and c only by the combination"]),
        ([lambda a, b, c, d: a * b, lambda a, b, c, d: c / d], ["c and d .* their ratio", "a and b .* their product"]),
        ([lambda a, b, c, d: a / b**2, lambda a, b, c, d: c + d], ["c and d only by c [+] d", "a and b only by a/b.2"]),
        ([lambda a, b, c, d: c - 2 * a, lambda a, b, c, d: d, lambda a, b, c, d: b], ["a and c only by 2a - c"]),
        ([lambda a, b, c, d: a**3 * b**2 / c, lambda a, b, c, d: d], ["a, b and c only by a.3[*]b.2/c"]),
        ([lambda a, b, c, d: a / c, lambda a, b, c, d: b / c, lambda a, b, c, d: d], ["a, b and c only by their ratios"]),
        ([lambda a, b, c, d: a + b * d, lambda a, b, c, d: c * d], ["all but the combination"] * 2),
        ([lambda a, b, c, d: a + 2 * b - c + 3 * d], ["a, b, c and d only by a [+] 2b - c [+] 3d"]),
    ],
)  # fmt: skip
def test_what_the_data_determine_in_words(functions, words):
    found = undetermined_words(loose_by(functions), NAMES, VALUES)
    assert len(found) == len(words)
    for each in words:
        assert any(re.match(each, own) for own in found), (each, found)


def clock_of(rate):
    """x' = rate from 0 to 1."""
    return hj.HybridSystem(
        {"m": hj.Mode(lambda t, x, p: rate(p) + 0 * x, ("x",))},
        (hj.Transition("m", "m", lambda t, x, p: 1 - x[0], lambda t, x, p: 0 * x),),
    )


@pytest.mark.medium
def test_what_is_not_determined_stays_at_its_guess():
    """Rounding moves no combination of parameters that the data do not determine, so that the search ends as soon as with the
    others alone, and at the least squares: of times k / (a b) these are T = sum(k t) / sum(k^2)."""
    product, draw, k = clock_of(lambda p: p["a"] * p["b"]), np.random.default_rng(0), np.arange(1, 6)
    guess = {"a": jnp.array(1.0), "b": jnp.array(2.0), "c": jnp.array(0.7)}
    for _ in range(8):
        times = k / 2 + 1e-3 * draw.standard_normal(5)
        found = hj.fit(
            product, times, guess, over=lambda p: (p["a"], p["b"], p["c"]), x0=jnp.zeros(1), mode="m", noise=1e-3,
            throw=False,
        )  # fmt: skip
        assert found.result == "undetermined" and found.iterations <= 4
        assert found.undetermined == ["nothing about c", "a and b only by their product"]
        assert_allclose(found.values[0] * found.values[1], (k @ k) / (k @ times), rtol=1e-9)
        # Along the gradient of the product, relative to both.
        assert_allclose(found.values[0] / found.values[1], 0.5, rtol=1e-6)
        assert found.values[2] == 0.7


@pytest.mark.medium
def test_a_valley_that_bends():
    """Misra1a of NIST's Statistical Reference Datasets, from its farther start, with errors of a correlation of -0.999: the
    values certified there to eleven digits. The steps along tangents alone are 43."""
    law = lambda t, x, p: p[0] * (1 - jnp.exp(-p[1] * t))
    still = hj.HybridSystem({"m": hj.Mode(lambda t, x, p: 0 * x, ("x",))}, ())
    time = [77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3, 536.8, 593.1, 689.1, 760.0]
    y = [10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05, 61.01, 66.40, 75.47, 81.78]
    found = hj.fit(
        still,
        {"time": time, "y": y},
        jnp.array([500.0, 1e-4]),
        over=lambda p: p,
        x0=jnp.zeros(1),
        mode="m",
        observe={"y": law},
    )
    assert found.iterations <= 20
    assert_allclose(found.values, [2.3894212918e2, 5.5015643181e-4], rtol=1e-10)
    assert_allclose(found.standard_errors, [2.7070075241, 7.2668688436e-6], rtol=1e-9)


LOGISTIC = hj.HybridSystem(
    {"m": hj.Mode(lambda t, x, p: jnp.stack([0 * x[0], 1 + 0 * x[1]]), ("x", "clock"))},
    (hj.Transition("m", "m", lambda t, x, p: 1 - x[1], lambda t, x, p: jnp.stack([p * x[0] * (1 - x[0]), 0 * x[1]])),),
)


@pytest.mark.medium
def test_a_chaotic_record_of_states_after_events():
    """Free states begin where the data say: 25 values of the logistic map at r = 3.9, of which an error doubles from one to the
    next; guesses are off by half a percent. By Gauss and Newton's method in 40 digits."""
    count, draw = 25, np.random.default_rng(0)
    values, x = [], 0.3
    for _ in range(count):
        x = 3.9 * x * (1 - x)
        values.append(x)
    seen = np.array(values) + 1e-3 * draw.standard_normal(count)
    found = hj.fit(
        LOGISTIC, {"time": np.arange(1.0, count + 1), "event": "*", "x": seen}, jnp.array(3.88), over=lambda p: p, mode="m",
        x0=(lambda s, p: jnp.stack([s[0], 0 * s[0]]), jnp.array([0.31])), noise={"time": 1e-3, "x": 1e-3},
        shooting=hj.MultipleShooting(), throw=False,
    )  # fmt: skip
    assert found.result == "successful" and found.degrees == 2 * count - 2
    with mpmath.workdps(40):
        u = mpmath.matrix([mpmath.mpf(float(found.values[0])), mpmath.mpf(float(found.start_values[0, 0]))])
        for _ in range(5):
            (r, x), by_r, by_x = u, mpmath.mpf(0), mpmath.mpf(1)
            jacobian, off = mpmath.matrix(count, 2), mpmath.matrix(count, 1)
            for k in range(count):
                by_r, by_x = x * (1 - x) + r * (1 - 2 * x) * by_r, r * (1 - 2 * x) * by_x
                x = r * x * (1 - x)
                jacobian[k, 0], jacobian[k, 1], off[k] = by_r, by_x, mpmath.mpf(float(seen[k])) - x
            normal = jacobian.T * jacobian
            u += mpmath.lu_solve(normal, jacobian.T * off)
        exact, variance = float(u[0]), float((normal**-1)[0, 0]) * 1e-6
    # The gaps of free states, relative to the states: 1e-11.
    assert_allclose(found.values[0], exact, rtol=1e-10)
    assert_allclose(found.covariance[0, 0], variance, rtol=1e-8)
