"""One contact: mechanisms, the laws of contact, and what follows from them in motion."""

import dataclasses
import functools as ft
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import saltation_cart as cart
from numpy.testing import assert_allclose
from saltation_cart import Terms
from saltation_closed_forms import BOTH, flow, force, NONE, NORMAL, sliding_flow
from saltation_transitions import TRANSITIONS
from systems import ROLLED

import hyjax as hj
from hyjax._testing import project, solve_symmetric
from hyjax.contact import Contact, contact_system, lagrangian, Mechanism, set_name

# Mechanisms


def potential(q, params):
    (_, m1, m2), heights = params.masses, cart.tip(q, params)
    elbow = -params.lengths[0] * jnp.cos(q[1])
    return params.gravity * (m1 * elbow + m2 * heights[1])


def cart_lagrangian(q, v, params):
    return v @ cart.mass(q, params) @ v / 2 - potential(q, params)


@pytest.fixture(scope="module")
def on_floor():
    """A dozen states of the cart's tip on the floor, closing, with parameters."""
    draws = [TRANSITIONS[5].draw(rng) for rng in map(np.random.default_rng, range(100, 112))]
    params, times, x = zip(*draws, strict=True)
    stack = lambda *leaves: jnp.stack(leaves)
    return jnp.asarray(times), jnp.asarray(np.stack(x)), jax.tree.map(stack, *params)


@pytest.mark.medium
def test_lagrangian_agrees_with_mass_matrix(on_floor):
    """And with Coriolis terms that the user gives. One factorization each, of matrices whose condition is some hundred."""
    push = lambda t, q, v, p: jnp.stack([p.push * jnp.cos(t), 0 * t, 0 * t])
    rates = jax.jacfwd(cart.mass)

    def given(q, v, p):
        slope = rates(q, p)
        return (slope @ v) @ v - jnp.einsum("jki,j,k->i", slope, v, v) / 2

    ways = [
        contact_system(mechanism, Contact(cart.gap), cart.coordinates).modes["U"].vector_field
        for mechanism in (lagrangian(cart_lagrangian, push), Mechanism(cart.mass, cart.forces, given), cart.mechanism)
    ]
    fields = jax.jit(jax.vmap(lambda t, x, p: [field(t, x, p) for field in ways]))
    by_lagrangian, by_given, by_mass = fields(*on_floor)
    scale = np.max(np.abs(by_mass))
    assert_allclose(by_lagrangian, by_mass, rtol=0, atol=1e-13 * scale)
    assert_allclose(by_given, by_mass, rtol=0, atol=1e-13 * scale)


def test_gyroscopic_terms_of_a_lagrangian():
    """A charge in a magnetic field, whose force is (B v_y, -B v_x): exact."""
    field = 1.7
    mechanism = lagrangian(lambda q, v, p: v @ v / 2 + field * (q[0] * v[1] - q[1] * v[0]) / 2)
    system = contact_system(mechanism, Contact(lambda t, q, p: q[1]), ("x", "y"))
    rate = system.modes["U"].vector_field(jnp.zeros(()), jnp.array([0.3, 2.0, 0.5, -0.7]), None)
    assert_allclose(rate, [0.5, -0.7, -0.7 * field, -0.5 * field], rtol=1e-15)


@pytest.mark.parametrize("size", [2, 9])
def test_linear_equations_and_their_derivatives(size):
    """Written out or factorized; first and second derivatives, forward over reverse, against those of the inverse."""
    rng = np.random.default_rng(size)
    root, columns, direction = (jnp.asarray(rng.normal(size=(size, k))) for k in (size, 3, size))
    matrix = lambda s: root @ root.T + jnp.eye(size) + s * (direction + direction.T) / 4
    got = lambda s: jnp.sum(solve_symmetric(matrix(s), columns * jnp.cos(s)) ** 2)
    expected = lambda s: jnp.sum((jnp.linalg.inv(matrix(s)) @ (columns * jnp.cos(s))) ** 2)

    def to_second_order(f):
        (value, first), (_, second) = jax.jvp(jax.value_and_grad(f), (jnp.array(0.1),), (jnp.ones(()),))
        return value, first, second

    ours, exact = jax.jit(lambda: (to_second_order(got), to_second_order(expected)))()
    # Condition some hundred at most, and a derivative loses one such factor.
    for each, other, rtol in zip(ours, exact, (1e-12, 1e-11, 1e-10), strict=True):
        assert_allclose(each, other, rtol=rtol)


def test_linear_equations_that_are_not_definite():
    one = jnp.array([[1.0], [2.0]])
    assert np.all(np.isnan(solve_symmetric(jnp.array([[1.0, 2.0], [2.0, 1.0]]), one)))
    assert np.all(np.isnan(solve_symmetric(-jnp.eye(9), jnp.ones((9, 1)))))


