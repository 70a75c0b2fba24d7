"""The public names of hyjax by layer, read from the source: `hyjax/__init__.pyi`, and `__init__.py` of the public folders.

Nothing is imported, so that a page is made without JAX.
"""

import ast
import functools as ft
import pathlib
from typing import NamedTuple

PACKAGE = pathlib.Path(__file__).parents[2] / "hyjax"
# In the order of the derivation. `models` has a page of its own kind.
LAYERS = {
    "_system": "Hybrid systems",
    "_numerics": "Fast functions and programs",
    "_results": "Files",
    "solvers": "Solvers",
    "_flow": "Flow, events and simulation",
    "_orbit": "Return maps and periodic orbits",
    "noise": "Noise, filters and smoothers",
    "control": "Feedback and control",
    "phase": "Phase, isostables and exponents",
    "_continuation": "Branches and bifurcations",
    "_sweep": "Sweeps, attractors and basins",
    "_optimize": "Optimal orbits",
    "_fit": "Fits to recorded data",
    "study": "Studies of solvers",
    "contact": "Contact and friction",
    "robots": "Robots from files",
    "plot": "Pictures and animations",
    "certify": "Proofs",
}
# Folders and files whose names are reached as `hyjax.certify.krawczyk`, and their layers.
MODULES = {
    "fast": "_numerics", "solvers": "solvers", "noise": "noise", "control": "control", "phase": "phase",
    "objectives": "_optimize", "study": "study", "certify": "certify", "contact": "contact",
    "robots": "robots", "plot": "plot",
}  # fmt: skip
_FILES = {"objectives": "_optimize/objectives.py", "fast": "_numerics/fast.py"}

# The records that a function or the attribute of a class gives: by the name that gives them, their file and their names. Users
# meet them as values, so they are no names of the package.
RECORDS = {
    "flow_to_guard": ("_flow/flow.py", ("Impact",)),
    "simulate": ("_flow/trajectory.py", ("Event", "Samples", "Arc")),
    "ReturnMap": ("_orbit/stride.py", ("Stride",)),
    "ReturnMap of a section": ("_flow/section_map.py", ("Crossing",)),
    "periodic_orbit": ("_orbit/level.py", ("Level",)),
    "PeriodicOrbit": ("_orbit/footfalls.py", ("Footfalls",)),
    "PeriodicOrbit.manifold": ("_orbit/manifold.py", ("Manifold",)),
    "find_orbits": ("_orbit/find_orbits.py", ("Orbits",)),
    "Branch": ("_continuation/special_points.py", ("SpecialPoint",)),
    "SpecialPoint": ("_continuation/normal_form.py", ("NormalForm",)),
    "SpecialPoint at grazing": ("_continuation/nonsmooth_normal_form.py", ("NonsmoothForm",)),
    "a Neimark-Sacker point": ("_continuation/invariant_circle.py", ("InvariantCircles",)),
    "continuation of an equilibrium": (
        "_continuation/equilibrium_branch.py",
        ("EquilibriumBranch", "EquilibriumPoint"),
    ),
    "locus of equilibria": ("_continuation/equilibrium_locus.py", ("EquilibriumLocus",)),
    "Branch.diagram": ("_sweep/bifurcation_diagram.py", ("Diagram",)),
    "smallest_push": ("_sweep/smallest_push.py", ("SmallestPush",)),
    "optimize": ("_optimize/optimized_orbit.py", ("OptimizedOrbit",)),
    "optimize of a plan": ("_optimize/optimized_plan.py", ("OptimizedPlan",)),
    "OptimizedPlan.feedback": ("_optimize/optimized_plan.py", ("PlanFeedback",)),
    "fit": ("_fit/fitted.py", ("Fitted",)),
    "follow_optimum": ("_optimize/optimum_branch.py", ("OptimumBranch", "ActiveSetChange")),
}

Definition = ast.FunctionDef | ast.ClassDef


class PublicName(NamedTuple):
    module: str  # `hyjax`, `hyjax.plot`, ...
    name: str
    layer: str
    file: pathlib.Path
    node: Definition
    given_by: str = ""  # of a record

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.node) or ""

    @property
    def kind(self) -> str:
        """`function`, `exception` or `class`."""
        if isinstance(self.node, ast.FunctionDef):
            return "function"
        bases = {ast.unparse(base) for base in self.node.bases}
        return "exception" if bases & {"Exception", "RuntimeError", "ValueError"} else "class"


@ft.cache
def parsed(file: pathlib.Path) -> ast.Module:
    return ast.parse(file.read_text())


def _statements(file: pathlib.Path) -> list[ast.stmt]:
    """The statements of a file, with those under its conditions: of names that are imported late, `if TYPE_CHECKING`."""
    return [each for node in parsed(file).body for each in (node.body if isinstance(node, ast.If) else [node])]


def _imports(file: pathlib.Path) -> dict[str, tuple[pathlib.Path, str]]:
    """What a file imports from the package `as` the same name or plainly: name to (file, name there)."""
    found = {}
    for node in _statements(file):
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            base = file.parent
            for _ in range(node.level - 1):
                base = base.parent
            place = base.joinpath(*node.module.split("."))
            for alias in node.names:
                found[alias.asname or alias.name] = (place.with_suffix(".py"), alias.name)
    return found


def definition(file: pathlib.Path, name: str) -> tuple[pathlib.Path, Definition]:
    """Where a name is defined, through files that only import it."""
    # The last: those before it are overloads.
    for node in reversed(parsed(file).body):
        if isinstance(node, Definition) and node.name == name:
            return file, node
    return definition(*_imports(file)[name])


def file_of(module: str) -> pathlib.Path:
    """The file that lists the names of a public module."""
    return PACKAGE / _FILES.get(module, f"{module}/__init__.py")


def _of_module(module: str) -> list[str]:
    """The names of a public module: those that it imports `as` themselves, and the functions and classes that it defines."""
    file = file_of(module)
    body = _statements(file)
    imported = [
        alias.name
        for node in body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]
    return imported + [node.name for node in body if isinstance(node, Definition) and not node.name.startswith("_")]


@ft.cache
def public_names() -> tuple[PublicName, ...]:
    """All public names except modules and `__version__`."""
    found = []
    for name, (place, original) in _imports(PACKAGE / "__init__.pyi").items():
        if name not in MODULES and name != "__version__":
            file, node = definition(place, original)
            layer = file.relative_to(PACKAGE).parts[0]
            found.append(PublicName("hyjax", name, layer, file, node))
    for module, layer in MODULES.items():
        file = file_of(module)
        for name in _of_module(module):
            found.append(PublicName(f"hyjax.{module}", name, layer, *definition(file, name)))
    for giver, (place, names) in RECORDS.items():
        for name in names:
            file, node = definition(PACKAGE / place, name)
            found.append(PublicName("hyjax", name, place.partition("/")[0], file, node, giver))
    found += [PublicName("hyjax.models", "load", "models", *definition(PACKAGE / "models" / "__init__.py", "load"))]
    return tuple(found)
