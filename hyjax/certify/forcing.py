r"""The period after which a forced system repeats itself: of the sines and cosines of the time in its functions.

Where the time $t$ enters the functions of a system by $\sin(\omega t + \dots)$ and $\cos(\omega t + \dots)$ alone, with
frequencies that are multiples of one of them, the system repeats itself after $2\pi k / \omega$, exactly. This number is no
float; it is enclosed.
"""

import math
from collections.abc import Callable

import jax.numpy as jnp

from .._orbit.orbit import PeriodicOrbit
from .exact_graph import constants_of
from .exact_numbers import arb, with_fifty_digits
from .mode_field import numbers_and_rest
from .symbolic import Graph, graph_of

# How near the orbit's period must be to a number of turns of a sine, and to the period that is derived.
CLOSE = 1e-6


@with_fifty_digits
def forcing_period(orbit: PeriodicOrbit) -> tuple[arb, str]:
    """The period of a system's forcing that is near the period of an orbit, which the closing jump takes off the time; and a
    sentence on what is proved of it, and what is assumed."""
    near, frequencies, others = float(orbit.period), [], []
    for name, graph, leaves in _functions(orbit):
        constants = constants_of(graph, leaves)
        for atom, form in graph.varying.uses(0):
            if atom in ("sin", "cos"):
                at = graph.varying.coefficients.index(form)
                frequencies.append((graph.fixed.expression(form), constants[at]))
            elif name not in others:
                others.append(name)
    period = _common_period(frequencies, near)
    if period is None:
        return arb(near), f"The system repeats itself after the period {near!r}, exactly."
    repeats = "The sines and cosines of the time repeat themselves after the period, 2 pi k over their frequency."
    if others:
        repeats += f" {', '.join(others)}: depends on the time otherwise too, which is assumed to repeat itself."
    return period, repeats


def _functions(orbit: PeriodicOrbit) -> list[tuple[str, Graph, list]]:
    """The functions of the orbit's modes and transitions, of the time, the state and the parameters."""
    system, params = orbit.system, orbit.params
    leaves, params_of = numbers_and_rest(params)
    found: dict[tuple, tuple[str, Callable, int]] = {}

    def known(what, function, name):
        size = system.mode(name).dimension
        found.setdefault((function, size), (f"{what} of mode {name!r}", function, size))

    for name in dict.fromkeys(orbit.sequence):
        known("The vector field", system.mode(name).vector_field, name)
        for i in system.ways_out(name):
            known("A guard", system.way(i).guard, name)
            if system.way(i).armed is not None:
                known("What arms a guard", system.way(i).armed, name)
    for i in system.route(orbit.sequence):
        known("A reset", system.way(i).reset, system.way(i).source)
    return [
        (what, graph_of(_of_leaves(function, params_of), jnp.zeros(()), jnp.zeros(size), *leaves, varying=2), leaves)
        for what, function, size in found.values()
    ]


def _of_leaves(function: Callable, params_of: Callable):
    return lambda t, x, *leaves: jnp.asarray(function(t, x, params_of(leaves)))


def _common_period(frequencies: list[tuple[tuple, arb]], near: float) -> arb | None:
    """The number near `near` that is a whole number of periods of each frequency, if their ratios are seen to be rational."""
    found: set = set()
    period = None
    for (factor, expression), value in frequencies:
        turns = near * (float(value) / math.pi) / 2
        k = round(turns)
        if k == 0 or abs(turns - k) > CLOSE * abs(k):
            return None
        found.add((factor / k, expression))
        period = period or 2 * k * arb.pi() / value
    if period is None or len(found) > 1:
        return None
    return period if period > 0 else -period
