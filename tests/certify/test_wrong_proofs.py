"""What is false is not proved: other vector fields, tubes that are too narrow, sets that are too small for the disturbance,
derivatives that a user's rule tells, functions that jump or have a kink inside the set."""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj
from hyjax._testing import Boxes, enclosed_step as step, EnclosedMap, from_supports, ModeField, PieceImages, zero_after

# Of functions that jump every orbit warns.
pytestmark = pytest.mark.filterwarnings("ignore:The .* jumps at:UserWarning")
attracting = importlib.import_module("hyjax.certify.attracting")


def decay(t, x, p):
    """Two coordinates that decay, and a clock."""
    return jnp.stack([x[0] * x[1] - x[0], -2 * x[1], jnp.ones_like(x[2])])


TICK = hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0]))


def with_field(field):
    return hj.HybridSystem({"m": hj.Mode(field, ("x", "y", "clock"))}, (TICK,))


@pytest.fixture(scope="module")
def orbit():
    return hj.periodic_orbit(hj.ReturnMap(with_field(decay), sequence=("m",)), jnp.array([0.1, 0.1, 0.0]), None)


def conditions_near(orbit, size=1e-4):
    """What is proved of a small set about the orbit, and the ratio of its image."""
    images = PieceImages(EnclosedMap(orbit, steps=8, orders=8, reduced=True), 1, 8, 2)
    directions = attracting._around(8)
    polygon = from_supports(directions, np.full(8, size))
    reached = images.mapped(polygon, polygon.cover(1, 8), directions)
    return reached.conditions, reached.ratio


@pytest.mark.slow
def test_another_field_is_not_proved(orbit):
    """The orbit, taken for one of another field."""
    near = lambda field: conditions_near(dataclasses.replace(orbit, system=with_field(field)))
    conditions, _ = near(lambda t, x, p: -decay(t, x, p))
    assert not np.any(conditions["every state crosses the guard's surface"])
    # Its own orbit is farther away than the set is large.
    conditions, ratio = near(lambda t, x, p: decay(t, x, p) + jnp.array([3e-4, 0.0, 0.0]))
    assert all(np.all(each) for each in conditions.values()) and ratio > 1
    # The true one: 1 / e, and the second order.
    conditions, ratio = near(decay)
    assert all(np.all(each) for each in conditions.values()) and ratio < 0.37


@pytest.mark.slow
def test_a_tube_that_is_too_narrow_is_not_proved(orbit, monkeypatch):
    """Picard's box is taken without enlarging it; half of it holds no flow either."""
    monkeypatch.setattr(step, "ENLARGED", 0)
    conditions, _ = conditions_near(orbit)
    assert not np.any(conditions["a box holds the flow of every step"])


# Functions with their jumps, kinks and rules. Each is one line, which a proof that fails names.


def clocked(rate, reset, n, *guards):
    """x' = rate(x, t) for one unit of time, then x+ = reset(x); with further guards of (x, t), which nothing should meet."""
    field = lambda t, x, p: jnp.append(rate(x[:-1], x[-1]), 1.0)
    tick = hj.Transition("m", "m", lambda t, x, p: 1 - x[-1], lambda t, x, p: jnp.append(reset(x[:-1]), 0.0))
    mode = hj.Mode(field, (*(f"x{i}" for i in range(n)), "clock"))
    others = {f"other{i}": mode for i in range(len(guards))}
    more = [
        hj.Transition("m", name, lambda t, x, p, g=g: g(x[:-1], x[-1]), lambda t, x, p: -x)
        for name, g in zip(others, guards, strict=True)
    ]
    return hj.HybridSystem({"m": mode, **others}, (tick, *more))


def boxes_of(rate, reset, x, *guards, same=None):
    """Boxes about the orbit of such a system: the program is compiled once, for boxes of any radius. The orbit is that of the
    system without the further guards, and with `same` as its rate."""
    system, start = clocked(same or rate, reset, len(x)), jnp.array([*x, 0.0])
    orbit = hj.periodic_orbit(
        hj.ReturnMap(system, sequence=("m",), integrator=hj.Integrator(unroll=False)), start, None
    )
    orbit = dataclasses.replace(orbit, system=clocked(rate, reset, len(x), *guards))
    return Boxes(EnclosedMap(orbit, steps=4, orders=6), 1)


def multipliers(boxes, size):
    """Of the orbit that is proved in a box: centres and radii; the radii with the rounding of the true numbers."""
    found, reasons = boxes.proved(size)
    assert not reasons
    multipliers = boxes.numbers(found)["multipliers"]
    return np.real(multipliers.centres), multipliers.radii + 1e-15


