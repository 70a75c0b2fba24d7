"""Programs kept on disk: the same numbers, whatever lies in the directory."""

import functools as ft
import hashlib
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import hyjax as hj
from hyjax._testing import _read, Batch, Problem, read_whole, search, stored_solver
from hyjax.models import rimless_wheel


def wheels(solver):
    params = rimless_wheel.Params()
    method, integrator = hj.SingleShooting(), hj.Integrator()
    batch = Batch(Problem(rimless_wheel.system, rimless_wheel.sequence, 1), params, method, integrator)
    region = tuple(np.asarray(bound) for bound in rimless_wheel.region(params))
    return search(ft.partial(solver, batch), method, integrator, region, 16, None)[0]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    directory = tmp_path_factory.mktemp("programs")
    return directory, wheels(stored_solver(str(directory), "rimless_wheel"))


@pytest.mark.medium
def test_is_what_find_orbits_finds(kept):
    """The program is compiled from another text: equal to rounding."""
    params = rimless_wheel.Params()
    _, orbits = kept
    direct = hj.find_orbits(rimless_wheel.step, params, region=rimless_wheel.region(params), max_starts=16)
    assert len(orbits) == len(direct) == 1
    np.testing.assert_allclose(orbits.x, direct.x, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(orbits.multipliers, direct.multipliers, rtol=1e-13, atol=1e-15)
    # What is found is a whole orbit: it prints itself.
    printed = str(orbits[0]).splitlines()
    assert (
        printed[0] == "PeriodicOrbit"
        and "stance, 1 stride" in printed[1]
        and printed[-1].split() == ["result", "successful"]
    )


@pytest.mark.medium
def test_is_read_again(kept):
    directory, orbits = kept
    (file,) = directory.iterdir()
    before = file.stat().st_mtime_ns
    again = wheels(stored_solver(str(directory), "rimless_wheel"))
    assert_array_equal(again.x, orbits.x)
    assert file.stat().st_mtime_ns == before


@pytest.mark.medium
def test_what_cannot_be_read_is_made_again(kept):
    directory, orbits = kept
    (file,) = directory.iterdir()
    program = file.read_bytes()
    file.write_bytes(program[: len(program) // 2])
    again = wheels(stored_solver(str(directory), "rimless_wheel"))
    assert_array_equal(again.x, orbits.x)
    assert read_whole(file) is not None and list(directory.iterdir()) == [file]


@pytest.mark.medium
def test_what_jax_does_not_accept_is_made_again(kept):
    """Whole by its checksum, and no program."""
    directory, orbits = kept
    (file,) = directory.iterdir()
    for other in (b"", pickle.dumps((b"", None, None)), pickle.dumps(0)):
        file.write_bytes(hashlib.sha256(other).digest() + other)
        assert _read(file) is None
    again = wheels(stored_solver(str(directory), "rimless_wheel"))
    assert_array_equal(again.x, orbits.x)


@pytest.mark.medium
def test_no_damage_reaches_the_reader(kept, tmp_path):
    """Of a damaged program XLA makes a crash or another program: whatever differs from its checksum is not read at all."""
    (file,) = kept[0].iterdir()
    whole, path = file.read_bytes(), tmp_path / "program"
    path.write_bytes(whole)
    assert read_whole(path) == whole[32:]
    flips = [
        whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        for at in (0, 31, 32, 40, len(whole) // 2, -1 % len(whole))
    ]
    for damaged in (
        *flips,
        whole[:-1],
        whole[: len(whole) // 2],
        whole[:32],
        whole[:5],
        b"",
        whole + b"\0",
        whole[32:],
    ):
        path.write_bytes(damaged)
        assert read_whole(path) is None
    assert read_whole(tmp_path / "nothing") is None and read_whole(tmp_path) is None


@pytest.mark.medium
def test_where_nothing_can_be_written(kept, tmp_path):
    blocked = tmp_path / "a file, not a directory"
    blocked.write_text("")
    assert_array_equal(wheels(stored_solver(str(blocked), "rimless_wheel")).x, kept[1].x)
