"""Orbits of many coordinates without the Jacobian of the return map: against the same orbits with it."""

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax._testing import arnoldi, krylov_orbit, Problem, spread

FINDER = optx.Newton(rtol=1e-12, atol=1e-12, linear_solver=lx.GMRES(rtol=1e-6, atol=1e-12))
METHOD = hj.SingleShooting(root_finder=FINDER)
KICK = jnp.array(1.0)


def hammered(n: int) -> hj.HybridSystem:
    """A chain of `n` masses on springs, with damping; the last one strikes a wall, which kicks it back."""

    def field(t, x, p):
        y, v = x[:n], x[n:]
        pull = lambda y: jnp.concatenate([y[1:], y[-1:]]) - 2 * y + jnp.concatenate([jnp.zeros(1, y.dtype), y[:-1]])
        return jnp.concatenate([v, pull(y) - 0.5 * y - 0.1 * v + 0.3 * pull(v)])

    names = (*(f"y{i}" for i in range(n)), *(f"v{i}" for i in range(n)))
    strike = lambda t, x, p: x.at[-1].set(-0.7 * x[-1] - p)
    return hj.HybridSystem(
        {"swing": hj.Mode(field, names)},
        (hj.Transition("swing", "swing", lambda t, x, p: 0.05 - x[n - 1], strike),),
    )


def settled(n: int):
    """The system's map and a state near its orbit."""
    system = hammered(n)
    x0 = jnp.zeros(2 * n).at[n - 1].set(0.05).at[-1].set(-1.0)
    run = hj.simulate(system, x0, KICK, mode="swing", t1=30.0, max_jumps=20, integrator=ROLLED)
    return hj.ReturnMap(system, sequence=("swing",), integrator=ROLLED), run.x_starts[int(run.jumps)]


@pytest.fixture(scope="module")
def chain():
    return settled(6)


@pytest.fixture(scope="module")
def dense(chain):
    step, guess = chain
    return hj.periodic_orbit(step, guess, KICK)


@pytest.mark.medium
def test_the_same_orbit(chain, dense):
    """State and period to rounding: both iterate to the same residual. The ten leading multipliers of twelve."""
    step, guess = chain
    found = hj.periodic_orbit(step, guess, KICK, method=METHOD)
    assert found.result == hj.RESULTS.successful and found.return_jacobian.shape == (0, 12)
    assert_allclose(found.x, dense.x, rtol=0, atol=1e-12)
    assert_allclose(found.period, dense.period, rtol=1e-12)
    assert_allclose(found.multipliers, dense.multipliers[:10], rtol=0, atol=1e-10)
    assert bool(found.stable) and "multiplier 10" in str(found)
    # All that an orbit can be asked for but its Jacobian.
    assert_allclose(found.sample(5)[0].x[-1], found.before[0], rtol=0, atol=1e-11)
    data = found.to_xarray()
    assert data["period"].item() == float(found.period) and "return_jacobian" not in data


