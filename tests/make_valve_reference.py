"""Compute `valve_reference.json`: the pressure relief valve to 30 digits, without JAX.

Taylor series in mpmath with 50 digits, as in `make_model_reference.py`, from equations written out here once more; an event is
Newton's method on the polynomial of its step. Run it from this folder; it takes two minutes.

- Orbits: the map from impact to impact, and from top to top where the disc does not strike the seat; multipliers from the map's
  Jacobian by central differences, without variations or saltation matrices. From the divergence of the flow, the Jacobian of the
  map from impact to impact has the determinant e^2 exp(int(-kappa - beta y1 / 2 sqrt(y3)) dt), and the other one the same with
  e = 1, to 25 digits.
- Chattering: bounces until their speed is below 1e-12; then the valve is closed, and what is left out is of the order 1e-36.
"""

import json
import pathlib

from make_model_reference import evaluate, longest, ORDER, pair, SMALL, solve, text, times
from mpmath import mp, mpf

KAPPA, DELTA, BETA, E = mpf("1.25"), mpf(10), mpf(20), mpf("0.8")


def series_of(state, q):
    """Series of (y1, y2, y3) and of the integral of y1 / 2 sqrt(y3)."""
    y1, y2, y3, w = ([each] for each in state)
    z, ratio = [], []
    for n in range(ORDER):
        # z^2 = y3, and ratio z = y1 / 2.
        z.append(mp.sqrt(y3[0]) if n == 0 else (y3[n] - mp.fsum(z[j] * z[n - j] for j in range(1, n))) / (2 * z[0]))
        ratio.append((y1[n] / 2 - mp.fsum(ratio[j] * z[n - j] for j in range(n))) / z[0])
        y2.append((-KAPPA * y2[n] - y1[n] + y3[n] - (DELTA if n == 0 else 0)) / (n + 1))
        y3.append(BETA * ((q if n == 0 else 0) - times(y1, z, n)) / (n + 1))
        y1.append(y2[n] / (n + 1))
        w.append(ratio[n] / (n + 1))
    return y1, y2, y3, w


def until(which, state, q, most=mp.inf):
    """`(state, time)` at which the coordinate `which` next falls to zero from above. `most`: the longest step."""
    t, above = mpf(0), False
    while True:
        series = series_of(state, q)
        h = min(longest(series[:3]), most)
        after = [evaluate(column, h) for column in series]
        # Within a step the coordinate may rise and fall again; look at some points of it.
        points = [evaluate(series[which], h * k / 16) for k in range(1, 17)]
        for k, value in enumerate(points):
            if above and value <= 0:
                return fallen(which, series, h * (k + mpf(1) / 2) / 16, t)
            above = value > 0
        state, t = after, t + h


def fallen(which, series, h, t):
    """The zero of the coordinate near the time `h` of the step."""
    rate = [n * c for n, c in enumerate(series[which])][1:]
    for _ in range(60):
        dh = evaluate(series[which], h) / evaluate(rate, h)
        h -= dh
        if abs(dh) < mpf(10) ** -45 * max(h, mpf(1)):
            return [evaluate(column, h) for column in series], t + h
    raise ArithmeticError("no event near the sign change")


def bounce(u, p, q):
    """From just after an impact to just after the next: `(speed, pressure, time, integral)`."""
    # Where the pressure is low the flight is nearly a parabola, of this duration.
    most = 2 * u / (DELTA - p) if p < DELTA else mp.inf
    (_, v, pressure, w), t = until(0, [mpf(0), u, p, mpf(0)], q, most)
    return -E * v, pressure, t, w


def from_top(y, p, q):
    """From one top to the next, without impact: `(lift, pressure, time, integral)`."""
    (lift, _, pressure, w), t = until(1, [y, mpf(0), p, mpf(0)], q)
    return lift, pressure, t, w


def orbit(step, guess, q, e):
    """State, period and multipliers of the fixed point of a map of two numbers."""

    def residual(a, p):
        after = step(a, p, q)
        return [after[0] - a, after[1] - p]

    a, p = solve(residual, guess)
    columns = []
    for k in range(2):
        low, high = (step(a + sign * SMALL * (k == 0), p + sign * SMALL * (k == 1), q) for sign in (-1, 1))
        columns.append([(high[j] - low[j]) / (2 * SMALL) for j in range(2)])
    trace, determinant = columns[0][0] + columns[1][1], columns[0][0] * columns[1][1] - columns[0][1] * columns[1][0]
    period, integral = step(a, p, q)[2:]
    assert abs(determinant - e**2 * mp.exp(-KAPPA * period - BETA * integral)) < mpf(10) ** -25
    multipliers = [[m.real, m.imag] for m in pair(trace, determinant)]
    return {"x": [a, p], "period": period, "trace": trace, "determinant": determinant, "multipliers": multipliers}


def reopens(q, p):
    """From the lift 0.2 at rest: the time of the first impact, its speed and pressure; the time at which the bounces end, the
    pressure then, and the time at which the valve opens again."""
    (_, v, p, _), t = until(0, [mpf("0.2"), mpf(0), p, mpf(0)], q)
    first = [t, -v, p]
    u = -E * v
    while u > mpf(10) ** -12:
        u, p, dt, _ = bounce(u, p, q)
        t += dt
    # The bounces that are left take 2 u / (1 - e)(delta - p), while the pressure rises at the rate beta q.
    rest = 2 * u / ((1 - E) * (DELTA - p))
    t, p = t + rest, p + BETA * q * rest
    return {"first": first, "ends": t, "pressure": p, "opens": t + (DELTA - p) / (BETA * q)}


def main() -> None:
    records: dict[str, dict] = {"impacts": {}, "tops": {}}
    for q, guess in (("1.5", ("1.963", "8.12")), ("3", ("2.684", "13.61")), ("5", ("2.312", "24.595"))):
        records["impacts"][q] = orbit(bounce, [mpf(each) for each in guess], mpf(q), E)
        print(q, mp.nstr(records["impacts"][q]["x"], 16), flush=True)
    for q, guess in (("8", ("6.00989", "1.776275")),):
        records["tops"][q] = orbit(from_top, [mpf(each) for each in guess], mpf(q), mpf(1))
        print(q, mp.nstr(records["tops"][q]["x"], 16), flush=True)
    q, p = mpf("0.2"), mpf(1)
    low, high = (reopens(q + sign * SMALL, p)["opens"] for sign in (-1, 1))
    records["chattering"] = reopens(q, p) | {"slope": (high - low) / (2 * SMALL)}
    print(text(records["chattering"]))
    path = pathlib.Path(__file__).parent / "valve_reference.json"
    path.write_text(json.dumps(text(records), indent=1) + "\n")


if __name__ == "__main__":
    main()
