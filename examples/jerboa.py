"""A jerboa's hop, fitted to the times at which its feet came down and left the ground.

A point mass on two springy legs without mass; in the air a leg swings on a spring at the hip, of frequency w and neutral angle.
In units of mass, leg length and gravity, with the angle a of a leg from the vertical, positive with the foot ahead, and the
force F = k (1 - y / cos a) of a leg that stands:

    x'' = -sum F sin a,   y'' = sum F cos a - 1,   and in the air   a'' = -cos a x'' - sin a (y'' + 1) - w^2 (a - a0)

A foot that stands is fixed, at x + y tan a. It comes down where y - cos a falls to zero with the leg ahead, and leaves where the
leg has its own length. Energy is conserved, and gaits with the same legs are a family (see `hyjax.models.biped_slip`): here
energy is a parameter, and gives x'. The closed orbit nearest to the times is symmetric in time; the record is not quite.

Source: Ding, Moore, Gan (2022), A template model explains jerboa gait transitions across a broad range of speeds, Front. Bioeng.
Biotechnol. 10, 804826, and the record 20110531-1802-j30 of its data: feet down at 0.3048 and 0.4373, up at 0.5433 and 0.6626;
after 0.9674 the next stride, of length 2.726. The fit published with it, k = 61.51 and w = 6.49, is not periodic. Run

    python examples/jerboa.py
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import hyjax as hj


class Params(eqx.Module):
    stiffness: Float[Array, ""]
    swing_frequency: Float[Array, ""]
    left_offset: Float[Array, ""]
    right_offset: Float[Array, ""]
    energy: Float[Array, ""]


# Which feet are on the ground, left and right.
FEET = {"flight": (False, False), "left": (True, False), "right": (False, True), "both": (True, True)}
coordinates = ("y", "y_rate", "left", "left_rate", "right", "right_rate")


def speed(feet, x, params):
    """The horizontal speed, from the energy."""
    y, y_rate, left, _, right, _ = x
    springs = sum((1 - y / jnp.cos(a)) ** 2 for a, on in zip((left, right), feet, strict=True) if on)
    return jnp.sqrt(2 * (params.energy - y) - y_rate**2 - params.stiffness * springs)


def fixed_foot_rate(angle, y, x_rate, y_rate):
    """The rate of a leg whose foot is fixed."""
    return -(x_rate * jnp.cos(angle) + y_rate * jnp.sin(angle)) * jnp.cos(angle) / y


def motion(feet):
    def vector_field(t, x, params):
        y, y_rate, left, left_rate, right, right_rate = x
        x_rate, angles, offsets = speed(feet, x, params), (left, right), (params.left_offset, params.right_offset)
        forces = [params.stiffness * (1 - y / jnp.cos(a)) if on else 0 * y for a, on in zip(angles, feet, strict=True)]
        push = sum(-f * jnp.sin(a) for f, a in zip(forces, angles, strict=True))
        lift = sum(f * jnp.cos(a) for f, a in zip(forces, angles, strict=True))
        legs = []
        for a, rate, offset, on in zip(angles, (left_rate, right_rate), offsets, feet, strict=True):
            if on:
                # The rate is a function of the others while the foot is fixed, and is kept for the moment at which it leaves.
                rate = fixed_foot_rate(a, y, x_rate, y_rate)
                slow = -(push * jnp.cos(a) + (lift - 1) * jnp.sin(a)) * jnp.cos(a) / y
                legs += [rate, slow - 2 * rate * (jnp.tan(a) * rate + y_rate / y)]
            else:
                swing = params.swing_frequency**2 * (a - offset)
                legs += [rate, -jnp.cos(a) * push - jnp.sin(a) * lift - swing]
        return jnp.stack([y_rate, lift - 1, *legs])

    return vector_field


def transition(source, target, leg):
    """The landing or the lift-off of a leg, 0 or 1."""
    place = 2 + 2 * leg

    def height(t, x, params):
        return x[0] - jnp.cos(x[place])

    def compression(t, x, params):
        return -height(t, x, params)

    def land(t, x, params):
        return x.at[place + 1].set(fixed_foot_rate(x[place], x[0], speed(FEET[source], x, params), x[1]))

    def keep(t, x, params):
        return x

    if FEET[source][leg]:
        return hj.Transition(source, target, guard=compression, reset=keep)
    return hj.Transition(source, target, guard=height, reset=land, armed=lambda t, x, params: x[place] > 0)


system = hj.HybridSystem(
    modes={name: hj.Mode(motion(feet), coordinates) for name, feet in FEET.items()},
    transitions=tuple(
        transition(source, target, leg)
        for source in FEET
        for target in FEET
        for leg in (0, 1)
        if [a != b for a, b in zip(FEET[source], FEET[target], strict=True)] == [leg == 0, leg == 1]
    ),
)
# From the landing of the left foot to its next one. Stages of a step are in a loop, which compiles in two thirds of the time.
integrator = hj.Integrator(unroll=False)
step = hj.ReturnMap(system, sequence=("left", "both", "right", "flight"), integrator=integrator)


def landing(params, y_rate, left, right, right_rate):
    """The state just after the left foot came down."""
    y, *rest = map(jnp.asarray, (math.cos(left), y_rate, left, right, right_rate))
    y_rate, left, right, right_rate = rest
    x_rate = speed(FEET["flight"], jnp.stack([y, y_rate, left, left, right, right]), params)
    return jnp.stack([y, y_rate, left, fixed_foot_rate(left, y, x_rate, y_rate), right, right_rate])


def forward_speed(t, x, params):
    return speed(FEET["flight"], x, params)


def everything(params):
    return tuple(getattr(params, name) for name in params.__dataclass_fields__)


# Times from the landing of the left foot. At the apex, with which the stride begins, the mass neither rises nor falls.
LEFT, NONE = 0.3048, math.nan
hop = {
    "time": [0.4373 - LEFT, 0.5433 - LEFT, 0.6626 - LEFT, 0.9674 - LEFT, 0.9674],
    "event": ["left->both", "both->right", "right->flight", "", "flight->left"],
    "y_rate": [NONE, NONE, NONE, 0.0, NONE],
    "speed": [NONE, NONE, NONE, 2.726 / 0.9674, NONE],
}
noise = {"time": 5e-3, "y_rate": 5e-3, "speed": 0.1}


def fit_hop():
    """The periodic gait nearest to the recorded times, which say nothing of the frequency: the published one is a prior."""
    guess = Params(*map(jnp.array, (50.0, 6.5, -0.07, 0.0, 5.0)))
    orbit = hj.periodic_orbit(step, landing(guess, -0.3, 0.28, 0.49, 0.51), guess)
    prior = [None, (6.49, 0.3), None, None, None]
    observe = {"speed": forward_speed}
    return hj.fit(orbit, hop, guess, over=everything, observe=observe, noise=noise, prior=prior)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    fit = fit_hop()
    print(fit)
    print("Residuals, in deviations:", fit.residuals[0].round(2).tolist())
    print("Returns to itself up to", float(jnp.max(jnp.abs(step(fit.x0[0], fit.params).x - fit.x0[0]))))
