"""How long does the step of least effort of RABBIT take, beside direct collocation with CasADi and IPOPT?

min (1/L) integral u^2 dt at a speed, from mirrored poses joined by straight lines: |u| <= 150 N m, friction 0.6 and a normal
force of 50 N at least, a clearance of 0.04 (1 - (x/L)^2) m, knees bent by 0.05 at least, the impulse of the strike inside the
cone, the old foot leaves upward. 25 intervals: hyjax with linear torques and exact arcs; CasADi by Hermite and Simpson, with
quadratic torques, the problem of Chevallereau et al. (2003) as this file states it in both. Where CasADi is installed (`pip
install casadi`) it is built and solved in the same run, and its torques are replayed. A feedback from interval to interval makes
the optimum stable: multipliers, and steps after a push. Then 64 optima over speed and slope, in two threads; and what a fresh
process computes before the first results of the robot and before the optimum, from an empty cache of programs and a full one.

    python benchmarks/robots.py [--intervals 25] [--speeds 8] [--slopes 8]
"""

import argparse
import concurrent.futures
import os
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import equinox as eqx  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from first_result import cold_and_warm  # noqa: E402

import hyjax as hj  # noqa: E402
from hyjax.models import rabbit  # noqa: E402

BODY = rabbit.Params()
CONVERGED = 259.604


class Params(NamedTuple):
    """The robot, its torques, the length of the step, and the slope of the ground, downhill positive."""

    body: rabbit.Params
    torque: Any
    reach: Any
    slope: Any


def tilted(p):
    """The robot under the part of gravity across the ground."""
    return eqx.tree_at(lambda body: body.gravity, p.body, p.body.gravity * jnp.cos(p.slope))


def forces(t, q, v, p):
    """Torques, and the part of gravity along the ground."""
    first = rabbit.masses(p.body) @ rabbit.times(rabbit.CENTERS - rabbit.FEET[0], rabbit.lengths(p.body))
    _, cosines = rabbit.directions(q)
    along = p.body.gravity * jnp.sin(p.slope) * rabbit.times(rabbit.ABSOLUTE.T, first * cosines)
    return along + jnp.concatenate([jnp.zeros(1, q.dtype), p.torque])


MECHANISM = hj.contact.Mechanism(
    lambda q, p: rabbit.stance_mass(q, p.body),
    coriolis=lambda q, v, p: rabbit.stance_bias(q, v, tilted(p)),
    forces=forces,
)
of = lambda fn: lambda t, x, p: fn(t, x, p.body)


def swing(t, x, p):
    return jnp.concatenate([x[5:], MECHANISM.acceleration(t, x[:5], x[5:], p)])


def travel(mode, x, p):
    return rabbit.foothold(x, p.body)


def ground(t, x, p):
    along, up = rabbit.foot_force(x, swing(t, x, p)[5:], p.body)
    weight = rabbit.weight(p.body)
    along, up = along - weight * jnp.sin(p.slope), up - weight * (1 - jnp.cos(p.slope))
    return jnp.stack([0.6 * up - along, 0.6 * up + along, up - 50])


def clearance(t, x, p):
    ahead, above = rabbit.foothold(x, p.body)
    return above - 0.04 * (1 - (ahead / p.reach) ** 2)


def impulse(orbit, p):
    up, along = rabbit.strike_impulse(orbit.arc_ends[0][0], p.body)
    return jnp.stack([0.6 * up - along, 0.6 * up + along])


def leaves(orbit, p):
    height = lambda q: rabbit.foothold(jnp.concatenate([q, q]), p.body)[1]
    return jax.jvp(height, (orbit.x[:5],), (orbit.x[5:],))[1]


STRIKE = hj.Transition("swing", "swing", of(rabbit.foot_height), of(rabbit.strike), armed=of(rabbit.foot_ahead))
MODE = hj.Mode(swing, rabbit.coordinates, domain=of(rabbit.hip_height))
STEP = hj.ReturnMap(hj.HybridSystem({"swing": MODE}, (STRIKE,)), sequence=("swing",))
EFFORT, LENGTH = hj.objectives.integral(lambda t, x, p: p.torque @ p.torque), hj.objectives.step_length(travel)


