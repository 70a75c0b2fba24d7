"""The code of the pages, executed before they are read: by two kernels, of which each takes the next page. The pages of a kernel
share its imports, and all pages the compiled programs of the cache.

What a page prints is kept in the cache of MyST-NB, whose folder is outside of the checkout and named by a digest of hyjax's
source: a page is executed again when its code or hyjax changes. MyST-NB itself would start a kernel for each page: as many times
the imports, and the programs of all pages before.
"""

import asyncio
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
from sphinx.util import logging

KERNELS = 2
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
    cache, waiting = get_cache(app.config.nb_execution_cache_path), []
    for path in sorted(path for path in map(pathlib.Path, map(env.doc2path, env.found_docs)) if path.suffix == ".md"):
        if is_myst_markdown_notebook(text := path.read_text()):
            notebook = read_myst_markdown_notebook(text, env.myst_config, path=path)
            try:
                cache.match_cache_notebook(notebook)
            except KeyError:
                waiting.append((path, notebook))
    asyncio.run(execute_all(waiting, cache, app))


async def execute_all(waiting: list[tuple], cache, app) -> None:
    """Every page that waits, by `KERNELS` kernels at a time."""
    with tempfile.TemporaryDirectory() as places:
        await asyncio.gather(
            *(work(waiting, cache, app, pathlib.Path(places)) for _ in range(min(KERNELS, len(waiting))))
        )


async def work(waiting: list[tuple], cache, app, places: pathlib.Path) -> None:
    """What one kernel does: the next page, until none waits."""
    manager, logger = AsyncKernelManager(kernel_name="python3"), logging.getLogger(__name__)
    await manager.start_kernel()
    try:
        while waiting:
            path, notebook = waiting.pop(0)
            start, place = time.perf_counter(), places / str(len(waiting))
            place.mkdir()
            clean = nbformat.v4.new_code_cell(CLEAN.format(folder=str(place)))
            await run(nbformat.v4.new_notebook(cells=[clean]), manager)
            try:
                await run(notebook, manager, app.config.nb_execution_timeout)
            except CellExecutionError as error:
                logger.warning("%s: the code of the page fails.\n%s", path, error)
                continue
            seconds = time.perf_counter() - start
            bundle = CacheBundleIn(notebook, str(path), data={"execution_seconds": seconds})
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
            logger.info("executed %s in %.1f s", path.relative_to(app.srcdir), seconds)
    finally:
        await manager.shutdown_kernel(now=True)


async def run(notebook, manager: AsyncKernelManager, timeout: int = 600) -> None:
    # Times in the metadata would be a part of the digest by which the cache finds a page.
    client = NotebookClient(notebook, km=manager, timeout=timeout, record_timing=False)
    try:
        await client.async_execute()
    finally:
        if client.kc is not None:
            client.kc.stop_channels()


def setup(app):
    app.connect("env-before-read-docs", execute)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
