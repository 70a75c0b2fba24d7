"""The walk through the code follows an orbit: its stations are the files through which the computation passes, in their order."""

import itertools
import pathlib
import re

import jax

import hyjax as hj
from hyjax.models import rimless_wheel as wheel

ROOT = pathlib.Path(hj.__file__).parent


def operations(jaxpr):
    """All operations of a program, those of programs within it included."""
    for equation in jaxpr.eqns:
        yield equation
        for each in jax.tree.leaves(
            equation.params, is_leaf=lambda leaf: hasattr(leaf, "eqns") or hasattr(leaf, "jaxpr")
        ):
            if hasattr(each, "eqns") or hasattr(each, "jaxpr"):
                yield from operations(getattr(each, "jaxpr", each))


def test_an_orbit_passes_the_stations_of_the_walk():
    """Each operation of a traced orbit knows the calls that made it. No other test has this number of steps, or this program."""
    params, integrator = wheel.Params(), hj.Integrator(max_steps=4321)
    step = hj.ReturnMap(wheel.system, sequence=wheel.sequence, integrator=integrator)
    orbit = lambda p: hj.periodic_orbit(step, wheel.guess(p), p, throw=False)
    tracebacks = {each.source_info.traceback for each in operations(jax.make_jaxpr(orbit)(params).jaxpr)}
    # Calls pass through `in_one_kernel` as through `jax.jit`.
    own = lambda file: file.startswith(str(ROOT)) and not file.endswith("one_kernel.py")
    name = lambda file: str(pathlib.Path(file).relative_to(ROOT.parent)) if own(file) else ""
    ways = {tuple(name(frame.file_name) for frame in reversed(each.frames)) for each in tracebacks if each}

    walk = (ROOT.parent / "docs" / "walk.md").read_text()
    down, back = walk[: walk.index("## The folders")].split("## Back: through the derivatives")
    stations = lambda text: re.findall(r"^### \d+\. [^`\n]*`([^`]*)`$", text, re.MULTILINE)
    there = stations(down)
    assert len(there) == 8 and set(there + stations(back)) <= {file for files in ways for file in files}
    # A traceback has the inner calls only, so the order is that of calls from file to file; those of a stride, whose tangents are
    # pushed by `linearize`, begin anew.
    calls = {pair for files in ways for pair in itertools.pairwise(dict.fromkeys(filter(None, files)))}
    # `linearize` calls whatever it is given.
    for middle in {file for pair in calls for file in pair} - {"hyjax/_numerics/linearize.py"}:
        calls |= {(one, other) for one, via in calls if via == middle for via, other in calls if via == middle}
    orbit_file, shooting, newton, chain, integrate, loop, crossing, solver_step = there
    assert {
        (orbit_file, shooting),
        (shooting, newton),
        (newton, chain),
        (chain, "hyjax/_numerics/linearize.py"),
    } <= calls
    assert {("hyjax/_orbit/stride.py", integrate), (integrate, loop), (loop, crossing), (loop, solver_step)} <= calls
    assert not {(integrate, chain), (chain, newton), (loop, orbit_file)} & calls
