"""The orbits in one chunk of a grid: initial guesses, Newton's method, and the variables of the dataset."""

import dataclasses
from typing import Any

import numpy as np

from .._continuation.branch import Branch
from .._orbit.problem import Problem
from .._system.labels import units_attribute
from .._system.results import RESULTS
from .batches import BatchMap
from .branch_starts import guesses_on_branch
from .grid import Grid
from .starts import CoarseGrid, is_far, solve_coarse_grid
from .store import code_attributes
from .tangents import follow_tangents

# `name -> (dimensions, values)`, as xarray takes them.
Columns = dict[str, tuple[tuple[str, ...], np.ndarray]]


@dataclasses.dataclass(frozen=True)
class ChunkSolver:
    """The solver of a sweep's chunks, with the data that all chunks share.

    **Attributes:** `lanes`: the program for one orbit, mapped over many. `branch`: the branch from which the sweep starts, if
    any. `first`: the values on the grid's axes and the unknowns of the orbit from which it starts. `units`: of the coordinates
    and of `time`, by name.
    """

    problem: Problem
    grid: Grid
    lanes: BatchMap
    branch: Branch | None
    first: tuple[np.ndarray, np.ndarray]
    units: dict[str, str]

    @property
    def strict(self) -> bool:
        """Whether families of orbits may cross in the grid: parameters that are solved for are not on its axes."""
        return bool(self.grid.solved)

    def coarse(self) -> tuple[CoarseGrid, dict[str, np.ndarray]]:
        """The solved coarse grid; and the columns of one lane, which show the shapes of all."""
        first, y = self.first
        lane = self.lanes((first[None], y[None]))
        if lane["result"][0] == int(RESULTS.not_isolated._value):
            raise ValueError(
                f"sweep: at the start orbit the prescribed quantities do not determine {', '.join(self.grid.solved)}. Prescribe "
                "quantities that depend on each of these parameters, independently of each other."
            )
        y = np.where(np.isfinite(lane["_y"][0]), lane["_y"][0], y)

        def solve(values, y):
            found = self.lanes((values, y))
            return found["_y"], found["iterations"]

        if self.strict:

            def solve_with_slope(values, y):
                found = self.lanes((values, y))
                return found["_y"], found["_slope"], found["iterations"]

            coarse = CoarseGrid(self.grid.values, y.size, y.dtype, strict=True)
            return follow_tangents(coarse, solve_with_slope, (first, y, lane["_slope"][0])), lane

        coarse = CoarseGrid(self.grid.values, y.size, y.dtype)
        guess = None
        if self.branch is not None:
            if self.branch.unfolding.free == self.grid.free:
                guess = guesses_on_branch(self.branch)
            elif set(self.branch.unfolding.free) - set(self.grid.free):
                raise ValueError(
                    "sweep: the branch's parameter is not among the varied parameters. Start from one of the branch's orbits."
                )
        return solve_coarse_grid(coarse, solve, (first, y), guess), lane

    def solve(self, coarse: CoarseGrid, box: tuple[slice, ...]) -> Columns:
        """The columns of the orbits in a box of the grid."""
        shape = tuple(each.stop - each.start for each in box)
        values = self.grid.points(box)
        guesses, reach = coarse.guesses(values)
        found = self.lanes((values, guesses))
        far = is_far(found["_y"], guesses, reach)
        found["result"] = np.where(far, int(RESULTS.orbit_not_converged._value), found["result"])
        for name, column in found.items():
            if column.dtype.kind in "fc":
                column = column.copy()
                column[far] = np.nan
                found[name] = column
        kept = kept_columns(found)
        return {
            name: (self.dims(name, column), column.reshape(*shape, *column.shape[1:])) for name, column in kept.items()
        }

    def dims(self, name: str, column: np.ndarray) -> tuple[str, ...]:
        """The dimensions of a column, shape `(points, ...)`: those of the grid, then its own."""
        own = {"x": ("coordinate",), "multipliers_real": ("multiplier",), "multipliers_imag": ("multiplier",)}
        return self.grid.names + own.get(name, tuple(f"{name}_{k}" for k in range(column.ndim - 1)))

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the state's coordinates."""
        return self.problem.system.mode(self.problem.sequence[0]).coordinates

    def attributes(self, name: str) -> dict[str, Any]:
        """The attributes of a variable of the dataset."""
        known = {
            "x": {"long_name": "state just after the last jump"} | units_attribute(self.coordinates, self.units),
            "period": {"units": self.units.get("time", "")},
            "iterations": {"long_name": "strides computed by Newton's method", "units": "1"},
            "residual": {"long_name": "largest component of S(x) - x"},
            "result": code_attributes(),
        } | {solved: {"long_name": "parameter solved for", "units": unit} for solved, unit in self.grid.solved.items()}
        return {key: value for key, value in known.get(name, {}).items() if value != ""}


def kept_columns(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of a dataset, from those of the lanes."""
    kept = {name: column for name, column in found.items() if not name.startswith("_")}
    kept["stable"] = np.max(np.hypot(found["multipliers_real"], found["multipliers_imag"]), axis=-1) < 1
    kept["result"] = found["result"].astype(np.int8)
    return kept
