"""What the enclosure of a return map takes from the orbit as numbers, on which no proof depends: flows, a basis."""

import jax
import jax.numpy as jnp
import numpy as np

from .mode_field import ModeField
from .step import columns_of, nested
from .taylor import flow_coefficients
from .taylor_model import ball


def eigenbasis(matrix: np.ndarray) -> np.ndarray:
    """A real basis in which a matrix is nearly block-diagonal: eigenvectors, real and imaginary part of complex ones; where these
    are nearly dependent, the identity."""
    values, vectors = np.linalg.eig(matrix)
    columns = []
    for value, vector in zip(values, vectors.T, strict=True):
        if value.imag == 0:
            columns.append(vector.real / np.linalg.norm(vector.real))
        elif value.imag > 0:
            pair = np.stack([vector.real, vector.imag], axis=1)
            columns += list((pair / np.linalg.norm(pair, 2)).T)
    basis = np.stack(columns, axis=1)
    return basis if np.linalg.cond(basis) < 1e6 else np.eye(len(matrix))


def reference_flow(field: ModeField, x, h, steps: int):
    """The derivatives of the flow over each step from `x`, as numbers without a proof."""

    @jax.jit
    def run(x):
        def one(x, _):
            columns = columns_of(ball(x), ball(jnp.eye(field.dimension)))
            end = nested(flow_coefficients(field.variational, columns, field.leaves, 12), ball(jnp.asarray(h))).center
            return end[:, 0], end[:, 1:]

        return jax.lax.scan(one, x, None, length=steps)[1]

    return run(x)
