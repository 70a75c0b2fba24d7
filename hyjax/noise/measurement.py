"""The measurement of a state that is known with a covariance: prediction, likelihood, and Kalman's update."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.automaton import Index, switched
from .._system.system import HybridSystem
from .._system.types import Matrix, Params, Scalar, State, Time

Observe = Callable[[Time, State, Params], Array]


class Sensor(eqx.Module):
    """What is measured, mode by mode, and the covariance of its error.

    **Attributes:** `ways`: the dimension of each mode, and the function that gives what is measured there. `error`: $V$.
    """

    ways: tuple[tuple[int, Observe], ...]
    error: Matrix

    def __call__(self, t: Time, x: Float[Array, " size"], mode: Index, params: Params) -> Float[Array, " measured"]:
        """What is measured of a padded state in the mode of that index."""
        read = lambda way, t, x, params: jnp.asarray(way[1](t, x[: way[0]], params), x.dtype)
        return switched(mode, self.ways, read, t, x, params)


def place_sensor(system: HybridSystem, observe, error: Matrix, t: Time, dtype, params: Params) -> Sensor:
    """The sensor of a system, checked. **Arguments:** `observe`: a function, or one for each mode by name. `error`: $V$."""
    count = len(error)
    given: dict[str, Any] = dict(observe) if isinstance(observe, Mapping) else dict.fromkeys(system.names, observe)
    for name in given:
        system.mode(name, "mode of observe")
    if missing := [name for name in system.names if name not in given]:
        raise ValueError(
            f"kalman_filter: observe has no function for the modes {missing}. Give one for each of {list(system.names)}."
        )
    for name, fn in given.items():
        x = jax.ShapeDtypeStruct((system.mode(name).dimension,), dtype)
        out = eqx.filter_eval_shape(fn, t, x, params)
        if getattr(out, "shape", None) != (count,):
            raise ValueError(
                f"kalman_filter: observe returns shape {getattr(out, 'shape', out)} in mode {name!r}, but measurements of "
                f"shape (times, {count}) need shape ({count},)."
            )
    return Sensor(tuple((mode.dimension, given[name]) for name, mode in system.modes.items()), error)


class Innovation(eqx.Module):
    r"""A measurement minus its prediction, $r = y - h(t, x)$, and its covariance $S = H\Sigma H^\top + V$.

    **Attributes:** `gain`: $K = \Sigma H^\top S^{-1}$. `jacobian`: $H = D_xh$. `nis`: $r^\top S^{-1} r$. `log_likelihood`:
    $-\frac12(r^\top S^{-1} r + \log\det 2\pi S)$.
    """

    residual: Float[Array, " measured"]
    covariance: Float[Array, "measured measured"]
    gain: Float[Array, "size measured"]
    jacobian: Float[Array, "measured size"]
    nis: Scalar
    log_likelihood: Scalar


def innovation(sensor: Sensor, t: Time, x: State, sigma: Matrix, mode: Index, params: Params, y: Array) -> Innovation:
    """The innovation of a measurement; NaN where its covariance is not positive definite."""
    h = lambda x: sensor(t, x, mode, params)
    jacobian = jax.jacfwd(h)(x)
    residual = y - h(x)
    covariance = jacobian @ sigma @ jacobian.T + sensor.error
    root = jnp.linalg.cholesky(covariance)
    solve = lambda b: jax.scipy.linalg.cho_solve((root, True), b)
    nis = residual @ solve(residual)
    volume = 2 * jnp.sum(jnp.log(jnp.diagonal(root))) + residual.size * jnp.log(2 * jnp.pi)
    gain = solve(jacobian @ sigma).T
    return Innovation(residual, covariance, gain, jacobian, nis, -(nis + volume) / 2)


def updated(found: Innovation, x: State, sigma: Matrix, error: Array) -> tuple[State, Matrix]:
    r"""Mean and covariance after the measurement, in the form of Joseph: a sum of semidefinite matrices,

    $$x + K r, \qquad (I - KH)\,\Sigma\,(I - KH)^\top + K V K^\top.$$
    """
    left = jnp.eye(x.size, dtype=x.dtype) - found.gain @ found.jacobian
    after = left @ sigma @ left.T + found.gain @ error @ found.gain.T
    return x + found.gain @ found.residual, (after + after.T) / 2
