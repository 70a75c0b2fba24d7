r"""Square root, cube root and reciprocal of floats, enclosed.

**Start.** The bits of $a > 0$, read as an integer, are $2^{52}(L(a) + 1023)$ with $L(a) \le \log_2a \le L(a) + 0.08608$
(Mitchell). $y$ has the bits of $c - L(a)/n$, with $c$ such that $\log_2y + \tfrac1n\log_2a$ lies within $\pm0.0431(1 + 1/n)$: $y
= a^{-1/n}(1 + e)$ with $|e| < 0.046$ for $n = 2$, 0.041 for $n = 3$. These are exact operations, so all uses of $y$ see one
number.

**Series.** $h = 1 - ay^n$ and $a^{1/n} = ay^{n-1}(1 - h)^{1/n-1}$, binomial series up to $h^{15}$, $h^{18}$. $|h| < 0.094$,
0.127; the remainders are less than $6\cdot10^{-18}$. There is no iteration, whose last step would need one number in two uses.

**Rounding.** For $n = 2$, with $s = ay$: $s$ has $u$; $h$ has $2.3u$, which the series makes $1.26u$; the series $0.22u$, its sum
$u$, the remainder $0.05u$: $3.6u$, radius $12u$. For $n = 3$, $s = ay^2$ has $2u$; $h$ has $3.5u$, made $2.7u$; the series
$0.41u$, its sum $u$, the remainder $0.05u$: $6.2u$, radius $20u$. The reciprocal is one division, radius $4u$.

Source: Mitchell (1962), *Computer multiplication and division using binary logarithms*, IRE Trans. Electron. Comput. 11; Lomont
(2003), *Fast inverse square root*, for the start.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .polynomials import horner
from .rounding import enclosure, EPS, not_negative, points, up

# The radii are relative above the first; the values are zero below the second. The radii end at the third.
_SMALLEST, _VALUES, _LARGEST = 1e-305, 5e-306, 1e308
_TERMS = {2: 15, 3: 18}

Floats = Float[Array, "..."]


def _start_bits(n: int) -> int:
    """The bits of y for those of a that are zero: 1023 (1 + 1/n) - 0.08608 (1 + 1/n) / 2, in units of 2^-52."""
    return int((1 + 1 / n) * (1023 - 0.5 * 0.0860713) * 2**52)


def _binomial(n: int) -> tuple[float, ...]:
    """The coefficients of h, h^2, ... of (1 - h)^(1/n - 1)."""
    numerators = [math.prod(n - 1 + n * j for j in range(i)) for i in range(1, _TERMS[n] + 1)]
    return tuple(each / (n**i * math.factorial(i)) for i, each in enumerate(numerators, 1))


def root(a: Floats, n: int) -> Floats:
    """The root of order 2 or 3, to 3.6 or 6.2 roundings; 0 where a is less than 5e-306 or NaN, and anything for infinity."""
    bits = jax.lax.bitcast_convert_type(a, jnp.int64)
    y = jax.lax.bitcast_convert_type(_start_bits(n) - (bits >> 1 if n == 2 else jax.lax.div(bits, 3)), jnp.float64)
    s = a * y
    for _ in range(n - 2):
        s = s * y
    h = 1 - s * y
    return jnp.where(a >= _VALUES, s + s * (h * horner(_binomial(n), h)), 0)


@jax.jit
def sqrt(a: Floats) -> tuple[Floats, Floats]:
    r"""The square root with its radius, $|\sqrt a - \text{value}| \le \text{radius}$.

    **Arguments:** `a`: float64, any shape.
    **Returns:** `(value, radius)`. The radius is $2^{-49.4}$ of the value, and $4\cdot10^{-153}$ for $0 \le a < 10^{-305}$. It is
    infinite for negative numbers, $a > 10^{308}$ and NaN. Source: see the module.
    """
    a = points(a)
    value = root(a, 2)
    # sqrt(1e-305) < 3.2e-153.
    radius = jnp.where(a >= _SMALLEST, up(3 * EPS * value), 4e-153)
    return enclosure(value, radius, not_negative(a) & (a <= _LARGEST))


@jax.jit
def cbrt(a: Floats) -> tuple[Floats, Floats]:
    r"""The real cube root with its radius, $2^{-48.7}$ of the value, and $5\cdot10^{-102}$ for $|a| < 10^{-305}$.

    **Arguments:** `a`: float64, any shape, of either sign.
    **Returns:** `(value, radius)`; infinite radius for $|a| > 10^{308}$ and NaN.
    Source: see the module.
    """
    a = points(a)
    size = jnp.abs(a)
    value = root(size, 3)
    # The copies of `a` may have either sign only where it is within their distance of zero.
    radius = jnp.where(size >= _SMALLEST, up(5 * EPS * value), 5e-102)
    return enclosure(jnp.where(a < 0, -value, value), radius, size <= _LARGEST)


@jax.jit
def reciprocal(a: Floats) -> tuple[Floats, Floats]:
    r"""$1/a$ with its radius, $2^{-51}$ of the value and $10^{-290}$.

    **Arguments:** `a`: float64, any shape. **Returns:** `(value, radius)`; infinite radius for $|a| < 10^{-300}$ and NaN.
    Source: see the module.
    """
    a = points(a)
    # Finite for every copy of a number that may be flushed to zero.
    value = 1 / jnp.where(jnp.abs(a) >= 1e-301, a, 1)
    return enclosure(value, up(EPS * jnp.abs(value)), jnp.abs(a) >= 1e-300)
