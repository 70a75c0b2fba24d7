"""Optimal orbits of a leaky integrator, in closed form, and the optimal gait of the powered walker by independent routes."""

import dataclasses
import functools as ft
import re

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from jaxtyping import Array, Float
from numpy.testing import assert_allclose
from pages import cells
from recorded import Recorded
from same_bits import require_equal

import hyjax as hj
from hyjax._testing import ActiveSetChange, leaving, OptimumBranch
from hyjax.models import powered_walker as walker

# y' = drive - y from 0 to the threshold 1, which is reached at T = log(drive / (drive - 1)); no orbit for a drive up to 1. The
# state is the age, in which y is known: a solver that is quick to compile is exact.
exact = hj.Integrator(solver=dfx.Bosh3(), rtol=1e-13, atol=1e-13, unroll=False)


class Drive(eqx.Module):
    drive: Float[Array, ""] = eqx.field(default=2.0, converter=jnp.asarray)
    threshold: Float[Array, ""] = eqx.field(default=1.0, converter=jnp.asarray)
    gain: Float[Array, ""] = eqx.field(default=1.0, converter=jnp.asarray)
    weights: Float[Array, "2"] = eqx.field(default=(1.0, 1.0), converter=jnp.asarray)
    target: Float[Array, ""] = eqx.field(default=1.0, converter=jnp.asarray)
    prices: Float[Array, "2"] = eqx.field(default=(1.0, 0.0), converter=jnp.asarray)

    def level(self, age):
        return self.drive * self.gain * self.weights[0] * self.weights[1] * (1 - jnp.exp(-age))


# By name, so that a worker of an executor finds the same functions, and the program that is compiled.
def run_clock(t, x, p):
    return jnp.ones_like(x) + 0 * p.drive


def below_threshold(t, x, p):
    return p.threshold - p.level(x[0])


def restart(t, x, p):
    return jnp.zeros_like(x) + 0 * p.drive


leaky = hj.HybridSystem(
    modes={"rise": hj.Mode(run_clock, coordinates=("age",))},
    transitions=(hj.Transition("rise", "rise", guard=below_threshold, reset=restart),),
)


def period_of(drive):
    return np.log(drive / (drive - 1))


def drive_of(period):
    return 1 / (1 - np.exp(-period))


def off_target(orbit, params):
    """The least is at the target, the other minimum, higher, near a period longer by 2; or the drive alone: by the prices."""
    away = orbit.period - params.target
    return params.prices @ jnp.stack([away**2 * ((away - 2) ** 2 + 0.1), params.drive])


def nearest(orbit, params):
    return (orbit.period - params.weights[1]) ** 2


def drive(orbit, params):
    return params.drive


@pytest.fixture(scope="module")
def pulse():
    return orbit_at(2.0)


def orbit_at(drive, **params):
    return hj.periodic_orbit(
        hj.ReturnMap(leaky, sequence=("rise",), integrator=exact), jnp.zeros(1), Drive(drive, **params)
    )


def the_drive(p):
    return p.drive


def optimum_of(pulse, objective, **options):
    return hj.optimize(pulse, objective, where=the_drive, **options)


def several_starts(pulse, longest=50.0, starts=20, **options):
    """From eight starts at a time, by one program for all tests: with a limit of the period, which is far away by default."""
    limit = hj.Constraint(hj.objectives.period, at_most=longest)
    return optimum_of(pulse, off_target, constraints=limit, starts=starts, **options)


@pytest.fixture(scope="module")
def several(pulse):
    return several_starts(pulse, bounds=(1.01, 5.0))


@pytest.mark.medium
def test_several_starts(several, pulse):
    """One test, for each process compiles the program."""
    closed_form(several)
    starts_lead_to_both_minima(several)
    starts_by_an_executor(several, pulse)
    bounds_and_multipliers()
    a_lost_gait_shortens_the_step()


def closed_form(several):
    # The residual of the optimality conditions is rounding, and the optimum as accurate as its condition, of order 1, allows.
    assert several.result == hj.RESULTS.successful
    assert float(several.error) < 1e-13 and abs(float(several.value)) < 1e-25
    np.testing.assert_allclose(several.params.drive, drive_of(1), rtol=1e-12)
    np.testing.assert_allclose(several.orbit.period, 1, rtol=1e-12)
    # Differences of fourth order and spacing 2e-4: 1e-15 times fifth derivatives of 1e3 and rounding of 1e-12.
    assert float(several.gradient_error) < 1e-8
    assert several.before.params.drive == 2 and float(several.value_before) == pytest.approx(
        float(off_target(several.before, several.before.params))
    )


