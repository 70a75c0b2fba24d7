r"""Step sizes: by integral control, the default; from a diffrax step size controller; or constant.

With the error estimate $e$ of a step from $x$ to $x_1$, and the absolute and relative tolerances $a$ and $r$, its size is
$s = \lVert e / (a + r \max(|x|, |x_1|)) \rVert$, in the root mean square over the coordinates. By integral control a step is
accepted where $s < 1$; the next one is longer by the factor $0.9\, s^{-1/k}$, at least 0.2 and at most 10, with the order $k$ of
the error. These are the steps of `diffrax.PIDController`, with its default coefficients, up to rounding. On a CPU, XLA evaluates
a float64 power one element at a time: in a batch, that and a second search for NaN are a sixth of a stride's time. A logarithm
and an exponential take half as long.

Source: Hairer, Norsett, Wanner (1993), *Solving Ordinary Differential Equations I*, Sec. II.4.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Int

from .._numerics.trees import parts_of
from .._system.types import Flag, Scalar, State, Time
from .integrator import Integrator
from .step import Step

SAFETY, LEAST, MOST = 0.9, 0.2, 10.0


def integral_control(
    dt: Time, x: State, x1: State, error: State, tolerances: tuple[Scalar | float, Scalar | float], order: float
) -> tuple[Flag, Scalar]:
    """Whether a step `dt` from `x` to `x1` is accepted, and the next step. Where the error is NaN or infinite it is not."""
    rtol, atol = tolerances
    square = jnp.mean((error / (atol + rtol * jnp.maximum(jnp.abs(x), jnp.abs(x1)))) ** 2)
    keep = square < 1
    # Beyond these bounds of the squared error the factor takes its smallest or its largest value.
    within = jnp.clip(jnp.where(jnp.isnan(square), jnp.inf, square), 1e-37, 1e37)
    factor = SAFETY * jnp.exp(jnp.log(within) / (-2 * order))
    return keep, dt * jnp.clip(factor, jnp.where(keep, 1, LEAST), jnp.where(keep, MOST, SAFETY))


class Pace:
    """The lengths of the solver's steps, and the decisions to accept or reject them.

    **Arguments:** `share`: how many times as many coordinates there are as are integrated; `None` for once.

    The controller is given times counted from the start of each step, so that a short step at a late time keeps all its digits.
    """

    def __init__(
        self,
        integrator: Integrator,
        step: Step,
        t: Time,
        x: State,
        f: State,
        t_stop: Time,
        share: Scalar | float | None = None,
    ):
        self.share = share
        self.controller = integrator.step_controller(x.dtype)
        self.fixed = integrator.fixed
        self.tolerances = None if integrator.controller is not None else integrator.tolerances(x.dtype)
        self.first = integrator.first_step
        # A solver without an error estimate has no error order.
        self.error_order: Any = None if self.fixed else integrator.solver.error_order(step.terms)
        self.most = jnp.asarray(jnp.inf if integrator.max_step is None else integrator.max_step, x.dtype)
        resolved = integrator.variations and not self.fixed
        self.at_rest = at_rest(integrator, step, t, x, f, t_stop) if resolved else None

    def largest(self, x: State, steps: Int[Array, ""]) -> Scalar:
        """The largest step from `x`, after so many steps."""
        return self.most if self.at_rest is None else self.at_rest(x, steps, self.most)

    def init(self, step: Step, t: Time, x: State, t_stop: Time) -> tuple[Scalar, Any]:
        """The first step from `(t, x)`, and the controller's memory."""
        if self.fixed:
            return jnp.asarray(self.first, x.dtype), None
        first = None if self.first is None else jnp.asarray(self.first, x.dtype)
        h, memory = self.controller.init(
            step.terms,
            jnp.zeros_like(t),
            t_stop - t,
            x,
            first,
            None,
            lambda terms, s, x, args: step.field(t + s, x),
            self.error_order,
        )
        h = jnp.where(jnp.isfinite(h) & (h > 0), h, 1e-6 * jnp.abs(t_stop - t)).astype(x.dtype)
        return jnp.minimum(h, self.largest(x, jnp.array(0))), memory

    def after(
        self, dt: Time, x: State, x1: State, error: State, memory: Any, steps: Int[Array, ""]
    ) -> tuple[Flag, Scalar, Any]:
        """Whether a step `dt` from `x` to `x1`, after so many others, is accepted; the next step, 0 where the controller fails;
        and its memory."""
        if self.share is not None:
            # The root mean square over all coordinates becomes that over those which are integrated.
            error = error * jnp.sqrt(self.share)
        if self.tolerances is not None:
            keep, h = integral_control(dt, x, x1, error, self.tolerances, float(self.error_order))
            return keep, jnp.minimum(h, self.largest(x1, steps)), memory
        sound: Flag = jnp.all(jnp.isfinite(error))
        if self.fixed:
            return sound, jnp.where(sound, jnp.asarray(self.first, x.dtype), 0), memory
        keep, _, end, _, memory, result = self.controller.adapt_step_size(
            jnp.zeros_like(dt), dt, x, x1, None, error, self.error_order, memory
        )
        h = jnp.minimum(jnp.where(keep, end - dt, end), self.largest(x1, steps))
        # At its least step a controller may accept a state that is not finite.
        gave_up = (result != dfx.RESULTS.successful) | (keep & ~sound)
        return jnp.asarray(keep) & ~gave_up, jnp.where(gave_up, 0, h), memory


