"""The code of the pages, executed before they are read: by one kernel, whose imports and compiled programs all pages share.

What a page prints is kept in the cache of MyST-NB, whose folder is outside of the checkout and named by a digest of hyjax's
source: a page is executed again when its code or hyjax changes. MyST-NB itself would start a kernel for each page: as many times
the imports, and the programs of all pages before.
"""

import pathlib
import tempfile
import time

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_client.manager import AsyncKernelManager
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbclient.util import run_sync
from sphinx.util import logging

# Between two pages: the folder, and what the page before left behind of names, of JAX's configuration and of figures. A process
# has 65 530 memory maps, of which each compiled program takes some.
CLEAN = """
%reset -f
import os, pathlib, sys
os.chdir({folder!r})
if "jax" in sys.modules:
    sys.modules["jax"].config.update("jax_enable_x64", False)
    if len(pathlib.Path("/proc/self/maps").read_text().splitlines()) > 30_000:
        sys.modules["jax"].clear_caches()
if "matplotlib.pyplot" in sys.modules:
    sys.modules["matplotlib.pyplot"].close("all")
%reset -f
__spec__ = None
"""


def execute(app, env, docnames):
    if app.config.nb_execution_mode != "cache":
        return
    folder, cache = pathlib.Path(app.srcdir), get_cache(app.config.nb_execution_cache_path)
    waiting = {}
    for path in sorted(path for path in map(pathlib.Path, map(env.doc2path, env.found_docs)) if path.suffix == ".md"):
        if is_myst_markdown_notebook(text := path.read_text()):
            notebook = read_myst_markdown_notebook(text, env.myst_config, path=path)
            try:
                cache.match_cache_notebook(notebook)
            except KeyError:
                waiting[path] = notebook
    if not waiting:
        return
    manager, logger = AsyncKernelManager(kernel_name="python3"), logging.getLogger(__name__)
    run_sync(manager.start_kernel)()
    try:
        with tempfile.TemporaryDirectory() as places:
            for number, (path, notebook) in enumerate(waiting.items()):
                start, place = time.perf_counter(), pathlib.Path(places, str(number))
                place.mkdir()
                run(
                    nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CLEAN.format(folder=str(place)))]),
                    manager,
                )
                try:
                    run(notebook, manager, app.config.nb_execution_timeout)
                except CellExecutionError as error:
                    logger.warning("%s: the code of the page fails.\n%s", path, error)
                    continue
                seconds = time.perf_counter() - start
                bundle = CacheBundleIn(notebook, str(path), data={"execution_seconds": seconds})
                cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
                logger.info("executed %s in %.1f s", path.relative_to(folder), seconds)
    finally:
        run_sync(manager.shutdown_kernel)(now=True)


def run(notebook, manager: AsyncKernelManager, timeout: int = 600) -> None:
    # Times in the metadata would be a part of the digest by which the cache finds a page.
    client = NotebookClient(notebook, km=manager, timeout=timeout, record_timing=False)
    try:
        client.execute()
    finally:
        if client.kc is not None:
            client.kc.stop_channels()


def setup(app):
    app.connect("env-before-read-docs", execute)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
