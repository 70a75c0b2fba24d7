r"""The kneed walker: passive legs with knees and point feet, down a slope.

The stance leg is straight, the swing leg has a thigh and a shank. Absolute angles from the vertical, positive when the link
leans backward: $q_1$ of the stance leg, $q_2$ of the thigh, $q_3$ of the shank, so that the hip is at $L(-\sin q_1, \cos q_1)$
from the stance foot and the swing knee at $l_t(\sin q_2, -\cos q_2)$ from the hip. Point masses: $m_h$ at the hip; in each leg
$m_s$ on the shank, $a_1$ from the foot and $b_1$ from the knee, and $m_t$ on the thigh, $a_2$ from the knee and $b_2$ from the
hip; $l_s = a_1 + b_1$, $l_t = a_2 + b_2$, $L = l_s + l_t$. With the first and second moments

$$G_1 = m_sa_1 + m_t(l_s + a_2) + (m_h + m_t + m_s)L, \quad G_2 = m_tb_2 + m_sl_t, \quad G_3 = m_sb_1,$$
$$J_1 = m_sa_1^2 + m_t(l_s + a_2)^2 + (m_h + m_t + m_s)L^2, \quad J_2 = m_tb_2^2 + m_sl_t^2, \quad J_3 = m_sb_1^2$$

and $c_{ij} = \cos(q_i - q_j)$, $s_{ij} = \sin(q_i - q_j)$, Lagrange's equations of the mode `unlocked` are

$$J_1\ddot q_1 - G_2Lc_{12}\ddot q_2 - G_3Lc_{13}\ddot q_3 = G_2Ls_{12}\dot q_2^2 + G_3Ls_{13}\dot q_3^2 + gG_1\sin q_1$$
$$-G_2Lc_{12}\ddot q_1 + J_2\ddot q_2 + G_3l_tc_{23}\ddot q_3 = -G_2Ls_{12}\dot q_1^2 - G_3l_ts_{23}\dot q_3^2 - gG_2\sin q_2$$
$$-G_3Lc_{13}\ddot q_1 + G_3l_tc_{23}\ddot q_2 + J_3\ddot q_3 = -G_3Ls_{13}\dot q_1^2 + G_3l_ts_{23}\dot q_2^2 - gG_3\sin q_3$$

The knee strikes when $q_2 - q_3$ falls to zero, and locks. In the mode `locked`, $q_3 = q_2$: both legs are straight, with
$G_l = G_2 + G_3$ and $J_l = J_2 + J_3 + 2G_3l_t$ of the swing leg about the hip,

$$J_1\ddot q_1 - G_lLc_{12}\ddot q_2 = G_lLs_{12}\dot q_2^2 + gG_1\sin q_1, \qquad
  -G_lLc_{12}\ddot q_1 + J_l\ddot q_2 = -G_lLs_{12}\dot q_1^2 - gG_l\sin q_2$$

The strike's impulse is a torque in the knee: with the mass matrices $M_3$, $M_2$ on the left of these equations and
$\dot q = E(\dot q_1, \dot q_2)$ for a straight leg, it conserves $E^\top M_3\dot q$,

$$M_2\,(\dot q_1, \dot q_2)^+ = E^\top M_3\,(\dot q_1, \dot q_2, \dot q_3)^-, \qquad
  E^\top = \begin{pmatrix} 1 & 0 & 0 \\ 0 & 1 & 1 \end{pmatrix}$$

The swing foot strikes when $q_1 + q_2 + 2\gamma$ falls to zero with $q_1 < q_2$ (the new foot ahead), on two straight legs. The
legs change roles, $q^+ = (q_2, q_1, q_1)^-$. The impulse acts at the new foot, and the old one leaves the ground: the angular
momentum of the whole about the new foot, and that of the old stance leg about the hip, is conserved. With
$H = m_sa_1(b_1 + l_t) + m_t(l_s + a_2)b_2$, and $\dot q^+ = (w_1, w_2, w_2)$,

$$J_1w_1 + J_lw_2 - G_lLc_{12}(w_1 + w_2) = (m_hL + 2m_sa_1 + 2m_t(l_s + a_2))\,Lc_{12}\,\dot q_1^- - H(\dot q_1 + \dot q_2)^-$$
$$J_lw_2 - G_lLc_{12}w_1 = -H\dot q_1^-$$

Then the knee of the new swing leg is free. A straight swing leg that swings back to the stance leg scuffs the ground: where
$q_2 - q_1$ falls to zero, the walker has stumbled, and stays. It leaves the domain when it has fallen, with its hip on the slope:
$\cos(q_1 + \gamma) \ge 0$; when its swing foot touches the slope too early, above which its height is
$L\cos(q_1 + \gamma) - l_t\cos(q_2 + \gamma) - l_s\cos(q_3 + \gamma) \ge 0$; and when its knee would bend the other way,
$q_2 - q_3 \ge 0$.

Source: McGeer (1990), *Passive walking with knees*, ICRA; Hsu Chen (2007), *Passive dynamic walking with knees: a point foot
model*, M.Eng. thesis, MIT, for this model and its parameters. Programs that follow the thesis start, on a slope of 0.0504, at
$q = (0.1877, -0.2884, -0.2884)$, $\dot q = (-1.1014, -0.0399, -0.0399)$, whence the walker settles to the gait; the gait of the
equations above is at $(0.1882, -0.2890, -0.2890)$, $(-1.1096, -0.0571, -0.0571)$.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import cos, sincos
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition, unchanged
from ._common import ground as ground, parameter, require, require_slope
from .compass_gait import foot_ahead, foot_height, hip_height, solve2

title = "Kneed walker"
source = "McGeer, ICRA (1990); Hsu Chen, M.Eng. thesis, MIT (2007)"


class Params(Shown):
    """Ground, masses, lengths: Hsu Chen's walker."""

    slope: Float[Array, ""] = parameter(0.0504, "rad", "slope gamma of the ground, downhill positive", (0.03, 0.07))
    hip_mass: Float[Array, ""] = parameter(0.5, "kg", "mass m_h at the hip")
    thigh_mass: Float[Array, ""] = parameter(0.5, "kg", "mass m_t of a thigh")
    shank_mass: Float[Array, ""] = parameter(0.05, "kg", "mass m_s of a shank")
    a1: Float[Array, ""] = parameter(0.375, "m", "foot to the shank's mass")
    b1: Float[Array, ""] = parameter(0.125, "m", "the shank's mass to the knee")
    a2: Float[Array, ""] = parameter(0.175, "m", "knee to the thigh's mass")
    b2: Float[Array, ""] = parameter(0.325, "m", "the thigh's mass to the hip")
    gravity: Float[Array, ""] = parameter(9.81, "m/s^2", "acceleration of gravity g")

    def __check_init__(self):
        require_slope(self)
        # The equations need a shank and a thigh with inertia about their upper ends.
        require(self, positive="thigh_mass shank_mass b1 b2 gravity", nonnegative="hip_mass a1 a2")


