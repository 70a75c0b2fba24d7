"""Search for the periodic orbits from which a command starts."""

import sys
from types import ModuleType
from typing import Any

from .arguments import Misuse, NotFound, short_name

# The low and the high state of a box; None for the model's.
Region = tuple[Any, Any] | None
# The default of `--starts`.
MOST_STARTS = 2048


def find_model_orbits(
    model: ModuleType, params, sequence: tuple[str, ...], strides: int, cache: str, starts: int, region: Region = None
):
    """Orbits of `strides` strides in the region, by default the model's, and the count of starts. The traced search is stored in
    the directory `cache`."""
    import equinox as eqx
    import numpy as np

    from .._flow.integrator import Integrator
    from .._orbit.search import Batch, search, solve_batch
    from .._orbit.shooting import SingleShooting
    from .._results.working import working
    from .own_module import OwnModel
    from .stored_programs import stored_solver

    batch = Batch(model.system, params, sequence, strides, SingleShooting(), Integrator())
    with working("searching for periodic orbits") as say:
        # Under jit, one compiled program is loaded instead of one for each operation.
        low, high = (np.asarray(bound) for bound in (region or eqx.filter_jit(model.region)(params)))
        # Programs are stored by the source of hyjax alone: those of other files are traced again.
        solve = solve_batch if isinstance(model, OwnModel) else stored_solver(cache, short_name(model), say)
        return search(batch, (low, high), starts, None, solve)


def require_orbits(
    model: ModuleType,
    params,
    values: dict[str, float],
    sequence: tuple[str, ...],
    strides: int,
    cache: str,
    starts: int = MOST_STARTS,
    region: Region = None,
):
    """The orbits of `find_model_orbits`, with a note on stderr if the search ended early. `NotFound` where there is no orbit.

    A region that is only the surroundings of a file's guess is made to hold the orbit to which starts led out of it.

    **Arguments:** `values`: the parameters by name.
    """
    orbits, census = find_model_orbits(model, params, sequence, strides, cache, starts, region)
    if len(orbits) == 0 and census.outside and region is None and getattr(model, "has_region", True) is False:
        wider = _holding(model.region(params), census.outside[0])
        orbits, census = find_model_orbits(model, params, sequence, strides, cache, starts, wider)
    if len(orbits) == 0:
        raise NotFound(
            f"{short_name(model)}: no isolated periodic orbit of {strides} stride{'s' * (strides > 1)} at "
            f"{setting(values)}; no start of {census.tried} led to one. Try other parameters (hyjax models MODEL lists them), or "
            f"another --region of hyjax gait. {census.hint}".rstrip()
        )
    if not census.complete:
        print(
            f"hyjax: {census}. More --starts, or a smaller --region, of hyjax gait may find more.",
            file=sys.stderr,
        )
    return orbits


def _holding(region: tuple[Any, Any], state: tuple[float, ...]) -> tuple[Any, Any]:
    """The region, made to hold a state and its surroundings."""
    import numpy as np

    low, high = (np.asarray(bound) for bound in region)
    x, margin = np.asarray(state, low.dtype), (high - low) / 4
    return np.minimum(low, x - margin), np.maximum(high, x + margin)


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
