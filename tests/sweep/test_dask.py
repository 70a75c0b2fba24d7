"""A sweep by a Dask cluster of two processes, of which one is killed in the middle."""

import os
import signal

import jax
import pytest
import sweep_case as case
from numpy.testing import assert_array_equal

import hyjax as hj
from hyjax._testing import Store

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client():
    """Workers with the compilation cache of the tests, so that a worker that replaces another loads its programs."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.mark.medium
def test_a_worker_is_killed_in_the_middle(client, tmp_path, monkeypatch):
    """While one worker has answered its first chunk, the other one compiles: it is killed before it has answered one."""
    write, killed = Store.write, {}

    def killing(self, i, data):
        if not killed:
            busy = {worker: keys for worker, keys in client.processing().items() if keys}
            worker = max(busy, key=lambda each: len(busy[each]))
            killed[worker] = client.run(os.getpid, workers=[worker])[worker]
            os.kill(killed[worker], signal.SIGKILL)
        write(self, i, data)

    monkeypatch.setattr(Store, "write", killing)
    # The lambdas are sent by value.
    record = lambda orbit: {"twice": 2 * orbit.x, "slope": orbit.return_jacobian[0, 0]}
    options = {"where": lambda p: (p.a, p.c), "values": case.values, "record": record, "progress": False}
    found = hj.sweep(case.orbit(), out=tmp_path / "sweep.zarr", chunk=24, executor=client.get_executor(), **options)
    plain = hj.sweep(case.orbit(), **options)
    for name in plain.data_vars:
        assert_array_equal(found[name].values, plain[name].values, err_msg=name)
    (pid,) = killed.values()
    assert pid not in client.run(os.getpid).values()
    assert hj.load(tmp_path / "sweep.zarr").attrs["device"].startswith(jax.default_backend())


@pytest.mark.slow
def test_the_command(client, command, monkeypatch):
    from hyjax._testing import command_options

    arguments = "sweep", "rimless_wheel", "--where", "slope=0.2:0.3:40", "--json"
    here = command(*arguments)
    there = command(*arguments, "--scheduler", client.scheduler.address, "--chunk", "10")
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.stdout
    # Without a scheduler, and without Dask.
    monkeypatch.setattr(command_options, "TIMEOUT", 1)
    given = *arguments, "--scheduler", "tcp://127.0.0.1:1"
    found = command(*given)
    assert found.returncode == 1 and "tcp://127.0.0.1:1: no Dask scheduler answers" in found.stderr
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    found = command(*given)
    assert found.returncode == 2 and "pip install 'hyjax-dynamics[cluster]'" in found.stderr
