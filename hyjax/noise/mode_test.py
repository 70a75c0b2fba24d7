r"""In which mode is the state? The event of an estimate, not yet or already, against a measurement.

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
from .._flow.surfaces import rounding, start_threshold
from .._numerics.trees import without_tangents
from .._system.types import Flag, Scalar, Time
from .estimate_system import Layout
from .joint import JointParams


class Estimator(eqx.Module):
    """The systems of an estimate: `flow`, that of `estimate_system`, and `state`, that of the state alone, of the same modes."""

    flow: Automaton
    state: Automaton
    layout: Layout
    params: JointParams


class GuardsAt(eqx.Module):
    """The guards of the mode of an estimate: `values`; `deviations`, the values in their deviations; `rates` along the flow;
    whether they are `armed`; and `noise`, the rounding errors of the values."""

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
        (each.dimension, tuple(params.noise.guard[i] for i in system.leaving(name)))
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
