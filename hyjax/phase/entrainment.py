r"""Entrainment of a hybrid limit cycle by a weak periodic push: the Arnold tongue that the phase equation predicts."""

from collections.abc import Callable, Mapping

import jax
import jax.core
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._numerics.eager import long_run
from .._orbit.orbit import PeriodicOrbit
from .._results.registry import draw
from .._results.shown import Shown
from .._results.working import warn
from .._system.results import nan_unless, RESULTS
from .._system.types import Params, Scalar, State
from .responses import PhaseResponse

# The rate that a push of strength 1 adds to the vector field: `push(cycle, x, params)`, of period 1 in `cycle`.
Push = Callable[[Scalar, State, Params], State]


class Entrainment(Shown):
    r"""The averaged phase equation of a periodic orbit under a weak periodic push, from `entrainment`.

    **Attributes:** `lags`: equidistant phase differences $\psi$ in [0, 1), in cycles, shape `(lags,)`. `interaction`:
    $\Gamma(\psi)$ there. `lowest`, `highest`: the extremes of $\Gamma$, found between the `lags` by Newton's method. `result`:
    the code of the phase response; unless it is `successful`, the numbers are NaN. `orbit`: that is pushed.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.phase_response(orbit, n_samples=20)
    >>> torque = lambda cycle, x, params: jnp.stack([0.0 * cycle, jnp.cos(2 * jnp.pi * cycle)])
    >>> found = hj.phase.entrainment(response, torque)
    >>> found.lags.shape, found.interaction.shape, bool(found.lowest < found.highest)
    ((100,), (100,), True)
    """

    lags: Float[Array, "*batch lags"]
    interaction: Float[Array, "*batch lags"]
    lowest: Float[Array, "*batch"]
    highest: Float[Array, "*batch"]
    result: RESULTS
    orbit: PeriodicOrbit

    def tongue(
        self, strength: float | Float[ArrayLike, "*strengths"]
    ) -> tuple[Float[Array, "*strengths"], Float[Array, "*strengths"]]:
        """The Arnold tongue: the least and the largest ratio `T / P` of the push's frequency to the orbit's at which the orbit
        locks to a push of this strength, to first order. `strength`: of either sign, in units of the push."""
        strength = jnp.asarray(strength, self.lags.dtype)
        one, other = 1 + strength * self.lowest, 1 + strength * self.highest
        return jnp.minimum(one, other), jnp.maximum(one, other)

    def plot(self, strength: float = 0.1):
        """A figure of the interaction function, and of the tongue up to a strength; see `hyjax.plot.tongue_figure`."""
        return draw(self, strength)


