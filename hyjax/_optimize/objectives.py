r"""Objectives of a gait: functions `(orbit, params) -> number` for `hyjax.optimize` and `hyjax.Constraint`.

Some are made from functions of a model, such as `speed(model.travel)`. Any differentiable function of an orbit serves: its
period is `lambda orbit, params: orbit.period`.
"""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.jump import reset
from .._orbit.orbit import PeriodicOrbit
from .._orbit.stride import run_stride
from .._system.system import HybridSystem, Mode, Transition
from .._system.types import Params, Scalar, State, Time
from .._system.where import Where
from .._variation.contraction import contraction_factor
from .._variation.sensitivity_norm import gait_sensitivity_norm, Indicator, stride_time
from .constraint import Objective

# The vector from one foothold to the next, at the end of an arc: `(mode, x, params) -> (2,)`, as `travel` of a model.
Travel = Callable[[str, State, Params], Float[Array, " axes"]]
Energy = Callable[[str, State, Params], Scalar]
Rate = Callable[[Time, State, Params], Scalar]


def period(orbit: PeriodicOrbit, params: Params) -> Scalar:
    """The period of the orbit, in units of time."""
    return orbit.period


def spectral_radius(orbit: PeriodicOrbit, params: Params) -> Scalar:
    """The largest modulus of a multiplier, the factor by which a deviation shrinks in a stride in the long run.

    For a constraint such as `at_most=0.9` where one multiplier, or one complex pair, is the largest. Not differentiable where
    the two largest multipliers meet, at a kink or, where a real pair becomes complex, with an infinite derivative on one side;
    an optimum is often there: to minimize, use `contraction`.
    """
    return orbit.spectral_radius


def contraction(smoothing: float = 1e-3) -> Objective:
    r"""An upper bound of the spectral radius that is differentiable everywhere: the $r$ with
    $\sum_{k \ge 1} \|A^k\|_F^2\,r^{-2k} = 1/\varepsilon$.

    $A$ is the return Jacobian, $\varepsilon$ the smoothing. In the linear theory a deviation of size 1 is at most
    $r^k/\sqrt\varepsilon$ after $k$ strides. For one real multiplier $r = |\lambda|\sqrt{1 + \varepsilon}$; as $\varepsilon$
    falls to 0, $r$ falls to the spectral radius, and the gradient near a meeting of multipliers grows as that of the spectral
    radius does. The bound depends on the units of the coordinates. A power of $A$ alone, $\|A^k\|^{1/k}$, is such a bound too,
    but its value varies with the phase $k \arg\lambda$ of a complex pair. For the powered walker at push-offs of 0.12, 0.16 and
    0.187 the spectral radius has 0, 1 and 1 local minima over stiffnesses between 1 and 8; so has $r$ with
    $\varepsilon = 10^{-3}$, which is 0.1 % to 3.2 % above it; that of $k = 16$ has 2 each and is 3 % to 12 % above, and that of
    $k = 64$ has 8 to 10.

    **Arguments:** `smoothing`: $\varepsilon$, static, between 1e-6 and 1: 1e-2 for a smoother, less tight bound.

    Source: Vanbiervliet, Vandereycken, Michiels, Vandewalle, Diehl (2009), *The smoothed spectral abscissa for robust stability
    optimization*, SIAM J. Optim. 20, 156-171, for the continuous-time counterpart.
    """
    if not 1e-6 <= smoothing <= 1:
        raise ValueError(f"contraction: smoothing={smoothing} must lie between 1e-6 and 1.")

    def contraction(orbit: PeriodicOrbit, params: Params) -> Scalar:
        return contraction_factor(orbit.return_jacobian, orbit.spectral_radius, smoothing)

    return contraction


def sensitivity(noise: Where, indicator: Indicator = stride_time) -> Objective:
    """The gait sensitivity norm, for a gait whose strides vary little under noise, such as that of the ground's slope.

    **Arguments:** as those of `hyjax.gait_sensitivity_norm`: `noise` selects the parameters that vary from stride to stride, as
    `lambda p: p.slope`; `indicator` is a function of the `Stride`, by default its duration. The norm is infinite for a gait that
    is not stable: a search starts from a stable gait, and its steps to others are cut back.
    """

    def sensitivity(orbit: PeriodicOrbit, params: Params) -> Scalar:
        return gait_sensitivity_norm(orbit, noise=noise, indicator=indicator)

    return sensitivity


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


# Not `State`, whose name of the dimension would be that of all states of the list: modes differ in theirs.
ArcEnd = tuple[str, Float[Array, " _"], str, Float[Array, " _"]]


def arc_ends(orbit: PeriodicOrbit, params: Params) -> list[ArcEnd]:
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
