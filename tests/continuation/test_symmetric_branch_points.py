"""Branch points at which several multipliers are 1 at once, in closed form: equal maps beside each other, once a year; and where
events in step part."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from systems import falling_drops

import hyjax as hj


def equal_maps(count: int, each, r=0.8) -> hj.PeriodicOrbit:
    """The orbit at zero of `count` maps x -> each(x, r), at r = 0.8."""
    names = tuple(f"x{k}" for k in range(count))
    year = hj.Mode(lambda t, x, r: jnp.append(0 * x[:-1], jnp.ones_like(x[0])), (*names, "clock"))
    ends = hj.Transition(
        "year", "year", lambda t, x, r: 1 - x[-1], lambda t, x, r: jnp.append(each(x[:-1], r), 0 * x[0])
    )
    step = hj.ReturnMap(hj.HybridSystem({"year": year}, (ends,)), sequence=("year",))
    return hj.periodic_orbit(step, jnp.zeros(count + 1), jnp.array(r))


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.medium), pytest.param(3, marks=pytest.mark.slow)])
def test_pitchforks_of_equal_maps(count):
    """x -> r x - x^3: at r = 1 every combination of 0 and +-sqrt(r - 1) leaves, (3^n - 1) / 2 branches. Of these the ones without
    a zero are stable, as 2 (1 - r) + 1 < 1 where a coordinate has moved, and r > 1 where not."""
    branch = hj.continuation(equal_maps(count, lambda x, r: r * x - x**3), where=lambda r: r, stop=1.2)
    (point,) = branch.special_points
    # All as one map to a few roundings.
    assert point.kind == "branch-point" and abs(point.value - 1) < 1e-12 and len(point.kernel) == count + 1
    assert branch.unresolved == ()
    found = set()
    for k in range(len(point.daughters)):
        daughter = hj.switch_branch(point, stop=1.1, daughter=k)
        x = np.asarray(daughter.x[-1][:-1])
        signs = np.rint(x / np.sqrt(0.1)).astype(int)
        assert_allclose(x, signs * np.sqrt(0.1), atol=1e-12)
        assert bool(daughter.stable[-1]) == bool(np.all(signs != 0))
        found.add(tuple((signs * signs[np.flatnonzero(signs)[0]]).tolist()))
    assert len(found) == len(point.daughters) == (3**count - 1) // 2
    if count == 2:
        check_isotropies(point)


def check_isotropies(point):
    """Of x0, x1 and both, which leave with either sign: by the exchange of both, and by the change of sign of one."""
    exchange, turn = jnp.eye(3)[jnp.array([1, 0, 2])], jnp.diag(jnp.array([1.0, -1.0, 1.0]))
    kind = lambda k: tuple(np.rint(point.daughters[k, :2] / np.max(np.abs(point.daughters[k, :2]))).astype(int))
    alike = {(1, 1): (1, 1), (-1, -1): (1, 1), (1, -1): (1, -1), (-1, 1): (1, -1)}
    found = {alike.get(kind(k), "alone"): kept for k, kept in point.isotropies({"exchange": exchange}).items()}
    assert found == {"alone": (), (1, 1): ("exchange",), (1, -1): ()}
    assert point.isotropies() == {
        k: ("0 <> 1",) * len(kept) for k, kept in point.isotropies({"exchange": exchange}).items()
    }
    # One of the two that move alone, and of the two that move together.
    found = point.isotropies({"exchange": exchange, "turn": turn})
    words = {np.count_nonzero(kind(k)): kept for k, kept in found.items()}
    assert len(found) == len(words) == 2
    assert [len(words[1]), len(words[2])] == [1, 1] and words[2][0] in ("exchange", "turn * exchange * turn")
    assert point.isotropies({}) == dict.fromkeys(range(4), ())
    with pytest.raises(ValueError, match="'shear' must be a matrix of shape"):
        point.isotropies({"shear": jnp.eye(3).at[0, 2].set(1.0)})
    # A third of a turn commutes with the Jacobian, which is that of both alike, but not with the map.
    cosine, sine = -0.5, np.sqrt(0.75)
    with pytest.raises(ValueError, match="to none of the daughters"):
        point.isotropies({"third": np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])})
    tilt = np.array([[0.6, -0.8, 0], [0.8, 0.6, 0], [0, 0, 1]])
    with pytest.raises(ValueError, match="tilt must generate a group of at most 1000"):
        point.isotropies({"tilt": tilt})


@pytest.mark.medium
def test_crossings_of_equal_maps():
    """x -> r x - x^2: x = r - 1 in one coordinate or in both, three branches; on either side of the point."""
    branch = hj.continuation(equal_maps(2, lambda x, r: r * x - x**2), where=lambda r: r, stop=1.2)
    (point,) = branch.special_points
    assert len(point.daughters) == 3
    found = set()
    for k in range(3):
        daughter = hj.switch_branch(point, stop=(0.9, 1.1), daughter=k)
        assert_allclose([min(daughter.values), max(daughter.values)], [0.9, 1.1], rtol=1e-12)
        moved = np.rint(daughter.x[np.argmax(daughter.values)][:-1] / 0.1).astype(int)
        assert_allclose(daughter.x[:, :-1], moved * (daughter.values[:, None] - 1), atol=1e-12)
        found.add(tuple(moved.tolist()))
    assert found == {(0, 1), (1, 0), (1, 1)}
    with pytest.raises(ValueError, match="daughter=3 is not one of the 3"):
        hj.switch_branch(point, stop=1.1, daughter=3)


@pytest.mark.medium
def test_a_test_function_that_is_steep_within_a_step():
    """The multiplier 1 + 1e-3 tanh((r - 1.013) / 0.02): a step of the branch, 0.05, is no smooth polynomial of it."""
    orbit = equal_maps(1, lambda x, r: (1 + 1e-3 * jnp.tanh((r - 1.013) / 0.02)) * x - x**3, 0.5)
    branch = hj.continuation(orbit, where=lambda r: r, stop=1.5)
    (point,) = branch.special_points
    # Rounding over the slope of 0.05.
    assert abs(point.value - 1.013) < 1e-12 and branch.unresolved == ()


@pytest.mark.medium
def test_a_doubling_next_to_two_multipliers_1():
    """x -> r x - x^3 twice, and -(2.003 - r) z + z^3, which turns at r = 1.003."""
    signed = lambda x, r: jnp.array([1.0, 1.0, -1.0]) * (jnp.array([0, 0, 2.003]) + jnp.array([1.0, 1.0, -1.0]) * r) * x
    branch = hj.continuation(equal_maps(3, lambda x, r: signed(x, r) - x**3), where=lambda r: r, stop=1.3)
    assert [each.kind for each in branch.special_points] == ["branch-point", "period-doubling"]
    # Rounding over slopes of 1.
    assert_allclose([float(each.value) for each in branch.special_points], [1, 1.003], rtol=0, atol=1e-12)
    assert len(branch.special_points[0].kernel) == 3 and branch.unresolved == ()


@pytest.mark.medium
def test_two_multipliers_above_1_become_a_pair():
    """1.2 +- sqrt(1 - r), which pass no circle. The fixed point moves with r."""
    turn = lambda x, r: jnp.stack([1.2 * x[0] - (r - 1) * x[1] + 0.1 * (r - 0.99), x[0] + 1.2 * x[1]])
    branch = hj.continuation(equal_maps(2, turn, 0.99), where=lambda r: r, stop=1.02)
    assert branch.special_points == () and branch.unresolved == ()


@pytest.mark.medium
def test_two_multipliers_pass_1_in_opposite_directions():
    """r and 2 - r: the determinant, -(r - 1)^2, keeps its sign."""
    both = lambda x, r: jnp.stack([r * x[0], (2 - r) * x[1]]) - x**3
    branch = hj.continuation(equal_maps(2, both, 0.83), where=lambda r: r, stop=1.3)
    (point,) = branch.special_points
    # Rounding over slopes of 1.
    assert abs(point.value - 1) < 1e-12 and len(point.kernel) == 3 and branch.unresolved == ()


@pytest.mark.medium
def test_a_pair_that_crosses_the_circle_where_two_multipliers_pass_1():
    """x -> r x - x^3 twice, and a turn by 1 radian that grows by r."""
    turn = jnp.array([[np.cos(1.0), -np.sin(1.0)], [np.sin(1.0), np.cos(1.0)]])
    each = lambda x, r: jnp.concatenate([r * x[:2] - x[:2] ** 3, r * turn @ x[2:]])
    branch = hj.continuation(equal_maps(4, each), where=lambda r: r, stop=1.3)
    assert [point.kind for point in branch.special_points] == ["branch-point", "neimark-sacker"]
    # Rounding over slopes of 1.
    assert_allclose([float(point.value) for point in branch.special_points], 1, rtol=1e-12)
    assert_allclose(branch.special_points[1].multiplier, np.exp(1j), rtol=1e-12)
    assert len(branch.special_points[0].kernel) == 3 and branch.unresolved == ()


@pytest.mark.medium
def test_a_branch_point_at_the_end_of_a_branch():
    """x -> r x - x^2, up to r = 1."""
    (point,) = hj.continuation(
        equal_maps(1, lambda x, r: r * x - x**2, 0.5), where=lambda r: r, stop=1.0
    ).special_points
    assert point.kind == "branch-point" and abs(point.value - 1) < 1e-12


def drops(t, x, r):
    """The heights of two drops, from their mean and half of their difference."""
    return x[0] + jnp.array([1.0, -1.0]) * x[1]


def with_drops(x, heights):
    return x.at[:2].set(jnp.stack([heights[0] + heights[1], heights[0] - heights[1]]) / 2)


def fall(t, x, r, i):
    """A drop falls once a year, and the first of the two gains the square of the other's height."""
    heights, first = drops(t, x, r), x[4 - i] == 0
    return with_drops(x, heights.at[i].set(2 + jnp.where(first, heights[1 - i] ** 2, 0))).at[3 + i].set(1)


