r"""The joint system of a state and its covariance: $(x, \Sigma)$.

$$\dot\Sigma = A\Sigma + \Sigma A^\top + W, \quad A = D_xf; \qquad
  \Sigma^+ = \Xi\,\Sigma^-\,\Xi^\top + \gamma\,\sigma_g^2\,\gamma^\top + W_R$$

$\gamma\,w$ is the change of the state after an event whose guard has the level $w$ added: the event is late by $-w/\dot g$
with $\dot g = D_tg + D_xg\,f^-$, so that

$$\gamma = \frac{f^+ - D_xR\,f^- - D_tR}{\dot g}.$$

A section is an event after which the flow stands still: with $f^+ = 0$ the saltation matrix is the derivative of the state after
the jump *at the neighbouring orbit's own event*.

$\Sigma$ is its lower triangle: symmetric exactly, of any rank, and with a linear equation. (A factor $L$ with
$\Sigma = LL^\top$ would be semidefinite exactly; but with noise in the flow its equation has $L^{-1}$, which a covariance that
begins at zero does not have.)

The states of all modes are padded with zeros to the largest dimension, `size`, and so are the covariances: their places in the
array do not depend on the mode.

**Estimates.** The state of an estimate's system also carries, for a smoother, the covariance with an earlier state.

$$(x, \Sigma, C), \quad C = \operatorname{cov}(x(t), x(t_k)); \qquad \dot C = A\,C, \qquad C^+ = \Xi\,C^-$$

Estimates have no domains: a mean may lie outside by as much as it is uncertain. The jump of an estimate applies on the guard's
surface and off it, where an event is late or early:

$$x^+ = R(t, x^-) + \gamma\,g(t, x^-),$$

the state now if the event was at its own time, or will be, to first order in $g$. On the surface the derivative of this map is
the saltation matrix $\Xi = D_xR + \gamma\,D_xg$.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.joint import AtOnce, joint_system, numbered, own_params, padded, pushed
from .._flow.jump import variation_of_jump
from .._numerics.semidefinite import pack, packed_size, unpack
from .._system.system import Guard, HybridSystem, Mode, of_member, Reset, VectorField
from .._system.types import Params, Scalar, State, Time
from .noise import PlacedNoise, value_at

Joint = Float[Array, " joint"]


class JointParams(eqx.Module):
    """Parameters of a joint system: those of the system, its noise, and the unit in which covariances are computed.

    The equations are linear in all covariances together, so the unit only decides what the absolute tolerance of the integrator
    means for them.
    """

    params: Params
    noise: PlacedNoise
    unit: Scalar

    def noise_at(self, index: int | None, t: Time, x: State, shape: tuple[int, ...]) -> Array:
        """The noise of that index at time and state, in the unit of the covariance; zero for the index `None`."""
        if index is None:
            return jnp.zeros(shape, x.dtype)
        return value_at(self.noise.values[index], t, x, self.params) / self.unit


class Layout(eqx.Module):
    """The places of state, covariance and cross covariance in one array.

    **Attributes:** `size`: the largest dimension of a mode. `cross`: whether there is a cross covariance.
    """

    size: int = eqx.field(static=True)
    cross: bool = eqx.field(static=True, default=False)

    @property
    def length(self) -> int:
        return self.size + packed_size(self.size) + self.size**2 * self.cross

    def join(self, x: State, sigma: Float[Array, "n n"], cross: Float[Array, "n earlier"] | None = None) -> Joint:
        """One array, each part padded with zeros; without `cross`, the covariance of the state with itself."""
        parts = [padded(x, self.size), pack(padded(sigma, self.size))]
        if self.cross:
            parts.append(jnp.ravel(padded(sigma if cross is None else cross, self.size)))
        return jnp.concatenate(parts)

    def state(self, z: Joint) -> Float[Array, " size"]:
        return z[: self.size]

    def covariance(self, z: Joint) -> Float[Array, "size size"]:
        return unpack(z[self.size : self.size + packed_size(self.size)], self.size)

    def crossed(self, z: Joint) -> Float[Array, "size size"]:
        """$C$: a row for each coordinate now, a column for each coordinate earlier."""
        return z[self.size + packed_size(self.size) :].reshape(self.size, self.size)


def layout_of(system: HybridSystem, cross: bool = False) -> Layout:
    """The layout of the joint states of a system. **Arguments:** `cross`: whether there is a cross covariance."""
    return Layout(max(mode.dimension for mode in system.modes.values()), cross)


def covariance_system(
    system: HybridSystem, noise: PlacedNoise, layout: Layout, *, estimate: bool = False, saltation: bool = True
) -> HybridSystem:
    """The hybrid system of state, covariance and cross covariance, whose parameters are `JointParams`.

    **Arguments:** `estimate`, `saltation`: as for `Jump`.
    """
    if estimate:
        system = HybridSystem(
            {name: Mode(e.vector_field, e.coordinates) for name, e in system.modes.items()}, system.transitions
        )
    numbers = dict(zip(system.names, noise.flow, strict=True))

    def flow(name: str) -> VectorField:
        mode = system.mode(name)
        return eqx.Partial(_flow, mode.vector_field, mode.dimension, numbers[name], layout)

    def jump(k: int) -> Reset:
        way = system.transitions[k]
        source, target = system.mode(way.source), system.mode(way.target)
        return Jump(source, target, way.guard, way.reset, noise.guard[k], noise.reset[k], layout, estimate, saltation)

    return joint_system(system, flow, jump, lambda mode: numbered(layout.length), params_of=own_params)


def _flow(
    vector_field: VectorField, n: int, noise: int | None, layout: Layout, t: Time, z: Joint, joint: JointParams
) -> Joint:
    # The columns of the covariance are variations of the state.
    x, columns = z[:n], layout.covariance(z)[:n, :n]
    if layout.cross:
        columns = jnp.concatenate([columns, layout.crossed(z)[:n]], axis=1)
    rate, turned = pushed(vector_field, t, x, joint.params, columns)
    turned, cross = turned[:, :n], turned[:, n:]
    intensity = joint.noise_at(noise, t, x, (n, n))
    return layout.join(rate, turned + turned.T + (intensity + intensity.T) / 2, cross)


class Jump(eqx.Module):
    """The jump of state and covariance by a transition.

    **Attributes:** `source`, `target`: the modes. `guard_noise`, `reset_noise`: indices into the values of the noise. `estimate`:
    whether the jump applies off the guard's surface too. `saltation`: if not, the reset alone and its Jacobian in place of the
    saltation matrix, which is wrong: for comparison.
    """

    source: Mode
    target: Mode
    guard: Guard
    reset: Reset
    guard_noise: int | None = eqx.field(static=True)
    reset_noise: int | None = eqx.field(static=True)
    layout: Layout
    estimate: bool = eqx.field(static=True)
    saltation: bool = eqx.field(static=True)

    def __call__(self, t: Time, z: Joint, joint: JointParams, *member) -> Joint:
        return self._after(t, z, joint, self.target.vector_field, *member)

    def onto_section(self, t: Time, z: Joint, joint: JointParams, *member) -> Joint:
        """State and covariance after the jump, the covariance that of the states at their own events."""
        return self._after(t, z, joint, lambda t, x, params: jnp.zeros_like(x), *member)

    def _after(self, t: Time, z: Joint, joint: JointParams, field_after: VectorField, *member) -> Joint:
        n, m, layout, params = self.source.dimension, self.target.dimension, self.layout, joint.params
        x, sigma = z[:n], layout.covariance(z)[:n, :n]
        (guard, leap), fields = of_member(self.guard, self.reset, *member), (self.source.vector_field, field_after)
        matrix, slip, delay, guard_rate = variation_of_jump(*fields, guard, leap, t, x, params)
        after, gamma = jnp.asarray(leap(t, x, params), x.dtype), jnp.zeros_like(slip)
        if self.saltation:
            matrix, gamma = matrix - jnp.outer(slip, delay), slip / guard_rate
        if isinstance(guard, AtOnce):
            # A jump that is taken beyond the guard's surface does not heed the guard's level.
            gamma = jnp.where(guard.beyond(t, x, params), 0, gamma)
        if self.estimate:
            after = after + gamma * guard(t, x, params)
        sigma = matrix @ sigma @ matrix.T
        if self.guard_noise is not None:
            sigma = sigma + joint.noise_at(self.guard_noise, t, x, ()) * jnp.outer(gamma, gamma)
        more = joint.noise_at(self.reset_noise, t, x, (m, m))
        cross = matrix @ layout.crossed(z)[:n] if layout.cross else None
        return layout.join(after, sigma + (more + more.T) / 2, cross)


def with_eventless_modes(system: HybridSystem, noise: PlacedNoise) -> tuple[HybridSystem, PlacedNoise]:
    """The system followed by a second mode for each of its modes, of the same flow and without events; and its noise.

    The flow of an estimate on without an event is that of another mode's index: so it is compiled once.
    """
    again = {f"{name} without events": mode for name, mode in system.modes.items()}
    doubled = HybridSystem(system.modes | again, system.transitions)
    return doubled, dataclasses.replace(noise, flow=noise.flow * 2)
