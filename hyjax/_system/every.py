"""Clocks: transitions that are taken at equidistant times, as those of a sampled controller."""

import math
import numbers
from collections.abc import Callable

import equinox as eqx
import jax.core
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array

from .types import Params, require_function, Scalar, State, Time

Number = Callable[[Params], Scalar] | Array | float | int


def plain_number(value: Number) -> Number:
    """A number as one of Python, with which a system has a hash; anything else as it is."""
    if callable(value) or isinstance(value, jax.core.Tracer):
        return value
    return float(value) if isinstance(value, numbers.Real) or getattr(value, "shape", None) == () else value


class Clock(eqx.Module):
    r"""The guard of a clock: the time to the tick next to $t$, $t_0(p) + kT(p) - t$, positive before and negative after it.

    A flow takes the tick that comes first after its start (`ahead`), so that the guard is linear in time. `number`: of a clock
    that acts in all modes, of which each mode has a copy; `None` for a clock of one mode.
    """

    period: Number = eqx.field(converter=plain_number)
    phase: Number = eqx.field(converter=plain_number, default=0.0)
    number: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        for name, least in (("period", 0.0), ("phase", -math.inf)):
            value = getattr(self, name)
            if callable(value):
                require_function(value, "params", f"every: {name}")
            elif isinstance(value, jax.core.Tracer):
                continue
            elif not (isinstance(value, float) and least < value < math.inf):
                need = "positive and finite" if name == "period" else "finite"
                raise ValueError(f"every: {name}={value!r} must be {need}, or a function of the parameters.")

    def times(self, params: Params, dtype) -> tuple[Scalar, Scalar]:
        """Period and phase."""
        number = lambda value: jnp.asarray(value(params) if callable(value) else value, dtype)
        return number(self.period), number(self.phase)

    def __call__(self, t: Time, x: State, params: Params) -> Scalar:
        period, phase = self.times(params, x.dtype)
        return _to_tick(self, jnp.round((t - phase) / period), t, x, params)

    def ahead(self, t0: Time, params: Params, dtype, due: Array | bool) -> Callable[..., Scalar]:
        """The guard of a flow from the time `t0`, to its first tick; to a tick at `t0` itself if that is still `due`."""
        period, phase = self.times(stop_gradient(params), dtype)
        passed = stop_gradient(t0 - phase) / period
        # The rounding of the time of an event.
        near = 64 * float(jnp.finfo(dtype).eps) * (1 + jnp.maximum(jnp.abs(t0), jnp.abs(phase)) / period)
        return eqx.Partial(_to_tick, self, stop_gradient(jnp.floor(passed + jnp.where(due, -near, near)) + 1))

    def of(self, params_of: Callable[[Params], Params]) -> "Clock":
        """The same clock, for parameters of which `params_of` gives its own."""
        composed = lambda value: eqx.Partial(_composed, value, params_of) if callable(value) else value
        return Clock(composed(self.period), composed(self.phase), self.number)

    def since(self, start: Callable[[Params], Scalar]) -> "Clock":
        """The same clock in a time that counts from `start(params)`."""
        return Clock(self.period, eqx.Partial(_earlier, self.phase, start), self.number)


def _to_tick(clock: Clock, count: Array, t: Time, x: State, params: Params) -> Scalar:
    period, phase = clock.times(params, x.dtype)
    return phase + stop_gradient(count) * period - t


def _composed(value: Callable, params_of: Callable, params: Params) -> Scalar:
    return value(params_of(params))


def _earlier(phase: Number, start: Callable, params: Params) -> Scalar:
    return (phase(params) if callable(phase) else phase) - start(params)
