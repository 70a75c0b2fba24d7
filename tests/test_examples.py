"""The example of every public name, run as it stands in the docstring, in an empty directory."""

import doctest
import pathlib
import sys

import jax
import jax.numpy as jnp
import matplotlib
import pytest

import hyjax as hj

sys.path.insert(0, str(pathlib.Path(hj.__file__).parents[1] / "docs" / "_ext"))
from public_names import public_names

matplotlib.use("Agg")

# Those that compile much beyond what other tests do.
SLOW: set[str] = set()
EXAMPLES = [
    pytest.param(each, id=each.path, marks=[pytest.mark.slow] if each.path in SLOW else []) for each in public_names()
]


@pytest.fixture
def quiet(tmp_path, monkeypatch):
    """An empty directory; afterwards no figures, and the cache of compiled programs where it was."""
    monkeypatch.chdir(tmp_path)
    cache = jax.config.jax_compilation_cache_dir
    yield
    import matplotlib.pyplot as plt

    plt.close("all")
    if jax.config.jax_compilation_cache_dir != cache:
        hj.enable_cache(cache)


@pytest.mark.parametrize("each", EXAMPLES)
def test_example(each, quiet):
    names = {"hj": hj, "jax": jax, "jnp": jnp}
    example = doctest.DocTestParser().get_doctest(each.docstring, names, each.path, str(each.file), each.node.lineno)
    assert example.examples
    printed: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=printed.append)
    assert not printed, "".join(printed)


def test_the_list_of_slow_examples_is_of_public_names():
    assert {each.path for each in public_names()} >= SLOW
