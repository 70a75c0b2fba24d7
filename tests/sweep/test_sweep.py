"""Sweeps: closed forms, stores that survive what may happen to them, devices."""

import dataclasses
import os
import pathlib
import re
import resource
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sweep_case as case
import xarray
from numpy.testing import assert_allclose, assert_array_equal

import hyjax as hj
from hyjax._testing import ChunkSolver, CoarseGrid, is_far, LOCK, march, nearest_pass, Store
from hyjax.models import simplest_walker as walker

ROOT = pathlib.Path(__file__).parents[2]
HERE = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def start():
    return case.orbit()


@pytest.fixture(scope="module")
def whole(start):
    return case.swept(start)


def exact(a, c, b=1.0):
    """The larger fixed point of c + a x (1 - x / b), and its multiplier; NaN beyond the fold."""
    with np.errstate(invalid="ignore"):
        x = b / (2 * a) * (a - 1 + np.sqrt((a - 1) ** 2 + 4 * a * c / b))
    return x, a * (1 - 2 * x / b)


def run(out, kill_after=10**6, devices=1):
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir),
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, str(HERE / "sweep_case.py"), str(out), str(kill_after)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def assert_same(found, expected):
    """To the last bit."""
    for name in expected.data_vars:
        assert_array_equal(found[name].values, expected[name].values, err_msg=name)


def test_closed_form(whole):
    a, c = np.meshgrid(*case.values, indexing="ij")
    x, multiplier = exact(a, c)
    fold = (a - 1) ** 2 + 4 * a * c
    assert whole["result"].dims == ("a", "c")
    found = whole["result"].values == 0
    # All that exist are found, from one orbit; next to the fold Newton's method has an orbit to either side.
    assert_array_equal(found[np.abs(fold) > 1e-3], (fold > 0)[np.abs(fold) > 1e-3])
    assert found.sum() > 230 and (~found).sum() > 5
    # Near the fold the orbit's condition is 1 / (1 - multiplier).
    assert_allclose(
        whole["x"].values[found, 0] * (1 - multiplier[found]), (x * (1 - multiplier))[found], rtol=0, atol=1e-13
    )
    condition = 2 * a[found] / np.abs(1 - multiplier[found])
    error = np.abs(whole["multipliers_real"].values[found, 0] - multiplier[found])
    assert np.all(error < 1e-13 * (1 + condition))
    assert_allclose(whole["period"].values[found], 1, rtol=1e-14)
    assert_array_equal(whole["stable"].values[found], np.abs(multiplier[found]) < 1)
    assert_array_equal(whole["twice"].values, 2 * whole["x"].values)
    assert_allclose(whole["slope"].values[found], multiplier[found], rtol=0, atol=1e-11)
    for name in ("x", "period", "multipliers_real", "slope"):
        assert np.all(np.isnan(whole[name].values[~found])), name


def test_labels(whole):
    assert whole["a"].attrs["units"] == "1/stride"
    assert all(each.attrs["long_name"] for each in whole.variables.values())
    assert list(whole["coordinate"].values) == ["x", "clock"]
    meanings = whole["result"].attrs["flag_meanings"].split()
    code = whole["result"].values[whole["result"].values != 0][0]
    assert meanings[whole["result"].attrs["flag_values"].index(code)] == "orbit_not_converged"
    assert whole.attrs["parameters"] == {"b": 1.0} and whole.attrs["dtype"] == "float64"


def test_neighbours_and_chunks(start, whole):
    # To the bit: no other program is run, and each point has its own start.
    assert_same(case.swept(start, chunk=7), whole)
    # On another grid the starts differ: rounding, 1e-13.
    few = hj.sweep(start, where=case.a_and_c, values=(case.values[0][::-3], case.values[1][::2]), record=case.record)
    here = whole.sel(a=few["a"], c=few["c"])
    both = (few["result"].values == 0) & (here["result"].values == 0)
    assert both.sum() > 40
    condition = 1 / np.abs(1 - here["multipliers_real"].values[both, :1])
    assert np.all(np.abs(few["x"].values[both] - here["x"].values[both]) < 1e-13 * (1 + condition))


