r"""The state between the ends of a solver step, as a polynomial in the fraction $v$ of the step.

$x(v) = x_0 + \sum_j d_j v^j$, for an explicit Runge-Kutta method from its stages by the dense output that diffrax gives for the
method, otherwise the cubic through the states and vector fields at both ends. It only proposes where the next trial step ends.
"""

import functools as ft

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._system.types import Scalar, State


class DenseOutput(eqx.Module):
    """**Attributes:** `x`: the state at the start. `coefficients`: $d_1, d_2, \\dots$, each of the shape of `x`."""

    x: State
    coefficients: tuple[State, ...]

    def __call__(self, v: Scalar) -> tuple[State, State]:
        """The state at the fraction `v`, and its derivative by `v`."""
        total, slope = jnp.zeros_like(self.x), jnp.zeros_like(self.x)
        for each in self.coefficients[::-1]:
            slope = slope * v + total
            total = total * v + each
        return self.x + v * total, slope * v + total


def cubic(x: State, f: State, dt: Scalar, x1: State, f1: State) -> DenseOutput:
    """The cubic through both ends of a step."""
    a, b, rise = dt * f, dt * f1, x1 - x
    return DenseOutput(x, (a, 3 * rise - 2 * a - b, a + b - 2 * rise))


def from_stages(weights: Float[np.ndarray, "stages degree"], x: State, dt: Scalar, stages: list[Array]) -> DenseOutput:
    """From the vector field at the stages of a Runge-Kutta method, with the weights of `weights_of`."""
    add = lambda column: sum(float(w) * k for w, k in zip(column, stages, strict=True) if w != 0)
    return DenseOutput(x, tuple(dt * add(column) for column in weights.T if np.any(column)))


@ft.cache
def weights_of(kind: type[dfx.AbstractERK]) -> Float[np.ndarray, "stages degree"]:
    r"""$W$ of the dense output $x(v) = x_0 + h \sum_{ij} W_{ij} k_i v^j$, $j = 1, 2, \dots$, of a method with the stages $k_i$.

    diffrax's interpolation is linear in the stages, so its values for each stage alone determine $W$.
    """
    tableau, nodes = kind.tableau, np.cos(np.pi * (np.arange(8) + 0.5) / 8) / 2 + 0.5
    with jax.ensure_compile_time_eval():
        columns = []
        for one, weight in zip(np.eye(tableau.num_stages), tableau.b_sol, strict=True):
            between = kind.interpolation_cls(
                t0=0.0, t1=1.0, y0=jnp.zeros(1), y1=jnp.full(1, weight), k=jnp.asarray(one)[:, None]
            )
            columns.append([float(between.evaluate(v)[0]) for v in nodes])
    powers = nodes[:, None] ** np.arange(1, 9)
    weights = np.linalg.solve(powers, np.array(columns).T).T
    return np.where(np.abs(weights) > 1e-6 * np.max(np.abs(weights)), weights, 0)
