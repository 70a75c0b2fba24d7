"""What does hybrid iLQR cost: an iteration beside a rollout, a problem beside SciPy's least squares, a batch beside one problem?

The bouncing ball of Kong, Council and Johnson (2021): 251 controls, each held for 0.004 s, lead it from rest at 4 m to rest at
1 m. An iteration is the derivatives of 251 steps, the backward recursion in several directions, and a line search of 8 steps
along each; a rollout is one trajectory with feedback. SciPy minimizes the same sum of squares, with the trajectory between
events in closed form, in Python, and its derivatives by differences (252 trajectories for each). The least cost with one bounce
is 2.142216895. All of hyjax is compiled first.

    python benchmarks/ilqr.py

A run is kept in `outputs/ilqr.json`.

From 100 N downward SciPy stops at a cost of 120. A batch costs more for each guess than one guess alone: all lanes go on as long
as the last, and through both branches of every choice.
"""

import os
import time

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

import hyjax as hj
from hyjax.models import bouncing_ball

jax.config.update("jax_enable_x64", True)

STEPS, DT, GRAVITY, E, R = 251, 0.004, 9.8, 0.7, 1.25e-4
START, TARGET = np.array([4.0, 0.0]), np.array([1.0, 0.0])
GUESSES = {"free fall": 0.0, "hovering": -GRAVITY, "100 N downward": 100.0}
BATCH = 32

stage_cost = lambda t, x, u, p: R * jnp.sum(u**2)
terminal_cost = lambda t, x, p: 100 * jnp.sum((x - TARGET) ** 2)


@jax.jit
def solve(controls):
    """Gravity acts: its deviation is the force downward, on a mass of 1."""
    return hj.control.ilqr(
        bouncing_ball.system, jnp.asarray(START), bouncing_ball.Params(E, GRAVITY), mode="flight",
        times=DT * jnp.arange(STEPS + 1), where=lambda p: p.gravity, stage_cost=stage_cost, terminal_cost=terminal_cost,
        controls=controls, max_jumps=6, integrator=hj.Integrator(dfx.Tsit5(), rtol=1e-10, atol=1e-10, unroll=False),
        throw=False,
    )  # fmt: skip


def residuals(u):
    """Of the controls and of the state at the end; each step falls freely, up to the floor and on from it."""
    y, v = START
    for force in u:
        left, accel = DT, -GRAVITY - force
        while True:
            end = y + v * left + accel * left**2 / 2
            if end >= 0:
                break
            # The first time at which the height is zero, in a form without cancellation.
            fall = 2 * y / (-v + np.sqrt(v**2 - 2 * accel * y))
            y, v, left = 0.0, -E * (v + accel * fall), left - fall
        y, v = end, v + accel * left
    return np.append(np.sqrt(R) * u, 10 * (np.array([y, v]) - TARGET))


def timed(call, runs=3):
    jax.block_until_ready(call())
    best = []
    for _ in range(runs):
        start = time.perf_counter()
        jax.block_until_ready(call())
        best.append(time.perf_counter() - start)
    return min(best)


if __name__ == "__main__":
    print(f"{len(os.sched_getaffinity(0))} cores")
    print(f"{'from':<16}{'iterations':>11}{'cost':>14}{'bounces':>9}{'s':>9}{'SciPy cost':>14}{'s':>9}{'ratio':>8}")
    spent, iterations = 0.0, 0
    for name, force in GUESSES.items():
        guess = jnp.full((STEPS, 1), force)
        found, own = solve(guess), timed(lambda guess=guess: solve(guess).cost)
        begin = time.perf_counter()
        other = least_squares(residuals, np.full(STEPS, force), max_nfev=100, xtol=1e-10, ftol=1e-10)
        theirs = time.perf_counter() - begin
        spent, iterations = spent + own, iterations + int(found.iterations)
        print(
            f"{name:<16}{int(found.iterations):>11}{float(found.cost):>14.9f}{int(found.events):>9}{own:>9.3f}"
            f"{2 * other.cost:>14.6f}{theirs:>9.2f}{theirs / own:>8.0f}",
            flush=True,
        )
    found = solve(jnp.zeros((STEPS, 1)))
    track = jax.jit(lambda x0: found.track(x0, throw=False).cost)
    rollout = timed(lambda: track(jnp.asarray(START)), 20)
    once = spent / iterations
    print(f"one iteration {1e3 * once:.1f} ms, one rollout {1e3 * rollout:.2f} ms: {once / rollout:.0f} x")
    guesses = jnp.linspace(-GRAVITY, 100.0, BATCH)[:, None, None] * jnp.ones((STEPS, 1))
    batch = jax.jit(lambda guesses: jax.vmap(solve)(guesses).cost)
    each = timed(lambda: batch(guesses), 1) / BATCH
    print(f"{BATCH} guesses as one batch: {each:.3f} s each, the best cost {float(jnp.nanmin(batch(guesses))):.9f}")
