r"""Sets of states: a polynomial, a zonotope of disturbances, and a box of errors in a moving frame."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._system.types import Matrix
from .rounding import EPS, TINY, up
from .taylor_model import ball, Basis, TaylorModel

_ROUNDED = 2.0**-49


class Frame(eqx.Module):
    """A matrix of floats, and its inverse with the radius of the inverse's entries."""

    matrix: Matrix
    inverse: Matrix
    inverse_radius: Matrix


class StateSet(eqx.Module):
    r"""The states $p(s) + \sum_g G_g u_g + F e$ with $s \in [-1, 1]^m$, $\|u_g\|_2 \le 1$, $|e| \le \epsilon$.

    **Attributes:** `polynomial`: the coefficients of $p$, shape `(N, n)`, exact floats. `generators`: $G_g$, shape
    `(groups, n, vectors)`. `error`: $\epsilon$, shape `(n,)`, in the coordinates of the frame $F$. `variation`: the midpoint of
    the states' derivative by $s$, shape `(n, m)`; `variation_error`: the radius of its error in the coordinates of the frame.
    `frame`: $F$. `basis`: the monomials of $p$, static.
    """

    polynomial: Float[Array, "N n"]
    generators: Float[Array, "groups n vectors"]
    error: Float[Array, " n"]
    variation: Matrix
    variation_error: Matrix
    frame: Frame
    basis: Basis = eqx.field(static=True)

    @property
    def model(self) -> TaylorModel:
        """The polynomial as a Taylor model of radius zero."""
        return TaylorModel(self.polynomial, jnp.zeros(self.polynomial.shape[1]), self.basis)

    @property
    def offset(self) -> Float[Array, " n"]:
        """A bound of the entries of the states' distance from the polynomial."""
        norms = jnp.sqrt(jnp.sum(self.generators**2, axis=2)) * (1 + _ROUNDED)
        parts = jnp.sum(norms, axis=0) + jnp.abs(self.frame.matrix) @ self.error
        return up(parts, self.generators.shape[0] + 8) + TINY

    def support(self, row: TaylorModel) -> Float[Array, ""]:
        """A bound of the product of a row, a ball of shape `(n,)`, with the distance of a state from the polynomial."""
        along = jnp.einsum("i,gij->gj", row.center, self.generators)
        norms = jnp.sum(jnp.sqrt(jnp.sum(along**2, axis=1))) * (1 + _ROUNDED)
        size = jnp.sum(jnp.abs(row.center) * jnp.sum(jnp.abs(self.generators), axis=(0, 2)))
        turned, more = bounded_product(row.center, self.frame.matrix)
        parts = norms + EPS * 16 * size + (jnp.abs(turned) + more) @ self.error + row.radius @ self.offset
        return up(parts, self.generators.shape[0] + 16) + TINY

    @property
    def hull(self) -> TaylorModel:
        """The ball that holds all states."""
        return ball(self.polynomial[0], up(self.model.spread + self.offset))

    @property
    def tangents(self) -> TaylorModel:
        """The ball that holds the derivatives of the states by $s$."""
        return ball(self.variation, up(jnp.abs(self.frame.matrix) @ self.variation_error, 8))


def identity_frame(n: int) -> Frame:
    """The frame of the coordinates themselves."""
    return Frame(jnp.eye(n), jnp.eye(n), jnp.zeros((n, n)))


def frame_of(matrix: np.ndarray) -> Frame:
    r"""A frame with a proved inverse, from $\|I - R F\|_\infty \le \delta < 1$: $|F^{-1} - R| \le \frac{\delta}{1 -
    \delta}\max|R|$ by columns. `ValueError` for a matrix that is singular to rounding."""
    n = len(matrix)
    inverse = np.linalg.inv(matrix)
    size = np.abs(inverse) @ np.abs(matrix)
    defect = (np.abs(np.eye(n) - inverse @ matrix) + EPS * (n + 2) * (size + 1)).sum(axis=1).max() * (1 + 1e-12)
    if not defect < 0.5:
        raise ValueError(f"A frame of the enclosure is singular to rounding: defect {defect}.")
    radius = defect / (1 - defect) * np.abs(inverse).max(axis=0) * (1 + 1e-12)
    return Frame(jnp.asarray(matrix), jnp.asarray(inverse), jnp.asarray(np.tile(radius, (n, 1))))


def bounded_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The product of matrices of floats, and a bound of its rounding, entry by entry."""
    product = a @ b
    return product, up((jnp.abs(a) @ jnp.abs(b)) * (EPS * (a.shape[-1] + 2)) + TINY, a.shape[-1])
