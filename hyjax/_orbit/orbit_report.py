"""Periodic orbits as tables, one with its numbers below each other, a batch with an orbit in each row; as an `xarray.Dataset`,
and as a `pandas.DataFrame`."""

import math
from collections.abc import Iterator
from typing import Any, TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import ArrayLike

from .._results.labels import described, meanings_of, named_params, units_attribute, units_of
from .._results.registry import load_xarray, needed
from .._results.shown import digits_of
from .._results.table import complex_text, shown_indices, Table, without_rounding
from .._system.results import code_flags, code_names, counted_codes, described_code
from .._system.system import HybridSystem
from .._system.types import Params
from .level import of_others

if TYPE_CHECKING:
    import pandas
    import xarray


def orbit_table(orbit) -> Table:
    """The table that `print(orbit)` shows."""
    orbit = jax.tree.map(np.asarray, orbit)
    if orbit.period.ndim == 0:
        return Table("PeriodicOrbit", list(_rows(orbit)), units=("",))
    count, digits, units = (
        orbit.period.size,
        min(12, digits_of(orbit.x.dtype)),
        units_of(None, orbit.params, orbit.system),
    )
    names = orbit.system.mode(orbit.sequence[0]).coordinates
    radius = without_rounding(np.max(np.abs(orbit.multipliers), axis=-1))
    columns = np.column_stack([_state(orbit).reshape(count, -1), orbit.period.ravel(), radius.ravel()])
    residual = orbit.residual.ravel()
    rows = [
        ["..."] if i is None else [*(f"{value:.{digits}g}" for value in columns[i]), f"{residual[i]:.1e}"]
        for i in shown_indices(count)
    ]
    of_columns = (*(units.coordinates.get(name, "") for name in names), units.time, "", _unit_of_residual(orbit, units))
    title = f"{count} PeriodicOrbit{'s' * (count != 1)}, {' -> '.join(orbit.sequence)}, {orbit.strides} stride(s) each"
    codes = [f"{n} {code}" for code, n in counted_codes(orbit.result)] if count else []
    return Table(title, rows, (*names, "period", "spectral radius", "residual"), of_columns, codes)


def side_by_side(orbits, title: str, width: int) -> Table:
    """A batch of orbits with all their numbers, in a column each, or a row each where that is too wide. **Arguments:** `width`:
    of a line."""
    orbits = jax.tree.map(np.asarray, orbits)
    rows = [list(zip(*_rows(orbits[i]), strict=True)) for i in range(len(orbits))]
    names, units = rows[0][0][1:-1], rows[0][2][1:-1]
    columns = [each[1][1:-1] for each in rows]
    if 40 + 22 * len(columns) <= width:
        heads = ("", "unit", *(f"gait {i + 1}" for i in range(len(columns))))
        return Table(title, list(zip(names, units, *columns, strict=True)), heads)
    return Table(title, [(str(i + 1), *each) for i, each in enumerate(columns)], ("gait", *names), ("", *units))


def _unit_of_residual(orbit, units) -> str:
    """The unit of the residual, the largest component of `S(x) - x`: that of the state, where all coordinates share one."""
    found = {units.coordinates.get(name, "") for name in orbit.system.mode(orbit.sequence[0]).coordinates}
    return found.pop() if len(found) == 1 else ""


def _rows(orbit) -> Iterator[tuple[str, str, str]]:
    """Name, value and unit of each row."""
    names, units = orbit.system.mode(orbit.sequence[0]).coordinates, units_of(None, orbit.params, orbit.system)
    digits, dtype = _digits(orbit), orbit.x.dtype
    yield "sequence", " -> ".join(orbit.sequence) + f", {orbit.strides} stride{'s' * (orbit.strides > 1)}", ""
    for name, value in zip(names, _state(orbit), strict=True):
        yield name, f"{value:+.{digits}g}", units.coordinates.get(name, "")
    yield "period", f"{orbit.period:.{digits}g}", units.time
    multipliers = without_rounding(orbit.multipliers)
    for k, value in enumerate(multipliers):
        yield f"multiplier {k + 1}", complex_text(complex(value), digits - 2), ""
    yield "spectral radius", f"{np.max(np.abs(multipliers)):.{digits - 2}g}", ""
    stable = "unknown" if np.isnan(orbit.spectral_radius) else "yes" if orbit.stable else "no"
    yield "stable", stable + of_others(orbit.params), ""
    yield "residual", f"{orbit.residual:.1e}", _unit_of_residual(orbit, units)
    yield "guard rates", ", ".join(f"{rate:.6g}" for rate in orbit.guard_rates), ""
    if dtype != np.float64:
        yield "dtype", dtype.name, ""
    yield "result", described_code(orbit.result), ""


def _state(orbit) -> np.ndarray:
    """The state to be shown."""
    return shown_state(
        orbit.x, orbit.system, orbit.sequence[0], orbit.params, share=64 * float(np.finfo(orbit.x.dtype).eps)
    )


