"""Recorded data as arrays: a table of instants, in time, each an event or a sample between events."""

import dataclasses
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._numerics.trees import library_of, without_tangents
from .._results.labels import units_of
from .._results.registry import needed
from .._system.results import choose, RESULTS
from .._system.system import HybridSystem, of_arc
from .._system.types import Params

# The name of a column that is of the state before the jump ends so.
BEFORE = "_before"
# The label of an event of any kind.
ANY = "*"
# The kind of a link that no event ends: at a time, or at once, which fills a record up to the length of the longest.
UNTIL, NONE = -1, -2
# A sample that is nearer to an event than so many deviations of its time is left out.
BESIDE = 3.0
# Samples of a link, where free states divide a record without events.
SAMPLES = 8


class Recording(eqx.Module):
    """A table of measurements. **Attributes:** `names`: of the measured quantities, the first is `time`. `values`: shape
    `(rows, quantities)`, NaN where nothing is measured. `weights`: one over the standard deviation, zero there. `labels`: of each
    row what its event is called, `None` for a sample; static."""

    names: tuple[str, ...] = eqx.field(static=True)
    labels: tuple[Any, ...] = eqx.field(static=True)
    values: Float[Array | np.ndarray, "rows quantities"]
    weights: Float[Array | np.ndarray, "rows quantities"]


class Links(eqx.Module):
    """A record as a chain of links, each from an event, or the start, to the next event, with the samples between.

    **Attributes:** `kind`: of the event that ends the link, a row of `kinds`, `UNTIL` or `NONE`. `skip`: how many events of the
    kind come before it. `joined`: whether it begins where the link before it does, so that the model may have both events in
    any order. `start`, `end`: recorded times. `values`, `weights`: at its end. `times`, `sample_values`,
    `sample_weights`: of the samples, padded. `row`, `sample_rows`: in the recording, -1 for none.
    """

    kind: Int[Array, "*records links"]
    skip: Int[Array, "*records links"]
    joined: Bool[Array, "*records links"]
    start: Float[Array, "*records links"]
    end: Float[Array, "*records links"]
    values: Float[Array, "*records links quantities"]
    weights: Float[Array, "*records links quantities"]
    times: Float[Array, "*records links samples"]
    sample_values: Float[Array, "*records links samples quantities"]
    sample_weights: Float[Array, "*records links samples quantities"]
    row: Int[Array, "*records links"]
    sample_rows: Int[Array, "*records links samples"]


class Matching(NamedTuple):
    """The matching of a record with the model's events: for some rows the number of events before the row that were not recorded;
    the rows that are no events of the model; and the rows whose event the model may have before that of the row before."""

    skips: dict[int, int]
    spurious: tuple[int, ...]
    turned: tuple[int, ...] = ()