@pytest.mark.medium
def test_starts_along_a_branch():
    # The branch of c + a x (1 - x) at a = 2.5, through its fold at c = -0.225; begun at c = 0, on the upper part.
    x = np.linspace(-0.05, 0.7, 76)
    c = x - 2.5 * x * (1 - x)
    wanted = np.array([[-0.2], [0.0], [0.05], [-0.3], [0.2]])
    y = nearest_pass(c, np.stack([x, 1 + 0 * x], axis=1), int(np.argmin(np.abs(x - 0.6))))(wanted)
    # On that part. Linear interpolation between points 0.01 apart errs by 2.5 * 0.005^2 / 0.5, at most.
    assert_allclose(y[:3, 0], exact(2.5, wanted[:3, 0])[0], rtol=0, atol=1.3e-4)
    assert_allclose(y[:3, 1], 1, rtol=1e-14)
    # What the branch does not reach has no start.
    assert np.all(np.isnan(y[3:]))


@pytest.mark.medium
def test_an_orbit_on_another_branch_is_far():
    """Farther from its guess than a third of the variation over the six coarse points around it, here 5/4."""
    coarse = CoarseGrid((np.linspace(0, 1, 9),), 1, float)
    coarse.y[:, 0] = 2 * coarse.axes[0]
    values = np.array([[0.3], [0.77]])
    guesses, reach = coarse.guesses(values)
    assert_allclose(guesses, 2 * values, rtol=1e-13)
    for away, far in ((0.3, False), (0.5, True)):
        assert_array_equal(is_far(guesses + away, guesses, reach), far)


@pytest.mark.parametrize("expected", [np.nan, -7.0])
def test_a_line_along_which_coordinates_turn_back(expected):
    """The larger coordinate turns at a third of the line; it is large beside its variation, as a rate before an impact. Whether
    its change is measured first, or expected wrongly, the line takes few calls."""
    curve = lambda s: np.stack([4 - 0.2 * (s - 1 / 3) ** 2, 0.03 * np.sin(s)], axis=1)
    calls = []

    def solve(values, guess):
        calls.append(len(values))
        # Newton's method finds the curve from anywhere near.
        return curve(values[:, 0]), np.full(len(values), 3)

    ends = np.array([[0.0], [1.0]])
    y = march(solve, ends[:1], curve(ends[0]), ends[1:], np.full((1, 2), expected), 0.0)
    assert_array_equal(y, curve(ends[1]))
    assert len(calls) < 12


def test_a_jump_to_another_branch_is_not_accepted():
    """Beyond the middle of the line the solver finds a branch at a distance of 0.3: there the line ends."""
    curve = lambda s: np.stack([1 + s + np.where(s > 0.5, 0.3, 0), s], axis=1)
    solve = lambda values, guess: (curve(values[:, 0]), np.full(len(values), 3))
    ends = np.array([[0.0], [1.0]])
    steps = lambda slope: march(solve, ends[:1], curve(ends[0]), ends[1:], np.full((1, 2), slope), 0.0)
    assert np.all(np.isnan(steps(np.nan)))


@pytest.fixture(scope="module")
def branch(start):
    """Over c at a = 2.5: from 0 up to 0.2; and down, through the fold at -0.225, to -0.1 on the other part."""
    return hj.continuation(start, where=lambda p: p.c, stop=(-0.23, 0.2), method=METHOD)


METHOD = hj.PseudoArclength(step=0.05, max_step=0.2, max_points=40)
over_c = {"where": lambda p: p.c, "record": case.record, "progress": False}


@pytest.mark.medium
def test_from_a_branch(start, branch):
    """Each point of the grid starts on the branch, on the part nearest its start: the orbits are those from an orbit."""
    assert branch.values.min() < -0.22 and branch.x[:, 0].min() < 0.25 < 0.6 < branch.x[:, 0].max()
    values = np.linspace(-0.2, 0.2, 17)
    along = hj.sweep(branch, values=values, **over_c)
    around = hj.sweep(start, values=values, **over_c)
    assert_array_equal(along["result"], 0)
    for name in ("x", "period", "multipliers_real", "residual", "slope"):
        # The orbit's condition is 1 / |1 - multiplier|, of which the largest is 2; each is right to 1e-14.
        assert_allclose(along[name], around[name], rtol=0, atol=1e-13, err_msg=name)
    assert_allclose(along["x"][:, 0], exact(2.5, values)[0], rtol=0, atol=1e-13)
    # The starts are nearer than those that are followed from an orbit: never more strides.
    assert int(along["iterations"].sum()) <= int(around["iterations"].sum())


