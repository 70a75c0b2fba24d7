"""Pictures of optima: of an optimization, with the gait before and after; of a branch of optimal gaits; and of controlled
trajectories and plans, states, controls, the cost by iteration, and distances from limits."""

from types import ModuleType
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import numpy as np

from .._optimize.objectives import Negative
from .._optimize.optimized_orbit import OptimizedOrbit
from .._optimize.optimum_branch import OptimumBranch
from .._results.labels import chosen_unit, units_of, units_of_params
from .._system.where import leaf_names
from ..control.held_inputs import Plan
from .figure import (
    axis_of,
    BLUE,
    COLOURS,
    GREY,
    head_of,
    mode_legend,
    number,
    put_title,
    pyplot,
    quantity,
    signed,
    symbol,
    tidy,
    title_of,
    unbroken,
    unit,
    VERMILION,
    with_unit,
)
from .orbit_axes import message_of, multiplier_plane, phase_portrait, portrait_panels, series_panels, time_series, widen

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

    from .._optimize.optimized_plan import OptimizedPlan
    from ..control.ilqr import IlqrSolution


# A violation is drawn no smaller: rounding.
LEAST = 1e-17


def optimization_figure(gait: OptimizedOrbit, model: ModuleType | None = None) -> "matplotlib.figure.Figure":
    """The figure of an optimization: phase portrait and coordinates over time before and after, in axes of the same scales; the
    objective and the largest violation of a constraint over the accepted evaluations of the best start; the multipliers.

    **Arguments:** `gait`: the result of `hyjax.optimize`. `model`: supplies the title, and the units of the axes.

    **Returns:** the figure. `ValueError` for an optimization that ended without a gait; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(orbit, hj.objectives.period, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)])
    >>> figure = hj.plot.optimization_figure(gait, model=wheel)
    >>> figure.savefig("optimization.png")
    """
    if not np.isfinite(gait.orbit.period):
        raise ValueError(f"optimization_figure: there is no gait to draw: {message_of(gait.orbit)}")
    portraits, series = portrait_panels(gait.orbit, model), series_panels(gait.orbit, model)
    rows = len(portraits) + len(series)
    fig = pyplot().figure(figsize=(13, 3.8 * rows if rows == 2 else 3.0 * rows), layout="constrained")
    put_title(fig, _title(gait, model), 13)
    gaits, course = fig.subfigures(1, 2, width_ratios=(2, 1.05))
    axes = gaits.subplots(rows, 2, sharex="row", sharey="row")
    last = "optimal gait" if gait.result == "successful" else "last gait, not an optimum"
    columns = zip((gait.before, gait.orbit), end_values(gait), ("starting gait", last), axes.T, strict=True)
    time = unit(units_of(model, gait.orbit.params, gait.orbit.system).time)
    for orbit, value, name, column in columns:
        for ax, pairs in zip(column, portraits, strict=False):
            phase_portrait(orbit, ax, pairs, model)
        for ax, names in zip(column[len(portraits) :], series, strict=True):
            time_series(orbit, ax, model, names)
        period = quantity(number(float(orbit.period), 5), time)
        # Above the legend, of three entries a line.
        lines = -(-len(column[0].get_legend().get_texts()) // 3)
        column[0].set_title(f"{name}: {signed(f'{value:.6g}')}, $T$ = {period}", fontsize=11, pad=8 + 16 * lines)
    for ax in axes[:, 1]:
        ax.set_ylabel("")
    constrained = gait.constraints.size > 0
    *panels, plane = course.subplots(2 + constrained, 1, height_ratios=(1, *[0.8] * constrained, 2.2))
    _course(gait, panels)
    _multipliers(gait, plane)
    return fig


def _title(gait: OptimizedOrbit, model: ModuleType | None) -> str:
    """The model, the objective, and the parameters before and after."""
    ends = (
        np.asarray(gait.program.unknowns.vector(orbit.params) * gait.program.unknowns.scale)
        for orbit in (gait.before, gait.orbit)
    )
    # A parameter that ended at zero by rounding is zero.
    before, after = ends
    after = np.where(np.abs(after) < 1e-9 * np.abs(before), 0, after)
    units = units_of_params(gait.orbit.params)
    printed = [unit(chosen_unit(units.get(name, ""), gait.orbit.params)) for name in gait.names]
    shown = [
        unbroken(f"{symbol(name)} {quantity(signed(f'{before:.4g} → {after:.4g}'), each)}")
        for name, before, after, each in zip(gait.names, before, after, printed, strict=True)
    ]
    more = [f"and {len(shown) - 6} more"] if len(shown) > 6 else []
    head = ": ".join(text for text in (head_of(model, gait.orbit.system), objective_name(gait)) if text)
    return f"{head}; {', '.join(shown[:6] + more)}"


def sign_of(gait: OptimizedOrbit) -> int:
    """-1 where the objective is a `Negative`, which is to be shown as the objective that it maximizes."""
    return -1 if isinstance(gait.program.objective, Negative) else 1


def end_values(gait: OptimizedOrbit) -> tuple[float, float]:
    """The value before and after of the objective that is minimized or maximized."""
    return sign_of(gait) * float(gait.value_before), sign_of(gait) * float(gait.value)


def objective_name(gait: OptimizedOrbit) -> str:
    """The name of the objective, and what is done to it."""
    given = gait.program.objective
    negative = isinstance(given, Negative)
    name = getattr(given.objective if negative else given, "__name__", "")
    return (
        f"{name.replace('_', ' ') if name.isidentifier() else 'objective'}, {'maximized' if negative else 'minimized'}"
    )


def _course(gait: OptimizedOrbit, panels: "list[matplotlib.axes.Axes]") -> None:
    """The objective and, where there are constraints, the largest violation of the accepted evaluations, by their numbers."""
    history = gait.history
    taken = np.flatnonzero(np.asarray(history.accepted))
    style = {"marker": "o", "ms": 3.5, "lw": 1.4}
    tidy(panels[0]).plot(
        taken + 1, sign_of(gait) * np.asarray(history.objective)[taken], color=BLUE, gid="objective", **style
    )
    panels[0].set_ylabel(objective_name(gait).replace(", ", ",\n"))
    if panels[1:]:
        worst = np.maximum(np.asarray(history.violation)[taken], LEAST)
        tidy(panels[1]).semilogy(taken + 1, worst, color=VERMILION, gid="violation", **style)
        panels[1].set_ylabel("violation")
        panels[1].sharex(panels[0])
        panels[0].tick_params(labelbottom=False)
    panels[-1].set_xlabel("evaluation")
    panels[-1].locator_params(axis="x", integer=True)


def _multipliers(gait: OptimizedOrbit, ax: "matplotlib.axes.Axes") -> None:
    """The multipliers after, as in `multiplier_plane`, and those before as open circles."""
    multiplier_plane(gait.orbit, ax)
    across, up = np.real(gait.before.multipliers), np.imag(gait.before.multipliers)
    style = {"ms": 8, "mfc": "none", "mec": GREY, "mew": 1.3, "clip_on": False}
    ax.plot(across, up, "o", label="starting gait", gid="before", **style)
    # The limits of `multiplier_plane` leave room for the optimal gait's alone.
    widen(ax, float(gait.before.spectral_radius))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize=9, columnspacing=1.0)


