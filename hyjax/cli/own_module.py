"""A system from a user's Python file, `path/to/file.py:system`, in the place of a model of `hyjax.models`.

The file is executed, as Python executes a script, with its folder first on the path of imports. It has what a model has, as far
as a command needs it: the system, `Params`, its map `step`, `guess` or `region`, and further functions that `hyjax.models`
describes.
"""

import ast
import contextlib
import importlib.util
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from .process import Misuse

# What to add to a file for a command that needs it.
NEEDED = {
    "Params": "a class Params, an equinox.Module whose fields are the parameters",
    "sequence": 'step = hj.ReturnMap(system, sequence=("MODE", ...)), the modes of a stride; or give --sequence',
    "region": "region(params) -> (low, high), a box of states around orbits, or guess(params) -> x, a state near one; or give "
    "--region to hyjax gait",
    "start": "start(params) -> (mode, x), an initial state; or give --x0, and --mode where there are several",
    "outline": "outline(mode, x, params) -> {name: points}, the lines of the animation",
    "travel": "travel(mode, x, params) -> vector, the way of a stride",
    "weight": "weight(params) -> number, the weight of the machine",
    "impulsive_work": "impulsive_work(orbit, params) -> number, the work of its push-offs",
}


class OwnModel(ModuleType):
    """A user's module, with the attributes of a model."""

    def __init__(self, module: ModuleType, path: Path, system: Any):
        ModuleType.__init__(self, path.stem)
        self.module, self.path, self.system, self.source = module, path, system, str(path)
        first, _, _ = (module.__doc__ or "").strip().partition("\n")
        self.title = getattr(module, "title", first.rstrip(".") or path.stem)
        self.time_unit = system.time_unit

    @property
    def sequence(self) -> tuple[str, ...]:
        """The sequence of the file's map `step`, or its `sequence`; by default that of a system with one transition, from a mode
        to itself."""
        along = getattr(getattr(self.module, "step", None), "sequence", None)
        if along:
            return tuple(along)
        if hasattr(self.module, "sequence"):
            return tuple(self.module.sequence)
        ways = [(way.source, way.target) for way in self.system.transitions]
        if len(ways) == 1 and ways[0][0] == ways[0][1]:
            return ways[0][:1]
        raise self._missing("sequence")

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The coordinates of the mode in which a stride starts."""
        return self._first.coordinates

    @property
    def units(self) -> tuple[str, ...]:
        """Their units, empty where the system names none."""
        return self._first.units or ("",) * self._first.dimension

    def guess(self, params):
        """The guess of the file, an array or a function of the parameters."""
        return self._of_params("guess", params)

    @property
    def has_region(self) -> bool:
        """Whether the file has a region, or a guess alone."""
        return hasattr(self.module, "region")

    def region(self, params):
        """The region of the file; by default half the size of each coordinate around its guess, and where that is zero half the
        size of the largest."""
        import jax.numpy as jnp

        if self.has_region or not hasattr(self.module, "guess"):
            return self._of_params("region", params)
        guess = self.guess(params)
        half = jnp.where(guess == 0, jnp.max(jnp.abs(guess)), jnp.abs(guess)) / 2
        return guess - half, guess + half

    def start(self, params):
        """The initial mode and state of the file; by default its guess."""
        if hasattr(self.module, "start") or not (hasattr(self.module, "guess") and hasattr(self, "sequence")):
            return self._of_params("start", params)
        return self.sequence[0], self.guess(params)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(self.module, name):
            raise self._missing(name)
        return getattr(self.module, name)

    @property
    def _first(self):
        from .._system.system import of_arc

        name, _ = of_arc((*getattr(self, "sequence", ()), self.system.names[0])[0], self.system.names)
        if name not in self.system.modes:
            raise Misuse(f"{self.path}: sequence names {name!r}, which is not one of the modes {self.system.names}.")
        return self.system.mode(name)

    def _of_params(self, name: str, params) -> Any:
        if not hasattr(self.module, name):
            raise self._missing(name)
        given = getattr(self.module, name)
        return given(params) if callable(given) else given

    def _missing(self, name: str) -> AttributeError:
        """For `hasattr` it is missing; for a command that needs it the request is invalid (`run` in `app.py`)."""
        said = f"{self.path}: the file lacks {name}, which this command needs. Add {NEEDED.get(name, name)}."
        if name == "sequence" and self.path.suffix != ".py":
            said = (
                f"{self.path}: a body with one contact makes no steps, which this command needs. Give two feet, as --contact "
                "LEFT --contact RIGHT, or the sets of contacts of a stride, as --sequence foot:stick,foot:open."
            )
        return AttributeError(said, name=name, obj=self)


def is_file(name: str) -> bool:
    """Whether the name of a model is that of a Python file, with or without an attribute."""
    return _split(name) is not None


def load_file(name: str) -> OwnModel:
    """The model `path/to/file.py:attribute`; by default the attribute `system`.

    `Misuse` for a file that does not exist or raises an error, an attribute that is missing, and one that is no `HybridSystem`.
    Where the text of the file shows that the attribute is missing, the file is not executed.
    """
    split = _split(name)
    assert split is not None
    path, attribute = Path(split[0]), split[1] or "system"
    if not path.is_file():
        raise Misuse(f"{path}: there is no such file. Give the path of a Python file, as path/to/file.py:system.")
    names = _names(path)
    if names is not None and attribute not in names.bound:
        raise _without(path, attribute, names.systems)
    module = _executed(path)
    from .._system.system import HybridSystem

    if not hasattr(module, attribute):
        raise _without(
            path, attribute, [each for each, value in vars(module).items() if isinstance(value, HybridSystem)]
        )
    system = getattr(module, attribute)
    if not isinstance(system, HybridSystem):
        raise Misuse(
            f"{path}: {attribute} is of the type {type(system).__name__}. Name a hyjax.HybridSystem, as {path}:NAME."
        )
    return OwnModel(module, path, system)


def _split(name: str) -> tuple[str, str] | None:
    """The path and the attribute, empty where none is given; `None` for the name of a model."""
    found = re.fullmatch(r"(.*\.py)(?::(\w*))?", name)
    return None if found is None else (found[1], found[2] or "")


def _without(path: Path, attribute: str, systems: list[str]) -> Misuse:
    """The error of a file without the attribute, which says what to write, by the names of the systems that the file has."""
    if not systems:
        remedy = f"Write {attribute} = hyjax.HybridSystem(...) at its top level, or {path}:NAME for another name."
    elif attribute == "system":
        remedy = f"Its systems are: {', '.join(systems)}. Write {path}:{systems[0]}, or call it system in the file."
    else:
        remedy = f"Its systems are: {', '.join(systems)}. Write {path}:{systems[0]}."
    return Misuse(f"{path}: the file has no attribute {attribute!r}. {remedy}")


class _Names(ast.NodeVisitor):
    """The names that the statements of a module bind, without executing them.

    **Attributes:** `bound`: the names. `systems`: the names to which a call of `HybridSystem` or `contact_system` is assigned.
    `known`: false where the module may bind names that its text does not show.
    """

    def __init__(self):
        self.bound, self.systems, self.known = set(), [], True

    def _definition(self, node):
        self.bound.add(node.name)
        for inner in ast.walk(node):
            # A function binds the names of the module that it declares global, and may look up the module's namespace.
            if isinstance(inner, ast.Global):
                self.bound.update(inner.names)
            if isinstance(inner, ast.Name | ast.Attribute):
                self._look_up(inner)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _definition

    def _look_up(self, node):
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name in ("globals", "locals", "vars", "exec", "eval", "setattr", "modules", "__dict__"):
            self.known = False

    def visit_Name(self, node):
        self._look_up(node)
        if isinstance(node.ctx, ast.Store):
            self.bound.add(node.id)

    def visit_Attribute(self, node):
        self._look_up(node)
        self.generic_visit(node)

    def visit_alias(self, node):
        self.known &= node.name != "*"
        self.bound.add(node.asname or node.name.partition(".")[0])

    def visit_MatchAs(self, node):
        self.bound.add(node.name)
        self.generic_visit(node)

    def visit_MatchStar(self, node):
        self.bound.add(node.name)

    def visit_MatchMapping(self, node):
        self.bound.add(node.rest)
        self.generic_visit(node)

    def visit_Assign(self, node):
        made = node.value.func if isinstance(node.value, ast.Call) else None
        if made is not None and re.search(r"\b(HybridSystem|contact_system)$", ast.unparse(made)):
            self.systems += [each.id for each in node.targets if isinstance(each, ast.Name)]
        self.generic_visit(node)


def _names(path: Path) -> _Names | None:
    """The names that the file binds; `None` where its text does not tell, as where it is no Python."""
    names = _Names()
    try:
        names.visit(ast.parse(path.read_bytes()))
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
        return None
    return names if names.known and "__getattr__" not in names.bound else None


def _executed(path: Path) -> ModuleType:
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    # A module of that name that is already imported, such as one of the standard library, stays what it is.
    if spec is None or spec.loader is None or name in sys.modules:
        name = f"own_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.absolute().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        frames = reversed(traceback.extract_tb(error.__traceback__))
        own = (f", line {each.lineno}" for each in frames if Path(each.filename).name == path.name)
        line = next(own, "")
        raise Misuse(
            f"{path}{line}: the file cannot be executed: {type(error).__name__}: {error}. Correct the file; python {path} shows "
            "the whole error."
        ) from None
    # Another process, in which chunks are computed, cannot import the module by its name.
    with contextlib.suppress(ImportError):
        import cloudpickle

        cloudpickle.register_pickle_by_value(module)
    return module
