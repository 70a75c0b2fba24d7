"""The results of a Kalman filter and of a smoother."""

import dataclasses
from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._numerics.semidefinite import solve_semidefinite
from .._results.registry import draw
from .._results.shown import Shown
from .._system.results import RESULTS
from .._system.system import HybridSystem
from .._system.types import Matrix, Params, State


class Estimates(Shown):
    """Gaussian estimates of the state at the times of measurements.

    States are padded with zeros to the largest dimension of a mode, `size`, and covariances likewise.

    **Attributes:** `times`: shape `(times,)`. `means`: shape `(times, size)`. `covariances`: shape `(times, size, size)`.
    `modes`: indices of the modes, shape `(times,)`; -1 after a failure, where the numbers are NaN. `params`, `system`: those
    of the filter; `coordinates`: the name of each mode of the system and the names of its coordinates.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> times, heights = jnp.array([0.2, 0.6]), jnp.array([[0.8], [0.3]])
    >>> filtered = hj.noise.kalman_filter(
    ...     ball.system, x0, 1e-2 * jnp.eye(2), params, mode="flight", times=times, measurements=heights,
    ...     observe=lambda t, x, p: x[:1], measurement_noise=1e-4 * jnp.eye(1), smooth=True,
    ... )
    >>> estimates = filtered.estimates
    >>> estimates.means.shape, estimates.covariances.shape, estimates.coordinates
    ((2, 2), (2, 2, 2), (('flight', ('y', 'y_rate')),))
    """

    times: Float[Array, "*batch times"]
    means: Float[Array, "*batch times size"]
    covariances: Float[Array, "*batch times size size"]
    modes: Int[Array, "*batch times"]
    params: Params
    system: HybridSystem = eqx.field(static=True)

    @property
    def coordinates(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The name of each mode and the names of its coordinates."""
        return tuple((name, mode.coordinates) for name, mode in self.system.modes.items())

    def nees(self, states: Float[Array, "*batch times size"]) -> Float[Array, "*batch times"]:
        r"""The normalized estimation error squared of true states, $(x - \hat x)^\top \Sigma^{-1} (x - \hat x)$.

        For a consistent filter it has the mean $n$, and its average over $N$ independent runs is $\chi^2_{nN}/N$.

        **Arguments:** `states`: padded with zeros. Where a covariance is singular, its pseudo-inverse is used.

        Source: Bar-Shalom, Li, Kirubarajan (2001), *Estimation with applications to tracking and navigation*, Sec. 5.4.
        """
        error = states - self.means
        return jnp.sum(error * solve_semidefinite(self.covariances, error[..., None])[..., 0], axis=-1)

    def plot(self, measurements: Mapping[str, Float[Array | np.ndarray, "*batch times"]] | None = None):
        """A figure of the means with their deviations over time; see `hyjax.plot.estimate_figure`."""
        return draw(self, measurements)


class Filtered(Shown):
    r"""Estimates of a Kalman filter, from `kalman_filter`.

    **Attributes:** `times`: shape `(times,)`. `means`, `covariances`, `modes`: those after each measurement, as in `Estimates`.
    `predicted`: the `Estimates` before each measurement, in the mode in which the measurement was understood. `innovations`: $y
    - h$, shape `(times, measured)`. `innovation_covariances`: $S$, shape `(times, measured, measured)`. `nis`: the normalized
    innovations squared, shape `(times,)`. `log_likelihood`: of all measurements, shape `()`. `events`: the number of events of
    the mean since the previous measurement, shape `(times,)`. `mode_tests`: -1 where the measurement showed that the last of
    these events has not happened yet, 1 where it showed that the next one has, 0 elsewhere, shape `(times,)`. `result`: a code
    of `RESULTS`. `initial`: mean and covariance at the start. `cross`: the covariance of each prediction with the estimate
    before it, shape `(times, size, size)`; `None` without `smooth`.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> times, heights = jnp.array([0.2, 0.6]), jnp.array([[0.8], [0.3]])
    >>> filtered = hj.noise.kalman_filter(
    ...     ball.system, x0, 1e-2 * jnp.eye(2), params, mode="flight", times=times, measurements=heights,
    ...     observe=lambda t, x, p: x[:1], measurement_noise=1e-4 * jnp.eye(1), smooth=True,
    ... )
    >>> print(filtered.innovations[:, 0].round(4), filtered.events, filtered.result)
    [-0.0038 -0.1189] [0 1] successful
    """

    times: Float[Array, "*batch times"]
    means: Float[Array, "*batch times size"]
    covariances: Float[Array, "*batch times size size"]
    modes: Int[Array, "*batch times"]
    predicted: Estimates
    innovations: Float[Array, "*batch times measured"]
    innovation_covariances: Float[Array, "*batch times measured measured"]
    nis: Float[Array, "*batch times"]
    log_likelihood: Float[Array, "*batch"]
    events: Int[Array, "*batch times"]
    mode_tests: Int[Array, "*batch times"]
    result: RESULTS
    initial: tuple[State, Matrix]
    cross: Float[Array, "*batch times size size"] | None

    @property
    def estimates(self) -> Estimates:
        """The estimates after each measurement."""
        after = dict(modes=self.modes, means=self.means, covariances=self.covariances)
        return dataclasses.replace(self.predicted, **after)

    def plot(self, measurements: Mapping[str, Float[Array | np.ndarray, "*batch times"]] | None = None):
        """A figure of the means with their deviations over time, and of the events; see `hyjax.plot.estimate_figure`."""
        return draw(self, measurements)