def entrainment(response: PhaseResponse, push: Push | Mapping[str, Push], *, lags: int = 100) -> Entrainment:
    r"""The range of frequencies at which a weak periodic push entrains a limit cycle, one cycle of the push for each period.

    The push has the period $P$ and adds $\varepsilon\,q(t/P, x, p)$ to the vector field. With the difference
    $\psi = \theta/T - t/P$ of the phases in cycles, averaged over a cycle,

    $$\dot\psi = \frac1T - \frac1P + \frac{\varepsilon}{T}\,\Gamma(\psi), \qquad
      \Gamma(\psi) = \frac1T \int_0^T Z(\theta)^\top q\big(\theta/T - \psi,\ x(\theta),\ p\big)\,d\theta .$$

    The orbit locks where this has a rest: $T/P = 1 + \varepsilon\,\Gamma(\psi)$, so for all ratios of frequencies between the
    extremes of $1 + \varepsilon\,\Gamma$, at a difference $\psi$ that is stable where $\varepsilon\,\Gamma'(\psi) < 0$. The error
    of the edges is of the order of $\varepsilon^2$. Of an unstable orbit the locked motions are unstable too: a warning says so.

    **Arguments:** `response`: of one orbit. `push`: `q(cycle, x, params)`, of period 1 in `cycle`, with the shape and order of
    the state, per unit of time and of strength; for several modes a dictionary by their names, where a mode that is missing is
    not pushed. `lags`: the number of phase differences, static.

    **Returns:** `Entrainment`, also under `jit` and `vmap`, differentiable in the orbit's parameters. The integral converges fast
    where `q` is smooth in `cycle`; for a push that is switched on and off raise `samples` of the response and `lags`.
    `ValueError` for a batch of responses, for a mode that is not on the orbit, and for a push of another shape than the state.

    A wheel whose axle is pushed by a torque, and the ratios of frequencies at which it rolls in step:

        response = hj.phase.phase_response(orbit)
        torque = lambda cycle, x, params: jnp.stack([0.0, jnp.cos(2 * jnp.pi * cycle)])
        low, high = hj.phase.entrainment(response, torque).tongue(0.01)

    **Kicks.** A push that moves the state at once by $\varepsilon\,\kappa$, once in each period of the push, is no function
    `q(cycle, x, params)`: it has $\Gamma(\psi) = Z(\theta)^\top\kappa(x(\theta))/T$ at $\theta = \psi T$, without an integral.
    $\Gamma$ jumps at the events with $Z$, and its extremes may lie at both sides of them, which are samples of the response:

        gamma = jnp.concatenate([arc.z @ kick for arc in response.arcs]) / response.period
        low, high = 1 + strength * jnp.min(gamma), 1 + strength * jnp.max(gamma)

    for a positive strength. To simulate kicks, give the system a clock as a further coordinate, with the rate 1, and a transition
    of each mode to itself with the guard `period - clock`, whose reset adds the kick and sets the clock to 0.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.phase_response(orbit, n_samples=20)
    >>> torque = lambda cycle, x, params: jnp.stack([0.0 * cycle, jnp.cos(2 * jnp.pi * cycle)])
    >>> found = hj.phase.entrainment(response, torque)
    >>> low, high = found.tongue(0.01)
    >>> print(f"{low:.6f} {high:.6f}")
    0.992805 1.007195

    Source: Shirasaka, Kurebayashi, Nakao (2017), *Phase reduction theory for hybrid nonlinear oscillators*, Phys. Rev. E 95,
    012212, Sec. on injection locking; Nakao (2016), *Phase reduction approach to synchronisation of nonlinear oscillators*,
    Contemp. Phys. 57, 188-214. In Kong, Payne, Zhu, Johnson (2024): Table I, the limit cycle of Sec. III-C and its period.
    """
    orbit = response.orbit
    if response.residual.ndim:
        raise ValueError("entrainment: this is a batch of responses. Choose one, or use jax.vmap.")
    if not isinstance(lags, int) or lags < 3:
        raise ValueError(f"entrainment: lags={lags!r} must be an integer of at least 3, to enclose the extremes.")
    radius = orbit.spectral_radius
    if not isinstance(radius, jax.core.Tracer) and radius > 1:
        warn(
            f"entrainment: the orbit is unstable, with a spectral radius of {float(radius):.6g}. In the range found there are "
            "motions locked to the push, and they are unstable too."
        )
    by_mode = dict(push) if isinstance(push, Mapping) else dict.fromkeys(orbit.mode_names, push)
    for name, each in by_mode.items():
        if name not in orbit.mode_names:
            raise ValueError(
                f"entrainment: push is given for {name!r}, but the modes of the orbit are {orbit.mode_names}."
            )
        n = orbit.system.mode(name).dimension
        given = jax.eval_shape(each, jnp.zeros((), orbit.x.dtype), jnp.zeros(n, orbit.x.dtype), orbit.params)
        if getattr(given, "shape", None) != (n,):
            raise ValueError(
                f"entrainment: push returns {given} in mode {name!r}. It must return what is added to the rates of "
                f"{orbit.system.mode(name).coordinates}, shape ({n},)."
            )
    return _entrainment(response, by_mode, lags)


@long_run
def _entrainment(response: PhaseResponse, push: dict[str, Push], lags: int) -> Entrainment:
    period, params = response.period, response.orbit.params

    def interaction(lag):
        total = jnp.zeros_like(period)
        for arc in response.arcs:
            if arc.mode in push:
                cycles = arc.t / period - lag
                added = jax.vmap(lambda cycle, x: push[arc.mode](cycle, x, params))(cycles, arc.x)  # noqa: B023
                total = total + jnp.sum(arc.weights[:, None] * arc.z * added) / period
        return total

    grid = jnp.arange(lags, dtype=period.dtype) / lags
    values = jax.vmap(interaction)(grid)

    def largest(sign):
        turned = lambda lag: sign * interaction(lag)
        best = jax.lax.stop_gradient(grid[jnp.argmax(sign * values)])
        place = best
        for _ in range(4):
            slope, bend = jax.jvp(jax.grad(turned), (place,), (jnp.ones_like(place),))
            place = place - jnp.where(bend < 0, jnp.clip(slope / bend, -1 / lags, 1 / lags), 0)
        # At an extreme the derivative by its place is zero.
        best = jnp.where(turned(place) > turned(best), place, best)
        return sign * turned(jax.lax.stop_gradient(best))

    nan = lambda value: nan_unless(response.result == RESULTS.successful, value)
    return Entrainment(grid, nan(values), nan(largest(-1)), nan(largest(1)), response.result, response.orbit)