def starts_lead_to_both_minima(several):
    starts = several.starts
    assert set(np.asarray(starts.optimum)) == {0, 1}
    assert float(several.value) == pytest.approx(float(jnp.min(starts.values)), abs=1e-25)
    other = np.asarray(starts.unknowns)[np.asarray(starts.optimum) == 1]
    slope = lambda T: 2 * (T - 1) * ((T - 3) ** 2 + 0.1) + (T - 1) ** 2 * 2 * (T - 3)
    np.testing.assert_allclose(slope(period_of(other)), 0, atol=1e-9)
    assert np.all(np.abs(period_of(other) - 3) < 0.2)
    text = str(several)
    head, *rows = cells(several._repr_html_())
    assert head == ["", "unit", "before", "after", ""] and [row[0] for row in rows][:2] == ["objective", "drive"]
    for row in rows:
        assert " ".join(f"{row[0]} {row[2]} {row[3]} {row[4]}".split()) in " ".join(text.split())
    assert "optimum 1" in text and "optimum 2" in text and "drive" in text and "before" in text


@pytest.mark.medium
def test_optima_in_files(several, tmp_path):
    """The optimum, and a branch of two of them, to the last bit; the objective is given again, or absent."""
    path, again = tmp_path / "optimum.npz", tmp_path / "again.npz"
    limits = tuple(
        hj.Constraint(fn, at_most=9.0, name=name) for fn, name in ((hj.objectives.period, "T"), (drive, "d"))
    )
    values = lambda gait: (gait.constraints, gait.constraints_before)
    gait = eqx.tree_at(values, several, (jnp.array([8.0, 7.0]), jnp.array([6.0, 5.0])))
    gait = eqx.tree_at(lambda gait: gait.multipliers, gait, jnp.zeros(2))
    gait = eqx.tree_at(lambda gait: gait.active, gait, jnp.array([False, False]))
    program = dataclasses.replace(gait.program, constraints=limits, rows=((0, 1), (0, 1)))
    gait = dataclasses.replace(gait, program=program)
    rows = np.zeros((2, 2))
    branch = OptimumBranch(
        numbers=np.array([1.0, 2.0]), values=np.array([0.1, 0.2]), unknowns=rows[:, :1], multipliers=rows,
        bound_multipliers=rows[:, :1], active=rows > 0, orbits=jax.tree.map(lambda x: jnp.stack([x, x]), gait.orbit),
        changes=(ActiveSetChange(1.5, "T <= 9", True),), result=hj.RESULTS.successful, name="T", names=("drive",),
        labels=("T <= 9", "d <= 9"),
    )  # fmt: skip
    hj.save(path, {"gait": gait, "branch": branch})
    assert set(hj.load(path, describe=True)["functions"]) == {"off_target", "drive"}
    given = {"system": leaky, "params": Drive()}
    functions = {"off_target": off_target, "drive": drive}
    require_equal({"gait": gait, "branch": branch}, hj.load(path, **given, functions=functions))
    # Without its functions: the same text and names, and saved again the same file.
    absent = hj.load(path, **given)
    assert str(absent["gait"]) == str(gait) and re.search(r"d <= 9 +4 +2 +inactive, by 7", str(gait))
    require_equal(branch, absent["branch"])
    assert absent["gait"].program.objective.__name__ == "off_target"
    with pytest.raises(
        ValueError, match=r"'off_target' is needed here.*optimum\.npz'.*functions=\{'off_target': \.\.\.\}"
    ):
        optimum_of(several.before, absent["gait"].program.objective)
    hj.save(again, absent)
    require_equal({"gait": gait, "branch": branch}, hj.load(again, **given, functions=functions))
    with pytest.raises(ValueError, match="functions has 'effort'; the file names 'off_target', 'drive'"):
        hj.load(path, **given, functions={"effort": effort})
    with pytest.warns(UserWarning, match="source of the function drive has changed since the result was saved on 20"):
        hj.load(path, **given, functions={"drive": nearest})


def starts_by_an_executor(here, pulse):
    """Eight starts are one chunk, by the same program: the same bits as by threads of this process."""
    executor = Recorded()
    by_executor = several_starts(pulse, executor=executor, bounds=(1.01, 5.0))
    # Eight, eight and four starts; and the differences that check the gradient.
    assert len(executor.sent) == 4 and by_executor.starts.values.shape == (20,)
    for name in ("value", "gradient", "gradient_error", "error", "best", "orbit", "starts"):
        leaves = zip(
            *(jax.tree.leaves(eqx.filter(getattr(each, name), eqx.is_array)) for each in (by_executor, here)),
            strict=True,
        )
        for found, expected in leaves:
            np.testing.assert_array_equal(found, expected, err_msg=name)
    assert by_executor.orbit.system is pulse.system


