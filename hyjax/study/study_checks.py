"""Checks of the arguments of a solver study."""

from collections.abc import Mapping, Sequence

import diffrax as dfx

from .._flow.integrator import for_modes, Integrator, IntegratorLike, Integrators
from .._system.system import HybridSystem, Mode, VectorField
from .._system.types import Params, State

# A solver, or an integrator, or an integrator for each mode.
Method = dfx.AbstractSolver | IntegratorLike


def listed(x0: State | list[State], params: Params | list[Params]) -> tuple[list[State], list[Params]]:
    """A state and the parameters of each set. `ValueError` for lists of different lengths."""
    sets = params if isinstance(params, list) else [params]
    states = x0 if isinstance(x0, list) else [x0] * len(sets)
    if not sets or len(states) != len(sets):
        raise ValueError(
            f"solver_study: x0 has {len(states)} states and params {len(sets)} sets. Give one state, or one for each set."
        )
    return states, sets


def integrators_of(system: HybridSystem, solvers: Mapping[str, Method]) -> dict[str, Integrators]:
    """The integrator of each name. A solver alone is an `Integrator` with `variations=False`: a study has no derivatives."""
    lone = lambda each: Integrator(each, variations=False) if isinstance(each, dfx.AbstractSolver) else each
    return {name: for_modes(system, lone(each)) for name, each in solvers.items()}


def require_methods(solvers: Mapping[str, Method], reference: Mapping[str, Method]) -> None:
    """`ValueError` unless there is at least one solver, and the reference has two methods."""
    if not solvers:
        raise ValueError("study: solvers must name at least one, such as {'ode45': diffrax.Dopri5()}.")
    if len(reference) < 2:
        raise ValueError("study: reference= needs two methods, whose disagreement tells the error of the reference.")


def pairs_of(tolerances: Sequence[float | tuple[float, float]], dtype) -> list[tuple[float, float]]:
    """`(rtol, atol)` of each tolerance; `ValueError` for those that an `Integrator` refuses."""
    if not len(tolerances):
        raise ValueError("study: tolerances must have at least one number, such as (1e-3, 1e-6).")
    pairs = [each if isinstance(each, tuple) else (each, each) for each in tolerances]
    return [Integrator(rtol=float(rtol), atol=float(atol)).tolerances(dtype) for rtol, atol in pairs]  # pyright: ignore


def combined_system(system: HybridSystem, mode: str, combined: VectorField) -> HybridSystem:
    """One mode, with the coordinates of `mode`, for a vector field that holds in all modes."""
    require_same_coordinates(system, "combined=, one vector field for all modes")
    return HybridSystem({"combined": Mode(combined, system.mode(mode).coordinates)}, ())


def coordinate_of(system: HybridSystem, of: str | None) -> int | None:
    """The number of a coordinate in every mode; `ValueError` where a mode has the coordinate elsewhere, or not at all."""
    if of is None:
        require_same_coordinates(system, "the norm of the error of the state")
        return None
    places = {
        name: mode.coordinates.index(of) if of in mode.coordinates else None for name, mode in system.modes.items()
    }
    if None in places.values() or len(set(places.values())) > 1:
        raise ValueError(
            f"solver_study: of={of!r} must be a coordinate that all modes have, at the same place; the places are {places}."
        )
    return next(iter(places.values()))


def require_same_coordinates(system: HybridSystem, what: str) -> None:
    """`ValueError` unless all modes have the same coordinates."""
    names = {mode.coordinates for mode in system.modes.values()}
    if len(names) > 1:
        raise ValueError(
            f"solver_study: {what} needs modes with the same coordinates; these have {sorted(names)}. Give of=, a coordinate "
            "that all modes have."
        )


def thresholds_of(divergence: float | Sequence[float], count: int) -> list[float]:
    """One threshold for each tolerance."""
    given = [float(each) for each in (divergence if isinstance(divergence, Sequence) else [divergence] * count)]
    if len(given) != count or not all(each > 0 for each in given):
        raise ValueError(
            f"solver_study: divergence={divergence!r} must be a positive number, or one for each of {count} tolerances."
        )
    return given
