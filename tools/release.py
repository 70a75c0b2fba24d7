"""Release checklist: what a machine can check, in fresh virtual environments; what is left to a person is printed.

    python tools/release.py [--python python3.11 --python python3.13 ...] [--skip-minimal] [--jobs 2]

Builds the source distribution and the wheel, compares the versions in all files, looks into the source distribution, and
installs both for each Python, with `constraints.txt`, and the wheel with the lowest versions, `constraints-minimal.txt`. In each
environment the commands of the README must give their numbers, and a file of tests must pass; with the wheel and
`constraints.txt` all quick tests but those of the project's files. Nothing is uploaded. Exit status 1 where something is wrong.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).parent.parent
# Files without which the source distribution could not be tested.
NEEDED = (
    "pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md", "CONTRIBUTING.md", "constraints.txt",
    "constraints-minimal.txt", "hyjax/py.typed", "hyjax/__init__.pyi", "tests/conftest.py", "tests/reference.json",
    "examples/papers/bhounsule.py",
)  # fmt: skip
EXTRAS = "cli,plot,data,notebook,cluster"
# Quick, and imports every model. The tests are those of the source distribution.
TESTS, TEST_TOOLS = "models/test_shelf.py", ("pytest", "beartype")
# Packages that tests, but not the commands of the README, need.
EXTRA_OF_TESTS = "test"
MINORS = (11, 12, 13)
TO_DO = """To do by a person:
  1. Name the version and the date in CHANGELOG.md, and both in CITATION.cff; version in pyproject.toml. Commit.
  2. tools/full_check is green; `python tools/browse.py` was run by hand.
  3. The outputs of the notebooks and the benchmarks' tables are of this version.
  4. Tag the commit, sign the tag, push it.
  5. Upload the two files to the index, and install them from there once.
  6. Publish the site; archive the tag, and enter its DOI in CITATION.cff."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Release checklist")
    parser.add_argument(
        "--python", action="append", help="command of a Python; default: each of 3.11 to 3.13 that is found"
    )
    parser.add_argument("--skip-minimal", action="store_true", help="do not test the lowest versions")
    parser.add_argument("--jobs", default="2", help="processes of tests")
    arguments = parser.parse_args()
    pythons = arguments.python or [each for each in map(python_of, MINORS) if each is not None]
    if absent := [f"3.{k}" for k in MINORS if not arguments.python and python_of(k) is None]:
        print(f"not found: Python {', '.join(absent)}; give its command by --python")
    problems = versions()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run([sys.executable, "-m", "build", "--outdir", name, ROOT], folder)
        (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
        print(f"built {wheel.name} ({wheel.stat().st_size:,} bytes), {source.name} ({source.stat().st_size:,} bytes)")
        problems += contents(source)
        shutil.unpack_archive(source, folder, filter="data")
        tests = folder / source.name.removesuffix(".tar.gz") / "tests"
        # What is tested is the package that was installed.
        shutil.rmtree(tests.parent / "hyjax")
        cases = [(each, dist, "constraints.txt") for each in pythons for dist in (wheel, source)]
        cases += [] if arguments.skip_minimal else [(each, wheel, "constraints-minimal.txt") for each in pythons[:1]]
        for number, (python, dist, pins) in enumerate(cases):
            about = f"{python}, {dist.name}, {pins}"
            jobs = arguments.jobs if (dist, pins) == (wheel, "constraints.txt") else None
            found = installed(python, dist, pins, folder / f"venv{number}", tests, jobs)
            print(f"{about}: {'; '.join(found) or 'good'}", flush=True)
            problems += [f"{about}: {each}" for each in found]
            shutil.rmtree(folder / f"venv{number}")
    print("\n".join([*(f"PROBLEM: {each}" for each in problems), "", TO_DO]))
    return 1 if problems or not pythons else 0


def versions() -> list[str]:
    """The version of `pyproject.toml` is that of `CITATION.cff` and of a section of the changelog."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    cited = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    wrong = [] if cited == [version] else [f"CITATION.cff has the version {cited}, pyproject.toml {version}"]
    log = ROOT / "CHANGELOG.md"
    heads = re.findall(r"^## (\S+)", log.read_text(), re.MULTILINE) if log.exists() else []
    return wrong + ([] if version in heads else [f"CHANGELOG.md has no section {version}; it has {heads}"])


def contents(source: pathlib.Path) -> list[str]:
    """What the source distribution lacks, and what it should not have."""
    with tarfile.open(source) as archive:
        names = {each.partition("/")[2] for each in archive.getnames()}
    tracked = set(run(["git", "ls-files"], ROOT).split("\n"))
    lacking = [f"the source distribution lacks {each}" for each in NEEDED if each not in names]
    extra = sorted(each for each in names - tracked if each not in ("PKG-INFO", "") and not (ROOT / each).is_dir())
    return lacking + [f"the source distribution has {each}, which git does not track" for each in extra]


def installed(
    python: str, dist: pathlib.Path, pins: str, venv: pathlib.Path, tests: pathlib.Path, jobs: str | None
) -> list[str]:
    """What is wrong with the distribution in a fresh environment of that Python; with `jobs` by all quick tests, too."""
    run([python, "-m", "venv", venv], venv.parent)
    pip, bare = [venv / "bin" / "pip", "install", "-q", "-c", ROOT / pins], venv / "bin" / "hyjax"
    wrong = []
    run([*pip, dist], venv.parent)
    said = subprocess.run([bare], capture_output=True, text=True, cwd=venv.parent, env=clean()).stderr
    if "pip install 'hyjax-dynamics[cli]'" not in said:
        wrong.append(f"without extras, hyjax does not name the extra, but says {said[-300:]!r}")
    run([*pip, f"{dist}[{EXTRAS}]", *TEST_TOOLS], venv.parent)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    (venv / "example.py").write_text(example)
    derivative = re.findall(r"print\(jax.grad\(.*# (-?\d+\.\d+)\.\.\.", example)[0]
    for command, expected in (
        ([bare, "--version"], f"hyjax {version}"),
        ([bare, "gait", "simplest_walker", "--starts", "256"], "3.88246375285"),
        ([venv / "bin" / "python", venv / "example.py"], derivative),
        ([venv / "bin" / "pytest", "-q", "-o", "addopts=", tests / TESTS], "passed"),
        ([venv / "bin" / "python", "-c", "import hyjax; print(hyjax.__file__)"], str(venv)),
    ):
        done = subprocess.run(command, capture_output=True, text=True, cwd=venv.parent, env=clean())
        if done.returncode or expected not in done.stdout:
            wrong.append(
                f"{' '.join(map(str, command[1:]))} does not print {expected}: {(done.stdout + done.stderr)[-600:]!r}"
            )
    if jobs:
        run([*pip, f"{dist}[{EXTRAS},{EXTRA_OF_TESTS}]"], venv.parent)
        command = [venv / "bin" / "pytest", "-n", jobs, "--ignore=tests/project", "tests"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tests.parent, env=clean())
        print(f"{python}, quick tests: {done.stdout.strip().splitlines()[-1:]}", flush=True)
        if done.returncode:
            wrong.append(f"the quick tests fail: {done.stdout[-3000:]!r}")
    return wrong


def python_of(minor: int) -> str | None:
    """The command of a Python 3.`minor` that starts: that on the path, or one that pyenv or uv keeps."""
    name = f"python3.{minor}"
    candidates = [name]
    for manager, *asked in (("pyenv", "prefix", f"3.{minor}"), ("uv", "python", "find", f"3.{minor}")):
        if shutil.which(manager):
            said = subprocess.run([manager, *asked], capture_output=True, text=True).stdout.strip()
            candidates.append(said if said.endswith(name) else f"{said}/bin/{name}")
    return next((each for each in candidates if works(each)), None)


def works(python: str) -> bool:
    """Whether the command is a Python that starts: a version manager may have one that does not."""
    return shutil.which(python) is not None and not subprocess.run([python, "-c", ""], capture_output=True).returncode


def clean() -> dict[str, str]:
    """The environment, without paths to this copy of the package."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(command: list, folder: pathlib.Path) -> str:
    """The command's output; the script ends where the command fails."""
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, cwd=folder, env=clean())
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
