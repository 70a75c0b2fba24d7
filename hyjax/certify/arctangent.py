r"""Inverse trigonometric functions of floats, enclosed.

**Reduction.** The angle $\theta$ of a point $(x, y)$, $x, y \ge 0$, is within $\pi/16$ of one of $\theta_j = j\pi/8$, $j = 0,
\ldots, 4$. With $c_j$, a float near $\tan\theta_j$, and the angle $\theta_j$ taken for that float, as a sum of two,

$$\theta = \theta_j + \arctan t, \quad t = \frac{y - c_jx}{x + c_jy}\ (j < 4), \quad t = -\frac xy\ (j = 4), \quad |t| < 0.199 .$$

$\arctan a$ is the angle of $(1, |a|)$, $\arcsin a$ that of $(\sqrt{(1 - a)(1 + a)}, |a|)$ and $\arccos a$ is twice that of
$(\sqrt{1 + a}, \sqrt{1 - a})$.

**Polynomial.** $\arctan t = t + t(zP(z))$, $z = t^2 \le 0.0396$, Taylor's up to $t^{23}$. It alternates: the remainder is less
than $0.0396^{12}/25 < 10^{-18}$ of it.

**Rounding.** $t$ has $u|t|$ each by the difference, the quotient and twice the denominator, and $0.6u$ by the product $c_jx$
where $j = 1, 2, 3$ and $x \ne 1$. $\arctan t$ has $1.08u|t|$ by its evaluation, the sum with the lesser part of $\theta_j$
$u|t|$, the last sum $u\theta$: $u\theta + 6.1u|t|$, and $0.6u < 3.1u\theta$. A relative error $\epsilon$ of $y/x$ adds
$\epsilon\sin\theta\cos\theta \le \epsilon\theta$: $5.1u$ for the arc sine (root $3.6u$, its argument $3u$, halved), $8.2u$ for
the arc cosine. The radii are three times these: $4u\theta + 18.4u|t|$, and $25u\theta$, $34u\theta$ more.

Source: Cody, Waite (1980), *Software Manual for the Elementary Functions*, ch. 11, for the reduction; Kahan (1987), *Branch cuts
for complex elementary functions*, for the arc sine and the arc cosine.
"""

import functools as ft

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .polynomials import horner
from .roots import root
from .rounding import enclosure, EPS, points, UNSURE, up

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
# Copies of a root are further apart than those of its argument: where it is small, and in the uses of its start.
_OF_ROOTS = 128.0

Floats = Float[Array, "..."]


def _angle(x: Floats | float, y: Floats, width: float) -> tuple[Floats, Floats, Bool[Array, "..."]]:
    """The angle of (x, y), |t|, and whether copies of the case may differ; x and y not negative, not both zero.

    `width`: of the neighbourhood of a threshold, in units of `UNSURE`.
    """
    beyond = [y > threshold * x for threshold in _THRESHOLDS]

    def chosen(values):
        choice = jnp.full_like(y, values[0])
        for each, value in zip(beyond, values[1:], strict=False):
            choice = jnp.where(each, value, choice)
        return choice

    tangent = chosen(_TANGENTS)
    t = jnp.where(beyond[3], -x, y - tangent * x) / jnp.where(beyond[3], y, x + tangent * y)
    z = t * t
    angle = chosen([high for high, _ in _ANGLES]) + (
        chosen([low for _, low in _ANGLES]) + (t + t * (z * horner(_ATAN, z)))
    )
    near = [jnp.abs(y - threshold * x) < width * UNSURE * (x + y) for threshold in _THRESHOLDS]
    return angle, jnp.abs(t), ft.reduce(jnp.logical_or, near)


def _radius(angle: Floats, t: Floats, unsure: Bool[Array, "..."], more: float) -> Floats:
    """Of the angle; `more`: for the errors of x and y, in units of EPS. 1 where copies of the case may differ."""
    return jnp.where(unsure, 1, up(EPS * ((1 + more) * jnp.abs(angle) + 4.6 * t)))


@jax.jit
def atan(a: Floats) -> tuple[Floats, Floats]:
    r"""The arc tangent with its radius, $|\arctan a - \text{value}| \le \text{radius}$.

    **Arguments:** `a`: float64, any shape.
    **Returns:** `(value, radius)`. The radius is between $2^{-51}$ and $2^{-48.5}$ of the value, also near 0 and at $\pm\infty$.
    It is infinite for NaN, and 1 within $10^{-9}$ of the tangent of an odd multiple of $\pi/16$. Source: see the module.
    """
    a = points(a)
    angle, t, unsure = _angle(1.0, jnp.abs(a), 2.0)
    return enclosure(jnp.where(a < 0, -angle, angle), _radius(angle, t, unsure, 0.0), ~jnp.isnan(a))


@jax.jit
def asin(a: Floats) -> tuple[Floats, Floats]:
    r"""The arc sine with its radius, at most $2^{-47.4}$ of the value.

    **Arguments:** `a`: float64, any shape. **Returns:** `(value, radius)`; infinite radius for $|a| > 1$ and NaN, and 1 within
    $10^{-8}$ of the sine of an odd multiple of $\pi/16$. Source: see the module.
    """
    a = points(a)
    angle, t, unsure = _angle(root((1 - a) * (1 + a), 2), jnp.abs(a), _OF_ROOTS)
    return enclosure(jnp.where(a < 0, -angle, angle), _radius(angle, t, unsure, 6.2), jnp.abs(a) <= 1)


@jax.jit
def acos(a: Floats) -> tuple[Floats, Floats]:
    r"""The arc cosine with its radius, at most $2^{-47.1}$ of the value, also near $a = 1$.

    **Arguments:** `a`: float64, any shape. **Returns:** `(value, radius)`; infinite radius for $|a| > 1$ and NaN, and 2 within
    $10^{-8}$ of the cosine of an odd multiple of $\pi/8$. Source: see the module.
    """
    a = points(a)
    angle, t, unsure = _angle(root(1 + a, 2), root(1 - a, 2), _OF_ROOTS)
    return enclosure(2 * angle, 2 * _radius(angle, t, unsure, 8.5), jnp.abs(a) <= 1)
