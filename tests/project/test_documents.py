"""The pages of `docs/`: the commands that they name exist, and so do names and arguments in code that the build does not run."""

import ast
import inspect
import json
import re
import shlex
import tomllib

import pytest
from mutate import mutations
from readme import ROOT

import hyjax as hj
from hyjax._testing import application

PAGES = sorted((ROOT / "docs").rglob("*.md"))
IDS = [str(page.relative_to(ROOT / "docs")) for page in PAGES]


def commands(text: str) -> list[list[str]]:
    """The words of every command line of hyjax: in a block of its own, or as code within a line."""
    blocks = re.findall(r"```(?:sh|bash|console)\n(.*?)```", text, re.DOTALL)
    spans = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    lines = [part for block in blocks for line in block.replace("\\\n", " ").splitlines() for part in line.split("&&")]
    # Also behind another command, such as `taskset -c 0-7`.
    found = [
        re.fullmatch(r"(?:taskset \S+ \S+ )?(?:\S*/)?hyjax (.*)", re.sub(r"\s+", " ", each.strip()))
        for each in (*lines, *spans)
    ]
    return [shlex.split(each[1], comments=True) for each in found if each is not None]


def options(command) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands(page):
    """Each command exists, with the options that the page gives it."""
    for words in commands(page.read_text()):
        command, rest = application(), words
        while rest and not rest[0].startswith("-") and hasattr(command, "commands"):
            assert rest[0] in command.commands, f"hyjax {' '.join(words)}"  # pyright: ignore[reportAttributeAccessIssue]
            command, rest = command.commands[rest[0]], rest[1:]  # pyright: ignore[reportAttributeAccessIssue]
        given = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert given <= options(command) | {"--help"}, f"hyjax {' '.join(words)}"


def test_extras():
    """What the pages tell to install with pip are extras of the project."""
    text = "".join(page.read_text() for page in (*PAGES, ROOT / "README.md"))
    extras = re.findall(r"pip install [^`\n]*'(?:hyjax-dynamics|\.)\[([\w,]+)\]'", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert len(extras) > 5 and {name for each in extras for name in each.split(",")} <= set(known)


def test_what_is_said_of_dask():
    """Options of its workers, the commands and the setting that the page of clusters names."""
    page = (ROOT / "docs" / "cluster.md").read_text()
    worker = pytest.importorskip("distributed.cli.dask_worker").main
    (arguments,) = re.findall(r"worker_extra_args=\[(.*)\]", page)
    given = re.findall(r'"(--[\w-]+)"', arguments)
    assert len(given) == 2 and set(given) <= options(worker)
    from dask import config
    from distributed import LocalCluster

    (setting,) = re.findall(r"`dask config set (\S+)", page)
    assert config.get(setting) is not None
    for block in re.findall(r"LocalCluster\((.*)\) as", page):
        (call,) = (node for node in ast.walk(ast.parse(f"f({block})")) if isinstance(node, ast.Call))
        assert {each.arg for each in call.keywords} <= set(inspect.signature(LocalCluster).parameters)


def named(node: ast.AST):
    """The object that `hj.a.b` names, or None for another expression."""
    path = []
    while isinstance(node, ast.Attribute):
        path.append(node.attr)
        node = node.value
    if not (isinstance(node, ast.Name) and node.id == "hj" and path):
        return None
    found = hj
    for name in reversed(path):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_code_that_is_shown_only(page):
    """It parses; every name of hyjax in it exists, and takes the arguments that the code gives by name."""
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute):
                named(node)
            if isinstance(node, ast.Call) and (function := named(node.func)) is not None:
                parameters = inspect.signature(function).parameters
                accepts_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
                assert accepts_any or {each.arg for each in node.keywords} - {None} <= set(parameters), ast.unparse(
                    node
                )


def test_that_there_is_what_is_tested():
    text = "".join(page.read_text() for page in PAGES)
    assert len(commands(text)) > 5 and len(re.findall(r"^```python\n", text, re.MULTILINE)) > 1


def test_the_listed_mutations_apply():
    """Each old text of `tools/mutations.toml` occurs once in its file."""
    assert len(mutations()) > 100


def test_no_two_pages_have_one_title():
    """By which a search shows them; those of the reference are made at the build."""
    texts = [page.read_text() for page in PAGES if page.parent.name != "reference" or page.name == "index.md"]
    notebooks = [json.loads(path.read_text())["cells"] for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    texts += [
        "".join("".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "markdown")
        for cells in notebooks
    ]
    found = [re.search(r"^# (.+)$", text, re.MULTILINE) for text in texts]
    titles = [each[1] for each in found if each is not None]
    assert len(titles) > 100 and not {each for each in titles if titles.count(each) > 1}
    assert not [each for each in titles if each.startswith("Functions: ")]
