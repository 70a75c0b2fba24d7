"""Pictures of what is estimated: covariances as ellipses along the path of the mean, estimates over time with their deviations,
and fits arc by arc with their residuals."""

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, TYPE_CHECKING

import numpy as np
from jaxtyping import Array, Float, Int

from .._results.labels import units_of
from .figure import (
    COLOURS,
    GREY,
    INK,
    mode_legend,
    open_axes,
    PALE,
    put_title,
    pyplot,
    symbol,
    tidy,
    title_of,
    unit,
    with_unit,
)

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

    from .._fit.fitted import Fitted
    from ..noise.covariance import Covariance
    from ..noise.estimates import Estimates


def estimate_figure(
    estimates: "Estimates",
    measurements: Mapping[str, Float[Array | np.ndarray, "*batch times"]] | None = None,
    events: Int[Array | np.ndarray, "*batch times"] | None = None,
    deviations: float = 2.0,
    model: ModuleType | None = None,
) -> "matplotlib.figure.Figure":
    """The means of a Kalman filter or smoother over time, one coordinate below the other, with a band of their standard
    deviations, coloured by mode; the band is interrupted at events and changes of mode.

    **Arguments:** `estimates`: of one run. `measurements`: of coordinates by their names, each of shape `(times,)`; drawn as
    crosses. `events`: the number of events before each time, since the previous time: such intervals are shaded. `deviations`:
    half of the width of the band, in standard deviations. `model`: supplies the title, and the units of the axes.

    **Returns:** the figure. `ValueError` for a batch, for estimates that all failed, and for measurements of an unknown
    coordinate; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> times, heights = jnp.array([0.2, 0.6]), jnp.array([[0.8], [0.3]])
    >>> filtered = hj.noise.kalman_filter(
    ...     ball.system, x0, 1e-2 * jnp.eye(2), params, mode="flight", times=times, measurements=heights,
    ...     observe=lambda t, x, p: x[:1], measurement_noise=1e-4 * jnp.eye(1), smooth=True,
    ... )
    >>> figure = hj.plot.estimate_figure(filtered.estimates, measurements={"y": heights[:, 0]}, events=filtered.events)
    >>> figure.savefig("estimate.png")
    """
    if np.ndim(estimates.modes) != 1:
        raise ValueError(
            "estimate_figure: this is a batch. Choose one lane: jax.tree.map(lambda leaf: leaf[0], batch)."
        )
    t, modes, means = (np.asarray(each) for each in (estimates.times, estimates.modes, estimates.means))
    variances = np.diagonal(np.asarray(estimates.covariances), axis1=1, axis2=2)
    if not np.any(modes >= 0):
        raise ValueError("estimate_figure: the filter failed before its first estimate; see its `result`.")
    measurements = {} if measurements is None else dict(measurements)
    visited = sorted(set(modes[modes >= 0].tolist()))
    names = list(dict.fromkeys(name for mode in visited for name in estimates.coordinates[mode][1]))
    if unknown := [name for name in measurements if name not in names]:
        raise ValueError(f"estimate_figure: measurements of {unknown} are of none of the coordinates {names}.")
    counts = np.zeros(len(t), int) if events is None else np.asarray(events)
    units, size = units_of(model, estimates.params, estimates.system), (7.0, 1.2 + 1.3 * len(names))
    fig, rows = pyplot().subplots(len(names), 1, sharex=True, squeeze=False, figsize=size, layout="constrained")
    for name, ax in zip(names, rows[:, 0], strict=True):
        tidy(ax)
        for k in np.flatnonzero(counts[1:] > 0) + 1:
            ax.axvspan(t[k - 1], t[k], color=PALE, lw=0, gid="event")
        if name in measurements:
            ax.plot(t, np.asarray(measurements[name]), "x", color=GREY, ms=4, mew=0.8, gid="measurement")
        for run in _runs(modes, counts):
            known = estimates.coordinates[modes[run.start]][1]
            if name not in known:
                continue
            colour, i = COLOURS[visited.index(modes[run.start]) % len(COLOURS)], known.index(name)
            mean, half = means[run, i], deviations * np.sqrt(np.maximum(variances[run, i], 0))
            ax.fill_between(t[run], mean - half, mean + half, color=colour, alpha=0.25, lw=0)
            if len(mean) == 1:
                # A band of one time has no area.
                ax.vlines(t[run], mean - half, mean + half, color=colour, alpha=0.25, lw=2)
            ax.plot(t[run], mean, color=colour, lw=1.4, marker="o", ms=2.5, gid="mean")
        ax.set_ylabel(with_unit(symbol(name), unit(units.coordinates.get(name, ""))), color=INK)
    rows[-1, 0].set_xlabel(with_unit("$t$", unit(units.time)))
    if len(visited) > 1:
        mode_legend(fig, {estimates.coordinates[m][0]: COLOURS[k % len(COLOURS)] for k, m in enumerate(visited)})
    put_title(fig, title_of(model, estimates.params, system=estimates.system), 11)
    return fig