def bounds_and_multipliers():
    """The least drive whose period is at most 0.5; a bound in place of the constraint; and a period that no drive has."""
    least = ft.partial(several_starts, orbit_at(2.0, prices=(0.0, 1.0)), starts=jnp.full((9, 1), 3.5))
    found = least(longest=0.5, bounds=(1.1, 10.0))
    np.testing.assert_allclose(found.value, drive_of(0.5), rtol=1e-13)
    # One more unit of the limit b changes the least drive by d/db 1/(1 - exp(-b)); the row is b - T.
    change = -np.exp(-0.5) / (1 - np.exp(-0.5)) ** 2
    np.testing.assert_allclose(found.multipliers, [-change], rtol=1e-11)
    assert bool(found.active[0]) and "period <= 0.5" in str(found)
    bound = least(longest=0.5, bounds=(3.0, 10.0))
    np.testing.assert_allclose(bound.value, 3, rtol=1e-15)
    np.testing.assert_allclose(bound.bound_multipliers, [1], rtol=1e-13)
    assert not bool(bound.active[0]) and "lower bound" in str(bound)
    with pytest.raises(RuntimeError, match="constraints are violated"):
        least(longest=-1.0, bounds=(1.05, 4.0))


def a_lost_gait_shortens_the_step():
    """The period 9 asks for the drive 1.000123, and trials below 1 have no orbit: each is recorded."""
    found = several_starts(orbit_at(2.0, target=9.0), bounds=(0.2, 3.0), starts=jnp.full((9, 1), 2.0))
    np.testing.assert_allclose(found.params.drive, drive_of(9), rtol=1e-10)
    lost = ~np.isfinite(np.asarray(found.history.objective))
    assert lost.any() and not np.asarray(found.history.accepted)[lost].any()
    assert np.all(np.asarray(found.history.codes)[lost] != hj.RESULTS.successful._value)
    names = np.array(found.history.names)
    assert set(names[~lost]) == {"successful"} and "no_crossing" in names[lost]


@pytest.mark.medium
def test_reverse_mode(pulse):
    """Derivatives in reverse mode, of numbers in an array too."""
    found = hj.optimize(
        pulse,
        nearest,
        where=lambda p: (p.drive, p.weights),
        bounds=[(1.5, 3.0), (0.5, 2.0)],
        integrator=hj.Integrator(dfx.Bosh3(), rtol=1e-13, atol=1e-13, adjoint=dfx.RecursiveCheckpointAdjoint()),
    )
    # A family of minima, all with the value 0: the period is the second weight.
    np.testing.assert_allclose(found.orbit.period, found.params.weights[1], rtol=1e-7)
    assert found.names == ["drive", "weights[0]", "weights[1]"]
    assert float(found.gradient_error) < 1e-8


@pytest.mark.medium
def test_jit_and_vmap(pulse):
    """The period asked for as a parameter of a batch: a function of the least drive, with one lane that is infeasible."""

    @jax.jit
    @jax.vmap
    def least(limit):
        constraint = hj.Constraint(hj.objectives.period, equals=limit)
        found = optimum_of(pulse, drive, constraints=constraint, bounds=(1.05, 4.0), throw=False)
        return found.value, found.result

    limits = jnp.array([0.5, 1.0, -1.0, 2.0])
    values, codes = least(limits)
    good = np.array([0, 1, 3])
    np.testing.assert_allclose(values[good], drive_of(np.asarray(limits)[good]), rtol=1e-12)
    assert [int(code) for code in codes._value] == [0, 0, int(hj.RESULTS.infeasible._value), 0]


MISUSE = {
    "starts=0": dict(starts=0),
    "two finite bounds": dict(starts=3),
    "shape": dict(starts=jnp.ones((3, 2))),
    "low < high": dict(bounds=(3.0, 2.0)),
    "each of the 1 parameters": dict(bounds=[(1.0, 2.0), (1.0, 2.0)]),
    "is not a constraint": dict(constraints=(lambda orbit, params: orbit.period,)),
    "first derivatives only": dict(
        method=hj.objectives.InteriorPoint(second_order=True),
        integrator=hj.Integrator(adjoint=dfx.RecursiveCheckpointAdjoint()),
    ),
}