def end(t, x, r):
    rises = drops(t, x, r) - 1.5
    return with_drops(0 * x, 0.5 + r * rises - rises**3)


def of_drops(end):
    """The orbit at which both drops fall at one time, from the heights 1/2."""
    rates = lambda t, x, r: jnp.stack([-jnp.ones_like(x[0]), jnp.zeros_like(x[0]), jnp.ones_like(x[0])])
    mode = hj.Mode(rates, ("mean", "half_apart", "clock"), held=("left_fell", "right_fell"))
    ways = [hj.Transition(source, "falling", drops, fall) for source in ("new", "falling")]
    closing = hj.Transition("falling", "new", lambda t, x, r: 1 - x[2], end)
    year = hj.HybridSystem({"new": mode, "falling": mode}, (*ways, closing))
    step = hj.ReturnMap(year, sequence=("new[0]", "falling[1]", "falling"))
    return hj.periodic_orbit(step, jnp.array([0.5, 0.0, 0.0, 0.0, 0.0]), jnp.array(0.8))


@pytest.fixture(scope="module")
def parting():
    """Drops that fall at one time, at the heights 1/2; that which is lower by d gains d^2 each year, in which x -> r x - x^3."""
    branch = hj.continuation(of_drops(end), where=lambda r: r, stop=1.2)
    (point,) = branch.special_points
    assert branch.unresolved == ()
    return point


