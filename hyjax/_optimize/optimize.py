"""Optimal gaits: the parameters of a periodic orbit that minimize an objective under constraints."""

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.integrator import for_modes, IntegratorLike
from .._numerics.eager import long_run
from .._orbit.orbit import PeriodicOrbit
from .._orbit.shooting import AbstractShooting, SingleShooting
from .._results.shown import is_traced
from .._results.working import working
from .._sweep.workers import threads_here, Workers
from .._system.results import RESULTS, SolveError
from .._system.types import require_function, require_kind
from .._system.where import Where
from ..control.held_inputs import Plan
from .constraint import all_constraints, check_number, Constraint, Objective
from .interior_point import DONE, InteriorPoint, minimize, Minimum, minimum, ProgramSearch, run_search, start_search
from .nonlinear_program import NonlinearProgram
from .optimized_orbit import failure, optimized, OptimizedOrbit
from .optimized_plan import optimize_plan, OptimizedPlan
from .orbit_program import Bounds, OrbitProgram, Unknowns, unknowns_of

# The number of evaluations between two messages of progress.
SLICE = 10
# Spacings of the differences that check the gradient, relative to the fifth root of rounding.
SPACINGS = 1 / 4, 1 / 64, 1 / 1024
# Starts that are searched from by one program, the others waiting for the slowest; devices other than CPUs need many lanes.
WIDTH = 8


@overload
def optimize(
    orbit: Plan, objective: Objective, *, where: Where | None = None, constraints: Constraint | Sequence = (),
    bounds: Bounds = None, method: InteriorPoint = InteriorPoint(), throw: bool = True,
) -> OptimizedPlan: ...  # fmt: skip
@overload
def optimize(
    orbit: PeriodicOrbit, objective: Objective, *, where: Where, constraints: Constraint | Sequence = (),
    bounds: Bounds = None, method: InteriorPoint = InteriorPoint(), starts: int | Float[Array, "..."] = 1,
    shooting: AbstractShooting = SingleShooting(), integrator: IntegratorLike | None = None,
    executor: Executor | None = None, throw: bool = True,
) -> OptimizedOrbit: ...  # fmt: skip
def optimize(
    orbit: PeriodicOrbit | Plan,
    objective: Objective,
    *,
    where: Where | None = None,
    constraints: Constraint | Sequence = (),
    bounds: Bounds = None,
    method: InteriorPoint = InteriorPoint(),
    starts: int | Float[Array, "..."] = 1,
    shooting: AbstractShooting = SingleShooting(),
    integrator: IntegratorLike | None = None,
    executor: Executor | None = None,
    throw: bool = True,
) -> OptimizedOrbit | OptimizedPlan:
    r"""The gait that minimizes an objective over parameters: $\min_p f(x(p), p)$ under constraints, where $x(p)$ is the orbit; or
    over inputs that are free in time, of a plan.

    Gradients, and with `second_order` Hessians, are those of the implicit function theorem at the orbit. Each orbit is solved for
    from the Taylor polynomial of the last one. A trial whose orbit is not found there is a step that is too long; it is
    shortened, and the code of the failure is in `history`.

    Of a plan, inputs, states and duration are unknown at once (direct multiple shooting), so a guess need not be a trajectory,
    and Hessians are exact; see `hyjax.control.HeldInputs`.

    **Arguments:** `orbit`: at the parameters where the search starts; or a `hyjax.control.Plan`. `objective`: `(orbit, params) ->
    number`, differentiable; see `hyjax.objectives`. `where`: selects the parameters that vary, numbers or arrays, as `lambda p:
    (p.push_off, p.stiffness)`. `constraints`: one `Constraint` or several. `bounds`: a pair `(low, high)` for each selected
    parameter, in its unit; `None` for a parameter or an end without bound. `method`: `InteriorPoint`. `starts`: the number of
    starts, the orbit's parameters and others spread over the bounds by Sobol's sequence, which then must be finite; or their
    values, shape `(starts, n)`. Each start is approached from `orbit`, as far as the gait leads. `shooting`, `integrator`: as in
    `periodic_orbit`; by default the orbit's integrator. With a reverse-mode adjoint the derivatives are taken in reverse mode,
    for many unknowns; then `second_order` must be off. `executor`: any `concurrent.futures.Executor`, as for `sweep`, whose
    workers search from eight starts at a time; by default threads of this process. `throw`: raise an error if no start led to an
    optimum.

    **Returns:** of a plan an `OptimizedPlan`. Else `OptimizedOrbit`: the best of the local optima found, and all starts. Also
    under `jit` and `vmap` with one start and without the comparison with finite differences. Its `result` is `successful`, or for
    the best start `infeasible`, `optimum_not_found`, or why the first evaluation failed. Successful is where the conditions of
    first order hold; from a start where the gradient is zero, as by a symmetry, the search leaves if the objective falls beside
    it. `ValueError` for arguments that do not fit.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(
    ...     orbit, hj.objectives.period, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)]
    ... )
    >>> print(gait.result, f"{gait.params.inertia_ratio:.6f} {gait.value:.6f}")
    successful 0.800000 2.598961

    Source: Nocedal, Wright (2006), *Numerical Optimization*, ch. 19; the derivatives are those of `periodic_orbit`.
    """
    require_function(objective, "orbit, params", "optimize: objective")
    require_kind(method, InteriorPoint, "optimize", "method", "a hj.objectives.InteriorPoint")
    if isinstance(orbit, Plan):
        one = isinstance(starts, int) and starts == 1
        given = not one, shooting != SingleShooting(), integrator is not None, executor is not None
        if any(given):
            name = ("starts", "shooting", "integrator", "executor")[given.index(True)]
            raise ValueError(f"optimize: {name}= is of the search from an orbit; a plan is searched from itself.")
        return optimize_plan(orbit, objective, where, constraints, bounds, method, throw)
    wanted = "a hj.PeriodicOrbit, as hj.periodic_orbit returns it, or a hj.control.Plan"
    require_kind(orbit, PeriodicOrbit, "optimize", "the first argument", wanted)
    if where is None:
        raise ValueError("optimize: an orbit needs where=, the parameters that vary, as lambda p: p.push_off.")
    program, lanes, origin = _prepare(
        orbit, objective, where, constraints, bounds, method, starts, shooting, integrator
    )
    gait = program.evaluate
    assert isinstance(gait, OrbitProgram)
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
        error, _ = workers.call(
            Searches.gradient_error, best, float(result.value_before), what="optimize: the gradient"
        )
        result = eqx.tree_at(
            lambda r: r.gradient_error, result, jnp.asarray(error), is_leaf=lambda leaf: leaf is None
        )  # fmt: skip
    if throw and result.result != RESULTS.successful:
        raise SolveError(failure(result), result.result._value, result)
    return result


