"""A result from the tree that `encode.py` describes."""

import importlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._system.results import Code, RESULTS
from .._system.system import HybridSystem
from .._system.where import leaf_names
from .encode import fields_of, MissingFunction, PACKAGES


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
        try:
            found = importlib.import_module(module)
            for part in within.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            raise ValueError(
                f"{self.path}: {name} is not in the installed {module.partition('.')[0]}. Read the file with the versions that "
                "hj.load(path, describe=True) lists."
            ) from None
        return found

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
