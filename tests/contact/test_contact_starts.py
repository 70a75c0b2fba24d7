"""Where a run may begin in a mode of contact: the gap closed and at rest, the force within its law."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hyjax as hj
from hyjax.contact import Contact, contact_system, Mechanism, set_name, start

# Forces are constant, so motion is a polynomial in time, and Bosh3 is exact.
BOSH = hj.Integrator(dfx.Bosh3(), rtol=1e-10, atol=1e-10, unroll=False)
OUTSIDE, FINE = hj.RESULTS.outside_domain, hj.RESULTS.successful
GRAVITY, STATIC, KINETIC = 9.81, 0.3, 0.2


def push(t, q, v, p):
    return jnp.stack([p["push"], p["lift"] - GRAVITY])


POINT = Mechanism(lambda q, p: jnp.eye(2), push)
FLOOR = dict(gap=lambda t, q, p: q[1], slip=lambda t, q, v, p: v[0] - p["belt"])
BLOCK = contact_system(POINT, Contact(**FLOOR, static=STATIC, kinetic=KINETIC), ("x", "y"))
SMOOTH = contact_system(POINT, Contact(FLOOR["gap"]), ("x", "y"))
ROUGH = contact_system(POINT, Contact(**FLOOR, static=np.inf), ("x", "y"))
WALLS = contact_system(
    POINT, {"floor": Contact(**FLOOR, static=np.inf), "wall": Contact(lambda t, q, p: 1 - q[0])}, ("x", "y")
)


def params(push=0.0, lift=0.0, belt=0.0):
    return {"push": jnp.array(push), "lift": jnp.array(lift), "belt": jnp.array(belt)}


def admitted(system, mode, x, p, tolerances=(1e-10, 1e-10)):
    """In a mode, or with a set of contacts by name."""
    t, x = jnp.zeros(()), jnp.asarray(x, float)
    if ":" not in mode:
        return bool(system.modes[mode].domain.admits(t, x, p, tolerances))
    codes = [0.0 if each.endswith("open") else 1.0 for each in mode.split("+")]
    x = jnp.append(x, jnp.array(codes))
    assert set_name(system, x) == mode
    return bool(system.modes["contacts"].domain.refusal(t, x, p, tolerances) == FINE)


REST, LIMIT = [0.0, 0.0, 0.0, 0.0], STATIC * GRAVITY
# A push to the left lifts this body: 0.19 y'' = lift - g + f_n - 0.9 (push + f_t). So f_n (1 + 0.9 mu) = g - lift + 0.9 push in a
# slip forward.
TURNED = contact_system(
    Mechanism(lambda q, p: jnp.array([[1.0, 0.9], [0.9, 1.0]]), push),
    Contact(**FLOOR, static=STATIC, kinetic=KINETIC),
    ("x", "y"),
)
# System, mode, state, parameters, whether the state belongs to the mode.
STARTS = {
    "sticks at rest": (BLOCK, "C", REST, {}, True),
    "sticks under a push within the cone": (BLOCK, "C", REST, dict(push=0.99 * LIMIT), True),
    "sticks at the limit of the cone": (BLOCK, "C", REST, dict(push=LIMIT), True),
    "sticks at the other limit": (BLOCK, "C", REST, dict(push=-LIMIT), True),
    "sticks beyond the limit": (BLOCK, "C", REST, dict(push=4.0), False),
    "sticks beyond the other limit": (BLOCK, "C", REST, dict(push=-4.0), False),
    "sticks beyond the limit by a millionth": (BLOCK, "C", REST, dict(push=LIMIT * (1 + 1e-6)), False),
    "sticks beyond the limit by rounding": (BLOCK, "C", REST, dict(push=LIMIT * (1 + 1e-12)), True),
    "sticks to a belt": (BLOCK, "C", [0.0, 0.0, 1.0, 0.0], dict(belt=1.0), True),
    "sticks and slips": (BLOCK, "C", [0.0, 0.0, 1.0, 0.0], {}, False),
    "sticks in the air": (BLOCK, "C", [0.0, 0.5, 0.0, 0.0], {}, False),
    "sticks below the floor": (BLOCK, "C", [0.0, -0.5, 0.0, 0.0], {}, False),
    "sticks and rises": (BLOCK, "C", [0.0, 0.0, 0.0, 0.1], {}, False),
    "sticks and is lifted": (BLOCK, "C", REST, dict(lift=10.0), False),
    "sticks and weighs nothing": (BLOCK, "C", REST, dict(lift=GRAVITY), True),
    "slides forward": (BLOCK, "S+", [0.0, 0.0, 1.0, 0.0], {}, True),
    "slides backward": (BLOCK, "S-", [0.0, 0.0, -1.0, 0.0], {}, True),
    "slides forward, slipping backward": (BLOCK, "S+", [0.0, 0.0, -1.0, 0.0], {}, False),
    "slides backward, slipping forward": (BLOCK, "S-", [0.0, 0.0, 1.0, 0.0], {}, False),
    "slides on a faster belt": (BLOCK, "S-", [0.0, 0.0, 1.0, 0.0], dict(belt=2.0), True),
    "slides from rest, where friction holds": (BLOCK, "S+", REST, {}, False),
    "slides from rest, pushed forward": (BLOCK, "S+", REST, dict(push=4.0), True),
    "slides from rest, pushed backward": (BLOCK, "S-", REST, dict(push=-4.0), True),
    "slides from rest, pushed the other way": (BLOCK, "S+", REST, dict(push=-4.0), False),
    "slides in the air": (BLOCK, "S+", [0.0, 0.5, 1.0, 0.0], {}, False),
    "slides and falls": (BLOCK, "S+", [0.0, 0.0, 1.0, -0.1], {}, False),
    "slides and is lifted": (BLOCK, "S+", [0.0, 0.0, 1.0, 0.0], dict(lift=10.0), False),
    "slides and is lifted by a push": (TURNED, "S+", [0.0, 0.0, 1.0, 0.0], dict(push=-GRAVITY / 0.9 * 1.01), False),
    "slides under nearly that push": (TURNED, "S+", [0.0, 0.0, 1.0, 0.0], dict(push=-GRAVITY / 0.9 * 0.99), True),
    "glides": (SMOOTH, "S", [0.0, 0.0, 5.0, 0.0], {}, True),
    "glides in the air": (SMOOTH, "S", [0.0, 0.1, 5.0, 0.0], {}, False),
    "glides and is lifted": (SMOOTH, "S", [0.0, 0.0, 5.0, 0.0], dict(lift=10.0), False),
    "a rough foot under any push": (ROUGH, "C", REST, dict(push=1e3), True),
    "a rough foot slips": (ROUGH, "C", [0.0, 0.0, 0.1, 0.0], {}, False),
    "stands": (WALLS, "floor:stick+wall:open", REST, {}, True),
    "stands beside the wall": (WALLS, "floor:stick+wall:open", [1.0, 0.0, 0.0, 0.0], dict(push=-1.0), True),
    "stands and slips": (WALLS, "floor:stick+wall:open", [0.0, 0.0, 0.1, 0.0], {}, False),
    "leans": (WALLS, "floor:open+wall:closed", [1.0, 0.3, 0.0, 2.0], dict(push=1.0), True),
    "leans and is pulled away": (WALLS, "floor:open+wall:closed", [1.0, 0.3, 0.0, 2.0], dict(push=-1.0), False),
    "leans without a wall": (WALLS, "floor:open+wall:closed", [0.9, 0.3, 0.0, 2.0], dict(push=1.0), False),
    "leaves the wall": (WALLS, "floor:open+wall:closed", [1.0, 0.3, -0.1, 2.0], dict(push=1.0), False),
    "stands and leans": (WALLS, "floor:stick+wall:closed", [1.0, 0.0, 0.0, 0.0], dict(push=1.0), True),
    "flies": (WALLS, "floor:open+wall:open", [0.3, 0.4, 1.0, -1.0], {}, True),
}


@pytest.mark.parametrize("name", STARTS)
def test_what_a_mode_admits(name):
    system, mode, x, p, fits = STARTS[name]
    assert admitted(system, mode, x, params(**p)) == fits


@pytest.mark.medium
def test_off_by_the_drift_of_a_run():
    """By 1e-8 of the state, and a thousand of the solver's errors: a run goes on from the end of another."""
    slides = np.array([100.0, 0.0, 3.0, 0.0])
    fine, coarse = (1e-14, 1e-14), (1e-9, 1e-9)
    assert admitted(BLOCK, "S+", slides + [0, 1e-6, 0, 0], params(), fine)
    assert not admitted(BLOCK, "S+", slides + [0, 1e-5, 0, 0], params(), fine)
    assert admitted(BLOCK, "S+", slides + [0, 1e-5, 0, 0], params(), coarse)
    assert admitted(BLOCK, "C", [100.0, 0.0, 1e-6, -1e-6], params(), fine)
    # On a curve: at x = 100 the gap of y = x^2 turns by the speed, 2 x v' and 2 v x'.
    bowl = contact_system(POINT, Contact(lambda t, q, p: q[1] - q[0] ** 2), ("x", "y"))
    along = np.array([100.0, 1e4, 1.0, 200.0])
    assert admitted(bowl, "S", along + [1e-6, 0, 0, 1e-4], params(), fine)
    assert not admitted(bowl, "S", along + [0, 0, 0, 1.0], params(), fine)
    # At the bottom the gap's gradient turns by 200 in a time of 1: a drift along the bowl changes the gap's rate by as much.
    bottom = np.array([0.0, 0.0, 100.0, 0.0])
    assert admitted(bowl, "S", bottom + [1e-7, 0, 0, 0], params(), fine)
    assert not admitted(bowl, "S", bottom + [1e-5, 0, 0, 0], params(), fine)


