"""A hybrid system whose mode is a number, so that one program serves whatever sequence of modes comes.

Every state is padded with zeros to the largest dimension, every mode's guards with a guard that never falls.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._integrate import Surfaces
from ._jump import reset, saltation_matrix
from ._system import HybridSystem, Mode
from ._types import Params, State, Time

Index = Int[Array, ""]
Padded = Float[Array, " size"]


class Automaton(eqx.Module):
    """The functions of a hybrid system, of a mode or a transition that is known only when it runs.

    A batch in which lanes stand in different modes evaluates the functions of all.
    """

    system: HybridSystem

    @property
    def names(self) -> tuple[str, ...]:
        return self.system.names

    @property
    def modes(self) -> tuple[Mode, ...]:
        return tuple(self.system.modes.values())

    @property
    def size(self) -> int:
        """The largest dimension of a mode."""
        return max(mode.dimension for mode in self.modes)

    def pad(self, x: State) -> Padded:
        return jnp.pad(x, (0, self.size - x.size))

    def field(self, t: Time, z: Padded, args: tuple[Index, Params]) -> Padded:
        """The vector field of mode `args[0]`; zero in the padding."""
        mode, params = args

        def of(each):
            return lambda t, z, params: self.pad(each.vector_field(t, z[: each.dimension], params))

        return _switch(mode, [of(each) for each in self.modes], t, z, params)

    @property
    def surfaces(self) -> Surfaces:
        """The guards of whatever mode: number `k` is that of the `k`-th transition which leaves it."""
        count = max(len(self.system.leaving(name)) for name in self.names)

        def values(t, z, args):
            return _switch(args[0], [self._guards(name, count) for name in self.names], t, z, args[1])

        def armed(t, z, args):
            return _switch(args[0], [self._armed(name, count) for name in self.names], t, z, args[1])

        return Surfaces(count, values, armed)

    def transition(self, mode: Index, event: Index) -> Index:
        """Index into `system.transitions` of the transition whose guard is number `event` of the mode."""
        leaving = [self.system.leaving(name) for name in self.names]
        count = max(1, *(len(each) for each in leaving))
        table = jnp.array([(*each, *[-1] * (count - len(each))) for each in leaving])
        return jnp.where(event < 0, -1, table[mode, jnp.maximum(event, 0)])

    def target(self, transition: Index) -> Index:
        """The mode that a transition enters."""
        into = [self.names.index(each.target) for each in self.system.transitions] or [0]
        return jnp.array(into)[transition]

    def jump(self, t: Time, z: Padded, transition: Index, params: Params) -> Padded:
        """The state after the reset of a transition."""

        def of(each):
            n = self.system.modes[each.source].dimension
            return lambda t, z, params: self.pad(reset(each, t, z[:n], params))

        branches = [of(each) for each in self.system.transitions]
        return _switch(transition, branches, t, z, params) if branches else z

    def saltation(self, t: Time, z: Padded, transition: Index, params: Params) -> Float[Array, "size size"]:
        """The saltation matrix of a transition, padded with zeros."""

        def of(each):
            n = self.system.modes[each.source].dimension

            def branch(t, z, params):
                matrix = saltation_matrix(self.system, each, t, z[:n], params)
                return jnp.pad(matrix, [(0, self.size - length) for length in matrix.shape])

            return branch

        return _switch(transition, [of(each) for each in self.system.transitions], t, z, params)

    def _guards(self, name: str, count: int) -> Callable[..., Float[Array, " guards"]]:
        n = self.system.modes[name].dimension
        guards = [self.system.transitions[i].guard for i in self.system.leaving(name)]

        def branch(t, z, params):
            never = jnp.ones((), z.dtype)
            known = [jnp.asarray(guard(t, z[:n], params), z.dtype) for guard in guards]
            return jnp.stack([*known, *[never] * (count - len(guards))])

        return branch

    def _armed(self, name: str, count: int) -> Callable[..., Bool[Array, " guards"]]:
        n = self.system.modes[name].dimension
        armed = [self.system.transitions[i].armed for i in self.system.leaving(name)]

        def branch(t, z, params):
            yes = jnp.array(True)
            known = [yes if each is None else jnp.asarray(each(t, z[:n], params)) for each in armed]
            return jnp.stack([*known, *[yes] * (count - len(armed))])

        return branch


def _switch(index: Index, branches: list[Callable], *operands) -> Array:
    return branches[0](*operands) if len(branches) == 1 else jax.lax.switch(index, branches, *operands)
