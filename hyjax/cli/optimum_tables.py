"""Output of the command `optimize`: the JSON record, and the tables made of it."""

from types import ModuleType
from typing import Any, TYPE_CHECKING

import numpy as np

from .._system.results import code_of
from .output import orbit_record
from .quantities import quantities, Quantity

if TYPE_CHECKING:
    from .._optimize.optimized_orbit import OptimizedOrbit


def optimum_record(
    name: str,
    values: dict[str, float],
    gait: "OptimizedOrbit",
    objective: Quantity,
    maximize: bool,
    bounds: dict[str, tuple[float, float]],
) -> dict[str, Any]:
    """The JSON record of an optimization; a number that is not finite becomes null.

    **Arguments:** `values`: the parameters at the start, by name. `gait`: of the negative objective if `maximize`.
    """
    import equinox as eqx
    import jax

    sign = -1 if maximize else 1
    rows_before = eqx.filter_jit(type(gait.gait).values)(gait.gait, gait.before)[1:]
    gait, rows_before = jax.device_get((gait, rows_before))
    starts, best = gait.starts, int(gait.best)
    optimal = {each: _number(getattr(gait.orbit.params, each)) for each in values}
    return {
        "model": name,
        "params": optimal,
        "objective": {
            "name": objective.name,
            "maximized": maximize,
            "before": _number(sign * gait.value_before),
            "after": _number(sign * gait.value),
        },
        "varied": [
            {
                "name": each,
                "low": low,
                "high": high,
                "before": values[each],
                "after": optimal[each],
                "gradient": _number(sign * gait.gradient[k]),
                "bound_multiplier": _number(sign * gait.bound_multipliers[k]),
                "at": _bound_reached(optimal[each], low, high) if gait.bound_multipliers[k] != 0 else None,
            }
            for k, (each, (low, high)) in enumerate(bounds.items())
        ],
        "constraints": _constraints(gait, sign, rows_before),
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


def lost_gaits(record: dict[str, Any]) -> str:
    """The trials of the best start whose gait was lost, by their result, such as `3 far_from_guess`; or nothing."""
    lost = [each["result"] for each in record["history"] if each["result"] != "successful"]
    return ", ".join(f"{lost.count(code)} {code}" for code in sorted(set(lost)))


def _constraints(gait: "OptimizedOrbit", sign: int, rows_before) -> list[dict[str, Any]]:
    """Each limit of a constraint, equalities first, as the rows of the optimization."""
    given = gait.gait.constraints
    limits = [(each.name, "=", each.equals) for each in given if each.equals is not None]
    for each in given:
        pairs = (">=", each.at_least), ("<=", each.at_most)
        limits += [(each.name, relation, limit) for relation, limit in pairs if limit is not None]
    equalities, found = len(gait.constraints) - len(gait.active), []
    for k, (name, relation, limit) in enumerate(limits):
        side = -1 if relation == "<=" else 1
        found.append(
            {
                "name": name,
                "relation": relation,
                "limit": float(limit),
                "before": _number(limit + side * rows_before[k]),
                "after": _number(limit + side * gait.constraints[k]),
                # The derivative of the objective by the limit.
                "multiplier": _number(sign * side * gait.multipliers[k]),
                "active": k < equalities or bool(gait.active[k - equalities]),
            }
        )
    return found


def _bound_reached(value: float | None, low: float, high: float) -> str | None:
    """Which bound a value lies at; where no optimum was found, there are multipliers of bounds that are far."""
    if value is None:
        return None
    near = 1e-9 * (high - low)
    return "low" if value - low <= near else "high" if high - value <= near else None


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
    lost = lost_gaits(record)
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


def optimum_tables(model: ModuleType, record: dict[str, Any]) -> list:
    """What the command prints: the table of the gaits before and after, the accuracy, and for several starts their optima."""
    from rich.table import Table

    objective, before, after = record["objective"], record["before"], record["after"]
    varied = [each["name"] for each in record["varied"]]
    fixed = ", ".join(f"{key} = {value:.10g}" for key, value in record["params"].items() if key not in varied)
    title = (
        f"{model.title}: {objective['name'].replace('_', ' ')} {'maximized' if objective['maximized'] else 'minimized'}"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("unit")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    table.add_column("")
    known, units = quantities(model), {name: unit for name, unit in _units(model)}
    row = lambda name, unit, pair, note="": table.add_row(
        name, unit, *(_shown(pair[end]) for end in ("before", "after")), note
    )
    row(objective["name"], known[objective["name"]].unit, objective)
    for each in record["varied"]:
        at = f"at its {'lower' if each['at'] == 'low' else 'upper'} bound, multiplier {_shown(each['bound_multiplier'], 6)}"
        row(each["name"], units[each["name"]], each, at if each["at"] else "")
    for each in record["constraints"]:
        note = f"multiplier {_shown(each['multiplier'], 6)}" if each["active"] else "not active"
        row(f"{each['name']} {each['relation']} {each['limit']:.6g}", known[each["name"]].unit, each, note)
    for k, (name, unit) in enumerate(zip(model.coordinates, model.units, strict=True)):
        row(name, unit, {"before": before["x0"][k], "after": after["x0"][k]})
    row("period", model.time_unit, {"before": before["period"], "after": after["period"]})
    table.add_row("spectral radius", "1", *(f"{orbit['spectral_radius']:.10f}" for orbit in (before, after)), "")
    table.add_row("stable", "", *("yes" if orbit["stable"] else "no" for orbit in (before, after)), "")
    table.add_row("residual", "", *(f"{orbit['residual']:.1e}" for orbit in (before, after)), "")
    errors = (_shown(record[each], 2) or "not known" for each in ("optimality_residual", "gradient_error"))
    accuracy = "optimality residual {}, gradient against differences {}; {} evaluations: {}".format(
        *errors, record["evaluations"], record["result"]
    )
    if lost := lost_gaits(record):
        accuracy += f"\ntrials that were shortened because the gait was lost: {lost}"
    return [
        f"{title}; {fixed}" if fixed else title,
        table,
        accuracy,
        *([_starts(record, varied)] if len(record["starts"]) > 1 else []),
    ]


def _units(model: ModuleType) -> list[tuple[str, str]]:
    from .arguments import parameter_fields

    return [(field.name, field.metadata["unit"]) for field in parameter_fields(model)]


def _starts(record: dict[str, Any], varied: list[str]):
    """The table of the distinct optima, with the number of starts that led to each, and of the other starts by their result."""
    from rich.table import Table

    table = Table("starts", "", record["objective"]["name"], *varied, box=None, pad_edge=False)
    starts = record["starts"]
    for number in sorted({each["optimum"] for each in starts if each["optimum"]}):
        mine = [each for each in starts if each["optimum"] == number]
        shown = (_shown(value, 9) for value in (mine[0]["value"], *mine[0]["params"].values()))
        table.add_row(str(len(mine)), f"optimum {number}", *shown)
    lost = [each["result"] for each in starts if not each["optimum"]]
    for code in sorted(set(lost)):
        table.add_row(str(lost.count(code)), code)
    return table


def _shown(value: float | None, digits: int = 12) -> str:
    return "" if value is None else f"{value + 0.0:.{digits}g}"
