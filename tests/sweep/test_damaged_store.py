"""Damaged stores of sweeps: computed again or refused by name, never silently wrong."""

import hashlib
import json
import pathlib
import shutil
import warnings

import numpy as np
import pytest
import sweep_case as case
import xarray
from numpy.testing import assert_array_equal

import hyjax as hj
from hyjax._testing import LOCK, lock, Store


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
            assert (hj.load(out)["result"].values == -1).sum() > 0
        else:
            with pytest.raises(hj.SolveError, match=r"the chunk a \d+:\d+, c 0:11 is damaged .* resume"):
                hj.load(out)
        found, said = resumed(start, out)
        xarray.testing.assert_identical(found, numbers)
        assert len(said) == (how != "deleted" or name != "result/c/0/0"), (how, said)
        assert all(name.partition("/")[0] in each for each in said)
        xarray.testing.assert_identical(hj.load(out).load(), numbers)


@pytest.mark.parametrize("name", FIXED)
def test_other_damages_are_refused(start, stored, tmp_path, name):
    for how in DAMAGES:
        out = tmp_path / how / "sweep.zarr"
        shutil.copytree(stored[0], out)
        damage(out / name, how)
        for read in (lambda out: case.swept(start, out, resume=True), hj.load):
            with pytest.raises(hj.SolveError, match=r"sweep.zarr: .*\. (Restore it from a copy|Write to another path)"):
                read(out)


PLACES = {"x": ("0/0/0", "1/0/0"), "slope": ("2/0", "3/0"), "result": ("0/0", "2/0")}


