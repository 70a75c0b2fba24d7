"""The curve of optima over a number, of a quadratic program in closed form: tangent, changes of the active set, units."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import (
    _by_limit,
    ActiveSet,
    exchange,
    Optimum,
    OptimumCurve,
    OrbitProgram,
    ProgramExpansion,
    SingleShooting,
    unknowns_of,
)

INF = math.inf


def functions(u, q):
    """The squared distance from (q, 2q), and limits of the sum of both unknowns, 10 and 3."""
    away = u - jnp.stack([q, 2 * q])
    return jnp.stack([away @ away / 2, 10 - u[0] - u[1], 3 - u[0] - u[1]])


class Plane:
    """The family of these functions, in `units`; it counts its evaluations."""

    def __init__(self, units=(1.0, 1.0, 1.0), bend=1.0):
        self.evaluations = 0
        scale = jnp.array(units) * jnp.array([bend, 1, 1])
        fn = lambda u, q: scale * functions(u, q)
        by_u = jax.jacfwd(fn)
        self.all = jax.jit(
            lambda u, q: (
                fn(u, q),
                by_u(u, q),
                jax.jacfwd(by_u)(u, q),
                jax.jacfwd(fn, 1)(u, q),
                jax.jacfwd(by_u, 1)(u, q),
            )
        )

    def expansion(self, u, number, at):
        self.evaluations += 1
        return (
            ProgramExpansion(*(np.asarray(each) for each in self.all(jnp.asarray(u), jnp.asarray(number)))),
            at,
            hj.RESULTS.successful,
        )


def curve_of(family: Any) -> OptimumCurve:
    return OptimumCurve(family.expansion, 0, (np.array([-INF, -INF]), np.array([INF, 2.5])))


KNOWN: Any = None
NONE = ActiveSet(np.array([False, False]), np.array([False, False]), np.array([False, False]))
ON_SUM = NONE._replace(inequalities=np.array([False, True]))
ON_BOTH = ON_SUM._replace(high=np.array([False, True]))


def at(curve, number, active, u=(0.0, 0.0)):
    found, code = curve.solved(number, np.array(u), np.zeros(2), active, KNOWN)
    assert found is not None and code == hj.RESULTS.successful
    return found


UNITS = {"one": (1.0, 1.0, 1.0), "small objective": (1e-9, 1.0, 1e6), "small limits": (1e6, 1e-9, 1e-9)}


@pytest.mark.parametrize(
    "units", [pytest.param(units, marks=[pytest.mark.medium] * (units != "one")) for units in UNITS]
)
def test_optima_of_an_active_set(units):
    """Free: u = (q, 2q). On the sum 3: u = (3 - q, 3 + q) / 2 with the multiplier 3 (q - 1) / 2, in units of both functions."""
    family = Plane(UNITS[units])
    curve = curve_of(family)
    of_objective, _, of_sum = UNITS[units]
    free = at(curve, 0.7, NONE)
    assert_allclose(free.u, [0.7, 1.4], rtol=1e-13)
    assert np.all(free.multipliers == 0) and np.all(free.duals == 0)
    held = at(curve, 1.4, ON_SUM)
    assert_allclose(held.u, [0.8, 2.2], rtol=1e-13)
    assert_allclose(held.multipliers, [0, 0.6 * of_objective / of_sum], rtol=1e-10)
    # At the bound as well: the dual of an upper bound is negative, minus the multiplier of the sum plus the pull.
    both = at(curve, 3.0, ON_BOTH)
    assert_allclose(both.u, [0.5, 2.5], rtol=1e-13)
    assert_allclose(both.multipliers[1], 2.5 * of_objective / of_sum, rtol=1e-10)
    assert_allclose(both.duals, [0, -1.0 * of_objective], rtol=1e-10, atol=1e-14 * of_objective)
    # The tangent leads to the next optimum at once, where all is linear.
    for before, target in ((free, 0.9), (held, 1.5)):
        count = family.evaluations
        after, _ = curve.step(before, target)
        assert after is not None and after.number == target and family.evaluations == count + 1
        assert_allclose(
            after.u, [target, 2 * target] if before is free else [1.5 - target / 2, 1.5 + target / 2], rtol=1e-13
        )


@pytest.mark.medium
@pytest.mark.parametrize(
    "units", [pytest.param(units, marks=[pytest.mark.medium] * (units != "one")) for units in UNITS]
)
def test_changes_of_the_active_set(units):
    """The sum 3 is reached at q = 1, where its multiplier is zero; 2.5 by the second unknown at q = 2."""
    curve = curve_of(Plane(UNITS[units]))
    change = lambda a, b, active: curve.change(at(curve, a, active), at(curve, b, active))
    assert change(0.2, 0.9, NONE) is None and change(1.2, 1.9, ON_SUM) is None
    # Of three limits that would be passed, the first; also on the way back.
    for a, b, active, kind, k, number in (
        (0.5, 4.0, NONE, "inequalities", 1, 1.0), (0.5, 1.0005, NONE, "inequalities", 1, 1.0),
        (1.5, 0.5, ON_SUM, "inequalities", 1, 1.0), (1.5, 2.5, ON_SUM, "high", 1, 2.0),
        (2.5, 1.5, ON_BOTH, "high", 1, 2.0),
    ):  # fmt: skip
        found = change(a, b, active)
        assert found is not None and found[:2] == (kind, k)
        assert_allclose(found[2].number, number, rtol=1e-11)


def test_a_maximum_is_no_optimum():
    for active, least in ((NONE, False), (NONE._replace(low=np.array([True, True])), True)):
        curve = OptimumCurve(Plane(bend=-1.0).expansion, 0, (np.zeros(2), np.full(2, INF)))
        found, code = curve.solved(0.5, np.zeros(2), np.zeros(2), active, KNOWN)
        assert (found is not None) == least and code == ("successful" if least else "optimum_not_found")


@pytest.mark.medium
def test_what_leaves_at_upper_bounds():
    """Minimize -x - 2y below the upper bounds 1: a further limit of x + y, or x + 3y, lets one of them go."""
    for normal, leaves in (((-1.0, -1.0), 0), ((-1.0, -3.0), 1)):
        jacobian = np.array([[-1.0, -2.0], normal])
        zeros = np.zeros((2, 2, 2))
        expansion = ProgramExpansion(np.zeros(2), jacobian, zeros, np.zeros(2), np.zeros((2, 2)))
        active = ActiveSet(np.array([False]), np.array([False, False]), np.array([True, True]))
        optimum = Optimum(0.0, np.ones(2), np.zeros(1), np.array([-1.0, -2.0]), expansion, KNOWN, active)
        out, code = exchange(optimum, 0, "inequalities", 0)
        assert out == ("high", leaves) and code == hj.RESULTS.successful
    free = active._replace(high=np.array([True, False]))
    out, code = exchange(optimum._replace(active=free), 0, "inequalities", 0)
    assert out is None and code == hj.RESULTS.successful


@pytest.mark.medium
def test_derivatives_by_a_limit():
    """Of the rows g - b, g - a, b - g by their limit: -1, -1 and 1; equalities come first."""
    limits = (
        hj.Constraint(hj.objectives.period, at_most=2.0), hj.Constraint(hj.objectives.period, equals=1.0),
        hj.Constraint(hj.objectives.period, at_least=0.5),
    )  # fmt: skip
    params = {"a": jnp.array(1.0)}
    program = OrbitProgram(
        hj.objectives.period, limits, unknowns_of(lambda p: p["a"], params, None, jnp.float64), SingleShooting(), hj.Integrator(),
        None, ("run",), 1, second_order=True, rows=((0, 2), (1, 0), (0, 1)),
    )  # fmt: skip
    assert _by_limit(program, (0, "at_most")).tolist() == [0, 0, 1, 1, 0]
    assert _by_limit(program, (1, "equals")).tolist() == [0, -1, 0, 0, 0]
    assert _by_limit(program, (2, "at_least")).tolist() == [0, 0, 0, 0, -1]
