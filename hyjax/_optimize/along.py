r"""Numbers along the arcs of an orbit, for constraints such as a torque limit or the clearance of a swing foot."""

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.orbit import PeriodicOrbit
from .._system.types import Params, Scalar
from .constraint import Objective, Quantity
from .integral import by_mode, Rate, remembered
from .turning_points import Measured, measured, turning_values, values_at

Window = tuple[float, float]


def along(function: Rate | Mapping[str, Rate], *, samples: int = 20, window: Window = (0.0, 1.0)) -> Quantity:
    r"""A function of the state at equidistant times of each arc, as the rows of a constraint.

    `hj.Constraint(hj.objectives.along(clearance, window=(0.2, 0.8)), at_least=0.01)` bounds the function at these times; between
    them it may exceed the bound, by no more than $\tfrac18\Delta^2\max|\ddot h|$ for times $\Delta$ apart. `largest` and
    `smallest` bound it everywhere.

    **Arguments:** `function`: `(t, x, params) -> number`, for all modes of the orbit or a mapping from modes; arcs of a mode that
    is left out have no rows. `samples`: of each arc, at least 2, static. `window`: the first and last time, as fractions of the
    arc's duration, static.

    **Returns:** `(orbit, params) -> (rows,)`, `samples` for each arc, in the order of time, in the function's unit. The times
    move with the arc's ends. NaN where the integration fails. `ValueError` for arguments out of range and for an unknown mode.
    """
    check_window("along", window)
    if not isinstance(samples, int) or samples < 2:
        raise ValueError(f"along: samples={samples!r} must be an integer of at least 2.")
    measure = _measure("along", function)

    def along(orbit: PeriodicOrbit, params: Params) -> Float[Array, " rows"]:
        fractions = jnp.linspace(*window, samples, dtype=orbit.x.dtype)
        return values_at(measure(orbit), orbit, params, fractions).ravel()

    return along


def largest(function: Rate | Mapping[str, Rate], *, window: Window = (0.0, 1.0)) -> Objective:
    r"""The largest value of a function of the state on the arcs of an orbit, $\max_t h(t, x(t), p)$, between samples too.

    The times at which the function turns are located as events; the largest value is at one of them or at an end of an arc. It
    and its first and second derivatives are as accurate as the orbit, in forward and reverse mode. So
    `hj.Constraint(hj.objectives.largest(torque), at_most=0.2)` limits a torque along the whole arc.

    Where the function has several maxima and another one becomes the largest, the value has a kink: a minimization whose
    optimum has two equal maxima zigzags there or ends early. Then constrain `along`, whose rows are smooth, so that each maximum
    has its own multiplier; or constrain each arc or window apart.

    **Arguments:** `function`: `(t, x, params) -> number`, smooth in each mode, for all modes of the orbit or a mapping from
    modes; a mode that is left out does not count. `window`: the part of each arc that counts, as fractions of its duration,
    static, such as `(0.2, 0.8)` for the clearance of a foot, which is zero at both ends. For other windows in other modes, make
    one constraint for each mode.

    **Returns:** `(orbit, params) -> number`, in the function's unit. NaN where the integration fails, or the function turns more
    than 16 times in an arc. `ValueError` for arguments out of range, for an unknown mode, and where no mode is left.
    """
    return _extreme("largest", function, window, 1)


def smallest(function: Rate | Mapping[str, Rate], *, window: Window = (0.0, 1.0)) -> Objective:
    r"""The smallest value of a function of the state on the arcs of an orbit, $\min_t h(t, x(t), p)$, between samples too.

    **Arguments:** `function`, `window`: as for `largest`. **Returns:** `(orbit, params) -> number`, as `largest` does.
    """
    return _extreme("smallest", function, window, -1)


def _extreme(name: str, function: Rate | Mapping[str, Rate], window: Window, sign: int) -> Objective:
    check_window(name, window)
    measure = _measure(name, function)

    def extreme(orbit: PeriodicOrbit, params: Params) -> Scalar:
        values = turning_values(measure(orbit), orbit, params, window).ravel()
        return values[jnp.argmax(sign * values)]

    extreme.__name__ = name
    return extreme


def _measure(name: str, function: Rate | Mapping[str, Rate]):
    """The orbit's system with the function by mode; of the objective `name`."""

    def make(orbit: PeriodicOrbit) -> Measured:
        functions = by_mode(name, function, orbit)
        if not functions:
            raise ValueError(
                f"{name}: none of the orbit's modes {orbit.sequence} has a function. Give one of them one."
            )
        return measured(orbit.system, functions)

    return remembered(make)


def check_window(name: str, window: Window) -> None:
    low, high = window
    if not 0 <= low < high <= 1:
        raise ValueError(f"{name}: window={window} must be two fractions of an arc, such as (0.2, 0.8).")
