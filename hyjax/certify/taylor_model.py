r"""Taylor models: polynomials with a radius that bounds all that the polynomial leaves out.

A Taylor model of a function $u$ of $s \in [-1, 1]^m$ is a polynomial with floating-point coefficients and a radius,

$$\Big|u(s) - \sum_{|\alpha| \le d} c_\alpha s^\alpha\Big| \le r \quad\text{for all } s \in [-1, 1]^m .$$

With $m = 0$ it is a ball, a midpoint and a radius. Sums, products and functions of Taylor models bound what they truncate and
every rounding, by the norm $\sum|c_\alpha|$, which is submultiplicative. The bounds hold for any order of summation, with or
without fused multiply-adds, and with subnormal numbers flushed to zero or not; see `rounding`.

Source: Makino, Berz (2003), *Taylor models and other validated functional inclusion methods*, Int. J. Pure Appl. Math. 4; Rump
(1999), *Fast and parallel interval arithmetic*, BIT 39, for midpoint and radius.
"""

import functools as ft
import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .rounding import EPS, TINY, UNIT, up

# The monomials of a Taylor model: exponents, products, degrees.


class Basis:
    r"""All monomials $s^\alpha$ of at most `degree` in `variables` variables, by degree; the first is the constant.

    **Attributes:** `exponents`: shape `(N, variables)`. `degrees`: shape `(N,)`. `left`, `right`: the pairs of monomials whose
    product is a monomial, sorted by the product, shape `(pairs,)`. `products`: the largest number of pairs with one product.
    `place`: the pairs of each product, shape `(N, products)`; the number of all pairs where there are fewer.
    """

    def __init__(self, variables: int, degree: int):
        self.variables, self.degree = variables, degree
        exponents = [
            each
            for total in range(degree + 1)
            for each in itertools.product(range(total, -1, -1), repeat=variables)
            if sum(each) == total
        ]
        self.exponents = np.array(exponents, dtype=int).reshape(len(exponents), variables)
        self.degrees = self.exponents.sum(axis=1)
        at = {each: i for i, each in enumerate(exponents)}
        self._at = at
        found = []
        for whole in exponents:
            rests = [(part, tuple(w - p for w, p in zip(whole, part, strict=True))) for part in exponents]
            found.append([(at[part], at[rest]) for part, rest in rests if rest in at])
        self.products = max(len(each) for each in found)
        pairs = [pair for each in found for pair in each]
        self.left, self.right = np.array(pairs).T
        # Sorted by the product.
        self.place = np.full((len(found), self.products), len(pairs))
        for k, each in enumerate(found):
            self.place[k, : len(each)] = sum(len(before) for before in found[:k]) + np.arange(len(each))

    @property
    def size(self) -> int:
        """The number `N` of monomials."""
        return len(self.degrees)

    def index(self, exponents: tuple[int, ...]) -> int:
        """The index of a monomial."""
        return self._at[exponents]

    def linear(self, variable: int) -> int:
        """The index of the monomial $s_j$."""
        return self._at[tuple(int(j == variable) for j in range(self.variables))]


@ft.cache
def basis(variables: int, degree: int) -> Basis:
    """The one `Basis` of these sizes: bases are compared by identity, as static parts of compiled programs."""
    return Basis(variables, degree)


# Balls: a midpoint without a polynomial part.
BALL = basis(0, 0)


class TaylorModel(eqx.Module):
    r"""A polynomial and a radius, $|u(s) - \sum_\alpha c_\alpha s^\alpha| \le r$ for $s \in [-1, 1]^m$.

    **Attributes:** `coefficients`: shape `(N, *shape)`, in the order of `basis`. `radius`: shape `shape`, not negative; infinite
    or NaN where nothing is known. `basis`: the monomials, static.
    """

    coefficients: Float[Array, " N *shape"]
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
        return TaylorModel(jax.vmap(function)(self.coefficients), function(self.radius), self.basis)

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
    total = _of_rank(a.coefficients, a, rank) + _of_rank(b.coefficients, b, rank)
    rounding = jnp.sum(jnp.abs(total), axis=0) * EPS
    return TaylorModel(total, up(a.radius + b.radius + rounding + TINY, a.basis.size), a.basis)


def _of_rank(entries: Array, a: TaylorModel, rank: int) -> Array:
    """Entries of the shape of `a` after their first axis, with axes of length one before it, so that shapes of different rank
    are broadcast."""
    return entries.reshape(entries.shape[:1] + (1,) * (rank - a.radius.ndim) + a.radius.shape)


def placed(array: Array, n, entries: Array) -> Array:
    """The array with its entries at index `n` replaced, in place within a loop."""
    return jax.lax.dynamic_update_index_in_dim(array, entries, n, 0)


def negative(a: TaylorModel) -> TaylorModel:
    """The Taylor model of $-u$."""
    return TaylorModel(-a.coefficients, a.radius, a.basis)


