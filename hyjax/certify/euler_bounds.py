r"""What is known of a step of Euler's method: one-sided Lipschitz constants of the vector field near the step; and the radius of
the tube about it, bounds on the distance of a solution from the step.

A step $\tilde x(t) = \tilde x_0 + t f(\tilde x_0)$ and a solution $\dot x = f(x) + w$, $|w| \le b$, at the distance $e = |x -
\tilde x|$ from it. With a one-sided Lipschitz constant $\lambda$, $\langle f(x) - f(y), x - y\rangle \le \lambda|x - y|^2$, and
$C$, a bound on the rate at which $f$ changes along the step,

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

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._system.types import Matrix, Scalar, State, Time

VectorField = Callable[[Time, State], State]
StepConstants = tuple[Scalar, Scalar, Scalar]


class OneSidedLipschitz(eqx.Module):
    r"""An estimate of the constants of a step, for `euler_tube`; one in outward-rounded arithmetic makes the tube rigorous.

    **Arguments:** `constants`: `(field, t, x, tau, reach) -> (osl, slope, error)`, for the step from `x` at the time `t`, of the
    length `tau`: $\lambda$ with $\langle f(t, x) - f(t, y), x - y\rangle \le \lambda|x - y|^2$, per unit of time; the largest
    rate of change of $f$ along the step, in the unit of the state per time squared; the largest error of the computed vector
    field at the start of the step, in the unit of the state per time. `reasons`: why the constants are no upper bounds, a
    sentence each. Without, they are proved: $\lambda$ holds for all pairs in the ball of radius `reach` about `x`, at all times
    from `t` to `t + tau`, both widened by their rounding; and the slope bounds $|\tfrac{d}{ds}f(t + s, x + s v)|$ for $0 \le s
    \le \tau$, where $v$ is the computed $f(t, x)$.

    **Example:**

    >>> # Of x' = -x, in the ball of radius 2.
    >>> known = hj.certify.OneSidedLipschitz(lambda field, t, x, tau, reach: (-1.0 + 0 * t, 2.0 + 0 * t, 1e-15 + 0 * t))
    >>> decay = hj.HybridSystem({"flow": hj.Mode(lambda t, x, p: -x, ("x",))}, ())
    >>> hj.certify.euler_tube(decay, jnp.ones(1), None, tau=0.01, steps=100, radius=0.1, osl=known).sound
    True
    """

    constants: Callable[[VectorField, Time, State, Scalar, Scalar], StepConstants] = eqx.field(static=True)
    reasons: tuple[str, ...] = eqx.field(static=True, default=())


def logarithmic_norm() -> OneSidedLipschitz:
    r"""The logarithmic norm of the Jacobian at the Euler point, $\mu_2(J) = \max\operatorname{eig}\tfrac12(J + J^\top)$.

    The least one-sided Lipschitz constant on a convex set is the largest $\mu_2(J)$ on it. Here it is taken at one point: it
    lacks the change of $J$ over the ball and along the step. The slope is $\|J\|_2\,|f| + |D_tf|$, at that point too.

    **Returns:** an `OneSidedLipschitz` with the reason why it is no proof; its constants are NaN where the Jacobian is.

    **Example:**

    >>> spiral = lambda t, x, p: jnp.stack([-x[0] - x[1], x[0] - x[1]])
    >>> system = hj.HybridSystem({"flow": hj.Mode(spiral, ("x", "y"))}, ())
    >>> tube = hj.certify.euler_tube(system, jnp.array([1.0, 0.0]), None, tau=0.01, steps=100, radius=0.1,
    ...     osl=hj.certify.logarithmic_norm())
    >>> print(f"{tube.osl_sums[-1] / 100:.6f}")
    -1.000000

    Source: Söderlind (2006), *The logarithmic norm. History and modern theory*, BIT 46, 631-652.
    """
    return OneSidedLipschitz(
        _logarithmic_norm,
        ("The logarithmic norm is that at the Euler point: no bound over the ball about it and along the step.",),
    )


def radial_quotient() -> OneSidedLipschitz:
    r"""The Rayleigh quotient of the Jacobian along the state, $\lambda = x^\top J x/|x|^2$; 0 at $x = 0$.

    It is the growth of the distance between $x$ and $(1 + a)x$, $a \to 0$: of one direction. A one-sided Lipschitz constant
    bounds the growth in all directions, and is never less than the largest real part of an eigenvalue of $J$, in whatever norm
    (defect D1 in `docs/orbitador.md`). The slope is that of `logarithmic_norm`. For comparison with published numbers only.

    **Returns:** an `OneSidedLipschitz` with the reason why it is no proof; its constants are NaN where the Jacobian is.

    **Example:**

    >>> spiral = lambda t, x, p: jnp.stack([-x[0] - x[1], x[0] - x[1]])
    >>> system = hj.HybridSystem({"flow": hj.Mode(spiral, ("x", "y"))}, ())
    >>> tube = hj.certify.euler_tube(system, jnp.array([1.0, 0.0]), None, tau=0.01, steps=100, radius=0.1,
    ...     osl=hj.certify.radial_quotient())
    >>> print(f"{tube.osl_sums[-1] / 100:.6f}")
    -1.000000
    """
    return OneSidedLipschitz(
        _radial_quotient,
        (
            "D1: the radial quotient is the growth along the state alone; a one-sided Lipschitz constant bounds that in "
            "every direction.",
        ),
    )


def _logarithmic_norm(field: VectorField, t: Time, x: State, tau: Scalar, reach: Scalar) -> StepConstants:
    jacobian, slope = _jacobian_and_slope(field, t, x)
    return jnp.linalg.eigvalsh((jacobian + jacobian.T) / 2)[-1], slope, jnp.zeros_like(slope)


def _radial_quotient(field: VectorField, t: Time, x: State, tau: Scalar, reach: Scalar) -> StepConstants:
    jacobian, slope = _jacobian_and_slope(field, t, x)
    squared = x @ x
    quotient = jnp.where(squared > 0, x @ jacobian @ x / jnp.where(squared > 0, squared, 1), 0)
    return quotient, slope, jnp.zeros_like(slope)


def _jacobian_and_slope(field: VectorField, t: Time, x: State) -> tuple[Matrix, Scalar]:
    r"""The Jacobian, and $\|J\|_2\,|f| + |D_tf|$."""
    jacobian = jax.jacfwd(field, argnums=1)(t, x)
    rate, drift = jax.jvp(lambda t: field(t, x), (t,), (jnp.ones_like(t),))
    largest = jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(jacobian.T @ jacobian)[-1], 0))
    return jacobian, largest * size(rate) + size(drift)


def size(vector: State) -> Scalar:
    """The Euclidean norm of a vector."""
    return jnp.sqrt(vector @ vector)


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
