"""What objectives see of a step that is being planned: its ends and integrals, or one point of it.

A plan is no trajectory before it is optimal. `hyjax.objectives` ask it for integrals and for functions along its arc, in place of
integrating: `Planned.integral`, `Planned.along`.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.orbit import PeriodicOrbit
from .._system.system import HybridSystem
from .._system.types import Params, Scalar, State, Time

Rate = Callable[[Time, State, Params], Scalar]


class Planned:
    """A step from `start` to `end`, of a duration, as far as objectives know it.

    **Attributes:** as of a `PeriodicOrbit` of one arc. `totals`: the integrals of the `rates`; `None` while these are collected.
    `point`: `(t, x, params)` of which rows along the arc are asked, or `None`. `window`: fractions of the step between which the
    last of these counts. `asked`: how many functions along the arc were asked for; `sense` of the last.
    """

    def __init__(self, system: HybridSystem, sequence: tuple[str, ...], start: State, end: State, duration: Scalar):
        self.system, self.sequence, self.mode_names, self.strides = system, sequence, sequence, 1
        self.x, self.nodes, self.period = start, start[None], duration
        self.arc_ends, self.start_times = [end[None]], jnp.zeros(1, start.dtype)
        self.jump_times = jnp.reshape(duration, (1, 1))
        self.rates: list[Rate] = []
        self.totals: Float[Array, " rates"] | None = None
        self.point: tuple[Time, State, Params] | None = None
        self.asked = 0
        self.sense, self.window = 0, (0.0, 1.0)

    def integral(self, rate: Rate | None) -> Scalar:
        """The integral of a rate over the step; zero for none."""
        if rate is None:
            return jnp.zeros_like(self.period)
        if self.point is not None:
            raise ValueError(
                "optimize: a constraint along a plan is of one function of the state, without an integral."
            )
        if rate not in self.rates:
            if self.totals is not None:
                raise ValueError("optimize: make hj.objectives.integral(rate) once, outside of the objective.")
            self.rates.append(rate)
        return jnp.zeros_like(self.period) if self.totals is None else self.totals[self.rates.index(rate)]

    def along(self, function: Rate | None, window: tuple[float, float], sense: int = 0) -> Float[Array, " rows"]:
        """The function at the point; its extreme values in the window are those of all points there.

        `sense`: 1 of the largest, -1 of the smallest.
        """
        self.asked, self.sense, self.window = self.asked + 1, sense, window
        if self.point is None or function is None:
            return jnp.zeros(1 if function is not None else 0, self.x.dtype)
        return jnp.ravel(jnp.asarray(function(*self.point), self.x.dtype))

    def __getattr__(self, name: str):
        raise AttributeError(
            f"optimize: {name!r} of a plan is not known before it is an orbit. Optimize the plan, then its orbit, "
            "hj.periodic_orbit(*plan.orbit_guess())."
        )


# What objectives are functions of.
Orbit = PeriodicOrbit | Planned
