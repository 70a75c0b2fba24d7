r"""The Bouligand derivative of the flow where several guards vanish at the same time.

Orbits near a point where the guards of several transitions vanish reach them one after another, in an order that depends on the
variation $v$ from that point. For each order the derivative is a product of saltation matrices. So the derivative of the flow is
piecewise linear in $v$: linear in each of several cones.
"""

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._flow.check import check_params, check_state, sized
from .._flow.in_step import taken_with
from .._flow.jump import reset, saltation_matrix
from .._results.shown import Shown
from .._system.every import Clock
from .._system.system import HybridSystem
from .._system.types import Params, Scalar, State, Time


class BouligandDerivative(Shown):
    r"""The Bouligand derivative $v \mapsto B(v)$: from a variation before the events to one after them, both at fixed time.

    **Attributes:** `orders`: the possible orders of the events, as indices of transitions (of ways, `system.ways`, where
    some are families). `matrices`: shape
    `(orders, post, pre)`, for each order the product of its saltation matrices. `times`: for each order, shape `(events, pre)`,
    the times of the events as linear functions of the variation. `x`: shape `(orders, post)`, the state after all events, with
    equal rows because the flow is continuous there. `mode`: the mode after all events.

    **Example:**

    >>> speeds = {"start": 1, "x first": 2, "y first": 3, "end": 4}
    >>> mode = lambda speed: hj.Mode(lambda t, x, p: speed * jnp.ones_like(x), coordinates=("x", "y"))
    >>> x, y, same = lambda t, x, p: -x[0], lambda t, x, p: -x[1], lambda t, x, p: x
    >>> ways = ("start", "x first", x), ("start", "y first", y), ("x first", "end", y), ("y first", "end", x)
    >>> transitions = tuple(hj.Transition(source, target, guard, same) for source, target, guard in ways)
    >>> system = hj.HybridSystem({name: mode(speed) for name, speed in speeds.items()}, transitions)
    >>> derivative = hj.phase.bouligand_derivative(system, "start", 0.0, jnp.zeros(2), None)
    >>> derivative.orders, derivative.matrices.shape
    (((0, 2), (1, 3)), (2, 2, 2))

    Source: Burden, Sastry, Koditschek, Revzen (2016); see `bouligand_derivative`.
    """

    matrices: Float[Array, "orders post pre"]
    times: tuple[Float[Array, "_ pre"], ...]
    x: Float[Array, "orders post"]
    orders: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    _rivals: tuple[tuple[Float[Array, "_ pre"], ...], ...]  # at each event, the times of the other guards
    mode: str = eqx.field(static=True)

    def order(self, v: Float[Array, " pre"]) -> Int[Array, ""]:
        """Index into `orders` of the order in which the orbit with variation `v` reaches the guards, the first if several fit."""
        fits = []
        for times, rivals in zip(self.times, self._rivals, strict=True):
            # The order applies if at each event no other guard falls earlier.
            late = [jnp.max(time @ v - rival @ v, initial=-jnp.inf) for time, rival in zip(times, rivals, strict=True)]
            fits.append(jnp.max(jnp.stack(late)))
        # By rounding, a variation on the boundary of two cones may lie outside both: the nearest cone is taken.
        return jnp.argmin(jnp.maximum(jnp.stack(fits), 0))

    def __call__(self, v: Float[Array, " pre"]) -> Float[Array, " post"]:
        """The variation `B(v)` after all events: positively homogeneous and continuous in `v`, but not linear."""
        return self.matrices[self.order(v)] @ v


def _falling(
    system: HybridSystem, mode: str, t: Time, x: State, params: Params, taken: tuple[int, ...], tolerance: float
) -> dict[int, tuple[Array, Scalar]]:
    """Gradient and rate of each guard of the mode that is zero and falling; not of a clock that has ticked at a jump `taken`."""
    field = system.mode(mode).vector_field(t, x, params)
    found, ticked = {}, [taken_with(system, jnp.array(k), params, x.dtype) for k in taken]
    for i in system.ways_out(mode):
        transition = system.way(i)
        if isinstance(transition.guard, Clock) and any(ways[i] for ways in ticked):
            continue
        guard = lambda t, x, g=transition.guard: g(t, x, params)
        slope, gradient = jax.jacfwd(guard, argnums=(0, 1))(t, x)
        rate = slope + gradient @ field
        armed = transition.armed is None or bool(transition.armed(t, x, params))
        if armed and rate < 0 and abs(float(guard(t, x))) <= -tolerance * float(rate):
            found[i] = gradient, rate
    return found