def lengths(params):
    """The lengths of shank, thigh and leg."""
    shank, thigh = params.a1 + params.b1, params.a2 + params.b2
    return shank, thigh, shank + thigh


def moments(params):
    """First and second moments $G_1, G_2, G_3$ and $J_1, J_2, J_3$: of the stance leg with what it carries about its foot, of the
    thigh with the knee's load about the hip, of the shank about the knee."""
    mh, mt, ms = params.hip_mass, params.thigh_mass, params.shank_mass
    a1, b1, a2, b2 = params.a1, params.b1, params.a2, params.b2
    ls, lt, length = lengths(params)
    carried = mh + mt + ms
    first = ms * a1 + mt * (ls + a2) + carried * length, mt * b2 + ms * lt, ms * b1
    second = ms * a1**2 + mt * (ls + a2) ** 2 + carried * length**2, mt * b2**2 + ms * lt**2, ms * b1**2
    return first, second


def straight_moments(params):
    """$G_1, J_1$ of the stance leg, and $G_l, J_l$ of the straight swing leg about the hip."""
    (g1, g2, g3), (j1, j2, j3) = moments(params)
    _, lt, _ = lengths(params)
    return g1, j1, g2 + g3, j2 + j3 + 2 * g3 * lt


def swing_bent(t, x, params):
    q1, q2, q3, v1, v2, v3 = x
    ((g1, g2, g3), (j1, j2, j3)), g = moments(params), params.gravity
    _, lt, length = lengths(params)
    (sin1, sin2, sin3, s12, s13, s23), (*_, c12, c13, c23) = sincos(jnp.stack([q1, q2, q3, q1 - q2, q1 - q3, q2 - q3]))
    m12, m13, m23 = -g2 * length * c12, -g3 * length * c13, g3 * lt * c23
    f1 = g2 * length * s12 * v2**2 + g3 * length * s13 * v3**2 + g * g1 * sin1
    f2 = -g2 * length * s12 * v1**2 - g3 * lt * s23 * v3**2 - g * g2 * sin2
    f3 = -g3 * length * s13 * v1**2 + g3 * lt * s23 * v2**2 - g * g3 * sin3
    # The third equation gives the shank's acceleration from the other two: what is left is symmetric again.
    r1, r2 = m13 / j3, m23 / j3
    m12 = m12 - m13 * r2
    accel1, accel2 = solve2(j1 - m13 * r1, m12, m12, j2 - m23 * r2, f1 - r1 * f3, f2 - r2 * f3)
    accel3 = f3 / j3 - r1 * accel1 - r2 * accel2
    return jnp.stack([v1, v2, v3, accel1, accel2, accel3])


