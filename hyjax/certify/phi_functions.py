r"""The functions $\varphi_k(z) = \sum_{j \ge 0} z^j/(j+k)!$: the integrals of $e^{z(1-s)} s^{k-1}/(k-1)!$ over $[0, 1]$.

$\varphi_0 = e^z$ and $\varphi_{k+1} = (\varphi_k - 1/k!)/z$, a difference that cancels to nothing for small $z$.

Source: Hochbruck, Ostermann (2010), *Exponential integrators*, Acta Numerica 19, eq. 2.10.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

Values = Float[Array, "*batch"]

# For |z| <= 1 the first term left out, z^18/(18 + k)!, is below rounding.
TERMS = 18


def phi_functions(z: Values) -> tuple[Values, Values, Values]:
    r"""$\varphi_1(z), \varphi_2(z), \varphi_3(z)$ to a few units in the last place, for any real $z$; all are positive."""
    near = jnp.abs(z) <= 1
    small, large = jnp.where(near, z, 0), jnp.where(near, 1, z)
    first = jnp.expm1(large) / large
    second = (first - 1) / large
    third = (second - 0.5) / large
    chosen = zip((1, 2, 3), (first, second, third), strict=True)
    one, two, three = (jnp.where(near, _series(small, k), direct) for k, direct in chosen)
    return one, two, three


def _series(z: Values, k: int) -> Values:
    """The first terms of the series, by Horner's rule."""
    total = jnp.zeros_like(z)
    for j in reversed(range(TERMS)):
        total = total * z + 1 / math.factorial(j + k)
    return total
