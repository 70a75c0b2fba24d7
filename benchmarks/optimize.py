"""What does the gradient of an orbit's objective cost in strides, and how long does an optimization take?

Run `python benchmarks/optimize.py`. The cost of transport of the powered walker at a speed, over push-off and stiffness, from its
gait at the speed 0.4; that of the powered compass gait over four parameters from 64 starts. "stride": one stride without
derivatives, in the same process. "differences": the same gradient by SciPy's `solve_ivp`, `fsolve` and forward differences.

A run is kept in `outputs/optimize.json`.
"""

import time
import timeit

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate
import scipy.optimize

import hyjax as hj
from hyjax.models import powered_walker as walker

jax.config.update("jax_enable_x64", True)

SPEED = hj.objectives.speed(walker.travel)


def cost(orbit, params):
    return params.push_off**2 / (4 * jnp.sin(orbit.x[0]))


def seconds(fn, number: int) -> float:
    jax.block_until_ready(fn())
    return min(timeit.repeat(lambda: jax.block_until_ready(fn()), number=number, repeat=5)) / number


def scipy_cost(values: np.ndarray, guess: np.ndarray) -> float:
    """The same objective as it is computed with SciPy: a flow with an event to 1e-12 and `fsolve`."""
    push_off, stiffness = values

    def flow(t, x):
        theta, theta_rate, phi, phi_rate = x
        phi_accel = np.sin(theta) + (theta_rate**2 - np.cos(theta)) * np.sin(phi) - stiffness * phi
        return [theta_rate, np.sin(theta), phi_rate, phi_accel]

    def foot(t, x):
        return 2 * x[0] - x[2] if t > 0.2 else -1.0

    foot.terminal, foot.direction = True, -1  # type: ignore

    def stride(start):
        theta, rate = start
        x = [theta, rate, 2 * theta, (1 - np.cos(2 * theta)) * rate]
        theta, rate = scipy.integrate.solve_ivp(flow, (0, 10), x, "DOP853", events=foot, rtol=1e-12, atol=1e-12).y[
            :2, -1
        ]
        return [-theta, np.cos(2 * theta) * rate + push_off * np.sin(2 * theta)]

    found = np.asarray(scipy.optimize.fsolve(lambda start: np.array(stride(start)) - start, guess, xtol=1e-11))
    return push_off**2 / (4 * np.sin(found[0]))


def gradients(gait) -> None:
    params = gait.params
    backward = hj.Integrator(adjoint=dfx.RecursiveCheckpointAdjoint())

    def of(values, integrator):
        there = walker.Params(push_off=values[0], stiffness=values[1])
        orbit = hj.periodic_orbit(
            hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=integrator), gait.x, there, throw=False
        )
        return cost(orbit, there)

    values = jnp.stack([params.push_off, params.stiffness])
    stride = eqx.filter_jit(lambda x: walker.step(x, params, throw=False).x)
    forward = jax.jit(jax.jacfwd(lambda values: of(values, hj.Integrator())))
    reverse = jax.jit(jax.grad(lambda values: of(values, backward)))
    value = jax.jit(lambda values: of(values, hj.Integrator()))
    one = seconds(lambda: stride(gait.x), 200)
    print(f"stride {1e6 * one:.0f} us")
    for name, fn in (
        ("orbit from its own state", value),
        ("gradient, forward", forward),
        ("gradient, reverse", reverse),
    ):
        took = seconds(lambda fn=fn: fn(values), 50)
        print(f"{name}: {1e6 * took:.0f} us, {took / one:.1f} strides")
        one_gradient = took if name == "gradient, forward" else None
        if one_gradient:
            start = time.perf_counter()
            slope = scipy.optimize.approx_fprime(np.asarray(values), scipy_cost, 1e-6, np.asarray(gait.x[:2]))
            ours = np.asarray(fn(values))
            took = time.perf_counter() - start
            error = np.max(np.abs(slope - ours) / np.abs(ours))
            print(
                f"gradient by solve_ivp, fsolve and differences: {took / one_gradient:.0f} times as long, error {error:.0e}"
            )


def optimizations(gait) -> None:
    start = time.perf_counter()
    found = hj.optimize(
        gait,
        cost,
        where=lambda p: (p.push_off, p.stiffness),
        constraints=hj.Constraint(SPEED, equals=0.4),
        bounds=[(0.01, 0.5), (0.0, 6.0)],
    )
    print(
        f"2 parameters, 1 start: {time.perf_counter() - start:.1f} s, compilation included; {float(found.value):.12g}"
    )
    start = time.perf_counter()
    hj.optimize(
        gait,
        cost,
        where=lambda p: (p.push_off, p.stiffness),
        constraints=hj.Constraint(SPEED, equals=0.41),
        bounds=[(0.01, 0.5), (0.0, 6.0)],
    )
    print(f"the same at another speed: {time.perf_counter() - start:.2f} s")


def many_starts() -> None:
    from hyjax.models import powered_compass_gait as compass

    params = compass.Params()
    gait = hj.periodic_orbit(compass.step, compass.guess(params), params)
    speed = hj.objectives.speed(compass.travel)
    length = hj.objectives.step_length(compass.travel)
    now = float(speed(gait, params))
    start = time.perf_counter()
    found = hj.optimize(
        gait,
        lambda orbit, params: params.push_off**2 / length(orbit, params),
        where=lambda p: (p.push_off, p.stiffness, p.hip_mass, p.com),
        constraints=hj.Constraint(speed, equals=now),
        bounds=[(0.05, 0.4), (0.0, 1.0), (0.5, 4.0), (0.3, 0.7)],
        starts=64,
        throw=False,
    )
    print(f"4 parameters, 64 starts: {time.perf_counter() - start:.1f} s, compilation included")
    print(found)


if __name__ == "__main__":
    params = walker.Params()
    gait = hj.periodic_orbit(walker.step, walker.guess(params), params)
    gradients(gait)
    optimizations(gait)
    many_starts()
