"""The JSON record of the command `optimize`, and what it says where no optimum was found."""

from typing import Any, TYPE_CHECKING

import numpy as np

from .._system.results import code_of
from .output import orbit_record

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
