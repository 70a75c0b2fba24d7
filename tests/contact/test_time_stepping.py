"""A block that slides and rocks on two corners, against time stepping, whose limit for short steps is the same motion."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.contact import Contact, contact_system, Mechanism, set_name, start

B, H, GRAVITY, FRICTION = 0.3, 0.5, 9.81, 0.4
MASS = np.array([1.0, 1.0, (B**2 + H**2) / 3])


def step_set(q, v, h, codes):
    """The velocities after a step in which the corners keep to a set, and whether it satisfies the laws: 0 open, 1 stuck, 2 and 3
    sliding forward and backward."""
    sine, cosine = np.sin(q[2]), np.cos(q[2])
    lever = np.array([[side * B * cosine + H * sine, side * B * sine - H * cosine] for side in (-1, 1)])
    ones, zeros = np.ones(2), np.zeros(2)
    normal, slip = np.stack([zeros, ones, lever[:, 0]], axis=1), np.stack([ones, zeros, -lever[:, 1]], axis=1)
    gaps, free = q[1] + lever[:, 1], v - h * np.array([0.0, GRAVITY, 0.0])
    closed, stuck = codes > 0, codes == 1
    # Unknown are the velocities and the impulses n, t of both corners.
    matrix, right = np.zeros((7, 7)), np.zeros(7)
    matrix[:3, :3], right[:3] = np.diag(MASS), MASS * free
    matrix[:3, 3:5], matrix[:3, 5:] = -normal.T, -slip.T
    for i in range(2):
        if closed[i]:
            matrix[3 + i, :3], right[3 + i] = normal[i], -gaps[i] / h
        else:
            matrix[3 + i, 3 + i] = 1
        if stuck[i]:
            matrix[5 + i, :3] = slip[i]
        else:
            matrix[5 + i, 5 + i], matrix[5 + i, 3 + i] = 1, {0: 0, 2: FRICTION, 3: -FRICTION}[codes[i]]
    solved = np.linalg.lstsq(matrix, right, rcond=1e-11)[0]
    after, n, t = solved[:3], solved[3:5], solved[5:]
    side = np.where(codes == 2, 1, np.where(codes == 3, -1, 0))
    fits = np.all(n >= -1e-10) and np.all((gaps / h + normal @ after)[~closed] >= -1e-10)
    fits &= np.all(abs(t) <= FRICTION * n + 1e-10) and np.all(side * (slip @ after) >= -1e-10)
    return after, fits and np.linalg.norm(matrix @ solved - right) < 1e-9


SETS = [np.array(each) for each in itertools.product(range(4), repeat=2)]


def stepped(q, v, ends, h):
    """Positions and velocities at the times `ends`, by Stewart and Trinkle's steps: the set of each is the first that fits."""
    found, last = [], SETS[0]
    for k in range(1, round(ends[-1] / h) + 1):
        for codes in (last, *SETS):
            after, fits = step_set(q, v, h, codes)
            if fits:
                break
        else:
            raise AssertionError("no set of contacts fits")
        q, v, last = q + h * after, after, codes
        if np.any(np.isclose(k * h, ends, rtol=0, atol=h / 4)):
            found.append(np.concatenate([q, v]))
    return np.stack(found)


def corner(side):
    lever = lambda angle: jnp.stack(
        [side * B * jnp.cos(angle) + H * jnp.sin(angle), side * B * jnp.sin(angle) - H * jnp.cos(angle)]
    )
    return Contact(
        lambda t, q, p: q[1] + lever(q[2])[1],
        lambda t, q, v, p: v[0] - lever(q[2])[1] * v[2],
        static=FRICTION,
        kinetic=FRICTION,
    )


@pytest.mark.medium
def test_a_block_that_slides_and_rocks_is_the_limit_of_time_stepping():
    block = Mechanism(lambda q, p: jnp.diag(jnp.asarray(MASS)), lambda t, q, v, p: jnp.array([0.0, -GRAVITY, 0.0]))
    system = contact_system(block, {"left": corner(-1), "right": corner(1)}, ("x", "y", "angle"))
    tilt = 0.25
    q, v = np.array([0.0, B * np.sin(tilt) + H * np.cos(tilt), tilt]), np.array([1.5, 0.0, 0.0])
    _, x = start(system, jnp.concatenate([jnp.asarray(q), jnp.asarray(v)]), None)
    ends = np.array([0.1, 0.2, 0.3, 0.4, 0.6])
    tight = hj.Integrator(rtol=1e-10, atol=1e-10, unroll=False)
    simulate = lambda t1: hj.simulate(system, x, None, mode="contacts", t1=t1, max_jumps=12, integrator=tight)
    run = jax.jit(simulate)
    runs = [run(t) for t in jnp.asarray(ends)]
    assert {str(each.result) for each in runs} == {"successful"}
    names = [set_name(system, each) for each in runs[-1].x_starts[: int(runs[-1].jumps) + 1]]
    assert names == [
        "left:slip++right:open", "left:stick+right:open", "left:open+right:slip+", "left:open+right:stick"
    ]  # fmt: skip
    exact = np.stack([each.x[:6] for each in runs])
    errors = {h: np.max(np.abs(stepped(q, v, ends, h) - exact), axis=1) for h in (4e-3, 1e-3, 5e-4)}
    for h, error in errors.items():
        # Before the first event the error is a smooth function of h.
        assert_allclose(error[0], 0.976 * h, rtol=6e-3)
        # An event falls anywhere within a step, so that the error is a bounded multiple of h.
        assert np.all(error <= 25 * h)
    assert np.all(errors[5e-4] < errors[4e-3] / 4)
