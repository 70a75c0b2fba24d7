r"""Additive disturbances of a vector field, bounded in a norm; and strides under such disturbances, drawn at random."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.eager import short_run
from .._orbit.orbit import PeriodicOrbit
from .._orbit.stride import run_stride
from .._system.every import Clock
from .._system.results import RESULTS
from .._system.system import HybridSystem, Mode
from .section_plane import SectionChart


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


# Strides under disturbances that are drawn at random, computed as all others: evidence beside a proof.


def disturbed_ends(
    orbit: PeriodicOrbit,
    section: SectionChart,
    disturbance: Disturbance,
    starts: Float[np.ndarray, "count m"],
    rng: np.random.Generator,
) -> Float[np.ndarray, "count m"]:
    r"""Where strides of $\dot x = f(x) + E w(t)$ end that start at points of a section, in its coordinates.

    $w$ lies on its bound, in a random direction up to a random time of the stride, and in another after it. **Arguments:**
    `starts`: shape `(count, m)`. **Returns:** shape `(count, m)`; NaN for a stride that fails.
    """
    system, sequence, params = _pushed(orbit.system), orbit.sequence * orbit.strides, orbit.params
    pushes = {name: _directions(disturbance, mode, len(starts), rng) for name, mode in orbit.system.modes.items()}
    parts = rng.uniform(0, 1, len(starts))
    dimension = orbit.system.mode(sequence[0]).dimension

    @short_run
    @jax.vmap
    def ends(z, push, part):
        x = section.lift(z, params)
        timed = x.shape[0] > dimension
        t, x = (x[-1], x[:-1]) if timed else (jnp.zeros(()), x)
        stride = run_stride(system, t, x, (params, push, t + part * orbit.period), sequence, orbit.integrator)
        last = stride.impacts[-1]
        end = section.chart(jnp.append(last.x, last.t - orbit.period) if timed else last.x, params)
        return jnp.where(stride.result == RESULTS.successful, end, jnp.nan)

    return np.asarray(ends(jnp.asarray(starts), jax.tree.map(jnp.asarray, pushes), jnp.asarray(parts)))


def _directions(disturbance: Disturbance, mode: Mode, count: int, rng: np.random.Generator):
    """Values of $E w$ on the bound, shape `(count, 2, n)`: one before the change and one after it."""
    groups = np.asarray(disturbance.of_mode(mode.coordinates, mode.dimension))
    u = rng.normal(size=(count, 2, groups.shape[0], groups.shape[2]))
    u /= np.maximum(np.linalg.norm(u, axis=-1, keepdims=True), 1e-300)
    return np.einsum("gnc,kjgc->kjn", groups, u)


def _pushed(system: HybridSystem) -> HybridSystem:
    """The system whose parameters are those of the given one, what is added to the vector field of each mode before and after a
    time, and that time."""

    def field(name: str, mode: Mode):
        def pushed(t, x, p):
            params, pushes, change = p
            return mode.vector_field(t, x, params) + jnp.where(t < change, pushes[name][0], pushes[name][1])

        return pushed

    def of_params(function):
        if isinstance(function, Clock):
            return function.of(lambda p: p[0])
        return lambda t, x, p, *member: function(t, x, p[0], *member)

    modes = {
        name: dataclasses.replace(mode, vector_field=field(name, mode), domain=None)
        for name, mode in system.modes.items()
    }
    transitions = tuple(
        dataclasses.replace(
            each,
            guard=of_params(each.guard),
            reset=of_params(each.reset),
            armed=None if each.armed is None else of_params(each.armed),
        )
        for each in system.transitions
    )
    return HybridSystem(modes, transitions)
