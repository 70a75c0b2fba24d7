r"""One-sided Lipschitz constants along a step of Euler's method: what is known about the vector field near the step."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

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
