"""Fixed points of the map of a section, as a search finds them."""

import equinox as eqx
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