@pytest.mark.parametrize("message", MISUSE)
def test_misuse(pulse, message):
    with pytest.raises(ValueError, match=message):
        optimum_of(pulse, drive, **MISUSE[message])


def test_misuse_of_objective_and_constraint(pulse):
    with pytest.raises(ValueError, match="must return a number"):
        optimum_of(pulse, lambda orbit, params: orbit.x)
    with pytest.raises(ValueError, match="leaves of the parameters"):
        hj.optimize(pulse, drive, where=lambda p: 2.0)
    for limits in ({}, dict(equals=1.0, at_most=2.0), dict(at_least=2.0, at_most=1.0), dict(equals=jnp.nan)):
        with pytest.raises(ValueError, match="Constraint 'period'"):
            hj.Constraint(hj.objectives.period, **limits)
    with pytest.raises(ValueError, match="max_iterations=0"):
        hj.objectives.InteriorPoint(max_iterations=0)


def effort(orbit, params):
    """Of drive and gain, or the drive alone: by the prices."""
    return params.prices @ jnp.stack([params.drive**2 + (params.gain - 1) ** 2, params.drive])


def least_effort_at(pulse, period, least_drive, bounds):
    """At a period, with a least drive. All share one program, and one for the optima over the period."""
    return hj.optimize(
        pulse,
        effort,
        where=lambda p: (p.drive, p.gain),
        bounds=bounds,
        constraints=(
            hj.Constraint(hj.objectives.period, equals=period, name="T"),
            hj.Constraint(drive, at_least=least_drive),
        ),
        method=hj.objectives.InteriorPoint(second_order=True),
    )


@pytest.fixture(scope="module")
def least_effort(pulse):
    """Of drive and gain at the period 2: gain (gain - 1) = drive^2, and their product is that of the period."""
    return least_effort_at(pulse, 2.0, 0.05, [(0.1, 4.0), (0.2, 1.5)])


@pytest.mark.slow
def test_optimum_over_a_limit(least_effort):
    over_a_limit(least_effort)
    exchange_at_a_vertex()
    over_a_parameter(least_effort)


def over_a_limit(least_effort):
    """The gain reaches its bound 1.5 where drive^2 = 0.75, and stays there."""
    branch = hj.follow_optimum(least_effort, limit="T", stop=1.0, n_points=10)
    assert branch.result == hj.RESULTS.successful and branch.numbers[-1] == 1
    at_bound = period_of(1.5 * np.sqrt(0.75))
    (change,) = branch.changes
    assert change.name == "upper bound of gain" and change.active
    np.testing.assert_allclose(change.number, at_bound, rtol=1e-10)
    drive, gain = branch.unknowns.T
    np.testing.assert_allclose(drive * gain, drive_of(branch.numbers), rtol=1e-12)
    before = branch.numbers > change.number
    assert 1 < before.sum() < len(branch) - 1
    np.testing.assert_allclose(gain[before] * (gain[before] - 1), drive[before] ** 2, rtol=1e-9)
    np.testing.assert_allclose(gain[~before], 1.5, rtol=1e-11)
    # The multiplier is the derivative of the value by the limit, also across the change: the value is once differentiable.
    slope = np.gradient(branch.values, branch.numbers, edge_order=2)
    np.testing.assert_allclose(branch.multipliers[1:-1, 0], slope[1:-1], rtol=0.05)
    assert "upper bound of gain becomes active" in str(branch)
    assert list(branch.to_pandas()) == ["T", "objective", "drive", "gain", "period", "spectral radius"]


def exchange_at_a_vertex():
    """The least drive at a period, with drive times gain given by the period: the gain is at its upper bound 1.5, until the drive
    has fallen to 0.9, then falls itself, to its lower bound 1.2, where the longer periods contradict the bounds."""
    least = least_effort_at(orbit_at(2.0, prices=(0.0, 1.0)), 1.0, 0.9, [(0.1, 4.0), (1.2, 1.5)])
    branch = hj.follow_optimum(least, limit="T", stop=4.0, n_points=10, throw=False)
    assert branch.result == hj.RESULTS.infeasible
    names = [(change.name, change.active) for change in branch.changes]
    assert names == [("drive >= 0.9", True), ("upper bound of gain", False), ("lower bound of gain", True)]
    numbers = [change.number for change in branch.changes]
    np.testing.assert_allclose(numbers, [period_of(1.35), period_of(1.35), period_of(1.08)], rtol=1e-10)
    assert branch.numbers[-1] == numbers[-1] and len(branch.active) == len(branch)
    product = drive_of(branch.numbers)
    # A change is located to 1e-11 of a constraint.
    np.testing.assert_allclose(branch.values, np.maximum(product / 1.5, 0.9), rtol=2e-11)
    np.testing.assert_allclose(branch.unknowns[:, 1], np.minimum(1.5, product / 0.9), rtol=2e-11)
    # The multiplier of the drive's limit is the derivative of the value by the limit: 0, then 1.
    after = branch.numbers >= numbers[0]
    np.testing.assert_allclose(branch.multipliers[:, 1], after, rtol=0, atol=1e-10)