def bouligand_derivative(
    system: HybridSystem,
    mode: str,
    t: float | Time,
    x: State,
    params: Params,
    *,
    tolerance: float = 1e-9,
    max_jumps: int = 6,
) -> BouligandDerivative:
    r"""The Bouligand derivative of the flow through simultaneous events, the counterpart of the saltation matrix for one event.

    $B(v) = \Xi_{i_k} \cdots \Xi_{i_1} v$ in the cone of the variations $v$ whose orbits reach the guards in the order
    $i_1, \dots, i_k$: at each event, the guard with the least time $-D_xg\,v / (D_tg + D_xg f)$ of those that vanish and fall.

    **Arguments:** `system`, `params`: a `HybridSystem` and its parameters, a PyTree. `mode`, `t`, `x`: mode, time and state,
    shape `(n,)`, where the guards vanish, before any jump; not traced. `tolerance`: a guard vanishes if the time to its surface
    is below this, in units of time. `max_jumps`: the largest number of events in an order.

    **Returns:** `BouligandDerivative`, a function of the variation, also under `jit` and `vmap`. With one guard it is the
    saltation matrix. `ValueError` where no guard vanishes, where the events do not end, and where the orders end in different
    modes or in different states: there the flow is discontinuous.

    **Example:**

    >>> speeds = {"start": 1, "x first": 2, "y first": 3, "end": 4}
    >>> mode = lambda speed: hj.Mode(lambda t, x, p: speed * jnp.ones_like(x), coordinates=("x", "y"))
    >>> x, y, same = lambda t, x, p: -x[0], lambda t, x, p: -x[1], lambda t, x, p: x
    >>> ways = ("start", "x first", x), ("start", "y first", y), ("x first", "end", y), ("y first", "end", x)
    >>> transitions = tuple(hj.Transition(source, target, guard, same) for source, target, guard in ways)
    >>> system = hj.HybridSystem({name: mode(speed) for name, speed in speeds.items()}, transitions)
    >>> derivative = hj.phase.bouligand_derivative(system, "start", 0.0, jnp.zeros(2), None)
    >>> print(derivative(jnp.array([0.1, 0.2])), derivative(jnp.array([0.2, 0.1])))
    [0.66666667 0.76666667] [0.7 0.6]

    Source: Burden, Sastry, Koditschek, Revzen (2016), *Event-selected vector field discontinuities yield piecewise-
    differentiable flows*, SIAM J. Appl. Dyn. Syst. 15, 1227-1267. In Kong, Payne, Zhu, Johnson (2024): Sec. II, the Bouligand
    derivative; Table I, $\Xi$ of eq. 9 and the event's time of eq. 27.
    """
    params = check_params(params)
    x = check_state(x, system.mode(mode).dimension, mode)
    t = jnp.asarray(t, x.dtype)
    system = sized(system, t, x, params)
    if isinstance(x, jax.core.Tracer) or isinstance(t, jax.core.Tracer):
        raise ValueError(
            "bouligand_derivative: t and x must not be traced, because their values determine which guards vanish. Call it "
            "outside jit."
        )

    chains = []

    def follow(mode: str, x: State, matrix: Array, taken: tuple[int, ...], times: tuple, rivals: tuple):
        there = _falling(system, mode, t, x, params, taken, tolerance)
        if not there:
            chains.append((taken, mode, x, matrix, times, rivals))
            return
        if len(taken) >= max_jumps:
            raise ValueError(
                f"bouligand_derivative: after the transitions {taken} a guard is zero and falling. Raise "
                f"max_jumps={max_jumps} if the events end; infinitely many events have no derivative."
            )
        # The time at which each guard would be reached in this mode, as a linear function of the variation before all events.
        due = {i: -(gradient @ matrix) / rate for i, (gradient, rate) in there.items()}
        for i in there:
            others = [due[k] for k in there if k != i]
            width = matrix.shape[1]
            against = jnp.stack(others) if others else jnp.zeros((0, width), x.dtype)
            transition = system.way(i)
            after = saltation_matrix(system, transition, t, x, params) @ matrix
            follow(
                transition.target,
                reset(transition, t, x, params),
                after,
                (*taken, i),
                (*times, due[i]),
                (*rivals, against),
            )

    follow(mode, x, jnp.eye(x.size, dtype=x.dtype), (), (), ())
    if chains[0][0] == ():
        raise ValueError(
            f"bouligand_derivative: no guard of mode {mode!r} is zero and falling at t={t}, x={x}. Give the time and state of "
            "an event, before its jump."
        )
    ends = {chain[1] for chain in chains}
    orders = tuple(chain[0] for chain in chains)
    if len(ends) > 1:
        raise ValueError(
            f"bouligand_derivative: the orders {orders} end in different modes {sorted(ends)}, "
            "so the flow has no derivative there."
        )
    states = jnp.stack([chain[2] for chain in chains])
    apart = float(jnp.max(jnp.abs(states - states[0])))
    if apart > 1e3 * tolerance * max(1.0, float(np.max(np.abs(states)))):
        raise ValueError(
            f"bouligand_derivative: the orders {orders} end in states that are {apart:.3g} apart, so the flow is not "
            "continuous there and has no derivative."
        )
    return BouligandDerivative(
        matrices=jnp.stack([chain[3] for chain in chains]),
        times=tuple(jnp.stack(chain[4]) for chain in chains),
        x=states,
        orders=orders,
        _rivals=tuple(chain[5] for chain in chains),
        mode=next(iter(ends)),
    )
