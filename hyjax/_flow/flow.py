r"""The flow of one mode: until its first guard falls, or for a given time."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._system.results import choose, nan_unless, RESULTS
from .._system.system import HybridSystem
from .._system.types import Params, Scalar, State, Time
from .check import check_mode, check_params, check_state
from .integrate import integrate
from .integrator import Integrator
from .mode_integrators import for_modes, IntegratorLike, Integrators
from .surfaces import guarded_limits, limits_of, no_surfaces, one_only, Surfaces
from .trees import without_tangents


class Impact(eqx.Module):
    """The end of an arc: the pre-impact state, on the surface of the first guard that fell.

    **Attributes:** `t`, `x`: time and state before the jump, shapes `()` and `(n,)`. `transition`: index into
    `system.transitions`. `guard_rate`: `D_t g + D_x g f < 0` there, in the guard's units per time. `steps`: the number of solver
    steps tried. `result`: a code of `RESULTS`; unless `result` is `successful`, the numbers are NaN and `transition` is -1.

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
    guard_rate: Scalar
    steps: Int[Array, ""]
    result: RESULTS


def surfaces_of(system: HybridSystem, mode: str) -> Surfaces:
    """The guards of the transitions that leave a mode, in the order of `system.leaving(mode)`."""
    leaving = [system.transitions[i] for i in system.leaving(mode)]

    def values(t, x, params, only=None):
        return jnp.stack([each.guard(*one_only((t, x, params), k, only)) for k, each in enumerate(leaving)])

    def armed(t, x, params):
        yes = jnp.array(True)
        return jnp.stack(
            [yes if transition.armed is None else transition.armed(t, x, params) for transition in leaving]
        )

    return Surfaces(len(leaving), values, armed)


def run_to_guard(system: HybridSystem, mode: str, t: Time, x: State, params: Params, integrator: Integrators) -> Impact:
    """`flow_to_guard` without the checks of its arguments, and regardless of the mode's domain."""
    return _run(surfaces_of(system, mode), system, mode, t, x, params, integrator)


@eqx.filter_jit
def _run_within(system: HybridSystem, mode: str, t: Time, x: State, params: Params, integrator: Integrators) -> Impact:
    each = system.mode(mode)
    inside = lambda t, x, params: jnp.ravel(jnp.asarray(each.domain(t, x, params), x.dtype))  # pyright: ignore
    guarded = lambda params: guarded_limits(each)
    surfaces = surfaces_of(system, mode).within(limits_of(each, t, x, params), inside, guarded)
    impact = _run(surfaces, system, mode, t, x, params, integrator)
    if not hasattr(each.domain, "admits"):
        return impact
    # As for every start outside the domain: NaN values, whose derivative is zero.
    t, x, params = without_tangents((t, x, params))
    admits = each.domain.admits(t, x, params, integrator.of(mode).tolerances(x.dtype))  # pyright: ignore
    admits = admits | ~jnp.all(jnp.isfinite(x))
    t, x, rate = (nan_unless(admits, value) for value in (impact.t, impact.x, impact.guard_rate))
    result = choose(~admits, RESULTS.outside_domain, impact.result)
    return Impact(t, x, jnp.where(admits, impact.transition, -1), rate, impact.steps, result)


def _run(surfaces: Surfaces, system: HybridSystem, mode: str, t: Time, x: State, params: Params, integrator) -> Impact:
    own = integrator.of(mode)
    end = integrate(system.mode(mode).vector_field, surfaces, t, x, t + own.max_time, params, own)
    missed = (end.result == RESULTS.successful) & (end.event < 0)
    result = choose(missed, RESULTS.no_crossing, end.result)
    good = result == RESULTS.successful
    transition = jnp.array(system.leaving(mode) or (-1,))[jnp.maximum(end.event, 0)]
    t1, x1, rate = (nan_unless(good, value) for value in (end.t, end.x, end.guard_rate))
    return Impact(t1, x1, jnp.where(good, transition, -1), rate, end.steps, result)


def flow_to_guard(
    system: HybridSystem,
    mode: str,
    t: float | Time,
    x: State,
    params: Params,
    *,
    integrator: IntegratorLike = Integrator(),
) -> Impact:
    r"""Flow in a mode until the first of its guards falls through zero.

    $x(t_e)$ where $\dot x = f(t, x, p)$ and $t_e$ is the first time at which a guard that was strictly positive is zero.

    **Arguments:** `system`: a `HybridSystem`. `mode`: a name, static. `t`: start time. `x`: initial state, shape `(n,)`. Times
    and states are in the units of the vector field. `integrator`: an `Integrator`, or one for each mode,
    `{"stance": ..., "flight": ...}`.

    **Returns:** `Impact(t, x, transition, guard_rate, steps, result)`, before the jump. Differentiable in `t`, `x` and `params`,
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
    check_mode(system, mode, t, x, params)
    return _run_within(system, mode, t, x, params, integrator)


def flow_for(
    system: HybridSystem, mode: str, t: Time, x: State, t1: Time, params: Params, integrator: Integrators
) -> State:
    """The state at time `t1 >= t` of the flow of a mode, whose guards are ignored. NaN where the integration fails."""
    end = integrate(system.mode(mode).vector_field, no_surfaces(), t, x, t1, params, integrator.of(mode))
    return nan_unless(end.result == RESULTS.successful, end.x)
