"""Measures of a run of a solver study: time of divergence from the reference, integral of the error, number of steps."""

import dataclasses

import jax
import numpy as np

from .study_run import StudyRun


@dataclasses.dataclass(frozen=True)
class Yardstick:
    """The quantity measured. `coordinate`: its number, or `None` for the Euclidean norm of the first `size` coordinates.
    `near_zero`: the size of the reference below which a relative error is not evaluated."""

    coordinate: int | None
    size: int
    near_zero: float

    def of(self, x: np.ndarray) -> np.ndarray:
        """The size of states, or of differences of states, of shape `(times, n)`."""
        return np.linalg.norm(x[:, : self.size], axis=1) if self.coordinate is None else np.abs(x[:, self.coordinate])

    def measured(self, times: jax.Array, run: StudyRun, reference: np.ndarray, threshold: float) -> dict[str, float]:
        """The measures of a run. **Arguments:** `reference`: states at `times`. `threshold`: the relative error that counts as
        divergence."""
        t, x = np.asarray(times), np.asarray(run.samples)
        width = min(x.shape[1], reference.shape[1])
        error, size = self.of(x[:, :width] - reference[:, :width]), self.of(reference)
        return {
            "divergence_time": divergence_time(t, error, size, threshold, self.near_zero),
            "integral_of_error": integral_of_error(t, error),
            "steps_tried": float(run.tally.tried),
            "steps_taken": float(run.tally.taken),
            "jumps": float(run.jumps),
            "evaluations": float(run.tally.evaluations),
            "jacobians": float(run.tally.jacobians),
            "result": float(run.result._value),
        }


def divergence_time(t: np.ndarray, error: np.ndarray, size: np.ndarray, threshold: float, near_zero: float) -> float:
    r"""The first of the times at which $|e| / |x_{ref}| \ge \varepsilon$, where $|x_{ref}|$ is at least `near_zero` (eq. 32).

    The last time where there is none; the first time at which the run has no state, where it failed; NaN without a reference.

    **Source:** Dallas, Machairas, Papadopoulos (2017), eq. 32.
    """
    if not np.all(np.isfinite(size)):
        return np.nan
    far = (size >= near_zero) & (size > 0)
    left = ~np.isfinite(error) | (far & (error >= threshold * size))
    return float(t[np.argmax(left)] if np.any(left) else t[-1])


def integral_of_error(t: np.ndarray, error: np.ndarray) -> float:
    r"""$\int |e|\,dt$ by the trapezoidal rule over the times (eq. 33); NaN where the run or the reference failed.

    **Source:** Dallas, Machairas, Papadopoulos (2017), eq. 33.
    """
    return float(np.sum((error[1:] + error[:-1]) / 2 * np.diff(t)))
