"""The error of a search for an orbit that failed: one message with the last iterate and the remedies."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._results.shown import is_traced
from .._system.results import code_of, described_code, RESULTS, SolveError
from .._system.types import Scalar

if TYPE_CHECKING:
    from .orbit import PeriodicOrbit


Codes = Array | np.ndarray


class Reached(eqx.Module):
    """The last iterate of a search, successful or not: the states at the starts of the strides, their residual, and the number of
    iterations."""

    nodes: Float[Array, "strides n"]
    residual: Scalar
    iterations: Int[Array, ""]

    def distance(self, guess: Float[Array, "..."]) -> Scalar:
        """The largest component of the difference from a guess, of the start or of all nodes, relative to the largest component
        of both."""
        nodes = self.nodes if guess.ndim == 2 else self.nodes[0]
        size = jnp.maximum(jnp.max(jnp.abs(nodes)), jnp.max(jnp.abs(guess)))
        return jnp.max(jnp.abs(nodes - guess)) / jnp.where(size > 0, size, 1)


def raise_failure(orbit: "PeriodicOrbit", reached: Reached) -> "PeriodicOrbit":
    """The orbit itself; `SolveError` where it, or a lane of a batch, failed; under `jit` equinox's runtime error."""
    numbers = orbit.result._value, reached, orbit.distance
    _look(*numbers)
    return orbit.result.error_if(orbit, orbit.result != RESULTS.successful) if is_traced(numbers) else orbit


def _look(codes: Codes, reached: Reached, distance: Array) -> Codes:
    """Raise the error of a search whose numbers are known, outside `jit`: for all lanes at once."""
    if is_traced((codes, reached, distance)):
        return _look_at_lanes(codes, reached, distance)
    if np.any(np.asarray(codes) != RESULTS.successful._value):
        raise SolveError(describe_failure(np.asarray(codes), reached, np.asarray(distance)), codes)
    return codes


@jax.custom_batching.custom_vmap
def _look_at_lanes(codes: Codes, reached: Reached, distance: Array) -> Codes:
    return codes


@_look_at_lanes.def_vmap
def _(size, batched, codes, reached, distance):
    lanes = jax.tree.map(
        lambda leaf, has: leaf if has else jnp.broadcast_to(leaf, (size, *jnp.shape(leaf))),
        (codes, reached, distance), tuple(batched),
    )  # fmt: skip
    return _look(*lanes), True


# The most lanes that a message describes.
_SHOWN = 5


def describe_failure(codes: np.ndarray, reached: Reached, distance: np.ndarray) -> str:
    """The message of a failed search: result code, last iterate and remedies."""
    failed = np.argwhere(codes != RESULTS.successful._value)
    about = [(code_of(int(codes[tuple(lane)])), tuple(int(i) for i in lane)) for lane in failed]
    many = f"periodic_orbit failed in {len(failed)} of {codes.size} lanes."
    lines = [many if codes.ndim else "periodic_orbit found no orbit from this guess."]
    for code, lane in about[:_SHOWN]:
        x, residual = np.asarray(reached.nodes)[lane][0], float(np.asarray(reached.residual)[lane])
        steps = int(np.asarray(reached.iterations)[lane])
        where = f"lane {', '.join(map(str, lane))}: " if lane else ""
        lines.append(
            f"  {where}{described_code(code)}\n    residual {residual:.2g} after {steps} iteration{'s' * (steps != 1)}, at "
            f"x = {np.array2string(x, precision=6, separator=', ')}, distance {float(distance[lane]):.2g} from the guess"
        )
    if len(about) > _SHOWN:
        lines.append(f"  ... and {len(about) - _SHOWN} more")
    lines.append(
        "Try a guess nearer to the orbit, such as an orbit at a neighbouring parameter; find_orbits, which needs no guess; or "
        "throw=False, which returns the code in result."
    )
    return "\n".join(lines)
