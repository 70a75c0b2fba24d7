"""Constraints of an optimization: functions of an orbit that are to be equal to, at least or at most a number. And what
objectives and constraints see of a step that is being planned: its ends and integrals, or one point of it.

A plan is no trajectory before it is optimal. `hyjax.objectives` ask it for integrals and for functions along its arc, in place of
integrating: `Planned.integral`, `Planned.along`.
"""

import numbers
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import equinox as eqx
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._orbit.orbit import PeriodicOrbit
from .._system.system import HybridSystem
from .._system.types import Params, require_function, Scalar, State, Time

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


# A number of an orbit, or several: `(orbit, params) -> value`.
Objective = Callable[[PeriodicOrbit, Params], Scalar]
Quantity = Callable[[PeriodicOrbit, Params], Scalar | Float[Array, " rows"]]
# Of a row its name, the relation, such as `<=`, and the limit.
Limit = tuple[str, str, float]


class Constraint(eqx.Module):
    r"""A function of an orbit with its limits: $g = b$, or $a \le g \le b$, in each component.

    **Arguments:** `function`: `(orbit, params) -> g`, a number or shape `(rows,)`, differentiable. `equals`; or `at_least`,
    `at_most`, one of both or both: numbers, or shape `(rows,)`, in the function's unit. `name`: for tables, by default that of
    the function. `ValueError` unless there is a limit, finite, and `at_least` is below `at_most`.

    **Example:**

    >>> limits = hj.Constraint(hj.objectives.period, at_least=0.5, at_most=2.0)
    >>> limits.name, float(limits.at_least), float(limits.at_most)
    ('period', 0.5, 2.0)
    """

    function: Quantity
    equals: Array | None
    at_least: Array | None
    at_most: Array | None
    name: str = eqx.field(static=True)

    def __init__(self, function: Quantity, *, equals=None, at_least=None, at_most=None, name: str | None = None):
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__) if name is None else name
        require_function(function, "orbit, params", "Constraint: the first argument")
        if (equals is None) == (at_least is None and at_most is None):
            raise ValueError(
                f"Constraint {self.name!r}: give either `equals`, or `at_least`, `at_most` or both; not equals={equals}, "
                f"at_least={at_least}, at_most={at_most}."
            )
        limits = equals, at_least, at_most
        try:
            arrays = [None if value is None else jnp.asarray(value, jnp.result_type(float)) for value in limits]
        except (TypeError, ValueError):
            given = [value for value in limits if value is not None]
            raise ValueError(
                f"Constraint {self.name!r}: a limit must be a number or an array, not of {given}."
            ) from None
        self.equals, self.at_least, self.at_most = arrays
        for name_, value in (("equals", self.equals), ("at_least", self.at_least), ("at_most", self.at_most)):
            if is_concrete(value) and not np.all(np.isfinite(np.asarray(value))):
                raise ValueError(f"Constraint {self.name!r}: {name_}={value} must be finite.")
        if (
            is_concrete(self.at_least)
            and is_concrete(self.at_most)
            and not np.all(np.asarray(at_least) < np.asarray(at_most))
        ):
            raise ValueError(f"Constraint {self.name!r}: at_least={at_least} must be below at_most={at_most}.")

    def equalities(self, orbit: Orbit, params: Params) -> Float[Array, " rows"]:
        """$g - b$; empty for an inequality."""
        return self._rows(orbit, params, self.equals, 1)

    def inequalities(self, orbit: Orbit, params: Params) -> Float[Array, " rows"]:
        """$g - a$, then $b - g$; empty for an equality."""
        return jnp.concatenate(
            [self._rows(orbit, params, self.at_least, 1), self._rows(orbit, params, self.at_most, -1)]
        )

    def _rows(self, orbit: Orbit, params: Params, limit: Array | None, sign: int) -> Array:
        if limit is None:
            return jnp.zeros(0, orbit.x.dtype)
        value = self.function(cast(PeriodicOrbit, orbit), params)
        if not eqx.is_array_like(value):
            raise ValueError(f"Constraint {self.name!r}: the function must return a number or an array, not {value!r}.")
        value = jnp.ravel(value)
        return sign * (value - jnp.broadcast_to(limit.astype(value.dtype), value.shape))

    def limits(self, counts: tuple[int, int]) -> tuple[list[Limit], list[Limit]]:
        """Name, relation and limit of so many rows of equalities and inequalities; NaN for a limit that is traced."""
        given = [(sign, limit) for sign, limit in ((">=", self.at_least), ("<=", self.at_most)) if limit is not None]
        rows = counts[1] // (len(given) or 1)

        def named(relation: str, limit, count: int) -> list[Limit]:
            values = (
                np.broadcast_to(np.ravel(np.asarray(limit)), count) if is_concrete(limit) else np.full(count, np.nan)
            )
            names = [f"{self.name}[{k}]" if count > 1 else self.name for k in range(count)]
            return [(name, relation, float(value)) for name, value in zip(names, values, strict=True)]

        unequal = [row for relation, limit in given for row in named(relation, limit, rows)]
        return named("=", self.equals, counts[0]), unequal


def limits_of(constraints: Sequence[Constraint], rows: Sequence[tuple[int, int]]) -> list[Limit]:
    """For each row the name, the relation and the limit, NaN where that is traced; equalities first. `rows`: the numbers of both
    kinds of each constraint."""
    pairs = [each.limits(counts) for each, counts in zip(constraints, rows, strict=True)]
    return [row for equal, _ in pairs for row in equal] + [row for _, unequal in pairs for row in unequal]


def label_of(row: Limit) -> str:
    """The name of a row, such as `speed = 0.3`."""
    name, relation, limit = row
    return f"{name} {relation} {'?' if np.isnan(limit) else f'{limit:.6g}'}"


def all_constraints(given: Constraint | Sequence) -> tuple[Constraint, ...]:
    """One constraint or several as a tuple. `ValueError` for what is none."""
    constraints = tuple(given) if isinstance(given, Iterable) else (given,)
    if wrong := [each for each in constraints if not isinstance(each, Constraint)]:
        raise ValueError(f"optimize: {wrong[0]!r} is not a constraint. Write hj.Constraint(function, at_least=...).")
    return constraints


def check_number(value: Any, what: str = "optimize: the objective") -> None:
    """`ValueError` unless this is a number, or the type of one; its message says `what` returned it."""
    if not isinstance(value, numbers.Real) and getattr(value, "shape", None) != ():
        found = f"an array of shape {value.shape}" if hasattr(value, "shape") else repr(value)
        raise ValueError(f"{what} must return a number, not {found}.")


def is_concrete(value) -> bool:
    """Whether a value is given and not traced."""
    return value is not None and not isinstance(value, jax.core.Tracer)
