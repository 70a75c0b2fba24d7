"""Optimal gaits: the parameters of a periodic orbit that minimize an objective under constraints."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.mode_integrators import for_modes, IntegratorLike
from .._orbit.orbit import PeriodicOrbit
from .._orbit.shooting import AbstractShooting, SingleShooting
from .._system.results import RESULTS
from .._system.shown import is_traced
from .._system.system import HybridSystem
from .._system.where import Where
from .._system.working import working
from .constraint import Constraint, Objective
from .gait_program import GaitProgram
from .interior_point import DONE, InteriorPoint, Search, start_search
from .iteration import run_search
from .minimum import Minimum, minimum
from .optimized_gait import optimized, OptimizedGait
from .program import Program
from .starts import starting_points
from .unknowns import Bounds, unknowns_of

# After so many evaluations the progress is shown.
SLICE = 10
# Spacings of the differences that check the gradient, relative to the fifth root of rounding.
SPACINGS = 1 / 4, 1 / 64, 1 / 1024


def optimize(
    objective: Objective,
    system: HybridSystem,
    orbit: PeriodicOrbit,
    *,
    where: Where,
    constraints: Constraint | Sequence = (),
    bounds: Bounds = None,
    method: InteriorPoint = InteriorPoint(),
    starts: int | Float[Array, "..."] = 1,
    shooting: AbstractShooting = SingleShooting(),
    integrator: IntegratorLike | None = None,
    throw: bool = True,
) -> OptimizedGait:
    r"""The gait that minimizes an objective over parameters: $\min_p f(x(p), p)$ under constraints, where $x(p)$ is the orbit.

    Gradients, and with `second_order` Hessians, are those of the implicit function theorem at the orbit. Each orbit is solved for
    from the Taylor polynomial of the last one. A trial whose orbit is not found there is a step that is too long; it is
    shortened, and the code of the failure is in `history`.

    **Arguments:** `objective`: `(orbit, params) -> number`, differentiable; see `hyjax.objectives`. `orbit`: a gait of `system`,
    at the parameters where the search starts. `where`: selects the parameters that vary, numbers or arrays, as `lambda p:
    (p.push_off, p.stiffness)`. `constraints`: one `Constraint` or several. `bounds`: a pair `(low, high)` for each selected
    parameter, in its unit; `None` for a parameter or an end without bound. `method`: `InteriorPoint`. `starts`: the number of
    starts, the orbit's parameters and others spread over the bounds by Sobol's sequence, which then must be finite; or their
    values, shape `(starts, n)`. Each start is approached from `orbit`, as far as the gait leads. `shooting`, `integrator`: as in
    `periodic_orbit`; by default the orbit's integrator. With a reverse-mode adjoint the derivatives are taken in reverse mode,
    for many unknowns; then `second_order` must be off. `throw`: raise an error if no start led to an optimum.

    **Returns:** `OptimizedGait`: the best of the local optima found, and all starts. Also under `jit` and `vmap` with one start
    and without the comparison with finite differences. Its `result` is `successful`, or for the best start `infeasible`,
    `optimum_not_found`, or why the first evaluation failed. `ValueError` for arguments that do not fit.

    Source: Nocedal, Wright (2006), *Numerical Optimization*, ch. 19; the derivatives are those of `periodic_orbit`.
    """
    program, lanes, origin = _prepare(
        objective, system, orbit, where, constraints, bounds, method, starts, shooting, integrator
    )
    gait = program.evaluate
    assert isinstance(gait, GaitProgram)
    if is_traced((program, lanes, origin)):
        return optimized(program, _whole(program, method, lanes, origin), orbit, None)
    with working("optimizing: compiling") as say:
        states, evaluations = _start(program, method, len(lanes), origin), 0
        while np.any(np.asarray(states.phase) < DONE) and evaluations < method.max_iterations:
            evaluations += SLICE
            states = _advance(program, method, lanes, states, jnp.array(evaluations))
            done, best = np.asarray(states.phase) == DONE, _best_value(program, method, states)
            say(f"optimizing: {evaluations} evaluations, {done.sum()} of {len(done)} starts done, best {best:.6g}")
        found = _ends(program, method, states)
        result = optimized(program, found, orbit, None)
        say("optimizing: comparing the gradient with finite differences")
        result = eqx.tree_at(
            lambda r: r.gradient_error, result, _gradient_error(program, method, found, result, len(lanes)),
            is_leaf=lambda leaf: leaf is None,
        )  # fmt: skip
    if throw and result.result != RESULTS.successful:
        from .report import failure

        raise RuntimeError(failure(result))
    return result


def _prepare(objective, system, orbit, where, constraints, bounds, method, starts, shooting, integrator):
    """The program, the starts, and the origin with what is known there."""
    if orbit.x.ndim != 1:
        raise ValueError(f"optimize: this is a batch of {len(orbit)} orbits. Choose one, such as orbits[0].")
    if system is not orbit.system and system != orbit.system:
        raise ValueError("optimize: the orbit belongs to another system than the one given.")
    if not is_traced(orbit) and orbit.result != RESULTS.successful:
        raise ValueError("optimize: the orbit was not found, so there is nothing to start from: see its `result`.")
    constraints = (constraints,) if isinstance(constraints, Constraint) else tuple(constraints)
    if wrong := [each for each in constraints if not isinstance(each, Constraint)]:
        raise ValueError(f"optimize: {wrong[0]!r} is not a constraint. Write hj.Constraint(function, at_least=...).")
    integrator = orbit.integrator if integrator is None else for_modes(system, integrator)
    if integrator.loop == "checkpointed" and method.second_order:
        raise ValueError(
            "optimize: this integrator's adjoint gives first derivatives only. Use method=hj.InteriorPoint(second_order=False)."
        )
    unknowns = unknowns_of(where, orbit.params, bounds, orbit.x.dtype)
    gait = GaitProgram(
        objective,
        constraints,
        unknowns,
        shooting,
        integrator,
        system,
        orbit.sequence,
        orbit.strides,
        method.second_order,
    )
    shape = eqx.filter_eval_shape(objective, orbit, orbit.params).shape
    if shape != ():
        raise ValueError(f"optimize: the objective must return a number, not an array of shape {shape}.")
    rows = lambda each: (
        eqx.filter_eval_shape(each.equalities, orbit, orbit.params).size,
        eqx.filter_eval_shape(each.inequalities, orbit, orbit.params).size,
    )
    counts = [rows(each) for each in constraints]
    program = Program(gait, unknowns.lower, unknowns.upper, sum(e for e, _ in counts), sum(i for _, i in counts))
    known = gait.known(orbit)
    return program, starting_points(program, unknowns, known.u, starts), (known.u, known)


@eqx.filter_jit
def _start(program: Program, method: InteriorPoint, lanes: int, origin) -> Search:
    state = start_search(program, method, *origin)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes, *leaf.shape)), state)


@eqx.filter_jit
def _advance(program: Program, method: InteriorPoint, starts: Array, states: Search, until: Array) -> Search:
    return jax.vmap(lambda start, state: run_search(program, method, start, state, until))(starts, states)


@eqx.filter_jit
def _ends(program: Program, method: InteriorPoint, states: Search) -> Minimum:
    return jax.vmap(lambda state: minimum(program, method, state))(states)


@eqx.filter_jit
def _whole(program: Program, method: InteriorPoint, starts: Array, origin) -> Minimum:
    def one(start):
        state = start_search(program, method, *origin)
        return minimum(program, method, run_search(program, method, start, state, method.max_iterations))

    return jax.vmap(one)(starts)


def _best_value(program: Program, method: InteriorPoint, states: Search) -> float:
    """The least objective of a start that has reached an optimum; NaN before."""
    found = _ends(program, method, states)
    good = np.asarray(found.result == RESULTS.successful)
    return float(np.min(np.asarray(found.sample.values[:, 0])[good])) if good.any() else float("nan")


def _gradient_error(
    program: Program, method: InteriorPoint, found: Minimum, result: OptimizedGait, lanes: int
) -> Array:
    """The largest deviation of the Jacobian of objective and constraints at the optimum from differences of order 4, relative to
    the row's largest component or value. Near a fold a spacing may be too long for the differences, or for the orbit."""
    best, u = int(result.best), np.asarray(found.point.u[int(result.best)])
    sample = jax.tree.map(lambda leaf: leaf[best], found.sample)
    jacobian = np.asarray(sample.jacobian)
    # At an optimum the gradient may vanish, and the value too.
    size = np.maximum(np.max(np.abs(jacobian), axis=1), np.abs(np.asarray(sample.values)))
    size[0] = max(size[0], abs(float(result.value_before)))
    size, error = np.where(size > 0, size, 1)[:, None], np.nan
    for part in SPACINGS:
        spacing = part * float(np.finfo(u.dtype).eps) ** (1 / 5)
        differences = _differences(program, method, u, sample.carry, spacing, lanes)
        error = np.fmin(error, np.max(np.abs(differences - jacobian) / size))
        if error < 1e-6:
            break
    return jnp.asarray(error)


