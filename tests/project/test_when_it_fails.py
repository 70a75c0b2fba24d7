"""The pages of the result codes: there is one for each code, and its example ends with the code as the page shows it."""

import contextlib
import io
import re

import pytest
from readme import ROOT

import hyjax as hj

PAGES = {path.stem: path.read_text() for path in sorted((ROOT / "docs" / "when_it_fails").glob("*.md"))}
EXAMPLES = {
    name: re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    for name, text in PAGES.items()
    if "```python" in text
}


def test_every_code_has_a_page():
    codes = set(hj.RESULTS._name_to_item)
    assert set(PAGES) == codes | {"index"}
    for code in codes:
        assert PAGES[code].startswith(f"(code-{code})=\n# `{code}`\n")
        assert "## What to do" in PAGES[code]
        # In a table, and in the tree of contents.
        assert f"[`{code}`](#code-{code})" in PAGES["index"] and f"\n{code}\n" in PAGES["index"]


@pytest.mark.medium
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    """What it prints is what the page shows, to the digits shown."""
    ((code, shown),) = EXAMPLES[name]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, f"{name}.md", "exec"), {"__name__": "__main__"})
    assert printed.getvalue() == shown
    if name != "index":
        assert re.search(rf"\b{name}\b", shown)
