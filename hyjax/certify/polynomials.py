"""Polynomials and powers of two, the parts of which the elementary functions are made."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# 1.5 * 2^52: the last bits of the sum of it and an integer k, |k| < 2^51, are those of k.
_INTEGER_BITS = 6755399441055744.0
_INTEGER_PATTERN = 0x4338000000000000


def horner(coefficients: tuple[float, ...], z: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""$\sum_i c_i z^i$, from the last coefficient down.

    Where the moduli of the terms fall by the factor $\theta$ or faster, the rounding is at most $2u|c_0| / (1 - \theta)^2$: the
    term $i$ passes the rounding of its coefficient, $i$ products and $i + 1$ sums, and $\sum_i (2i + 2)\theta^i$ is that.
    """
    total = jnp.full_like(z, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * z + coefficient
    return total


def integer(k: Float[Array, "..."]) -> Int[Array, "..."]:
    """An integer-valued float, |k| < 2^50, as an integer of 64 bits that is right in its last 51."""
    return jax.lax.bitcast_convert_type(k + _INTEGER_BITS, jnp.int64)


def floating(n: Int[Array, "..."]) -> Float[Array, "..."]:
    """An integer, |n| < 2^50, as a float; exact."""
    return jax.lax.bitcast_convert_type(n + _INTEGER_PATTERN, jnp.float64) - _INTEGER_BITS


def power_of_two(k: Float[Array, "..."]) -> Float[Array, "..."]:
    """2^k by its exponent's bits, for an integer-valued float -1022 <= k <= 1023; exact."""
    return jax.lax.bitcast_convert_type((integer(k) + 1023) << 52, jnp.float64)
