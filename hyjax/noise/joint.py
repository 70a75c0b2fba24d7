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
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.jump import saltation_matrix
from .._numerics.semidefinite import pack, packed_size, unpack
from .._system.system import Guard, HybridSystem, Mode, Reset, Transition, VectorField
from .._system.types import Params, Scalar, State, Time
from .age import AtOnce
from .follower import OfState
from .noise import PlacedNoise, value_at

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


class _Flow(eqx.Module):
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
        modes[name] = Mode(_Flow(mode.vector_field, n, own), names, domain)
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