def limits(speed, intervals):
    window = (1 / intervals, 1 - 1 / intervals)
    return [
        hj.Constraint(hj.objectives.speed(travel), equals=speed),
        hj.Constraint(lambda orbit, p: LENGTH(orbit, p) - p.reach, equals=0.0, name="reach"),
        hj.Constraint(hj.objectives.along(ground), at_least=0.0),
        hj.Constraint(hj.objectives.along(clearance, window=window), at_least=0.0),
        hj.Constraint(hj.objectives.along(lambda t, x, p: x[jnp.array([2, 4])]), at_least=0.05, name="knees"),
        hj.Constraint(hj.objectives.along(lambda t, x, p: x[0]), at_least=-0.8, at_most=0.8, name="torso"),
        hj.Constraint(impulse, at_least=0.0),
        hj.Constraint(leaves, at_least=0.0),
    ]


def crude(intervals):
    """Mirrored poses with both feet on the ground, 0.4 m apart, joined by straight lines; the swing knee bends."""
    end = np.array([-0.0085, 0.25, 0.1, -0.2437, 0.25])
    part = np.linspace(0, 1, intervals + 1)[:, None]
    q = (1 - part) * end[[0, 3, 4, 1, 2]] + part * end
    q[:, 4] += 0.6 * np.sin(np.pi * part[:, 0])
    duration = 0.4 / 0.75
    return np.concatenate([q, np.gradient(q, duration / intervals, axis=0)], axis=1), duration


def cost(orbit, p):
    return EFFORT(orbit, p) / LENGTH(orbit, p)


def search(intervals):
    """The optimum as a function of speed and slope."""
    inputs = hj.control.HeldInputs(STEP, lambda p: p.torque, intervals=intervals, low=-150.0, high=150.0)
    x, duration = crude(intervals)
    # Made once: a call with other functions is compiled again.
    reach, (first, *others) = lambda p: p.reach, limits(0.75, intervals)

    def optimum(speed, slope):
        params = Params(BODY, jnp.zeros(4), jnp.array(0.4), slope)
        guess = inputs.plan(jnp.asarray(x), duration, params)
        own = eqx.tree_at(lambda each: each.equals, first, jnp.asarray(speed, float))
        return hj.optimize(guess, cost, where=reach, constraints=[own, *others], throw=False)

    return optimum


class Loop(NamedTuple):
    """The corrected plan: parameters, torques, the duration of an interval, gains, and the states at the starts of intervals."""

    own: Params
    inputs: Any
    interval: Any
    gains: Any
    starts: Any


def begun(x, k, p):
    """The state at the start of an interval: with a clock, the interval's number and the correction, which are held."""
    k = jnp.asarray(k, x.dtype)
    at = k.astype(int)
    return jnp.concatenate([x, jnp.stack([k * p.interval, k]), -p.gains[at] @ (x - p.starts[at])])


def corrected(t, x, p):
    at = x[11].astype(int)
    part = x[10] / p.interval - x[11]
    torque = (1 - part) * p.inputs[at, 0] + part * p.inputs[at, 1] + x[12:]
    return jnp.append(swing(t, x[:10], p.own._replace(torque=torque)), 1)


STATE, HELD = (*rabbit.coordinates, "clock"), ("interval", *(f"{joint}_correction" for joint in rabbit.joints))
WALK = hj.HybridSystem(
    {"swing": hj.Mode(corrected, STATE, domain=lambda t, x, p: rabbit.hip_height(t, x[:10], p.own.body), held=HELD)},
    (
        hj.Transition(
            "swing", "swing", lambda t, x, p: (x[11] + 1) * p.interval - x[10], lambda t, x, p: begun(x[:10], x[11] + 1, p),
            armed=lambda t, x, p: x[11] < len(p.inputs) - 1.5,
        ),
        hj.Transition(
            "swing", "swing", lambda t, x, p: rabbit.foot_height(t, x[:10], p.own.body),
            lambda t, x, p: begun(rabbit.strike(t, x[:10], p.own.body), 0, p),
            armed=lambda t, x, p: rabbit.foot_ahead(t, x[:10], p.own.body),
        ),
    ),
)  # fmt: skip


def walk(gait, gains, push, steps=8):
    """Distances from the plan after each strike, of a walk whose torso is pushed by so much at its start."""
    plan = gait.plan
    p = Loop(plan.params, plan.inputs, plan.duration / len(plan.inputs), gains, plan.x[:-1])
    x = begun(plan.x[0].at[5].add(push), 0, p)
    fast = hj.Integrator(rtol=1e-10, atol=1e-10, unroll=False)
    run = hj.simulate(
        WALK, x, p, mode="swing", t1=(steps + 0.5) * plan.duration, max_jumps=30 * steps, integrator=fast, throw=False
    )
    strikes = np.asarray(run.transitions)[:-1] == 1
    return np.max(np.abs(np.asarray(run.x_starts)[1:][strikes][:, :10] - np.asarray(plan.x[0])), axis=1), run.result


