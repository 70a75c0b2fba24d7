r"""A hybrid system with one more coordinate, the time since the last event, for jumps that are taken at once.

$$\dot\tau = 1, \qquad \tau^+ = 0$$

A transition with `at_once` whose guard is beyond its surface where its mode begins is taken at the time of the event before it,
where $\tau = 0$, for neighbouring states as well. So there its guard is $-\tau$, and it leaves $\tau$ as it is. With this
coordinate its saltation matrix is that of any other event: an event that is late by $\delta t$ leaves $\delta\tau = -\delta t$,
and the jump after it is as late. (In a mode that lasts no time a product of matrices of the state alone would not do.)
"""

import equinox as eqx
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from .._flow.surfaces import rounding, Surfaces
from .._system.system import Domain, Guard, HybridSystem, Mode, Reset, Transition, VectorField
from .._system.types import Flag, Params, Scalar, State, Time
from .noise import PlacedNoise, value_at


def takes_age(system: HybridSystem) -> bool:
    """Whether a transition of the system is taken at once, so that its variations need the time since the last event."""
    return any(way.at_once for way in system.transitions)


def with_age(system: HybridSystem) -> HybridSystem:
    """The same system whose states begin with the time since the last event."""
    modes = {
        name: Mode(
            _Flow(mode.vector_field),
            # Coordinates may have any names.
            tuple(f"z_{i}" for i in range(mode.dimension + 1)),
            None if mode.domain is None else _OfState(mode.domain),
        )
        for name, mode in system.modes.items()
    }
    ways = []
    for way in system.transitions:
        guard = AtOnce(way.guard) if way.at_once else _OfState(way.guard)
        armed = None if way.armed is None else _OfState(way.armed)
        ways.append(Transition(way.source, way.target, guard, _Reset(way.reset, guard), armed, way.at_once))
    return HybridSystem(modes, tuple(ways))


def aged_noise(noise: PlacedNoise) -> PlacedNoise:
    """The noise of a system, for its states that begin with the time since the last event."""
    values = tuple(_OfAged(value) if callable(value) else _padded(value) for value in noise.values)
    return PlacedNoise(values, noise.flow, noise.guard, noise.reset)


def _padded(value: Array) -> Array:
    return jnp.pad(value, (1, 0)) if value.ndim else value


class _OfAged(eqx.Module):
    """A noise that is a function of the state."""

    fn: object

    def __call__(self, t: Time, z: State, params: Params) -> Array:
        return _padded(value_at(self.fn, t, z[1:], params))


class _Flow(eqx.Module):
    vector_field: VectorField

    def __call__(self, t: Time, z: State, params: Params) -> State:
        return jnp.concatenate([jnp.ones_like(z[:1]), self.vector_field(t, z[1:], params)])


class _OfState(eqx.Module):
    """A guard, domain or `armed` of the state."""

    fn: Guard | Domain

    def __call__(self, t: Time, z: State, params: Params) -> Array | Flag:
        return self.fn(t, z[1:], params)


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


class _Reset(eqx.Module):
    reset: Reset
    guard: Guard

    def __call__(self, t: Time, z: State, params: Params) -> Float[Array, " post"]:
        age = jnp.where(self.guard.beyond(t, z, params), z[:1], 0) if isinstance(self.guard, AtOnce) else 0 * z[:1]
        return jnp.concatenate([age, jnp.asarray(self.reset(t, z[1:], params), z.dtype)])
