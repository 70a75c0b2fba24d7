"""Float64, strict promotion, a compilation cache on disk, shapes checked, and orbits that several files use."""

import gc
import importlib.metadata
import os
import pathlib
import sys
from contextlib import nullcontext
from types import SimpleNamespace

# Kernels by XLA's older emitters where there are two, without LLVM's optimization: the same arithmetic, and three to four times
# less to compile, which is what tests do most. In one piece for each program: the workers of pytest use all cores already.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "")
if importlib.metadata.version("jaxlib") < "0.11":
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import config, install_import_hook
from reference import case

# Outside the checkout: another copy of the project, or the check of a change, finds the programs there.
_CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "hyjax" / "checks" / "jax"

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR", str(_CACHE)))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

# Shapes and types of all but the command line, whose annotations typer replaces, and the models, which tests call with plain
# numbers. The hook stays after the statement, because a part of hyjax is imported when it is first used. Checks are a tenth of
# the time of tests: they are made with HYJAX_TEST_TYPES=1, as `.ci/run` does for the examples of all public names.
_CHECKED = (
    "_system", "_numerics", "_results", "solvers", "_flow", "_orbit", "noise", "control", "phase", "_continuation",
    "_sweep", "_optimize", "_fit", "study", "contact", "robots", "plot",
)  # fmt: skip
checked = os.environ.get("HYJAX_TEST_TYPES") == "1"
with nullcontext(install_import_hook([f"hyjax.{layer}" for layer in _CHECKED if checked], "beartype.beartype")):
    import hyjax as hj
    from hyjax import contact as contact, plot as plot
    from hyjax.models import compass_gait, rimless_wheel, simplest_walker

# What JAX has traced is millions of objects that live on: a collector of garbage that walks them all again and again takes an
# eighth of the time of tracing.
gc.freeze()
gc.set_threshold(50_000, 20, 20)


# Every program that XLA has compiled stays in memory: when a process has grown by so much, they are forgotten.
_GROWTH = float(os.environ.get("HYJAX_TEST_GROWTH", "3")) * 2**30
_size = {"last": 0.0}


@pytest.fixture(autouse=True)
def _bounded_memory():
    yield
    statistics = pathlib.Path("/proc/self/statm")
    if not statistics.exists():
        return
    size = lambda: int(statistics.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if size() > _size["last"] + _GROWTH:
        jax.clear_caches()
        # What is not given back to the system is no reason to forget again.
        _size["last"] = size()


def _orbit(model, guess, params):
    return hj.periodic_orbit(model.step, guess, params)


@pytest.fixture(scope="session")
def walker():
    """The four gaits of the reference: long and short, at slopes 0.004 and 0.009. All share one compiled program."""
    names = ("long_0.004", "short_0.004", "long_0.009", "short_0.009")
    records = {name: case("B_simplest_walker", name) for name in names}
    # Two decimals do not tell the gaits at 0.004 apart: three do.
    guess = lambda record: jnp.asarray(np.round(record["x0"], 3))
    return {
        name: _orbit(simplest_walker, guess(record), simplest_walker.Params(record["gamma"]))
        for name, record in records.items()
    }


@pytest.fixture(scope="session")
def wheel():
    params = rimless_wheel.Params()
    return _orbit(rimless_wheel, rimless_wheel.guess(params), params)


@pytest.fixture(scope="session")
def compass():
    record = case("C_compass_gait")
    params = compass_gait.Params(slope=np.deg2rad(record["slope_deg"]))
    return _orbit(compass_gait, compass_gait.guess(params), params)


@pytest.fixture
def unchecked():
    """As users have it: without the type checker, which would speak first."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture
def in_process(monkeypatch, capsys, tmp_path):
    """Run a program in this process, in an empty directory: its exit status, what it printed, and the figures it wrote."""
    monkeypatch.setenv("HYJAX_CACHE_DIR", str(jax.config.jax_compilation_cache_dir))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    import matplotlib.figure

    figures, save = {}, matplotlib.figure.Figure.savefig

    def recorded(figure, path, **options):
        figures[str(path)] = figure
        save(figure, path, **options)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", recorded)

    def run(program) -> SimpleNamespace:
        status = 0
        try:
            program()
        except SystemExit as ended:
            status = ended.code
        printed = capsys.readouterr()
        return SimpleNamespace(returncode=status, stdout=printed.out, stderr=printed.err, figures=figures)

    yield run
    import matplotlib.pyplot

    matplotlib.pyplot.close("all")


@pytest.fixture
def command(monkeypatch, in_process):
    """Run `hyjax ...` in this process. A process of its own is started in `test_command_line`, by which the two are held to be
    the same."""
    from hyjax._testing import run

    def run_command(*arguments: str) -> SimpleNamespace:
        monkeypatch.setattr(sys, "argv", ["hyjax", *arguments])
        return in_process(run)

    return run_command


@pytest.fixture
def script(in_process):
    """Run a script of `examples/papers` in this process, by its name. A process of its own is started in `test_papers`."""
    return lambda name, *arguments: in_process(lambda: importlib.import_module(name).main(list(arguments)))
