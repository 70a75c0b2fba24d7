"""Random systems against a slow and simple simulator; `python tests/test_fuzz.py 10000` runs more of them."""

import sys

import fuzz_systems as fuzz
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj

# A lane is compared only if guards shifted by this meet the same edges, also where one barely falls or two fall together.
SHIFT = 1e-6


def compared(seed: int, lanes: int) -> tuple[int, list[str]]:
    """The number of lanes of a random shape that could be compared, and what is wrong with the others."""
    rng = np.random.default_rng(seed)
    shape = fuzz.random_shape(rng)
    drawn = [fuzz.random_coefficients(shape, rng) for _ in range(lanes)]
    *params, x = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, float) for leaf in leaves]), *drawn)
    system = fuzz.hybrid_system(shape)
    simulate = jax.jit(
        jax.vmap(lambda x, params: hj.simulate(system, x, params, mode="m0", t1=fuzz.END, max_jumps=fuzz.JUMPS))
    )
    walks = jax.device_get(simulate(x, tuple(params)))
    count, wrong = 0, []
    for lane, coefficients in enumerate(drawn):
        slow, *shifted = (fuzz.slow_simulation(shape, coefficients, shift) for shift in (0, SHIFT, -SHIFT))
        if any((other.edges, other.ending) != (slow.edges, slow.ending) for other in shifted):
            continue
        count += 1
        if fault := difference(jax.tree.map(lambda leaf, lane=lane: leaf[lane], walks), slow, shape):
            wrong.append(f"seed {seed}, lane {lane}: {fault}")
    return count, wrong


def difference(walk, slow, shape) -> str:
    """What differs between the two simulations of a lane; empty if nothing does."""
    result = next(name for name in ENDINGS if walk.result._value == getattr(hj.RESULTS, name)._value)
    if slow.ending not in ENDINGS[result]:
        return f"{result}, but {slow.ending} after {slow.edges} at {slow.times}; {walk.transitions} at {walk.ends}"
    edges = walk.transitions[walk.transitions >= 0][: len(slow.edges)]
    if list(edges) != slow.edges[: len(edges)] or (slow.ending == "end" and len(edges) < len(slow.edges)):
        return f"edges {edges}, but {slow.edges} at {slow.times}"
    times = np.array(slow.times[: len(edges)])
    # An error of the slow simulator, 1e-11, grows by the saltation matrices of up to twelve jumps.
    if times.size and not np.allclose(walk.ends[: times.size], times, rtol=0, atol=1e-6):
        return f"times {walk.ends[: times.size]}, but {times}"
    size = 1 + np.max(np.abs(slow.x))
    if slow.ending == "end" and not np.allclose(walk.x[: slow.x.size], slow.x, rtol=0, atol=1e-5 * size):
        return f"state {walk.x}, but {slow.x}"
    return ""


# The results of hyjax, each with the endings of the slow simulator that it may have.
ENDINGS = {
    "successful": ["end"],
    "max_jumps_reached": ["jumps", "stuck"],
    "zeno": ["stuck", "jumps"],
    "sliding": ["stuck", "jumps"],
    "nonfinite": ["infinite"],
    "grazing": [],
    "simultaneous_guards": [],
    "max_steps_reached": ["infinite"],
    "dt_min_reached": ["infinite"],
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
def test_random_systems(seed):
    count, wrong = compared(seed, 40)
    assert not wrong, "\n".join(wrong)
    # Guards that barely fall leave a few out.
    assert count >= 30


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    systems, done = int(sys.argv[1]), 0
    for seed in range(100, 100 + -(-systems // 100)):
        count, wrong = compared(seed, 100)
        done += count
        print(f"seed {seed}: {count} of 100 compared, {done} in all", *wrong, sep="\n  ", flush=True)
