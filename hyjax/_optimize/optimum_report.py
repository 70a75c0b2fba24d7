"""Optimizations as tables, in plain text and for HTML."""

from collections.abc import Iterator

import jax
import numpy as np

from .._results.labels import named_params, units_of
from .._results.shown import is_traced
from .._results.table import Table
from .._system.results import code_of, counted_codes, described_code, RESULTS


def describe(gait) -> str:
    """The table that `print` shows: the parameters and the objective before and after, constraints, residuals, starts."""
    if is_traced(gait):
        return "OptimizedGait(traced)"
    rows = [("", "before", "after", ""), *(row[:1] + row[2:] for row in _rows(gait))]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = ["OptimizedGait"]
    lines += [f"  {a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in rows]
    return "\n".join([*lines, *(f"  {line}" for line in _notes(gait))])


def optimization_table(gait) -> Table:
    """The same rows with units, for HTML."""
    return Table("OptimizedGait", list(_rows(gait)), ("", "unit", "before", "after", ""), notes=_notes(gait))


def _rows(gait) -> Iterator[tuple[str, str, str, str, str]]:
    """Name, unit, value before, value after and remark of each row."""
    before, after = (
        np.asarray(gait.gait.unknowns.vector(orbit.params) * gait.gait.unknowns.scale)
        for orbit in (gait.before, gait.orbit)
    )
    radius = lambda orbit: float(np.max(np.abs(np.asarray(orbit.multipliers))))
    yield "objective", "", f"{float(gait.value_before):.12g}", f"{float(gait.value):.12g}", ""
    duals, unknowns = np.asarray(gait.bound_multipliers), gait.gait.unknowns
    low, high = unknowns.at_bounds(gait.params)
    at_bound = np.where(low, "lower", np.where(high, "upper", ""))
    known = named_params(gait.params)
    for k in range(after.size) if after.size <= 20 else range(10):
        unit = known[gait.names[k]][1].get("units", "") if gait.names[k] in known else ""
        remark = f"at its {at_bound[k]} bound, multiplier {duals[k]:.4g}" if at_bound[k] else ""
        yield gait.names[k], unit, f"{before[k]:.12g}", f"{after[k]:.12g}", remark
    if after.size > 20:
        yield f"and {after.size - 10} more", "", "", "", ""
    time = units_of(None, gait.params, gait.orbit.system).time
    yield "period", time, f"{float(gait.before.period):.12g}", f"{float(gait.orbit.period):.12g}", ""
    yield "spectral radius", "", f"{radius(gait.before):.6g}", f"{radius(gait.orbit):.6g}", ""


def _notes(gait) -> list[str]:
    """Constraints, residuals and starts, a line for each."""
    lines = []
    labels, values, multipliers = gait.labels, np.asarray(gait.constraints), np.asarray(gait.multipliers)
    equalities = values.size - np.asarray(gait.active).size
    for k, label in enumerate(labels):
        active = k < equalities or bool(gait.active[k - equalities])
        # The derivative by the limit: of b - g it is minus the multiplier.
        slope = -multipliers[k] if " <= " in label else multipliers[k]
        state = f"multiplier {slope:.6g}" if active else f"inactive, by {values[k]:.3g}"
        lines.append(f"{label}: {state}")
    lines.append(
        f"optimality residual {float(gait.error):.1e}, gradient against differences {float(gait.gradient_error):.1e}"
    )
    iterations = int(gait.starts.iterations[int(gait.best)])
    lines.append(f"{iterations} evaluations: {described_code(gait.result)}")
    return [*lines, *_starts(gait)]


def _starts(gait) -> list[str]:
    starts = jax.tree.map(np.asarray, gait.starts)
    if starts.values.size == 1:
        return []
    lines = [f"{starts.values.size} starts:"]
    for number in range(int(starts.optimum.max()) + 1):
        mine = starts.optimum == number
        first = int(np.argmax(mine))
        values = ", ".join(
            f"{name} = {value:.6g}" for name, value in zip(gait.names[:8], starts.unknowns[first], strict=False)
        )
        lines.append(f"{int(mine.sum()):>6}  optimum {number + 1}: {starts.values[first]:.9g} at {values}")
    lost = [(code, n) for code, n in counted_codes(starts.result) if not code.startswith("successful")]
    return lines + [f"{n:>6}  {code}" for code, n in lost]


def failure(gait) -> str:
    """The message of an optimization that found no optimum."""
    start = int(gait.best)
    lost = [code for code, n in counted_codes(_codes(gait, start)) if not code.startswith("successful")]
    met = f" On the way gaits were lost: {'; '.join(each.partition(':')[0] for each in lost)}." if lost else ""
    return (
        f"optimize: {described_code(gait.result)} The best of {gait.starts.values.size} starts ended at the objective "
        f"{float(gait.value):.9g} with the residual {float(gait.error):.1e} of the optimality conditions and violations up to "
        f"{float(gait.starts.violation[start]):.1e}, after {int(gait.starts.iterations[start])} evaluations.{met} "
        f"With throw=False the result is returned. ({gait.result})"
    )


def _codes(gait, start: int):
    """The result codes of the evaluations of a start."""
    numbers = np.asarray(gait.starts.history.codes[start])[: int(gait.starts.iterations[start])]
    return jax.tree.map(lambda leaf: numbers, RESULTS.successful) if numbers.size else code_of(0)
