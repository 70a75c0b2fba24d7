"""Functions that are one kernel on a CPU: numbers and derivatives are those of a list of kernels; what calls a library is one."""

import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import stiff_hopper as hopper

import hyjax as hj
from hyjax._testing import in_one_kernel, MOST_LANES, MOST_SUMMED, ONE_KERNEL
from hyjax.models import pulse_coupled_neurons as neurons

if not ONE_KERNEL:
    pytest.skip("This version of jaxlib has not been tried.", allow_module_level=True)

KERNEL = 'inlineable="false",xla_cpu_small_call="true"'
# As a user's program is compiled.
USUAL = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}


def kernels(fn, *args):
    """The number of kernels of several operations in the program of a function, and its results."""
    compiled = jax.jit(fn).lower(*args).compile(compiler_options=USUAL)
    return sum(KERNEL in line and " call(" in line for line in compiled.as_text().splitlines()), compiled(*args)


def repeated(fn):
    """Some passes of a function in a loop, which alone would be in one kernel by XLA where it carries little."""
    return lambda *args: jax.lax.fori_loop(0, 3, lambda k, sum: sum + fn(*args), 0 * fn(*args))


def normal(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape))


# Each compiles, and in one kernel.
OF_KERNEL = {
    "elementwise": (lambda x: jnp.sinh(x) * jnp.arctan2(x, 2.0) + jnp.cbrt(x) ** 2 + jnp.mod(x, 0.3), (9,)),
    "special functions": (
        lambda x: jax.scipy.special.erfinv(jnp.tanh(x)) + jax.scipy.special.gammainc(1.5, x * x),
        (9,),
    ),
    "a product with a vector": (lambda a: jnp.tanh(a @ (a @ a[0])), (90, 90)),
    "a product of small matrices": (lambda a: a @ a, (6, 6)),
    "products in a batch": (lambda a: jnp.einsum("bij,bjk->bik", a, a), (30, 4, 4)),
    "sums": (lambda a: jnp.sum(a, axis=0) + jnp.max(a) + jnp.argmin(a).astype(a.dtype), (MOST_SUMMED // 8, 8)),
    "a running sum": (jnp.cumsum, (200,)),
    "one place": (lambda x: x.at[jnp.argmax(x)].set(0).at[0].multiply(-0.7).at[1:3].add(x[0]), (9,)),
    "a table": (lambda x: x[jnp.argmax(x)] + jnp.roll(x, 1) + jnp.flip(jnp.pad(x, 1)[2:]), (9,)),
    "branches": (lambda x: jax.lax.switch((x[0] > 0).astype(int), [lambda: x @ x, lambda: x[1] * x[0]]), (9,)),
    "random numbers": (lambda x: x + jax.random.normal(jax.random.key(3), x.shape), (9,)),
    "single precision": (lambda x: x.astype(jnp.float32) * jnp.float32(2), (9,)),
    "no numbers": (lambda x: x + jnp.sum(jnp.zeros(0)), (9,)),
}
# Each is, or may be, a call of a library.
OF_LIST = {
    "a product of matrices": (lambda a: a @ a, (9, 9)),
    "a long sum": (jnp.sum, (8 * MOST_SUMMED,)),
    "a long product": (lambda x: x @ x, (8 * MOST_SUMMED,)),
    "several places": (lambda x: x.at[jnp.array([1, 1, 3])].add(x[:3]), (9,)),
    "an order": (jnp.sort, (9,)),
    "the largest": (lambda x: jax.lax.top_k(x, 3)[0], (9,)),
    "a transform": (lambda x: jnp.abs(jnp.fft.fft(x)), (8,)),
    "a solution": (lambda a: jnp.linalg.solve(a, a[0]), (4, 4)),
    "a callback": (lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((9,), float), x), (9,)),
    "large arrays": (lambda x: x[:, None] * x, (300,)),
}


@pytest.mark.parametrize("name", [*OF_KERNEL, *OF_LIST])
def test_what_is_in_one_kernel_compiles_and_has_the_same_numbers(name):
    fn, shape = (OF_KERNEL | OF_LIST)[name]
    x = normal(*shape)
    count, found = kernels(in_one_kernel(repeated(fn)), x)
    assert count == (name in OF_KERNEL)
    np.testing.assert_allclose(found, jax.jit(repeated(fn))(x), rtol=1e-13, atol=1e-13)


def loop(x, scale):
    return jax.lax.while_loop(lambda c: c[1] < 4, lambda c: (jnp.sin(scale * c[0]), c[1] + 1), (x, 0))[0]


def test_an_argument_without_a_use_does_not_stop_the_process():
    """XLA finds that `n` does nothing once it has the list of arguments."""
    count, found = kernels(
        in_one_kernel(lambda x, n: loop(x, 1.0) + (0 * n).astype(x.dtype)), normal(60), jnp.arange(60)
    )
    assert count == 1
    np.testing.assert_allclose(found, loop(normal(60), 1.0), rtol=1e-15)


def test_derivatives_are_those_without():
    scale, x = jnp.array(0.9), normal(60)
    one, other = in_one_kernel(loop), loop
    pair = [jax.jit(jax.jacfwd(jax.jacfwd(fn, 1), 1))(x, scale) for fn in (one, other)]
    np.testing.assert_allclose(*pair, rtol=1e-13)
    # In reverse mode, where no loop has a length that only the numbers tell.
    product = lambda x, scale: jnp.sum(jnp.sin(scale * x) @ x)
    for argument in (0, 1):
        pair = [jax.jit(jax.grad(fn, argument))(x, scale) for fn in (in_one_kernel(product), product)]
        np.testing.assert_allclose(*pair, rtol=1e-13)
    count, (_, tangent) = kernels(lambda x: jax.jvp(lambda x: one(x, scale), (x,), (x,)), x)
    assert count == 1
    np.testing.assert_allclose(tangent, jax.jvp(lambda x: other(x, scale), (x,), (x,))[1], rtol=1e-13)


def test_a_large_batch_is_a_list_of_kernels():
    few, many = (normal(lanes, 3) for lanes in (MOST_LANES, MOST_LANES + 1))
    batch = jax.vmap(in_one_kernel(lambda x: loop(x, 1.0)))
    assert kernels(batch, few)[0] == 1 and kernels(batch, many)[0] == 0
    # Nor is the whole of which it is a part.
    assert kernels(in_one_kernel(lambda x: 2 * batch(x)), many)[0] == 0


def test_a_kernel_in_a_kernel_is_one():
    inner = in_one_kernel(lambda x: loop(x, 1.0))
    count, found = kernels(in_one_kernel(lambda x: inner(x) + inner(2 * x)), normal(60))
    assert count == 1
    np.testing.assert_allclose(found, loop(normal(60), 1.0) + loop(2 * normal(60), 1.0), rtol=1e-15)
    # In a list each of the two is one.
    count, _ = kernels(in_one_kernel(lambda x: jnp.sort(inner(x)) + inner(2 * x)), normal(60))
    assert count == 2


def test_a_function_that_is_called_twice_in_a_kernel():
    # The controllers' page: JAX lowers such a function, and the kernel in it, once.
    part = jax.jit(lambda x: 2 * in_one_kernel(repeated(jnp.sin))(x))
    whole = in_one_kernel(lambda x: part(x) + part(x + 1))
    x = normal(9)
    count, found = kernels(whole, x)
    assert count == 1
    np.testing.assert_allclose(found, 6 * (jnp.sin(x) + jnp.sin(x + 1)), rtol=1e-14)


@pytest.mark.parametrize("program", ["stride", "jacobian", "simulation"])
def test_a_flow_is_one_kernel(program):
    """All steps of all its arcs, with their tangents."""
    through = hj.ReturnMap(hopper.system, sequence=hopper.sequence)
    params, x = hopper.params(), jnp.array(hopper.START)
    programs = {
        "stride": lambda x: through(x, params, throw=False).x,
        "jacobian": lambda x: through.jacobian(x, params, throw=False),
        "simulation": lambda x: (
            hj.simulate(hopper.system, x, params, mode="flight", t1=1.0, max_jumps=3, throw=False).x
        ),
    }
    assert kernels(programs[program], x)[0] >= 1


@pytest.mark.medium
def test_a_network_is_one_kernel():
    system, v = neurons.network(40), jnp.linspace(0.0, 0.9, 40)
    run = lambda v: hj.simulate(
        system, v, neurons.Params(coupling=-0.1), mode="network", t1=1.0, max_jumps=100, record=False, throw=False
    )
    assert kernels(lambda v: run(v).x, v)[0] == 1


@pytest.mark.parametrize("part", [0.0, 0.1])
def test_results_that_do_not_depend_on_the_arguments(part):
    """The columns of what is affine but for a number that is not differentiated: XLA finds that they are constants."""
    held = jax.lax.stop_gradient
    affine = lambda x: jax.lax.fori_loop(0, 4, lambda k, y: 0.5 * y + part * jnp.tanh(held(y)), x)
    np.testing.assert_array_equal(kernels(in_one_kernel(jax.jacfwd(affine)), normal(3))[1], np.eye(3) / 16)
    count, found = kernels(in_one_kernel(lambda: jnp.arange(3.0)))
    assert count == 0
    np.testing.assert_array_equal(found, [0, 1, 2])


def test_programs_for_other_devices_are_lists():
    """For several platforms or devices, for a batch of a size to be given, and for export, as its caller may have several."""
    fn, x = jax.jit(jax.vmap(in_one_kernel(lambda x: loop(x, 1.0)))), normal(4, 3)
    sizes = jax.ShapeDtypeStruct(jax.export.symbolic_shape("lanes, 3"), x.dtype)
    for platforms, argument in ((("cpu", "cuda"), x), (("cpu",), sizes), (("cpu",), x)):
        exported = jax.export.export(fn, platforms=platforms)(argument)
        assert "xla_cpu_small_call" not in exported.mlir_module()
        np.testing.assert_allclose(exported.call(x), fn(x), rtol=1e-15)
    ended = subprocess.run([sys.executable, "-c", SHARDED], capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["4", "0.0"], ended.stderr


SHARDED = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from hyjax._testing import in_one_kernel
halved = lambda x: jax.lax.while_loop(lambda y: jnp.abs(y) > 1e-3, lambda y: y / 2, x)
x = jax.device_put(jnp.arange(8.0), NamedSharding(Mesh(jax.devices(), "lanes"), PartitionSpec("lanes")))
found = jax.jit(jax.vmap(in_one_kernel(halved)))(x)
print(len(found.devices()), float(jnp.max(jnp.abs(found - jax.vmap(halved)(jnp.arange(8.0))))))
"""


def test_a_function_that_prints_in_order_is_a_list(capfd):
    """Its calls have a token, which is no array."""

    def printed(x):
        jax.debug.print("{}", x[0], ordered=True)
        return jnp.sin(x)

    x = normal(3)
    np.testing.assert_array_equal(jax.jit(in_one_kernel(printed))(x), jnp.sin(x))
    jax.effects_barrier()
    assert capfd.readouterr().out.strip() == str(x[0])


def test_a_function_without_real_arguments_may_be_a_part_of_a_kernel():
    whole = in_one_kernel(lambda k: jax.lax.fori_loop(0, 3, lambda _, sum: sum + k, 0))
    assert kernels(whole, jnp.array(2))[0] == 0
    count, found = kernels(
        in_one_kernel(lambda x, k: loop(x, 1.0) * whole(k).astype(x.dtype)), normal(60), jnp.array(2)
    )
    assert count == 1
    np.testing.assert_allclose(found, 6 * loop(normal(60), 1.0), rtol=1e-15)
