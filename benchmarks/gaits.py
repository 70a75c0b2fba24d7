"""How many gaits of the simplest walker, with their multipliers, per second?

The long gait at 1 000 slopes from 0.001 to 0.015 rad, each from the guess of `hyjax.models.simplest_walker`. hyjax and
heyoka solve for all four components and take the eigenvalues of the 4 x 4 Jacobian; SciPy solves for the two which the
reset leaves free, with a Jacobian by finite differences, at a few of the slopes. Errors are against 35-digit values at
slopes 0.004 and 0.009; the residual `S(x) - x` of every gait is that of one stride by heyoka in 80-bit arithmetic. The
column of compilation is the time of the first call; it is not part of the others. XLA may use all cores, SciPy and
heyoka run here on one; for one core each, on Linux: `taskset -c 0 python benchmarks/gaits.py`.

    python benchmarks/gaits.py [--quick]

A run on a quiet machine is kept in `outputs/gaits.json`.
"""

import argparse
import functools as ft
import itertools
import os
import time
import timeit

import jax
import jax.numpy as jnp
import numpy as np
from peers import after_impact, heel_strike, HeyokaBatches, HeyokaLoop, scipy_stride
from scipy.optimize import fsolve

import hyjax as hj
from hyjax.models import simplest_walker as walker

jax.config.update("jax_enable_x64", True)

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="100 slopes, one tolerance")
quick = parser.parse_args().quick

known_slopes = np.array([0.004, 0.009])
known_x = after_impact(
    np.array([0.1533895648762363076, 0.2003109005442470894]), np.array([-0.1560801466756814216, -0.1998324730049523545])
)
known_period = np.array([3.852613461750981220, 3.882463752851374138])
known_multiplier = np.array(
    [0.2288899628884642735 + 0.5911551946834863605j, -0.1900998410658881461 + 0.5575987766820682688j]
)

count = 100 if quick else 1000
repeats = 3 if quick else 5
slopes = np.concatenate([known_slopes, np.linspace(0.001, 0.015, count - 2)])
guesses = np.array(jax.vmap(lambda slope: walker.guess(walker.Params(slope)))(slopes))


def hyjax_gaits(integrator, block, wide):
    """A function of slopes and guesses: `(x, period, multipliers, iterations, succeeded)`.

    Newton's method goes on in a whole block until its last lane has ended.
    """

    def gait(each):
        slope, guess = each
        orbit = hj.periodic_orbit(
            hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=integrator),
            guess,
            walker.Params(slope),
            throw=False,
        )
        succeeded = orbit.result == hj.RESULTS.successful
        return orbit.x, orbit.period, orbit.multipliers, orbit.iterations, succeeded

    options = {"xla_cpu_prefer_vector_width": 512} if wide else None  # XLA's own choice is 256 bits
    return jax.jit(
        lambda slopes, guesses: jax.lax.map(gait, (slopes, guesses), batch_size=block), compiler_options=options
    )


def stride_and_jacobian(tool, x, slopes):
    """`(state after impact, its Jacobian, time)` for each row of `x`, by heyoka's variational equations."""
    unit = np.broadcast_to(np.eye(4).reshape(-1), (len(x), 16))
    end, time_of_impact = tool.before_impact(np.concatenate([x, unit], axis=1), slopes)
    before, flow = end[:, :4], end[:, 4:].reshape(-1, 4, 4)
    theta, theta_rate, phi, phi_rate = before.T
    accel = np.sin(theta - slopes)
    phi_accel = accel + (theta_rate**2 - np.cos(theta - slopes)) * np.sin(phi)
    field = np.stack([theta_rate, accel, phi_rate, phi_accel], axis=1)
    gradient = np.array([-2.0, 0, 1, 0])
    onto = np.eye(4) - field[:, :, None] * gradient / (field @ gradient)[:, None, None]
    reset = np.zeros((len(x), 4, 4))
    s, c, s2, c2 = np.sin(2 * theta), np.cos(2 * theta), np.sin(4 * theta), np.cos(4 * theta)
    reset[:, 0, 0], reset[:, 2, 0] = -1, -2
    reset[:, 1, 0], reset[:, 1, 1] = -2 * s * theta_rate, c
    reset[:, 3, 0], reset[:, 3, 1] = (-2 * s + 2 * s2) * theta_rate, c - (1 + c2) / 2
    return heel_strike(before), reset @ onto @ flow, time_of_impact


def heyoka_gaits(tool, slopes, guesses):
    """The same by Newton's method, whose steps are shortened where the residual does not fall; all gaits together."""
    x, step, fraction = guesses.copy(), np.zeros_like(guesses), np.ones(len(guesses))
    period, jacobian = np.full(len(x), np.nan), np.zeros((len(x), 4, 4))
    least, iterations = np.full(len(x), np.inf), np.zeros(len(x), int)
    moving = np.arange(len(x))
    while moving.size:
        trial = x[moving] + fraction[moving, None] * step[moving]
        trial = after_impact(trial[:, 0], trial[:, 1])  # each start lies on the image of the reset
        after, along, duration = stride_and_jacobian(tool, trial, slopes[moving])
        size = np.where(np.isfinite(duration), np.max(np.abs(after - trial), axis=1), np.inf)
        iterations[moving] += 1
        # Where the residual no longer falls, it is rounding.
        ended = ((size < 1e-12) & (size >= least[moving] / 4)) | (size < 1e-15) | (iterations[moving] >= 30)
        better = size < least[moving]
        fraction[moving] = np.where(better, 1, fraction[moving] / 4)
        lanes = moving[better]
        x[lanes], least[lanes], period[lanes], jacobian[lanes] = (
            each[better] for each in (trial, size, duration, along)
        )
        step[lanes] = np.linalg.solve(np.eye(4) - along[better], (after - trial)[better, :, None])[:, :, 0]
        moving = moving[~ended]
    return x, period, np.linalg.eigvals(jacobian), iterations, least < 1e-12


