"""Every notebook installs hyjax where it is missing, was executed from its first cell to its last, and has an exercise."""

import json
import pathlib
import re

import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
INSTALL = """if importlib.util.find_spec("hyjax") is None:\n    %pip install"""


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 16


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_complete(path):
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    text = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert INSTALL in "".join(code[0]["source"])
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not [each for cell in code for each in cell["outputs"] if each["output_type"] == "error"]
    # A sketch of the mechanism, before anything is computed.
    assert any("image/png" in each.get("data", {}) for cell in code[1:3] for each in cell["outputs"])
    hidden = re.findall(r"<details>\n<summary>Solution</summary>\n\n.*?</details>", "\n".join(text), re.DOTALL)
    assert hidden and all("```python\n" in each for each in hidden)
    for solution in hidden:
        for block in re.findall(r"```python\n(.*?)```", solution, re.DOTALL):
            compile(block, path.name, "exec")
