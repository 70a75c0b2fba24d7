r"""A hybrid system whose state carries tangent vectors: $(x, V)$, of the same modes and transitions.

$$\dot V = A\,V, \quad A = D_xf; \qquad V^+ = \Xi\,V^-$$

with the saltation matrix $\Xi$. The states of all modes are padded with zeros to the largest dimension, `size`, and so are the
tangent vectors: where they are in the array does not depend on the mode.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.jump import reset, saltation_matrix
from .._system.system import Domain, Guard, HybridSystem, Mode, Transition, VectorField
from .._system.types import Flag, Params, State, Time

# The tangent vectors are rows.
Tangents = Float[Array, "count size"]


def with_tangents(x: State, tangents: Float[Array, "count n"], size: int) -> Float[Array, " joint"]:
    """State and tangent vectors in one array, each padded with zeros to `size`."""
    rows = jnp.pad(jnp.concatenate([x[None], tangents]), ((0, 0), (0, size - x.size)))
    return rows.ravel()


def split_tangents(z: Float[Array, " joint"], size: int) -> tuple[Float[Array, " size"], Tangents]:
    """State and tangent vectors, padded."""
    rows = z.reshape(-1, size)
    return rows[0], rows[1:]


class _Flow(eqx.Module):
    vector_field: VectorField
    n: int = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __call__(self, t: Time, z: State, params: Params) -> State:
        x, tangents = split_tangents(z, self.size)
        push = lambda v: jax.jvp(lambda x: self.vector_field(t, x, params), (x[: self.n],), (v,))
        rate, turned = jax.vmap(push, out_axes=(None, 0))(tangents[:, : self.n])
        return with_tangents(rate, turned, self.size)


class _OfState(eqx.Module):
    """A guard, domain or `armed` of the state alone."""

    fn: Guard | Domain
    n: int = eqx.field(static=True)

    def __call__(self, t: Time, z: State, params: Params) -> Array | Flag:
        return self.fn(t, z[: self.n], params)


class _Jump(eqx.Module):
    system: HybridSystem
    way: Transition
    n: int = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __call__(self, t: Time, z: State, params: Params) -> State:
        x, tangents = split_tangents(z, self.size)
        x, tangents = x[: self.n], tangents[:, : self.n]
        xi = saltation_matrix(self.system, self.way, t, x, params)
        return with_tangents(reset(self.way, t, x, params), tangents @ xi.T, self.size)


def tangent_system(system: HybridSystem, count: int) -> HybridSystem:
    """The hybrid system of the state with `count` tangent vectors."""
    size = max(mode.dimension for mode in system.modes.values())
    names = tuple(f"z_{i}" for i in range(size * (1 + count)))
    modes, transitions = {}, []
    for name, mode in system.modes.items():
        domain = None if mode.domain is None else _OfState(mode.domain, mode.dimension)
        modes[name] = Mode(_Flow(mode.vector_field, mode.dimension, size), names, domain)
    for way in system.transitions:
        n = system.mode(way.source).dimension
        armed = None if way.armed is None else _OfState(way.armed, n)
        jump = _Jump(system, way, n, size)
        transitions.append(Transition(way.source, way.target, _OfState(way.guard, n), jump, armed, way.at_once))
    return HybridSystem(modes, tuple(transitions))
