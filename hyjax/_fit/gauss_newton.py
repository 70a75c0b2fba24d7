r"""The linear least squares of an iteration of a fit, which grow with the length of a record as the record does.

Of a record with links $k = 0 \ldots m$ the unknowns are the parameters $\theta$, the numbers of the start $s = u_0$, and the free
states $u_1 \ldots u_m$ where links begin. The residuals of a link depend on $\theta$ and its own $u_k$ alone, and so does its end
$e_k$, which the gap $c_k = e_k(\theta, u_k) - u_{k+1}$ compares with the next state:

$$\min_{\delta}\ \sum_k |r_k + \partial_\theta r_k\,\delta\theta + \partial_u r_k\,\delta u_k|^2
+ w^2 |c_k + \partial_\theta e_k\,\delta\theta + \partial_u e_k\,\delta u_k - \delta u_{k+1}|^2.$$

From the last link to the first, orthogonal transformations of the rows that contain $u_{k+1}$ leave rows without it, as many as
$u_k$ and $\theta$ have numbers: the information of all later data on these. What remains are rows in $\theta$ and $s$. With a
large weight $w$ the gaps are closed, and the remaining rows are those of the fit itself.

In a valley that bends, as of two parameters whose errors are strongly correlated, a step $v$ along its tangent is short. With the
second derivatives $r_{vv}$ along it the residuals are $r + Jv + \tfrac12 r_{vv}$, and least, to second order, after the step
$v + a$, of which $a$ is the solution for $\tfrac12 r_{vv}$ in place of $r$. The Jacobians at the ends of the last step $d$ know
$r_{dw} \approx \Delta J\,w$; with $v = \alpha d + w$, $\alpha$ by projection in the scales of the damping, and without $r_{ww}$,
which they do not know, $r_{vv}$ is $\alpha\,\Delta J (2 v - \alpha d)$: no further evaluation.

Not `optimistix.LevenbergMarquardt`, which has no bounds, no bend and no elimination: it takes 33 steps and 11.9 ms for Misra's
data of the NIST, for which 15 and 1.9 ms are taken here, and 6 steps and 8.3 ms for the impacts of a ball, here 5 and 2.1 ms.

Source: Paige, Saunders (1977), *Least squares estimation of discrete linear dynamic systems using orthogonal transformations*,
SIAM J. Numer. Anal. 14, 180-193; Transtrum, Sethna (2012), *Improvements to the Levenberg-Marquardt algorithm for nonlinear
least-squares minimization*, arXiv:1201.5885 (there $r_{vv}$ is by differences, of one more evaluation each).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._system.types import Scalar


class ResidualRows(NamedTuple):
    """Linear functions of the unknowns. In the last axis are derivatives by the numbers of the start, by the state where a link
    begins, and by the parameters, and the value. **Attributes:** `links`: the residuals; `gaps`: between links, without their
    derivative by the next state, which is -1; `closing`: of a closed orbit; `others`: of the prior, by the parameters alone."""

    links: Float[Array, "records links rows columns"]
    gaps: Float[Array, "records nodes coordinates columns"]
    closing: Float[Array, "records n columns"]
    others: Float[Array, "others columns"]

    @property
    def numbers(self) -> tuple[int, int, int]:
        """The sizes of a start, of a free state and of the parameters."""
        (*_, size, columns), n = self.gaps.shape, self.others.shape[1] - 1
        return columns - 1 - n - size, size, n

    def weighted(self, weight: Scalar, dual: Float[Array, " gaps"]) -> "ResidualRows":
        """The gaps times their weight, plus the dual over it."""
        per_record = jnp.reshape(dual / weight, (len(self.links), -1))
        split = np.prod(self.gaps.shape[1:3])
        moved = lambda rows, by: (weight * rows).at[..., -1].add(jnp.reshape(by, rows.shape[:-1]))
        return self._replace(
            gaps=moved(self.gaps, per_record[:, :split]), closing=moved(self.closing, per_record[:, split:])
        )

    def along(self, change: "Free") -> "ResidualRows":
        """The rows' derivatives along a change, in place of their values; gaps without that by the next state."""
        (records, many), count = self.links.shape[:2], change.nodes.shape[1]
        of_link = lambda each: jnp.broadcast_to(each, (records, many, each.shape[-1]))
        nodes = jnp.pad(change.nodes, ((0, 0), (1, many - 1 - count), (0, 0)))
        by = jnp.concatenate([of_link(change.start[:, None]), nodes, of_link(change.theta)], axis=-1)[..., None]
        ends = self.links, self.gaps, self.closing[:, None]
        links, gaps, closing = (
            (each[..., :-1] @ own)[..., 0] for each, own in zip(ends, (by, by[:, :count], by[:, :1]), strict=True)
        )
        return ResidualRows(links, gaps, closing[:, 0], self.others[:, :-1] @ change.theta)


