"""How many spikes a second does a network of pulse-coupled neurons take, beside an event loop in NumPy?

Neurons v' = I - v, all to all, that inhibit each other (coupling -0.1): they fire one by one, so that each spike is an event, and
every event changes all states. Simulated without a record of the arcs, one network at a time, on one core.

    python benchmarks/network.py [--sizes 5,30,100,1000] [--spikes 2000] [--rtol 1e-8]

The loop in NumPy integrates any vector field, as hyjax does: steps of Dormand and Prince of order 5 with an adaptive length, and
steps shortened by the secant method onto the threshold. Its tolerance is the largest at which its spike times are as accurate as
hyjax's. Where eventax is installed (`pip install eventax`), it integrates the same network with the same solver and tolerance.
The errors are those of the last spike time, against the closed form of the flow between spikes, in extended precision.
"""

import argparse
import os
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax

jax.config.update("jax_enable_x64", True)

import diffrax as dfx  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optimistix as optx  # noqa: E402

import hyjax as hj  # noqa: E402
from hyjax.models import pulse_coupled_neurons as model  # noqa: E402

COUPLING = -0.1
PARAMS = model.Params(coupling=COUPLING)
DRIVE = float(PARAMS.drive)
TABLEAU = dfx.Dopri5().tableau
LOWER = [np.asarray(row) for row in TABLEAU.a_lower]
SOLUTION, ERROR = np.asarray(TABLEAU.b_sol), np.asarray(TABLEAU.b_error)


def start(n: int) -> np.ndarray:
    return 0.95 * (np.arange(n) * 0.6180339887 % 1)


def exact(v: np.ndarray, spikes: int) -> tuple[float, np.ndarray]:
    """Time of the last spike, and the states after it: closed form, in extended precision."""
    v, t = v.astype(np.longdouble), np.longdouble(0)
    pulse = np.longdouble(COUPLING) / len(v)
    drive = np.longdouble(DRIVE)
    for _ in range(spikes):
        k = int(np.argmax(v))
        wait = np.log((drive - v[k]) / (drive - 1))
        v = drive - (drive - v) * np.exp(-wait) + pulse
        v[k], t = 0, t + wait
    return float(t), v.astype(float)


def field(t: float, v: np.ndarray) -> np.ndarray:
    return DRIVE - v


