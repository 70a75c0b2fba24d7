"""One gait followed to other parameters, by warm starts."""

import equinox as eqx
import jax
import jax.numpy as jnp

from .._orbit.orbit import PeriodicOrbit
from .._orbit.periodic_orbit import periodic_orbit
from .._orbit.shooting import SingleShooting
from .._system.results import RESULTS
from .._system.types import Params

# The shortest step, as a part of the way to the parameters.
SHORTEST = 1 / 16
# A warm start that needs more iterations is hardly one.
METHOD = SingleShooting(max_iterations=15)


class Followed(eqx.Module):
    """A gait that was followed. **Attributes:** `orbit`: the last gait. `result`: `successful` where this is the gait at the
    parameters; otherwise the code of the search that failed."""

    orbit: PeriodicOrbit
    result: RESULTS


def follow(orbit: PeriodicOrbit, params: Params, near: float) -> Followed:
    """The orbit at other parameters: Newton's method from the last orbit, over the whole way if it leads to an orbit `near` the
    last one, otherwise in steps along the straight line of parameters, halved on failure.

    **Arguments:** `params`: of the structure and the dtypes of `orbit.params`, so that one compiled program serves all steps.
    `near`: as for `periodic_orbit`.
    """
    start, reached, step = orbit.params, 0.0, 1.0
    while True:
        found = periodic_orbit(
            orbit.step,
            orbit.x,
            _between(start, params, reached + step),
            method=METHOD,
            near=near,
            throw=False,
        )
        if found.result == RESULTS.successful:
            orbit, reached = found, reached + step
            if reached == 1:
                return Followed(orbit, orbit.result)
        elif step > SHORTEST:
            step /= 2
        else:
            return Followed(orbit, found.result)


def _between(start: Params, end: Params, share: float) -> Params:
    """Parameters on the straight line; leaves that are no floating-point numbers are those of the end."""

    def one(a, b):
        if share == 1 or not eqx.is_inexact_array(b):
            return b
        return a + jnp.asarray(share, b.dtype) * (b - a)

    return jax.tree.map(one, start, end)