class Free(NamedTuple):
    """The unknowns, each of the order of 1, a change of them, or a number for each: `theta` of the parameters; `start`, shape
    `(records, numbers)`; `nodes`: time and state where links begin, shape `(records, links - 1, 1 + size)`, or no links."""

    theta: Float[Array, " n"]
    start: Float[Array, "records numbers"]
    nodes: Float[Array, "records nodes coordinates"]

    @property
    def first(self) -> Float[Array, " numbers"]:
        """The numbers of the parameters, then those of the starts."""
        return jnp.append(self.theta, self.start)


def sizes_of(rows: ResidualRows, weight: Scalar) -> Free:
    """The norms of the columns of all unknowns, none far below the largest. **Arguments:** `rows`: weighted."""
    s, size, n = rows.numbers
    square = lambda each, axes: jnp.sum(each**2, axis=axes)
    theta = jnp.sum(jnp.stack([square(each[..., -1 - n : -1], tuple(range(each.ndim - 1))) for each in rows]), axis=0)
    start = square(rows.links[..., :s], (1, 2)) + square(rows.gaps[..., :s], (1, 2)) + square(rows.closing[..., :s], 1)
    own = lambda each: square(each[:, 1:, :, s : s + size], 2)
    nodes = own(rows.links[:, : rows.gaps.shape[1] + 1]).at[:, :-1].add(own(rows.gaps)) + weight**2
    found = Free(*map(jnp.sqrt, (theta, start, nodes)))
    least = jnp.finfo(theta.dtype).eps * jnp.max(jnp.append(found.first, found.nodes))
    return Free(*(jnp.maximum(each, least) for each in found))


class Reduced(NamedTuple):
    """The rows that are left when the free states are eliminated. **Attributes:** `matrix`, `values`: in the parameters and all
    starts; `closing`, `gaps`: those of a closed orbit; `solved`: for each free state its triangular matrix, and what
    it is a function of: the unknowns of the link before, the parameters, and a value."""

    matrix: Float[Array, "rows unknowns"]
    values: Float[Array, " rows"]
    closing: Float[Array, "n unknowns"]
    gaps: Float[Array, " n"]
    solved: Float[Array, "records nodes coordinates columns"]


def without_free_states(
    rows: ResidualRows, weight: Scalar, damping: Float[Array, "records nodes coordinates"]
) -> Reduced:
    """The elimination of the free states. **Arguments:** `rows`: weighted by `weight`. `damping`: further rows, diagonal."""
    (s, size, n), records, columns = rows.numbers, len(rows.links), rows.links.shape[-1]

    def one(links, gaps, damping):
        def eliminate(later, each):
            of_link, of_gap, damping = each
            every = jnp.concatenate([later, of_link])
            blank = jnp.zeros((len(every), s + size), every.dtype)
            matrix = jnp.concatenate([
                jnp.column_stack([-weight * jnp.eye(size, dtype=every.dtype), of_gap]),
                jnp.column_stack([every[:, s : s + size], blank, every[:, s + size :]]),
                jnp.column_stack([jnp.diag(damping), jnp.zeros((size, columns), every.dtype)]),
            ])  # fmt: skip
            upper = jnp.linalg.qr(matrix, mode="r")
            return upper[size:, size:], upper[:size]

        nothing = jnp.zeros((columns, columns), links.dtype)
        later, solved = jax.lax.scan(eliminate, nothing, (links[1:], gaps, damping), reverse=True)
        return jnp.concatenate([later, links[0]]), solved

    left, solved = (
        jnp.reshape(rows.links, (records, -1, columns)),
        jnp.zeros((records, 0, size, size + columns), rows.links.dtype),
    )
    if rows.gaps.shape[1]:
        left, solved = jax.vmap(one)(rows.links, rows.gaps, damping)

    def spread(rows):
        """By the parameters, and by the starts of all records."""
        own = rows[..., None, :s] * jnp.eye(records, dtype=rows.dtype)[:, None, :, None]
        flat = jnp.reshape(rows, (-1, columns))
        return jnp.column_stack([flat[:, -1 - n : -1], jnp.reshape(own, (len(flat), records * s))]), flat[:, -1]

    matrix, values = spread(left)
    others = jnp.pad(rows.others[:, :-1], ((0, 0), (0, records * s)))
    return Reduced(
        jnp.concatenate([matrix, others]), jnp.append(values, rows.others[:, -1]), *spread(rows.closing), solved
    )


