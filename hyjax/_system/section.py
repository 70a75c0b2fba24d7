r"""Sections of a flow, at which a map is taken whatever sequence of modes lies between: a surface, or the period of a forcing."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp

from .system import Guard
from .types import Params, Scalar


class Section(eqx.Module):
    r"""A Poincaré section: the states of one mode at which $s(t, x, p)$ falls through zero.

    **Arguments:** `mode`: the mode's name. `surface`: `s(t, x, params)`, shape `()`, in any unit, with the sign of a guard: a
    crossing counts where $s$ falls; for the other direction give $-s$. `ValueError` for a surface that is not a function.

    The surface should not be that of a guard of the mode: states just after a jump need no section, but a `sequence`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> upright = hj.Section("stance", lambda t, x, p: -x[0])
    >>> crossing = hj.section_map(wheel.system, wheel.guess(params), params, section=upright)
    >>> bool(abs(crossing.x[0]) < 1e-14)
    True

    Source: Strogatz (1994), *Nonlinear Dynamics and Chaos*, Sec. 8.7.
    """

    mode: str = eqx.field(static=True)
    surface: Guard

    def __check_init__(self):
        if not callable(self.surface):
            raise ValueError(f"Section: surface must be a function s(t, x, params), not {self.surface!r}.")


class Stroboscope(eqx.Module):
    r"""A stroboscopic section: the states at the times $t_0 + kT(p)$, for a system that is forced with the period $T$.

    **Arguments:** `mode`: the name of the mode of the initial states; after a period the state may be in any mode. `period`: a
    function `T(params)`, or a positive number, in units of time. `ValueError` for a period that is neither.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> once_a_second = hj.Stroboscope("flight", 1.0)
    >>> crossing = hj.section_map(ball.system, x0, params, section=once_a_second)
    >>> print(crossing.time, crossing.jumps)
    1.0 1

    Source: Strogatz (1994), *Nonlinear Dynamics and Chaos*, Sec. 8.7 and 12.5.
    """

    mode: str = eqx.field(static=True)
    period: Callable[[Params], Scalar] | float | int

    def __check_init__(self):
        if not callable(self.period) and not self.period > 0:
            raise ValueError(f"Stroboscope: period={self.period!r} must be positive, or a function T(params).")

    def duration(self, params: Params, dtype) -> Scalar:
        """The period, in units of time."""
        return jnp.asarray(self.period(params) if callable(self.period) else self.period, dtype)


SectionLike = Section | Stroboscope


def first_mode(caller: str, sequence: tuple[str, ...] | None, section: SectionLike | None) -> str:
    """The mode of the initial states. `ValueError` unless exactly one of `sequence` and `section` is given."""
    if (sequence is None) == (section is None):
        raise ValueError(
            f"{caller}: give either sequence= or section=, not {'both' if sequence is not None else 'neither'}."
        )
    if section is not None:
        return section.mode
    assert sequence is not None
    return sequence[0]
