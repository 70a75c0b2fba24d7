"""Compute `model_reference.json`: orbits of the impact oscillator and of SLIP to 30 digits, without JAX.

Taylor series in mpmath with 50 digits, of order 60, from equations written out here once more. Each map is smooth between
events; an event is Newton's method on the polynomial of its step. Run it from this folder; it takes some minutes.

- Oscillator: from just after the impact at phase `t`, with speed `u` away from the wall, once around. The monodromy matrix is
  the product of variational equations and saltation matrix (Kong et al. 2024, eq. 9); its determinant is
  e^2 exp(-2 zeta T), to 40 digits. The stroboscopic map by central differences has the same trace.
- SLIP: the apex map, its derivative by central differences. Energy is conserved to 40 digits.
- Derivatives of orbits in parameters: central differences of orbits that were solved anew.
"""

import json
import pathlib

from mpmath import mp, mpf

mp.dps = 50
ORDER, SMALL = 60, mpf(10) ** -16


def times(a, b, n):
    """Coefficient n of the product of two series."""
    return mp.fdot((a[j], b[n - j]) for j in range(n + 1))


def evaluate(series, h):
    total = mpf(0)
    for coefficient in reversed(series):
        total = total * h + coefficient
    return total


def longest(columns):
    """A step that keeps the last terms below rounding (Jorba and Zou, 2005)."""
    size = max(max(abs(c[0]) for c in columns), mpf(1))
    radius = min((size / max(abs(c[n]) for c in columns)) ** (mpf(1) / n) for n in (ORDER - 1, ORDER))
    return radius / mp.e**2 * mpf("0.8")


# Impact oscillator


def duffing(t, state, p):
    """Series of (x, x') and of two variations (a, a'), (b, b')."""
    x, v, a, av, b, bv = ([each] for each in state)
    angle = p["frequency"] * t
    wave = [p["force"] * p["frequency"] ** n * mp.cos(angle + n * mp.pi / 2) / mp.factorial(n) for n in range(ORDER)]
    square = []
    for n in range(ORDER):
        square.append(times(x, x, n))
        cube = times(square, x, n)
        v.append((-2 * p["damping"] * v[n] - x[n] - p["cubic"] * cube + wave[n]) / (n + 1))
        for y, rate in ((a, av), (b, bv)):
            bend = 3 * p["cubic"] * times(square, y, n)
            rate.append((-2 * p["damping"] * rate[n] - y[n] - bend) / (n + 1))
            y.append(rate[n] / (n + 1))
        x.append(v[n] / (n + 1))
    return x, v, a, av, b, bv


def drift(t, state, t1, p):
    """The oscillator without its wall, from t to t1, forwards or backwards."""
    while t != t1:
        series = duffing(t, state, p)
        h = min(longest(series), abs(t1 - t))
        last = h == abs(t1 - t)
        step = h if t1 > t else -h
        state = [evaluate(column, step) for column in series]
        t = t1 if last else t + step
    return state


def wall(t, p):
    """Position, velocity and acceleration of the wall."""
    a, omega = p["wall_amplitude"], p["frequency"]
    return (
        p["wall"] + a * mp.sin(omega * t),
        a * omega * mp.cos(omega * t),
        -a * omega**2 * mp.sin(omega * t),
    )


UNIT = [mpf(1), mpf(0), mpf(0), mpf(1)]


def around(t, u, p):
    """From just after one impact to just before the next: residuals, and the state before it with its variations."""
    place, rate, _ = wall(t, p)
    end = drift(t, [place, rate - u, *UNIT], t + 2 * mp.pi / p["frequency"], p)
    return [end[0] - place, u - p["restitution"] * (end[1] - rate)], end


def solve(residual, guess):
    """Newton's method with a Jacobian by differences: it squares the error while that is above 1e-24."""
    q = mp.matrix(guess)
    for _ in range(12):
        r = mp.matrix(residual(*q))
        columns = []
        for k in range(len(q)):
            moved = q.copy()
            moved[k] += mpf(10) ** -25
            columns.append((mp.matrix(residual(*moved)) - r) * mpf(10) ** 25)
        jacobian = mp.matrix(len(q))
        for k, column in enumerate(columns):
            jacobian[:, k] = column
        q -= mp.lu_solve(jacobian, r)
        if mp.norm(r, mp.inf) < mpf(10) ** -38:
            return list(q)
    raise ArithmeticError("no orbit near the guess")


