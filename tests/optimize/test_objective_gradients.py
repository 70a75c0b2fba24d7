"""Gradients of all objectives of a rimless wheel, as one function: forward mode, reverse mode and differences of the values."""

import dataclasses

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax import objectives
from hyjax.models import rimless_wheel as model

# Stages of a step as a loop: compilation is what takes time here.
FORWARD = hj.Integrator(unroll=False)
CHECKPOINT = hj.Integrator(unroll=False, adjoint=dfx.RecursiveCheckpointAdjoint())


def size(mode, x, params):
    """In the place of an energy, and of a rate to integrate: every coordinate enters it."""
    return jnp.sum(x**2) / 2


# The noise acts in the slope.
OBJECTIVES = {
    "period": objectives.period,
    "spectral_radius": objectives.spectral_radius,
    "contraction": objectives.contraction(),
    "impact_loss": objectives.impact_loss(size),
    "integral": objectives.integral(lambda t, x, p: size("", x, p)),
    "step_length": objectives.step_length(model.travel),
    "speed": objectives.speed(model.travel),
    "sensitivity": objectives.sensitivity(lambda p: p.slope, lambda stride: jnp.append(stride.x, stride.time)),
}
# The scale on which the gait changes.
SCALE = 0.01


def gradients():
    """Values of the objectives, and their derivatives by forward mode, by reverse mode and by differences of the values, by the
    slope in units of its scale: shape `(objectives,)` each."""
    params = model.Params()
    guess = model.guess(params)

    def values(z, integrator):
        at = dataclasses.replace(params, slope=params.slope + SCALE * z)
        orbit = hj.periodic_orbit(
            hj.ReturnMap(model.system, sequence=model.sequence, integrator=integrator), guess, at, throw=False
        )
        return jnp.stack([objective(orbit, at) for objective in OBJECTIVES.values()])

    # One program gives the values, at all points, and the derivative.
    forward = jax.jit(jax.jacfwd(lambda z: (values(z, FORWARD),) * 2, has_aux=True))
    reverse = jax.jit(jax.jacrev(lambda z: values(z, CHECKPOINT)))(jnp.zeros(()))
    at = lambda k: forward(jnp.asarray(k * SPACING))[1]
    differences = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * SPACING)
    derivative, at_zero = forward(jnp.zeros(()))
    return map(np.asarray, (at_zero, derivative, reverse, differences))


# Truncation h^4 f^(5) / 30 and rounding eps * condition / h are of one size at h = eps^(1/5), times the scale: 7e-4 of it.
SPACING = np.finfo(float).eps ** 0.2


@pytest.mark.slow
def test_gradients_by_three_routes():
    values, forward, reverse, differences = gradients()
    assert np.all(np.isfinite(values)) and np.all(np.isfinite(forward))
    # A gradient that is zero is compared with the value, or with the states, of size 1, whose energy does not change.
    of_row = np.maximum(np.abs(forward), 1e-3 * np.maximum(np.abs(values), 1))
    for k, each in enumerate(OBJECTIVES):
        # The same Jacobians in another order: roundings, times the condition of the orbit's equation, up to 1e3.
        assert_allclose(reverse[k] / of_row[k], forward[k] / of_row[k], rtol=0, atol=1e-11, err_msg=each)
        # At this spacing truncation is (7e-4)^4 / 30 = 1e-14 times the fifth derivative, which grows by a factor of 10 with each
        # order in these scales, and the values' rounding, 1e-13, over the spacing is 1e-10 of the value.
        assert_allclose(differences[k] / of_row[k], forward[k] / of_row[k], rtol=0, atol=1e-7, err_msg=each)


def test_the_speed_of_a_model_without_travel():
    """The mean of `x_rate`, which the wheel has not; that of a biped is tested with its gaits."""
    params = model.Params()
    orbit = hj.periodic_orbit(model.step, model.guess(params), params)
    with pytest.raises(ValueError, match="the orbit has no coordinate x_rate"):
        objectives.speed()(orbit, params)
