r"""The floating-point model of the enclosures, and the constants that bound its errors.

An enclosure is a pair of floats, a value and a radius, for a real number $x$: $|x - \text{value}| \le \text{radius}$. What is
assumed of the machine and of the compiler:

1. Numbers are IEEE binary64, and one operation $+, -, \cdot, /$ gives $(a \circ b)(1 + \epsilon) + \eta$ with $|\epsilon| \le u$,
   $u = 2^{-53}$ (`UNIT` is slightly more), and $|\eta| \le 2^{-1022}$. Rounding to integers, comparisons, choices, signs and
   operations on the bits of a number are exact, comparisons up to 3.
2. A product and a sum may be one operation (a fused multiply-add) or two, sums of many terms may be taken in any order, and a
   division by a constant may be a product with its inverse, $\epsilon \le 2.5u$.
3. Results below $2^{-1022}$ may be flushed to zero, or not. So may operands: where one is flushed, $|\eta| \le 2^{-1022}$ times
   the other factor. `TINY` covers factors up to $10^{17}$.
4. An expression that occurs several times in a program is not one number. The compiler may evaluate it again wherever it is
   used, fused there with other operations: each use sees a copy, and each copy is one that 1 to 3 admit. XLA (jax 0.10 on a CPU)
   does so, and `jax.lax.optimization_barrier` does not prevent it: the barrier is gone before operations are fused.

Nothing is assumed of the library's functions (`jnp.sin`, `jnp.exp`, `jnp.sqrt`). Excluded are compilations that round otherwise
(`xla_cpu_enable_fast_math`), and processors without binary64.

The rule of this folder follows from 4. A value and its radius are two expressions, and the bound must hold for *every* admissible
evaluation of the two. Three consequences:

- No residual: the error of a sum or product is never obtained by subtracting a second copy of it (TwoSum, TwoProduct, a Newton
  correction). Exact are only products of short numbers and differences of near ones, with fused operations or without.
- The radius is at least three times the deviation that is proved of the value. Two copies of the value differ by up to twice that
  deviation, so where a copy is used as a number the radius, taken about the copy, still holds $x$.
- A choice (the integer of an argument reduction, a case) may turn out differently in two copies of its argument. Where two
  outcomes within `UNSURE` of the threshold would not fit together, the radius is large; where they fit, both are right. So values
  are right beyond the place where their radii end, and what tells the neighbourhood of a threshold sees the chosen number once.

With copies of an argument $a_1, a_2, \ldots$ within $\delta$ of a real number $\alpha$, the functions of `elementary` obey
$|f(\alpha) - \text{value}| \le \text{radius} + 32\,\delta\sup|f'|$ over that neighbourhood, for $\delta \le$ `UNSURE` / 4
(relative to $\alpha$ for `log`). With $\delta = 0$ this is the statement for a number. A computed argument has a
$\delta > 0$: its product with a constant may be fused into the function's reduction, which then sees the product before it is
rounded.

Source: Higham (2002), *Accuracy and Stability of Numerical Algorithms*, ch. 2 and 3, for the model and for sums in any order;
Rump (1999), *Fast and parallel interval arithmetic*, BIT 39, for midpoint and radius.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

# The rounding of one operation, 2^-53, with its higher powers in all sums of fewer than 2^30 terms.
UNIT = 2.0**-53 * (1 + 2.0**-20)
# A relative bound of one operation, four times its rounding: the copies of a value, and a division by a constant.
EPS = 2.0**-51
# An absolute bound of one operation, for what is flushed to zero.
TINY = 1e-290
# The neighbourhood of a choice's threshold in which its outcome may differ between copies.
UNSURE = 2.0**-36
LARGEST = float(np.finfo(np.float64).max)

# Of JAX, of NumPy, or one.
_Numbers = TypeVar("_Numbers", Array, np.ndarray, float)


def up(radius: _Numbers, n: int = 1) -> _Numbers:
    r"""An upper bound of an expression of non-negative terms by sums, products and quotients, of about $8n$ roundings.

    $r\,(1 + 8n\,2^{-51}) + 10^{-290}$: the roundings change $r$ by at most the factor $(1 + u)^{8n}$, of which this is four times
    the logarithm; the factor's own two roundings, and roundings by $2.5u$, are within the rest. Terms that are flushed to zero
    are less than $10^{-290}$ in all, as long as later factors are below $10^{17}$. Infinite stays infinite.
    """
    return radius * (1 + 8 * n * EPS) + TINY


def points(a) -> Float[Array, "..."]:
    """`a` as an array of float64. `ValueError` for another precision: the bounds are those of binary64."""
    a = jnp.asarray(a)
    if a.dtype != jnp.float64:
        raise ValueError(f"Enclosures need float64, not {a.dtype}: set jax.config.update('jax_enable_x64', True).")
    return a


def not_negative(a: Float[Array, "..."]) -> Bool[Array, "..."]:
    """Whether `a` is zero or positive, by its bits: in a comparison of floats a negative subnormal number may count as zero."""
    bits = jax.lax.bitcast_convert_type(a, jnp.int64)
    return (bits >= 0) | (bits == jnp.iinfo(jnp.int64).min)


def enclosure(
    value: Float[Array, "..."], radius: Float[Array, "..."], known: Bool[Array, "..."]
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """The value and the radius, the radius infinite where `known` is false or one of them is not finite; never NaN.

    `known` must be false also near the places where the value fails, because a copy of it may fail there.
    """
    finite = jnp.abs(value) <= LARGEST
    return jnp.where(finite, value, 0), jnp.where(known & finite & (radius <= LARGEST), radius, jnp.inf)
