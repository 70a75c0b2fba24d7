"""A point on a curve of optima, and its active set."""

from typing import NamedTuple

import numpy as np

from .family import Expansion
from .gait_program import Known


class Active(NamedTuple):
    """Which inequalities hold as equalities, and which unknowns are at their lower and upper bounds."""

    rows: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def switched(self, kind: str, k: int) -> "Active":
        """With the other state of one inequality (`rows`) or bound (`low`, `high`)."""
        own = getattr(self, kind).copy()
        own[k] = ~own[k]
        return self._replace(**{kind: own})


class Optimum(NamedTuple):
    """A point that fulfils the optimality conditions with an active set. `duals`: of the bounds, positive at a lower one."""

    number: float
    u: np.ndarray
    multipliers: np.ndarray
    duals: np.ndarray
    expansion: Expansion
    known: Known
