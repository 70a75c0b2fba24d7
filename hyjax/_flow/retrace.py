"""The steps of a flow repeated with given lengths, for derivatives through the steps.

Reverse mode through many steps keeps few states and recomputes the others. Hazard: the recomputation must not adapt the step
sizes again. Near the resolution of the dtype the error estimate is rounding, so another compiled program adapts other lengths and
ends at another point, and a gradient that combines the two is wrong in its third digit. Therefore the lengths are found once,
without derivatives, and the differentiated steps take them as given.
"""

from collections.abc import Callable

import equinox as eqx
import equinox.internal as eqxi
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int, PyTree

from .._system.types import Flag, Scalar, State, Time
from .integrator import Integrator
from .step import Step


def later(t: Time, late: Scalar, dt: Scalar) -> tuple[Time, Scalar]:
    """The time `t + late + dt`, and the part of the sum that it loses by rounding: a sum in twice the digits of the dtype.

    Near a surface that a steep flow meets, many steps together may be shorter than the resolution of the time.
    Source: Moller (1965), *Quasi double-precision in floating point addition*; Knuth, *The Art of Computer Programming*, 4.2.2.
    """
    dt = dt + late
    end = t + dt
    before, step = stop_gradient(t), stop_gradient(end) - stop_gradient(t)
    return end, stop_gradient((before - (end - step)) + (dt - step))


class StepLengths(eqx.Module):
    """The lengths of the steps taken so far: the first `count` of `lengths`."""

    lengths: eqxi.MaybeBuffer[Float[Array, " max_steps"]]
    count: Int[Array, ""]

    def tried(self, length: Scalar, take: Flag) -> "StepLengths":
        """The lengths with one more trial step, which the next overwrites unless the step is taken (`take`)."""
        return StepLengths(self.lengths.at[self.count].set(length), jnp.where(take, self.count + 1, self.count))


def retrace(
    field: Callable, t0: Time, x0: State, args: PyTree, taken: StepLengths, integrator: Integrator
) -> tuple[Time, State, State]:
    """`(t, x, f)` after the given steps along `field(t, x, args)`, differentiable as the integrator's `adjoint` allows.

    The solver's stages are a loop regardless of `integrator.unroll`: a backward pass spends most of its time elsewhere, and
    compiles in half the time.
    """
    rtol, atol = integrator.tolerances(x0.dtype)
    step = Step(integrator.solver, field, args, False, integrator.loop, atol / rtol)

    def body(carry):
        k, t, late, x, f, memory = carry
        length = taken.lengths[k]
        _, x, f, _, memory, _ = step(t, x, f, length, memory)
        return k + 1, *later(t, late, length), x, f, memory

    f0 = step.field(t0, x0)
    start = (jnp.array(0), t0, jnp.zeros_like(t0), x0, f0, step.init(t0, x0, f0, taken.lengths[0]))
    _, t, _, x, f, _ = eqxi.while_loop(
        lambda carry: carry[0] < taken.count, body, start, max_steps=integrator.max_steps, kind=integrator.loop,
        checkpoints=getattr(integrator.adjoint, "checkpoints", None),
    )  # fmt: skip
    return t, x, f
