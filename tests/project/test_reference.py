"""The reference: what the docstring of every public name holds, where its equation is derived, and the pages made of it."""

import ast
import importlib
import pathlib
import re
import sys

import pytest

import hyjax as hj

ROOT = pathlib.Path(hj.__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))
from public_names import LAYERS, MODULES, PACKAGE, public_names  # noqa: E402
from theory_labels import _LABELS, label, WITHOUT_EQUATION  # noqa: E402

# Fields that a result keeps for its methods.
OF_THE_COMPUTATION = {
    "hyjax.Branch": {"unfolding", "curves", "accept", "method"},
    "hyjax.OptimizedOrbit": {"program"},
    "hyjax.PeriodicOrbit": {"system", "integrator"},
    "hyjax.control.StrideFeedback": {"free"},
    "hyjax.Trajectory": {"params", "integrator"},
}
NAMES = {each.path: each for each in public_names()}


def test_the_list_is_that_of_the_package():
    """Read from the source, it has what an import finds."""
    top = {name for name in hj.__all__ if name not in {*MODULES, "models"}}
    assert top == {each.name for each in NAMES.values() if each.module == "hyjax" and not each.given_by}
    assert {each.layer for each in NAMES.values()} == {*LAYERS, "models"}
    for each in NAMES.values():
        here = hj if each.module == "hyjax" else getattr(hj, each.module.removeprefix("hyjax."))
        if each.given_by:
            here = importlib.import_module(".".join(each.file.relative_to(PACKAGE.parent).with_suffix("").parts))
        found = getattr(here, each.name)
        assert ast.get_docstring(each.node, clean=False) == found.__doc__, each.path


@pytest.mark.parametrize("path", NAMES)
def test_docstring(path):
    """A first line that ends; what is given and what comes back, each with what it is; how it fails; an example."""
    each, text = NAMES[path], NAMES[path].docstring
    first = text.partition("\n")[0]
    assert first and first[0] in first[0].upper() + "$" and len(text.split("\n\n")[0].splitlines()) <= 3, first
    assert "**Example:**\n\n>>> " in text, "an example"
    if each.kind == "function":
        node = each.node
        if node.args.args or node.args.kwonlyargs:
            assert "**Arguments:**" in text or "**Arguments** " in text, "arguments"
        assert "**Returns:**" in text or ast.unparse(node.returns or node) == "None", "what is returned"
        assert re.search(r"[Ee]rror|`result`|NaN|[Ff]ail|as for|infinite", text), "how it fails"
    if each.kind == "class" and each.name != "RESULTS":
        assert "**Arguments:**" in text or "**Attributes:**" in text or "**Methods:**" in text, "its fields"


@pytest.mark.parametrize("path", [path for path, each in NAMES.items() if each.kind != "exception"])
def test_every_argument_and_field_is_in_the_docstring(path):
    """By its name in backticks, or in the docstring that is referred to by `as for`."""
    each = NAMES[path]
    if isinstance(each.node, ast.FunctionDef):
        given = [a.arg for a in (*each.node.args.args, *each.node.args.kwonlyargs)]
    else:
        given = [
            node.target.id
            for node in each.node.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_"
            if not ast.unparse(node.annotation).startswith("ClassVar")
        ]
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", each.docstring))))
    missing = [name for name in given if name not in words | OF_THE_COMPUTATION.get(path, set())]
    assert not missing or re.search(r"\bas (for|in|those|of)\b|: as\b|see ", each.docstring), missing


def test_methods_and_properties_have_docstrings():
    for each in NAMES.values():
        # The methods of solvers are those that diffrax documents.
        if isinstance(each.node, ast.ClassDef) and each.layer not in ("solvers",):
            for node in each.node.body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    inherited = each.node.bases and ast.unparse(each.node.bases[0]) not in ("eqx.Module", "NamedTuple")
                    assert ast.get_docstring(node) or inherited, f"{each.path}.{node.name}"


def test_every_public_name_has_a_section_of_the_theory():
    assert set(_LABELS) | WITHOUT_EQUATION == set(NAMES)
    assert not set(_LABELS) & WITHOUT_EQUATION
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "theory").glob("*.md"))
    labels = set(re.findall(r"^\((theory-[\w-]+)\)=$", pages, re.MULTILINE))
    assert {label(each) for each in NAMES.values()} - {None} <= labels


def test_the_theory_links_back():
    """The section to which the entry of a public name links has a link to this entry."""
    linked: dict[str, set[str]] = {}
    for page in (ROOT / "docs" / "theory").glob("*.md"):
        _, *parts = re.split(r"^\((theory-[\w-]+)\)=$", page.read_text(), flags=re.MULTILINE)
        for name, section in zip(parts[::2], parts[1::2], strict=True):
            linked[name] = set(re.findall(r"\{py:\w+\}`([\w.]+)`", section))
    missing = {
        path: section for path, each in NAMES.items() if (section := label(each)) and path not in linked[section]
    }
    assert not missing


def test_pages():
    """Each name has one entry with its example, on the page of its layer; the page of models has every model."""
    import reference_pages as reference

    labels = reference.known_labels(ROOT / "docs")
    for layer in LAYERS:
        text = reference.page(layer, labels)
        names = [each for each in NAMES.values() if each.layer == layer]
        assert len(re.findall(r"^`````\{py:\w+\} ", text, re.MULTILINE)) == len(names) > 0
        assert text.count("```pycon") >= len(names) and text.count("{download}`hyjax/") == len(names)
        assert not re.search(r"^>>> ", re.sub(r"```pycon.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    shelf = reference.models_page(labels)
    assert all(f"\n## {name}\n" in shelf for name in hj.models.names) and shelf.count("\n| name | default |") >= 25
    index = (ROOT / "docs" / "reference" / "index.md").read_text()
    assert all(f"\n{layer.strip('_')}\n" in index for layer in (*LAYERS, "models"))
    assert str(PACKAGE) not in shelf
