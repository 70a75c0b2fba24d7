"""Ctrl-C: a command ends at once, says what was kept, and can be resumed."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import zarr

import hyjax
from hyjax._testing import is_command


def start(*command):
    cache = str(jax.config.jax_compilation_cache_dir)
    environment = os.environ | {"HYJAX_CACHE_DIR": cache, "MPLBACKEND": "agg"}
    return subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


ENDLESS = """
from hyjax.cli.process import end_on_interrupt, keep_in_mind
end_on_interrupt()
import jax
endless = jax.jit(lambda: jax.lax.while_loop(lambda k: k >= 0, lambda k: (k + 1) % 7, 0))
{kept}
print("ready", flush=True)
endless().block_until_ready()
"""


@pytest.mark.parametrize(
    ("kept", "message"), [("", "Nothing was kept."), ("keep_in_mind('Half of it.')", "Half of it.")]
)
def test_in_the_middle_of_a_computation(kept, message):
    """XLA computes for ever, and Python's own handler would never run."""
    process = start("-c", ENDLESS.format(kept=kept))
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == f"hyjax: interrupted. {message}"


@pytest.mark.medium
@pytest.mark.parametrize(
    "command", [("-m", "hyjax", "models"), (str(pathlib.Path(sys.executable).with_name("hyjax")), "models")]
)
def test_during_the_imports(tmp_path, command):
    """Of the packages that hyjax imports: one that says so, and takes for ever."""
    if not command[0].startswith("-") and not pathlib.Path(command[0]).exists():
        pytest.skip("the command is not installed")
    (tmp_path / "equinox.py").write_text("print('importing', flush=True)\nimport time\ntime.sleep(600)\n")
    paths = [str(tmp_path), str(pathlib.Path(hyjax.__file__).parent.parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None and process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors.strip() == "hyjax: interrupted. Nothing was kept."


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["python", "-m", "hyjax", "gait"], True),
        (["python", "-X", "dev", "/usr/bin/hyjax", "gait"], False),
        (["python", "-u", "/usr/bin/hyjax", "gait"], True),
        (["python", "-m", "pytest", "hyjax"], False),
        (["python", "-c", "import hyjax"], False),
        (["python", "script.py", "hyjax"], False),
        (["python"], False),
    ],
)
def test_other_processes_keep_their_interrupts(arguments, expected):
    assert is_command(arguments) is expected


@pytest.mark.slow
def test_a_sweep_says_how_to_resume_it(tmp_path):
    """With what it has computed in its store."""
    store = tmp_path / "sweep.zarr"
    command = (
        "-m",
        "hyjax",
        "sweep",
        "rimless_wheel",
        "--where",
        "slope=0.2:0.3:4000",
        "--chunk",
        "8",
        "--out",
        str(store),
    )
    process = start(*command)
    # The result codes of a chunk are written last.
    while process.poll() is None and not any((store / "result").glob("c/*")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert str(store) in errors and "--resume" in errors and "Traceback" not in errors
    kept = zarr.open_group(store, mode="r")
    done = np.asarray(kept["result"]) == 0
    assert 8 <= done.sum() < 4000 and np.all(np.isfinite(np.asarray(kept["period"])[done]))