@pytest.mark.medium
def test_from_a_branch_over_two_parameters(start, branch):
    """The branch's parameter among others that vary: it is followed from the orbit with which the branch began."""
    values = np.array([2.4, 2.5]), np.array([-0.1, 0.0, 0.1])
    options = {"where": case.a_and_c, "values": values, "record": case.record, "progress": False}
    along, around = (hj.sweep(each, **options) for each in (branch, start))
    assert_array_equal(along["result"], 0)
    for name in ("x", "period", "multipliers_real"):
        assert_allclose(along[name], around[name], rtol=0, atol=1e-13, err_msg=name)
    with pytest.raises(ValueError, match="the branch's parameter is not among the varied"):
        hj.sweep(branch, where=lambda p: p.a, values=values[0], progress=False)


def test_store(start, whole, tmp_path):
    out = tmp_path / "sweep.zarr"
    assert_same(case.swept(start, out, chunk=24), whole)
    # Any reader of zarr sees names, dimensions and codes.
    plain = xarray.open_zarr(out, consolidated=False, chunks=None)
    assert plain["x"].dims == ("a", "c", "coordinate") and plain["a"].attrs["units"] == "1/stride"
    assert plain.attrs["integrator"]["solver"] == "Euler" and plain.attrs["device"].startswith(jax.default_backend())
    with pytest.raises(hj.SolveError, match="exists already"):
        case.swept(start, out)
    for options, match in (
        (
            {"integrator": hj.Integrator(rtol=1e-12)},
            "its integrator is .*Euler.* that of this call .*1e-12",
        ),
        ({"integrator": dataclasses.replace(start.integrator, first_step=0.125)}, "its integrator is .*0.125"),
        ({"values": (case.values[0][1:], case.values[1])}, "its grid is"),
        ({"record": None}, "its record is"),
    ):
        arguments = {"where": case.a_and_c, "values": case.values, "record": case.record} | options
        with pytest.raises(hj.SolveError, match=f"cannot be resumed: {match}"):
            hj.sweep(start, out=out, resume=True, **arguments)


def test_killed_and_resumed(start, whole, tmp_path, monkeypatch):
    out = tmp_path / "sweep.zarr"
    killed = run(out, kill_after=3)
    _, errors = killed.communicate(timeout=300)
    assert killed.returncode == -9, errors
    computed, chunk = [], ChunkSolver.solve

    def counted(self, coarse, axes):
        computed.append(tuple(np.searchsorted(axis, part) for axis, part in zip(case.values, axes, strict=True)))
        return chunk(self, coarse, axes)

    monkeypatch.setattr(ChunkSolver, "solve", counted)
    codes = xarray.open_zarr(out, consolidated=False, chunks=None)["result"].values
    done = np.isin(codes, [-1], invert=True)
    assert 0 < done.sum() < codes.size
    # The chunk that was being written has no codes, and counts for nothing.
    assert_same(case.swept(start, out, chunk=24, resume=True), whole)
    assert not any(done[np.ix_(*box)].any() for box in computed)
    assert sum(done[np.ix_(*box)].size for box in computed) == (~done).sum()
    computed.clear()
    assert_same(case.swept(start, out, resume=True), whole)
    assert not computed


@pytest.mark.medium
def test_two_devices(whole, tmp_path):
    out = tmp_path / "sweep.zarr"
    process = run(out, devices=2)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    found = xarray.open_zarr(out, consolidated=False, chunks=None)
    for name in ("x", "period", "multipliers_real", "slope"):
        good = whole["result"].values == 0
        # Another program, with the same arithmetic: rounding, by the condition 1 / |1 - multiplier| near the fold.
        condition = 1 / np.abs(1 - whole["slope"].values[good])
        error = np.abs(found[name].values[good] - whole[name].values[good]).reshape(good.sum(), -1).max(axis=1)
        assert np.all(error < 1e-13 * (1 + condition)), name
    assert_array_equal(found["result"].values, whole["result"].values)


@pytest.mark.medium
def test_full_disk(start, whole, tmp_path, monkeypatch):
    out = tmp_path / "sweep.zarr"
    written, write = [], Store.write
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def filling(self, i, data):
        if len(written) == 2:
            # As on a full disk, whoever writes: no file can grow beyond 16 bytes.
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
        written.append(i)
        write(self, i, data)

    monkeypatch.setattr(Store, "write", filling)
    try:
        with pytest.raises(hj.SolveError, match=r"could not be written .* Every finished chunk is kept"):
            case.swept(start, out, chunk=24)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    codes = xarray.open_zarr(out, consolidated=False, chunks=None)["result"].values
    assert_array_equal(codes[codes != -1], whole["result"].values[codes != -1])
    assert (codes != -1).sum() >= 24
    monkeypatch.undo()
    assert_same(case.swept(start, out, resume=True), whole)