def _prepare(orbit, objective, where, constraints, bounds, method, starts, shooting, integrator):
    """The program, the starts, and the origin with what is known there."""
    if orbit.x.ndim != 1:
        raise ValueError(f"optimize: this is a batch of {len(orbit)} orbits. Choose one, such as orbits[0].")
    if not is_traced(orbit) and orbit.result != RESULTS.successful:
        raise ValueError("optimize: the orbit was not found, so there is nothing to start from: see its `result`.")
    constraints = all_constraints(constraints)
    integrator = orbit.integrator if integrator is None else for_modes(orbit.system, integrator)
    if integrator.loop == "checkpointed" and method.second_order:
        raise ValueError(
            "optimize: this integrator's adjoint gives first derivatives only. Use "
            "method=hj.objectives.InteriorPoint(second_order=False)."
        )
    unknowns = unknowns_of(where, orbit.params, bounds, orbit.x.dtype)
    check_number(eqx.filter_eval_shape(objective, orbit, orbit.params))
    count = lambda rows: eqx.filter_eval_shape(rows, orbit, orbit.params).size
    rows = tuple((count(each.equalities), count(each.inequalities)) for each in constraints)
    gait = OrbitProgram(
        objective, constraints, unknowns, shooting, integrator, orbit.system, orbit.sequence, orbit.strides,
        method.second_order, rows
    )  # fmt: skip
    program = NonlinearProgram(gait, unknowns.lower, unknowns.upper, sum(e for e, _ in rows), sum(i for _, i in rows))
    known = gait.expanded(orbit)
    return program, starting_points(program, unknowns, known.u, starts), (known.u, known)