def line_of(function):
    return f"undecided condition in <lambda>, line {function.__code__.co_firstlineno} of test_wrong_proofs.py"


at_rest, as_it_is = lambda x, t: 0 * x, lambda x: x


@jax.custom_jvp
def tells_another_slope(x):
    return 0.5 * x


tells_another_slope.defjvp(lambda primals, tangents: (tells_another_slope(primals[0]), -tangents[0]))


@jax.custom_vjp
def tells_no_slope(x):
    return 0.25 * x


tells_no_slope.defvjp(lambda x: (tells_no_slope(x), None), lambda _, pull: (0 * pull,))


@pytest.mark.medium
def test_derivatives_are_those_of_the_value():
    """Rules that say otherwise are not believed: x' = r x has the multiplier e^r."""

    def rate(x, t):
        held = -x[0] + 1.5 * jax.lax.stop_gradient(x[0])
        return jnp.stack([held, jax.jit(tells_another_slope)(x[1]) - x[1], tells_no_slope(x[2])])

    # A vector-Jacobian rule is no program for the integrator.
    same = lambda x, t: jnp.array([0.5, -0.5, 0.25]) * x
    centres, radii = multipliers(boxes_of(rate, lambda x: 0.1 * x, [0.0, 0.0, 0.0], same=same), 1e-8)
    assert np.all(np.abs(np.sort(centres) - 0.1 * np.exp([-0.5, 0.25, 0.5])) <= np.max(radii)) and np.all(radii < 1e-9)


steps_up = lambda x: jnp.where(x > 0, 0.5 * x + 0.05, 0.5 * x - 0.05)
kicked = lambda x: 0.5 * x + 0.05 * jnp.sign(x)
by_branch = lambda x: jax.lax.cond(x > 0, lambda x: 0.5 * x + 0.05, lambda x: 0.5 * x - 0.05, x)
by_integers = lambda x: 0.5 * x + 0.05 * (jnp.floor(x) + jnp.ceil(x))
kinds = (steps_up, kicked, by_branch, by_integers)


@pytest.mark.medium
def test_a_jump_inside_the_set_is_not_passed():
    """Each kind of jump has two cycles, at 0.1 and -0.1. Both are in a box of 0.15; in one of 0.05 there is one."""
    boxes = boxes_of(at_rest, lambda x: jnp.stack([f(x) for f, x in zip(kinds, x, strict=True)]), [0.09] * 4)
    _, reasons = boxes.proved(0.15)
    assert len(reasons) == 4 and all(line_of(f) in reason for f, reason in zip(kinds, sorted(reasons), strict=True))
    centres, radii = multipliers(boxes, 0.05)
    assert np.all(np.abs(centres - 0.5) <= radii) and np.all(radii < 1e-9)


@pytest.mark.slow
def test_two_attracting_cycles_are_not_proved_to_be_one():
    reset = lambda x: jnp.stack([0.5 * x[0] + 0.05 * jnp.sign(x[0]), 0.2 * x[1]])
    orbit = hj.periodic_orbit(hj.ReturnMap(clocked(at_rest, reset, 2), sequence=("m",)), jnp.array([0.09, 0, 0]), None)
    small = {"facets": 8, "rings": 1, "steps": 4, "orders": 6}
    certificate = hj.certify.attracting(orbit, radius=0.4, **small)
    assert not certificate.converges and any(line_of(reset) in reason for reason in certificate.reasons)
    assert hj.certify.attracting(orbit, radius=0.05, **small).converges


@pytest.mark.medium
def test_a_sign_that_changes_during_the_flow_is_not_passed():
    """The fixed point that was proved by rates without the jump is 2.5e-4 away from the true one."""
    crossing = lambda x, t: -0.1 * x + 1e-4 * jnp.sign(0.5 - t + x)
    _, reasons = boxes_of(crossing, as_it_is, [0.0]).proved(1e-3)
    assert len(reasons) == 1 and line_of(crossing) in reasons[0]
    # Where the sign is -1 all the time: x+ = (x + 1e-3) / e^0.1 - 1e-3.
    boxes = boxes_of(lambda x, t: -0.1 * x + 1e-4 * jnp.sign(x - 1), as_it_is, [0.0])
    centres, radii = multipliers(boxes, 1e-3)
    assert abs(centres[0] - np.exp(-0.1)) <= radii[0] < 1e-9


