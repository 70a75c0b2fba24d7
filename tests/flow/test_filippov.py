"""Filippov systems: crossing, sliding, leaving, and where the solution is not unique."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj


def ran(system, x0, t1, params=None, mode="+", max_jumps=6, **options):
    x0 = jnp.array(x0)
    return hj.simulate(system, x0, params, mode=mode, t1=t1, max_jumps=max_jumps, integrator=ROLLED, **options)


# Reference `relay_double_integrator_c0.3`: x' = y, y' = -sgn(x + c y).
RELAY = hj.filippov(
    {1: lambda t, x, p: jnp.stack([x[1], -jnp.ones(())]), -1: lambda t, x, p: jnp.stack([x[1], jnp.ones(())])},
    lambda t, x, p: x[0] + p * x[1],
    ("x", "y"),
)
C = jnp.array(0.3)


@pytest.fixture(scope="module")
def relay():
    return ran(RELAY, [1.0, 0.0], 8.0, C)


@pytest.mark.medium
def test_a_relay_crosses_twice_and_slides(relay):
    """Closed form, in 24 digits. The last arc, along which y falls by exp(-t/c), at the default tolerance."""
    assert relay.result == hj.RESULTS.successful and relay.mode_names == ("+", "-", "+", "0")
    exact = [1.145683229480096030348813, 2.837049688440288091046439, 3.328416147400480151744065]
    assert_allclose(relay.end_times[:3], exact, rtol=0, atol=1e-13)
    states = [
        [0.3437049688440288091046439, -1.145683229480096030348813],
        [-0.1637049688440288091046439, 0.5456832294800960303488129],
        [-0.01629503115597119089535612, 0.05431677051990396965118705],
    ]
    assert_allclose(relay.x_ends[:3], states, rtol=0, atol=1e-13)
    assert_allclose(relay.final, [-2.813486908884784449e-9, 9.378289696282614830e-9], rtol=0, atol=1e-13)


@pytest.mark.medium
def test_sliding_loses_a_direction(relay):
    """The Jacobian of the end by the start, of rank 1: by saltation matrices and by automatic differentiation."""
    exact = [[3.393764929056769e-9, -9.378289696282615e-9], [-1.131254976352256e-8, 3.126096565427538e-8]]
    found = relay.fundamental_matrix()
    assert_allclose(found, exact, rtol=0, atol=1e-13)
    through = jax.jacfwd(lambda x: ran(RELAY, x, 8.0, C).x)(jnp.array([1.0, 0.0]))
    assert_allclose(through, found, rtol=0, atol=1e-14)
    # Just after sliding began, of size one.
    early = ran(RELAY, [1.0, 0.0], 3.4, C).fundamental_matrix()
    assert abs(np.linalg.det(early)) < 1e-12 and np.max(np.abs(early)) > 0.1


@pytest.mark.medium
def test_leaving_the_surface():
    """Reference `exit_from_sliding_exact`: x' = 1; y' = -1 above, 2 - x below: slides from x = 1 to 2, and leaves below."""
    system = hj.filippov(
        {1: lambda t, x, p: jnp.array([1.0, -1.0]), -1: lambda t, x, p: jnp.stack([jnp.ones(()), 2 - x[0]])},
        lambda t, x, p: x[1],
        ("x", "y"),
    )
    run = ran(system, [0.0, 1.0], 3.0)
    assert run.mode_names == ("+", "0", "-")
    assert_allclose(run.end_times[:2], [1.0, 2.0], rtol=0, atol=1e-13)
    assert_allclose(run.final, [3.0, -0.5], rtol=0, atol=1e-12)
    assert_allclose(run.fundamental_matrix(), [[1.0, 0.0], [-1.0, 0.0]], rtol=0, atol=1e-12)


def test_a_family_of_cycles():
    """Reference `relay_family`: for c = 0 every orbit through (A, 0) closes after 4 sqrt(2A), A = 0.7. It crosses and never
    slides; the multipliers are 1 and 1, in a Jordan block with the change of the period, 2 sqrt(2/A)."""
    a, period = 0.7, 4.732863826479692834053863
    run = ran(RELAY, [a, 0.0], period, jnp.array(0.0))
    assert run.mode_names == ("+", "-", "+")
    assert_allclose(run.final, [a, 0.0], rtol=0, atol=1e-13)
    assert_allclose(run.fundamental_matrix(), [[1, 0], [2 * np.sqrt(2 / a), 1]], rtol=0, atol=1e-12)


def belt(t, x, p):
    return x[1] - p["belt"]


# Reference `belt_stick_slip_F1.0_d0.1_v0.2`.
BLOCK = hj.filippov(
    {
        1: lambda t, x, p: jnp.stack([x[1], -x[0] - p["most"] + p["fall"] * (x[1] - p["belt"])]),
        -1: lambda t, x, p: jnp.stack([x[1], -x[0] + p["most"] - p["fall"] * (p["belt"] - x[1])]),
    },
    belt,
    ("x", "v"),
)
FRICTION = {"most": jnp.array(1.0), "fall": jnp.array(0.1), "belt": jnp.array(0.2)}


@pytest.mark.medium
def test_stick_and_slip():
    """Period, durations, and where it sticks, in closed form; both multipliers are 0."""
    step = hj.ReturnMap(BLOCK, sequence=("-", "0"), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.array([0.98, 0.2]), FRICTION)
    assert_allclose(orbit.period, 6.439474890105244418580251, rtol=0, atol=1e-12)
    assert_allclose(orbit.jump_times[0, 0], 5.528804899215224364044008, rtol=0, atol=1e-12)
    assert_allclose(orbit.arc_ends[0][0], [0.8178660018219959890927513, 0.2], rtol=0, atol=1e-12)
    assert_allclose(orbit.x, [1.0, 0.2], rtol=0, atol=1e-12)
    assert np.max(np.abs(orbit.multipliers)) < 1e-11


@pytest.mark.parametrize("mode", ["+", "0", "-"])
def test_where_both_fields_lead_away(mode):
    """Reference `not_unique`: three solutions at least begin at the origin."""
    apart = hj.filippov(
        {1: lambda t, x, p: jnp.array([1.0, 1.0]), -1: lambda t, x, p: jnp.array([1.0, -1.0])},
        lambda t, x, p: x[1],
        ("x", "y"),
    )
    assert ran(apart, [0.0, 0.0], 1.0, mode=mode, throw=False).result == hj.RESULTS.not_unique
    if mode == "+":
        off = ran(apart, [0.0, 1e-6], 1.0)
        assert off.result == hj.RESULTS.successful and off.final[1] > 1


def test_starts_on_the_wrong_side_are_refused():
    assert ran(RELAY, [-1.0, 0.0], 1.0, C, throw=False).result == hj.RESULTS.outside_domain
    # Sliding, but off the surface.
    assert ran(RELAY, [0.01, 0.0], 1.0, C, mode="0", throw=False).result == hj.RESULTS.outside_domain
    # On the surface, but both fields lead the same way.
    assert ran(RELAY, [0.3, -1.0], 1.0, C, mode="0", throw=False).result == hj.RESULTS.outside_domain


def test_resets_where_sliding_begins_and_ends():
    """A third coordinate counts: 1 where sliding begins, 10 where it ends."""
    count = lambda by: lambda t, x, p: x + jnp.array([0.0, 0.0, by])
    system = hj.filippov(
        {
            1: lambda t, x, p: jnp.array([1.0, -1.0, 0.0]),
            -1: lambda t, x, p: jnp.stack([1.0 + 0 * x[0], 2 - x[0], 0 * x[0]]),
        },
        lambda t, x, p: x[1],
        ("x", "y", "n"),
        enter=count(1.0),
        leave=count(10.0),
    )
    run = ran(system, [0.0, 1.0, 0.0], 3.0)
    assert run.x_starts[1:3, 2].tolist() == [1.0, 11.0]


def crossed(of_side) -> hj.HybridSystem:
    """Of two surfaces, x = 0 and y = 0, with the field `of_side(i, j)(t, x, p)` for the signs i, j."""
    sides = {(i, j): of_side(i, j) for i in (1, -1) for j in (1, -1)}
    return hj.filippov(sides, (lambda t, x, p: x[0], lambda t, x, p: x[1]), ("x", "y", "z"))


@pytest.mark.medium
def test_sliding_along_two_surfaces():
    """Reference `two_surfaces_a0.5`: x' = a - sgn x, y' = b - sgn y, z' = sgn x + 2 sgn y; first along x = 0, then along both."""
    system = crossed(lambda i, j: lambda t, x, p: jnp.array([0.5 - i, 0.3 - j, i + 2.0 * j]))
    run = ran(system, [1.0, 2.0, 0.0], 5.0, mode="++")
    assert run.mode_names == ("++", "0+", "00")
    assert_allclose(run.end_times[:2], [2.0, 20 / 7], rtol=0, atol=1e-13)
    assert_allclose(run.x_ends[:2, 2], [6.0, 57 / 7], rtol=0, atol=1e-12)
    assert_allclose(run.final, [0.0, 0.0, 10.5], rtol=0, atol=1e-12)
    assert_allclose(run.fundamental_matrix(), [[0, 0, 0], [0, 0, 0], [1, 2, 1]], rtol=0, atol=1e-11)


