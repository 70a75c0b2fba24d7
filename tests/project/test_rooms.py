"""`tools/rooms.py` and `tools/choose.py`, by which the check of a change chooses tests of rooms that changed."""

import choose
import pytest
import rooms


@pytest.fixture
def record(monkeypatch):
    """The record of a full check of the project as it is; a test may change it."""
    step = lambda room: {
        "own": rooms.digest(rooms.own_folders(room)),
        "imported": rooms.digest(rooms.imported_folders(room)),
    }
    now = {"steps": {rooms.step_of_tests(room): step(room) for room in rooms.rooms()}, "tests": {}}
    monkeypatch.setattr(rooms, "record", lambda: now)
    monkeypatch.setattr(choose, "record", lambda: now)
    return now


@pytest.mark.medium
def test_rooms_that_changed(record, monkeypatch):
    assert rooms.changed() == {}
    real = rooms._digest
    monkeypatch.setattr(rooms, "_digest", lambda folder: "another" if folder == "hyjax/_flow" else real(folder))
    changed = rooms.changed()
    assert [room for room, itself in changed.items() if itself] == ["_flow"]
    assert {"_flow", "_orbit", "certify", "cli", "project"} <= set(changed)
    assert not {"_system", "_numerics", "solvers", "contact"} & set(changed)
    monkeypatch.setattr(rooms, "_digest", lambda folder: "another" if folder == "tests/noise" else real(folder))
    assert rooms.changed() == {"noise": True}
    # A room is checked by a step of its own: without that step's record, it alone has changed.
    monkeypatch.setattr(rooms, "_digest", real)
    del record["steps"]["tests of phase"]
    assert rooms.changed() == {"phase": True}
    record["steps"] = {}
    assert set(rooms.changed()) == set(rooms.rooms()) and all(rooms.changed().values())


def test_digests_are_of_contents(tmp_path, monkeypatch):
    """A file, its name, and a helper that only a test imports; not a page that the build of the site writes."""
    for name, text in {"tests/a/test_a.py": "import used", "tests/used.py": "", "tests/unused.py": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(rooms, "ROOT", tmp_path)
    monkeypatch.setattr(rooms, "TESTS", tmp_path / "tests")
    named = lambda: [path.name for path in rooms.sources("tests/a")]
    assert named() == ["test_a.py", "used.py"]
    (tmp_path / "tests" / "used.py").write_text("import unused")
    assert named() == ["test_a.py", "unused.py", "used.py"]
    monkeypatch.setattr(rooms, "WRITTEN", [tmp_path / "docs" / "reference"])
    for name in ("docs/start.md", "docs/reference/index.md", "docs/reference/orbits.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert [path.name for path in rooms.sources("docs")] == ["index.md", "start.md"]


def test_a_choice_keeps_within_its_budget(record, monkeypatch, capsys):
    assert choose.within([3, 5, 1, 1], 4) == [True, False, True, False]
    cases = {
        "tests/flow/test_a.py::test_dear": {"tests/flow/test_a.py::test_dear": True},
        "tests/flow/test_a.py::test_cheap": {f"tests/flow/test_a.py::test_cheap[{k}]": False for k in range(3)},
        "tests/orbit/test_b.py::test_cheapest": {"tests/orbit/test_b.py::test_cheapest": False},
    }
    monkeypatch.setattr(choose, "changed", lambda: {"_flow": True, "_orbit": False})
    monkeypatch.setattr(choose, "marked", lambda folders: cases)
    record["tests"] = {"tests/flow/test_a.py::test_dear": 90.0, "tests/flow/test_a.py::test_cheap": 9.0}
    record["tests"]["tests/orbit/test_b.py::test_cheapest"] = 1.0
    choose.tests(50.0)
    printed = capsys.readouterr()
    # What changed itself comes before what imports it; what does not fit is passed over, and named.
    assert printed.out.split() == [*cases["tests/flow/test_a.py::test_cheap"], *list(cases)[2:]]
    assert "_flow            chosen   3 (   9 s)   left to tools/full_check   1 (  90 s)" in printed.err


def test_marked_tests_are_found():
    found = choose.marked(["tests/continuation/test_corner.py", "tests/project/test_links.py"])
    assert {name.partition("::")[0] for name in found} == {"tests/continuation/test_corner.py"}
    name = "tests/continuation/test_corner.py::test_a_branch_ends_at_a_corner"
    assert found[name] == {f"{name}[taken]": False, f"{name}[passed]": True}
