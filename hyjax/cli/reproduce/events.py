"""The transitions of one contact, each with its closed form and with random states of the cart at which it happens."""

import dataclasses
import functools as ft
from collections.abc import Callable

import numpy as np

from ..._system.system import HybridSystem
from .cart import frictional, frictionless, Params, Terms, tip
from .closed_forms import (
    BOTH,
    Dagger,
    elastic,
    flow,
    force,
    identity,
    NONE,
    NORMAL,
    plastic,
    sliding_flow,
    slip_stick,
    stick_slip,
)

# Parameters, time and state; None where the event would not happen there.
Draw = tuple[Params, float, np.ndarray]
Attempt = Callable[[np.random.Generator], Draw | None]


@dataclasses.dataclass(frozen=True)
class Event:
    """**Attributes:** `equation`: number in the paper. `closed(t, x, params)`: the saltation matrix, shape `(6, 6)`."""

    equation: str
    system: HybridSystem
    source: str
    target: str
    closed: Callable[[float, np.ndarray, Params], np.ndarray]
    attempt: Attempt

    def draw(self, rng: np.random.Generator) -> Draw:
        """A random state at which the event happens."""
        while (found := self.attempt(rng)) is None:
            pass
        return found


def _on_floor(rng: np.random.Generator, rows: slice, above: float = 0.0) -> tuple[Draw, Terms]:
    """A state at a height above the floor, with a velocity that the rows of the constraint allow."""
    q, v = rng.uniform(-0.8, 0.8, 3), 2 * rng.normal(size=3)
    params = Params(
        masses=rng.uniform(0.5, 2, 3), lengths=rng.uniform(0.5, 1.5, 2), gravity=rng.uniform(5, 15),
        push=rng.uniform(-20, 20), slope=rng.uniform(-0.5, 0.5), height=0.0, restitution=rng.uniform(0.2, 1),
        static=rng.uniform(0.5, 1), kinetic=rng.uniform(0.1, 0.5),
    )  # fmt: skip
    slope = float(params.slope)
    height = above - np.array([np.sin(slope), np.cos(slope)]) @ np.asarray(tip(q, params))
    params = dataclasses.replace(params, height=height)
    t = rng.uniform(0, 3)
    held = Terms(t, q, v, params).J[rows]
    v = v - np.linalg.pinv(held) @ held @ v
    return (params, t, np.concatenate([q, v])), Terms(t, q, v, params)


def _changed(draw: Draw, **changes: float) -> Draw:
    params, t, x = draw
    return dataclasses.replace(params, **changes), t, x


def _forces(draw: Draw, rows: slice, **changes: float) -> np.ndarray:
    params, t, x = _changed(draw, **changes)
    return force(Terms(t, x[:3], x[3:], params), rows)


def _apex(rng):
    draw, at = _on_floor(rng, NORMAL, above=1.0)
    return draw if at.J_rate[0] @ at.v + at.J[0] @ flow(at, NONE)[3:] < 0 else None


def _slide_to_flight(rng):
    """The force is linear in gravity: take that at which it vanishes."""
    draw, at = _on_floor(rng, NORMAL)
    zero, one = _forces(draw, NORMAL, gravity=0.0), _forces(draw, NORMAL, gravity=1.0)
    return _changed(draw, gravity=float(zero[0] / (zero - one)[0])) if at.J[1] @ at.v > 0 else None


def _stick_to_flight(rng):
    """Both forces are linear in gravity and push: take those at which they vanish."""
    draw, _ = _on_floor(rng, BOTH)
    zero = _forces(draw, BOTH, gravity=0.0, push=0.0)
    columns = [_forces(draw, BOTH, gravity=1.0, push=0.0) - zero, _forces(draw, BOTH, gravity=0.0, push=1.0) - zero]
    gravity, push = np.linalg.solve(np.stack(columns, axis=1), -zero)
    return _changed(draw, gravity=gravity, push=push)


def _closing(rng):
    draw, at = _on_floor(rng, NONE)
    return draw if at.J[0] @ at.v < 0 else None


def _closing_plastic(rng):
    draw = _closing(rng)
    return draw and _changed(draw, restitution=0.0)


def _closing_to_stick(rng):
    """With twice the friction that the impulse needs."""
    draw, at = _on_floor(rng, NONE)
    normal, tangential = -Dagger(at, BOTH).J @ at.M @ at.v
    return _changed(draw, static=2 * abs(tangential) / normal) if at.J[0] @ at.v < 0 < normal else None


def _stick_to_slip(side, kinetic, rng):
    """With as much static friction as is needed, and a fraction of it that is kinetic."""
    draw, at = _on_floor(rng, BOTH)
    normal, tangential = -force(at, BOTH)
    static = abs(tangential) / normal
    good = normal > 0 and side * tangential < 0 and 0.1 < static < 3
    return _changed(draw, static=static, kinetic=kinetic * static) if good else None


def _slip_to_stick(side, rng):
    draw, at = _on_floor(rng, BOTH)
    acceleration = at.J_rate[1] @ at.v + at.J[1] @ sliding_flow(at, float(draw[0].kinetic), side)[3:]
    return draw if side * acceleration < 0 else None


EVENTS = (
    Event("70", frictional, "V", "U", identity, _apex),
    Event("72", frictional, "C", "V", identity, _stick_to_flight),
    Event("73", frictional, "S+", "V", identity, _slide_to_flight),
    Event("80-81", frictionless, "U", "S", ft.partial(plastic, NORMAL), _closing_plastic),
    Event("82-83", frictional, "U", "C", ft.partial(plastic, BOTH), _closing_to_stick),
    Event("87-88", frictionless, "U", "V", elastic, _closing),
    Event("90", frictional, "C", "S+", identity, ft.partial(_stick_to_slip, 1, 1.0)),
    Event("91", frictional, "C", "S+", ft.partial(stick_slip, 1), ft.partial(_stick_to_slip, 1, 0.6)),
    Event("91", frictional, "C", "S-", ft.partial(stick_slip, -1), ft.partial(_stick_to_slip, -1, 0.6)),
    Event("94", frictional, "S+", "C", ft.partial(slip_stick, 1), ft.partial(_slip_to_stick, 1)),
    Event("94", frictional, "S-", "C", ft.partial(slip_stick, -1), ft.partial(_slip_to_stick, -1)),
)
