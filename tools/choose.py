"""Choose what `.ci/run` does beyond the quick tests, within a budget of the recorded seconds of CPU: notebooks, and tests marked
`medium` or `slow` of rooms that changed since `tools/full_check` ran them.

    python tools/choose.py --tests 500        lines for `pytest @FILE`
    python tools/choose.py --notebooks 250    paths
    python tools/choose.py --list tests/flow  the tests of a folder marked `medium` or `slow`

Rooms whose own sources or tests changed come first, then those that only import a changed room; medium tests before slow ones.
Rooms take turns, each with its cheapest test. What is left to `tools/full_check` is printed on the error stream.
"""

import argparse
import contextlib
import io
import sys
from typing import NamedTuple

from rooms import changed, folder_of_tests, record, ROOT

# Seconds of CPU assumed of what no full check has run.
MEDIUM, SLOW, NOTEBOOK = 15.0, 100.0, 150.0
# Of these files `.ci/run` runs all but the slow tests whatever changed.
ALWAYS = ("tests/project/test_readme.py", "tests/project/test_examples.py")


class Group(NamedTuple):
    """A test function, whose cases share compiled programs: `cases` are those marked `medium` or `slow`."""

    room: str
    own: bool
    slow: bool
    seconds: float
    cases: list[str]


class _Collector:
    """A plugin of pytest that keeps the tests found."""

    def __init__(self):
        self.items = []

    def pytest_collection_finish(self, session):
        self.items = session.items


def marked(folders: list[str]) -> dict[str, dict[str, bool]]:
    """For each function of tests in the folders its cases marked `medium` or `slow`: whether a case is slow."""
    import pytest

    collector, found = _Collector(), {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = pytest.main(
            ["--collect-only", "-q", "-n0", "-m", "medium or slow", *(str(ROOT / each) for each in folders)],
            [collector],
        )
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(printed.getvalue())
    for item in collector.items:
        slow = item.get_closest_marker("slow") is not None
        found.setdefault(function_of(item.nodeid), {})[item.nodeid] = slow
    return found


def function_of(test: str) -> str:
    return test.partition("[")[0]


def groups(rooms: dict[str, bool]) -> list[Group]:
    """The marked tests of the rooms, in the order in which a check takes them."""
    seconds, found = record()["tests"], []
    folders = {folder_of_tests(room): room for room in rooms}
    for name, every in marked(sorted(folders)).items() if rooms else ():
        cases = [case for case, slow in every.items() if slow or not name.startswith(ALWAYS)]
        if cases:
            room, slow = folders["/".join(name.split("/")[:2])], any(every.values())
            cost = seconds.get(name, SLOW if slow else MEDIUM * min(len(cases), 4))
            found.append(Group(room, rooms[room], slow, cost, cases))
    turns: dict[tuple[str, bool], int] = {}
    ordered = []
    for each in sorted(found, key=lambda each: each.seconds):
        turn = turns[each.room, each.slow] = turns.get((each.room, each.slow), 0) + 1
        ordered.append((not each.own, each.slow, turn, each))
    return [each for *_, each in sorted(ordered, key=lambda entry: entry[:3])]


def within(costs: list[float], budget: float) -> list[bool]:
    """Which costs are taken: in this order, each that the budget still allows."""
    taken = []
    for cost in costs:
        taken.append(cost <= budget)
        budget -= cost * taken[-1]
    return taken


def tests(budget: float) -> None:
    rooms = changed()
    every = groups(rooms)
    taken = within([each.seconds for each in every], budget)
    print(*(case for each, take in zip(every, taken, strict=True) if take for case in each.cases), sep="\n")
    said = [f"{len(rooms)} rooms changed since their last full check; medium and slow tests chosen, and left:"]
    for room in rooms:
        said.append(f"  {room:14}")
        for what, chosen in (("chosen", True), ("left to tools/full_check", False)):
            part = [each for each, take in zip(every, taken, strict=True) if each.room == room and take == chosen]
            cases, cost = sum(len(each.cases) for each in part), sum(each.seconds for each in part)
            said[-1] += f"   {what} {cases:3} ({cost:4.0f} s)"
    print(*said, sep="\n", file=sys.stderr)


def notebooks(budget: float) -> None:
    steps = record()["steps"]
    cost = lambda name: steps[name]["seconds"] if name in steps else NOTEBOOK
    names = sorted((path.name for path in (ROOT / "notebooks").glob("*.ipynb")), key=lambda name: (cost(name), name))
    taken = dict(zip(names, within(list(map(cost, names)), budget), strict=True))
    print(*(f"notebooks/{name}" for name in names if taken[name]), sep="\n")
    left = ", ".join(sorted(name for name in names if not taken[name])) or "none"
    print(f"notebooks left to tools/full_check: {left}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=float, metavar="SECONDS", help="choose tests of so many seconds of CPU")
    parser.add_argument("--notebooks", type=float, metavar="SECONDS", help="choose notebooks of so many seconds of CPU")
    parser.add_argument("--list", metavar="FOLDER", help="print the tests of a folder marked medium or slow")
    given = parser.parse_args()
    if given.list:
        print(*(case for cases in marked([given.list]).values() for case in cases), sep="\n")
    if given.tests is not None:
        tests(given.tests)
    if given.notebooks is not None:
        notebooks(given.notebooks)


if __name__ == "__main__":
    main()
