r"""A periodic orbit from a guess, by Newton's method on a return map."""

import dataclasses
from typing import Any

import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.check import as_numbers, check
from .._flow.integrator import Integrator
from .._results.failure import raise_failure
from .._system.section import Stroboscope
from .._system.types import as_array, Params, require_function, require_kind, State
from .level import Level, on_level, Quantity
from .one_orbit import run_one_orbit
from .orbit import LastIterate, PeriodicOrbit
from .problem import Problem
from .return_map import require_map, ReturnMap
from .section_search import orbit_of_section
from .shooting import AbstractShooting, MultipleShooting, SingleShooting


def periodic_orbit(
    step: ReturnMap,
    guess: State | Float[Array, "strides n"],
    params: Params,
    *,
    method: AbstractShooting = SingleShooting(),
    near: float | Float[Array, ""] = jnp.inf,
    conserved: Quantity | tuple[Quantity, float | Array] | None = None,
    throw: bool = True,
) -> PeriodicOrbit:
    r"""The periodic orbit to which Newton's method leads from a guess. $S^m(x) = x$ for $m$ = `strides`.

    This need not be the orbit nearest to the guess, nor one of the same kind: `distance` of the result says how far it is from
    the guess, and `near` sets a bound. To follow one orbit over parameters use `sweep` or `continuation`.

    **Arguments:** `step`: a `ReturnMap`; by default integrated by `Integrator()`. `guess`: state at the start of the sequence's
    first mode, just after a jump, or in the mode of the section, shape `(n,)`; or for `MultipleShooting` one for each stride,
    shape `(strides, n)`. `method`: `SingleShooting` or `MultipleShooting`. `near`: the largest `distance` from the guess, such as
    0.1. `conserved`: a quantity $E(t, x, p)$ that flow and jumps conserve, such as the energy of a passive runner, whose orbits
    come in families: the orbit with its value at the guess, or of the pair `(quantity, value)`. `throw`: raise a `SolveError` on
    failure; with `False`, `result` holds the code.

    With a quantity that is `conserved` the orbit's `params` are a `Level`, with the attributes `params`, `conserved` and those of
    `params`: the value is a parameter as others are, of `continuation`, `sweep` and gradients. The multiplier 1 of the family is
    0 in the orbit, so that `stable` is about the others. `orbit_not_converged` also where the quantity changes in a lap of the
    orbit, or in one of the level beside, as a coordinate does, which returns on the orbit alone; `continuation` follows a family
    whose quantity is not known.

    With a section, Newton's method solves for a fixed point of its map; the sequence of modes at the fixed point is that of the
    orbit, whose system has the crossing as a transition, as for `find_orbits`. Not under `jit`, because the sequence is not known
    in advance: there, give `orbit.step` of an orbit found before.

    **Returns:** `PeriodicOrbit`, also under `jit` and `vmap`, in the units of the vector fields. All its numbers are
    differentiable in `params`, to any order in forward and reverse mode. With
    `Integrator(adjoint=diffrax.RecursiveCheckpointAdjoint())` they are differentiable once, in reverse mode, at a cost that does
    not grow with the number of parameters: one backward pass through the strides, and one more for the multipliers. `result` is
    `orbit_not_converged` when Newton's method does not converge, `not_isolated` when neighbouring orbits are periodic too, `zeno`
    when the strides shrink to no duration, `out_of_phase` when the state of a time-dependent system returns at another phase of
    its forcing, `far_from_guess` when the orbit is further from the guess than `near`, or the code of the stride that failed.
    A `root_finder` that solves its linear equations by a Krylov method, `optimistix.Newton(..., linear_solver=lineax.GMRES(...))`
    or with `lineax.BiCGStab`, makes no Jacobian: for states of hundreds of coordinates. Then `return_jacobian` has no rows, and
    `multipliers` are the ten of largest modulus by Arnoldi's method; of equal ones it may find one. A multiplier is NaN where the
    method does not resolve it in 320 products, and all are where the call is differentiated; the spectral radius then is NaN, and
    `stable` false. The other numbers are differentiable as ever. By a section the sequence of modes is that of the guess.
    With `throw`, a `SolveError` states code, residual and last iterate. `ValueError` for arguments of a wrong shape or dtype, or
    that are not finite.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> print(f"{orbit.period:.6f}, {orbit.spectral_radius:.6f}")
    2.310015, 0.444444
    >>> def period(p):
    ...     return hj.periodic_orbit(wheel.step, wheel.guess(p), p).period
    ...
    >>> print(f"{jax.grad(period)(params).slope:.6f}")
    -9.684619

    Source: Bhounsule (2014), Sec. 2; the derivatives are those of the implicit function theorem.
    """
    require_map(step, "periodic_orbit")
    require_kind(method, AbstractShooting, "periodic_orbit", "method", "hj.SingleShooting() or hj.MultipleShooting()")
    guess, strides = as_numbers(guess), step.strides
    if conserved is not None:
        step, params = _on_level(step, guess, params, conserved)
    if not isinstance(near, jax.core.Tracer) and not near >= 0:
        raise ValueError(
            f"periodic_orbit: near={near} must not be negative: it is the largest distance from the guess."
        )
    if step.sequence is None:
        orbit, reached = orbit_of_section(step, guess, params, method, jnp.asarray(near, guess.dtype))
        return _raise_failure(orbit, reached) if throw else orbit
    integrator = step.integrator_or(Integrator())
    system = step.system
    if guess.ndim == 2:
        if not isinstance(method, MultipleShooting) or guess.shape[0] != strides:
            raise ValueError(
                f"periodic_orbit: a guess of shape {guess.shape} gives a state to each of {guess.shape[0]} strides. Use "
                f"method=hj.MultipleShooting() and a map with strides={guess.shape[0]}, or a guess of shape "
                f"({guess.shape[1]},)."
            )
        for node in guess:
            system, _, _, params = check(step.system, 0.0, node, params, step.sequence, integrator)
    else:
        system, _, guess, params = check(step.system, 0.0, guess, params, step.sequence, integrator)
    near = jnp.asarray(near, guess.dtype)
    problem = Problem(system, step.sequence, strides)
    orbit, reached = run_one_orbit(problem, guess, params, method, integrator, near)
    return _raise_failure(orbit, reached) if throw else orbit


