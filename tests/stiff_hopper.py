r"""A hopper whose leg force follows its command with a lag: stiff in stance, and linear, so that all of it has a closed form.

Flight: $\ddot y = -g$ until the foot, a leg of length 1 below, is down. Stance: $\ddot y = s - g$ and
$\dot s = r\,(k\,(1 + d - y) - s)$ until the force $s$ falls to zero. The impact keeps the part $e$ of the speed, and the
extension $d$ gives back what it takes.
"""

import jax.numpy as jnp
import mpmath as mp

import hyjax as hj


def flight(t, x, p):
    return jnp.stack([x[1], -p["g"]])


def stance(t, x, p):
    y, v, s = x
    return jnp.stack([v, s - p["g"], p["r"] * (p["k"] * (1 + p["d"] - y) - s)])


system = hj.HybridSystem(
    {"flight": hj.Mode(flight, ("y", "y_rate")), "stance": hj.Mode(stance, ("y", "y_rate", "force"))},
    (
        hj.Transition(
            "flight",
            "stance",
            guard=lambda t, x, p: x[0] - 1,
            reset=lambda t, x, p: jnp.stack([x[0], p["e"] * x[1], jnp.zeros_like(x[0])]),
        ),
        hj.Transition("stance", "flight", guard=lambda t, x, p: x[2], reset=lambda t, x, p: x[:2]),
    ),
)
sequence = ("flight", "stance")
# Two time constants of 0.1 ms in each vibration of 0.4 s.
VALUES = {"g": 9.81, "k": 200.0, "r": 1e4, "d": 0.05, "e": 0.8}
START = (1.05, 1.5)


def params(**changes):
    return {name: jnp.asarray(value) for name, value in (VALUES | changes).items()}


def exact_stance(v, p):
    """`(duration, y, v)` at lift-off from `(1, v, 0)`, in as many digits as `mpmath` carries."""
    g, k, r, d = (mp.mpf(p[name]) for name in "gkrd")
    # About the equilibrium (1 + d - g / k, 0, g) the state moves by a matrix, whose modes decay or vibrate on their own.
    matrix = mp.matrix([[0, 1, 0], [0, 0, 1], [-r * k, 0, -r]])
    values, vectors = mp.eig(matrix)
    weights = mp.lu_solve(vectors, mp.matrix([g / k - d, v, -g]))
    at = lambda t, i: mp.re(sum(vectors[i, j] * weights[j] * mp.exp(values[j] * t) for j in range(3)))
    # About half a vibration.
    half = mp.pi / mp.sqrt(k)
    t = mp.findroot(lambda t: at(t, 2) + g, (half / 2, 3 * half / 2), solver="illinois")
    return t, at(t, 0) + 1 + d - g / k, at(t, 1)


def exact_stride(y, v, p):
    """`(y, v, duration)` after flight and stance, from just after a lift-off."""
    g, e = mp.mpf(p["g"]), mp.mpf(p["e"])
    down = mp.sqrt(v**2 + 2 * g * (y - 1))
    t, y, w = exact_stance(-e * down, p)
    return y, w, (v + down) / g + t