def shown_state(
    x: ArrayLike, system: HybridSystem, mode: str, params: Params, sizes: ArrayLike = 0.0, share: float | None = None
) -> np.ndarray:
    """A state of a mode to be shown, in which rounding is zero: what is below the `share`, by default `eps**(3/4)`, of the
    largest coordinate of its own unit, or is nothing beside the largest of all, whatever the units. `sizes`: of the coordinates
    elsewhere, as at the start of a branch."""
    x, known = np.asarray(x), units_of(None, params, system).coordinates
    share = np.finfo(x.dtype).eps ** (3 / 4) if share is None else share
    # A coordinate without a unit may have any.
    units = np.array([known.get(name) or f"of {name}" for name in system.mode(mode).coordinates], str)
    sizes = np.maximum(np.abs(x), sizes)
    alike = np.max(np.where(units[:, None] == units, sizes[..., None, :], 0), axis=-1, initial=0)
    rounding = np.maximum(share * alike, 1e-25 * np.max(sizes, axis=-1, keepdims=True, initial=0))
    return np.where(np.abs(x) < rounding, 0.0, x)


def _digits(orbit) -> int:
    """Number of digits to print: those of the dtype that the residual leaves correct."""
    most, size = digits_of(orbit.x.dtype), np.max(np.abs(orbit.x))
    if not (orbit.residual > 0 and size > 0):
        return most
    return int(np.clip(np.ceil(np.log10(size / orbit.residual)), 3, most))


def orbit_dataset(orbit, model=None) -> "xarray.Dataset":
    """The dataset of `PeriodicOrbit.to_xarray`."""
    xarray = load_xarray()
    orbit = jax.tree.map(np.asarray, orbit)
    shape = orbit.period.shape
    batch = ("orbit",) if len(shape) == 1 else tuple(f"orbit_{k}" for k in range(len(shape)))
    names = orbit.system.mode(orbit.sequence[0]).coordinates
    last = orbit.system.mode(orbit.sequence[-1]).coordinates
    units = units_of(model, orbit.params, orbit.system)
    time, state = units_attribute(("time",), {"time": units.time}), units_attribute(names, units.coordinates)
    column = lambda values, *own, **about: ((*batch, *own), np.asarray(values), about)
    data = {
        "x": column(orbit.x, "coordinate", **state),
        "period": column(orbit.period, **time),
        # netCDF has no complex numbers.
        "multipliers_real": column(orbit.multipliers.real, "multiplier"),
        "multipliers_imag": column(orbit.multipliers.imag, "multiplier"),
        "stable": column(orbit.stable),
        "residual": column(orbit.residual),
        "return_jacobian": column(orbit.return_jacobian, "coordinate", "by_coordinate"),
        "guard_rates": column(orbit.guard_rates, "arc"),
        "nodes": column(orbit.nodes, "stride", "coordinate", **state),
        "starts": column(orbit.start_times, "stride", **time),
        "before": column(orbit.before, "stride", "before_coordinate"),
        "iterations": column(orbit.iterations),
        "result": column(orbit.result._value.astype(np.int8), **code_flags()),
    }
    if not orbit.return_jacobian.shape[-2]:
        # Of an orbit that was found without it.
        del data["return_jacobian"]
    coordinates: dict[str, Any] = {
        "coordinate": list(names),
        "by_coordinate": list(names),
        "before_coordinate": list(last),
    }
    # Orbits are numbered from 1, as by the command line.
    coordinates |= {dim: np.arange(1, size + 1) for dim, size in zip(batch, shape, strict=True)}
    for name, (leaf, about) in named_params(orbit.params).items():
        name = f"param_{name}" if name in {*data, *coordinates} else name
        own = tuple(f"{name}_{k}" for k in range(leaf.ndim - len(shape)))
        coordinates[name] = ((*batch, *own), leaf, about)
    about = {"sequence": " -> ".join(orbit.sequence), "strides": orbit.strides}
    return described(xarray.Dataset(data, coordinates, about), meanings_of(orbit.params))


def orbit_frame(orbit) -> "pandas.DataFrame":
    """The table of `PeriodicOrbit.to_pandas`."""
    pandas = needed("pandas", "data", "Tables")
    orbit = jax.tree.map(np.asarray, orbit)
    batch, count = orbit.period.ndim, orbit.period.size
    columns = lambda leaf: leaf.reshape(count, math.prod(leaf.shape[batch:])).T
    table = {}
    for name, (leaf, _) in named_params(orbit.params).items():
        # Of a parameter that is an array, each element.
        for k, values in enumerate(columns(leaf)):
            table[name if leaf.ndim == batch else f"{name}_{k}"] = values
    names = orbit.system.mode(orbit.sequence[0]).coordinates
    table |= dict(zip(names, columns(orbit.x), strict=True))
    table["period"] = orbit.period.ravel()
    table["spectral_radius"] = np.max(np.abs(orbit.multipliers), axis=-1, initial=0).ravel()
    table["stable"] = np.asarray(orbit.stable).ravel()
    table["residual"] = orbit.residual.ravel()
    table["result"] = code_names(orbit.result)
    return pandas.DataFrame(table, index=pandas.RangeIndex(1, orbit.period.size + 1, name="orbit"))
