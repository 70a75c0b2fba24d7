r"""The isostable response of a hybrid limit cycle: how a small push changes the amplitude of a decaying deviation."""

import functools as ft

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from .._numerics.eager import long_run
from .._numerics.eigenvalues import eigenvectors
from .._orbit.orbit import PeriodicOrbit
from .._results.failure import raise_failure
from .._results.registry import draw
from .._results.shown import Shown
from .._system.results import choose, nan_unless, RESULTS
from .._system.types import Matrix
from .phase_response import largest, masked
from .transport import along, check_orbit, rates, ResponseArc, Transport, transported, without_age


class IsostableResponse(Shown):
    r"""The isostable response along a periodic orbit, from `isostable_response`.

    **Attributes:** `arcs`: for each arc of the orbit, in order, a `ResponseArc`, whose `z` is the response $I$, complex.
    `multiplier`: $\lambda$. `exponent`: $\kappa = \ln(\lambda)/T$, per unit of time. `direction`: the eigenvector of $\lambda$ at
    the orbit's start, of length 1, shape `(n,)`. `residual`: the largest $|I^\top f|$ of all samples. `result`: a code of
    `RESULTS`; unless it is `successful`, the numbers are NaN. `orbit`: the `PeriodicOrbit`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.isostable_response(orbit, samples=20)
    >>> print(f"{response.multiplier.real:.6f} {response.exponent.real:.6f}", response.direction.real.round(6))
    0.444444 -0.351050 [ 0.828676 -0.559729]
    """

    arcs: tuple[ResponseArc, ...]
    multiplier: Complex[Array, "*batch"]
    exponent: Complex[Array, "*batch"]
    direction: Complex[Array, "*batch n"]
    residual: Float[Array, "*batch"]
    result: RESULTS
    orbit: PeriodicOrbit

    @property
    def period(self) -> Float[Array, "*batch"]:
        """The period of the orbit."""
        return self.orbit.period

    def plot(self, model=None):
        """A figure of the response to each coordinate over time, its real part; see `hyjax.plot.response_figure`."""
        return draw(self, model)


def isostable_response(
    orbit: PeriodicOrbit, *, which: int = 0, samples: int = 100, throw: bool = True
) -> IsostableResponse:
    r"""The isostable response of a periodic orbit: the gradient $I$ of an amplitude $\psi$ of the deviations from the orbit.

    $$\dot\psi = \kappa\,\psi, \quad \kappa = \frac{\ln\lambda}{T}; \qquad \dot I = (\kappa - A^\top) I; \qquad
      I^- = \Xi^\top I^+; \qquad I^\top f = 0$$

    with the saltation matrix $\Xi$, and $I$ periodic. A small push $\delta x$ at a state of the orbit changes $\psi$ by
    $I^\top\delta x$, which decays by the factor $\lambda$ in each period. Normalization: $I^\top v = 1$ at the orbit's start,
    where $v$ is the eigenvector of the monodromy matrix, of length 1 with a largest component that is positive; so there $\psi$
    is the component of the deviation along $v$, in units of the state.

    $I$ is complex: real for a positive multiplier. For a negative one $\kappa$ has the imaginary part $\pi/T$, and
    $I\,e^{-\kappa t}$ is real up to a constant factor; a complex pair has a pair of conjugate responses.

    **Arguments:** `orbit`: one orbit of a system that does not depend on time. `which`: the index of $\lambda$ in
    `orbit.multipliers`, static; 0 is the slowest of a stable orbit. `samples`, `throw`: as for `phase_response`.

    **Returns:** `IsostableResponse`, also under `jit` and `vmap`, differentiable in the orbit's parameters. `result` is the code
    of an orbit that was not found, or `no_simple_multiplier` where $\lambda$ is zero up to rounding, as every multiplier of a
    system of one coordinate, or not simple. `ValueError` for what `phase_response` refuses, and an index out of range.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.isostable_response(orbit, samples=20)
    >>> print(response.arcs[0].z[0].real.round(6))
    [-2.585274 -5.614059]

    Source: Wilson, Moehlis (2016), *Isostable reduction of periodic orbits*, Phys. Rev. E 94, 052213, for smooth systems;
    Shirasaka, Kurebayashi, Nakao (2017), Phys. Rev. E 95, 012212, for the jump of a gradient. In Kong, Payne, Zhu, Johnson
    (2024): the adjoint of eqs. 30-32, and in Table I the Floquet exponent of Sec. III-C, here $\kappa$.
    """
    check_orbit(orbit, samples, "isostable_response")
    n = orbit.x.size
    if not isinstance(which, int) or not 0 <= which < n:
        raise ValueError(
            f"isostable_response: which={which!r} must be the index of a multiplier of the orbit, from 0 to {n - 1}."
        )
    response = _response(orbit, which, *transported(orbit, samples))
    return raise_failure("isostable_response", response) if throw else response


@long_run
def _response(orbit: PeriodicOrbit, which: int, transposed: Matrix, arcs: tuple[Transport, ...]) -> IsostableResponse:
    eps, value = float(jnp.finfo(orbit.x.dtype).eps), orbit.multipliers[which]
    of_value = lambda number: number.astype(value.dtype)
    there = jnp.abs(value) > 1e3 * eps * jnp.maximum(jnp.max(jnp.abs(orbit.multipliers)), 1)
    value = jnp.where(there, value, 1)
    kappa = jnp.log(value) / of_value(orbit.period)
    right, left = (vectors[0] for vectors in eigenvectors(transposed.T, value[None]))
    # The eigenvector has the length 1: turned, its largest component is positive.
    pushes = without_age(orbit, right)
    top = pushes[jnp.argmax(jnp.abs(pushes))]
    length = jnp.abs(top) if pushes.size == right.size else jnp.abs(top) * jnp.linalg.norm(pushes)
    right = right * jnp.conj(top) / of_value(length)
    product = jnp.sum(left * right)
    simple = jnp.abs(product) > eps**0.5
    found = along(orbit, arcs, left / jnp.where(simple, product, 1))
    grown = lambda arc: arc.z * jnp.exp(kappa * of_value(arc.t - orbit.period))[:, None]
    found = tuple(eqx.tree_at(lambda arc: arc.z, arc, grown(arc)) for arc in found)
    residual = largest([jnp.sum(arc.z * of_value(rates(orbit, arc)), axis=1) for arc in found])
    failed = (orbit.result == RESULTS.successful) & ~(there & simple & jnp.isfinite(residual))
    result = choose(failed, RESULTS.no_simple_multiplier, orbit.result)
    nan = ft.partial(nan_unless, result == RESULTS.successful)
    return IsostableResponse(
        masked(orbit, found, result),
        nan(value),
        nan(kappa),
        nan(without_age(orbit, right)),
        nan(residual),
        result,
        orbit,
    )
