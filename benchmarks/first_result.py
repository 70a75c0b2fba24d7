"""How long does a fresh process compute before its first result?

CPU seconds of a process that imports hyjax, computes one result of the simplest walker and ends: `cold` without a cache of
compiled programs, `warm` with the cache that such a process has filled (see `hj.enable_cache`). An error stands beside each
number that is known. Beside them the import alone, and one flow of the same vector field to the same guard by diffrax alone, to
tolerances of 1e-12. Byte code of Python is compiled beforehand, as the second process of any user finds it.

    python benchmarks/first_result.py [--quick] [--only orbit,gradient]

A run is kept in `outputs/first_result.json`.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import textwrap

START = """
import os, jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import hyjax as hj
if os.environ["FIRST_RESULT_CACHE"]:
    hj.enable_cache(os.environ["FIRST_RESULT_CACHE"])
"""
FLOW = """
from hyjax.models import simplest_walker as walker
params = walker.Params()
x0 = jnp.array([0.20031090054424709, -0.19983247300495235, 0.40062180108849418, -0.015822999948309382])
PERIOD = 3.882463752851374
"""
# For all but diffrax.
WALKER = """
guess = walker.guess(params)
def gait(params):
    return hj.periodic_orbit(walker.step, guess, params)
"""
# Each prints the error of its result.
RESULTS = {
    "diffrax: a flow to a guard": """
        import diffrax as dfx, optimistix as optx
        height = lambda t, y, args, **kwargs: walker.foot_height(t, y, args)
        event = dfx.Event(height, optx.Newton(1e-9, 1e-9), False)
        found = dfx.diffeqsolve(
            dfx.ODETerm(walker.swing), dfx.Dopri8(), 0.0, 10.0, None, x0, params, event=event,
            stepsize_controller=dfx.PIDController(rtol=1e-12, atol=1e-12),
        )
        print(abs(float(found.ts[0]) - PERIOD))
    """,
    "import": "print(0.0)",
    "simulate": """
        found = hj.simulate(walker.system, x0, params, mode="swing", t1=5.0)
        print(abs(float(found.end_times[0]) - PERIOD))
    """,
    "stride": """
        found = walker.step(x0, params)
        print(abs(float(found.time) - PERIOD))
    """,
    "orbit": "print(abs(float(gait(params).period) - PERIOD))",
    "gradient": "print(abs(float(jax.grad(lambda params: gait(params).period)(params).slope) - 5.346788245468929))",
    "orbits": """
        found = hj.find_orbits(walker.step, params, region=walker.region(params))
        print(abs(float(found.period[0]) - PERIOD))
    """,
    "sweep": """
        slopes = jnp.linspace(0.006, 0.009, 16)
        found = hj.sweep(gait(params), where=lambda p: p.slope, values=slopes, progress=False)
        print(abs(float(found.period[-1]) - PERIOD))
    """,
    "branch": """
        branch = hj.continuation(gait(params), where=lambda p: p.slope, stop=0.017)
        doubling = [each for each in branch.special_points if each.kind == "period-doubling"]
        print(abs(float(doubling[0].value) - 0.01508843794111946))
    """,
    "attractor": """
        slopes = jnp.linspace(0.009, 0.017, 16)
        found = hj.attractor(
            walker.step, guess, params, where=lambda p: p.slope, values=slopes, n_strides=200, progress=False
        )
        print(abs(float(found.stride_time[0]) - PERIOD))
    """,
    "certificate": """
        proof = hj.certify.attracting(gait(params), disturbance=hj.certify.Disturbance(1e-4))
        print(0.0 if proof.status == "proved" else 1.0)
    """,
}
QUICK = ("import", "simulate", "orbit")


def cpu_seconds(text: str, cache: str, byte_code: str) -> tuple[float, float]:
    """CPU seconds of a fresh process that goes on from `START`, and the error that it prints. **Arguments:** `cache`: a folder,
    or none. `byte_code`: a folder."""
    unset = "JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    environment |= {"FIRST_RESULT_CACHE": cache, "JAX_PLATFORMS": "cpu", "PYTHONPYCACHEPREFIX": byte_code}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = START + textwrap.dedent(text)
    ended = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, float(ended.stdout)


def cold_and_warm(text: str) -> tuple[float, float, float]:
    """CPU seconds without a cache and with the one that such a process has filled, and the error."""
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as byte_code:
        cpu_seconds(text, cache, byte_code)
        cold, error = cpu_seconds(text, "", byte_code)
        warm, _ = cpu_seconds(text, cache, byte_code)
    return cold, warm, error


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--only", help="names of results, with commas between them")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else QUICK if given.quick else RESULTS
    print(f"{'CPU seconds':<28}{'cold':>8}{'warm':>8}{'error':>10}")
    for name in names:
        start = FLOW + ("" if name.startswith("diffrax") else WALKER)
        cold, warm, error = cold_and_warm(start + textwrap.dedent(RESULTS[name]))
        print(f"{name:<28}{cold:>8.1f}{warm:>8.1f}{error:>10.1e}", flush=True)
