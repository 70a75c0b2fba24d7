r"""The natural logarithm and real powers, enclosed at floats.

**Reduction.** $a = 2^em$ with $m \in [B, 2B)$, $B = 0.7041$, by the bits of $a$; exact. $\ln a = e\ln2 + \ln m$, where $el_1$ is
exact for the 42 bits of $\ln2 = l_1 + l_2 + l_3$.

**Polynomial.** $\ln m = 2\,\mathrm{artanh}\,s = 2s + 2s(zR(z))$, $s = (m - 1)/(m + 1)$, $z = s^2 \le 0.0302$, Taylor's up to
$s^{21}$. The remainder is less than $0.0302^{11} / (23(1 - 0.0302)) < 10^{-18}$ of it.

**Rounding.** $m - 1$ is exact ($\tfrac12 \le m \le 2$); $s$ has $2u$, which artanh makes $2.07u$; $2szR$, at most 0.011 of it,
$0.06u$; the sum $u$: $3.15u$ of $\ln m$. With $el_1 + (\ln m + el_2)$: $u|\ln a| + 4.2u|\ln m| + 2u|el_2|$, $|el_2| < 10^{-10}$,
where the last occurs for $e \ne 0$ alone, so with $|\ln a| > 0.34$. The radius is $4u|\ln a| + 13u|\ln m|$.

**Powers.** $a^p = 2^{pe}m^p$, so that $\ln a$ is not multiplied: $p = p_1 + p_2$, where $p_1$ has 42 bits and $p_1e$ is exact, as
is its distance $f$ from the next integer $n$. $a^p = 2^n e^w$, $w = (f + p_2e)\ln2 + p\ln m$, with $4u$ of the first term and
$5.2u$ of the second; the radius of $w$ is $12u$ and $16u$.

Source: Cody, Waite (1980), *Software Manual for the Elementary Functions*, ch. 5 and 7, for the reductions.
"""

import functools as ft
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .exponential import _LN2, reduced
from .polynomials import floating, horner, power_of_two
from .rounding import enclosure, EPS, not_negative, points, TINY, UNSURE, up

_LOG = tuple(1 / (2 * i + 3) for i in range(10))
# The radii begin and end here, away from the subnormal numbers and from infinity.
_SMALLEST, _LARGEST = 1e-305, 1e308
# No number that is likely to occur, because copies of m may differ there.
_LEAST = 0.70410273
_LEAST_BITS = int(np.float64(_LEAST).view(np.int64))

Floats = Float[Array, "..."]


def _parts(a: Floats) -> tuple[Floats, Floats, Bool[Array, "..."]]:
    """`e`, `log(m)` and whether copies of `e` may differ: log(a) = e log(2) + log(m)."""
    bits = jax.lax.bitcast_convert_type(a, jnp.int64)
    e = (bits - _LEAST_BITS) >> 52
    m = jax.lax.bitcast_convert_type(bits - (e << 52), jnp.float64)
    s = (m - 1) / (m + 1)
    z = s * s
    # One comparison: of two, the one might see a copy of m near B and the other one near 2 B.
    unsure = jnp.abs(m - 1.5 * _LEAST) > _LEAST * (0.5 - UNSURE)
    return floating(e), 2 * s + 2 * s * (z * horner(_LOG, z)), unsure


@jax.jit
def log(a: Floats) -> tuple[Floats, Floats]:
    r"""The natural logarithm with its radius, $|\ln a - \text{value}| \le \text{radius}$.

    **Arguments:** `a`: float64, any shape.
    **Returns:** `(value, radius)`. The radius is between $2^{-51}$ and $2^{-48.9}$ of the value, also near $a = 1$. It is
    infinite for $a < 10^{-305}$, zero and negative numbers, $a > 10^{308}$ and NaN, and 1 at a number within $10^{-11}$ of
    $0.70410273\cdot2^e$.
    Source: see the module.
    """
    a = points(a)
    e, log_m, unsure = _parts(a)
    value = e * _LN2[0] + (log_m + e * _LN2[1])
    radius = jnp.where(unsure, 1, up(EPS * (jnp.abs(value) + 3.25 * jnp.abs(log_m))))
    return enclosure(value, radius, (a >= _SMALLEST) & (a <= _LARGEST))


@ft.partial(jax.jit, static_argnames="exponent")
def power(a: Floats, exponent: float) -> tuple[Floats, Floats]:
    r"""$a^p$ with a constant real exponent, and its radius, $|a^p - \text{value}| \le \text{radius}$.

    **Arguments:** `a`: float64, any shape. `exponent`: $p$, a finite number, static.
    **Returns:** `(value, radius)`. The radius is about $2^{-49}(1 + |p|)$ of the value. It is infinite for negative numbers, for
    NaN and infinity, for results above $10^{307}$ and, unless $p > 0$, for $a < 10^{-305}$; with $p > 0$ the value is 0 there.
    `ValueError` for an exponent that is not finite.
    Source: see the module.
    """
    a = points(a)
    if not math.isfinite(exponent):
        raise ValueError(f"power: the exponent {exponent} must be finite.")
    fraction, shift = math.frexp(exponent)
    head = math.ldexp(round(math.ldexp(fraction, 41)), shift - 41)
    tail = exponent - head
    e, log_m, unsure = _parts(a)
    n = jnp.round(head * e)
    f, late = head * e - n, tail * e
    w = (f + late) * math.log(2) + exponent * log_m
    w_radius = EPS * (3 * (jnp.abs(f) + jnp.abs(late)) + 4 * abs(exponent) * jnp.abs(log_m))
    k, p, apart = reduced(jnp.where(jnp.abs(w) < 700, w, 0))
    scale = power_of_two(jnp.clip(n + k, -1022, 1023))
    value = scale * (1 + p)
    radius = up(value * (2 * EPS + w_radius * (1 + w_radius)))
    known = (
        (a >= _SMALLEST) & (a <= _LARGEST) & ~unsure & ~apart & (jnp.abs(w) < 650) & (n + k <= 1021) & (w_radius < 0.5)
    )
    value, radius = enclosure(value, radius, known)
    if exponent <= 0:
        return value, radius
    # Nearly zero: 0 <= a^p <= 10^(-305 p). Between the two ends the radius is infinite.
    value = jnp.where(a < 0.5 * _SMALLEST, 0, value)
    near_zero = not_negative(a) & (a < 0.2 * _SMALLEST)
    return value, jnp.where(near_zero, 1.001 * _SMALLEST**exponent + TINY, radius)
