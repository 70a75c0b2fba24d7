"""Trajectories as tables, a row for each arc, of a batch a row for each result code; and as an `xarray.Dataset`."""

from typing import Any, TYPE_CHECKING

import jax
import numpy as np

from .._results.labels import described, in_words, units_attribute, units_of
from .._results.registry import load_xarray
from .._results.table import shown_indices, Table
from .._system.results import counted_codes, described_code

if TYPE_CHECKING:
    import xarray


def trajectory_table(trajectory) -> Table:
    """The table that `print(trajectory)` shows, with a column for each coordinate."""
    if trajectory.t.ndim > 0:
        jumps = np.asarray(trajectory.jumps)
        title = f"{trajectory.t.size} Trajectories, {jumps.min()} to {jumps.max()} jumps each"
        return Table(title, [(str(n), code) for code, n in counted_codes(trajectory.result)])
    units = units_of(None, trajectory.params, trajectory.system)
    names = tuple(dict.fromkeys(name for mode in trajectory.system.modes.values() for name in mode.shown))
    recorded = bool(trajectory.start_times.size)
    heads = ("from", "to", "mode", "next", *names)
    of_columns = (units.time, units.time, "", "", *(units.coordinates.get(name, "") for name in names))
    title = f"Trajectory: {int(trajectory.jumps)} jumps{'' if recorded else ', without a record of its arcs'}"
    notes = [
        "States before the jumps." if recorded else "The final state.",
        f"Result: {described_code(trajectory.result)}",
    ]
    return Table(title, _arcs(trajectory, names) if recorded else [_final(trajectory, names)], heads, of_columns, notes)


def _final(trajectory, names: tuple[str, ...]) -> list[str]:
    """The final state of a trajectory without a record of its arcs."""
    mode = trajectory.system.names[int(trajectory.mode)]
    label = trajectory.system.modes[mode].label(mode, trajectory.final)
    return ["", f"{float(trajectory.t):.12g}", label, "", *_state(trajectory, mode, trajectory.final, names)]


def _arcs(trajectory, names: tuple[str, ...]) -> list[list[str]]:
    modes, labels, events, rows = trajectory.mode_names, arc_labels(trajectory), trajectory.events, []
    for k in shown_indices(len(modes), 14):
        if k is None:
            rows.append(["..."])
            continue
        times = (f"{float(each[k]):.12g}" for each in (trajectory.start_times, trajectory.end_times))
        following = labels[k + 1] if k < len(events) else ""
        if following and events[k].index >= 0 and modes[k] == labels[k]:
            following += f" [{events[k].index}]"
        rows.append([*times, labels[k], following, *_state(trajectory, modes[k], trajectory.x_ends[k], names)])
    return rows


def arc_labels(trajectory) -> list[str]:
    """The names of the modes of the arcs in tables and pictures, in their order: of contacts by name their sets."""
    modes = trajectory.system.modes
    pairs = zip(trajectory.mode_names, np.asarray(trajectory.x_starts), strict=False)
    return [modes[name].label(name, x[: modes[name].dimension]) for name, x in pairs]


def _state(trajectory, mode: str, x, names: tuple[str, ...]) -> list[str]:
    """The cells of a state; empty for coordinates that the mode does not have."""
    # A row of the record is padded to the largest dimension.
    state = dict(zip(trajectory.system.mode(mode).coordinates, np.asarray(x), strict=False))
    return [f"{state[name]:.10g}" if name in state else "" for name in names]


def trajectory_dataset(trajectory, n_samples: int, model=None) -> "xarray.Dataset":
    """The dataset that `Trajectory.to_xarray` returns, with `n_samples` times for each arc."""
    xarray = load_xarray()
    modes = trajectory.system.modes
    names = tuple(dict.fromkeys(name for mode in modes.values() for name in mode.coordinates))
    arcs = trajectory.sample(n_samples)
    columns = {name: [np.full(arc.t.shape, np.nan) for arc in arcs] for name in names}
    for k, arc in enumerate(arcs):
        for i, name in enumerate(modes[arc.mode].coordinates):
            columns[name][k] = np.asarray(arc.x[:, i])
    join = lambda parts: np.concatenate(parts) if parts else np.zeros(0)
    units = units_of(model, trajectory.params, trajectory.system)
    about = {name: units_attribute((name,), units.coordinates) for name in names}
    seconds = units_attribute(("time",), {"time": units.time})
    data: dict[str, Any] = {name: ("time", join(columns[name]), about[name]) for name in names}
    labels = arc_labels(trajectory)
    named = [np.full(arc.t.shape, label) for arc, label in zip(arcs, labels, strict=True)]
    data["mode"] = ("time", np.concatenate(named))

    events = trajectory.events
    for side in ("before", "after"):
        for name in names:
            values = np.full(len(events), np.nan)
            for k, event in enumerate(events):
                known = modes[event.source if side == "before" else event.target].coordinates
                if name in known:
                    values[k] = getattr(event, side)[known.index(name)]
            data[f"{name}_{side}"] = ("event", values, about[name])
    data["source"] = ("event", np.array(labels[: len(events)], dtype=str))
    data["target"] = ("event", np.array(labels[1 : len(events) + 1], dtype=str))
    data["transition"] = ("event", np.array([event.transition for event in events], dtype=np.int32))
    if trajectory.system.families:
        data["index"] = ("event", np.array([event.index for event in events], dtype=np.int32))
    data["guard_rate"] = ("event", np.array([event.guard_rate for event in events], dtype=float))
    coordinates = {
        "time": ("time", increasing(join([np.asarray(arc.t) for arc in arcs])), seconds),
        "event_time": ("event", np.array([event.t for event in events], dtype=float), seconds),
    }
    attributes = {"result": str(trajectory.result), "jumps": int(trajectory.jumps)}
    for path, leaf in jax.tree_util.tree_leaves_with_path(trajectory.params):
        # netCDF requires attribute names without brackets, and values of at most one dimension.
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "params"
        attributes[name] = np.asarray(leaf).item() if np.ndim(leaf) == 0 else np.ravel(leaf)
    return described(xarray.Dataset(data, coordinates, attributes), {name: in_words(name) for name in names})


def increasing(times: np.ndarray) -> np.ndarray:
    """Times that increase strictly: of equal times, the earlier become the next smaller floating-point numbers."""
    times = times.copy()
    for i in range(len(times) - 2, -1, -1):
        if times[i] >= times[i + 1]:
            times[i] = np.nextafter(times[i + 1], -np.inf, dtype=times.dtype)
    return times
