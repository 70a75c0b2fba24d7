"""Print the record `B_branch` of `reference.json`: the simplest walker's gaits along their branch, by Taylor series.

Nothing here is shared with the library: 60 digits, order 50, the event by Newton's method on the Taylor polynomial, all
derivatives by central differences (of the stride at 1e-20, along the branch at 1e-12; at 1e-11 they agree to 17
digits). It finds `x0`, `T` and the spectral radius of `B_simplest_walker` again to 35 digits. Some three minutes:

    python tests/make_reference.py
"""

import json

from mpmath import cos, lu_solve, matrix, mp, mpf, sin, sqrt
from reference import exact

mp.dps = 60
ORDER = 50


def product(a, b, k):
    """Coefficient `k` of the product of two series."""
    return sum(a[i] * b[k - i] for i in range(k + 1))


def append_sine(s, c, x):
    """The next coefficients of s = sin x and c = cos x, from s' = c x' and c' = -s x'."""
    n = len(s)
    moved = [sum(i * x[i] * f[n - i] for i in range(1, n + 1)) / n for f in (c, s)]
    s.append(moved[0])
    c.append(-moved[1])


def series(x, slope):
    """Taylor coefficients of theta, theta', phi, phi'."""
    theta, rate, phi, phi_rate = ([each] for each in x)
    s, c = [sin(theta[0] - slope)], [cos(theta[0] - slope)]
    sin_phi, cos_phi = [sin(phi[0])], [cos(phi[0])]
    pull = []
    for k in range(ORDER):
        pull.append(product(rate, rate, k) - c[k])
        accel = s[k] + product(pull, sin_phi, k)
        theta.append(rate[k] / (k + 1))
        phi.append(phi_rate[k] / (k + 1))
        rate.append(s[k] / (k + 1))
        phi_rate.append(accel / (k + 1))
        append_sine(s, c, theta)
        append_sine(sin_phi, cos_phi, phi)
    return theta, rate, phi, phi_rate


def at(coefficients, h):
    total = mpf(0)
    for each in reversed(coefficients):
        total = total * h + each
    return total


def zero_before(coefficients, h):
    """Where a polynomial that is positive at 0 and not at `h` vanishes."""
    slope = [k * each for k, each in enumerate(coefficients)][1:]
    low, high = mpf(0), h
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if at(coefficients, middle) > 0 else (low, middle)
    for _ in range(6):
        low -= at(coefficients, low) / at(slope, low)
    return low


def stride(theta, rate, slope):
    """Angle and rate of the stance leg after the next strike, and the time it takes."""
    x = [theta, rate, 2 * theta, (1 - cos(2 * theta)) * rate]
    t, above = mpf(0), False
    while True:
        x_series = series(x, slope)
        last = max(abs(each[-1]) for each in x_series)
        h = min((mpf(10) ** (2 - mp.dps) / last) ** (mpf(1) / ORDER), mpf("0.5"))
        guard = [2 * a - b for a, b in zip(x_series[0], x_series[2], strict=True)]
        after = at(guard, h)
        if above and after <= 0:
            h = zero_before(guard, h)
            theta, rate = at(x_series[0], h), at(x_series[1], h)
            return -theta, cos(2 * theta) * rate, t + h
        above = above or after > mpf("1e-6")
        x, t = [at(each, h) for each in x_series], t + h


def jacobian(theta, rate, slope):
    d = mpf("1e-20")
    columns = []
    for dt, dr in ((d, 0), (0, d)):
        ahead, behind = stride(theta + dt, rate + dr, slope), stride(theta - dt, rate - dr, slope)
        columns.append([(a - b) / (2 * d) for a, b in zip(ahead[:2], behind[:2], strict=True)])
    return matrix(columns).T


def gait(theta, rate, slope):
    """`x0` (4 numbers), `T`, the multipliers (real and imaginary part, or both if real), the spectral radius."""
    step = [1]
    while max(abs(each) for each in step) > mpf("1e-38"):
        found = stride(theta, rate, slope)
        step = lu_solve(jacobian(theta, rate, slope) - mp.eye(2), matrix([theta - found[0], rate - found[1]]))
        theta, rate = theta + step[0], rate + step[1]
    j = jacobian(theta, rate, slope)
    half, determinant = (j[0, 0] + j[1, 1]) / 2, j[0, 0] * j[1, 1] - j[0, 1] * j[1, 0]
    root = sqrt(abs(half**2 - determinant))
    pair = [half, root, sqrt(determinant)] if half**2 < determinant else [half + root, half - root, half + root]
    x = [theta, rate, 2 * theta, (1 - cos(2 * theta)) * rate]
    return [*x, stride(theta, rate, slope)[2], *pair]


def branch(record):
    theta, rate, slope, h = mpf(record["x0"][0]), mpf(record["x0"][1]), mpf(record["gamma"]), mpf("1e-12")
    behind, here, ahead = (gait(theta, rate, slope + k * h) for k in (-1, 0, 1))
    first = [mp.nstr((b - a) / (2 * h), 18) for a, b in zip(behind, ahead, strict=True)]
    second = [mp.nstr((a - 2 * m + b) / h**2, 18) for a, m, b in zip(behind, here, ahead, strict=True)]
    out = {}
    for name, values in (("d", first), ("d2", second)):
        out |= {f"{name}x0": values[:4], f"{name}T": values[4], f"{name}eig": values[5:7], f"{name}rho": values[7]}
    return out


if __name__ == "__main__":
    print(json.dumps({name: branch(record) for name, record in exact("B_simplest_walker").items()}, indent=1))
