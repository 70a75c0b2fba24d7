"""Periodic orbits as tables, in plain text and for HTML."""

from collections.abc import Iterator

import jax
import jax.core
import numpy as np

from .._results.labels import units_of
from .._results.shown import digits_of, is_traced
from .._results.table import shown_indices, Table
from .._system.results import counted_codes, described_code


def describe(orbit) -> str:
    """The table that `print(orbit)` shows; one line per orbit for a batch, and only the structure for a traced orbit."""
    if is_traced(orbit):
        return f"PeriodicOrbit(sequence={orbit.sequence}, strides={orbit.strides}, traced)"
    orbit = jax.tree.map(np.asarray, orbit)
    if orbit.period.ndim > 0:
        return _batch(orbit)
    rows = list(_rows(orbit))
    width = max(len(name) for name, *_ in rows)
    return "\n".join(["PeriodicOrbit", *(f"  {name:<{width}}  {value}" for name, value, _ in rows)])


def orbit_table(orbit) -> Table:
    """The same rows with units, for HTML."""
    orbit = jax.tree.map(np.asarray, orbit)
    if orbit.period.ndim == 0:
        return Table("PeriodicOrbit", list(_rows(orbit)), units=("",))
    units = units_of(None, orbit.params, orbit.system)
    names = orbit.system.modes[orbit.sequence[0]].coordinates
    rows = [cells or ["…"] for cells in _batch_rows(orbit)]
    codes = [f"{n} {code}" for code, n in counted_codes(orbit.result)] if orbit.period.size else []
    of_columns = (*(units.coordinates.get(name, "") for name in names), units.time, "", _unit_of_residual(orbit, units))
    return Table(_batch_title(orbit), rows, _batch_heads(orbit), of_columns, codes)


def _unit_of_residual(orbit, units) -> str:
    """The unit of the residual, the largest component of `S(x) - x`: that of the state, where all coordinates share one."""
    found = {units.coordinates.get(name, "") for name in orbit.system.modes[orbit.sequence[0]].coordinates}
    return found.pop() if len(found) == 1 else ""


def _rows(orbit) -> Iterator[tuple[str, str, str]]:
    """Name, value and unit of each row."""
    names, units = orbit.system.modes[orbit.sequence[0]].coordinates, units_of(None, orbit.params, orbit.system)
    digits, dtype = _digits(orbit), orbit.x.dtype
    yield "sequence", " -> ".join(orbit.sequence) + f", {orbit.strides} stride{'s' * (orbit.strides > 1)}", ""
    for name, value in zip(names, orbit.x, strict=True):
        yield name, f"{value:+.{digits}g}", units.coordinates.get(name, "")
    yield "period", f"{orbit.period:.{digits}g}", units.time
    for k, value in enumerate(orbit.multipliers):
        yield f"multiplier {k + 1}", _complex(complex(value), digits - 2), ""
    yield "spectral radius", f"{np.max(np.abs(orbit.multipliers)):.{digits - 2}g}", ""
    yield "stable", "yes" if np.max(np.abs(orbit.multipliers)) < 1 else "no", ""
    yield "residual", f"{orbit.residual:.1e}", _unit_of_residual(orbit, units)
    yield "guard rates", ", ".join(f"{rate:.6g}" for rate in orbit.guard_rates), ""
    if dtype != np.float64:
        yield "dtype", dtype.name, ""
    yield "result", described_code(orbit.result), ""


def _complex(value: complex, digits: int) -> str:
    """A multiplier; a part below the last digit of 1 is rounding, and shown as zero."""
    real, imag = (0.0 if abs(part) < 10.0**-digits else part for part in (value.real, value.imag))
    text = f"{real:+.{digits}g}"
    return text if imag == 0 else f"{text} {imag:+.{digits}g}i"


def _digits(orbit) -> int:
    """Number of digits to print: those of the dtype that the residual leaves correct."""
    most, size = digits_of(orbit.x.dtype), np.max(np.abs(orbit.x))
    if not (orbit.residual > 0 and size > 0):
        return most
    return int(np.clip(np.ceil(np.log10(size / orbit.residual)), 3, most))


def _batch(orbit) -> str:
    lines = [_batch_title(orbit), "  " + " ".join(f"{name:>18}" for name in _batch_heads(orbit))]
    for cells in _batch_rows(orbit):
        lines.append("  ..." if cells is None else "  " + " ".join(f"{cell:>18}" for cell in cells))
    lines += [f"  {n:>8}  {code}" for code, n in counted_codes(orbit.result)] if orbit.period.size else []
    return "\n".join(lines)


def _batch_title(orbit) -> str:
    count = orbit.period.size
    return f"{count} PeriodicOrbit{'s' * (count != 1)}, {' -> '.join(orbit.sequence)}, {orbit.strides} stride(s) each"


def _batch_heads(orbit) -> list[str]:
    return [*orbit.system.modes[orbit.sequence[0]].coordinates, "period", "spectral radius", "residual"]


def _batch_rows(orbit) -> Iterator[list[str] | None]:
    """The cells of each orbit that is shown; `None` for orbits that are not shown."""
    count, digits = orbit.period.size, min(12, digits_of(orbit.x.dtype))
    x = orbit.x.reshape(count, -1)
    period, residual = orbit.period.ravel(), orbit.residual.ravel()
    radius = np.max(np.abs(orbit.multipliers), axis=-1).ravel()
    for i in shown_indices(count):
        yield None if i is None else [f"{value:.{digits}g}" for value in (*x[i], period[i], radius[i], residual[i])]
