"""The example of every public name, run as it stands in the docstring, in an empty directory.

What several examples begin with is run once: statements that import, define or assign, and leave nothing but names.
"""

import ast
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

# Those that compile most: branches, optima, regulators, iLQR, proofs, studies and their pictures.
_SLOW = """
    edge_state smallest_push SmallestPush
    SpecialPoint switch_branch locus optimize OptimizedOrbit follow_optimum OptimumBranch ActiveSetChange
    control.regulator control.Regulator control.Tracking control.ilqr control.IlqrSolution control.IlqrHistory
    phase.entrainment phase.Entrainment study.solver_study study.solver_points study.recommend_integrator
    study.Recommendation sweep attractor basin MultipleShooting certify.attracting certify.Certificate
    certify.proved_basin certify.ProvedBasin certify.krawczyk certify.ProvedOrbit certify.Enclosed plot.locus_diagram
    plot.optimization_figure plot.optimum_figure plot.animate_optimization plot.ilqr_figure plot.tongue_figure
    certify.certified_tube certify.certified_set certify.certificate_figure certify.certified_region certify.proved_orbit_figure
    plot.work_precision_figure plot.points_figure plot.sweep_figure plot.attractor_figure plot.basin_figure
    plot.branch_diagram Diagram plot.diagram_figure
"""
SLOW = {f"hyjax.{name}" for name in _SLOW.split()}
PARSER = doctest.DocTestParser()


def sources(docstring: str) -> list[str]:
    return [each.source for each in PARSER.get_examples(docstring)]


# Those that begin alike stand together, so that one process runs them.
EXAMPLES = [
    pytest.param(each, id=each.path, marks=[pytest.mark.slow] if each.path in SLOW else [])
    for each in sorted(public_names(), key=lambda each: sources(each.docstring))
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


def names_only(statement: doctest.Example) -> bool:
    kinds = (ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef)
    return not statement.want and all(isinstance(each, kinds) for each in ast.parse(statement.source).body)


# The names that there are after the first statements of examples, by these statements.
begun: dict[tuple[str, ...], dict] = {(): {"hj": hj, "jax": jax, "jnp": jnp}}


@pytest.mark.medium
@pytest.mark.parametrize("each", EXAMPLES)
def test_example(each, quiet):
    import matplotlib.pyplot as plt

    statements = PARSER.get_examples(each.docstring)
    assert statements
    first = 0
    while first < len(statements) and names_only(statements[first]):
        first += 1
    lines, known = tuple(sources(each.docstring)), first
    while lines[:known] not in begun:
        known -= 1
    names, printed = begun[lines[:known]], []
    # One by one as far as others may begin alike, and then all that is left.
    for start, stop in [*((k, k + 1) for k in range(known, first)), (first, len(statements))]:
        place = each.path, str(each.file), each.node.lineno
        part = doctest.DocTest(statements[start:stop], names, *place, each.docstring)
        doctest.DocTestRunner(verbose=False).run(part, out=printed.append, clear_globs=False)
        assert not printed, "".join(printed)
        names = part.globs
        # Files and open figures are of this example alone.
        if stop <= first and not any(pathlib.Path.cwd().iterdir()) and not plt.get_fignums():
            begun[lines[:stop]] = names


def test_the_list_of_slow_examples_is_of_public_names():
    assert {each.path for each in public_names()} >= SLOW
