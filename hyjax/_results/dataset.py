"""A trajectory as an `xarray.Dataset`."""

from typing import Any, TYPE_CHECKING

import jax
import numpy as np

from .extras import needed
from .labels import units_attribute, units_of
from .long_names import described, in_words

if TYPE_CHECKING:
    import xarray


def trajectory_dataset(trajectory, n: int, model=None) -> "xarray.Dataset":
    """The dataset that `Trajectory.to_xarray` returns, with `n` times for each arc."""
    xarray = load_xarray()
    modes = trajectory.system.modes
    names = tuple(dict.fromkeys(name for mode in modes.values() for name in mode.coordinates))
    arcs = trajectory.sample(n)
    columns = {name: [np.full(arc.t.shape, np.nan) for arc in arcs] for name in names}
    for k, arc in enumerate(arcs):
        for i, name in enumerate(modes[arc.mode].coordinates):
            columns[name][k] = np.asarray(arc.x[:, i])
    join = lambda parts: np.concatenate(parts) if parts else np.zeros(0)
    units = units_of(model, trajectory.params, trajectory.system)
    about = {name: units_attribute((name,), units.coordinates) for name in names}
    seconds = units_attribute(("time",), {"time": units.time})
    data: dict[str, Any] = {name: ("time", join(columns[name]), about[name]) for name in names}
    data["mode"] = ("time", np.concatenate([np.full(arc.t.shape, arc.mode) for arc in arcs]))

    events = trajectory.events
    for side in ("before", "after"):
        for name in names:
            values = np.full(len(events), np.nan)
            for k, event in enumerate(events):
                known = modes[event.source if side == "before" else event.target].coordinates
                if name in known:
                    values[k] = getattr(event, side)[known.index(name)]
            data[f"{name}_{side}"] = ("event", values, about[name])
    data["source"] = ("event", np.array([event.source for event in events], dtype=str))
    data["target"] = ("event", np.array([event.target for event in events], dtype=str))
    data["transition"] = ("event", np.array([event.transition for event in events], dtype=np.int32))
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


def load_xarray():
    """The module `xarray`, or an `ImportError` with the command that installs it."""
    return needed("xarray", "data", "Datasets")
