r"""One periodic orbit by itself: the program of its search, and that of its gradient.

Under a `grad` of JAX by itself, the search is the program of the orbit without a gradient. The gradient is another program, which
begins at the known orbit: the strides' Jacobians with respect to what is perturbed, and the implicit function theorem (see
`implicit.py`). The strides' second derivatives are in it only if a cotangent of the return Jacobian or of the multipliers asks
for them.
"""

import dataclasses
import functools as ft
from collections.abc import Hashable

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, PyTree

from .._flow.integrator import Integrators
from .._numerics.eager import known_values, short_run
from .._numerics.eigenvalues import eigenvalues
from .._results.shown import is_traced
from .._system.results import RESULTS
from .._system.system import HybridSystem
from .._system.types import Params, Scalar, State
from .chain import Chain
from .implicit import closed_orbit, KnownOrbit
from .krylov import is_matrix_free, krylov_orbit
from .orbit import LastIterate, orbit_of, PeriodicOrbit, run_orbit
from .problem import Problem
from .shooting import AbstractShooting, ShootingResult
from .verdict import orbit_multipliers

_compiled = short_run(run_orbit)
# The numbers that are differentiated; the derivatives of the last two are the strides' second derivatives.
_NUMBERS = (
    "x", "period", "guard_rates", "nodes", "start_times", "before", "arc_ends", "jump_times", "return_jacobian", "multipliers",
)  # fmt: skip


def run_one_orbit(
    problem: Problem,
    guess: State | Float[Array, "strides n"],
    params: Params,
    method: AbstractShooting,
    integrator: Integrators,
    near: Scalar,
    origin: State | None = None,
) -> tuple[PeriodicOrbit, LastIterate]:
    """`run_orbit`, compiled for one orbit; `krylov_orbit` for a method without a Jacobian."""
    captured = lambda: captures(problem.system, params, guess.dtype)
    if is_matrix_free(method):
        moving = is_traced((params, problem)) or captured()
        return krylov_orbit(problem, guess, params, method, integrator, near, moving, origin=origin)
    known = known_values((params, guess, method, near))
    if known is None or is_traced((known, problem, integrator, origin)) or captured():
        return _compiled(problem, guess, params, method, integrator, near, origin=origin)
    there, guess, method, near = known
    with jax.core.eval_context():
        orbit, reached = _compiled(problem, guess, there, method, integrator, near, origin=origin)
    leaves = jax.tree.leaves(params)
    traced = tuple(isinstance(leaf, jax.core.Tracer) and eqx.is_inexact_array(leaf) for leaf in leaves)
    numbers = {name: getattr(orbit, name) for name in _NUMBERS}
    arguments = problem, there, traced, numbers, integrator, orbit.result
    moved: dict[str, PyTree] = _moved(arguments, [leaf for leaf, each in zip(leaves, traced, strict=True) if each])
    return dataclasses.replace(orbit, params=params, **moved), reached


@ft.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _moved(arguments: tuple, moving: list[Array]) -> dict[str, PyTree]:
    """The numbers of an orbit as a function of the traced leaves `moving` of its parameters."""
    return arguments[3]


def _forward(arguments, moving):
    return arguments[3], None


def _backward(arguments, _, cotangents):
    zero = lambda leaf: isinstance(leaf, SymbolicZero)
    asked = jax.tree.map(lambda leaf: None if zero(leaf) else leaf, cotangents, is_leaf=zero)
    return (_pulled_back(asked, *arguments),)


_moved.defvjp(_forward, _backward, symbolic_zeros=True)


@short_run
def _pulled_back(cotangents, problem, params, traced, numbers, integrator, result) -> list[Array]:
    """The cotangents of the traced leaves of the parameters, from those of an orbit's numbers, which are `None` where they are
    zero."""
    moving, still = eqx.partition(params, jax.tree.unflatten(jax.tree.structure(params), traced))
    asked = jax.tree.map(lambda each: each is not None, cotangents, is_leaf=lambda each: each is None)

    def again(moving):
        bends, params = asked["return_jacobian"] or asked["multipliers"], eqx.combine(moving, still)
        return eqx.filter(_at_known(problem, params, numbers, integrator, result, bends), asked)

    _, back = jax.vjp(again, moving)
    (gradient,) = back(cotangents)
    # The numbers of a failed orbit are NaN, and their derivative is zero.
    return [jnp.where(result == RESULTS.successful, leaf, 0) for leaf in jax.tree.leaves(gradient)]


def _at_known(
    problem: Problem, params: Params, numbers: dict[str, PyTree], integrator: Integrators, result: RESULTS, bends: bool
) -> dict[str, PyTree]:
    """The numbers of a known orbit, differentiable in the parameters. **Arguments:** `bends`: see `KnownOrbit`."""
    nodes, zero = numbers["nodes"], jnp.zeros_like(numbers["period"])
    chain = Chain(
        nodes, numbers["start_times"], numbers["before"], numbers["arc_ends"], numbers["jump_times"], nodes[0],
        numbers["period"], numbers["guard_rates"], None, result,
    )  # fmt: skip
    found = ShootingResult(chain, numbers["return_jacobian"], zero, zero, jnp.array(0), result)
    known = KnownOrbit(found=found, bends=bends)
    found = closed_orbit(problem, nodes, params, known, integrator)
    values = numbers["multipliers"]
    if bends:
        values = orbit_multipliers(problem, found.chain.nodes[0], eigenvalues(found.jacobian), params, integrator)
    orbit = orbit_of(problem, found.chain, found.jacobian, params, integrator, values, zero, jnp.array(0), result)
    return {name: getattr(orbit, name) for name in _NUMBERS}


@ft.lru_cache(maxsize=256)
def _captured(structure: Hashable, leaves: tuple, dtype) -> bool:
    system, params = jax.tree.unflatten(structure, leaves)
    return is_traced(system.hoisted(params, dtype))


def captures(system: HybridSystem, params: Params, dtype) -> bool:
    """Whether a function of the system captures a traced array."""
    shape = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf
    leaves, structure = jax.tree.flatten(jax.tree.map(shape, (system, params)))
    try:
        return _captured(structure, tuple(leaves), dtype)
    except TypeError:
        # Without a hash.
        return True
