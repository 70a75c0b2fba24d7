"""How many times as fast is an accelerator as the CPU of the same machine?

Strides, gaits with multipliers, returns of the relief valve, a sweep of 10^6 slopes, and a basin of 4 000 x 4 000 starts, in
float64 and float32, with the memory that each takes. Each kind of device and dtype runs in a process of its own; a CPU is given
fewer lanes, and all rates are per second. On a machine without an accelerator the CPU runs alone.

    python benchmarks/gpu.py [--quick] [--platforms gpu,cpu] [--dtypes float64,float32]

The walker's strides begin within 1 % of the gait, at tolerances of 1e-10; gaits, from the model's guess, and the sweep are at
1e-12, the basin at 1e-8, all in float32 at 1e-5. A return of the valve is one of 96 to the top of the lift from (0.2, 0, 0), for
flows from 1 to 8 (see valve.py). Memory is the peak of the device's allocator, or the resident set of the process on a CPU.

Success is the part of the lanes with a result: of the strides, gaits and returns; of the basin's starts, those that are decided.
"""

import argparse
import os
import resource
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="a thousandth of the lanes")
parser.add_argument("--platforms", default="gpu,cpu")
parser.add_argument("--dtypes", default="float64,float32")
parser.add_argument("--child", help=argparse.SUPPRESS)
options = parser.parse_args()

if __name__ == "__main__" and options.child is None:
    flags = ["--quick"] if options.quick else []
    for dtype in options.dtypes.split(","):
        for platform in options.platforms.split(","):
            environment = os.environ | {"JAX_PLATFORMS": {"gpu": "cuda"}.get(platform, platform)}
            command = [sys.executable, __file__, "--child", dtype, *flags]
            if subprocess.run(command, env=environment).returncode:
                print(f"{platform}, {dtype}: no such device, or a failure: see above", flush=True)
    sys.exit()

import jax  # noqa: E402

jax.config.update("jax_enable_x64", options.child != "float32")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import hyjax as hj  # noqa: E402
from hyjax.models import relief_valve as valve, simplest_walker as walker  # noqa: E402

single = options.child == "float32"
device = jax.local_devices()[0]
on_cpu = device.platform == "cpu"
# The parts of the full numbers of lanes: a second or more of each device's time.
share = (1e-3 if options.quick else 1) * (1 / 64 if on_cpu else 1)


def tolerance(double):
    return hj.Integrator(rtol=1e-5, atol=1e-5) if single else hj.Integrator(rtol=double, atol=double)


def memory():
    """The peak in MiB."""
    known = device.memory_stats() if not on_cpu else None
    peak = known["peak_bytes_in_use"] if known else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return peak / 2**20


def row(name, count, call, good):
    """Once to compile, once for the time. `good`: the number of successes in the result, of `count`."""
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    start = time.perf_counter()
    found = call()
    seconds = time.perf_counter() - start
    print(
        f"{device.platform:<5}{'float32' if single else 'float64':<9}{name:<10}{count:>12}{seconds:>9.2f}{count / seconds:>14.0f}"
        f"{good(found) / count:>9.4f}{first - seconds:>12.1f}{memory():>10.0f}",
        flush=True,
    )


def strides():
    count = max(64, int(2**22 * share))
    params = walker.Params(slope=jnp.asarray(0.009))
    gait = hj.periodic_orbit(
        hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=tolerance(1e-12)), walker.guess(params), params
    )
    x = gait.x * (1 + 0.01 * jax.random.uniform(jax.random.key(0), (count, 4), gait.x.dtype, -1, 1))
    stride = jax.jit(
        jax.vmap(
            lambda x: hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=tolerance(1e-10))(
                x, params, throw=False
            )
        )
    )
    row("strides", count, lambda: jax.block_until_ready(stride(x)), successes)
    return gait


def gaits():
    count = max(64, int(2**20 * share))

    def one(slope):
        params = walker.Params(slope=slope)
        return hj.periodic_orbit(
            hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=tolerance(1e-12)),
            walker.guess(params),
            params,
            throw=False,
        )

    find, slopes = jax.jit(jax.vmap(one)), jnp.linspace(0.004, 0.014, count)
    row("gaits", count, lambda: jax.block_until_ready(find(slopes)), successes)


def returns():
    count, each = max(32, int(30_720 * share)), 96
    system = hj.HybridSystem(
        modes={"open": hj.Mode(valve.open_valve, valve.coordinates)},
        transitions=(hj.Transition("open", "open", guard=valve.lift, reset=valve.impact),),
    )
    params = valve.Params()
    scan = lambda: hj.attractor(
        hj.ReturnMap(system, section=valve.top, integrator=tolerance(1e-10)),
        valve.start(params)[1],
        params,
        where=lambda p: p.flow,
        values=np.linspace(1, 8, count),
        n_strides=each,
        keep=32,
    )
    row("returns", count * each, scan, lambda found: int(found["strides"].sum()))


def sweep(gait):
    count = max(64, int(10**6 * share))
    scan = lambda: hj.sweep(gait, where=lambda p: p.slope, values=np.linspace(0.004, 0.014, count))
    row("sweep", count, scan, lambda found: int((found["result"] == 0).sum()))


def basin():
    count = max(16, int(4_000 * share**0.5))
    params = walker.Params(slope=jnp.asarray(0.004))
    gait = hj.periodic_orbit(
        hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=tolerance(1e-12)), walker.guess(params), params
    )
    axes = {name: np.linspace(*bounds, count) for name, bounds in walker.plane.items()}
    outcomes = lambda: hj.basin(
        walker.step, params, axes=axes, initial=walker.on_section, orbits=gait, outcomes=walker.outcomes
    )
    decided = lambda found: int((found["outcome"] < len(found["outcome"].attrs["flag_meanings"].split()) - 1).sum())
    row("basin", count**2, outcomes, decided)


def successes(found):
    return int((found.result == hj.RESULTS.successful).sum())


if __name__ == "__main__":
    cores = len(os.sched_getaffinity(0))
    print(f"\n{device.device_kind}; {cores} cores; jax {jax.__version__}")
    print(f"{'':<24}{'number':>12}{'s':>9}{'per second':>14}{'success':>9}{'compile, s':>12}{'MiB':>10}")
    gait = strides()
    gaits()
    sweep(gait)
    returns()
    basin()
