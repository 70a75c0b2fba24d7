"""Mutation tests: each line of `mutations.toml` breaks one file of hyjax; the tests named there should fail.

    python tools/mutate.py [--only NAME ...] [--again] [--jobs N] [--list] [--unmutated]

The mutations are applied one at a time to a copy of the repository, and the outcomes written to `mutations.md`. A mutation whose
outcome is there already, for the same tests, is not run again.
"""

import argparse
import os
import pathlib
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import as_completed, ThreadPoolExecutor
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
LIST, TABLE = ROOT / "tools" / "mutations.toml", ROOT / "tools" / "mutations.md"
SURVIVED, TIMED_OUT, NOT_RUN = "survived", "killed (time out)", "not run"
# Exit statuses of pytest: tests passed; a test failed, or the process crashed. Any other, such as that of a process ended from
# outside, says nothing about the mutation.
PASSED, NOTICED = 0, (1, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL)


class Mutation(NamedTuple):
    """Text of `file` replaced by another; `tests`: arguments of pytest. `why`: it survives, or an empty string."""

    name: str
    file: str
    old: str
    new: str
    tests: str
    why: str


class Outcome(NamedTuple):
    """What a mutation came to, in which tests, after how many seconds."""

    verdict: str
    tests: str
    seconds: int


def mutations() -> list[Mutation]:
    """The list; `ValueError` unless each old text occurs exactly once in its file, and each name once."""
    found = [
        Mutation(name, file, *fields, *([""] * (4 - len(fields))))
        for file, each in tomllib.loads(LIST.read_text()).items()
        for name, fields in each.items()
    ]
    times = {each: (ROOT / "hyjax" / each.file).read_text().count(each.old) for each in found}
    wrong = [f"{each.file}: {each.name}: {each.old!r} occurs {n} times" for each, n in times.items() if n != 1]
    names = [each.name for each in found]
    wrong += [f"{name!r} names two mutations" for name in dict.fromkeys(names) if names.count(name) > 1]
    if wrong:
        raise ValueError("\n".join([f"{LIST.name}: give text that occurs once, and a name for each mutation.", *wrong]))
    return found


def copied(to: pathlib.Path) -> pathlib.Path:
    """A copy of all that the tests read."""
    unwanted = shutil.ignore_patterns(".git", ".venv", ".cache", "__pycache__", "*.zarr")
    shutil.copytree(ROOT, to, ignore=unwanted)
    return to


def run_tests(copy: pathlib.Path, tests: str, limit: float) -> int | None:
    """The exit status of pytest in the copy; `None` where it takes longer than `limit` seconds.

    The `-k` or `-m` of each file is its own: one call of pytest for each.
    """
    calls: list[list[str]] = []
    for word in shlex.split(tests):
        if word.endswith(".py"):
            calls.append([str(next((copy / "tests").rglob(word)).relative_to(copy))])
        else:
            calls[-1].append(word)
    environment = os.environ | {"PYTHONPATH": str(copy)}
    for call in calls:
        # Tests marked `medium` are among those named, and tests marked `slow` where the call has an `-m` of its own.
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not slow", *call]
        try:
            ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return None
        if ended.returncode not in (PASSED, *NOTICED):
            print(
                f"pytest {shlex.join(call)} ended with {ended.returncode}:",
                ended.stdout[-1000:],
                ended.stderr[-1000:],
                sep="\n",
            )
        if ended.returncode != PASSED:
            return ended.returncode
    return PASSED


def outcome_of(mutation: Mutation, copy: pathlib.Path, limit: float) -> Outcome:
    path = copy / "hyjax" / mutation.file
    whole, began = path.read_text(), time.monotonic()
    path.write_text(whole.replace(mutation.old, mutation.new))
    try:
        status = run_tests(copy, mutation.tests, limit)
    finally:
        path.write_text(whole)
    known = {None: TIMED_OUT, PASSED: SURVIVED} | dict.fromkeys(NOTICED, "killed")
    verdict = known.get(status, NOT_RUN)
    return Outcome(verdict, mutation.tests, round(time.monotonic() - began))