def test_where_nothing_can_be_written(start, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(hj.SolveError, match="the store cannot be made"):
        case.swept(start, tmp_path / "file" / "sweep.zarr")
    (tmp_path / "other.zarr").mkdir()
    with pytest.raises(hj.SolveError, match="this is not a store of a sweep"):
        case.swept(start, tmp_path / "other.zarr", resume=True)


@pytest.mark.medium
def test_one_process_at_a_time(start, whole, tmp_path):
    """While another process holds its lock, a store is not written; and once that process is killed, it is resumed."""
    out = tmp_path / "sweep.zarr"
    case.swept(start, out, chunk=70)
    hold = f"from hyjax._sweep.store import lock; print(lock({str(out / LOCK)!r})[0], flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"True\n"
        with pytest.raises(hj.SolveError, match=r"sweep.zarr: another process computes this store\. Wait until"):
            case.swept(start, out, resume=True)
        other.kill()
    assert_same(case.swept(start, out, resume=True), whole)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"values": case.values[0]}, "give a tuple of 2 arrays"),
        ({"values": (case.values[0], np.array([0.1, 0.1]))}, "occurs twice"),
        ({"values": (case.values[0], np.array([0.1, np.nan]))}, "finite"),
        ({"chunk": 0}, "chunk=0"),
        ({"resume": True}, "give out="),
        ({"where": lambda p: p, "values": case.values}, "where picks 3 parameters"),
        ({"where": lambda p: (p.a, p.a)}, r"where picks a more than once\. Pick each leaf of the parameters once"),
    ],
)
def test_misuse(start, options, message):
    with pytest.raises(ValueError, match=message):
        hj.sweep(start, **{"where": case.a_and_c, "values": case.values} | options)


def test_a_batch_is_no_start(start):
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), start)
    with pytest.raises(ValueError, match=re.escape("orbits[0]")):
        case.swept(batch)


@pytest.mark.medium
def test_in_single_precision():
    """The orbits of neighbours differ by less than the solver's error, which a guess may then miss."""
    system, sequence, near, far = (
        walker.system,
        walker.sequence,
        np.linspace(0.0089, 0.0091, 8),
        np.linspace(0.004, 0.014, 8),
    )

    def swept(dtype, values, **options):
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), walker.Params(jnp.asarray(0.009)))
        orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=sequence, **options), walker.guess(params), params)
        return hj.sweep(orbit, where=lambda p: p.slope, values=values)

    exact = swept(jnp.float64, np.concatenate([near, far]))
    for values, expected in ((near, exact["x"][:8]), (far, exact["x"][8:])):
        found = swept(jnp.float32, values, integrator=hj.Integrator(rtol=1e-5, atol=1e-5))
        assert found["x"].dtype == np.float32
        assert (found["result"] == 0).all()
        # Some ten times the tolerance.
        assert_allclose(found["x"], expected, rtol=0, atol=2e-4)


@pytest.mark.medium
def test_values_of_a_parameter_that_is_a_whole_number():
    """y' = -k y with a unit dose once in a unit of time: y = 1/(1 - exp(-k)) just after a dose, from k = 3, an integer."""
    decay = hj.Mode(lambda t, x, p: jnp.stack([-p["k"] * x[0], jnp.ones_like(x[1])]), ("y", "clock"))
    dose = hj.Transition("on", "on", lambda t, x, p: 1 - x[1], lambda t, x, p: jnp.stack([x[0] + 1, 0 * x[1]]))
    step = hj.ReturnMap(hj.HybridSystem({"on": decay}, (dose,)), sequence=("on",))
    start = hj.periodic_orbit(step, jnp.array([1.0, 0.0]), {"k": 3})
    for k in ([0.5, 1.25], [1, 2]):
        found = hj.sweep(start, where=lambda p: p["k"], values=np.array(k), progress=False)
        assert_allclose(found.k, k, rtol=0)
        assert_allclose(found.x[:, 0], 1 / (1 - np.exp(-np.array(k, float))), rtol=1e-13)