def swing_straight(t, x, params):
    q1, q2, v1, v2 = x
    (g1, j1, gl, jl), g = straight_moments(params), params.gravity
    *_, length = lengths(params)
    (sin1, sin2, s12), (*_, c12) = sincos(jnp.stack([q1, q2, q1 - q2]))
    coupling = gl * length
    f1 = coupling * s12 * v2**2 + g * g1 * sin1
    f2 = -coupling * s12 * v1**2 - g * gl * sin2
    accel1, accel2 = solve2(j1, -coupling * c12, -coupling * c12, jl, f1, f2)
    return jnp.stack([v1, v2, accel1, accel2])


def knee_bend(t, x, params):
    _, q2, q3, _, _, _ = x
    return q2 - q3


def knee_strike(t, x, params):
    q1, q2, _, v1, v2, v3 = x
    (_, g2, g3), (_, j2, j3) = moments(params)
    _, j1, gl, jl = straight_moments(params)
    _, lt, length = lengths(params)
    c12 = cos(q1 - q2)
    whole = j1 * v1 - length * c12 * (g2 * v2 + g3 * v3)
    leg = -gl * length * c12 * v1 + (j2 + g3 * lt) * v2 + (j3 + g3 * lt) * v3
    coupling = -gl * length * c12
    return jnp.stack([q1, q2, *solve2(j1, coupling, coupling, jl, whole, leg)])


def heel_strike(t, x, params):
    q1, q2, v1, v2 = x
    mt, ms, a1, a2 = params.thigh_mass, params.shank_mass, params.a1, params.a2
    _, j1, gl, jl = straight_moments(params)
    ls, lt, length = lengths(params)
    c12 = cos(q1 - q2)
    h = ms * a1 * (params.b1 + lt) + mt * (ls + a2) * params.b2
    hip_and_legs = params.hip_mass * length + 2 * (ms * a1 + mt * (ls + a2))
    about_foot = hip_and_legs * length * c12 * v1 - h * (v1 + v2)
    about_hip = -h * v1
    coupling = -gl * length * c12
    w1, w2 = solve2(j1 + coupling, jl + coupling, coupling, jl, about_foot, about_hip)
    return jnp.stack([q2, q1, q1, w1, w2, w2])


