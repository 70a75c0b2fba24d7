"""How long the next step is: what a diffrax step-size controller says, or always the same."""

from typing import Any

import diffrax as dfx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp

from .._system.types import Flag, Scalar, State, Time
from .integrator import Integrator
from .step import Step


class Pace:
    """The lengths of steps.

    A controller is asked in time from the start of each step, which keeps all digits of a short step late in time.
    """

    def __init__(self, integrator: Integrator, step: Step, t: Time, x: State, f: State, t_stop: Time):
        self.controller = integrator.step_controller(x.dtype)
        self.fixed = integrator.fixed
        self.first = integrator.first_step
        # A solver without an error estimate has none.
        self.error_order: Any = None if self.fixed else integrator.solver.error_order(step.terms)
        self.largest = jax.lax.stop_gradient(largest_step(integrator, step, t, x, f, t_stop))

    def init(self, step: Step, t: Time, x: State, t_stop: Time) -> tuple[Scalar, Any]:
        """The first step from `(t, x)`, and the controller's memory."""
        if self.fixed:
            return jnp.asarray(self.first, x.dtype), None
        first = None if self.first is None else jnp.asarray(self.first, x.dtype)
        end, memory = self.controller.init(
            step.terms,
            t,
            t_stop,
            x,
            first,
            None,
            lambda terms, t, x, args: step.field(jnp.asarray(t), x),
            self.error_order,
        )
        h = end - t
        h = jnp.where(jnp.isfinite(h) & (h > 0), h, 1e-6 * jnp.abs(t_stop - t)).astype(x.dtype)
        return jnp.minimum(h, self.largest), memory

    def after(self, dt: Time, x: State, x1: State, error: State, memory: Any) -> tuple[Flag, Scalar, Any]:
        """Whether a step `dt` from `x` to `x1` may be kept; the next step, 0 where there is none; the controller's memory."""
        sound: Flag = jnp.all(jnp.isfinite(error))
        if self.fixed:
            return sound, jnp.where(sound, jnp.asarray(self.first, x.dtype), 0), memory
        keep, _, end, _, memory, result = self.controller.adapt_step_size(
            jnp.zeros_like(dt), dt, x, x1, None, error, self.error_order, memory
        )
        h = jnp.minimum(jnp.where(keep, end - dt, end), self.largest)
        # What a controller keeps at its least step may be no state at all.
        gave_up = (result != dfx.RESULTS.successful) | (keep & ~sound)
        return jnp.asarray(keep) & ~gave_up, jnp.where(gave_up, 0, h), memory


def largest_step(integrator: Integrator, step: Step, t: Time, x: State, f: State, t_stop: Time) -> Scalar:
    r"""The largest step of an arc: `max_step`; near a rest, one that also resolves variations about it.

    The controller sees the error of the state, not of its tangents. A state at rest has none, however large the step, while
    its variations obey $\dot v = D_xf\,v$: they ask for steps that are small against $1/\rho(D_xf)$. So where the start is
    within a few digits of rest, the step is that which the tolerance allows an oscillation of angular frequency $\rho$. Of a
    stiff flow this is far less than its slow variations ask for: an implicit solver stops at a quarter of the steps it may take.
    """
    given = jnp.asarray(jnp.inf if integrator.max_step is None else integrator.max_step, x.dtype)
    if integrator.fixed or not integrator.variations:
        return given
    rtol, atol = integrator.tolerances(x.dtype)
    order: Any = integrator.solver.order(step.terms)
    speed = jnp.max(jnp.abs(f) / (atol + rtol * jnp.abs(x)))
    small = float(jnp.finfo(x.dtype).eps) ** 0.5 * (atol / rtol + jnp.max(jnp.abs(x)))

    def resolving():
        # Products with the Jacobian, by differences, for the field is there already and one digit is enough: of the velocity,
        # whose first two say how fast the state itself moves, and of some vector, whose growth under eight is close to the
        # spectral radius.
        def product(v, _):
            v = (step.field(t, x + small * v) - f) / small
            size = jnp.max(jnp.abs(v))
            return v / jnp.where(size > 0, size, 1), size

        size = jnp.max(jnp.abs(f))
        some = jnp.cos(jnp.arange(1, x.size + 1, dtype=x.dtype))
        each = jnp.stack([f / jnp.where(size > 0, size, 1), some])
        growth = jax.lax.map(lambda v: jax.lax.scan(product, v, length=8)[1], each)
        rate, radius = jnp.prod(growth[0, :2]) ** 0.5, jnp.prod(growth[1] ** 0.125)
        # A state that moves at this rate is as far from rest as it moves in its own time.
        at_rest = (speed <= rate * rtol ** (-2 / 3)) & (radius > 0)
        least = 4 * (t_stop - t) / jnp.asarray(integrator.max_steps, x.dtype) if step.implicit else 0
        return jnp.where(at_rest, jnp.maximum(10 * rtol ** (1 / order) / radius, least), jnp.inf)

    # In a batch, only where some lane would hardly move, at this speed, in all its time.
    slow = (t < t_stop) & (speed * (t_stop - t) < 0.01 / rtol)
    fine = jax.lax.cond(eqxi.unvmap_any(slow), resolving, lambda: jnp.full_like(given, jnp.inf))
    return jnp.minimum(given, fine)
