"""A call by itself on a CPU runs a program that compiles fast; under a transformation it is a part of the user's program."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj
from hyjax._testing import BatchMap, eager, FEW, LONG, SHORT
from hyjax.models import rimless_wheel as wheel

CODE = int(hj.RESULTS.successful._value)
PARAMS = wheel.Params()
GUESS = wheel.guess(PARAMS)


def at(slope):
    return jax.tree.map(lambda number: number.astype(slope.dtype), wheel.Params(slope=slope))


def stride(params):
    return wheel.step(GUESS.astype(params.slope.dtype), params, throw=False)


def jacobian(params):
    return wheel.step.jacobian(GUESS.astype(params.slope.dtype), params)


def end(params):
    return hj.simulate(wheel.system, GUESS.astype(params.slope.dtype), params, mode=wheel.sequence[0], t1=5.0).x


def orbit(params):
    guess = GUESS.astype(params.slope.dtype)
    return hj.periodic_orbit(wheel.step, guess, params, throw=False)


# A number of each call, as a function of the slope.
CALLS = {
    "stride": lambda slope: stride(at(slope)).x,
    "jacobian": lambda slope: jacobian(at(slope)),
    "simulate": lambda slope: end(at(slope)),
    "orbit": lambda slope: orbit(at(slope)).x,
}


@pytest.fixture
def compiled(monkeypatch):
    """The options of all programs that are compiled, by the names of their functions; as if XLA_FLAGS named no level."""
    from jax._src.interpreters import pxla

    seen = []
    compile = pxla.MeshComputation.compile

    def noted(self, *args, **kwargs):
        seen.append((self._name, dict(self._compiler_options_kvs)))
        return compile(self, *args, **kwargs)

    monkeypatch.setattr(pxla.MeshComputation, "compile", noted)
    monkeypatch.setattr(eager, "_level_is_given", lambda: False)
    jax.clear_caches()
    return seen


@pytest.mark.medium
@pytest.mark.parametrize("name", CALLS)
def test_a_call_by_itself_compiles_fast(name, compiled):
    CALLS[name](jnp.asarray(0.2))
    options = [options for _, options in compiled if options]
    assert options and all(each == SHORT for each in options)


@pytest.mark.medium
def test_a_gradient_by_itself_compiles_fast(compiled):
    slope = jnp.asarray(0.2)
    period = jax.grad(lambda slope: orbit(at(slope)).period)(slope)
    programs = [(name, options) for name, options in compiled if "run_orbit" in name or "pulled_back" in name]
    assert len(programs) == 2 and all(options == SHORT for _, options in programs)
    # The wheel loses the same part of its energy at every slope.
    multiplier = lambda slope: orbit(at(slope)).multipliers[0].real
    np.testing.assert_allclose(jax.grad(multiplier)(slope), 0, atol=1e-9)  # to the accuracy of second derivatives
    whole = jax.jit(jax.grad(lambda slope: orbit(at(slope)).period))(slope)
    np.testing.assert_allclose(period, whole, rtol=1e-9)  # to the accuracy of the flow


@pytest.mark.medium
def test_a_gradient_by_itself_is_that_of_all_that_is_traced():
    slope = jnp.asarray(0.2)

    def captured(slope):
        """The period, of a system that captures the slope and has it as a parameter too."""
        fall = lambda t, x, params: wheel.system.modes["stance"].vector_field(
            t, x, dataclasses.replace(params, slope=slope)
        )
        modes = {"stance": dataclasses.replace(wheel.system.modes["stance"], vector_field=fall)}
        system = hj.HybridSystem(modes, wheel.system.transitions)
        step = hj.ReturnMap(system, sequence=wheel.sequence)
        return hj.periodic_orbit(step, GUESS, at(slope)).period

    period = lambda slope: orbit(at(slope)).period
    expected = jax.jit(jax.grad(period))(slope)
    # Under `jacrev` the cotangents are a batch.
    for found in (jax.grad(captured)(slope), jax.jacrev(period)(slope)):
        np.testing.assert_allclose(found, expected, rtol=1e-9)  # to the accuracy of the flow


@pytest.mark.medium
def test_of_a_call_that_is_traced_the_options_are_the_users(compiled):
    slope = jnp.asarray(0.2)
    for transformed in (jax.jit(CALLS["stride"]), jax.jacfwd(CALLS["stride"]), jax.jacrev(CALLS["stride"])):
        transformed(slope)
    jax.vmap(CALLS["stride"])(slope[None])
    # All arguments of this call are known, and it is traced all the same.
    jax.jit(lambda slope: CALLS["stride"](jnp.asarray(0.2)) + slope)(slope)
    assert compiled and not any(options for _, options in compiled)


@pytest.mark.medium
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


@pytest.mark.medium
@pytest.mark.parametrize("slope", [0.2, -0.2])
def test_result_codes_by_themselves_and_under_jit(slope):
    """Also that of a failure: uphill the wheel comes to rest."""
    codes = lambda slope: (stride(at(slope)).result._value, orbit(at(slope)).result._value)
    alone, traced = codes(jnp.asarray(slope)), jax.jit(codes)(jnp.asarray(slope))
    assert [int(each) for each in alone] == [int(each) for each in traced]
    assert (int(alone[1]) == CODE) == (slope > 0)


@pytest.mark.medium
def test_imported_and_asked_first_while_a_function_is_traced(compiled):
    eager._untraced.cache_clear()
    asked = []
    jax.jit(lambda x: asked.append(eager.takes_options()) or x)(1.0)
    assert asked == [False] and eager.takes_options() == (jax.default_backend() == "cpu")


def test_a_function_is_traced_once_for_both(compiled):
    traced = []
    run = eager.short_run(lambda x: traced.append(x) or jnp.sin(x))
    run(jnp.asarray(1.0))
    jax.jit(run)(jnp.asarray(2.0))
    assert len(traced) == 1


@pytest.mark.parametrize("count, options", [(FEW - 1, LONG), (FEW, {})])
def test_few_lanes_compile_fast_and_many_run_fast(count, options, compiled):
    run = BatchMap(lambda common, lane: common * lane, np.asarray(2.0), few=eager.compiles_fast(count))
    np.testing.assert_array_equal(run(np.arange(3.0)), [0.0, 2.0, 4.0])
    assert [each for name, each in compiled if "mapped" in name] == [options]
    # Also in another process, whatever its setting.
    build, given = run.__reduce__()
    with hj.fast.compile_for(hj.fast.Purpose.run_time if count < FEW else hj.fast.Purpose.first_result):
        assert build(*given)._program is run._program


@pytest.mark.parametrize(
    "purpose, options, fast", [("run_time", {}, (False, False)), ("first_result", SHORT, (True, True))]
)
def test_what_programs_are_compiled_for(purpose, options, fast, compiled):
    with hj.fast.compile_for(hj.fast.Purpose[purpose]):
        stride(at(jnp.asarray(0.2)))
        assert [each for name, each in compiled if "run_stride" in name] == [options]
        assert (eager.compiles_fast(FEW - 1), eager.compiles_fast(FEW)) == fast
    assert (eager.compiles_fast(FEW - 1), eager.compiles_fast(FEW)) == (True, False)


def test_a_level_in_the_environment_is_that_of_all_programs(monkeypatch):
    eager._level_is_given.cache_clear()
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=2")
    assert not eager.takes_options()
    # A choice by the user's own program comes first.
    setting = hj.fast.compile_for(hj.fast.Purpose.first_result)
    assert eager.takes_options()
    setting.close()
    eager._level_is_given.cache_clear()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    assert eager.takes_options()
    eager._level_is_given.cache_clear()


def test_what_is_not_a_purpose_is_refused():
    with pytest.raises(
        ValueError, match=r"'run_time' must be one of hj.fast.Purpose.by_size, hj.fast.Purpose.first_result"
    ):
        hj.fast.compile_for("run_time")
    assert eager.compiles_fast(1)
