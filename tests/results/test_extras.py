"""A package that only an extra installs: what needs it says what is missing, and how to get it."""

import subprocess
import sys
from inspect import unwrap  # the functions without the check of their arguments' types

import pytest

import hyjax as hj
from hyjax._testing import check_files, create, load_xarray, Misuse, needed, OptimumBranch, orbit_frame, packed, pyplot


@pytest.mark.parametrize(
    "package, call, message",
    [
        ("xarray", load_xarray, "Datasets need xarray: pip install 'hyjax-dynamics[data]'."),
        ("pandas", lambda: orbit_frame(None), "Tables need pandas: pip install 'hyjax-dynamics[data]'."),
        ("pandas", lambda: hj.Branch.to_pandas(None), "Tables need pandas: pip install 'hyjax-dynamics[data]'."),  # pyright: ignore
        ("pandas", lambda: OptimumBranch.to_pandas(None), "Tables need pandas: pip install 'hyjax-dynamics[data]'."),  # pyright: ignore
        (
            "zarr",
            lambda: unwrap(create)(None, None, None, None),
            "Stores of sweeps need zarr: pip install 'hyjax-dynamics[data]'.",
        ),  # pyright: ignore
        (
            "cloudpickle",
            lambda: unwrap(packed)(None),
            "Executors need cloudpickle: pip install 'hyjax-dynamics[cluster]'.",
        ),  # pyright: ignore
        ("matplotlib", pyplot, "Pictures need matplotlib: pip install 'hyjax-dynamics[plot]'."),
    ],
    ids=lambda each: each if isinstance(each, str) and " " not in each else "",
)
def test_the_extra_is_named(package, call, message, monkeypatch):
    for name in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError) as raised:
        call()
    assert str(raised.value) == message


def test_a_command_names_the_extra_before_it_computes(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(Misuse, match=r"^Datasets need xarray: pip install 'hyjax-dynamics\[data\]'\.$"):
        check_files(None, out=tmp_path / "trajectory.nc")


def test_trouble_inside_a_package_is_its_own(tmp_path, monkeypatch):
    (tmp_path / "half_a_package.py").write_text("import what_it_needs")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'what_it_needs'"):
        needed("half_a_package", "data", "Tests")


@pytest.mark.medium
def test_types_reach_a_users_script(tmp_path):
    """By `py.typed` and `__init__.pyi`, although names are imported when they are first used."""
    script = tmp_path / "mine.py"
    script.write_text(
        "import jax.numpy as jnp\nimport hyjax as hj\nfrom hyjax.models import rimless_wheel as wheel\n"
        "p = wheel.Params(slope=jnp.array(0.2))\n"
        "gait = hj.periodic_orbit(wheel.step, wheel.guess(p), p)\n"
        "reveal_type(gait)\nreveal_type(gait.stable)\nreveal_type(hj.plot.explore(wheel).orbit.sequence)\n"
        "reveal_type(hj.plot.orbit_figure)\nreveal_type(hj.simulate(wheel.system, gait.x, p, mode='stance', t1=1.0).jumps)\n"
        "gait.stabel\nhj.ReturnMap(wheel.system, sequence=wheel.sequence, strides='two')\n"
    )
    checked = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(script)],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    told = [line.partition(" - ")[2] for line in checked.stdout.splitlines() if "mine.py:" in line]
    types = [line.partition(' is "')[2].rstrip('"') for line in told if line.startswith("information")]
    assert types[0] == "PeriodicOrbit" and types[2] == "tuple[str, ...]" and "Unknown" not in " ".join(types), (
        checked.stdout
    )
    errors = [line for line in told if line.startswith("error")]
    assert len(errors) == 2 and '"stabel"' in errors[0] and '"strides"' in errors[1], checked.stdout
