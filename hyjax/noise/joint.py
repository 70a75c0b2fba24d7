r"""A hybrid system whose state carries its covariance: $(x, \Sigma)$, of the same modes and transitions.

$$\dot\Sigma = A\Sigma + \Sigma A^\top + W, \quad A = D_xf; \qquad
  \Sigma^+ = \Xi\,\Sigma^-\,\Xi^\top + \gamma\,\sigma_g^2\,\gamma^\top + W_R$$

$\gamma\,w$ is the change of the state after an event whose guard has the level $w$ added: the event is late by
$\delta\tau = -w/\dot g$ with $\dot g = D_tg + D_xg\,f^-$, so that

$$\gamma = \frac{f^+ - D_xR\,f^- - D_tR}{\dot g}.$$

The level is a constant coordinate of the flow before the event, and $(\Xi\ \ \gamma)$ is the saltation matrix of the system that
has this coordinate. Likewise a section is an event after which the flow stands still: with $f^+ = 0$ the saltation matrix is
the derivative of the state after the jump *at the neighbouring orbit's own event*.

$\Sigma$ is its lower triangle: symmetric exactly, of any rank, and with a linear equation. (A factor $L$ with
$\Sigma = LL^\top$ would be semidefinite exactly; but with noise in the flow its equation has $L^{-1}$, which a covariance that
begins at zero does not have.)

**Estimates.** The state of an estimate's system also carries, for a smoother, the covariance with an earlier state.

$$(x, \Sigma, C), \quad C = \operatorname{cov}(x(t), x(t_k)); \qquad \dot C = A\,C, \qquad C^+ = \Xi\,C^-$$

with the flow and the jumps of $(x, \Sigma)$ above. Here the states of all modes are padded with zeros to the largest
dimension, `size`, and so are the covariances: their places in the array do not depend on the mode, as an estimate whose mode is
decided at run time needs it. Estimates have no domains: a mean may lie outside by as much as it is uncertain.

The jump of an estimate applies on the guard's surface and off it, where an event is late or early:

$$x^+ = R(t, x^-) + \gamma\,g(t, x^-), \qquad \gamma = \frac{f^+ - D_xR\,f^- - D_tR}{D_tg + D_xg\,f^-},$$

the state now if the event was at its own time, or will be, to first order in $g$. On the surface the derivative of this map is
the saltation matrix $\Xi = D_xR + \gamma\,D_xg$.
"""

import dataclasses
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.jump import saltation_matrix
from .._numerics.semidefinite import pack, packed_size, unpack
from .._system.system import Domain, Guard, HybridSystem, Mode, Reset, Transition, VectorField
from .._system.types import Flag, Matrix, Params, Scalar, State, Time
from .age import AtOnce
from .noise import PlacedNoise, value_at


@runtime_checkable
class WithParams(Protocol):
    """Parameters of a system with followers, which hold those of the system itself."""

    @property
    def params(self) -> Params: ...


class OfState(eqx.Module):
    """A guard, domain or `armed` of the first `n` coordinates."""

    fn: Guard | Domain
    n: int = eqx.field(static=True)

    def __call__(self, t: Time, z: State, inputs: WithParams) -> Array | Flag:
        return self.fn(t, z[: self.n], inputs.params)


After = Float[Array, " after"]


class JointParams(eqx.Module):
    """Parameters of a joint system: those of the system, its noise, and the unit in which covariances are computed.

    The equations are linear in all covariances together, so the unit only decides what the absolute tolerance of the integrator
    means for them.
    """

    params: Params
    noise: PlacedNoise
    unit: Scalar

    def noise_at(self, index: int | None, t: Time, x: State, shape: tuple[int, ...]) -> Array:
        """A noise in the unit of the covariance; zero for the index `None`."""
        if index is None:
            return jnp.zeros(shape, x.dtype)
        return value_at(self.noise.values[index], t, x, self.params) / self.unit


def own_params(joint: JointParams) -> Params:
    """The parameters of the system itself."""
    return joint.params


class _JointFlow(eqx.Module):
    vector_field: VectorField
    n: int = eqx.field(static=True)
    noise: int | None = eqx.field(static=True)

    def __call__(self, t: Time, z: State, joint: JointParams) -> State:
        x, sigma = z[: self.n], unpack(z[self.n :], self.n)

        def push(column):
            rate, turned = jax.jvp(lambda x: self.vector_field(t, x, joint.params), (x,), (column,))
            return turned, rate

        # The columns of the covariance are tangents of the state.
        turned, rate = jax.vmap(push, in_axes=-1, out_axes=(-1, None))(sigma)
        intensity = joint.noise_at(self.noise, t, x, (self.n, self.n))
        return jnp.concatenate([rate, pack(turned + turned.T + (intensity + intensity.T) / 2)])


