"""How long does the table of gaits over step length and step frequency take, and where do others' methods lose its digits?

`python benchmarks/gait_table.py [--quick]`. The table of Mehdizadeh and Donelan (PLOS ONE 20(12), e0338501): the powered simplest
walker on level ground, 101 step lengths and 101 step frequencies from 0.1 to 1.1; push-off and stiffness of the hip are solved
for, with multipliers and the gains of the linear-quadratic regulator once per step. In the second table the spring has two
stiffnesses, one for each sign of phi, equal in the gait and separate in the regulator: phi = 0 is an event. The relation by which
that paper chooses two stiffnesses is not known here, and in its example they are equal.

"usual method": an imitation of what is usual, not the authors' code: Runge-Kutta of order 4 and 5 at the tolerances stated, no
event where the legs pass, `fsolve`, central differences for multipliers and gains. Its error is that against hyjax at 1e-14,
whose own error is the residual of SciPy's DOP853 at 1e-13 in the last column of the first table.

Below a frequency of 0.15 the gait of the stance leg passes within 1e-5 of the upright equilibrium: a nudge of 1e-6 is no small
difference there, eight decimals do not determine the period, and near the upper step lengths the search ends at another gait.
Where a multiplier passes 1, another gait of the same length and frequency crosses this one, and the equations alone do not tell
which is which: the sweep follows tangents through the crossing.

A run is kept in `outputs/gait_table.json`.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp
from scipy.linalg import solve_discrete_are
from scipy.optimize import brentq, fsolve

import hyjax as hj
from hyjax.models import powered_walker, two_spring_walker

jax.config.update("jax_enable_x64", True)

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="21 x 21 gaits")
AXIS = np.linspace(0.1, 1.1, 21 if parser.parse_args().quick else 101)


def step_length(orbit, params):
    return 2 * jnp.sin(orbit.x[0])


def frequency(orbit, params):
    return 1 / orbit.period


def difference(orbit, params):
    return params.stiffness_behind - params.stiffness_ahead


def gains(orbit):
    return {"gain": hj.control.stride_feedback(orbit, where=lambda p: (p.push_off, p.stiffness)).gain}


def gains_of_three(orbit):
    where = lambda p: (p.push_off, p.stiffness_behind, p.stiffness_ahead)
    return {"gain": hj.control.stride_feedback(orbit, where=where).gain}


PRESCRIBED = {"step_length": (step_length, AXIS), "frequency": (frequency, AXIS)}
EQUAL = {"difference": (difference, np.zeros(1))}


def table_of(walker, record, prescribed, solve):
    """The table, and the times of the first and the second sweep, as text."""
    params = walker.Params()
    start = hj.periodic_orbit(walker.step, walker.guess(params), params)
    seconds = []
    for _ in range(2):
        begin = time.perf_counter(), time.process_time()
        table = hj.sweep(start, prescribed=prescribed, solve=solve, record=record, progress=False).load()
        seconds.append(f"{time.perf_counter() - begin[0]:.0f} s ({time.process_time() - begin[1]:.0f} s of processors)")
    return table, seconds


def field(t, x, behind, ahead):
    stiffness = behind if x[2] > 0 else ahead
    phi_accel = np.sin(x[0]) + (x[1] ** 2 - np.cos(x[0])) * np.sin(x[2]) - stiffness * x[2]
    return [x[1], np.sin(x[0]), x[3], phi_accel]


def after_strike(theta, rate, push_off):
    after = np.cos(2 * theta) * rate + push_off * np.sin(2 * theta)
    return np.array([-theta, after, -2 * theta, (1 - np.cos(2 * theta)) * after])


def by_usual_method(gait, rtol, nudge=1e-6):
    """Theta rate, stiffness, largest multiplier and gains of one gait; by `solve_ivp` without the event at phi = 0."""
    options = {"method": "RK45", "rtol": rtol, "atol": rtol / 1000}
    length, rate = float(gait["step_length"]), float(gait["frequency"])
    theta = np.arcsin(length / 2)

    def miss(z):
        start = [theta, z[0], 2 * theta, (1 - np.cos(2 * theta)) * z[0]]
        end = solve_ivp(field, (0, 1 / rate), start, args=(z[1], z[1]), **options).y[:, -1]
        return end[0] + theta, end[2] + 2 * theta

    x, stiffness = gait["x"].values, float(gait["stiffness"])
    z = fsolve(miss, [x[1] * (1 + 1e-3), stiffness * (1 + 1e-3)], xtol=1e-12)

    def strike(t, x, *_):
        return 2 * x[0] - x[2] if t > 0.7 / rate else 1.0

    strike.terminal, strike.direction = True, -1

    def stride(u):
        push_off, behind, ahead = u[4:]
        flown = solve_ivp(field, (0, 2 / rate), u[:4], events=strike, args=(behind, ahead), **options)
        if not flown.y_events[0].size:
            return np.full(4, np.nan)
        return after_strike(*flown.y_events[0][0][:2], push_off)

    push_off = -z[0] * np.tan(theta)
    u = np.array([theta, z[0], 2 * theta, (1 - np.cos(2 * theta)) * z[0], push_off, z[1], z[1]])
    slopes = [(stride(u + nudge * e) - stride(u - nudge * e)) / (2 * nudge) for e in np.eye(7)]
    a, b = np.stack(slopes[:4], axis=1), np.stack(slopes[4:], axis=1)
    if not np.all(np.isfinite(a)):
        return z[0], z[1], np.nan, np.full((3, 4), np.nan)
    try:
        p = solve_discrete_are(a, b, np.eye(4), np.eye(3))
        gain = np.linalg.solve(np.eye(3) + b.T @ p @ b, b.T @ p @ a)
    except (np.linalg.LinAlgError, ValueError):
        gain = np.full((3, 4), np.nan)
    return z[0], z[1], np.max(np.abs(np.linalg.eigvals(a))), gain


def missed(gait):
    """How far SciPy's DOP853 at 1e-13 misses the end of a gait."""
    x, k, period = gait["x"].values, float(gait["stiffness"]), 1 / float(gait["frequency"])
    end = solve_ivp(field, (0, period), x, "DOP853", args=(k, k), rtol=1e-13, atol=1e-15).y[:, -1]
    return max(abs(end[0] + x[0]), abs(end[2] + x[2]))


