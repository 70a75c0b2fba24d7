"""Continuation of a periodic orbit over a parameter."""

import dataclasses
import math
from typing import overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._flow.integrator import for_modes, IntegratorLike, without_jacobian
from .._numerics.trees import without_derivative
from .._orbit.level import Family, Level, of_own_params
from .._orbit.orbit import PeriodicOrbit
from .._orbit.problem import Problem
from .._orbit.verdict import ROUNDING
from .._results.shown import is_traced
from .._system.results import RESULTS
from .._system.types import require_kind
from .._system.where import one_leaf, Where
from ..phase.equilibrium import Equilibrium, rounding, size_of
from .branch import Branch
from .curve import curves_from, Interval, interval_to, point_near, PseudoArclength, raise_branch, Stop
from .equilibrium_branch import EquilibriumBranch
from .unfolding import Balance, Unfolding

# The distance, in units of the size of the states, at which a neighbour of an orbit must be an orbit too in a family.
NEIGHBOUR = 0.02


@overload
def continuation(
    orbit: PeriodicOrbit, *, where: Where | None = ..., stop: Stop, method: PseudoArclength = ...,
    integrator: IntegratorLike | None = ..., throw: bool = ...,
) -> Branch: ...  # fmt: skip
@overload
def continuation(
    orbit: Equilibrium, *, where: Where, stop: Stop, method: PseudoArclength = ..., throw: bool = ...
) -> EquilibriumBranch: ...  # fmt: skip
def continuation(
    orbit: PeriodicOrbit | Equilibrium,
    *,
    where: Where | None = None,
    stop: Stop,
    method: PseudoArclength = PseudoArclength(),
    integrator: IntegratorLike | None = None,
    throw: bool = True,
) -> Branch | EquilibriumBranch:
    r"""Follow an orbit over a parameter: the branch $F(y, \lambda) = \text{flow}(R(y), \lambda) - y = 0$, through folds.

    Or follow an equilibrium, $f(y, \lambda) = 0$.

    **Arguments:** `orbit`: the start; a periodic orbit of any sequence and number of strides, autonomous or forced, or an
    `Equilibrium`, from `hyjax.phase.equilibrium`. `where`:
    selects the parameter $\lambda$, as `lambda params: params.slope`; by default, for an orbit that was found with a
    quantity that is `conserved`, the value of that quantity: its family. Otherwise, for an orbit with exactly one multiplier 1,
    such as one that is `not_isolated`, the `distance` along its family: of the states just after the jump along the unit tangent
    there, to first order, positive where the coordinate that changes most grows; the family's multiplier is 0 in the branch.
    Such a start must not be traced or a batch, because its multipliers decide.
    `stop`: the value of the parameter, in its own unit, at which to end; or bounds `(low, high)`, to follow the branch in both
    directions. `method`: a `PseudoArclength`. `integrator`: an `Integrator`, or one for each mode, `{"stance": ..., "flight":
    ...}`; by default the orbit's. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.

    **Returns:** `Branch`, or of an equilibrium `EquilibriumBranch`, with states of shape `(points, n)`. The call may stand under
    `jit`, and under `vmap` over orbits and their parameters. Special points are located when `special_points` is first read.

    `Branch.result` is `successful` where `stop`, or with bounds either of them in each direction, was reached, or within bounds
    the branch closed; `stop_not_reached` where the branch leads to the other side of its start or is closed; and
    `max_points_reached` where `max_points` were not enough. Where the corrector failed, it is the code of the stride there, such
    as `out_of_phase` where the parameter takes a forced orbit out of step; `grazing` also where a guard or the section becomes
    tangent; or `orbit_not_converged`. `ValueError` unless `where` picks one scalar leaf and `stop` fits its value, or without it
    one multiplier is 1, and not as at a fold.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> branch = hj.continuation(orbit, where=lambda p: p.slope, stop=0.25)
    >>> print(branch.result, f"{branch.periods[-1]:.6f}")
    successful 1.943150

    Source: Keller (1977); Kuznetsov (2004), ch. 10.
    """
    remedy = "Differentiate one of its orbits, by hj.periodic_orbit(orbit.step, orbit.x, params)."
    reason = f"continuation: a branch has no derivatives. {remedy}"
    wanted = "a hj.PeriodicOrbit, as hj.periodic_orbit returns it, or an equilibrium"
    require_kind(orbit, PeriodicOrbit | Equilibrium, "continuation", "the first argument", wanted)
    orbit, family = without_derivative(orbit, reason), False
    on_level = isinstance(orbit.params, Level)
    many = not is_traced(orbit) and np.any(orbit.result == RESULTS.not_isolated)
    if on_level and many:
        raise ValueError(
            "continuation: this orbit is not isolated on its level: another quantity is conserved too, and a coordinate "
            "has to be held; or it is at a fold or branch point, beside which to start."
        )
    if where is None and on_level:
        where = lambda level: level.conserved
    elif family := where is None:
        orbit, where = _of_family(orbit), lambda family: family.distance
    elif many:
        raise ValueError(
            "continuation: this orbit is one of a family: follow it first, without where=, and then one of its orbits over the "
            "parameter, family.orbit(0)."
        )
    free = one_leaf(where, orbit.params, "continuation")
    values = jnp.asarray(jax.tree.leaves(orbit.params)[free])[None]
    values = values.astype(orbit.x.dtype) if jnp.issubdtype(values.dtype, jnp.integer) else values
    # Room on the other side of the start: a branch that turns at a fold may return past its start.
    interval = interval_to(stop, values[0], "continuation", behind=3.0)
    if isinstance(orbit, Equilibrium):
        fastest = jnp.max(jnp.abs(orbit.jacobian))
        time = 1 / jnp.where(fastest > 0, fastest, 1)
        # Residuals are relative to the unknowns: the scaled parameter is not zero within the interval, as the state may be.
        equation = Balance(
            orbit, (free,), size_of(orbit.x), jnp.abs(orbit.x), time, values - 4 * interval.span, interval.span[None]
        )
        accept = jnp.asarray(rounding(orbit.x), orbit.x.dtype)
        start = _directions(equation.join(orbit.x, values), interval)
        curves = curves_from(equation, *start, interval, method, accept)
        branch = EquilibriumBranch(unfolding=equation, curves=curves, accept=accept, method=method)
        return raise_branch("continuation", branch) if throw else branch
    integrator = orbit.integrator if integrator is None else for_modes(orbit.system, integrator)
    problem = Problem(orbit.system, orbit.sequence, orbit.strides)
    size = jnp.maximum(jnp.max(jnp.abs(orbit.nodes)), jnp.max(jnp.abs(orbit.before)))
    size = jnp.where(size > 0, size, 1)
    sizes = jnp.max(jnp.abs(orbit.nodes), axis=0)
    unfolding = unfolding_of(problem, orbit.params, (free,), integrator, size, sizes, values, interval.span[None])
    start = _directions(unfolding.join(orbit.before, values), interval)
    if family and not is_traced(interval):
        _check_family(unfolding, *start, method)
    found = branch_from(unfolding, *start, interval, method)
    return raise_branch("continuation", found) if throw else found


