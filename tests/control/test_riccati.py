"""The Riccati equation and the regulator along a trajectory through events: a closed form, SciPy, the cost of the closed loop."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import solve_ivp
from systems import ROLLED
from test_covariance import MIXED

import hyjax as hj

RESULTS = hj.RESULTS


def force(t, x, p):
    return jnp.stack([x[1], p["u"]])


WALL = hj.HybridSystem(
    {"free": hj.Mode(force, ("y", "v"))},
    (
        hj.Transition(
            "free", "free", lambda t, x, p: x[0], lambda t, x, p: jnp.stack([x[0], -p["e"] * x[1]])
        ),
    ),
)  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("derivative", [jax.jacfwd, pytest.param(jax.grad, marks=pytest.mark.medium)])
def test_ball_against_a_wall_in_closed_form(derivative):
    """Without gravity the saltation matrix is -e I, and P(t) = Phi^T (P_T^-1 + W)^-1 Phi with the Gramian W of the forces. With a
    cost of the deviation at the wall, the gradient by the coefficient of restitution, and a lane that ends before its start."""
    final, r, x0 = jnp.array([[2.0, 0.3], [0.3, 1.0]]), 0.4, jnp.array([1.0, -2.0])
    at_wall = jnp.array([[0.7, -0.2], [-0.2, 0.1]])

    def found(e, t1):
        run = hj.simulate(
            WALL, x0, {"u": 0 * e, "e": e}, mode="free", t1=t1, max_jumps=2, integrator=ROLLED, throw=False
        )
        s = hj.control.riccati(
            run, where=lambda p: p["u"], state_cost=jnp.zeros((2, 2)), control_cost=r * jnp.eye(1), terminal_cost=final,
            event_cost={0: at_wall}, throw=False
        )  # fmt: skip
        return jnp.sum(s.cost), s

    def known(e, t1):
        def back(p, h):
            phi = jnp.stack([jnp.ones(()), h, jnp.zeros(()), jnp.ones(())]).reshape(2, 2)
            gramian = jnp.stack([h**3 / 3, h**2 / 2, h**2 / 2, h]).reshape(2, 2) / r
            return phi.T @ jnp.linalg.inv(jnp.linalg.inv(p) + gramian) @ phi

        after = back(final, t1 - 0.5)
        before = at_wall + e**2 * after
        p = back(before, jnp.array(0.5))
        return jnp.sum(p), (p, after, before)

    e, t1 = jnp.array([0.7, 0.9, 0.3, 0.7]), jnp.array([1.25, 1.0, 0.8, -1.0])
    slope, s = jax.jit(jax.vmap(derivative(found, has_aux=True)))(e, t1)
    (_, (p, after, before)), by_e = jax.vmap(jax.value_and_grad(known, has_aux=True))(e[:3], t1[:3])
    # Tens of roundings, of the flow's steps and of the closed form's inverses.
    assert_allclose(s.cost[:3], p, rtol=1e-13)
    assert_allclose(s.cost_starts[:3, 1], after, rtol=1e-13)
    assert_allclose(s.cost_ends[:3, 0], before, rtol=1e-13)
    assert_allclose(slope[:3], by_e, rtol=1e-12)
    assert_array_equal(s.cost[:3], np.swapaxes(s.cost[:3], 1, 2))
    assert np.all(np.isnan(s.cost_starts[:, 2])) and np.all(s.result._value[:3] == 0)
    assert s.result._value[3] == RESULTS.time_reversed._value and np.all(np.isnan(s.cost[3]))


# The modes of two and of three coordinates, whose flow, guards and resets depend on time, with two controls.
def pushed(field):
    def rate(t, x, p):
        by_push = jnp.zeros_like(x).at[1].set(1.0 + 0.1 * x[0])
        return field(t, x, p) + p["push"] * by_push + p["pull"] * jnp.zeros_like(x).at[-1].set(jnp.cos(t))

    return rate


PUSHED = hj.HybridSystem(
    {name: hj.Mode(pushed(mode.vector_field), mode.coordinates) for name, mode in MIXED.modes.items()},
    MIXED.transitions,
)
QUIET = {"decay": jnp.array(0.7), "push": jnp.array(0.0), "pull": jnp.array(0.0)}
COSTS = {
    "where": lambda p: (p["push"], p["pull"]),
    "state_cost": {"two": np.array([[2.0, 0.5], [0.5, 1.0]]), "three": np.diag([1.0, 0.0, 0.3])},
    "control_cost": jnp.array([[0.5, 0.1], [0.1, 2.0]]),
    "event_cost": {("two", "three"): np.array([[0.3, 0.1], [0.1, 0.2]])},
}


@pytest.fixture(scope="module")
def mixed():
    run = hj.simulate(
        PUSHED, jnp.array([0.2, 1.0]), QUIET, mode="two", t1=4.0, max_jumps=4, integrator=ROLLED
    , throw=False)  # fmt: skip
    assert run.result == RESULTS.successful and int(run.jumps) >= 2 and run.final.size == 2
    return run


FINAL = jnp.array([[2.0, 0.3], [0.3, 1.0]])


def by_scipy(run, terminal):
    """P at the start: the Riccati equation backward with SciPy, along states that SciPy integrates forward."""
    p = np.asarray(terminal)
    for k in reversed(range(int(run.jumps) + 1)):
        name = run.mode_names[k]
        mode, n = PUSHED.modes[name], PUSHED.modes[name].dimension
        field = lambda t, x, u, f=mode.vector_field: f(t, x, QUIET | {"push": u[0], "pull": u[1]})
        by = jax.jit(jax.jacfwd(field, argnums=(1, 2)))
        rate, none = jax.jit(field), jnp.zeros(2)
        if k < int(run.jumps):
            event = run.events[k]
            xi = np.asarray(hj.saltation_matrix(PUSHED, event.transition, event.t, event.before, QUIET))
            p = xi.T @ p @ xi
            if (event.source, event.target) in COSTS["event_cost"]:
                p = p + COSTS["event_cost"][event.source, event.target]
        t0, t1 = float(run.start_times[k]), float(run.end_times[k])
        options = {"rtol": 1e-12, "atol": 1e-13, "method": "DOP853"}
        forward = lambda t, x, rate=rate, none=none: rate(t, jnp.asarray(x), none)
        x = solve_ivp(forward, (t0, t1), run.x_starts[k, :n], dense_output=True, **options).sol
        q, r = COSTS["state_cost"][name], np.asarray(COSTS["control_cost"])

        def back(t, z):
            a, b = map(np.asarray, by(t, jnp.asarray(x(t)), none))  # noqa: B023
            p = z.reshape(n, n)  # noqa: B023
            return -(a.T @ p + p @ a - p @ b @ np.linalg.solve(r, b.T @ p) + q).ravel()  # noqa: B023

        p = solve_ivp(back, (t1, t0), p.ravel(), **options).y[:, -1].reshape(n, n)
    return p


@pytest.fixture(scope="module")
def mixed_regulator(mixed):
    return hj.control.regulator(mixed, terminal_cost=FINAL, **COSTS)


@pytest.mark.medium
def test_modes_of_different_dimension_against_scipy(mixed, mixed_regulator):
    s = hj.control.riccati(mixed, terminal_cost=FINAL, **COSTS)
    known = by_scipy(mixed, FINAL)
    # SciPy's tolerance is 1e-12, and its states between the steps have an error of 1e-11.
    assert_allclose(s.cost[:2, :2], known, rtol=1e-10)
    assert np.all(s.cost[2:] == 0) and np.all(s.cost[:, 2:] == 0)
    assert_allclose(s.cost_ends[int(mixed.jumps), :2, :2], FINAL, rtol=1e-15)
    # By 32 maps on each arc, the same up to rounding.
    assert_allclose(mixed_regulator.cost, s.cost, rtol=1e-12)


@eqx.filter_jit
def closed_loop_costs(regulator, run, terminal, direction, sizes):
    """Cost of the closed loop from perturbed starts, by the square of the perturbation."""
    n = direction.size

    def one(eps):
        loop = regulator.simulate(
            run.x_starts[0, :n] + eps * direction, t1=run.t, max_jumps=run.modes.size - 1, integrator=ROLLED
        )
        left = (loop.x - run.x)[: terminal.shape[0]]
        return (loop.cost + left @ terminal @ left) / eps**2, loop.trajectory.end_times, loop.result

    return jax.vmap(one)(sizes)


@pytest.mark.slow
def test_cost_of_the_closed_loop(mixed, mixed_regulator):
    """The cost from a start that is off by eps is eps^2 d'P d (1 + O(eps)), with events early and late."""
    direction, sizes = jnp.array([0.6, -0.8]), jnp.array([1e-2, 1e-3, 1e-4, -1e-4])
    predicted = direction @ mixed_regulator.cost[:2, :2] @ direction
    cost, ends, result = closed_loop_costs(mixed_regulator, mixed, FINAL, direction, sizes)
    assert np.all(result._value == 0)
    # The first event is late for one sign and early for the other.
    assert (ends[2, 0] - mixed.end_times[0]) * (ends[3, 0] - mixed.end_times[0]) < 0
    # At 1e-4 the cost is 1e-8, known to the absolute tolerance of 1e-14 per step; the reference to 4e-8, of which a part acts.
    off = np.asarray(cost / predicted - 1)
    assert_allclose(off[:2] / sizes[:2], off[0] / sizes[0], rtol=0.02)
    assert_allclose(off[2:] / sizes[2:], off[0] / sizes[0], rtol=0.1)


