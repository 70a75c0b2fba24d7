r"""Taylor models: polynomials with a radius that bounds all that the polynomial leaves out.

A Taylor model of a function $u$ of $s \in [-1, 1]^m$ is a polynomial with floating-point coefficients and a radius,

$$\Big|u(s) - \sum_{|\alpha| \le d} c_\alpha s^\alpha\Big| \le r \quad\text{for all } s \in [-1, 1]^m .$$

With $m = 0$ it is a ball, a midpoint and a radius. Sums, products and functions of Taylor models bound what they truncate and
every rounding, by the norm $\sum|c_\alpha|$, which is submultiplicative. The bounds hold for any order of summation, with or
without fused multiply-adds, and with subnormal numbers flushed to zero or not; see `rounding`.

Source: Makino, Berz (2003), *Taylor models and other validated functional inclusion methods*, Int. J. Pure Appl. Math. 4; Rump
(1999), *Fast and parallel interval arithmetic*, BIT 39, for midpoint and radius.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .basis import BALL, Basis
from .rounding import EPS, TINY, UNIT, up


class TaylorModel(eqx.Module):
    r"""A polynomial and a radius, $|u(s) - \sum_\alpha c_\alpha s^\alpha| \le r$ for $s \in [-1, 1]^m$.

    **Attributes:** `coefficients`: shape `(N, *shape)`, in the order of `basis`. `radius`: shape `shape`, not negative; infinite
    or NaN where nothing is known. `basis`: the monomials, static.
    """

    coefficients: Float[Array, "N *shape"]
    radius: Float[Array, "*shape"]
    basis: Basis = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the function's values."""
        return self.radius.shape

    @property
    def center(self) -> Float[Array, "*shape"]:
        """The constant coefficient, the value of the polynomial at $s = 0$."""
        return self.coefficients[0]

    @property
    def spread(self) -> Float[Array, "*shape"]:
        """A bound of the distance of the values from `center`."""
        return up(jnp.sum(jnp.abs(self.coefficients[1:]), axis=0) + self.radius, self.basis.size)

    @property
    def largest(self) -> Float[Array, "*shape"]:
        """A bound of the values' modulus."""
        return up(jnp.abs(self.center) + self.spread)

    @property
    def low(self) -> Float[Array, "*shape"]:
        """A lower bound of the values."""
        return self.center - self.spread - EPS * (jnp.abs(self.center) + self.spread) - TINY

    @property
    def high(self) -> Float[Array, "*shape"]:
        """An upper bound of the values."""
        return self.center + self.spread + EPS * (jnp.abs(self.center) + self.spread) + TINY

    def ball(self) -> "TaylorModel":
        """The ball that holds the values for all $s$."""
        return ball(self.center, self.spread)

    def map(self, function: Callable[[Array], Array]) -> "TaylorModel":
        """Rearranged entries: `function` selects, repeats or moves entries of an array, which rounds nothing."""
        each = [function(self.coefficients[i]) for i in range(self.basis.size)]
        return TaylorModel(jnp.stack(each), function(self.radius), self.basis)

    def joined(self, other: "TaylorModel") -> "TaylorModel":
        """The entries of both, along the first axis."""
        a, b = common(self, other)
        coefficients = jnp.concatenate([a.coefficients, b.coefficients], axis=1)
        return TaylorModel(coefficients, jnp.concatenate([a.radius, b.radius]), a.basis)

    def __getitem__(self, index) -> "TaylorModel":
        return self.map(lambda entries: entries[index])


def ball(midpoint: Array, radius: Array | float = 0.0) -> TaylorModel:
    """All numbers within `radius` of `midpoint`."""
    midpoint = jnp.asarray(midpoint, float)
    return TaylorModel(midpoint[None], jnp.broadcast_to(jnp.asarray(radius, float), midpoint.shape), BALL)


def constant(value: Array, basis: Basis, radius: Array | float = 0.0) -> TaylorModel:
    """The Taylor model of a constant."""
    value = jnp.asarray(value, float)
    coefficients = jnp.zeros((basis.size, *value.shape)).at[0].set(value)
    return TaylorModel(coefficients, jnp.broadcast_to(jnp.asarray(radius, float), value.shape), basis)


def embed(a: TaylorModel, basis: Basis) -> TaylorModel:
    """The same function as a Taylor model in another basis: a ball becomes a constant with a radius."""
    if a.basis is basis:
        return a
    if a.basis is not BALL:
        raise ValueError("A Taylor model can be embedded in another basis only if it is a ball.")
    return constant(a.center, basis, a.radius)


def common(a: TaylorModel, b: TaylorModel) -> tuple[TaylorModel, TaylorModel]:
    """Both in the basis of the one that is not a ball."""
    basis = b.basis if a.basis is BALL else a.basis
    return embed(a, basis), embed(b, basis)


