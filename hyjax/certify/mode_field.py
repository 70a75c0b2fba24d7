r"""A mode's functions as computational graphs: vector field, variational field, guards with their rates, resets."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._system.system import HybridSystem
from .._system.types import Params
from .exact_numbers import arb
from .linear_forms import number
from .symbolic import Entries, Graph, Sketch


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
