r"""A mode's functions as computational graphs: vector field, variational field, guards with their rates, resets; and the
period after which a forced system repeats itself.

Where the time $t$ enters the functions of a system by $\sin(\omega t + \dots)$ and $\cos(\omega t + \dots)$ alone, with
frequencies that are multiples of one of them, the system repeats itself after $2\pi k / \omega$, exactly. This number is no
float; it is enclosed.
"""

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._orbit.orbit import PeriodicOrbit
from .._system.system import HybridSystem
from .._system.types import Params
from .exact_numbers import arb, constants_of, with_fifty_digits
from .linear_forms import number
from .symbolic import Entries, Graph, graph_of, Sketch


def numbers_and_rest(params: Params) -> tuple[list[Array], Callable[[Sequence[Array]], Params]]:
    """The leaves of the parameters in float64, and the parameters by these. The others, integers, truth values and floats of less
    precision, are what they are: functions compute with them as their types do."""
    real = lambda leaf: eqx.is_array_like(leaf) and jnp.result_type(leaf) == jnp.float64
    numbers, rest = eqx.partition(params, real)
    leaves, structure = jax.tree.flatten(numbers)
    return [jnp.asarray(leaf) for leaf in leaves], lambda each: eqx.combine(jax.tree.unflatten(structure, each), rest)


class ModeField:
    r"""The functions of a mode, on a state that carries the time as its last entry if the system depends on time.

    **Attributes:** `field`: $\dot x = f(x)$. `variational`: the columns $(x, V)$, shape `(n, 1 + n)`, with $\dot V = D_x f\,V$.
    `guards`: for each transition that leaves the mode, $(g, \dot g)$ along the flow, shape `(2,)`; `gradients`: $(D_xg, \dot g)$.
    `values`: $g$ alone; `heights`: of all of them; `watch`: $(g, \dot g, D_xg)$, shape `(guards, 2 + n)`. `armed`: for each, or
    None. `dimension`: of the state with its time. `leaves`: the numbers that all depend on, the parameters' and then the period,
    which a jump that closes an orbit takes off the time.
    """

    def __init__(self, system: HybridSystem, name: str, params: Params, timed: bool, period: arb = arb(0)):
        system.refuse_at_once("a certificate")
        self.mode, self.name, self.timed = system.mode(name), name, timed
        self.dimension = self.mode.dimension + timed
        leaves, self._params_of = numbers_and_rest(params)
        self.leaves = [*leaves, period]
        self.transitions = system.ways_out(name)
        sketch = self.sketch(jnp.zeros(self.dimension))
        columns = self.sketch(jnp.zeros((self.dimension, 1 + self.dimension)))
        read = lambda function: self.read(sketch, lambda x, params, _: function(x, params))
        rate = read(self.rate)
        self._guards = [self.of_state(system.way(i).guard) for i in self.transitions]
        heights = self.heights_of(sketch, sketch.x)
        rates, slopes = [sketch.along(g, rate) for g in heights], [sketch.gradient(g) for g in heights]
        self.field, self.variational = sketch.graph(rate), columns.graph(self._columns(columns))
        each = list(zip(heights, rates, slopes, strict=True))
        self.guards = [sketch.graph(np.stack([g, rate])) for g, rate, _ in each]
        self.gradients = [sketch.graph(np.append(slope, rate)) for _, rate, slope in each]
        self.values = [sketch.graph(g) for g in heights]
        self.heights = sketch.graph(np.array([g.item() for g in heights], object))
        self.watch = sketch.graph(np.array([[g.item(), rate.item(), *slope] for g, rate, slope in each], object))
        armed = [system.way(i).armed for i in self.transitions]
        self.armed = [None if each is None else sketch.graph(read(self.of_state(each))) for each in armed]

    def sketch(self, x) -> Sketch:
        """A sketch of functions of a state such as `x`, the parameters and the period."""
        return Sketch(x, *(jnp.zeros(jnp.shape(leaf)) for leaf in self.leaves[:-1]), jnp.zeros(()))

    def read(self, sketch: Sketch, function: Callable, x: Entries | None = None) -> Entries:
        """The entries of a function of `(x, params, period)` in a sketch, of its state or at another."""
        given = lambda leaves: (self._params_of(leaves[:-1]), leaves[-1])
        return sketch.read(lambda x, *leaves: jnp.asarray(function(x, *given(leaves))), x)

    def graph(self, function: Callable, x) -> Graph:
        """The graph of a function of `(x, params, period)`."""
        sketch = self.sketch(x)
        return sketch.graph(self.read(sketch, function))

    def heights_of(self, sketch: Sketch, x: Entries) -> list[Entries]:
        """The guards at a state of a sketch."""
        return [self.read(sketch, lambda x, params, _, g=guard: g(x, params), x) for guard in self._guards]

    def of_state(self, function: Callable) -> Callable:
        """A function of `(t, x, params)` as one of the state that carries the time, and the parameters."""
        if self.timed:
            return lambda x, params: function(x[-1], x[:-1], params)
        return lambda x, params: function(jnp.zeros(()), x, params)

    def rate(self, x, params):
        """The vector field, with the rate 1 of the time."""
        rate = self.of_state(self.mode.vector_field)(x, params)
        return jnp.concatenate([rate, jnp.ones(1)]) if self.timed else rate

    def _columns(self, sketch: Sketch) -> Entries:
        rate = self.read(sketch, lambda x, params, _: self.rate(x, params), sketch.x[:, 0])
        pushed = []
        for j in range(1, 1 + self.dimension):
            direction = np.full(sketch.x.shape, number(0), object)
            direction[:, 0] = sketch.x[:, j]
            pushed.append(sketch.along(rate, direction))
        return np.stack([rate, *pushed], axis=1)

    def map(self, function: Callable, x=None) -> tuple[Graph, Graph]:
        """A map of the state, `(x, params, period)`, or of other coordinates `x`, and its Jacobian."""
        sketch = self.sketch(jnp.zeros(self.dimension) if x is None else x)
        value = self.read(sketch, function)
        return sketch.graph(value), sketch.graph(sketch.gradient(value))


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