def exchanged(one: pathlib.Path, other: pathlib.Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def checksums_exchanged(store: pathlib.Path, i: int, j: int) -> None:
    exchanged(store / "result" / "chunks" / str(i), store / "result" / "chunks" / str(j))


def replaced(there: pathlib.Path, by: pathlib.Path) -> None:
    shutil.rmtree(there) if there.is_dir() else there.unlink()
    shutil.copytree(by, there) if by.is_dir() else shutil.copy(by, there)


def in_place_of(path: pathlib.Path) -> None:
    path.unlink()
    (path / "within").mkdir(parents=True)


def all_of(store: pathlib.Path, other: pathlib.Path) -> None:
    """All parts of chunk 1 of another sweep, with their checksums."""
    for path in sorted(other.glob("*/c/1/**/*")):
        if path.is_file() and path.relative_to(other).parts[0] not in ("a", "c", "start_y"):
            replaced(store / path.relative_to(other), path)
    replaced(store / "result" / "chunks" / "1", other / "result" / "chunks" / "1")


def all_exchanged(store: pathlib.Path) -> None:
    """All parts of the chunks 0 and 1, with their checksums."""
    for name in Store(store).arrays:
        exchanged(store / name / "c" / "0", store / name / "c" / "1")
    checksums_exchanged(store, 0, 1)


# What is done to a store, given another one, and the chunks that are then damaged, with the variables named.
ATTACKS = {
    **{
        f"two chunks of {name}": (
            lambda store, _, name=name: exchanged(*(store / name / "c" / place for place in PLACES[name])),
            {int(place[0]): [name] for place in PLACES[name]},
        )
        for name in PLACES
    },
    "two chunks, whole": (lambda store, _: all_exchanged(store), {0: None, 1: None}),
    "two checksums": (lambda store, _: checksums_exchanged(store, 1, 2), {1: None, 2: None}),
    "a part of another sweep": (
        lambda store, other: replaced(store / "slope/c/1/0", other / "slope/c/1/0"), {1: ["slope"]}
    ),
    "a part of another variable": (
        lambda store, _: replaced(store / "period/c/1/0", store / "residual/c/1/0"), {1: ["period"]}
    ),
    "an array of another sweep": (
        lambda store, other: replaced(store / "x" / "c", other / "x" / "c"), {i: ["x"] for i in range(4)}
    ),
    "a chunk of another sweep": (all_of, {1: None}),
    "a directory for a part": (lambda store, _: in_place_of(store / "x/c/2/0/0"), {2: ["x"]}),
    "a directory for codes": (lambda store, _: in_place_of(store / "result/c/2/0"), {2: ["result"]}),
    "a directory for checksums": (lambda store, _: in_place_of(store / "result/chunks/3"), {3: ["checksums"]}),
    "no checksums": (lambda store, _: (store / "result/chunks/3").unlink(), {3: ["checksums"]}),
    "half of the checksums": (
        lambda store, _: damage(store / "result/chunks/3", "half"), {3: ["checksums"]}
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def another(start, tmp_path_factory):
    """A store like the other, over other values of `a`."""
    out = tmp_path_factory.mktemp("another") / "sweep.zarr"
    moved = case.values[0] + 0.001, case.values[1]
    options = {"where": case.a_and_c, "record": case.record, "progress": False}
    hj.sweep(start, values=moved, out=out, chunk=70, **options)
    return out


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_lies_in_the_wrong_place_is_computed_again(start, stored, another, tmp_path, attack):
    """Sound to every reader of zarr, but of another place, variable or sweep: never read as right, and mended by `resume`."""
    whole, numbers = stored
    out = tmp_path / "sweep.zarr"
    shutil.copytree(whole, out)
    change, chunks = ATTACKS[attack]
    change(out, another)
    store = Store(out)
    for i in range(4):
        found = store.damaged(i)
        assert (found == []) == (i not in chunks), (i, found)
        if chunks.get(i):
            assert found == chunks[i]
    with pytest.raises(
        hj.SolveError, match=rf"the chunk {store.box(min(chunks))} is damaged .* Sweep again with resume"
    ):
        hj.load(out)
    found, said = resumed(start, out)
    xarray.testing.assert_identical(found, numbers)
    assert len(said) == len(chunks) and all(store.box(i) in each for i, each in zip(sorted(chunks), said, strict=True))
    xarray.testing.assert_identical(hj.load(out).load(), numbers)


def test_an_array_that_the_sweep_does_not_have(start, stored, tmp_path):
    out = tmp_path / "sweep.zarr"
    shutil.copytree(stored[0], out)
    shutil.copytree(out / "period", out / "speed")
    for read in (lambda out: case.swept(start, out, resume=True), hj.load):
        with pytest.raises(hj.SolveError, match=r"the array speed is not one of this sweep\. Restore it"):
            read(out)


def test_a_store_without_checksums_of_chunks(start, stored, tmp_path):
    out = tmp_path / "sweep.zarr"
    shutil.copytree(stored[0], out)
    group = json.loads((out / "zarr.json").read_text())
    del group["attributes"]["chunk_checksums"]
    (out / "zarr.json").write_text(json.dumps(group))
    sums = json.loads((out / "result" / "checksums").read_text())
    sums["zarr.json"] = hashlib.sha256((out / "zarr.json").read_bytes()).hexdigest()
    (out / "result" / "checksums").write_text(json.dumps(sums))
    for read in (lambda out: case.swept(start, out, resume=True), hj.load):
        with pytest.raises(
            hj.SolveError, match=r"another version of hyjax wrote this store\. Sweep again, to another path"
        ):
            read(out)


@pytest.mark.medium
def test_a_chunk_of_fill_values_is_not_taken_for_lost(tmp_path, start):
    """zarr writes no file for a chunk that equals the fill value, unless asked: NaN everywhere, where there is no orbit."""
    values = [2.5, 1.2, 1.2001, 1.2002], [0.0, -0.1, -0.11, -0.12]
    options = {"where": case.a_and_c, "values": values, "out": tmp_path / "sweep.zarr", "progress": False}
    found = hj.sweep(start, chunk=1, **options).load()
    lost = found["result"].values != 0
    assert lost.sum() > 0 and found["period"].isnull().values[lost].all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xarray.testing.assert_identical(hj.sweep(start, resume=True, **options).load(), found)


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
    with monkeypatch.context() as patch, pytest.raises(hj.SolveError, match="could not be written"):
        patch.setattr(Store, "_array", full)
        store.write(1, data)
    assert store.damaged(1) is None
    store.write(1, data)
    assert store.damaged(1) == []
    codes = data["result"]
    store.write(1, data | {"result": np.where(np.arange(codes.size) == 0, -1, codes)})
    assert store.damaged(1) is None


def test_the_codes_are_discarded_first(stored, tmp_path, monkeypatch):
    """A process that is killed while it discards a chunk leaves one that counts as not computed."""
    out = tmp_path / "sweep.zarr"
    shutil.copytree(stored[0], out)
    store, unlink, left = Store(out), pathlib.Path.unlink, []

    def one_only(path, **options):
        if left:
            raise KeyboardInterrupt
        left.append(path)
        unlink(path, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pathlib.Path, "unlink", one_only)
        store.discard(1)
    assert left == [out / "result" / "c" / "1" / "0"] and store.damaged(1) is None


def test_a_directory_left_by_a_killed_process_is_removed(start, stored, tmp_path):
    """Where the lock of its maker is free; a directory that is being filled stays."""
    left, used = (tmp_path / f"sweep.zarr.{name}.part" for name in ("0123abcd", "4567abcd"))
    for part in (left, used):
        shutil.copytree(stored[0], part)
    taken, release = lock(used / LOCK)
    assert taken and not lock(used / LOCK)[0]
    found = case.swept(start, tmp_path / "sweep.zarr", chunk=70)
    release()
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
    """Nothing, and what others wrote: nobody is told to delete that."""
    with pytest.raises(FileNotFoundError, match="there is no such store"):
        hj.load(tmp_path / "nothing.zarr")
    for path in (tmp_path / "empty.zarr", tmp_path / "list.zarr", tmp_path / "torn.zarr"):
        path.mkdir()
    (tmp_path / "list.zarr" / ".zattrs").write_text("[]")
    (tmp_path / "torn.zarr" / ".zattrs").write_text("{")
    (tmp_path / "file.zarr").write_text("")
    for name in ("empty", "list", "torn", "file"):
        with pytest.raises(hj.SolveError, match=r"not a store of a sweep.* read by xarray\.open_zarr"):
            hj.load(tmp_path / f"{name}.zarr")
    xarray.Dataset({"a": ("x", np.arange(3.0))}).to_zarr(tmp_path / "foreign.zarr", zarr_format=3, consolidated=False)
    with pytest.raises(hj.SolveError, match=r"neither a sweep nor hj\.save wrote this store.*open_zarr"):
        hj.load(tmp_path / "foreign.zarr")
