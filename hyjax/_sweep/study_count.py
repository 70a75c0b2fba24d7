"""Numbers of evaluations of a system's vector fields, counted while a compiled program runs.

Every vector field is wrapped: an evaluation calls back into Python, which counts it. The callbacks are slow, and are compiled
into a program of their own, so that they are not part of what is timed.

- An **evaluation** is one value $f(t, x, p)$, in whatever mode and for whatever purpose: stages, Newton residuals, the choice of
  the first step, rejected steps, trials that locate an event, and the few at the start of each arc that tell whether events
  accumulate. Several values in one vectorized call, as in Radau's three stages, count as several.
- A **Jacobian** is one linearization of $f$ at one point. All columns together count as one, since they are pushed through the
  vector field together; a single directional derivative counts as one too. The value that comes with the linearization is not
  an evaluation. In the solvers of hyjax one elimination of an $n \\times n$ matrix follows each Jacobian, except that Radau's
  three stages have three Jacobians and one elimination of $3n$ unknowns.

This holds for one lane alone. Under `vmap` a callback without a batched operand runs once for the whole batch, which is how all
columns of `jacfwd` count once; and the lanes of a batched loop that have ended are evaluated until all have ended.
"""

import dataclasses
import functools as ft
from collections.abc import Callable

import equinox as eqx
import jax

from .._system.system import HybridSystem, Mode


@dataclasses.dataclass
class Counts:
    """Numbers of evaluations and of Jacobians since `start`."""

    evaluations: int = 0
    jacobians: int = 0

    def start(self) -> None:
        """Count from zero."""
        self.evaluations = self.jacobians = 0

    def evaluated(self, _) -> None:
        """Count one evaluation."""
        self.evaluations += 1

    def linearized(self, _) -> None:
        """Count one Jacobian."""
        self.jacobians += 1


COUNTS = Counts()


def counted(system: HybridSystem) -> HybridSystem:
    """The system with vector fields that count their evaluations and Jacobians in `COUNTS`.

    The counts are complete after `jax.effects_barrier()`.
    """
    modes = {
        name: Mode(_counting(mode.vector_field), mode.coordinates, mode.domain) for name, mode in system.modes.items()
    }
    return HybridSystem(modes, system.transitions)


# Modes that share a vector field share the wrapped one, and so do studies of the same system: no program is compiled twice.
@ft.lru_cache(maxsize=64)
def _counting(field: Callable) -> Callable:
    @eqx.filter_custom_jvp
    def counting(t, x, params):
        jax.debug.callback(COUNTS.evaluated, x[0])
        return field(t, x, params)

    @counting.def_jvp
    def _(primals, tangents):
        # The operand is the point, which all columns of a Jacobian share.
        jax.debug.callback(COUNTS.linearized, primals[1][0])
        return eqx.filter_jvp(field, primals, tangents)

    return lambda t, x, params: counting(t, x, params)
