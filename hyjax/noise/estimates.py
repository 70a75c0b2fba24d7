"""Estimates of a Kalman filter, and the smoother of Rauch, Tung and Striebel, back through events."""

import dataclasses
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._numerics.eager import long_run
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
    of the filter; `coordinates`: the name of each mode of the system and the names of its coordinates. `initial`: mean and
    covariance at the start, shapes `(size,)` and `(size, size)`; `None` for predictions.

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
    initial: tuple[State, Matrix] | None = None

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
        after = dict(modes=self.modes, means=self.means, covariances=self.covariances, initial=self.initial)
        return dataclasses.replace(self.predicted, **after)

    def plot(self, measurements: Mapping[str, Float[Array | np.ndarray, "*batch times"]] | None = None):
        """A figure of the means with their deviations over time, and of the events; see `hyjax.plot.estimate_figure`."""
        return draw(self, measurements)


@long_run
def rts_smoother(filtered: Filtered) -> Estimates:
    r"""The estimates of a Kalman filter, given also the measurements that came later.

    $$\hat x_k = x_k + G_k\,(\hat x_{k+1} - x_{k+1|k}), \quad
      \hat\Sigma_k = \Sigma_k + G_k\,(\hat\Sigma_{k+1} - \Sigma_{k+1|k})\,G_k^\top, \quad
      G_k = C_k^\top\,\Sigma_{k+1|k}^{-1}, \quad C_k = \operatorname{cov}(x_{k+1}, x_k) = \Phi\,\Sigma_k,$$

    backwards from the last measurement, where $\Phi$ is the fundamental matrix from one measurement to the next with the
    saltation matrices of the events between them. The modes may have different dimensions.
    Where a prediction is singular, as after a plastic impact, a generalized inverse is used.

    The sequence of modes is the filter's: the smoother does not reconsider it.

    **Arguments:** `filtered`: from `kalman_filter(..., smooth=True)`; for a batch use `jax.vmap`. **Returns:** `Estimates`, with
    the one at the start, in the modes in which the measurements were understood; also under `jit`, `vmap` and `grad`; NaN where
    the filter failed. `ValueError` without `smooth=True`.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> times, heights = jnp.array([0.2, 0.6]), jnp.array([[0.8], [0.3]])
    >>> filtered = hj.noise.kalman_filter(
    ...     ball.system, x0, 1e-2 * jnp.eye(2), params, mode="flight", times=times, measurements=heights,
    ...     observe=lambda t, x, p: x[:1], measurement_noise=1e-4 * jnp.eye(1), smooth=True,
    ... )
    >>> smoothed = hj.noise.rts_smoother(filtered)
    >>> print(smoothed.initial[0].round(4), smoothed.means.round(4))
    [0.9021 0.5069] [[ 0.8073 -1.4551]
     [ 0.3309  2.2027]]

    Source: Rauch, Tung, Striebel (1965), *Maximum likelihood estimates of linear dynamic systems*, AIAA J. 3; with $\Phi$ from
    Kong, Payne, Zhu, Johnson (2024), eqs. 33-34: in Table I $A$ of eq. 30, $\Xi$ of eq. 9 and the covariance $\Sigma$ of
    Appendix C.
    """
    if filtered.cross is None:
        raise ValueError("rts_smoother: the filter kept no cross covariances. Give kalman_filter(..., smooth=True).")
    predicted, updated = filtered.predicted, filtered.estimates

    def back(later: tuple[State, Matrix], each):
        (x, sigma), predicted_x, predicted_sigma, cross = each
        gain = solve_semidefinite(predicted_sigma, cross).T
        mean = x + gain @ (later[0] - predicted_x)
        spread = sigma + gain @ (later[1] - predicted_sigma) @ gain.T
        now = mean, (spread + spread.T) / 2
        return now, now

    # Before each prediction comes the update of the previous row, or the start.
    shifted = lambda first, rows: jnp.concatenate([first[None], rows[:-1]])
    before = jax.tree.map(shifted, filtered.initial, (updated.means, updated.covariances))
    last = updated.means[-1], updated.covariances[-1]
    rows = before, predicted.means, predicted.covariances, filtered.cross
    first, (means, covariances) = jax.lax.scan(back, last, rows, reverse=True)
    ends = lambda rows, last: jnp.concatenate([rows[1:], last[None]])
    means, covariances = ends(means, last[0]), ends(covariances, last[1])
    return dataclasses.replace(updated, means=means, covariances=covariances, initial=first)
