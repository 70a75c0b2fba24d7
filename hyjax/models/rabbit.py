r"""RABBIT: five links in a plane, point feet, and motors at hips and knees that hold four virtual constraints.

Torso pitch $q_1$ from the vertical and the relative angles $q_2, \dots, q_5$ of hip and knee of the stance leg, then of the swing
leg: a positive pitch leans the torso forward, a positive hip angle puts the knee behind the hip, a positive knee is bent. The
absolute angles are $\varphi = Tq$: torso, then thigh and shank of each leg. With $d(\varphi) = (\sin\varphi, \cos\varphi)$ the
centre of mass of link $k$ is at $\sum_j a_{kj}\,d(\varphi_j)$ from the stance foot and at $\sum_j \bar a_{kj}\,d(\varphi_j)$ from
the swing foot, where $a$ and $\bar a$ have the lengths as entries. The links have masses $m_k$ and moments of inertia $I_k$:

$$A_{ij} = \sum_k m_k a_{ki} a_{kj}, \qquad
  \sum_j A_{ij}\big(\cos(\varphi_i - \varphi_j)\,\ddot\varphi_j + \sin(\varphi_i - \varphi_j)\,\dot\varphi_j^2\big)
  + I_i\ddot\varphi_i - g\sin\varphi_i\sum_k m_k a_{ki} = (T^{-\top}B u)_i$$

The motors act on the relative angles, $B^\top q = (q_2, \dots, q_5)$, and hold each on a Bézier polynomial $b$ of degree 5 of
the phase, for equal links the angle of the line from the stance foot to the hip,

$$\theta = q_1 + q_2 + \tfrac12 q_3, \qquad y = B^\top q - b\Big(\frac{\theta - \theta_i}{\theta_f - \theta_i}\Big), \qquad
  \ddot y = -K_p\,y - K_d\,\dot y$$

The swing foot, when it comes down ahead of the stance foot, sticks, and the old stance foot leaves: the momenta about the new
stance foot are conserved, those of all links, and of each group of links that hangs on a joint,

$$\sum_j \Big(\sum_k m_k \bar a_{ki}\bar a_{kj} \cos(\varphi_i - \varphi_j) + I_i\delta_{ij}\Big)\dot\varphi_j^+ =
  \sum_j \Big(\sum_k m_k \bar a_{ki} a_{kj} \cos(\varphi_i - \varphi_j) + I_i\delta_{ij}\Big)\dot\varphi_j^-$$

Then the legs change their names. The first coefficients $\alpha_0$ are the last ones with the legs exchanged. `invariant` gives
those $\alpha_1$, $\theta_i$ and $\theta_f$ with which every state of the surface $y = \dot y = 0$ at the strike is led to that
surface; so are the default values. The gait is then that of the phase alone, `constraints.hybrid_zero_dynamics`, and its
multiplier is one of the whole, $\delta^2 = 0.6174$.

A robot has fallen, and left the domain, when its hip is on the ground. The stance foot is pinned, whatever it needs:
`ground_force` and `strike_impulse` tell whether the ground pushes and friction holds, and `torques` what the motors do. In the
gait the ground pushes with 176 to 323 N, with a friction ratio of at most 0.50, and no torque exceeds 21 N m.

Source: Chevallereau, Abba, Aoustin, Plestan, Westervelt, Canudas-de-Wit, Grizzle (2003), *RABBIT: a testbed for advanced
control theory*, IEEE Control Systems 23(5), 57-79; Westervelt, Grizzle, Koditschek (2003), *Hybrid zero dynamics of planar biped
walkers*, IEEE Trans. Autom. Control 48, 42-56. The masses are those of a public parameter file of the robot, without the
reflected inertia of the rotors; the coefficients are of this model.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.elimination import solve
from .._numerics.fast import sincos
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition
from ..contact import Contact, Mechanism, relabelling
from ..control import bezier, virtual_constraints
from ._common import ground as ground, parameter, refuse_unless, require

title = "RABBIT"
source = "Chevallereau et al., IEEE Control Systems 23(5) (2003); Westervelt, Grizzle, Koditschek, IEEE TAC 48 (2003)"
joints = ("hip1", "knee1", "hip2", "knee2")


class Params(Shown):
    """Masses and lengths of the robot, gains, coefficients of the curves; the defaults walk at 0.75 m/s."""

    torso_mass: Float[Array, ""] = parameter(12.0, "kg", "mass of the torso")
    thigh_mass: Float[Array, ""] = parameter(6.8, "kg", "mass of a thigh")
    shank_mass: Float[Array, ""] = parameter(3.2, "kg", "mass of a shank")
    torso_length: Float[Array, ""] = parameter(0.63, "m", "length of the torso, for pictures")
    thigh_length: Float[Array, ""] = parameter(0.4, "m", "length of a thigh")
    shank_length: Float[Array, ""] = parameter(0.4, "m", "length of a shank")
    torso_com: Float[Array, ""] = parameter(0.24, "m", "centre of mass of the torso above the hip")
    thigh_com: Float[Array, ""] = parameter(0.11, "m", "centre of mass of a thigh below the hip")
    shank_com: Float[Array, ""] = parameter(0.24, "m", "centre of mass of a shank below the knee")
    torso_inertia: Float[Array, ""] = parameter(
        1.33, "kg m^2", "moment of inertia of the torso about its centre of mass"
    )
    thigh_inertia: Float[Array, ""] = parameter(0.47, "kg m^2", "moment of inertia of a thigh about its centre of mass")
    shank_inertia: Float[Array, ""] = parameter(0.2, "kg m^2", "moment of inertia of a shank about its centre of mass")
    gravity: Float[Array, ""] = parameter(9.81, "m/s^2", "acceleration of gravity g")
    stiffness: Float[Array, ""] = parameter(64.0, "1/s^2", "gain K_p of the outputs")
    damping: Float[Array, ""] = parameter(20.0, "1/s", "gain K_d of the outputs' rates")
    phase_start: Float[Array, ""] = parameter(-0.2118026027208354, "rad", "phase theta_i after the strike")
    phase_stop: Float[Array, ""] = parameter(0.27582539727916460, "rad", "phase theta_f before the strike")
    hip1_1: Float[Array, ""] = parameter(-0.43508941072654981, "rad", "coefficient 1 of the stance hip")
    hip1_2: Float[Array, ""] = parameter(-0.173003, "rad", "coefficient 2 of the stance hip")
    hip1_3: Float[Array, ""] = parameter(-0.231473, "rad", "coefficient 3 of the stance hip")
    hip1_4: Float[Array, ""] = parameter(-0.023673, "rad", "coefficient 4 of the stance hip")
    hip1_5: Float[Array, ""] = parameter(0.049928, "rad", "coefficient 5 of the stance hip, 0 of the swing hip")
    knee1_1: Float[Array, ""] = parameter(0.33014782965791730, "rad", "coefficient 1 of the stance knee")
    knee1_2: Float[Array, ""] = parameter(0.014715, "rad", "coefficient 2 of the stance knee")
    knee1_3: Float[Array, ""] = parameter(0.166055, "rad", "coefficient 3 of the stance knee")
    knee1_4: Float[Array, ""] = parameter(-0.047056, "rad", "coefficient 4 of the stance knee")
    knee1_5: Float[Array, ""] = parameter(0.101114, "rad", "coefficient 5 of the stance knee, 0 of the swing knee")
    hip2_1: Float[Array, ""] = parameter(0.04271616118384105, "rad", "coefficient 1 of the swing hip")
    hip2_2: Float[Array, ""] = parameter(-0.303628, "rad", "coefficient 2 of the swing hip")
    hip2_3: Float[Array, ""] = parameter(-1.079648, "rad", "coefficient 3 of the swing hip")
    hip2_4: Float[Array, ""] = parameter(-0.885833, "rad", "coefficient 4 of the swing hip")
    hip2_5: Float[Array, ""] = parameter(-0.572142, "rad", "coefficient 5 of the swing hip, 0 of the stance hip")
    knee2_1: Float[Array, ""] = parameter(0.32384653770003898, "rad", "coefficient 1 of the swing knee")
    knee2_2: Float[Array, ""] = parameter(1.316345, "rad", "coefficient 2 of the swing knee")
    knee2_3: Float[Array, ""] = parameter(2.001458, "rad", "coefficient 3 of the swing knee")
    knee2_4: Float[Array, ""] = parameter(1.175604, "rad", "coefficient 4 of the swing knee")
    knee2_5: Float[Array, ""] = parameter(0.369998, "rad", "coefficient 5 of the swing knee, 0 of the stance knee")

    def __check_init__(self):
        require(self, positive="torso_mass thigh_mass shank_mass thigh_length shank_length gravity")
        require(self, nonnegative="torso_inertia thigh_inertia shank_inertia stiffness damping")
        start, stop = self.phase_start, self.phase_stop
        refuse_unless(start < stop, f"phase_start={start} must be less than phase_stop={stop}.")


# From the coordinates to the absolute angles of torso, thighs and shanks, and back; and the exchange of the legs.
ABSOLUTE = np.array([[1.0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 1, 0], [1, 0, 0, 1, 1]])
RELATIVE = np.linalg.inv(ABSOLUTE)
LEGS = relabelling(("pitch", *joints), {"hip1": "hip2", "knee1": "knee2"})
# From the hip to the centres of mass (links, directions, lengths) and to the feet (legs, directions, lengths). The lengths are
# those of `lengths`.
CENTERS, FEET = np.zeros((5, 5, 5)), np.zeros((2, 5, 5))
CENTERS[0, 0, 0] = 1
for _leg, _thigh in enumerate((1, 3)):
    CENTERS[_thigh, _thigh, 1] = CENTERS[_thigh + 1, _thigh, 2] = CENTERS[_thigh + 1, _thigh + 1, 3] = -1
    FEET[_leg, _thigh, 2] = FEET[_leg, _thigh + 1, 4] = -1


def times(table, values):
    """The product of a table of constants and an array, in the array's dtype."""
    return jnp.asarray(table, values.dtype) @ values


