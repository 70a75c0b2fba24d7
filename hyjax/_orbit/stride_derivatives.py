"""A stride once around an orbit, and its derivatives by the state and by some of the parameters."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._flow.integrator import pushable
from .._system.results import choose, RESULTS
from .._system.types import Params, require_kind
from .._system.where import with_leaves
from .orbit import PeriodicOrbit
from .problem import Problem, shifts_phase
from .stride import run_stride, Stride


def require_one(orbit: PeriodicOrbit, caller: str) -> None:
    """`ValueError` for a batch of orbits, and for what is no orbit; its message begins with `caller`."""
    require_kind(
        orbit, PeriodicOrbit, caller, "the first argument", "a hj.PeriodicOrbit, as hj.periodic_orbit returns it"
    )
    if orbit.x.ndim > 1:
        raise ValueError(
            f"{caller}: this is a batch of {len(orbit)} orbits. Choose one, such as orbits[0], or use jax.vmap."
        )


def require_phase(orbit: PeriodicOrbit, caller: str) -> None:
    """`ValueError` where states near the orbit begin their next stride at another phase of the forcing: the state after a jump
    does not determine the next stride. The message begins with `caller`."""
    if shifts_phase(Problem(orbit.system, orbit.sequence, orbit.strides), orbit.params, orbit.x):
        raise ValueError(
            f"{caller}: the system depends on time, and the guard that closes the orbit on the state, so that the next stride "
            "may begin at another phase. Make the phase a coordinate of the state, with rate 1."
        )


def leaf_values(params: Params, free: tuple[int, ...], dtype) -> Float[Array, " free"]:
    """The parameters with the indices `free`."""
    leaves = jax.tree.leaves(params)
    return jnp.stack([jnp.asarray(leaves[i], dtype) for i in free])


def stride_derivatives(
    orbit: PeriodicOrbit, free: tuple[int, ...], read: Callable[[Stride], PyTree]
) -> tuple[PyTree, RESULTS]:
    """What is read of the stride, differentiated by the state at its start and by the parameters `free`: for each array that is
    read the pair of both Jacobians. And the code of the orbit, or of the stride."""
    integrator, start = pushable(orbit.integrator), jnp.zeros((), orbit.x.dtype)

    def end(x, values):
        params = with_leaves(orbit.params, free, values)
        through = run_stride(orbit.system, start, x, params, orbit.sequence * orbit.strides, integrator)
        return read(through), through.result

    by, flown = jax.jacfwd(end, argnums=(0, 1), has_aux=True)(orbit.x, leaf_values(orbit.params, free, orbit.x.dtype))
    return by, choose(orbit.result == RESULTS.successful, flown, orbit.result)
