r"""Elementary functions of floats with rigorous radii, for float64 arrays of any shape.

Each gives a value and a radius, `|f(a) - value| <= radius` for the number `a`; `sin_cos` gives both pairs. The radius is infinite
where `f` is not defined or nothing is known, and never NaN; the value is always finite. They are elementwise, and work under
`jit` and `vmap`. What is assumed of the machine and of the compiler, and what holds of arguments that are themselves results of
floating-point operations: see `rounding`. Method, proof and source are above each group of functions.
"""

import functools as ft
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._numerics.elimination import horner
from .rounding import enclosure, EPS, not_negative, points, UNSURE, up

# Polynomials and powers of two, the parts of which the elementary functions are made.

# 1.5 * 2^52: the last bits of the sum of it and an integer k, |k| < 2^51, are those of k.
_INTEGER_BITS = 6755399441055744.0
_INTEGER_PATTERN = 0x4338000000000000


def integer(k: Float[Array, "..."]) -> Int[Array, "..."]:
    """An integer-valued float, |k| < 2^50, as an integer of 64 bits that is right in its last 51."""
    return jax.lax.bitcast_convert_type(k + _INTEGER_BITS, jnp.int64)


def floating(n: Int[Array, "..."]) -> Float[Array, "..."]:
    """An integer, |n| < 2^50, as a float; exact."""
    return jax.lax.bitcast_convert_type(n + _INTEGER_PATTERN, jnp.float64) - _INTEGER_BITS


def power_of_two(k: Float[Array, "..."]) -> Float[Array, "..."]:
    """2^k by its exponent's bits, for an integer-valued float -1022 <= k <= 1023; exact."""
    return jax.lax.bitcast_convert_type((integer(k) + 1023) << 52, jnp.float64)


# Arc tangent.
#
# **Reduction.** $\theta = \arctan y$, $y = |a|$, is within $\pi/16$ of one of $\theta_j = j\pi/8$, $j = 0, \ldots, 4$. With
# $c_j$, a float near $\tan\theta_j$, and the angle $\theta_j$ taken for that float, as a sum of two,
#
# $$\theta = \theta_j + \arctan t, \quad t = \frac{y - c_j}{1 + c_jy}\ (j < 4), \quad t = -\frac1y\ (j = 4), \quad |t| < 0.199 .$$
#
# **Polynomial.** $\arctan t = t + t(zP(z))$, $z = t^2 \le 0.0396$, Taylor's up to $t^{23}$. It alternates: the remainder is less
# than $0.0396^{12}/25 < 10^{-18}$ of it.
#
# **Rounding.** $t$ has $u|t|$ each by the difference, the quotient and twice the denominator; $\arctan t$ has $1.08u|t|$ by its
# evaluation, the sum with the lesser part of $\theta_j$ $u|t|$, the last sum $u\theta$: $u\theta + 6.1u|t|$. The radius is three
# times that and more, $4u\theta + 18.4u|t|$.
#
# Source: Cody, Waite (1980), *Software Manual for the Elementary Functions*, ch. 11, for the reduction.

_ATAN = tuple((-1) ** (i + 1) / (2 * i + 3) for i in range(11))
# Tangents of pi/16 and its multiples by 3, 5, 7.
_THRESHOLDS = (0.198912367379658, 0.6681786379192989, 1.496605762665489, 5.027339492125848)
_TANGENTS = (0.0, 0.41421356237309503, 1.0, 2.414213562373095)
_ANGLES = (
    (0.0, 0.0),
    (0.39269908169872414, 3.060132146563891e-18),
    (0.7853981633974483, 3.061616997868383e-17),
    (1.1780972450961724, 2.7563998718653792e-17),
    (1.5707963267948966, 6.123233995736766e-17),
)

Floats = Float[Array, "..."]


