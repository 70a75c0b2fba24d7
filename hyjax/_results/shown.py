"""How results appear: `print` and `repr` show their tables in plain text, a notebook in HTML."""

import html
import numbers
import re
import weakref
from collections.abc import Callable
from typing import Any, TYPE_CHECKING, TypeVar

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, PyTree

from .._system.results import Code
from .table import Table

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
Owner = TypeVar("Owner")


class Shown(eqx.Module):
    """A result that shows its tables, those of its method `_tables`, which describes concrete arrays: by default its
    fields, of parameters with their units and meanings.

    A traced result, or a PyTree of the same structure with other leaves, shows its structure.
    """

    def _tables(self) -> tuple[Table, ...]:
        rows, about = [(name, _in_short(value)) for name, value in vars(self).items()], type(self).__dataclass_fields__
        if not any("unit" in field.metadata for field in about.values()):
            return (Table(type(self).__name__, rows),)
        with_units = lambda name: tuple(about[name].metadata.get(key, "") for key in ("unit", "meaning"))
        heads = ("parameter", "value", "unit", "meaning")
        return (Table(type(self).__name__, [row + with_units(row[0]) for row in rows], heads),)

    def __str__(self) -> str:
        return "\n".join(table.text() for table in self._tables()) if _is_concrete(self) else eqx.tree_pformat(self)

    def __repr__(self) -> str:
        return str(self) if _is_concrete(self) else eqx.tree_pformat(self)

    def save(self, path: "str | Path") -> None:
        """Write the result to a file `.npz`, for `hyjax.load`; see `hyjax.save`. `ValueError` for what a file cannot hold."""
        from .save import save

        save(path, self)

    def _repr_html_(self) -> str:
        """The tables in HTML, for notebooks."""
        if not _is_concrete(self):
            return f"<pre>{html.escape(repr(self))}</pre>"
        return "".join(table.html() for table in self._tables())


def _in_short(value: PyTree) -> str:
    """The value on one line: of a long array its ends, of a result or a function its name."""
    if isinstance(value, jax.Array | np.ndarray):
        text = np.array2string(np.asarray(value), threshold=12, edgeitems=2, separator=", ")
        shape = f", shape {value.shape}" if value.size > 12 else ""
        return re.sub(r"\[ ", "[", re.sub(r"\s+", " ", text).replace(" ,", ",").replace(" ]", "]")) + shape
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_in_short, value))})"
    if value is None or isinstance(value, numbers.Number | np.generic | str | Code):
        return str(value)
    if isinstance(value, eqx.Module) and not isinstance(value, Shown):
        return f"{type(value).__name__}({', '.join(f'{name}={_in_short(each)}' for name, each in vars(value).items())})"
    return getattr(value, "__name__", type(value).__name__)


def _is_concrete(result: eqx.Module) -> bool:
    leaves = [leaf for leaf in jax.tree.leaves(result) if not callable(leaf)]
    # A proof holds rational numbers and names.
    values = (jax.Array, np.ndarray, np.generic, numbers.Number, str)
    return bool(leaves) and all(isinstance(leaf, values) for leaf in leaves) and not is_traced(leaves)


def one_of_batch(name: str, value: ArrayLike, what: str) -> None:
    """`ValueError` from the function `name` where the number `value` of a result is that of a batch."""
    if np.ndim(value):
        raise ValueError(f"{name}: this is a batch of {np.shape(value)[0]} {what}. Take one of them, as batch[0].")


def lanes(found: PyTree, value: ArrayLike, i: Any, what: str) -> Any:
    """One lane, or several, of a batch, whose number `value` has one axis or more. `TypeError` for one result; `IndexError` for a
    lane that there is not, which ends a loop over the batch."""
    if np.ndim(value) == 0:
        raise TypeError(f"This is {what}.")
    if not is_traced(i):
        # NumPy's error: JAX takes the last lane for all beyond.
        np.broadcast_to(0, np.shape(value))[i]
    # Functions among the parameters, such as those of a network, are no arrays.
    return jax.tree.map(lambda leaf: leaf[i] if np.ndim(leaf) else leaf, found)


def is_traced(result: PyTree) -> bool:
    """Whether a leaf is traced, so that the result has no numbers yet."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(result))


def require_known(caller: str, *given: PyTree, remedy: str = "") -> None:
    """`ValueError` under `jit`, and where a leaf is traced: for a search in Python, which needs numbers. **Arguments:** `remedy`:
    by default, to differentiate what was found."""
    if is_traced((given, jnp.zeros(()))):
        remedy = remedy or (
            "Call it outside, and differentiate what it finds, as an orbit by hj.periodic_orbit(orbit.step, orbit.x, params)."
        )
        raise ValueError(f"{caller}: a search in Python needs numbers, and cannot be under jit, vmap or grad. {remedy}")


def digits_of(dtype) -> int:
    """How many significant decimal digits a number of that dtype has: 15 for float64, 6 for float32."""
    return int(np.finfo(dtype).precision)


# Values computed from an object, by the object's identity, until the object goes away. Hazard: `functools.cached_property` keeps
# a value in the object's `__dict__`, and equinox takes whatever is there for a part of the module: a branch whose points have
# been read would have another PyTree structure, and JAX would compile for it again.
_COMPUTED: dict[int, dict[Any, Any]] = {}


def computed(owner: object) -> dict[Any, Any]:
    """The values computed from an immutable object so far, by the function that computes each."""
    if id(owner) not in _COMPUTED:
        _COMPUTED[id(owner)] = {}
        weakref.finalize(owner, _COMPUTED.pop, id(owner)).atexit = False
    return _COMPUTED[id(owner)]


def computed_once(compute: Callable[[Owner], T], owner: Owner) -> T:
    """The value of `compute(owner)`, computed in the first call."""
    values = computed(owner)
    if compute not in values:
        values[compute] = compute(owner)
    return values[compute]
