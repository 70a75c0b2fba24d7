"""How long do hyjax's graphs take to trace and to compile?

The simplest walker at slope 0.009 with the default integrator. Each graph is a new `jax.jit` function with JAX's caches
cleared, so that nothing is shared with the graph before. Its lines are those of the lowered program; the error is that
of what the compiled program returns, against reference values.

    python benchmarks/compile_time.py [--quick]

A run is kept in `outputs/compile_time.json`.
"""

import argparse
import time

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import hyjax as hj
from hyjax.models import simplest_walker as walker

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_enable_compilation_cache", False)

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="the first four graphs only")
quick = parser.parse_args().quick

slope = jnp.asarray(0.009)
# At that slope: the gait's start, the first row of its Jacobian, its period, and derivatives by the slope.
x0 = jnp.array([0.20031090054424709, -0.19983247300495235, 0.40062180108849418, -0.015822999948309382])
known = {
    "theta": 0.20031090054424709,
    "d theta / dx": [-6.866534385118004, -6.873320112898629, 0.40621172856074531, 0.33187881821856304],
    "period": 3.882463752851374,
    "d period": 5.346788245468929,
    "d theta": 7.297820211622623,
    "d2 period": -180.3743123108,
}
backwards = hj.Integrator(adjoint=dfx.DirectAdjoint())


def stride(x, slope, integrator=hj.Integrator()):
    return hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=integrator)(
        x, walker.Params(slope), throw=False
    )


def jacobian(x, slope):
    return walker.step.jacobian(x, walker.Params(slope), throw=False)


def gait(slope):
    params = walker.Params(slope)
    return hj.periodic_orbit(walker.step, walker.guess(params), params, throw=False)


def period(slope):
    return gait(slope).period


# What each graph is, its arguments, and of what it returns the number that is known.
graphs = (
    ("stride", stride, (x0, slope), lambda out: out.x[0], "theta"),
    ("return Jacobian", jacobian, (x0, slope), lambda out: out[0], "d theta / dx"),
    ("periodic orbit", gait, (slope,), lambda out: out.period, "period"),
    ("128 periodic orbits, vmap", jax.vmap(gait), (jnp.full(128, slope),), lambda out: out.period, "period"),
    ("period, grad", jax.grad(period), (slope,), lambda out: out, "d period"),
    ("start, jacfwd", jax.jacfwd(lambda slope: gait(slope).x), (slope,), lambda out: out[0], "d theta"),
    ("period, Hessian", jax.hessian(period), (slope,), lambda out: out, "d2 period"),
    (
        "stride, grad, DirectAdjoint",
        jax.grad(lambda x, slope: stride(x, slope, backwards).x[0]),
        (x0, slope),
        lambda out: out,
        "d theta / dx",
    ),
)


def measure(name, function, arguments, number, quantity):
    jax.clear_caches()
    clock = [time.perf_counter()]
    traced = jax.jit(lambda *arguments: function(*arguments)).trace(*arguments)
    clock.append(time.perf_counter())
    lowered = traced.lower()
    clock.append(time.perf_counter())
    compiled = lowered.compile()
    clock.append(time.perf_counter())
    error = np.max(np.abs(np.asarray(number(compiled(*arguments))) - np.asarray(known[quantity])))
    seconds = np.diff(clock)
    lines = lowered.as_text().count("\n")
    print(
        f"{name:<30}" + "".join(f"{each:>9.2f}" for each in (*seconds, seconds.sum())) + f"{lines:>9}{error:>10.1e}",
        flush=True,
    )
    return seconds.sum()


if __name__ == "__main__":
    jax.block_until_ready(jax.jit(lambda x: jnp.linalg.eigvals(x @ x))(jnp.eye(4)))
    print(f"{'seconds':<30}{'trace':>9}{'lower':>9}{'compile':>9}{'total':>9}{'lines':>9}{'error':>10}")
    totals = [measure(*graph) for graph in (graphs[:4] if quick else graphs)]
    print(
        "\nso many times a stride's: "
        + ", ".join(f"{graph[0]} {total / totals[0]:.1f}" for graph, total in zip(graphs, totals, strict=False))
    )
