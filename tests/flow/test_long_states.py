"""States of more coordinates than the loop of steps carries apart: a chain of masses of which the last strikes a wall."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import expm
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax._testing import operations

WALL, RESTITUTION = 0.6, 0.7


def matrix(n: int) -> np.ndarray:
    r"""Of $\ddot x_i = x_{i+1} - 2 x_i + x_{i-1} - 0.1 \dot x_i$; the first mass hangs on a wall, the last on nothing."""
    spring = np.diag(np.full(n - 1, 1.0), 1) + np.diag(np.full(n - 1, 1.0), -1) - 2 * np.eye(n)
    spring[-1, -1] = -1.0
    return np.block([[np.zeros((n, n)), np.eye(n)], [spring, -0.1 * np.eye(n)]])


def chain(n: int, guard=lambda t, x, p: WALL - x[x.size // 2 - 1]) -> hj.HybridSystem:
    def field(t, x, p):
        y, v = x[:n], x[n:]
        left, right = jnp.concatenate([jnp.zeros(1), y[:-1]]), jnp.concatenate([y[1:], y[-1:]])
        return jnp.concatenate([v, right - 2 * y + left - 0.1 * v])

    names = (*(f"y{i}" for i in range(n)), *(f"v{i}" for i in range(n)))
    strike = hj.Transition("swing", "swing", guard, lambda t, x, p: x.at[-1].multiply(-RESTITUTION))
    return hj.HybridSystem({"swing": hj.Mode(field, names)}, (strike,))


def start(n: int) -> jax.Array:
    return jnp.concatenate([jnp.zeros(n), jnp.zeros(n - 1), jnp.ones(1)])


def ran(n: int, x0, t1=6.0, **options):
    return hj.simulate(chain(n, **options), x0, None, mode="swing", t1=t1, max_jumps=3, integrator=ROLLED)


@pytest.fixture(scope="module")
def run():
    return jax.jit(lambda x0: ran(12, x0))(start(12))


def test_arcs_are_those_of_the_matrix_exponential(run):
    """Closed form: between impacts the flow is linear. To the solver's tolerance, 1e-12, over a few units of time."""
    jumps, x, t, A = int(run.jumps), start(12), 0.0, matrix(12)
    assert jumps >= 1 and run.result == hj.RESULTS.successful
    for k in range(jumps):
        before = expm(A * (run.end_times[k] - t)) @ x
        assert_allclose(run.x_ends[k], before, rtol=0, atol=1e-11)
        assert abs(run.x_ends[k][11] - WALL) <= 1e-14
        x, t = before.at[-1].multiply(-RESTITUTION), run.end_times[k]
    assert_allclose(run.x, expm(A * (6.0 - t)) @ x, rtol=0, atol=1e-11)


@pytest.mark.medium
def test_derivatives_are_those_of_the_saltation_matrix(run):
    """Forward and reverse, against the product of exponentials and saltation matrices."""
    system, A, exact, t = chain(12), matrix(12), np.eye(24), 0.0
    for k in range(int(run.jumps)):
        Xi = hj.saltation_matrix(system, 0, run.end_times[k], run.x_ends[k], None)
        exact, t = Xi @ expm(A * (run.end_times[k] - t)) @ exact, run.end_times[k]
    exact = expm(A * (6.0 - t)) @ exact
    end = lambda x0: ran(12, x0).x
    assert_allclose(jax.jit(jax.jacfwd(end))(start(12)), exact, rtol=0, atol=1e-10)
    weights = jnp.cos(jnp.arange(24.0))
    assert_allclose(jax.jit(jax.grad(lambda x0: weights @ end(x0)))(start(12)), weights @ exact, rtol=0, atol=1e-10)


def test_no_program_grows_with_the_state():
    """Of 24 coordinates and of 400 the same operations."""
    count = lambda n: operations(jax.make_jaxpr(lambda x0: ran(n, x0).x)(start(n)).jaxpr)
    assert count(12) == count(200)


@pytest.mark.medium
def test_a_guard_with_a_loop(run):
    """It has no derivative in reverse mode; its rounding is found by differences."""
    last = lambda t, x, p: (
        WALL - jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + 0.0), (0, x[11]))[1]
    )
    looped = jax.jit(lambda x0: ran(12, x0, guard=last))(start(12))
    assert_allclose(looped.end_times[0], run.end_times[0], rtol=1e-14)
