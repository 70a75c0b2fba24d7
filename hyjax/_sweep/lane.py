"""One lane of a sweep: the orbit near an initial guess, and its columns of the dataset."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._flow.integrator import Integrators
from .._numerics.newton import find_root
from .._orbit.multipliers import eigenvalues
from .._orbit.orbit import orbit_of, PeriodicOrbit
from .._orbit.prescribed import Prescribed
from .._orbit.problem import Problem
from .._orbit.shooting import orbit_equation, outcome
from .._orbit.verdict import in_family, judged, orbit_multipliers, undetermined
from .._results.failure import codes_only
from .._system.results import nan_unless, RESULTS
from .._system.types import Params
from .._system.where import with_leaves
from .grid import named_units

# A user's function that returns further quantities of an orbit: `orbit -> {name: array}`.
Record = Callable[[PeriodicOrbit], dict[str, Array]]


def orbit_from_guess(
    problem: Problem,
    free: tuple[int, ...],
    integrator: Integrators,
    record: Record | None,
    prescribed: Prescribed | None,
    params: Params,
    lane: tuple[Array, Array],
) -> dict[str, Array]:
    r"""The orbit near an initial guess of its pre-impact state $y$: $\text{flow}^m(R(y), \lambda) = y$.

    Newton's method ends where the residual is below the integrator's tolerance: from a guess with half the digits right it takes
    two strides, and the second also gives the multipliers.

    **Arguments:** `free`: indices of the varied leaves of the parameters. `prescribed`: conditions, for parameters that are
    solved for together with the orbit. `lane = (values, guess)`: the values on the grid's axes and the unknowns: the pre-impact
    state, with conditions followed by the scaled parameters.

    **Returns:** columns by name, `_y` with the unknowns, and with conditions `_slope`, their derivatives by the values.
    """
    values, guess = lane
    count = len(free)
    params = with_leaves(params, free, values[:count])
    rtol, atol = integrator.tolerances(guess.dtype)
    equation = (
        orbit_equation(problem, None, params, integrator)
        if prescribed is None
        else prescribed.equation(problem, params, free, values, integrator)
    )

    def evaluate(y, first):
        found = equation(y, first)
        # A residual of this size is the integrator's error, which a further Newton step would change but not reduce.
        settled = jnp.max(jnp.abs(found.r)) <= (rtol + atol) / 4 * jnp.max(jnp.abs(y))
        return found._replace(r=jnp.where(settled, 0, found.r))

    accept = 100 * (rtol + atol)
    root = find_root(evaluate, guess, max_iterations=8, accept=accept)
    solved: dict[str, Array] = {}
    if prescribed is None:
        chain, jacobian, closing = root.aux
        values = eigenvalues(jacobian)
        singular, result, y = in_family(values), outcome(root.converged, chain.result), guess
    else:
        params, chain, jacobian, closing = root.aux.params, root.aux.chain, root.aux.jacobian, None
        values = eigenvalues(jacobian)
        converged = root.converged | (root.aux.error <= accept * jnp.max(jnp.abs(root.y)))
        singular, result = undetermined(root.aux.extended), outcome(converged, chain.result)
        y, _ = prescribed.split(guess)
    multipliers = orbit_multipliers(problem, chain.nodes[0], values, params, integrator)
    result = judged(
        problem, chain, jacobian, params, integrator, result, accept=accept, size=jnp.max(jnp.abs(guess)),
        closing=closing, singular=singular, guess=problem.closing_jump(y, params),
    )  # fmt: skip
    good = result == RESULTS.successful
    if prescribed is not None:
        leaves, named = jax.tree.leaves(params), named_units(params, prescribed.free)
        solved = {"_slope": root.aux.slope}
        solved |= {name: nan_unless(good, leaves[i]) for name, i in zip(named, prescribed.free, strict=True)}
    orbit = orbit_of(problem, chain, jacobian, params, integrator, multipliers, chain.residual, root.iterations, result)
    columns = {
        "x": orbit.x,
        "period": orbit.period,
        "multipliers_real": orbit.multipliers.real,
        "multipliers_imag": orbit.multipliers.imag,
        "residual": orbit.residual,
        "iterations": orbit.iterations.astype(jnp.int32),
        "result": jnp.asarray(result._value, jnp.int32),
        # A state that returns at another phase of the forcing is no orbit, but is a guess for the orbits beyond.
        "_y": nan_unless(good | (result == RESULTS.out_of_phase), root.y),
    } | solved
    return columns | ({} if record is None else recorded(record, orbit, good, columns))


def recorded(record: Record, orbit: PeriodicOrbit, good: Array, taken: dict) -> dict[str, Array]:
    """The user's quantities of an orbit; NaN where no orbit was found. `ValueError` for names that are in `taken`."""
    with codes_only():
        more = record(orbit)
    if not isinstance(more, dict) or not all(isinstance(name, str) for name in more):
        raise ValueError(f"record: must return a dictionary from names to arrays, not {type(more).__name__}.")
    if clash := sorted(set(more) & {*taken, "stable", "coordinate", "multiplier"}):
        raise ValueError(f"record: the names {clash} are those of the sweep's own variables. Choose other names.")
    arrays = {name: jnp.asarray(value) for name, value in more.items()}
    return {
        name: nan_unless(good, value) if jnp.issubdtype(value.dtype, jnp.floating) else value
        for name, value in arrays.items()
    }
