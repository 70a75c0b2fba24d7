"""What models share: checks of parameters and orbits, forced systems with impacts, the lines of outlines."""

import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.fast import sin
from .._system.system import Guard, HybridSystem, Mode, Reset, Transition
from .._system.types import Scalar, Time
from .._system.where import parameter as parameter


def known(value):
    """The value as an array of NumPy, which compares without a compiled program; a traced value as it is."""
    return value if isinstance(value, jax.core.Tracer) else np.asarray(value)


def refuse_unless(condition, message: str) -> None:
    """`ValueError` for a parameter out of range. A traced condition is unknown, and passes."""
    if not isinstance(condition, jax.core.Tracer) and not np.all(np.asarray(condition)):
        raise ValueError(f"Params: {message}")


def require(params, *, positive: str = "", nonnegative: str = "", at_most_one: str = "") -> None:
    """`ValueError` for a parameter out of range. **Arguments:** names of parameters, with spaces between them; those of
    `at_most_one` lie in `[0, 1]`."""
    for name in positive.split():
        value = known(getattr(params, name))
        refuse_unless(value > 0, f"{name}={value} must be positive.")
    for name in nonnegative.split():
        value = known(getattr(params, name))
        refuse_unless(value >= 0, f"{name}={value} must not be negative.")
    for name in at_most_one.split():
        value = known(getattr(params, name))
        refuse_unless((value >= 0) & (value <= 1), f"{name}={value} must lie in [0, 1].")


def require_slope(params) -> None:
    """`ValueError` unless the ground, whose angle is the parameter `slope`, is less steep than a wall."""
    refuse_unless(abs(known(params.slope)) < np.pi / 2, f"slope={params.slope} must lie between -pi/2 and pi/2.")


def require_sequence(orbit, sequence: tuple[str, ...], name: str) -> None:
    """`ValueError` for an orbit of another sequence, whose nodes are not the states just after each heel strike."""
    if orbit.sequence != sequence:
        raise ValueError(
            f"{name}: the orbit has the sequence {', '.join(orbit.sequence)}; this objective is defined for strides of the "
            f"sequence {', '.join(sequence)}."
        )


def clock(t: Time, frequency: Scalar) -> Scalar:
    r"""A guard that falls through zero at the end of every period $2\pi/\Omega$.

    $1 - \tau$ in the first period and $-\sin(2\pi\tau)/2\pi$ later, where $\tau = \Omega t/2\pi$ counts the periods. Both
    fall with the same slope at $\tau = 1$, and neither is positive just after a whole number of periods, so an arc that starts
    there does not end there. The zero of the straight line is found with steps of any length, that of the sine with steps
    shorter than half a period.

    **Arguments:** `frequency`: $\Omega$, rad per unit of time.
    """
    turns = frequency * t / (2 * jnp.pi)
    return jnp.where(turns < 1.25, 1 - turns, -sin(frequency * t) / (2 * jnp.pi))


def impacts_in_a_period(
    flow: Mode, gap: Guard, impact: Reset, period_ends: Guard, restart: Reset, time_unit: str
) -> HybridSystem:
    """A forced system with impacts, as two modes of the same flow: `before` and `after` the first impact of a period.

    So a sequence counts the impacts: `("before",)` has none, `("before", "after")` one, `("before", "after", "after")` two.

    **Arguments:** `gap`, `impact`: guard and reset of an impact. `period_ends`, `restart`: guard and reset at the end of a
    period. `time_unit`: that of the system.
    """
    return HybridSystem(
        modes={"before": flow, "after": flow},
        transitions=(
            Transition("before", "after", guard=gap, reset=impact),
            Transition("after", "after", guard=gap, reset=impact),
            Transition("before", "before", guard=period_ends, reset=restart),
            Transition("after", "before", guard=period_ends, reset=restart),
        ),
        time_unit=time_unit,
    )


Point = Float[Array, "2"]
Length = float | Float[Array, ""]


def ground(params) -> Float[Array, ""]:
    """The angle by which the ground falls to the right in the frame of the outline: zero, where that frame is vertical."""
    return jnp.zeros(())


def spring(start: Point, end: Point, turns: int, width: Length) -> Float[Array, "n 2"]:
    """A zigzag from one point to another, straight at both ends. **Arguments:** `width`: in the units of the points."""
    inner = np.linspace(0.2, 0.8, 2 * turns + 1)
    along = np.concatenate([[0.0], inner, [1.0]])
    aside = np.concatenate([[0.0, 0.0], np.tile([1.0, -1.0], turns)[: 2 * turns - 1], [0.0, 0.0]])
    way = end - start
    across = jnp.stack([-way[1], way[0]]) / jnp.sqrt(way @ way)
    return start + jnp.asarray(along)[:, None] * way + width * jnp.asarray(aside)[:, None] * across


def mass_before_wall(x: Length, wall: Length, anchor: Length, size: Length) -> dict[str, Float[Array, "n 2"]]:
    """Anchor, spring, mass and wall of an oscillator. The mass is drawn behind its face, at `x`, which strikes the wall."""
    zero = jnp.zeros_like(size)
    up = jnp.stack([zero, size])
    mass, end, side = (jnp.stack([at, zero]) for at in (x - size / 2, anchor, wall))
    return {
        "mass": box(mass, size, size),
        "wall": jnp.stack([side - up, side + up]),
        "spring": spring(end, mass - jnp.stack([size / 2, zero]), 6, 0.25 * size),
        "anchor": jnp.stack([end - up, end + up]),
    }


def disc(centre: Point, radius: Length) -> Float[Array, "33 2"]:
    """The rim of a disc."""
    angle = np.linspace(0, 2 * np.pi, 33)
    return centre + jnp.asarray(radius) * jnp.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=1))


def box(centre: Point, width: Length, height: Length) -> Float[Array, "5 2"]:
    """The rim of an upright rectangle."""
    corners = jnp.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5]])
    return centre + corners * jnp.stack([jnp.asarray(width), jnp.asarray(height)])
