r"""Sine and cosine together, in plain arithmetic.

On a CPU, XLA evaluates the float64 `sin` and `cos` of an array one element at a time. This pair is ordinary
multiplication and addition, which XLA vectorizes: several times faster in a batch.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .stored import batch_first, stored

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
# pi/2 in parts of 33 bits: the product of a part with an integer below 2^20 is exact (Cody and Waite, 1980).
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)


def _horner(coefficients: tuple[float, ...], z: Array) -> Array:
    total = jnp.full_like(z, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * z + coefficient
    return total


# Jitted by itself, so that it is traced once: derivatives of a flow call it dozens of times.
@jax.jit
def _by_polynomials(x: Array) -> tuple[Array, Array]:
    quadrant = jnp.round(x * (2 / jnp.pi))
    r = x
    for part in _HALF_PI:
        r = r - quadrant * part
    z = r * r
    sine = r + r * (z * _horner(_SIN, z))
    cosine = 1 - (0.5 * z - z * z * _horner(_COS, z))
    q = quadrant - 4 * jnp.floor(quadrant / 4)
    odd = (q == 1) | (q == 3)
    s = jnp.where(odd, cosine, sine)
    c = jnp.where(odd, sine, cosine)
    return jnp.where(q >= 2, -s, s), jnp.where((q == 1) | (q == 2), -c, c)


def _values(x):
    return (jnp.sin(x), jnp.cos(x)) if x.dtype != jnp.float64 else _by_polynomials(x)


@jax.custom_jvp
def _pair(x):
    return batch_first(*_values(x))


@_pair.defjvp
def _(primals, tangents):
    s, c = stored(*_jitted_pair(*primals))
    (dx,) = tangents
    return (s, c), (c * dx, -s * dx)


# Equal calls of a jitted function are one traced program, and `once` merges them.
_jitted_pair = jax.jit(_pair)


def sincos(x: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    r"""Sine and cosine, $(\sin x, \cos x)$, for the vector fields of batches on a CPU. Differentiable to any order.

    In float64, XLA evaluates `jnp.sin` and `jnp.cos` of an array one element at a time on a CPU, and this pair of polynomials in
    vectors: seven times as fast in a batch.

    **Arguments:** `x`: rad, any shape. **Returns:** two arrays of the same shape, to 1.5 units of the last place for
    $|x| < 10^3$ rad and to 2.1 for $|x| < 10^6$ rad, measured. Beyond, the reduction loses digits in proportion to $|x|$; where
    $x$ is not finite, both are NaN. In float32 they are `jnp.sin` and `jnp.cos`.

    **Example:**

    >>> sine, cosine = hj.sincos(jnp.array([0.0, jnp.pi / 6]))
    >>> print(sine, cosine)
    [0.  0.5] [1.        0.8660254]

    Source: Cody, Waite (1980), *Software Manual for the Elementary Functions*, for the reduction.
    """
    return _jitted_pair(x)
