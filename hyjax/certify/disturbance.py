r"""Additive disturbances of a vector field, bounded in a norm."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Disturbance(eqx.Module):
    r"""A bounded disturbance, $\dot x = f(x) + E w(t)$, $\|w(t)\| \le b$, with any measurable $w$.

    **Arguments:** `bound`: $b$, in the units of the rates. `norm`: `"2"`, the Euclidean norm of the channels, or `"inf"`, each
    channel by itself. `channels`: the names of the coordinates whose rates are disturbed; `None`: all of the mode. `ValueError`
    for a negative bound, another norm, and names that no mode has.

    **Example:**

    >>> hj.certify.Disturbance(1e-4, norm="inf", channels=("theta_rate",)).bound
    0.0001
    """

    bound: float = eqx.field(static=True, converter=float)
    norm: str = eqx.field(static=True, default="2")
    channels: tuple[str, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if not (np.isfinite(self.bound) and self.bound >= 0):
            raise ValueError(f"Disturbance: bound={self.bound} must be a finite number, not negative.")
        if self.norm not in ("2", "inf"):
            raise ValueError(f"Disturbance: norm={self.norm!r} must be '2' or 'inf'.")

    def of_mode(self, coordinates: tuple[str, ...], dimension: int) -> Float[Array, "groups n columns"]:
        """The set of $E w$ as groups of columns, $\\sum_g E_g u_g$ with $\\|u_g\\|_2 \\le 1$, for states of length
        `dimension`."""
        names = coordinates if self.channels is None else [name for name in coordinates if name in self.channels]
        columns = np.zeros((dimension, len(names)))
        for j, name in enumerate(names):
            columns[coordinates.index(name), j] = self.bound
        groups = columns[None] if self.norm == "2" else columns.T[:, :, None]
        return jnp.asarray(groups)


NONE = Disturbance(0.0)
