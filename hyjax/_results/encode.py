"""A result as a tree of JSON values and arrays by name.

| value | node |
|---|---|
| `None`, `bool`, `int`, `str`, finite `float` | itself |
| other `float` | `{"float": text}` |
| array of JAX, array of NumPy, scalar of NumPy | `{"array": name}`, `{"numpy": name}`, `{"scalar": name}` |
| `tuple`, `list`, `dict` | `{"tuple": nodes}`, `{"list": nodes}`, `{"dict": [key, node] pairs}` |
| result codes | `{"codes": name, "names": {number: code}, "numpy": whether NumPy holds them}` |
| object of hyjax, diffrax, optimistix, lineax | `{"object": "module:class", "fields": {name: node}}` |
| named tuple of these packages | `{"object": "module:class", "fields": {name: node}}` |
| function or constant of these packages | `{"named": "module:name"}` |
| user function | `{"function": name}` |
| the system | `{"system": true}` |
| parameters of another class | `{"params": [leaf's name, node] pairs}` |
"""

import dataclasses
import math
import re
import sys
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.core
import numpy as np

from .._system.results import Code, code_of
from .._system.system import HybridSystem
from .._system.where import leaf_names
from .fingerprint import source_digest

# The packages whose classes and functions a file may name.
PACKAGES = ("hyjax", "diffrax", "optimistix", "lineax")
# The fields of an optimization and of its constraints that may hold a user function.
FUNCTIONS = ("objective", "function")
# The parts of a fit that a file does not hold: they are needed to fit again.
LEFT_OUT = ("FitProblem",)


class MissingFunction(eqx.Module):
    """Placeholder in a loaded result for a user function that `hyjax.load` was not given; `ValueError` with the remedy where it
    is called.

    **Attributes:** `name`: of the function in the file. `source`: a digest of its source, `None` where there was none. `path`: of
    the file.
    """

    name: str = eqx.field(static=True)
    source: str | None = eqx.field(static=True)
    path: str = eqx.field(static=True)

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, *args: Any) -> NoReturn:
        raise ValueError(
            f"The function {self.name!r} is needed here, and a file holds no code: this result was loaded from {self.path} "
            f"without it. Give it: hj.load({self.path!r}, functions={{{self.name!r}: ...}})."
        )