simulate = jax.jit(
    jax.vmap(
        lambda x, p, mode: hj.simulate(BLOCK, x, p, mode=mode, t1=2.0, max_jumps=6, integrator=BOSH, throw=False),
        (0, 0, None),
    ),
    static_argnums=2,
)


def stacked(*each):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)


@pytest.mark.slow
def test_runs_end_where_they_would_begin_wrongly():
    """A run that is refused keeps its start. x(2) of one that is not: at rest, v t - mu g t^2 / 2, and (push - mu g) t^2 / 2."""
    states = jnp.array([REST, REST, [0.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.0, 0.0]])
    run = simulate(states, stacked(params(), params(push=4.0), params(), params()), "C")
    assert_array_equal(run.result == FINE, [True, False, False, False])
    assert_array_equal(run.result == OUTSIDE, [False, True, True, True])
    assert_array_equal(run.x, states)
    assert_array_equal(run.jumps, 0)
    states = jnp.array([REST, [0.0, 0.0, 9.0, 0.0], REST, [0.0, 0.0, -1.0, 0.0]])
    run = simulate(states, stacked(params(), params(), params(push=4.0), params()), "S+")
    assert_array_equal(run.result == FINE, [False, True, True, False])
    assert_allclose(run.x[1:3, 0], [18 - 2 * KINETIC * GRAVITY, 2 * (4 - KINETIC * GRAVITY)], rtol=1e-13)