def stabilized(gait):
    """Feedback from interval to interval: its multipliers, and walks with it and without."""
    begin = time.process_time()
    feedback = gait.feedback()
    largest = lambda values: float(jnp.max(jnp.abs(values)))
    alone = largest(jnp.linalg.eigvals(gait.return_jacobian))
    print(
        f"feedback once per interval: the largest multiplier is {largest(feedback.multipliers):.3f}, without it {alone:.0f} "
        f"({time.process_time() - begin:.1f} CPU s with compilation)"
    )
    for gains, name in ((feedback.gains, "with"), (0 * feedback.gains, "without")):
        away, code = walk(gait, gains, 0.1)
        shown = ", ".join(f"{each:.0e}" for each in away)
        print(f"pushed by 0.1 rad/s, {name} feedback, the distance from the plan after each strike: {shown} ({code})")


# What a fresh process computes first, and the error of it.
START = "from hyjax.models import rabbit\nparams = rabbit.Params()\n"
ORBIT = "orbit = lambda p: hj.periodic_orbit(rabbit.step, rabbit.guess(p), p)\n"
FIRST = {
    "simulate": """
run = hj.simulate(rabbit.system, rabbit.guess(params), params, mode="swing", t1=1.0)
print(float(run.result._value))
""",
    "orbit": ORBIT + "print(abs(float(orbit(params).period) - 0.5105390538657097))",
    "gradient": ORBIT
    + "print(abs(float(jax.grad(lambda p: orbit(p).period)(params).torso_mass) - (-0.01450401850281)))",
    "optimum": """
import robots
found = robots.search(25)(jnp.array(0.75), jnp.array(0.0))
print(abs(float(found.value) / robots.CONVERGED - 1))
""",
}