@jax.jit
def atan(a: Floats) -> tuple[Floats, Floats]:
    r"""The arc tangent with its radius, $|\arctan a - \text{value}| \le \text{radius}$.

    **Arguments:** `a`: float64, any shape.
    **Returns:** `(value, radius)`. The radius is between $2^{-51}$ and $2^{-48.5}$ of the value, also near 0 and at $\pm\infty$.
    It is infinite for NaN, and 1 within $10^{-9}$ of the tangent of an odd multiple of $\pi/16$.
    """
    a = points(a)
    y = jnp.abs(a)
    beyond = [y > threshold for threshold in _THRESHOLDS]

    def chosen(values):
        choice = jnp.full_like(y, values[0])
        for each, value in zip(beyond, values[1:], strict=False):
            choice = jnp.where(each, value, choice)
        return choice

    tangent = chosen(_TANGENTS)
    t = jnp.where(beyond[3], -1.0, y - tangent) / jnp.where(beyond[3], y, 1.0 + tangent * y)
    z = t * t
    high, low = (chosen(part) for part in zip(*_ANGLES, strict=True))
    angle = high + (low + (t + t * (z * horner(_ATAN, z))))
    unsure = ft.reduce(jnp.logical_or, [jnp.abs(y - each) < 2 * UNSURE * (1.0 + y) for each in _THRESHOLDS])
    radius = jnp.where(unsure, 1, up(EPS * (angle + 4.6 * jnp.abs(t))))
    return enclosure(jnp.where(a < 0, -angle, angle), radius, ~jnp.isnan(a))


# Sine and cosine.
#
# **Reduction.** $k = \mathrm{round}(2a/\pi + \tfrac1{64})$, $r = a - k\pi/2$, with $\pi/2 = c_1 + c_2 + c_3 + c_4$: $c_1$ and
# $c_2$ have 33 bits, so $kc_1$ and $kc_2$ are exact for $|k| < 2^{20}$, as one operation with the difference or as two; $|c_4| <
# 1.1\cdot10^{-37}$. For $k \ne 0$, $|a| > \tfrac12$ is a multiple of $2^{-53}$, and $|a - kc_1| < 1$, so that difference is exact
# too. The next two round: $|\hat r - r| \le 2.01u|r| + 6\cdot10^{-37}|k|$. The shift by $\tfrac1{64}$ keeps $\pi/4$ away from the
# threshold of $k$; $|r| \le 0.81$.
#
# **Polynomials.** Taylor's, $z = r^2$: $\sin r = r + r(zS(z))$ up to $r^{17}$, $\cos r = 1 - (\tfrac z2 - z^2C(z))$ up to
# $r^{16}$. They alternate, so the first term left out bounds the remainder: $0.81^{18}/19! < 2\cdot10^{-19}$ of $r$, and
# $0.81^{18}/18! < 4\cdot10^{-18}$.
#
# **Rounding.** Of the sine, relative to it: $zS$, at most 0.106, has $0.45u$ (Horner $0.23u$, the square $0.11u$, a product
# $0.11u$); with the product by $r$, $0.56u$ of $r \le 1.12\sin r$; the sum $u$; the reduction $2.01u$, as $r\cot r \le 1$. In all
# $3.7u$. Of the cosine, at least 0.689: the square $0.29u$, $z^2C$ $0.08u$, the difference $0.31u$, which are $0.99u$ of it; the
# sum $u$; the reduction $2.01u\,r\tan r \le 1.71u$; the remainder $0.05u$. In all $3.8u$.
#
# The radius is $12u|\text{value}| + 2^{-118}|k| + 10^{-290}$, three times that: relative $2^{-49.4}$, also at the zeros.
#
# Source: Cody, Waite (1980), *Software Manual for the Elementary Functions*, ch. 8; Muller (2016), *Elementary Functions*, 3rd
# ed., ch. 11, for the reduction.

_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
_SIN = tuple((-1) ** (i + 1) / math.factorial(2 * i + 3) for i in range(8))
_COS = tuple((-1) ** i / math.factorial(2 * i + 4) for i in range(7))
# The radii end at the first, the values at the second, the reduction at the third: each is right beyond the one before.
_ANGLE_RANGE, _ANGLE_VALUES, _REDUCED = 1.0e6, 1.1e6, 1.2e6


