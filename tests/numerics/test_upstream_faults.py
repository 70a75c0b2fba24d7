"""Minimal programs for what `hyjax._numerics` works around in JAX and XLA: a test fails when its workaround may go.

Each names the workaround. Seen in jax and jaxlib 0.10.2 on a CPU.
"""

import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import pytest

from hyjax import fast
from hyjax._testing import OLDER_EMITTERS, once, stored

DEFAULT = {"xla_backend_optimization_level": 3} | dict.fromkeys(OLDER_EMITTERS, True)


def shortest(fn, *arguments):
    """The shortest time of a call, compiled as by default and not as in other tests."""
    run = jax.jit(fn, compiler_options=DEFAULT).lower(*arguments).compile()
    times = []
    for _ in range(200):
        begun = time.perf_counter()
        jax.block_until_ready(run(*arguments))
        times.append(time.perf_counter() - begun)
    return min(times)


def test_sines_of_doubles_are_evaluated_one_by_one():
    """`hyjax._numerics.fast`: the polynomial takes a sixth of the time of `jnp.sin` in float64 (82 for 551 us)."""
    x = jnp.linspace(-3, 3, 100_000)
    assert shortest(jnp.sin, x) > 1.5 * shortest(fast.sin, x)


def test_a_value_is_evaluated_once_for_each_of_its_users():
    """`hyjax._numerics.fusion.stored`: XLA evaluates a polynomial again for each of eight users: 216 us for 43 us."""

    def value(x):
        y = x
        for c in range(24):
            y = y * x + c
        return y

    def tangents(keep):
        return jax.vmap(lambda x, d: jnp.stack([keep(value(x)) * each for each in d]))

    x, d = jnp.linspace(0, 1, 4096), jnp.ones((4096, 8))
    assert shortest(tangents(lambda y: y), x, d) > 1.5 * shortest(tangents(lambda y: stored(y)[0]), x, d)


def test_equal_operations_are_all_lowered():
    """`hyjax._numerics.programs`: JAX writes out equal operations (jax #15736), which XLA merges only afterwards."""
    twice = lambda x: jnp.sin(x) * jnp.cos(x) + jnp.sin(x)
    sines = lambda fn: jax.jit(fn).lower(1.0).as_text().count("stablehlo.sine")
    assert sines(twice) == 2 and sines(once(twice)) == 1


def test_a_rule_has_the_batch_axes_of_the_value():
    """`hyjax._numerics.fusion.batch_first`: jax #16374, where the rule of a staged `custom_jvp` returns another batch axis."""

    @jax.custom_jvp
    def f(x):
        return jnp.zeros((1, *x.shape)).at[0].set(x)

    @f.defjvp
    def _(primals, tangents):
        return tuple(jnp.broadcast_to(each, (1, *each.shape)) for each in (*primals, *tangents))

    x = jnp.zeros((1, 0))
    with pytest.raises(TypeError, match="broadcast_dimensions"):
        jax.jvp(jax.jit(jax.vmap(f)), (x,), (x,))


_OVERLAPPING = """
import threading
import jax, jax.numpy as jnp, numpy as np
matrices = np.random.default_rng(0).normal(size=(20000, 4, 4))
both = jax.jit(lambda matrices: [jax.vmap(jnp.linalg.det)(jnp.sin((j + 1) * matrices)) for j in range(2)])
run = lambda: [jax.block_until_ready(both(matrices)) for _ in range(30)]
running = [threading.Thread(target=run) for _ in range(2)]
[thread.start() for thread in running]
[thread.join() for thread in running]
"""


@pytest.mark.slow
def test_overlapping_batches_of_lapack_wait_for_each_other():
    """`hyjax._numerics.elimination`: determinants of two batches at a time never end; alone they take a second."""
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", _OVERLAPPING], capture_output=True, timeout=60, check=True)


_UNUSED = """
import jax, jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
inner = jax.jit(lambda x, n: jnp.sin(x) + 0 * n)
call = lambda x, n: set_xla_metadata(inner(x, n), xla_cpu_small_call="true", inlineable="false")
jax.jit(call).lower(jnp.ones(3), jnp.ones(3, int)).compile()
"""


def test_an_argument_that_a_kernel_does_not_use_stops_the_process():
    """`hyjax._numerics.one_kernel`: a call compiled into one kernel has one argument, a tuple."""
    ended = subprocess.run([sys.executable, "-c", _UNUSED], capture_output=True, text=True, check=False)
    assert ended.returncode < 0 and "explicit index" in ended.stderr
