"""What makes a batch of strides fast on a CPU: sine and cosine in vectors, vectors of 512 bits, blocks, tolerance?

The simplest walker, slope 0.009; each stride starts within 1 % of the stable gait, from a state of its own. The time is the
processor's, of all threads, the median of interleaved rounds; compilation is not part of it.

    taskset -c 0 python benchmarks/fast.py [--quick]
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from peers import near_gait, SLOPE

import hyjax as hj
from hyjax.models import simplest_walker as walker

jax.config.update("jax_enable_x64", True)

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="few rounds, small batches")
quick = parser.parse_args().quick

rounds = 3 if quick else 15
params = walker.Params(SLOPE)
starts = jnp.asarray(near_gait(1000 if quick else 10_000))


def swing(t, x, params):
    """As in `hyjax.models.simplest_walker`, with JAX's sine and cosine."""
    theta, theta_rate, phi, phi_rate = x
    accel = jnp.sin(theta - params.slope)
    phi_accel = accel + (theta_rate**2 - jnp.cos(theta - params.slope)) * jnp.sin(phi)
    return jnp.stack([theta_rate, accel, phi_rate, phi_accel])


plain = hj.HybridSystem(
    modes={"swing": hj.Mode(swing, walker.coordinates, domain=lambda t, x, params: jnp.cos(x[0]))},
    transitions=walker.system.transitions,
)


def strides(system, tolerance, *, block=None, wide=False):
    integrator = hj.Integrator(rtol=tolerance, atol=tolerance)
    one = lambda x: hj.ReturnMap(system, sequence=walker.sequence, integrator=integrator)(x, params, throw=False)
    batch = jax.vmap(one) if block is None else lambda x: jax.lax.map(one, x, batch_size=block)
    return jax.jit(batch, compiler_options={"xla_cpu_prefer_vector_width": 512} if wide else None)


coarse, fine = 3e-8, 1e-14  # errors of 1e-8 and of rounding
VARIANTS = {
    "one stride": (strides(walker.system, coarse), 1),
    "batch of 1000, jnp.sin and jnp.cos": (strides(plain, coarse), 1000),
    "batch of 1000, hj.fast.sin and hj.fast.sincos": (strides(walker.system, coarse), 1000),
    "... and vectors of 512 bits": (strides(walker.system, coarse, wide=True), 1000),
    "... at the default tolerance, 1e-14": (strides(walker.system, fine, wide=True), 1000),
    "batch of 10000, 512 bits": (strides(walker.system, coarse, wide=True), 10_000),
    "... in blocks of 1000": (strides(walker.system, coarse, block=1000, wide=True), 10_000),
}


if __name__ == "__main__":
    inputs, seconds, compiling = {}, {}, {}
    for name, (call, size) in VARIANTS.items():
        if size > len(starts):
            continue
        inputs[name] = jax.block_until_ready(starts[:size])
        start = time.perf_counter()
        after = jax.block_until_ready(call(inputs[name]))
        compiling[name], seconds[name] = time.perf_counter() - start, []
        assert np.all(after.result == hj.RESULTS.successful)
    for _ in range(rounds):
        for name, taken in seconds.items():
            (call, size), x = VARIANTS[name], inputs[name]
            count = max(1, 10_000 // size) if size > 1 else 200
            start = time.process_time()
            for _ in range(count):
                after = call(x)
            jax.block_until_ready(after)
            taken.append((time.process_time() - start) / count / size)
    print(f"{'':<38}{'us a stride':>12}{'compile, s':>12}")
    for name, taken in seconds.items():
        print(f"{name:<38}{statistics.median(taken) * 1e6:>12.2f}{compiling[name]:>12.1f}")