@pytest.mark.medium
def test_a_guard_that_jumps_below_zero_is_not_quiet():
    """Its rate is 1 wherever it has one; it falls from 1.5 to -1.5 at the time 1/2."""
    falls = lambda x, t: jnp.where(t < 0.5, 1 + t, t - 2)
    decay = lambda x, t: -x
    _, reasons = boxes_of(decay, as_it_is, [0.0], falls).proved(1e-8)
    assert len(reasons) == 1 and line_of(falls) in reasons[0]
    # A jump that is not reached, and one between positive values.
    stays, lower = lambda x, t: jnp.where(t < 2, 1 + t, t - 2), lambda x, t: jnp.where(t < 0.5, 2 + t, 1 + t)
    _, reasons = boxes_of(decay, as_it_is, [0.0], stays, lower).proved(1e-8)
    assert not reasons


@pytest.mark.medium
def test_kinks():
    """One orbit by the hull of both slopes; its multiplier only where the orbit itself is not at the kink."""
    at, near, tent = (
        lambda x: 0.5 * jnp.abs(x),
        lambda x: jnp.maximum(-0.5 * x, 0.5 * x) - 3e-9,
        lambda x: 0.7 - 2 * jnp.abs(x - 0.1),
    )
    boxes = boxes_of(at_rest, lambda x: jnp.stack([at(x[0]), near(x[1])]), [0.0, 0.0])
    found, reasons = boxes.proved(1e-8)
    numbers = boxes.numbers(found)
    assert not reasons and numbers["multipliers"] is None
    # near: x = -x / 2 - 3e-9
    assert numbers["coordinates"].contains(["0", "-2e-9"]).all()
    # The tent has another fixed point at -0.5.
    boxes = boxes_of(at_rest, lambda x: jnp.stack([near(x[0]), tent(x[1])]), [0.0, 0.3])
    assert boxes.proved(0.5)[1] and not boxes.proved(0.1)[1]
    centres, radii = multipliers(boxes, 1e-9)
    assert np.all(np.abs(np.sort(centres) - [-2, -0.5]) <= radii) and np.all(radii < 1e-9)


def descending(starts):
    """Heights that fall from given values, each with a transition at zero; reset to these values after a unit of time. With a
    coordinate that the section has."""
    reset = lambda x: jnp.stack([0.5 * x[0], *starts])
    guards = [lambda x, t, i=i: x[i] for i in range(1, 1 + len(starts))]
    return boxes_of(lambda x, t: 0 * x - 1, reset, [-1.0, *starts], *guards)


@pytest.mark.medium
def test_a_guard_that_starts_above_zero_fires():
    """By 5e-12, as `simulate` finds; a guard that starts at zero, or below by as much, was never positive."""
    _, reasons = descending([5e-12]).proved(1e-8)
    assert len(reasons) == 1 and "no guard fires before the arc's end" in reasons[0]
    assert not descending([0.0, -5e-12]).proved(1e-8)[1]


SURFACE = lambda t, x, p: jnp.cos(x[0]) - p[0] * jnp.cos(x[1])
SWAPPED = lambda t, x, p: jnp.stack([x[1], x[0], x[2]])


@pytest.mark.parametrize(
    ("surface", "reset", "others", "zero"),
    [
        # A double support: the guard changes its sign where the legs change their roles.
        (lambda t, x, p: jnp.cos(x[0]) - jnp.cos(x[1]), SWAPPED, (), [True]),
        # With a slope of the ground it does not.
        (SURFACE, SWAPPED, (), [False]),
        # An angle follows from the surface.
        (lambda t, x, p: x[1] - 2 * x[0], lambda t, x, p: jnp.stack([-x[0], -2 * x[0], x[2]]), (), [True]),
        (lambda t, x, p: x[1] - 2 * x[0], lambda t, x, p: jnp.stack([-x[0], -x[1], x[2]]), (), [True]),
        (lambda t, x, p: p[0] * x[1] - x[0] ** 2, lambda t, x, p: jnp.stack([-x[0], x[1], x[2]]), (), [True]),
        (lambda t, x, p: x[1] - 2 * x[0], lambda t, x, p: jnp.stack([-x[0], -2 * x[0] + 5e-12, x[2]]), (), [False]),
        # Zero in numbers, but not by the forms; and by a parameter that is zero.
        (lambda t, x, p: x[0], lambda t, x, p: jnp.stack([jnp.sin(x[2]) ** 2 + jnp.cos(x[2]) ** 2 - 1, x[1], x[2]]), (), [False]),
        (lambda t, x, p: p[1] * x[0] + x[1] ** 2, lambda t, x, p: jnp.stack([x[1], p[1] * x[0] + x[1] ** 2, x[2]]), (), [False]),
        # Of two guards the one that was left.
        (lambda t, x, p: x[0], lambda t, x, p: jnp.stack([x[0], x[1], -x[2]]), (lambda t, x, p: x[1],), [True, False]),
        (lambda t, x, p: x[0], lambda t, x, p: 0 * x, (lambda t, x, p: x[1] * x[2],), [True, True]),
    ],
)  # fmt: skip
def test_a_guard_is_zero_after_a_jump_only_where_it_cancels(surface, reset, others, zero):
    mode = hj.Mode(lambda t, x, p: -x, ("a", "b", "c"))
    ways = [hj.Transition("m", f"other{i}", guard, lambda t, x, p: x) for i, guard in enumerate(others)]
    modes = {"m": mode, **{way.target: mode for way in ways}}
    system = hj.HybridSystem(modes, (hj.Transition("m", "m", surface, reset), *ways))
    field = ModeField(system, "m", jnp.array([0.9, 0.0]), False)
    jump = lambda y, p, period: reset(0.0, y, p)
    assert zero_after(field, field.of_state(surface), jump, field).tolist() == zero


