"""Search for the periodic orbits from which a command starts."""

import functools as ft
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from .arguments import LEVEL, Misuse, NotFound, short_name

# The low and the high state of a box.
Region = tuple[Any, Any]
# The default of `--starts`.
MOST_STARTS = 2048


def search_orbits(
    model: ModuleType,
    params,
    sequence: tuple[str, ...],
    strides: int,
    cache: str,
    starts: int = MOST_STARTS,
    region: Region | None = None,
) -> tuple[Any, Region, Any]:
    """Orbits of `strides` strides in a region, by default the model's; the region in which they were searched; and the count of
    starts. The traced search is stored in the directory `cache`.

    Where the model's region holds no orbit, a file's region that is only the surroundings of its guess is made to hold the orbit
    to which starts led out of it; and then the region is that around the states at which a simulation settles.
    """
    import equinox as eqx
    import jax.numpy as jnp
    import numpy as np

    from .._flow.check import sized
    from .._flow.integrator import Integrator
    from .._orbit.problem import Problem
    from .._orbit.search import Batch, search, solve_batch
    from .._orbit.shooting import SingleShooting
    from .._results.working import working
    from .own_module import OwnModel
    from .stored_programs import stored_solver

    method, integrator = SingleShooting(), Integrator()
    with working("searching for periodic orbits") as say:
        # Programs are stored by the source of hyjax alone: those of other files are traced again.
        program = solve_batch if isinstance(model, OwnModel) else stored_solver(cache, short_name(model), say)
        # Under jit, one compiled program is loaded instead of one for each operation.
        low, high = (np.asarray(bound) for bound in (region or eqx.filter_jit(model.region)(params)))
        system = sized(model.system, jnp.zeros((), low.dtype), jnp.asarray(low), params)
        solve = ft.partial(program, Batch(Problem(system, sequence, strides), params, method, integrator))
        within = lambda low, high: search(solve, method, integrator, (low, high), starts, None)
        orbits, census = within(low, high)
        if len(orbits) == 0 and census.outside and region is None and getattr(model, "has_region", True) is False:
            low, high = _around(np.asarray([low, high, census.outside[0]], low.dtype), (high - low) / 4)
            orbits, census = within(low, high)
        if len(orbits) == 0 and region is None:
            say("simulating, to search where the motion settles")
            settled = _settled(model, params, sequence[0])
            if settled is not None:
                low, high = _around(settled, 0.1 * np.max(np.abs(settled), axis=0) + 1e-3 * np.max(np.abs(settled)))
                orbits, census = within(low, high)
    return orbits, (low, high), census


def require_orbits(
    model: ModuleType,
    params,
    values: dict[str, float],
    sequence: tuple[str, ...],
    strides: int,
    cache: str,
    starts: int = MOST_STARTS,
    region: Region | None = None,
    option: str = "--region",
) -> tuple[Any, Region]:
    """The orbits of `search_orbits` and the region, with a note on stderr if the search ended early. `NotFound` where there is no
    orbit.

    **Arguments:** `values`: the parameters by name; with the value of what is conserved the orbit is that of the family there.
    `option`: the one that says where to search.
    """
    if LEVEL in values:
        return orbit_of_family(model, params, strides), (0.0, 0.0)
    _require_drive(model, params)
    orbits, searched, census = search_orbits(model, params, sequence, strides, cache, starts, region)
    if len(orbits) == 0:
        box = described_region(searched, model.system.mode(sequence[0]).coordinates)
        raise NotFound(
            f"{short_name(model)}: no isolated periodic orbit of {strides} stride{'s' * (strides > 1)} at "
            f"{setting(values)}; no start of {census.tried} led to one, in the region {box}. Try other parameters (hyjax models "
            f"MODEL lists them), or another {option} of hyjax gait. {census.hint}".rstrip()
        )
    if not census.complete:
        print(f"hyjax: {census}. More --starts, or a smaller --region, of hyjax gait may find more.", file=sys.stderr)
    return orbits, searched


def _require_drive(model: ModuleType, params) -> None:
    """`NotFound` for a model that says why it has no orbit."""
    if why := getattr(model, "without_orbit", lambda params: "")(params):
        raise NotFound(f"{short_name(model)}: {why}")


