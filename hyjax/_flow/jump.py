"""The jump: the reset, and the saltation matrix."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._system.system import Guard, HybridSystem, Reset, Transition, VectorField
from .._system.types import Matrix, Params, Scalar, State, Time


def reset(transition: Transition, t: Time, x: State, params: Params) -> Float[Array, " post"]:
    """The state after a jump, $x^+ = R(t, x^-, p)$, in the dtype of the state before the jump."""
    return jnp.asarray(transition.reset(t, x, params), x.dtype)


def saltation_matrix(
    system: HybridSystem,
    transition: Transition | int,
    t: float | Time,
    x: State,
    params: Params,
    index: int | None = None,
) -> Matrix:
    r"""The saltation matrix: the map of variations at fixed time across an event. $\delta x^+ = \Xi\,\delta x^-$.

    $$\Xi = D_xR + \frac{(f_J(t, x^+) - D_xR\,f_I(t, x^-) - D_tR)\,D_xg}{D_tg + D_xg\,f_I(t, x^-)}$$

    **Arguments:** `system`, `params`: a `HybridSystem` and its parameters. `transition`: one of `system.transitions`, or its
    index. `t`, `x`: time and state before the jump, on the guard's surface; `x` of shape `(pre,)`. `index`: of a family of
    transitions, the number of the guard. `ValueError` for a family without it.

    **Returns:** shape `(post, pre)`; an entry has the unit of a coordinate after the jump over that of one before. Where the flow
    is tangent to the surface (grazing) the denominator is zero and entries are infinite or NaN; `flow_to_guard` reports grazing
    as a result code.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> impact = hj.flow_to_guard(ball.system, "flight", 0.0, x0, params)
    >>> print(hj.saltation_matrix(ball.system, 0, impact.t, impact.x, params).round(4))
    [[-0.8     0.    ]
     [ 3.9865 -0.8   ]]

    Source: Kong, Payne, Zhu, Johnson (2024), Definition 2, eq. 9.
    """
    if not isinstance(transition, Transition):
        transition = system.transitions[transition]
    if transition.is_family and index is None:
        raise ValueError(
            "saltation_matrix: the transition is a family. Give index=, the number of the guard that falls."
        )
    transition = transition.member(index)
    fields = system.mode(transition.source).vector_field, system.mode(transition.target).vector_field
    t = jnp.asarray(t, x.dtype)
    jacobian, slip, delay, _ = variation_of_jump(*fields, transition.guard, transition.reset, t, x, params)
    return jacobian - jnp.outer(slip, delay)


def variation_of_jump(
    before: VectorField, after: VectorField, guard: Guard, jump: Reset, t: Time, x: State, params: Params
) -> tuple[Matrix, Float[Array, " post"], Float[Array, " pre"], Scalar]:
    r"""The parts of a variation at fixed time across a jump, $\delta x^+ = D_xR\,\delta x^- - s\,\delta t$.

    **Arguments:** `before`, `after`: the vector fields $f_I$, $f_J$. `guard`, `jump`: $g$, $R$.

    **Returns:** $D_xR$; the slip $s = f_J - D_xR\,f_I - D_tR$; the row $-D_xg/\dot g$, by which an event is late, $\delta t$, for
    a variation of the state; and the guard's rate $\dot g = D_tg + D_xg\,f_I$. A jump that is taken at once is as late as the
    event before it.
    """
    to = lambda t, x: jnp.asarray(jump(t, x, params), x.dtype)
    x_after = to(t, x)
    rate, rate_after = before(t, x, params), after(t, x_after, params)

    guard_slope, guard_gradient = jax.jacfwd(lambda t, x: guard(t, x, params), argnums=(0, 1))(t, x)
    reset_slope, reset_jacobian = jax.jacfwd(to, argnums=(0, 1))(t, x)

    guard_rate = guard_slope + guard_gradient @ rate
    slip = rate_after - reset_jacobian @ rate - reset_slope
    return reset_jacobian, slip, -guard_gradient / guard_rate, guard_rate