def optimum_figure(branch: OptimumBranch) -> "matplotlib.figure.Figure":
    """Objective, each optimized parameter, and the spectral radius or the duration of a plan over the number; vertical lines
    where the active set changes.

    **Arguments:** `branch`: the result of `hyjax.follow_optimum`.

    **Returns:** the figure. `ValueError` for a branch without points; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(orbit, hj.objectives.period, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)])
    >>> branch = hj.follow_optimum(gait, limit="spectral_radius", stop=0.6, n_points=6)
    >>> figure = hj.plot.optimum_figure(branch)
    >>> figure.savefig("optimum.png")
    """
    gaits = branch.plans or branch.orbits
    if gaits is None:
        raise ValueError("optimum_figure: the branch has no points: see its `result`.")
    units = units_of_params(gaits.params)
    labelled = lambda name: axis_of(name, 0.0, units.get(name, ""))[1]
    rows = [("objective", branch.values), *zip(map(labelled, branch.names), branch.unknowns.T, strict=True)]
    if branch.orbits is not None:
        rows.append(("max $|\\lambda|$", np.max(np.abs(np.asarray(branch.orbits.multipliers)), axis=1)))
    if branch.plans is not None:
        rows.append(
            (with_unit("$T$", unit(units_of(None, gaits.params, gaits.system).time)), branch.plans.plan.duration)
        )
    fig, axes = pyplot().subplots(len(rows), 1, figsize=(6, 1.7 * len(rows) + 0.5), sharex=True, layout="constrained")
    for axis, (label, values) in zip(axes, rows, strict=True):
        # A parameter that a constraint holds at zero is zero up to rounding, whose picture would be noise.
        tidy(axis).plot(branch.numbers, np.where(np.abs(values) < 1e-15, 0, values), ".-", color=BLUE, markersize=3)
        axis.set_ylabel(label)
        for change in branch.changes:
            axis.axvline(change.number, color="0.6", linewidth=0.8, linestyle=":")
    if branch.orbits is not None:
        axes[-1].axhline(1, color="0.6", linewidth=0.8)
    axes[-1].set_xlabel(labelled(branch.name))
    fig.align_ylabels(axes)
    varied = (branch.name, *branch.names)
    one = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, gaits.params)
    put_title(fig, title_of(None, one, without=varied, system=gaits.system), 11)
    return fig