def tell_search(model: ModuleType, params, sequence: tuple[str, ...], start, starts: int) -> None:
    """Say on stderr what a search does, and of one around a given state `start` whether the map from the state itself returns.
    `Misuse` for a walker that has fallen there, `NotFound` for one that cannot walk."""
    _require_drive(model, params)
    compiles = "the first search compiles for a minute or more"
    if start is None:
        said = f"searching for periodic orbits from up to {starts} states (--start: around one)"
        print(f"hyjax: {said}; {compiles}", file=sys.stderr, flush=True)
        return
    import jax.numpy as jnp

    from .._orbit.return_map import ReturnMap
    from .._system.results import described_code, RESULTS

    domain = model.system.mode(sequence[0]).domain
    height = jnp.zeros(0) if domain is None else domain(jnp.zeros((), start.dtype), start, params)
    # Maps do not look at domains. Those of sets of contacts are not numbers, and are zero at their limits.
    if jnp.ndim(height) == 0 and height < 0:
        raise Misuse(
            f"--start: the robot has fallen there: its centre of mass is {-float(height):.3g} below the ground on which it "
            "stands. Angles are in rad, or write 10deg; give a state in which it stands."
        )
    result = ReturnMap(model.system, sequence=sequence)(start, params, throw=False).result
    returns = "returns" if result == RESULTS.successful else f"does not return ({described_code(result).rstrip('.')})"
    said = f"the motion from --start {returns}; searching for periodic orbits from {starts} states around it"
    print(f"hyjax: {said}; {compiles}", file=sys.stderr, flush=True)


def orbit_of_family(model: ModuleType, level, strides: int) -> Any:
    """The orbit on a `Level` of what a model conserves, as a batch of one: that near the model's guess, or where there is none
    the end of a family from the guess's value. `NotFound` where there is none."""
    import equinox as eqx
    import jax

    from .._continuation.continuation import continuation
    from .._orbit.periodic_orbit import periodic_orbit
    from .._results.working import working
    from .._system.results import described_code, RESULTS

    params, wanted = level.params, float(level.conserved)
    near = ft.partial(periodic_orbit, model.step.repeated(strides), model.guess(params), params, throw=False)
    with working("searching for a periodic orbit"):
        orbit = near(conserved=(model.conserved, wanted))
        found = orbit if orbit.result == RESULTS.successful else near(conserved=model.conserved)
    if found.result != RESULTS.successful:
        raise NotFound(f"{short_name(model)}: {described_code(found.result)} Try other parameters, near the defaults.")
    if found is not orbit:
        family, known = continuation(found, stop=wanted, throw=False), float(found.params.conserved)
        if family.result != RESULTS.successful:
            raise NotFound(
                f"{short_name(model)}: no orbit at {LEVEL} = {wanted:.6g}: the family from {known:.6g} ends at "
                f"{family.values[-1]:.6g} ({family.result}). Give --param {LEVEL}=VALUE between them."
            )
        orbit = family.orbit(-1)
    return jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, orbit)


# Of the simulation that leads to where a motion settles: its jumps, and the last of them, whose states are the region's.
SETTLING_JUMPS, SETTLED_JUMPS = 400, 32


def _settled(model: ModuleType, params, mode: str):
    """The states in which a simulation from the model's start enters the mode in the last of its jumps, shape `(events, n)`;
    `None` where the simulation fails, does not enter the mode, or the model has no start."""
    import numpy as np

    from .._flow.simulate import simulate

    if not hasattr(model, "start"):
        return None
    first, x = model.start(params)
    run = simulate(model.system, x, params, mode=first, t1=1e9, max_jumps=SETTLING_JUMPS, throw=False)
    states = [np.asarray(event.after) for event in run.events[-SETTLED_JUMPS:] if event.target == mode]
    return np.stack(states) if states and str(run.result) == "max_jumps_reached" else None


def _around(states, margin) -> Region:
    """The smallest box that holds the states, widened by the margin."""
    return states.min(axis=0) - margin, states.max(axis=0) + margin


def described_region(region: Region, coordinates: Sequence[str]) -> str:
    """A region as a text: the bounds of each coordinate, or the value of one whose bounds are equal."""
    bounds = zip(coordinates, *region, strict=True)
    return ", ".join(f"{name} {low:.4g}" + f" to {high:.4g}" * bool(high > low) for name, low, high in bounds)


def choose_orbit(orbits, number: int, values: dict[str, float]):
    """The orbit with a number counted from 1, in the order of `hyjax gait`. `Misuse` for another number."""
    if not 1 <= number <= len(orbits):
        raise Misuse(
            f"--orbit: {number} must lie between 1 and {len(orbits)}, the number of orbits of hyjax gait at {setting(values)}."
        )
    return orbits[number - 1]


def setting(values: dict[str, float]) -> str:
    """The parameters by name and value, for a message."""
    return ", ".join(f"{key}={value:.6g}" for key, value in values.items())
