"""The script `solvers.py`: tables, sentences and pictures of a study made up here, without a run of any solver."""

import numpy as np
import pytest
import solvers as reproduce
import xarray
from solver_remarks import agreement_table, cheapest, TABLES
from solver_tables import SOLVERS, TOLERANCES

import hyjax as hj
from hyjax._testing import code_flags, version

DIMS = ("strategy", "rtol", "solver", "set")
SIZES = 2, 3, 7, 13


def made_up():
    """Random costs and errors; at 1e-9 no run diverges; one run failed; events take twice the seconds and have half the error."""
    rng = np.random.default_rng(0)
    draw = lambda: np.broadcast_to(10 ** rng.uniform(-3, 0, SIZES[1:]), SIZES).copy()
    seconds, error, divergence = draw(), draw(), 50 * draw()
    seconds[0] *= 2
    error[0] /= 2
    divergence[:, 2] = 50.0
    steps, result = np.ones(SIZES), np.zeros(SIZES, int)
    result[1, 0, 3, 8] = int(hj.RESULTS.nonfinite._value)
    error[1, 0, 3, 8] = np.nan
    columns = dict(
        seconds=seconds, evaluations=draw(), integral_of_error=error, divergence_time=divergence, steps_tried=steps
    )
    return xarray.Dataset(
        {name: (DIMS, column) for name, column in columns.items()}
        | {"result": (DIMS, result, code_flags()), "reference_error": ("set", np.arange(13) * 1e-9)},
        {
            "strategy": ["events", "combined"], "rtol": list(TOLERANCES), "solver": list(SOLVERS), "set": np.arange(1, 14),
            "time": [0.0, 50.0], "threshold": ("rtol", [0.05, 0.01, 0.01]),
        },
        {"hyjax_version": version(), "reference": "Dopri8, Rodas5P", "reference_tolerance": 1e-12},
    )  # fmt: skip


def test_rank_correlation_with_the_paper():
    """With the paper's own points every correlation is 1; with the opposite points, -1."""
    theirs = np.array([[TABLES[strategy][each] for each in TOLERANCES] for strategy in ("events", "combined")])
    names = {"seconds": 0, "evaluations": 0, "divergence_time": 1, "integral_of_error": 2}
    data = {name: (DIMS[:3], theirs[..., column]) for name, column in names.items()}
    points = xarray.Dataset(data, {"strategy": ["events", "combined"], "rtol": list(TOLERANCES)})
    for sign, given in (("+", points), ("-", -points)):
        columns = [list(column.cells) for column in agreement_table(given).columns[1:]]
        assert columns == [[f"{sign}1.00"] * 6] * 4


def test_cheapest():
    """The cheapest of the accurate runs, not of all; none where no run is accurate, and no failed run."""
    error = xarray.DataArray([[1e-2, np.nan], [1e-5, 1e-4]], dims=("solver", "rtol"))
    seconds = xarray.DataArray([[1.0, 0.5], [3.0, 2.0]], dims=("solver", "rtol"))
    runs = xarray.Dataset(
        {"integral_of_error": error, "seconds": seconds}, {"solver": ["a", "b"], "rtol": [1e-3, 1e-6]}
    )
    assert cheapest(runs, 1e-3, "seconds") == ("b", 1e-6, 2.0)
    assert cheapest(runs, 1e-2, "seconds") == ("a", 1e-3, 1.0)
    assert cheapest(runs, 1e-6, "seconds") is None


@pytest.mark.medium
def test_script_resumes(script, tmp_path, monkeypatch):
    """Only tolerances that the file lacks are run, and the file has all of them then; the sentences have the study's numbers."""
    whole, run = made_up(), []

    def at(tolerance):
        run.append(tolerance)
        return whole.sel(rtol=[tolerance])

    monkeypatch.setattr(reproduce, "_at", at)
    path = tmp_path / "study.nc"
    whole.isel(rtol=[0, 1]).to_netcdf(path, engine="scipy")
    ran = script("solvers", "--out", str(path), "--resume", "--plot", "work.png", "--plot-points", "ranks.png")
    assert ran.returncode == 0, ran.stderr
    assert run == [1e-9]
    assert set(ran.figures) >= {"work.png", "ranks.png"}
    stored = xarray.load_dataset(path)
    for name in ("seconds", "integral_of_error", "result"):
        assert np.array_equal(stored[name].values, whole[name].values, equal_nan=True)
    for text in (
        "Table 3", "Table 4", "Table 5", "546 runs, 1 of which failed", "2.0 times the seconds",
        "at 1e-09 in 100% (median ratio 0.50)",
        "tolerance 1e-09: 182 of 182", "combined, tolerance 0.001, ode113, set 9: nonfinite", "1.2e-08 (set 13)",
    ):  # fmt: skip
        assert text in ran.stdout, text


@pytest.mark.medium
@pytest.mark.parametrize("wrong", ["version", "missing"])
def test_script_refuses_a_file_of_another_kind(script, tmp_path, wrong):
    study = made_up()
    if wrong == "version":
        study.attrs["hyjax_version"] = "0.0.0"
    else:
        study = study.drop_attrs()
    study.to_netcdf(tmp_path / "study.nc", engine="scipy")
    ran = script("solvers", "--out", "study.nc", "--resume")
    assert ran.returncode == 2 and "cannot be resumed" in ran.stderr
    assert script("solvers", "--resume").returncode == 2
