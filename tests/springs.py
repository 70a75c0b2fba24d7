"""An oscillator with two springs, of frequency 1 above zero and `below` below it: arcs of sines, with events at their zeros."""

import jax.numpy as jnp
import numpy as np

import hyjax as hj


def above(t, x, p):
    return jnp.stack([x[1], -x[0]])


def below(t, x, p):
    return jnp.stack([x[1], -(p["below"] ** 2) * x[0]])


def both(t, x, p):
    return jnp.where(x[0] > 0, above(t, x, p), below(t, x, p))


same = lambda t, x, p: x
system = hj.HybridSystem(
    {"above": hj.Mode(above, ("y", "v")), "below": hj.Mode(below, ("y", "v"))},
    (
        hj.Transition("above", "below", guard=lambda t, x, p: x[0], reset=same),
        hj.Transition("below", "above", guard=lambda t, x, p: -x[0], reset=same),
    ),
)
START = jnp.array([1.0, 0.0])


def exact(t, frequency):
    """The height from `START`: cosine for a quarter of a period, then half periods below and above in turn."""
    since = np.asarray(t) - np.pi / 2
    phase = np.mod(since, np.pi / frequency + np.pi)
    under = -np.sin(frequency * phase) / frequency
    over = np.sin(phase - np.pi / frequency)
    return np.where(since < 0, np.cos(t), np.where(phase < np.pi / frequency, under, over))