def period_of(theta, rate):
    """The duration of the step of the stance leg from its angle and rate after the strike."""
    end = lambda t: solve_ivp(field, (0, t), [theta, rate, 1, 0], "DOP853", args=(0, 0), rtol=1e-13, atol=1e-15).y[
        0, -1
    ]
    try:
        return brentq(lambda t: end(t) + theta, 0.1, 40)
    except ValueError:
        return np.nan


def radius_of(gaits):
    """The largest modulus of a multiplier."""
    return np.hypot(gaits["multipliers_real"], gaits["multipliers_imag"]).max("multiplier").values


def compare(gait, two):
    """Print the errors of the usual method for one gait. **Arguments:** `two`: the same gait of the table of two stiffnesses."""
    radius, gain = radius_of(gait), two["gain"].values
    print(f"  {gait['step_length']:.1f}, {gait['frequency']:.1f}: hyjax {missed(gait):.0e}; |multiplier| {radius:.4g}")
    for rtol in (1e-6, 1e-8):
        turn, stiffness, largest, usual = by_usual_method(gait, rtol)
        errors = (
            abs(turn - gait["x"].values[1]), abs(stiffness - float(gait["stiffness"])), abs(largest / radius - 1),
            np.max(np.abs(usual - gain)) / np.max(np.abs(gain)),
        )  # fmt: skip
        print(f"    {rtol:.0e}: " + " ".join(f"{each:.0e}" for each in errors))


if __name__ == "__main__":
    table, seconds = table_of(powered_walker, gains, PRESCRIBED, lambda p: (p.push_off, p.stiffness))
    found, radius = table["result"].values == 0, radius_of(table)
    compiled, again = seconds
    print(f"one stiffness: {found.sum()} of {found.size} gaits with gains; {compiled} with compilation, then {again}")
    negative = np.sum(table["stiffness"].values < 0)
    print(
        f"  {np.sum(radius > 1)} unstable, {negative} of negative stiffness; largest multiplier {np.nanmax(radius):.0f}"
    )
    for i, j in np.argwhere(~found)[:5]:
        print(f"  not found: step length {AXIS[i]:.2f}, frequency {AXIS[j]:.2f}")

    where = lambda p: (p.push_off, p.stiffness_behind, p.stiffness_ahead)
    both, (compiled, again) = table_of(two_spring_walker, gains_of_three, PRESCRIBED | EQUAL, where)
    both = both.isel(difference=0)
    print(f"two stiffnesses: {np.sum(both['result'].values == 0)} gaits with gains; {compiled}, then {again}")

    print("\nusual method: error of theta rate, stiffness; relative error of the largest multiplier, the gains")
    for length, rate in ((0.5, 0.5), (0.1, 1.1), (1.1, 1.1), (1.1, 0.2), (0.1, 0.1), (1.1, 0.1)):
        at = {"step_length": length, "frequency": rate, "method": "nearest"}
        compare(table.sel(**at), both.sel(**at))

    print("\nperiod from theta and theta rate rounded to 8 decimals, as in a printed table")
    for length, rate in ((0.5, 0.5), (0.5, 0.2), (0.1, 0.1), (0.5, 0.1), (1.1, 0.1)):
        gait = table.sel(step_length=length, frequency=rate, method="nearest")
        theta, turn = (round(each, 8) for each in gait["x"].values[:2])
        print(f"  {length:.1f}, {rate:.1f}: {period_of(theta, turn):.6f} for {1 / rate:.6f}")

    crossing = []
    for j in np.flatnonzero(AXIS > 0.35):
        sign = np.sign(radius[:, j] - 1)
        crossing += [f"({AXIS[i]:.2f}, {AXIS[j]:.2f})" for i in np.flatnonzero(sign[:-1] * sign[1:] < 0)]
    print("\na multiplier passes 1, where another gait of the same length and frequency crosses this one, as at")
    print("  " + ", ".join(crossing[:: max(1, len(crossing) // 6)]))
