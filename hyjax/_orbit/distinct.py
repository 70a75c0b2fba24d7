r"""Which results of Newton's method are the same orbit: those that lie within their error bounds.

A result $x$ with the residual $r = S^m(x) - x$ lies within about $|(I - DS^m)^{-1}|\,|r|$ of an orbit. Near a bifurcation the
matrix is nearly singular, and results that differ by far more than rounding are one orbit.

Source: Deuflhard (2004), *Newton Methods for Nonlinear Problems*, ch. 2, for the estimate of the error by Newton's correction.
"""

from typing import NamedTuple

import numpy as np


class Closeness(NamedTuple):
    """How close two results must be: relative to the coordinates' sizes, between `least` and `most`, and otherwise `factor` times
    their error bounds."""

    least: float
    most: float
    factor: float


class Result(NamedTuple):
    """A periodic orbit found by Newton's method.

    **Attributes:** `nodes`: shape `(strides, n)`. `close`: how close to a node another state must be, to be that
    node, shape `(n,)`. `arcs`: the number of arcs, where orbits that differ in it are searched together.
    """

    nodes: np.ndarray
    close: np.ndarray
    arcs: int = 0

    def meets(self, other: "Result") -> bool:
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


def result_of(orbits, i: int, size: np.ndarray, closeness: Closeness) -> Result:
    """Orbit `i` of a batch. **Arguments:** `size`: of each coordinate, shape `(n,)`."""
    nodes, jacobian = np.asarray(orbits.nodes[i]), np.asarray(orbits.return_jacobian[i])
    size = np.maximum(size, np.max(np.abs(nodes), axis=0))
    # Where a coordinate is zero but for rounding, such as a clock that is reset, allow rounding of the largest.
    size = np.maximum(size, 1e-6 * np.max(size)) + np.finfo(size.dtype).tiny
    residual = float(orbits.residual[i]) + 4 * np.finfo(size.dtype).eps * np.max(np.abs(nodes))
    # Least squares, which is bounded where the matrix is singular.
    inverse = np.linalg.pinv(np.eye(len(jacobian)) - jacobian, rcond=np.finfo(size.dtype).eps)
    error = closeness.factor * residual * np.sum(np.abs(inverse), axis=1)
    arcs = int(orbits.arcs[i]) if hasattr(orbits, "arcs") else 0
    return Result(nodes, np.clip(error, closeness.least * size, closeness.most * size), arcs)


def _near(states: np.ndarray, state: np.ndarray, close: np.ndarray) -> np.ndarray:
    return np.all(np.abs(states - state) <= close, axis=-1)
