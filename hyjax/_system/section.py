r"""Sections of a flow, at which a map is taken whatever sequence of modes lies between: a surface, or the period of a forcing."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.core
import jax.numpy as jnp
from jaxtyping import Array

from .every import Clock, Number, plain_number
from .filippov import Picked
from .system import Guard, HybridSystem, Reset, unchanged
from .types import Params, require_function, Scalar, State, Time


class Section(eqx.Module):
    r"""A Poincaré section: the states of one mode at which $s(t, x, p)$ falls through zero.

    **Arguments:** `mode`: the mode's name. `surface`: `s(t, x, params)`, shape `()`, in any unit, with the sign of a guard: a
    crossing counts where $s$ falls; for the other direction give $-s$. `ValueError` for a surface that is not a function.

    The surface should not be that of a guard of the mode: states just after a jump need no section, but a `sequence`.

    `reset`: $R(t, x, p)$, shape `(n,)`, optional: the change of the state at each crossing, by a symmetry of the system that
    leads the surface to itself. A body that travels has no periodic orbit but by a reset that takes back the way, such as
    `lambda t, x, p: x.at[0].set(0.0)`; by one that exchanges the legs of a walker half a stride is an orbit. `ValueError` from
    `periodic_orbit` if it leads off the surface.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> upright = hj.Section("stance", lambda t, x, p: -x[0])
    >>> crossing = hj.ReturnMap(wheel.system, section=upright)(wheel.guess(params), params)
    >>> bool(abs(crossing.x[0]) < 1e-14)
    True

    Source: Strogatz (1994), *Nonlinear Dynamics and Chaos*, Sec. 8.7.
    """

    mode: str = eqx.field(static=True)
    surface: Guard
    reset: Reset = unchanged

    def __check_init__(self):
        for name in ("surface", "reset"):
            require_function(getattr(self, name), "t, x, params", f"Section: {name}")


class Stroboscope(eqx.Module):
    r"""A stroboscopic section: the states at the times $t_0(p) + kT(p)$, for a system that is forced with the period $T$.

    **Arguments:** `mode`: the name of the mode of the initial states; after a period the state may be in any mode. `period`: a
    function `T(params)`, or a positive number, in units of time. `phase`: $t_0$, a function of the parameters or a number, in
    units of time. Choose a phase at which nothing happens: where a guard falls at the times of the section, every orbit is at the
    edge of two sequences of modes. `ValueError` for a period or a phase that is neither.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> once_a_second = hj.Stroboscope("flight", 1.0)
    >>> crossing = hj.ReturnMap(ball.system, section=once_a_second)(x0, params)
    >>> print(crossing.time, crossing.jumps)
    1.0 1
    >>> later = hj.Stroboscope("flight", 1.0, phase=0.25)
    >>> [float(hj.ReturnMap(ball.system, section=each)(x0, params).time) for each in (once_a_second, later)]
    [1.0, 1.0]

    Source: Strogatz (1994), *Nonlinear Dynamics and Chaos*, Sec. 8.7 and 12.5.
    """

    mode: str = eqx.field(static=True)
    period: Number = eqx.field(converter=plain_number)
    phase: Number = eqx.field(converter=plain_number, default=0.0)

    def __check_init__(self):
        for name in ("period", "phase"):
            if callable(getattr(self, name)):
                require_function(getattr(self, name), "params", f"Stroboscope: {name}")
        known = lambda value: not callable(value) and not isinstance(value, jax.core.Tracer)
        if known(self.period) and not (isinstance(self.period, float) and 0 < self.period < math.inf):
            raise ValueError(f"Stroboscope: period={self.period!r} must be positive, or a function T(params).")
        if known(self.phase) and not (isinstance(self.phase, float) and math.isfinite(self.phase)):
            raise ValueError(
                f"Stroboscope: phase={self.phase!r} must be a finite time, or a function of the parameters."
            )

    def duration(self, params: Params, dtype) -> Scalar:
        """The period, in units of time."""
        return jnp.asarray(self.period(params) if callable(self.period) else self.period, dtype)

    def lasting(self, times: int) -> "Stroboscope":
        """The stroboscope whose period is so many times as long; itself for one."""
        if times == 1:
            return self
        longer = (lambda params: times * self.duration(params, None)) if callable(self.period) else times * self.period
        return dataclasses.replace(self, period=longer)

    def start(self, params: Params, dtype) -> Time:
        """The phase: the time at which the states of the section are taken, and every period later."""
        return jnp.asarray(self.phase(params) if callable(self.phase) else self.phase, dtype)


SectionLike = Section | Stroboscope


def _from_phase(fn: Callable, section: Stroboscope, t: Time, x: State, params: Params, *others) -> Any:
    """A function of a system, whose time counts from the phase of a stroboscope."""
    return fn(t + section.start(params, x.dtype), x, params, *others)


def _start(section: Stroboscope, params: Params) -> Time:
    return section.start(params, None)


class LaterDomain(eqx.Module):
    """A domain whose time counts from the phase of a stroboscope, with the methods of one of the library's own."""

    domain: Callable
    section: Stroboscope

    def __call__(self, t: Time, x: State, params: Params) -> Array:
        return _from_phase(self.domain, self.section, t, x, params)

    def __getattr__(self, name: str):
        # Of a field that is not set yet, as in a copy, there is nothing to ask.
        if name.startswith("_") or name in ("domain", "section", "read_sequence"):
            raise AttributeError(name)
        found = getattr(self.domain, name)
        return found if name == "label" or not callable(found) else eqx.Partial(_from_phase, found, self.section)


def at_phase(system: HybridSystem, section: SectionLike) -> tuple[HybridSystem, SectionLike]:
    """The system whose time counts from the phase of a stroboscope, and the stroboscope without phase: for analyses whose clock
    starts at zero. Both unchanged for another section."""
    if not isinstance(section, Stroboscope) or (not callable(section.phase) and section.phase == 0):
        return system, section

    def of(fn):
        if isinstance(fn, Clock):
            return fn.since(eqx.Partial(_start, section))
        if isinstance(fn, Picked):
            # Still known as the guard of a surface, by which a point of sliding is named.
            return dataclasses.replace(fn, flows=jax.tree.map(of, fn.flows, is_leaf=callable))
        return eqx.Partial(_from_phase, fn, section)

    def later(part, *names: str):
        fns = {name: getattr(part, name) for name in names}
        return dataclasses.replace(part, **{name: of(fn) for name, fn in fns.items() if fn is not None})

    def of_mode(mode):
        domain = mode.domain and LaterDomain(mode.domain, section)
        return dataclasses.replace(later(mode, "vector_field"), domain=domain)

    modes = {name: of_mode(mode) for name, mode in system.modes.items()}
    ways = tuple(later(way, "guard", "reset", "armed") for way in system.transitions)
    return HybridSystem(modes, ways, system.time_unit), dataclasses.replace(section, phase=0.0)
