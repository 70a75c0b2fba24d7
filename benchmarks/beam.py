r"""How long does an orbit of a beam of 200 coordinates take that strikes a stop, and is it right to the last multiplier?

A clamped beam in finite differences, $n$ points on a shaken base, with a mass at its tip as heavy as the beam and a stop before
the tip:

$$M\ddot w = -K(w + c\,\dot w) - b\,M\dot w + a\,M\mathbf 1\cos\omega t, \qquad w_n = d:\quad \dot w_n^+ = -e\,\dot w_n^-$$

Between impacts the beam is linear, so matrix exponentials know its orbit of one impact in a period, with its multipliers, and the
free oscillation, which grazes the stop where its amplitude is $d$. The highest frequency is 4 n^2: the flow is stiff.

    python benchmarks/beam.py [--points 100] [--tolerance 1e-6]

Printed: the orbit by Newton's method with a Krylov solver, without the Jacobian of its return map; its ten leading multipliers
beside those of the matrix exponentials; the branch of free oscillations as the stop comes nearer, and its grazing orbit.
"""

import argparse
import time

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import lineax as lx  # noqa: E402
import numpy as np  # noqa: E402
import optimistix as optx  # noqa: E402
from scipy.linalg import expm  # noqa: E402

import hyjax as hj  # noqa: E402

DAMPING, AIR, DRIVE, FREQUENCY, RESTITUTION, STOP = 1.5e-4, 0.05, 0.1, 1.75, 0.5, 0.3
PERIOD = 2 * np.pi / FREQUENCY


def masses(n: int) -> np.ndarray:
    """The mass at each point; at the tip half a cell and the mass of a beam."""
    mass = np.full(n, 1 / n)
    mass[-1] = 1 + 0.5 / n
    return mass


def bending(w):
    """`K w`: the second difference of the curvature, of which the clamp holds displacement and slope at zero."""
    n = len(w)
    ends = jnp.zeros(2, w.dtype)
    displacement = jnp.concatenate([w[:1], ends[:1], w])
    curvature = jnp.concatenate([jnp.diff(displacement, 2) * n, ends])
    return jnp.diff(curvature, 2) * n**2


def beam(n: int) -> hj.HybridSystem:
    """The beam, whose one parameter is the place of the stop; a state is `w`, its rate, and the phase of the drive."""
    mass = masses(n)

    def shake(t, x, stop):
        w, rate, phase = x[:n], x[n : 2 * n], x[2 * n]
        accel = -bending(w + DAMPING * rate) / jnp.asarray(mass, x.dtype) - AIR * rate + DRIVE * hj.fast.cos(phase)
        return jnp.concatenate([rate, accel, jnp.full(1, FREQUENCY, x.dtype)])

    def gap(t, x, stop):
        return stop - x[n - 1]

    def strike(t, x, stop):
        return x.at[2 * n - 1].multiply(-RESTITUTION)

    def rest_of_period(t, x, stop):
        return jnp.pi - x[2 * n]

    def period_restarts(t, x, stop):
        return x.at[2 * n].set(-jnp.pi)

    names = (*(f"w{i}" for i in range(n)), *(f"rate{i}" for i in range(n)), "phase")
    flow = hj.Mode(shake, names)
    return hj.HybridSystem(
        {"before": flow, "after": flow},
        (
            hj.Transition("before", "after", guard=gap, reset=strike),
            hj.Transition("after", "after", guard=gap, reset=strike),
            hj.Transition("before", "before", guard=rest_of_period, reset=period_restarts),
            hj.Transition("after", "before", guard=rest_of_period, reset=period_restarts),
        ),
    )


