"""The notebooks of `notebooks/` as pages in `docs/notebooks/`, where Sphinx looks for them; git ignores the copies.

Links to pages of `docs/` are written for a reader of the repository, and are changed here to what they are on the site.
"""

import json
import pathlib
import re


def on_the_site(cell: dict) -> dict:
    if cell["cell_type"] != "markdown":
        return cell
    return cell | {"source": [re.sub(r"\]\(\.\./docs/", "](../", line) for line in cell["source"]]}


def copy(app, config):
    target = pathlib.Path(app.srcdir) / "notebooks"
    sources = sorted((pathlib.Path(app.srcdir).parent / "notebooks").glob("*.ipynb"))
    for stale in {path.name for path in target.glob("*.ipynb")} - {path.name for path in sources}:
        (target / stale).unlink()
    for source in sources:
        notebook = json.loads(source.read_text())
        notebook["cells"] = [on_the_site(cell) for cell in notebook["cells"]]
        text, page = json.dumps(notebook), target / source.name
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def setup(app):
    app.connect("config-inited", copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
