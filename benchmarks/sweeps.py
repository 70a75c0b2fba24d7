"""How many gaits with their multipliers per second does a sweep solve, over 100 000 slopes, and on what does it depend?

The simplest walker, slopes 0.001 to 0.015, Dopri8 at 1e-12 and at the default 1e-14; each process is warm. Then: strong scaling
over devices, weak scaling in the number of gaits, the bifurcation diagram of 2 000 slopes x 1 000 strides, and a basin of
300 x 300 starts. Against SciPy and heyoka, see gaits.py, whose gaits start from a guess.

    python benchmarks/sweeps.py [--quick] [--float32]

`--devices 1,2` repeats the sweep in processes with so many devices (on a CPU: XLA_FLAGS), each of one core. `--only large` sweeps
ten million slopes into a store, and says how much memory the process takes.

A run on a quiet machine is kept in `outputs/sweeps.json`. `strides` are those of Newton's method per gait, mean and most. On one
core (`taskset -c 0 python benchmarks/sweeps.py --only sweep`) 40 200 gaits per second at 1e-12, and 17 500 at 1e-14.

`--only large` on two cores:

    store of     100000: 100000 gaits in 2.0 s, 49689 / s, 7 MiB in files, peak memory of the process 847 MiB
    store of   10000000: 10000000 gaits in 181.0 s, 55244 / s, 600 MiB in files, peak memory of the process 1130 MiB
"""

import argparse
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true")
parser.add_argument("--float32", action="store_true")
parser.add_argument("--devices", default="")
parser.add_argument("--only", default="sweep,weak,store,attractor,basin")
options = parser.parse_args()

import jax  # noqa: E402

jax.config.update("jax_enable_x64", not options.float32)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import hyjax as hj  # noqa: E402
from hyjax.models import simplest_walker as walker  # noqa: E402

slope = lambda p: p.slope
params = walker.Params(0.009)
count = 10_000 if options.quick else 100_000
tolerances = (1e-5,) if options.float32 else (1e-12, 1e-14)


def timed(call):
    """Once to compile, once for the time: seconds of both, the result, and the CPU's seconds of the second."""
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    cpu, start = os.times(), time.perf_counter()
    found = call()
    seconds = time.perf_counter() - start
    spent = os.times()
    return first, seconds, spent.user + spent.system - cpu.user - cpu.system, found


def gait(tolerance):
    integrator = hj.Integrator(rtol=tolerance, atol=tolerance)
    return hj.periodic_orbit(
        hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=integrator), walker.guess(params), params
    )


def swept(start, points, out=None):
    return hj.sweep(start, where=slope, values=np.linspace(0.001, 0.015, points), out=out, progress=False)


def row(name, seconds, cpu, found, first):
    good = found["result"].values == 0
    iterations = found["iterations"].values
    print(
        f"{name:<32}{good.sum():>8} of{good.size:>8}{good.size / seconds:>10.0f}{cpu / good.size * 1e6:>12.1f}"
        f"{iterations.mean():>8.2f}{iterations.max():>4}{np.nanmax(found['residual'].values):>10.1e}{first - seconds:>12.1f}",
        flush=True,
    )


if __name__ == "__main__":
    if options.devices:
        for devices in options.devices.split(","):
            environment = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
            # One core for each device.
            pinned = ["taskset", "-c", f"0-{int(devices) - 1}"] if sys.platform == "linux" else []
            flags = [*(["--quick"] if options.quick else []), "--only", "sweep"]
            print(f"{devices} device(s)", flush=True)
            subprocess.run([*pinned, sys.executable, __file__, *flags], env=environment, check=True)
        sys.exit()
    only = options.only.split(",")
    device = jax.local_devices()[0]
    print(f"{len(os.sched_getaffinity(0))} cores, {len(jax.local_devices())} x {device.device_kind}")
    print(
        f"{'':<32}{'gaits':>19}{'gaits / s':>10}{'CPU us each':>12}{'strides':>8}{'max':>4}{'residual':>10}{'compile, s':>12}"
    )
    if "sweep" in only:
        for tolerance in tolerances:
            start = gait(tolerance)
            first, seconds, cpu, found = timed(lambda: swept(start, count))  # noqa: B023
            row(f"in memory, {tolerance:.0e}", seconds, cpu, found, first)
    start = gait(tolerances[0])
    if "weak" in only:
        for points in (100, 1_000, 10_000, 100_000)[: 3 if options.quick else 4]:
            first, seconds, cpu, found = timed(lambda: swept(start, points))  # noqa: B023
            row(f"batch of {points}", seconds, cpu, found, first)
    if "store" in only:
        with tempfile.TemporaryDirectory() as folder:
            paths = iter(f"{folder}/{k}.zarr" for k in range(2))
            first, seconds, cpu, found = timed(lambda: swept(start, count, next(paths)))
            row("into a store", seconds, cpu, found.load(), first)
    if "large" in only:
        # Does what the process holds grow with the sweep? The result of the largest is 1.4 GB. The first sweep compiles.
        for points in (1_000, 100_000, 10_000_000):
            with tempfile.TemporaryDirectory() as folder:
                begin = time.perf_counter()
                found = swept(start, points, f"{folder}/large.zarr")
                seconds = time.perf_counter() - begin
                good = sum(int((found["result"][k : k + 10**6].values == 0).sum()) for k in range(0, points, 10**6))
                size = sum(each.stat().st_size for each in pathlib.Path(folder).rglob("*") if each.is_file())
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            print(
                f"store of {points:>10}: {good} gaits in {seconds:.1f} s, {points / seconds:.0f} / s, {size / 2**20:.0f} MiB in "
                f"files, peak memory of the process {peak / 2**10:.0f} MiB",
                flush=True,
            )
    if "attractor" in only:
        slopes, strides = np.linspace(0.009, 0.019, 200 if options.quick else 2_000), 1_000
        first, seconds, cpu, found = timed(
            lambda: hj.attractor(walker.step, start, params, where=slope, values=slopes, n_strides=strides)
        )
        print(
            f"bifurcation diagram, {len(slopes)} slopes x {strides} strides: {seconds:.1f} s, CPU {cpu:.1f} s, "
            f"{cpu / len(slopes) / strides * 1e6:.1f} us a stride; compiling {first - seconds:.1f} s"
        )
    if "basin" in only:
        points = 100 if options.quick else 300
        axes = {name: np.linspace(*bounds, points) for name, bounds in walker.plane.items()}
        low = walker.Params(0.004)
        orbit = hj.periodic_orbit(
            hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=start.integrator),
            jnp.asarray(walker.guess(low)),
            low,
        )
        first, seconds, cpu, found = timed(
            lambda: hj.basin(walker.step, low, axes=axes, initial=walker.on_section, orbits=orbit, outcomes=walker.outcomes)
        )  # fmt: skip
        print(
            f"basin, {points} x {points} starts: {seconds:.1f} s, CPU {cpu:.1f} s, {int(found['strides'].sum())} strides; "
            f"compiling {first - seconds:.1f} s"
        )
