"""`docs/_ext/executed.py`, which executes the code of the site's pages in two kernels and keeps what it prints."""

from types import SimpleNamespace

import pytest
from readme import ROOT

pytest.importorskip("myst_nb")
from jupyter_cache import get_cache
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig

PAGE = """---
file_format: mystnb
kernelspec:
  name: python3
---
# A page

```{{code-cell}} ipython3
import os, pathlib, jax
print("left" in globals(), jax.config.jax_enable_x64, list(pathlib.Path().iterdir()), os.getpid())
left = pathlib.Path("file").write_text("")
jax.config.update("jax_enable_x64", True)
{more}
```
"""


@pytest.mark.medium
@pytest.mark.parametrize("kernels", [1, 2])
def test_pages_share_a_process_and_nothing_else(tmp_path, monkeypatch, kernels):
    """Neither names, files nor settings; a page whose code fails is a warning, and is not kept."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    monkeypatch.delenv("JAX_ENABLE_X64", raising=False)
    import executed

    monkeypatch.setattr(executed, "KERNELS", kernels)
    said = []
    log = SimpleNamespace(warning=lambda *words: said.append(words), info=lambda *words: None)
    monkeypatch.setattr(executed.logging, "getLogger", lambda name: log)
    pages = {name: tmp_path / f"{name}.md" for name in ("a", "b", "fails", "prose")}
    for name, path in pages.items():
        path.write_text("# No code\n" if name == "prose" else PAGE.format(more="raise OSError" * (name == "fails")))
    store = tmp_path / "store"
    config = SimpleNamespace(nb_execution_mode="cache", nb_execution_cache_path=str(store), nb_execution_timeout=300)
    env = SimpleNamespace(found_docs=list(pages), doc2path=lambda name: str(pages[name]), myst_config=MdParserConfig())
    pages["b"].write_text(pages["b"].read_text() + "\nAnd a text.\n\n```{code-cell} ipython3\nprint(2)\n```\n")
    executed.execute(SimpleNamespace(srcdir=str(tmp_path), config=config), env, [])
    assert len(said) == 1 and said[0][1] == pages["fails"] and "OSError" in str(said[0][2])
    printed = {}
    for name in ("a", "b"):
        notebook = read_myst_markdown_notebook(pages[name].read_text(), MdParserConfig(), path=pages[name])
        _, found = get_cache(store).merge_match_into_notebook(notebook)
        printed[name] = found.cells[1].outputs[0]["text"].split()
    assert printed["a"][:3] == printed["b"][:3] == ["False", "False", "[]"]
    assert (printed["a"][3] == printed["b"][3]) is (kernels == 1)
    notebook = read_myst_markdown_notebook(pages["fails"].read_text(), MdParserConfig(), path=pages["fails"])
    with pytest.raises(KeyError):
        get_cache(store).match_cache_notebook(notebook)
