"""How results appear: their `repr` is the table that `print` gives; in a notebook it is a table of HTML, from the same rows."""

import html

import equinox as eqx
import jax
import jax.core
import numpy as np
from jaxtyping import PyTree

from .table import Table, table_of_text


class Shown(eqx.Module):
    """A result that shows its table: one whose `__str__` describes concrete arrays.

    A traced result, or a PyTree of the same structure with other leaves, shows its structure.
    """

    def __repr__(self) -> str:
        return str(self) if _concrete(self) else eqx.tree_pformat(self)

    def _repr_html_(self) -> str:
        """The table in HTML, for notebooks."""
        return html_of(self)


def html_of(result: eqx.Module) -> str:
    """The rows of a result in HTML: those of its method `_tables` if it has one, with units, otherwise those of its text."""
    if not _concrete(result):
        return f"<pre>{html.escape(repr(result))}</pre>"
    own = getattr(result, "_tables", None)
    tables: tuple[Table, ...] = (table_of_text(str(result)),) if own is None else own()
    return "".join(table.html() for table in tables)


def _concrete(result: eqx.Module) -> bool:
    leaves = [leaf for leaf in jax.tree.leaves(result) if not callable(leaf)]
    numbers = (jax.Array, np.ndarray, np.generic, float, int)
    return bool(leaves) and all(isinstance(leaf, numbers) for leaf in leaves) and not is_traced(leaves)


def is_traced(result: PyTree) -> bool:
    """Whether a leaf is traced, so that the result has no numbers yet."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(result))


def digits_of(dtype) -> int:
    """How many significant decimal digits a number of that dtype has: 15 for float64, 6 for float32."""
    return int(np.finfo(dtype).precision)
