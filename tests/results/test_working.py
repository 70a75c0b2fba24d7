"""What is said during long computations, and the cache that makes them shorter."""

import contextlib
import io
import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import rich.status
import sweep_case as case

import hyjax as hj
from hyjax._testing import attractor, BatchMap, continuation, stored_solver, workers, working


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stderr, shown", [(Terminal(), True), (io.StringIO(), False)])
def test_only_on_a_terminal(monkeypatch, stderr, shown):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stderr)
    with working("compiling the stride") as say:
        say("searching")
    assert ("searching" in stderr.getvalue()) == ("\x1b" in stderr.getvalue()) == shown


def test_one_spinner_within_another(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    texts = []
    monkeypatch.setattr(rich.status.Status, "update", lambda self, text: texts.append(text))
    with working("branch 1 of 2") as outer:
        with working("compiling") as inner:
            inner("point 11")
        outer("branch 2 of 2")
    one = "branch 1 of 2"
    assert texts == [one, f"{one}: compiling", f"{one}: point 11", one, "branch 2 of 2", ""]


@pytest.mark.medium
def test_a_branch_says_where_it_is(monkeypatch):
    said = []

    @contextlib.contextmanager
    def phase(what):
        said.append(what)
        yield said.append

    monkeypatch.setattr(continuation, "working", phase)
    params = case.Params(2.5)
    orbit = hj.periodic_orbit(
        hj.ReturnMap(case.system, sequence=case.sequence, integrator=case.integrator), jnp.array([0.6, 0.0]), params
    )
    branch = hj.continuation(orbit, where=lambda p: p.a, stop=2.9)
    assert said[0] == "following a branch over a"
    points = [each.partition(", a = ") for each in said[1:]]
    numbers = [int(first.removeprefix("point ")) for first, _, _ in points]
    assert len(numbers) > 1 and numbers == sorted(numbers) and numbers[-1] == len(branch) and points[-1][2] == "2.9"
    # The fixed point of a x (1 - x).
    np.testing.assert_allclose(branch.x[:, 0], 1 - 1 / branch.values, rtol=1e-9)


@pytest.mark.medium
def test_compilation_is_a_phase_of_its_own(monkeypatch):
    """The program is compiled before the bar begins, for no lanes; the bar advances by computed lanes alone."""
    said = []

    @contextlib.contextmanager
    def phase(what, *options):
        said.append(what)
        yield lambda more: said.append(more)

    compile = BatchMap.compile
    monkeypatch.setattr(BatchMap, "compile", lambda self: (said.append("compiled"), compile(self)))
    monkeypatch.setattr(workers, "working", phase)
    monkeypatch.setattr(attractor, "progress_bar", phase)
    found = hj.attractor(
        hj.ReturnMap(case.system, sequence=case.sequence, integrator=case.integrator),
        jnp.array([0.5, 0.0]),
        case.Params(2.5),
        where=lambda p: p.a,
        values=np.linspace(2, 2.9, 3),
        n_strides=60,
        keep=4,
    )
    assert said == ["compiling the stride", "compiled", "attractors", 3]
    # The fixed point of a x (1 - x) is 1 - 1 / a; over 60 strides its error shrinks by |2 - a|^60, at most 0.9^60 = 2e-3.
    np.testing.assert_allclose(found["x"][:2, -1, 0], 1 - 1 / np.linspace(2, 2.9, 3)[:2], atol=1e-12)


@pytest.mark.medium
def test_a_stored_search_says_what_it_does(tmp_path):
    from test_stored import wheels

    said = []
    first = wheels(stored_solver(str(tmp_path), "rimless_wheel", said.append))
    assert len(first) == 1 and [each.split()[0] for each in said] == ["tracing", "compiling", "searching"]
    said.clear()
    wheels(stored_solver(str(tmp_path), "rimless_wheel", said.append))
    assert [each.split()[0] for each in said] == ["compiling", "searching"]


CACHED = """
import jax, jax.numpy as jnp, hyjax as hj
jax.jit(lambda x: x + 1)(1.0)
print(hj.enable_cache({directory}))
jax.jit(lambda x: jnp.sin(x) + 1)(1.0).block_until_ready()
"""


@pytest.mark.parametrize("given", [True, False])
def test_the_cache_of_a_script(tmp_path, given):
    """Also after a first compilation, at which JAX decides whether a cache is used."""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment["HYJAX_CACHE_DIR"] = str(tmp_path / "named")
    script = CACHED.format(directory=repr(str(tmp_path / "given")) if given else "")
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    directory = tmp_path / ("given" if given else "named")
    assert ran.returncode == 0 and ran.stdout.strip() == str(directory), ran.stderr
    assert any(directory.glob("jit__lambda*")) and [path.name for path in tmp_path.iterdir()] == [directory.name]
