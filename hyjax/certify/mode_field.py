r"""A mode's functions as computational graphs: vector field, variational field, guards with their rates, resets."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from .._system.system import HybridSystem
from .._system.types import Params
from .fixed_point import Number, ZERO
from .graph import Graph, graph_of


class ModeField:
    r"""The functions of a mode, on a state that carries the time as its last entry if the system depends on time.

    **Attributes:** `field`: $\dot x = f(x)$. `variational`: the columns $(x, V)$, shape `(n, 1 + n)`, with $\dot V = D_x f\,V$.
    `guards`: for each transition that leaves the mode, $(g, \dot g)$ along the flow, shape `(2,)`; `gradients`: $(D_xg, \dot g)$.
    `heights`: $g$ of all of them; `watch`: $(g, \dot g, D_xg)$, shape `(guards, 2 + n)`. `armed`: for each, or None.
    `dimension`: of the state with its time. `leaves`: the numbers that all depend on, the parameters' and then the period, which
    a jump that closes an orbit takes off the time.
    """

    def __init__(self, system: HybridSystem, name: str, params: Params, timed: bool, period: Number = ZERO):
        self.mode, self.name, self.timed = system.mode(name), name, timed
        self.dimension = self.mode.dimension + timed
        self.structure = jax.tree.structure(params)
        self.leaves = [*(jnp.asarray(leaf, float) for leaf in jax.tree.leaves(params)), period]
        self.transitions = system.leaving(name)
        x = jnp.zeros(self.dimension)
        self.field = self._core(self.rate, x)
        self.variational = self._core(self._columns, jnp.zeros((self.dimension, 1 + self.dimension)))
        guards = [self.of_state(system.transitions[i].guard) for i in self.transitions]
        self.guards = [self._core(self._with_rate(guard), x) for guard in guards]
        self.gradients = [self._core(self._with_gradient(guard), x) for guard in guards]
        self.heights = self._core(self._together(guards), x)
        self.watch = self._core(self._together([self._with_both(guard) for guard in guards]), x)
        armed = [system.transitions[i].armed for i in self.transitions]
        self.armed = [None if each is None else self._core(self.of_state(each), x) for each in armed]

    def graph(self, function: Callable, x) -> Graph:
        """The graph of a function of `(x, params, period)`."""
        shown = [jnp.zeros(jnp.shape(leaf)) for leaf in self.leaves[:-1]]
        given = lambda leaves: (jax.tree.unflatten(self.structure, leaves[:-1]), leaves[-1])
        return graph_of(lambda x, *leaves: function(x, *given(leaves)), x, *shown, jnp.zeros(()))

    def _core(self, function: Callable, x) -> Graph:
        return self.graph(lambda x, params, period: function(x, params), x)

    def of_state(self, function: Callable) -> Callable:
        """A function of `(t, x, params)` as one of the state that carries the time, and the parameters."""
        if self.timed:
            return lambda x, params: function(x[-1], x[:-1], params)
        return lambda x, params: function(jnp.zeros(()), x, params)

    def rate(self, x, params):
        """The vector field, with the rate 1 of the time."""
        rate = self.of_state(self.mode.vector_field)(x, params)
        return jnp.concatenate([rate, jnp.ones(1)]) if self.timed else rate

    def _columns(self, columns, params):
        x, tangents = columns[:, 0], columns[:, 1:]
        rate, push = jax.linearize(lambda x: self.rate(x, params), x)
        return jnp.concatenate([rate[:, None], jax.vmap(push, in_axes=1, out_axes=1)(tangents)], axis=1)

    def _with_rate(self, guard):
        def both(x, params):
            value, rate = jax.jvp(lambda x: guard(x, params), (x,), (self.rate(x, params),))
            return jnp.stack([value, rate])

        return both

    def _with_gradient(self, guard):
        """The gradient of the guard and its rate, shape `(n + 1,)`."""

        def both(x, params):
            gradient = jax.jacfwd(lambda x: guard(x, params))(x)
            _, rate = jax.jvp(lambda x: guard(x, params), (x,), (self.rate(x, params),))
            return jnp.concatenate([gradient, rate[None]])

        return both

    def _with_both(self, guard):
        """The guard, its rate and its gradient, shape `(2 + n,)`."""
        parts = self._with_rate(guard), self._with_gradient(guard)
        return lambda x, params: jnp.concatenate([parts[0](x, params), parts[1](x, params)[:-1]])

    def _together(self, functions):
        return lambda x, params: jnp.stack([function(x, params) for function in functions])

    def map(self, function: Callable) -> tuple[Graph, Graph]:
        """A map of the state, `(x, params, period)`, and its Jacobian."""
        x = jnp.zeros(self.dimension)
        return self.graph(function, x), self.graph(jax.jacfwd(function), x)
