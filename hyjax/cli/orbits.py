"""Search for the periodic orbits from which a command starts."""

from types import ModuleType

from .arguments import Misuse, NotFound, short_name


def find_model_orbits(model: ModuleType, params, sequence: tuple[str, ...], strides: int, cache: str, starts: int):
    """All orbits of `strides` strides in the model's region. The traced search is stored in the directory `cache`."""
    import jax
    import numpy as np

    from .._flow.integrator import Integrator
    from .._orbit.search import Batch, search
    from .._orbit.shooting import SingleShooting
    from .._system.working import working
    from .stored import stored_solver

    batch = Batch(model.system, params, sequence, strides, SingleShooting(), Integrator())
    with working("searching for periodic orbits") as say:
        # Under jit, one compiled program is loaded instead of one for each operation.
        low, high = (np.asarray(bound) for bound in jax.jit(model.region)(params))
        return search(batch, (low, high), starts, None, stored_solver(cache, short_name(model), say))


def require_orbits(
    model: ModuleType,
    params,
    values: dict[str, float],
    sequence: tuple[str, ...],
    strides: int,
    cache: str,
    starts: int = 128,
):
    """`find_model_orbits`. `NotFound` where there is no orbit. **Arguments:** `values`: the parameters by name."""
    orbits = find_model_orbits(model, params, sequence, strides, cache, starts)
    if len(orbits) == 0:
        raise NotFound(
            f"{short_name(model)}: no isolated periodic orbit of {strides} stride{'s' * (strides > 1)} at "
            f"{setting(values)}. Try other parameters (hyjax models MODEL lists them), or more --starts of hyjax gait."
        )
    return orbits


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