def _differences(
    program: Program, method: InteriorPoint, u: np.ndarray, carry, spacing: float, lanes: int
) -> np.ndarray:
    """Differences of order 4 of objective and constraints; NaN where an orbit is lost. By the compiled search, one point a
    lane."""
    points = np.concatenate([u + k * spacing * np.eye(u.size) for k in (1, -1, 2, -2)]).astype(u.dtype)
    values = []
    for first in range(0, len(points), lanes):
        part = points[first : first + lanes]
        part = np.concatenate([part, np.repeat(part[-1:], lanes - len(part), axis=0)])
        states = _start(program, method, lanes, (jnp.asarray(u), carry))
        states = eqx.tree_at(lambda s: (s.point.u, s.finish.u), states, (jnp.asarray(part),) * 2)
        states = _advance(program, method, jnp.asarray(part), states, jnp.array(1))
        samples = jax.vmap(lambda state: state.sample.scaled(1 / state.scale))(states)
        lost = ~np.isfinite(np.asarray(states.history.objective[:, 0]))
        values.append(np.where(lost[:, None], np.nan, np.asarray(samples.values))[: len(points) - first])
    near, before, far, beyond = np.split(np.concatenate(values), 4)
    return (8 * (near - before) - (far - beyond)).T / (12 * spacing)
