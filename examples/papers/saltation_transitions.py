"""Transitions of a single contact, each with its closed-form saltation matrix and random states at which it occurs."""

import dataclasses
import functools as ft
from collections.abc import Callable

import numpy as np
from saltation_cart import frictional, frictionless, Params, Terms, tip
from saltation_closed_forms import (
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

import hyjax as hj

# Parameters, time and state.
Draw = tuple[Params, float, np.ndarray]
# A random draw, or None where the transition does not occur at the state drawn.
Attempt = Callable[[np.random.Generator], Draw | None]


@dataclasses.dataclass(frozen=True)
class ContactTransition:
    """A transition of the cart's contact, with its closed form and a generator of states.

    **Attributes:** `equation`: number in the paper. `source`, `target`: modes of `system`. `closed(t, x, params)`: the
    saltation matrix, shape `(6, 6)`. `attempt(rng)`: a random state on the guard, or `None`.
    """

    equation: str
    system: hj.HybridSystem
    source: str
    target: str
    closed: Callable[[float, np.ndarray, Params], np.ndarray]
    attempt: Attempt

    def draw(self, rng: np.random.Generator) -> Draw:
        """A random state at which the transition occurs."""
        while (found := self.attempt(rng)) is None:
            pass
        return found


def _on_floor(rng: np.random.Generator, rows: slice, above: float = 0.0) -> tuple[Draw, Terms]:
    """A state with the tip at height `above` over the floor, and a velocity that satisfies the constraint `rows`."""
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
    """Lift-off from sliding. The normal force is linear in gravity: choose the gravity at which it vanishes."""
    draw, at = _on_floor(rng, NORMAL)
    zero, one = _forces(draw, NORMAL, gravity=0.0), _forces(draw, NORMAL, gravity=1.0)
    return _changed(draw, gravity=float(zero[0] / (zero - one)[0])) if at.J[1] @ at.v > 0 else None


def _stick_to_flight(rng):
    """Lift-off from sticking. Both forces are linear in gravity and push: choose the values at which both vanish."""
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
    """An impact into sticking, with twice the coefficient of friction that the impulse requires."""
    draw, at = _on_floor(rng, NONE)
    normal, tangential = -Dagger(at, BOTH).J @ at.M @ at.v
    return _changed(draw, static=2 * abs(tangential) / normal) if at.J[0] @ at.v < 0 < normal else None


def _stick_to_slip(side, kinetic, rng):
    """The onset of slip, with the static coefficient at its limit and `kinetic` times this as the kinetic coefficient."""
    draw, at = _on_floor(rng, BOTH)
    normal, tangential = -force(at, BOTH)
    static = abs(tangential) / normal
    good = normal > 0 and side * tangential < 0 and 0.1 < static < 3
    return _changed(draw, static=static, kinetic=kinetic * static) if good else None


def _slip_to_stick(side, rng):
    draw, at = _on_floor(rng, BOTH)
    acceleration = at.J_rate[1] @ at.v + at.J[1] @ sliding_flow(at, float(draw[0].kinetic), side)[3:]
    return draw if side * acceleration < 0 else None


TRANSITIONS = (
    ContactTransition("70", frictional, "V", "U", identity, _apex),
    ContactTransition("72", frictional, "C", "V", identity, _stick_to_flight),
    ContactTransition("73", frictional, "S+", "V", identity, _slide_to_flight),
    ContactTransition("80-81", frictionless, "U", "S", ft.partial(plastic, NORMAL), _closing_plastic),
    ContactTransition("82-83", frictional, "U", "C", ft.partial(plastic, BOTH), _closing_to_stick),
    ContactTransition("87-88", frictionless, "U", "V", elastic, _closing),
    ContactTransition("90", frictional, "C", "S+", identity, ft.partial(_stick_to_slip, 1, 1.0)),
    ContactTransition("91", frictional, "C", "S+", ft.partial(stick_slip, 1), ft.partial(_stick_to_slip, 1, 0.6)),
    ContactTransition("91", frictional, "C", "S-", ft.partial(stick_slip, -1), ft.partial(_stick_to_slip, -1, 0.6)),
    ContactTransition("94", frictional, "S+", "C", ft.partial(slip_stick, 1), ft.partial(_slip_to_stick, 1)),
    ContactTransition("94", frictional, "S-", "C", ft.partial(slip_stick, -1), ft.partial(_slip_to_stick, -1)),
)
