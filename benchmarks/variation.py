"""What do the covariance and the Riccati equation along an orbit cost, beside its monodromy matrix? And 1 000 Kalman filters,
beside a loop over SciPy?

Each follows the orbit once: the monodromy matrix with a tangent for each coordinate, the covariance with n (n + 1) / 2 more
equations, the Riccati equation (with a given final cost; periodic; periodic and transverse) with n (2 n + 1) more, whose errors
count for the step size. All are compiled first; then they run in turn, and the ratio is that of the medians.

    python benchmarks/variation.py [--quick]

The first column is the time of the monodromy matrix; the others are ratios to it.

Then 1 000 salted Kalman filters of a bouncing ball, 100 measurements each, as one batch (with and without the test of modes, and
in a batch of one), against an extended Kalman filter in Python over `scipy.integrate.solve_ivp` with its events, state and
covariance integrated together, at the same tolerances of 1e-8. A run is kept in `outputs/variation.json`.
"""

import argparse
import os
import statistics
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import hyjax as hj
from hyjax.models import bouncing_ball, compass_gait, rimless_wheel, simplest_walker, slip

jax.config.update("jax_enable_x64", True)

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="a fifth of the runs")
KINDS = ("simulate", "covariance", "with W", "Riccati", "periodic", "transverse")
RUNS = 20 if parser.parse_args().quick else 100


def interleaved(calls):
    """The median time of each call, of runs in turn; after one that compiles."""
    times = {name: [] for name in calls}
    for call in calls.values():
        jax.block_until_ready(call())
    for _ in range(RUNS):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(each) for name, each in times.items()}


def along(model, name, integrator):
    params = model.Params()
    orbit = hj.periodic_orbit(
        hj.ReturnMap(model.system, sequence=model.sequence, integrator=integrator), model.guess(params), params
    )
    n, mode, jumps = orbit.x.size, model.sequence[0], len(model.sequence)
    sigma, w = 1e-4 * jnp.eye(n), 1e-4 * jnp.eye(n)
    options = {"mode": mode, "max_jumps": jumps, "integrator": integrator}
    one_size = len({each.dimension for each in model.system.modes.values()}) == 1
    noise = hj.noise.Noise(flow=w if one_size else {mode: w})

    @eqx.filter_jit
    def monodromy(orbit):
        return orbit.monodromy()

    @eqx.filter_jit
    def simulated(orbit):
        return hj.simulate(orbit.system, orbit.x, orbit.params, t1=orbit.period, **options, throw=False).x

    @eqx.filter_jit
    def covariance(orbit, noise):
        return hj.noise.covariance(
            orbit.system, orbit.x, sigma, orbit.params, t1=orbit.period, noise=noise, **options, throw=False
        ).sigma

    where = lambda params: jax.tree.leaves(params)[0]

    @eqx.filter_jit
    def finite(orbit):
        return hj.control.riccati(orbit, where=where, terminal_cost=jnp.eye(n)).cost

    @eqx.filter_jit
    def periodic(orbit):
        return hj.control.riccati(orbit, where=where).cost

    @eqx.filter_jit
    def transverse(orbit):
        return hj.control.riccati(orbit, where=where, transverse=True).cost

    found = interleaved({
        "monodromy": lambda: monodromy(orbit),
        "simulate": lambda: simulated(orbit),
        "covariance": lambda: covariance(orbit, None),
        "with W": lambda: covariance(orbit, noise),
        "Riccati": lambda: finite(orbit),
        "periodic": lambda: periodic(orbit),
        "transverse": lambda: transverse(orbit),
    })  # fmt: skip
    base = found["monodromy"]
    ratios = "".join(f"{found[kind] / base:>11.2f}" for kind in KINDS)
    print(f"{name:<40}{n:>4}{base * 1e6:>14.0f}{ratios}", flush=True)


STEP, GRAVITY, RESTITUTION, W, V = 0.05, 9.81, 0.7, 0.01 * np.eye(2), 0.025 * np.eye(2)
START, SIGMA = np.array([5.0, 0.0]), 0.1 * np.eye(2)