@pytest.mark.slow
def test_every_arc_of_a_run_begins_where_a_run_may_begin():
    """Throws onto a moving belt: landing, sliding, sticking, with a push about the limit of friction."""
    rng = np.random.default_rng(3)
    count = 64
    x = np.column_stack([np.zeros(count), rng.uniform(0, 0.5, count), rng.normal(size=count) * 3, np.zeros(count)])
    each = [params(rng.uniform(-4, 4), 0.0, rng.normal()) for _ in range(count)]
    run = simulate(jnp.asarray(x), stacked(*each), "U")
    modes, seen = BLOCK.names, set()
    for lane in range(count):
        for k in range(int(run.jumps[lane]) + 1):
            mode = modes[int(run.modes[lane, k])]
            for state in (run.x_starts[lane, k], run.x_ends[lane, k])[: 2 if k == int(run.jumps[lane]) else 1]:
                if mode not in ("U", "V"):
                    seen.add(mode)
                    assert admitted(BLOCK, mode, state, each[lane]), (lane, k, mode, state)
    assert seen == {"S+", "S-", "C"}


@pytest.mark.medium
def test_an_arc_begins_likewise():
    """`flow_to_guard`: NaN, as of any start outside a domain, with a gradient of zero, also in the air, where the formulas would
    stop the block as well; on the floor 2.943 g stops 1 in v / mu g."""
    arc = jax.jit(
        lambda v, y: hj.flow_to_guard(
            BLOCK, "S+", 0.0, jnp.stack([0 * v, y, v, 0 * v]), params(), integrator=BOSH, throw=False
        )
    )
    fine = arc(jnp.array(1.0), jnp.array(0.0))
    assert_allclose(fine.t, 1 / (KINETIC * GRAVITY), rtol=1e-13)
    assert fine.result == FINE
    for v, y in ((-1.0, 0.0), (1.0, 0.5)):
        wrong = arc(jnp.array(v), jnp.array(y))
        assert wrong.result == OUTSIDE
        assert np.isnan(wrong.t) and np.all(np.isnan(wrong.x)) and wrong.transition == -1
        assert jax.grad(lambda v, y=y: arc(v, jnp.array(y)).t)(jnp.array(v)) == 0


