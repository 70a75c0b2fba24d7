"""Orbits and a trajectory for pictures: arcs of closed forms or made up, of which nothing is integrated."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np

import hyjax as hj
from hyjax._testing import Arc
from hyjax.models import bouncing_ball, compass_gait, friction_oscillator, slip

OMEGA = np.sqrt(40)
# Of a ball that falls from 1 m onto a floor with the restitution 0.8.
IMPACT = np.sqrt(2 / 9.81)


class DrawnOrbit(hj.PeriodicOrbit):
    """An orbit with arcs of its own."""

    arcs: tuple[Arc, ...] = ()

    def sample(self, n_samples=200):
        return self.arcs


def orbit_of(model, arcs, multipliers, **settings):
    """An orbit as pictures need one, with these arcs, `(mode, t, x)`; its other numbers are anything."""
    params = model.Params(**settings)
    arcs = tuple(Arc(mode, jnp.asarray(t), jnp.asarray(x)) for mode, t, x in arcs)
    x = arcs[0].x[0]
    return DrawnOrbit(
        x=x, period=arcs[-1].t[-1], multipliers=jnp.asarray(multipliers, complex),
        return_jacobian=jnp.zeros((x.size, x.size)), residual=jnp.array(0.0), guard_rates=-jnp.ones(len(arcs)),
        nodes=x[None], start_times=jnp.zeros(1), before=arcs[-1].x[-1][None], arc_ends=tuple(arc.x[-1][None] for arc in arcs),
        jump_times=jnp.ones((1, len(arcs))), iterations=jnp.array(1), distance=jnp.array(0.0), result=hj.RESULTS.successful,
        params=params, system=model.system, sequence=tuple(arc.mode for arc in arcs), strides=1,
        integrator=hj.Integrator(), arcs=arcs,
    )  # fmt: skip


def swinging(multipliers=(0.3 + 0.4j, 0.3 - 0.4j, 0.0, 0.0), period=3.0, swing=0.3, model=compass_gait, **settings):
    """Legs that swing as sines; by default on a compass gait with a slope of 3 degrees."""
    t = np.linspace(0, period, 60)
    phase, rate = np.pi * t / period, np.pi / period * swing
    x = [swing * np.cos(phase), -swing * np.cos(phase) - 0.1, -rate * np.sin(phase), rate * np.sin(phase)]
    arcs = [("swing", t, np.stack(x, axis=1))]
    return orbit_of(model, arcs, multipliers, **{"slope": np.deg2rad(3)} | settings)


def running():
    """Flight, stance and flight, of parabolas and sines."""
    down, stand, up = (np.linspace(a, b, 40) for a, b in ((0, 0.7), (0.7, 1.3), (1.3, 2)))
    fall = np.stack([1.2 - down**2 / 2, -down], axis=1)
    part = (stand - 0.7) / 0.6
    rest = np.stack(
        [
            0.8 * (part - 0.5),
            0.955 - 0.15 * np.sin(np.pi * part),
            1.3 + 0.1 * np.cos(2 * np.pi * part),
            -0.7 + 1.4 * part,
        ],
        axis=1,
    )
    climb = np.stack([1.2 - (2 - up) ** 2 / 2, 2 - up], axis=1)
    return orbit_of(slip, [("descent", down, fall), ("stance", stand, rest), ("ascent", up, climb)], [1.34, 0.0])


def sliding():
    """A block that sticks to a belt, and slips as a sine; the times are made up."""
    begin, end, middle = 0.2 * 9.81 / 40, 0.4 * 9.81 / 40, 0.3 * 9.81 / 40
    phase = np.linspace(0, np.pi + 2 * np.arctan(0.1 / (OMEGA * (end - middle))), 50)
    x = middle + (end - middle) * np.cos(phase) + 0.1 / OMEGA * np.sin(phase)
    x_rate = -(end - middle) * OMEGA * np.sin(phase) + 0.1 * np.cos(phase)
    arcs = [
        ("stick", np.linspace(0, 1, 50), np.linspace(begin, end, 50)[:, None]),
        ("slip", np.linspace(1, 2, 50), np.stack([x, x_rate], axis=1)),
    ]
    return orbit_of(friction_oscillator, arcs, [0.0])


def height(t, start, y, v):
    """Height and speed of a ball that is thrown."""
    s = t - start
    return np.stack([y + v * s - 9.81 * s**2 / 2, v - 9.81 * s], axis=-1)


def bouncing(samples=None):
    """A ball that falls from 1 m and bounces once, until 1.1 s: parabolas."""
    falls = [(0.0, 1.0, 0.0, IMPACT), (IMPACT, 0.0, 0.8 * 9.81 * IMPACT, 1.1)]
    arcs = []
    for begin, y, v, end in falls:
        t = np.linspace(begin, end, 40)
        arcs.append(Arc("flight", jnp.asarray(t), jnp.asarray(height(t, begin, y, v))))
    system, params = bouncing_ball.system, bouncing_ball.Params()
    return run_of(arcs, system=system, params=params, samples=samples)


def run_of(arcs, **parts):
    """What pictures ask of a trajectory of such arcs."""
    largest = max(arc.x.shape[1] for arc in arcs)
    starts = [np.pad(np.asarray(arc.x[0]), (0, largest - arc.x.shape[1])) for arc in arcs]
    return SimpleNamespace(
        sample=lambda n: tuple(arcs), mode_names=[arc.mode for arc in arcs], x_starts=starts, **parts
    )
