"""Programs of strides, orbits and sweeps, for a CPU and for a GPU: none calls back into Python, on a GPU none leaves it.

`jax.export` lowers for a GPU without one. A program that calls Python cannot be kept in JAX's persistent cache.
"""

import functools as ft
import re

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj
from hyjax._testing import (
    iterated,
    orbit_from_guess,
    pass_of_sequence,
    passes_to_outcome,
    PlainForward,
    Problem,
    with_adjoint,
    with_terminal_modes,
)
from hyjax.models import simplest_walker as walker

X, SLOPE = jnp.array([0.2, -0.2, 0.4, -0.016]), jnp.asarray(0.009)
PLAIN = with_adjoint(hj.Integrator(), PlainForward())
# What runs on the host where the program runs on a GPU, or runs in Python anywhere.
ON_THE_HOST = re.compile(r"callback|python|lapack|hybrid|geev", re.IGNORECASE)


def orbit(slope):
    return hj.periodic_orbit(walker.step, X, walker.Params(slope), throw=False)


def stride(slope):
    through = walker.step(X, walker.Params(slope), throw=False)
    return through.x, through.time


def lane(slope):
    problem = Problem(walker.system, ("swing",), 1)
    return orbit_from_guess(problem, (0,), PLAIN, None, None, walker.Params(), (slope[None], X))


def attractor_lane(slope):
    common = walker.Params(), jnp.asarray(20), jnp.asarray(10)
    step = ft.partial(pass_of_sequence, walker.system, ("swing",), 1, PLAIN)
    return iterated(step, (0,), 8, 4, False, common, (slope[None], X, jnp.asarray(0)))


def basin_lane(slope):
    system = with_terminal_modes(walker.system, ("swing",), walker.outcomes)
    step = ft.partial(pass_of_sequence, system, ("swing",), 1, PLAIN)
    common = walker.Params(), X[None], jnp.zeros(1, int), jnp.asarray(1e-3)
    start = jnp.asarray(0.0), X, jnp.asarray(0), jnp.asarray(10)
    return passes_to_outcome(step, (0,), len(walker.outcomes), common, (slope[None], *start))


PROGRAMS = {
    "stride": stride,
    "jacobian": lambda s: walker.step.jacobian(X, walker.Params(s), throw=False),
    "monodromy": lambda s: walker.step.monodromy(X, walker.Params(s), throw=False),
    "orbit": lambda s: (lambda found: (found.x, found.multipliers))(orbit(s)),
    "gradient": jax.grad(lambda s: orbit(s).period),
    "gradient of a multiplier": jax.grad(lambda s: jnp.abs(orbit(s).multipliers[0])),
    "Hessian": jax.hessian(lambda s: orbit(s).period),
    "simulate": lambda s: (
        hj.simulate(walker.system, X, walker.Params(s), mode="swing", t1=10.0, max_jumps=4, throw=False).x
    ),
    "lane of a sweep": lane,
    "lane of an attractor": attractor_lane,
    "lane of a basin": basin_lane,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_program_calls_the_host(name):
    for platform in ("cuda", "cpu"):
        exported = jax.export.export(jax.jit(PROGRAMS[name]), platforms=[platform])(SLOPE)
        targets = set(re.findall(r"custom_call\s*@(\w+)", exported.mlir_module()))
        # On a CPU, LAPACK is no call to another place.
        foreign = {each for each in targets if ON_THE_HOST.search(each)}
        foreign = {each for each in foreign if not (platform == "cpu" and each.startswith("lapack_"))}
        assert not foreign, (platform, foreign)


def test_what_the_test_looks_for_is_there_to_be_found():
    """The eigenvalues of JAX itself go to the host from a GPU; a Python function is seen in a program for a CPU."""
    shape = jax.ShapeDtypeStruct((), np.float64)
    programs = {
        "cuda": (lambda s: jnp.linalg.eigvals(s * jnp.ones((3, 3))), SLOPE),
        "cpu": (lambda s: jax.pure_callback(np.sin, shape, s), SLOPE),
    }
    for platform, (program, at) in programs.items():
        text = jax.jit(program).trace(at).lower(lowering_platforms=(platform,)).as_text()
        assert ON_THE_HOST.search(" ".join(re.findall(r"custom_call\s*@(\w+)", text))), platform