def lengths(p):
    return jnp.stack([p.torso_com, p.thigh_com, p.thigh_length, p.shank_com, p.shank_length])


def masses(p):
    return jnp.stack([p.torso_mass, p.thigh_mass, p.shank_mass, p.thigh_mass, p.shank_mass])


def directions(q):
    """Sines and cosines of the absolute angles, shape `(5,)` each."""
    return sincos(times(ABSOLUTE, q))


def inertia(about, arms, q, params):
    r"""The matrix of $\sum_k m_k \bar a_{ki} a_{kj}\cos(\varphi_i - \varphi_j) + I_i\delta_{ij}$, by arms in lengths."""
    (s, c), p = directions(q), params
    left, right = times(about, lengths(p)), times(arms, lengths(p))
    own = jnp.stack([p.torso_inertia, p.thigh_inertia, p.shank_inertia, p.thigh_inertia, p.shank_inertia])
    return left.T @ (masses(p)[:, None] * right) * (jnp.outer(c, c) + jnp.outer(s, s)) + jnp.diag(own)


def loads(arms, q, v, params):
    """What gravity and the rates add to the equations of the absolute angles, shape `(5,)`."""
    (s, c), squares = directions(q), times(ABSOLUTE, v) ** 2
    reach = times(arms, lengths(params))
    second = reach.T @ (masses(params)[:, None] * reach)
    return (second * (jnp.outer(s, c) - jnp.outer(c, s))) @ squares - params.gravity * (masses(params) @ reach) * s


