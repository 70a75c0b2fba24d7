"""Optimal gaits: the parameters of a periodic orbit that minimize an objective under constraints."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.integrator import for_modes, IntegratorLike
from .._orbit.orbit import PeriodicOrbit
from .._orbit.shooting import AbstractShooting, SingleShooting
from .._results.shown import is_traced
from .._results.working import working
from .._sweep.workers import threads_here, Workers
from .._system.results import RESULTS
from .._system.system import HybridSystem
from .._system.where import Where
from .constraint import Constraint, Objective
from .gait_program import GaitProgram
from .interior_point import InteriorPoint, start_search
from .iteration import run_search
from .minimum import Minimum, minimum
from .optimized_gait import optimized, OptimizedGait
from .program import Program
from .searches import best_value, Searches
from .starts import starting_points
from .unknowns import Bounds, unknowns_of

# Starts that are searched from by one program, the others waiting for the slowest; devices other than CPUs need many lanes.
WIDTH = 8


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
    executor: Executor | None = None,
    throw: bool = True,
) -> OptimizedGait:
    r"""The gait that minimizes an objective over parameters: $\min_p f(x(p), p)$ under constraints, where $x(p)$ is the orbit.

    Gradients, and with `second_order` Hessians, are those of the implicit function theorem at the orbit. Each orbit is solved for
    from the Taylor polynomial of the last one. A trial whose orbit is not found there is a step that is too long; it is
    shortened, and the code of the failure is in `history`.

    **Arguments:** `objective`: `(orbit, params) -> number`, differentiable; see `hyjax.objectives`. `orbit`: a gait of `system`,
    at the parameters where the search starts. `where`: selects the parameters that vary, numbers or arrays, as
    `lambda p: (p.push_off, p.stiffness)`. `constraints`: one `Constraint` or several. `bounds`: a pair `(low, high)` for each
    selected parameter, in its unit; `None` for a parameter or an end without bound. `method`: `InteriorPoint`. `starts`: the
    number of starts, the orbit's parameters and others spread over the bounds by Sobol's sequence, which then must be finite; or
    their values, shape `(starts, n)`. Each start is approached from `orbit`, as far as the gait leads. `shooting`, `integrator`:
    as in `periodic_orbit`; by default the orbit's integrator. With a reverse-mode adjoint the derivatives are taken in reverse
    mode, for many unknowns; then `second_order` must be off. `executor`: any `concurrent.futures.Executor`, as for `sweep`, whose
    workers search from eight starts at a time; by default threads of this process. `throw`: raise an error if no start led to an
    optimum.

    **Returns:** `OptimizedGait`: the best of the local optima found, and all starts. Also under `jit` and `vmap` with one start
    and without the comparison with finite differences. Its `result` is `successful`, or for the best start `infeasible`,
    `optimum_not_found`, or why the first evaluation failed. `ValueError` for arguments that do not fit.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(
    ...     hj.objectives.period, wheel.system, orbit, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)]
    ... )
    >>> print(gait.result, f"{gait.params.inertia_ratio:.6f} {gait.value:.6f}")
    successful 0.800000 2.598961

    Source: Nocedal, Wright (2006), *Numerical Optimization*, ch. 19; the derivatives are those of `periodic_orbit`.
    """
    program, lanes, origin = _prepare(
        objective, system, orbit, where, constraints, bounds, method, starts, shooting, integrator
    )
    gait = program.evaluate
    assert isinstance(gait, GaitProgram)
    if is_traced((program, lanes, origin)):
        return optimized(program, _whole(program, method, lanes, origin), orbit, None)
    on_cpu = jax.default_backend() == "cpu"
    searches = Searches(program, method, origin, min(len(lanes), WIDTH) if on_cpu or executor else len(lanes))
    workers = Workers(searches, executor, threads_here())
    with working("optimizing: compiling") as say:
        leaves = _ends_of(searches, np.asarray(lanes), workers, say)
        result = optimized(program, searches.minima(leaves), orbit, None)
        say("optimizing: comparing the gradient with finite differences")
        best = [np.asarray(leaf[int(result.best)]) for leaf in leaves]
        error, _ = workers.call("gradient_error", best, float(result.value_before), what="optimize: the gradient")
        result = eqx.tree_at(
            lambda r: r.gradient_error, result, jnp.asarray(error), is_leaf=lambda leaf: leaf is None
        )  # fmt: skip
    if throw and result.result != RESULTS.successful:
        from .optimum_report import failure

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
    shape = eqx.filter_eval_shape(objective, orbit, orbit.params).shape
    if shape != ():
        raise ValueError(f"optimize: the objective must return a number, not an array of shape {shape}.")
    rows = tuple(
        (
            eqx.filter_eval_shape(each.equalities, orbit, orbit.params).size,
            eqx.filter_eval_shape(each.inequalities, orbit, orbit.params).size,
        )
        for each in constraints
    )
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
        rows,
    )
    program = Program(gait, unknowns.lower, unknowns.upper, sum(e for e, _ in rows), sum(i for _, i in rows))
    known = gait.known(orbit)
    return program, starting_points(program, unknowns, known.u, starts), (known.u, known)


def _ends_of(searches: Searches, starts: np.ndarray, workers: Workers, say: Callable[[str], None]) -> list[np.ndarray]:
    """The ends of the searches from all starts: the leaves of a `Minimum`."""
    if workers.executor is None and len(starts) <= searches.lanes:
        return searches.run(starts, say)
    workers.compile("", None)
    chunks = [starts[first : first + searches.lanes] for first in range(0, len(starts), searches.lanes)]
    named = lambda i: f"optimize: the starts {i * searches.lanes}:{i * searches.lanes + len(chunks[i])}"
    found: dict[int, list[np.ndarray]] = {}
    for i, leaves in workers.each("run", ((chunk,) for chunk in chunks), named):
        found[i] = leaves
        done = sum(len(chunks[k]) for k in found)
        best = min(best_value(searches.minima(each)) for each in found.values())
        say(f"optimizing: {done} of {len(starts)} starts done, best {best:.6g}")
    return [np.concatenate(parts) for parts in zip(*(found[i] for i in range(len(chunks))), strict=True)]


@eqx.filter_jit
def _whole(program: Program, method: InteriorPoint, starts: Array, origin) -> Minimum:
    def one(start):
        state = start_search(program, method, *origin)
        return minimum(program, method, run_search(program, method, start, state, method.max_iterations))

    return jax.vmap(one)(starts)