@pytest.mark.medium
def test_gain_and_control(mixed_regulator, mixed):
    """K = R^-1 B'P on both sides of an event; a late state is compared with the continuation of its own arc."""
    event = mixed.events[0]
    before = mixed_regulator.gain(event.t, mode="two", arc=0)
    after = mixed_regulator.gain(event.t, mode="three", arc=1)
    assert before.shape == (2, 2) and after.shape == (2, 3)
    s = hj.control.riccati(mixed, terminal_cost=FINAL, **COSTS)
    b = np.array([[0.0, 0.0], [1 + 0.1 * float(event.before[0]), np.cos(event.t)]])
    assert_allclose(before, np.linalg.solve(COSTS["control_cost"], b.T @ s.cost_ends[0, :2, :2]), rtol=1e-10)
    late = event.t + 0.02
    x = hj.simulate(
        hj.HybridSystem({"two": PUSHED.modes["two"]}, ()), event.before, QUIET, mode="two", t0=event.t, t1=late,
        max_jumps=0, integrator=ROLLED,
    ).final  # fmt: skip
    # On the continuation there is no control; polynomials of degree 5 in segments of a few hundredths: 1e-10.
    assert_allclose(mixed_regulator.control(late, x, mode="two", arc=0), 0, atol=1e-9)
    moved = mixed_regulator.control(late, x + jnp.array([0.0, 1e-3]), mode="two", arc=0)
    assert_allclose(moved, -1e-3 * mixed_regulator.gain(late, mode="two", arc=0)[:, 1], rtol=1e-5)


