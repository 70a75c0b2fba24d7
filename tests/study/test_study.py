"""The solver study: its measures against closed forms, its counts against the methods' own numbers, its points against the paper.

The system is an oscillator with two springs, `springs.py`.
"""

from types import SimpleNamespace

import diffrax as dfx
import jax
import jax.numpy as jnp
import jaxtyping
import matplotlib
import numpy as np
import pytest
from counting import Counter
from numpy.testing import assert_allclose
from solver_tables import TABLE_3, TABLE_4, TABLE_5, TOLERANCES as PAPER_TOLERANCES
from springs import both, exact, START, system

import hyjax as hj
from hyjax._testing import divergence_time, integral_of_error, points, pyplot, Step, study_run

matplotlib.use("Agg")

END = 9.0
# Diffrax chooses another first step than hyjax: here both are given it.
DOPRI5 = hj.Integrator(dfx.Dopri5(), first_step=0.01, variations=False)
SOLVERS = {"Dopri5": DOPRI5, "Rosenbrock23": hj.solvers.Rosenbrock23(), "Radau5": hj.solvers.Radau5()}
TOLERANCES = (1e-3, 1e-5)
# Programs that are compiled anyway.
REFERENCE = {name: SOLVERS[name] for name in ("Dopri5", "Radau5")}


SETS = [{"below": jnp.array(3.0)}, {"below": jnp.array(2.0)}]


@pytest.fixture(scope="module")
def study():
    return hj.study.solver_study(
        system, START, SETS, mode="above", t1=END, solvers=SOLVERS, tolerances=TOLERANCES, combined=both, of="y",
        divergence=(0.01, 1e-4), near_zero=0.05, n_samples=181, reference=REFERENCE, timed=False, progress=False,
    )  # fmt: skip


@pytest.mark.medium
def test_reference_has_a_closed_form(study):
    """Local errors of 1e-12 in some hundred steps; every time, next to events too."""
    for k, params in enumerate(SETS):
        assert_allclose(study.reference[k, :, 0], exact(study.time, float(params["below"])), rtol=0, atol=1e-10)
    assert np.all(study.reference_error < 1e-10) and np.all(study.reference_error > 0)
    assert np.all(study.reference_result == 0) and np.all(study.result == 0)


def test_error_falls_with_the_tolerance(study):
    """Events located, or the kink integrated through: both converge, and each tolerance diverges later at its own threshold."""
    error = study.integral_of_error
    assert np.all(error.isel(rtol=1) < 0.2 * error.isel(rtol=0))
    # An error that is nowhere 1e-2 of what is measured has not diverged.
    small = study.integral_of_error < 1e-6
    assert np.all(study.divergence_time.values[small.values] == END)


def test_jumps(study):
    """After a quarter period, a jump at every zero until the end."""
    for k, params in enumerate(SETS):
        half = np.pi / float(params["below"])
        zeros = np.pi / 2 + np.cumsum([0, *[half, np.pi] * 4])
        assert np.all(study.jumps.sel(strategy="events")[..., k] == np.sum(zeros < END))
    assert np.all(study.jumps.sel(strategy="combined") == 0)


def test_evaluations_are_those_of_the_steps(study):
    """A step of Dormand and Prince has six new evaluations, since the last is the first of the next; one of Rosenbrock's method
    two, and one Jacobian. Radau: three of each in every iteration, of which a step has at least one; two evaluations and one
    Jacobian besides."""
    tried = study.steps_tried
    assert np.all(tried > 0) and np.all(study.steps_taken <= tried)
    for solver, evaluations, jacobians in (("Dopri5", 6, 0), ("Rosenbrock23", 2, 1)):
        one = study.sel(solver=solver)
        assert np.all(one.evaluations == evaluations * one.steps_tried)
        assert np.all(one.jacobians == jacobians * one.steps_tried)
    one = study.sel(solver="Radau5")
    iterations = (one.jacobians - one.steps_tried) / 3
    assert np.all(iterations >= one.steps_tried)
    assert np.all(one.evaluations == 3 * iterations + 2 * one.steps_tried)


def steep(t, x, p):
    return jnp.stack([x[1], 30 * (1 - x[0] ** 2) * x[1] - x[0] + jnp.sin(t)])


QUICK = [dfx.Dopri8(), dfx.Kvaerno3(), hj.solvers.Rosenbrock23(), hj.solvers.Radau5(), hj.solvers.NDF()]
MORE = [
    dfx.Dopri5(), dfx.Bosh3(), dfx.Heun(), dfx.ImplicitEuler(), hj.solvers.TRBDF2(), hj.solvers.Rodas5P(),
    hj.solvers.Trapezoidal(), hj.solvers.AdamsPECE(),
]  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize(
    "solver",
    [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in MORE)],
    ids=lambda each: type(each).__name__,
)
def test_work_of_a_step(solver):
    """The declared work of one step of every method, against callbacks in the vector field."""
    counter = Counter(steep)
    step = Step(solver, counter.field, None, False, "lax", 1e-3)
    t, x, h = jnp.array(0.2), jnp.array([1.5, 0.1]), jnp.array(0.05)
    f = jnp.asarray(steep(t, x, None))
    memory = step.init(t, x, f, h)
    jax.effects_barrier()
    before = counter.evaluations, counter.jacobians
    *_, iterations = jax.jit(step)(t, x, f, h, memory)
    iterations = int(iterations)
    jax.effects_barrier()
    work = step.work
    assert work is not None
    assert counter.evaluations - before[0] == work.evaluations + work.each_evaluations * iterations
    assert counter.jacobians - before[1] == work.jacobians + work.each_jacobians * iterations
    # Newton's method settles quadratically on this field: more than one iteration in each of its equations, and far from ten.
    assert (2 if work.each_jacobians else 0) <= iterations <= 20


