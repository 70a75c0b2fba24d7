"""What does an iteration of a fit cost, beside a simulation of its record? And a fit, beside least squares of SciPy?

Gravity and restitution of a ball, or gravity alone, from ten times of impact with noise. The flow is a jitted simulation of the
ten impacts; a fit is jitted too, and so are a thousand in a batch. SciPy's is `least_squares` over `solve_ivp` with events,
bounce by bounce, at the loosest tolerance of four whose estimate is as near to that of the closed form as the estimate of hyjax.
An arc of free fall is one step for SciPy. Processor time, medians. The time to compile is that of a first call in a fresh
process, without a cache, less the import: of a simulation, of its gradient by both parameters, and of fits.

    python benchmarks/fit.py [--quick]

A run is kept in `outputs/fit.json`.
"""

import argparse
import pathlib
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate
import scipy.optimize

import hyjax as hj
from hyjax.models import bouncing_ball as ball

jax.config.update("jax_enable_x64", True)

IMPACTS, SIGMA = 10, 2e-3
START = jnp.array([1.0, 0.0])
GUESSES = {"g and e": ball.Params(0.75, 9.0), "g": ball.Params(0.8, 9.0)}
lenses = {"g and e": lambda p: (p.gravity, p.restitution), "g": lambda p: p.gravity}


def impacts(g, e):
    """The closed form, from a height of 1."""
    return np.sqrt(2 / g) * (1 + 2 * np.cumsum(np.append(0, e ** np.arange(1, IMPACTS))))


def recorded(sets):
    """Times of impact with noise."""
    return impacts(9.81, 0.8) + SIGMA * np.random.default_rng(0).standard_normal((sets, IMPACTS))


def closed_form(times, name):
    """The estimate by the closed form."""
    of = (lambda p: impacts(*p)) if name == "g and e" else (lambda p: impacts(p[0], 0.8))
    guess = [9.0, 0.75][: 2 if name == "g and e" else 1]
    return scipy.optimize.least_squares(lambda p: (times - of(p)) / SIGMA, guess, xtol=1e-15, ftol=1e-15, gtol=1e-15).x


def fit(times, name, **options):
    found = hj.fit(
        ball.system, times, GUESSES[name], over=lenses[name], x0=START, mode="flight", noise=SIGMA, throw=False, **options
    )  # fmt: skip
    return found.values, found.iterations


def fit_of_map(times, name):
    """The same, where the sequence of modes is known: a map from impact to impact."""
    falls, data = hj.ReturnMap(ball.system, sequence=("flight",)), {"time": times}
    found = hj.fit(falls, data, GUESSES[name], over=lenses[name], x0=START, noise={"time": SIGMA}, throw=False)
    return found.values, found.iterations


def simulation(params):
    """The record of the model: ten impacts."""
    run = hj.simulate(ball.system, START, params, mode="flight", t1=4.0, max_jumps=IMPACTS - 1, throw=False)
    return run.end_times[-1]


def by_scipy(times, name, rtol):
    """The estimate, and how many records were simulated."""
    count = 0

    def residuals(p):
        nonlocal count
        count += 1
        g, e = (p[0], p[1]) if name == "g and e" else (p[0], 0.8)
        x, t, found = np.array([1.0, 0.0]), 0.0, []
        falls = lambda t, x: x[0]
        falls.terminal, falls.direction = True, -1
        for _ in range(IMPACTS):
            flow = scipy.integrate.solve_ivp(
                lambda t, x: [x[1], -g], (t, t + 10), x, method="DOP853", rtol=rtol, atol=rtol, events=falls
            )  # fmt: skip
            t = flow.t_events[0][0]
            found.append(t)
            x = np.array([0.0, -e * flow.y_events[0][0][1]])
        return (times - np.array(found)) / SIGMA

    guess = [9.0, 0.75][: 2 if name == "g and e" else 1]
    return scipy.optimize.least_squares(residuals, guess, x_scale=guess, xtol=1e-12, ftol=1e-12, gtol=1e-12).x, count