def loose_rows(rows: ResidualRows, signal: Scalar, least: Scalar) -> Float[Array, "numbers numbers"]:
    """Rows that hold the directions of the parameters and starts which the data do not determine, and which the gaps of a search
    with free states would change: where the data leave the scale free, they are least if all states vanish."""
    eps = float(jnp.finfo(rows.links.dtype).eps)
    weight = signal / eps**0.375
    none = jnp.zeros(rows.gaps[..., -1].size + rows.closing[..., -1].size, weight.dtype)
    left = without_free_states(rows.weighted(weight, none), weight, 0 * rows.gaps[..., -1])
    _, sizes, right = jnp.linalg.svd(jnp.concatenate([left.matrix, left.closing]), full_matrices=True)
    determined = jnp.pad(sizes > (eps**0.5 + least) * jnp.minimum(sizes[0], signal), (0, len(right) - sizes.size))
    return jnp.where(determined[:, None], 0, signal * right)


def pull_of(left: Reduced, on_bound: Bool[Array, " numbers"]) -> Float[Array, " numbers"]:
    """The derivative of half the sum of squares by each unknown, over the size of its column, where the unknowns that are on no
    bound keep the closing conditions."""
    gradient, closing = left.values @ left.matrix, left.closing
    if len(closing):
        free = jnp.where(on_bound, 0, closing)
        gradient -= jnp.linalg.lstsq(free.T, jnp.where(on_bound, 0, gradient))[0] @ closing
    sizes = jnp.sqrt(jnp.sum(left.matrix**2, axis=0))
    return gradient / jnp.where(sizes > 0, sizes, 1)


def within_bounds(
    upper: Float[Array, "n n"], seen: Float[Array, " n"], low: Float[Array, " n"], high: Float[Array, " n"]
) -> Float[Array, " n"]:
    r"""The change $x$, with $l \le x \le h$ and $l \le 0 \le h$, that makes $|R x + s|^2$ less than at 0, and least in the
    unknowns that are between their bounds. An unknown at a bound is held there where the gradient points outward, and each that
    meets its bound on the way, one after the other. **Arguments:** `upper`: $R$, regular; `seen`: $s$.

    Source: Nocedal, Wright (2006), *Numerical Optimization*, alg. 16.3, without the exchange of constraints: the next iteration
    of a fit frees those whose gradient points inward.
    """
    gradient = seen @ upper
    held = ((low == 0) & (gradient >= 0)) | ((high == 0) & (gradient <= 0))

    def onward(now):
        x, held, _ = now
        rows = jnp.concatenate([jnp.where(held, 0, upper), jnp.diag(held.astype(x.dtype))])
        q, free = jnp.linalg.qr(rows)
        step = jax.scipy.linalg.solve_triangular(free, -(seen + upper @ x) @ q[: len(seen)])
        step = jnp.where(held, 0, step)
        room = jnp.where(step > 0, high - x, low - x)
        part = jnp.where(step == 0, jnp.inf, room / jnp.where(step == 0, 1, step))
        first = jnp.arange(x.size) == jnp.argmin(part)
        meets = first & (part < 1)
        x = jnp.where(meets, jnp.where(step > 0, high, low), x + jnp.minimum(jnp.min(part), 1) * step)
        return x, held | meets, ~jnp.any(meets)

    return jax.lax.while_loop(lambda now: ~now[2], onward, (0 * seen, held, jnp.array(False)))[0]


