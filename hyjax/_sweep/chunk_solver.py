"""The orbits in one chunk of a grid: initial guesses by interpolation, and Newton's method."""

import dataclasses
from collections.abc import Callable

import numpy as np

from .._system.results import RESULTS
from .batches import BatchMap
from .continued_starts import CoarseGrid, is_far, solve_coarse_grid
from .grid import points_over
from .tangents import follow_tangents


@dataclasses.dataclass(frozen=True)
class ChunkSolver:
    """The solver of a sweep's chunks, with the data that all chunks share.

    **Attributes:** `lanes`: the program for one orbit, mapped over many. `first`: the values on the grid's axes and the unknowns
    of the orbit from which the sweep starts. `guess`: `values -> y` on a branch from which the sweep starts, if any. `solved`:
    names of the parameters that are solved for. `noise`: the error of an orbit by the integrator's tolerance, relative to its
    largest coordinate.
    """

    lanes: BatchMap
    first: tuple[np.ndarray, np.ndarray]
    guess: Callable[[np.ndarray], np.ndarray] | None
    solved: tuple[str, ...]
    noise: float

    def unsolved(self, axes: tuple[np.ndarray, ...]) -> CoarseGrid:
        """The coarse grid of these axes, before it is solved. Where parameters are solved for, which are not on the axes,
        families of orbits may cross."""
        _, y = self.first
        return CoarseGrid(axes, y.size, y.dtype, strict=bool(self.solved))

    def compile(self) -> None:
        values, y = self.first
        self.lanes.compile((values[None], y[None]))

    def coarse(self, coarse: CoarseGrid) -> tuple[CoarseGrid, dict[str, np.ndarray]]:
        """The coarse grid, solved; and the columns of one lane, which show the shapes of all."""
        first, y = self.first
        lane = self.lanes((first[None], y[None]))
        if lane["result"][0] == int(RESULTS.not_isolated._value):
            raise ValueError(
                f"sweep: at the start orbit the prescribed quantities do not determine {', '.join(self.solved)}. Prescribe "
                "quantities that depend on each of these parameters, independently of each other."
            )
        y = np.where(np.isfinite(lane["_y"][0]), lane["_y"][0], y)

        def found_from(values, y):
            # The fractions of a line that a step takes are float64, whatever the orbits are.
            return self.lanes((values.astype(first.dtype), y.astype(coarse.y.dtype)))

        def solve(values, y):
            found = found_from(values, y)
            return found["_y"], found["iterations"]

        if self.solved:

            def solve_with_slope(values, y):
                found = found_from(values, y)
                return found["_y"], found["_slope"], found["iterations"]

            return follow_tangents(coarse, solve_with_slope, (first, y, lane["_slope"][0])), lane

        return solve_coarse_grid(coarse, solve, (first, y), self.guess, noise=self.noise), lane

    def solve(self, coarse: CoarseGrid, axes: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
        """The columns of the orbits at all points over the axes of a chunk; the last axis varies fastest."""
        values = points_over(axes)
        guesses, reach = coarse.guesses(values)
        found = self.lanes((values, guesses))
        far = is_far(found["_y"], guesses, reach, self.noise)
        found["result"] = np.where(far, int(RESULTS.orbit_not_converged._value), found["result"])
        for name, column in found.items():
            if column.dtype.kind in "fc":
                column = column.copy()
                column[far] = np.nan
                found[name] = column
        return kept_columns(found)


def kept_columns(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of a dataset, from those of the lanes."""
    kept = {name: column for name, column in found.items() if not name.startswith("_")}
    kept["stable"] = np.max(np.hypot(found["multipliers_real"], found["multipliers_imag"]), axis=-1) < 1
    kept["result"] = found["result"].astype(np.int8)
    return kept