def test_a_force_that_does_not_exist_is_not_finite():
    """Painlevé's paradox is not refused as outside the domain: the law of friction has no solution, and the run says so."""
    # A push turns this body such that friction of a backward slip closes the gap: 1 - mu 0.9 < 0.
    leaning = Mechanism(lambda q, p: jnp.array([[1.0, 0.9], [0.9, 1.0]]), push)
    rod = contact_system(leaning, Contact(**FLOOR, static=2.0, kinetic=2.0), ("x", "y"))
    back = jnp.array([0.0, 0.0, -1.0, 0.0])
    assert np.isnan(rod.modes["S-"].vector_field(jnp.zeros(()), back, params())[3])
    assert admitted(rod, "S-", back, params())
    # Without force it would close; under a lift beyond the weight it opens, as a contact by name does.
    with pytest.raises(ValueError, match=r"the contact: the laws of contact have no solution.* Painlevé"):
        start(rod, back, params())
    named = contact_system(leaning, {"foot": Contact(**FLOOR, static=2.0, kinetic=2.0)}, ("x", "y"))
    for system, found in ((rod, "V"), (named, "foot:open")):
        mode, begun = start(system, back, params(lift=2 * GRAVITY))
        assert found == (mode if mode == "V" else set_name(system, begun))


def test_a_further_domain_stays():
    """Which is asked for beside the contact, as the edge of a table."""
    edge = contact_system(POINT, Contact(FLOOR["gap"]), ("x", "y"), domain=lambda t, x, p: 1 - x[0])
    domain = edge.modes["S"].domain
    assert domain is not None
    assert domain(jnp.zeros(()), jnp.array([0.25, 0.0, 0.0, 0.0]), params()) == 0.75


# The mode to which each state of STARTS belongs, where that is not the one asked for; or the reason why there is none.
MOVED = {
    "sticks beyond the limit": "S+",
    "sticks beyond the other limit": "S-",
    "sticks beyond the limit by a millionth": "S+",
    "sticks and slips": "S+",
    "sticks in the air": "U",
    "sticks below the floor": "the gap is negative",
    "sticks and rises": "V",
    "sticks and is lifted": "V",
    "slides forward, slipping backward": "S-",
    "slides backward, slipping forward": "S+",
    "slides from rest, where friction holds": "C",
    "slides from rest, pushed the other way": "S-",
    "slides in the air": "U",
    "slides and falls": "an impact is due",
    "slides and is lifted": "V",
    "slides and is lifted by a push": "V",
    "glides in the air": "U",
    "glides and is lifted": "V",
    "a rough foot slips": "have no solution",
    "stands and slips": "have no solution",
    "leans and is pulled away": "floor:open+wall:open",
    "leans without a wall": "floor:open+wall:open",
    "leaves the wall": "floor:open+wall:open",
}


