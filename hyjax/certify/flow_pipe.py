r"""A set of states along one arc: steps of the flow, the event at its end, the jump."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .enclosed_step import advance, first, flow_of, widened
from .event import arrive, gathered, guard_surface, Hidden, mapped, projected, spread_out
from .interpret import cases_decided, evaluate, JUMPS, KINKS
from .mode_field import ModeField
from .rounding import up
from .state_set import Frame, StateSet
from .symbolic import Graph
from .taylor_model import Basis, TaylorModel

# That no event comes before its time: conditions on the guards over the states of a step.


def no_guard_fires(
    field: ModeField,
    box: TaylorModel,
    end: StateSet,
    frame: Frame,
    leaving: Bool[Array, " guards"],
    disturbance_bound: Float[Array, " n"],
) -> tuple[Bool[Array, " guards"], Bool[Array, " guards"]]:
    r"""For each guard of a mode, that it does not fire while the states are in a box.

    A guard fires where it falls through zero while armed. So it does not where it is not zero, or rises, or is not armed; nor
    where it falls throughout and is positive at the end; nor after a start on its surface while it falls from there (`leaving`):
    it was never positive. **Arguments:** `end`: the states at the end of the step. `disturbance_bound`: the bound of the
    disturbance of each rate, which changes the guard's rate by up to $|D_xg|$ times it.

    **Returns:** whether each guard does not fire, and whether the arc still leaves its surface.
    """
    value, at_end = first(field.watch, box, field.leaves), first(field.heights, end.model, field.leaves)
    slopes = value[:, 2:]
    height, rate = value[:, 0], widened(value[:, 1], jnp.sum(slopes.largest * disturbance_bound, axis=1))
    falls = rate.high < 0
    reach = jnp.stack([end.support(slopes[i], frame) for i in range(len(field.guards))])
    not_firing = (height.low > 0) | (height.high < 0) | (rate.low > 0) | (falls & (leaving | (at_end.low - reach > 0)))
    for i, armed in enumerate(field.armed):
        if armed is not None:
            not_firing = not_firing.at[i].set(not_firing[i] | jnp.all(evaluate(armed, box, field.leaves)[1]))
    return not_firing, falls & leaving


# How the name of a condition begins that a choice in a function is decided over a set; its place follows.
UNDECIDED = "undecided condition in"


class Tube(eqx.Module):
    """The states of an arc over time.

    **Attributes:** `low`, `high`: bounds of all states at the starts of the steps, shape `(steps, n)`.
    `box_low`, `box_high`: bounds during the steps, shape `(steps, n)`. `elapsed`: the earliest times of the starts of the steps,
    shape `(steps,)`. `last`: the latest time of the event.
    """

    low: Float[Array, "nodes n"]
    high: Float[Array, "nodes n"]
    box_low: Float[Array, "nodes n"]
    box_high: Float[Array, "nodes n"]
    elapsed: Float[Array, " nodes"]
    last: Float[Array, ""]


class ArcProgram(eqx.Module):
    """What the enclosure of an arc is compiled from: the mode's functions, the guard that ends the arc, the sizes. Static."""

    field: ModeField = eqx.field(static=True)
    ending: int = eqx.field(static=True)
    orders: int = eqx.field(static=True)


class Ended(eqx.Module):
    """The states of a set on the surface of the guard that ends an arc.

    **Attributes:** `states`: in the `frame`; with displacements as further variables if there is a disturbance, which are then
    `hidden`. `around`: the ball that holds all states.
    """

    states: StateSet
    frame: Frame
    around: TaylorModel
    hidden: Hidden | None

    def mapped(self, field: ModeField, function: Graph, jacobian: Graph, basis: Basis) -> StateSet:
        """The image under a smooth map, in the variables of `basis`, in the frame of its coordinates."""
        image = mapped(field, self.states, self.frame, self.around, function, jacobian)
        return image if self.hidden is None else gathered(image, self.hidden, basis)


