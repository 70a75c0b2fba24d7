"""Periodic orbits as plain text tables."""

import jax
import jax.core
import numpy as np

from .._system.results import counted_codes, described_code
from .._system.shown import digits_of, is_traced


def describe(orbit) -> str:
    """The table that `print(orbit)` shows; one line per orbit for a batch, and only the structure for a traced orbit."""
    if is_traced(orbit):
        return f"PeriodicOrbit(sequence={orbit.sequence}, strides={orbit.strides}, traced)"
    orbit = jax.tree.map(np.asarray, orbit)
    if orbit.period.ndim > 0:
        return _batch(orbit)
    names = orbit.system.modes[orbit.sequence[0]].coordinates
    digits, dtype = _digits(orbit), orbit.x.dtype
    rows = [("sequence", " -> ".join(orbit.sequence) + f", {orbit.strides} stride{'s' * (orbit.strides > 1)}")]
    rows += [(name, f"{value:+.{digits}g}") for name, value in zip(names, orbit.x, strict=True)]
    rows += [("period", f"{orbit.period:.{digits}g}")]
    rows += [(f"multiplier {k + 1}", _complex(complex(value), digits - 2)) for k, value in enumerate(orbit.multipliers)]
    rows += [
        ("spectral radius", f"{np.max(np.abs(orbit.multipliers)):.{digits - 2}g}"),
        ("stable", "yes" if np.max(np.abs(orbit.multipliers)) < 1 else "no"),
        ("residual", f"{orbit.residual:.1e}"),
        ("guard rates", ", ".join(f"{rate:.6g}" for rate in orbit.guard_rates)),
        *([] if dtype == np.float64 else [("dtype", dtype.name)]),
        ("result", described_code(orbit.result)),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(["PeriodicOrbit", *(f"  {name:<{width}}  {value}" for name, value in rows)])


def _complex(value: complex, digits: int) -> str:
    real = f"{value.real:+.{digits}g}"
    return real if value.imag == 0 else f"{real} {value.imag:+.{digits}g}i"


def _digits(orbit) -> int:
    """As many digits as the dtype has, and as the residual leaves right."""
    most, size = digits_of(orbit.x.dtype), np.max(np.abs(orbit.x))
    if not (orbit.residual > 0 and size > 0):
        return most
    return int(np.clip(np.ceil(np.log10(size / orbit.residual)), 3, most))


def _batch(orbit) -> str:
    names = orbit.system.modes[orbit.sequence[0]].coordinates
    count = orbit.period.size
    head = f"{count} PeriodicOrbit{'s' * (count != 1)}, {' -> '.join(orbit.sequence)}, {orbit.strides} stride(s) each"
    digits = min(12, digits_of(orbit.x.dtype))
    columns = [*names, "period", "spectral radius", "residual"]
    lines = [head, "  " + " ".join(f"{name:>18}" for name in columns)]
    x = orbit.x.reshape(count, -1)
    period, residual = orbit.period.ravel(), orbit.residual.ravel()
    radius = np.max(np.abs(orbit.multipliers), axis=-1).ravel()
    shown = range(count) if count <= 12 else [*range(6), *range(count - 6, count)]
    for i in shown:
        if count > 12 and i == count - 6:
            lines.append("  ...")
        lines.append("  " + " ".join(f"{value:>18.{digits}g}" for value in (*x[i], period[i], radius[i], residual[i])))
    lines += [f"  {n:>8}  {code}" for code, n in counted_codes(orbit.result)] if count else []
    return "\n".join(lines)
