r"""The event at the end of an arc: every state of a set crosses the surface of a guard, and jumps.

The states $p(s)$ flow for the time $\tau(s)$, a polynomial with $g(\varphi_{\tau(s)}(p(s))) \approx 0$. A displacement $\zeta$
from there reaches the surface after a time $|\theta| \le |g| / \kappa$, where $\dot g \le -\kappa < 0$, and becomes
$\Pi\zeta = \zeta - f\,(D_xg\,\zeta) / \dot g$. The displacements by a disturbance are first made variables of the polynomial, so
that the second order of the event is in the Taylor model.

Source: Wilczak, Zgliczyński (2011), Sec. 4, for Poincaré maps; the projection is that of Kong et al. (2024), Eq. 9.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._system.types import Matrix
from . import functions
from .enclosed_step import (
    Box,
    columns_of,
    displaced,
    disturbance_displacement,
    first,
    Flow,
    matrix_slope,
    nested,
    widened,
)
from .mode_field import ModeField
from .rounding import TINY, up
from .state_set import bounded_product, Frame, identity_frame, StateSet
from .symbolic import Graph
from .taylor_model import add, ball, Basis, basis, multiply, scale, TaylorModel, total

# Newton's iterations for the polynomial of the time; what is left is bounded.
ITERATIONS = 8


class Surface(eqx.Module):
    r"""A surface $g = 0$ that states cross while $g$ falls.

    **Attributes:** `height`: $(g, \dot g)$ of a set of states, shape `(2,)`. `slope`: $(D_xg, \dot g)$, shape `(n + 1,)`.
    """

    height: Callable[[TaylorModel], TaylorModel] = eqx.field(static=True)
    slope: Callable[[TaylorModel], TaylorModel] = eqx.field(static=True)


def guard_surface(field: ModeField, which: int) -> Surface:
    """The surface of the mode's guard `which`."""
    return Surface(
        lambda x: first(field.guards[which], x, field.leaves),
        lambda x: first(field.gradients[which], x, field.leaves),
    )


class Hidden(eqx.Module):
    r"""What the displacements of a set are in variables $v \in [-1, 1]^n$: $v = \sum_g H_g u_g$ up to `error`.

    **Attributes:** `generators`: $H_g$, shape `(groups, n, columns)`. `error`: shape `(n,)`.
    """

    generators: Float[Array, "groups n columns"]
    error: Float[Array, " n"]


def spread_out(states: StateSet, frame: Frame) -> tuple[StateSet, Hidden]:
    r"""The set as a polynomial alone, $p(s) + F D v$, with the axes of the frame as further variables, $|v_i| \le 1$.

    So the event's Taylor model has the effect of displacements to second order, between them and with $s$. The set forgets how
    the $v_i$ depend on each other; `gathered` puts that back in the terms that are linear in $v$. The derivatives by the
    coordinates are as they were.
    """
    n, m = states.error.shape[0], states.basis.variables
    turned, rounding = bounded_product(frame.inverse, states.generators)
    moduli = jnp.sum(jnp.abs(states.generators), axis=(0, 2))
    error = up(states.error + jnp.sum(rounding, axis=(0, 2)) + frame.inverse_radius @ moduli, 2 * n)
    norms = jnp.sum(jnp.sqrt(jnp.sum(turned**2, axis=2)), axis=0) * (1 + 2.0**-49)
    sizes = up(norms + error, states.generators.shape[0]) + TINY
    larger = basis(m + n, max(states.basis.degree, 2))
    rest = (0,) * n
    at = [larger.index((*exponents, *rest)) for exponents in states.basis.exponents.tolist()]
    polynomial = jnp.zeros((larger.size, n)).at[jnp.array(at)].set(states.polynomial)
    axes = frame.matrix * sizes
    for i in range(n):
        polynomial = polynomial.at[larger.linear(m + i)].set(axes[:, i])
    # The sizes D are sums of many terms, of which another copy may be rounded otherwise.
    slack = up(2.0**-40 * (jnp.abs(axes) @ jnp.ones(n)), n) + TINY
    local = StateSet(
        polynomial,
        jnp.zeros((0, n, states.generators.shape[2])),
        up((jnp.abs(frame.inverse) + frame.inverse_radius) @ slack, 2 * n),
        states.variation,
        states.variation_error,
        larger,
    )
    return local, Hidden(turned / sizes[:, None], up(error / sizes + 2.0**-40, 4))


