r"""The quadratic model of an optimal control problem about a rollout, and the directions in which it falls.

With $A_k = D_xF_k$, $B_k = D_uF_k$, through the events of the step, hence with their saltation matrices, and with the derivatives
of the costs:

$$Q_x = \ell_x + A^\top V_x, \quad Q_u = \ell_u + B^\top V_x, \quad
  Q_{xx} = \ell_{xx} + A^\top V_{xx} A, \quad Q_{ux} = \ell_{ux} + B^\top V_{xx} A, \quad
  Q_{uu} = \ell_{uu} + B^\top V_{xx} B$$
$$k = -Q_{uu}^{-1} Q_u, \qquad K = -Q_{uu}^{-1} Q_{ux}$$
$$V_x = Q_x + K^\top Q_{uu} k + K^\top Q_u + Q_{ux}^\top k, \qquad
  V_{xx} = Q_{xx} + K^\top Q_{uu} K + K^\top Q_{ux} + Q_{ux}^\top K$$

The second derivatives of $F$ are left out, as in the method of Gauss and Newton, and those of a cost that are not those of a
convex function are made so by larger diagonals: then $Q$ is convex and every direction a descent. $k$ and $K$ are those of
$Q_{uu} + \mu\operatorname{diag}|Q_{uu}|$ with a damping $\mu \ge 0$.

Source: Tassa, Erez, Todorov (2012), *Synthesis and stabilization of complex behaviors through online trajectory optimization*,
IROS, eqs. 5 and 11; Kong, Council, Johnson (2021), *iLQR for piecewise-smooth hybrid dynamical systems*, IEEE CDC, for events.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._numerics.elimination import smallest_pivot, solve
from .._numerics.linearize import with_columns
from .._system.types import Flag, Matrix, Scalar
from .control_problem import ControlProblem
from .rollout import Policy, Rollout

# The cost of the event's distance from the grid time, by the cost itself and the squared length of the step.
HOLD = 1e6


class QuadraticModel(eqx.Module):
    """The expansion about a rollout, over `v = (x, u)` at each step.

    **Attributes:** `move`: $(A, B)$, shape `(steps, size, size + m)`. `slope`, `bend`: first and second derivatives of the stage
    cost, `(steps, size + m)` and `(steps, size + m, size + m)`. `end_slope`, `end_bend`: of the terminal cost. `event_slope`: the
    derivative of the time of the last event of each step, `(steps, size + m)`. `event_off`: this time less that of the nearer
    end of the step, `(steps,)`. `away`: its size by the length of the step, infinite without an event, `(steps,)`. `hold`: the
    weight of `event_off` in a held direction, `(steps,)`.
    """

    move: Float[Array, "steps size both"]
    slope: Float[Array, "steps both"]
    bend: Float[Array, "steps both both"]
    end_slope: Float[Array, " size"]
    end_bend: Float[Array, "size size"]
    event_slope: Float[Array, "steps both"]
    event_off: Float[Array, " steps"]
    away: Float[Array, " steps"]
    hold: Float[Array, " steps"]


class Direction(eqx.Module):
    r"""A policy that lowers the model. **Attributes:** `slope`: $\mathrm dJ/\mathrm d\alpha$ at $\alpha = 0$, negative where the
    cost falls. `event_off`: the times of the events less those of the nearer ends of their steps, after the step of the model,
    shape `(steps,)`."""

    policy: Policy
    slope: Scalar
    event_off: Float[Array, " steps"]


def quadratic_model(problem: ControlProblem, about: Rollout) -> QuadraticModel:
    """The model about a rollout. All steps are one batch."""
    size = problem.x0.size

    def step(k):
        t, until, mode = problem.times[k], problem.times[k + 1], about.modes[k]

        def end(v):
            # The time of the last event; the start where there is none.
            last = lambda log, row, after: row.end
            found, event = problem.interval(t, until, v[:size], mode, v[size:], t, last, jnp.array(problem.max_events))
            return (found.z, event), None

        cost = lambda v: problem.stage_cost(t, v[:size], v[size:], mode)
        v = jnp.concatenate([about.x[k], about.controls[k]])
        (_, event), (move, event_slope), _ = with_columns(end, v)
        off = jnp.where(event - t < until - event, event - t, event - until)
        away = jnp.where(event > t, jnp.abs(off) / (until - t), jnp.inf)
        return move, jax.jacfwd(cost)(v), _convex(jax.jacfwd(jax.jacfwd(cost))(v)), event_slope, off, away

    move, slope, bend, event_slope, off, away = jax.vmap(step)(jnp.arange(len(about.controls)))
    final = lambda z: problem.terminal_cost(problem.times[-1], z, about.modes[-1])
    z = about.x[-1]
    return QuadraticModel(
        move=move, slope=slope, bend=bend, end_slope=jax.jacfwd(final)(z), end_bend=_convex(jax.jacfwd(jax.jacfwd(final))(z)),
        event_slope=event_slope, event_off=off, away=away, hold=HOLD * jnp.abs(about.cost) / jnp.diff(problem.times) ** 2,
    )  # fmt: skip


def _convex(bend: Matrix) -> Matrix:
    """A symmetric matrix that is positive semidefinite up to rounding; any other with its diagonal raised until it dominates."""
    largest, diagonal = jnp.max(jnp.abs(bend)), jnp.diagonal(bend)
    unit = jnp.where(largest > 0, largest, 1)
    sound = smallest_pivot(bend / unit + jnp.finfo(bend.dtype).eps ** 0.5 * jnp.eye(len(bend), dtype=bend.dtype)) > 0
    lacking = jnp.sum(jnp.abs(bend), axis=1) - jnp.abs(diagonal) - diagonal
    return bend + jnp.diag(jnp.where(sound, 0, jnp.maximum(lacking, 0)))


def direction(
    model: QuadraticModel, damping: Scalar, held: Bool[Array, " steps"], extended: Flag, shift: Float[Array, " steps"]
) -> Direction:
    """The direction of the model with a damping, in which the events of the steps `held` are led to the nearer grid times, or
    later than these by `shift`, and held there. `extended`: of its policy."""
    size = len(model.end_slope)
    weight = jnp.where(held, model.hold, 0)

    def back(carry, row):
        v_x, v_xx = carry
        move, slope, bend, event_slope, off, weight = row
        q = slope + move.T @ v_x + 2 * weight * off * event_slope
        h = bend + move.T @ v_xx @ move + 2 * weight * jnp.outer(event_slope, event_slope)
        q_x, q_u, q_ux, q_uu = q[:size], q[size:], h[size:, :size], h[size:, size:]
        scale = jnp.abs(jnp.diagonal(q_uu))
        # A control without effect and without cost stays as it is.
        damped = q_uu + jnp.diag(damping * scale + jnp.where(scale > 0, 0, 1))
        steps = -solve(damped, jnp.concatenate([q_u[:, None], q_ux], axis=1))
        k, gain = steps[:, 0], steps[:, 1:]
        pushed = q_uu @ gain + q_ux
        v_x = q_x + pushed.T @ k + gain.T @ q_u
        v_xx = h[:size, :size] + gain.T @ pushed + q_ux.T @ gain
        return (v_x, (v_xx + v_xx.T) / 2), (k, gain)

    rows = model.move, model.slope, model.bend, model.event_slope, model.event_off - shift, weight
    _, (k, gain) = jax.lax.scan(back, (model.end_slope, model.end_bend), rows, reverse=True)

    def ahead(carry, row):
        dx, falls = carry
        k, gain, move, slope, event_slope = row
        du = k + gain @ dx
        dv = jnp.concatenate([dx, du])
        return (move @ dv, falls + slope @ dv), (du, event_slope @ dv)

    start = jnp.zeros_like(model.end_slope), jnp.zeros((), model.slope.dtype)
    (dx, falls), (du, moved) = jax.lax.scan(ahead, start, (k, gain, model.move, model.slope, model.event_slope))
    return Direction(Policy(k, gain, du, extended), falls + model.end_slope @ dx, model.event_off + moved)


def released(model: QuadraticModel, held: Bool[Array, " steps"], along: Direction) -> Bool[Array, " steps"]:
    """The events that stay held, of those held in a direction: all but the one that pulls hardest to the side on which it is.

    The weight leaves an event off its grid time by its multiplier, so by how the cost of the model falls with its time. The model
    is that of the side on which the event is now.
    """
    pull = jnp.where(held & (along.event_off * model.event_off > 0), jnp.abs(along.event_off) * model.hold, 0)
    return held & ~((jnp.arange(len(pull)) == jnp.argmax(pull)) & (pull > 0))


def control_gradient(model: QuadraticModel) -> Float[Array, "steps m"]:
    """The gradient of the cost by the controls: the adjoint equation backward through the events."""
    size = len(model.end_slope)

    def back(v_x, row):
        move, slope = row
        q = slope + move.T @ v_x
        return q[:size], q[size:]

    _, gradient = jax.lax.scan(back, model.end_slope, (model.move, model.slope), reverse=True)
    return gradient
