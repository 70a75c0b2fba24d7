r"""Sine and cosine of floats, enclosed.

**Reduction.** $k = \mathrm{round}(2a/\pi + \tfrac1{64})$, $r = a - k\pi/2$, with $\pi/2 = c_1 + c_2 + c_3 + c_4$: $c_1$ and $c_2$
have 33 bits, so $kc_1$ and $kc_2$ are exact for $|k| < 2^{20}$, as one operation with the difference or as two; $|c_4| <
1.1\cdot10^{-37}$. For $k \ne 0$, $|a| > \tfrac12$ is a multiple of $2^{-53}$, and $|a - kc_1| < 1$, so that difference is exact
too. The next two round: $|\hat r - r| \le 2.01u|r| + 6\cdot10^{-37}|k|$. The shift by $\tfrac1{64}$ keeps $\pi/4$ away from the
threshold of $k$; $|r| \le 0.81$.

**Polynomials.** Taylor's, $z = r^2$: $\sin r = r + r(zS(z))$ up to $r^{17}$, $\cos r = 1 - (\tfrac z2 - z^2C(z))$ up to $r^{16}$.
They alternate, so the first term left out bounds the remainder: $0.81^{18}/19! < 2\cdot10^{-19}$ of $r$, and $0.81^{18}/18! <
4\cdot10^{-18}$.

**Rounding.** Of the sine, relative to it: $zS$, at most 0.106, has $0.45u$ (Horner $0.23u$, the square $0.11u$, a product
$0.11u$); with the product by $r$, $0.56u$ of $r \le 1.12\sin r$; the sum $u$; the reduction $2.01u$, as $r\cot r \le 1$. In all
$3.7u$. Of the cosine, at least 0.689: the square $0.29u$, $z^2C$ $0.08u$, the difference $0.31u$, which are $0.99u$ of it; the
sum $u$; the reduction $2.01u\,r\tan r \le 1.71u$; the remainder $0.05u$. In all $3.8u$.

The radius is $12u|\text{value}| + 2^{-118}|k| + 10^{-290}$, three times that: relative $2^{-49.4}$, also at the zeros.

Source: Cody, Waite (1980), *Software Manual for the Elementary Functions*, ch. 8; Muller (2016), *Elementary Functions*, 3rd ed.,
ch. 11, for the reduction.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .polynomials import horner, integer
from .rounding import enclosure, EPS, points, UNSURE, up

_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
_SIN = tuple((-1) ** (i + 1) / math.factorial(2 * i + 3) for i in range(8))
_COS = tuple((-1) ** i / math.factorial(2 * i + 4) for i in range(7))
# The radii end at the first, the values at the second, the reduction at the third: each is right beyond the one before.
_RANGE, _VALUES, _REDUCED = 1.0e6, 1.1e6, 1.2e6

Floats = Float[Array, "..."]


@jax.jit
def sin_cos(a: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    r"""Sine and cosine with their radii, $|\sin a - s| \le r_s$ and $|\cos a - c| \le r_c$.

    **Arguments:** `a`: rad, float64, any shape.
    **Returns:** `(s, r_s, c, r_c)`, of the same shape. The radii are $2^{-49.4}$ of the values for $|a| \le 10^6$. Beyond, they
    are 1, and the values 0 from $1.1\cdot10^6$; where `a` is not finite, the radii are infinite. At an argument within $10^{-11}$
    of a threshold of the reduction, an odd multiple of $\pi/4$ less 0.0245, the radii are 2.5.
    Source: see the module.
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
    odd, near = (turns & 1) != 0, jnp.abs(a) < _VALUES
    s = jnp.where(odd, cosine, sine)
    c = jnp.where(odd, sine, cosine)
    s = jnp.where(near, jnp.where((turns & 2) != 0, -s, s), 0)
    c = jnp.where(near, jnp.where(((turns + 1) & 2) != 0, -c, c), 0)
    # All copies of t are within 2^-50 |t| and the copies of `a` of one another.
    unsure = jnp.abs(t - k) > 0.5 - UNSURE - 2.0**-50 * jnp.abs(t)
    inside, finite = jnp.abs(a) < _RANGE, jnp.abs(a) < jnp.inf

    def radius(value):
        small = up(3 * EPS * jnp.abs(value) + 2.0**-118 * jnp.abs(k))
        return jnp.where(unsure, 2.5, jnp.where(inside, small, 1))

    return (*enclosure(s, radius(s), finite), *enclosure(c, radius(c), finite))
