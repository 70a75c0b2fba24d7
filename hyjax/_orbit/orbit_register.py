r"""The orbits found so far in a search, and what the results of further starts are: orbits of the register, new ones, or none.

Results of Newton's method are the same orbit if they lie within their error bounds: a result $x$ with the residual
$r = S^m(x) - x$ lies within about $|(I - DS^m)^{-1}|\,|r|$ of an orbit. Near a bifurcation the matrix is nearly singular, and
results that differ by far more than rounding are one orbit.

Source: Deuflhard (2004), *Newton Methods for Nonlinear Problems*, ch. 2, for the estimate of the error by Newton's correction.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from .._system.results import RESULTS
from .._system.types import Matrix, Scalar
from .orbit import PeriodicOrbit


class FixedPoint(eqx.Module):
    """A fixed point of the map of a section, iterated: the numbers of a `PeriodicOrbit` that tell orbits apart, and the number of
    arcs. Near grazing, orbits with and without an impact are close to each other."""

    nodes: Float[Array, "strides n"]
    arcs: Int[Array, ""]
    period: Scalar
    return_jacobian: Matrix
    residual: Scalar
    distance: Scalar
    result: RESULTS


# The result of a search, along a sequence of modes or by a section.
Solved = PeriodicOrbit | FixedPoint


class FoundOrbit(NamedTuple):
    """A periodic orbit found by Newton's method.

    **Attributes:** `nodes`: shape `(strides, n)`. `close`: how close to a node another state must be, to be that
    node, shape `(n,)`. `arcs`: the number of arcs, where orbits that differ in it are searched together.
    """

    nodes: np.ndarray
    close: np.ndarray
    arcs: int = 0

    def meets(self, other: "FoundOrbit") -> bool:
        """Whether both are one orbit: some stride of the other starts where this starts, or the reverse."""
        if self.arcs != other.arcs:
            return False
        close = np.maximum(self.close, other.close)
        pairs = (other.nodes, self.nodes[0]), (self.nodes, other.nodes[0])
        return any(bool(_near(nodes, start, close).any()) for nodes, start in pairs)

    @property
    def repeats(self) -> bool:
        """Whether the orbit closes after fewer strides."""
        return bool(_near(self.nodes[1:], self.nodes[0], self.close).any())

    def inside(self, low: np.ndarray, high: np.ndarray) -> int | None:
        """The first stride that starts in the box, if any."""
        found = np.flatnonzero(np.all((self.nodes >= low - self.close) & (self.nodes <= high + self.close), axis=-1))
        return int(found[0]) if found.size else None


def result_of(orbits, i: int, size: np.ndarray, least: float, factor: float) -> FoundOrbit:
    """Orbit `i` of a batch. Another state is a node of it within `factor` times the error bound, at least `least` and at most
    0.01 of the coordinates' sizes. **Arguments:** `size`: of each coordinate, shape `(n,)`."""
    nodes, jacobian = np.asarray(orbits.nodes[i]), np.asarray(orbits.return_jacobian[i])
    size = np.maximum(size, np.max(np.abs(nodes), axis=0))
    # Where a coordinate is zero but for rounding, such as a clock that is reset, allow rounding of the largest.
    size = np.maximum(size, 1e-6 * np.max(size)) + np.finfo(size.dtype).tiny
    residual = float(orbits.residual[i]) + 4 * np.finfo(size.dtype).eps * np.max(np.abs(nodes))
    # Least squares, which is bounded where the matrix is singular.
    inverse = np.linalg.pinv(np.eye(len(jacobian)) - jacobian, rcond=np.finfo(size.dtype).eps)
    error = factor * residual * np.sum(np.abs(inverse), axis=1)
    arcs = int(orbits.arcs[i]) if hasattr(orbits, "arcs") else 0
    return FoundOrbit(nodes, np.clip(error, least * size, 1e-2 * size), arcs)


def _near(states: np.ndarray, state: np.ndarray, close: np.ndarray) -> np.ndarray:
    return np.all(np.abs(states - state) <= close, axis=-1)


class OrbitRegister:
    """A register of the orbits in a box.

    **Attributes:** `orbits`: one PyTree of numbers each. `hits`: how many starts led to each. `outside`: a state of each orbit
    outside of the box to which a start led.
    """

    def __init__(self, low: np.ndarray, high: np.ndarray):
        self.low, self.high = low, high
        self.size = np.maximum(np.abs(low), np.abs(high))
        self.orbits, self.results, self.hits, self.outside = [], [], [], []
        # Coarse results that were solved accurately, with the number of the orbit, or None where that failed.
        self.seen: list[tuple[FoundOrbit, int | None]] = []

    def sort(self, orbits: Solved, merge: bool) -> list[list[FoundOrbit]]:
        """Count the coarse results that are known; group the others by orbit. Without `merge` each is a group of its own: near a
        fold or grazing two orbits may be nearer than the error of a coarse result."""
        groups: list[list[FoundOrbit]] = []
        for i in np.flatnonzero(orbits.result._value == RESULTS.successful._value).tolist():
            result = result_of(orbits, i, self.size, 1e-3, 3.0)
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

    def add(self, orbits: Solved, groups: list[list[FoundOrbit]]) -> None:
        """Add the accurate solution of each group, unless it is known, or none."""
        good = orbits.result._value == RESULTS.successful._value
        least = float(np.finfo(self.low.dtype).eps) ** 0.6
        results = [result_of(orbits, i, self.size, least, 10.0) if good[i] else None for i in range(len(groups))]
        # The best-conditioned result first: a further result that agrees within its own, larger error is the same orbit.
        errors = [np.inf if result is None else np.max(result.close) for result in results]
        for i in np.argsort(errors, kind="stable").tolist():
            number = self._number(results[i], jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], orbits))
            self.seen.append((groups[i][0], number))
            self._count([] if number is None else [number], len(groups[i]))

    def _number(self, result: FoundOrbit | None, orbit: Solved) -> int | None:
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
