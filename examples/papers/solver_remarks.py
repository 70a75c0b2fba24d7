"""What agrees between a study of the hopper and the tables of Dallas et al. (2017), and what does not: from the numbers."""

from typing import NamedTuple, TYPE_CHECKING

import numpy as np
from rich.table import Table
from solver_tables import SOLVERS, TABLE_3, TABLE_4, TOLERANCES

from hyjax.models import monopod_hopper

if TYPE_CHECKING:
    import xarray

TABLES = {"combined": TABLE_3, "events": TABLE_4}
# The column of each criterion in the paper's tables.
CRITERIA = {"seconds": 0, "evaluations": 0, "divergence_time": 1, "integral_of_error": 2}
# Of the integral of the absolute error of the toe's height over 50 periods of the leg.
ACCURATE = 1e-3
COSTS = "seconds", "evaluations"
IMPLICIT = "ode15s", "ode23s", "ode23tb", "ode23t"


class Cheapest(NamedTuple):
    """The solver and relative tolerance of a run, and its cost."""

    name: str
    rtol: float
    cost: float


def cheapest(runs: "xarray.Dataset", error: float, cost: str) -> Cheapest | None:
    """The cheapest of the runs whose integral of the error is at most `error`; `None` where no run is that accurate.

    **Arguments:** `runs`: of a study, over `solver` and `rtol`. `cost`: a measure, such as `seconds`.
    """
    costs = runs[cost].where(runs["integral_of_error"] <= error).transpose("solver", "rtol")
    if not np.any(np.isfinite(costs.values)):
        return None
    i, j = np.unravel_index(np.nanargmin(costs.values), costs.shape)
    return Cheapest(str(runs["solver"].values[i]), float(runs["rtol"].values[j]), float(costs.values[i, j]))