@pytest.mark.medium
def test_several_strides(chain, dense):
    """Twice around, each stride with its own unknowns: the multipliers are the squares."""
    step, guess = chain
    twice = hj.periodic_orbit(step.repeated(2), guess, KICK, method=hj.MultipleShooting(root_finder=FINDER))
    assert_allclose(twice.nodes, [dense.x, dense.x], rtol=0, atol=1e-11)
    assert_allclose(twice.period, 2 * dense.period, rtol=1e-12)
    squares = np.sort(np.abs(dense.multipliers[:6])) ** 2
    assert_allclose(np.sort(np.abs(twice.multipliers[:6])), squares, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_derivatives(chain, dense):
    """By the implicit function theorem with Krylov solves, in both modes and of second order, against those with the Jacobian."""
    step, guess = chain
    period = lambda p, method: hj.periodic_orbit(step, guess, p, method=method).period
    exact = jax.grad(period)(KICK, hj.SingleShooting())
    assert_allclose(jax.grad(period)(KICK, METHOD), exact, rtol=1e-9)
    assert_allclose(jax.jacfwd(period)(KICK, METHOD), exact, rtol=1e-9)
    bend = lambda method: jax.jacfwd(jax.jacfwd(lambda p: period(p, method)))(KICK)
    assert_allclose(bend(METHOD), bend(hj.SingleShooting()), rtol=1e-7)
    # Arnoldi's method gives no derivative of a multiplier, so that of a differentiated call is no number.
    multipliers = lambda p: hj.periodic_orbit(step, guess, p, method=METHOD).multipliers.real
    value, _ = jax.jvp(multipliers, (KICK,), (jnp.ones_like(KICK),))
    assert np.all(np.isnan(value))


def test_no_jacobian_is_made():
    """No array of the program has two axes as long as the state, of 340 coordinates."""
    n = 170
    step = hj.ReturnMap(hammered(n), sequence=("swing",), integrator=ROLLED)
    program = jax.make_jaxpr(
        lambda x: (
            krylov_orbit(Problem(step.system, ("swing",), 1), x, KICK, METHOD, ROLLED, jnp.array(jnp.inf), False)[0].x
        )
    )(jnp.ones(2 * n))
    assert str(2 * n) in str(program) and f"{2 * n},{2 * n}]" not in str(program)


@pytest.mark.medium
def test_what_fails(chain):
    step, guess = chain
    lost = hj.periodic_orbit(
        step, guess, KICK, method=hj.SingleShooting(root_finder=FINDER, max_iterations=1), throw=False
    )
    assert lost.result == hj.RESULTS.orbit_not_converged and np.isnan(lost.period)


@pytest.mark.medium
def test_by_a_section(chain, dense):
    """From section to section, where the first mass passes a place on the orbit downward: of the system with the passage as a
    transition, the orbit's period and multipliers. The guess is off the section."""
    step, _ = chain
    k = 40
    states = dense.sample(100)[0].x
    level = float(states[k, 0])
    sign = 1.0 if float(states[k + 1, 0]) < level else -1.0
    surface = lambda t, x, p: sign * (x[0] - level)
    by_section = hj.ReturnMap(step.system, section=hj.Section("swing", surface), integrator=ROLLED)
    guess = states[k].at[0].add(1e-4)
    found = hj.periodic_orbit(by_section, guess, KICK, method=METHOD)
    assert found.result == hj.RESULTS.successful and found.return_jacobian.shape == (0, 12)
    assert_allclose(found.period, dense.period, rtol=1e-11)
    assert_allclose(found.multipliers, dense.multipliers[:10], rtol=0, atol=1e-9)
    assert_allclose(surface(0.0, found.x, KICK), 0, atol=1e-12)
    # The distance is from the guess, not from its place on the section.
    assert 5e-5 < float(found.distance) < 1e-2


@pytest.mark.medium
def test_eigenvalues_of_products():
    """A matrix of 500 rows: known eigenvalues, of which two are a complex pair; one that is of rank three; and a circle of equal
    moduli, of which no space of 320 dimensions holds an eigenvector."""
    n, rng = 500, np.random.default_rng(0)
    values = 0.9 * 0.8 ** np.arange(n)
    block = np.diag(values)
    block[0, 1], block[1, 0], block[1, 1] = 0.3, -0.3, values[0]
    turn = np.linalg.qr(rng.normal(size=(n, n)))[0]
    matrix = jnp.asarray(turn @ block @ turn.T)
    exact = [0.9 + 0.3j, 0.9 - 0.3j, *values[2:8]]
    found = lambda product, count: arnoldi(product, spread(jnp.array(1), n, jnp.float64), count, 1e-10)[0]
    assert_allclose(found(lambda v: matrix @ v, 8), exact, rtol=0, atol=1e-9)
    low = jnp.asarray(turn[:, :3] @ np.diag([0.5, -0.4, 0.1]) @ turn[:, :3].T)
    assert_allclose(found(lambda v: low @ v, 5), [0.5, -0.4, 0.1, 0, 0], rtol=0, atol=1e-12)
    assert np.all(np.isnan(found(lambda v: jnp.roll(v, 1), 3)))


def test_equal_eigenvalues_of_products():
    """Where the Krylov space is invariant the method goes on with another vector: half of the identity has ten equal eigenvalues,
    and a matrix that is twice one of rank two each eigenvalue twice."""
    half = arnoldi(lambda v: 0.5 * v, spread(jnp.array(1), 60, jnp.float64), 10, 1e-10)[0]
    assert_allclose(half, 0.5, rtol=1e-13)
    twice = lambda v: jnp.concatenate(
        [0.8 * v[:1], -0.6 * v[1:2], jnp.zeros(28), 0.8 * v[30:31], -0.6 * v[31:32], jnp.zeros(28)]
    )
    found = arnoldi(twice, spread(jnp.array(1), 60, jnp.float64), 5, 1e-10)[0]
    assert_allclose(found, [0.8, 0.8, -0.6, -0.6, 0], rtol=0, atol=1e-12)


@pytest.mark.medium
def test_some_that_are_not_resolved():
    """A circle of 400 equal moduli and a larger eigenvalue: that one comes first, and the others are NaN."""
    n = 401
    product = lambda v: jnp.append(jnp.roll(v[:-1], 1), 3.0 * v[-1])
    found = arnoldi(product, spread(jnp.array(1), n, jnp.float64), 3, 1e-10)[0]
    assert_allclose(found[0], 3.0, rtol=1e-12)
    assert np.all(np.isnan(found[1:]))


@pytest.mark.slow
def test_lanes(chain, dense):
    """Under `vmap` and `jit`, where a call may be differentiated later: the same multipliers. A vector field that captures the
    differentiated number sees it."""
    step, guess = chain
    along = jax.jit(jax.vmap(lambda p: hj.periodic_orbit(step, guess, p, method=METHOD, throw=False)))
    both = along(jnp.stack([KICK, 1.05 * KICK]))
    assert np.all(both.stable)
    assert_allclose(both.multipliers[0], dense.multipliers[:10], rtol=0, atol=1e-10)

    def period(kick):
        system = hammered(6)
        (way,) = system.transitions
        own = hj.HybridSystem(
            system.modes, (hj.Transition("swing", "swing", way.guard, lambda t, x, p: way.reset(t, x, kick)),)
        )
        return hj.periodic_orbit(
            hj.ReturnMap(own, sequence=("swing",), integrator=ROLLED), guess, None, method=METHOD
        ).period

    exact = jax.grad(lambda p: hj.periodic_orbit(step, guess, p).period)(KICK)
    assert_allclose(jax.grad(period)(KICK), exact, rtol=1e-9)
