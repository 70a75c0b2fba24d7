r"""One step of a rigorous integration: where all states of a set are after a time, and between. A set is a polynomial, a
zonotope of disturbances, and a box of errors in a moving frame.

For $x = p(s) + \zeta$: $\varphi_h(x) = \varphi_h(p(s)) + \Phi\,\zeta$, with the Taylor series in time of the polynomial, and
$\Phi$ the derivative of the flow, enclosed over the hull of the set, from the series of the variational equation. The remainders
of both series are their coefficients of the next order over a box that holds all states for the time of the step, by Picard's
theorem. A disturbance adds $\int_0^h \Psi(h, \tau) E w(\tau)\,d\tau$ with $\Psi = I + (h - \tau)A + \dots$: its support in the
direction $l$ is at most $h\sqrt{|E^T(I + \tfrac h2 A)^T l|^2 + \tfrac{h^2}{12}|E^T A^T l|^2}$, by Jensen's inequality, plus a
radius for what is left out.

Source: Lohner (1992), *Computation of guaranteed enclosures for the solutions of ordinary initial and boundary value problems*;
Wilczak, Zgliczyński (2011), *C^r-Lohner algorithm*, Schedae Informaticae 20.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._system.types import Matrix
from .interpret import evaluate
from .mode_field import ModeField
from .rounding import EPS, TINY, up
from .taylor import flow_coefficients
from .taylor_model import add, ball, Basis, multiply, Series, TaylorModel

_ROUNDED = 2.0**-49


class Frame(eqx.Module):
    """A matrix of floats, and its inverse with the radius of the inverse's entries."""

    matrix: Matrix
    inverse: Matrix
    inverse_radius: Matrix


class StateSet(eqx.Module):
    r"""The states $p(s) + \sum_g G_g u_g + F e$ with $s \in [-1, 1]^m$, $\|u_g\|_2 \le 1$, $|e| \le \epsilon$.

    **Attributes:** `polynomial`: the coefficients of $p$, shape `(N, n)`, exact floats. `generators`: $G_g$, shape
    `(groups, n, vectors)`. `error`: $\epsilon$, shape `(n,)`, in the coordinates of the frame $F$. `variation`: the midpoint of
    the states' derivative by $s$, shape `(n, m)`; `variation_error`: the radius of its error in the coordinates of the frame.
    `frame`: $F$. `basis`: the monomials of $p$, static.
    """

    polynomial: Float[Array, "N n"]
    generators: Float[Array, "groups n vectors"]
    error: Float[Array, " n"]
    variation: Matrix
    variation_error: Matrix
    frame: Frame
    basis: Basis = eqx.field(static=True)

    @property
    def model(self) -> TaylorModel:
        """The polynomial as a Taylor model of radius zero."""
        return TaylorModel(self.polynomial, jnp.zeros(self.polynomial.shape[1]), self.basis)

    @property
    def offset(self) -> Float[Array, " n"]:
        """A bound of the entries of the states' distance from the polynomial."""
        norms = jnp.sqrt(jnp.sum(self.generators**2, axis=2)) * (1 + _ROUNDED)
        parts = jnp.sum(norms, axis=0) + jnp.abs(self.frame.matrix) @ self.error
        return up(parts, self.generators.shape[0] + 8) + TINY

    def support(self, row: TaylorModel) -> Float[Array, ""]:
        """A bound of the product of a row, a ball of shape `(n,)`, with the distance of a state from the polynomial."""
        along = jnp.einsum("i,gij->gj", row.center, self.generators)
        norms = jnp.sum(jnp.sqrt(jnp.sum(along**2, axis=1))) * (1 + _ROUNDED)
        size = jnp.sum(jnp.abs(row.center) * jnp.sum(jnp.abs(self.generators), axis=(0, 2)))
        turned, more = bounded_product(row.center, self.frame.matrix)
        parts = norms + EPS * 16 * size + (jnp.abs(turned) + more) @ self.error + row.radius @ self.offset
        return up(parts, self.generators.shape[0] + 16) + TINY

    @property
    def hull(self) -> TaylorModel:
        """The ball that holds all states."""
        return ball(self.polynomial[0], up(self.model.spread + self.offset))

    @property
    def tangents(self) -> TaylorModel:
        """The ball that holds the derivatives of the states by $s$."""
        return ball(self.variation, up(jnp.abs(self.frame.matrix) @ self.variation_error, 8))


