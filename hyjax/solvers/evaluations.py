"""Evaluations of the vector field in one step of a solver."""

from typing import NamedTuple


class Work(NamedTuple):
    """The work of a step of $\\dot x = f(t, x)$, from a state at which $f$ is known to the next.

    An **evaluation** is one value of $f$; a **Jacobian** is one linearization of $f$ at one point, all columns together, with the
    value that comes with it. One elimination of an $n \\times n$ matrix follows each Jacobian, except in `Radau5`, where one of
    $3n$ unknowns follows three.

    **Attributes:** `evaluations`, `jacobians`: in every step. `each_evaluations`, `each_jacobians`: in every iteration of
    Newton's method, besides.
    """

    evaluations: int
    jacobians: int = 0
    each_evaluations: int = 0
    each_jacobians: int = 0