def _runs(modes: np.ndarray, counts: np.ndarray) -> Iterator[slice]:
    """The estimates between events, in one mode; those after a failure are left out."""
    cuts = np.flatnonzero((np.diff(modes) != 0) | (counts[1:] > 0)) + 1
    for first, last in zip([0, *cuts], [*cuts, len(modes)], strict=True):
        if modes[first] >= 0:
            yield slice(int(first), int(last))


def covariance_figure(
    found: "Covariance",
    coordinates: tuple[str, str] | None = None,
    deviations: float = 2.0,
    model: ModuleType | None = None,
) -> "matplotlib.figure.Figure":
    """The path of the mean in the plane of two coordinates, with the ellipse of the covariance at the start and the end of each
    arc, before and after the jumps, and at the times that were saved.

    **Arguments:** `found`: one result of `hyjax.noise.covariance`. `coordinates`: two names; by default the first two of the
    first mode. `deviations`: the size of the ellipses, in standard deviations. `model`: supplies the title, and the units of
    the axes.

    **Returns:** the figure. `TypeError` for a batch; `ValueError` for unknown coordinates; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> found = hj.noise.covariance(ball.system, x0, 1e-4 * jnp.eye(2), params, mode="flight", t1=1.0)
    >>> figure = hj.plot.covariance_figure(found)
    >>> figure.savefig("covariance.png")
    """
    trajectory = found.trajectory
    arcs, modes = trajectory.sample(100), trajectory.system.modes
    chosen = tuple(modes[arcs[0].mode].coordinates[:2] if coordinates is None else coordinates)
    for arc in arcs:
        if len(chosen) != 2 or set(chosen) - set(modes[arc.mode].coordinates):
            raise ValueError(
                f"covariance_figure: coordinates={chosen} must be two of {modes[arc.mode].coordinates}, the coordinates of "
                f"the mode {arc.mode}."
            )
    fig, ax = pyplot().subplots(figsize=(5.0, 4.2), layout="constrained")
    names = list(dict.fromkeys(arc.mode for arc in arcs))
    at = [[modes[arc.mode].coordinates.index(name) for name in chosen] for arc in arcs]
    for k, (arc, i) in enumerate(zip(arcs, at, strict=True)):
        colour = COLOURS[names.index(arc.mode) % len(COLOURS)]
        first = arc.mode not in [other.mode for other in arcs[:k]]
        ax.plot(*np.asarray(arc.x)[:, i].T, color=colour, lw=1.6, label=arc.mode if first else None)
        for x, sigma in ((arc.x[0], found.sigma_starts[k]), (arc.x[-1], found.sigma_ends[k])):
            draw_ellipse(ax, np.asarray(x)[i], np.asarray(sigma)[np.ix_(i, i)], deviations, color=colour)
    if found.sigma_samples is not None and trajectory.samples is not None:
        for x, sigma, mode in zip(trajectory.samples.x, found.sigma_samples, trajectory.samples.mode, strict=True):
            if mode >= 0:
                i = [list(modes.values())[int(mode)].coordinates.index(name) for name in chosen]
                draw_ellipse(ax, np.asarray(x)[i], np.asarray(sigma)[np.ix_(i, i)], deviations, color=GREY, lw=0.8)
    units = units_of(model, trajectory.params, trajectory.system).coordinates
    ax.set_xlabel(with_unit(symbol(chosen[0]), unit(units.get(chosen[0], ""))), color=INK)
    ax.set_ylabel(with_unit(symbol(chosen[1]), unit(units.get(chosen[1], ""))), color=INK)
    ax.plot([], [], color=GREY, lw=1.2, label=f"{deviations:g} standard deviations")
    open_axes(ax)
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, fontsize=9)
    put_title(fig, title_of(model, trajectory.params, system=trajectory.system), 11)
    return fig


def draw_ellipse(ax: "matplotlib.axes.Axes", centre, sigma, deviations: float = 2.0, **style: Any) -> None:
    """The ellipse of a covariance of two coordinates, of any rank. `style`: as for `Axes.plot`."""
    sizes, axes = np.linalg.eigh(sigma)
    angle = np.linspace(0, 2 * np.pi, 101)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    points = np.asarray(centre)[:, None] + deviations * axes @ (np.sqrt(np.maximum(sizes, 0))[:, None] * circle)
    style = {"lw": 1.2} | style
    ax.plot(*points, **style)


def fit_figure(fit: "Fitted", record: int = 0, n_samples: int = 60) -> "matplotlib.figure.Figure":
    """The data of a record with their deviations, the model at the fitted parameters, and to the right the residuals in units
    of the deviation, one quantity below the other; a thin line at each event. Of a return map the model's values are points.

    **Arguments:** `fit`: one result of `hyjax.fit`. `record`: the number of the record. `n_samples`: sample times on each arc.

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
    arcs = fit.curves(record, n_samples)
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
