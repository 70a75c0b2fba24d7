"""Gradients of all objectives of the models that are optimized: forward mode, reverse mode and differences of the values.

All objectives of a model are one function of two to four of its parameters, with one program for each mode.
"""

import dataclasses
import importlib

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax import objectives

# The parameters that vary, with the scales on which the gait changes. The noise acts in the first. At Kuo's push-off a gait on
# a slope has a fold near the level ground, and one with two springs a fold near equal ones: there the scales are thousandths.
VARIED = {
    "rimless_wheel": {"slope": 0.2, "inertia_ratio": 0.7},
    "simplest_walker": {"slope": 0.01},
    "powered_walker": {"slope": 1e-3, "stiffness": 2.5, "push_off": 0.2},
    "two_spring_walker": {"slope": 1e-3, "stiffness_behind": 4e-3, "stiffness_ahead": 4e-3, "push_off": 0.2},
    "compass_gait": {"slope": 0.05, "mu": 2.0, "beta": 1.0},
    "powered_compass_gait": {"slope": 0.01, "stiffness": 0.1, "push_off": 0.15, "com": 0.5},
    "kneed_walker": {"slope": 0.01, "hip_mass": 0.5, "a1": 0.3},
    "slip": {"attack_angle": 0.1, "stiffness": 20.0, "energy": 1.0},
    "slip_retraction": {"retraction_angle": 0.1, "retraction_rate": 0.3, "stiffness": 25.0},
    "bhounsule_walker": {"push_off": 0.3, "torque_1": 1.5, "step_time": 0.5},
}
# Its gait is not stable, so its sensitivity is infinite.
UNSTABLE = {"bhounsule_walker"}
# Stages of a step as a loop: compilation is what takes time here.
FORWARD = hj.Integrator(unroll=False)
CHECKPOINT = hj.Integrator(unroll=False, adjoint=dfx.RecursiveCheckpointAdjoint())


def size(mode, x, params):
    """In the place of an energy, and of a rate to integrate: every model has it, and every coordinate enters it."""
    return jnp.sum(x**2) / 2


def objectives_of(name, model):
    """The ready objectives that apply to a model, and its own."""
    found = {
        "period": objectives.period,
        "spectral_radius": objectives.spectral_radius,
        "contraction": objectives.contraction(),
        "impact_loss": objectives.impact_loss(size),
        "integral": objectives.integral(lambda t, x, p: size("", x, p)),
        "step_length": objectives.step_length(model.travel),
        "speed": objectives.speed(model.travel),
        **getattr(model, "objectives", {}),
    }
    if name not in UNSTABLE:
        noise = lambda p: getattr(p, next(iter(VARIED[name])))
        found["sensitivity"] = objectives.sensitivity(noise, lambda stride: jnp.append(stride.x, stride.time))
    return found


def gradients(name):
    """The names of the objectives; their values, and the Jacobians by forward mode, by reverse mode and by differences of the
    values, by the parameters in units of their scales: shapes `(objectives,)` and `(objectives, parameters)`."""
    model = importlib.import_module(f"hyjax.models.{name}")
    params, found = model.Params(), objectives_of(name, model)
    guess, names = model.guess(params), list(VARIED[name])
    u, scales = np.array([getattr(params, each) for each in names]), np.array(list(VARIED[name].values()))

    def values(z, integrator):
        at = dataclasses.replace(params, **dict(zip(names, u + scales * z, strict=True)))
        orbit = hj.periodic_orbit(model.system, guess, at, sequence=model.sequence, integrator=integrator, throw=False)
        return jnp.stack([objective(orbit, at) for objective in found.values()])

    zero = jnp.zeros(len(names))
    # One program gives the values, at all points, and the Jacobian.
    forward = jax.jit(jax.jacfwd(lambda z: (values(z, FORWARD),) * 2, has_aux=True))
    reverse = jax.jit(jax.jacrev(lambda z: values(z, CHECKPOINT)))(zero)
    at = lambda k: np.stack([forward(jnp.asarray(k * SPACING * way))[1] for way in np.eye(len(names))], axis=1)
    differences = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * SPACING)
    jacobian, at_zero = forward(zero)
    return list(found), *map(np.asarray, (at_zero, jacobian, reverse, differences))


# Truncation h^4 f^(5) / 30 and rounding eps * condition / h are of one size at h = eps^(1/5), times the scale: 7e-4 of it.
SPACING = np.finfo(float).eps ** 0.2


# The others take about one minute each, those of several modes more.
SLOW = ("simplest_walker",)


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow if each in SLOW else pytest.mark.exhaustive) for each in VARIED]
)
def test_gradients_by_three_routes(name):
    names, values, forward, reverse, differences = gradients(name)
    assert np.all(np.isfinite(values)) and np.all(np.isfinite(forward))
    # A gradient that is zero is compared with the value, or with the states, of size 1, whose energy does not change.
    of_row = np.maximum(np.max(np.abs(forward), axis=1), 1e-3 * np.maximum(np.abs(values), 1))[:, None]
    for k, each in enumerate(names):
        # The same Jacobians in another order: roundings, times the condition of the orbit's equation, up to 1e3.
        assert_allclose(reverse[k] / of_row[k], forward[k] / of_row[k], rtol=0, atol=1e-11, err_msg=each)
        # At this spacing truncation is (7e-4)^4 / 30 = 1e-14 times the fifth derivative, which grows by a factor of 10 with each
        # order in these scales, and the values' rounding, 1e-13, over the spacing is 1e-10 of the value.
        assert_allclose(differences[k] / of_row[k], forward[k] / of_row[k], rtol=0, atol=1e-7, err_msg=each)