@pytest.mark.slow
def test_events_in_step_that_part(parting):
    """Both drops together leave as a pitchfork, r = 1 + x^2. One drop leaves alone: for x < 0, as the first, it gains x^2, so
    that r = (x + m^3) / m with m = x + x^2; for x > 0 it gains nothing, but then the other does. So each of the two is half a
    branch."""
    # Interpolation from points at which the kernel's part is known to rounding over their distance, a thousandth.
    assert abs(parting.value - 1) < 1e-12 and len(parting.kernel) == 3 and len(parting.daughters) == 3
    with pytest.raises(ValueError, match="events in step part"):
        _ = parting.normal_form
    # Both together are alike; of the two halves one stands for both.
    exchange = np.diag([1.0, -1.0, 1.0, 1.0, 1.0])[[0, 1, 2, 4, 3]]
    assert sorted(parting.isotropies({"exchange": exchange}).values()) == [(), ("exchange",)]
    firsts = []
    for k in range(3):
        daughter = hj.switch_branch(parting, stop=1.1, daughter=k)
        mean, half_apart = daughter.x[:, 0] - 0.5, daughter.x[:, 1]
        alone = abs(half_apart[-1]) > 1e-9
        # Of one that moves alone.
        x = 2 * mean if alone else mean
        m = x + x**2 if alone else x
        # A few roundings, over the smallest amplitude of 1e-2.
        assert_allclose(daughter.values, (x + m**3) / m, rtol=1e-12)
        # Rounding of a year, in units of order 1, over 1 less the multiplier of a difference, 2 x^2 where both move.
        assert np.all(np.abs(np.abs(half_apart) - (np.abs(mean) if alone else 0)) < 1e-13 / x**2)
        assert not alone or np.all(x < 0)
        firsts += [(daughter.orbits.sequence[0], np.sign(half_apart[-1]))] * bool(alone)
    # The drop that falls first is the lower one.
    assert sorted(firsts) == [("new[0]", -1), ("new[1]", 1)]