def over_a_parameter(least_effort):
    """The threshold scales the drive: T = log(I / (I - threshold))."""
    with pytest.raises(ValueError, match="itself optimized"):
        hj.follow_optimum(least_effort, where=lambda p: p.gain, stop=1.0)
    with pytest.raises(ValueError, match="name one of the constraints"):
        hj.follow_optimum(least_effort, limit="speed", stop=1.0)
    with pytest.raises(ValueError, match=r"either .where"):
        hj.follow_optimum(least_effort, stop=1.0)
    with pytest.raises(ValueError, match="is the value of the gait itself"):
        hj.follow_optimum(least_effort, limit="T", stop=2.0)
    branch = hj.follow_optimum(least_effort, where=lambda p: p.threshold, stop=0.7, n_points=4)
    drive, gain = branch.unknowns.T
    np.testing.assert_allclose(drive * gain, branch.numbers / (1 - np.exp(-2.0)), rtol=1e-12)
    np.testing.assert_allclose(gain * (gain - 1), drive**2, rtol=1e-9)
    assert branch.numbers[0] == 1 and branch.numbers[-1] == 0.7 and not branch.changes


def test_which_constraint_leaves_a_vertex():
    """Minimize x + 2y for x, y >= 0: at the origin both multipliers are those of the objective."""
    normals, multipliers = np.eye(2), np.array([1.0, 2.0])
    # A constraint that shifts through the origin: the optimum moves along the cheaper axis.
    assert leaving(normals, multipliers, 0, np.array([1.0, 1.0])) == 0
    assert leaving(normals, multipliers, 0, np.array([1.0, 3.0])) == 1
    assert leaving(normals, multipliers, 1, np.array([1.0, 1.0])) == 1
    assert leaving(normals, multipliers, 0, np.array([-1.0, -1.0])) is None
    assert leaving(normals[:1], multipliers[:1], 0, np.array([1.0, 1.0])) == -1


@pytest.mark.medium
def test_integral_over_the_orbit(pulse):
    """Of the drive times the age, to T = log 2: I T^2 / 2, which the solver integrates exactly."""
    whole = hj.objectives.integral(lambda t, x, p: p.drive * x[0])
    value, slope = jax.jit(jax.value_and_grad(lambda v: whole(orbit_at(v), Drive(v))))(2.0)
    np.testing.assert_allclose(value, np.log(2) ** 2, rtol=1e-13)
    # T^2 / 2 + I T dT/dI at I = 2, with dT/dI = -1 / (I (I - 1)).
    np.testing.assert_allclose(slope, np.log(2) ** 2 / 2 - np.log(2), rtol=1e-12)
    with pytest.raises(ValueError, match="not modes"):
        hj.objectives.integral({"fall": lambda t, x, p: x[0]})(pulse, pulse.params)


@pytest.fixture(scope="module")
def cheapest():
    """The cheapest gait of the powered walker at the speed 0.4, up to a stiffness of the hip."""
    params = walker.Params()
    gait = walker_at(walker.guess(params), params)
    return lambda speed: hj.optimize(
        gait,
        cost,
        where=lambda p: (p.push_off, p.stiffness),
        constraints=hj.Constraint(SPEED, equals=speed),
        bounds=[(0.01, 0.5), (0.0, 6.0)],
    )


def walker_at(guess, params):
    # What is compiled in half the time.
    integrator = hj.Integrator(unroll=False)
    return hj.periodic_orbit(
        hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=integrator), guess, params, throw=False
    )


SPEED = hj.objectives.speed(walker.travel)


def cost(orbit, params):
    return params.push_off**2 / (4 * jnp.sin(orbit.x[0]))


