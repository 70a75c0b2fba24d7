"""How long does simulation take, in batches, where the modes are not known beforehand; against a loop over events?

10 000 balls of their own height and restitution bounce 20 times on a floor, and 1 000 on a slope, as a system made by
`contact_system`. The error is the largest, over all that are compared, of the time of the 20th impact and of the speed
after it, relative, against the closed form. SciPy restarts `solve_ivp` (DOP853, 1e-13) after each terminal event, heyoka its
Taylor integrator (1e-15, scalar). The rows of the known sequence are what it costs not to know it: the same bounces by a scan
of `flow_to_guard` and the reset. Compilation is the time of the first call, and no part of the others.

    python benchmarks/simulate.py [--quick]

A run is kept in `outputs/simulate.json`.

The last hops on the slope are some micrometres high: there the rounding of the gap, a sum of two terms of which neither is
small, is what the error consists of.
"""

import argparse
import math
import os
import time
import timeit

import equinox as eqx
import heyoka as hy
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import hyjax as hj
from hyjax.models import ball_on_slope, bouncing_ball

jax.config.update("jax_enable_x64", True)

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="a tenth of the balls")
quick = parser.parse_args().quick

balls, contacts, few, block = (1000, 100, 2, 100) if quick else (10_000, 1000, 10, 100)
bounces = 20
gravity = 9.81
rng = np.random.default_rng(0)
heights, restitutions = rng.uniform(0.5, 2.0, balls), rng.uniform(0.7, 0.95, balls)


def exact(height, restitution):
    """`(time, speed)` of the 20th impact, and after it."""
    first = np.sqrt(2 * height / gravity)
    waits = sum(restitution**j for j in range(1, bounces))
    return first * (1 + 2 * waits), restitution**bounces * np.sqrt(2 * gravity * height)


def error(times, speeds):
    truth = exact(heights[: len(times)], restitutions[: len(times)])
    return max(np.max(np.abs(np.asarray(a) / b - 1)) for a, b in zip((times, speeds), truth, strict=True))


def best_time(call, repeats=3):
    return min(timeit.repeat(call, number=1, repeat=repeats))