def at_rest(
    integrator: Integrator, step: Step, t: Time, x: State, f: State, t_stop: Time
) -> Callable[[State, Int[Array, ""], Scalar], Scalar]:
    r"""The largest step that resolves variations of the coordinates at rest, `(x, steps, largest) -> largest`.

    The controller estimates the error of the state, not of its tangents. Coordinates at rest have no error, however large the
    step, while their variations obey $\dot v = D_xf\,v$ and need steps that are short against $1/\rho$, with the spectral radius
    $\rho$ of the block of $D_xf$ at the start of the arc. All rest at an equilibrium; beside a clock, or a motion in a plane of
    symmetry, the others do. So while some rest to a few digits, the largest step is the one that the tolerance allows for an
    oscillation of angular frequency $\rho$. In a stiff flow this is far shorter than the slow variations need; so for an implicit
    solver, the bound is at least the step with which the arc takes a quarter of `max_steps`. Beside a motion, half of `max_steps`
    are bounded, so that a state which does not need them is found nevertheless.
    """
    rtol, atol = integrator.tolerances(x.dtype)
    order: Any = integrator.solver.order(step.terms)
    scale = atol / rtol + jnp.abs(x)
    small, near = float(jnp.finfo(x.dtype).eps) ** 0.5, rtol ** (1 / 3) * scale
    # Coordinates that would hardly move, at their speeds, in all their time.
    left, hardly = t_stop - t, 0.01 * scale
    slow = (t < t_stop) & (jnp.abs(f) * left < hardly)
    some = scale * jnp.cos(jnp.arange(1, x.size + 1, dtype=x.dtype))
    size = lambda v: jnp.maximum(jnp.max(jnp.abs(v) / scale), jnp.finfo(x.dtype).tiny)

    later = small * jnp.minimum(1 / size(f), left)

    def resolving(ahead):
        acceleration = jnp.abs(ahead) / later
        # Beside these a uniform motion, which every step follows exactly, is as a rest.
        still = slow | (acceleration * left**2 < hardly)

        # Products with the Jacobian, by differences, since the vector field is known and one digit is enough. Two products with
        # the velocity give the rate at which the slow state changes; eight with a generic vector give the spectral radius.
        def product(v, _):
            v = jnp.where(still, step.field(t, x + small * v) - f, 0) / small
            growth = jnp.max(jnp.abs(v) / scale)
            return v / jnp.where(growth > 0, growth, 1), growth

        velocity = jnp.where(slow, f, 0)
        each = jnp.stack([velocity / size(velocity), jnp.where(still, some, 0)])
        growth = jax.lax.map(lambda v: jax.lax.scan(product, v, length=8)[1], each)
        radius = jnp.prod(growth[1] ** 0.125)
        rate = jnp.where(jnp.any(velocity != 0), jnp.prod(growth[0, :2]) ** 0.5, radius)
        # The distance from rest is about the speed divided by this rate, and the acceleration divided by its square. The latter
        # tells a turning point, as of a ball that is let go.
        far = jnp.maximum(jnp.abs(velocity) * rate, acceleration) > rate**2 * near
        least = 4 * left / jnp.asarray(integrator.max_steps, x.dtype) if step.stiff else 0
        bound = jnp.maximum(10 * rtol ** (1 / order) / radius, least)
        moves = jnp.any(~slow | (acceleration * left**2 >= hardly))
        most = jnp.asarray(integrator.max_steps) // jnp.where(moves, 2, 1)
        return still & ~far & (radius > 0), bound, most

    none = lambda: (jnp.zeros_like(slow), jnp.zeros_like(left), jnp.zeros_like(jnp.asarray(integrator.max_steps)))

    def unless_uniform():
        # Of variations of what flies uniformly nothing is left after two products; and the field a little later, by one program.
        def change(before, k):
            moved = jnp.select([k == 0, k == 1], [small * jnp.where(slow, some, 0), before], later * f)
            changed = step.field(t + jnp.where(k == 2, later, 0), x + moved) - f
            return changed, changed

        _, (_, twice, ahead) = jax.lax.scan(change, jnp.zeros_like(x), np.arange(3))
        return jax.lax.cond(eqxi.unvmap_any(twice != 0), resolving, lambda _: none(), ahead)

    # Computed only if some lane of the batch has such coordinates.
    resting, bound, most = jax.lax.cond(eqxi.unvmap_any(slow), unless_uniform, none)
    x, near, bound, most = stop_gradient((x, jnp.where(resting, near, -1), bound, most))
    rest = tuple(zip(parts_of(x), parts_of(near), strict=True))

    def largest_step(now: State, steps: Int[Array, ""], given: Scalar) -> Scalar:
        # A coordinate that has left its rest is seen by the error control; a bounded number of steps is bounded.
        here = [jnp.any(jnp.abs(z - z0) <= reach) for z, (z0, reach) in zip(parts_of(now), rest, strict=True)]
        rests = (steps < most) & functools.reduce(operator.or_, here)
        return jnp.where(rests, jnp.minimum(given, bound), given)

    return largest_step