def stance_mass(q, params):
    arms = CENTERS - FEET[0]
    return times(ABSOLUTE.T, times(ABSOLUTE.T, inertia(arms, arms, q, params)).T)


def stance_bias(q, v, params):
    return times(ABSOLUTE.T, loads(CENTERS - FEET[0], q, v, params))


def phase(q, params):
    return q[0] + q[1] + q[2] / 2


def coefficients(params):
    r"""$\alpha$, shape `(4, 6)`."""
    given = [getattr(params, f"{joint}_{k}") for joint in joints for k in range(1, 6)]
    given = jnp.stack(given).reshape(4, 5)
    return jnp.column_stack([given[LEGS[1:] - 1, -1], given])


def desired(theta, params):
    return bezier(coefficients(params), (theta - params.phase_start) / (params.phase_stop - params.phase_start))


def on_curve(theta, params):
    """The coordinates where all outputs are zero."""
    angles = desired(theta, params)
    return jnp.concatenate([(theta - angles[0] - angles[1] / 2)[None], angles])


constraints = virtual_constraints(
    Mechanism(stance_mass, coriolis=stance_bias),
    inputs=np.eye(5, 4, -1),
    phase=phase,
    desired=desired,
    outputs=lambda q, params: q[1:],
    stiffness=lambda params: params.stiffness,
    damping=lambda params: params.damping,
    configuration=on_curve,
)