@pytest.mark.slow
def test_a_disturbance_that_is_too_large_is_refused_at_once(orbit, monkeypatch):
    """Of 10 the clock may stand still: no set is mapped inside. What seems provable then is."""
    mapped, counts = PieceImages.mapped, []

    def counted(self, polygon, quads, *given):
        counts.append(len(quads))
        return mapped(self, polygon, quads, *given)

    monkeypatch.setattr(PieceImages, "mapped", counted)
    sizes = dict(facets=8, rings=1, steps=8, orders=8)
    refused = hj.certify.attracting(orbit, disturbance=hj.certify.Disturbance(10.0), **sizes)
    # 8 facets have 16 points; a power of ten or a halving takes four sets at most.
    assert not refused.proved and sum(counts) <= 16 * (1 + 4 * 12)
    (reason,) = refused.reasons
    largest = float(reason.split("about ")[1])
    assert 0.01 < largest < 1
    assert hj.certify.attracting(orbit, disturbance=hj.certify.Disturbance(0.9 * largest), **sizes).proved


MANY = {
    "softplus": (jax.nn.softplus, lambda x: np.logaddexp(x, 0)),
    "silu": (jax.nn.silu, lambda x: x / (1 + np.exp(-x))),
    "logaddexp": (lambda x: jnp.logaddexp(x, 0.3), lambda x: np.logaddexp(x, 0.3)),
    "hypot": (lambda x: jnp.hypot(x, 1.0), lambda x: np.hypot(x, 1)),
    "mod": (lambda x: jnp.mod(x, 1.0), lambda x: x % 1),
    "round": (lambda x: x * jnp.round(4 * x), lambda x: x * np.round(4 * x)),
    "heaviside": (lambda x: x * jnp.heaviside(x, 0.5), lambda x: x),
    "integer": (lambda x: x * (4 * x).astype(int).astype(float), lambda x: x * np.floor(4 * x)),
    "cbrt": (jnp.cbrt, np.cbrt),
    "relu": (jax.nn.relu, lambda x: x),
    "clip": (lambda x: jnp.clip(x, -3.0, 3.0), lambda x: x),
    "sort": (lambda x: jnp.sort(jnp.stack([x, 0.1 * x]))[0], lambda x: 0.1 * x),
}


@pytest.mark.medium
def test_what_is_decided_in_the_set_is_as_good_as_smooth():
    """x+ = 0.3 + f(x) / 10 for functions that choose somewhere else, or only seem to choose."""
    functions = [f for f, _ in MANY.values()]
    reset = lambda x: jnp.stack([0.3 + 0.1 * f(x[i]) for i, f in enumerate(functions)])
    boxes = boxes_of(at_rest, reset, [0.37] * len(MANY))
    found, reasons = boxes.proved(1e-9)
    assert not reasons
    numbers = boxes.numbers(found)
    for x, radius, (_, f) in zip(
        numbers["coordinates"].midpoint, numbers["coordinates"].radius, MANY.values(), strict=True
    ):
        assert radius < 1e-15 and abs(0.3 + 0.1 * f(x) - x) < 1e-15
    # Central differences are good to 1e-9.
    slopes = [
        0.1 * (f(x + 1e-5) - f(x - 1e-5)) / 2e-5
        for x, (_, f) in zip(numbers["coordinates"].midpoint, MANY.values(), strict=True)
    ]
    assert np.allclose(np.sort(np.real(numbers["multipliers"].centres)), np.sort(slopes), rtol=0, atol=1e-9)
