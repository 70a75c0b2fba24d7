r"""Objectives of a gait: functions `(orbit, params) -> number` for `hyjax.optimize` and `hyjax.Constraint`.

Some are made from functions of a model, such as `speed(model.travel)`. Any differentiable function of an orbit serves: its
period is `lambda orbit, params: orbit.period`.
"""

import jax.numpy as jnp

from .._orbit.orbit import PeriodicOrbit
from .._system.types import Params, Scalar
from .along import along as along, largest as largest, smallest as smallest
from .constraint import Objective
from .integral import integral as integral
from .jumps import impact_loss as impact_loss, speed as speed, step_length as step_length
from .work import cost_of_transport as cost_of_transport, negative_work as negative_work, positive_work as positive_work


def period(orbit: PeriodicOrbit, params: Params) -> Scalar:
    """The period of the orbit, in units of time."""
    return orbit.period


def spectral_radius(orbit: PeriodicOrbit, params: Params) -> Scalar:
    """The largest modulus of a multiplier, the factor by which a deviation shrinks in a stride. Not differentiable where the two
    largest multipliers meet, where an optimum often is: there use `contraction`."""
    return orbit.spectral_radius


def contraction(doublings: int = 4) -> Objective:
    r"""An upper bound of the spectral radius that is differentiable everywhere: $\|A^k\|_F^{1/k}$, $k = 2^{\text{doublings}}$.

    $A$ is the return Jacobian. The bound holds for each $k$ and falls to the spectral radius as $k$ grows (Gelfand's formula):
    for a return map of $n$ states within a factor of about $(\kappa\sqrt n)^{1/k}$, $\kappa$ the condition of the eigenvectors.
    It is a polynomial in $A$ but for the root, so it is smooth where multipliers meet; it depends on the coordinates' units.

    **Arguments:** `doublings`: static, 0 for the Frobenius norm of $A$ itself.

    Source: Horn, Johnson (2012), *Matrix Analysis*, Corollary 5.6.14.
    """
    if doublings < 0:
        raise ValueError(f"contraction: doublings={doublings} must not be negative.")

    def contraction(orbit: PeriodicOrbit, params: Params) -> Scalar:
        matrix, logarithm = orbit.return_jacobian, jnp.zeros((), orbit.x.dtype)
        for k in range(doublings + 1):
            # The logarithm of the norm is summed up, since a high power may underflow.
            matrix = matrix @ matrix if k else matrix
            square = jnp.sum(matrix**2)
            norm = jnp.sqrt(jnp.where(square > 0, square, 1))
            matrix, logarithm = matrix / norm, 2 * logarithm + jnp.log(norm)
        return jnp.where(square > 0, jnp.exp(logarithm / 2**doublings), 0)

    return contraction