def starting_points(
    program: NonlinearProgram,
    unknowns: Unknowns,
    own: Float[Array, " n"],
    starts: int | Float[Array, "..."],
    caller: str = "optimize",
) -> Float[Array, "starts n"]:
    """The starts, inside the bounds: the orbit's own parameters and others spread over the bounds; or those given, in units of
    the parameters. `ValueError` for starts of another shape, that are not finite, or spread over infinite bounds."""
    if isinstance(starts, int):
        if starts < 1:
            raise ValueError(f"{caller}: starts={starts} must be at least 1.")
        points = own[None]
        if starts > 1:
            bounds = program.lower, program.upper
            if is_traced(bounds) or not all(np.all(np.isfinite(each)) for each in bounds):
                raise ValueError(
                    f"{caller}: starts={starts} are spread over the bounds, so every parameter needs two finite bounds; or give "
                    "the starts as an array."
                )
            points = jnp.concatenate(
                [points, _spread(np.asarray(program.lower), np.asarray(program.upper), starts - 1)]
            )
    else:
        points = jnp.asarray(starts, own.dtype)
        if points.ndim != 2 or points.shape[1] != own.size or not len(points):
            raise ValueError(
                f"{caller}: starts of shape {points.shape} must be a whole number, or have the shape (starts, {own.size})."
            )
        if not is_traced(points) and not np.all(np.isfinite(points)):
            wrong = int(np.argmin(np.all(np.isfinite(points), axis=1)))
            raise ValueError(f"{caller}: starts[{wrong}] = {points[wrong]} is not finite. Give finite numbers.")
        points = points / unknowns.scale
    return jax.vmap(program.inside)(points)


def _spread(low: np.ndarray, high: np.ndarray, count: int) -> np.ndarray:
    """Points of Sobol's sequence in the box, the same in each call."""
    from scipy.stats import qmc

    sequence = qmc.Sobol(low.size, scramble=True, rng=np.random.default_rng(0))
    drawn = sequence.random_base2(int(np.ceil(np.log2(count))))[:count] if count > 1 else sequence.random(1)
    return (low + drawn * (high - low)).astype(low.dtype)


@dataclasses.dataclass(frozen=True)
class Searches:
    """Searches for the optima of a program, `lanes` at once.

    **Attributes:** `origin`: the unknowns where the functions are known, and what is known there.
    """

    program: NonlinearProgram
    method: InteriorPoint
    origin: tuple
    lanes: int

    def compile(self) -> None:
        starts = jnp.broadcast_to(self.origin[0], (self.lanes, self.origin[0].size))
        self._ended(_advance(self.program, self.method, starts, self._begun(), jnp.array(0)))

    def run(self, starts: np.ndarray, say: Callable[[str], None] = lambda what: None) -> list[np.ndarray]:
        """The ends of the searches from at most so many starts as lanes, shape `(starts, n)`: the leaves of a `Minimum`."""
        lanes = jnp.asarray(starts[np.minimum(np.arange(self.lanes), len(starts) - 1)])
        states, evaluations = self._begun(), 0
        while np.any(np.asarray(states.phase) < DONE) and evaluations < self.method.max_iterations:
            evaluations += SLICE
            states = _advance(self.program, self.method, lanes, states, jnp.array(evaluations))
            done, best = np.asarray(states.phase) == DONE, best_value(self._ended(states))
            say(f"optimizing: {evaluations} evaluations, {done.sum()} of {len(done)} starts done, best {best:.6g}")
        return [np.asarray(leaf)[: len(starts)] for leaf in jax.tree.leaves(self._ended(states))]

    def minima(self, leaves: list[np.ndarray]) -> Minimum:
        """The ends from their leaves: of all searches, or of one."""
        shapes = eqx.filter_eval_shape(lambda: self._ended(self._begun()))
        return jax.tree.unflatten(jax.tree.structure(shapes), [jnp.asarray(leaf) for leaf in leaves])

    def gradient_error(self, leaves: list[np.ndarray], value_before: float) -> float:
        """The largest deviation of the Jacobian of objective and constraints at an end from differences of order 4, relative to
        the row's largest component or value. Near a fold a spacing may be too long for the differences, or for the orbit.

        **Arguments:** `leaves`: of one `Minimum`. `value_before`: the objective of the first gait.
        """
        end = self.minima(leaves)
        u, jacobian = np.asarray(end.point.u), np.asarray(end.sample.jacobian)
        # At an optimum the gradient may vanish, and the value too.
        size = np.maximum(np.max(np.abs(jacobian), axis=1), np.abs(np.asarray(end.sample.values)))
        size[0] = max(size[0], abs(value_before))
        size, error = np.where(size > 0, size, 1)[:, None], np.nan
        for part in SPACINGS:
            spacing = part * float(np.finfo(u.dtype).eps) ** (1 / 5)
            differences = self._differences(u, end.sample.carry, spacing)
            error = np.fmin(error, np.max(np.abs(differences - jacobian) / size))
            if error < 1e-6:
                break
        return float(error)

    def _differences(self, u: np.ndarray, carry: Any, spacing: float) -> np.ndarray:
        """Differences of order 4 of objective and constraints; NaN where an orbit is lost. By the compiled search, one point a
        lane."""
        points = np.concatenate([u + k * spacing * np.eye(u.size) for k in (1, -1, 2, -2)]).astype(u.dtype)
        values = []
        for first in range(0, len(points), self.lanes):
            part = points[first : first + self.lanes]
            part = np.concatenate([part, np.repeat(part[-1:], self.lanes - len(part), axis=0)])
            states = _start(self.program, self.method, self.lanes, (jnp.asarray(u), carry))
            states = eqx.tree_at(lambda s: (s.point.u, s.trial.u), states, (jnp.asarray(part),) * 2)
            states = _advance(self.program, self.method, jnp.asarray(part), states, jnp.array(1))
            samples = jax.vmap(lambda state: state.sample.scaled(1 / state.scale))(states)
            lost = ~np.isfinite(np.asarray(states.history.objective[:, 0]))
            values.append(np.where(lost[:, None], np.nan, np.asarray(samples.values))[: len(points) - first])
        near, before, far, beyond = np.split(np.concatenate(values), 4)
        return (8 * (near - before) - (far - beyond)).T / (12 * spacing)

    def _begun(self) -> ProgramSearch:
        return _start(self.program, self.method, self.lanes, self.origin)

    def _ended(self, states: ProgramSearch) -> Minimum:
        return _ends(self.program, self.method, states)