def filter_by_scipy(measurements):
    """The filter of one ball."""
    a = np.array([[0.0, 1.0], [0.0, 0.0]])

    def rate(t, z):
        sigma = z[2:].reshape(2, 2)
        return np.concatenate([[z[1], -GRAVITY], (a @ sigma + sigma @ a.T + W).ravel()])

    floor = lambda t, z: z[0]
    floor.terminal, floor.direction = True, -1

    def bounce(x, sigma):
        xi = np.array([[-RESTITUTION, 0], [-(1 + RESTITUTION) * GRAVITY / x[1], -RESTITUTION]])
        return np.array([0.0, -RESTITUTION * x[1]]), xi @ sigma @ xi.T

    t, x, sigma, means = 0.0, START, SIGMA, []
    for k, y in enumerate(measurements):
        end = STEP * (k + 1)
        while t < end:
            run = solve_ivp(rate, (t, end), np.concatenate([x, sigma.ravel()]), events=floor, rtol=1e-8, atol=1e-8)
            t, x, sigma = run.t[-1], run.y[:2, -1], run.y[2:, -1].reshape(2, 2)
            if run.status == 1:
                x, sigma = bounce(x, sigma)
        gain = sigma @ np.linalg.inv(sigma + V)
        x, left = x + gain @ (y - x), np.eye(2) - gain
        sigma = left @ sigma @ left.T + gain @ V @ gain.T
        if x[0] < 0 and x[1] < 0:
            x, sigma = bounce(x, sigma)
        means.append(x)
    return np.stack(means)


def filters(count=1000, steps=100):
    rng = np.random.default_rng(0)
    times, integrator = STEP * jnp.arange(1, steps + 1), hj.Integrator(rtol=1e-8, atol=1e-8)
    ball = bouncing_ball.Params(restitution=RESTITUTION, gravity=GRAVITY)
    fly = lambda x: (
        hj.simulate(
            bouncing_ball.system,
            x,
            ball,
            mode="flight",
            t1=STEP * steps,
            times=times,
            max_jumps=40,
            integrator=integrator,
            throw=False,
        ).samples.x
    )
    true = jax.jit(jax.vmap(fly))(jnp.asarray(START + 0.3 * rng.normal(size=(count, 2))))
    measurements = true + np.sqrt(0.025) * rng.normal(size=true.shape)

    def timed(call, runs):
        best = []
        for _ in range(runs):
            start = time.perf_counter()
            jax.block_until_ready(call())
            best.append(time.perf_counter() - start)
        return min(best)

    loop = timed(lambda: [filter_by_scipy(np.asarray(each)) for each in measurements[:5]], 1) / 5
    print(f"{'SciPy, one after the other':<50}{loop * 1e3:>12.2f} ms each")
    for name, mode_test, batch in (
        ("as one batch", False, count),
        ("with the test of modes", True, count),
        ("alone", False, 1),
    ):
        run = lambda y, mode_test=mode_test: hj.noise.kalman_filter(
            bouncing_ball.system, jnp.asarray(START), jnp.asarray(SIGMA), ball, mode="flight", times=times, measurements=y,
            observe=lambda t, x, p: x, measurement_noise=jnp.asarray(V), noise=hj.noise.Noise(flow=W), integrator=integrator,
            mode_test=mode_test, throw=False
        ).means  # fmt: skip
        compiled = jax.jit(jax.vmap(run))
        jax.block_until_ready(compiled(measurements[:batch]))
        each = timed(lambda compiled=compiled, batch=batch: compiled(measurements[:batch]), 5) / batch
        print(f"{f'{batch} {name}':<50}{each * 1e3:>12.4f} ms each{loop / each:>12.0f} x")


if __name__ == "__main__":
    print(f"{len(os.sched_getaffinity(0))} cores, {RUNS} runs each")
    print(f"{'':<40}{'n':>4}{'monodromy, us':>14}" + "".join(f"{kind:>11}" for kind in KINDS))
    for tolerance in (1e-14, 1e-8):
        integrator = hj.Integrator(rtol=tolerance, atol=tolerance)
        for model in (rimless_wheel, simplest_walker, compass_gait, slip):
            along(model, f"{model.title}, {tolerance:.0e}", integrator)
    filters()