def identity_frame(n: int) -> Frame:
    """The frame of the coordinates themselves."""
    return Frame(jnp.eye(n), jnp.eye(n), jnp.zeros((n, n)))


def frame_of(matrix: np.ndarray) -> Frame:
    r"""A frame with a proved inverse, from $\|I - R F\|_\infty \le \delta < 1$: $|F^{-1} - R| \le \frac{\delta}{1 -
    \delta}\max|R|$ by columns. `ValueError` for a matrix that is singular to rounding."""
    n = len(matrix)
    inverse = np.linalg.inv(matrix)
    size = np.abs(inverse) @ np.abs(matrix)
    defect = (np.abs(np.eye(n) - inverse @ matrix) + EPS * (n + 2) * (size + 1)).sum(axis=1).max() * (1 + 1e-12)
    if not defect < 0.5:
        raise ValueError(f"A frame of the enclosure is singular to rounding: defect {defect}.")
    radius = defect / (1 - defect) * np.abs(inverse).max(axis=0) * (1 + 1e-12)
    return Frame(jnp.asarray(matrix), jnp.asarray(inverse), jnp.asarray(np.tile(radius, (n, 1))))


def bounded_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The product of matrices of floats, and a bound of its rounding, entry by entry."""
    product = a @ b
    return product, up((jnp.abs(a) @ jnp.abs(b)) * (EPS * (a.shape[-1] + 2)) + TINY, a.shape[-1])


# How often the box of Picard's theorem is enlarged before it is tested.
ENLARGED = 3


def columns_of(x: TaylorModel, tangents: TaylorModel) -> TaylorModel:
    """The ball of the variational state, shape `(n, 1 + n)`."""
    center = jnp.concatenate([x.center[:, None], tangents.center], axis=1)
    return ball(center, jnp.concatenate([x.radius[:, None], tangents.radius], axis=1))


def picard_box(
    field: ModeField, start: TaylorModel, h: Float[Array, ""], disturbance_bound: Float[Array, " n"]
) -> tuple[TaylorModel, TaylorModel, Bool[Array, ""]]:
    r"""The image $X + [0, h](f(B) + W)$ of a box $B$, which holds every state from $X$ for a time up to $h$ if it is within $B$.

    **Arguments:** `start`: the ball $X$. `h`: the longest time. `disturbance_bound`: the bound of the disturbance of each rate.
    **Returns:** the image, the box $B$, and whether the image is within.
    """

    def next_box(inside: TaylorModel) -> TaylorModel:
        rate = evaluate(field.field, inside, field.leaves)
        half = 0.5 * h
        reach = jnp.abs(half) * (jnp.abs(rate.center) + 2 * (rate.radius + disturbance_bound))
        center = start.center + half * rate.center
        return ball(center, up(start.radius + reach + EPS * (jnp.abs(center) + reach), 2) + TINY)

    def wider(box: TaylorModel) -> TaylorModel:
        return ball(box.center, 1.1 * box.radius + 2.0**-44 * jnp.abs(box.center) + 1e-30)

    def improved(_, found):
        box, *_ = found
        image = next_box(box)
        # With a margin for another copy of the box, in which the rate is evaluated.
        distance = jnp.abs(image.center - box.center) + image.radius
        inside = distance <= box.radius * (1 - 2.0**-30) - 2.0**-48 * jnp.abs(box.center)
        return wider(image), box, image, jnp.all(inside)

    _, box, image, inside = jax.lax.fori_loop(0, ENLARGED + 1, improved, (start, start, start, jnp.asarray(False)))
    return image, box, inside


def nested(series: Series, time: TaylorModel) -> TaylorModel:
    """The sum of the series at a time that is a Taylor model, by Horner's rule."""

    def outward(result, coefficient):
        coefficients, radius = coefficient
        return add(multiply(result, time), TaylorModel(coefficients, radius, series.basis)), None

    return jax.lax.scan(outward, series[-1], (series.coefficients[:-1], series.radius[:-1]), reverse=True)[0]


