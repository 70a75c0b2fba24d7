"""The ranking of solvers by points: ten for the best run, one for the worst."""

from typing import TYPE_CHECKING

import numpy as np

from .._results.long_names import described

if TYPE_CHECKING:
    import xarray

# The measures of a study, and whether the best is the smallest of the values or the largest.
MEASURES = {
    "divergence_time": "largest",
    "integral_of_error": "smallest",
    "evaluations": "smallest",
    "seconds": "smallest",
}


def points(values: np.ndarray, best: str) -> np.ndarray:
    r"""Points from 10 for the best value to 1 for the worst, $1 + 9\,(v - v_{worst}) / (v_{best} - v_{worst})$.

    **Arguments:** `values`: all those that compete, of any shape. `best`: `smallest` or `largest`. **Returns:** the same shape. A
    value that is not finite, of a run that failed, has 1 point; where all are equal, all have 10. `ValueError` for another
    `best`.

    Source: Dallas, Machairas, Papadopoulos (2017), Sec. V.
    """
    if best not in ("smallest", "largest"):
        raise ValueError(f"points: best={best!r} must be 'smallest' or 'largest'.")
    values = np.asarray(values, float)
    sound = np.isfinite(values)
    if not np.any(sound):
        return np.ones_like(values)
    ends = np.min(values[sound]), np.max(values[sound])
    good, bad = ends if best == "smallest" else ends[::-1]
    share = np.where(sound, values - bad, 0) / (good - bad) if good != bad else np.ones_like(values)
    return np.where(sound, 1 + 9 * share, 1.0)


def solver_points(study: "xarray.Dataset") -> "xarray.Dataset":
    """The points of the solvers in a study, summed over the sets of parameters.

    Of one tolerance, the runs of all solvers, sets and strategies compete: the best has 10 points, the worst 1, and others by
    linear interpolation. So with 13 sets a solver has between 13 and 130.
    Only runs of the same tolerance are compared. A run that failed has 1 point.

    **Arguments:** `study`: from `solver_study`. **Returns:** a dataset over `strategy`, `rtol` and `solver` with the points
    of each measure that the study has: `divergence_time` (largest is best), `integral_of_error`, `evaluations` and `seconds`
    (smallest). A weighted sum of criteria (eq. 36) is `2 * points.seconds + points.integral_of_error`.

    Since the worst run of all sets sets the scale, one run far off gives all others almost 10 points: look at the measures too.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> import diffrax
    >>> study = hj.study.solver_study(
    ...     ball.system, x0, params, mode="flight", t1=1.0, samples=11, timed=False, progress=False, tolerances=(1e-3, 1e-6),
    ...     solvers={"Tsit5": diffrax.Tsit5(), "Bosh3": diffrax.Bosh3()},
    ... )
    >>> hj.study.solver_points(study).evaluations.dims
    ('strategy', 'rtol', 'solver')

    Source: Dallas, Machairas, Papadopoulos (2017), Sec. V and VI.
    """
    import xarray

    dims = ("strategy", "solver", "set")
    found = {}
    for name, best in MEASURES.items():
        if name not in study:
            continue
        ordered = study[name].transpose("rtol", *dims)
        each = np.stack([points(values, best) for values in ordered.values])
        summed = ordered.copy(data=each).sum("set")
        found[name] = summed.transpose("strategy", "rtol", "solver").assign_attrs(long_name=f"points by {name}")
    return described(xarray.Dataset(found))
