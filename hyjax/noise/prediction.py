r"""The prediction of an estimate, through whatever events come until the next measurement, and in which mode the state is.

One loop, in which each pass is one flow and one jump, so that both are compiled once: first the jump of a mean that lies beyond a
guard; then the arcs, each with the jump at its end, of which the last may have a jump that is early; then, if there was an
event, the flow on without the last one.

An estimate near an event is uncertain of whether the event has happened: with the guard's value $g$ and variance
$\sigma^2 = D_xg\,\Sigma\,D_xg^\top + \sigma_g^2$ at a mean that flows on without the event, it has not with the probability
$\Phi(g/\sigma)$. Each of the hypotheses predicts another measurement $y$; the one with the largest product of its probability and
the density $N(y;\,h(x), S)$ of the measurement is kept.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Int

from .._flow.automaton import Automaton, Index, Padded, switched
from .._flow.integrator import Integrators
from .._flow.simulate import ArcStart, first_arc, flow_arc, leave_arc
from .._flow.surfaces import rounding, start_threshold
from .._numerics.trees import select, without_tangents
from .._system.types import Flag, Scalar, Time
from .covariance_system import JointParams, Layout


class Estimator(eqx.Module):
    """The systems of an estimate: `flow`, that of `covariance_system`; and `state`, of the state alone and the same modes."""

    flow: Automaton
    state: Automaton
    layout: Layout
    params: JointParams


class GuardsAt(eqx.Module):
    """The guards of the mode of an estimate: `values`; `deviations`, the values divided by their standard deviations; `rates`
    along the flow; whether they are `armed`; and `noise`, the rounding errors of the values."""

    values: Float[Array, " guards"]
    deviations: Float[Array, " guards"]
    rates: Float[Array, " guards"]
    armed: Bool[Array, " guards"]
    noise: Float[Array, " guards"]

    def passed(self, at: Time) -> tuple[Flag, Int[Array, ""]]:
        """Whether the mean is on or beyond a guard that falls there, and which it passed first: the largest g / rate.

        A flow does not see a guard that is zero within rounding at its start, so a mean that an update leaves there has passed
        it. **Arguments:** `at`: the size of the times, whose rounding counts.
        """
        beyond = self.armed & (self.rates < 0) & (self.values <= start_threshold(self.noise, at, self.rates))
        since = jnp.where(beyond, self.values / jnp.where(beyond, self.rates, 1), -jnp.inf)
        return jnp.any(beyond), jnp.argmax(since)

    def approached(self) -> tuple[Flag, Int[Array, ""]]:
        """Whether the mean flows towards a guard, and which is nearest in deviations."""
        ahead = self.armed & (self.rates < 0) & (self.values >= 0)
        return jnp.any(ahead), jnp.argmin(jnp.where(ahead, self.deviations, jnp.inf))


def guards_at(estimator: Estimator, t: Time, z: Padded, mode: Index) -> GuardsAt:
    """The guards at an estimate, without derivatives."""
    t, z, params = stop_gradient((t, z)) + (without_tangents(estimator.params),)
    x, sigma = estimator.layout.state(z), estimator.layout.covariance(z)
    surfaces, args = estimator.state.surfaces, (mode, params.params)
    values, rates = surfaces.rates(t, x, estimator.state.field(t, x, args), args)
    slopes = jax.jacfwd(lambda x: surfaces.values(t, x, args))(x)
    variances = jnp.einsum("gi,ij,gj->g", slopes, sigma, slopes) + _levels(estimator, t, x, mode)
    tiny = float(jnp.finfo(z.dtype).tiny) ** 0.5
    deviations = values / jnp.sqrt(jnp.maximum(variances * params.unit, tiny))
    noise, _ = rounding(surfaces, t, x, args)
    return stop_gradient(GuardsAt(values, deviations, rates, surfaces.armed(t, x, args), noise))


def _levels(estimator: Estimator, t: Time, x: Float[Array, " size"], mode: Index) -> Float[Array, " guards"]:
    """The variances of the levels of the guards, in the unit of the covariance."""
    system, params = estimator.state.system, estimator.params
    count = estimator.state.surfaces.count
    if not any(index is not None for index in params.noise.guard):
        return jnp.zeros(count, x.dtype)
    ways = [
        (each.dimension, tuple(params.noise.guard[i] for i in system.leaving(name) for _ in range(system.sizes[i])))
        for name, each in system.modes.items()
    ]

    def levels(way, t, x, params):
        n, own = way
        known = [params.noise_at(index, t, x[:n], ()) for index in own]
        return jnp.stack([*known, *[jnp.zeros((), x.dtype)] * (count - len(own))])

    return switched(mode, ways, levels, t, x, params)


def log_probabilities(happened: Flag, last: Scalar, ahead: Flag, following: Scalar) -> Float[Array, "3"]:
    """The logarithms of the probabilities that the estimate is as predicted, without its last event, after its next event; `-inf`
    where there is no such event.

    **Arguments:** `last`: the value of the last event's guard, had it not happened; `following`: that of the next event's guard;
    both in deviations. `happened`, `ahead`: whether there are these events.
    """
    has = jnp.where(happened, norm.logcdf(-last), 0)
    as_predicted = has + jnp.where(ahead, norm.logcdf(following), 0)
    without = jnp.where(happened, norm.logcdf(last), -jnp.inf)
    return jnp.stack([as_predicted, without, jnp.where(ahead, has + norm.logcdf(-following), -jnp.inf)])


# The stages of the loop of `predict`: the jump of a mean beyond a guard, an arc, the flow on without the last event, the end.
_LEAP, _ARC, _BACK, _DONE = range(4)


# The estimate before the last event since the previous measurement: time, estimate, mode; its way, -1 without an event; and how
# many there were, with the jump of a mean that was beyond a guard at the start.
LastEvent = tuple[Time, Padded, Index, Index, Int[Array, ""]]
# The estimate and its mode if the next event had happened, or the last one had not; the value of that event's guard, in its
# deviations, at the mean that flows on without it; and whether there is such an event.
Hypothesis = tuple[Padded, Index, Scalar, Flag]
# The estimate at the next measurement, with its result, and the last event before it. For the test of modes: the estimate after
# its next event, and flown on without its last event.
Prediction = tuple[ArcStart, LastEvent, Hypothesis, Hypothesis]


def predict(
    estimator: Estimator,
    t: Time,
    z: Padded,
    mode: Index,
    until: Time,
    max_jumps: int,
    integrator: Integrators,
    tested: bool,
) -> Prediction:
    """The estimate at the time `until`. **Arguments:** `tested`: whether the hypotheses are found; then the automaton has modes
    without events."""
    flow, params, at_once = estimator.flow, estimator.params, jnp.array(-1)
    if flow.surfaces.count:
        beyond, k = guards_at(estimator, t, z, mode).passed(jnp.maximum(jnp.abs(t), jnp.abs(until)))
        at_once = jnp.where(beyond, flow.way(mode, k), -1)
    start, half = first_arc(flow, z, mode, t, until), len(flow.names) // 2
    none: Hypothesis = z, mode, jnp.zeros((), z.dtype), jnp.array(False)
    last: LastEvent = t, z, mode, jnp.array(-1), jnp.where(at_once >= 0, jnp.array(1), jnp.array(0))

    def one(carry: tuple[Index, Prediction]) -> tuple[Index, Prediction]:
        stage, (end, last, early, without) = carry
        t_last, z_last, mode_last, way_last, events = last
        now, at = end, end.mode
        leap, back = stage == _LEAP, stage == _BACK
        if tested:
            # An event within rounding of the measurement may lie beyond it.
            now = select(back, first_arc(flow, z_last, mode_last + half, t_last, _not_before(until, t_last)), now)
            at = jnp.where(back, mode_last, now.mode)
        # The flow of a leap is not looked at, and takes no step.
        arrival, met = flow_arc(flow, now, start, jnp.where(leap, now.t - 1, until), params, integrator)
        t, z = select(leap, (now.t, now.z), (arrival.t, arrival.x))
        taken = jnp.where(leap, at_once, met)
        if tested:
            guards = guards_at(estimator, t, z, at)
            ahead, k = guards.approached()
            taken = jnp.where(taken >= 0, taken, flow.way(at, k))
        z_after = flow.jump(t, z, jnp.maximum(taken, 0), params)
        target = flow.target(jnp.maximum(taken, 0))
        after, row = leave_arc(flow, now, events >= max_jumps, arrival, met, z_after, params)
        after = select(leap, first_arc(flow, z_after, target, now.t, until), after)
        jumped, ended = (stage == _ARC) & row.jumped, (stage == _ARC) & after.done
        t_last, z_last, mode_last, way_last, events = last = select(
            jumped, (row.end, row.x_end, row.mode, row.way, events + 1), last
        )
        following = _DONE
        if tested:
            early = select(ended, (z_after, target, guards.deviations[k], ahead), early)
            number = jax.vmap(lambda k: flow.way(at, k))(jnp.arange(guards.values.size))
            deviation = guards.deviations[jnp.argmax(number == way_last)]
            without = select(back, (z, mode_last, deviation, jnp.array(True)), without)
            following = jnp.where(way_last >= 0, _BACK, _DONE)
        stage = jnp.where(back, _DONE, jnp.where(ended, following, _ARC))
        return stage, (select(back, end, after), last, early, without)

    first = jnp.where(start.done, _DONE, jnp.where(at_once >= 0, _LEAP, _ARC))
    return jax.lax.while_loop(lambda carry: carry[0] != _DONE, one, (first, (start, last, none, none)))[1]


def _not_before(until: Time, t: Time) -> Time:
    """The time `until`, but not before `t`; with the derivative of `until`."""
    return until + stop_gradient(jnp.maximum(t - until, 0))
