"""The integral of a rate over an orbit, as one more state of the flow."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import jax.numpy as jnp

from .._orbit.orbit import PeriodicOrbit
from .._orbit.stride import run_stride
from .._system.system import HybridSystem
from .._system.types import Params, Scalar, State, Time
from .constraint import Objective

# A number at a point of the flow: `(t, x, params) -> number`.
Rate = Callable[[Time, State, Params], Scalar]
Made = TypeVar("Made")


def by_mode(name: str, given: Rate | Mapping[str, Rate], orbit: PeriodicOrbit) -> dict[str, Rate]:
    """The function of each mode of an orbit that has one. `ValueError`, for `hj.objectives.<name>`, for unknown modes."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(orbit.sequence, given)
    if unknown := [mode for mode in given if mode not in orbit.system.modes]:
        raise ValueError(f"{name}: {unknown} are not modes of the system, which has {list(orbit.system.modes)}.")
    return {mode: given[mode] for mode in dict.fromkeys(orbit.sequence) if mode in given}


def remembered(make: Callable[[PeriodicOrbit], Made]) -> Callable[[PeriodicOrbit], Made]:
    """`make(orbit)`, made once for each system and sequence: each new system would be compiled again."""
    made: dict[tuple[HybridSystem, tuple[str, ...]], Made] = {}

    def recall(orbit: PeriodicOrbit) -> Made:
        key = orbit.system, orbit.sequence
        if key not in made:
            made[key] = make(orbit)
        return made[key]

    return recall


def integral(rate: Rate | Mapping[str, Rate]) -> Objective:
    r"""The integral of a rate over one period, $\int_0^T r(t, x(t), p)\,dt$, by the integrator of the orbit, to its tolerance.

    The integral is one more state of the flow. Of a smooth rate it and its derivatives are as accurate as the orbit. Where a
    rate has a kink, the integral is accurate and its derivatives are less: write the kink as an event of the system. For the
    positive part of a power there is `positive_work`, which does so.

    **Arguments:** `rate`: `(t, x, params) -> number`, for all modes of the orbit, or a mapping from modes; a mode that is
    left out adds nothing.

    **Returns:** `(orbit, params) -> number`, in the unit of the rate times that of time. NaN where the integration fails.
    `ValueError` for an unknown mode.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> angle = hj.objectives.integral(lambda t, x, p: x[1])
    >>> print(f"{angle(orbit, params):.6f}")
    1.047198
    """
    extended = remembered(lambda orbit: with_integral(orbit.system, by_mode("integral", rate, orbit)))

    def integral(orbit: PeriodicOrbit, params: Params) -> Scalar:
        system = extended(orbit)
        total = jnp.zeros((), orbit.x.dtype)
        for node, start in zip(orbit.nodes, orbit.starts, strict=True):
            x = jnp.append(node, jnp.zeros((), node.dtype))
            through = run_stride(system, start, x, params, orbit.sequence, orbit.integrator)
            total = total + through.x[-1]
        return total

    return integral


def with_integral(system: HybridSystem, rates: Mapping[str, Rate]) -> HybridSystem:
    """The system with one more state, the last, which the jumps do not change and whose derivative is the rate of the mode."""
    return system.extended("integral of the rate", lambda name: rates.get(name, lambda t, x, params: jnp.zeros(())))
