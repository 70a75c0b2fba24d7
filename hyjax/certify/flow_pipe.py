r"""A set of states along one arc: steps of the flow, the event at its end, the jump."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .enclosed_step import advance, flow_of, Frame, identity_frame, StateSet, widened
from .event import crossed, gathered, mapped, spread_out
from .interpret import cases_decided, evaluate, JUMPS, KINKS
from .mode_field import ModeField
from .rounding import up
from .symbolic import Graph
from .taylor_model import TaylorModel

# Conditions under which no guard fires during a step.


def no_guard_fires(
    field: ModeField,
    box: TaylorModel,
    end: StateSet,
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
    value, at_end = evaluate(field.watch, box, field.leaves), evaluate(field.heights, end.model, field.leaves)
    slopes = value[:, 2:]
    height, rate = value[:, 0], widened(value[:, 1], jnp.sum(slopes.largest * disturbance_bound, axis=1))
    falls = rate.high < 0
    reach = jnp.stack([end.support(slopes[i]) for i in range(len(field.guards))])
    not_firing = (height.low > 0) | (height.high < 0) | (rate.low > 0) | (falls & (leaving | (at_end.low - reach > 0)))
    for i, armed in enumerate(field.armed):
        if armed is not None:
            not_firing = not_firing.at[i].set(not_firing[i] | jnp.all(evaluate(armed, box, field.leaves)[1]))
    return not_firing, falls & leaving


# How the name of a condition begins that a choice in a function is decided over a set; its place follows.
UNDECIDED = "undecided condition in"
# The guard of `hj.every`, which reads the nearest tick, not the one ahead.
CLOCK = "Clock.__call__"


Numbers = Array | np.ndarray


class Tube(eqx.Module):
    """The states of an arc over time; NumPy's arrays, over all pieces and disturbances, in a certificate.

    **Attributes:** `low`, `high`: bounds of all states during each step, shape `(steps + 1, n)`; the last is the window of the
    event. `elapsed`: the earliest times of the starts of the steps, since the start of the arc, shape `(steps + 1,)`. `last`: the
    latest time of the event. `start_low`, `start_high`: bounds at the starts of the steps. States reach the same step at
    different times.
    """

    low: Float[Numbers, "nodes n"]
    high: Float[Numbers, "nodes n"]
    elapsed: Float[Numbers, " nodes"]
    last: Float[Numbers, ""]
    start_low: Float[Numbers, "nodes n"]
    start_high: Float[Numbers, "nodes n"]


def run_arc(
    field: ModeField,
    ending: int,
    orders: int,
    frames: Frame,
    states: StateSet,
    h: TaylorModel,
    window: Float[Array, ""],
    disturbance: Float[Array, "groups n columns"],
    begin: int,
    leaving: Bool[Array, " guards"],
    after: tuple[Graph, Graph],
) -> tuple[StateSet, TaylorModel, Tube, dict[str, Bool[Array, ""]], dict[str, Bool[Array, ""]]]:
    """The set of states from the start of an arc through its event.

    **Arguments:** `ending`: the number of the guard that ends the arc. `frames`: stacked, one more than steps. `h`: the length
    $h(s)$ of a step. `window`: the longest time from the last step to the event. `begin`: the first of the arc's groups of
    generators. `leaving`: whether each guard of the mode is zero where the states start. `after`: a smooth map of the states at
    the event, and its Jacobian.

    **Returns:** the image under this map, a ball that holds all states at the event, the tube, what must be true, and where the
    guard at the end is smooth.
    """
    groups, steps = disturbance.shape[0], frames.matrix.shape[0] - 1
    disturbance_bound = jnp.sum(jnp.abs(disturbance), axis=(0, 2))
    flow_from = lambda states, longest: flow_of(field, states, longest, disturbance_bound, orders)

    def one(carry, given):
        states, leaving, _ = carry
        following, index = given
        # One round more than there are steps: in the last one the flow is that to the event, and nothing moves.
        over = index == steps
        flow = flow_from(states, jnp.where(over, window, h.high))
        ended = advance(flow, states, h, following, disturbance, begin + groups * index)
        silent, left = no_guard_fires(field, flow.box, ended, leaving, disturbance_bound)
        hull, box = states.hull, flow.box
        states, leaving = jax.tree.map(ft.partial(jnp.where, over), (states, leaving), (ended, left))
        # The flow's series need a field that is smooth; guards need only be known not to fire.
        smooth = cases_decided(field.field, (*JUMPS, *KINKS), box, field.leaves)
        known = cases_decided(field.heights, JUMPS, box, field.leaves)
        known = {place: over | holds | jnp.all(silent) for place, holds in known.items()}
        return (states, leaving, flow), (
            (box.low, box.high, hull.low, hull.high),
            flow.proved,
            over | jnp.all(silent),
            {place: smooth.get(place, True) & known.get(place, True) for place in {**smooth, **known}},
        )

    none = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(flow_from, states, window))
    following = jax.tree.map(lambda a: jnp.concatenate([a[1:], a[-1:]]), frames)
    (states, leaving, flow), (bounds, held, silent, cases) = jax.lax.scan(
        one, (states, leaving, none), (following, jnp.arange(steps + 1))
    )
    displacements = None
    if groups:
        # With displacements as variables of its polynomial, the set has another flow.
        states, displacements = spread_out(states)
        flow = flow_from(states, window)
        hull, box = states.hull, flow.box
        last = (box.low, box.high, hull.low, hull.high)
        bounds = tuple(rows.at[-1].set(row) for rows, row in zip(bounds, last, strict=True))
    ended, around, times, crossing = crossed(field, ending, flow, states, window, disturbance)
    others, _ = no_guard_fires(field, flow.box, ended, leaving & False, disturbance_bound)
    # Of the value alone: its rate, at a kink the hull of two, chooses there.
    value = field.values[ending]
    cases = sentences(
        {place: jnp.all(holds) for place, holds in cases.items()}, cases_decided(value, JUMPS, flow.box, field.leaves)
    )
    conditions = {
        **cases,
        "a box holds the flow of every step": jnp.all(held) & crossing["box"] & (h.low > 0),
        "no guard fires before the arc's end": jnp.all(silent) & jnp.all(others.at[ending].set(True)),
        "the guard falls at the arc's end": crossing["falls"],
        "every state crosses the guard's surface": crossing["crosses"],
    }
    armed = field.armed[ending]
    if armed is not None:
        conditions["the guard is armed"] = jnp.all(evaluate(armed, flow.box, field.leaves)[0])
    elapsed = jnp.arange(steps + 1, dtype=h.radius.dtype) * h.low
    low, high, start_low, start_high = bounds
    tube = Tube(low, high, elapsed, up(steps * h.high + times.high), start_low, start_high)
    smooth = cases_decided(value, (*JUMPS, *KINKS), around, field.leaves)
    image = mapped(field, ended, around, *after)
    image = image if displacements is None else gathered(image, displacements, h.basis)
    return image, around, tube, conditions, smooth


def sentences(*known: dict[str, Bool[Array, ""]]) -> dict[str, Bool[Array, ""]]:
    """Whether the choices at each place in the functions are decided, by the names of conditions."""
    found: dict[str, Bool[Array, ""]] = {}
    for each in known:
        for place, holds in each.items():
            remedy = ": write the clock as a coordinate with the rate 1" if place.startswith(CLOCK) else ""
            name = f"{UNDECIDED} {place}{remedy}"
            found[name] = found.get(name, True) & holds
    return found


def start_set(lifted: TaylorModel, tangents: TaylorModel, groups: int, columns: int) -> StateSet:
    """The states $x(s)$ without disturbance, with their derivatives by the coordinates of the section."""
    return StateSet(
        lifted.coefficients,
        jnp.zeros((groups, lifted.shape[0], columns)),
        lifted.radius,
        tangents.center,
        tangents.radius,
        identity_frame(lifted.shape[0]),
        lifted.basis,
    )