def in_copies(work: list[Mutation], jobs: int, limit: float, done: Callable[[Mutation, Outcome], None]) -> None:
    """`done(mutation, outcome)` for each mutation; each of `jobs` threads has a copy of its own."""
    with tempfile.TemporaryDirectory(prefix="hyjax-mutate-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies: queue.SimpleQueue[pathlib.Path] = queue.SimpleQueue()
        for k in range(jobs):
            copies.put(copied(pathlib.Path(folder) / str(k)))

        def one(mutation: Mutation) -> Outcome:
            copy = copies.get()
            try:
                return outcome_of(mutation, copy, limit)
            finally:
                copies.put(copy)

        running = {pool.submit(one, each): each for each in work}
        for future in as_completed(running):
            done(running[future], future.result())


def recorded() -> dict[str, Outcome]:
    """The outcomes in the table."""
    found = {}
    for line in TABLE.read_text().splitlines() if TABLE.exists() else ():
        cells = [cell.strip().strip("`") for cell in line.split("|")[1:-1]]
        if len(cells) == 6 and cells[3].isdigit():
            found[cells[0]] = Outcome(cells[2], cells[4], int(cells[3]))
    return found


def write_table(listed: list[Mutation], outcomes: dict[str, Outcome]) -> None:
    known = {each.name: outcomes[each.name] for each in listed if each.name in outcomes}
    survived = [each for each in listed if each.name in known and known[each.name].verdict == SURVIVED]
    lines = [
        "# Mutations of hyjax's core",
        "",
        f"Written by `tools/mutate.py`. {len(known)} of {len(listed)} mutations run: {len(known) - len(survived)} killed, "
        f"{len(survived)} survived, of which {sum(bool(each.why) for each in survived)} are explained.",
        "",
        "| mutation | file | outcome | seconds | tests | why it survives |",
        "|---|---|---|---|---|---|",
    ]
    for each in listed:
        if each.name in known:
            verdict, tests, seconds = known[each.name]
            why = each.why if verdict == SURVIVED else ""
            lines.append(f"| {each.name} | `{each.file}` | {verdict} | {seconds} | `{tests}` | {why} |")
    TABLE.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=[], help="mutations whose name or file contains this"
    )
    parser.add_argument("--again", action="store_true", help="run also what the table has already")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a mutation counts as killed")
    parser.add_argument("--list", action="store_true", help="show the mutations, and run none")
    parser.add_argument("--unmutated", action="store_true", help="run the tests without mutations: all should pass")
    given = parser.parse_args()
    listed, outcomes = mutations(), recorded()
    chosen = [each for each in listed if not given.only or any(word in each.name + each.file for word in given.only)]
    if given.list:
        print(*(f"{each.file}: {each.name}\n    - {each.old}\n    + {each.new}" for each in chosen), sep="\n")
        return
    if given.unmutated:
        whole = [each._replace(new=each.old) for each in {each.tests: each for each in chosen}.values()]
        in_copies(whole, given.jobs, given.limit, lambda each, outcome: print(*outcome, sep="\t", flush=True))
        return
    fresh = lambda each: given.again or each.name not in outcomes or outcomes[each.name].tests != each.tests

    def done(each: Mutation, outcome: Outcome) -> None:
        if outcome.verdict != NOT_RUN:
            outcomes[each.name] = outcome
        print(f"{outcome.verdict:18}{outcome.seconds:4} s  {each.file}: {each.name}", flush=True)
        write_table(listed, outcomes)

    # Tests marked slow come last.
    in_copies(sorted(filter(fresh, chosen), key=lambda each: "slow" in each.tests), given.jobs, given.limit, done)
    write_table(listed, outcomes)


if __name__ == "__main__":
    main()