@long_run
def _start(program: NonlinearProgram, method: InteriorPoint, lanes: int, origin) -> ProgramSearch:
    state = start_search(program, method, *origin)
    # Of no weak type, as after the first iteration: else `_advance` would be compiled again for the second slice.
    strong = lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(strong(leaf), (lanes, *leaf.shape)), state)


@long_run
def _advance(
    program: NonlinearProgram, method: InteriorPoint, starts: Array, states: ProgramSearch, until: Array
) -> ProgramSearch:
    return jax.vmap(lambda start, state: run_search(program, method, start, state, until))(starts, states)


@long_run
def _ends(program: NonlinearProgram, method: InteriorPoint, states: ProgramSearch) -> Minimum:
    return jax.vmap(lambda state: minimum(program, method, state))(states)


def best_value(found: Minimum) -> float:
    """The least objective of a start that has reached an optimum; NaN before."""
    good = np.asarray(found.result == RESULTS.successful)
    return float(np.min(np.asarray(found.sample.values[:, 0])[good])) if good.any() else float("nan")


def _ends_of(searches: Searches, starts: np.ndarray, workers: Workers, say: Callable[[str], None]) -> list[np.ndarray]:
    """The ends of the searches from all starts: the leaves of a `Minimum`."""
    if workers.executor is None and len(starts) <= searches.lanes:
        return searches.run(starts, say)
    workers.compile("", None)
    chunks = [starts[first : first + searches.lanes] for first in range(0, len(starts), searches.lanes)]
    named = lambda i: f"optimize: the starts {i * searches.lanes}:{i * searches.lanes + len(chunks[i])}"
    found: dict[int, list[np.ndarray]] = {}
    for i, leaves in workers.each(Searches.run, ((chunk,) for chunk in chunks), named):
        found[i] = leaves
        done = sum(len(chunks[k]) for k in found)
        best = min(best_value(searches.minima(each)) for each in found.values())
        say(f"optimizing: {done} of {len(starts)} starts done, best {best:.6g}")
    return [np.concatenate(parts) for parts in zip(*(found[i] for i in range(len(chunks))), strict=True)]


@long_run
def _whole(program: NonlinearProgram, method: InteriorPoint, starts: Array, origin) -> Minimum:
    return jax.vmap(lambda start: minimize(program, method, origin[0], start, origin[1]))(starts)