@pytest.mark.medium
def test_a_spiral_into_the_intersection():
    """Reference `spiral_two_surfaces_p2.0`: x' = -sgn x + p sgn y, y' = -sgn y - p sgn x: through the four sides, each quarter a
    third of the one before, into the origin at t = 1/2."""
    system = crossed(lambda i, j: lambda t, x, p: jnp.array([-i + 2.0 * j, -j - 2.0 * i, 0.0]))
    run = ran(system, [1.0, 0.0, 0.0], 1.0, mode="+-", max_jumps=60, throw=False)
    assert run.mode_names[:5] == ("+-", "--", "-+", "++", "+-") and run.result == hj.RESULTS.zeno
    assert_allclose(run.end_times[:6], (1 - 3.0 ** -np.arange(1, 7)) / 2, rtol=0, atol=1e-14)
    assert_allclose(run.t, 0.5, rtol=0, atol=1e-13)
    rest = ran(system, [0.0, 0.0, 0.0], 1.0, mode="00")
    assert rest.result == hj.RESULTS.successful and np.max(np.abs(rest.final)) < 1e-14


@pytest.mark.medium
def test_off_the_intersection_along_one_surface():
    """z' = 1 turns the pull onto y = 0 into a push: the flow slides along both until z = 1, then along x = 0, y' = z - 1."""
    system = crossed(lambda i, j: lambda t, x, p: jnp.stack([0.5 - i + 0 * x[0], x[2] - j, jnp.ones(())]))
    run = ran(system, [0.0, 0.0, 0.0], 2.0, mode="00")
    assert run.mode_names == ("00", "0+")
    assert_allclose(run.end_times[0], 1.0, rtol=0, atol=1e-13)
    assert_allclose(run.final, [0.0, 0.5, 2.0], rtol=0, atol=1e-12)


