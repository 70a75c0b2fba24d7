"""What programs are made of: nothing that runs in Python, on a CPU or a GPU, so that they can be stored, and run in threads."""

import re

import diffrax as dfx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import stiff_hopper as hopper

import hyjax as hj

FIXED = dict(controller=dfx.ConstantStepSize(), first_step=0.01)
INTEGRATORS = {
    "explicit": hj.Integrator(),
    "explicit, fixed steps": hj.Integrator(dfx.Euler(), **FIXED),
    "implicit": hj.Integrator(dfx.Kvaerno5()),
    "implicit, fixed steps": hj.Integrator(dfx.ImplicitEuler(), **FIXED),
    "implicit, backwards through the steps": hj.Integrator(dfx.Kvaerno3(), adjoint=dfx.DirectAdjoint(), max_steps=64),
}


def stride(x, k, integrator):
    p = hopper.params() | {"k": k}
    through = hj.ReturnMap(hopper.system, sequence=hopper.sequence, integrator=integrator)(x, p, throw=False)
    return jnp.append(through.x, through.time)


def jacobian(x, k, integrator):
    p = hopper.params() | {"k": k}
    return hj.ReturnMap(hopper.system, sequence=hopper.sequence, integrator=integrator).jacobian(x, p, throw=False)


def gradient(x, k, integrator):
    return jax.grad(lambda x, k: jnp.sum(stride(x, k, integrator)), argnums=(0, 1))(x, k)


def simulation(x, k, integrator):
    p = hopper.params() | {"k": k}
    end = lambda x: hj.simulate(
        hopper.system, x, p, mode="flight", t1=1.0, max_jumps=3, integrator=integrator, throw=False
    )
    run = lambda x: end(x).x
    return jax.jvp(run, (x,), (jnp.ones_like(x),))


# A stride is a part of its gradient; fixed steps are fixed in every program.
PROGRAMS = [
    ("explicit", jacobian),
    ("explicit", simulation),
    ("explicit, fixed steps", simulation),
    ("implicit", jacobian),
    ("implicit", simulation),
    ("implicit, fixed steps", simulation),
    ("implicit, backwards through the steps", gradient),
]


def foreign_calls(function, *arguments, platforms=("cpu", "cuda")) -> set[str]:
    """What a program calls outside itself, compiled for a CPU or for a GPU; no GPU is needed to see it."""
    return called(jax.jit(function).trace(*arguments).lower(lowering_platforms=platforms).as_text())


def called(text: str) -> set[str]:
    # JAX 0.11 asks for an array without values by a call that XLA answers itself.
    return set(re.findall(r"custom_call @(\w+)", text)) - {"AllocateBuffer"}


@pytest.mark.parametrize(
    "name, program", [PROGRAMS[0], *(pytest.param(*each, marks=pytest.mark.medium) for each in PROGRAMS[1:])]
)
def test_no_program_calls_back_into_python(name, program):
    function = lambda x, k: program(x, k, INTEGRATORS[name])
    calls = foreign_calls(function, jnp.array(hopper.START), jnp.asarray(hopper.VALUES["k"]))
    assert not calls


def test_a_call_back_would_be_seen():
    shape = jax.ShapeDtypeStruct((), np.float64)
    call = lambda x: jax.pure_callback(np.sin, shape, x)
    assert any("callback" in name for name in foreign_calls(call, jnp.zeros(()), platforms=("cpu",)))
    with pytest.raises(ValueError, match="platform"):
        foreign_calls(call, jnp.zeros(()), platforms=("cuda",))


@pytest.mark.medium
@pytest.mark.parametrize("name", ["explicit", "implicit"])
def test_programs_can_be_exported(name):
    """And run from what was stored, here on a CPU; nor do they call back into Python."""
    function = jax.jit(lambda x, k: gradient(x, k, INTEGRATORS[name]))
    x, k = jnp.array(hopper.START), jnp.asarray(hopper.VALUES["k"])
    exported = jax.export.export(function, platforms=["cpu", "cuda"])(x, k)
    assert not called(exported.mlir_module())
    again = jax.export.deserialize(exported.serialize()).call(x, k)
    for got, expected in zip(again, function(x, k), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