@pytest.mark.parametrize("matrix", [[[1.0, 0.2], [0.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]])
def test_mass_matrices_that_are_none(matrix):
    """Not symmetric, with a negative eigenvalue, singular: accelerations are NaN, and a start is refused."""
    body = Mechanism(lambda q, p: jnp.array(matrix), lambda t, q, v, p: jnp.array([1.0, -2.0]))
    now, q, v = jnp.array(0.0), jnp.array([0.0, 1.0]), jnp.array([1.0, -1.0])
    assert np.all(np.isnan(body.acceleration(now, q, v, None)))
    for contacts in (contact := Contact(lambda t, q, p: q[1]), {"foot": contact}):
        system = contact_system(body, contacts, ("x", "y"))
        with pytest.raises(
            ValueError, match=r"^start: the mass matrix must be symmetric and positive definite; at x0="
        ):
            hj.contact.start(system, jnp.concatenate([q, v]), None)
        x = jnp.concatenate([q, v, *((jnp.zeros(1),) if isinstance(contacts, dict) else ())])
        rates = system.modes[system.names[0]].vector_field(now, x, None)
        assert np.all(np.isnan(rates[2:4]))


def test_a_mass_matrix_is_symmetric_up_to_rounding_in_its_own_units():
    """Rows in other units have entries of other sizes: an error of one part in a million of the coupling counts, rounding not."""
    off = 0.5e3 * 1e-3
    acceleration = lambda error: Mechanism(
        lambda q, p: jnp.array([[1e6, off], [off * (1 + error), 1e-6]])
    ).acceleration(jnp.array(0.0), jnp.zeros(2), jnp.ones(2), None)
    assert np.all(np.isfinite(acceleration(1e-14))) and np.all(np.isnan(acceleration(1e-6)))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("slip", [lambda v: v[0] * jnp.abs(v[0]), lambda v: jnp.abs(v[0]), jnp.linalg.norm])
def test_a_slip_that_is_not_affine(named, slip):
    """Refused by a start at any velocity, rest included; an impact and a force with it are NaN."""
    body = Mechanism(lambda q, p: jnp.eye(2), lambda t, q, v, p: jnp.array([1.0, -2.0]))
    contact = Contact(lambda t, q, p: q[1], lambda t, q, v, p: slip(v), static=0.3, kinetic=0.3)
    system = contact_system(body, {"foot": contact} if named else contact, ("x", "y"))
    for x0 in ([0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]):
        with pytest.raises(ValueError, match=f"^start: {'foot' if named else 'the contact'}: slip must be affine in v"):
            hj.contact.start(system, jnp.array(x0), None)
    now, x = jnp.array(0.0), jnp.array([0.0, 0.0, 1.0, 0.0])
    mode, x = ("contacts", jnp.append(x, 2.0)) if named else ("S+", x)
    assert np.all(np.isnan(system.modes[mode].vector_field(now, x, None)[2:4]))
    after, _ = hj.contact.impact(body, jnp.zeros(2), jnp.array([1.0, -1.0]), None, contact)
    assert np.all(np.isnan(after))
    moving = dataclasses.replace(contact, slip=lambda t, q, v, p: v[0] - 0.3 * t + v[1] * q[0])
    after, _ = hj.contact.impact(body, jnp.zeros(2), jnp.array([0.1, -1.0]), None, moving)
    assert_allclose(after, 0, atol=1e-15)
    if named:
        begin = jax.jit(lambda x: hj.contact.start(system, x, None)[1])
        assert np.all(np.isnan(begin(jnp.array([0.0, 0.0, 1.0, 0.0]))))


def test_a_slip_that_is_affine_by_its_program_is_not_evaluated_again():
    """Whether it is affine shows in the program of its derivative, except after a choice by a velocity."""
    now, x = jnp.array(0.0), jnp.array([0.1, 0.2, 1.0, 2.0])
    body, calls = Mechanism(lambda q, p: jnp.eye(2)), []
    for speed in (lambda v: v[0], lambda v: jnp.where(v[0] > 0, v[0], v[0])):
        count = []
        slip = lambda t, q, v, p, speed=speed, count=count: count.append(1) or speed(v) + jnp.sin(q[0]) * v[1] - t
        found = project(body, (Contact(lambda t, q, p: q[1], slip, static=0.3, kinetic=0.3),), now, x, None)
        assert_allclose(found.velocity, [2, 1 + 2 * np.sin(0.1)], rtol=1e-15)
        calls.append(len(count))
    assert calls[0] < calls[1]


# The laws of impact and of slip, for a body in which a push turns and a rub lifts

MIXED = contact_system(
    cart.mechanism,
    Contact(
        cart.gap,
        cart.slip,
        restitution=lambda p: p.restitution,
        static=lambda p: p.static,
        kinetic=lambda p: p.kinetic,
    ),
    cart.coordinates,
)


def outcomes(mode):
    """Targets, and the function that says which are armed and where each leads."""
    ways = [MIXED.transitions[i] for i in MIXED.leaving(mode) if MIXED.transitions[i].armed is not None]

    def at(t, x, p):
        armed = jnp.stack([way.armed(t, x, p) for way in ways])  # pyright: ignore[reportOptionalCall]
        return armed, jnp.stack([way.reset(t, x, p) for way in ways])

    return [way.target for way in ways], jax.jit(jax.vmap(at))


def stacked(draws):
    params, times, x = zip(*draws, strict=True)
    stack = lambda *leaves: jnp.stack(leaves)
    return jnp.asarray(times), jnp.asarray(np.stack(x)), jax.tree.map(stack, *params)


def slip_acceleration(at, params, side):
    return at.J_rate[1] @ at.v + at.J[1] @ sliding_flow(at, float(params.kinetic), side)[3:]


def check_contact(at, params, target):
    """Which way a contact at rest goes, by the closed forms: it holds inside the cone, else it slips as friction lets it."""
    normal, friction = -force(at, BOTH)
    inside = abs(friction) < params.static * normal
    assert (target == "C") == inside
    if not inside:
        side = {"S+": 1, "S-": -1}[target]
        assert side * slip_acceleration(at, params, side) > 0


@pytest.mark.medium
def test_impacts_obey_coulomb_and_newton():
    """Four hundred random impacts, half of them plastic: one transition is armed at each; the impulse acts at the contact,
    pushes, and rubs as it may; the mode is that of the motion after it. A rebound that would bring energy has no numbers."""
    rng = np.random.default_rng(0)
    draws = [TRANSITIONS[5].draw(rng) for _ in range(400)]
    draws = [(dataclasses.replace(p, restitution=p.restitution * (k % 2)), t, x) for k, (p, t, x) in enumerate(draws)]
    targets, program = outcomes("U")
    armed, after = (np.asarray(each) for each in program(*stacked(draws)))
    assert np.all(np.sum(armed, axis=1) == 1)
    assert np.array_equal(after, np.broadcast_to(after[:, :1], after.shape), equal_nan=True)
    met, gained = dict.fromkeys(targets, 0), 0
    for (params, t, x), flags, z in zip(draws, armed, after[:, 0], strict=True):
        target = targets[int(np.argmax(flags))]
        before, then = Terms(t, x[:3], x[3:], params), Terms(t, z[:3], z[3:], params)
        if np.any(np.isnan(z)):
            rates, compliance = before.J @ before.v, before.J @ np.linalg.solve(before.M, before.J.T)
            impulse = np.linalg.solve(compliance, -rates * [1 + float(params.restitution), 1])
            if abs(impulse[1]) > params.static * impulse[0]:
                rubs = np.array([1, float(params.kinetic) * np.sign(impulse[1])])
                impulse = -(1 + float(params.restitution)) * rates[0] / (compliance[0] @ rubs) * rubs
            assert impulse @ (2 * rates + compliance @ impulse) > 0 and params.restitution > 0
            gained += 1
            continue
        change = before.M @ (then.v - before.v)
        (normal, tangential), *_ = np.linalg.lstsq(before.J.T, change, rcond=None)
        # Rounding, by matrices whose condition is some hundred.
        size = np.max(np.abs(change))
        assert_allclose(before.J.T @ [normal, tangential], change, rtol=0, atol=1e-12 * size)
        assert normal > 0
        assert_allclose(z[:3], x[:3], rtol=0, atol=0)
        (closing, _), (opening, slip) = before.J @ before.v, then.J @ then.v
        assert_allclose(opening, -params.restitution * closing, rtol=0, atol=1e-12 * np.linalg.norm(then.v))
        if abs(slip) < 1e-12 * np.linalg.norm(before.v):
            assert abs(tangential) <= params.static * normal
        else:
            assert_allclose(tangential, -params.kinetic * normal * np.sign(slip), rtol=1e-11)
        if params.restitution == 0:
            assert then.v @ then.M @ then.v <= (1 + 1e-14) * before.v @ before.M @ before.v
            opens = then.J_rate[0] @ then.v + then.J[0] @ flow(then, NONE)[3:] >= 0
            assert (target == "V") == opens
            if not opens and abs(slip) < 1e-12 * np.linalg.norm(before.v):
                check_contact(then, params, target)
            elif not opens:
                assert target == ("S+" if slip > 0 else "S-")
        else:
            assert target == "V"
        met[target] += 1
    assert min(met.values()) > 8 and 0 < gained < 40, (met, gained)


@pytest.mark.parametrize("mode, other", [("S+", "S-"), ("S-", "S+")])
def test_slip_that_ends_sticks_or_turns(mode, other):
    """Of the two transitions where the slip vanishes one is armed, and it goes where the forces do."""
    rng = np.random.default_rng(1)
    event = next(each for each in TRANSITIONS if (each.source, each.target) == (mode, "C"))
    draws = [event.draw(rng) for _ in range(100)]
    targets, program = outcomes(mode)
    assert targets == ["C", other]
    armed, after = (np.asarray(each) for each in program(*stacked(draws)))
    assert np.all(np.sum(armed, axis=1) == 1)
    assert np.min(np.mean(armed, axis=0)) > 0.1
    pressed = 0
    for (params, t, x), flags, z in zip(draws, armed, after[:, 0], strict=True):
        assert_allclose(z, x, rtol=0, atol=0)
        normal = -force(Terms(t, x[:3], x[3:], params), NORMAL)[0]
        if normal > 0:
            check_contact(Terms(t, x[:3], x[3:], params), params, targets[int(np.argmax(flags))])
            pressed += 1
    assert pressed > 50


def bounce(t, x, params):
    """An elastic impact with friction, in closed form: the velocity after it, and whether it slips."""
    at, e, mu = Terms(t, x[:3], x[3:], params), float(params.restitution), float(params.kinetic)
    normal, tangential = at.J
    stop = np.linalg.solve(at.J @ np.linalg.solve(at.M, at.J.T), -at.J @ at.v - [e * normal @ at.v, 0])
    slips = abs(stop[1]) > float(params.static) * stop[0]
    thrust = normal + mu * np.sign(stop[1]) * tangential
    slide = -(1 + e) * (normal @ at.v) / (normal @ np.linalg.solve(at.M, thrust)) * thrust
    return at.v + np.linalg.solve(at.M, slide if slips else at.J.T @ stop), slips


@pytest.mark.medium
def test_derivative_of_an_impact_with_friction():
    """By the state, forward and reverse alike, against central differences of the closed form."""
    rng = np.random.default_rng(2)
    draws = [TRANSITIONS[5].draw(rng) for _ in range(40)]
    draws = [(dataclasses.replace(p, static=0.3, kinetic=0.2), t, x) for p, t, x in draws]
    reset = MIXED.transitions[MIXED.between("U", "V")].reset
    jacobians = [jax.jit(jax.vmap(kind(reset, argnums=1))) for kind in (jax.jacfwd, jax.jacrev)]
    forward, reverse = (np.asarray(each(*stacked(draws))) for each in jacobians)
    assert_allclose(forward, reverse, rtol=1e-12, atol=1e-12 * np.max(np.abs(forward)))
    for (params, t, x), jacobian in zip(draws, forward, strict=True):
        ends = [[bounce(t, x + sign * step, params)[0] for sign in (1, -1)] for step in 1e-6 * np.eye(6)]
        expected = np.stack([(up - down) / 2e-6 for up, down in ends], axis=1)
        # The square of the step, and rounding over the step.
        assert_allclose(jacobian[3:], expected, rtol=0, atol=1e-8 * np.max(np.abs(expected)))
        assert_allclose(jacobian[:3], np.eye(3, 6), rtol=0, atol=0)
    assert 5 < sum(bounce(t, x, params)[1] for params, t, x in draws) < 35


@pytest.mark.medium
def test_painleve():
    """A rod that slides with its end ahead, at tan(phi) = 2: a push closes the gap if mu > 4/3. No force obeys the law."""
    gap = lambda t, q, mu: q[1] - jnp.sin(q[2])
    slip = lambda t, q, v, mu: v[0] + jnp.sin(q[2]) * v[2]
    mass, weight = jnp.diag(jnp.array([1.0, 1.0, 1 / 3])), jnp.array([0.0, -9.8, 0.0])
    mechanism = Mechanism(lambda q, mu: mass, lambda t, q, v, mu: weight)
    rod = contact_system(mechanism, Contact(gap, slip, static=lambda mu: mu, kinetic=lambda mu: mu), ("x", "y", "phi"))
    angle = np.arctan(2.0)
    x = jnp.array([0.0, np.sin(angle), angle, -50.0, 0.0, 0.0])
    rates = jax.jit(lambda mu: [rod.modes[name].vector_field(jnp.zeros(()), x, mu) for name in ("S+", "S-")])
    for mu, expected in ((1.333, [False, False]), (1.334, [False, True])):
        assert [np.any(np.isnan(rate)) for rate in rates(jnp.array(mu))] == expected
    met = hj.flow_to_guard(rod, "S-", 0.0, x, jnp.array(2.0), integrator=ROLLED, throw=False)
    assert met.result == hj.RESULTS.nonfinite


# A mass on a level floor, or on a belt: in every mode its motion is elementary

PLANE = contact_system(
    Mechanism(
        lambda q, p: jnp.diag(jnp.stack([p["mass"], p["mass"]])),
        lambda t, q, v, p: jnp.stack(
            [p["push"] + p["pull"] * t - p["spring"] * q[0], p["lift"] * t - p["mass"] * p["gravity"]]
        ),
    ),
    Contact(
        lambda t, q, p: q[1],
        lambda t, q, v, p: v[0] - p["belt"],
        static=lambda p: p["static"],
        kinetic=lambda p: p["kinetic"],
    ),
    coordinates=("x", "y"),
)
REST = {"mass": 2.0, "gravity": 10.0, "push": 0.0, "pull": 0.0, "spring": 0.0, "lift": 0.0, "belt": 0.0, "static": 0.5, "kinetic": 0.3}  # fmt: skip  # noqa: E501


@pytest.fixture(scope="module")
def plane():
    """The first event of a batch in a mode: `(t, x, target)`."""
    programs, integrator = {}, hj.Integrator(max_time=10.0, unroll=False)

    def run(mode, *lanes):
        if mode not in programs:
            programs[mode] = jax.jit(
                jax.vmap(lambda x, p: hj.flow_to_guard(PLANE, mode, 0.0, x, p, integrator=integrator))
            )
        # Five lanes always, so that a mode has one program: some are there twice.
        count, five = len(lanes), (lanes * 5)[:5]
        x = np.array([[position, 0.0, speed, 0.0] for position, speed, _ in five])
        params = {name: np.array([(REST | changes)[name] for _, _, changes in five]) for name in REST}
        met = programs[mode](x, params)
        assert np.all(met.result == hj.RESULTS.successful)
        return met.t[:count], met.x[:count], [PLANE.transitions[int(i)].target for i in met.transition[:count]]

    return run


@pytest.mark.medium
def test_slide_until_it_stops_turns_or_leaves(plane):
    """Friction 0.3 m g stops 2 m/s; where the push back exceeds 0.5 m g it does not stay; where the weight is lifted the
    normal force m g - lift t is zero first. Solver's tolerance, and the drift of the gap."""
    t, x, targets = plane("S+", (0.0, 2.0, {}), (0.0, 2.0, {"push": -12.0}), (0.0, 20.0, {"lift": 40.0}))
    assert targets == ["C", "S-", "V"]
    assert_allclose(t, [2 / 3, 2 / 9, 0.5], rtol=1e-13)
    # The last: speed 20 - 3 t + 3 t^2, as friction fades.
    assert_allclose(x[:, 0], [2 / 3, 2 / 9, 10 - 0.375 + 0.125], rtol=1e-13)
    assert_allclose(x[:, [1, 3]], 0, atol=1e-13)
    # Friction upon a normal force of 1.5 m g, and the same with the push the other way.
    t, x, targets = plane("S-", (0.0, -3.0, {"gravity": 15.0}), (0.0, -3.0, {"push": 12.0}))
    assert targets == ["C", "S+"]
    assert_allclose(t, [3 / 4.5, 3 / 9], rtol=1e-13)


@pytest.mark.medium
def test_stick_until_friction_gives_way(plane):
    """0.5 m g = 10 against a pull that grows; against a lift, too; on a belt against a spring; and where only the lift
    grows no friction is needed: then the contact is lost, at once with its cone."""
    t, x, targets = plane(
        "C",
        (0.0, 0.0, {"pull": 4.0}),
        (0.0, 0.0, {"pull": -4.0}),
        (0.0, 0.0, {"push": 2.0, "lift": 8.0}),
        (-0.1, 0.5, {"spring": 40.0, "belt": 0.5}),
        (0.0, 0.0, {"lift": 8.0}),
    )
    assert targets == ["S+", "S-", "S+", "S-", "V"]
    assert_allclose(t, [2.5, 2.5, 2.0, 0.7, 2.5], rtol=1e-13)
    assert_allclose(x[3], [0.25, 0, 0.5, 0], rtol=1e-13, atol=1e-13)


@pytest.mark.medium
def test_slip_on_a_belt(plane):
    """From where static friction gives way, (pi + 2 arctan(v / (omega D))) / omega until the belt catches the mass
    again, 2 D further back: D is how much less the spring needs against kinetic friction. The slip starts from zero."""
    params = {"spring": 40.0, "belt": 0.5}
    give, keep, omega = 10 / 40, 6 / 40, np.sqrt(40 / 2)
    (t,), (x,), targets = plane("S-", (give, 0.5, params))
    assert targets == ["C"]
    assert_allclose(t, (np.pi + 2 * np.arctan(0.5 / (omega * (give - keep)))) / omega, rtol=1e-13)
    assert_allclose(x, [give - 2 * (give - keep), 0, 0.5, 0], rtol=1e-13, atol=1e-13)


@pytest.mark.medium
def test_derivative_of_where_it_stops():
    """v^2 / (2 mu g), by speed, gravity and friction, through the coefficient's lens; static friction has no part in it."""

    def stops(speed, p):
        x = jnp.stack([jnp.zeros_like(speed), jnp.zeros_like(speed), speed, jnp.zeros_like(speed)])
        return hj.flow_to_guard(PLANE, "S+", 0.0, x, p, integrator=ROLLED).x[0]

    params = {name: jnp.array(value) for name, value in REST.items()}
    by_speed, by_params = jax.jit(jax.jacrev(stops, argnums=(0, 1)))(jnp.array(2.0), params)
    # Two integrations at 1e-14.
    assert_allclose(by_speed, 2 / 3, rtol=1e-12)
    assert_allclose(by_params["kinetic"], -2 / 3 / 0.3, rtol=1e-12)
    assert_allclose(by_params["gravity"], -2 / 3 / 10, rtol=1e-12)
    assert_allclose([by_params[name] for name in ("static", "mass")], 0, atol=1e-12)
    # A lift that grows with time takes off friction: mu t^2 / (2 m) from the speed at t.
    assert_allclose(by_params["lift"], 0.3 * (2 / 3) ** 3 / (6 * 2), rtol=1e-12)


# A table that moves as A sin(Omega t), and a ball

TABLE = contact_system(
    Mechanism(lambda q, p: jnp.ones((1, 1)), lambda t, q, v, p: -p["g"][None]),
    Contact(
        lambda t, q, p: q[0] - p["A"] * jnp.sin(p["Omega"] * t),
        restitution=lambda p: p["e"],
        settle=lambda p: p["settle"],
    ),
    coordinates="y",
)


def table(**changes):
    values = {"g": 10.0, "e": 0.0, "A": 0.0, "Omega": 20.0, "settle": 0.0} | changes
    return {name: jnp.array(value) for name, value in values.items()}


@pytest.mark.medium
def test_impact_with_a_surface_that_moves():
    """The saltation matrix has the table's speed and acceleration in it (one bounce: see `test_saltation`); exact but for
    the rounding of a dozen operations."""
    params, t = table(e=0.8, A=0.05), 0.3
    speed, bend = 0.05 * 20 * np.cos(6), -0.05 * 400 * np.sin(6)
    x = jnp.array([0.05 * np.sin(6), -3.0])
    e, closing = 0.8, -3.0 - speed
    way = TABLE.transitions[TABLE.between("U", "V")]
    assert_allclose(way.reset(jnp.array(t), x, params)[1], -e * -3.0 + (1 + e) * speed, rtol=1e-14)
    got = hj.saltation_matrix(TABLE, way, t, x, params)
    assert_allclose(got, [[-e, 0], [-(1 + e) * (10 + bend) / closing, -e]], rtol=1e-13, atol=1e-13)
    # Plastic, the ball moves with the table: its speed after does not depend on how it came, save by when.
    way = TABLE.transitions[TABLE.between("U", "S")]
    got = hj.saltation_matrix(TABLE, way, t, x, table(A=0.05))
    assert_allclose(got, np.zeros((2, 2)), atol=1e-13)
    assert_allclose(way.reset(jnp.array(t), x, table(A=0.05))[1], speed, rtol=1e-14)


@pytest.mark.medium
def test_table_that_drops_away():
    """It carries the ball until sin(Omega t) = g / (A Omega^2); from a plastic impact after that the two part at once."""
    params = table(A=0.05)
    lift = np.arcsin(10 / (0.05 * 400)) / 20
    met = hj.flow_to_guard(TABLE, "S", 0.0, jnp.array([0.0, 1.0]), params, integrator=ROLLED)
    assert TABLE.transitions[int(met.transition)].target == "V"
    assert_allclose(met.t, lift, rtol=1e-13)
    assert_allclose(met.x, [0.05 * np.sin(20 * lift), np.cos(20 * lift)], rtol=1e-13)
    for t, expected in ((lift - 1e-6, "S"), (lift + 1e-6, "V")):
        x = jnp.array([0.05 * np.sin(20 * t), -2.0])
        ways = [TABLE.transitions[i] for i in TABLE.leaving("U")]
        (target,) = [way.target for way in ways if way.armed(jnp.array(t), x, params)]  # pyright: ignore[reportOptionalCall]
        assert target == expected


@pytest.mark.medium
@pytest.mark.parametrize("settle", [0.0, 0.01])
def test_bounces_that_accumulate_end_in_contact(settle):
    """The times are those of the closed form, t_k = t_1 (1 + 2 (e + ... + e^k)), until a bounce is slower than `settle`,
    or lower than rounding; then the ball stays."""
    e, params = 0.6, table(e=0.6, settle=settle)
    run = hj.simulate(TABLE, jnp.array([1.0, 0.0]), params, mode="U", t1=5.0, max_jumps=120, integrator=ROLLED)
    assert run.result == hj.RESULTS.successful
    names = [TABLE.names[int(k)] for k in run.modes if k >= 0]
    bounces = (len(names) - 2) // 2
    assert names == ["U", "V"] * bounces + ["U", "S"]
    assert_allclose(run.x, 0, atol=1e-14)
    impacts = np.asarray(run.end_times)[: 2 * bounces + 1 : 2]
    first = np.sqrt(2 / 10)
    expected = first * (1 + 2 * np.cumsum(np.concatenate([[0], e ** np.arange(1, bounces + 1)])))
    assert_allclose(impacts, expected, rtol=1e-13)
    speed = np.sqrt(20) * e**bounces
    if settle:
        assert speed <= settle < speed / e
    else:
        # The rest of the bounces: lower than a millionth of a millionth of the fall.
        assert speed**2 / 20 < 1e-11
        assert_allclose(impacts[-1], first * (1 + e) / (1 - e), rtol=1e-5)


# Energy and constraint over a long time


def energy(x, params):
    q, v = x[:3], x[3:]
    return v @ cart.mass(q, params) @ v / 2 + potential(q, params)


@pytest.mark.medium
def test_energy_of_forty_elastic_bounces():
    """The tip of the double pendulum bounces on the floor, without friction or loss. Each of eighty arcs at 1e-14."""
    params = cart.Params(
        masses=[1.0, 0.6, 0.9], lengths=[0.7, 1.1], gravity=9.81, push=0.0, slope=0.0, height=1.5, restitution=1.0,
        static=0.0, kinetic=0.0,
    )  # fmt: skip
    x = jnp.array([0.0, 0.9, 0.5, 0.3, 0.2, -0.1])
    system = cart.frictionless

    @ft.partial(jax.jit, static_argnames="mode")
    def flow_in(mode, t, x):
        met = hj.flow_to_guard(system, mode, t, x, params, integrator=ROLLED)
        return met, energy(met.x, params)

    bounce = jax.jit(lambda t, x: system.transitions[system.between("U", "V")].reset(t, x, params))
    start, t, bounces, mode = energy(x, params), jnp.zeros(()), 0, "U"
    while bounces < 40:
        met, now = flow_in(mode, t, x)
        assert met.result == hj.RESULTS.successful
        t, x = met.t, met.x
        if mode == "U":
            x, bounces = bounce(t, x), bounces + 1
        mode = "V" if mode == "U" else "U"
        assert_allclose(now, start, rtol=1e-10)
    # The cart has been pushed about.
    assert abs(x[0]) > 0.01


@pytest.mark.medium
def test_constraint_and_energy_on_a_curve():
    """A bead in a frictionless parabola for 20 time units, some ten swings: neither is enforced, but by the acceleration."""
    bead = contact_system(
        Mechanism(lambda q, p: jnp.eye(2), lambda t, q, v, p: jnp.array([0.0, -9.8])),
        Contact(lambda t, q, p: q[1] - q[0] ** 2),
        coordinates=("x", "y"),
    )
    start = jnp.array([1.0, 1.0, 0.0, 0.0])
    end = hj.simulate(bead, start, None, mode="S", t1=20.0, max_jumps=1, integrator=ROLLED)
    assert end.result == hj.RESULTS.successful and end.jumps == 0
    assert_allclose(end.x[1], end.x[0] ** 2, rtol=0, atol=1e-11)
    assert_allclose(end.x[2:] @ end.x[2:] / 2 + 9.8 * end.x[1], 9.8, rtol=1e-11)
    assert abs(end.x[0]) < 1 - 1e-3


# Misuse, and what else there is to say before anything is computed

GAP, SLIP = (lambda t, q, p: q[1]), (lambda t, q, v, p: v[0])
UNIT = Mechanism(lambda q, p: jnp.eye(2))
MISUSES = [
    (lambda: Contact(1.0), "gap must be a function"),
    (lambda: Contact(GAP, (SLIP, SLIP)), "Two are for a contact that never slips, static"),
    (lambda: Contact(GAP, SLIP), "static=math.inf"),
    (lambda: Contact(GAP, SLIP, static=0.5), "Give both"),
    (lambda: Contact(GAP, SLIP, kinetic=0.5), "Give both"),
    (lambda: Contact(GAP, static=0.5, kinetic=0.4), "needs a direction"),
    (lambda: Contact(GAP, tangential=0.5), "needs a slip"),
    (lambda: Contact(GAP, SLIP, static=math.inf, tangential=1.5), "tangential=1.5 must lie between"),
    (lambda: Contact(GAP, SLIP, static=0.3, kinetic=0.4), "Give static >= kinetic"),
    (lambda: Contact(GAP, SLIP, static=jnp.array(0.3), kinetic=jnp.array(0.4)), "Give static >= kinetic"),
    (lambda: Contact(GAP, poisson="yes"), "poisson='yes' must be True"),
    (lambda: contact_system(UNIT, {"a": Contact(GAP)}, ("x", "y"), domain=3), "domain must be a function of"),
    (
        lambda: contact_system(UNIT, {"a": Contact(GAP)}, ("x", "y"), time_unit=3),
        "time_unit must be a text, such as 's', not",
    ),
    (
        lambda: set_name(contact_system(UNIT, {"a": Contact(GAP)}, ("x", "y")), np.zeros(4)),
        r"set_name: x of shape \(4,\) must be one state, of shape \(5,\)",
    ),
    (lambda: Contact(GAP, SLIP, static=0.5, kinetic=-0.4), "kinetic=-0.4"),
    (lambda: Contact(GAP, restitution=1.2), "restitution=1.2"),
    (lambda: Contact(GAP, restitution="p.e"), "lambda p: p.restitution"),
    (
        lambda: Contact(GAP, restitution=jnp.array([0.5, 0.6])),
        "restitution must be a number or .* got Array\\(\\[0.5, 0.6",
    ),
    (lambda: Contact(GAP, settle=np.array([0.5])), "settle must be a number"),
    (lambda: Contact(GAP, restitution=np.float32(1.5)), "restitution=1.5 must lie between"),
    (lambda: Contact(GAP, SLIP, static=np.float32(0.25), kinetic=np.float32(0.5)), "Give static >= kinetic"),
    (lambda: Contact(GAP, settle=-1.0), "settle=-1.0"),
    (lambda: Mechanism(jnp.eye(2)), "mass must be a function"),
    (lambda: Mechanism(lambda q, p: q, coriolis=3), "coriolis must be a function"),
    (lambda: lagrangian(3.0), "of \\(q, v, params\\)"),
    (lambda: contact_system(3, Contact(GAP), ("x", "y")), "Mechanism"),
    (lambda: contact_system(UNIT, GAP, ("x", "y")), "or contacts by name"),
    (lambda: contact_system(UNIT, {}, ("x", "y")), "at least one contact"),
    (lambda: contact_system(UNIT, {"a+b": Contact(GAP)}, ("x", "y")), "'a\\+b' cannot name a contact"),
    (lambda: contact_system(UNIT, {"x": Contact(GAP)}, ("x", "y")), "'x'.* name both a coordinate and a contact"),
    (lambda: contact_system(UNIT, {"floor": 3.0}, ("x", "y")), "must be a hj.contact.Contact, not 3.0"),
    (lambda: contact_system(UNIT, Contact(GAP), ()), "names of the positions"),
    (lambda: contact_system(UNIT, Contact(GAP), (1, 2)), "names of the positions"),
    (lambda: contact_system(UNIT, Contact(GAP), ("x", "x")), "differ"),
]


@pytest.mark.parametrize("wrong, said", MISUSES, ids=[said for _, said in MISUSES])
def test_misuse(wrong, said, unchecked):
    with pytest.raises(ValueError, match=said):
        wrong()


def test_coefficients_may_be_numbers_of_numpy():
    rough = Contact(GAP, SLIP, restitution=np.float32(0.5), static=np.float32(np.inf), tangential=np.array(0.25))
    assert rough.rough and (rough.restitution, rough.tangential) == (0.5, 0.25)
    assert Contact(GAP, SLIP, static=np.int64(1), kinetic=np.float32(0.5)).slips
    assert not Contact(GAP, tangential=np.float32(0)).rough


WRONG_SHAPES = [
    (UNIT, Contact(lambda t, q, p: q), "U", "Write a Contact for each"),
    (UNIT, Contact(lambda t, q, p: q[1] > 0), "U", r"gap must return an array of shape \(\), not bool of \(\)"),
    (UNIT, Contact(GAP, lambda t, q, v, p: v, static=1.0, kinetic=1.0), "S+", "two tangents"),
    (Mechanism(lambda q, p: q), Contact(GAP), "U", "mass must return an array of shape"),
    (Mechanism(lambda q, p: jnp.eye(2), lambda t, q, v, p: jnp.zeros(3)), Contact(GAP), "U", "forces must return"),
]


@pytest.mark.parametrize("mechanism, contact, mode, said", WRONG_SHAPES, ids=[each[-1] for each in WRONG_SHAPES])
def test_wrong_shapes_are_said_before_anything_is_computed(mechanism, contact, mode, said):
    system = contact_system(mechanism, contact, ("x", "y"))
    with pytest.raises(ValueError, match=said):
        hj.flow_to_guard(system, mode, 0.0, jnp.zeros(4), None)


def test_modes_that_a_contact_has():
    """Without slip no friction; rough, no sliding. Between two modes there is one way at most, so a sequence is enough."""
    smooth, rough = (
        contact_system(UNIT, each, ("x", "y")) for each in (Contact(GAP), Contact(GAP, SLIP, static=math.inf))
    )
    assert set(smooth.modes) == {"U", "V", "S"} and set(rough.modes) == {"U", "V", "C"}
    assert set(PLANE.modes) == {"U", "V", "S+", "S-", "C"}
    assert smooth.modes["U"].coordinates == ("x", "y", "x_rate", "y_rate")
    for system in (smooth, rough, PLANE):
        ways = [(way.source, way.target) for way in system.transitions]
        assert len(set(ways)) == len(ways)
        assert not {("V", "C"), ("V", "S"), ("V", "S+"), ("C", "U"), ("S", "U"), ("S+", "U")} & set(ways)


@pytest.mark.medium
def test_rod_that_tips_over_a_rough_foot():
    """From upright at the rate w, with half its length 1: phi'^2 = w^2 + 3 g (1 - cos phi) / 2, and the normal force per
    weight is (1 - 3 cos phi)^2 / 4 - w^2 cos phi / g: the foot leaves where that vanishes. To the integration's error."""
    g, w = 9.8, 1.5
    weight = jnp.array([0.0, -g, 0.0])
    rod = Mechanism(lambda q, p: jnp.diag(jnp.array([1.0, 1.0, 1 / 3])), lambda t, q, v, p: weight)
    foot = lambda q: jnp.stack([q[0] + jnp.sin(q[2]), q[1] - jnp.cos(q[2])])
    speed = lambda t, q, v, p: jax.jvp(foot, (q,), (v,))[1][0]
    contact = Contact(lambda t, q, p: foot(q)[1], speed, static=math.inf)
    system = contact_system(rod, contact, ("x", "y", "phi"))
    met = hj.flow_to_guard(system, "C", 0.0, jnp.array([0.0, 1.0, 0.0, -w, 0.0, w]), None, integrator=ROLLED)
    assert met.result == hj.RESULTS.successful
    half = 1.5 + w**2 / g
    cosine = (half + np.sqrt(half**2 - 2.25)) / 4.5
    assert_allclose(jnp.cos(met.x[2]), cosine, rtol=1e-12)
    assert_allclose(met.x[5] ** 2, w**2 + 1.5 * g * (1 - cosine), rtol=1e-12)
    assert_allclose(foot(met.x), 0, atol=1e-13)


def test_dtypes_follow_the_state():
    """In float32 all of it is float32: strict promotion would refuse a mixture."""
    single = lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    params = {name: single(()) for name in REST}
    for mode in PLANE.modes:
        for fn in [PLANE.modes[mode].vector_field, *(PLANE.transitions[i].guard for i in PLANE.leaving(mode))]:
            assert jax.eval_shape(fn, single(()), single((4,)), params).dtype == jnp.float32
        for i in PLANE.leaving(mode):
            assert jax.eval_shape(PLANE.transitions[i].reset, single(()), single((4,)), params).dtype == jnp.float32
