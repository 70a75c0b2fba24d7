"""Mechanical work, and numbers along the arcs: closed forms, the balance of energy, and SciPy's integrator."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from jaxtyping import Array, Float
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import bhounsule_walker, powered_compass_gait as compass

# y' = -k y, and a kick of 1 at the end of each period T, whose parts of length T/3 and 2T/3 are the modes `a` and `b`: with the
# time s since the kick, y = y0 exp(-k s), y0 = 1 / (1 - exp(-k T)).


class Decay(eqx.Module):
    k: Float[Array, ""]
    T: Float[Array, ""]
    c: Float[Array, ""]
    w: Float[Array, ""]


def decay(t, x, p):
    return jnp.stack([-p.k * x[0], jnp.ones_like(t)])


pulses = hj.HybridSystem(
    modes={name: hj.Mode(decay, ("y", "clock")) for name in "ab"},
    transitions=(
        hj.Transition("a", "b", guard=lambda t, x, p: p.T / 3 - x[1], reset=lambda t, x, p: x),
        hj.Transition("b", "a", guard=lambda t, x, p: p.T - x[1], reset=lambda t, x, p: jnp.stack([x[0] + 1, 0 * t])),
    ),
)
POINT = jnp.array([0.7, 1.9, 0.8, 5.1])


def power(t, x, p):
    return x[0] - p.c


def wave(t, x, p):
    return x[0] * jnp.sin(p.w * x[1])


POSITIVE, NEGATIVE, LARGEST = hj.objectives.positive_work(power), hj.objectives.negative_work(power), hj.objectives.largest(wave)


def numbers(v, integrator=hj.Integrator()):
    """Works of two periods, and the largest value; along orbits of two strides."""
    orbit = hj.periodic_orbit(
        pulses, jnp.array([1.4, 0.0]), Decay(*v), sequence=("a", "b"), strides=2, integrator=integrator
    )
    return jnp.stack([each(orbit, orbit.params) for each in (POSITIVE, NEGATIVE, LARGEST)])


def closed_forms(v):
    """The power is positive until y = c; y sin(w s) is largest first, where tan(w s) = w / k."""
    k, T, c, w = v
    y0 = 1 / (1 - jnp.exp(-k * T))
    s, top = jnp.log(y0 / c) / k, jnp.arctan2(w, k) / w
    positive = y0 * (1 - jnp.exp(-k * s)) / k - c * s
    negative = c * (T - s) - y0 * (jnp.exp(-k * s) - jnp.exp(-k * T)) / k
    return jnp.stack([2 * positive, 2 * negative, y0 * jnp.exp(-k * top) * jnp.sin(w * top)])


def all_orders(function):
    """Value, Jacobian and Hessian by one program in forward mode."""

    def slope(v):
        value, push = jax.linearize(function, v)
        jacobian = jax.vmap(push, out_axes=-1)(jnp.eye(v.size))
        return jacobian, (value, jacobian)

    def every(v):
        hessian, (value, jacobian) = jax.jacfwd(slope, has_aux=True)(v)
        return value, jacobian, hessian

    return every


def test_closed_forms_to_second_order():
    """Two modes, two strides. The numbers are of order 1 and the integrator's tolerance is 1e-14; each order of derivatives
    multiplies rounding by at most w^2 T = 50."""
    found = jax.jit(all_orders(numbers))(POINT)
    for order, (here, there) in enumerate(zip(found, all_orders(closed_forms)(POINT), strict=True)):
        assert_allclose(here, there, rtol=0, atol=(1e-13, 1e-12, 5e-11)[order])


@pytest.mark.parametrize("adjoint", [dfx.ForwardMode(), dfx.RecursiveCheckpointAdjoint()], ids=["forward", "checkpoint"])
def test_closed_forms_in_reverse_mode(adjoint):
    found = jax.jit(jax.jacrev(lambda v: numbers(v, hj.Integrator(adjoint=adjoint))))(POINT)
    assert_allclose(found, jax.jacfwd(closed_forms)(POINT), rtol=0, atol=1e-12)
