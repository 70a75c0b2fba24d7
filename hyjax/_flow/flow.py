r"""The flow of one mode: until its first guard falls, or for a given time."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from .._numerics.eager import short_run
from .._numerics.trees import without_tangents
from .._results.failure import raise_failure
from .._results.shown import Shown
from .._system.results import choose, nan_unless, RESULTS
from .._system.system import HybridSystem
from .._system.types import Flag, Params, Scalar, State, Time
from .check import check_mode, check_params, check_state, sized
from .integrate import integrate
from .integrator import for_modes, Integrator, IntegratorLike, Integrators
from .surfaces import (
    armed_of,
    guarded_limits,
    Guards,
    guards_of,
    limits_of,
    Mask,
    no_surfaces,
    Start,
    Surfaces,
    ways_of,
)


class Impact(Shown):
    """The end of an arc: the pre-impact state, on the surface of the first guard that fell.

    **Attributes:** `t`, `x`: time and state before the jump, shapes `()` and `(n,)`. `transition`: index into
    `system.transitions`; `index`: the number of the guard in a family of transitions, else -1. `guard_rate`: `D_t g + D_x g f`,
    negative there, in the guard's units per time; of any sign where the guard is beyond its surface. `steps`: the number of
    solver steps tried. `at_once`: whether the guard was beyond its surface where the arc began, so that the transition is taken
    there (see `Transition`). `result`: a code of `RESULTS`; unless it is `successful`, the numbers are NaN and `transition` is
    -1.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> impact = hj.flow_to_guard(ball.system, "flight", 0.0, x0, params)
    >>> print(f"{impact.x[1]:.6f} {impact.guard_rate:.6f} {impact.transition} {impact.result}")
    -4.429447 -4.429447 0 successful
    """

    t: Time
    x: State
    transition: Int[Array, ""]
    index: Int[Array, ""]
    guard_rate: Scalar
    steps: Int[Array, ""]
    at_once: Flag
    result: RESULTS
    _way: Int[Array, ""]  # the number of the transition and member in `system.ways`
    _together: Mask  # the other guards that fell at the same time, in the order of `system.ways_out(mode)`
    _close: Scalar  # the time within which they fell


def surfaces_of(system: HybridSystem, mode: str, start: Start) -> Surfaces:
    """The guards of the transitions that leave a mode, in the order of `system.ways_out(mode)`, for a flow from its `start`."""
    ways = ways_of(system.transitions_out(mode), start)

    def values(t, x, params, only=None):
        return jnp.concatenate(guards_of(ways, t, x, params, only))

    def armed(t, x, params):
        return jnp.concatenate(armed_of(ways, t, x, params))

    constant = lambda flags: None if flags is None else lambda params: jnp.asarray(flags)
    at_once, clocks = constant(system.at_once(mode)), constant(system.clocks(mode))
    return Surfaces(len(system.ways_out(mode)), values, armed, at_once=at_once, clocks=clocks)


def run_to_guard(
    system: HybridSystem,
    mode: str,
    t: Time,
    x: State,
    params: Params,
    integrator: Integrators,
    expected: int | Array | None = None,
    owed: Guards | None = None,
    out: Array | None = None,
) -> Impact:
    """`flow_to_guard` without the checks of its arguments, and regardless of the mode's domain. With the code
    `simultaneous_guards` the numbers are those of the guard that was met.

    **Arguments:** `expected`: the way that is taken where its guard is met together with others. `owed`: see `integrate`. `out`:
    the ways that leave the mode, if they are those of a copy of it, of which `expected` is one.
    """
    surfaces = surfaces_of(system, mode, (t, params, owed))
    return _run(surfaces, system, mode, t, x, params, integrator, expected, owed, out)


@short_run
def _run_within(system: HybridSystem, mode: str, t: Time, x: State, params: Params, integrator: Integrators) -> Impact:
    each = system.mode(mode)
    inside = lambda t, x, params: jnp.ravel(jnp.asarray(each.domain(t, x, params), x.dtype))  # pyright: ignore
    guarded = lambda params: guarded_limits(each)
    surfaces = surfaces_of(system, mode, (t, params, None)).within(limits_of(each, t, x, params), inside, guarded)
    found = _run(surfaces, system, mode, t, x, params, integrator)
    found = known_where(found.result == RESULTS.successful, found)
    if not hasattr(each.domain, "refusal"):
        return found
    # As for every start outside the domain: NaN values, whose derivative is zero.
    t, x, params = without_tangents((t, x, params))
    code = each.domain.refusal(t, x, params, integrator.of(mode).tolerances(x.dtype))  # pyright: ignore
    refused = (code != RESULTS.successful) & jnp.all(jnp.isfinite(x))
    return known_where(~refused, dataclasses.replace(found, result=choose(refused, code, found.result)))


def _run(
    surfaces: Surfaces,
    system: HybridSystem,
    mode: str,
    t: Time,
    x: State,
    params: Params,
    integrator,
    expected=None,
    owed=None,
    out=None,
) -> Impact:
    own, leaving = integrator.of(mode), system.ways_out(mode)
    if out is not None:
        preferred = jnp.argmax(out == expected)
    else:
        preferred, out = leaving.index(expected) if expected in leaving else None, jnp.array(leaving or (-1,))
    end = integrate(
        system.mode(mode).vector_field, surfaces, t, x, t + own.max_time, params, own, owed=owed, preferred=preferred,
        share=system.mode(mode).share,
    )  # fmt: skip
    missed = (end.result == RESULTS.successful) & (end.event < 0)
    result = choose(missed, RESULTS.no_crossing, end.result)
    way = out[jnp.maximum(end.event, 0)]
    transition, index = system.numbers(way)
    found = Impact(
        end.t, end.x, transition, index, end.guard_rate, end.steps, end.beyond, result, way, end.together, end.close
    )
    good = result == RESULTS.successful
    return known_where(good | (result == RESULTS.simultaneous_guards) if len(leaving) > 1 else good, found)


def known_where(good: Flag, found: Impact) -> Impact:
    """The impact with its numbers where `good`, NaN elsewhere."""
    t, x, rate = (nan_unless(good, value) for value in (found.t, found.x, found.guard_rate))
    transition, index, way = (jnp.where(good, each, -1) for each in (found.transition, found.index, found._way))
    return dataclasses.replace(found, t=t, x=x, transition=transition, index=index, guard_rate=rate, _way=way)


def flow_to_guard(
    system: HybridSystem,
    mode: str,
    t: float | Time,
    x: State,
    params: Params,
    *,
    integrator: IntegratorLike = Integrator(),
    throw: bool = True,
) -> Impact:
    r"""Flow in a mode until the first of its guards falls through zero.

    $x(t_e)$ where $\dot x = f(t, x, p)$ and $t_e$ is the first time at which a guard that was strictly positive is zero.

    **Arguments:** `system`: a `HybridSystem`. `mode`: a name, static. `t`: start time. `x`: initial state, shape `(n,)`. Times
    and states are in the units of the vector field. `integrator`: an `Integrator`, or one for each mode,
    `{"stance": ..., "flight": ...}`. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.

    **Returns:** `Impact`, before the jump. A transition with `at_once` whose guard is not positive at the start is met there. A
    second guard that falls within the tolerance of the first is always `simultaneous_guards`, because whoever takes the jump
    would lose it; `simulate` and `stride` go on where the order does not matter. Differentiable in `t`, `x` and `params`,
    to any order in forward and reverse mode (with the integrator's default `adjoint`). A guard that falls within rounding of the
    time limit counts as met. `result` is `no_crossing` when no guard falls within `integrator.max_time`; `outside_domain` when
    the state starts outside the mode's domain or leaves it without a transition; or `grazing`, `simultaneous_guards`,
    `max_steps_reached`, `dt_min_reached`, `nonfinite`, explained by `RESULTS`. `ValueError` for arguments of a wrong shape or
    dtype, or that are not finite.

    A call that fails has NaN values, and their derivative is zero: the gradient of a failed call is 0.0, so that in a batch the
    failed lanes do not spoil the sum of the others. Check `result` before a gradient is used.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> impact = hj.flow_to_guard(ball.system, "flight", 0.0, x0, params)
    >>> print(f"{impact.t:.6f}, {jnp.sqrt(2 / params.gravity):.6f}")
    0.451524, 0.451524

    Source: Bhounsule (2014), eqs. 1-3.
    """
    params = check_params(params)
    x = check_state(x, system.mode(mode).dimension, mode)
    integrator = for_modes(system, integrator)
    integrator.of(mode).tolerances(x.dtype)
    t = jnp.asarray(t, x.dtype)
    system = sized(system, t, x, params)
    check_mode(system, mode, t, x, params)
    found = _run_within(system, mode, t, x, params, integrator)
    return raise_failure("flow_to_guard", found) if throw else found


def flow_for(
    system: HybridSystem, mode: str, t: Time, x: State, t1: Time, params: Params, integrator: Integrators
) -> State:
    """The state at time `t1 >= t` of the flow of a mode, whose guards are ignored. NaN where the integration fails."""
    own, share = integrator.of(mode), system.mode(mode).share
    end = integrate(system.mode(mode).vector_field, no_surfaces(), t, x, t1, params, own, share=share)
    return nan_unless(end.result == RESULTS.successful, end.x)