def by_casadi(intervals, speed=0.75):
    """The same problem by collocation: seconds to build and to solve, the objective, iterations, and by how much the state misses
    the end of the step when its torques are replayed."""
    try:
        import casadi as ca
    except ImportError:
        return None
    begun = time.perf_counter()
    body = {name: float(getattr(BODY, name)) for name in BODY.__dataclass_fields__}
    lengths = np.array(
        [body["torso_com"], body["thigh_com"], body["thigh_length"], body["shank_com"], body["shank_length"]]
    )
    masses = np.array([body[f"{name}_mass"] for name in ("torso", "thigh", "shank", "thigh", "shank")])
    own = np.array([body[f"{name}_inertia"] for name in ("torso", "thigh", "shank", "thigh", "shank")])
    q, v, u = ca.SX.sym("q", 5), ca.SX.sym("v", 5), ca.SX.sym("u", 4)
    base = ca.SX.sym("b", 2)

    def place(arms, q):
        """From the hip by lengths along the absolute angles."""
        angles = rabbit.ABSOLUTE @ q
        return ca.vertcat(
            (arms @ lengths).reshape(1, 5) @ ca.sin(angles), (arms @ lengths).reshape(1, 5) @ ca.cos(angles)
        )

    def kinetic(hip, whole, rates, q):
        total = 0
        for k in range(5):
            velocity = ca.jtimes(hip + place(rabbit.CENTERS[k], q), whole, rates)
            turning = ca.jtimes(rabbit.ABSOLUTE[k].reshape(1, 5) @ q, whole, rates)
            total += masses[k] * ca.sumsqr(velocity) / 2 + own[k] * turning**2 / 2
        return total

    hip = -place(rabbit.FEET[0], q)
    energy = kinetic(hip, q, v, q)
    height = sum(masses[k] * (hip + place(rabbit.CENTERS[k], q))[1] for k in range(5))
    momentum = ca.gradient(energy, v)
    bias = ca.jtimes(momentum, q, v) - ca.gradient(energy - body["gravity"] * height, q)
    rate = ca.solve(ca.jacobian(momentum, v), ca.vertcat(0, u) - bias)
    centre = sum(masses[k] * (hip + place(rabbit.CENTERS[k], q)) for k in range(5))
    along = ca.jtimes(centre, q, v)
    force = ca.jtimes(along, ca.vertcat(q, v), ca.vertcat(v, rate)) + ca.DM([0, masses.sum() * body["gravity"]])
    foot = hip + place(rabbit.FEET[1], q)
    # The strike, of the robot free of the ground.
    whole, rates = ca.vertcat(base, q), ca.SX.sym("w", 7)
    free = ca.hessian(kinetic(base, whole, rates, q), rates)[0]
    lands = ca.jacobian(base + place(rabbit.FEET[1], q), whole)
    before = ca.vertcat(ca.jtimes(hip, q, v), v)
    kkt = ca.vertcat(ca.horzcat(free, -lands.T), ca.horzcat(lands, ca.SX.zeros(2, 2)))
    solved = ca.solve(kkt, ca.vertcat(free @ before, 0, 0))
    legs = rabbit.LEGS.tolist()
    after = ca.vertcat(q[legs], solved[2:7][legs])
    rising = ca.jtimes(base + place(rabbit.FEET[0], q), whole, solved[:7])[1]
    x = ca.vertcat(q, v)
    field = ca.Function("field", [x, u], [ca.vertcat(v, rate)])
    pushes = ca.Function("pushes", [x, u], [force])
    swings = ca.Function("swings", [x], [foot])
    strikes = ca.Function("strikes", [x], [after, solved[7:], rising])

    n = intervals
    X, M = ca.MX.sym("X", 10, n + 1), ca.MX.sym("M", 10, n)
    U, W = ca.MX.sym("U", 4, n + 1), ca.MX.sym("W", 4, n)
    T = ca.MX.sym("T")
    h = T / n
    g, low, high = [], [], []

    def add(value, least, most):
        g.append(value)
        low.extend([least] * value.numel())
        high.extend([most] * value.numel())

    reach, effort = swings(X[:, n])[0], 0
    for k in range(n):
        f0, f1, fm = field(X[:, k], U[:, k]), field(X[:, k + 1], U[:, k + 1]), field(M[:, k], W[:, k])
        add(M[:, k] - (X[:, k] + X[:, k + 1]) / 2 - h / 8 * (f0 - f1), 0, 0)
        add(X[:, k + 1] - X[:, k] - h / 6 * (f0 + 4 * fm + f1), 0, 0)
        effort += h / 6 * (ca.sumsqr(U[:, k]) + 4 * ca.sumsqr(W[:, k]) + ca.sumsqr(U[:, k + 1]))
    for k in range(n + 1):
        for at, own_u, inner in [(X[:, k], U[:, k], 0 < k < n)] + ([(M[:, k], W[:, k], True)] if k < n else []):
            push, foot_at = pushes(at, own_u), swings(at)
            add(ca.vertcat(0.6 * push[1] - push[0], 0.6 * push[1] + push[0], push[1] - 50), 0, np.inf)
            add(at[[2, 4]] - 0.05, 0, np.inf)
            if inner:
                add(foot_at[1] - 0.04 * (1 - (foot_at[0] / reach) ** 2), 0, np.inf)
    jumped, blow, rises = strikes(X[:, n])
    add(jumped - X[:, 0], 0, 0)
    add(ca.vertcat(swings(X[:, n])[1], reach - speed * T), 0, 0)
    add(ca.vertcat(0.6 * blow[1] - blow[0], 0.6 * blow[1] + blow[0], rises), 0, np.inf)
    unknowns = ca.vertcat(ca.vec(X), ca.vec(M), ca.vec(U), ca.vec(W), T)
    problem = {"x": unknowns, "f": effort / reach, "g": ca.vertcat(*g)}
    call = ca.nlpsol("step", "ipopt", problem, {"ipopt.print_level": 0, "print_time": False, "ipopt.sb": "yes"})
    built = time.perf_counter() - begun
    states, duration = crude(n)
    start = np.concatenate(
        [states.ravel(), ((states[:-1] + states[1:]) / 2).ravel(), np.zeros(4 * (2 * n + 1)), [duration]]
    )
    bound = np.concatenate([np.full(10 * (2 * n + 1), np.inf), np.full(4 * (2 * n + 1), 150.0), [2.0]])
    floor = -bound
    floor[-1] = 0.1
    begun = time.perf_counter()
    found = call(x0=start, lbx=floor, ubx=bound, lbg=low, ubg=high)
    solved_in = time.perf_counter() - begun
    # Replay: the quadratic torques of each interval, in small steps.
    values = np.asarray(found["x"]).ravel()
    states = values[: 10 * (n + 1)].reshape(n + 1, 10)
    nodes = values[10 * (2 * n + 1) : -1]
    node_u, middle_u = nodes[: 4 * (n + 1)].reshape(n + 1, 4), nodes[4 * (n + 1) :].reshape(n, 4)
    at, length = states[0], values[-1] / n
    for k in range(n):
        torques = node_u[k], middle_u[k], node_u[k + 1]
        for j in range(20):
            at = replayed(field, torques, at, j / 20, length)
    return built, solved_in, float(found["f"]), call.stats()["iter_count"], float(np.max(np.abs(at - states[-1])))