def _of_family(orbit: PeriodicOrbit | Equilibrium) -> PeriodicOrbit:
    """The orbit as the start of its family, whose conserved quantity is not known."""
    ones, in_family = 0, isinstance(orbit.params, Family)
    if isinstance(orbit, PeriodicOrbit) and len(orbit.return_jacobian):
        if is_traced(orbit) or orbit.period.ndim:
            raise ValueError(
                "continuation: without where= the family of one orbit whose multipliers are known is followed, and this orbit is "
                "traced or a batch. Call it outside of jit and vmap, for one orbit, or give where=, as lambda p: p.slope."
            )
        singular = np.asarray(orbit.return_jacobian) - np.eye(orbit.x.size, dtype=orbit.x.dtype)
        left, _, right = np.linalg.svd(singular)
        # Of the square, so that a double multiplier with one eigenvector counts twice.
        sizes = np.linalg.svd(singular @ singular)[1]
        ones = int(np.sum(sizes < np.finfo(sizes.dtype).eps ** ROUNDING * max(1, sizes[0])))
    if not isinstance(orbit, PeriodicOrbit) or ones != 1:
        raise ValueError(
            "continuation: without where=, such as lambda params: params.slope, the family of an orbit with one multiplier 1 is "
            f"followed, and here {ones} are known. Of several give a quantity: periodic_orbit(..., conserved=quantity)."
        )
    system, params = (orbit.system, orbit.params.params) if in_family else (of_own_params(orbit.system), orbit.params)
    jump = jax.jacfwd(lambda y: Problem(orbit.system, orbit.sequence, 1).closing_jump(y, orbit.params))(orbit.before[0])
    along, push = right[-1] * np.sign(right[-1][np.argmax(np.abs(right[-1]))]) @ jump, left[:, -1] @ jump
    family = Family(params, jnp.zeros_like(orbit.period), orbit.before[0], along, push / jnp.linalg.norm(push))
    return dataclasses.replace(orbit, system=system, params=family)


