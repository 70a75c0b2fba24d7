"""Run a script of this folder and keep what it prints, with date, machine and versions, in `outputs/`.

The page of benchmarks of the documentation is made from these files, and from nothing else. Another run replaces a script's file.

    python benchmarks/record.py strides.py --quick      # options are the script's own
    python benchmarks/record.py all                     # every script, without options: some hours of a quiet machine

The load, how many cores were busy in the three seconds before the run, tells whether the machine did other work: below a tenth on
a quiet one. Host names and paths are not kept.
"""

import ast
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version

FOLDER = pathlib.Path(__file__).resolve().parent
NOT_RUN = ("peers.py", "record.py", "gpu.py")  # imported; this file; needs an accelerator, and is run by its own name
PACKAGES = ("hyjax-dynamics", "jax", "jaxlib", "diffrax", "optimistix", "numpy", "scipy", "heyoka", "casadi")


def processor() -> str:
    """The model of the processor, as the system names it."""
    info = pathlib.Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", info.read_text()) if info.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


def machine() -> dict:
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "load": load(3.0),
    }


def load(seconds: float) -> float | None:
    """How many cores are busy, on average over a time from now; `None` where the system does not tell. (The load average of the
    system remembers what ended a minute ago.)"""
    ticks = pathlib.Path("/proc/stat")
    if not ticks.exists():
        return None

    def busy() -> int:
        user, nice, system = map(int, ticks.read_text().split()[1:4])
        return user + nice + system

    before = busy()
    time.sleep(seconds)
    return round((busy() - before) / os.sysconf("SC_CLK_TCK") / seconds, 2)


def versions() -> dict[str, str]:
    """Of Python, hyjax and what it is compared with; packages that are not installed are left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def without_paths(text: str) -> str:
    """Temporary and absolute paths, which say nothing about a benchmark, by their last name."""
    return re.sub(r"(?<![\w/.])/(?:[\w.+-]+/)+([\w.+-]+)", r"\1", text)


def question(script: str) -> str:
    """The first line of the script's documentation."""
    text = ast.get_docstring(ast.parse((FOLDER / script).read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())


def record(script: str, options: list[str]) -> pathlib.Path:
    """Run a script; `RuntimeError` if it fails, and then nothing is kept."""
    where, start = machine(), time.perf_counter()
    run = subprocess.run([sys.executable, script, *options], cwd=FOLDER, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{script} failed; nothing is kept.\n{run.stderr}")
    kept = {
        "script": script,
        "options": options,
        "question": question(script),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": where,
        "versions": versions(),
        "seconds": round(time.perf_counter() - start),
        "output": without_paths(run.stdout).rstrip().splitlines(),
    }
    path = FOLDER / "outputs" / f"{script.removesuffix('.py')}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    return path


def main(words: list[str]) -> None:
    scripts = sorted(path.name for path in FOLDER.glob("*.py") if path.name not in NOT_RUN)
    if not words or (words[0] != "all" and words[0] not in (*scripts, "gpu.py")):
        raise SystemExit(f"record: give one of {', '.join((*scripts, 'gpu.py', 'all'))}, and the script's options")
    for script in scripts if words[0] == "all" else words[:1]:
        print(f"{script}: kept in outputs/{record(script, words[1:]).name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
