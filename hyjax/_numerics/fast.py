r"""Sine and cosine in plain arithmetic, alone and together; what programs are compiled for.

On a CPU, XLA evaluates the float64 `sin` and `cos` of an array one element at a time. These are ordinary multiplication and
addition, which XLA vectorizes: 100 000 sines in 82 us for 551 us, and pairs in 220 us for 983 us (jaxlib 0.10.2; no issue known
upstream, `tests/numerics/test_upstream_faults.py` fails when XLA's are as fast).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .eager import compile_for as compile_for, Purpose as Purpose
from .elimination import horner
from .trees import batch_first, stored

# Near-minimax fits on |r| <= pi/4, in r^2: sin r = r + r^3 S(r^2), cos r = 1 - r^2/2 + r^4 C(r^2); both below 2e-17.
_SIN = (
    -0.16666666666666666,
    0.008333333333330946,
    -0.0001984126983675497,
    2.755731610068303e-06,
    -2.5051131455427946e-08,
    1.591810123027412e-10,
)
_COS = (
    0.041666666666666664,
    -0.0013888888888887395,
    2.4801587298763433e-05,
    -2.7557317270560326e-07,
    2.0876146024689747e-09,
    -1.1382614868556325e-11,
)
# The same for a sine alone, on |r| <= pi/2: below 4e-17.
_SIN_ALONE = (
    -0.16666666666666666,
    0.008333333333333316,
    -0.0001984126984125486,
    2.7557319219132584e-06,
    -2.5052107613095433e-08,
    1.6058977059718268e-10,
    -7.643962232442654e-13,
    2.731344277439919e-15,
)
# pi/2 in parts of 33 bits: the product of a part with an integer below 2^20 is exact (Cody and Waite, 1980).
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)


def _less(x: Array, quarters: Array) -> Array:
    """`x` less a number of quarter turns."""
    for part in _HALF_PI:
        x = x - quarters * part
    return x


# Jitted by themselves, so that they are traced once: derivatives of a flow call them dozens of times.
@jax.jit
def _by_polynomials(x: Array) -> tuple[Array, Array]:
    quadrant = jnp.round(x * (2 / jnp.pi))
    r = _less(x, quadrant)
    z = r * r
    sine = r + r * (z * horner(_SIN, z))
    cosine = 1 - (0.5 * z - z * z * horner(_COS, z))
    q = quadrant - 4 * jnp.floor(quadrant / 4)
    odd = (q == 1) | (q == 3)
    s = jnp.where(odd, cosine, sine)
    c = jnp.where(odd, sine, cosine)
    return jnp.where(q >= 2, -s, s), jnp.where((q == 1) | (q == 2), -c, c)


@jax.jit
def _sin_by_polynomial(x: Array) -> Array:
    turns = jnp.round(x * (1 / jnp.pi))
    return _alternating(_less(x, 2 * turns), turns)


@jax.jit
def _cos_by_polynomial(x: Array) -> Array:
    # cos x = sin(x + pi/2)
    turns = jnp.round(x * (1 / jnp.pi) + 0.5)
    return _alternating(_less(x, 2 * turns - 1), turns)


def _alternating(r: Array, turns: Array) -> Array:
    """The sine of `r` after a number of half turns, each of which changes its sign."""
    half = 0.5 * turns
    r = r * (1 - 4 * (half - jnp.floor(half)))
    z = r * r
    return r + r * (z * horner(_SIN_ALONE, z))


def _by_dtype(x: Array, double: Callable, other: Callable) -> Any:
    return double(x) if x.dtype == jnp.float64 else other(x)


@jax.custom_jvp
def _pair(x):
    return batch_first(*_by_dtype(x, _by_polynomials, lambda x: (jnp.sin(x), jnp.cos(x))))


@jax.custom_jvp
def _sin(x):
    return batch_first(_by_dtype(x, _sin_by_polynomial, jnp.sin))[0]


@jax.custom_jvp
def _cos(x):
    return batch_first(_by_dtype(x, _cos_by_polynomial, jnp.cos))[0]


# The rules evaluate the pair, which value and tangents share.
@_pair.defjvp
def _(primals, tangents):
    s, c = stored(*_jitted_pair(*primals))
    (dx,) = tangents
    return (s, c), (c * dx, -s * dx)


@_sin.defjvp
def _(primals, tangents):
    s, c = stored(*_jitted_pair(*primals))
    return s, c * tangents[0]


@_cos.defjvp
def _(primals, tangents):
    s, c = stored(*_jitted_pair(*primals))
    return c, -s * tangents[0]


# Equal calls of a jitted function are one traced program, and `once` merges them.
_jitted_pair, _jitted_sin, _jitted_cos = map(jax.jit, (_pair, _sin, _cos))


def sincos(x: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    r"""Sine and cosine, $(\sin x, \cos x)$, for the vector fields of batches on a CPU. Differentiable to any order.

    In float64, XLA evaluates `jnp.sin` and `jnp.cos` of an array one element at a time on a CPU, and this pair of polynomials in
    vectors: seven times as fast in a batch. Where only one of the two is needed, {py:func}`hyjax.fast.sin` or
    {py:func}`hyjax.fast.cos` is cheaper.

    **Arguments:** `x`: rad, any shape. **Returns:** two arrays of the same shape, to 1.5 units of the last place for
    $|x| < 10^3$ rad and to 2.1 for $|x| < 10^6$ rad, measured. Beyond, the reduction loses digits in proportion to $|x|$, all of
    them from $10^{15}$ rad, where the values may exceed 1; where $x$ is not finite, both are NaN. In every other dtype they are
    `jnp.sin` and `jnp.cos`.

    **Example:**

    >>> sine, cosine = hj.fast.sincos(jnp.array([0.0, jnp.pi / 6]))
    >>> print(sine, cosine)
    [0.  0.5] [1.        0.8660254]

    Source: Cody, Waite (1980), *Software Manual for the Elementary Functions*, for the reduction.
    """
    return _jitted_pair(jnp.asarray(x))


def sin(x: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Sine, $\sin x$, for the vector fields of batches on a CPU; by one polynomial, where {py:func}`hyjax.fast.sincos` takes
    two.

    **Arguments:** `x`: rad, any shape. **Returns:** an array of the same shape, to 1.8 units of the last place for $|x| < 10^3$
    rad and to 2.1 for $|x| < 10^6$ rad, measured; derivatives, large and infinite `x`, and other dtypes as for
    {py:func}`hyjax.fast.sincos`. Its value may differ in the last place from that of the pair, which is evaluated where a
    derivative is taken.

    **Example:**

    >>> print(hj.fast.sin(jnp.array([0.0, jnp.pi / 6])))
    [0.  0.5]

    Source: Cody, Waite (1980), *Software Manual for the Elementary Functions*, for the reduction.
    """
    return _jitted_sin(jnp.asarray(x))


def cos(x: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Cosine, $\cos x = \sin(x + \pi/2)$, for the vector fields of batches on a CPU; by one polynomial.

    **Arguments:** `x`: rad, any shape. **Returns:** an array of the same shape; accuracy, derivatives, how it fails and what
    differs from the pair, as for {py:func}`hyjax.fast.sin`.

    **Example:**

    >>> print(hj.fast.cos(jnp.array([0.0, jnp.pi / 3])))
    [1.  0.5]

    Source: Cody, Waite (1980), *Software Manual for the Elementary Functions*, for the reduction.
    """
    return _jitted_cos(jnp.asarray(x))
