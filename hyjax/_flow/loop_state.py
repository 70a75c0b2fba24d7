"""What the loop of solver steps carries, a trial step, the constants of the loop, and a record of its steps."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jax.lax import stop_gradient
from jaxtyping import Array, Int, PyTree

from .._numerics.trees import Parts
from .._system.types import Count, Flag, Scalar, State, Time
from .crossing import Bracket, stretches
from .guard_polynomials import GuardValues
from .pace import Pace
from .step import Step, StepLengths
from .surfaces import Guards, Mask, Surfaces

# A record of the steps of `loop.run`, which has no derivatives: `(update, seen)`, where `seen` is the record before the first
# step, arrays. `update(course, before, attempt, after)` is the record after one more trial step, from the loop's constants, the
# `Progress` before the trial, the `Attempt`, and the `Progress` after it; `before.seen` is the record before it. The step was
# taken where `after.last.t + after.last.late` is later than before.
Watch = tuple[Callable[..., PyTree], PyTree]


class StepPoint(eqx.Module):
    """The end of the last step taken: time, state, vector field, the solver's memory, the guards' values and rates. `late`:
    the part of the time that `t` loses by rounding, see `later`."""

    t: Time
    late: Scalar
    x: Parts
    f: Parts
    memory: Any
    g: Guards
    r: Guards


class Ending(eqx.Module):
    """The end of the loop. `event`: the guard that fell, or -1. `shift`: the time from the last step's end to its surface.
    `together`: the other guards that fell at the same time. `turn`: how fast the rate of the guard that fell changes.
    `stalled`: the step size vanished. `broken`: the state or vector field is not finite. `accumulates`: events accumulate, see
    `Verdict` and `stuck.py`. `slides`: the flow begins where the flows of two modes meet. `back`: the flow ends where it began,
    because the flow never left the surface. `at_once`: the event takes place at the start. `beyond`: the guard of this event is
    beyond its surface at the start, not on the surface."""

    done: Flag
    event: Int[Array, ""]
    shift: Scalar
    together: Mask
    turn: Scalar
    stalled: Flag
    broken: Flag
    accumulates: Flag
    slides: Flag
    back: Flag
    at_once: Flag
    beyond: Flag


class Progress(eqx.Module):
    """The carry of the loop. `before`: the guards at the start of the step that led to the last point, earlier than that point by
    the step's length; at the first point, the guards there. `dt`: the step to try. `h`: the step that the controller proposes.
    `control`: the controller's memory. `up`: the guards that rose above rounding and have been positive since. `g_max`: the
    largest absolute value of each guard so far, and of the numbers whose difference it is. `steps`: the number of steps tried.
    `taken`: the lengths of the steps taken, or `None`. `seen`: what a `Watch` has seen. `resting`: the guards that started on
    their surfaces and have not left them, or `None` if such guards are not checked."""

    before: GuardValues
    last: StepPoint
    dt: Scalar
    h: Scalar
    control: Any
    up: Mask
    g_max: Guards
    bracket: Bracket
    steps: Int[Array, ""]
    end: Ending
    taken: StepLengths | None
    seen: PyTree
    resting: Mask | None = None


class Attempt(eqx.Module):
    """A trial step from the last point. `t`, `late`: the time of its end, see `StepPoint`. `final`: whether the step ends at the
    end time. `rate`: the largest rate of a coordinate at the last point, relative to its size. `keep`, `h`, `control`: the
    controller's decision, next step and memory. `iterations`: of Newton's method."""

    dt: Scalar
    t: Time
    late: Scalar
    final: Flag
    rate: Scalar
    x: State
    f: State
    memory: Any
    finite: Flag
    keep: Flag
    h: Scalar
    control: Any
    iterations: Count


@dataclasses.dataclass(frozen=True)
class Course:
    """The constants of the loop. `linear`: whether all surfaces are linear, so that any step resolves them. `exact`: whether
    all guards are linear, limits of the domain apart, so that a short step leads onto their surfaces. `first`: the first step to
    try. `start`: the guards at the start. `error`: the errors of these guards by rounding and by one step of the solver."""

    step: Step
    pace: Pace
    surfaces: Surfaces
    args: PyTree
    t0: Time
    t_stop: Time
    tolerances: tuple[float | Scalar, float | Scalar]
    noise: Guards
    linear: bool
    exact: bool
    first: Scalar
    start: GuardValues
    error: Guards

    def left(self, point: StepPoint) -> Scalar:
        """The time from a point to the end time."""
        return stop_gradient((self.t_stop - point.t) - point.late)

    @property
    def stretches(self) -> tuple[float, float]:
        """The fractions of a step that `stretches` in `crossing.py` gives: the flow is straight, a crossing is exact."""
        return stretches(self.step.stiff, self.pace.fixed, self.exact, self.noise.dtype)