STYLES = ("-", "--", ":")


def ilqr_figure(solution: "IlqrSolution") -> "matplotlib.figure.Figure":
    """The coordinates over time, coloured by mode, with dotted lines at the jumps; below them the controls, each held for a step;
    last the cost over the iterations, coloured by the number of events.

    **Arguments:** `solution`: one result of `hyjax.control.ilqr`.

    **Returns:** the figure. `ValueError` for a batch, and where the initial guess failed; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> solution = hj.control.ilqr(
    ...     ball.system, x0, params, mode="flight", times=jnp.linspace(0.0, 0.6, 7), where=lambda p: p.gravity,
    ...     stage_cost=lambda t, x, u, p: 0.01 * jnp.sum(u**2), terminal_cost=lambda t, x, p: (x[0] - 0.5) ** 2,
    ... )
    >>> figure = hj.plot.ilqr_figure(solution)
    >>> figure.savefig("ilqr.png")
    """
    if np.ndim(solution.cost):
        raise ValueError("ilqr_figure: this is a batch. Choose one: jax.tree.map(lambda leaf: leaf[0], batch).")
    if np.isnan(solution.cost):
        raise ValueError(f"ilqr_figure: there is no trajectory to draw: {solution.result}.")
    problem = solution.problem
    modes, controls = problem.system.modes, np.asarray(solution.controls)
    names = list(dict.fromkeys(name for mode in modes.values() for name in mode.coordinates))
    units, of_params = units_of(None, problem.params, problem.system), units_of_params(problem.params)
    acting = [leaf_names(problem.params)[i] for i in problem.free]
    count = len(names) + len(acting)
    fig, axes = pyplot().subplots(count + 1, 1, figsize=(7.0, 1.3 * count + 2.2), squeeze=False, layout="constrained")
    axes = axes[:, 0]
    for ax in axes[1:count]:
        ax.sharex(axes[0])
    for ax in axes[: count - 1]:
        ax.tick_params(labelbottom=False)
    for i, mode in enumerate(modes.values()):
        for t, x in _arcs(solution, i):
            for coordinate, values in zip(mode.coordinates, x.T, strict=False):
                axes[names.index(coordinate)].plot(t, values, color=COLOURS[i % len(COLOURS)], lw=1.6)
    for name, ax in zip(names, axes[: len(names)], strict=True):
        ax.set_ylabel(with_unit(symbol(name), unit(units.coordinates.get(name, ""))))
    for name, ax, u in zip(acting, axes[len(names) : count], controls.T, strict=True):
        ax.stairs(u, np.asarray(solution.times), color=BLUE, lw=1.2, baseline=None)
        ax.set_ylabel(with_unit(f"$\\Delta$ {symbol(name.rpartition('.')[2])}", unit(of_params.get(name, ""))))
    for ax in axes[:count]:
        tidy(ax)
        for t in solution.event_times:
            ax.axvline(float(t), color=GREY, lw=0.8, ls=":", gid="jump")
    axes[count - 1].set_xlabel(with_unit("$t$", unit(units.time)))
    _draw_history(tidy(axes[count]), solution)
    if len(modes) > 1:
        visited = sorted({int(mode) for mode in solution.arcs.modes if mode >= 0})
        mode_legend(fig, {problem.system.names[k]: COLOURS[k % len(COLOURS)] for k in visited})
    put_title(fig, title_of(None, problem.params, without=acting, system=problem.system), 11)
    return fig


