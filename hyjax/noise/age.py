r"""A hybrid system with one more coordinate, the time since the last event, for jumps that are taken at once.

$$\dot\tau = 1, \qquad \tau^+ = 0$$

A transition with `at_once` whose guard is beyond its surface where its mode begins is taken at the time of the event before it,
where $\tau = 0$, for neighbouring states as well. So there its guard is $-\tau$, and it leaves $\tau$ as it is. With this
coordinate its saltation matrix is that of any other event: an event that is late by $\delta t$ leaves $\delta\tau = -\delta t$,
and the jump after it is as late. (In a mode that lasts no time a product of matrices of the state alone would not do.)
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from .._flow.joint import joint_system, numbered
from .._flow.surfaces import rounding, Surfaces
from .._system.system import Guard, HybridSystem, Reset, VectorField
from .._system.types import Flag, Params, Scalar, State, Time
from .noise import PlacedNoise, value_at


def takes_age(system: HybridSystem) -> bool:
    """Whether a transition of the system is taken at once, so that its variations need the time since the last event."""
    return any(way.at_once for way in system.transitions)


def with_age(system: HybridSystem) -> HybridSystem:
    """The same system whose states begin with the time since the last event."""

    def jump(k: int) -> Reset:
        way = system.transitions[k]
        if way.is_family and way.at_once:
            raise ValueError(
                f"covariance: transition {k} is a family with at_once=True, of which the age since the last event is not known. "
                "Write its guards as single transitions."
            )
        return eqx.Partial(_reset, way.reset, AtOnce(way.guard) if way.at_once else None)

    flow = lambda name: eqx.Partial(_flow, system.mode(name).vector_field)
    aged = joint_system(system, flow, jump, lambda mode: numbered(mode.dimension + 1), first=1)
    ways = (
        dataclasses.replace(way, guard=AtOnce(own.guard)) if own.at_once else way
        for way, own in zip(aged.transitions, system.transitions, strict=True)
    )
    return HybridSystem(aged.modes, tuple(ways), aged.time_unit)


def aged_noise(noise: PlacedNoise) -> PlacedNoise:
    """The noise of a system, for its states that begin with the time since the last event."""
    values = (eqx.Partial(_of_aged, value) if callable(value) else _padded(value) for value in noise.values)
    return dataclasses.replace(noise, values=tuple(values))


def _padded(value: Array) -> Array:
    return jnp.pad(value, (1, 0)) if value.ndim else value


def _of_aged(value: Callable, t: Time, z: State, params: Params) -> Array:
    """The value of a noise that is a function of the state, for states that begin with an age."""
    return _padded(value_at(value, t, z[1:], params))


def _flow(vector_field: VectorField, t: Time, z: State, params: Params) -> State:
    return jnp.concatenate([jnp.ones_like(z[:1]), vector_field(t, z[1:], params)])


class AtOnce(eqx.Module):
    """The guard of a transition that is taken at once: $-\\tau$ where it is beyond its surface at the time of an event."""

    guard: Guard

    def __call__(self, t: Time, z: State, params: Params) -> Scalar:
        return jnp.where(self.beyond(t, z, params), -z[0], self.guard(t, z[1:], params))

    def beyond(self, t: Time, z: State, params: Params) -> Flag:
        """Whether the guard is below its surface by more than rounding at the time of the last event."""
        surfaces = Surfaces(
            1, lambda t, x, params: jnp.reshape(jnp.asarray(self.guard(t, x, params), x.dtype), 1), lambda *_: True
        )
        t, z = stop_gradient((t, z))
        noise, _ = rounding(surfaces, t, z[1:], params)
        return stop_gradient((z[0] <= 0) & (surfaces.values(t, z[1:], params)[0] < -noise[0]))


def _reset(reset: Reset, at_once: AtOnce | None, t: Time, z: State, params: Params, *member) -> Float[Array, " post"]:
    age = 0 * z[:1] if at_once is None else jnp.where(at_once.beyond(t, z, params), z[:1], 0)
    return jnp.concatenate([age, jnp.asarray(reset(t, z[1:], params, *member), z.dtype)])