@pytest.mark.medium
def test_half_strides_of_two_legs():
    """A stride of a left and a right step, each x -> r x (1 - x), and the step whose reset exchanges the names of the legs: equal
    steps are a fixed point of both. The doubling of the step, at r = 3, is the branch point of the stride; its multiplier is the
    square. Beyond, one leg takes short steps and the other one long ones."""
    stance = hj.Mode(lambda t, x, r: jnp.stack([0 * x[0], jnp.ones_like(x[1])]), ("x", "clock"))
    guard, step = lambda t, x, r: 1 - x[1], lambda t, x, r: jnp.stack([r * x[0] * (1 - x[0]), 0 * x[1]])
    names = hj.HybridSystem(
        {"left": stance, "right": stance},
        (hj.Transition("left", "right", guard, step), hj.Transition("right", "left", guard, step)),
    )
    half = hj.HybridSystem({"stance": stance}, (hj.Transition("stance", "stance", guard, step),))
    points = []
    for system, sequence in ((names, ("left", "right")), (half, ("stance",))):
        orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=sequence), jnp.array([0.65, 0.0]), jnp.array(2.9))
        branch = hj.continuation(orbit, where=lambda r: r, stop=3.2)
        points.append(next(each for each in branch.special_points if abs(each.value - 3) < 0.1))
    assert [point.kind for point in points] == ["branch-point", "period-doubling"]
    assert_allclose([float(point.value) for point in points], 3, rtol=1e-12)
    unequal, doubled = (hj.switch_branch(point, stop=3.2) for point in points)
    assert_allclose(np.sort(unequal.orbit(-1).arc_ends[1][0, :1]), np.min(doubled.orbits.nodes[-1, :, 0]), rtol=1e-11)


def turn(t, x, r):
    mean, half = jnp.array([[0.5, 0.5], [0.5, -0.5]]) @ (drops(t, x, r) - 1.5)
    return with_drops(0 * x, 0.5 + 0.5 * mean + jnp.array([1.0, -1.0]) * (half**3 - r * half))


@pytest.mark.slow
def test_a_doubling_at_which_events_in_step_part():
    """The drops change places each year: d -> e^3 - r e with e = d - 2 d |d|, as the lower drop gains. So r = (d + e^3) / e of
    the doubled orbits, in which the other drop falls first every second year."""
    branch = hj.continuation(of_drops(turn), where=lambda r: r, stop=1.2)
    (point,) = branch.special_points
    # Rounding over a slope of 1.
    assert point.kind == "period-doubling" and abs(point.value - 1) < 1e-12 and branch.unresolved == ()
    doubled = hj.switch_branch(point, stop=1.1)
    assert doubled.orbits.sequence == ("new[0]", "falling[1]", "falling", "new[1]", "falling[0]", "falling")
    d = np.abs(doubled.x[:, 1])
    e = d - 2 * d**2
    # A few roundings, over the smallest amplitude of 1e-2.
    assert_allclose(doubled.values, (d + e**3) / e, rtol=1e-12)
    assert doubled.stable.all() and np.all(np.diff(d) > 0)


@pytest.mark.slow
def test_drops_with_transitions_of_their_own():
    """x -> r x - x^3 for each drop, where the order in which they fall is one of modes: each of the drops alone, both, or one up
    and the other down, on either side; of the last three pairs each half has an order of its own."""
    step = hj.ReturnMap(falling_drops(), sequence=("new", "left_fallen", "both"))
    params = {"r": jnp.array(0.8), "other": jnp.array(0.0), "floor": jnp.array(0.0)}
    orbit = hj.periodic_orbit(step, jnp.array([0.5, 0.5, 0.0]), params)
    (point,) = hj.continuation(orbit, where=lambda p: p["r"], stop=1.2).special_points
    assert abs(point.value - 1) < 1e-12 and len(point.kernel) == 3 and len(point.daughters) == 7
    assert sorted(point.isotropies().values()) == [(), (), (), ("left <> right",)]
    found = set()
    for k in range(7):
        daughter = hj.switch_branch(point, stop=1.1, daughter=k)
        x = daughter.x[-1][:2] - 0.5
        signs = np.rint(x / np.sqrt(0.1)).astype(int)
        # Rounding of a year over 1 less the multiplier, 0.2.
        assert_allclose(x, signs * np.sqrt(0.1), atol=1e-12)
        assert daughter.orbits.sequence[1] == ("right_fallen" if signs[0] > signs[1] else "left_fallen")
        found.add(tuple(signs.tolist()))
    assert len(found) == 7 and len({*found} & {(1, 1), (-1, -1)}) == 1


