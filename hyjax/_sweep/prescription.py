"""The arguments `prescribed` and `solve` of a sweep: axes of a grid that are quantities of the orbits, not parameters."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._orbit.orbit import PeriodicOrbit
from .._orbit.prescribed import Prescribed, prescribed_at, Quantity
from .._system.where import free_leaves, leaf_names, Where
from .grid import checked_axis, Grid, named_units, TAKEN

# `name -> (quantity, values)`.
Prescription = Mapping[str, tuple[Quantity, Any]]


def with_prescribed(
    grid: Grid, orbit: PeriodicOrbit, prescribed: Prescription | None, solve: Where | None
) -> tuple[Grid, Prescribed | None, tuple[np.ndarray, np.ndarray]]:
    """The grid with the axes of the prescribed quantities; the conditions; and the values on all axes and the unknowns of the
    start orbit. `ValueError` for arguments that do not fit each other."""
    params = grid.params
    leaves = jax.tree.leaves(params)
    values = np.array([np.asarray(leaves[i]) for i in grid.free], orbit.x.dtype)
    if not prescribed and solve is None:
        if not grid.free:
            raise ValueError("sweep: give where= and values=, or prescribed= and solve=, or both.")
        return grid, None, (values, np.asarray(orbit.before[0]))
    if not prescribed or solve is None:
        raise ValueError("sweep: prescribed= and solve= belong together: quantities, and parameters to solve for.")
    free = free_leaves(solve, params)
    names, solved = leaf_names(params), named_units(params, free)
    if len(free) != len(prescribed):
        raise ValueError(
            f"sweep: prescribed has {len(prescribed)} quantities ({', '.join(prescribed)}) and solve picks {len(free)} "
            f"parameters ({', '.join(names[i] for i in free)}). Pick as many parameters as quantities."
        )
    if both := [names[i] for i in free if i in grid.free]:
        raise ValueError(f"sweep: where and solve both pick {', '.join(both)}. Vary a parameter, or solve for it.")
    if clash := [name for name in prescribed if name in {*TAKEN, *grid.names, *solved}]:
        raise ValueError(f"sweep: the quantities {clash} have names of the dataset's variables. Choose other names.")
    quantities, axes = [], []
    for name, (quantity, axis) in prescribed.items():
        shape = jax.eval_shape(lambda orbit: jnp.asarray(quantity(orbit, orbit.params)), orbit).shape  # noqa: B023
        if shape:
            raise ValueError(f"sweep: {name}: the quantity must be one number, not of shape {shape}.")
        quantities.append(quantity)
        axes.append(checked_axis(name, axis, orbit.x.dtype))
        if _is_period(quantity, orbit) and np.min(axes[-1]) <= 0:
            raise ValueError(
                f"sweep: {name}={np.min(axes[-1]):g} is prescribed for a period, which must be positive. Leave out the "
                "values that are not."
            )
    largest = jnp.array([np.max(np.abs(axis)) for axis in axes])
    conditions, at, unknowns = prescribed_at(orbit, tuple(quantities), free, largest)
    if not np.all(np.isfinite(at)):
        raise ValueError(f"sweep: of the start orbit the quantities {tuple(prescribed)} are {np.asarray(at).tolist()}.")
    units = (*grid.units, *[""] * len(axes))
    grid = dataclasses.replace(
        grid, names=(*grid.names, *prescribed), units=units, values=(*grid.values, *axes), solved=solved
    )
    return grid, conditions, (np.append(values, at), np.asarray(unknowns))


def _is_period(quantity: Quantity, orbit: PeriodicOrbit) -> bool:
    """Whether a quantity is the period of an orbit, or the mean time of its strides: that of orbits with other periods."""
    factors = np.array([1.0, 0.5, 3.0])
    of = lambda factor: quantity(dataclasses.replace(orbit, period=factor * orbit.period), orbit.params)
    values = np.array([np.asarray(of(factor)) for factor in factors])
    return any(np.array_equal(values, factors * float(orbit.period) / each) for each in (1, orbit.strides))
