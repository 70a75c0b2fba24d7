r"""The period after which a forced system repeats itself: of the sines and cosines of the time in its functions.

Where the time $t$ enters the functions of a system by $\sin(\omega t + \dots)$ and $\cos(\omega t + \dots)$ alone, with
frequencies that are multiples of one of them, the system repeats itself after $2\pi k / \omega$, exactly. This number is no
float; it is enclosed.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._orbit.orbit import PeriodicOrbit
from .exact_graph import constants_of
from .exact_numbers import arb, with_fifty_digits
from .symbolic import Graph, graph_of

# How near the orbit's period must be to a number of turns of a sine, and to the period that is derived.
CLOSE = 1e-6


class Forcing(NamedTuple):
    """The period that the closing jump takes off the time.

    **Attributes:** `period`. `repeats`: what is proved of it, and what is assumed, a sentence.
    """

    period: arb
    repeats: str

    @classmethod
    @with_fifty_digits
    def of(cls, orbit: PeriodicOrbit) -> "Forcing":
        """The period of a system's forcing that is near the period of an orbit."""
        uses = {name: _uses(graph, leaves) for name, graph, leaves in _functions(orbit)}
        near, frequencies = float(orbit.period), [each for use in uses.values() for each in use.frequencies]
        period = _common(frequencies, near)
        if period is None:
            return cls(arb(near), f"The system repeats itself after the period {near!r}, exactly.")
        others = [name for name, use in uses.items() if use.otherwise]
        repeats = "The sines and cosines of the time repeat themselves after the period, 2 pi k over their frequency."
        if others:
            repeats += f" {', '.join(others)}: depends on the time otherwise too, which is assumed to repeat itself."
        return cls(period, repeats)


NOT_FORCED = Forcing(arb(0), "")


class _Use(NamedTuple):
    """How a function uses the time: the frequencies, as expressions and numbers; and whether it depends on it otherwise."""

    frequencies: list[tuple[tuple, arb]]
    otherwise: bool


def _functions(orbit: PeriodicOrbit) -> list[tuple[str, Graph, list]]:
    """The functions of the orbit's modes and transitions, of the time, the state and the parameters."""
    system, params = orbit.system, orbit.params
    structure = jax.tree.structure(params)
    leaves = [jnp.asarray(leaf, float) for leaf in jax.tree.leaves(params)]
    found: dict[tuple, tuple[str, Callable, int]] = {}

    def known(what, function, name):
        size = system.mode(name).dimension
        found.setdefault((function, size), (f"{what} of mode {name!r}", function, size))

    for name in dict.fromkeys(orbit.sequence):
        known("The vector field", system.mode(name).vector_field, name)
        for i in system.leaving(name):
            known("A guard", system.transitions[i].guard, name)
            if system.transitions[i].armed is not None:
                known("What arms a guard", system.transitions[i].armed, name)
    for i in system.route(orbit.sequence):
        known("A reset", system.transitions[i].reset, system.transitions[i].source)
    return [
        (what, graph_of(_of_leaves(function, structure), jnp.zeros(()), jnp.zeros(size), *leaves, varying=2), leaves)
        for what, function, size in found.values()
    ]


def _of_leaves(function: Callable, structure):
    def of(t, x, *leaves):
        return jnp.asarray(function(t, x, jax.tree.unflatten(structure, leaves)))

    return of


def _uses(graph: Graph, leaves: list) -> _Use:
    frequencies, otherwise = [], False
    constants = constants_of(graph, leaves)
    for name, form in graph.varying.uses(0):
        if name not in ("sin", "cos"):
            otherwise = True
            continue
        at = graph.varying.coefficients.index(form)
        frequencies.append((graph.fixed.expression(form), constants[at]))
    return _Use(frequencies, otherwise)


def _common(frequencies: list[tuple[tuple, arb]], near: float) -> arb | None:
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