def test_steps_are_those_of_diffrax(study):
    """The same field, solver and controller by `diffrax.diffeqsolve`, which has a loop of its own: the same steps, but for
    one that roundings of the times may add."""
    for i, tolerance in enumerate(TOLERANCES):
        solution = dfx.diffeqsolve(
            dfx.ODETerm(both), dfx.Dopri5(), 0.0, END, 0.01, START, SETS[0],
            stepsize_controller=dfx.PIDController(tolerance, tolerance),
        )  # fmt: skip
        found = study.sel(strategy="combined", solver="Dopri5").isel(rtol=i, set=0)
        assert abs(int(solution.stats["num_steps"]) - int(found.steps_tried)) <= 1
        assert abs(int(solution.stats["num_accepted_steps"]) - int(found.steps_taken)) <= 1


@pytest.mark.slow
def test_solver_of_each_mode(study):
    """One solver named for each mode is the run without names; another in one mode has Jacobians there alone, and each step
    has the work of its own solver."""
    rosenbrock = hj.Integrator(SOLVERS["Rosenbrock23"], variations=False)
    by_mode = {"same": {"above": DOPRI5, "below": DOPRI5}, "mixed": {"above": DOPRI5, "below": rosenbrock}}
    found = hj.study.solver_study(
        system, START, SETS, mode="above", t1=END, solvers=by_mode, tolerances=TOLERANCES, of="y", n_samples=181,
        reference=REFERENCE, timed=False, progress=False,
    )  # fmt: skip
    alone = study.sel(strategy="events", solver="Dopri5")
    same, mixed = (found.sel(strategy="events", solver=name) for name in by_mode)
    for name in ("steps_tried", "steps_taken", "jumps", "evaluations", "jacobians"):
        assert np.array_equal(same[name], alone[name])
    # Programs that differ in nothing but names may round differently.
    assert_allclose(same.integral_of_error, alone.integral_of_error, rtol=1e-6)
    implicit = mixed.jacobians
    assert np.all((implicit > 0) & (implicit < mixed.steps_tried))
    assert np.all(mixed.evaluations == 2 * implicit + 6 * (mixed.steps_tried - implicit))


def test_measures_have_closed_forms():
    t = np.linspace(0, 2, 2001)
    error, size = 0.1 * t, np.full_like(t, 1.0)
    # Trapezoids are exact for a straight line.
    assert_allclose(integral_of_error(t, error), 0.2, rtol=1e-12)
    assert_allclose(divergence_time(t, error, size, 0.05, 0.0), 0.5, atol=1.01e-3)
    assert divergence_time(t, error, size, 0.5, 0.0) == 2
    # A reference near zero is not looked at, until it is large again.
    small = np.where(t < 1.5, 0.01, 1.0)
    assert_allclose(divergence_time(t, error, small, 0.05, 0.05), 1.5, atol=1.01e-3)
    # A run that failed at 0.3 has left the reference there; without a reference nothing is known.
    failed = np.where(t < 0.3, 0.0, np.nan)
    assert_allclose(divergence_time(t, failed, size, 0.05, 0.0), 0.3, atol=1.01e-3)
    assert np.isnan(integral_of_error(t, failed)) and np.isnan(divergence_time(t, error, failed, 0.05, 0.0))