def pair(trace, determinant):
    """Eigenvalues of a 2x2 matrix, as sums."""
    root = mp.sqrt(mp.mpc(trace**2 / 4 - determinant))
    return [trace / 2 + root, trace / 2 - root]


def oscillator(guess, p):
    """Impact phase, start at t = 0, period, multipliers."""
    t, u = solve(lambda t, u: around(t, u, p)[0], guess)
    period = 2 * mp.pi / p["frequency"]
    x, v, a, av, b, bv = around(t, u, p)[1]
    _, wall_rate, wall_accel = wall(t, p)
    e = p["restitution"]
    accel = lambda x, v: -2 * p["damping"] * v - x - p["cubic"] * x**3 + p["force"] * mp.cos(p["frequency"] * t)
    after = -e * v + (1 + e) * wall_rate
    # g = w(t) - x and R = (x, -e v + (1 + e) w').
    flow = mp.matrix([[a, b], [av, bv]])
    reset = mp.matrix([[1, 0], [0, -e]])
    slip = mp.matrix([after, accel(x, after)]) - reset * mp.matrix([v, accel(x, v)])
    slip -= mp.matrix([0, (1 + e) * wall_accel])
    saltation = reset + slip * mp.matrix([[-1, 0]]) / (wall_rate - v)
    monodromy = saltation * flow
    trace, determinant = monodromy[0, 0] + monodromy[1, 1], mp.det(monodromy)
    assert abs(determinant - e**2 * mp.exp(-2 * p["damping"] * period)) < mpf(10) ** -40
    place, rate, _ = wall(t, p)
    x0 = drift(t, [place, rate - u, *UNIT], period, p)[:2]
    return {"phase": t, "x0": x0, "period": period, "trace": trace, "determinant": determinant}


def stroboscopic(x, v, guess, p):
    """The map from t = 0 to T through one impact, which is near the time `guess`."""
    state = drift(mpf(0), [x, v, *UNIT], mpf(guess), p)
    t = mpf(guess)
    for _ in range(10):
        place, rate, _ = wall(t, p)
        dt = (place - state[0]) / (state[1] - rate)
        if abs(dt) < mpf(10) ** -45:
            break
        state, t = drift(t, state, t + dt, p), t + dt
    place, rate, _ = wall(t, p)
    e = p["restitution"]
    state = [state[0], -e * state[1] + (1 + e) * rate, *UNIT]
    return drift(t, state, 2 * mp.pi / p["frequency"], p)[:2]


# SLIP


def stance(state, stiffness):
    """Series of (x, y, x', y')."""
    x, y, u, v = ([each] for each in state)
    square, inverse = [], []
    for n in range(ORDER):
        square.append(times(x, x, n) + times(y, y, n))
        if n == 0:
            inverse.append(1 / mp.sqrt(square[0]))
        else:
            # q = s^a obeys s q' = a s' q.
            total = mp.fdot(((j * mpf("-0.5") - (n - j)) * square[j], inverse[n - j]) for j in range(1, n + 1))
            inverse.append(total / (n * square[0]))
        u.append((stiffness * (times(inverse, x, n) - x[n])) / (n + 1))
        v.append((stiffness * (times(inverse, y, n) - y[n]) - (n == 0)) / (n + 1))
        x.append(u[n] / (n + 1))
        y.append(v[n] / (n + 1))
    return x, y, u, v


def apex(y, p):
    """From apex to apex: height and duration."""
    energy, landing = p["energy"], mp.sin(p["attack_angle"])
    falling = mp.sqrt(2 * (y - landing))
    state = [-mp.cos(p["attack_angle"]), landing, mp.sqrt(2 * (energy - y)), -falling]
    t, compressed = falling, False
    while True:
        series = stance(state, p["stiffness"])
        h = longest(series)
        after = [evaluate(column, h) for column in series]
        stretched = after[0] ** 2 + after[1] ** 2 > 1
        if compressed and stretched:
            break
        compressed, state, t = True, after, t + h
    for _ in range(12):
        x, y, u, v = (evaluate(column, h) for column in series)
        dh = (x**2 + y**2 - 1) / (2 * (x * u + y * v))
        h -= dh
        if abs(dh) < mpf(10) ** -45:
            break
    assert abs((u**2 + v**2) / 2 + y - energy) < mpf(10) ** -40
    return y + v**2 / 2, t + h + v