def hexagon(bent: float, stretch: float = 1.0):
    """z -> z (r - |z|^2) + bent conj(z)^5 of z = x0 + i stretch x1."""

    def each(x, r):
        a, b = x[0], stretch * x[1]
        fifth = jnp.stack([a**5 - 10 * a**3 * b**2 + 5 * a * b**4, -5 * a**4 * b + 10 * a**2 * b**3 - b**5])
        return (r - a**2 - b**2) * x + bent * fifth / jnp.array([1, stretch])

    branch = hj.continuation(equal_maps(2, each), where=lambda r: r, stop=1.2)
    (point,) = branch.special_points
    assert point.kind == "branch-point" and abs(point.value - 1) < 1e-12 and len(point.kernel) == 3
    return branch, point


@pytest.mark.slow
@pytest.mark.parametrize("bent", [0.3, 0.02])
def test_directions_that_the_third_order_leaves_alike(bent):
    """In polar coordinates z = s exp(i a): r = 1 + s^2 - bent s^4 cos 6a, with sin 6a = 0, six axes; the third order allows
    all."""
    _, point = hexagon(bent)
    angles = np.arctan2(point.daughters[:, 1], point.daughters[:, 0]) % np.pi
    # Up to errors of a hundredth, by which directions count as determined.
    assert_allclose(np.sort((angles + 0.1) % np.pi), np.arange(6) * np.pi / 6 + 0.1, atol=0.02)
    for k in np.argsort(angles)[:2]:
        daughter = hj.switch_branch(point, stop=1.1, daughter=int(k))
        z = (daughter.x[:, 0] + 1j * daughter.x[:, 1])[daughter.values > 1.05]
        assert len(z) and np.max(np.abs(np.sin(6 * np.angle(z)))) < 1e-6
        assert_allclose(
            daughter.values[-1], 1 + abs(z[-1]) ** 2 - bent * (z[-1] ** 6).real / abs(z[-1]) ** 2, rtol=1e-12
        )


@pytest.mark.slow
def test_directions_that_no_order_tells_apart():
    """All directions are alike: that which the exchange of x0 and x1 keeps stands for them. Where the coordinates have different
    units there is no exchange, and no direction is given, but those that given symmetries keep."""
    _, point = hexagon(0.0)
    assert_allclose(np.abs(point.daughters[:, :2]), [[0.5**0.5] * 2], atol=1e-2)
    assert point.daughters[0, 0] * point.daughters[0, 1] > 0 and point.isotropies() == {0: ("0 <> 1",)}
    branch, point = hexagon(0.0, stretch=2.0)
    with pytest.raises(
        ValueError, match="directions of the branches that leave the branch point at 1 are undetermined"
    ):
        _ = point.daughters
    assert branch.connected(stop=(0.9, 1.1)) == []
    mirror, around = np.diag([1.0, -1.0, 1.0]), np.diag([-1.0, -1.0, 1.0])
    with pytest.raises(ValueError, match="'shear' must be a matrix"):
        point.with_symmetries({"shear": np.eye(3) + np.eye(3, k=2)})
    with pytest.raises(ValueError, match="are undetermined"):
        point.isotropies({"around": around})
    known = point.with_symmetries({"mirror": mirror, "around": around})
    kept = known.isotropies()
    assert sorted(kept.values()) == [("around * mirror",), ("mirror",)]
    for k, words in kept.items():
        x = hj.switch_branch(known, stop=1.1, daughter=k).x[-1, :2] * [1, 2.0]
        assert_allclose(np.sort(np.abs(x)), [0, np.sqrt(0.1)], atol=1e-9)
        assert np.argmax(np.abs(x)) == (words != ("mirror",))


def ring(t, x, coupling):
    q = x[:3]
    return jnp.append(x[3:], -q - q**3 - coupling * (2 * q - jnp.roll(q, 1) - jnp.roll(q, -1)))


