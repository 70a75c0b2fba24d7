"""Pictures of fits: data and model over time, arc by arc, and the residuals."""

from typing import TYPE_CHECKING

import numpy as np

from .._results.labels import units_of
from .figure import COLOURS, GREY, INK, PALE, pyplot, symbol, tidy, unit, with_unit
from .setting import put_title, title_of

if TYPE_CHECKING:
    import matplotlib.figure

    from .._fit.fitted import Fitted


def fit_figure(fit: "Fitted", record: int = 0, n: int = 60) -> "matplotlib.figure.Figure":
    """The data of a record with their deviations, the model at the fitted parameters, and to the right the residuals in units
    of the deviation, one quantity below the other; a thin line at each event. Of a return map the model's values are points.

    **Arguments:** `fit`: one result of `hyjax.fit`. `record`: the number of the record. `n`: sample times on each arc.

    **Returns:** the figure. `ValueError` for a fit from a file, which has no functions to draw, for a batch, and for a number
    that is no record; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> heights = {"time": jnp.array([0.2, 0.6, 0.8]), "y": jnp.array([0.81, 0.46, 0.63])}
    >>> x0 = jnp.array([1.0, 0.0])
    >>> found = hj.fit(ball.system, heights, ball.Params(), over=lambda p: p.gravity, x0=x0, mode="flight")
    >>> hj.plot.fit_figure(found).savefig("fit.png")
    """
    if fit.values.ndim > 1:
        raise ValueError("fit_figure: this is a batch. Choose one lane: jax.tree.map(lambda leaf: leaf[0], batch).")
    if not 0 <= record < len(fit.records):
        raise ValueError(f"fit_figure: record={record} must be one of the {len(fit.records)} records, counted from 0.")
    params = fit.params[record] if isinstance(fit.params, list) else fit.params
    data, system = fit.records[record], fit.fitted_problem.system
    units = units_of(None, params, system)
    values, weights = np.asarray(data.values), np.asarray(data.weights)
    residuals, predicted = np.asarray(fit.residuals[record]), np.asarray(fit.predicted[record])
    shown = [k for k in range(len(fit.quantities)) if np.any(weights[:, k] > 0)]
    arcs = fit.curves(record, n)
    fig, rows = pyplot().subplots(
        len(shown), 2, squeeze=False, figsize=(8.5, 1.2 + 1.5 * len(shown)), layout="constrained",
        width_ratios=(3, 2),
    )  # fmt: skip
    events = np.array([row for row, label in enumerate(data.labels) if label is not None], int)
    for k, (left, right) in zip(shown, rows, strict=True):
        name, used = fit.quantities[k], weights[:, k] > 0
        for ax in (tidy(left), tidy(right)):
            for t in values[events, 0]:
                ax.axvline(t, color=PALE, lw=0.8, gid="event")
        own = units.time if k == 0 else units.coordinates.get(name.removesuffix("_before"), "")
        if k == 0:
            # The error of a time cannot be seen beside the time.
            left.plot(np.arange(1, len(events) + 1), values[events, 0], "x", color=GREY, ms=5)
            left.plot(np.arange(1, len(events) + 1), predicted[events, 0], color=COLOURS[0], lw=1.2)
            left.set_xlabel("number of the event", color=INK)
            left.xaxis.get_major_locator().set_params(integer=True)
        else:
            known = 1 / np.where(used, weights[:, k], 1)
            deviation = np.full_like(known, float(fit.deviation)) if fit.estimated else known
            left.errorbar(
                values[used, 0], values[used, k], deviation[used], fmt="x", color=GREY, ms=4, lw=0.8, gid="data"
            )
            for times, found in arcs:
                left.plot(times, found[:, k], color=COLOURS[0], lw=1.4, gid="model")
            if not arcs:
                left.plot(values[used, 0], predicted[used, k], "o", ms=3, color=COLOURS[0], gid="model")
        left.set_ylabel(with_unit(symbol(name) if k else "$t$ of events", unit(own)), color=INK)
        right.plot(values[used, 0], residuals[used, k], "o", ms=3, color=COLOURS[1], gid="residual")
        right.axhline(0, color=GREY, lw=0.8)
        right.set_ylabel("residual / σ", color=INK)
    for ax in rows[-1][int(shown == [0]) :]:
        ax.set_xlabel(with_unit("$t$", unit(units.time)), color=INK)
    put_title(fig, title_of(None, params, system=system))
    return fig