def remainder(series: Series, h: Float[Array, ""]) -> Array:
    """The modulus of the last coefficient's contribution at a time up to `h`."""
    order = series.radius.shape[0] - 1
    return up(series[-1].largest * jnp.abs(h) ** order, order + 2) + TINY


def disturbance_displacement(
    flow: "EnclosedFlow", disturbance: Float[Array, "groups n columns"], h: Float[Array, ""]
) -> tuple[Float[Array, "groups n columns"], Float[Array, " n"]]:
    r"""The displacement by the disturbance within a step: generators and a radius, for the Jacobian $A$ at its start.

    $\Psi(h, \tau) - I - (h - \tau)A = \int_\tau^h (A(\sigma) - A) + A(\sigma)(\Psi(\sigma, \tau) - I)\,d\sigma$, in modulus at
    most $(h - \tau)\,|\Delta A| + \tfrac12 (h - \tau)^2 |A|^2 (I + \gamma)$ with the step's growth, $|\Psi - I| \le \gamma$ by
    entries.
    """
    # The first coefficient of V from V = I.
    slope = flow.derivative.coefficients[1, 0, :, 1:]
    middle, error = bounded_product(slope, disturbance)
    generators = jnp.concatenate(
        [h * (disturbance + 0.5 * h * middle), h * h / jnp.sqrt(12.0) * (1 + 1e-15) * middle], axis=2
    )
    size = jnp.sum(jnp.abs(disturbance), axis=(0, 2))
    largest = flow.slope.largest
    change = up(jnp.abs(flow.slope.center - slope) + flow.slope.radius + EPS * largest, 2)
    squared = largest @ largest @ (jnp.eye(len(slope)) + flow.growth)
    radius = 0.5 * h * h * (change @ size) + h**3 / 6 * (squared @ size)
    rounding = EPS * 8 * jnp.sum(jnp.abs(generators), axis=(0, 2)) + h * h * jnp.sum(error, axis=(0, 2))
    return generators, up(radius + rounding, 4 * len(slope)) + TINY


def moved_error(
    matrix: Matrix, radius: Matrix, error: Float[Array, " n *k"], frame: Frame, after: Frame,
    local: Float[Array, " m *k"],
) -> Float[Array, " m *k"]:  # fmt: skip
    r"""The error in the coordinates of the next frame, $|F_1^{-1} \Phi F_0|\,\epsilon + |F_1^{-1}|\,\delta$.

    **Arguments:** `matrix`, `radius`: the ball $\Phi$. `local`: $\delta$, the errors made on the way.
    """
    turned, rounding = bounded_product(matrix, frame.matrix)
    rounding = rounding + up(radius @ jnp.abs(frame.matrix), 8)
    combined, more = bounded_product(after.inverse, turned)
    size = jnp.abs(after.inverse) + after.inverse_radius
    spread = more + size @ rounding + after.inverse_radius @ jnp.abs(turned)
    return up((jnp.abs(combined) + spread) @ error + size @ local, 4 * matrix.shape[0]) + TINY


def displaced(
    states: StateSet,
    moved: TaylorModel,
    matrix: TaylorModel,
    local: Float[Array, " n"],
    after: Frame,
    varied: Float[Array, "n m"] | float = 0.0,
) -> StateSet:
    r"""The set of $q(s) + \Phi\zeta + \delta$, from the set of $p(s) + \zeta$.

    **Arguments:** `moved`: $q$. `matrix`: the ball $\Phi$. `local`: the radius of further errors, $|\delta|$; `varied`: of those
    of the derivatives. `after`: the frame of the result.
    """
    pushed, rounding = bounded_product(matrix.center, states.generators)
    frame = states.frame
    local = local + moved.radius + jnp.sum(rounding, axis=(0, 2)) + up(matrix.radius @ states.offset, 8)
    variation, more = bounded_product(matrix.center, states.variation)
    turned = up(jnp.abs(frame.matrix) @ states.variation_error, 8)
    varied = varied + more + up(matrix.radius @ (jnp.abs(states.variation) + turned), 8)
    return StateSet(
        moved.coefficients,
        pushed,
        moved_error(matrix.center, matrix.radius, states.error, frame, after, up(local, 8)),
        variation,
        moved_error(matrix.center, matrix.radius, states.variation_error, frame, after, up(varied, 4)),
        after,
        moved.basis,
    )