@jax.jit
def sin_cos(a: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    r"""Sine and cosine with their radii, $|\sin a - s| \le r_s$ and $|\cos a - c| \le r_c$.

    **Arguments:** `a`: rad, float64, any shape.
    **Returns:** `(s, r_s, c, r_c)`, of the same shape. The radii are $2^{-49.4}$ of the values for $|a| \le 10^6$. Beyond, they
    are 1, and the values 0 from $1.1\cdot10^6$; where `a` is not finite, the radii are infinite. At an argument within $10^{-11}$
    of a threshold of the reduction, an odd multiple of $\pi/4$ less 0.0245, the radii are 2.5.
    """
    a = points(a)
    x = jnp.where(jnp.abs(a) < _REDUCED, a, 0)
    t = x * (2 / math.pi) + 1 / 64
    k = jnp.round(t)
    r = x
    for part in _HALF_PI:
        r = r - k * part
    z = r * r
    sine = r + r * (z * horner(_SIN, z))
    cosine = 1 - (0.5 * z - z * z * horner(_COS, z))
    # The quarter turns that follow the reduced angle.
    turns = integer(k)
    odd, near = (turns & 1) != 0, jnp.abs(a) < _ANGLE_VALUES
    s = jnp.where(odd, cosine, sine)
    c = jnp.where(odd, sine, cosine)
    s = jnp.where(near, jnp.where((turns & 2) != 0, -s, s), 0)
    c = jnp.where(near, jnp.where(((turns + 1) & 2) != 0, -c, c), 0)
    # All copies of t are within 2^-50 |t| and the copies of `a` of one another.
    unsure = jnp.abs(t - k) > 0.5 - UNSURE - 2.0**-50 * jnp.abs(t)
    inside, finite = jnp.abs(a) < _ANGLE_RANGE, jnp.abs(a) < jnp.inf

    def radius(value):
        small = up(3 * EPS * jnp.abs(value) + 2.0**-118 * jnp.abs(k))
        return jnp.where(unsure, 2.5, jnp.where(inside, small, 1))

    return (*enclosure(s, radius(s), finite), *enclosure(c, radius(c), finite))


# Exponential function.
#
# **Reduction.** $k = \mathrm{round}(x/\ln2 + \tfrac1{64})$, $r = x - k\ln2$, with $\ln2 = l_1 + l_2 + l_3$: $l_1$ has 42 bits, so
# $kl_1$ is exact for $|k| < 2^{11}$; $|l_3| < 2\cdot10^{-31}$. For $k \ne 0$, $|x| > \tfrac14$ is a multiple of $2^{-54}$, and
# $|x - kl_1| < \tfrac12$, so the difference is exact too. The next rounds: $|\hat r - r| \le u|r| + 10^{-26}$; $\hat r = x$ for
# $k = 0$. $|r| \le 0.3575$.
#
# **Polynomial.** $e^r - 1 = p = r + r^2Q(r)$, Taylor's up to $r^{13}$, with the remainder $0.3575^{14}e^{0.36}/14! < 10^{-17} =
# 0.09u$.
#
# **Rounding.** $Q$ has $1.3u$, its terms fall by $0.12$ from $\tfrac12$; $r^2Q$ has $0.32u$ ($0.23u$ for $r < 0$); $p \in
# [-0.301, 0.43]$ has $0.75u$ more by its sum and the above ($0.58u$), and by $\hat r$ $0.52u$ ($0.26u$). $e^x = 2^k(1 + p)$ is
# scaled exactly; relative to it, $p$ and $\hat r$ have $1.2u$, the sum $u$, the remainder $0.1u$: $2.3u$. Radius $8u$.
#
# Source: Cody, Waite (1980), *Software Manual for the Elementary Functions*, ch. 6, for the reduction.

_LN2 = (0.6931471805598903, 5.497923018708371e-14)
_EXP = tuple(1 / math.factorial(i + 2) for i in range(12))
# e^x is normal and finite between the first two. The values end after the second, the radii at the last.
_LOWEST, _HIGHEST, _RANGE = -708.0, 709.0, 708.5


@jax.jit
def exp(a: Floats) -> tuple[Floats, Floats]:
    r"""The exponential function with its radius, $|e^a - \text{value}| \le \text{radius}$.

    **Arguments:** `a`: float64, any shape.
    **Returns:** `(value, radius)`. The radius is $2^{-50}$ of the value and $10^{-290}$ for $a \le 708.5$, also at $-\infty$. It
    is infinite beyond and for NaN. At an argument within $10^{-11}$ of a threshold of the reduction, it is that of the value's
    size.
    """
    a = points(a)
    # NaN becomes the lowest.
    x = jnp.where(a > _LOWEST, a, _LOWEST)
    x = jnp.where(x < _HIGHEST, x, _HIGHEST)
    t = x * (1 / math.log(2)) + 1 / 64
    k = jnp.round(t)
    r = (x - k * _LN2[0]) - k * _LN2[1]
    # |t| < 1100, so the rounding of t is far below UNSURE.
    unsure = jnp.abs(t - k) > 0.5 - UNSURE
    scale = power_of_two(k)
    value = scale * (1 + (r + r * r * horner(_EXP, r)))
    # Copies of k may differ by one: both are below 2^(k + 2) then.
    return enclosure(value, jnp.where(unsure, 8 * scale, up(2 * EPS * value)), a <= _RANGE)


# Natural logarithm.
#
# **Reduction.** $a = 2^em$ with $m \in [B, 2B)$, $B = 0.7041$, by the bits of $a$; exact. $\ln a = e\ln2 + \ln m$, where $el_1$
# is exact for the 42 bits of $\ln2 = l_1 + l_2 + l_3$.
#
# **Polynomial.** $\ln m = 2\,\mathrm{artanh}\,s = 2s + 2s(zR(z))$, $s = (m - 1)/(m + 1)$, $z = s^2 \le 0.0302$, Taylor's up to
# $s^{21}$. The remainder is less than $0.0302^{11} / (23(1 - 0.0302)) < 10^{-18}$ of it.
#
# **Rounding.** $m - 1$ is exact ($\tfrac12 \le m \le 2$); $s$ has $2u$, which artanh makes $2.07u$; $2szR$, at most 0.011 of it,
# $0.06u$; the sum $u$: $3.15u$ of $\ln m$. With $el_1 + (\ln m + el_2)$: $u|\ln a| + 4.2u|\ln m| + 2u|el_2|$, $|el_2| <
# 10^{-10}$, where the last occurs for $e \ne 0$ alone, so with $|\ln a| > 0.34$. The radius is $4u|\ln a| + 13u|\ln m|$.
#
# Source: Cody, Waite (1980), *Software Manual for the Elementary Functions*, ch. 5, for the reduction.

_LOG = tuple(1 / (2 * i + 3) for i in range(10))
# The radii begin and end here, away from the subnormal numbers and from infinity.
_SMALLEST, _LARGEST = 1e-305, 1e308
# No number that is likely to occur, because copies of m may differ there.
_LEAST = 0.70410273
_LEAST_BITS = int(np.float64(_LEAST).view(np.int64))


@jax.jit
def log(a: Floats) -> tuple[Floats, Floats]:
    r"""The natural logarithm with its radius, $|\ln a - \text{value}| \le \text{radius}$.

    **Arguments:** `a`: float64, any shape.
    **Returns:** `(value, radius)`. The radius is between $2^{-51}$ and $2^{-48.9}$ of the value, also near $a = 1$. It is
    infinite for $a < 10^{-305}$, zero and negative numbers, $a > 10^{308}$ and NaN, and 1 at a number within $10^{-11}$ of
    $0.70410273\cdot2^e$.
    """
    a = points(a)
    bits = jax.lax.bitcast_convert_type(a, jnp.int64)
    exponent = (bits - _LEAST_BITS) >> 52
    e, m = floating(exponent), jax.lax.bitcast_convert_type(bits - (exponent << 52), jnp.float64)
    s = (m - 1) / (m + 1)
    z = s * s
    log_m = 2 * s + 2 * s * (z * horner(_LOG, z))
    # One comparison: of two, the one might see a copy of m near B and the other one near 2 B.
    unsure = jnp.abs(m - 1.5 * _LEAST) > _LEAST * (0.5 - UNSURE)
    value = e * _LN2[0] + (log_m + e * _LN2[1])
    radius = jnp.where(unsure, 1, up(EPS * (jnp.abs(value) + 3.25 * jnp.abs(log_m))))
    return enclosure(value, radius, (a >= _SMALLEST) & (a <= _LARGEST))


# Square root and reciprocal.
#
# **Start.** The bits of $a > 0$, read as an integer, are $2^{52}(L(a) + 1023)$ with $L(a) \le \log_2a \le L(a) + 0.08608$
# (Mitchell). $y$ has the bits of $c - L(a)/2$, with $c$ such that $\log_2y + \tfrac12\log_2a$ lies within $\pm0.0646$: $y =
# a^{-1/2}(1 + e)$ with $|e| < 0.046$. These are exact operations, so all uses of $y$ see one number.
#
# **Series.** $h = 1 - ay^2$ and $\sqrt a = ay(1 - h)^{-1/2}$, binomial series up to $h^{15}$. $|h| < 0.094$; the remainder is
# less than $6\cdot10^{-18}$. There is no iteration, whose last step would need one number in two uses.
#
# **Rounding.** $s = ay$ has $u$; $h$ has $2.3u$, which the series makes $1.26u$; the series $0.22u$, its sum $u$, the remainder
# $0.05u$: $3.6u$, radius $12u$. The reciprocal is one division, radius $4u$.
#
# Source: Mitchell (1962), *Computer multiplication and division using binary logarithms*, IRE Trans. Electron. Comput. 11; Lomont
# (2003), *Fast inverse square root*, for the start.

# The radii are relative above `_SMALLEST`; the values are zero below this.
_ROOT_VALUES = 5e-306
# The bits of y for those of a that are zero: 1023 (3/2) - 0.08608 (3/2) / 2, in units of 2^-52.
_START_BITS = int(1.5 * (1023 - 0.5 * 0.0860713) * 2**52)
# The coefficients of h, h^2, ... of (1 - h)^(-1/2).
_BINOMIAL = tuple(math.prod(1 + 2 * j for j in range(i)) / (2**i * math.factorial(i)) for i in range(1, 16))


@jax.jit
def sqrt(a: Floats) -> tuple[Floats, Floats]:
    r"""The square root with its radius, $|\sqrt a - \text{value}| \le \text{radius}$.

    **Arguments:** `a`: float64, any shape.
    **Returns:** `(value, radius)`. The radius is $2^{-49.4}$ of the value, and $4\cdot10^{-153}$ for $0 \le a < 10^{-305}$. It is
    infinite for negative numbers, $a > 10^{308}$ and NaN.
    """
    a = points(a)
    y = jax.lax.bitcast_convert_type(_START_BITS - (jax.lax.bitcast_convert_type(a, jnp.int64) >> 1), jnp.float64)
    s = a * y
    h = 1 - s * y
    value = jnp.where(a >= _ROOT_VALUES, s + s * (h * horner(_BINOMIAL, h)), 0)
    # sqrt(1e-305) < 3.2e-153.
    radius = jnp.where(a >= _SMALLEST, up(3 * EPS * value), 4e-153)
    return enclosure(value, radius, not_negative(a) & (a <= _LARGEST))


@jax.jit
def reciprocal(a: Floats) -> tuple[Floats, Floats]:
    r"""$1/a$ with its radius, $2^{-51}$ of the value and $10^{-290}$.

    **Arguments:** `a`: float64, any shape. **Returns:** `(value, radius)`; infinite radius for $|a| < 10^{-300}$ and NaN.
    """
    a = points(a)
    # Finite for every copy of a number that may be flushed to zero.
    value = 1 / jnp.where(jnp.abs(a) >= 1e-301, a, 1)
    return enclosure(value, up(EPS * jnp.abs(value)), jnp.abs(a) >= 1e-300)
