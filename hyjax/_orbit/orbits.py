"""The orbits that a search found: one batch for each sequence of modes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Int

from .._results.shown import Shown
from .orbit import PeriodicOrbit

Chosen = Int[Array | np.ndarray, " chosen"] | Bool[Array | np.ndarray, " orbits"] | slice | list[int]


class Orbits(Shown):
    """The periodic orbits that `find_orbits` found, in one batch for each sequence of modes.

    `len(orbits)` is their number, `orbits[0]` the first, a `PeriodicOrbit`, `orbits[orbits.stable]` several. Where all orbits
    have one sequence of modes, as along a given sequence, `orbits` has the attributes and methods of the batch, such as
    `orbits.period`, with a leading axis; `AttributeError` otherwise.

    **Attributes:** `batches`: a batch of `PeriodicOrbit` for each sequence, the shortest sequence first; within a batch, by
    decreasing period. `sequences`: those of the batches, `(("swing",), ...)`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbits = hj.find_orbits(wheel.step, params, region=wheel.region(params))
    >>> len(orbits), orbits.sequences, bool(orbits[0].stable)
    (1, (('stance',),), True)
    """

    batches: tuple[PeriodicOrbit, ...]

    @property
    def sequences(self) -> tuple[tuple[str, ...], ...]:
        return tuple(each.sequence for each in self.batches)

    @property
    def batch(self) -> PeriodicOrbit:
        """The batch of all orbits. `AttributeError` unless they have one sequence of modes."""
        if len(self.batches) != 1:
            raise AttributeError(
                f"These orbits have {len(self.batches)} sequences of modes: take one of `batches`, or one orbit, orbits[0]."
            )
        return self.batches[0]

    def of(self, sequence: tuple[str, ...]) -> PeriodicOrbit:
        """The batch of a sequence of modes. `KeyError` for a sequence that was not found."""
        return dict(zip(self.sequences, self.batches, strict=True))[tuple(sequence)]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.batches)) if self.batches else "0 PeriodicOrbits"

    def _tables(self):
        return tuple(table for each in self.batches for table in each._tables())

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    def __iter__(self) -> Iterator[PeriodicOrbit]:
        return (each[i] for each in self.batches for i in range(len(each)))

    def __getitem__(self, chosen: int | Chosen) -> Any:
        numbers = np.arange(len(self))[chosen if isinstance(chosen, slice) else np.asarray(chosen)]
        if numbers.ndim == 0:
            for each in self.batches:
                if numbers < len(each):
                    return each[int(numbers)]
                numbers = numbers - len(each)
        parts, first = [], 0
        for each in self.batches:
            own = numbers[(numbers >= first) & (numbers < first + len(each))] - first
            first += len(each)
            if len(own) or len(self.batches) == 1:
                parts.append(each[own])
        return Orbits(tuple(parts))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "batches":
            raise AttributeError(name)
        return getattr(self.batch, name)
