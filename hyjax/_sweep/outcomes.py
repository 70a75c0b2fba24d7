"""The outcomes of many initial states, chunk by chunk."""

import dataclasses

import numpy as np

from .batches import BatchMap
from .outcome import MapsToOutcome


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """The outcomes of initial states after at most `strides` passes of a map.

    **Attributes:** `lane`: the outcome of one initial state. `common`: arrays for all lanes, without the number of passes. `x`:
    an initial state. `mode`: the index of the initial mode.
    """

    lane: MapsToOutcome
    common: tuple
    x: np.ndarray
    mode: int
    strides: int

    def run(self, most: int) -> BatchMap:
        """The map over lanes of at most `most` further passes."""
        return BatchMap(self.lane, (*self.common, np.asarray(most)))

    def compile(self) -> None:
        x = self.x[None]
        self.run(1).compile((np.zeros(1, x.dtype), x, np.full(1, self.mode)))

    def of(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """The columns of the lanes, from initial states of shape `(points, n)`."""
        count = len(x)
        found = {
            "orbit": np.full(count, -1),
            "fate": np.full(count, -1),
            "strides": np.zeros(count, np.int32),
            "result": np.zeros(count, np.int8),
            "x": x.copy(),
            "t": np.zeros(count, x.dtype),
            "mode": np.full(count, self.mode),
        }
        alive, most, taken = np.arange(count), 1, 0
        # Rounds of 1, 2, 4, ... passes; after each round, lanes whose outcome is known are removed.
        while alive.size and taken < self.strides:
            more = min(most, self.strides - taken)
            part = self.run(more)(tuple(found[name][alive] for name in ("t", "x", "mode")))
            found["strides"][alive] += part["strides"].astype(np.int32)
            for name in ("orbit", "fate", "x", "t", "mode", "result"):
                found[name][alive] = part[name]
            ended = (found["orbit"] >= 0) | (found["fate"] >= 0) | (found["result"] != 0)
            alive, taken, most = alive[~ended[alive]], taken + more, 2 * most
        return found