def agreement_table(points: "xarray.Dataset") -> Table:
    """The rank correlation (Spearman) of the seven solvers' points with those of the paper, 1 for the same order."""
    table = Table(title="Rank correlation with the paper", title_justify="left", box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for column in ("SD, seconds", "SD, evaluations", "DT", "IAE"):
        table.add_column(column, justify="right", no_wrap=True)
    for strategy, printed in TABLES.items():
        for tolerance in TOLERANCES:
            here = points.sel(strategy=strategy, rtol=tolerance)
            theirs = np.array(printed[tolerance])
            values = (_correlation(here[name].values, theirs[:, column]) for name, column in CRITERIA.items())
            table.add_row(f"{strategy}, {tolerance:g}", *(f"{value:+.2f}" for value in values))
    return table


def cheapest_table(study: "xarray.Dataset") -> Table:
    """The cheapest solver of each set that reaches a given error, by seconds and by evaluations, events located."""
    title = f"The cheapest run with IAE below {ACCURATE:g}, events located, of all tolerances"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("set", "stiffness ratio", "printed", "by evaluations", "by seconds", "ms", "ms, best implicit"):
        table.add_column(column, justify="right", no_wrap=True)
    here = study.sel(strategy="events")
    for number in study["set"].values:
        params = monopod_hopper.table_2(int(number))
        ratios = (monopod_hopper.stiffness_ratio(params, printed) for printed in (False, True))
        one = here.sel(set=number)
        by = {cost: cheapest(one, ACCURATE, cost) for cost in COSTS[::-1]}
        named = (f"{each.name} {each.rtol:g}" if each else "none" for each in by.values())
        best, stiff = by["seconds"], cheapest(one.sel(solver=list(IMPLICIT)), ACCURATE, "seconds")
        times = (f"{1e3 * each.cost:.2f}" if each else "" for each in (best, stiff))
        table.add_row(str(number), *(f"{ratio:.0f}" for ratio in ratios), *named, *times)
    return table


def remarks(study: "xarray.Dataset", points: "xarray.Dataset") -> list[str]:
    """Sentences with the numbers that explain the tables."""
    lines = [_first(points), *_duration(study), *_divergence(study), _error(study), *_failed(study)]
    names, at = study.attrs["reference"], study.attrs["reference_tolerance"]
    worst = study.reference_error
    lines.append(
        f"The references ({names} at {at:g}) disagree by at most {float(worst.max()):.1e} "
        f"(set {int(worst['set'][int(np.argmax(worst.values))])}); the paper's reference is the average of ode23, ode45, ode113 "
        "and ode15s at 1e-12."
    )
    return lines


def _first(points: "xarray.Dataset") -> str:
    same, ours, theirs = 0, [], []
    for strategy, printed in TABLES.items():
        for tolerance in TOLERANCES:
            here = points.seconds.sel(strategy=strategy, rtol=tolerance).values
            ours.append(SOLVERS[int(np.argmax(here))])
            theirs.append(SOLVERS[int(np.argmax([row[0] for row in printed[tolerance]]))])
            same += ours[-1] == theirs[-1]
    return (
        f"Duration: the fastest of the paper is {_named(theirs)}, and ours {_named(ours)}: the same in {same} of {len(ours)} "
        f"tables. Explicit methods are the fastest in {sum(name not in IMPLICIT for name in ours)} of ours, and in "
        f"{sum(name not in IMPLICIT for name in theirs)} of the paper's."
    )


def _duration(study: "xarray.Dataset") -> list[str]:
    per_step = (study.seconds.sum("set") / study.steps_tried.sum("set")).sel(strategy="combined", rtol=1e-9)
    each = ", ".join(f"{name} {1e6 * float(value):.1f}" for name, value in zip(SOLVERS, per_step, strict=True))
    lines = [
        f"Seconds and evaluations rank differently because a step costs more than its evaluations: microseconds a step, {each}. "
        "A compiled vector field of four coordinates costs nanoseconds; an interpreted one, as in MATLAB, counts for more. "
        "Jacobians are not among the evaluations; the dataset has them."
    ]
    ratio, work = (study[name].sel(strategy="events") / study[name].sel(strategy="combined") for name in COSTS)
    lines.append(
        f"Events take {float(ratio.median()):.1f} times the seconds (median of all runs; {float(np.mean(ratio > 1)):.0%} are "
        f"slower) and {float(work.median()):.2f} times the evaluations. The paper: slower in almost all cases."
    )
    return lines


def _divergence(study: "xarray.Dataset") -> list[str]:
    lines = []
    for tolerance in TOLERANCES:
        times = study.divergence_time.sel(rtol=tolerance)
        never = int(np.sum(times.values >= float(study.time[-1])))
        printed = [row[1] for table in TABLES.values() for row in table[tolerance]]
        lines.append(
            f"Divergence, tolerance {tolerance:g}: {never} of {times.size} of our runs stay within "
            f"{float(study.threshold.sel(rtol=tolerance)):.0%} of the reference to the end; the paper's points are "
            f"{min(printed):.0f} to {max(printed):.0f} of 130."
        )
    lines.append(
        "A run that never diverges has all of its 10 points. Where most of ours do not diverge and the paper's points are few, "
        "the paper measures errors of 1 % that these methods do not make at such a tolerance: they lie in its reference or in "
        "the comparison with it, such as an interpolation to common times, which the paper does not describe."
    )
    return lines


def _error(study: "xarray.Dataset") -> str:
    parts = []
    for tolerance in TOLERANCES:
        error = study.integral_of_error.sel(rtol=tolerance)
        ratio = (error.sel(strategy="events") / error.sel(strategy="combined")).values
        ratio = ratio[np.isfinite(ratio)]
        parts.append(f"at {tolerance:g} in {np.mean(ratio < 1):.0%} (median ratio {np.median(ratio):.2f})")
    return (
        "Error: located events have the smaller integral of the error "
        + ", ".join(parts)
        + ". The paper: 'without necessarily improving in "
        "accuracy'. The points of the error are near 130 for most, in the paper and "
        "here, because the worst run of all sets is the scale."
    )


def _failed(study: "xarray.Dataset") -> list[str]:
    codes = study.result.attrs["flag_meanings"].split()
    return [
        f"Failed: {strategy}, tolerance {float(study.rtol[i]):g}, {SOLVERS[j]}, set {k + 1}: {codes[code]}."
        for (s, i, j, k), code in np.ndenumerate(study.result.transpose("strategy", "rtol", "solver", "set").values)
        if code
        for strategy in [str(study.strategy.values[s])]
    ]


def _named(names: list[str]) -> str:
    """Names with how often each occurs."""
    return ", ".join(f"{name} ({names.count(name)})" for name in dict.fromkeys(names))


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation; equal values have their mean rank."""
    ranks = [np.array([np.sum(v < x) + (np.sum(v == x) - 1) / 2 for x in v]) for v in (a, b)]
    return float(np.corrcoef(ranks)[0, 1])