def cpu_time(call, rounds):
    jax.block_until_ready(call())
    spent = []
    for _ in range(rounds):
        start = time.process_time()
        jax.block_until_ready(call())
        spent.append(time.process_time() - start)
    return np.median(spent)


def compare(name, rounds):
    times = recorded(1)[0]
    exact, at = closed_form(times, name), jnp.asarray(times)
    flow, fitted, params = jax.jit(simulation), jax.jit(lambda times: fit(times, name)), ball.Params()
    # Many at once, so that the clock is fine enough.
    one = cpu_time(lambda: [flow(params) for _ in range(50)], rounds) / 50
    whole = cpu_time(lambda: [fitted(at) for _ in range(20)], rounds) / 20
    values, count = fitted(at)
    error = np.max(np.abs(values / exact - 1))
    print(f"\n{name}: a flow {one * 1e3:.3f} ms; a fit {whole * 1e3:.2f} ms, {int(count)} evaluations with Jacobians")
    print(f"  an iteration {whole / int(count) / one:.1f} flows; relative error of the estimate {error:.0e}")
    eager = cpu_time(lambda: [fit(at, name) for _ in range(20)], rounds) / 20
    print(f"  outside of jit, with the checks of its data, {eager * 1e3:.2f} ms")
    passes = jax.jit(lambda times: fit_of_map(times, name))
    known = cpu_time(lambda: [passes(at) for _ in range(20)], rounds) / 20
    off = np.max(np.abs(passes(at)[0] / exact - 1))
    print(f"  as passes of a map {known * 1e3:.2f} ms, error {off:.0e}: {whole / known:.1f} times as fast")
    for rtol in (1e-6, 1e-8, 1e-10, 1e-12):
        start = time.process_time()
        theirs, records = by_scipy(times, name, rtol)
        spent, off = time.process_time() - start, np.max(np.abs(theirs / exact - 1))
        print(
            f"  SciPy, rtol {rtol:.0e}: {spent:.2f} s, {records} records, error {off:.0e}: {spent / whole:.0f} times as long, "
            f"{spent / known:.0f} times that of the map"
        )
        if off <= max(error, 1e-11):
            break
    sets = jnp.asarray(recorded(1000))
    every = jax.jit(jax.vmap(lambda times: fit(times, name)))
    batch = cpu_time(lambda: every(sets), 3)
    print(
        f"  1000 data sets at once: {batch:.2f} s, {batch:.2f} ms each, {whole * 1e3 / batch:.1f} times as fast as one by one"
    )


FIRST = {
    "a simulation": "jax.block_until_ready(simulation(ball.Params()))",
    "its gradient": "jax.block_until_ready(jax.grad(lambda p: simulation(p))(ball.Params()))",
    "a fit": "jax.block_until_ready(fit(times, 'g and e'))",
    "a fit, multiple shooting": "jax.block_until_ready(fit(times, 'g and e', shooting=hj.MultipleShooting()))",
}


def first_calls(names):
    for name in names:
        code = (
            "import sys, time; sys.argv = ['fit.py']\nfrom fit import *\n"
            "times = jnp.asarray(recorded(1)[0]); jnp.linalg.eigvals(jnp.eye(3) @ jnp.eye(3))\n"
            f"begin = time.process_time(); {FIRST[name]}; print(time.process_time() - begin)"
        )
        folder = pathlib.Path(__file__).parent
        run = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
        print(f"{name:<26}{float(run.stdout.split()[-1]):>6.1f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="gravity and restitution only")
    quick = parser.parse_args().quick
    print("processor seconds of a first call, with compilation")
    first_calls(list(FIRST)[:3] if quick else FIRST)
    for name in list(lenses)[: 1 if quick else 2]:
        compare(name, 3 if quick else 9)
