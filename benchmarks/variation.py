"""What do the covariance and the Riccati equation along an orbit cost, beside its monodromy matrix?

Each follows the orbit once: the monodromy matrix with a tangent for each coordinate, the covariance with n (n + 1) / 2 more
equations, the Riccati equation (with a given final cost; periodic; periodic and transverse) with n (2 n + 1) more, whose errors
count for the step size. All are compiled first; then they run in turn, and the ratio is that of the medians.

    python benchmarks/variation.py [--quick]

On two cores, both in use by others at the time, a row moves by some tens of percent from run to run. The first column is the
time of the monodromy matrix; the others are ratios to it:

                                               n monodromy, us   simulate covariance     with W    Riccati   periodic transverse
    Rimless wheel, 1e-14                       2           547       0.64       0.89       0.87       0.61       0.87       1.17
    Simplest walker, 1e-14                     4           678       0.63       1.27       1.19       2.20       2.37       2.69
    Compass gait, 1e-14                        4          1242       0.44       0.98       1.03       1.54       2.00       2.52
    Running on a springy leg (SLIP), 1e-14     2           797       0.62       2.10       2.22       1.45       1.97       3.02
    Rimless wheel, 1e-08                       2           283       0.94       1.01       0.96       0.99       1.25       1.25
    Simplest walker, 1e-08                     4           630       0.73       0.91       0.87       1.33       1.92       2.24
    Compass gait, 1e-08                        4           477       0.66       0.92       0.95       1.74       2.25       2.51
    Running on a springy leg (SLIP), 1e-08     2          1020       0.55       1.48       1.01       0.84       1.31       1.75
"""

import argparse
import os
import statistics
import time

import equinox as eqx
import jax
import jax.numpy as jnp

import hyjax as hj
from hyjax.models import compass_gait, rimless_wheel, simplest_walker, slip

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
    orbit = hj.periodic_orbit(model.system, model.guess(params), params, sequence=model.sequence, integrator=integrator)
    n, mode, jumps = orbit.x.size, model.sequence[0], len(model.sequence)
    sigma, w = 1e-4 * jnp.eye(n), 1e-4 * jnp.eye(n)
    options = {"mode": mode, "max_jumps": jumps, "integrator": integrator}
    one_size = len({each.dimension for each in model.system.modes.values()}) == 1
    noise = hj.Noise(flow=w if one_size else {mode: w})

    @eqx.filter_jit
    def monodromy(orbit):
        return orbit.monodromy()

    @eqx.filter_jit
    def simulated(orbit):
        return hj.simulate(orbit.system, orbit.x, orbit.params, t1=orbit.period, **options).x

    @eqx.filter_jit
    def covariance(orbit, noise):
        return hj.covariance(orbit.system, orbit.x, sigma, orbit.params, t1=orbit.period, noise=noise, **options).sigma

    where = lambda params: jax.tree.leaves(params)[0]

    @eqx.filter_jit
    def finite(orbit):
        return hj.riccati(orbit, where=where, terminal_cost=jnp.eye(n)).cost

    @eqx.filter_jit
    def periodic(orbit):
        return hj.riccati(orbit, where=where).cost

    @eqx.filter_jit
    def transverse(orbit):
        return hj.riccati(orbit, where=where, transverse=True).cost

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


if __name__ == "__main__":
    print(f"{len(os.sched_getaffinity(0))} cores, {RUNS} runs each")
    print(f"{'':<40}{'n':>4}{'monodromy, us':>14}" + "".join(f"{kind:>11}" for kind in KINDS))
    for tolerance in (1e-14, 1e-8):
        integrator = hj.Integrator(rtol=tolerance, atol=tolerance)
        for model in (rimless_wheel, simplest_walker, compass_gait, slip):
            along(model, f"{model.title}, {tolerance:.0e}", integrator)
