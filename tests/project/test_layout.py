"""The folders are the derivation: a layer imports only from layers above it, and no import runs in a circle."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest
from rooms import FILES, imports

import hyjax

# From what a user writes down to the command line, and proofs, which nothing else knows. `contact` and `models` build on the
# first alone, and models on laws of control.
LAYERS = (
    "_system", "_numerics", "_results", "solvers", "_flow", "_orbit", "noise", "contact", "control", "phase", "_continuation",
    "_sweep", "_optimize", "_fit", "study", "robots", "models", "plot", "cli", "certify",
)  # fmt: skip
BUILDS_ON = {
    "contact": {"_system", "_numerics"}, "robots": {"_system", "_numerics", "_results", "contact"},
    "models": {"_system", "_numerics", "_results", "_orbit", "contact", "control"},
}  # fmt: skip
ROOT = pathlib.Path(hyjax.__file__).parent


def test_every_layer_is_known_and_the_top_is_small():
    folders = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(LAYERS)
    top = {path.name for path in ROOT.iterdir() if path.suffix in (".py", ".pyi") or any(path.glob("*.py"))}
    assert top == folders | {"__init__.py", "__init__.pyi", "__main__.py", "_testing.py"}
    assert len(top) <= 24


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_from_layers_above_it(layer):
    above = BUILDS_ON.get(layer, set(LAYERS[: LAYERS.index(layer)]))
    for place in FILES:
        if place[0] == layer:
            assert {each[0] for each in imports(place, lazily=True)} <= above | {layer}, place


# Where a module may be imported by a name that is computed: packages of extras, classes that a file names, the models, and the
# files of the commands. `hyjax/__init__.py` knows all folders.
BY_NAME = {"__init__", "_testing", "_results/encoding", "_results/registry", "models/__init__", "cli/app"}


def test_no_import_by_a_string_escapes_the_order():
    """A text such as `"hyjax.plot"` or `"..models"` would import upwards unseen."""
    for place, path in FILES.items():
        tree = ast.parse(path.read_text())
        called = {ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(tree) if isinstance(node, ast.Call)}
        if place != ("__init__",):
            texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
            named = [re.fullmatch(r"(?:hyjax\.|\.+)(\w+)(\.\w+)*", each) for each in texts if isinstance(each, str)]
            assert not {found[1] for found in named if found} & set(LAYERS), place
        assert "/".join(place) in BY_NAME or not called & {"import_module", "__import__"}, place


def test_no_import_circle():
    after = {place: imports(place, lazily=True) for place in FILES if place[0] in LAYERS}
    done: set[tuple[str, ...]] = set()

    def follow(place, path):
        assert place not in path, " -> ".join("/".join(each) for each in (*path, place))
        if place not in done:
            for each in after.get(place, ()):
                follow(each, (*path, place))
            done.add(place)

    for place in after:
        follow(place, ())


def test_no_file_names_the_package():
    """Imports are relative: an absolute one would escape the tests above."""
    for place, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            named += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not [name for name in named if name.partition(".")[0] == "hyjax"], place


PAPERS = {path.stem: path for path in (ROOT.parent / "examples" / "papers").glob("*.py")}


def test_the_library_imports_no_script():
    for place, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            named += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not {name.partition(".")[0] for name in named} & {"examples", *PAPERS}, place


@pytest.mark.parametrize("name", PAPERS)
def test_scripts_are_of_public_names(name):
    """What a script of a paper does a user can do: no module of hyjax that it imports is private, nor the command line's."""
    text = PAPERS[name].read_text()
    assert len(text.splitlines()) <= 600
    for node in ast.walk(ast.parse(text)):
        named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        named += [f"{node.module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        named += [ast.unparse(node)] if isinstance(node, ast.Attribute) else []
        assert not [each for each in named if re.match(r"(hyjax|hj)\.(_(?!_version__)|cli)", each)], named


def test_paths_in_documents_exist():
    """Every file and folder of the repository that a document names in backticks."""
    root, pages = ROOT.parent, {}
    for page in (*root.glob("*.md"), *(root / "docs").rglob("*.md")):
        place = str(page.relative_to(root))
        pages[place] = re.findall(
            r"`(?:python )?((?:hyjax|docs|tests|examples|benchmarks|notebooks|\.ci)/[\w./]*)`", page.read_text()
        )
    assert all(pages[name] for name in ("CONTRIBUTING.md", "docs/walk.md"))
    assert not {f"{page}: {name}" for page, named in pages.items() for name in named if not (root / name).exists()}


def test_the_walk_and_the_table_of_folders_are_complete():
    walk = (ROOT.parent / "docs" / "walk.md").read_text()
    stations = re.findall(r"^### (\d+)\. [^`\n]*(`hyjax/[^\n]*)$", walk, re.MULTILINE)
    assert [int(number) for number, _ in stations] == list(range(1, len(stations) + 1)) and 10 <= len(stations) <= 12
    assert set(re.findall(r"^\| `hyjax/(\w+)/` \|", walk, re.MULTILINE)) == set(LAYERS)


def test_import_is_lean():
    """Pictures, contacts and models are attributes of the package, imported with matplotlib only when used."""
    ask = """
import sys, hyjax as hj
late = {"matplotlib", "scipy.optimize", "xarray", "typer", "rich", "diffrax", "hyjax.plot", "hyjax.contact", "hyjax.models"}
late |= {"mujoco", "hyjax.robots"}
print(*late & set(sys.modules))
print(hj.plot.orbit_figure.__module__, hj.contact.Contact.__module__, hj.models.simplest_walker.title)
print(hj.objectives.speed.__name__, hj.robots.Robot.__name__, *{"matplotlib", "typer", "rich", "mujoco"} & set(sys.modules))
"""
    asked = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, cwd=ROOT.parent)
    assert asked.stdout == "\nhyjax.plot.orbit_figure hyjax.contact.contact Simplest walker\nspeed Robot\n", (
        asked.stderr
    )
    for name in hyjax.__all__:
        assert getattr(hyjax, name) is not None and name in dir(hyjax)
    with pytest.raises(AttributeError, match="No hyjax attribute nothing"):
        hyjax.nothing  # noqa: B018  # pyright: ignore
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hyjax.models.nothing  # noqa: B018