@pytest.mark.medium
def test_where_no_weights_hold_the_flow():
    """The rates are b - a and ab - (a + b)/2 + 1/4 - d of the weights a, b: zero at a = b = 1/2 + sqrt(d) or 1/2 - sqrt(d), with
    d = (1 - z)/10 and z' = 1, and nowhere for z > 1."""

    def of_side(i, j):
        a, b = (i + 1) / 2, (j + 1) / 2
        return lambda t, x, p: jnp.stack([b - a + 0 * x[0], a * b - (a + b) / 2 + 0.25 - (1 - x[2]) / 10, jnp.ones(())])

    system = crossed(of_side)
    run = ran(system, [0.0, 0.0, 0.0], 3.0, mode="00", throw=False)
    assert run.result == hj.RESULTS.outside_domain and run.mode_names == ("00",)
    # Limits are moved outwards by rounding and eight times the tolerance, 1e-14 (1 + |x|) of each coordinate.
    assert_allclose(run.t, 1.0, rtol=0, atol=1e-12)
    alone = hj.flow_to_guard(system, "00", 0.0, jnp.zeros(3), None, integrator=ROLLED, throw=False)
    assert alone.result == hj.RESULTS.outside_domain
    early = ran(system, [0.0, 0.0, 0.0], 0.9, mode="00")
    assert early.result == hj.RESULTS.successful
    assert_allclose(early.final, [0.0, 0.0, 0.9], rtol=0, atol=1e-14)
    assert ran(system, [0.0, 0.0, 1.1], 2.0, mode="00", throw=False).result == hj.RESULTS.outside_domain


