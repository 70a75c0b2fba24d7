r"""Sweeps: a periodic orbit over a grid of parameters, on all devices, stored chunk by chunk."""

from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TYPE_CHECKING

from .._continuation.branch import Branch
from .._flow.integrator import for_modes, IntegratorLike, PlainForward, with_adjoint
from .._orbit.orbit import PeriodicOrbit
from .._orbit.problem import Problem
from .._results.labels import units_of
from .._system.results import RESULTS
from .._system.where import Where
from .batches import BatchMap
from .branch_starts import first_point, guesses_on_branch
from .chunk_solver import ChunkSolver
from .chunks import solve_in_memory, solve_in_store, Sweep
from .grid import Grid, grid_over
from .lane import OrbitFromGuess, Record
from .prescription import Prescription, with_prescribed
from .provenance import provenance
from .store import chunk_shape
from .variables import Variables
from .workers import Workers

if TYPE_CHECKING:
    import xarray


def sweep(
    system,
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
) -> "xarray.Dataset":
    r"""Sweep of a periodic orbit over a grid of parameters: $S^m(x, \lambda) = x$ for all $\lambda$ of the grid.

    With `prescribed` and `solve` an axis of the grid is a quantity of the orbit, and as many parameters are solved for at every
    point together with the orbit: $S^m(x, p) = x$, $c(\text{orbit}, p) = b$. Each iteration still costs one pass of the strides.

    The given orbit is continued over a coarse subgrid; at every other point the initial guess is interpolated, so most points
    need two strides of Newton's method. The result at a point depends on the grid alone: not on chunks, devices, the order of the
    computation, or an interruption.

    **Arguments:**

    - `system`: a `HybridSystem`.
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

    **Returns:** an `xarray.Dataset` over dimensions named after the parameters and the quantities: `x` (state just after the last
    jump, over `coordinate`), `period`, `multipliers_real` and `multipliers_imag` (over `multiplier`), `stable`, `residual`,
    `iterations` (of Newton's method, one stride each), the parameters solved for, by name, the quantities of `record`, and
    `result`, a code of `RESULTS` for each point. A point without an orbit is NaN. `not_isolated`: the prescribed quantities do
    not determine the parameters. With `out` the variables are read from the store on access.

    `StoreError` for a store that cannot be written (every finished chunk is kept), that another process computes, or that has
    another provenance; `ExecutorError` where the executor's workers fail; `ValueError` for a start, values or an executor that
    cannot be used; `ImportError` without xarray (or zarr, for `out`; or cloudpickle, for `executor`).

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> found = hj.sweep(wheel.system, orbit, where=lambda p: p.slope, values=jnp.array([0.2, 0.25, 0.3]), progress=False)
    >>> found.period.round(6).values.tolist()
    [2.310015, 1.94315, 1.713346]

    Source: the orbits as in `periodic_orbit`, Bhounsule (2014), Sec. 2; initial guesses by natural-parameter continuation, Keller
    (1977).
    """
    orbit = start.orbit(first_point(start)) if isinstance(start, Branch) else start
    if orbit.period.ndim:
        raise ValueError(f"sweep: start is a batch of {len(orbit)} orbits. Take one of them, such as orbits[0].")
    if int(orbit.result._value) != int(RESULTS.successful._value):
        raise ValueError(
            "sweep: the search for the start orbit did not succeed. Give an orbit whose result is successful."
        )
    if chunk is not None and chunk < 1:
        raise ValueError(f"sweep: chunk={chunk} must be at least 1.")
    if out is None and resume:
        raise ValueError("sweep: resume needs the path of a store: give out=.")
    if (where is None) != (values is None):
        raise ValueError("sweep: where= and values= belong together.")
    if prescribed and isinstance(start, Branch):
        raise ValueError("sweep: with prescribed= the start must be an orbit, such as branch.orbit(0).")
    grid = Grid(orbit.params, (), (), (), ()) if where is None else grid_over(orbit.params, where, values)
    grid, conditions, first = with_prescribed(grid, orbit, prescribed, solve)
    integrator = orbit.integrator if integrator is None else for_modes(system, integrator)
    noise = 10 * sum(map(float, integrator.tolerances(orbit.x.dtype)))
    problem = Problem(system, orbit.sequence, orbit.strides)
    plain = with_adjoint(integrator, PlainForward())
    lanes = BatchMap(OrbitFromGuess(problem, grid.free, plain, record, conditions), grid.params)
    branch = start if isinstance(start, Branch) else None
    guess = None if branch is None else guesses_on_branch(branch, grid.free)
    solver, named = ChunkSolver(lanes, first, guess, tuple(grid.solved), noise), units_of(None, orbit.params, system)
    whole = Sweep(
        solver,
        Variables(problem, grid, named.coordinates | {"time": named.time} | (units or {})),
        provenance(problem, grid, orbit, branch, record, conditions, integrator),
        chunk_shape(grid.shape, max(lanes.capacity, 4096) if chunk is None else chunk),
        Workers(solver, executor, lanes.threads),
        progress,
    )
    return solve_in_memory(whole) if out is None else solve_in_store(whole, Path(out), resume)
