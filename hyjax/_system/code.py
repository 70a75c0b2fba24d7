"""Result codes that print as their names and compare with strings; an item of `equinox.Enumeration` does neither."""

import difflib
from typing import Any, TypeVar

import diffrax as dfx
import jax
import jax.core
import numpy as np
from jaxtyping import Array, Bool

# Equinox does not export the class of its items.
_Item: Any = type(dfx.RESULTS.successful)
Enumeration = TypeVar("Enumeration")


class Code(_Item):
    """A result code, or a batch of them: a PyTree of one array of integers.

    `code == RESULTS.zeno` and `code == "zeno"` are arrays of booleans, one for each lane, also under `jit`; `ValueError` for a
    string that is no code. A code prints as its name, a batch as the number of lanes with each code, such as `62 successful, 2
    zeno`. `RESULTS[code]` is the message.
    """

    # Not a scalar in a batch.
    _value: Any

    def __init__(self, value: Any, enumeration: Any):
        self._value = value
        self._enumeration = enumeration

    def _code(self, other: Any) -> Any:
        if not isinstance(other, str):
            return other
        codes = self._enumeration._name_to_item
        if other not in codes:
            near = difflib.get_close_matches(other, codes, 1)
            hint = f" Did you mean {near[0]!r}?" if near else f" The codes are: {', '.join(codes)}."
            raise ValueError(f"No result code has the name {other!r}.{hint}")
        return codes[other]

    def __eq__(self, other: Any) -> Bool[Array, "..."]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().__eq__(self._code(other))

    def __ne__(self, other: Any) -> Bool[Array, "..."]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().__ne__(self._code(other))

    def __repr__(self) -> str:
        if isinstance(self._value, jax.core.Tracer) or not isinstance(self._value, (jax.Array, np.ndarray, np.generic)):
            # Traced, or a PyTree of the same structure with other leaves.
            return f"{self._enumeration.__name__}<{self._value}>"
        names = {int(item._value): name for name, item in self._enumeration._name_to_item.items()}
        if np.ndim(self._value) == 0:
            return names[int(self._value)]
        numbers, counts = np.unique(np.asarray(self._value), return_counts=True)
        return ", ".join(f"{n} {names[int(number)]}" for number, n in zip(numbers, counts, strict=True)) or "no codes"


def named(enumeration: Enumeration) -> Enumeration:
    """The enumeration with items that are `Code`s. All must be: a PyTree's structure contains the class of its parts."""
    cls: Any = enumeration
    codes, above = cls._name_to_item, super(cls, cls)
    codes.update({name: Code(item._value, cls) for name, item in codes.items()})
    cls.where = lambda pred, a, b: Code(above.where(pred, a, b)._value, cls)
    cls.promote = lambda item: Code(above.promote(item)._value, cls)
    return enumeration