LENGTHS = {place: len(path.read_text().splitlines()) for place, path in FILES.items()}


def test_files_are_small():
    assert not {place: length for place, length in LENGTHS.items() if length > 600}


def test_no_base_name_twice():
    """One name of a file stands for one thing."""
    names = [place[-1] for place in FILES if place[-1] != "__init__"]
    assert not {name for name in names if names.count(name) > 1}


def test_no_class_name_twice():
    """One name of a class stands for one thing, also beside the names of types; each model has its own `Params`."""
    names = []
    for place, path in FILES.items():
        tree = ast.parse(path.read_text())
        named = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        names += [(name.lstrip("_"), place) for name in named if (name, place[0]) != ("Params", "models")]
    types = [
        (target.id.lstrip("_"), place)
        for place, path in FILES.items()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and re.fullmatch(r"_?[A-Z][a-z]\w*", target.id)
    ]
    assert not [
        name for name, place in names if [each for each in (*names, *types) if each[0] == name] != [(name, place)]
    ]


# Short files that one other file imports; a list that only gets shorter.
SHORT: set[str] = set()


def test_no_short_file_with_one_user():
    """A file under 60 lines that one other file imports is a paragraph of that file; `__init__` names what users import."""
    users: dict[tuple[str, ...], set[tuple[str, ...]]] = {place: set() for place in FILES}
    for place in FILES:
        for each in imports(place, lazily=True):
            users[each].add(place)
    stub = (ROOT / "__init__.pyi").read_text()
    short = {
        "/".join(place)
        for place, length in LENGTHS.items()
        if length < 60 and place[-1] not in ("__init__", "__main__") and f"from .{'.'.join(place)} import" not in stub
        if len(users[place]) < 2 and not {each[-1] for each in users[place]} & {"__init__"}
    }
    assert short <= SHORT, short - SHORT


# The largest numbers of lines, a few more than there are: what is added to a folder replaces something, or is worth a larger
# number. (`_flow` and `_numerics` have what `noise`, `control` and `phase` had twice or four times.)
LINES = {
    "_system": 1930, "_numerics": 2336, "_results": 1608, "solvers": 930, "_flow": 6477, "_orbit": 5553, "noise": 1432,
    "control": 3015, "phase": 1387, "_continuation": 6173, "_sweep": 3928, "_optimize": 5120, "_fit": 2709,
    "study": 1058, "contact": 2107,
    "robots": 1606, "models": 5698, "plot": 4063, "cli": 3368, "certify": 7408,
}  # fmt: skip


def test_budgets():
    assert set(LINES) == set(LAYERS)
    for layer, most in LINES.items():
        assert sum(length for place, length in LENGTHS.items() if place[0] == layer) <= most, layer
    nodes = [node for path in FILES.values() for node in ast.walk(ast.parse(path.read_text()))]
    # `_testing.py` lists what tests need: it is no part of the library.
    assert len(FILES) <= 287 and sum(LENGTHS.values()) - LENGTHS["_testing",] <= 67_949
    assert sum(isinstance(node, ast.ClassDef) for node in nodes) <= 331
    assert len(hyjax.__all__) <= 50


def test_files_that_the_code_names_exist():
    """A comment that sends its reader to a file, as `crossing.py`, names one of the project."""
    names = {
        path.name for folder in (ROOT, ROOT.parent / "tests", ROOT.parent / "tools") for path in folder.rglob("*.py")
    }
    for place, path in FILES.items():
        # Lower case only: other libraries' files have their addresses.
        assert not set(re.findall(r"`(?:[a-z_]+/)*([a-z_]+\.py)`", path.read_text())) - names, place


def test_tests_reach_private_modules_through_one_file():
    """What tests import is public, or stands in `hyjax/_testing.py`, of which no name is stale."""
    from hyjax import _testing

    used = set()
    for path in (ROOT.parent / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            named += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if "hyjax._testing" in named:
                used |= {alias.name for alias in node.names}
            assert not [each for each in named if re.match(r"hyjax\.(_(?!testing$)|(?!models)\w+\.)", each)], (
                path,
                named,
            )
    assert used == set(_testing._PLACES)
    for name in used:
        assert getattr(_testing, name) is not None, name