@pytest.mark.medium
def test_resets_from_one_surface_to_the_other():
    """Along x = 0 to y = 0, there led off x = 0 to x > 0, along y = 0: sliding along one ends and along the other begins."""
    fields = {(1, 1): [-0.5, -1.0, 0.0], (-1, 1): [1.0, -1.0, 0.0], (1, -1): [1.0, 1.0, 0.0], (-1, -1): [1.0, 1.0, 0.0]}
    begins, ends = (lambda t, x, p: x * jnp.array([1.0, 1.0, 2.0])), (lambda t, x, p: x + jnp.array([0.0, 0.0, 1.0]))
    system = hj.filippov(
        {key: lambda t, x, p, rate=rate: jnp.array(rate) for key, rate in fields.items()},
        (lambda t, x, p: x[0], lambda t, x, p: x[1]),
        ("x", "y", "n"),
        enter=begins,
        leave=ends,
    )
    run = ran(system, [0.3, 1.0, 3.0], 3.0, mode="++")
    assert run.mode_names == ("++", "0+", "+0")
    # 2 * 3, then 2 (6 + 1): it ends before it begins.
    assert run.x_starts[1:3, 2].tolist() == [6.0, 14.0]
    assert_allclose(run.final, [0.5, 0.0, 14.0], rtol=0, atol=1e-13)


def test_fields_must_be_of_all_signs():
    with pytest.raises(ValueError, match=r"of the keys \(1, 1\)"):
        hj.filippov({1: lambda t, x, p: x}, (lambda t, x, p: x[0], lambda t, x, p: x[1]), ("x", "y"))
    with pytest.raises(ValueError, match="fields must be"):
        hj.filippov({1: lambda t, x, p: x}, lambda t, x, p: x[0], ("x",))


def test_pushes_are_led_back_onto_all_surfaces_of_a_mode():
    """As by the definition, I - J (NJ)^-1 N, of constant fields."""
    random = np.random.default_rng(0)
    normals = np.array([[1.0, 0.3, 0.2], [-0.2, 1.0, 0.5]])
    fields = {
        (a, b): np.linalg.pinv(normals) @ (-np.array([a, b]) + 0.2 * random.normal(size=2)) + [0, 0, random.normal()]
        for a in (1, -1) for b in (1, -1)
    }  # fmt: skip
    held = lambda key: lambda t, x, p: jnp.asarray(fields[key]) + 0 * x
    system = hj.filippov(
        {key: held(key) for key in fields}, tuple(lambda t, x, p, n=n: n @ x for n in normals), tuple("xyz")
    )
    at = lambda mode: np.asarray(system.mode(mode).domain.led_back(jnp.array(0.0), jnp.zeros(3), None))
    across = np.array([fields[1, 1] - fields[-1, 1], fields[1, 1] - fields[1, -1]])
    for mode, k in (("0+", 0), ("+0", 1)):
        assert_allclose(at(mode), np.eye(3) - np.outer(across[k], normals[k]) / (normals[k] @ across[k]), atol=1e-15)
    assert_allclose(at("++"), np.eye(3))
    # The weights of the positive sides: those that hold the flow.
    corners = np.array([[fields[a, b] for b in (-1, 1)] for a in (-1, 1)])
    flow = lambda w: np.einsum("i,j,ijk", [1 - w[0], w[0]], [1 - w[1], w[1]], corners)
    w = scipy.optimize.fsolve(lambda w: normals @ flow(w), [0.5, 0.5], xtol=1e-14)
    # The flow is linear in each weight.
    jumps = np.stack([flow([1, w[1]]) - flow([0, w[1]]), flow([w[0], 1]) - flow([w[0], 0])], axis=1)
    assert_allclose(at("00"), np.eye(3) - jumps @ np.linalg.solve(normals @ jumps, normals), atol=1e-12)
    assert_allclose(normals @ at("00"), 0, atol=1e-14)


