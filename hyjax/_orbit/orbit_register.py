"""The orbits found so far in a search, and what the results of further starts are: known orbits, new ones, or none."""

import jax
import numpy as np

from .._system.results import RESULTS
from .distinct import Closeness, Result, result_of
from .fixed_point import Solved


class Known:
    """A register of the orbits in a box.

    **Attributes:** `orbits`: one PyTree of numbers each. `hits`: how many starts led to each. `outside`: a state of each orbit
    outside of the box to which a start led.
    """

    def __init__(self, low: np.ndarray, high: np.ndarray):
        self.low, self.high = low, high
        self.size = np.maximum(np.abs(low), np.abs(high))
        self.rough = Closeness(1e-3, 1e-2, 3.0)
        self.exact = Closeness(float(np.finfo(low.dtype).eps) ** 0.6, 1e-2, 10.0)
        self.orbits, self.results, self.hits, self.outside = [], [], [], []
        # Coarse results that were solved accurately, with the number of the orbit, or None where that failed.
        self.seen: list[tuple[Result, int | None]] = []

    def sort(self, orbits: Solved, merge: bool) -> list[list[Result]]:
        """Count the coarse results that are known; group the others by orbit. Without `merge` each is a group of its own: near a
        fold or grazing two orbits may be nearer than the error of a coarse result."""
        groups: list[list[Result]] = []
        for i in np.flatnonzero(orbits.result._value == RESULTS.successful._value).tolist():
            result = result_of(orbits, i, self.size, self.rough)
            if result.inside(self.low, self.high) is None:
                self.outside.append(np.asarray(result.nodes[0]))
                continue
            if not merge:
                groups.append([result])
                continue
            same = [k for other, k in self.seen if result.meets(other)]
            if same:
                self._count([k for k in same if k is not None][:1], 1)
            elif group := next((group for group in groups if result.meets(group[0])), None):
                group.append(result)
            else:
                groups.append([result])
        return groups

    def add(self, orbits: Solved, groups: list[list[Result]]) -> None:
        """Add the accurate solution of each group, unless it is known, or none."""
        good = orbits.result._value == RESULTS.successful._value
        results = [result_of(orbits, i, self.size, self.exact) if good[i] else None for i in range(len(groups))]
        # The best-conditioned result first: a further result that agrees within its own, larger error is the same orbit.
        errors = [np.inf if result is None else np.max(result.close) for result in results]
        for i in np.argsort(errors, kind="stable").tolist():
            number = self._number(results[i], jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], orbits))
            self.seen.append((groups[i][0], number))
            self._count([] if number is None else [number], len(groups[i]))

    def _number(self, result: Result | None, orbit: Solved) -> int | None:
        if result is None or result.repeats or result.inside(self.low, self.high) is None:
            return None
        for k, other in enumerate(self.results):
            if result.meets(other):
                if np.max(result.close) < np.max(other.close):
                    self.results[k], self.orbits[k] = result, orbit
                return k
        self.orbits.append(orbit)
        self.results.append(result)
        self.hits.append(0)
        self.seen.append((result, len(self.orbits) - 1))
        return len(self.orbits) - 1

    def _count(self, numbers: list[int], hits: int) -> None:
        for k in numbers:
            self.hits[k] += hits