def energy(t, x, coupling):
    q, rate = x[:3], x[3:]
    return jnp.sum(rate**2 / 2 + q**2 / 2 + q**4 / 4) + coupling / 2 * jnp.sum((q - jnp.roll(q, 1)) ** 2)


@pytest.mark.slow
def test_a_ring_of_three_masses_against_lame():
    """Three equal masses on cubic springs, coupled in a ring, at first in step: X'' = -X - X^3, X = A cn(u, m) with u = t
    sqrt(1 + A^2), m = A^2 / (2 + 2 A^2). What differs between them obeys Lame's equation y'' + (h - 6 m sn^2) y = 0 with h =
    (1 + 3 coupling + 3 A^2) / (1 + A^2), twice; its solutions are periodic at the edges h = 4 + m and h = 2 (1 + m) + 2 sqrt(1 -
    m + m^2) of its gaps. There two pairs of multipliers are 1, twice within one step of the branch, and with the symmetry of a
    triangle and of time six branches leave, which the third order does not tell apart."""
    names = (*(f"x{k}" for k in range(3)), *(f"rate{k}" for k in range(3)))
    way = hj.Transition("ring", "ring", lambda t, x, p: jnp.sum(x[:3]), lambda t, x, p: x)
    step = hj.ReturnMap(hj.HybridSystem({"ring": hj.Mode(ring, names)}, (way,)), sequence=("ring",))
    start = jnp.append(jnp.zeros(3), -jnp.full(3, np.sqrt(0.4 / 3)))
    orbit = hj.periodic_orbit(step, start, jnp.array(1.1), conserved=energy)
    branch = hj.continuation(orbit, where=lambda p: p.conserved, stop=0.4)
    edges = []
    for edge in (lambda m: 4 + m, lambda m: 2 * (1 + m) + 2 * np.sqrt(1 - m + m**2)):
        gap = lambda square, edge=edge: edge(square / (2 + 2 * square)) * (1 + square) - 4.3 - 3 * square
        square = brentq(gap, 0.1, 0.5, xtol=1e-15)
        edges.append(3 * (square / 2 + square**2 / 4))
    assert [point.kind for point in branch.special_points] == ["branch-point"] * 2 and branch.unresolved == ()
    # Rounding over the change of a multiplier by the energy, 1e-2.
    assert_allclose([float(point.value) for point in branch.special_points], np.sort(edges), rtol=1e-10)
    for point in branch.special_points:
        assert len(point.kernel) == 3 and len(point.daughters) == 6
        # Two masses apart or one, in the plane at right angles to (1, 1, 1).
        ways = np.sum(point.daughters[:, :6].reshape(6, 2, 3), axis=1)
        angles = np.arctan2((ways[:, 0] + ways[:, 1] - 2 * ways[:, 2]) / np.sqrt(3), ways[:, 0] - ways[:, 1]) % np.pi
        assert_allclose(np.sort((angles + 0.1) % np.pi), np.arange(6) * np.pi / 6 + 0.1, atol=0.02)
        kept = point.isotropies()
        assert sorted(map(len, kept.values())) == [0, 1]
        (k,) = (k for k, words in kept.items() if words)
        few = hj.PseudoArclength(max_points=15)
        found = hj.switch_branch(point, stop=(0.2, 0.4), daughter=k, method=few, throw=False)
        x = np.sort(found.x[-1].reshape(2, 3), axis=1)
        # Rounding of 1e-13 over the fourth power of an amplitude of a tenth, by which other directions are no solutions.
        assert np.max(np.min(np.diff(x, axis=1), axis=1)) < 1e-8 and np.max(x[:, 2] - x[:, 0]) > 0.01


@pytest.mark.medium
def test_a_direction_of_several_daughters():
    """x -> r x - x^3 - x y^2 / 2, y -> r y - x^2 y - 2 y^3: beside the axes x^2 + y^2 / 2 = x^2 + 2 y^2, the axis y = 0 again."""
    cubic = lambda z, r: r * z - jnp.stack([z[0] ** 3 + z[0] * z[1] ** 2 / 2, z[0] ** 2 * z[1] + 2 * z[1] ** 3])
    (point,) = hj.continuation(equal_maps(2, cubic), where=lambda r: r, stop=1.2).special_points
    ways = np.abs(point.daughters[:, :2]) / np.linalg.norm(point.daughters[:, :2], axis=1, keepdims=True)
    assert_allclose(ways[np.argsort(ways[:, 0])], [[0, 1], [1, 0]], atol=0.02)