@pytest.mark.medium
def test_powered_walker(cheapest):
    found = cheapest(0.4)
    # By BFGS updates the residual is that which the method accepts, the value's error its square.
    assert float(found.error) < 1e-7 and float(found.gradient_error) < 1e-9
    np.testing.assert_allclose(SPEED(found.orbit, found.params), 0.4, rtol=1e-13)
    # Kuo's gait, from which the search starts: speed and cost as stored by him, to nine digits.
    np.testing.assert_allclose(SPEED(found.before, found.before.params), 0.399628681, atol=5e-10)
    np.testing.assert_allclose(found.value_before, 0.025241289, atol=5e-10)
    # The digits that docs/theory/optimization.md prints.
    np.testing.assert_allclose(found.value, 0.0131071620558, rtol=0, atol=6e-14)
    # The multiplier is the derivative of the least cost by the speed. Central differences of spacing 1e-3: 1e-6 of it.
    rise = (cheapest(0.401).value - cheapest(0.399).value) / 2e-3
    np.testing.assert_allclose(found.multipliers, [rise], rtol=1e-4)

    # A method without derivatives, on the same orbits: at each stiffness the push-off that gives the speed.
    orbit_of = lambda push_off, stiffness: walker_at(
        found.orbit.x, walker.Params(push_off=push_off, stiffness=stiffness)
    )

    def at(stiffness):
        off = lambda push_off: float(SPEED(orbit := orbit_of(push_off, stiffness), orbit.params)) - 0.4
        push_off = scipy.optimize.brentq(off, 0.1115, 0.1135, xtol=1e-14)
        orbit = orbit_of(push_off, stiffness)
        return float(cost(orbit, orbit.params))

    bounded = scipy.optimize.minimize_scalar(at, bounds=(5.95, 6.0), method="bounded", options=dict(xatol=1e-7))
    # SciPy ends within its tolerance of the bound, where the cost still falls by 0.0015 per unit.
    np.testing.assert_allclose(bounded.fun, found.value, rtol=1e-6)


@pytest.mark.medium
def test_the_gain_of_a_loop_at_rest():
    """An orbit at the origin has no size, beside which another one could be far. A gain that takes the state to rest in one tick
    is the minimum of the squared multiplier."""
    flow = lambda t, x, p: jnp.stack([x[1] - x[0]])
    loop = hj.HybridSystem(
        {"m": hj.Mode(flow, ("x",), held=("u",))}, (hj.every(1.0, lambda t, x, p: jnp.stack([x[0], -p * x[0]])),)
    )
    step = hj.ReturnMap(
        loop, sequence=("m",), integrator=hj.Integrator(dfx.Tsit5(), rtol=1e-11, atol=1e-11, unroll=False)
    )
    rest = hj.periodic_orbit(step, jnp.array([0.1, 0.0]), jnp.array(0.8))
    best = hj.optimize(
        rest, lambda orbit, p: jnp.trace(orbit.return_jacobian) ** 2, where=lambda p: p, bounds=[(-3.0, 3.0)]
    )
    # e^-1 = k (1 - e^-1). `accept` is 1e-7, of a gradient in units of its size.
    assert_allclose(best.params, 1 / (np.e - 1), rtol=0, atol=1e-7)


@pytest.mark.medium
def test_parameters_that_are_no_arrays():
    """An integer, a text and a function beside the optimized number: a neuron v' = 2.5 - v that fires at a threshold, raised by
    `a` with each spike and falling to 1 in the time 3, has the period T where 2.5 (1 - exp(-T)) = 1 + a/(exp(T/3) - 1)."""
    leak = hj.Mode(lambda t, x, p: jnp.stack([p["law"](2.5) - x[0], -(x[1] - 1) / p["tau"]]), ("v", "threshold"))
    spike = hj.Transition(
        "rest", "rest", lambda t, x, p: x[1] - x[0], lambda t, x, p: jnp.stack([0 * x[0], x[1] + p["a"]])
    )
    step = hj.ReturnMap(hj.HybridSystem({"rest": leak}, (spike,)), sequence=("rest",))
    params = {"tau": 3, "a": jnp.array(0.6), "label": "cell", "law": jnp.abs}
    orbit = hj.periodic_orbit(step, jnp.array([0.0, 2.2]), params)
    found = hj.optimize(orbit, lambda orbit, p: (orbit.period - 1.6) ** 2, where=lambda p: p["a"], bounds=[(0.4, 5.0)])
    assert_allclose(found.params["a"], (2.5 * (1 - np.exp(-1.6)) - 1) * (np.exp(1.6 / 3) - 1), rtol=1e-7)
    assert found.params["label"] == "cell" and found.params["tau"] == 3
