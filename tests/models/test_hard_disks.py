"""Hard disks: collisions against event-driven dynamics in 60 digits, conserved energy, exponents in pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import EXACT
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax.models import hard_disks


def energy(x):
    return 0.5 * jnp.sum(x[x.size // 2 :] ** 2)


@pytest.mark.filterwarnings("ignore:The reset of transition 'gas' -> 'gas' jumps")
@pytest.mark.parametrize("place", ["box", pytest.param("torus", marks=pytest.mark.medium)])
def test_collisions(place):
    """Reference: 40 collisions by event-driven dynamics in 60 digits. The gas is chaotic: rounding grows as the largest of the
    singular values, e^11; of the times, event-driven dynamics in float64 has lost 3 to 5 digits after 40 collisions."""
    case = EXACT[f"hard_disks_{place}"]
    x0 = jnp.array([*np.array(case["q0"], float).ravel(), *np.array(case["v0"], float).ravel()])
    params = hard_disks.Params(radius=float(case["radius"]))
    run = hj.simulate(
        hard_disks.gas(8, place == "torus"), x0, params, mode="gas", t1=float(case["collisions"][-1][0]) + 1e-6,
        max_jumps=45, integrator=ROLLED,
    )  # fmt: skip
    assert run.result == hj.RESULTS.successful and int(run.jumps) == len(case["collisions"]) == 40
    exact = np.array([float(each[0]) for each in case["collisions"]])
    assert_allclose(run.end_times[:20], exact[:20], rtol=0, atol=1e-12)
    assert_allclose(run.end_times[:40], exact, rtol=0, atol=1e-10)
    pairs = list(zip(*hard_disks.pairs(8), strict=True))
    for event, (_, kind, *who) in zip(run.events, case["collisions"], strict=True):
        if kind == "pair":
            assert event.transition == 0 and pairs[event.index] == tuple(who)
        else:
            disk, axis, side = who
            assert event.transition == 1 and event.index == 2 * disk + "xy".index(axis) + 16 * (side == "hi")
    assert abs(energy(run.final) - energy(x0)) < 1e-13
    found = np.log(np.linalg.svd(run.fundamental_matrix(), compute_uv=False))
    known = np.array(case["log_singular_values_of_tangent_map_0_to_t40plus"], float)
    assert_allclose(np.sort(found), np.sort(known), rtol=0, atol=1e-4)


@pytest.mark.slow
def test_energy_over_ten_thousand_collisions():
    """Each collision keeps the energy up to a rounding; ten thousand of them, a random walk of a hundred roundings of the energy
    4."""
    mode, x0 = hard_disks.start(hard_disks.Params())
    run = hj.simulate(
        hard_disks.system, x0, hard_disks.Params(), mode=mode, t1=1e4, max_jumps=10_000, record=False, throw=False
    )
    assert run.result == hj.RESULTS.max_jumps_reached and int(run.jumps) == 10_000
    assert abs(energy(run.final) - energy(x0)) < 1e-13 * energy(x0)


@pytest.mark.medium
def test_exponents_in_pairs():
    """The tangent map is symplectic: exponents sum to zero in pairs at every time, and two are zero in the limit. The sum of
    each pair is that of logarithms of the growth of orthonormal vectors, which forget how they began in a few collisions."""
    few = hard_disks.gas(3)
    x0 = jnp.array([0.2, 0.25, 0.5, 0.7, 0.8, 0.3, 1.0, 0.3, -0.4, 0.8, 0.2, -0.9])
    found = hj.phase.lyapunov_spectrum(
        few, x0, hard_disks.Params(radius=0.12), mode="gas", t1=400.0, transient=20.0, max_jumps=10_000
    )
    exponents = np.asarray(found.exponents)
    assert exponents[0] > 0.5
    assert_allclose(exponents + exponents[::-1], 0, rtol=0, atol=2e-2)
    assert np.max(np.abs(exponents[5:7])) < 3e-2


def test_disks_that_meet_before_a_wall_is_met():
    """In the step two disks come to overlap and part again; at the wall, which one meets later, they still overlap."""
    x0 = jnp.array([
        0.6869148275158249, 0.46971228771754786, 0.5623228908013299, 0.12, 0.25438388573507775, 0.20276921184018762,
        -0.43915984408380937, 0.5121872217771988, -0.3608966311929045, 1.0793049128532053, 0.6352815771137486,
        -0.7655551747959431,
    ])  # fmt: skip
    run = hj.simulate(hard_disks.gas(3), x0, hard_disks.Params(radius=0.12), mode="gas", t1=0.2, max_jumps=4)
    apart, rate = x0[4:6] - x0[2:4], x0[10:] - x0[8:10]
    closing, excess = apart @ rate, apart @ apart - 0.24**2
    meet = (-closing - jnp.sqrt(closing**2 - excess * (rate @ rate))) / (rate @ rate)
    assert run.events[0].index == 2
    assert_allclose(run.end_times[0], meet, rtol=1e-11)


def test_overlapping_disks_are_refused():
    x = hard_disks.start(hard_disks.Params())[1]
    run = hj.simulate(
        hard_disks.system, x.at[0].set(x[2] - 0.17).at[1].set(x[3]), hard_disks.Params(), mode="gas", t1=0.1, max_jumps=3,
        integrator=ROLLED, throw=False,
    )  # fmt: skip
    assert run.result == hj.RESULTS.outside_domain


@pytest.mark.medium
def test_a_gradient_through_collisions():
    """Of a disk's place after some collisions by its first place: reverse mode against forward mode."""
    mode, x0 = hard_disks.start(hard_disks.Params())
    end = lambda x: (
        hj.simulate(hard_disks.system, x, hard_disks.Params(), mode=mode, t1=0.25, max_jumps=16, integrator=ROLLED).x
    )
    direction = jnp.zeros_like(x0).at[0].set(1.0)
    forward = jax.jvp(end, (x0,), (direction,))[1]
    backward = jax.vjp(end, x0)[1](jnp.ones_like(x0))[0]
    assert_allclose(backward[0], jnp.sum(forward), rtol=1e-11)
