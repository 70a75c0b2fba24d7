"""The variables of a sweep's dataset: dimensions and attributes."""

from typing import Any, NamedTuple

import numpy as np

from .._orbit.problem import Problem
from .._results.labels import units_attribute
from .._results.long_names import cf_attributes
from .grid import Grid
from .store import code_attributes


class Variables(NamedTuple):
    """The variables of the orbits of a problem over a grid. `units`: of the coordinates and of `time`, by name."""

    problem: Problem
    grid: Grid
    units: dict[str, str]

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
            "x": units_attribute(self.coordinates, self.units),
            "period": {"units": self.units.get("time", "")},
            "result": code_attributes(),
        } | {solved: {"long_name": "parameter solved for", "units": unit} for solved, unit in self.grid.solved.items()}
        own = {key: value for key, value in known.get(name, {}).items() if value != ""}
        return cf_attributes(name, {}) | own
