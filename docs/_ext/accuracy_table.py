"""The tolerances of the tests that compare numbers, as a table for the page of accuracy; git ignores it.

The tests are read, not run: each call of `assert_allclose` with its tolerances, in the order of the files.
"""

import ast
import pathlib
import re


def tolerances(test: ast.FunctionDef) -> list[str]:
    found = []
    for call in ast.walk(test):
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("assert_allclose"):
            limits = {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg in ("rtol", "atol")}
            close = [ast.unparse(word.value) for word in call.keywords if word.arg is None]
            named = [shown(name, value) for name, value in limits.items() if value not in ("0", "0.0")]
            found.append(", ".join(named) or (close and f"see `{close[0]}` there") or "rtol 1e-07")
    return list(dict.fromkeys(found))


def shown(name: str, value: str) -> str:
    """A tolerance as in the code; of a variable its name, and of an entry of the table of errors above that entry."""
    claim = re.fullmatch(r"claimed\((['\"])(.*)\1\)", value)
    if claim is not None:
        return f"{name} claimed above: {claim[2]}"
    return f"{name}: see `{value}` there" if value.isidentifier() else f"{name} {value}"


def rows(path: pathlib.Path) -> list[str]:
    lines = []
    for test in ast.parse(path.read_text()).body:
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_") and tolerances(test):
            said = " ".join((ast.get_docstring(test) or "").split("\n\n")[0].split()).replace("|", r"\|")
            limits = "; ".join(tolerances(test)).replace("|", r"\|")
            lines.append(f"| `{test.name}` | {said} | {limits} |")
    return lines


def write(app, config):
    text = []
    for path in sorted((pathlib.Path(app.srcdir).parent / "tests").rglob("test_*.py")):
        if lines := rows(path):
            said = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())
            text += [f"### `{path.stem}`", "", said, "", "| test | what | tolerances |", "|---|---|---|", *lines, ""]
    target = pathlib.Path(app.srcdir) / "accuracy_table.txt"
    new = "\n".join(text)
    if not target.exists() or target.read_text() != new:
        target.write_text(new)


def setup(app):
    app.connect("config-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
