"""Orthonormal tangent vectors, and how much they had grown."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def orthonormal(tangents: Float[Array, "count size"]) -> tuple[Float[Array, "count size"], Float[Array, " count"]]:
    """Orthonormal rows that span what the rows span, and the logarithms of their growth: $V = QR$ and $\\log |R_{ii}|$.

    A row that is a combination of those before it, up to rounding, becomes zero and stays so; its logarithm is `-inf`. Twice the
    modified method of Gram and Schmidt: orthogonal to rounding, in plain JAX.
    """
    rows, grown = [], []
    largest = jnp.sqrt(jnp.max(jnp.sum(tangents**2, axis=1)))
    bound = tangents.shape[1] * jnp.finfo(tangents.dtype).eps * largest
    for row in tangents:
        for _ in range(2):
            for known in rows:
                row = row - known * (known @ row)
        length = jnp.sqrt(row @ row)
        there = length > bound
        safe = jnp.where(there, length, 1)
        rows.append(jnp.where(there, row / safe, 0))
        grown.append(jnp.where(there, jnp.log(safe), -jnp.inf))
    return jnp.stack(rows), jnp.stack(grown)