def toggled(leads):
    """x follows r, at the rate 1, to which a clock gives the other sign, and `leads` to the mode of the side."""
    follow = lambda rate: lambda t, x, p: jnp.array([rate])
    fields, reference = {1: follow(-1.0), -1: follow(1.0)}, lambda t, x, p: x[0] - x[1]
    slides = hj.filippov(fields, reference, ("x",), held=("r",))
    turn = lambda t, x, p: x.at[1].multiply(-1)
    to = lambda target, way: hj.every(2.0, turn, source="0", target=target, armed=lambda t, x, p: way * x[1] > 0)
    own = [to("+", 1), to("-", -1)] if leads else [hj.every(2.0, turn)]
    return hj.HybridSystem(slides.modes, (*slides.transitions, *own))


@pytest.mark.medium
def test_a_jump_off_the_surface():
    """A jump of one's own that leads off the surface is refused in the mode that slides; one to the mode of the side goes on: the
    surface is met |r| later, and 2|r| after each tick."""
    off = ran(toggled(False), [0.0, 0.5], 5.0, mode="-", throw=False)
    assert off.result == hj.RESULTS.outside_domain
    assert_allclose([off.t, *off.final], [2, 0.5, 0.5], rtol=0, atol=1e-14)
    on = ran(toggled(True), [0.0, 0.5], 5.5, mode="-")
    assert on.mode_names == ("-", "0", "+", "0", "-", "0")
    assert_allclose(on.end_times[: on.jumps], [0.5, 2, 3, 4, 5], rtol=0, atol=1e-14)
    assert on.system.mode("0").held == ("r",)
    # Both are 1/2 again after two turns.
    slope = jax.jacfwd(lambda r: ran(toggled(True), jnp.stack([0.0 * r, r]), 5.5, mode="-").x)(jnp.array(0.5))
    assert_allclose(slope, [1, 1], rtol=0, atol=1e-14)


@pytest.mark.medium
def test_a_clock_after_a_long_slide(recwarn):
    """Round the unit circle, from which the flow drifts by more than the errors of a step: a jump that changes nothing goes on,
    and the end of a run is a start of the next. Of a tick that is yet to come nobody is warned."""
    turn, circle = (lambda x: jnp.stack([-x[1], x[0]])), lambda t, x, p: x @ x - 1
    wheel = hj.filippov({1: lambda t, x, p: turn(x) - x, -1: lambda t, x, p: turn(x) + x}, circle, ("x", "y"))
    ticks = hj.HybridSystem(wheel.modes, (*wheel.transitions, hj.every(400.0, lambda t, x, p: x, phase=300.0)))
    loose = hj.Integrator(solver=dfx.Tsit5(), rtol=1e-8, atol=1e-8)
    run = hj.simulate(ticks, jnp.array([1.0, 0.0]), None, mode="0", t1=310.0, max_jumps=2, integrator=loose)
    assert run.jumps == 1 and 5e-7 < abs(run.x_ends[0] @ run.x_ends[0] - 1) < 5e-6
    onwards = hj.simulate(ticks, run.final, None, mode="0", t0=310.0, t1=320.0, max_jumps=2, integrator=loose)
    assert_allclose(onwards.final, [np.cos(320), np.sin(320)], atol=3e-6)
    assert not recwarn.list