def add(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """The sum; shapes are broadcast."""
    a, b = common(a, b)
    rank = max(a.radius.ndim, b.radius.ndim)
    total = _of_rank(a, rank) + _of_rank(b, rank)
    rounding = jnp.sum(jnp.abs(total), axis=0) * EPS
    return TaylorModel(total, up(a.radius + b.radius + rounding + TINY, a.basis.size), a.basis)


def _of_rank(a: TaylorModel, rank: int) -> Array:
    """The coefficients with axes of length one after that of the monomials, so that shapes of different rank are broadcast."""
    return a.coefficients.reshape((a.basis.size,) + (1,) * (rank - a.radius.ndim) + a.radius.shape)


def negative(a: TaylorModel) -> TaylorModel:
    """$-u$."""
    return TaylorModel(-a.coefficients, a.radius, a.basis)


def subtract(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """The difference; shapes are broadcast."""
    return add(a, negative(b))


def scale(a: TaylorModel, factor: Array | float) -> TaylorModel:
    """The product with numbers, exact floats, broadcast over the shape."""
    product = a.coefficients * factor
    size = jnp.abs(factor)
    rounding = jnp.sum(jnp.abs(product), axis=0) * EPS
    return TaylorModel(product, up(a.radius * size + rounding + TINY * (1 + size), a.basis.size), a.basis)


def truncation(degree: int) -> np.ndarray:
    """Which products of grades the polynomial leaves out: degrees beyond `degree`, and all with a radius."""
    d = np.arange(degree + 2)
    left_out = d[:, None] + d[None, :] > degree
    return left_out.astype(float)


def multiply(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """The product; shapes are broadcast."""
    a, b = common(a, b)
    return convolve(_alone(a), _alone(b), 0)


def _alone(a: TaylorModel) -> "Series":
    return Series(a.coefficients[None], a.radius[None], a.basis)


class Series(eqx.Module):
    r"""Taylor coefficients in time, $u(t, s) = \sum_n u_n(s) t^n$, each a Taylor model in $s$.

    **Attributes:** `coefficients`: shape `(orders, N, *shape)`. `radius`: shape `(orders, *shape)`. `basis`: static.
    """

    coefficients: Float[Array, "orders N *shape"]
    radius: Float[Array, "orders *shape"]
    basis: Basis = eqx.field(static=True)

    def __getitem__(self, n) -> TaylorModel:
        return TaylorModel(self.coefficients[n], self.radius[n], self.basis)

    def first(self, orders: int) -> "Series":
        """The coefficients of orders below `orders`."""
        return Series(self.coefficients[:orders], self.radius[:orders], self.basis)

    def put(self, n, a: TaylorModel) -> "Series":
        """The series with its coefficient of order `n` replaced."""
        a = embed(a, self.basis)
        return Series(self.coefficients.at[n].set(a.coefficients), self.radius.at[n].set(a.radius), self.basis)


def zeros(orders: int, a: TaylorModel) -> Series:
    """A series of zeros, of the shape and basis of `a`."""
    return Series(jnp.zeros((orders, *a.coefficients.shape)), jnp.zeros((orders, *a.radius.shape)), a.basis)


def _reversed(entries: Array, n) -> Array:
    """`entries[n - j]` at index `j`, zero where there is none."""
    orders = entries.shape[0]
    at = n - jnp.arange(orders)
    known = (at >= 0).reshape((orders,) + (1,) * (entries.ndim - 1))
    return jnp.where(known, entries[jnp.clip(at, 0)], 0)


def convolve(a: Series, b: Series, n) -> TaylorModel:
    r"""The coefficient of order `n` of a product, $\sum_{j=0}^n a_j b_{n-j}$. Orders beyond those known are zero."""
    basis = a.basis
    later = b if isinstance(n, int) and n == 0 else Series(_reversed(b.coefficients, n), _reversed(b.radius, n), basis)
    rank = max(a.radius.ndim, b.radius.ndim) - 1
    left, right = _aligned(a, rank), _aligned(later, rank)
    padded = jnp.concatenate([right.coefficients, jnp.zeros_like(right.coefficients[:, :1])], axis=1)
    # [order, k, i, *shape]: the sum over orders and factors is one reduction.
    terms = left.coefficients[:, None] * padded[:, basis.factor]
    product = jnp.sum(terms, axis=(0, 2))
    p, q = _grades_of(left), _grades_of(right)
    out = truncation(basis.degree)
    # Terms of the polynomial: each of `count` products and sums rounds by a half ulp of the sum of moduli.
    count = basis.products * (jnp.asarray(n, left.radius.dtype) + 1) + 2
    kept = np.ones_like(out)
    kept[-1], kept[:, -1] = 0, 0
    pairs = p[:, :, None] * q[:, None, :]
    weights = (jnp.asarray(out) + jnp.asarray(kept) * (UNIT * count)).reshape((1, *out.shape) + (1,) * rank)
    radius = jnp.sum(pairs * weights, axis=(0, 1, 2))
    tiny = TINY * (1 + jnp.sum(p, axis=(0, 1)) + jnp.sum(q, axis=(0, 1)))
    return TaylorModel(product, up(radius + tiny, a.basis.degree + 4), basis)


def _aligned(a: Series, rank: int) -> Series:
    """With leading axes of length one, so that shapes of different rank are broadcast."""
    shape = a.radius.shape[1:]
    new = (1,) * (rank - len(shape)) + shape
    return Series(
        a.coefficients.reshape(a.coefficients.shape[:2] + new), a.radius.reshape(a.radius.shape[:1] + new), a.basis
    )


def _grades_of(a: Series) -> Array:
    """The norms of the homogeneous parts of each order, degree by degree, and the radius last."""
    size, degrees = jnp.abs(a.coefficients), a.basis.degrees
    parts = [jnp.sum(size[:, degrees == d], axis=1) for d in range(a.basis.degree + 1)]
    return jnp.stack([*parts, a.radius], axis=1)


def total(a: TaylorModel, axes: tuple[int, ...]) -> TaylorModel:
    """The sum of entries along axes of the shape."""
    count = int(np.prod([a.shape[i] for i in axes]))
    summed = jnp.sum(a.coefficients, axis=tuple(i + 1 for i in axes))
    moduli = jnp.sum(jnp.abs(a.coefficients), axis=(0, *(i + 1 for i in axes)))
    radius = jnp.sum(a.radius, axis=axes)
    return TaylorModel(summed, up(radius + moduli * UNIT * (count + 2) + TINY, a.basis.size * count), a.basis)
