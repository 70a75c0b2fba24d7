"""The rooms of the project: the folders of `hyjax/`, each with a folder of tests of the same name; what a room imports; and which
rooms have changed since `tools/full_check` last ran their tests, by digests of their files.
"""

import ast
import functools as ft
import hashlib
import json
import pathlib

ROOT = pathlib.Path(__file__).parent.parent
# Written by `tools/full_check`: of each step date, versions, seconds, closing line, digests of files; seconds of tests.
RECORD = ROOT / "tools" / "full_check.json"
PACKAGE, TESTS = ROOT / "hyjax", ROOT / "tests"
FILES = {path.relative_to(PACKAGE).with_suffix("").parts: path for path in PACKAGE.rglob("*.py")}
# The tests of the project are of everything that it has.
PROJECT = ("README.md", "docs", "examples")
# Folders whose pages the build of the site writes, all but `index.md`.
WRITTEN = [ROOT / "docs" / name for name in ("reference", "gallery", "benchmarks")]


def imports(place: tuple[str, ...], lazily: bool) -> set[tuple[str, ...]]:
    """What a file imports from the package, as places; for types alone does not count. `lazily`: also inside functions."""
    package, found = place[:-1], set()

    def visit(node, inside):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.ImportFrom) and node.level and (lazily or not inside):
            base = package[: len(package) - node.level + 1] + tuple(
                (node.module or "").split(".") if node.module else ()
            )
            for alias in node.names:
                whole = (*base, alias.name)
                found.update({whole} if whole in FILES or (*whole, "__init__") in FILES else {base})
        for child in ast.iter_child_nodes(node):
            visit(child, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    visit(ast.parse(FILES[place].read_text()), False)
    return {each if each in FILES else (*each, "__init__") for each in found}


@ft.cache
def _imported() -> dict[str, set[str]]:
    """For each room the rooms that its files import."""
    found: dict[str, set[str]] = {place[0]: set() for place in FILES if len(place) > 1}
    for place in FILES:
        if len(place) > 1:
            found[place[0]] |= {each[0] for each in imports(place, lazily=True)} - {place[0], "__init__"}
    return found


def reached(room: str) -> set[str]:
    """The rooms that a room imports, directly or not."""
    found, new = set(), {room}
    while new:
        found |= new
        new = set().union(*(_imported().get(each, set()) for each in new)) - found
    return found - {room}


def folder_of_tests(room: str) -> str:
    """`_flow` has its tests in `tests/flow`."""
    return f"tests/{room.removeprefix('_')}"


def rooms() -> list[str]:
    """The rooms that have tests, and `project`."""
    return [room for room in sorted(_imported()) if (ROOT / folder_of_tests(room)).is_dir()] + ["project"]


def sources(folder: str) -> list[pathlib.Path]:
    """The files of a folder; of a folder of tests also those helpers beside it that its tests import."""
    path = ROOT / folder
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.suffix in (".py", ".md", ".json")]
    files = [each for each in files if not (each.parent in WRITTEN and each.stem != "index")]
    if folder.startswith("tests/"):
        helpers = {each.stem: each for each in TESTS.rglob("*.py") if not each.name.startswith("test_")}
        new = files
        while new := [helpers[name] for name in sorted(_modules(new) & set(helpers)) if helpers[name] not in files]:
            files = files + new
    return sorted(set(files))


def _modules(files: list[pathlib.Path]) -> set[str]:
    nodes = [node for file in files if file.suffix == ".py" for node in ast.walk(ast.parse(file.read_text()))]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def _digest(folder: str) -> str:
    whole = hashlib.sha256()
    for path in sources(folder):
        whole.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()


def digest(folders: list[str]) -> str:
    """Of the names and contents of the files of folders; a file counts as a folder of its own."""
    return hashlib.sha256("".join(map(_digest, folders)).encode()).hexdigest()[:16]


def own_folders(room: str) -> list[str]:
    """What a change must touch to change the room itself."""
    return [*PROJECT, folder_of_tests(room)] if room == "project" else [f"hyjax/{room}", folder_of_tests(room)]


def imported_folders(room: str) -> list[str]:
    """What the room imports, directly or not; the tests of the project use every room."""
    return [f"hyjax/{each}" for each in sorted(_imported() if room == "project" else reached(room))]


def record() -> dict:
    return json.loads(RECORD.read_text())


def step_of_tests(room: str) -> str:
    """The name in the record of the step that runs all tests of a room."""
    return f"tests of {room.removeprefix('_')}"


def changed() -> dict[str, bool]:
    """The rooms whose sources or tests, or sources that they import, differ from those of their step in the record: whether their
    own do."""
    steps, found = record()["steps"], {}
    for room in rooms():
        then = steps.get(step_of_tests(room), {})
        itself = then.get("own") != digest(own_folders(room))
        if itself or then.get("imported") != digest(imported_folders(room)):
            found[room] = itself
    return found