def test_timing_is_interleaved(monkeypatch):
    """By a clock that the programs advance: every round runs each, and one that took long is not run again."""
    now, ran = [0.0], []

    def program(name, *durations):
        each = iter(durations)

        def run():
            ran.append(name)
            now[0] += next(each)

        return run

    monkeypatch.setattr(study_run, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    programs = [program("a", 0.25, 1.0, 0.5), program("b", 2.0), program("c", 0.125, 0.125, 0.25)]
    taken = study_run.interleaved_durations(programs, 3, lambda _: None, 1.5)
    assert taken == [[0.25, 1.0, 0.5], [2.0], [0.125, 0.125, 0.25]]
    assert ran == ["a", "b", "c", "a", "c", "a", "c"]


def test_a_run_that_fails_has_a_code(study):
    """Ten steps in an arc are too few; the program is the one already compiled."""
    few = hj.study.solver_study(
        system, START, SETS, mode="above", t1=END, solvers={"Dopri5": DOPRI5}, tolerances=[1e-9], of="y", n_samples=181,
        max_steps=10, reference=REFERENCE, timed=False, progress=False,
    )  # fmt: skip
    assert np.all(few.result == int(hj.RESULTS.max_steps_reached._value))
    assert np.all(np.isnan(few.integral_of_error)) and np.all(few.divergence_time < END)
    assert np.all(few.steps_tried == 10) and "seconds" not in few


def test_points_of_the_paper():
    """Best 10, worst 1, linear between; of 13 sets at most 130 and at least 13; a failed run counts as the worst."""
    assert_allclose(points(np.array([0.0, 1.0, 4.0]), "largest"), [1, 3.25, 10])
    assert_allclose(points(np.array([0.0, 1.0, 4.0]), "smallest"), [10, 7.75, 1])
    assert_allclose(points(np.array([2.0, np.nan, 1.0]), "smallest"), [1, 1, 10])
    assert_allclose(points(np.array([2.0, 2.0]), "smallest"), [10, 10])
    assert_allclose(points(np.full(2, np.nan), "smallest"), [1, 1])
    with pytest.raises(ValueError, match="best='least' must be"):
        points(np.ones(2), "least")


def test_tables_of_the_paper():
    """Sums of 13 times 1 to 10 points; Table 5 is eq. 36 of Table 3, in the two decimals of both."""
    for table in (TABLE_3, TABLE_4):
        sums = np.array([table[tolerance] for tolerance in PAPER_TOLERANCES])
        assert sums.shape == (3, 7, 3) and np.all((sums >= 13) & (sums <= 130))
    duration, _, error = np.array(TABLE_3[1e-6]).T
    assert_allclose(2 * duration + error, TABLE_5, atol=1e-9)


def test_solver_points(study):
    import xarray

    steps = np.array([[1.0] * 13, [3.0] * 13, [2.0] * 13])
    dims = ("strategy", "rtol", "solver", "set")
    data = xarray.Dataset({"evaluations": (dims, steps[None, None]), "divergence_time": (dims, steps[None, None])})
    found = hj.study.solver_points(data)
    assert_allclose(found.evaluations[0, 0], [130, 13, 71.5])
    assert_allclose(found.divergence_time[0, 0], [13, 130, 71.5])
    # Of a study: one run of each tolerance has 10 points, over strategies, solvers and sets together.
    ours = hj.study.solver_points(study)
    assert ours.integral_of_error.dims == dims[:3] and "seconds" not in ours
    assert np.all((ours.to_array() >= len(SETS)) & (ours.to_array() <= 10 * len(SETS)))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"solvers": {}}, "solvers must name at least one"),
        ({"tolerances": ()}, "tolerances must have at least one"),
        ({"tolerances": (1e-17,)}, "rtol=1e-17"),
        ({"t1": -1.0}, "t1=-1.0"),
        ({"of": "z"}, "of='z' must be a coordinate"),
        ({"divergence": (0.1,)}, r"divergence=\(0.1,\)"),
        ({"n_samples": 1}, "n_samples=1"),
        ({"max_steps": 0}, "max_steps=0"),
        ({"reference": {"one": dfx.Dopri8()}}, "two methods"),
        ({"x0": [START]}, "1 states and params 2 sets"),
        ({"mode": "sideways"}, "'sideways' is not one of the modes"),
    ],
)
def test_misuse(changes, message):
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        given = dict(x0=START, params=SETS, mode="above", t1=END, solvers=SOLVERS, tolerances=TOLERANCES, of="y")
        given |= changes
        with pytest.raises(ValueError, match=message):
            hj.study.solver_study(system, given.pop("x0"), given.pop("params"), timed=False, **given)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.medium
def test_pictures(study):
    """A curve for each solver through its runs; the points of each tolerance and solver, and their ranks."""
    fig = hj.plot.work_precision_figure(study, sets=[2])
    assert [ax.get_title() for ax in fig.axes] == ["set 2, events", "set 2, combined"]
    drawn = fig.axes[1].get_lines()[1].get_xydata().T
    runs = study.sel(strategy="combined", solver="Rosenbrock23", set=2)
    assert np.array_equal(drawn, [runs.evaluations, runs.integral_of_error])
    assert len([ax for ax in hj.plot.work_precision_figure(study, strategies=["events"]).axes if ax.lines]) == len(SETS)
    ours = hj.study.solver_points(study)
    fig = hj.plot.points_figure(ours)
    panel = next(ax for ax in fig.axes if ax.get_title() == "evaluations, combined")
    written = np.array([int(text.get_text()) for text in panel.texts]).reshape(len(SOLVERS), len(TOLERANCES))
    values = ours.evaluations.sel(strategy="combined").transpose("solver", "rtol").values
    assert_allclose(written, values, atol=0.5)
    ranks = np.asarray(panel.images[0].get_array())
    assert all(sorted(column) == [1, 2, 3] for column in ranks.T)
    assert np.array_equal(np.argsort(ranks[:, 0]), np.argsort(-values[:, 0]))
    for wrong in ({"cost": "money"}, {"sets": [3]}, {"strategies": []}):
        with pytest.raises(ValueError, match="must be in the study"):
            hj.plot.work_precision_figure(study, **wrong)
    pyplot().close("all")