def replayed(field, torques, at, s, length):
    """The state after a twentieth of an interval, by the classical method of order 4, under quadratic torques."""
    first, middle, last = torques
    torque = lambda s: (1 - s) * (1 - 2 * s) * first + 4 * s * (1 - s) * middle + s * (2 * s - 1) * last
    rate = lambda s, at: np.asarray(field(at, torque(s))).ravel()
    step = length / 20
    k1 = rate(s, at)
    k2 = rate(s + 1 / 40, at + step / 2 * k1)
    k3 = rate(s + 1 / 40, at + step / 2 * k2)
    k4 = rate(s + 1 / 20, at + step * k3)
    return at + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--intervals", type=int, default=25)
    parser.add_argument("--speeds", type=int, default=8)
    parser.add_argument("--slopes", type=int, default=8)
    given = parser.parse_args()

    optimum = search(given.intervals)
    begun, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(optimum(jnp.array(0.75), jnp.array(0.0)))
    print(f"hyjax: compiled and solved in {time.perf_counter() - begun:.1f} s ({time.process_time() - cpu:.1f} CPU)")
    seconds = []
    for _ in range(3):
        begun = time.perf_counter()
        gait = jax.block_until_ready(optimum(jnp.array(0.75), jnp.array(0.0)))
        seconds.append(time.perf_counter() - begun)
    ours = min(seconds)
    print(
        f"hyjax: J = {float(gait.value):.4f} ({float(gait.value) / CONVERGED - 1:+.1e} of the converged optimum), {gait.result}, "
        f"shortfall {float(gait.shortfall):.0e}, gap {float(gait.gap):.0e}, solved in {ours:.2f} s"
    )
    peer = by_casadi(given.intervals)
    if peer is not None:
        built, solved, J, iterations, miss = peer
        print(
            f"CasADi: J = {J:.4f} ({J / CONVERGED - 1:+.1e}), built in {built:.2f} s, solved in {solved:.2f} s, {iterations} "
            f"iterations; replayed, its torques miss the end by {miss:.3f}"
        )
        print(f"one optimum: hyjax takes {ours / solved:.2f} of CasADi's time to solve")
    stabilized(gait)

    speeds, slopes = np.linspace(0.65, 0.8, given.speeds), np.linspace(-0.02, 0.02, given.slopes)
    pairs = np.stack(np.meshgrid(speeds, slopes), axis=-1).reshape(-1, 2)
    halves = np.array_split(pairs, 2)

    def value(pair):
        found = optimum(pair[0], pair[1])
        return found.value, found.result._value

    many = jax.jit(lambda pairs: jax.lax.map(value, pairs))
    begun = time.perf_counter()
    batch = many.lower(jnp.asarray(halves[0])).compile()
    print(f"batch: compiled in {time.perf_counter() - begun:.1f} s")
    begun = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda half: jax.block_until_ready(batch(jnp.asarray(half))), halves))
    spent = time.perf_counter() - begun
    values, codes = (np.concatenate([np.asarray(part[k]) for part in found]) for k in (0, 1))
    good = int(np.sum(codes == 0))
    print(
        f"{len(pairs)} optima over speed and slope: {spent:.1f} s, {good} successful, J {values.min():.1f} to {values.max():.1f}"
    )
    if peer is not None:
        print(f"of {len(pairs)} times CasADi's solve: {spent / (len(pairs) * solved):.2f}")

    print(f"{'CPU seconds':<12}{'cold':>8}{'warm':>8}{'error':>10}")
    for name, text in FIRST.items():
        cold, warm, error = cold_and_warm(START + text)
        print(f"{name:<12}{cold:>8.1f}{warm:>8.1f}{error:>10.1e}")


if __name__ == "__main__":
    main()