@pytest.mark.medium
def test_misuse(mixed):
    push = lambda p: p["push"]
    wrong = [
        ({"control_cost": -jnp.eye(1)}, "control_cost must be symmetric and positive definite, not"),
        ({"control_cost": jnp.eye(2)}, r"control_cost of shape \(2, 2\) must have the shape \(1, 1\)"),
        ({"state_cost": jnp.eye(2)}, r"dimensions \{'two': 2, 'three': 3\}. Give one for each mode"),
        ({"state_cost": {"two": np.array([[1.0, 2.0], [0.0, 1.0]])}}, "of mode 'two' must be symmetric"),
        ({"state_cost": {"four": jnp.eye(2)}}, "'four' is not one of the modes"),
        ({"event_cost": {("two", "two"): jnp.eye(2)}}, "which is no transition"),
        ({"terminal_cost": jnp.eye(3)}, r"terminal_cost of shape \(3, 3\) must have the shape \(2, 2\)"),
        ({"terminal_cost": -FINAL}, "terminal_cost must be symmetric and positive semidefinite"),
        ({"transverse": True}, "transverse=True needs a periodic orbit"),
    ]
    for arguments, message in wrong:
        with pytest.raises(ValueError, match=message):
            hj.control.riccati(mixed, where=push, **arguments, throw=False)
    with pytest.raises(ValueError, match=r"n_segments=0 must be an integer of at least 1"):
        hj.control.regulator(mixed, where=push, n_segments=0, throw=False)
    with pytest.raises(ValueError, match=r"margin=-0.5 must not be negative"):
        hj.control.regulator(mixed, where=push, margin=-0.5, throw=False)
    # Without the type checks of the tests, which would speak first.
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ValueError, match=r"dict is no reference. Give a hj.Trajectory"):
            hj.control.riccati({}, where=push, throw=False)  # pyright: ignore
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    failed = dataclasses.replace(mixed, result=RESULTS.zeno)
    with pytest.raises(ValueError, match=r"the reference failed, zeno: .* Give a reference whose result is successful"):
        hj.control.riccati(failed, where=push, throw=False)
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], mixed)
    with pytest.raises(ValueError, match="this is a batch of 1 references"):
        hj.control.riccati(batch, where=push, throw=False)
