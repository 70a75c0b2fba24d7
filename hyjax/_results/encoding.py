"""A result as a tree of JSON values and arrays by name, and back; and what identifies a system in a file: the names in it, and
digests of the source of its functions.

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

import ast
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import inspect
import math
import pathlib
import re
import sys
import textwrap
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from .._system.results import Code, code_of, RESULTS
from .._system.system import HybridSystem, with_rest
from .._system.where import leaf_names
from . import registry

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


def _module_of(written: str, name: str) -> str:
    """The one module of hyjax that defines a class or function, which was in the module `written` when a file was made; `written`
    where none does, where several do, and for other packages."""
    root = pathlib.Path(__file__).parents[1]
    definition = re.compile(rf"^(?:class|def) {re.escape(name.partition('.')[0])}\b", re.MULTILINE)
    files = root.rglob("*.py") if written.startswith("hyjax.") else ()
    found = [file for file in files if definition.search(file.read_text(encoding="utf-8"))]
    return ".".join(found[0].relative_to(root.parent).with_suffix("").parts) if len(found) == 1 else written


def _constant(thing: Any) -> str:
    """`module:name` of a constant of the packages, such as diffrax's `use_stepsize_tol`, next to its class; empty for others."""
    module = type(thing).__module__
    held = vars(sys.modules[module]) if module.partition(".")[0] in PACKAGES else {}
    return next((f"{module}:{name}" for name, each in held.items() if each is thing), "")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class Decoder:
    """The decoding of one file.

    **Arguments:** `path`: of the file, for messages. `arrays`: by name. `system`: that of the result. `example`: parameters of
    the class that those of the result have, or `None`. `sources`: digests of the functions that the file names. `functions`:
    those given, by name.
    """

    def __init__(
        self, path: Any, arrays: dict[str, np.ndarray], system: HybridSystem | None, example: Any,
        sources: Mapping[str, str | None], functions: Mapping[str, Any],
    ):  # fmt: skip
        self.path, self.arrays, self.system, self.example = path, arrays, system, example
        self.sources, self.functions = sources, functions

    def value(self, node: Any) -> Any:
        """The value of a node. `ValueError` for one that this version of hyjax cannot build."""
        if not isinstance(node, dict):
            return node
        kind, content = next(iter(node.items()))
        match kind:
            case "float":
                return float(content)
            case "array":
                return self._jax_array(content)
            case "numpy":
                return self._array(content)
            case "scalar":
                return self._array(content)[()]
            case "tuple" | "list":
                parts = map(self.value, content)
                return tuple(parts) if kind == "tuple" else list(parts)
            case "dict":
                return {key: self.value(each) for key, each in content}
            case "codes":
                return self._codes(content, node["names"], node.get("numpy", False))
            case "object":
                return self._object(content, node["fields"])
            case "named":
                return self._named(content)
            case "function":
                missing = MissingFunction(content, self.sources.get(content), str(self.path))
                return self.functions.get(content, missing)
            case "system":
                return self.system
            case "params":
                return self._params(dict(content))
        raise ValueError(f"{self.path}: the file has a part of an unknown kind, {kind!r}. Read it with a newer hyjax.")

    def _array(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            raise ValueError(f"{self.path}: the array {name} is missing. Restore the file from a copy.")
        return self.arrays[name]

    def _jax_array(self, name: str) -> jax.Array:
        array = self._array(name)
        if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
            raise ValueError(
                f"{self.path}: {name} has the dtype {array.dtype}, and JAX is set to 32 bits. Set "
                'jax.config.update("jax_enable_x64", True) first.'
            )
        return jnp.asarray(array)

    def _codes(self, name: str, names: dict[str, str], numpy: bool) -> Code:
        known: Any = RESULTS._name_to_item  # pyright: ignore
        if unknown := [each for each in names.values() if each not in known]:
            raise ValueError(
                f"{self.path}: this hyjax has no result code {unknown[0]!r}. Read the file with a newer hyjax."
            )
        stored = self._array(name)
        # The numbers of the codes are those of this version, whatever they were in that of the file.
        numbers = np.zeros_like(stored)
        for number, code in names.items():
            numbers[stored == int(number)] = int(known[code]._value)
        return Code(numbers if numpy else jnp.asarray(numbers), RESULTS)

    def _object(self, name: str, fields: dict[str, Any]) -> Any:
        cls = self._named(name)
        if (known := fields_of(cls)) is None:
            raise ValueError(f"{self.path}: {name} is not a class of data.")
        expected, short = set(known), name.partition(":")[2]
        for missing, of, by in (
            (expected - set(fields), "the file", short),
            (set(fields) - expected, short, "the file"),
        ):
            if missing:
                raise ValueError(
                    f"{self.path}: {of} lacks {', '.join(sorted(missing))} of {by}. The file was written by another version of "
                    "hyjax or of the package: see hj.load(path, describe=True)."
                )
        if issubclass(cls, tuple):
            return cls(**{field: self.value(node) for field, node in fields.items()})
        # As JAX rebuilds a PyTree: the values were checked when the object was first made.
        made = object.__new__(cls)
        for field, node in fields.items():
            object.__setattr__(made, field, self.value(node))
        return made

    def _named(self, name: str) -> Any:
        module, _, within = name.partition(":")
        if module.partition(".")[0] not in PACKAGES:
            raise ValueError(
                f"{self.path}: the file names {name}, which is of none of the packages {', '.join(PACKAGES)}."
            )
        for place in (module, _module_of(module, within)):
            try:
                found = importlib.import_module(place)
                for part in within.split("."):
                    found = getattr(found, part)
                return found
            except (ImportError, AttributeError):
                pass
        raise ValueError(
            f"{self.path}: {name} is not in the installed {module.partition('.')[0]}. Read the file with the versions that "
            "hj.load(path, describe=True) lists."
        )

    def _params(self, stored: dict[str, Any]) -> Any:
        if self.example is None:
            raise ValueError(
                f"{self.path}: the parameters ({', '.join(stored)}) have a class of their own, which a file does not hold. Give "
                "an example: hj.load(path, system=system, params=Params(...)); its values do not matter."
            )
        leaves, tree = jax.tree.flatten(self.example)
        names = leaf_names(self.example)
        given = [name for name, leaf in zip(names, leaves, strict=True) if not callable(leaf)]
        if given != list(stored):
            raise ValueError(
                f"{self.path}: params has the leaves {', '.join(given)}; those of the file are {', '.join(stored)}. Give an "
                "example of the parameters with which the result was computed."
            )
        values = []
        for name, leaf in zip(names, leaves, strict=True):
            value = self.value(stored[name]) if name in stored else leaf
            own = np.shape(leaf)
            # A batch has further axes before those of the parameter.
            if np.shape(value)[np.ndim(value) - len(own) :] != own:
                raise ValueError(
                    f"{self.path}: params has the shape {own} at {name}; that of the file is {np.shape(value)}. Give an example "
                    "of the parameters with which the result was computed."
                )
            values.append(value)
        return jax.tree.unflatten(tree, values)


def fingerprint(system: HybridSystem) -> dict[str, Any]:
    """The modes with their coordinates, the transitions, and a digest of the source of each function that has one; for a model of
    `hyjax.models` its name."""
    functions = {}
    for name, mode in system.modes.items():
        functions[f"vector field of {name}"] = mode.vector_field
    for each in system.transitions:
        functions[f"guard from {each.source} to {each.target}"] = each.guard
        functions[f"reset from {each.source} to {each.target}"] = each.reset
    digests = {role: source_digest(fn) for role, fn in functions.items()}
    model, kind = _model_and_kind(system)
    return {
        "model": model,
        **({"made for": kind} if kind else {}),
        "modes": {name: list(mode.coordinates) for name, mode in system.modes.items()},
        **({"held": held} if (held := {name: list(m.held) for name, m in system.modes.items() if m.held}) else {}),
        "transitions": [
            [each.source, each.target, *(["at once"] if each.at_once else []), *(["family"] if each.is_family else [])]
            for each in system.transitions
        ],
        **({"sizes": [way._members or 1 for way in system.transitions]} if system.families else {}),
        "source": {role: digest for role, digest in digests.items() if digest},
    }


def _model_and_kind(system: HybridSystem) -> tuple[str | None, str]:
    """The name of the model, and the kind of its system: see `hyjax.models.orbit_systems`."""
    models, plain = registry.models(), system.unsized()
    # A system of a model that has not been imported cannot be this one.
    known = [name for name in models.names if f"{models.__name__}.{name}" in sys.modules]
    for name in known:
        own = sys.modules[f"{models.__name__}.{name}"].system
        if own is system or own == plain:
            return name, ""
    for name in known:
        for kind, own in models.orbit_systems(name).items():
            if own == plain:
                return name, kind
    return None, ""


def model_of(system: HybridSystem | None) -> ModuleType | None:
    """The model of `hyjax.models` that has this system, or for whose orbits it is made; `None` for another system."""
    name = None if system is None else _model_and_kind(system)[0]
    return None if name is None else registry.models().load(name)


def model_system(name: str, kind: str = "") -> HybridSystem:
    """The system of that kind of the model of that name; `ValueError` for an unknown one."""
    return registry.models().orbit_systems(name)[kind] if kind else registry.models().load(name).system


def require_same_system(path: Any, stored: dict[str, Any], given: HybridSystem) -> list[str]:
    """`ValueError` unless a system has the modes, coordinates and transitions of a stored fingerprint.

    **Returns:** the functions whose source differs.
    """
    own = fingerprint(given)
    for part in ("modes", "transitions"):
        if own[part] != stored[part]:
            raise ValueError(
                f"{path}: the system given has the {part} {own[part]}; that of the file has {stored[part]}. Give the system with "
                "which the result was computed."
            )
    return [role for role, digest in stored["source"].items() if own["source"].get(role, digest) != digest]


def source_digest(fn: Any) -> str | None:
    """A digest of a function's source, without its comments and layout; `None` where there is no source."""
    while isinstance(fn, functools.partial) or getattr(fn, "func", None) is with_rest:
        fn = fn.args[0] if fn.func is with_rest else fn.func
    try:
        text = textwrap.dedent(inspect.getsource(inspect.unwrap(getattr(fn, "__func__", fn))))
    except (OSError, TypeError):
        return None
    # The lines of a lambda are part of a larger expression.
    with contextlib.suppress(SyntaxError):
        text = ast.unparse(ast.parse(text))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
