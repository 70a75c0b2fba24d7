"""Sweeps: a periodic orbit over a grid of parameters, on all devices, stored chunk by chunk.

Axes of the grid may be quantities of the orbits in place of parameters (`prescribed` and `solve`); a branch may give the initial
guesses. The provenance of a sweep is everything that its results depend on: a store records it, and is resumed only by an equal
one.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._continuation.branch import Branch
from .._flow.integrator import for_modes, IntegratorLike, Integrators, ModeIntegrators, without_jacobian
from .._numerics.eager import compiles_fast
from .._numerics.eigenvalues import eigenvalues
from .._numerics.newton import find_root
from .._orbit.level import Family
from .._orbit.orbit import orbit_of, PeriodicOrbit
from .._orbit.prescribed import Prescribed, prescribed_at, Quantity
from .._orbit.problem import Problem
from .._orbit.shooting import orbit_equation, outcome
from .._orbit.verdict import in_family, judged, orbit_multipliers, undetermined
from .._results.failure import codes_only, raise_if_none
from .._results.labels import units_of
from .._results.registry import version
from .._results.shown import require_known
from .._system.results import nan_unless, RESULTS
from .._system.types import Params, require_counts, require_function, require_kind
from .._system.where import free_leaves, leaf_names, Where, with_leaves
from .batches import BatchMap, block_width
from .chunks import ChunkSolver, solve_in_memory, solve_in_store, Sweep
from .grid import checked_axis, Grid, grid_over, named_leaves, named_units, TAKEN
from .store import chunk_shape
from .workers import Workers

if TYPE_CHECKING:
    import xarray

# A user's function that returns further quantities of an orbit: `orbit -> {name: array}`.
Record = Callable[[PeriodicOrbit], dict[str, Array]]


def first_point(branch: Branch) -> int:
    """The index of the point at which the branch was started."""
    count = np.asarray(branch.curves.count)
    return int(count[1]) - 1 if len(count) == 2 else 0


def guesses_on_branch(branch: Branch, free: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray] | None:
    """`values -> y`: pre-impact states interpolated between the points of a branch; `None` where the branch's parameter varies
    among others. `ValueError` unless its parameter is among the varied leaves `free`."""
    unfolding = branch.unfolding
    if set(unfolding.free) - set(free):
        raise ValueError(
            "sweep: the branch's parameter is not among the varied parameters. Start from one of the branch's orbits."
        )
    if unfolding.free != free:
        return None
    y = branch._points["v"][:, : unfolding.dimension] * float(unfolding.state_scale)
    return nearest_pass(branch.values, y, first_point(branch))


def nearest_pass(values: np.ndarray, y: np.ndarray, first: int) -> Callable[[np.ndarray], np.ndarray]:
    """`targets -> y`: linear interpolation on the curve `y(values)`; NaN beyond the ends of the curve.

    A curve with folds passes a value several times; the pass nearest the point of index `first` is taken.

    **Arguments:** `values`: shape `(points,)`. `y`: shape `(points, n)`.
    """

    def at(targets: np.ndarray) -> np.ndarray:
        guesses = np.full((len(targets), y.shape[1]), np.nan)
        for i, value in enumerate(targets[:, 0]):
            # A value beyond an end by no more than rounding is taken as the end.
            inside = np.clip(value, values.min(), values.max())
            if abs(inside - value) > 1e-9 * max(abs(value), float(np.ptp(values))):
                continue
            passes = np.flatnonzero((values[:-1] - inside) * (values[1:] - inside) <= 0)
            k = int(passes[np.argmin(np.abs(passes + 0.5 - first))])
            fraction = (inside - values[k]) / ((values[k + 1] - values[k]) or 1)
            guesses[i] = (1 - fraction) * y[k] + fraction * y[k + 1]
        return guesses

    return at


# `name -> (quantity, values)`.
Prescription = Mapping[str, tuple[Quantity, Any]]


def with_prescribed(
    grid: Grid, orbit: PeriodicOrbit, prescribed: Prescription | None, solve: Where | None
) -> tuple[Grid, Prescribed | None, tuple[np.ndarray, np.ndarray]]:
    """The grid with the axes of the prescribed quantities; the conditions; and the values on all axes and the unknowns of the
    start orbit. `ValueError` for arguments that do not fit each other."""
    params = grid.params
    leaves = jax.tree.leaves(params)
    values = np.array([np.asarray(leaves[i]) for i in grid.free], orbit.x.dtype)
    if not prescribed and solve is None:
        if not grid.free:
            raise ValueError("sweep: give where= and values=, or prescribed= and solve=, or both.")
        return grid, None, (values, np.asarray(orbit.before[0]))
    if not prescribed or solve is None:
        raise ValueError("sweep: prescribed= and solve= belong together: quantities, and parameters to solve for.")
    free = free_leaves(solve, params)
    names, solved = leaf_names(params), named_units(params, free)
    if len(free) != len(prescribed):
        raise ValueError(
            f"sweep: prescribed has {len(prescribed)} quantities ({', '.join(prescribed)}) and solve picks {len(free)} "
            f"parameters ({', '.join(names[i] for i in free)}). Pick as many parameters as quantities."
        )
    if both := [names[i] for i in free if i in grid.free]:
        raise ValueError(f"sweep: where and solve both pick {', '.join(both)}. Vary a parameter, or solve for it.")
    if clash := [name for name in prescribed if name in {*TAKEN, *grid.names, *solved}]:
        raise ValueError(f"sweep: the quantities {clash} have names of the dataset's variables. Choose other names.")
    quantities, axes = [], []
    for name, (quantity, axis) in prescribed.items():
        shape = jax.eval_shape(lambda orbit: jnp.asarray(quantity(orbit, orbit.params)), orbit).shape  # noqa: B023
        if shape:
            raise ValueError(f"sweep: {name}: the quantity must be one number, not of shape {shape}.")
        quantities.append(quantity)
        axes.append(checked_axis(name, axis, orbit.x.dtype))
        if _is_period(quantity, orbit) and np.min(axes[-1]) <= 0:
            raise ValueError(
                f"sweep: {name}={np.min(axes[-1]):g} is prescribed for a period, which must be positive. Leave out the "
                "values that are not."
            )
    largest = jnp.array([np.max(np.abs(axis)) for axis in axes])
    conditions, at, unknowns = prescribed_at(orbit, tuple(quantities), free, largest)
    if not np.all(np.isfinite(at)):
        raise ValueError(f"sweep: of the start orbit the quantities {tuple(prescribed)} are {np.asarray(at).tolist()}.")
    units = (*grid.units, *[""] * len(axes))
    grid = dataclasses.replace(
        grid, names=(*grid.names, *prescribed), units=units, values=(*grid.values, *axes), solved=solved
    )
    return grid, conditions, (np.append(values, at), np.asarray(unknowns))


def _is_period(quantity: Quantity, orbit: PeriodicOrbit) -> bool:
    """Whether a quantity is the period of an orbit, or the mean time of its strides: that of orbits with other periods."""
    factors = np.array([1.0, 0.5, 3.0])
    of = lambda factor: quantity(dataclasses.replace(orbit, period=factor * orbit.period), orbit.params)
    values = np.array([np.asarray(of(factor)) for factor in factors])
    return any(np.array_equal(values, factors * float(orbit.period) / each) for each in (1, orbit.strides))


def provenance(
    problem: Problem,
    grid: Grid,
    orbit: PeriodicOrbit,
    branch: Branch | None,
    record: Callable | None,
    prescribed: Prescribed | None,
    integrator: Integrators,
) -> dict[str, Any]:
    """Everything the results depend on but the device, as values for JSON; long arrays by their digest."""
    start = np.concatenate([np.ravel(np.asarray(each, float)) for each in (orbit.x, *jax.tree.leaves(orbit.params))])
    if branch is not None:
        start = np.append(start, branch.values)
    digest = lambda array: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    axes = dict(zip(grid.names, grid.values, strict=True))
    named = lambda fn: getattr(fn, "__qualname__", type(fn).__name__)
    return {
        "hyjax_version": version(),
        "sequence": list(problem.sequence),
        "coordinates": list(problem.system.mode(problem.sequence[0]).coordinates),
        "strides": problem.strides,
        "prescribed": None if prescribed is None else [named(each) for each in prescribed.quantities],
        "solved": list(grid.solved) or None,
        "parameters": {
            name: value for name, value in named_leaves(grid.params).items() if name not in {*axes, *grid.solved}
        },
        "grid": {
            name: f"{len(axis)} values from {float(axis[0])!r} to {float(axis[-1])!r}, sha256 {digest(axis)}"
            for name, axis in axes.items()
        },
        "start": f"{np.asarray(orbit.x).tolist()}, sha256 {digest(start)}",
        "integrator": _described(integrator, orbit.x.dtype),
        "record": None if record is None else named(record),
        "dtype": orbit.x.dtype.name,
    }


def _described(integrator: Integrators, dtype) -> dict[str, Any]:
    """Solver, step sizes, tolerances and limits; for integrators by mode, those of each."""
    if isinstance(integrator, ModeIntegrators):
        return {name: _described(part, dtype) for name, part in zip(integrator.names, integrator.parts, strict=True)}
    rtol, atol = integrator.tolerances(dtype)
    return {
        "solver": _named_with_options(integrator.solver),
        "controller": None if integrator.controller is None else _named_with_options(integrator.controller),
        "first_step": None if integrator.first_step is None else float(integrator.first_step),
        "rtol": float(rtol),
        "atol": float(atol),
        "max_steps": integrator.max_steps,
        "max_time": float(integrator.max_time),
        "max_step": None if integrator.max_step is None else float(integrator.max_step),
    }


def _named_with_options(method: Any) -> str:
    """The class of a solver or controller, and its options that are numbers, text or flags, such as `NDF(highest=5)`."""
    fields = {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}
    plain = [f"{name}={value!r}" for name, value in fields.items() if isinstance(value, bool | int | float | str)]
    return f"{type(method).__name__}({', '.join(plain)})" if plain else type(method).__name__


def sweep(
    start: PeriodicOrbit | Branch,
    *,
    where: Where | None = None,
    values: Any = None,
    prescribed: Prescription | None = None,
    solve: Where | None = None,
    record: Record | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    integrator: IntegratorLike | None = None,
    chunk: int | None = None,
    executor: Executor | None = None,
    units: dict[str, str] | None = None,
    progress: bool | None = None,
    throw: bool = True,
) -> "xarray.Dataset":
    r"""Sweep of a periodic orbit over a grid of parameters: $S^m(x, \lambda) = x$ for all $\lambda$ of the grid.

    With `prescribed` and `solve` an axis of the grid is a quantity of the orbit, and as many parameters are solved for at every
    point together with the orbit: $S^m(x, p) = x$, $c(\text{orbit}, p) = b$. Each iteration still costs one pass of the strides.

    The given orbit is continued over a coarse subgrid; at every other point the initial guess is interpolated, so most points
    need two strides of Newton's method. The result at a point depends on the grid alone: not on chunks, devices, the order of the
    computation, or an interruption.

    **Arguments:**

    - `start`: an orbit whose parameters lie on the grid or near the grid; or a branch, whose points are the initial guesses (over
      the branch's own parameter; on a branch with folds, those of the part nearest its first point).
    - `where`: the lens that picks the varied leaves of the parameters: `lambda params: params.slope`, or a tuple of leaves.
    - `values`: an array of values for each of these leaves, in the units of the leaf.
    - `prescribed`: `{name: (quantity, values)}`, further axes of the grid: a quantity is a function `(orbit, params) -> number`,
      differentiable, such as `hj.objectives.speed(model.travel)`, and the values are those that it is to have.
    - `solve`: the lens that picks the parameters to solve for, as many as quantities, whose values in the start orbit are the
      first guess.
    - `record`: a function `orbit -> {name: array}` of further quantities to keep.
    - `out`: path of a zarr store, written chunk by chunk. `resume`: complete the existing store.
    - `integrator`: an `Integrator`, or one for each mode, `{"stance": ..., "flight": ...}`; by default the orbit's.
    - `chunk`: the largest number of points in a chunk.
    - `executor`: any `concurrent.futures.Executor` whose workers compute the chunks, such as Dask's `client.get_executor()`,
      `mpi4py.futures.MPIPoolExecutor()`, or a `ProcessPoolExecutor` that spawns its processes; by default threads of this
      process. Only this process writes the store. See `docs/cluster.md`.
    - `units`: of the coordinates and of `time`, by name, in place of those that the system names.
    - `progress`: show a bar on stderr; by default on a terminal.
    - `throw`: raise a `SolveError` where no lane succeeds.

    **Returns:** an `xarray.Dataset` over dimensions named after the parameters and the quantities: `x` (state just after the last
    jump, over `coordinate`), `period`, `multipliers_real` and `multipliers_imag` (over `multiplier`), `stable`, `residual`,
    `iterations` (of Newton's method, one stride each), the parameters solved for, by name, the quantities of `record`, and
    `result`, a code of `RESULTS` for each point. A point without an orbit is NaN. `not_isolated`: the prescribed quantities do
    not determine the parameters. With `out` the variables are read from the store on access.

    `SolveError` for a store that cannot be written (every finished chunk is kept), that another process computes, or that has
    another provenance, and where the executor's workers fail; `ValueError` for a start, values or an executor that
    cannot be used; `ImportError` without xarray (or zarr, for `out`; or cloudpickle, for `executor`).

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> found = hj.sweep(orbit, where=lambda p: p.slope, values=jnp.array([0.2, 0.25, 0.3]), progress=False)
    >>> found.period.round(6).values.tolist()
    [2.310015, 1.94315, 1.713346]

    Source: the orbits as in `periodic_orbit`, Bhounsule (2014), Sec. 2; initial guesses by natural-parameter continuation, Keller
    (1977).
    """
    require_known("sweep", start, values, prescribed)
    wanted = "a hj.PeriodicOrbit, as hj.periodic_orbit returns it, or a hj.Branch"
    require_kind(start, PeriodicOrbit | Branch, "sweep", "the first argument", wanted)
    orbit = start.orbit(first_point(start)) if isinstance(start, Branch) else start
    if orbit.period.ndim:
        raise ValueError(f"sweep: start is a batch of {len(orbit)} orbits. Take one of them, such as orbits[0].")
    if int(orbit.result._value) != int(RESULTS.successful._value):
        raise ValueError(
            "sweep: the search for the start orbit did not succeed. Give an orbit whose result is successful."
        )
    if record is not None:
        require_function(record, "orbit", "sweep: record")
    if isinstance(orbit.params, Family):
        raise ValueError(
            "sweep: this orbit is one of a family at a distance along it. Follow it over the parameter: continuation(orbit, "
            "where=..., stop=...)."
        )
    require_counts("sweep", 1, chunk=1 if chunk is None else chunk)
    if out is None and resume:
        raise ValueError("sweep: resume needs the path of a store: give out=.")
    if (where is None) != (values is None):
        raise ValueError("sweep: where= and values= belong together.")
    if prescribed and isinstance(start, Branch):
        raise ValueError("sweep: with prescribed= the start must be an orbit, such as branch.orbit(0).")
    system = orbit.system
    grid = Grid(orbit.params, (), (), (), ()) if where is None else grid_over(orbit.params, where, values)
    grid, conditions, first = with_prescribed(grid, orbit, prescribed, solve)
    integrator = orbit.integrator if integrator is None else for_modes(system, integrator)
    noise = 10 * sum(map(float, integrator.tolerances(orbit.x.dtype)))
    problem = Problem(system, orbit.sequence, orbit.strides)
    plain = without_jacobian(integrator)
    # By the size of the grid alone, so that a store is resumed with the program that began it.
    points = math.prod(grid.shape)
    lane = eqx.Partial(orbit_from_guess, problem, grid.free, plain, record, conditions)
    sample = tuple(each[None] for each in first)
    lanes = BatchMap(lane, grid.params, block_width(points), few=compiles_fast(points), sample=sample)
    branch = start if isinstance(start, Branch) else None
    guess = None if branch is None else guesses_on_branch(branch, grid.free)
    solver, named = ChunkSolver(lanes, first, guess, tuple(grid.solved), noise), units_of(None, orbit.params, system)
    whole = Sweep(
        solver,
        grid,
        system.mode(problem.sequence[0]).coordinates,
        named.coordinates | {"time": named.time} | (units or {}),
        provenance(problem, grid, orbit, branch, record, conditions, integrator),
        chunk_shape(grid.shape, max(lanes.capacity, 4096) if chunk is None else chunk),
        Workers(solver, executor, lanes.threads),
        progress,
    )
    found = solve_in_memory(whole) if out is None else solve_in_store(whole, Path(out), resume)
    return raise_if_none("sweep", found) if throw else found


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
