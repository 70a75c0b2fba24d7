"""Derivatives of a flow, a stride, an orbit and a simulation, of every order up to the third, forward and reverse.

Against partial derivatives of closed forms: of the rimless wheel (`make_order_reference.py`, by mpmath in 30 digits) and of a
ball. In these forms there is no flow, no event and no implicit function.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import case
from systems import ROLLED

import hyjax as hj
from hyjax.models import bouncing_ball, rimless_wheel

FORWARD, REVERSE = jax.jacfwd, jax.jacrev
# From the innermost derivative outwards; the second is `jax.hessian`, and once more.
NESTINGS = {
    "forward": (FORWARD, FORWARD, FORWARD),
    "forward over reverse": (REVERSE, FORWARD, FORWARD),
    "reverse": (REVERSE, REVERSE, REVERSE),
}

EVERY_NESTING = pytest.mark.parametrize(
    "nesting", ["forward", *(pytest.param(name, marks=pytest.mark.medium) for name in list(NESTINGS)[1:])]
)


def derivatives(f, nesting, q):
    """`(f, f', f'', ...)` at `q`: each derivative around the one before, all of them from one program."""
    orders = lambda q: (f(q),)
    for transformation in nesting:
        orders = one_more(transformation, orders)
    return jax.jit(orders)(jnp.asarray(q))


def one_more(transformation, orders):
    def highest(q):
        values = orders(q)
        return values[-1], values

    def more(q):
        derivative, values = transformation(highest, has_aux=True)(q)
        return (*values, derivative)

    return more


def check(got, expected, rtol):
    """Each order, to a part of its largest entry: outputs are worked out from one another's terms, and share their rounding."""
    assert len(got) == len(rtol) <= len(expected)
    for order, (ours, exact, part) in enumerate(zip(got, expected, rtol, strict=False)):
        assert_allclose(ours, exact, rtol=0, atol=part * np.max(np.abs(exact)), err_msg=f"order {order}")


def referred(name):
    """Where the reference was taken, and its tensors of orders 0 to 3, shape `(outputs, inputs, ...)`."""
    record = case("A_orders", name)
    q, outputs = record["at"], [record[each] for each in record if each != "at"]
    tensors = []
    for order in range(4):
        tensor = np.zeros((len(outputs), *(q.size,) * order))
        for axes in itertools.product(range(q.size), repeat=order):
            times = ",".join(str(axes.count(k)) for k in range(q.size))
            tensor[(slice(None), *axes)] = [output[times] for output in outputs]
        tensors.append(tensor)
    return q, tensors


# To the first guard: a ball that is thrown, by height, speed and gravity


def falls(q):
    params = bouncing_ball.Params(gravity=q[2])
    impact = hj.flow_to_guard(bouncing_ball.system, "flight", 0.0, q[:2], params, integrator=ROLLED)
    return jnp.stack([impact.t, impact.x[1]])


def falls_exactly(q):
    y, v, g = q
    end = -jnp.sqrt(v**2 + 2 * g * y)
    return jnp.stack([(v - end) / g, end])


@pytest.mark.medium
@EVERY_NESTING
def test_flow_to_guard(nesting):
    q = [1.3, 0.7, 9.81]
    # The flow is a parabola, exact but for rounding, of which each order adds a few.
    check(
        derivatives(falls, NESTINGS[nesting], q),
        derivatives(falls_exactly, NESTINGS["forward"], q),
        rtol=(2e-15, 5e-15, 1e-14, 2e-14),
    )


# A stride of the rimless wheel, by its start, the slope and the inertia; and its gait, by slope and inertia


def wheel_stride(q):
    params = rimless_wheel.Params(slope=q[2], inertia_ratio=q[3])
    through = hj.ReturnMap(rimless_wheel.system, sequence=rimless_wheel.sequence, integrator=ROLLED)(q[:2], params)
    return jnp.stack([through.x[1], through.time])


@pytest.mark.medium
def test_stride():
    q, expected = referred("stride")
    # Integrated at 1e-14, and some roundings more in each order.
    check(derivatives(wheel_stride, (REVERSE, FORWARD), q), expected, rtol=(1e-14, 3e-14, 5e-14))


def wheel_gait(q):
    params = rimless_wheel.Params(slope=q[0], inertia_ratio=q[1])
    orbit = hj.periodic_orbit(
        hj.ReturnMap(rimless_wheel.system, sequence=("stance",), integrator=ROLLED),
        jnp.array([-0.5, 0.8]),
        params,
        throw=False,
    )
    return jnp.stack([orbit.x[1], orbit.period, orbit.return_jacobian[1, 0], orbit.multipliers[0].real])


@pytest.mark.slow
def test_gait():
    """To the second order: of its Jacobian and multiplier that is the third."""
    q, expected = referred("gait")
    # As of a stride; the fixed point's condition is 1 / (1 - multiplier) = 1.6.
    check(derivatives(wheel_gait, (REVERSE, FORWARD), q), expected, rtol=(1e-14, 3e-14, 1e-13))


# Through whatever modes come: a ball of three bounces, by restitution, gravity and height


def bounces(q):
    params = bouncing_ball.Params(restitution=q[0], gravity=q[1])
    start = jnp.stack([q[2], jnp.zeros(())])
    ended = hj.simulate(bouncing_ball.system, start, params, mode="flight", t1=3.0, max_jumps=4, integrator=ROLLED)
    return ended.x


def bounces_exactly(q):
    e, g, h = q
    first = jnp.sqrt(2 * h / g)
    since, speed = 3.0 - first * (1 + 2 * e + 2 * e**2), e**3 * jnp.sqrt(2 * g * h)
    return jnp.stack([speed * since - g * since**2 / 2, speed - g * since])


@pytest.mark.medium
def test_simulate():
    q = [0.8, 9.81, 2.0]
    check(
        derivatives(bounces, NESTINGS["forward over reverse"], q),
        derivatives(bounces_exactly, NESTINGS["forward"], q),
        # Five arcs at 1e-14 each, less their cancellation.
        rtol=(5e-14, 5e-14, 5e-14, 1e-13),
    )