def read_columns(data: Any, known: set[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The columns of recorded data by name, and their units where these are known. `ValueError` for what is no table.

    **Arguments:** `known`: names that have no unit in brackets, whatever they look like.
    """
    data = _with_its_index(_table_of(data) if isinstance(data, str | Path) else data)
    if hasattr(data, "data_vars"):
        if len(data.sizes) != 1:
            raise ValueError(
                f"fit: the dataset has the dimensions {tuple(data.sizes)}. Give one of one dimension, such as "
                "data[['time', 'y']]."
            )
        # A scalar coordinate says where the others were selected.
        data = {name: each for name, each in {**data.coords, **data.data_vars}.items() if each.ndim}
    if hasattr(data, "to_numpy") and hasattr(data, "columns"):
        data = {str(name): data[name] for name in data.columns}
    if not isinstance(data, Mapping):
        times = data if isinstance(data, np.ma.MaskedArray) else library_of(*jax.tree.leaves(data)).asarray(data)
        if times.ndim != 1:
            raise ValueError(
                f"fit: data of shape {times.shape} has no names. Give the times of events, shape (events,), or a table, such as "
                "{'time': times, 'y': heights}."
            )
        return {"time": times}, {}
    columns, units = {}, {}
    for name, column in data.items():
        # A heading such as `y (m)` or `y [m]`.
        headed = re.fullmatch(r"\s*(.*?)\s*(?:[\[(](.*)[\])])?\s*", str(name))
        own, unit = (name, None) if headed is None or name in known else headed.groups()
        if own in columns:
            raise ValueError(f"fit: two columns have the name {own!r}.")
        about = getattr(column, "attrs", {})
        columns[own] = column.to_numpy() if hasattr(column, "to_numpy") else column
        units[own] = unit or str(about.get("units", about.get("unit", "")))
    return columns, {name: unit for name, unit in units.items() if unit}


def _with_its_index(data: Any) -> Any:
    """A pandas or xarray object whose labels are times, such as a series of heights over an index with the name time, as a table
    with the times in a column; others as they are. `ValueError` for a series over numbers that have another name, or none."""
    if hasattr(data, "to_dataset") and (data.coords or data.name is not None):
        return data.to_dataset(name=data.name or "values")
    index = getattr(data, "index", None)
    if getattr(index, "name", None) == "time":
        return data.reset_index()
    if hasattr(data, "to_frame") and getattr(getattr(index, "dtype", None), "kind", " ") in "fmM":
        raise ValueError(
            "fit: a series over an index of numbers. Name both, series.rename('y').rename_axis('time'); or give times of events, "
            "series.to_numpy()."
        )
    return data


def _table_of(path: str | Path) -> Any:
    """The table of a CSV file, or of a pipe or an address, which is read once. `ValueError` for one that pandas does not read,
    and for rows that are longer than the first."""
    pandas = needed("pandas", "data", "Tables in files")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        try:
            with pandas.read_csv(path, index_col=False, iterator=True) as reader:
                heads = reader.read(0)
                names = heads.columns
                if len(names) == 1 and (others := [each for each in (";", "\t") if each in str(names[0])]):
                    raise ValueError(
                        f"fit: {path}: columns are separated by {others[0]!r}. Give the table, pandas.read_csv(path, "
                        f"sep={others[0]!r}); of numbers with a decimal comma with decimal=','."
                    )
                return next(reader, heads)
        except pandas.errors.ParserWarning:
            raise ValueError(
                f"fit: {path}: rows are longer than the heading. Name each column; where the first one names the rows, give the "
                "table, pandas.read_csv(path, index_col=0)."
            ) from None
        except (pandas.errors.ParserError, pandas.errors.EmptyDataError) as error:
            raise ValueError(f"fit: {path}: {' '.join(str(error).split())}") from None


def known_names(system: HybridSystem, observed: Mapping[str, Any]) -> set[str]:
    """What may be measured: the coordinates of the modes, and functions."""
    return {name for mode in system.modes.values() for name in mode.coordinates} | set(observed)


def recording(
    data: Any,
    system: HybridSystem,
    params: Params,
    observed: Mapping[str, Any],
    noise: Any,
    start: float,
    events: bool,
    dtype,
) -> Recording:
    """The recording of a data set, checked. **Arguments:** `observed`: names of quantities that are functions. `start`: no time
    is before. `events`: whether every row is an event."""
    known = known_names(system, observed)
    columns, units = read_columns(data, known | {f"{name}{BEFORE}" for name in known})
    if events and "event" in columns:
        raise ValueError("fit: every row of a return map is one pass. Leave the column event out.")
    if "time" not in columns:
        raise ValueError(f"fit: the data has the columns {list(columns)}, and needs one with the name time.")
    time = _numbers(columns["time"], "time", dtype)
    rows = time.shape[0] if time.ndim else 0
    if not rows:
        raise ValueError("fit: the data has no rows.")
    _check_times(time, start)
    _check_units(units, system, params)
    given = columns.get("event", ANY if events or list(columns) == ["time"] else None)
    given = np.asarray(given) if isinstance(given, jax.Array) and not isinstance(given, jax.core.Tracer) else given
    labels = [given] * rows if given is None or isinstance(given, str | bool | int) else list(given)
    if len(labels) != rows:
        raise ValueError(f"fit: the column event has {len(labels)} rows, the column time {rows}.")
    labels = tuple(_label(each) for each in labels)
    names = [name for name in columns if name not in ("time", "event")]
    if wrong := [name for name in names if name.removesuffix(BEFORE) not in known and name not in known]:
        raise ValueError(
            f"fit: the column {wrong[0]!r} is neither a coordinate, one of {sorted(known)}, nor a name in observe=. Leave it "
            "out."
        )
    if missing := [name for name in observed if name not in names and f"{name}{BEFORE}" not in names]:
        raise ValueError(f"fit: observe= names {missing[0]!r}, of which the data has no column.")
    happens = np.array([label is not None for label in labels])
    values = [time] + [_numbers(columns[name], name, dtype) for name in names]
    for name, column in zip(["time", *names], values, strict=True):
        if column.shape != (rows,):
            raise ValueError(f"fit: the column {name!r} has shape {column.shape}, the column time {rows} rows.")
    names = ("time", *names)
    used = [name for k, name in enumerate(names) if k or happens.any()]
    weights = [_weights(noise, name, used, column, dtype) for name, column in zip(names, values, strict=True)]
    xp = library_of(*values, *weights)
    table, weights = xp.stack(values, axis=1), xp.stack(weights, axis=1)
    if xp is np and np.any(np.isinf(table)):
        raise ValueError("fit: the data has an infinite number. Write NaN where nothing is measured.")
    measured = xp.isfinite(table) & (happens[:, None] | (np.arange(len(names)) > 0))
    if happens.any() and not happens.all():
        # Which side of the jump such a sample is of, the recorded time does not tell.
        near = weights[happens, 0]
        apart = xp.where(near > 0, xp.abs(time[:, None] - time[happens]) * near, np.inf)
        beside = (xp.min(apart, axis=1) < BESIDE) & ~happens
        measured = measured & ~beside[:, None]
    # Of a batch whose sets have unlike numbers of events the times of the others are NaN.
    values = xp.where(xp.isfinite(table) | (np.arange(len(names)) == 0), table, 0)
    return Recording(names, labels, values, xp.where(measured, weights, 0))


def of_one_deviation(records: Sequence[Recording]) -> list[Recording]:
    """Records of which one deviation of all numbers is estimated, with weights of one size."""
    xp = library_of(*(each.weights for each in records))
    weight = xp.max(xp.stack([xp.max(each.weights) for each in records]))
    return [dataclasses.replace(each, weights=xp.where(each.weights > 0, weight, 0)) for each in records]


def _numbers(column: Any, name: str, dtype) -> Array | np.ndarray:
    if isinstance(column, np.ma.MaskedArray):
        column = np.where(np.ma.getmaskarray(column), np.nan, column.data)
    own = getattr(column, "dtype", None)
    if isinstance(own, np.dtype) and own.kind in "cmM":
        raise ValueError(
            f"fit: the column {name!r} is of {own}. Give real numbers; of instants the time since a start in the system's unit, "
            "such as column / np.timedelta64(1, 's')."
        )
    try:
        return library_of(column).asarray(column if isinstance(column, jax.Array) else np.asarray(column, float), dtype)
    except (TypeError, ValueError):
        wrong = next((each for each in np.ravel(np.asarray(column, object)) if not _is_number(each)), column)
        raise ValueError(f"fit: the column {name!r} has {wrong!r}, no number; NaN where nothing is measured.") from None


def _is_number(each: Any) -> bool:
    try:
        return bool(np.isscalar(float(each)))
    except (TypeError, ValueError):
        return False


def _check_times(time: Array | np.ndarray, start: float) -> None:
    if isinstance(time, jax.core.Tracer):
        return
    known = np.asarray(time)
    if not np.all(np.isfinite(known)):
        raise ValueError(
            f"fit: time[{int(np.argmin(np.isfinite(known)))}] is not finite. Leave rows without a time out."
        )
    if np.any(np.diff(known) < 0):
        k = int(np.argmax(np.diff(known) < 0))
        raise ValueError(f"fit: the times do not increase: {known[k + 1]} follows {known[k]}. Sort the rows.")
    if known[0] < start:
        raise ValueError(f"fit: the time {known[0]} is before the start t0={start}.")


def code_of_record(record: Recording, start: Any) -> RESULTS:
    """The code of the numbers of a record that are traced, and so were not checked: `nonfinite` for a time that is not finite
    before one that is, or is infinite, and for a deviation that is not positive and finite; `unmatched_events` for a time before
    that of the row above, or before the start."""
    time, sizes = jnp.asarray(record.values[:, 0]), jnp.asarray(record.weights)
    finite = jnp.isfinite(time)
    hole = jnp.any(jnp.isinf(time)) | ~finite[0] | jnp.any(finite[1:] & ~finite[:-1])
    turned = jnp.any(jnp.diff(time) < 0) | (time[0] < start)
    code = choose(turned, RESULTS.unmatched_events, RESULTS.successful)
    return choose(hole | ~jnp.all(jnp.isfinite(sizes) & (sizes >= 0)), RESULTS.nonfinite, code)


def _check_units(units: Mapping[str, str], system: HybridSystem, params: Params) -> None:
    own = units_of(None, params, system)
    for name, unit in units.items():
        expected = own.time if name == "time" else own.coordinates.get(name.removesuffix(BEFORE), "")
        if unit and expected and unit.replace(" ", "") != expected.replace(" ", ""):
            raise ValueError(
                f"fit: the column {name!r} is in {unit}, the system's in {expected}. Convert the column, and rename it."
            )


def _label(given: Any) -> Any:
    """`None` of a sample; `ANY` of any event; else a name, or the number of a transition."""
    # That which is not equal to itself is NaN; pandas has one whose comparison has no truth.
    if given is None or given is np.ma.masked or str(given) in ("nan", "<NA>", "NaT"):
        return None
    if isinstance(given, bool | np.bool_):
        return ANY if given else None
    if isinstance(given, str | np.str_):
        return str(given).strip() or None
    if isinstance(given, int | float | np.integer | np.floating) and int(given) == given:
        return int(given)
    raise ValueError(f"fit: the column event has {given!r}. Give a name, True, the number of a transition, or nothing.")


def _weights(noise: Any, name: str, used: list[str], column: Array | np.ndarray, dtype) -> Array | np.ndarray:
    """One over the standard deviation of a quantity, of those that are `used`."""
    rows, xp = column.size, library_of(column, *jax.tree.leaves(noise))
    if name not in used:
        return xp.ones(rows, dtype)
    if noise is None:
        if len(used) > 1:
            raise ValueError(
                f"fit: the data has {', '.join(used)}. Give the standard deviation of each, noise={{'{used[0]}': ..., ...}}, "
                "by which they are weighed."
            )
        # The deviation, which is estimated, is a number of the order of 1 in units of a thousandth of the data.
        size = without_tangents(xp.max(xp.where(xp.isfinite(column), xp.abs(column), 0)))
        return xp.full(rows, 1e3, dtype) / xp.where(size > 0, size, 1)
    if isinstance(noise, Mapping):
        if name not in noise:
            raise ValueError(f"fit: noise= has no standard deviation of {name!r}; it has {list(noise)}.")
        noise = noise[name]
    try:
        deviation = xp.asarray(noise, dtype)
    except (TypeError, ValueError):
        raise ValueError(f"fit: noise={noise!r} of {name!r} must be a number, or one for each row.") from None
    if deviation.shape not in ((), (rows,)):
        raise ValueError(f"fit: noise= of {name!r} has the shape {deviation.shape}, and the record {rows} rows.")
    right = (deviation > 0) & xp.isfinite(deviation)
    if xp is np and not np.all(right):
        raise ValueError(f"fit: noise={noise} of {name!r} must be positive and finite.")
    # A weight of zero would be that of a row without a measurement.
    return xp.broadcast_to(xp.where(right, 1 / deviation, np.nan), (rows,))


def ways_of(label: Any, system: HybridSystem) -> Bool[np.ndarray, " ways"]:
    """The ways (`HybridSystem.ways`) that an event of that label takes: any, for `ANY`; those of a transition, by its number, by
    `"source->target"`, or by the mode that it enters; of a family one guard, as `"network[3]"`. `ValueError` for none."""
    pairs, ways = [(each.source, each.target) for each in system.transitions], system.ways
    if label == ANY:
        return np.ones(len(ways), bool)
    if isinstance(label, int):
        chosen = [label] if 0 <= label < len(pairs) else []
        return _found(np.isin(ways[:, 0], chosen), label, pairs)
    source, arrow, target = (part.strip() for part in label.partition("->"))
    own, member = of_arc(source, system.names)
    if arrow:
        chosen = [k for k, pair in enumerate(pairs) if pair == (own, target)]
    else:
        chosen = [k for k, pair in enumerate(pairs) if pair[0 if member is not None else 1] == own]
    mask = np.isin(ways[:, 0], chosen)
    return _found(mask if member is None else mask & (ways[:, 1] == member), label, pairs)


def _found(mask: np.ndarray, label: Any, pairs: list) -> np.ndarray:
    if not mask.any():
        known = ", ".join(f"{a}->{b}" for a, b in pairs) or "none"
        raise ValueError(f"fit: no event of the system has the name {label!r}. Its transitions are {known}.")
    return mask


def links_of(
    records: Sequence[Recording], kind_of: Callable[[Any], int], start: Any, divided: bool,
    matchings: Sequence[Matching], within: float | None,
) -> dict[str, Array | np.ndarray]:  # fmt: skip
    """The columns of the links of records of one table. **Arguments:** `kind_of`: the number of the kind of a label. `start`: the
    time at which each record starts, a number. `divided`: whether a record without events has many links. `within`: events that
    are not further apart than so many deviations are `joined`; `None` for no events."""
    plans = [_plan(record, divided, set(own.spurious)) for record, own in zip(records, matchings, strict=True)]
    most = max(map(len, plans))
    samples = max((len(own) for plan in plans for _, own in plan), default=0)
    columns = [
        _arrays(record, plan, start, own, most, samples, kind_of, within)
        for record, plan, own in zip(records, plans, matchings, strict=True)
    ]
    return jax.tree.map(lambda *parts: library_of(*parts).stack(parts), *columns)


def _plan(record: Recording, divided: bool, spurious: set[int]) -> list[tuple[int, list[int]]]:
    """For each link the row of its event, or -1, and the rows of its samples."""
    links, own = [], []
    for row, label in enumerate(record.labels):
        if row in spurious:
            continue
        if label is None:
            own.append(row)
        else:
            links.append((row, own))
            own = []
    if own:
        length = SAMPLES if divided and not links else len(own)
        links += [(-1, own[k : k + length]) for k in range(0, len(own), length)]
    return links


def _arrays(
    record: Recording, plan: list, start: Any, matching: Matching, most: int, samples: int, kind_of: Callable, within
) -> dict[str, Any]:  # fmt: skip
    blank = most - len(plan)
    row = np.array([row for row, _ in plan] + [-1] * blank)
    ends = np.array([row if row >= 0 else own[-1] for row, own in plan] + [-1] * blank)
    sample_rows = np.array([own + [-1] * (samples - len(own)) for _, own in plan] + [[-1] * samples] * blank, int)
    sample_rows = sample_rows.reshape(most, samples)
    xp = library_of(record.values, record.weights, start)
    known, weights = xp.asarray(record.values), xp.asarray(record.weights)
    time = known[:, 0]
    end = xp.where(ends >= 0, time[ends], time[max(ends.max(initial=0), 0)])
    begin = xp.concatenate([xp.reshape(xp.asarray(start, end.dtype), 1), end[:-1]])
    kinds = [UNTIL if row < 0 else kind_of(record.labels[row]) for row, _ in plan] + [NONE] * blank
    take = lambda rows, values: xp.where((rows >= 0)[..., None], values[rows], 0)
    # Samples that are not there are at its start, so that nothing flows to them.
    times = xp.where(sample_rows >= 0, time[sample_rows], begin[:, None])
    of_samples = take(sample_rows, weights) * (np.arange(known.shape[1]) > 0).astype(known.dtype)
    number, skip = np.arange(most), np.array([matching.skips.get(int(k), 0) for k in row])
    joined = (row >= 0) & (np.roll(row, 1) >= 0) & (number > 0) & np.all(sample_rows < 0, axis=1) & (within is not None)
    # Nearer to each other than their times tell, so that their order is not known.
    deviation = xp.where(weights[ends, 0] > 0, 1 / xp.where(weights[ends, 0] > 0, weights[ends, 0], 1), 0)
    near = end - begin <= (within or 0) * xp.hypot(deviation, xp.roll(deviation, 1))
    joined = joined & (near | np.isin(row, matching.turned))
    # From the start that they share events of a kind are counted.
    first = xp.max(xp.where(joined | (number > number[:, None]), 0, number), axis=1)
    before = (number < number[:, None]) & (number >= first[:, None]) & (np.array(kinds) == np.array(kinds)[:, None])
    return dict(
        kind=xp.where(xp.isfinite(end), np.array(kinds), NONE),
        skip=skip + xp.sum(xp.where(before, 1 + skip, 0), axis=1), joined=joined, start=begin, end=end,
        values=take(row, known), weights=take(row, weights), times=times,
        sample_values=take(sample_rows, known), sample_weights=of_samples, row=row, sample_rows=sample_rows,
    )  # fmt: skip