def leg_ahead(t, x, params):
    q1, q2, _, _ = x
    return q2 - q1


def lie(t, x, params):
    return jnp.zeros_like(x)


def clearance(q1, q2, q3, params):
    """The height of the swing foot above the slope, in m."""
    ls, lt, length = lengths(params)
    c1, c2, c3 = cos(jnp.stack([q1, q2, q3]) + params.slope)
    return length * c1 - lt * c2 - ls * c3


def clears_bent(t, x, params):
    q1, q2, q3, _, _, _ = x
    return jnp.stack([hip_height(t, x, params), clearance(q1, q2, q3, params), knee_bend(t, x, params)])


def clears_straight(t, x, params):
    q1, q2, _, _ = x
    return jnp.stack([hip_height(t, x, params), clearance(q1, q2, q2, params)])


coordinates = ("q1", "q2", "q3", "q1_rate", "q2_rate", "q3_rate")
units, time_unit = ("rad", "rad", "rad", "rad/s", "rad/s", "rad/s"), "s"
straight, straight_units = ("q1", "q2", "q1_rate", "q2_rate"), ("rad", "rad", "rad/s", "rad/s")
system = HybridSystem(
    modes={
        "unlocked": Mode(swing_bent, coordinates, domain=clears_bent, units=units),
        "locked": Mode(swing_straight, straight, domain=clears_straight, units=straight_units),
        "fallen": Mode(lie, straight, units=straight_units),
    },
    transitions=(
        Transition("unlocked", "locked", guard=knee_bend, reset=knee_strike),
        Transition("locked", "unlocked", guard=foot_height, reset=heel_strike, armed=foot_ahead),
        Transition("locked", "fallen", guard=leg_ahead, reset=unchanged),
    ),
    time_unit=time_unit,
)
sequence = ("unlocked", "locked")
step = ReturnMap(system, sequence=sequence)


def after_strike(params, stance, stance_rate, swing_rate):
    """Both feet on the slope, both legs straight; rates in units of sqrt(g/L)."""
    *_, length = lengths(params)
    rate = jnp.sqrt(params.gravity / length)
    swing = -stance - 2 * params.slope
    return jnp.stack([stance + 0 * rate, swing, swing, stance_rate * rate, swing_rate * rate, swing_rate * rate])


def guess(params):
    """Near the gait of Hsu Chen's walker."""
    return after_strike(params, 0.19, -0.355, -0.018)


def start(params):
    """`(mode, x)`: just after a heel strike, near the gait of Hsu Chen's walker."""
    return "unlocked", guess(params)


def region(params):
    """Just after the heel strike: stance leg leaning back and moving forward, swing leg straight behind it and slow."""
    low = after_strike(params, 0.1, -0.5, -0.1)
    high = after_strike(params, 0.3, -0.2, 0.1)
    return jnp.minimum(low, high), jnp.maximum(low, high)


def outline(mode, x, params):
    """The legs, from the stance foot, in the vertical frame, in m."""
    _, thigh_length, length = lengths(params)
    stance, thigh, shank = x[:3] if mode == "unlocked" else (x[0], x[1], x[1])
    foot = jnp.zeros(2)
    hip = length * jnp.stack([-jnp.sin(stance), jnp.cos(stance)])
    knee = hip + thigh_length * jnp.stack([jnp.sin(thigh), -jnp.cos(thigh)])
    other = knee + (length - thigh_length) * jnp.stack([jnp.sin(shank), -jnp.cos(shank)])
    return {"stance leg": jnp.stack([foot, hip]), "swing leg": jnp.stack([hip, knee, other]), "hip": hip[None]}


def travel(mode, x, params):
    """The vector from the stance foot to the next: at the heel strike to the swing foot, and zero where the knee locks."""
    swing_foot = outline(mode, x, params)["swing leg"][-1]
    return swing_foot if mode == "locked" else jnp.zeros_like(swing_foot)
