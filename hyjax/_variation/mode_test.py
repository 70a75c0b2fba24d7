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
from .._system.types import Flag, Time
from .estimate_system import Layout
from .joint import JointParams


class Estimator(eqx.Module):
    """The systems of an estimate: `flow`, and `late`, whose resets are late or early jumps; see `estimate_system`."""

    flow: Automaton
    late: Automaton
    layout: Layout
    params: JointParams

    def jump(self, t: Time, z: Padded, mode: Index, guard: Int[Array, ""]) -> tuple[Padded, Index]:
        """Estimate and mode after the transition of a guard of the mode, by a late or early jump."""
        taken = jnp.maximum(self.flow.transition(mode, guard), 0)
        return self.late.jump(t, z, taken, self.params), self.flow.target(taken)


class GuardsAt(eqx.Module):
    """The guards of the mode of an estimate: `values`; `deviations`, the values in their deviations; and `rates` along the flow,
    with whether they are `armed`."""

    values: Float[Array, " guards"]
    deviations: Float[Array, " guards"]
    rates: Float[Array, " guards"]
    armed: Bool[Array, " guards"]

    def passed(self) -> tuple[Flag, Int[Array, ""]]:
        """Whether the mean is beyond a guard that falls there, and which it passed first: the largest g / rate."""
        beyond = self.armed & (self.rates < 0) & (self.values < 0)
        since = jnp.where(beyond, self.values / jnp.where(beyond, self.rates, 1), -jnp.inf)
        return jnp.any(beyond), jnp.argmax(since)

    def approached(self) -> tuple[Flag, Int[Array, ""]]:
        """Whether the mean flows towards a guard, and which is nearest in deviations."""
        ahead = self.armed & (self.rates < 0) & (self.values >= 0)
        return jnp.any(ahead), jnp.argmin(jnp.where(ahead, self.deviations, jnp.inf))


def guards_at(estimator: Estimator, t: Time, z: Padded, mode: Index) -> GuardsAt:
    """The guards at an estimate, without derivatives."""
    z, layout, params = stop_gradient(z), estimator.layout, estimator.params
    surfaces, args = estimator.flow.surfaces, (mode, params)
    values, rates = surfaces.rates(t, z, estimator.flow.field(t, z, args), args)
    slopes = jax.jacfwd(lambda x: surfaces.values(t, z.at[: layout.size].set(x), args))(layout.state(z))
    variances = jnp.einsum("gi,ij,gj->g", slopes, layout.covariance(z), slopes) + _levels(estimator, t, z, mode)
    tiny = float(jnp.finfo(z.dtype).tiny) ** 0.5
    deviations = values / jnp.sqrt(jnp.maximum(variances * params.unit, tiny))
    return stop_gradient(GuardsAt(values, deviations, rates, surfaces.armed(t, z, args)))


def _levels(estimator: Estimator, t: Time, z: Padded, mode: Index) -> Float[Array, " guards"]:
    """The variances of the levels of the guards, in the unit of the covariance."""
    system, params = estimator.flow.system, estimator.params
    count = estimator.flow.surfaces.count
    if not any(index is not None for index in params.noise.guard):
        return jnp.zeros(count, z.dtype)
    # A mode's number of coordinates is that of its state: those of the padding are zero.
    ways = [
        (dimension, tuple(params.noise.guard[i] for i in system.leaving(name)))
        for name, dimension in zip(system.names, estimator.flow.leading or (), strict=True)
    ]

    def levels(way, t, z, params):
        n, own = way
        known = [params.noise_at(index, t, z[:n], ()) for index in own]
        return jnp.stack([*known, *[jnp.zeros((), z.dtype)] * (count - len(own))])

    return switched(mode, ways, levels, t, z, params)


class Hypotheses(eqx.Module):
    """Three estimates and their modes. `weight`: the logarithms of their probabilities; `-inf` for one that is none."""

    z: Float[Array, "3 joint"]
    mode: Int[Array, "3"]
    weight: Float[Array, "3"]


def hypotheses(
    estimator: Estimator, t: Time, z: Padded, mode: Index, z_without: Padded, mode_without: Index, transition: Index
) -> Hypotheses:
    """The estimate as predicted; without its last event; after its next event.

    **Arguments:** `z_without`, `mode_without`: the estimate that flowed on without the last event, of the transition
    `transition`, which is -1 where there was no event.
    """
    happened = transition >= 0
    both = jnp.stack([z, z_without]), jnp.stack([mode, mode_without])
    found = jax.vmap(lambda *each: guards_at(estimator, t, *each))(*both)
    guards, without = (jax.tree.map(lambda rows, i=i: rows[i], found) for i in range(2))
    number = jax.vmap(lambda k: estimator.flow.transition(mode_without, k))(jnp.arange(without.values.size))
    last = without.deviations[jnp.argmax(number == transition)]
    ahead, k = guards.approached()
    after, target = estimator.jump(t, z, mode, k)
    has = jnp.where(happened, norm.logcdf(-last), 0)
    next_one = guards.deviations[k]
    weights = (
        has + jnp.where(ahead, norm.logcdf(next_one), 0),
        jnp.where(happened, norm.logcdf(last), -jnp.inf),
        jnp.where(ahead, has + norm.logcdf(-next_one), -jnp.inf),
    )
    return Hypotheses(jnp.stack([*both[0], after]), jnp.stack([*both[1], target]), jnp.stack(weights))
