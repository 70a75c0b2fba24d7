r"""The radius of the tube about a step of Euler's method: bounds on the distance of a solution from the step.

A step $\tilde x(t) = \tilde x_0 + t f(\tilde x_0)$ and a solution $\dot x = f(x) + w$, $|w| \le b$, at the distance
$e = |x - \tilde x|$ from it. With a one-sided Lipschitz constant $\lambda$, $\langle f(x) - f(y), x - y\rangle \le
\lambda|x - y|^2$, and $C$, a bound on the rate at which $f$ changes along the step,

$$e\,\dot e \le \lambda e^2 + (b + Ct)\,e .$$

The bounds hold where $\lambda$ holds between every solution in the tube and the step. They are published with $C = L|f(\tilde
x_0)|$, where $L$ is a Lipschitz constant, and $b = \gamma|W|/2$, where $|W|$ is the diameter of the set of disturbances and
$\gamma$ their gain.

Source: Le Coent, De Vuyst, Chamoin, Fribourg (2017), *Control synthesis of nonlinear sampled switched systems using Euler's
method*, arXiv 1704.03102; Le Coent, Alexandre dit Sandretto, Chapoutot, Fribourg, De Vuyst, Chamoin (2017), *Distributed control
synthesis using Euler's method*, LNCS 10506, 118-131, for the disturbance.
"""

import math
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

# The functions $\varphi_k(z) = \sum_{j \ge 0} z^j/(j+k)!$: the integrals of $e^{z(1-s)} s^{k-1}/(k-1)!$ over $[0, 1]$.
#
# $\varphi_0 = e^z$ and $\varphi_{k+1} = (\varphi_k - 1/k!)/z$, a difference that cancels to nothing for small $z$.
#
# Source: Hochbruck, Ostermann (2010), *Exponential integrators*, Acta Numerica 19, eq. 2.10.

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


Number = Float[ArrayLike, "..."] | float
# `radius(radius, t, osl, slope, disturbance)`: the radius after the time t.
Formula = Callable[[Number, Number, Number, Number, Number], Float[Array, "..."]]


def sharp_radius(
    radius: Number, t: Number, osl: Number, slope: Number, disturbance: Number = 0.0
) -> Float[Array, "..."]:
    r"""The radius after a time $t$ of a step: the solution of $\dot\delta = \lambda\delta + b + Ct$.

    $$\delta(t) = \delta_0\,e^{\lambda t} + b\,t\,\varphi_1(\lambda t) + C\,t^2\varphi_2(\lambda t), \qquad
      \varphi_1(z) = \frac{e^z - 1}{z}, \quad \varphi_2(z) = \frac{e^z - 1 - z}{z^2}$$

    From $e\,\dot e \le \lambda e^2 + (b + Ct)\,e$ follows $D^+e \le \lambda e + b + Ct$, so $e \le \delta$ by comparison, for
    $\lambda$ of either sign; at $\lambda = 0$ it is $\delta_0 + bt + Ct^2/2$. Never larger than `published_radius`.

    **Arguments:** numbers, or arrays that broadcast. `radius`: $\delta_0 \ge 0$, at the start of the step, in the unit of the
    state. `t`: time since then, not negative. `osl`: $\lambda$, per unit of time. `slope`: $C \ge 0$, the largest rate of change
    of $f$ along the step, in the unit of the state per time squared. `disturbance`: $b \ge 0$, the largest size of what is added
    to the vector field, in the unit of the state per time.

    **Returns:** $\delta(t)$, to a few units in the last place for any $\lambda t$; NaN where an argument is.

    **Example:**

    >>> print(f"{hj.certify.sharp_radius(0.1, 1.0, osl=-2.0, slope=0.0):.6f}, {0.1 * jnp.exp(-2.0):.6f}")
    0.013534, 0.013534

    Source: the comparison lemma, in Khalil (2002), *Nonlinear Systems*, Lemma 3.4.
    """
    radius, t, osl, slope, disturbance = map(jnp.asarray, (radius, t, osl, slope, disturbance))
    one, two, _ = phi_functions(osl * t)
    return radius * jnp.exp(osl * t) + disturbance * t * one + slope * t**2 * two


def published_radius(
    radius: Number, t: Number, osl: Number, slope: Number, disturbance: Number = 0.0
) -> Float[Array, "..."]:
    r"""The radius after a time $t$ of a step by the published formulas, one for each sign of $\lambda$.

    With $(b + Ct)\,e \le \tfrac12(\alpha e^2 + (b + Ct)^2/\alpha)$ the distance obeys $\tfrac{d}{dt}e^2 \le a e^2 + (b +
    Ct)^2/\alpha$, $a = 2\lambda + \alpha$, where

    $$\alpha = -\lambda,\ a = \lambda \ (\lambda < 0); \qquad \alpha = a = 1 \ (\lambda = 0); \qquad
      \alpha = \lambda,\ a = 3\lambda \ (\lambda > 0),$$

    $$\delta(t)^2 = \delta_0^2\,e^{at} + \frac1\alpha\big(b^2\,t\,\varphi_1(at) + 2Cb\,t^2\varphi_2(at)
      + 2C^2t^3\varphi_3(at)\big).$$

    These are the published formulas term by term, without their cancellation for small $\lambda t$. They are not continuous at
    $\lambda = 0$: as $\lambda \to 0$ the factor $1/\alpha$ grows without bound, unless $b = C = 0$. Over many steps without
    disturbance they contract where $\sum_{\lambda < 0}\lambda + 3\sum_{\lambda > 0}\lambda < 0$, not where $\sum\lambda < 0$.

    **Arguments** and **Returns:** as for `sharp_radius`.

    **Example:**

    >>> print(f"{hj.certify.published_radius(0.1, 1.0, osl=-2.0, slope=0.0):.6f}, {0.1 * jnp.exp(-1.0):.6f}")
    0.036788, 0.036788

    Source: Le Coent, De Vuyst, Chamoin, Fribourg (2017), arXiv 1704.03102; with the disturbance Le Coent, Alexandre dit
    Sandretto, Chapoutot, Fribourg, De Vuyst, Chamoin (2017), LNCS 10506, 118-131.
    """
    t, osl = jnp.asarray(t), jnp.asarray(osl)
    young = jnp.where(osl == 0, 1, jnp.abs(osl))
    rate = jnp.where(osl > 0, 3 * osl, jnp.where(osl < 0, osl, 1))
    one, two, three = phi_functions(rate * t)
    added = disturbance**2 * t * one + 2 * slope * disturbance * t**2 * two + 2 * slope**2 * t**3 * three
    return jnp.sqrt(radius**2 * jnp.exp(rate * t) + added / young)