def with_free_states(rows: ResidualRows, after: Reduced, first: Float[Array, " numbers"]) -> Free:
    """The change of all unknowns from that of the parameters and the starts."""
    (s, size, n), records = rows.numbers, len(rows.links)
    theta, start = first[:n], jnp.reshape(first[n:], (records, s))

    def one(start, solved):
        def onward(own, row):
            known = jnp.concatenate([own, theta, jnp.ones(1, theta.dtype)])
            node = -jax.scipy.linalg.solve_triangular(row[:, :size], row[:, size:] @ known)
            return jnp.append(jnp.zeros(s, theta.dtype), node), node

        return jax.lax.scan(onward, jnp.append(start, jnp.zeros(size, theta.dtype)), solved)[1]

    return Free(theta, start, jax.vmap(one)(start, after.solved))


# The longest correction of a step for the bend of its way, relative to the step.
BENT = 0.375


def bent_change(
    rows: ResidualRows, weight: Scalar, dual: Float[Array, " gaps"], damping: Scalar, held: tuple[Array, Array],
    within: tuple[Array, Array] | None, secant: tuple[Free, ResidualRows],
) -> tuple[Free, Scalar, Scalar]:  # fmt: skip
    """The change of all unknowns by the damped linear least squares of the rows, whose gaps have this `weight` and `dual`, and by
    the bend of the rows along it, if that is a small part; the fall that the former foretells; and the fall if parameters and
    starts were not damped. **Arguments:** `held`: further rows by the parameters and starts, and their values. `within`: bounds
    of the changes of parameters and starts, if there are any. `secant`: the last step, and the change of the rows along it."""
    weighted, (last, turned) = rows.weighted(weight, dual), secant
    sizes = sizes_of(weighted, weight)
    straight, fall, whole_fall = _damped_change(weighted, sizes, weight, damping, held, within)
    inner = lambda a, b: sum(jnp.sum(x * y * size**2) for x, y, size in zip(a, b, sizes, strict=True))
    length = inner(last, last)
    part = jnp.where(length > 0, inner(straight, last) / jnp.where(length > 0, length, 1), 0)
    bend = turned.along(Free(*(2 * a - part * b for a, b in zip(straight, last, strict=True))))
    bent = ResidualRows(*(row.at[..., -1].add(part / 2 * by) for row, by in zip(rows, bend, strict=True)))
    curved, *_ = _damped_change(bent.weighted(weight, dual), sizes, weight, damping, held, within)
    more = Free(*(a - b for a, b in zip(curved, straight, strict=True)))
    small = inner(more, more) <= BENT**2 * inner(straight, straight)
    return Free(*(jnp.where(small, a, b) for a, b in zip(curved, straight, strict=True))), fall, whole_fall


def _damped_change(
    rows: ResidualRows, sizes: Free, weight: Scalar, damping: Scalar, held: tuple[Array, Array],
    within: tuple[Array, Array] | None,
) -> tuple[Free, Scalar, Scalar]:  # fmt: skip
    """The change by weighted rows, damped by the `sizes` of their columns, and both falls; see `bent_change`."""
    left = without_free_states(rows, weight, jnp.sqrt(damping) * sizes.nodes)
    a, b = jnp.concatenate([left.matrix, left.closing, held[0]]), jnp.concatenate([left.values, left.gaps, held[1]])
    q, triangle = jnp.linalg.qr(a)
    by_rows = b @ q
    q, upper = jnp.linalg.qr(jnp.concatenate([triangle, jnp.diag(jnp.sqrt(damping) * sizes.first)]))
    seen = by_rows @ q[: len(by_rows)]
    of_first = within_bounds(upper, seen, *within) if within else -jax.scipy.linalg.solve_triangular(upper, seen)
    change = with_free_states(rows, left, of_first)
    # By the sums of squares that the transformations take out of the rows.
    damped = sum(jnp.sum((a * b) ** 2) for a, b in zip(sizes, change, strict=True))
    fall = jnp.sum(seen**2) + jnp.sum(left.solved[..., -1] ** 2) + damping * damped
    return change, fall if within is None else fall - jnp.sum((upper @ of_first + seen) ** 2), jnp.sum(by_rows**2)
