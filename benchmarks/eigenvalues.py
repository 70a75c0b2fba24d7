"""Are hyjax's reflections faster than the linear algebra library for the eigenvalues of many small matrices?

On a CPU the library is LAPACK, on a GPU cuSOLVER (jax 0.10 and newer), as `jnp.linalg.eigvals` calls them. Random matrices with
normal entries, in float64; the largest difference of the sorted moduli, in units of the largest, shows that both agree.

    python benchmarks/eigenvalues.py
"""

import time

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from hyjax._numerics.eigenvalues import plain_spectrum  # noqa: E402


def seconds(call, matrices):
    """Of the first call, and the shortest of three more."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        found = jax.block_until_ready(call(matrices))
        times.append(time.perf_counter() - start)
    return found, times[0], min(times[1:])


print(f"{jax.local_devices()[0].device_kind}, jax {jax.__version__}")
print(
    f"{'n':>3}{'matrices':>10}{'library, s':>13}{'reflections, s':>16}{'first, s':>10}{'first, s':>10}{'difference':>13}"
)
for n in (2, 4, 8):
    for count in (1, 1_000, 10_000):
        matrices = jax.random.normal(jax.random.key(n), (count, n, n))
        theirs, first, library = seconds(jax.jit(jnp.linalg.eigvals), matrices)
        ours, begin, own = seconds(jax.jit(plain_spectrum), matrices)
        a, b = (np.sort(np.abs(np.asarray(each)), axis=1) for each in (theirs, ours))
        apart = np.max(np.abs(a - b) / a[:, -1:])
        row = f"{n:>3}{count:>10}{library:>13.5f}{own:>16.5f}{first:>10.2f}{begin:>10.2f}{apart:>13.1e}"
        print(row, flush=True)
