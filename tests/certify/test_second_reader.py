"""Whole proofs of `krawczyk`, read again by Arb: every bound that they state holds what is proved there by other means."""

import flint
import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb
from second_reader import orbit_in, Written
from test_krawczyk import circle, Rate

import hyjax as hj
from hyjax._testing import krawczyk
from hyjax.models import simplest_walker as walker


@pytest.fixture(autouse=True)
def _precision():
    before, cap, flint.ctx.prec = flint.ctx.prec, flint.ctx.cap, 200
    yield
    flint.ctx.prec, flint.ctx.cap = before, cap


def inside(enclosed, values) -> bool:
    """Whether all of these balls are within the bounds of floats."""
    pairs = zip(np.ravel(enclosed.midpoint), np.ravel(enclosed.radius), values, strict=True)
    return all(abs(value - arb(float(m))) <= arb(float(r)) for m, r, value in pairs)


def read_again(proved, system, h, leaving, width):
    """The orbit of a proof in Arb, from the middle of its bounds and the size of its box; and the discs of its multipliers.

    `width`: the largest radius that Arb's bounds may have, so that it is they that are the finer ones.
    """
    z = [arb(float(each)) for each in proved.center]
    box, (image, slope, arc) = orbit_in(system, z, arb(proved.unique_within) / 2, h, leaving)
    assert all(each.rad() < width for each in (*box, arc.time, *arc.end))
    assert inside(proved.coordinates, box) and inside(proved.coordinates, image)
    # The box of uniqueness holds the orbit, too.
    assert all(abs(each - arb(float(near))) < proved.unique_within for each, near in zip(box, proved.near, strict=True))
    assert inside(proved.starts[0], system.lift(box)) and inside(proved.ends[0], arc.end)
    assert inside(proved.period, [arc.time])
    values = flint.acb_mat(slope).eig() if slope.nrows() > 1 else [flint.acb(slope[0, 0])]
    discs = list(zip(proved.multipliers.centres, proved.multipliers.radii, strict=True))
    for value in values:
        assert any(abs(value - flint.acb(complex(centre))) <= arb(float(radius)) for centre, radius in discs)
    return box, slope, arc


RATE, SIZE = 0.1, 1.0


def spiral_field(x):
    growth = arb(RATE) * (arb(SIZE) ** 2 - x[0] * x[0] - x[1] * x[1])
    return [growth * x[0] - x[1], growth * x[1] + x[0]]


def spiral_slope(x):
    growth = arb(RATE) * (arb(SIZE) ** 2 - x[0] * x[0] - x[1] * x[1])
    bend = lambda i, j: -2 * arb(RATE) * x[i] * x[j]
    return [[growth + bend(0, 0), bend(0, 1) - 1], [bend(1, 0) + 1, growth + bend(1, 1)]]


SPIRAL = Written(
    spiral_field, spiral_slope, lambda x: x[1], lambda x: [0 * x[0], 1 + 0 * x[0]], lambda z: [z[0], 0 * z[0]],
    lambda z: [[arb(1)], [arb(0)]], (0,),
)  # fmt: skip


@pytest.mark.medium
def test_the_proof_of_a_circle_is_read_again():
    """The reader knows the circle: radius 1, period 2 pi, and its multiplier; and refuses a box without an orbit."""
    orbit = hj.periodic_orbit(hj.ReturnMap(circle, sequence=("plane",)), jnp.array([-1.1, 0.0]), Rate())
    proved = krawczyk(orbit, steps=48)
    assert proved.proved
    box, slope, arc = read_again(proved, SPIRAL, arb(1) / 16, 4, 1e-20)
    assert (box[0] + 1).contains(0) and (arc.time - 2 * arb.pi()).contains(0)
    assert (slope[0, 0] - (-4 * arb.pi() * arb(RATE)).exp()).contains(0)
    with pytest.raises(ArithmeticError):
        orbit_in(SPIRAL, [arb("-0.5")], arb("1e-6"), arb(1) / 16, 4, rounds=1, newton_steps=0)


SLOPE = 0.009


def swing(x):
    theta, theta_rate, phi, phi_rate = x
    sine, cosine = (theta - arb(SLOPE)).sin(), (theta - arb(SLOPE)).cos()
    return [theta_rate, sine, phi_rate, sine + (theta_rate * theta_rate - cosine) * phi.sin()]


def swing_slope(x):
    theta, theta_rate, phi, _ = x
    sine, cosine = (theta - arb(SLOPE)).sin(), (theta - arb(SLOPE)).cos()
    zero = 0 * sine
    return [
        [zero, zero + 1, zero, zero],
        [cosine, zero, zero, zero],
        [zero, zero, zero, zero + 1],
        [cosine + sine * phi.sin(), 2 * theta_rate * phi.sin(), (theta_rate * theta_rate - cosine) * phi.cos(), zero],
    ]


def struck(z):
    theta, rate = z
    cosine = (2 * theta).cos()
    return [-theta, cosine * rate, -2 * theta, (1 - cosine) * cosine * rate]


def struck_slope(z):
    theta, rate = z
    sine, cosine = (2 * theta).sin(), (2 * theta).cos()
    turned = -2 * sine * rate
    return [[arb(-1), arb(0)], [turned, cosine], [arb(-2), arb(0)], [(1 - 2 * cosine) * turned, (1 - cosine) * cosine]]


WALKER = Written(
    swing, swing_slope, lambda x: 2 * x[0] - x[2], lambda x: [2 + 0 * x[0], 0 * x[0], -1 + 0 * x[0], 0 * x[0]], struck,
    struck_slope, (0, 1),
)  # fmt: skip


@pytest.mark.slow
def test_the_proof_of_the_simplest_walker_is_read_again():
    params = walker.Params(slope=SLOPE)
    proved = krawczyk(hj.periodic_orbit(walker.step, walker.guess(params), params))
    assert proved.proved
    # The bounds of the certificate are floats that round bounds of some 25 digits: those of Arb have to be finer.
    read_again(proved, WALKER, arb(1) / 16, 8, 1e-30)