def first_time(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def row(name, achieved, seconds, compiling):
    print(f"{name:<46}{achieved:>10.1e}{seconds * 1e6:>14.2f}{compiling:>12.2f}", flush=True)


def in_blocks(one):
    """Blocks of 100 lanes, one after the other: a lane waits only for those of its block."""
    return jax.jit(lambda *batch: jax.lax.map(lambda each: one(*each), batch, batch_size=block))


# Peers


def scipy_ball(height, restitution):
    def fall(t, x):
        return x[1], -gravity

    def floor(t, x):
        return x[0]

    floor.terminal, floor.direction = True, -1
    t, x = 0.0, np.array([height, 0.0])
    for _ in range(bounces):
        flown = solve_ivp(fall, (t, t + 10), x, "DOP853", events=floor, rtol=1e-13, atol=1e-13)
        t, x = flown.t_events[0][0], flown.y_events[0][0] * (1, -restitution)
        x[0] = 0.0  # or the next flight might begin below the floor, and fall for ever
    return t, x[1]


class HeyokaBall:
    def __init__(self):
        start = time.perf_counter()
        y, rate = hy.make_vars("y", "rate")
        floor = hy.t_event(y, direction=hy.event_direction.negative)
        self.flight = hy.taylor_adaptive([(y, rate), (rate, -gravity + 0 * y)], [1.0, 0.0], t_events=[floor], tol=1e-15)
        self.compile_time = time.perf_counter() - start

    def bounce(self, height, restitution):
        flight = self.flight
        flight.time, flight.state[:] = 0.0, (height, 0.0)
        flight.reset_cooldowns()
        for _ in range(bounces):
            # Of a parabola the Taylor series ends, and the step that the integrator would take has no bound.
            flight.propagate_until(1e6, max_delta_t=0.5)
            flight.state[1] *= -restitution
        return flight.time, flight.state[1]


# Balls


def start_of(height):
    return jnp.stack([height, jnp.zeros_like(height)])


def simulated(height, restitution):
    """Time and speed after the last bounce, whatever modes come: there is but one."""
    ball = bouncing_ball.Params(restitution=restitution)
    run = hj.simulate(
        bouncing_ball.system, start_of(height), ball, mode="flight", t1=100.0, max_jumps=bounces, throw=False
    )
    return run.end_times[bounces - 1], -restitution * run.x_ends[bounces - 1, 1]


def in_sequence(height, restitution):
    """The same, by a scan of flights to the guard."""
    ball = bouncing_ball.Params(restitution=restitution)

    def flight(carry, _):
        impact = hj.flow_to_guard(bouncing_ball.system, "flight", *carry, ball, throw=False)
        return (impact.t, bouncing_ball.bounce(impact.t, impact.x, ball)), None

    (t, x), _ = jax.lax.scan(flight, (jnp.zeros_like(height), start_of(height)), None, length=bounces)
    return t, x[1]


def compare_balls():
    print(f"\n{balls} balls, {bounces} bounces")
    print(f"{'':<46}{'error':>10}{'us a ball':>14}{'compile, s':>12}")
    sample = list(zip(heights[:few], restitutions[:few], strict=True))
    seconds = {}
    times, speeds = np.transpose([scipy_ball(*each) for each in sample])
    seconds["SciPy DOP853"] = best_time(lambda: [scipy_ball(*each) for each in sample]) / few
    row(f"SciPy DOP853, {few} balls", error(times, speeds), seconds["SciPy DOP853"], 0)

    tool = HeyokaBall()
    sample = list(zip(heights[:1000].tolist(), restitutions[:1000].tolist(), strict=True))
    times, speeds = np.transpose([tool.bounce(*each) for each in sample])
    seconds["heyoka"] = best_time(lambda: [tool.bounce(*each) for each in sample]) / len(sample)
    row("heyoka, scalar", error(times, speeds), seconds["heyoka"], tool.compile_time)

    batch = jnp.asarray(heights), jnp.asarray(restitutions)
    for name, one in (("simulate", simulated), ("known sequence", in_sequence)):
        for how, run in (("vmap", jax.jit(jax.vmap(one))), (f"map, blocks of {block}", in_blocks(one))):
            call = lambda run=run: jax.block_until_ready(run(*batch))
            compiling, once = first_time(call), best_time(call) / balls
            row(f"hyjax {name}, {how}", error(*run(*batch)), once, compiling)
            seconds[name] = min(once, seconds.get(name, np.inf))
    ours = seconds["simulate"]
    print(f"hyjax simulate is so many times as fast as SciPy: {seconds['SciPy DOP853'] / ours:.0f}")
    print(f"... as heyoka: {seconds['heyoka'] / ours:.2f}")
    print(f"simulate takes so many times as long as the known sequence: {ours / seconds['known sequence']:.2f}")


# Contacts


def scipy_contact(height, restitution):
    """The same balls above a slope, in the plane."""
    sine, cosine = math.sin(TILT), math.cos(TILT)
    normal = np.array([sine, cosine])
    push = -gravity * cosine * normal

    def fall(t, x):
        return x[2], x[3], *push

    def surface(t, x):
        # A flight begins on the surface, up to rounding of either sign: the event is off while the ball rises.
        return sine * x[0] + cosine * x[1] if sine * x[2] + cosine * x[3] < 0 else 1.0

    surface.terminal, surface.direction = True, -1
    t, x = 0.0, np.array([0.0, height, 0.0, 0.0])
    for _ in range(bounces):
        flown = solve_ivp(fall, (t, t + 10), x, "DOP853", events=surface, rtol=1e-13, atol=1e-13)
        t, x = flown.t_events[0][0], flown.y_events[0][0]
        x[2:] -= (1 + restitution) * (normal @ x[2:]) * normal
    return t, normal @ x[2:]


def exact_contact(heights, restitutions):
    """Gravity and the height above the slope are both less by a cosine: the times are those of the floor."""
    time, speed = exact(heights, restitutions)
    return time, speed * math.cos(TILT)


# A push takes what would drive the ball downhill; or it would be far away by then, and its gap a difference of large numbers.
TILT = 0.3
PUSH = -gravity * math.sin(TILT) * np.array([math.cos(TILT), -math.sin(TILT)])
SLOPE = ball_on_slope.Params(slope=TILT, push_1=PUSH[0], push_2=PUSH[1])
SYSTEM = hj.contact.contact_system(
    hj.contact.Mechanism(ball_on_slope.mass, ball_on_slope.forces),
    hj.contact.Contact(ball_on_slope.height, restitution=lambda params: params.restitution),
    coordinates=("q1", "q2"),
)


def contact(height, restitution):
    """Time and normal speed after the last impact, through flight down, flight up, and whatever else may come."""
    params = eqx.tree_at(lambda p: p.restitution, SLOPE, restitution)
    x = jnp.stack([0 * height, height, 0 * height, 0 * height])
    # An impact and an apex for each bounce, but for the last.
    run = hj.simulate(SYSTEM, x, params, mode="U", t1=100.0, max_jumps=2 * bounces - 1, throw=False)
    last = run.x_ends[2 * bounces - 2, 2:]
    return run.end_times[2 * bounces - 2], -restitution * (
        jnp.sin(params.slope) * last[0] + jnp.cos(params.slope) * last[1]
    )


def compare_contacts():
    print(f"\n{contacts} balls on a slope by contact_system, {bounces} impacts")
    print(f"{'':<46}{'error':>10}{'us a ball':>14}{'compile, s':>12}")
    truth = exact_contact(heights[:contacts], restitutions[:contacts])
    off = lambda found: max(np.max(np.abs(np.asarray(a) / b[: len(a)] - 1)) for a, b in zip(found, truth, strict=True))
    sample = list(zip(heights[:few], restitutions[:few], strict=True))
    found = np.transpose([scipy_contact(*each) for each in sample])
    by_scipy = best_time(lambda: [scipy_contact(*each) for each in sample]) / few
    row(f"SciPy DOP853, {few} balls", off(found), by_scipy, 0)
    run, batch = jax.jit(jax.vmap(contact)), (jnp.asarray(heights[:contacts]), jnp.asarray(restitutions[:contacts]))
    call = lambda: jax.block_until_ready(run(*batch))
    compiling, once = first_time(call), best_time(call) / contacts
    row("hyjax simulate, vmap", off(run(*batch)), once, compiling)
    print(f"hyjax simulate is so many times as fast as SciPy: {by_scipy / once:.0f}")


if __name__ == "__main__":
    print(f"{len(os.sched_getaffinity(0))} cores")
    compare_balls()
    compare_contacts()