class Encoder:
    """The encoding of one result.

    **Attributes:** `arrays`: by name. `systems`: the system of the result, at most one. `params`: the parameters of its parts.
    `functions`: user functions, by name.
    """

    def __init__(self):
        self.arrays: dict[str, np.ndarray] = {}
        self.systems: list[HybridSystem] = []
        self.params: list[Any] = []
        self.functions: dict[str, Any] = {}

    def node(self, value: Any, place: tuple[str, ...] = ()) -> Any:
        """The node of a value. `ValueError` for a value that a file cannot hold. **Arguments:** `place`: its path."""
        if type(value).__name__ in LEFT_OUT:
            return None
        if value is None or isinstance(value, bool | int | str) or (type(value) is float and math.isfinite(value)):
            return value
        if type(value) is float:
            return {"float": repr(value)}
        if isinstance(value, jax.core.Tracer):
            raise ValueError("hj.save: the result is traced, and has no numbers yet: save it outside of jit and vmap.")
        if isinstance(value, jax.Array | np.ndarray | np.generic):
            kind = "array" if isinstance(value, jax.Array) else "numpy" if isinstance(value, np.ndarray) else "scalar"
            return {kind: self._keep(np.asarray(value), place)}
        if isinstance(value, HybridSystem):
            return self._system(value)
        if isinstance(value, Code):
            numbers = np.asarray(value._value)
            return {
                "codes": self._keep(numbers, place),
                "names": {int(k): str(code_of(int(k))) for k in np.unique(numbers)},
                "numpy": not isinstance(value._value, jax.Array),
            }
        if place[-1:] == ("params",):
            self.params.append(value)
            if not _is_plain(value) and not _named(type(value)):
                return self._leaves(value, place)
        if isinstance(value, tuple | list) and type(value) in (tuple, list):
            return {type(value).__name__: [self.node(each, (*place, str(k))) for k, each in enumerate(value)]}
        if type(value) is dict and all(isinstance(key, str) for key in value):
            return {"dict": [[key, self.node(each, (*place, key))] for key, each in value.items()]}
        if isinstance(value, MissingFunction):
            return self._function(value)
        fields = fields_of(type(value))
        if fields is not None and (name := _named(type(value))):
            nodes = {each: self.node(getattr(value, each), (*place, each)) for each in fields}
            return {"object": name, "fields": nodes}
        if name := _named(value) or _constant(value):
            return {"named": name}
        if callable(value) and place[-1:] and place[-1] in FUNCTIONS:
            return self._function(value)
        raise ValueError(
            f"hj.save: {'.'.join(place) or 'the result'} is {_shown(value)}, which a file cannot hold: it holds "
            "arrays, numbers, text, and objects of hyjax and diffrax, no functions of your own. "
            "Save the parts that are data, such as result.orbit."
        )

    def _keep(self, array: np.ndarray, place: tuple[str, ...]) -> str:
        if array.dtype.kind not in "biufc":
            raise ValueError(f"hj.save: {'.'.join(place)} has the dtype {array.dtype}, which a file cannot hold.")
        name = first = re.sub(r"[^\w.]", "_", ".".join(place)) or "values"
        while name in self.arrays:
            name = f"{first}_{len(self.arrays)}"
        self.arrays[name] = array
        return name

    def _system(self, system: HybridSystem) -> dict:
        if not self.systems:
            self.systems.append(system)
        if system != self.systems[0]:
            raise ValueError(
                "hj.save: the parts belong to different systems. Save those of each system in a file of its own."
            )
        return {"system": True}

    def sources(self) -> dict[str, str | None]:
        """A digest of the source of each user function, by name; `None` where there is no source."""
        missing = lambda fn: isinstance(fn, MissingFunction)
        return {name: fn.source if missing(fn) else source_digest(fn) for name, fn in self.functions.items()}

    def _function(self, fn: Any) -> dict:
        """A user function, by its name; a second function of that name gets a number."""
        name = first = getattr(fn, "__name__", type(fn).__name__)
        while name in self.functions and self.functions[name] != fn:
            name = f"{first}_{len(self.functions)}"
        self.functions[name] = fn
        return {"function": name}

    def _leaves(self, params: Any, place: tuple[str, ...]) -> dict:
        """Parameters of a user's class, by leaf; functions among them come from the example that `load` is given."""
        pairs = zip(leaf_names(params), jax.tree.leaves(params), strict=True)
        return {"params": [[name, self.node(leaf, (*place, name))] for name, leaf in pairs if eqx.is_array_like(leaf)]}


def fields_of(cls: Any) -> tuple[str, ...] | None:
    """The names of the fields of a dataclass or of a named tuple; `None` for what is neither."""
    if isinstance(cls, type) and dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return getattr(cls, "_fields", None) if isinstance(cls, type) and issubclass(cls, tuple) else None


def _is_plain(value: Any) -> bool:
    """Whether a PyTree is made of tuples, lists, dictionaries, arrays and numbers alone."""
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(isinstance(key, str) for key in value) and all(map(_is_plain, value.values()))
    return value is None or eqx.is_array_like(value)


def _named(thing: Any) -> str:
    """`module:name` of a class or function of the packages, found again under that name; empty for others."""
    module, name = getattr(thing, "__module__", None) or "", getattr(thing, "__qualname__", "")
    known = module.partition(".")[0] in PACKAGES and name and "<" not in name
    return f"{module}:{name}" if known else ""


def _constant(thing: Any) -> str:
    """`module:name` of a constant of the packages, such as diffrax's `use_stepsize_tol`, next to its class; empty for others."""
    module = type(thing).__module__
    held = vars(sys.modules[module]) if module.partition(".")[0] in PACKAGES else {}
    return next((f"{module}:{name}" for name, each in held.items() if each is thing), "")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
