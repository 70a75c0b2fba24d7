"""The documentation site: `sphinx-build -W -j 2 docs build/site`; no network is needed.

The pages with code are executed at the build, and what they print is kept in the user's cache until their code or that of hyjax
changes. The notebooks of `notebooks/` are shown as committed; with `-t notebooks` they are executed too.
"""

import hashlib
import importlib.metadata
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "_ext"))
_CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "hyjax" / "checks"

# As in the tests, with which the pages share compiled programs: kernels that compile three to four times faster.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "")
if importlib.metadata.version("jaxlib") < "0.11":
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE / "jax"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
os.environ["JAX_PLATFORMS"] = "cpu"

project = "hyjax"
author = "The hyjax developers"
copyright = "The hyjax developers, Apache-2.0"

extensions = [
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "notebooks",
    "executed",
    "offline_mathjax",
    "reference_pages",
    "benchmark_pages",
    "accuracy_table",
    "gallery",
]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
nitpicky = True
python_maximum_signature_line_length = 100
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["amsmath", "attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3

nb_execution_mode = "cache"
_source = b"".join(path.read_bytes() for path in sorted((ROOT / "hyjax").rglob("*.py")))
nb_execution_cache_path = str(_CACHE / "site" / hashlib.sha256(_source).hexdigest()[:12])
nb_execution_excludepatterns = [] if tags.has("notebooks") else ["notebooks/*"]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
nb_execution_in_temp = True
nb_execution_show_tb = True  # of a cell that fails, which is a warning of Sphinx, and so an error with -W
nb_execution_timeout = 600
nb_merge_streams = True

# Each inventory is a list of those objects of a project that the pages name: the build asks no server for the whole list.
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", "inventories/python.txt"),
    "numpy": ("https://numpy.org/doc/stable", "inventories/numpy.txt"),
    "jax": ("https://docs.jax.dev/en/latest", "inventories/jax.txt"),
    "equinox": ("https://docs.kidger.site/equinox", "inventories/equinox.txt"),
    "diffrax": ("https://docs.kidger.site/diffrax", "inventories/diffrax.txt"),
    "optimistix": ("https://docs.kidger.site/optimistix", "inventories/optimistix.txt"),
    "xarray": ("https://docs.xarray.dev/en/stable", "inventories/xarray.txt"),
}

html_theme = "sphinx_book_theme"
html_title = "hyjax"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "hyjax"},
    "home_page_in_toc": False,
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "use_sidenotes": False,
}
copybutton_exclude = ".linenos, .gp, .go"