def plan_figure(plan: "Plan | OptimizedPlan") -> "matplotlib.figure.Figure":
    """The coordinates over time, those of one unit in one panel, rates by themselves; below them the inputs, with dashed lines at
    their limits; last, of an optimum with constraints along the arc, the distances from these limits, each relative to its
    largest.

    **Arguments:** `plan`: one `hyjax.control.Plan`, or one result of `hyjax.optimize` of it.

    **Returns:** the figure. `ValueError` for a batch; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import powered_compass_gait as walker
    >>> inputs = hj.control.HeldInputs(walker.step, lambda p: p.controller.torque, intervals=4, low=-0.2, high=0.2)
    >>> start, end = jnp.array([0.2, -0.2, -0.4, -0.3]), jnp.array([-0.2, 0.2, -0.4, -0.3])
    >>> plan = inputs.plan(jnp.stack([start, end]), 1.3, walker.Params())
    >>> figure = hj.plot.plan_figure(plan)
    >>> figure.savefig("plan.png")
    """
    own, gait = (plan, None) if isinstance(plan, Plan) else (plan.plan, plan)
    if np.ndim(own.duration):
        raise ValueError("plan_figure: this is a batch. Choose one, such as branch.plans[0].")
    held, params = own.held, own.params
    system = held.map.system
    times, x, inputs = (np.asarray(each) for each in own.sample(9))
    units = units_of(None, params, system)
    name = leaf_names(params)[held.leaf(params)]
    printed = chosen_unit(units_of_params(params).get(name, ""), params)
    panels: dict[tuple[bool, str], list[int]] = {}
    for k, each in enumerate(held.mode.coordinates):
        panels.setdefault((each.endswith("_rate"), units.coordinates.get(each, "")), []).append(k)
    rows = [
        (unit(printed), [symbol(held.mode.coordinates[k]) for k in chosen], x[:, chosen])
        for (_, printed), chosen in panels.items()
    ]
    acting = symbol(name.rpartition(".")[2])
    flat = inputs.reshape(len(times), -1)
    rows.append(
        (unit(printed), [acting] if inputs.ndim == 1 else [f"{acting} {k}" for k in range(flat.shape[1])], flat)
    )
    along = np.zeros((len(times), 0)) if gait is None else np.asarray(gait.distances(9))
    if gait is not None and along.shape[1]:
        size = np.nanmax(np.abs(along), axis=0)
        rows.append(("", gait.arc_labels, along / np.where(size > 0, size, 1)))
    fig, axes = pyplot().subplots(
        len(rows), 1, figsize=(7.0, 1.9 * len(rows) + 0.4), sharex=True, squeeze=False, layout="constrained"
    )
    for ax, (printed, labels, columns) in zip(axes[:, 0], rows, strict=True):
        for k, label in enumerate(labels):
            tidy(ax).plot(
                times,
                columns[:, k],
                color=COLOURS[k % len(COLOURS)],
                lw=1.6,
                ls=STYLES[k // len(COLOURS) % len(STYLES)],
                label=label,
            )
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8)
        ax.set_ylabel(printed if printed and printed != "1" else "")
    acting_ax = axes[len(panels), 0]
    for limit in np.unique(np.concatenate([np.ravel(held.low), np.ravel(held.high)])):
        if np.isfinite(limit):
            acting_ax.axhline(float(limit), color=GREY, lw=0.8, ls="--", gid="limit")
    if along.shape[1]:
        axes[-1, 0].axhline(0, color=GREY, lw=0.8, ls="--", gid="limit")
        axes[-1, 0].set_ylabel("distance, relative")
    axes[-1, 0].set_xlabel(with_unit("$t$", unit(units.time)))
    put_title(fig, title_of(None, params, without=[name], system=system), 11)
    return fig


def _arcs(solution: "IlqrSolution", mode: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Times and states of each arc in a mode: at its start, the grid times within it, and its end."""
    arcs, numbers, found = solution.arcs, np.asarray(solution.numbers), []
    for k in range(int(solution.events) + 1):
        if int(arcs.modes[k]) != mode:
            continue
        inside = numbers == k
        t = [[arcs.start_times[k]], np.asarray(solution.times)[inside], [arcs.end_times[k]]]
        x = [arcs.x_starts[k][None], np.asarray(solution.x)[inside], arcs.x_ends[k][None]]
        found.append((np.concatenate(t), np.concatenate(x)))
    return found


def _draw_history(ax, solution: "IlqrSolution") -> None:
    cost, events = np.asarray(solution.history.cost), np.asarray(solution.history.events)
    ax.plot(np.arange(len(cost)), cost, color=GREY, lw=0.8)
    for k, count in enumerate(sorted(set(events[events >= 0].tolist()))):
        rows = np.flatnonzero(events == count)
        label = f"{count} event" + "s" * (count != 1)
        ax.plot(rows, cost[rows], "o", ms=3.5, color=COLOURS[k % len(COLOURS)], label=label)
    ax.set_yscale("log" if np.nanmin(cost) > 0 else "linear")
    ax.legend(frameon=False, fontsize=8)
    ax.set(xlabel="iteration", ylabel="cost")