def swing(t, x, params):
    return jnp.concatenate([x[5:], constraints.acceleration(t, x[:5], x[5:], params)])


def foothold(x, params):
    """The swing foot seen from the stance foot, m."""
    return jnp.stack(directions(x[:5])) @ times(FEET[1] - FEET[0], lengths(params))


def foot_height(t, x, params):
    return foothold(x, params)[1]


def foot_ahead(t, x, params):
    return foothold(x, params)[0] > 0


def to_hip(q, params):
    """The hip seen from the stance foot, m."""
    return jnp.stack(directions(q)) @ times(-FEET[0], lengths(params))


def hip_height(t, x, params):
    return to_hip(x[:5], params)[1]


def strike(t, x, params):
    q, v = x[:5], x[5:]
    momenta = inertia(CENTERS - FEET[1], CENTERS - FEET[0], q, params) @ times(ABSOLUTE, v)
    after = solve(inertia(CENTERS - FEET[1], CENTERS - FEET[1], q, params), momenta)
    return jnp.concatenate([q[LEGS], times(RELATIVE, after)[LEGS]])


def invariant(params):
    r"""The parameters with those $\theta_i$, $\theta_f$ and $\alpha_1$, from the others, for which the strike leads the surface
    of the virtual constraints to itself; differentiable.

    At the strike both feet are on the ground, which fixes the pitch; the rates after it give $\alpha_1$.
    """
    last = coefficients(params)[:, -2:]
    far, above = foothold(jnp.concatenate([jnp.zeros_like(last[:1, 1]), last[:, 1]]), params)
    before = jnp.concatenate([jnp.arctan2(above, far)[None], last[:, 1]])
    start, stop = phase(before[LEGS], params), phase(before, params)
    slope = 5 * (last[:, 1] - last[:, 0]) / (stop - start)
    rates = jnp.concatenate([(1 - slope[0] - slope[1] / 2)[None], slope])
    after = strike(jnp.zeros_like(start), jnp.concatenate([before, rates]), params)[5:]
    first = before[LEGS][1:] + (stop - start) / 5 * after[1:] / phase(after, params)
    derived = lambda p: [p.phase_start, p.phase_stop, p.hip1_1, p.knee1_1, p.hip2_1, p.knee2_1]
    return eqx.tree_at(derived, params, [start, stop, *first])


coordinates = ("pitch", *joints, "pitch_rate", *(f"{joint}_rate" for joint in joints))
units, time_unit = ("rad",) * 5 + ("rad/s",) * 5, "s"
system = HybridSystem(
    modes={"swing": Mode(swing, coordinates, domain=hip_height, units=units)},
    transitions=(Transition("swing", "swing", guard=foot_height, reset=strike, armed=foot_ahead),),
    time_unit=time_unit,
)
sequence = ("swing",)
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """Both feet on the ground; rates near those of the gait of the default values."""
    pitch = params.phase_start - params.hip2_5 - params.knee2_5 / 2
    angles = jnp.stack([pitch, params.hip2_5, params.knee2_5, params.hip1_5, params.knee1_5])
    return jnp.concatenate([angles, jnp.asarray([-0.24, 1.67, -0.48, -0.09, 2.71], angles.dtype)])


def start(params):
    """`(mode, x)`: just after a strike, near the gait of the default values."""
    return "swing", guess(params)


def region(params):
    """Just after a strike, around the gait of the default values."""
    width = jnp.asarray([0.02] * 5 + [0.2] * 5, params.gravity.dtype)
    return guess(params) - width, guess(params) + width