def _on_level(step: ReturnMap, guess: Array, params: Params, conserved: Any) -> tuple[ReturnMap, Level]:
    """The map on a level of a conserved quantity, and its parameters."""
    parts: list[Any] = [*conserved] if isinstance(conserved, tuple) else [conserved]
    quantity, *given = parts
    if (
        not callable(quantity)
        or len(given) > 1
        or any(each is None or isinstance(each, str) or callable(each) or jnp.ndim(each) for each in given)
    ):
        raise ValueError(
            f"periodic_orbit: conserved={conserved!r} must be a function E(t, x, params), or a pair of it and its value; of "
            "several quantities one."
        )
    require_function(quantity, "t, x, params", "periodic_orbit: conserved")
    if isinstance(step.section, Stroboscope):
        raise ValueError(
            "periodic_orbit: conserved= needs a map of a sequence or a Section: a forced system conserves nothing."
        )
    x = guess[0] if guess.ndim == 2 else guess
    here = as_array(quantity(jnp.zeros((), x.dtype), x, params), (), x.dtype, "periodic_orbit: conserved")
    value = given[0] if given else here
    system, section = on_level(step.system, step.sequence, step.section, parts[0])
    level = Level(params, jnp.asarray(value, guess.dtype))
    return dataclasses.replace(step, system=system, section=section), level


def _raise_failure(orbit: PeriodicOrbit, reached: LastIterate) -> PeriodicOrbit:
    remedy = (
        "Try a guess nearer to the orbit, such as an orbit at a neighbouring parameter; find_orbits, which needs no guess; or "
        "throw=False, which returns the code in `result`."
    )
    if isinstance(orbit.params, Level):
        remedy += (
            " With conserved=, the quantity must not change along flow and jumps, nor beside the orbit, and an orbit near the "
            "guess must have its value."
        )
    return raise_failure("periodic_orbit", orbit, None, (reached, orbit.distance), _last_iterate, remedy)


def _last_iterate(about: Any) -> str:
    """The line of the message about one lane, its `LastIterate` and distance."""
    (nodes, residual, iterations), distance = about
    count, x = int(iterations), np.array2string(np.asarray(nodes)[0], precision=6, separator=", ")
    return (
        f"residual {float(residual):.2g} after {count} iteration{'s' * (count != 1)}, at x = {x}, distance "
        f"{float(distance):.2g} from the guess"
    )