def widened(a: TaylorModel, radius: Array) -> TaylorModel:
    """The Taylor model with a radius that is larger by the given one."""
    return TaylorModel(a.coefficients, up(a.radius + radius), a.basis)


class EnclosedFlow(eqx.Module):
    """The flow of a set of states for any time up to some longest one.

    **Attributes:** `box`: the ball that holds all states all the time; `proved`: whether it is proved that it does. `rate`,
    `slope`: the balls of the vector field and of its Jacobian there. `series`: the coefficients in time of the set's polynomial.
    `derivative`: of states and derivatives $V$ from the set's hull, balls of shape `(n, 1 + n)`. `left_out`: by both, at the
    longest time, shape `(n, 1 + n)`. `growth`: the bound of $|V - I|$.
    """

    box: TaylorModel
    proved: Bool[Array, ""]
    rate: TaylorModel
    slope: TaylorModel
    series: Series
    derivative: Series
    left_out: Float[Array, "n columns"]
    growth: Float[Array, ""]


def flow_of(
    field: ModeField, states: StateSet, longest: Float[Array, ""], disturbance_bound: Float[Array, " n"], orders: int
) -> EnclosedFlow:
    r"""The flow of a set for a time up to `longest`. `disturbance_bound`: of each rate.

    The derivative starts at the hull with $V = I$; its remainder is over the box with all $V$ of the step, $|V - I| \le
    e^{h\|A\|} - 1$.
    """
    hull, n = states.hull, field.dimension
    box, wider, proved = picard_box(field, hull, longest, disturbance_bound)
    columns = evaluate(field.variational, columns_of(wider, ball(jnp.eye(n))), field.leaves)
    slope = columns[:, 1:]
    growth = growth_bound(jnp.max(jnp.sum(slope.largest, axis=1)) * longest)
    starts = columns_of(hull, ball(jnp.eye(n))), columns_of(box, ball(jnp.eye(n), jnp.full((n, n), growth)))
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), *starts)
    series = jax.vmap(lambda start: flow_coefficients(field.variational, start, field.leaves, orders + 1))(both)
    from_hull, from_box = (jax.tree.map(lambda a, i=i: a[i], series) for i in (0, 1))
    states_series = flow_coefficients(field.field, states.model, field.leaves, orders)
    return EnclosedFlow(
        box,
        proved,
        columns[:, 0],
        slope,
        states_series,
        from_hull.first(orders + 1),
        remainder(from_box, longest),
        growth,
    )


def growth_bound(norm: Float[Array, ""]) -> Float[Array, ""]:
    r"""A bound of $e^a - 1 \le a / (1 - a / 2)$ for $a < 1$, else infinite."""
    return jnp.where(norm < 1, up(norm / (1 - 0.5 * norm), 3), jnp.inf)


def advance(
    flow: EnclosedFlow,
    states: StateSet,
    h: TaylorModel,
    after: Frame,
    disturbance: Float[Array, "groups n columns"],
    index: int | Int[Array, ""] = 0,
) -> StateSet:
    """The states after the time `h(s)`.

    **Arguments:** `flow`: of the states, for times up to `h.high`. `h`: a positive time, which may depend on $s$. `after`: the
    frame of the result. `disturbance`: the columns $E_g$; its generators are stored from the group `index` on, or are those of
    a set that has none.
    """
    matrix = widened(nested(flow.derivative, h.ball())[:, 1:], flow.left_out[:, 1:])
    moved, local = nested(flow.series, h), flow.left_out[:, 0]
    if not disturbance.shape[0]:
        return displaced(states, moved, matrix, local, after)
    # The displacements within a shorter time are among those within the longest.
    generators, radius = disturbance_displacement(flow, disturbance, h.high)
    result = displaced(states, moved, matrix, local + radius, after)
    if states.generators.shape[0]:
        generators = jax.lax.dynamic_update_slice(result.generators, generators, (index, 0, 0))
    return eqx.tree_at(lambda each: each.generators, result, generators)
