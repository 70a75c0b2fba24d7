r"""Objectives of a gait: functions `(orbit, params) -> number` for `hyjax.optimize` and `hyjax.Constraint`.

Some are made from functions of a model, such as `speed(model.travel)`. Any differentiable function of an orbit serves: its
period is `lambda orbit, params: orbit.period`.
"""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.jump import reset
from .._orbit.orbit import PeriodicOrbit
from .._orbit.stride import run_stride
from .._system.system import HybridSystem, Mode, Transition
from .._system.types import Params, Scalar, State, Time
from .constraint import Objective

# The vector from one foothold to the next, at the end of an arc: `(mode, x, params) -> (2,)`, as `travel` of a model.
Travel = Callable[[str, State, Params], Float[Array, " axes"]]
Energy = Callable[[str, State, Params], Scalar]
Rate = Callable[[Time, State, Params], Scalar]


class Negative(eqx.Module):
    """Minus an objective: `hyjax.optimize` minimizes, so it maximizes with `Negative(speed)`. Values, gradients and multipliers
    of the result are those of the negative objective; its pictures show the objective itself."""

    objective: Objective

    def __call__(self, orbit: PeriodicOrbit, params: Params) -> Scalar:
        return -self.objective(orbit, params)


def period(orbit: PeriodicOrbit, params: Params) -> Scalar:
    """The period of the orbit, in units of time."""
    return orbit.period


def spectral_radius(orbit: PeriodicOrbit, params: Params) -> Scalar:
    """The largest modulus of a multiplier, the factor by which a deviation shrinks in a stride. Not differentiable where the two
    largest multipliers meet, where an optimum often is: there use `contraction`."""
    return orbit.spectral_radius


def contraction(doublings: int = 4) -> Objective:
    r"""An upper bound of the spectral radius that is differentiable everywhere: $\|A^k\|_F^{1/k}$, $k = 2^{\text{doublings}}$.

    $A$ is the return Jacobian. The bound holds for each $k$ and falls to the spectral radius as $k$ grows (Gelfand's formula):
    for a return map of $n$ states within a factor of about $(\kappa\sqrt n)^{1/k}$, $\kappa$ the condition of the eigenvectors.
    It is a polynomial in $A$ but for the root, so it is smooth where multipliers meet; it depends on the coordinates' units.

    **Arguments:** `doublings`: static, 0 for the Frobenius norm of $A$ itself.

    Source: Horn, Johnson (2012), *Matrix Analysis*, Corollary 5.6.14.
    """
    if doublings < 0:
        raise ValueError(f"contraction: doublings={doublings} must not be negative.")

    def contraction(orbit: PeriodicOrbit, params: Params) -> Scalar:
        matrix, logarithm = orbit.return_jacobian, jnp.zeros((), orbit.x.dtype)
        for k in range(doublings + 1):
            # The logarithm of the norm is summed up, since a high power may underflow.
            matrix = matrix @ matrix if k else matrix
            square = jnp.sum(matrix**2)
            norm = jnp.sqrt(jnp.where(square > 0, square, 1))
            matrix, logarithm = matrix / norm, 2 * logarithm + jnp.log(norm)
        return jnp.where(square > 0, jnp.exp(logarithm / 2**doublings), 0)

    return contraction


def step_length(travel: Travel) -> Objective:
    """The distance over the ground in one period. **Arguments:** `travel`: of a model, the vector from one foothold to the next
    at the end of an arc, `(mode, x, params) -> (2,)`."""

    def step_length(orbit: PeriodicOrbit, params: Params) -> Scalar:
        ways = [travel(mode, x, params) for mode, x, _, _ in arc_ends(orbit, params)]
        square = jnp.sum(sum(ways, jnp.zeros(())) ** 2)
        return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)

    return step_length


def speed(travel: Travel) -> Objective:
    """The mean speed over the ground: `step_length` over the period."""
    length = step_length(travel)

    def speed(orbit: PeriodicOrbit, params: Params) -> Scalar:
        return length(orbit, params) / orbit.period

    return speed