def step(t: float, v: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
    """The state after a step, and the estimate of its error."""
    stages = [field(t, v)]
    for row in LOWER:
        stages.append(field(t + h * row.sum(), v + h * (row @ np.array(stages))))
    rows = np.array(stages)
    return v + h * (SOLUTION @ rows), h * (ERROR @ rows)


def loop(v: np.ndarray, spikes: int, tolerance: float) -> float:
    """The time of the last spike, by an event loop in NumPy."""
    t, h, pulse = 0.0, 0.01, COUPLING / len(v)
    for _ in range(spikes):
        while True:
            after, error = step(t, v, h)
            size = np.sqrt(np.mean((error / (tolerance + tolerance * np.abs(after))) ** 2))
            if size >= 1:
                h *= max(0.2, 0.9 * size**-0.2)
                continue
            if after.max() < 1:
                t, v, h = t + h, after, h * min(10.0, 0.9 * max(size, 1e-10) ** -0.2)
                continue
            # Onto the threshold, by the secant method on the length of the step.
            k = int(np.argmax(after))
            a, b, low, high = 0.0, h, v[k] - 1, after[k] - 1
            while abs(high) > 1e-14 and a != b:
                a, b, low = b, b - high * (b - a) / (high - low), high
                after, _ = step(t, v, b)
                high = after[k] - 1
            t, v = t + b, after + pulse
            v[k] = 0
            break
    return t


def by_eventax(v0: np.ndarray, spikes: int, tolerance: float):
    """The network in eventax: a program for the time of the last spike, or `None` where eventax is not installed."""
    try:
        from eventax.evnn import EvNN
        from eventax.neuron_models.base_model import NeuronModel
    except ImportError:
        return None
    n = len(v0)

    class Neurons(NeuronModel):
        def __init__(self, key, n_neurons, in_size, wmask, dtype):
            super().__init__(dtype=dtype)

        def init_state(self, n_neurons):
            return jnp.asarray(v0)

        def dynamics(self, t, y, args):
            return DRIVE - y

        def spike_condition(self, t, y, **_):
            return y - 1

        def input_spike(self, y, from_idx, to_idx, valid_mask):
            return y + COUPLING / n

        def reset_spiked(self, y, spiked_mask):
            # The pulse that follows is not for the neuron that fired.
            return jnp.where(spiked_mask, -COUPLING / n, y)

    far = exact(v0, spikes + 1)[0] + 1
    network = EvNN(
        Neurons, n, float(far), 1, key=jax.random.key(0), wmask=jnp.ones((n + 1, n)), solver=dfx.Dopri5(), max_event_steps=2,
        stepsize_controller=dfx.PIDController(tolerance, tolerance), root_finder=optx.Newton(1e-13, 1e-13), solver_stepsize=1e-3,
        dtype=jnp.float64,
    )  # fmt: skip

    @jax.jit
    def last_spike():
        def more(carry):
            return carry[0] < spikes

        def one(carry):
            count, last, state, buffer = carry
            t, fired, state, buffer = network(state, buffer)
            any_fired = jnp.any(fired)
            return count + any_fired, jnp.where(any_fired, t, last), state, buffer

        start = jnp.array(0), jnp.array(0.0), network.init_state(), network.init_buffer(jnp.full((1, 1), jnp.inf))
        return jax.lax.while_loop(more, one, start)[1]

    return last_spike


def quickest(run, rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="5,30,100,1000")
    parser.add_argument("--spikes", type=int, default=2000)
    parser.add_argument("--rtol", type=float, default=1e-8)
    given = parser.parse_args()
    print(
        f"{'neurons':>8}{'hyjax':>12}{'error':>10}{'NumPy':>12}{'error':>10}{'ratio':>8}{'compile':>9}   (spikes a second)"
    )
    for n in map(int, given.sizes.split(",")):
        v0, system = start(n), model.network(n)
        last, _ = exact(v0, given.spikes)
        integrator = hj.Integrator(dfx.Dopri5(), rtol=given.rtol, atol=given.rtol)
        # Just after the last spike, before the next.
        end = last + 1e-4 * (exact(v0, given.spikes + 1)[0] - last)

        def simulated(n=n, v0=v0, system=system, integrator=integrator, end=end):
            run = hj.simulate(
                system, jnp.asarray(v0), PARAMS, mode="network", t1=end, max_jumps=10 * given.spikes, record=False,
                integrator=integrator,
            )  # fmt: skip
            return run.x.block_until_ready(), int(run.jumps)

        began = time.process_time()
        x, jumps = simulated()
        compiling = time.process_time() - began
        assert jumps == given.spikes, (jumps, given.spikes)
        # The state a little after the last spike says when it was: v = I (1 - exp(-s)) of the neuron that fired.
        fired = float(np.min(x))
        ours = abs(end + np.log(1 - fired / DRIVE) - last)
        seconds = quickest(simulated)
        tolerance, theirs = given.rtol, np.inf
        fewer = max(given.spikes // 10, 50)
        short, _ = exact(v0, fewer)
        while theirs > max(ours, 1e-13) and tolerance > 1e-13:
            theirs = abs(loop(v0, fewer, tolerance) - short)
            tolerance /= 4
        tolerance *= 4
        other = quickest(lambda v0=v0, fewer=fewer, tolerance=tolerance: loop(v0, fewer, tolerance), 2)
        own, rate = given.spikes / seconds, fewer / other
        print(f"{n:8}{own:12.0f}{ours:10.1e}{rate:12.0f}{theirs:10.1e}{own / rate:8.1f}{compiling:9.1f}", flush=True)
        peer = by_eventax(v0, fewer, given.rtol)
        if peer is not None:
            began = time.process_time()
            error = abs(float(peer()) - short)
            compiling = time.process_time() - began
            rate = fewer / quickest(lambda peer=peer: peer().block_until_ready(), 2)
            print(f"{'eventax':>30}{rate:12.0f}{error:10.1e}{own / rate:8.1f}{compiling:9.1f}", flush=True)


if __name__ == "__main__":
    main()
