"""Periodic orbits as plain text tables."""

import jax
import jax.core
import numpy as np


def describe(orbit) -> str:
    """The table that `print(orbit)` shows; one line per orbit for a batch, and only the structure for a traced orbit."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(orbit)):
        return f"PeriodicOrbit(sequence={orbit.sequence}, strides={orbit.strides}, traced)"
    orbit = jax.tree.map(np.asarray, orbit)
    if orbit.period.ndim > 0:
        return _batch(orbit)
    names = orbit.system.modes[orbit.sequence[0]].coordinates
    code = orbit.result._enumeration[orbit.result] or "successful"
    rows = [("sequence", " -> ".join(orbit.sequence) + f", {orbit.strides} stride{'s' * (orbit.strides > 1)}")]
    rows += [(name, f"{value:+.15g}") for name, value in zip(names, orbit.x, strict=True)]
    rows += [("period", f"{orbit.period:.15g}")]
    rows += [(f"multiplier {k + 1}", _complex(value)) for k, value in enumerate(orbit.multipliers)]
    rows += [
        ("spectral radius", f"{np.max(np.abs(orbit.multipliers)):.13g}"),
        ("stable", "yes" if np.max(np.abs(orbit.multipliers)) < 1 else "no"),
        ("residual", f"{orbit.residual:.1e}"),
        ("guard rates", ", ".join(f"{rate:.6g}" for rate in orbit.guard_rates)),
        ("result", code),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(["PeriodicOrbit", *(f"  {name:<{width}}  {value}" for name, value in rows)])


def _complex(value: complex) -> str:
    real = f"{value.real:+.13g}"
    return real if value.imag == 0 else f"{real} {value.imag:+.13g}i"


def _batch(orbit) -> str:
    names = orbit.system.modes[orbit.sequence[0]].coordinates
    count = orbit.period.size
    head = f"{count} PeriodicOrbit{'s' * (count != 1)}, {' -> '.join(orbit.sequence)}, {orbit.strides} stride(s) each"
    columns = [*names, "period", "spectral radius", "residual"]
    lines = [head, "  " + " ".join(f"{name:>18}" for name in columns)]
    x = orbit.x.reshape(count, -1)
    period, residual = orbit.period.ravel(), orbit.residual.ravel()
    radius = np.max(np.abs(orbit.multipliers), axis=-1).ravel()
    shown = range(count) if count <= 12 else [*range(6), *range(count - 6, count)]
    for i in shown:
        if count > 12 and i == count - 6:
            lines.append("  ...")
        lines.append("  " + " ".join(f"{value:>18.12g}" for value in (*x[i], period[i], radius[i], residual[i])))
    return "\n".join(lines)
