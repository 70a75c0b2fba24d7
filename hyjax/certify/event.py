r"""The event at the end of an arc: every state of a set crosses the surface of a guard, and jumps.

The states $p(s)$ flow for the time $\tau(s)$, a polynomial with $g(\varphi_{\tau(s)}(p(s))) \approx 0$. A displacement $\zeta$
from there reaches the surface after a time $|\theta| \le |g| / \kappa$, where $\dot g \le -\kappa < 0$, and becomes
$\Pi\zeta = \zeta - f\,(D_xg\,\zeta) / \dot g$. The displacements by a disturbance are first made variables of the polynomial, so
that the second order of the event is in the Taylor model.

Source: Wilczak, Zgliczyński (2011), Sec. 4, for Poincaré maps; the projection is that of Kong et al. (2024), Eq. 9.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._system.types import Matrix
from . import functions
from .enclosed_step import (
    advance,
    bounded_product,
    columns_of,
    displaced,
    EnclosedFlow,
    growth_bound,
    identity_frame,
    nested,
    StateSet,
)
from .interpret import evaluate
from .mode_field import ModeField
from .rounding import TINY, up
from .symbolic import Graph
from .taylor_model import add, ball, Basis, basis, multiply, scale, TaylorModel, total

# Newton's iterations for the polynomial of the time; what is left is bounded.
ITERATIONS = 8


# What the displacements of a set are in variables $v \in [-1, 1]^n$: $v = \sum_g H_g u_g$ up to an error. The generators $H_g$,
# shape `(groups, n, columns)`, and the error, shape `(n,)`.
Displacements = tuple[Float[Array, "groups n columns"], Float[Array, " n"]]


def spread_out(states: StateSet) -> tuple[StateSet, Displacements]:
    r"""The set as a polynomial alone, $p(s) + F D v$, with the axes of the frame as further variables, $|v_i| \le 1$.

    So the event's Taylor model has the effect of displacements to second order, between them and with $s$. The set forgets how
    the $v_i$ depend on each other; `gathered` puts that back in the terms that are linear in $v$. The derivatives by the
    coordinates are as they were.
    """
    n, m, frame = states.error.shape[0], states.basis.variables, states.frame
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
        frame,
        larger,
    )
    return local, (turned / sizes[:, None], up(error / sizes + 2.0**-40, 4))


def gathered(states: StateSet, displacements: Displacements, smaller: Basis) -> StateSet:
    r"""The set with $v$ as displacements again: in each term $s_j^k v_i$ that is linear in $v$, $v = H u$; in the frame of the
    coordinates. Groups: those of the linear terms, of the terms with each $s_j$, and of the event itself."""
    larger, m, n = states.basis, smaller.variables, states.error.shape[0]
    (generators, more), kept, center, error = displacements, [], states.polynomial[0], states.error
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
        product, rounding = bounded_product(push, generators)
        groups.append(product)
        error = error + jnp.sum(rounding, axis=(0, 2)) + jnp.abs(push) @ more
    return StateSet(
        jnp.stack(kept).at[0].set(center),
        # The linear terms keep their places, some of which are reserved for later arcs.
        jnp.concatenate([*groups, states.generators]),
        up(error, larger.size),
        states.variation,
        states.variation_error,
        states.frame,
        smaller,
    )


def product(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """The product of matrices of Taylor models."""
    return total(multiply(a[:, :, None], b[None]), (1,))


def _polynomial(a: TaylorModel) -> TaylorModel:
    return TaylorModel(a.coefficients, jnp.zeros_like(a.radius), a.basis)


def crossed(
    field: ModeField,
    which: int,
    flow: EnclosedFlow,
    states: StateSet,
    window: Float[Array, ""],
    disturbance: Float[Array, "groups n columns"],
) -> tuple[StateSet, TaylorModel, TaylorModel, dict[str, Bool[Array, ""]]]:
    r"""The states of a set where the guard `which` of its mode falls through zero, within the time `window`.

    **Arguments:** `flow`: of the states, for times up to the window. `states`: before the surface. `disturbance`: the columns
    $E_g$; if there are some, the set has no other generators. **Returns:** the set on the surface, in the same frame; the ball
    that holds it; a ball that holds the times of the crossing; and what must be true, and whether it is proved.
    """
    height = lambda x: evaluate(field.guards[which], x, field.leaves)
    slope_at = lambda x: evaluate(field.gradients[which], x, field.leaves)
    disturbance_bound = jnp.sum(jnp.abs(disturbance), axis=(0, 2))

    def improved(_, time):
        value = height(_polynomial(nested(flow.series, time)))
        rate = jnp.where(value.center[1] == 0, 1.0, value.center[1])
        return _polynomial(add(time, scale(value[0], -1 / rate)))

    guess = TaylorModel(jnp.zeros((states.basis.size,)).at[0].set(0.5 * window), jnp.zeros(()), states.basis)
    time = jax.lax.fori_loop(0, ITERATIONS, improved, guess)
    times = time.ball()
    states = advance(flow, states, time, states.frame, disturbance)

    # From there to the surface: |theta| <= |g| / kappa, in a ball that no state leaves meanwhile. The disturbance slows g's fall.
    around = states.hull
    room = up(window * (1.5 * flow.rate.largest + disturbance_bound), 2)
    near = ball(around.center, up(around.radius + room))
    columns = evaluate(field.variational, columns_of(near, ball(jnp.eye(field.dimension))), field.leaves)
    rate, shear = columns[:, 0].largest, columns[:, 1:].largest
    falling, during = slope_at(near), slope_at(flow.box)
    slowest, slowed = (
        -each[-1].high - up(jnp.sum(each[:-1].largest * disturbance_bound), 2) for each in (falling, during)
    )
    certain = jnp.where(slowest > 0, slowest, 1.0)
    on_polynomial = height(states.model)[0].largest
    late = up(up(on_polynomial + states.support(falling[:-1])) / certain, 2)
    on_surface = ball(around.center, up(around.radius + late * (rate + disturbance_bound), 4))
    times = ball(times.center, up(times.radius + late))
    # Of a guard that falls all the time, a crossing after the start means that it is positive before.
    conditions = {
        "box": flow.proved & jnp.all(up(late * (rate + disturbance_bound)) < room),
        "falls": (slowest > 0) & (slowed > 0),
        "crosses": (times.low > 0) & (times.high < window),
    }
    growth = growth_bound(up(late * jnp.max(jnp.sum(shear, axis=1)), field.dimension))
    # The distance of the polynomial from the surface along the flow; and what the disturbance adds on the way there.
    residue = up(rate * on_polynomial / certain, 3)
    waiting = up(late * (disturbance_bound + growth * jnp.sum(disturbance_bound)), 3)
    # Of the derivative of the flow for that time: it differs from I by at most theta |A| (I + gamma).
    stretch = up(late * (shear + growth * jnp.sum(shear, axis=1, keepdims=True)), 2 * field.dimension)
    on = _projected(field, slope_at(on_surface), on_surface, states, residue, waiting, stretch)
    return on, on_surface, times, conditions


def _projected(
    field: ModeField,
    slope: TaylorModel,
    on_surface: TaylorModel,
    states: StateSet,
    residue: Float[Array, " n"],
    waiting: Float[Array, " n"],
    stretch: Matrix,
) -> StateSet:
    r"""The states on the surface as displacements from the polynomial: $\zeta - f\,(D_xg\,\zeta) / \dot g$.

    **Arguments:** `slope`: $(D_xg, \dot g)$ over the ball `on_surface`. `residue`, `waiting`, `stretch`: as in `crossed`.
    """
    n, frame = field.dimension, states.frame
    rate = evaluate(field.field, on_surface, field.leaves)
    direction = functions.divide(rate, slope[-1:])
    gradient = slope[:-1]
    row = jnp.outer(direction.center, gradient.center)
    matrix = ball(jnp.eye(n) - row)
    size = jnp.abs(matrix.center)
    bent = up(size + jnp.outer(direction.largest, gradient.largest))

    def spread(along: Array, moduli: Array) -> Array:
        """The radius of the projection of vectors: by the direction's radius, the gradient's, by stretching, by rounding."""
        tilt = jnp.tensordot(direction.radius, along, 0)
        turn = jnp.tensordot(jnp.abs(direction.center), gradient.radius @ moduli, 0)
        rounding = 2.0**-50 * (jnp.abs(row) + jnp.eye(n)) @ moduli
        return up(tilt + turn + bent @ (stretch @ moduli) + rounding, 4 * n)

    offset = up(states.offset + residue + waiting)
    along = states.support(gradient) + up(gradient.largest @ (residue + waiting), n)
    local = spread(along, offset) + up(bent @ (residue + waiting), n) + residue
    tangents = states.tangents
    pushed, more = bounded_product(gradient.center, states.variation)
    turned, rounding = bounded_product(gradient.center, frame.matrix)
    error = (jnp.abs(turned) + rounding) @ states.variation_error
    reached = up(jnp.abs(pushed) + more + error + gradient.radius @ tangents.largest, 4 * n)
    return displaced(states, states.model, matrix, up(local), frame, spread(reached, tangents.largest))


def mapped(field: ModeField, states: StateSet, around: TaylorModel, function: Graph, jacobian: Graph) -> StateSet:
    r"""The image of the states on a surface under a smooth map $R$: a reset, or the coordinates of a section.

    $R(y + \zeta) = R(y) + D_xR\,\zeta$ with the Jacobian over the ball `around`, which holds all of the set. The result is in the
    frame of its coordinates.
    """
    matrix = evaluate(jacobian, around, field.leaves)
    image = evaluate(function, states.model, field.leaves)
    return displaced(states, image, matrix, jnp.zeros(image.shape), identity_frame(image.shape[0]))
