"""Figures of branches of optimal gaits."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import numpy as np

from .._optimize.optimum_branch import OptimumBranch
from .._results.labels import named_params
from .figure import BLUE, pyplot, tidy
from .setting import axis_of, put_title, title_of

if TYPE_CHECKING:
    import matplotlib.figure


def optimum_figure(branch: OptimumBranch) -> "matplotlib.figure.Figure":
    """Objective, each optimized parameter, and the spectral radius over the number; vertical lines where the active set changes.

    **Arguments:** `branch`: the result of `hyjax.follow_optimum`.

    **Returns:** the figure. `ValueError` for a branch without points; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(orbit, hj.objectives.period, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)])
    >>> branch = hj.follow_optimum(gait, limit="spectral_radius", stop=0.6, points=6)
    >>> figure = hj.plot.optimum_figure(branch)
    >>> figure.savefig("optimum.png")
    """
    if branch.orbits is None:
        raise ValueError("optimum_figure: the branch has no points: see its `result`.")
    radius = np.max(np.abs(np.asarray(branch.orbits.multipliers)), axis=1)
    about = named_params(branch.orbits.params)
    labelled = lambda name: axis_of(name, 0.0, about.get(name, (0, {}))[1].get("units", ""))[1]
    rows = [("objective", branch.values), *zip(map(labelled, branch.names), branch.unknowns.T, strict=True)]
    rows.append(("max $|\\lambda|$", radius))
    fig, axes = pyplot().subplots(len(rows), 1, figsize=(6, 1.7 * len(rows) + 0.5), sharex=True, layout="constrained")
    for axis, (label, values) in zip(axes, rows, strict=True):
        # A parameter that a constraint holds at zero is zero up to rounding, whose picture would be noise.
        tidy(axis).plot(branch.numbers, np.where(np.abs(values) < 1e-15, 0, values), ".-", color=BLUE, markersize=3)
        axis.set_ylabel(label)
        for change in branch.changes:
            axis.axvline(change.number, color="0.6", linewidth=0.8, linestyle=":")
    axes[-1].axhline(1, color="0.6", linewidth=0.8)
    axes[-1].set_xlabel(labelled(branch.name))
    fig.align_ylabels(axes)
    varied = (branch.name, *branch.names)
    one = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, branch.orbits.params)
    put_title(fig, title_of(None, one, without=varied, system=branch.orbits.system), 11)
    return fig