def _check_family(unfolding: Unfolding, v0: Array, border: Array, ways: Array, method: PseudoArclength):
    """`ValueError` where the equation of a `Family` has a solution near the start that is no orbit: at a fold or branch point its
    term is of second or third order in the distance. By the program that follows the branch."""
    size, accept = unfolding.state_scale, _acceptable(unfolding, v0)
    for v, row, way in zip(v0, border, ways, strict=True):
        near = v.at[-1].add(NEIGHBOUR * way[-1] * size / unfolding.scale[0])
        last = point_near(unfolding, near, row, way, len(ways), method, accept).aux
        y, end = last.before[0], last.arc_ends[-1][-1]
        at = dataclasses.replace(unfolding.params, distance=NEIGHBOUR * way[-1] * size)
        gap, moved = end - y, jnp.max(jnp.abs(y - at.start))
        solved = (jnp.max(jnp.abs(gap + at.forced(y))) <= accept * size) & (moved <= 3 * NEIGHBOUR * size)
        if solved & (jnp.max(jnp.abs(gap)) > 2 * accept * size):
            raise ValueError(
                "continuation: the multiplier 1 is that of a fold or branch point, not of a family: neighbouring states do not "
                "return. Follow an orbit beside this point over a parameter, with where=."
            )


def _directions(v0: Array, interval: Interval) -> tuple[Array, Array, Array]:
    """The start, the border that fixes its parameter, and the first tangent, in each direction of an interval."""
    natural = jnp.zeros_like(v0).at[-1].set(1)
    along = interval.ways[:, None] * natural
    return jnp.broadcast_to(v0, along.shape), jnp.broadcast_to(natural, along.shape), along


def unfolding_of(problem, params, free, integrator, size, sizes, values, scale) -> Unfolding:
    """The unfolding whose state is scaled by `size` times the root of the number of strides, so that a branch has the same length
    for one orbit traversed once or several times."""
    plain = without_jacobian(integrator)
    return Unfolding(problem, params, free, plain, size * math.sqrt(problem.strides), sizes, values, scale)


def branch_from(
    unfolding: Unfolding, v0: Array, border: Array, ways: Array, interval: Interval, method: PseudoArclength
) -> Branch:
    """The branch followed in the directions `ways`, each from the point near its `v0` at which `border @ (v - v0)` is zero; all
    of shape `(directions, unknowns)`."""
    accept = _acceptable(unfolding, v0)
    return Branch(unfolding, curves_from(unfolding, v0, border, ways, interval, method, accept), accept, method)


def _acceptable(unfolding: Unfolding, v0: Array) -> Array:
    """The largest residual of a point of a branch."""
    return jnp.asarray(100 * sum(unfolding.integrator.tolerances(v0.dtype)), v0.dtype)
