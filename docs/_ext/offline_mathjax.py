"""MathJax as a file of the site, so that equations are drawn without a network.

The package `sphinx-mathjax-offline` contains MathJax 3; of its files the site takes what it uses, 1.5 of 24 MB.
"""

import importlib.util
import pathlib
import shutil

FILES = ("tex-chtml.js", "input/tex/extensions", "output/chtml/fonts/woff-v2")


def copy(app, exception):
    if exception is not None or app.builder.format != "html":
        return
    spec = importlib.util.find_spec("sphinx-mathjax-offline")
    assert spec is not None and spec.origin is not None
    source, target = pathlib.Path(spec.origin).parent / "static" / "mathjax", app.outdir / "_static" / "mathjax"
    for name in FILES:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
        else:
            shutil.copy(source / name, target / name)


def setup(app):
    app.config.mathjax_path = "mathjax/tex-chtml.js"
    app.config.mathjax3_config = {}
    app.connect("build-finished", copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
