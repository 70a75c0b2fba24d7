"""The provenance of a sweep: everything its results depend on. A store records it, and is resumed only by an equal one."""

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .._continuation.branch import Branch
from .._flow.integrator import Integrators, ModeIntegrators
from .._orbit.orbit import PeriodicOrbit
from .._orbit.prescribed import Prescribed
from .._orbit.problem import Problem
from .._results.version import version
from .grid import Grid, named_leaves


def provenance(
    problem: Problem,
    grid: Grid,
    orbit: PeriodicOrbit,
    branch: Branch | None,
    record: Callable | None,
    prescribed: Prescribed | None,
    integrator: Integrators,
) -> dict[str, Any]:
    """Everything the results depend on but the device, as values for JSON; long arrays by their digest."""
    start = np.concatenate([np.ravel(np.asarray(each, float)) for each in (orbit.x, *jax.tree.leaves(orbit.params))])
    if branch is not None:
        start = np.append(start, branch.values)
    digest = lambda array: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    axes = dict(zip(grid.names, grid.values, strict=True))
    named = lambda fn: getattr(fn, "__qualname__", type(fn).__name__)
    return {
        "hyjax_version": version(),
        "sequence": list(problem.sequence),
        "coordinates": list(problem.system.mode(problem.sequence[0]).coordinates),
        "strides": problem.strides,
        "prescribed": None if prescribed is None else [named(each) for each in prescribed.quantities],
        "solved": list(grid.solved) or None,
        "parameters": {
            name: value for name, value in named_leaves(grid.params).items() if name not in {*axes, *grid.solved}
        },
        "grid": {
            name: f"{len(axis)} values from {float(axis[0])!r} to {float(axis[-1])!r}, sha256 {digest(axis)}"
            for name, axis in axes.items()
        },
        "start": f"{np.asarray(orbit.x).tolist()}, sha256 {digest(start)}",
        "integrator": _described(integrator, orbit.x.dtype),
        "record": None if record is None else named(record),
        "dtype": orbit.x.dtype.name,
    }


def _described(integrator: Integrators, dtype) -> dict[str, Any]:
    """Solver, tolerances and limits; for integrators by mode, those of each."""
    if isinstance(integrator, ModeIntegrators):
        return {name: _described(part, dtype) for name, part in zip(integrator.names, integrator.parts, strict=True)}
    rtol, atol = integrator.tolerances(dtype)
    return {
        "solver": type(integrator.solver).__name__,
        "rtol": float(rtol),
        "atol": float(atol),
        "max_steps": integrator.max_steps,
        "max_time": float(integrator.max_time),
        "max_step": None if integrator.max_step is None else float(integrator.max_step),
    }
