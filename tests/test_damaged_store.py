"""Damaged stores of sweeps: computed again or refused by name, never silently wrong."""

import pathlib
import shutil
import warnings

import numpy as np
import pytest
import sweep_case as case
import xarray
from numpy.testing import assert_array_equal

import hyjax as hj
from hyjax._sweep.lock import LOCK, Lock
from hyjax._sweep.store import Store


@pytest.fixture(scope="module")
def start():
    return case.orbit()


@pytest.fixture(scope="module")
def stored(start, tmp_path_factory):
    """A store of four chunks, and its numbers."""
    out = tmp_path_factory.mktemp("stored") / "sweep.zarr"
    return out, case.swept(start, out, chunk=70).load()


def flipped(data: bytes, place: float) -> bytes:
    at = int(place * (len(data) - 1))
    return data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]


DAMAGES = {
    "first byte": lambda data: flipped(data, 0),
    "byte at a third": lambda data: flipped(data, 1 / 3),
    "last byte": lambda data: flipped(data, 1),
    "half": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "deleted": None,
}
CHUNKS = ("x/c/0/0/0", "period/c/1/0", "stable/c/3/0", "slope/c/2/0", "result/c/0/0")
FIXED = ("zarr.json", "result/zarr.json", "x/zarr.json", "a/zarr.json", "a/c/0", "start_y/c/0/0/0", "result/checksums")


def damage(path: pathlib.Path, how: str) -> None:
    change = DAMAGES[how]
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))


def resumed(start, out):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = case.swept(start, out, resume=True).load()
    return found, [str(each.message) for each in said if "computed again" in str(each.message)]


@pytest.mark.parametrize("name", CHUNKS)
def test_a_damaged_chunk_is_computed_again(start, stored, tmp_path, name):
    whole, numbers = stored
    # All damages of a part and of the codes, by which a chunk is finished.
    for how in DAMAGES if name in CHUNKS[:: len(CHUNKS) - 1] else ("byte at a third", "deleted"):
        out = tmp_path / how / "sweep.zarr"
        shutil.copytree(whole, out)
        damage(out / name, how)
        if (name, how) == ("result/c/0/0", "deleted"):
            # Without its codes a chunk has not been computed, as its points say.
            assert (hj.open_sweep(out)["result"].values == -1).sum() > 0
        else:
            with pytest.raises(hj.StoreError, match=r"the chunk a \d+:\d+, c 0:11 is damaged .* resume"):
                hj.open_sweep(out)
        found, said = resumed(start, out)
        xarray.testing.assert_identical(found, numbers)
        assert len(said) == (how != "deleted" or name != "result/c/0/0"), (how, said)
        assert all(name.partition("/")[0] in each for each in said)
        xarray.testing.assert_identical(hj.open_sweep(out).load(), numbers)


@pytest.mark.parametrize("name", FIXED)
def test_other_damages_are_refused(start, stored, tmp_path, name):
    for how in DAMAGES:
        out = tmp_path / how / "sweep.zarr"
        shutil.copytree(stored[0], out)
        damage(out / name, how)
        for read in (lambda out: case.swept(start, out, resume=True), hj.open_sweep):
            with pytest.raises(hj.StoreError, match=r"sweep.zarr: .*\. (Restore it from a copy|Write to another path)"):
                read(out)


def test_a_chunk_of_fill_values_is_not_taken_for_lost(tmp_path, start):
    """zarr writes no file for a chunk that equals the fill value, unless asked: NaN everywhere, where there is no orbit."""
    values = [2.5, 1.2, 1.2001, 1.2002], [0.0, -0.1, -0.11, -0.12]
    options = {"where": case.a_and_c, "values": values, "out": tmp_path / "sweep.zarr", "progress": False}
    found = hj.sweep(case.system, start, chunk=1, **options).load()
    lost = found["result"].values != 0
    assert lost.sum() > 0 and found["period"].isnull().values[lost].all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xarray.testing.assert_identical(hj.sweep(case.system, start, resume=True, **options).load(), found)


def parts(store, i):
    """What chunk `i` holds, as `Store.write` takes it."""
    inner = lambda array: array.shape[len(store.dims) :]
    return {name: np.asarray(array[store.chunks[i]]).reshape(-1, *inner(array)) for name, array in store.arrays.items()}


def test_a_chunk_is_finished_by_its_codes(stored, tmp_path, monkeypatch):
    """They are written last, so a chunk of which one part could not be written has none; and all of them must be known."""
    out = tmp_path / "sweep.zarr"
    shutil.copytree(stored[0], out)
    store = Store(out)
    data, array = parts(store, 1), Store._array

    def full(self, name):
        if name == "x":
            raise OSError("No space left on device")
        return array(self, name)

    store.discard(1)
    with monkeypatch.context() as patch, pytest.raises(hj.StoreError, match="could not be written"):
        patch.setattr(Store, "_array", full)
        store.write(1, data)
    assert store.damaged(1) is None
    store.write(1, data)
    assert store.damaged(1) == []
    codes = data["result"]
    store.write(1, data | {"result": np.where(np.arange(codes.size) == 0, -1, codes)})
    assert store.damaged(1) is None


def test_a_directory_left_by_a_killed_process_is_removed(start, stored, tmp_path):
    """Where the lock of its maker is free; a directory that is being filled stays."""
    left, used = (tmp_path / f"sweep.zarr.{name}.part" for name in ("0123abcd", "4567abcd"))
    for part in (left, used):
        shutil.copytree(stored[0], part)
    lock = Lock(used / LOCK)
    assert lock.taken and not Lock(used / LOCK).taken
    found = case.swept(start, tmp_path / "sweep.zarr", chunk=70)
    lock.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sweep.zarr", used.name]
    xarray.testing.assert_identical(found.load(), stored[1])


def test_reads_as_any_reader_of_zarr(stored):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = xarray.open_zarr(stored[0], chunks=None)
    assert_array_equal(plain["x"], stored[1]["x"])
    names = [type(codec).__name__ for codec in Store(stored[0]).arrays["x"].compressors]
    assert names == ["ZstdCodec", "Crc32cCodec"]


def test_what_is_no_store(tmp_path):
    with pytest.raises(hj.StoreError, match="not a store of a sweep"):
        hj.open_sweep(tmp_path / "nothing.zarr")
