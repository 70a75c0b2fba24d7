r"""A hybrid system whose state carries its covariance and, for a smoother, the covariance with an earlier state.

$$(x, \Sigma, C), \quad C = \operatorname{cov}(x(t), x(t_k)); \qquad \dot C = A\,C, \qquad C^+ = \Xi\,C^-$$

with the flow and the jumps of $(x, \Sigma)$ of `joint.py`. Here the states of all modes are padded with zeros to the largest
dimension, `size`, and so are the covariances: their places in the array do not depend on the mode, as an estimate whose mode is
decided at run time needs it. Estimates have no domains: a mean may lie outside by as much as it is uncertain.

The jump of an estimate applies on the guard's surface and off it, where an event is late or early:

$$x^+ = R(t, x^-) + \gamma\,g(t, x^-), \qquad \gamma = \frac{f^+ - D_xR\,f^- - D_tR}{D_tg + D_xg\,f^-},$$

the state now if the event was at its own time, or will be, to first order in $g$. On the surface the derivative of this map is
the saltation matrix $\Xi = D_xR + \gamma\,D_xg$.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.semidefinite import pack, packed_size, unpack
from .._system.system import HybridSystem, Mode, Transition, VectorField
from .._system.types import Matrix, State, Time
from .follower import OfState
from .joint import joint_system, JointParams, Jump
from .noise import PlacedNoise


class Layout(eqx.Module):
    """Where state, covariance and cross covariance are in one array.

    **Attributes:** `size`: the largest dimension of a mode. `cross`: whether there is a cross covariance.
    """

    size: int = eqx.field(static=True)
    cross: bool = eqx.field(static=True)

    @property
    def length(self) -> int:
        return self.size + packed_size(self.size) + self.size**2 * self.cross

    def places(self, n: int) -> np.ndarray:
        """Where `(x, lower triangle of the covariance)` of a mode of `n` coordinates are: a packed triangle begins with the
        triangles of its leading blocks."""
        return np.concatenate([np.arange(n), self.size + np.arange(packed_size(n))])

    def join(self, x: Float[Array, " size"], sigma: Matrix, cross: Matrix | None = None) -> Float[Array, " joint"]:
        """One array; without `cross`, the covariance of the state with itself."""
        parts = [x, pack(sigma)]
        if self.cross:
            parts.append(jnp.ravel(sigma if cross is None else cross))
        return jnp.concatenate(parts)

    def state(self, z: Float[Array, " joint"]) -> Float[Array, " size"]:
        return z[: self.size]

    def covariance(self, z: Float[Array, " joint"]) -> Float[Array, "size size"]:
        return unpack(z[self.size : self.size + packed_size(self.size)], self.size)

    def crossed(self, z: Float[Array, " joint"]) -> Float[Array, "size size"]:
        """$C$: a row for each coordinate now, a column for each coordinate earlier."""
        return z[self.size + packed_size(self.size) :].reshape(self.size, self.size)

    def assemble(self, compact: Array, n: int, cross: Float[Array, "n size"] | None) -> Float[Array, " joint"]:
        """The padded array from that of a mode of `n` coordinates."""
        z = jnp.zeros(self.length, compact.dtype).at[self.places(n)].set(compact)
        if cross is None:
            return z
        return z.at[self.size + packed_size(self.size) :].set(jnp.ravel(jnp.pad(cross, ((0, self.size - n), (0, 0)))))


class _Flow(eqx.Module):
    joint: VectorField
    vector_field: VectorField
    n: int = eqx.field(static=True)
    layout: Layout

    def __call__(self, t: Time, z: State, params: JointParams) -> State:
        n, layout = self.n, self.layout
        rate, turned = self.joint(t, z[layout.places(n)], params), None
        if layout.cross:
            push = lambda v: jax.jvp(lambda x: self.vector_field(t, x, params.params), (z[:n],), (v,))[1]
            turned = jax.vmap(push, in_axes=-1, out_axes=-1)(layout.crossed(z)[:n])
        return layout.assemble(rate, n, turned)


class _Jump(eqx.Module):
    """The jump of an estimate. Without its `saltation`, the reset, and its Jacobian in place of the saltation matrix."""

    joint: Jump
    layout: Layout

    def __call__(self, t: Time, z: State, params: JointParams) -> State:
        joint, layout, n = self.joint, self.layout, self.joint.source.dimension
        x, sigma, field = z[:n], layout.covariance(z)[:n, :n], joint.target.vector_field
        level = joint.saltation or joint.guard_noise is not None
        after, matrix = joint.linear(t, x, params.params, field, level)
        if joint.saltation:
            after = after + matrix[:, n] * joint.guard(t, x, params.params)
        compact = jnp.concatenate([after, pack(joint.spread(t, x, sigma, matrix, params))])
        cross = matrix[:, :n] @ layout.crossed(z)[:n] if layout.cross else None
        return layout.assemble(compact, len(after), cross)


def layout_of(system: HybridSystem, cross: bool) -> Layout:
    """The layout of the estimates of a system. **Arguments:** `cross`: whether there is a cross covariance."""
    return Layout(max(mode.dimension for mode in system.modes.values()), cross)


def estimate_system(system: HybridSystem, noise: PlacedNoise, layout: Layout, *, saltation: bool) -> HybridSystem:
    """The hybrid system of the padded `(x, covariance, cross covariance)`, whose parameters are `JointParams`.

    **Arguments:** `saltation`: as for `Jump` of `joint.py`.
    """
    joint = joint_system(system, noise, saltation)
    names = tuple(f"z_{i}" for i in range(layout.length))
    modes = {
        name: Mode(_Flow(joint.mode(name).vector_field, mode.vector_field, mode.dimension, layout), names)
        for name, mode in system.modes.items()
    }
    transitions = []
    for way, jump in zip(system.transitions, joint.transitions, strict=True):
        n = system.mode(way.source).dimension
        armed = None if way.armed is None else OfState(way.armed, n)
        assert isinstance(jump.reset, Jump)
        leap = _Jump(jump.reset, layout)
        transitions.append(Transition(way.source, way.target, OfState(way.guard, n), leap, armed))
    return HybridSystem(modes, tuple(transitions))


def with_eventless_modes(system: HybridSystem, noise: PlacedNoise) -> tuple[HybridSystem, PlacedNoise]:
    """The system followed by a second mode for each of its modes, of the same flow and without events; and its noise.

    So an estimate that flows on without an event is a matter of the mode's index, and the flow is compiled once.
    """
    again = {f"{name} without events": mode for name, mode in system.modes.items()}
    doubled = HybridSystem(system.modes | again, system.transitions)
    return doubled, dataclasses.replace(noise, flow=noise.flow * 2)
