"""The command `optimize`: the parameters of a gait that minimize or maximize an objective under constraints; its JSON record, and
what it says where no optimum was found."""

import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TYPE_CHECKING

import numpy as np
import typer

from .._system.results import code_of
from .arguments import as_misuse, check_count, load, Misuse, NotFound, parse_parameters, parse_sequence
from .options import (
    Json,
    Model,
    MOST_POINTS,
    MOST_STRIDES,
    Overwrite,
    Param,
    require_dask,
    Scheduler,
    Sequence,
    Strides,
    workers_of,
)
from .orbits import choose_orbit, require_orbits
from .output import check_files, check_outline, orbit_record, save_figure, tell_written
from .process import start_jax
from .quantities import parse_bounds, parse_constraints, quantities, quantity

if TYPE_CHECKING:
    from .._optimize.optimized_orbit import OptimizedOrbit


def optimum_record(
    name: str,
    values: dict[str, float],
    gait: "OptimizedOrbit",
    objective: str,
    maximize: bool,
    bounds: dict[str, tuple[float, float]],
) -> dict[str, Any]:
    """The JSON record of an optimization; a number that is not finite becomes null.

    **Arguments:** `values`: the parameters at the start, by name. `gait`: of the negative objective if `maximize`.
    """
    import jax

    sign = -1 if maximize else 1
    gait = jax.device_get(gait)
    starts, best = gait.starts, int(gait.best)
    low, high = gait.program.unknowns.at_bounds(gait.params)
    at = ["low" if a else "high" if b else None for a, b in zip(low, high, strict=True)]
    optimal = {each: _number(getattr(gait.orbit.params, each)) for each in values}
    return {
        "model": name,
        "params": optimal,
        "objective": {
            "name": objective,
            "maximized": maximize,
            "before": _number(sign * gait.value_before),
            "after": _number(sign * gait.value),
        },
        "varied": [
            {
                "name": each,
                "low": ends[0],
                "high": ends[1],
                "before": values[each],
                "after": optimal[each],
                "gradient": _number(sign * gait.gradient[k]),
                "bound_multiplier": _number(sign * gait.bound_multipliers[k]),
                "at": at[k],
            }
            for k, (each, ends) in enumerate(bounds.items())
        ],
        "constraints": _constraints(gait, sign),
        "optimality_residual": _number(gait.error),
        "gradient_error": _number(gait.gradient_error),
        "evaluations": int(starts.iterations[best]),
        "history": _history(gait.history, sign),
        "starts": [
            {
                "value": _number(sign * starts.values[k]),
                "params": {each: _number(value) for each, value in zip(bounds, starts.unknowns[k], strict=True)},
                "violation": _number(starts.violation[k]),
                "optimality_residual": _number(starts.error[k]),
                "evaluations": int(starts.iterations[k]),
                "optimum": int(starts.optimum[k]) + 1 or None,
                "result": str(code_of(int(starts.result._value[k]))),
            }
            for k in range(len(starts.values))
        ],
        "best": best + 1,
        "before": orbit_record(gait.before),
        "after": orbit_record(gait.orbit),
        "result": str(gait.result),
    }


def _history(history, sign: int) -> list[dict[str, Any]]:
    """Every evaluation of the best start: the trial's objective, its result, and whether it was accepted."""
    columns = zip(history.objective, history.violation, history.step, history.accepted, history.names, strict=True)
    return [
        {
            "objective": _number(sign * objective),
            "violation": _number(violation),
            "step": _number(step),
            "accepted": bool(accepted),
            "result": name,
        }
        for objective, violation, step, accepted, name in columns
    ]


def _constraints(gait: "OptimizedOrbit", sign: int) -> list[dict[str, Any]]:
    """Each limit of a constraint, equalities first, as the rows of the optimization."""
    equalities, found = len(gait.constraints) - len(gait.active), []
    for k, (name, relation, limit) in enumerate(gait.limits):
        side = -1 if relation == "<=" else 1
        found.append(
            {
                "name": name,
                "relation": relation,
                "limit": float(limit),
                "before": _number(limit + side * gait.constraints_before[k]),
                "after": _number(limit + side * gait.constraints[k]),
                # The derivative of the objective by the limit.
                "multiplier": _number(sign * side * gait.multipliers[k]),
                "active": k < equalities or bool(gait.active[k - equalities]),
            }
        )
    return found