def impact_loss(energy: Energy) -> Objective:
    """The energy lost in the jumps of one period: the sum of $E(x^-) - E(x^+)$.

    **Arguments:** `energy`: `(mode, x, params) -> number`, in any unit, with the same origin before and after each jump.
    """

    def impact_loss(orbit: PeriodicOrbit, params: Params) -> Scalar:
        losses = [energy(a, x, params) - energy(b, y, params) for a, x, b, y in arc_ends(orbit, params)]
        return sum(losses, jnp.zeros((), orbit.x.dtype))

    return impact_loss


def integral(rate: Rate | Mapping[str, Rate]) -> Objective:
    r"""The integral of a rate over one period, $\int_0^T r(t, x(t), p)\,dt$, by the integrator of the orbit, to its tolerance.

    The integral is one more state of the flow. Of a smooth rate it and its derivatives are as accurate as the orbit. Where a
    rate has a kink, such as the positive part of a power, the integral is accurate and its derivatives are less: write the kink
    as an event of the system.

    **Arguments:** `rate`: `(t, x, params) -> number`, for all modes or a mapping from modes; a mode that is left out adds
    nothing.
    """
    systems: dict[HybridSystem, HybridSystem] = {}

    def integral(orbit: PeriodicOrbit, params: Params) -> Scalar:
        rates = dict(rate) if isinstance(rate, Mapping) else dict.fromkeys(orbit.system.modes, rate)
        if unknown := [name for name in rates if name not in orbit.system.modes]:
            raise ValueError(f"integral: {unknown} are not modes of the system, which has {list(orbit.system.modes)}.")
        if orbit.system not in systems:
            systems[orbit.system] = with_integral(orbit.system, rates)
        total = jnp.zeros((), orbit.x.dtype)
        for node, start in zip(orbit.nodes, orbit.starts, strict=True):
            x = jnp.append(node, jnp.zeros((), node.dtype))
            through = run_stride(systems[orbit.system], start, x, params, orbit.sequence, orbit.integrator)
            total = total + through.x[-1]
        return total

    return integral


def with_integral(system: HybridSystem, rates: Mapping[str, Rate]) -> HybridSystem:
    """The system with one more state, the last, which the jumps do not change and whose derivative is the rate of the mode."""

    def mode(name: str, given: Mode) -> Mode:
        rate = rates.get(name, lambda t, x, params: jnp.zeros((), x.dtype))

        def vector_field(t, x, params):
            last = jnp.asarray(rate(t, x[:-1], params), x.dtype).reshape(1)
            return jnp.concatenate([given.vector_field(t, x[:-1], params), last])

        return Mode(vector_field, (*given.coordinates, "integral of the rate"))

    def transition(given: Transition) -> Transition:
        armed = given.armed
        return Transition(
            given.source,
            given.target,
            guard=lambda t, x, params: given.guard(t, x[:-1], params),
            reset=lambda t, x, params: jnp.append(given.reset(t, x[:-1], params), x[-1]),
            armed=None if armed is None else lambda t, x, params: armed(t, x[:-1], params),
        )

    modes = {name: mode(name, given) for name, given in system.modes.items()}
    return HybridSystem(modes, tuple(transition(each) for each in system.transitions))


def arc_ends(orbit: PeriodicOrbit, params: Params) -> list[tuple[str, State, str, State]]:
    """For each jump of the orbit the mode and the state before it, and the mode and the state after it."""
    if len(orbit.sequence) == 1:
        (mode,) = orbit.sequence
        return [(mode, before, mode, after) for before, after in zip(orbit.before, orbit.nodes, strict=True)]
    ends = []
    for node, start in zip(orbit.nodes, orbit.starts, strict=True):
        through = run_stride(orbit.system, start, node, params, orbit.sequence, orbit.integrator)
        following = (*orbit.sequence[1:], orbit.sequence[0])
        taken = orbit.system.route(orbit.sequence)
        for mode, after, index, impact in zip(orbit.sequence, following, taken, through.impacts, strict=True):
            jumped = reset(orbit.system.transitions[index], impact.t, impact.x, params)
            ends.append((mode, impact.x, after, jumped))
    return ends