def scipy_gaits(tolerance, slopes, guesses):
    """The same by `fsolve` and a Jacobian by central differences."""
    found = []
    for slope, guess in zip(slopes, guesses, strict=True):

        def stride(z, slope=slope):
            return scipy_stride(after_impact(*z), slope, tolerance)[0][:2]

        # With the first step that is the default, it falls.
        options = {"xtol": 1e-13, "factor": 0.1, "full_output": True}
        z, info, status, _ = fsolve(lambda z: stride(z) - z, guess[:2], **options)
        nudge = 1e-5
        jacobian = np.stack([(stride(z + d) - stride(z - d)) / (2 * nudge) for d in nudge * np.eye(2)], axis=1)
        x = after_impact(*z)
        found.append((x, scipy_stride(x, slope, tolerance)[1], np.linalg.eigvals(jacobian), info["nfev"], status == 1))
    return tuple(np.array(column) for column in zip(*found, strict=True))


exact = HeyokaLoop(1e-18, fp_type=np.longdouble)


def residuals(x, slopes):
    after = heel_strike(exact.before_impact(np.asarray(x, np.longdouble), np.asarray(slopes, np.longdouble))[0])
    return np.max(np.abs(after - x), axis=1).astype(float)


def row(name, found, seconds, compiling, slopes):
    x, period, multipliers, iterations, succeeded = (np.asarray(column) for column in found)
    succeeded = succeeded & (period > 3.5)  # the short gait is another one
    multiplier = multipliers[:2][np.arange(2), np.argmax(np.imag(multipliers[:2]), axis=1)]
    errors = (x[:2] - known_x, period[:2] - known_period, multiplier - known_multiplier)
    worst = np.max(residuals(x[succeeded], slopes[succeeded]))
    print(
        f"{name:<40}{succeeded.sum():>5} of{len(x):>5}{worst:>10.1e}"
        + "".join(f"{np.max(np.abs(error)):>10.1e}" for error in errors)
        + f"{np.mean(iterations):>7.1f}{np.max(iterations):>4}"
        + f"{seconds / len(x) * 1e6:>12.1f}{len(x) / seconds:>11.0f}{compiling:>12.2f}",
        flush=True,
    )
    return seconds / len(x)


def first_time(call):
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def best_time(call, repeats=repeats):
    return min(timeit.repeat(call, number=1, repeat=repeats))


if __name__ == "__main__":
    print(f"{len(os.sched_getaffinity(0))} cores")
    print(
        f"{'':<40}{'gaits':>13}{'residual':>10}{'error x':>10}{'period':>10}{'multipl.':>10}{'iterations':>11}"
        f"{'us a gait':>12}{'gaits / s':>11}{'compile, s':>12}"
    )
    ours, peers = {}, {}
    # heyoka's error is smaller than its tolerance; hyjax's, of the second kind, is larger.
    for tolerance, tolerance_there in ((1e-14, 1e-15),) if quick else ((1e-14, 1e-15), (1e-10, 1e-9)):
        for block, wide in itertools.product((count,) if quick else (count, 250, 100), (False, True)):
            gaits = hyjax_gaits(hj.Integrator(rtol=tolerance, atol=tolerance), block, wide)
            call = lambda: jax.block_until_ready(gaits(jnp.asarray(slopes), jnp.asarray(guesses)))  # noqa: B023
            compiling, found = first_time(call)
            name = f"hyjax {tolerance:.0e}, blocks of {block}" + ", 512 bits" * wide
            seconds = row(name, found, best_time(call), compiling, slopes)
            ours[f"{tolerance:.0e}"] = min(seconds, ours.get(f"{tolerance:.0e}", np.inf))
        for label, vectors in (("scalar", 0), ("SIMD", 1), ("SIMD", 2), ("SIMD", 4)):
            kind = ft.partial(HeyokaBatches, vectors=vectors) if vectors else HeyokaLoop
            tool = kind(tolerance_there, variational=True, latest=5.0)
            call = lambda: heyoka_gaits(tool, slopes, guesses)  # noqa: B023
            found, name = call(), f"heyoka {label} {tolerance_there:.0e}"
            detail = f", {vectors} vectors" * bool(vectors)
            seconds = row(name + detail, found, best_time(call), tool.compile_time, slopes)
            peers[name] = min(seconds, peers.get(name, np.inf))
    few = np.append([0, 1], np.linspace(2, count - 1, 3 if quick else 10).astype(int))
    for tolerance in (1e-10,) if quick else (1e-10, 1e-13):
        call = lambda: scipy_gaits(tolerance, slopes[few], guesses[few])  # noqa: B023
        name = f"SciPy DOP853 {tolerance:.0e}"
        peers[name] = row(name, call(), best_time(call, 2), 0, slopes[few])

    print(
        f"\n{'hyjax at the tolerance of':<28}" + "".join(f"{name:>10}" for name in ours) + "\nis so many times as fast"
    )
    for name, seconds in peers.items():
        print(f"{'as ' + name:<28}" + "".join(f"{seconds / ours[mine]:>10.2f}" for mine in ours))
