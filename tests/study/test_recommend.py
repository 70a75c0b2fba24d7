"""The study of a quantity and the recommendation of an integrator, on an oscillator with two springs, `springs.py`."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import xarray
from numpy.testing import assert_allclose
from springs import exact, START, system

import hyjax as hj
from hyjax._testing import Recommendation

END = 4.0
PARAMS = {"below": jnp.array(3.0)}
TOLERANCES = (1e-4, 1e-7)
# Stages in a loop compile faster.
TSIT5 = hj.Integrator(dfx.Tsit5(), unroll=False, variations=False)
PHASES = {"above": TSIT5, "below": hj.Integrator(hj.solvers.Rodas5P(), variations=False)}
CANDIDATES = {"Tsit5": TSIT5, "by mode": PHASES}
# The programs of the candidates, at a smaller tolerance: nothing else is compiled.
REFERENCE = CANDIDATES
BATCH = jnp.array([[1.0, 0.0], [1.1, 0.1], [2.0, 0.0]])


@pytest.fixture(scope="module")
def found():
    return hj.study.recommend_integrator(
        system, BATCH, PARAMS, mode="above", t1=END, accuracy=1e-4, solvers=CANDIDATES, tolerances=TOLERANCES, rounds=3,
        reference=REFERENCE, progress=False,
    )  # fmt: skip


@pytest.mark.medium
def test_recommended_integrator_is_accurate(found):
    """The last lane is twice the first, by homogeneity: its height has a closed form. The scale of the error is the largest
    number of the batch, about 2; the integrator is that of the run."""
    best, chosen = found.best, found.integrator
    assert best is not None and chosen is not None and best.error <= 1e-4
    assert found.rows[0].name == best.name and all(
        best.seconds <= row.seconds for row in found.rows if found.meets(row)
    )
    end = hj.simulate(system, BATCH[2], PARAMS, mode="above", t1=END, max_jumps=10, integrator=chosen).x
    assert abs(end[0] - 2 * exact(END, 3.0)) < 2e-4
    assert found.known_to < 1e-10
    parts = list(chosen.values()) if isinstance(chosen, dict) else [chosen]
    assert all(part.rtol == part.atol == best.rtol for part in parts)


@pytest.mark.medium
def test_measured_errors(found):
    """Both candidates converge, and each was run in every round."""
    error = found.measured.error
    assert np.all(error.isel(rtol=1) < 0.02 * error.isel(rtol=0))
    assert found.measured.durations.dims == ("solver", "rtol", "round") and np.all(found.measured.durations > 0)


@pytest.mark.medium
def test_print_has_all_that_was_measured(found):
    text = str(found)
    assert "3 lanes under vmap" in text and "3 interleaved rounds" in text and "Tsit5, by mode at 1e-12" in text
    for row in found.rows:
        assert f"{row.rtol:.0e}  {row.error:.1e}" in text
    assert f"Recommended: {found.best.name} at rtol = {found.best.rtol:g}" in text


def test_error_and_tolerances_of_a_quantity():
    """A quantity made from the tolerances themselves: known errors, relative to the largest number of the reference."""
    numbers = lambda integrator: {"a": jnp.array([integrator.rtol - 2.0, 1.0]), "b": 1.0 + 0 * integrator.atol}
    for once in (False, True):
        study = hj.study.quantity_study(
            numbers, solvers={"Tsit5": dfx.Tsit5()}, tolerances=[(1e-3, 1e-2), 1e-6], compile_once=once, timed=False
        )  # fmt: skip
        # The reference has the tolerance 1e-12; numbers of size 1 round to 1e-16.
        assert_allclose(study.error.values, [[1e-3 / 2, 1e-6 / 2]], atol=1e-12)
        assert (
            study.atol.values.tolist() == [1e-2, 1e-6] and "seconds" not in study and float(study.reference_error) == 0
        )


@pytest.mark.slow
def test_study_of_a_derivative():
    """The derivative of the height by the frequency, against that of the closed form by differences, 1e-9 at best."""
    from scipy.differentiate import derivative as differences

    def derivative(integrator):
        end = lambda w: (
            hj.simulate(system, START, {"below": w}, mode="above", t1=END, max_jumps=10, integrator=integrator).x
        )
        return {"d": jax.jacfwd(end)(jnp.array(3.0))[0]}

    reference = {"Dopri8": dfx.Dopri8(), "Tsit5": dfx.Tsit5()}
    study = hj.study.quantity_study(
        derivative, solvers={"Tsit5": dfx.Tsit5()}, tolerances=[(1e-6, 1e-8)], reference=reference, timed=False, progress=False
    )  # fmt: skip
    assert float(study.atol[0]) == 1e-8 and "seconds" not in study
    slope = differences(lambda w: np.vectorize(exact)(END, w), 3.0).df
    mine = float(derivative(hj.Integrator(dfx.Tsit5(), rtol=1e-6, atol=1e-8))["d"])
    # Two programs round differently; the error of the study is relative to the reference.
    assert_allclose(float(study.error[0, 0]), abs(mine - slope) / abs(slope), rtol=1e-2, atol=1e-8)
    assert float(study.reference_error) < 1e-9


def made(errors, durations, known_to=0.0, accuracy=1e-3):
    """A recommendation from numbers: a candidate in each row, at one tolerance."""
    durations = np.array(durations, float)[:, None]
    data = {
        "error": (("solver", "rtol"), np.array(errors, float)[:, None]),
        "seconds": (("solver", "rtol"), np.nanmedian(durations, axis=2)),
        "durations": (("solver", "rtol", "round"), durations),
        "reference_error": ((), known_to),
    }
    names = [f"c{k}" for k in range(len(errors))]
    about = {"reference": "A, B", "reference_tolerance": 1e-12, "rounds": durations.shape[2], "device": "cpu"}
    study = xarray.Dataset(data, {"solver": names, "rtol": [1e-6], "atol": ("rtol", [1e-6])}, about)
    return Recommendation(study, accuracy, "numbers", {name: [hj.Integrator(rtol=1e-6, atol=1e-6)] for name in names})


def test_noise_and_failure():
    """By paired rounds: slower in all but one is slower; in fewer, not told apart. A failed run is never chosen."""
    quick = [1.0, 1.0, 1.0, 9.0, 1.0]
    found = made(
        [1e-4, 1e-4, 1e-5, np.nan, 1e-2], [quick, [2, 2, 2, 2, 2], [2, 2, 0.9, 0.9, 1.1], [0.1] * 5, [0.1] * 5]
    )
    assert found.best.name == "c0" and [row.name for row in found.ties] == ["c2"]
    assert "failed" in str(found) and "not to be told apart: c2 at 1e-06" in str(found)
    # One round each says little: half as slow again.
    few = made([1e-4, 1e-4, 1e-4], [[1.0, np.nan], [1.4, np.nan], [1.6, np.nan]])
    assert [row.name for row in few.ties] == ["c1"]
    for found, why in (
        (made([1e-2], [[1.0]]), "no candidate is accurate"),
        (made([1e-4], [[1.0]], 1e-3), "references disagree"),
    ):
        assert found.best is None and found.integrator is None and found.ties == [] and why in str(found)


def test_the_integrator_is_that_of_the_best_run():
    """Of three pairs of tolerances, of which two have one rtol, and of two candidates."""
    pairs = [(1e-10, 0.1), (1e-10, 1e-12), (1e-4, 1e-12)]
    errors, seconds = np.array([[1e-5, 1e-10, 1e-3], [1e-2, 1e-4, 1e-8]]), np.array([[1.0, 3.0, 1.0], [1.0, 1.0, 2.0]])
    data = {
        "error": (("solver", "rtol"), errors), "seconds": (("solver", "rtol"), seconds),
        "durations": (("solver", "rtol", "round"), seconds[..., None]), "reference_error": ((), 0.0),
    }  # fmt: skip
    about = {"reference": "A, B", "reference_tolerance": 1e-12, "rounds": 1, "device": "cpu"}
    rtols, atols = map(list, zip(*pairs, strict=True))
    study = xarray.Dataset(data, {"solver": ["a", "b"], "rtol": rtols, "atol": ("rtol", atols)}, about)
    every = {name: [hj.Integrator(rtol=r, atol=a) for r, a in pairs] for name in "ab"}
    for accuracy, name, k in ((1e-4, "a", 0), (1e-6, "b", 2), (1e-9, "a", 1)):
        found = Recommendation(study, accuracy, "numbers", every)
        assert found.integrator is every[name][k] and (found.best.rtol, found.best.atol) == pairs[k]
        assert f"Recommended: {name} at rtol = {pairs[k][0]:g} (atol {pairs[k][1]:g})" in str(found)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"accuracy": 2.0}, "accuracy=2.0"),
        ({"solvers": {}}, "at least one"),
        ({"solvers": {"half": {"above": hj.Integrator()}}}, "'below'"),
        ({"t1": -1.0}, "t1="),
        ({"mode": "sideways"}, "'sideways'"),
        ({"x0": jnp.ones(3)}, "shape"),
        ({"x0": jnp.ones((0, 2))}, "shape"),
        ({"x0": jnp.ones((2, 2, 2))}, "shape"),
        ({"x0": jnp.ones(2, jnp.float32)}, "x0 has the dtype float32, in which there is no reference run"),
        ({"rounds": 0}, "rounds=0"),
        ({"tolerances": (1e-17,)}, "rtol=1e-17"),
        ({"max_jumps": -1}, "max_jumps=-1"),
    ],
)
def test_misuse(changes, message):
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        given = dict(x0=START, params=PARAMS, mode="above", t1=END, solvers=CANDIDATES, tolerances=TOLERANCES) | changes
        with pytest.raises(ValueError, match=message):
            hj.study.recommend_integrator(system, given.pop("x0"), given.pop("params"), **given)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_a_reference_that_fails():
    with pytest.raises(ValueError, match="not finite for the reference"):
        hj.study.quantity_study(
            lambda integrator: jnp.array(jnp.nan), solvers=CANDIDATES, tolerances=[1e-3], progress=False
        )
    single = lambda integrator: jnp.array(jnp.nan, jnp.float32)
    with pytest.raises(ValueError, match="computed in float32, which cannot resolve reference_tolerance=1e-12"):
        hj.study.quantity_study(single, solvers=CANDIDATES, tolerances=[1e-3], progress=False)