def _number(value) -> float | None:
    return float(value) if np.isfinite(value) else None


def no_optimum(record: dict[str, Any], gait: "OptimizedOrbit", first_order: bool) -> str:
    """Why no optimum was found, and what to try, in the words of the command line."""
    from .._system.results import described_code

    best, code = record["starts"][record["best"] - 1], record["result"]
    violation, residual = _shown(best["violation"], 2), _shown(best["optimality_residual"], 2)
    why = {
        "infeasible": f"infeasible: a constraint is violated by {violation}, and no small change of the parameters lessens it.",
        "optimum_not_found": f"optimum_not_found: the optimality conditions have the residual {residual} after "
        f"{record['evaluations']} evaluations.",
    }.get(code) or described_code(gait.result)
    names = [each["result"] for each in record["history"] if each["result"] != "successful"]
    lost = ", ".join(f"{names.count(code)} {code}" for code in sorted({*names}))
    why += f" Trials that were shortened because the gait was lost: {lost}." if lost else ""
    # Multipliers grow without bound towards a grazing event, and one passes 1 at a fold: beyond either the gait is lost.
    radius, first = record["after"]["spectral_radius"], record["before"]["spectral_radius"]
    if lost and radius is not None and radius > max(0.99, first):
        # At a fold the radius is 1 on the side of the stable gaits too.
        limit = "contraction<=0.95" if first < 0.95 else "spectral_radius<=1"
        why += (
            f" The search ended at the spectral radius {radius:.4g}, as near a fold or a grazing event, where the gait "
            f'ends: --subject-to "{limit}" excludes such gaits.'
        )
    sharp = "spectral_radius" in (record["objective"]["name"], *(each["name"] for each in record["constraints"]))
    hints = ["--starts", "other bounds", "another --orbit", *["no --first-order"] * first_order]
    hints += ["contraction, which is smooth, for spectral_radius"] * sharp
    return f"no optimum was found. {why} Try {', '.join(hints[:-1])} or {hints[-1]}."


def _shown(value: float | None, digits: int = 12) -> str:
    return "" if value is None else f"{value + 0.0:.{digits}g}"


# What a computer's memory holds: the history of each start is kept.
MOST_OPTIMIZATIONS = 10_000


