"""Pictures of controlled trajectories: states, controls, the cost by iteration, and distances from limits."""

from typing import TYPE_CHECKING

import numpy as np

from .._results.labels import chosen_unit, named_params, units_of
from .._system.where import leaf_names
from ..control.held_inputs import Plan
from .figure import BLUE, COLOURS, GREY, mode_legend, put_title, pyplot, symbol, tidy, title_of, unit, with_unit

if TYPE_CHECKING:
    import matplotlib.figure

    from .._optimize.optimized_plan import OptimizedPlan
    from ..control.ilqr import IlqrSolution

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
    units, about = units_of(None, problem.params, problem.system), named_params(problem.params)
    acting = [leaf_names(problem.params)[i] for i in problem.free]
    count = len(names) + len(acting)
    fig, axes = pyplot().subplots(count + 1, 1, figsize=(7.0, 1.3 * count + 2.2), squeeze=False, layout="constrained")
    axes = axes[:, 0]
    for ax in axes[1:count]:
        ax.sharex(axes[0])
    for ax in axes[: count - 1]:
        ax.tick_params(labelbottom=False)
    for number, mode in enumerate(modes.values()):
        for t, x in _arcs(solution, number):
            for coordinate, values in zip(mode.coordinates, x.T, strict=False):
                axes[names.index(coordinate)].plot(t, values, color=COLOURS[number % len(COLOURS)], lw=1.6)
    for name, ax in zip(names, axes[: len(names)], strict=True):
        ax.set_ylabel(with_unit(symbol(name), unit(units.coordinates.get(name, ""))))
    for name, ax, u in zip(acting, axes[len(names) : count], controls.T, strict=True):
        ax.stairs(u, np.asarray(solution.times), color=BLUE, lw=1.2, baseline=None)
        printed = unit(about.get(name, (0, {}))[1].get("units", ""))
        ax.set_ylabel(with_unit(f"$\\Delta$ {symbol(name.rpartition('.')[2])}", printed))
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
    units, about = units_of(None, params, system), named_params(params)
    name = leaf_names(params)[held.leaf(params)]
    printed = chosen_unit(about.get(name, (0, {}))[1].get("units", ""), params)
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
    for k, number in enumerate(sorted(set(events[events >= 0].tolist()))):
        rows = np.flatnonzero(events == number)
        label = f"{number} event" + "s" * (number != 1)
        ax.plot(rows, cost[rows], "o", ms=3.5, color=COLOURS[k % len(COLOURS)], label=label)
    ax.set_yscale("log" if np.nanmin(cost) > 0 else "linear")
    ax.legend(frameon=False, fontsize=8)
    ax.set(xlabel="iteration", ylabel="cost")