def torques(t, x, params):
    """The torques of the motors at stance hip, stance knee, swing hip, swing knee, N m."""
    return constraints.control(t, x[:5], x[5:], params)


def power(t, x, params):
    """The power of the motors, W."""
    return torques(t, x, params) @ x[6:]


def weight(params):
    """The weight of the robot, N."""
    return jnp.sum(masses(params)) * params.gravity


# The robot free of the ground, with the hip's place before the coordinates: for forces and impulses of the ground.


def free_mass(q, params):
    s, c = directions(q[2:])
    first = masses(params) @ times(CENTERS, lengths(params))
    along = times(ABSOLUTE.T, jnp.stack([first * c, -first * s]).T)
    turning = times(ABSOLUTE.T, times(ABSOLUTE.T, inertia(CENTERS, CENTERS, q[2:], params)).T)
    whole = jnp.sum(masses(params)) * jnp.eye(2, dtype=q.dtype)
    return jnp.block([[whole, along.T], [along, turning]])


def free_bias(q, v, params):
    (s, c), squares = directions(q[2:]), times(ABSOLUTE, v[2:]) ** 2
    first = masses(params) @ times(CENTERS, lengths(params))
    falls = jnp.stack([-(first * s) @ squares, weight(params) - (first * c) @ squares])
    return jnp.concatenate([falls, times(ABSOLUTE.T, loads(CENTERS, q[2:], v[2:], params))])


def swing_foot(q, params):
    return q[:2] + jnp.stack(directions(q[2:])) @ times(FEET[1], lengths(params))


def swing_foot_slip(t, q, v, params):
    return jax.jvp(lambda q: swing_foot(q, params)[0], (q,), (v,))[1]


free = Mechanism(free_mass, coriolis=free_bias)
lands = Contact(lambda t, q, params: swing_foot(q, params)[1], swing_foot_slip, static=math.inf)


def pinned(q, params):
    """The free robot's coordinates with the stance foot at the origin, for `free.reduced`."""
    return jnp.concatenate([to_hip(q, params), q])


def ground_force(t, x, params):
    """The force on the stance foot, along the ground and upward, N."""
    return foot_force(x, swing(t, x, params)[5:], params)


def first_moments(params):
    """Of the masses along the links, from the stance foot, shape `(5,)`, kg m."""
    return masses(params) @ times(CENTERS - FEET[0], lengths(params))


def foot_force(x, acceleration, params):
    """`ground_force` for accelerations of the coordinates: it moves the centre of mass."""
    (s, c), first = directions(x[:5]), first_moments(params)
    squares, turning = times(ABSOLUTE, x[5:]) ** 2, times(ABSOLUTE, acceleration)
    return jnp.stack([first @ (c * turning - s * squares), weight(params) - first @ (s * turning + c * squares)])


def strike_impulse(x, params):
    """The impulse on the swing foot at the strike, upward and along the ground, N s, by the state before it: what it adds to the
    momentum."""
    after, first = strike(jnp.zeros_like(x[0]), x, params), first_moments(params)

    def momentum(x):
        (s, c), rates = directions(x[:5]), times(ABSOLUTE, x[5:])
        return jnp.stack([-first @ (s * rates), first @ (c * rates)])

    return momentum(after) - momentum(x)


# Drawn in grey, beside the legs.
scenery = ("torso",)


def outline(mode, x, params):
    """Torso and legs, from the stance foot, in m."""
    s, c = directions(x[:5])
    down = lambda link, length: -length * jnp.stack([s[link], c[link]])
    hip = to_hip(x[:5], params)
    knees = [hip + down(thigh, params.thigh_length) for thigh in (1, 3)]
    foot = knees[1] + down(4, params.shank_length)
    return {
        "stance leg": jnp.stack([jnp.zeros_like(hip), knees[0], hip]),
        "swing leg": jnp.stack([hip, knees[1], foot]),
        "torso": jnp.stack([hip, hip - down(0, params.torso_length)]),
        "hip": hip[None],
    }


def travel(mode, x, params):
    """The vector from the stance foot to the next stance foot, at the strike."""
    return foothold(x, params)
