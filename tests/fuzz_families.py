r"""Families of random hybrid systems in which events are degenerate, and the exact run of each: pieces in closed form, joined by
a loop in NumPy that knows nothing of hyjax.

- `weight`: $\ddot x = -w$, $w = a + b\cos(\omega t + \varphi)$, on a floor without restitution. It leaves the floor where
  $w = 0$: there the gap and its first two derivatives are zero.
- `friction`: $\ddot x = -kx - c\dot x + A\cos(\omega t + \varphi) - F\,\mathrm{sign}(\dot x)$, a discontinuous field. Where it
  begins to slip, the slip and its first derivative are zero.
- `relay`: $\dot x = r(\pm h - x)$ between two thresholds, as near as $10^{-5}$: chattering, up to 60 events.
- `ball`: $\ddot x = -g$ with restitution: chattering that accumulates.
- `units`: $\dot x_i = I - x_i$; at 1, $x_i$ falls to 0 and the others by $\varepsilon$. Four units with identical guards.
- `pair`: two such units with $\varepsilon = 0$, and $\dot z = -z$, to which each adds $d_i$. From equal starts they fire
  together, and the events commute.
- `diode`: $L\dot i = V\sin(\omega t + \varphi) - E - Ri$ while $i > 0$. It conducts again where the voltage vanishes: there the
  current and its first derivative are zero.

An arc of a family is `flow(p, mode, t0, x0)`, a function of times. A guard fires where it falls from above its rounding to zero.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq

import hyjax as hj

# Samples of an arc in which guards are looked at; near its start they are denser and denser.
SAMPLES, NEAR = 1500, 1e-3 * 0.7 ** np.arange(30.0)[::-1]


@dataclasses.dataclass(frozen=True)
class Family:
    """**Attributes:** `draw`: from a generator, `(params, x0, mode)`. `flow`: `(params, mode, t0, x0)` to the exact state as a
    function of times, shape `(n, times)`. `leave`: `(params, mode)` to a list of `(guard(t, x), where to)`; where to:
    `(t, x) -> (mode, x)`. `accumulates`: the time at which events accumulate, where they do."""

    system: hj.HybridSystem
    mode: str
    end: float
    max_jumps: int
    draw: Callable
    flow: Callable
    leave: Callable
    accumulates: Callable = lambda p, x0: np.inf


@dataclasses.dataclass
class Run:
    times: list[float]
    modes: list[str]
    x: np.ndarray


def first_fall(guard: Callable, t0: float, t1: float, shift: float) -> float:
    """The time at which a function of time falls to `-shift` after it was above its rounding, infinite without one."""
    times = np.unique(np.concatenate([t0 + NEAR, np.linspace(t0 + NEAR[-1], max(t1, t0 + 2e-3), SAMPLES)]))
    times = times[times <= t1]
    if not times.size:
        return np.inf
    g = guard(times) + shift
    up = np.logical_or.accumulate(g > 1e-15)
    down = np.flatnonzero(up & (g <= 0))
    if not down.size:
        return np.inf
    k = down[0]
    fall = brentq(lambda s: float(guard(np.array([s]))[0] + shift), times[k - 1], times[k], xtol=1e-16, rtol=1e-15)
    return float(fall)  # pyright: ignore[reportArgumentType]


def exact_run(family: Family, p: dict, x0: np.ndarray, shift: float = 0.0) -> Run:
    """The run of a member whose guards are all moved by `shift`."""
    t, mode, x, run = 0.0, family.mode, np.asarray(x0, float), Run([], [family.mode], np.zeros(0))
    while True:
        flow = family.flow(p, mode, t, x)
        along = [lambda s, guard=guard, flow=flow: guard(s, flow(s)) for guard, _ in family.leave(p, mode)]
        falls = [(first_fall(guard, t, family.end, shift), k) for k, guard in enumerate(along)]
        when, k = min(falls)
        if not np.isfinite(when) or len(run.times) == family.max_jumps:
            run.x = flow(np.array([family.end]))[:, 0]
            return run
        before = flow(np.array([when]))[:, 0]
        t, (mode, x) = when, family.leave(p, mode)[k][1](when, before)
        run.times.append(t)
        run.modes.append(mode)


def same(t, x, p):
    return x


# A weight on the floor


def _load(p, t, cos=np.cos):
    return p["a"] + p["b"] * cos(p["w"] * t + p["phase"])


def _fall(p, mode, t0, x0):
    if mode == "rests":
        return lambda t: np.zeros((2, t.size))
    a, b, w, start = p["a"], p["b"], p["w"], p["w"] * t0 + p["phase"]

    def at(t):
        s, angle = t - t0, p["w"] * t + p["phase"]
        v = x0[1] - a * s - b / w * (np.sin(angle) - np.sin(start))
        x = x0[0] + x0[1] * s - a * s**2 / 2 + b / w**2 * (np.cos(angle) - np.cos(start)) + b / w * np.sin(start) * s
        return np.stack([x, v])

    return at


def _weight_leaves(p, mode):
    if mode == "rests":
        return [(lambda t, x: _load(p, t), lambda t, x: ("flies", np.zeros(2)))]
    return [(lambda t, x: x[0], lambda t, x: ("rests" if _load(p, t) > 0 else "flies", np.zeros(2)))]


def _draw_weight(rng):
    while True:
        p = dict(a=rng.uniform(0.5, 2), b=rng.uniform(0.5, 6), w=rng.uniform(1, 6), phase=rng.uniform(0, 2 * np.pi))
        if _load(p, 0.0) > 0.05:
            return p, np.zeros(2)


def _load_of(t, x, p):
    return _load(p, t, jnp.cos)


WEIGHT = Family(
    hj.HybridSystem(
        {
            "rests": hj.Mode(lambda t, x, p: 0 * x, ("x", "v")),
            "flies": hj.Mode(lambda t, x, p: jnp.stack([x[1], -_load_of(t, x, p)]), ("x", "v")),
        },
        (
            hj.Transition("rests", "flies", _load_of, lambda t, x, p: 0 * x),
            hj.Transition(
                "flies", "rests", lambda t, x, p: x[0], lambda t, x, p: 0 * x, lambda t, x, p: _load_of(t, x, p) > 0
            ),
            hj.Transition(
                "flies", "flies", lambda t, x, p: x[0], lambda t, x, p: 0 * x, lambda t, x, p: _load_of(t, x, p) <= 0
            ),
        ),
    ),
    "rests", 6.0, 20, _draw_weight, _fall, _weight_leaves,
)  # fmt: skip


# Dry friction


def _pull(p, t, x, cos=np.cos):
    return -p["k"] * x[0] + p["A"] * cos(p["w"] * t + p["phase"])


def _slip(p, mode, t0, x0):
    if mode == "sticks":
        return lambda t: np.stack([np.full(t.size, x0[0]), np.zeros(t.size)])
    k, c, w = p["k"], p["c"], p["w"]
    rest = (-1 if mode == "forward" else 1) * p["F"] / k
    gain = p["A"] / (k - w**2 + 1j * c * w)
    root = np.sqrt(k - c**2 / 4)
    forced = lambda t: np.stack(
        [
            rest + np.real(gain * np.exp(1j * (w * t + p["phase"]))),
            np.real(1j * w * gain * np.exp(1j * (w * t + p["phase"]))),
        ]
    )
    dx, dv = x0 - forced(np.array([t0]))[:, 0]

    def at(t):
        s = t - t0
        decay, cos, sin = np.exp(-c * s / 2), np.cos(root * s), np.sin(root * s)
        other = (dv + c * dx / 2) / root
        own = np.stack([dx * cos + other * sin, dv * cos - (k * dx + c * dv / 2) / root * sin])
        return forced(t) + decay * own

    return at


def _friction_leaves(p, mode):
    if mode == "sticks":
        go = lambda where: lambda t, x: (where, np.array([x[0], 0.0]))
        return [
            (lambda t, x: p["F"] - _pull(p, t, x), go("forward")),
            (lambda t, x: p["F"] + _pull(p, t, x), go("backward")),
        ]
    sign, other = (1, "backward") if mode == "forward" else (-1, "forward")

    def stops(t, x):
        return "sticks" if abs(_pull(p, t, x)) < p["F"] else other, np.array([x[0], 0.0])

    return [(lambda t, x: sign * x[1], stops)]


def _draw_friction(rng):
    k = rng.uniform(1, 4)
    p = dict(k=k, c=rng.uniform(0, 1), A=rng.uniform(0.5, 4), w=rng.uniform(0.7, 3), phase=rng.uniform(0, 2 * np.pi))
    p["F"] = rng.uniform(0.2, 2)
    # At rest within the cone.
    x = (p["A"] * np.cos(p["phase"]) - rng.uniform(-0.9, 0.9) * p["F"]) / k
    return p, np.array([x, 0.0])


def _slipping(sign):
    return lambda t, x, p: jnp.stack([x[1], _pull(p, t, x, jnp.cos) - p["c"] * x[1] - sign * p["F"]])


def _stop(t, x, p):
    return x.at[1].set(0)


def _holds(t, x, p):
    return jnp.abs(_pull(p, t, x, jnp.cos)) < p["F"]


def _gives(t, x, p):
    return ~_holds(t, x, p)


FRICTION = Family(
    hj.HybridSystem(
        {
            "sticks": hj.Mode(lambda t, x, p: 0 * x, ("x", "v")),
            "forward": hj.Mode(_slipping(1), ("x", "v")),
            "backward": hj.Mode(_slipping(-1), ("x", "v")),
        },
        (
            hj.Transition("sticks", "forward", lambda t, x, p: p["F"] - _pull(p, t, x, jnp.cos), same),
            hj.Transition("sticks", "backward", lambda t, x, p: p["F"] + _pull(p, t, x, jnp.cos), same),
            hj.Transition("forward", "sticks", lambda t, x, p: x[1], _stop, _holds),
            hj.Transition("forward", "backward", lambda t, x, p: x[1], _stop, _gives),
            hj.Transition("backward", "sticks", lambda t, x, p: -x[1], _stop, _holds),
            hj.Transition("backward", "forward", lambda t, x, p: -x[1], _stop, _gives),
        ),
    ),
    "sticks", 10.0, 30, _draw_friction, _slip, _friction_leaves,
)  # fmt: skip


# A relay with hysteresis


def _warm(p, mode, t0, x0):
    goal = p["h"] if mode == "on" else -p["h"]
    return lambda t: (goal + (x0[0] - goal) * np.exp(-p["r"] * (t - t0)))[None]


def _relay_leaves(p, mode):
    sign, other = (1, "off") if mode == "on" else (-1, "on")
    return [(lambda t, x: p["band"] - sign * (x[0] - p["level"]), lambda t, x: (other, x))]


def _draw_relay(rng):
    p = dict(r=rng.uniform(0.5, 3), h=rng.uniform(1, 2), level=rng.uniform(-0.5, 0.5), band=10 ** rng.uniform(-5, -0.7))
    return p, np.array([p["level"] - rng.uniform(0, 0.9) * p["band"]])


def _heated(sign):
    return hj.Mode(lambda t, x, p: p["r"] * (sign * p["h"] - x), ("x",))


RELAY = Family(
    hj.HybridSystem(
        {"on": _heated(1), "off": _heated(-1)},
        (
            hj.Transition("on", "off", lambda t, x, p: p["band"] - (x[0] - p["level"]), same),
            hj.Transition("off", "on", lambda t, x, p: p["band"] + (x[0] - p["level"]), same),
        ),
    ),
    "on", 3.0, 60, _draw_relay, _warm, _relay_leaves,
)  # fmt: skip


# A ball that comes to rest


def _throw(p, mode, t0, x0):
    return lambda t: np.stack([x0[0] + x0[1] * (t - t0) - p["g"] * (t - t0) ** 2 / 2, x0[1] - p["g"] * (t - t0)])


def _ball_leaves(p, mode):
    return [(lambda t, x: x[0], lambda t, x: ("flies", np.array([0.0, -p["e"] * x[1]])))]


def _draw_ball(rng):
    return dict(g=rng.uniform(1, 20), e=rng.uniform(0.1, 0.9)), np.array([rng.uniform(0.2, 2), rng.normal()])


def _comes_to_rest(p, x0):
    speed = np.sqrt(x0[1] ** 2 + 2 * p["g"] * x0[0])
    return (x0[1] + speed) / p["g"] + 2 * speed * p["e"] / p["g"] / (1 - p["e"])


BALL = Family(
    hj.HybridSystem(
        {"flies": hj.Mode(lambda t, x, p: jnp.stack([x[1], -p["g"] + 0 * x[0]]), ("x", "v"))},
        (hj.Transition("flies", "flies", lambda t, x, p: x[0], lambda t, x, p: jnp.stack([0 * x[0], -p["e"] * x[1]])),),
    ),
    "flies", 3.0, 60, _draw_ball, _throw, _ball_leaves, _comes_to_rest,
)  # fmt: skip


# A diode


def _current(p, mode, t0, x0):
    if mode == "blocks":
        return lambda t: np.zeros((1, t.size))
    gain = p["V"] / (p["R"] + 1j * p["w"] * p["L"])
    forced = lambda t: np.imag(gain * np.exp(1j * (p["w"] * t + p["phase"]))) - p["E"] / p["R"]
    return lambda t: (forced(t) + (x0[0] - forced(t0)) * np.exp(-p["R"] / p["L"] * (t - t0)))[None]


def _voltage(p, t, sin=np.sin):
    return p["V"] * sin(p["w"] * t + p["phase"]) - p["E"]


def _diode_leaves(p, mode):
    to = lambda where: lambda t, x: (where, np.zeros(1))
    return [(lambda t, x: -_voltage(p, t), to("conducts"))] if mode == "blocks" else [(lambda t, x: x[0], to("blocks"))]


def _draw_diode(rng):
    p = dict(
        V=rng.uniform(1, 5), w=rng.uniform(2, 9), L=rng.uniform(0.1, 1), R=rng.uniform(0.1, 2), E=rng.uniform(0, 2)
    )
    # It begins where the voltage is negative.
    return p | dict(phase=rng.uniform(np.pi, 2 * np.pi)), np.zeros(1)


DIODE = Family(
    hj.HybridSystem(
        {
            "blocks": hj.Mode(lambda t, x, p: 0 * x, ("i",)),
            "conducts": hj.Mode(lambda t, x, p: (_voltage(p, t, jnp.sin) - p["R"] * x) / p["L"], ("i",)),
        },
        (
            hj.Transition("blocks", "conducts", lambda t, x, p: -_voltage(p, t, jnp.sin), same),
            hj.Transition("conducts", "blocks", lambda t, x, p: x[0], lambda t, x, p: 0 * x),
        ),
    ),
    "blocks", 6.0, 30, _draw_diode, _current, _diode_leaves,
)  # fmt: skip


# Units that fire


def _charge(p, mode, t0, x0):
    return lambda t: p["I"] + (x0[:, None] - p["I"]) * np.exp(-(t - t0))


def _units_leave(p, mode):
    def fires(i):
        return lambda t, x: ("on", np.where(np.arange(x.size) == i, 0.0, x - p["eps"]))

    return [(lambda t, x, i=i: 1 - x[i], fires(i)) for i in range(4)]


def _draw_units(rng):
    return dict(I=rng.uniform(1.1, 2), eps=rng.uniform(0.01, 0.2)), rng.uniform(0, 0.95, 4)


def _fire(i):
    return hj.Transition("on", "on", lambda t, x, p: 1 - x[i], lambda t, x, p: (x - p["eps"]).at[i].set(0.0))


UNITS = Family(
    hj.HybridSystem(
        {"on": hj.Mode(lambda t, x, p: p["I"] - x, ("x0", "x1", "x2", "x3"))}, tuple(_fire(i) for i in range(4))
    ),
    "on", 3.0, 40, _draw_units, _charge, _units_leave,
)  # fmt: skip


# Two that fire together, and a third coordinate that counts both


def _draw_pair(rng):
    x = rng.uniform(0, 0.95)
    together = rng.random() < 0.7
    p = dict(I=rng.uniform(1.1, 2), d0=rng.normal(), d1=rng.normal())
    return p, np.array([x, x if together else rng.uniform(0, 0.95), rng.normal()])


def _count(i):
    def reset(t, x, p):
        return x.at[i].set(0.0).at[2].add(p[f"d{i}"])

    return hj.Transition("on", "on", lambda t, x, p: 1 - x[i], reset)


PAIR = Family(
    hj.HybridSystem(
        {"on": hj.Mode(lambda t, x, p: jnp.stack([p["I"] - x[0], p["I"] - x[1], -x[2]]), ("x0", "x1", "z"))},
        (_count(0), _count(1)),
    ),
    "on", 3.0, 40, _draw_pair, lambda *_: None, lambda *_: [],
)  # fmt: skip


def exact_pair(p: dict, x0: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""The state at the end, and its derivative by $x_0$: $x_i$ fires at $t_1 = \log((I - x_i)/(I - 1))$ and then with the period
    $\log(I / (I - 1))$."""
    current, end = p["I"], PAIR.end
    x, slope = np.zeros(3), np.zeros((3, 3))
    x[2] = x0[2] * np.exp(-end)
    slope[2, 2] = np.exp(-end)
    for i in range(2):
        first, period = np.log((current - x0[i]) / (current - 1)), np.log(current / (current - 1))
        times = np.arange(first, end, period)
        if not times.size:
            x[i], slope[i, i] = current + (x0[i] - current) * np.exp(-end), np.exp(-end)
            continue
        earlier = -1 / (current - x0[i])
        left = np.exp(-(end - times[-1]))
        x[i], slope[i, i] = current * (1 - left), -current * left * earlier
        pulses = p[f"d{i}"] * np.exp(-(end - times))
        x[2] += np.sum(pulses)
        slope[2, i] = np.sum(pulses) * earlier
    return x, slope


FAMILIES = {"weight": WEIGHT, "friction": FRICTION, "relay": RELAY, "ball": BALL, "units": UNITS, "diode": DIODE}
