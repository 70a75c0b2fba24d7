"""How long does one stride of the simplest walker take, alone and in batches, at the same achieved error?

Slope 0.009; each stride starts within 1 % of the stable gait, from a state of its own. The error is the largest
component of the state after impact, over all starts compared, against heyoka in 80-bit arithmetic. Each tool gets the
loosest tolerance (two to a decade) whose error is below the target; of hyjax's two solvers the faster counts (batches
above 1 000: Dopri8 only), of XLA's vectors the faster width, and in large batches the better of `jax.vmap` over all and
`jax.lax.map` over blocks of 1 000; of heyoka's numbers of vectors the fastest. The column of compilation is the time of
the first call; it is not part of the others. XLA spreads a large batch over all cores, SciPy and heyoka run here on
one; for one core each, on Linux: `taskset -c 0 python benchmarks/strides.py`.

    python benchmarks/strides.py [--quick]

A run on a quiet machine is kept in `outputs/strides.json`.
"""

import argparse
import functools as ft
import itertools
import os
import time
import timeit

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from peers import exact_strides, HeyokaBatches, HeyokaLoop, near_gait, scipy_stride, SLOPE

import hyjax as hj
from hyjax.models import simplest_walker as walker

jax.config.update("jax_enable_x64", True)

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="one target, one solver, small batches")
quick = parser.parse_args().quick

targets = (1e-8,) if quick else (1e-8, 1e-12)
solvers = (dfx.Dopri8(),) if quick else (dfx.Tsit5(), dfx.Dopri8())
sizes = (1, 10, 100, 1000) if quick else (1, 10, 100, 1000, 10_000, 100_000)
block = 1000  # a batch of this size stays in the processor's cache
repeats = 3 if quick else 7
tolerances = [float(f"{digit}e-{power}") for power in range(3, 17) for digit in (3, 1)]
WIDE = {"xla_cpu_prefer_vector_width": 512}  # XLA's own choice is 256 bits
HEYOKA = {
    "heyoka, scalar": [(HeyokaLoop, "")],
    "heyoka, SIMD": [(ft.partial(HeyokaBatches, vectors=n), f", {n} vectors") for n in (2, 4, 8)],
}
params = walker.Params(jnp.asarray(SLOPE))
starts = near_gait(max(sizes))
compared = 200 if quick else 1000
exact = exact_strides(starts[:compared])


def error(states):
    states = np.asarray(states)
    return np.max(np.abs(states - exact[: len(states)]))


def loosest(attempt, target):
    """`(tolerance, error, tool)` by bisection of the grid; `attempt(tolerance)` returns `(error, tool)`."""
    low, high = 0, len(tolerances) - 1
    best: tuple = ()
    while low <= high:
        middle = (low + high) // 2
        try:
            achieved, tool = attempt(tolerances[middle])
        except ValueError:  # below what the tool allows
            achieved, tool = np.inf, None
        if achieved < target:
            best, high = (tolerances[middle], achieved, tool), middle - 1
        else:
            low = middle + 1
    if not best:
        raise RuntimeError(f"No tolerance reaches an error of {target:.0e}.")
    return best


def best_time(call, repeats=repeats):
    once = min(timeit.repeat(call, number=1, repeat=2))
    number = max(1, int(0.02 / once))
    return min(timeit.repeat(call, number=number, repeat=repeats)) / number


def hyjax_strides(solver, tolerance):
    integrator = hj.Integrator(solver=solver, rtol=tolerance, atol=tolerance)
    return lambda x: hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=integrator)(
        x, params, throw=False
    )