def run_arc(
    program: ArcProgram,
    frames: Frame,
    states: StateSet,
    h: TaylorModel,
    window: Float[Array, ""],
    disturbance: Float[Array, "groups n columns"],
    begin: int,
    leaving: Bool[Array, " guards"],
) -> tuple[Ended, Tube, dict[str, Bool[Array, ""]], dict[str, Bool[Array, ""]]]:
    """The set of states from the start of an arc to its event.

    **Arguments:** `frames`: stacked, one more than steps. `states`: in the first of them. `h`: the length $h(s)$ of a step.
    `window`: the longest time from the last step to the event. `begin`: the first of the arc's groups of generators. `leaving`:
    whether each guard of the mode is zero where the states start.

    **Returns:** the states on the guard's surface, the tube, what must be true, and where the guard at the end is smooth.
    """
    field, groups, steps = program.field, disturbance.shape[0], frames.matrix.shape[0] - 1
    disturbance_bound = jnp.sum(jnp.abs(disturbance), axis=(0, 2))

    def flow_from(states, frame, longest):
        return flow_of(field, states, frame, longest, disturbance_bound, program.orders)

    def one(carry, given):
        states, leaving, _ = carry
        frame, after, index = given
        # One round more than there are steps: in the last one the flow is that to the event, and nothing moves.
        over = index == steps
        flow = flow_from(states, frame, jnp.where(over, window, h.high))
        ended = advance(field, flow, states, h, frame, after, disturbance, begin + groups * index)
        silent, left = no_guard_fires(field, flow.box.states, ended, after, leaving, disturbance_bound)
        hull, box = states.hull(frame), flow.box.states
        states, leaving = jax.tree.map(ft.partial(jnp.where, over), (states, leaving), (ended, left))
        # The flow's series need a field that is smooth; guards need only be known not to fire.
        smooth = cases_decided(field.field, (*JUMPS, *KINKS), box, field.leaves)
        known = cases_decided(field.heights, JUMPS, box, field.leaves)
        known = {place: over | holds | jnp.all(silent) for place, holds in known.items()}
        return (states, leaving, flow), (
            (hull.low, hull.high, box.low, box.high),
            flow.box.proved,
            over | jnp.all(silent),
            {place: smooth.get(place, True) & known.get(place, True) for place in {**smooth, **known}},
        )

    last = jax.tree.map(lambda a: a[-1], frames)
    none = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(flow_from, states, last, window))
    after = jax.tree.map(lambda a: jnp.concatenate([a[1:], a[-1:]]), frames)
    (states, leaving, flow), (bounds, held, silent, cases) = jax.lax.scan(
        one, (states, leaving, none), (frames, after, jnp.arange(steps + 1))
    )
    surface, hidden = guard_surface(field, program.ending), None
    if groups:
        # With displacements as variables of its polynomial, the set has another flow.
        states, hidden = spread_out(states, last)
        flow = flow_from(states, last, window)
        bounds = _with_last(bounds, states.hull(last), flow.box.states)
    at = arrive(field, surface, flow, states, last, window, disturbance)
    ended = projected(field, surface, at, last)
    others, _ = no_guard_fires(field, at.box.states, ended, last, leaving & False, disturbance_bound)
    # Of the value alone: its rate, at a kink the hull of two, chooses there.
    ending = field.values[program.ending]
    cases = sentences(
        {place: jnp.all(holds) for place, holds in cases.items()},
        cases_decided(ending, JUMPS, at.box.states, field.leaves),
    )
    conditions = {
        **cases,
        "a box holds the flow of every step": jnp.all(held) & at.conditions["box"] & (h.low > 0),
        "no guard fires before the arc's end": jnp.all(silent) & jnp.all(others.at[program.ending].set(True)),
        "the guard falls at the arc's end": at.conditions["falls"],
        "every state crosses the guard's surface": at.conditions["crosses"],
    }
    armed = field.armed[program.ending]
    if armed is not None:
        conditions["the guard is armed"] = jnp.all(evaluate(armed, at.box.states, field.leaves)[0])
    elapsed = jnp.arange(steps + 1, dtype=h.radius.dtype) * h.low
    tube = Tube(*bounds, elapsed=elapsed, last=up(steps * h.high + at.times.high))
    smooth = cases_decided(ending, (*JUMPS, *KINKS), at.on_surface, field.leaves)
    return Ended(ended, last, at.on_surface, hidden), tube, conditions, smooth


def sentences(*known: dict[str, Bool[Array, ""]]) -> dict[str, Bool[Array, ""]]:
    """Whether the choices at each place in the functions are decided, by the names of conditions."""
    found: dict[str, Bool[Array, ""]] = {}
    for each in known:
        for place, holds in each.items():
            name = f"{UNDECIDED} {place}"
            found[name] = found.get(name, True) & holds
    return found


def _with_last(bounds, hull: TaylorModel, box: TaylorModel) -> tuple[Array, ...]:
    """Bounds at and during the steps, with those of the last one replaced."""
    last = (hull.low, hull.high, box.low, box.high)
    return tuple(rows.at[-1].set(row) for rows, row in zip(bounds, last, strict=True))


def start_set(lifted: TaylorModel, tangents: TaylorModel, groups: int, columns: int) -> StateSet:
    """The states $x(s)$ without disturbance, with their derivatives by the coordinates of the section."""
    return StateSet(
        lifted.coefficients,
        jnp.zeros((groups, lifted.shape[0], columns)),
        lifted.radius,
        tangents.center,
        tangents.radius,
        lifted.basis,
    )
