r"""A hybrid system made of another one, of the same modes and transitions, whose state carries more along: $z = (x, y)$.

$$\dot x = f(t, x, p), \quad \dot y = h(t, x, y, q); \qquad x^+ = R(t, x^-, p), \quad y^+ = J(t, x^-, y^-, q)$$

$y$ is a covariance, tangent vectors, the map of a Riccati equation, a cost, a clock: integrated with the flow in the same steps,
and changed by its events. Guards, domains and `armed` are functions of $x$ alone.

The functions of a joint system are `equinox.Partial`, of functions at the level of a file, and no closures: so modes and
transitions that consist of the same functions share one compiled branch (`switched`), and arrays in them stay leaves.

One such coordinate is the time since the last event, for jumps that are taken at once.

$$\dot\tau = 1, \qquad \tau^+ = 0$$

A transition with `at_once` whose guard is beyond its surface where its mode begins is taken at the time of the event before it,
where $\tau = 0$, for neighbouring states as well. So there its guard is $-\tau$, and it leaves $\tau$ as it is. With this
coordinate its saltation matrix is that of any other event: an event that is late by $\delta t$ leaves $\delta\tau = -\delta t$,
and the jump after it is as late. (In a mode that lasts no time a product of matrices of the state alone would not do.)
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from .._system.every import Clock
from .._system.system import Guard, HybridSystem, Mode, Reset, VectorField
from .._system.types import Flag, Params, Scalar, State, Time
from .surfaces import rounding, Surfaces

ParamsOf = Callable[[Params], Params]


def same_params(params: Params) -> Params:
    """The parameters of a system whose joint system has the same."""
    return params


def own_params(joint: Params) -> Params:
    """The parameters $p$ of the system, an attribute of those of the joint system."""
    return joint.params


def numbered(length: int) -> tuple[str, ...]:
    """Names of coordinates that nobody sees."""
    return tuple(f"z_{i}" for i in range(length))


def joint_system(
    system: HybridSystem,
    flow: Callable[[str], VectorField],
    jump: Callable[[int], Reset] | None,
    names: Callable[[Mode], tuple[str, ...]],
    *,
    first: int = 0,
    params_of: ParamsOf = same_params,
) -> HybridSystem:
    """The hybrid system of `(x, y)`.

    **Arguments:** `flow`: from the name of a mode to the rate of `(x, y)` there. `jump`: from the index of a transition to
    `(x, y)` after it; `None` for the flows alone, without events and domains. Both give functions of `(t, z, q)`, that of a
    family of transitions takes the number of a member too. `names`: of the coordinates of a mode of the joint system. `first`:
    the place of `x` in `z`. `params_of`: $p$ of $q$.
    """

    def of_state(fn: Callable | None, mode: Mode):
        if fn is None or isinstance(fn, Clock):
            return fn and fn.of(params_of)
        return eqx.Partial(_of_state, fn, first, mode.dimension, params_of)

    modes = {
        name: Mode(flow(name), names(mode), None if jump is None else of_state(mode.domain, mode))
        for name, mode in system.modes.items()
    }
    ways = []
    for k, way in enumerate(system.transitions if jump is not None else ()):
        guard, armed = (of_state(fn, system.mode(way.source)) for fn in (way.guard, way.armed))
        ways.append(dataclasses.replace(way, guard=guard, reset=jump(k), armed=armed))  # pyright: ignore[reportOptionalCall]
    return HybridSystem(modes, tuple(ways), system.time_unit)


def _of_state(fn: Callable, first: int, n: int, params_of: ParamsOf, t: Time, z: State, q: Params):
    """A guard, domain or `armed` of the state alone."""
    return fn(t, z[first : first + n], params_of(q))


def padded(part: Array, size: int) -> Array:
    """A vector or matrix, with zeros to `size` in each axis."""
    return jnp.pad(part, [(0, size - length) for length in part.shape]) if set(part.shape) != {size} else part


def pushed(
    vector_field: VectorField, t: Time, x: State, params: Params, variations: Float[Array, "n count"]
) -> tuple[State, Float[Array, "n count"]]:
    r"""The rate of the state, and the rates $\dot V = A\,V$, $A = D_xf$, of the variations that are the columns of $V$."""
    push = lambda column: jax.jvp(lambda x: vector_field(t, x, params), (x,), (column,))
    return jax.vmap(push, in_axes=-1, out_axes=(None, -1))(variations)


def extended(
    system: HybridSystem, coordinate: str, rate: Callable[[str], VectorField], params_of: ParamsOf = same_params
) -> HybridSystem:
    """The system with one more coordinate, the last, on which nothing else depends and which no jump changes.

    **Arguments:** `rate`: from the name of a mode to the rate of the coordinate there, a function of `(t, x, q)`. `params_of`: as
    for `joint_system`.
    """
    flow = lambda name: eqx.Partial(_with_rate, system.mode(name).vector_field, rate(name), params_of)
    jump = lambda k: eqx.Partial(_with_last, system.transitions[k].reset, params_of)
    return joint_system(system, flow, jump, lambda mode: (*mode.coordinates, coordinate), params_of=params_of)


def _with_rate(
    vector_field: VectorField, rate: VectorField, params_of: ParamsOf, t: Time, z: State, q: Params
) -> State:
    return jnp.append(vector_field(t, z[:-1], params_of(q)), jnp.asarray(rate(t, z[:-1], q), z.dtype))


def _with_last(reset: Reset, params_of: ParamsOf, t: Time, z: State, q: Params, *member) -> Float[Array, " post"]:
    return jnp.append(reset(t, z[:-1], params_of(q), *member), z[-1])


def retimed(system: HybridSystem) -> HybridSystem:
    r"""The flows of a system in another time $s$, $t = t_0 + r s$: $\mathrm dx/\mathrm ds = r\,f(t, x, p)$, back in time where
    $r < 0$. Without events; the parameters are $(p, t_0, r)$."""
    flow = lambda name: eqx.Partial(_retimed, system.mode(name).vector_field)
    return joint_system(system, flow, None, lambda mode: mode.coordinates)


def _retimed(vector_field: VectorField, s: Time, x: State, along: tuple[Params, Time | float, Scalar | float]) -> State:
    params, start, pace = along
    return pace * vector_field(start + s * pace, x, params)


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
        return eqx.Partial(_since_event, way.reset, AtOnce(way.guard) if way.at_once else None)

    flow = lambda name: eqx.Partial(_with_time, system.mode(name).vector_field)
    aged = joint_system(system, flow, jump, lambda mode: numbered(mode.dimension + 1), first=1)
    ways = (
        dataclasses.replace(way, guard=AtOnce(own.guard)) if own.at_once else way
        for way, own in zip(aged.transitions, system.transitions, strict=True)
    )
    return HybridSystem(aged.modes, tuple(ways), aged.time_unit)


def _with_time(vector_field: VectorField, t: Time, z: State, params: Params) -> State:
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


def _since_event(
    reset: Reset, at_once: AtOnce | None, t: Time, z: State, params: Params, *member
) -> Float[Array, " post"]:
    age = 0 * z[:1] if at_once is None else jnp.where(at_once.beyond(t, z, params), z[:1], 0)
    return jnp.concatenate([age, jnp.asarray(reset(t, z[1:], params, *member), z.dtype)])