def first_time(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def row(name, tolerance, achieved, seconds, compiling, steps=""):
    cost = f"{seconds * 1e6:>14.2f}{1 / seconds:>14.0f}{compiling:>12.2f}"
    print(f"{name:<42}{tolerance:>10.0e}{achieved:>11.1e}{steps:>9}{cost}", flush=True)


def ways(batch, size, solver):
    """How a batch is computed: name, function and options of the compiler. Small batches gain nothing by wide vectors."""
    yield from ((how, strides, None) for how, strides in batch.items())
    if size >= 100 and solver is solvers[-1]:
        yield from ((f"{how}, 512 bits", strides, WIDE) for how, strides in batch.items())


def compare(target):
    print(f"\nerror below {target:.0e}")
    print(f"{'':<42}{'tolerance':>10}{'error':>11}{'steps':>9}{'us a stride':>14}{'strides / s':>14}{'compile, s':>12}")
    peers = {}

    few = starts[:20]

    def by_scipy(tolerance):
        after = [scipy_stride(x, SLOPE, tolerance)[0] for x in few]
        return error(after), lambda: [scipy_stride(x, SLOPE, tolerance) for x in few]

    tolerance, achieved, call = loosest(by_scipy, target)
    peers["SciPy DOP853"] = best_time(call, 3) / len(few)
    row("SciPy DOP853", tolerance, achieved, peers["SciPy DOP853"], 0)

    for name, kinds in HEYOKA.items():
        for kind, detail in kinds:

            def by_heyoka(tolerance, kind=kind):
                tool = kind(tolerance)
                return error(tool.strides(starts[:compared])), tool

            tolerance, achieved, tool = loosest(by_heyoka, target)
            seconds = best_time(lambda: tool.strides(starts[:compared])) / compared  # noqa: B023
            row(f"{name}{detail}", tolerance, achieved, seconds, tool.compile_time)
            peers[name] = min(seconds, peers.get(name, np.inf))

    ours, chosen = {}, []
    for solver in solvers:

        def by_hyjax(tolerance, solver=solver):
            stride = jax.jit(jax.vmap(hyjax_strides(solver, tolerance)))
            after = stride(jnp.asarray(starts[:compared]))
            return error(after.x), after.impacts[0].steps

        chosen.append((solver, *loosest(by_hyjax, target)))
    for size, (solver, tolerance, achieved, steps) in itertools.product(sizes, chosen):
        if size > block and solver is not solvers[-1]:  # the slower one in all smaller batches
            continue
        x = jnp.asarray(starts[:size])
        one = hyjax_strides(solver, tolerance)
        batch = {f"batch of {size}": jax.vmap(one)}
        if size > block:
            batch[f"{size} in blocks"] = lambda x, one=one: jax.lax.map(one, x, batch_size=block)
        for how, strides, options in ways(batch, size, solver):
            strides = jax.jit(strides, compiler_options=options)
            call = lambda: jax.block_until_ready(strides(x))  # noqa: B023
            compiling, seconds = first_time(call), best_time(call) / size
            taken = f"{int(jnp.min(steps))}-{int(jnp.max(steps))}"
            row(f"hyjax {type(solver).__name__}, {how}", tolerance, achieved, seconds, compiling, taken)
            ours[size] = min(seconds, ours.get(size, np.inf))
    solver, tolerance, achieved, _ = chosen[-1]
    stride, x = jax.jit(hyjax_strides(solver, tolerance)), jnp.asarray(starts[0])
    call = lambda: jax.block_until_ready(stride(x))
    compiling, alone = first_time(call), best_time(call)
    row(f"hyjax {type(solver).__name__}, without vmap", tolerance, achieved, alone, compiling)

    print(f"\nhyjax is so many times as fast (error below {target:.0e})")
    print(f"{'batch of':<18}" + "".join(f"{size:>10}" for size in sizes))
    for name, seconds in peers.items():
        print(f"{'as ' + name:<18}" + "".join(f"{seconds / ours[size]:>10.2f}" for size in sizes), flush=True)


if __name__ == "__main__":
    print(f"{len(os.sched_getaffinity(0))} cores; {compared} starts compared, 20 with SciPy")
    for target in targets:
        compare(target)
