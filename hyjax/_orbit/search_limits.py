"""The limits of a search for an orbit, which may be traced: a coarse and an accurate search share one compiled program."""

import equinox as eqx
import numpy as np
from jaxtyping import Array

from .._flow.mode_integrators import Integrators, Limits, with_limits
from .._numerics.newton import DampedNewton
from .shooting import AbstractShooting


class SearchLimits(eqx.Module):
    """Limits of the integrator's parts and of the root finder.

    **Attributes:** `parts`: one for each part of the integrator. `iterations`: of the root finder. `settle`: the residual,
    relative to the state, at which `DampedNewton` ends.
    """

    parts: tuple[Limits, ...]
    iterations: int | Array | np.ndarray
    settle: float | Array | np.ndarray

    def imposed_on(self, integrator: Integrators, method: AbstractShooting) -> tuple[Integrators, AbstractShooting]:
        """The integrator and the method with these limits."""
        method = eqx.tree_at(lambda method: method.max_iterations, method, self.iterations)
        if isinstance(method.root_finder, DampedNewton):
            method = eqx.tree_at(lambda method: method.root_finder.settle, method, self.settle)
        return with_limits(integrator, self.parts), method
