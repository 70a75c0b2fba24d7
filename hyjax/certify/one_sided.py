r"""One-sided Lipschitz constants along a step of Euler's method: what is known about the vector field near the step."""

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from .._system.types import Matrix, Scalar, State, Time

VectorField = Callable[[Time, State], State]


class StepConstants(NamedTuple):
    r"""Constants of one step of Euler's method, from a `OneSidedLipschitz`.

    **Attributes:** `osl`: $\lambda$ with $\langle f(t, x) - f(t, y), x - y\rangle \le \lambda|x - y|^2$, per unit of time.
    `slope`: the largest rate of change of $f$ along the step, in the unit of the state per time squared. `error`: the largest
    error of the computed vector field at the start of the step, in the unit of the state per time.
    """

    osl: Scalar
    slope: Scalar
    error: Scalar


class OneSidedLipschitz(eqx.Module):
    """An estimate of the constants of a step, for `euler_tube`; one in outward-rounded arithmetic makes the tube rigorous.

    **Methods:** a subclass defines `reasons`, a property, and `constants(field, t, x, tau, reach) -> StepConstants`.
    """

    @property
    @abc.abstractmethod
    def reasons(self) -> tuple[str, ...]:
        """Why the constants are no upper bounds, a sentence each; none for constants that are proved."""

    @abc.abstractmethod
    def constants(self, field: VectorField, t: Time, x: State, tau: Scalar, reach: Scalar) -> StepConstants:
        r"""The constants of the step from `x` at the time `t`, of the length `tau`.

        Without `reasons`, $\lambda$ holds for all pairs in the ball of radius `reach` about `x`, at all times from `t` to `t +
        tau`, both widened by their rounding; and `slope` bounds $|\tfrac{d}{ds}f(t + s, x + s v)|$ for $0 \le s \le \tau$, where
        $v$ is the computed $f(t, x)$.
        """


class LogarithmicNorm(OneSidedLipschitz):
    r"""The logarithmic norm of the Jacobian at the Euler point, $\mu_2(J) = \max\operatorname{eig}\tfrac12(J + J^\top)$.

    The least one-sided Lipschitz constant on a convex set is the largest $\mu_2(J)$ on it. Here it is taken at one point: it
    lacks the change of $J$ over the ball and along the step. `slope`: $\|J\|_2\,|f| + |D_tf|$, at that point too.

    **Arguments:** none.

    Source: Söderlind (2006), *The logarithmic norm. History and modern theory*, BIT 46, 631-652.
    """

    @property
    def reasons(self) -> tuple[str, ...]:
        return ("The logarithmic norm is that at the Euler point: no bound over the ball about it and along the step.",)

    def constants(self, field: VectorField, t: Time, x: State, tau: Scalar, reach: Scalar) -> StepConstants:
        jacobian, slope = _jacobian_and_slope(field, t, x)
        return StepConstants(jnp.linalg.eigvalsh((jacobian + jacobian.T) / 2)[-1], slope, jnp.zeros_like(slope))


class RadialQuotient(OneSidedLipschitz):
    r"""The Rayleigh quotient of the Jacobian along the state, $\lambda = x^\top J x/|x|^2$; 0 at $x = 0$.

    It is the growth of the distance between $x$ and $(1 + a)x$, $a \to 0$: of one direction. A one-sided Lipschitz constant
    bounds the growth in all directions, and is never less than the largest real part of an eigenvalue of $J$, in whatever norm
    (defect D1 in `docs/orbitador.md`). `slope`: as for `LogarithmicNorm`. For comparison with published numbers only.

    **Arguments:** none.
    """

    @property
    def reasons(self) -> tuple[str, ...]:
        return (
            "D1: the radial quotient is the growth along the state alone; a one-sided Lipschitz constant bounds that in "
            "every direction.",
        )

    def constants(self, field: VectorField, t: Time, x: State, tau: Scalar, reach: Scalar) -> StepConstants:
        jacobian, slope = _jacobian_and_slope(field, t, x)
        squared = x @ x
        quotient = jnp.where(squared > 0, x @ jacobian @ x / jnp.where(squared > 0, squared, 1), 0)
        return StepConstants(quotient, slope, jnp.zeros_like(slope))


def _jacobian_and_slope(field: VectorField, t: Time, x: State) -> tuple[Matrix, Scalar]:
    r"""The Jacobian, and $\|J\|_2\,|f| + |D_tf|$."""
    jacobian = jax.jacfwd(field, argnums=1)(t, x)
    rate, drift = jax.jvp(lambda t: field(t, x), (t,), (jnp.ones_like(t),))
    largest = jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(jacobian.T @ jacobian)[-1], 0))
    return jacobian, largest * size(rate) + size(drift)


def size(vector: State) -> Scalar:
    """The Euclidean norm."""
    return jnp.sqrt(vector @ vector)
