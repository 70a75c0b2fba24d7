r"""Functions of a Taylor model: a Taylor expansion at the constant coefficient, with Lagrange's remainder.

With $u = a + \delta(s)$ and $|\delta| \le \rho$: $f(u) = \sum_{i \le d} f^{(i)}(a)\,\delta^i / i! + R$ with
$|R| \le \sup_{|\xi - a| \le \rho} |f^{(d+1)}(\xi)|\,\rho^{d+1} / (d+1)!$. The values at the number $a$ are enclosed by
`elementary`; no function of the machine's library is trusted.

Source: Makino, Berz (2003), Sec. 3.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array

from . import elementary
from .rounding import EPS, TINY, up
from .taylor_model import add, ball, common, constant, multiply, negative, scale, TaylorModel


def _expand(a: TaylorModel, derivatives: list[TaylorModel], remainder: Array) -> TaylorModel:
    r"""$\sum_i D_i \delta^i \pm R$ by Horner's rule, with balls $D_i$ about $f^{(i)}(a)/i!$."""
    delta = TaylorModel(a.coefficients.at[0].set(0), a.radius, a.basis)
    result = constant(derivatives[-1].center, a.basis, derivatives[-1].radius)
    for each in derivatives[-2::-1]:
        result = add(multiply(result, delta), each)
    return TaylorModel(result.coefficients, up(result.radius + remainder), a.basis)


def _pinned(a: Array) -> Array:
    """The same numbers, of which all uses see the same bits.

    XLA may evaluate an expression again in each of its uses, fused there with other operations; a reduction of the argument that
    takes its integer from one copy and its remainder from another is not the function's. The result of a sort is stored: jaxlib
    0.10 moves `optimization_barrier` out of the way before it fuses. NaN becomes infinite, of which nothing is known.
    """
    pair = jnp.stack([a, jnp.full_like(a, jnp.inf)], axis=-1)
    return jax.lax.sort(pair, dimension=-1)[..., 0]


def _power(rho: Array, n: int) -> Array:
    return up(rho**n, n)


def sin_cos(a: TaylorModel) -> tuple[TaylorModel, TaylorModel]:
    """Sine and cosine."""
    sine, sine_radius, cosine, cosine_radius = elementary.sin_cos(_pinned(a.center))
    s, c = ball(sine, sine_radius), ball(cosine, cosine_radius)
    degree, rho = a.basis.degree, a.spread
    remainder = up(_power(rho, degree + 1) / math.factorial(degree + 1), 2)
    if degree == 0:
        # |sin u - sin a| <= 2 at any distance.
        remainder = jnp.minimum(remainder, 2.0)
    cycle = [s, c, negative(s), negative(c)]
    sines = [scale(cycle[i % 4], 1 / math.factorial(i)) for i in range(degree + 1)]
    cosines = [scale(cycle[(i + 1) % 4], 1 / math.factorial(i)) for i in range(degree + 1)]
    return _expand(a, _widened(sines), remainder), _expand(a, _widened(cosines), remainder)


def _widened(derivatives: list[TaylorModel]) -> list[TaylorModel]:
    """The derivatives with the rounding of the factors 1/i! in their radii."""
    wide = []
    for i, each in enumerate(derivatives):
        rounding = 0.0 if i < 3 else 2.0**-52
        wide.append(ball(each.center, up(each.radius + rounding * jnp.abs(each.center))))
    return wide


def exp(a: TaylorModel) -> TaylorModel:
    """The exponential function."""
    value, radius = elementary.exp(_pinned(a.center))
    degree, rho = a.basis.degree, a.spread
    top, top_radius = elementary.exp(_pinned(a.high))
    remainder = up(up(top + top_radius) * _power(rho, degree + 1) / math.factorial(degree + 1), 3)
    e = ball(value, radius)
    return _expand(a, _widened([scale(e, 1 / math.factorial(i)) for i in range(degree + 1)]), remainder)


def _gap(a: TaylorModel) -> Array:
    """A lower bound of the values' distance from zero; not positive where the values may vanish."""
    size = jnp.abs(a.center)
    return size - up(a.spread) - 2.0**-51 * size


def reciprocal(a: TaylorModel) -> TaylorModel:
    """$1/u$; radius infinite where $u$ may vanish."""
    degree, gap = a.basis.degree, _gap(a)
    good = gap > 0
    center = jnp.where(good, a.center, 1.0)
    value, radius = elementary.reciprocal(center)
    powers = [ball(value, radius)]
    for _ in range(degree):
        powers.append(multiply(negative(powers[-1]), ball(value, radius)))
    ratio = up(a.spread / jnp.abs(center), 1)
    remainder = jnp.where(good, up(_power(ratio, degree + 1) / jnp.where(good, gap, 1.0), 2), jnp.inf)
    return _expand(a, powers, remainder)