def optimize(
    name: Model,
    objective: Annotated[
        str,
        typer.Option(
            help="quantity to minimize: period, spectral_radius, contraction, speed, step_length, slope_sensitivity (of the "
            "period to noise of the slope), or one of the model's objectives, which hyjax models MODEL lists"
        ),
    ],
    over: Annotated[list[str], typer.Option(help="parameter that varies, as name=low:high; repeat for several")],
    subject_to: Annotated[
        list[str] | None,
        typer.Option(help="constraint on a quantity, as speed=0.4, period>=2 or period<=3; repeat for several"),
    ] = None,
    param: Param = None,
    strides: Strides = 1,
    sequence: Sequence = None,
    orbit: Annotated[
        int | None,
        typer.Option(
            help="number of the gait to start from, as hyjax gait counts them; default: near the model's guess"
        ),
    ] = None,
    maximize: Annotated[bool, typer.Option("--maximize", help="maximize the objective")] = False,
    starts: Annotated[
        int, typer.Option(help="number of starts, spread over the bounds; the first is the gait's own")
    ] = 1,
    first_order: Annotated[
        bool, typer.Option("--first-order", help="use gradients alone: less compilation, more evaluations")
    ] = False,
    scheduler: Scheduler = None,
    as_json: Json = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="draw the gaits before and after, the objective and the multipliers to this file"),
    ] = None,
    animate: Annotated[
        Path | None,
        typer.Option(help="write an animation of the gaits before and after to this file: .gif, .mp4 or .html"),
    ] = None,
    overwrite: Overwrite = False,
):
    """Find the parameters of a gait that minimize an objective under constraints. Print the gait before and after.

    The optimum is a local one: other starts may lead to others.
    """
    check_files(plot, animate, overwrite=overwrite)
    check_count("--strides", strides, 1, MOST_STRIDES)
    check_count("--starts", starts, 1, MOST_OPTIMIZATIONS)
    if orbit is not None:
        check_count("--orbit", orbit, 1, MOST_POINTS)
    require_dask(scheduler)
    cache = start_jax()
    model = load(name, sequence)
    check_outline(model, animate)
    params, values = parse_parameters(model, param, levels=True)
    bounds = parse_bounds(model, over, values)
    wanted, _ = quantity(model, objective, "--objective")
    constraints = parse_constraints(model, subject_to)
    equations = sum(each.equals is not None for each in constraints)
    if equations > len(bounds):
        raise Misuse(
            f"--subject-to: {equations} equations for {len(bounds)} parameter{'s' * (len(bounds) > 1)} leave no choice. Give "
            "more parameters with --over, or fewer equations."
        )
    modes = parse_sequence(model, sequence, levels=True)

    from .._optimize.interior_point import InteriorPoint
    from .._optimize.objectives import Negative
    from .._optimize.optimize import optimize as run

    first = starting_gait(model, params, values, modes, strides, cache, orbit)
    lens = lambda params: tuple(getattr(params, name) for name in bounds)
    print(
        f"hyjax: the derivatives of the gait are compiled, and kept in {cache}: the first time this takes minutes for a model of "
        f"many states.{'' if first_order else ' With --first-order it takes about half as long.'}",
        file=sys.stderr,
    )
    with workers_of(scheduler) as executor, as_misuse():
        found = run(
            first, Negative(wanted) if maximize else wanted, where=lens,
            constraints=constraints, bounds=tuple(bounds.values()), starts=starts,
            method=InteriorPoint(second_order=not first_order), throw=False, executor=executor,
        )  # fmt: skip
    record = optimum_record(name, values, found, objective, maximize, bounds)
    if as_json:
        print(json.dumps(record))
    else:
        print_optimum(model, found, objective, maximize, values, bounds)
    # The gait at which a search ended without an optimum is drawn too: it shows where the search went.
    drawn = math.isfinite(float(found.orbit.period))
    if plot is not None and drawn:
        from ..plot.optimization_figure import optimization_figure

        save_figure(plot, lambda: optimization_figure(found, model))
    if animate is not None and drawn:
        from ..plot.animation import animate_optimization, save_animation

        with as_misuse():
            save_animation(animate_optimization(found, model), animate)
        tell_written(animate)
    if found.result != "successful":
        raise NotFound(f"{name}: {no_optimum(record, found, first_order)}")


def print_optimum(model: ModuleType, found, objective: str, maximize: bool, values: dict[str, float], bounds) -> None:
    """Print the table of the optimization, of the objective itself where its negative was minimized, and the parameters that are
    fixed."""
    from .._optimize.optimized_orbit import optimization_table

    fixed = [f"{key} = {value:.10g}" for key, value in values.items() if key not in bounds]
    title = f"{model.title}: {objective.replace('_', ' ')} {'maximized' if maximize else 'minimized'}"
    units = {name: unit for name, (_, unit) in quantities(model).items()}
    table = optimization_table(found, objective, -1 if maximize else 1, units)
    print(table._replace(caption="; ".join([title, *([", ".join(fixed)] if fixed else [])])).text())


def starting_gait(
    model: ModuleType,
    params,
    values: dict[str, float],
    modes: tuple[str, ...],
    strides: int,
    cache: str,
    number: int | None,
):
    """The gait from which the optimization starts: number `number` of `hyjax gait`; or the one near the model's guess, and where
    there is none the first of `hyjax gait`. A line on stderr says which."""
    from .._orbit.periodic_orbit import periodic_orbit
    from .._orbit.return_map import ReturnMap
    from .._results.working import working

    guessed = hasattr(getattr(model, "module", model), "guess")
    if guessed and number is None and strides == 1 and modes == tuple(getattr(model, "sequence", ())):
        with working("looking for the gait near the model's guess"):
            orbit = periodic_orbit(ReturnMap(model.system, sequence=modes), model.guess(params), params, throw=False)
        if orbit.result == "successful":
            print("hyjax: from the gait near the model's guess; another one: --orbit.", file=sys.stderr)
            return orbit
    orbits, _ = require_orbits(model, params, values, modes, strides, cache)
    chosen = 1 if number is None else number
    orbit = choose_orbit(orbits, chosen, values)
    print(f"hyjax: from gait {chosen} of {len(orbits)} of hyjax gait.", file=sys.stderr)
    return orbit