@pytest.mark.parametrize("name", STARTS)
def test_the_mode_of_a_state(name):
    """Which admits it; a start in that mode runs."""
    system, mode, x, p, fits = STARTS[name]
    expected = MOVED.get(name, mode) if fits else MOVED[name]
    x = jnp.asarray(x, float)
    if not expected.startswith("floor:") and expected not in system.names:
        with pytest.raises(ValueError, match=expected):
            start(system, x, params(**p))
        return
    found, begun = start(system, x, params(**p))
    found = set_name(system, begun) if found == "contacts" else found
    assert found == expected
    if found not in ("U", "V"):
        assert admitted(system, found, x, params(**p))


@pytest.mark.medium
@pytest.mark.parametrize("push, named", [(0.1, False), (-0.1, False), (0.1, True)])
def test_without_friction_what_rests_is_pushed(push, named):
    """By a force that grows from zero, p t: the speed p t^2 / 2. Both modes of slip admit the start; that of rest does not."""
    body = Mechanism(lambda q, p: jnp.eye(2), lambda t, q, v, p: jnp.stack([p * t, 0 * t - 9.81]))
    ground = Contact(lambda t, q, p: q[1], lambda t, q, v, p: v[0], static=lambda p: 0 * p, kinetic=lambda p: 0 * p)
    system = contact_system(body, {"ground": ground} if named else ground, ("x", "y"))
    mode, x = start(system, jnp.zeros(4), jnp.array(push))
    assert mode == ("contacts" if named else "S+")
    mode = "S-" if push < 0 else mode
    end = hj.simulate(system, x, jnp.array(push), mode=mode, t1=3.0, max_jumps=4)
    assert_allclose(end.x[:4], [push * 27 / 6, 0, push * 9 / 2, 0], rtol=1e-7, atol=1e-15)
    mode, x = ("contacts", x.at[-1].set(1)) if named else ("C", x)
    stuck = hj.simulate(system, x, jnp.array(push), mode=mode, t1=3.0, max_jumps=4, throw=False)
    assert str(stuck.result) == "outside_domain"


def test_the_mode_of_what_is_no_contact():
    with pytest.raises(ValueError, match="no modes of contact"):
        start(hj.HybridSystem({"a": hj.Mode(lambda t, x, p: x, ("x",))}, ()), jnp.zeros(1), None)
    with pytest.raises(ValueError, match=r"of shape \(4,\)"):
        start(SMOOTH, jnp.zeros(2), params())
    with pytest.raises(ValueError, match="outside of jit and vmap"):
        jax.jit(lambda x: start(SMOOTH, x, params())[1])(jnp.zeros(4))
    with pytest.raises(ValueError, match="must be finite"):
        start(SMOOTH, jnp.full(4, jnp.nan), params())


@pytest.mark.medium
@pytest.mark.parametrize("system", [SMOOTH, WALLS], ids=["one contact", "contacts by name"])
def test_a_kick_off_a_contact(system):
    """A clock changes no mode, nor the set of contacts: a kick upwards is refused, and one along the floor is not."""
    kicked = lambda k: hj.every(1.0, lambda t, x, p: x.at[k].add(0.5))
    mode, x = start(system, jnp.zeros(4), params())
    for k, code in ((3, OUTSIDE), (2, FINE if system is SMOOTH else OUTSIDE)):
        kicks = hj.HybridSystem(system.modes, (*system.transitions, kicked(k)))
        run = hj.simulate(kicks, x, params(), mode=mode, t1=1.5, max_jumps=3, integrator=BOSH, throw=False)
        way = 0.25 if code == FINE else 0
        assert run.result == code
        assert_allclose(run.final[:2], [way, 0], rtol=0, atol=1e-12)
