r"""The exponential function and functions made of it, enclosed at floats.

**Reduction.** $k = \mathrm{round}(x/\ln2 + \tfrac1{64})$, $r = x - k\ln2$, with $\ln2 = l_1 + l_2 + l_3$: $l_1$ has 42 bits, so
$kl_1$ is exact for $|k| < 2^{11}$; $|l_3| < 2\cdot10^{-31}$. For $k \ne 0$, $|x| > \tfrac14$ is a multiple of $2^{-54}$, and $|x
- kl_1| < \tfrac12$, so the difference is exact too. The next rounds: $|\hat r - r| \le u|r| + 10^{-26}$; $\hat r = x$ for $k =
0$. $|r| \le 0.3575$.

**Polynomial.** $e^r - 1 = p = r + r^2Q(r)$, Taylor's up to $r^{13}$, with the remainder $0.3575^{14}e^{0.36}/14! < 10^{-17} =
0.09u$.

**Rounding.** $Q$ has $1.3u$, its terms fall by $0.12$ from $\tfrac12$; $r^2Q$ has $0.32u$ ($0.23u$ for $r < 0$); $p \in [-0.301,
0.43]$ has $0.75u$ more by its sum and the above ($0.58u$), and by $\hat r$ $0.52u$ ($0.26u$).

- $e^x = 2^k(1 + p)$, scaled exactly. Relative: $p$ and $\hat r$ $1.2u$, the sum $u$, the remainder $0.1u$: $2.3u$. Radius $8u$.
- $e^x - 1 = 2^kp + (2^k - 1)$. For $k = 0$ it is $p$, relative $2.3u$. For $k = 1$ and $r < 0$ it is at least 0.399, and $2p$ has
  $1.8u$: $5.5u$ with its sum. For other $k$ less: $2^k - 1$ rounds for $|k| > 53$ alone. Radius $20u$.
- $\tanh a = m/(m + 2)$, $m = e^{2|a|} - 1$: relative $\tfrac2{m+2}$ times that of $m$ and $2u$: $6.6u$. For $m > 2$ it is $1 -
  2/(m + 2)$, which sees one copy of $m$, with $5.8u$. Radius $20u$.

Source: Cody, Waite (1980), *Software Manual for the Elementary Functions*, ch. 6, for the reduction.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .polynomials import horner, power_of_two
from .rounding import enclosure, EPS, points, UNSURE, up

_LN2 = (0.6931471805598903, 5.497923018708371e-14)
_EXP = tuple(1 / math.factorial(i + 2) for i in range(12))
# e^x is normal and finite between the first two. The values end after the second, the radii at the last.
_LOWEST, _HIGHEST, _RANGE = -708.0, 709.0, 708.5

Floats = Float[Array, "..."]


def reduced(x: Floats) -> tuple[Floats, Floats, Bool[Array, "..."]]:
    """`k`, `p` and whether copies of `k` may differ: exp(x) = 2^k (1 + p), for |x| <= 745."""
    t = x * (1 / math.log(2)) + 1 / 64
    k = jnp.round(t)
    r = (x - k * _LN2[0]) - k * _LN2[1]
    # |t| < 1100, so the rounding of t is far below UNSURE.
    return k, r + r * r * horner(_EXP, r), jnp.abs(t - k) > 0.5 - UNSURE


def _clipped(a: Floats) -> Floats:
    """`a` between `_LOWEST` and `_HIGHEST`; NaN becomes the former."""
    a = jnp.where(a > _LOWEST, a, _LOWEST)
    return jnp.where(a < _HIGHEST, a, _HIGHEST)


@jax.jit
def exp(a: Floats) -> tuple[Floats, Floats]:
    r"""The exponential function with its radius, $|e^a - \text{value}| \le \text{radius}$.

    **Arguments:** `a`: float64, any shape.
    **Returns:** `(value, radius)`. The radius is $2^{-50}$ of the value and $10^{-290}$ for $a \le 708.5$, also at $-\infty$. It
    is infinite beyond and for NaN. At an argument within $10^{-11}$ of a threshold of the reduction, it is that of the value's
    size.
    Source: see the module.
    """
    a = points(a)
    k, p, unsure = reduced(_clipped(a))
    scale = power_of_two(k)
    value = scale * (1 + p)
    # Copies of k may differ by one: both are below 2^(k + 2) then.
    return enclosure(value, jnp.where(unsure, 8 * scale, up(2 * EPS * value)), a <= _RANGE)


def _expm1(x: Floats) -> tuple[Floats, Floats, Floats]:
    """e^x - 1, its radius, and 8 times the scale where copies may differ, else 0."""
    k, p, unsure = reduced(x)
    scale = power_of_two(k)
    value = scale * p + (scale - 1)
    return value, up(5 * EPS * jnp.abs(value)), jnp.where(unsure, 8 * scale, 0)


@jax.jit
def expm1(a: Floats) -> tuple[Floats, Floats]:
    r"""$e^a - 1$ with its radius, $2^{-48.7}$ of the value, also near 0; otherwise as `exp`.

    **Arguments:** `a`: float64, any shape. **Returns:** `(value, radius)`. Source: see the module.
    """
    a = points(a)
    value, radius, apart = _expm1(_clipped(a))
    return enclosure(value, radius + apart, a <= _RANGE)


@jax.jit
def tanh(a: Floats) -> tuple[Floats, Floats]:
    r"""The hyperbolic tangent with its radius, $2^{-48.7}$ of the value, also near 0 and at $\pm\infty$.

    **Arguments:** `a`: float64, any shape. **Returns:** `(value, radius)`; infinite radius for NaN alone, and 2 where `exp` has
    the radius of its size. Source: see the module.
    """
    a = points(a)
    # tanh 22 = 1 - 1.6e-19. A NaN becomes 44.
    twice = 2 * jnp.abs(a)
    m, _, apart = _expm1(jnp.where(twice < 44, twice, 44))
    value = jnp.where(m > 2, 1 - 2 / (m + 2), m / (m + 2))
    radius = jnp.where(apart > 0, 2, up(5 * EPS * jnp.abs(value)))
    return enclosure(jnp.where(a < 0, -value, value), radius, ~jnp.isnan(a))
