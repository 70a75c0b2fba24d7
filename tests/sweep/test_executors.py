"""Sweeps, attractors and basins by the workers of an executor: the same bits, few bytes sent, and errors that name the chunk."""

import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import pytest
import sweep_case as case
from numpy.testing import assert_array_equal
from recorded import Recorded

import hyjax as hj
from hyjax._testing import workers

# A lambda is sent by value: in a worker it is another function, which is compiled there.
doubled = lambda orbit: {"twice": 2 * orbit.x}


@pytest.fixture(scope="module")
def start():
    return case.orbit()


@pytest.fixture(scope="module")
def whole(start):
    return case.swept(start)


def assert_same(found, expected):
    """To the last bit."""
    for name in expected.data_vars:
        assert_array_equal(found[name].values, expected[name].values, err_msg=name)


def test_a_sweep_in_memory(start, whole):
    executor = Recorded()
    found = case.swept(start, chunk=24, executor=executor)
    assert_same(found, whole)
    assert found.attrs == whole.attrs
    # The coarse grid, and 16 chunks; never more ahead than two for each worker.
    assert len(executor.sent) == 17 and executor.most <= 4
    # The problem, and the two coordinates of 23 x 11 coarse points: no call carries the whole grid's results.
    assert max(executor.sent) < 40_000


@pytest.mark.medium
def test_many_chunks_are_not_sent_at_once(start):
    executor = Recorded()
    found = hj.sweep(
        start, where=lambda p: p.a, values=np.linspace(2, 3, 96), chunk=4, executor=executor, progress=False
    )
    # 96 points, halved until there are at most four in a chunk: 32 chunks of three.
    assert len(executor.sent) == 33
    assert executor.most <= 4 and int((found["result"] == 0).sum()) == 96


def test_a_lost_worker_is_named_and_the_store_is_resumed(start, whole, tmp_path):
    out = tmp_path / "sweep.zarr"
    with pytest.raises(hj.SolveError) as raised:
        case.swept(start, out, chunk=24, executor=Recorded(lost=12))
    said = str(raised.value)
    assert said.startswith("sweep: the chunk a ") and "BrokenExecutor: A process of the pool" in said
    assert f"Every finished chunk is in {out}: sweep again with resume=True." in said
    codes = hj.load(out)["result"].values
    # The twelfth chunk is sent once eight others, of 10 points at least, are in the store.
    assert 80 <= (codes != -1).sum() < codes.size
    assert_same(case.swept(start, out, resume=True, executor=Recorded()), whole)
    # And by whom a chunk is computed is no provenance.
    assert_same(case.swept(start, out, resume=True), whole)


def test_misuse_is_the_same_error_as_without_an_executor(start):
    for executor in (None, Recorded()):
        with pytest.raises(ValueError, match="record: must return a dictionary"):
            hj.sweep(start, where=case.a_and_c, values=case.values, record=lambda orbit: orbit.x, executor=executor)


def test_executors_that_cannot_be_used(start):
    fork = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    with pytest.raises(ValueError, match=r"get_context\('spawn'\)"):
        case.swept(start, executor=fork)
    with pytest.raises(ValueError, match=r"client.get_executor\(\)"):
        workers.require_usable("a client")


def test_workers_of_other_kinds(start, monkeypatch):
    kinds = iter(["cpu cpu", "cpu cpu"])
    monkeypatch.setattr(workers, "device_kind", lambda: next(kinds, "gpu other"))
    with pytest.raises(hj.SolveError, match="another kind of device, 'gpu other', than the others, 'cpu cpu'"):
        case.swept(start, chunk=24, executor=Recorded())


def test_workers_with_other_packages():
    """They say so before they unpack what they are sent."""
    header = json.dumps({"versions": workers._versions() | {"jax": "0.1"}})
    with pytest.raises(RuntimeError, match=r"the worker on .* has jax .*, and the process that called it 0\.1\."):
        workers.answer(header, b"", b"")


def test_without_cloudpickle(start, monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(ImportError, match=r"hyjax-dynamics\[cluster\]"):
        case.swept(start, executor=ThreadPoolExecutor(1))


@pytest.mark.medium
def test_attractors():
    options = {
        "where": lambda p: p.a, "values": np.array([2.8, 3.2, 3.5, 4.1]), "n_strides": 60, "discard": 28,
        "keep": 32, "progress": False,
    }  # fmt: skip
    for begin in (case.orbit(), jnp.array([0.4, 0.0])):
        executor = Recorded()
        found = hj.attractor(case.step, begin, case.Params(2.8), executor=executor, **options)
        assert_same(found, hj.attractor(case.step, begin, case.Params(2.8), **options))
        # From an orbit, a sweep before: its coarse grid and one chunk.
        assert len(executor.sent) == (3 if isinstance(begin, hj.PeriodicOrbit) else 1)


@pytest.mark.medium
def test_basins():
    options = {
        "axes": {"x": np.linspace(-0.5, 1.5, 2500), "height": np.array([0.0, 1.0])},
        "initial": lambda p, x, height: jnp.stack([x, jnp.zeros(())]), "orbits": case.orbit(),
        "outcomes": {"fell": lambda t, x, p: 5 + x[0] * x[1]}, "max_strides": 30, "progress": False,
    }  # fmt: skip
    executor = Recorded()
    found = hj.basin(case.step, case.Params(2.5), executor=executor, **options)
    assert_same(found, hj.basin(case.step, case.Params(2.5), **options))
    assert len(executor.sent) == 4 and len(np.unique(found["outcome"])) >= 2
