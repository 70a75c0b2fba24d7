"""Noise that drives a hybrid system: along its flow, in the levels of its guards, and in its resets."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from .._numerics.semidefinite import check_covariance
from .._results.shown import Shown
from .._system.filippov import Side
from .._system.system import HybridSystem
from .._system.types import Matrix, Params, require_function, Scalar, State, Time

# A transition is given by its index, or by the names of its modes.
Way = int | tuple[str, str]
Variance = float | Array | np.ndarray | Callable[[Time, State, Params], Scalar]
Intensity = Array | np.ndarray | Callable[[Time, State, Params], Matrix]


class Noise(Shown):
    r"""White noise of a hybrid system: of its flow, of the levels of its guards, of its resets; all independent.

    $$dx = f\,dt + d\beta, \quad \operatorname{E} d\beta\,d\beta^\top = W dt; \qquad g(t, x) + w = 0, \quad
      \operatorname{E} w^2 = \sigma_g^2; \qquad x^+ = R(t, x^-) + r, \quad \operatorname{E} r r^\top = W_R$$

    $w$ and $r$ have mean zero and are drawn anew at each event.

    **Arguments:** each is `None` for none; a value, or a function `(t, x, params)` of the state in the mode (for events, before
    the jump); or a dictionary of these, for modes by their names, for transitions by their indices in `system.transitions` or by
    `(source, target)`; what the dictionary omits has none. `flow`: $W$, shape `(n, n)`, in units of the state squared per time.
    `guard`: $\sigma_g^2$, shape `()`, in units of the guard squared. `reset`: $W_R$, shape `(post, post)`, in units of the state
    after the jump squared. Matrices are symmetric and positive semidefinite; of a matrix that a function returns, the symmetric
    part is used. A run ends `nonfinite` where a function returns a negative variance, or a covariance that its variances exclude.

    Where the flow slides along a surface of `hj.filippov`, which leads a state beside it back at once, along the jump of the
    field, the noise of the flow is what is left of it.

    `ValueError`, from the functions that take a `Noise`, for an unknown mode or transition, a wrong shape, and a matrix that is
    not a covariance.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> noise = hj.noise.Noise(flow=jnp.diag(jnp.array([0.0, 1e-4])), guard=1e-6)
    >>> found = hj.noise.covariance(ball.system, x0, jnp.zeros((2, 2)), params, mode="flight", t1=1.0, noise=noise)
    >>> print(jnp.sqrt(jnp.diag(found.final)).round(6))
    [0.0028   0.009131]

    Source: Kong, Payne, Zhu, Johnson (2024), Sec. II, noisy guards and uncertain resets: in Table I of the covariance $\Sigma$,
    to whose eqs. 36-37 the noise adds. Payne, Kong, Johnson (2022), *The uncertainty aware salted Kalman filter: state
    estimation for hybrid systems with uncertain guards*, IROS.
    """

    flow: Intensity | Mapping[str, Intensity] | None = None
    guard: Variance | Mapping[Way, Variance] | None = None
    reset: Intensity | Mapping[Way, Intensity] | None = None


class PlacedNoise(eqx.Module):
    """The noise of a system as a PyTree: the distinct values; and for each mode and transition the index of its value, or `None`.

    Modes that share noise and flow share one compiled branch.
    """

    values: tuple[Any, ...]
    flow: tuple[int | None, ...] = eqx.field(static=True)
    guard: tuple[int | None, ...] = eqx.field(static=True)
    reset: tuple[int | None, ...] = eqx.field(static=True)


def value_at(value: Any, t: Time, x: State, params: Params) -> Array:
    """The value of a noise at time and state, in the dtype of the state; NaN for that of a function which has a negative
    variance, or a covariance larger than its variances allow, by more than rounding."""
    if not callable(value):
        return jnp.asarray(value, x.dtype)
    found = jnp.asarray(value(t, x, params), x.dtype)
    matrix = stop_gradient(jnp.atleast_2d(found))
    matrix, variances = (matrix + matrix.T) / 2, jnp.diagonal(matrix)
    rounding = 1e3 * float(jnp.finfo(x.dtype).eps) * jnp.max(jnp.abs(matrix))
    allowed = jnp.outer(variances, variances) + rounding * jnp.max(jnp.abs(matrix))
    possible = jnp.all(variances >= -rounding) & jnp.all(matrix**2 <= allowed)
    return jnp.where(possible, found, jnp.nan)


def place_noise(noise: Noise | None, system: HybridSystem, t: Time, dtype, params: Params) -> PlacedNoise:
    """The noise of each mode and transition of a system, checked."""
    noise = Noise() if noise is None else noise
    if not isinstance(noise, Noise):
        raise ValueError(
            f"noise: {noise!r} is not a hj.noise.Noise. Write hj.noise.Noise(flow=W), with W of shape (n, n)."
        )
    sizes = {name: mode.dimension for name, mode in system.modes.items()}
    values: list[Any] = []

    def keep(given, source: str, shape: tuple[int, ...], label: str, slides: Side | None = None) -> int | None:
        """The index, among the distinct values, of a value that is given; the value is checked. `slides`: of a mode that slides
        along a surface, off which its flow lets nothing go."""
        if given is None:
            return None
        if callable(given):
            require_function(given, "t, x, params", label)
            x = jax.ShapeDtypeStruct((sizes[source],), dtype)
            out = eqx.filter_eval_shape(given, t, x, params)
            if getattr(out, "shape", None) != shape:
                raise ValueError(f"{label} must return shape {shape}, not {getattr(out, 'shape', out)}.")
        for index, known in enumerate(values):
            if known[0] is given and known[1] == shape and known[3] is slides:
                return index
        if callable(given):
            checked = given
        elif shape:
            checked = check_covariance(given, shape[0], dtype, label)
        else:
            checked = _check_variance(given, dtype, label)
        checked = checked if slides is None else eqx.Partial(_along_surface, slides, checked)
        values.append((given, shape, checked, slides))
        return len(values) - 1

    sides = {name: mode.domain for name, mode in system.modes.items()}
    slides = {name: side for name, side in sides.items() if isinstance(side, Side) and 0 in side.signs.value}  # pyright: ignore
    one = noise.flow is not None and not isinstance(noise.flow, Mapping) and not callable(noise.flow)
    if one and len(set(sizes.values())) > 1:
        raise ValueError(
            f"Noise: flow is one matrix, but the modes have the dimensions {sizes}. Give one for each mode that has noise, "
            "{name: W, ...}."
        )
    flow = tuple(
        keep(each, name, (sizes[name], sizes[name]), f"Noise: flow of mode {name!r}", slides.get(name))
        for name, each in system.by_mode(noise.flow, "Noise(flow=...)").items()
    )

    def at_events(given, what: str, shape):
        return tuple(
            keep(each, way.source, shape(way), f"Noise: {what} of transition {way.source!r} -> {way.target!r}")
            for each, way in zip(system.by_transition(given, f"Noise: {what}"), system.transitions, strict=True)
        )

    guard = at_events(noise.guard, "guard", lambda way: ())
    reset = at_events(noise.reset, "reset", lambda way: (sizes[way.target], sizes[way.target]))
    return PlacedNoise(tuple(each[2] for each in values), flow, guard, reset)


def aged_noise(noise: PlacedNoise) -> PlacedNoise:
    """The noise of a system, for its states that begin with the time since the last event."""
    values = (eqx.Partial(_of_aged, value) if callable(value) else _padded(value) for value in noise.values)
    return dataclasses.replace(noise, values=tuple(values))


def _padded(value: Array) -> Array:
    return jnp.pad(value, (1, 0)) if value.ndim else value


def _of_aged(value: Callable, t: Time, z: State, params: Params) -> Array:
    """The value of a noise that is a function of the state, for states that begin with an age."""
    return _padded(value_at(value, t, z[1:], params))


def _along_surface(slides: Side, intensity: Any, t: Time, x: State, params: Params) -> Matrix:
    """The part of a noise along the surface, where the flow leads back at once what is beside it."""
    back = slides.led_back(t, x, params)
    return back @ value_at(intensity, t, x, params) @ back.T


def _check_variance(given, dtype, label: str) -> Float[Array, ""]:
    variance = jnp.asarray(given, dtype)
    if variance.shape != ():
        raise ValueError(f"{label} is a variance, of shape (), not {variance.shape}.")
    if not isinstance(variance, jax.core.Tracer) and not (np.isfinite(variance) and variance >= 0):
        raise ValueError(f"{label} is a variance, finite and at least 0, not {variance}.")
    return variance