def divide(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """$u/v$; radius infinite where $v$ may vanish."""
    return multiply(a, reciprocal(b))


def sqrt(a: TaylorModel) -> TaylorModel:
    r"""$\sqrt u$; radius infinite where $u$ may be zero or negative."""
    degree = a.basis.degree
    gap = jnp.where(a.center > 0, _gap(a), -1.0)
    good = gap > 0
    center = jnp.where(good, a.center, 1.0)
    root = ball(*elementary.sqrt(center))
    inverse = ball(*elementary.reciprocal(center))
    # binomial(1/2, i) a^(1/2 - i); the factors are dyadic numbers, exact in binary up to degree 20.
    derivatives, factor = [root], 1.0
    for i in range(1, degree + 1):
        factor *= (1.5 - i) / i
        derivatives.append(multiply(derivatives[-1], inverse))
    factors = [_half_binomial(i) for i in range(degree + 2)]
    derivatives = [scale(each, factors[i]) for i, each in enumerate(derivatives)]
    ratio = up(a.spread / jnp.where(good, gap, 1.0), 1)
    highest = up(root.center + root.radius)
    remainder = jnp.where(good, up(_power(ratio, degree + 1) * abs(factors[-1]) * highest, 3), jnp.inf)
    return _expand(a, derivatives, remainder)


def _half_binomial(i: int) -> float:
    """binomial(1/2, i), a dyadic number."""
    numerator, denominator = 1, 1
    for j in range(i):
        numerator *= 1 - 2 * j
        denominator *= 2 * (j + 1)
    return numerator / denominator


def log(a: TaylorModel) -> TaylorModel:
    r"""$\ln u$; radius infinite where $u$ may be zero or negative."""
    degree = a.basis.degree
    gap = jnp.where(a.center > 0, _gap(a), -1.0)
    good = gap > 0
    center = jnp.where(good, a.center, 1.0)
    inverse = ball(*elementary.reciprocal(center))
    derivatives, power = [ball(*elementary.log(_pinned(center)))], constant(jnp.ones_like(center), inverse.basis)
    for i in range(1, degree + 1):
        power = multiply(power, inverse)
        derivatives.append(scale(power, (-1.0) ** (i + 1) / i))
    ratio = up(a.spread / jnp.where(good, gap, 1.0), 1)
    remainder = jnp.where(good, up(_power(ratio, degree + 1) / (degree + 1), 2), jnp.inf)
    return _expand(a, _widened(derivatives), remainder)


def atan(a: TaylorModel) -> TaylorModel:
    r"""$\arctan u = \arctan a + \arctan v$ with $v = \delta / (1 + a^2 + a\delta)$ and the series of the second, $|v| < 1$."""
    delta = TaylorModel(a.coefficients.at[0].set(0), a.radius, a.basis)
    one = constant(jnp.ones_like(a.center), a.basis)
    v = divide(delta, add(one, multiply(constant(a.center, a.basis), a)))
    value, radius = elementary.atan(_pinned(a.center))
    total, power, square, order = constant(value, a.basis, radius), v, multiply(v, v), 1
    while order <= a.basis.degree:
        total = add(total, scale(power, 1 / order))
        power, order = negative(multiply(power, square)), order + 2
    # Alternating series: the first term left out bounds the rest; 2^-52 for the factors 1/i.
    size = v.largest
    remainder = jnp.where(size < 1, up(_power(size, order) / order + 2.0**-52 * size, 3), jnp.inf)
    return TaylorModel(total.coefficients, up(total.radius + remainder), a.basis)


def absolute(a: TaylorModel) -> TaylorModel:
    r"""$|u|$: $\pm u$ where the sign is certain, else a ball."""
    certain = _gap(a) > 0
    sign = jnp.where(a.center < 0, -1.0, 1.0)
    folded = scale(a, sign)
    largest = a.largest
    hull = constant(0.5 * largest, a.basis, up(0.5 * largest))
    return where(certain, folded, hull)


def where(choice: Array, a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """The Taylor model whose entries are those of `a` where the choice is true, and of `b` elsewhere."""
    a, b = common(a, b)
    return TaylorModel(
        jnp.where(choice, a.coefficients, b.coefficients), jnp.where(choice, a.radius, b.radius), a.basis
    )


def hull(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """A Taylor model that holds the values of both: the mean of the polynomials, with half their distance in the radius."""
    a, b = common(a, b)
    mean = 0.5 * (a.coefficients + b.coefficients)
    apart = jnp.sum(0.5 * jnp.abs(a.coefficients - b.coefficients), axis=0)
    rounding = EPS * jnp.sum(jnp.abs(a.coefficients) + jnp.abs(b.coefficients), axis=0)
    return TaylorModel(mean, up(jnp.maximum(a.radius, b.radius) + apart + rounding + TINY, a.basis.size), a.basis)
