"""How long does a user wait for one gait at the command line?

The wall time of the process `python -m hyjax gait simplest_walker --json`, from start to exit: cold, with an empty
cache of compiled programs; warm, with the cache that the cold run left; and of importing JAX and diffrax alone, which
every such process must.

    python benchmarks/command_line.py [--quick]

A run is kept in `outputs/command_line.json`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="one warm run")
repeats = 1 if parser.parse_args().quick else 7

gait = [sys.executable, "-m", "hyjax", "gait", "simplest_walker", "--json"]
imports = [sys.executable, "-c", "import jax, diffrax"]
period = 3.882463752851374138  # at the model's own slope, 0.009


def wall_time(command, cache):
    """`(seconds, standard output)`."""
    # Only the cache that is measured, not one which the environment names for JAX itself; and the modules of hyjax have bytecode,
    # as where hyjax was installed.
    ignored = ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in ignored}
    start = time.perf_counter()
    done = subprocess.run(
        command, env=environment | {"HYJAX_CACHE_DIR": cache}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return seconds, done.stdout


def find(record, name):
    """The first value under that name, however deep."""
    if isinstance(record, dict):
        if name in record:
            return record[name]
        record = list(record.values())
    found = (find(each, name) for each in record) if isinstance(record, list) else ()
    return next((value for value in found if value is not None), None)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        wall_time(imports, cache)  # files that the disk has not yet read are not the question
        wall_time([sys.executable, "-m", "hyjax", "gait", "--help"], cache)
        alone = statistics.median(wall_time(imports, cache)[0] for _ in range(repeats))
        cold, printed = wall_time(gait, cache)
        size = sum(file.stat().st_size for file in Path(cache).rglob("*") if file.is_file())
        files = sum(file.is_file() for file in Path(cache).rglob("*"))
        warm = statistics.median(wall_time(gait, cache)[0] for _ in range(repeats))
    error = abs(float(find(json.loads(printed), "period") or 0) - period)
    print(f"{'':<26}{'seconds':>9}{'/ warm':>9}")
    for name, seconds in (("cold", cold), (f"warm, median of {repeats}", warm), ("import jax, diffrax", alone)):
        print(f"{name:<26}{seconds:>9.2f}{seconds / warm:>9.2f}")
    print(f"error of the period {error:.1e}; {files} files in the cache, {size / 1e6:.1f} MB")