def subtract(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """The difference; shapes are broadcast."""
    return add(a, negative(b))


def scale(a: TaylorModel, factor: Array | float) -> TaylorModel:
    """The product with numbers, exact floats, broadcast over the shape."""
    product = a.coefficients * factor
    size = jnp.abs(factor)
    rounding = jnp.sum(jnp.abs(product), axis=0) * EPS
    # Either factor may be flushed to zero.
    flushed = TINY * (1 + size + jnp.sum(jnp.abs(a.coefficients), axis=0))
    return TaylorModel(product, up(a.radius * size + rounding + flushed, a.basis.size), a.basis)


def multiply(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """The product; shapes are broadcast."""
    a, b = common(a, b)
    rank = max(a.radius.ndim, b.radius.ndim)
    return product_of(_of_rank(left_factor(a), a, rank)[None], _of_rank(right_factor(b, 1), b, rank)[None], a.basis)


def _grades(a: TaylorModel) -> list[Array]:
    """The norms of the homogeneous parts, degree by degree, and last the radius with a bound of all entries that are flushed."""
    size, ends = jnp.abs(a.coefficients), np.searchsorted(a.basis.degrees, np.arange(a.basis.degree + 2))
    return [jnp.sum(size[i:j], axis=0) for i, j in itertools.pairwise(ends)] + [a.radius + TINY]


def left_factor(a: TaylorModel) -> Array:
    r"""The coefficients and then the grades $p_d$, shape `(N + degree + 2, *shape)`."""
    return jnp.concatenate([a.coefficients, jnp.stack(_grades(a))])


def right_factor(b: TaylorModel, orders: int) -> Array:
    r"""The coefficients and then, for each grade $d$ of the other factor, what the product with it adds to the radius,
    $\sum_e w_{de} q_e$.

    The polynomial leaves out products of degrees beyond its own, and all with a radius, whose grade is `degree + 1`: $w = 1$. The
    others round in the sum of all pairs of `orders` products, $w = $ `UNIT` times their number. Shape `(N + degree + 2, *shape)`.
    """
    q, degree = jnp.stack(_grades(b)), b.basis.degree
    d = np.arange(degree + 2)
    weights = np.where(d[:, None] + d > degree, 1.0, UNIT * (b.basis.products * orders + 2))
    weights = weights.reshape((*weights.shape, *(1,) * b.radius.ndim))
    return jnp.concatenate([b.coefficients, jnp.sum(weights * q, axis=1)])


def product_of(left: Array, right: Array, basis: Basis) -> TaylorModel:
    r"""The sum of products, $\sum_j l_j r_j$, of factors of shape `(orders, N + degree + 2, *shape)`.

    The radius is $\sum_j \sum_d p_{jd} \sum_e w_{de} q_{je}$.
    """
    n = basis.size
    radius = jnp.sum(left[:, n:] * right[:, n:], axis=(0, 1))
    if n == 1:
        product = jnp.sum(left[:, :1] * right[:, :1], axis=0)
    else:
        each = jnp.sum(left[:, basis.left] * right[:, basis.right], axis=0)
        each = jnp.concatenate([each, jnp.zeros_like(each[:1])])
        product = jnp.sum(each[basis.place], axis=1)
    terms = left.shape[0] * (basis.degree + 2) + n + basis.degree
    return TaylorModel(product, up(radius, terms // 8 + 2), basis)


class Series(eqx.Module):
    r"""Taylor coefficients in time, $u(t, s) = \sum_n u_n(s) t^n$, each a Taylor model in $s$.

    **Attributes:** `coefficients`: shape `(orders, N, *shape)`. `radius`: shape `(orders, *shape)`. `basis`: static.
    """

    coefficients: Float[Array, "orders N *shape"]
    radius: Float[Array, " orders *shape"]
    basis: Basis = eqx.field(static=True)

    def __getitem__(self, n) -> TaylorModel:
        return TaylorModel(self.coefficients[n], self.radius[n], self.basis)

    def first(self, orders: int) -> "Series":
        """The coefficients of orders below `orders`."""
        return Series(self.coefficients[:orders], self.radius[:orders], self.basis)

    def put(self, n, a: TaylorModel) -> "Series":
        """The series with its coefficient of order `n` replaced."""
        a = embed(a, self.basis)
        return Series(placed(self.coefficients, n, a.coefficients), placed(self.radius, n, a.radius), self.basis)


def zeros(orders: int, a: TaylorModel) -> Series:
    """A series of zeros, of the shape and basis of `a`."""
    return Series(jnp.zeros((orders, *a.coefficients.shape)), jnp.zeros((orders, *a.radius.shape)), a.basis)


def total(a: TaylorModel, axes: tuple[int, ...]) -> TaylorModel:
    """The sum of entries along axes of the shape."""
    count = int(np.prod([a.shape[i] for i in axes]))
    summed = jnp.sum(a.coefficients, axis=tuple(i + 1 for i in axes))
    moduli = jnp.sum(jnp.abs(a.coefficients), axis=(0, *(i + 1 for i in axes)))
    radius = jnp.sum(a.radius, axis=axes)
    return TaylorModel(summed, up(radius + moduli * UNIT * (count + 2) + TINY, a.basis.size * count), a.basis)