class Jump(eqx.Module):
    """The jump of state and covariance by a transition, as a reset of the joint system.

    **Attributes:** `source`, `target`: the modes. `guard_noise`, `reset_noise`: indices into the values of the noise.
    `saltation`: if not, the Jacobian of the reset is used in place of the saltation matrix, which is wrong: for comparison.
    """

    source: Mode
    target: Mode
    guard: Guard
    reset: Reset
    guard_noise: int | None = eqx.field(static=True)
    reset_noise: int | None = eqx.field(static=True)
    saltation: bool = eqx.field(static=True, default=True)

    def __call__(self, t: Time, z: State, joint: JointParams) -> After:
        return self._after(t, z, joint, self.target.vector_field)

    def onto_section(self, t: Time, z: State, joint: JointParams) -> After:
        """State and covariance after the jump, the covariance that of the states at their own events."""
        return self._after(t, z, joint, lambda t, x, params: jnp.zeros_like(x))

    def _after(self, t: Time, z: State, joint: JointParams, field_after: VectorField) -> After:
        n = self.source.dimension
        x, sigma = z[:n], unpack(z[n:], n)
        after, matrix = self.linear(t, x, joint.params, field_after, self.guard_noise is not None)
        return jnp.concatenate([after, pack(self.spread(t, x, sigma, matrix, joint))])

    def linear(
        self, t: Time, x: State, params: Params, field_after: VectorField, level: bool
    ) -> tuple[After, Float[Array, "after before"]]:
        r"""The state after the jump, and its derivative: the saltation matrix and, with `level`, one more column: the derivative
        by what is added to the guard, $\gamma$."""
        n, guard = self.source.dimension, self.guard
        # A jump that is taken beyond the guard's surface does not heed the guard's level.
        heeded = jnp.where(guard.beyond(t, x, params), 0, 1).astype(x.dtype) if isinstance(guard, AtOnce) else 1
        flow = lambda t, z, params: jnp.concatenate([self.source.vector_field(t, z[:n], params), jnp.zeros_like(z[n:])])
        way = Transition(
            "source",
            "target",
            guard=lambda t, z, params: self.guard(t, z[:n], params) + jnp.sum(z[n:]) * heeded,
            reset=lambda t, z, params: self.reset(t, z[:n], params),
        )
        before = jnp.concatenate([x, jnp.zeros(int(level), x.dtype)])
        names = tuple(f"x{i}" for i in range(len(before)))
        system = HybridSystem(
            {"source": Mode(flow, names), "target": Mode(field_after, self.target.coordinates)}, (way,)
        )
        if self.saltation:
            matrix = saltation_matrix(system, way, t, before, params)
        else:
            matrix = jax.jacfwd(lambda z: jnp.asarray(way.reset(t, z, params), x.dtype))(before)
        return jnp.asarray(way.reset(t, before, params), x.dtype), matrix

    def spread(
        self, t: Time, x: State, sigma: Float[Array, "n n"], matrix: Float[Array, "after before"], joint: JointParams
    ) -> Float[Array, "after after"]:
        """The covariance after the jump from `x`, by the derivative of the jump."""
        n, m = len(sigma), self.target.dimension
        if matrix.shape[1] > n:
            variance = joint.noise_at(self.guard_noise, t, x, ())
            sigma = jnp.block([[sigma, jnp.zeros((n, 1), x.dtype)], [jnp.zeros((1, n), x.dtype), variance[None, None]]])
        more = joint.noise_at(self.reset_noise, t, x, (m, m))
        return matrix @ sigma @ matrix.T + (more + more.T) / 2


def joint_system(system: HybridSystem, noise: PlacedNoise, saltation: bool = True) -> HybridSystem:
    """The hybrid system of `(x, lower triangle of the covariance)`, whose parameters are `JointParams`.

    **Arguments:** `saltation`: as for `Jump`.
    """
    modes = {}
    for (name, mode), own in zip(system.modes.items(), noise.flow, strict=True):
        n = mode.dimension
        entries = tuple(f"sigma_{i}" for i in range(packed_size(n)))
        domain = None if mode.domain is None else OfState(mode.domain, n)
        # Coordinates may have any names: those of a joint system are seen by nobody.
        names = (*(f"x_{i}" for i in range(n)), *entries)
        modes[name] = Mode(_JointFlow(mode.vector_field, n, own), names, domain)
    transitions = []
    for way, at_guard, at_reset in zip(system.transitions, noise.guard, noise.reset, strict=True):
        source, target = system.mode(way.source), system.mode(way.target)
        n = source.dimension
        jump = Jump(source, target, way.guard, way.reset, at_guard, at_reset, saltation)
        armed = None if way.armed is None else OfState(way.armed, n)
        transitions.append(Transition(way.source, way.target, OfState(way.guard, n), jump, armed, way.at_once))
    return HybridSystem(modes, tuple(transitions))


def joint_state(x: State, sigma: Float[Array, "n n"], unit: Scalar) -> Float[Array, " joint"]:
    """State and covariance in one array."""
    return jnp.concatenate([x, pack(sigma) / unit])


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


class _EstimateFlow(eqx.Module):
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


class _EstimateJump(eqx.Module):
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
        name: Mode(_EstimateFlow(joint.mode(name).vector_field, mode.vector_field, mode.dimension, layout), names)
        for name, mode in system.modes.items()
    }
    transitions = []
    for way, jump in zip(system.transitions, joint.transitions, strict=True):
        n = system.mode(way.source).dimension
        armed = None if way.armed is None else OfState(way.armed, n)
        assert isinstance(jump.reset, Jump)
        leap = _EstimateJump(jump.reset, layout)
        transitions.append(Transition(way.source, way.target, OfState(way.guard, n), leap, armed))
    return HybridSystem(modes, tuple(transitions))


def with_eventless_modes(system: HybridSystem, noise: PlacedNoise) -> tuple[HybridSystem, PlacedNoise]:
    """The system followed by a second mode for each of its modes, of the same flow and without events; and its noise.

    So an estimate that flows on without an event is a matter of the mode's index, and the flow is compiled once.
    """
    again = {f"{name} without events": mode for name, mode in system.modes.items()}
    doubled = HybridSystem(system.modes | again, system.transitions)
    return doubled, dataclasses.replace(noise, flow=noise.flow * 2)
