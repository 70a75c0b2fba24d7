"""A call by itself on a CPU runs a program that compiles fast; under a transformation it is a part of the user's program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj
from hyjax._sweep.batches import BatchMap, FEW
from hyjax._system import eager
from hyjax.models import rimless_wheel as wheel

CODE = int(hj.RESULTS.successful._value)
PARAMS = wheel.Params()
GUESS = wheel.guess(PARAMS)


def at(slope):
    return jax.tree.map(lambda number: number.astype(slope.dtype), wheel.Params(slope=slope))


def stride(params):
    return hj.stride(wheel.system, GUESS.astype(params.slope.dtype), params, sequence=wheel.sequence)


def jacobian(params):
    return hj.return_jacobian(wheel.system, GUESS.astype(params.slope.dtype), params, sequence=wheel.sequence)


def end(params):
    return hj.simulate(wheel.system, GUESS.astype(params.slope.dtype), params, mode=wheel.sequence[0], t1=5.0).x


def orbit(params):
    guess = GUESS.astype(params.slope.dtype)
    return hj.periodic_orbit(wheel.system, guess, params, sequence=wheel.sequence, throw=False)


# A number of each call, as a function of the slope.
CALLS = {
    "stride": lambda slope: stride(at(slope)).x,
    "jacobian": lambda slope: jacobian(at(slope)),
    "simulate": lambda slope: end(at(slope)),
    "orbit": lambda slope: orbit(at(slope)).x,
}


@pytest.fixture
def compiled(monkeypatch):
    """The options of all programs that are compiled, by the names of their functions."""
    from jax._src.interpreters import pxla

    seen = []
    compile = pxla.MeshComputation.compile

    def noted(self, *args, **kwargs):
        seen.append((self._name, dict(self._compiler_options_kvs)))
        return compile(self, *args, **kwargs)

    monkeypatch.setattr(pxla.MeshComputation, "compile", noted)
    jax.clear_caches()
    return seen


@pytest.mark.parametrize("name", CALLS)
def test_a_call_by_itself_compiles_fast(name, compiled):
    CALLS[name](jnp.asarray(0.2))
    options = [options for _, options in compiled if options]
    assert options and all(each == eager.SHORT for each in options)


def test_of_a_call_that_is_traced_the_options_are_the_users(compiled):
    slope = jnp.asarray(0.2)
    for transformed in (jax.jit(CALLS["stride"]), jax.jacfwd(CALLS["stride"]), jax.jacrev(CALLS["stride"])):
        transformed(slope)
    jax.vmap(CALLS["stride"])(slope[None])
    # All arguments of this call are known, and it is traced all the same.
    jax.jit(lambda slope: CALLS["stride"](jnp.asarray(0.2)) + slope)(slope)
    assert compiled and not any(options for _, options in compiled)


@pytest.mark.parametrize("name, dtype", [*((name, "float64") for name in CALLS), ("stride", "float32")])
def test_values_by_themselves_and_under_jit(name, dtype):
    slope = jnp.asarray(0.2, dtype)
    alone, traced = CALLS[name](slope), jax.jit(CALLS[name])(slope)
    batch = jax.vmap(CALLS[name])(slope[None])[0]
    # A thousand roundings: programs differ in the order of their sums.
    close = 1e-12 if dtype == "float64" else 1e-3 * float(jnp.max(jnp.abs(alone)))
    assert alone.dtype == traced.dtype == dtype
    np.testing.assert_allclose(alone, traced, rtol=0, atol=close)
    np.testing.assert_allclose(alone, batch, rtol=0, atol=close)
    if name != "stride":
        return
    # The derivative outside of `jit`, by the one under `jit`.
    derivatives = jax.jacrev(CALLS[name])(slope), jax.jit(jax.jacfwd(CALLS[name]))(slope)
    np.testing.assert_allclose(*derivatives, rtol=1e-10 if dtype == "float64" else 1e-3, atol=close)


@pytest.mark.parametrize("slope", [0.2, -0.2])
def test_result_codes_by_themselves_and_under_jit(slope):
    """Also that of a failure: uphill the wheel comes to rest."""
    codes = lambda slope: (stride(at(slope)).result._value, orbit(at(slope)).result._value)
    alone, traced = codes(jnp.asarray(slope)), jax.jit(codes)(jnp.asarray(slope))
    assert [int(each) for each in alone] == [int(each) for each in traced]
    assert (int(alone[1]) == CODE) == (slope > 0)


def test_imported_and_asked_first_while_a_function_is_traced():
    eager._untraced.cache_clear()
    asked = []
    jax.jit(lambda x: asked.append(eager.runs_alone()) or x)(1.0)
    assert asked == [False] and eager.runs_alone() == (jax.default_backend() == "cpu")


def test_a_function_is_traced_once_for_both(compiled):
    traced = []
    run = eager.short_run(lambda x: traced.append(x) or jnp.sin(x))
    run(jnp.asarray(1.0))
    jax.jit(run)(jnp.asarray(2.0))
    assert len(traced) == 1


@pytest.mark.parametrize("count, options", [(FEW - 1, eager.LONG), (FEW, {})])
def test_few_lanes_compile_fast_and_many_run_fast(count, options, compiled):
    run = BatchMap(lambda common, lane: common * lane, np.asarray(2.0), few=count < FEW)
    np.testing.assert_array_equal(run(np.arange(3.0)), [0.0, 2.0, 4.0])
    assert [each for name, each in compiled if "mapped" in name] == [options]
    # Also in another process, whatever its own number of lanes.
    build, given = run.__reduce__()
    assert build(*given)._program is run._program
