"""The file list is the derivation: a file imports only from files above it."""

import ast
import pathlib

import hyjax

# fmt: off
ORDER = [
    "_types", "_result", "_system", "_integrator", "_trig", "_check", "_tie", "_linearize", "_instant",
    "_crossing", "_step", "_integrate", "_flow", "_jump", "_bouligand", "_report", "_arc", "_stride", "_newton",
    "_multipliers", "_shooting", "_multiple_shooting", "_closed", "_orbit", "_search", "_stored", "_figure", "plot",
    "plot_trajectory", "_automaton", "_dataset", "_trajectory", "_simulate", "plot_branch", "_curve", "_unfolding",
    "_touching", "_special", "_branch", "_continuation", "_switching", "_locus", "_grid", "_lanes", "_nearby", "_seeds",
    "_store", "_progress",
    "_along", "_provenance", "_sweep", "_attractor", "_basin", "plot_sweep", "contact", "models", "animate", "_reproduce",
    "_request", "_printed",
    "_cli_options", "_cli_grid", "_cli_sweep", "_cli_attractor", "_cli_basin", "_cli_continue", "cli",
    "__init__", "__main__",
]
# fmt: on
ROOT = pathlib.Path(hyjax.__file__).parent


def imported(path: pathlib.Path) -> set[str]:
    """The files of the package itself that a file of its top level imports, anywhere in it, but for types alone."""
    names, tree = set(), ast.parse(path.read_text())
    for_types = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    left_out = {id(child) for node in for_types for child in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    return names


def test_every_file_has_its_place():
    here = {path.stem for path in ROOT.glob("*.py")} | {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert here == set(ORDER)


def test_imports_point_upwards():
    for place, name in enumerate(ORDER):
        path = ROOT / f"{name}.py"
        if path.exists():
            assert imported(path) <= set(ORDER[:place]), name


def test_models_import_only_what_stands_above_them():
    above = set(ORDER[: ORDER.index("models")])
    for path in (ROOT / "models").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 2:
                assert node.module in above, path.name


def test_files_are_small():
    for path in ROOT.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 360, path.name