def gathered(states: StateSet, hidden: Hidden, smaller: Basis) -> StateSet:
    r"""The set with $v$ as displacements again: in each term $s_j^k v_i$ that is linear in $v$, $v = H u$; in the frame of the
    coordinates. Groups: those of the linear terms, of the terms with each $s_j$, and of the event itself."""
    larger, m, n = states.basis, smaller.variables, states.error.shape[0]
    kept, center, error = [], states.polynomial[0], states.error
    pushes = [jnp.zeros((n, larger.variables - m)) for _ in range(m + 1)]
    for exponents, coefficient in zip(larger.exponents.tolist(), states.polynomial, strict=True):
        by_s, by_v = exponents[:m], exponents[m:]
        if sum(by_v) == 0 and sum(by_s) <= smaller.degree:
            kept.append(coefficient)
        elif sum(by_v) == 1 and sum(by_s) <= 1:
            which = by_s.index(1) + 1 if 1 in by_s else 0
            pushes[which] = pushes[which].at[:, by_v.index(1)].set(coefficient)
        elif max(by_v) == 2 and sum(exponents) == 2:
            # A square is between 0 and 1.
            center, error = center + 0.5 * coefficient, error + 0.5 * jnp.abs(coefficient)
            error = error + 2.0**-51 * jnp.abs(center)
        else:
            error = error + jnp.abs(coefficient)
    groups = []
    for push in pushes:
        product, rounding = bounded_product(push, hidden.generators)
        groups.append(product)
        error = error + jnp.sum(rounding, axis=(0, 2)) + jnp.abs(push) @ hidden.error
    return StateSet(
        jnp.stack(kept).at[0].set(center),
        # The linear terms keep their places, some of which are reserved for later arcs.
        jnp.concatenate([*groups, states.generators]),
        up(error, larger.size),
        states.variation,
        states.variation_error,
        smaller,
    )


class Arrival(eqx.Module):
    r"""The states of a set at a surface, and what was proved on the way there.

    **Attributes:** `states`: the set near the surface, at the times $\tau(s)$, in its `frame`. `on_surface`: the ball of all
    states on the surface. `residue`: a bound of the distance along the flow of the polynomial from the surface. `waiting`: of the
    effect of the disturbance on the way from there to the surface. `stretch`: of $|\Phi_\theta - I|$. `box`: of the step.
    `times`: a ball that holds the times to the surface. `conditions`: what must be true, and whether it is proved.
    """

    states: StateSet
    frame: Frame
    on_surface: TaylorModel
    residue: Float[Array, " n"]
    waiting: Float[Array, " n"]
    stretch: Matrix
    box: Box
    times: TaylorModel
    conditions: dict[str, Bool[Array, ""]]


