"""What does the gradient of a gait cost, by few parameters and by many?

The simplest walker at slope 0.009 whose hip is turned by a network of 5 to 5 000 weights. The gradient of the period, and that
of the spectral radius, by all weights: forward mode pushes a tangent for each, reverse mode integrates backwards. The guess is
the gait itself, which is nearly what it is between two steps of an optimization; so the search, two strides with their
Jacobians, is in every column, and alone in the first. Processor time, medians of interleaved runs; memory is what the compiled
program reserves beside its arguments and results.

    python benchmarks/reverse.py [--quick]

A run is kept in `outputs/reverse.json`.
"""

import argparse
import time

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import hyjax as hj
from hyjax.models import simplest_walker as walker

jax.config.update("jax_enable_x64", True)

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="5 and 500 weights, few repetitions")
quick = parser.parse_args().quick

# Width and number of the hidden layers.
networks = ((1, 0), (19, 2)) if quick else ((1, 0), (8, 1), (19, 2), (67, 2))
rounds = 3 if quick else 9
quantities = {"period": lambda orbit: orbit.period, "spectral radius": lambda orbit: orbit.spectral_radius}
adjoints = {
    "forward": dfx.ForwardMode(),
    "checkpoints": dfx.RecursiveCheckpointAdjoint(),
    "direct": dfx.DirectAdjoint(),
}


class Params(eqx.Module):
    slope: jax.Array
    hip: eqx.nn.MLP


def swing(t, x, params):
    return walker.swing(t, x, params).at[3].add(0.01 * params.hip(x))


system = hj.HybridSystem(
    {"swing": hj.Mode(swing, walker.coordinates)},
    (hj.Transition("swing", "swing", walker.foot_height, walker.heel_strike),),
)


def network(width, layers):
    """The numbers of the parameters, and all else."""
    hip = eqx.nn.MLP(4, "scalar", width, layers, activation=jnp.tanh, key=jax.random.key(0))
    hip = jax.tree.map(lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, hip)
    return eqx.partition(Params(jnp.asarray(0.009), hip), eqx.is_inexact_array)


def programs(numbers, rest, x):
    """What is measured, by name: compiled, with the memory that it takes."""

    def orbit(numbers, x, adjoint):
        return hj.periodic_orbit(
            hj.ReturnMap(system, sequence=("swing",), integrator=hj.Integrator(adjoint=adjoint)),
            x,
            eqx.combine(numbers, rest),
            throw=False,
        )

    def stride(numbers, x):
        return hj.ReturnMap(system, sequence=("swing",))(x, eqx.combine(numbers, rest), throw=False).time

    asked = {"stride": stride, "orbit": lambda numbers, x: orbit(numbers, x, adjoints["forward"]).period}
    for what, quantity in quantities.items():
        for how, adjoint in adjoints.items():
            asked[f"{what}, {how}"] = jax.value_and_grad(
                lambda numbers, x, quantity=quantity, adjoint=adjoint: quantity(orbit(numbers, x, adjoint))
            )
    for name, function in asked.items():
        start = time.process_time()
        compiled = jax.jit(function).lower(numbers, x).compile()
        compiling = time.process_time() - start
        yield name, compiled, compiling, compiled.memory_analysis().temp_size_in_bytes


def cpu_time(call):
    start = time.process_time()
    jax.block_until_ready(call())
    return time.process_time() - start


def measure(width, layers):
    numbers, rest = network(width, layers)
    gait = hj.periodic_orbit(
        hj.ReturnMap(system, sequence=("swing",)), walker.guess(walker.Params()), eqx.combine(numbers, rest)
    )
    ready = list(programs(numbers, rest, gait.x))
    seconds = {name: [] for name, *_ in ready}
    for _ in range(rounds):
        for name, compiled, *_ in ready:
            first = cpu_time(lambda: compiled(numbers, gait.x))  # noqa: B023
            # Many repetitions of what is short; none of what takes seconds.
            repeated = [cpu_time(lambda: compiled(numbers, gait.x)) for _ in range(int(min(20, 0.1 / first)))]  # noqa: B023
            seconds[name].append(np.median([*repeated, first]))
    weights = sum(leaf.size for leaf in jax.tree.leaves(numbers.hip))
    stride = np.median(seconds["stride"])
    print(f"\n{weights} weights; a stride takes {stride * 1e3:.2f} ms")
    print(f"{'':<30}{'strides':>10}{'ms':>12}{'MB':>10}{'compile, s':>12}")
    for name, _, compiling, memory in ready:
        spent = np.median(seconds[name])
        print(
            f"{name:<30}{spent / stride:>10.1f}{spent * 1e3:>12.2f}{memory / 1e6:>10.2f}{compiling:>12.1f}", flush=True
        )


if __name__ == "__main__":
    for width, layers in networks:
        measure(width, layers)