def runner(guess, p):
    (y,) = solve(lambda y: [apex(y, p)[0] - y], [guess])
    multiplier = (apex(y + SMALL, p)[0] - apex(y - SMALL, p)[0]) / (2 * SMALL)
    return {"x0": [y, mpf(0)], "period": apex(y, p)[1], "multiplier": multiplier}


# What is written

OSCILLATORS = {
    "driven, moving wall": (
        dict(damping=0.05, cubic=0.5, force=0.9, frequency=1.9, wall=0.7, wall_amplitude=0.1, restitution=0.75),
        [(0.374, 1.648), (1.595, 0.702)],
    ),
    "linear, wall at rest": (
        dict(damping=0.1, cubic=0.0, force=1.2, frequency=2.5, wall=0.0, wall_amplitude=0.0, restitution=0.6),
        [(1.055, 0.4776)],
    ),
    "hardening, wall at rest": (
        dict(damping=0.03, cubic=1.4, force=1.2, frequency=3.2, wall=0.0, wall_amplitude=0.0, restitution=0.7),
        [(0.252, 1.753), (0.8106, 1.0014), (0.9389, 0.2021)],
    ),
    "not driven, moving wall": (
        dict(damping=0.1, cubic=0.3, force=0.0, frequency=2.2, wall=0.3, wall_amplitude=0.25, restitution=0.85),
        [(1.2758, 1.828), (1.8388, 1.3001)],
    ),
}
RUNNERS = {
    "flat and high": (dict(stiffness=30.0, attack_angle=1.2, energy=2.25), [1.1929, 0.97535]),
    "slow": (dict(stiffness=20.0, attack_angle=1.15, energy=2.0), [1.114, 0.936]),
    "soft and steep": (dict(stiffness=12.0, attack_angle=1.36, energy=2.8), [2.65]),
}


def text(value):
    if isinstance(value, dict):
        return {key: text(each) for key, each in value.items()}
    return [text(each) for each in value] if isinstance(value, list) else mp.nstr(value, 30)


def slopes(orbit, guess, p, names):
    """Derivatives of what `orbit` returns, by central differences in the parameters."""
    found = {}
    for name in names:
        low, high = (orbit(guess, p | {name: p[name] + sign * SMALL}) for sign in (-1, 1))
        found[name] = {
            key: [(b - a) / (2 * SMALL) for a, b in zip(low[key], high[key], strict=True)]
            if isinstance(low[key], list)
            else (high[key] - low[key]) / (2 * SMALL)
            for key in low
        }
    return found


def main() -> None:
    records: dict[str, dict] = {"duffing_impact_oscillator": {}, "slip": {}}
    for name, (values, guesses) in OSCILLATORS.items():
        p, orbits = {key: mpf(value) for key, value in values.items()}, []
        for guess in guesses:
            found = oscillator(guess, p)
            start, phase = found["x0"], found["phase"]
            for k in range(2):  # the diagonal of the stroboscopic map's Jacobian
                moved = [[s + sign * SMALL * (j == k) for j, s in enumerate(start)] for sign in (-1, 1)]
                low, high = (stroboscopic(*each, phase, p) for each in moved)
                found.setdefault("diagonal", []).append((high[k] - low[k]) / (2 * SMALL))
            assert abs(mp.fsum(found["diagonal"]) - found["trace"]) < mpf(10) ** -27
            found["multipliers"] = [[m.real, m.imag] for m in pair(found["trace"], found["determinant"])]
            if guess is guesses[0] and name == "driven, moving wall":
                found["slopes"] = slopes(oscillator, [phase, guess[1]], p, list(p))
            orbits.append(text(found))
            print(name, mp.nstr(start, 16), [mp.nstr(mp.mpc(*m), 16) for m in found["multipliers"]], flush=True)
        records["duffing_impact_oscillator"][name] = {"params": values, "orbits": orbits}
    for name, (values, guesses) in RUNNERS.items():
        p, orbits = {key: mpf(value) for key, value in values.items()}, []
        for guess in guesses:
            found = runner(guess, p)
            if name == "flat and high":
                found["slopes"] = slopes(runner, found["x0"][0], p, list(p))
            orbits.append(text(found))
            print(name, orbits[-1]["x0"][0], orbits[-1]["multiplier"], flush=True)
        records["slip"][name] = {"params": values, "orbits": orbits}
    path = pathlib.Path(__file__).parent / "model_reference.json"
    path.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