def product(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """The product of matrices of Taylor models."""
    return total(multiply(a[:, :, None], b[None]), (1,))


def _polynomial(a: TaylorModel) -> TaylorModel:
    return TaylorModel(a.coefficients, jnp.zeros_like(a.radius), a.basis)


def arrive(
    field: ModeField,
    surface: Surface,
    flow: Flow,
    states: StateSet,
    frame: Frame,
    window: Float[Array, ""],
    disturbance: Float[Array, "groups n columns"],
) -> Arrival:
    """Every state of a set crosses a surface within the time `window`.

    **Arguments:** `flow`: of the states, for times up to the window. `states`: before the surface, with its `frame`.
    `disturbance`: the columns $E_g$; if there are some, the set has no other generators.
    """
    disturbance_bound = jnp.sum(jnp.abs(disturbance), axis=(0, 2))
    box, series, left_out = flow.box, flow.series, flow.left_out

    def improved(_, time):
        value = surface.height(_polynomial(nested(series, time)))
        rate = jnp.where(value.center[1] == 0, 1.0, value.center[1])
        return _polynomial(add(time, scale(value[0], -1 / rate)))

    guess = TaylorModel(jnp.zeros((states.basis.size,)).at[0].set(0.5 * window), jnp.zeros(()), states.basis)
    time = jax.lax.fori_loop(0, ITERATIONS, improved, guess)
    model = widened(nested(series, time), left_out[:, 0])
    times = time.ball()
    matrix = widened(nested(flow.derivative, times)[:, 1:], left_out[:, 1:])
    local = jnp.zeros(field.dimension)
    if disturbance.shape[0]:
        # The displacements within a shorter time are among those within the longest.
        generators, local = disturbance_displacement(
            field, box, matrix_slope(flow.derivative), flow.growth, disturbance, times.high
        )
    states = displaced(states, model, matrix, local, frame, frame)
    if disturbance.shape[0]:
        states = eqx.tree_at(lambda each: each.generators, states, generators)

    # From there to the surface: |theta| <= |g| / kappa, in a ball that no state leaves meanwhile. The disturbance slows g's fall.
    around = states.hull(frame)
    room = up(window * (1.5 * box.rate.largest + disturbance_bound), 2)
    near = ball(around.center, up(around.radius + room))
    columns = first(field.variational, columns_of(near, ball(jnp.eye(field.dimension))), field.leaves)
    rate, shear = columns[:, 0].largest, columns[:, 1:].largest
    falling = surface.slope(near)
    slope = falling[:-1]
    slowest = -falling[-1].high - up(jnp.sum(slope.largest * disturbance_bound), 2)
    certain = jnp.where(slowest > 0, slowest, 1.0)
    on_polynomial = surface.height(states.model)[0].largest
    late = up(up(on_polynomial + states.support(slope, frame)) / certain, 2)
    on_surface = ball(around.center, up(around.radius + late * (rate + disturbance_bound), 4))
    times = ball(times.center, up(times.radius + late))
    falling = surface.slope(box.states)
    during = falling[:-1]
    slowed = -falling[-1].high - up(jnp.sum(during.largest * disturbance_bound), 2)
    # Of a guard that falls all the time, a crossing after the start means that it is positive before.
    conditions = {
        "box": box.proved & jnp.all(up(late * (rate + disturbance_bound)) < room),
        "falls": (slowest > 0) & (slowed > 0),
        "crosses": (times.low > 0) & (times.high < window),
    }
    # A vector's growth for the time |theta|, e^a - 1 <= a / (1 - a / 2).
    norm = up(late * jnp.max(jnp.sum(shear, axis=1)), field.dimension)
    growth = jnp.where(norm < 1, up(norm / (1 - 0.5 * norm), 3), jnp.inf)
    residue = up(rate * on_polynomial / certain, 3)
    waiting = up(late * (disturbance_bound + growth * jnp.sum(disturbance_bound)), 3)
    stretch = up(late * (shear + growth * jnp.sum(shear, axis=1, keepdims=True)), 2 * field.dimension)
    return Arrival(states, frame, on_surface, residue, waiting, stretch, box, times, conditions)


def projected(field: ModeField, surface: Surface, at: Arrival, after: Frame) -> StateSet:
    r"""The states on the surface, in the frame `after`, as displacements from the polynomial: $\zeta - f\,(D_xg\,\zeta) / \dot
    g$.

    The derivative of the flow for the time $|\theta|$ differs from $I$ by $|\theta|\,|A|(I + \gamma)$.
    """
    states, frame, n = at.states, at.frame, field.dimension
    slope = surface.slope(at.on_surface)
    rate = first(field.field, at.on_surface, field.leaves)
    direction = functions.divide(rate, slope[-1:])
    gradient = slope[:-1]
    row = jnp.outer(direction.center, gradient.center)
    matrix = ball(jnp.eye(n) - row)
    size = jnp.abs(matrix.center)
    bent = up(size + jnp.outer(direction.largest, gradient.largest))

    def spread(along: Array, moduli: Array) -> Array:
        """Of the projection of vectors: by the direction's radius, the gradient's, by stretching, by rounding."""
        tilt = jnp.tensordot(direction.radius, along, 0)
        turn = jnp.tensordot(jnp.abs(direction.center), gradient.radius @ moduli, 0)
        rounding = 2.0**-50 * (jnp.abs(row) + jnp.eye(n)) @ moduli
        return up(tilt + turn + bent @ (at.stretch @ moduli) + rounding, 4 * n)

    offset = up(states.offset(frame) + at.residue + at.waiting)
    along = states.support(gradient, frame) + up(gradient.largest @ (at.residue + at.waiting), n)
    local = spread(along, offset) + up(bent @ (at.residue + at.waiting), n) + at.residue
    tangents = states.tangents(frame)
    pushed, more = bounded_product(gradient.center, states.variation)
    turned, rounding = bounded_product(gradient.center, frame.matrix)
    error = (jnp.abs(turned) + rounding) @ states.variation_error
    reached = up(jnp.abs(pushed) + more + error + gradient.radius @ tangents.largest, 4 * n)
    return displaced(states, states.model, matrix, up(local), frame, after, spread(reached, tangents.largest))


def mapped(
    field: ModeField,
    states: StateSet,
    frame: Frame,
    around: TaylorModel,
    function: Graph,
    jacobian: Graph,
) -> StateSet:
    r"""The image of the states on a surface under a smooth map $R$: a reset, or the coordinates of a section.

    $R(y + \zeta) = R(y) + D_xR\,\zeta$ with the Jacobian over the ball `around`, which holds all of the set. The result is in the
    frame of its coordinates.
    """
    matrix = first(jacobian, around, field.leaves)
    image = first(function, states.model, field.leaves)
    return displaced(states, image, matrix, jnp.zeros(image.shape), frame, identity_frame(image.shape[0]))
