r"""Where several guards fall at once: the Bouligand derivative.

Near a point at which the guards of several transitions vanish together, neighbouring orbits meet them one after the other, in
an order that depends on the side to which they pass. To first order each order is a product of saltation matrices; which one
applies to a variation $v$ is decided by the times at which it meets the guards. So the flow's derivative is a map of $v$ that
is linear in each of several cones.
"""

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._flow.check import check_params, check_state
from .._flow.jump import reset, saltation_matrix
from .._system.system import HybridSystem
from .._system.types import Params, Scalar, State, Time


class BouligandDerivative(eqx.Module):
    """A map of variations before the events to variations after, both at fixed time; linear in each cone.

    **Attributes:** `orders`: for each order in which the guards can be met, the indices of the transitions taken. `matrices`:
    shape `(orders, post, pre)`: for each order, the product of its saltation matrices. `times`: for each order, shape
    `(events, pre)`: the times, as linear functions of the variation, at which the events come. `x`: shape `(orders, post)`:
    the state after all events; the orbit depends continuously on its start where the rows agree.
    """

    matrices: Float[Array, "orders post pre"]
    times: tuple[Float[Array, "_ pre"], ...]
    x: Float[Array, "orders post"]
    orders: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    _rivals: tuple[tuple[Float[Array, "_ pre"], ...], ...]  # the times of the guards that could have come first
    mode: str = eqx.field(static=True)

    def order(self, v: Float[Array, " pre"]) -> Int[Array, ""]:
        """The number of the order in which the orbit varied by `v` meets the guards; of several, the first."""
        fits = []
        for times, rivals in zip(self.times, self._rivals, strict=True):
            # At each event, none of the guards that could fall there instead falls earlier.
            late = [jnp.max(time @ v - rival @ v, initial=-jnp.inf) for time, rival in zip(times, rivals, strict=True)]
            fits.append(jnp.max(jnp.stack(late)))
        # Rounding may leave a variation on the border of two cones outside both: the nearest then.
        return jnp.argmin(jnp.maximum(jnp.stack(fits), 0))

    def __call__(self, v: Float[Array, " pre"]) -> Float[Array, " post"]:
        """The variation after all events: positively homogeneous and continuous in `v`, but not linear."""
        return self.matrices[self.order(v)] @ v


def bouligand_derivative(
    system: HybridSystem,
    mode: str,
    t: float | Time,
    x: State,
    params: Params,
    *,
    tolerance: float = 1e-9,
    max_events: int = 6,
) -> BouligandDerivative:
    r"""How a variation passes through guards that fall at the same time.

    $B(v) = \Xi_{i_k} \cdots \Xi_{i_1} v$ in the cone of those $v$ whose orbits meet the guards in the order $i_1, \dots, i_k$:
    at each event, the guard with the least time $-D_xg\,v / (D_tg + D_xg f)$ among those that are zero and falling.

    **Arguments:** `mode`, `t`, `x`: where the guards vanish, before any jump; concrete, shape `(n,)`. `tolerance`: a guard
    whose time to its surface is below this, in units of time, is there. `max_events`: the longest chain that is followed.

    **Returns:** `BouligandDerivative`: call it with a variation, also under `jit` and `vmap`. With one guard it is the
    saltation matrix. `ValueError` where no guard vanishes, where the orders end in different modes, or where the chain does
    not end; and where they end in different states, for there the orbit jumps as its start varies.

    Source: Burden, Sastry, Koditschek, Revzen (2016), *Event-selected vector field discontinuities yield piecewise-
    differentiable flows*, SIAM J. Appl. Dyn. Syst. 15, 1227-1267; Kong, Payne, Zhu, Johnson (2024), Sec. II.
    """
    check_params(params)
    x = check_state(x, system.mode(mode).dimension, mode)
    t = jnp.asarray(t, x.dtype)
    if isinstance(x, jax.core.Tracer) or isinstance(t, jax.core.Tracer):
        raise ValueError(
            "bouligand_derivative: t and x must be known, because they say which guards vanish. Call it outside jit."
        )

    def falling(mode: str, x: State) -> dict[int, tuple[Array, Scalar]]:
        """Gradient and rate of each guard of the mode that is zero, and falling."""
        field = system.mode(mode).vector_field(t, x, params)
        found = {}
        for i in system.leaving(mode):
            transition = system.transitions[i]
            guard = lambda t, x, g=transition.guard: g(t, x, params)
            slope, gradient = jax.jacfwd(guard, argnums=(0, 1))(t, x)
            rate = slope + gradient @ field
            armed = transition.armed is None or bool(transition.armed(t, x, params))
            if armed and rate < 0 and abs(float(guard(t, x))) <= -tolerance * float(rate):
                found[i] = gradient, rate
        return found

    chains = []

    def follow(mode: str, x: State, matrix: Array, taken: tuple[int, ...], times: tuple, rivals: tuple):
        there = falling(mode, x)
        if not there:
            chains.append((taken, mode, x, matrix, times, rivals))
            return
        if len(taken) >= max_events:
            raise ValueError(
                f"bouligand_derivative: after the transitions {taken} a guard still falls. Raise max_events={max_events} if "
                "the chain is finite; a chain without end has no derivative."
            )
        # By the variation before all events, when each guard would be met in this mode.
        due = {i: -(gradient @ matrix) / rate for i, (gradient, rate) in there.items()}
        for i in there:
            others = [due[k] for k in there if k != i]
            width = matrix.shape[1]
            against = jnp.stack(others) if others else jnp.zeros((0, width), x.dtype)
            transition = system.transitions[i]
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
        raise ValueError(f"bouligand_derivative: the orders {orders} end in different modes {sorted(ends)}.")
    states = jnp.stack([chain[2] for chain in chains])
    apart = float(jnp.max(jnp.abs(states - states[0])))
    if apart > 1e3 * tolerance * max(1.0, float(np.max(np.abs(states)))):
        raise ValueError(
            f"bouligand_derivative: the orders {orders} end in states that are {apart:.3g} apart, so the orbit is not "
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