def exact(n: int) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """By matrix exponentials: the orbit of one impact in a period, at the phase `-pi`; its multipliers; the amplitude of the free
    oscillation's tip; and the free oscillation at the phase `-pi`."""
    size, tip, e = 2 * n, n - 1, RESTITUTION
    stiffness = np.asarray(jax.jacfwd(bending)(jnp.zeros(n))) / masses(n)[:, None]
    flow = np.block([[np.zeros((n, n)), np.eye(n)], [-stiffness, -DAMPING * stiffness - AIR * np.eye(n)]])
    base = np.repeat([0.0, DRIVE], n)
    free = np.linalg.solve(1j * FREQUENCY * np.eye(size) - flow, base)
    around = expm(flow * PERIOD)
    # The motion less the free oscillation is y, with y+ = -(1 + e) s kick after an impact of speed s.
    kick = np.linalg.solve(np.eye(size) - around, np.eye(size)[:, size - 1])
    before = around @ kick
    speed = free[-1] / (1 + (1 + e) * before[-1])
    at = free[tip] - (1 + e) * before[tip] * speed
    phase = np.arccos(STOP / abs(at)) - np.angle(at)
    turn = np.exp(1j * phase)
    after = -(1 + e) * (speed * turn).real * kick
    x = expm(flow * (np.pi - phase) / FREQUENCY) @ after - free.real
    # The saltation matrix, where the tip meets the stop.
    hits = around @ after + (free * turn).real
    jump = np.eye(size)
    jump[-1, -1] = -e
    field = lambda z: flow @ z + base * np.cos(phase)
    normal = -np.eye(size)[tip]
    saltation = jump + np.outer(field(jump @ hits) - jump @ field(hits), normal) / (normal @ field(hits))
    values = np.linalg.eigvals(saltation @ around)
    values = values[np.argsort(-np.abs(values), kind="stable")]
    return np.append(x, -np.pi), values, abs(free[tip]), np.append(-free.real, -np.pi)


def timed(name: str, call):
    start = time.perf_counter()
    result = jax.block_until_ready(call())
    print(f"{name:<44}{time.perf_counter() - start:8.1f} s", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--tolerance", type=float, default=1e-6)
    chosen = parser.parse_args()
    n, tolerance = chosen.points, chosen.tolerance
    x, values, amplitude, swings = exact(n)
    system, stop = beam(n), jnp.array(STOP)
    stiff = hj.Integrator(hj.solvers.Rodas5P(), rtol=tolerance, atol=tolerance, unroll=False, max_steps=100_000)
    print(f"{2 * n} coordinates and the phase; Rodas5P at {tolerance:g}")

    step = hj.ReturnMap(system, sequence=("before", "after"), integrator=stiff)
    # A hundredth of the amplitude away from the orbit, in the shape of the first mode.
    shape = (np.arange(1, n + 1) / n) ** 2
    guess = jnp.asarray(x + np.concatenate([0.002 * shape, 0.002 * shape, [0.0]]))
    method = hj.SingleShooting(
        root_finder=optx.Newton(rtol=30 * tolerance, atol=30 * tolerance, linear_solver=lx.GMRES(1e-3, 1e-12))
    )
    orbit = timed(
        "orbit and multipliers, without Jacobian", lambda: hj.periodic_orbit(step, guess, stop, method=method)
    )
    print(f"iterations {int(orbit.iterations)}, error of the state {np.max(np.abs(orbit.x - x)):.1e}")
    print(f"{'multiplier':<28}{'by matrix exponentials':<28}difference")
    for found, value in zip(np.asarray(orbit.multipliers), values, strict=False):
        print(f"{found:<28.8f}{value:<28.8f}{abs(found - value):.1e}")

    smooth = hj.ReturnMap(system, sequence=("before",), integrator=stiff)
    far = 1.05 * amplitude
    free = timed("free oscillation", lambda: hj.periodic_orbit(smooth, jnp.asarray(swings), jnp.array(far)))
    branch = timed(
        "branch to its grazing",
        lambda: hj.continuation(free, where=lambda stop: stop, stop=0.9 * amplitude, throw=False),
    )
    for point in branch.special_points:
        error = abs(float(point.value) - amplitude)
        print(f"{point.kind} at {float(point.value):.12f}, amplitude {amplitude:.12f}, difference {error:.1e}")


if __name__ == "__main__":
    main()
