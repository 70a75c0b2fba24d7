"""How long does a branch of gaits with multipliers take, point after point, against a loop by hand?

The long gait of the simplest walker over its slope, from the one at 0.004 both ways, down to 0.001 and up to 0.0185, and
the first period doubling on it, with its normal form. The loops by hand get the slopes of the branch that `continuation` found,
and need no step control: the line through the two points before is the guess, Newton's method corrects it. In heyoka's loop and
the loop over `stride` and `return_jacobian` the Jacobian is exact; SciPy has `fsolve` and finite differences, and a few runs of
the points.
A time is the median of nine later calls (SciPy: one), `least` the least of them. Compilation is the time of the first call less
that, and no part of the others; for heyoka it is the time to build its integrators.

`residual` is the largest `S(x) - x` over all points, by one stride of heyoka in 80-bit arithmetic; `x` and `multipl.` are the
largest differences from the first row, of the state and of the two multipliers that are not zero. `strides` are those per
point, each with its Jacobian but for SciPy; `continuation` does not report them. The doubling's error is against heyoka in
80-bit arithmetic; by hand it is located by `brentq` between the two points of the branch that enclose it.

    python benchmarks/continuation.py [--quick]

A run is kept in `outputs/continuation.json`.
"""

import argparse
import dataclasses
import os
import time
from math import cos, sin

import jax
import numpy as np
from peers import after_impact, heel_strike, HeyokaLoop, scipy_stride
from scipy.optimize import brentq, fsolve

import hyjax as hj
from hyjax.models import simplest_walker as walker

jax.config.update("jax_enable_x64", True)

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="a third of the points")
quick = parser.parse_args().quick

step = 0.027 if quick else 0.009
repeats = 3 if quick else 9
run, apart = (3, 20) if quick else (10, 60)  # SciPy: so many points in succession, and from one run to the next
doubling = 0.01508843794111946  # by heyoka in 80-bit arithmetic
start, stop = 0.004, (0.001, 0.0185)
params = walker.Params(start)
orbit = hj.periodic_orbit(walker.step, walker.guess(params), params)
method = hj.PseudoArclength(step=step, max_step=step, max_points=300)


def branch():
    return hj.continuation(orbit, where=lambda p: p.slope, stop=stop, method=method)


def with_multipliers(found):
    jax.block_until_ready((found.x, found.multipliers))
    return found


# By hand: functions of a slope and a guess, which return `(x, multipliers, strides)`


def newton(stride, slope, guess):
    """Until the residual no longer falls, which is at rounding. `stride`: `(x, slope) -> (after, Jacobian)`."""
    trial, least = guess, np.inf
    for strides in range(1, 20):
        trial = after_impact(*trial[:2])  # each start lies on the image of the reset
        after, along = stride(trial, slope)
        residual = np.max(np.abs(after - trial))
        if residual < least:
            x, jacobian = trial, along
        if residual < 1e-12 and (residual >= least / 4 or residual < 1e-15):
            return x, np.linalg.eigvals(jacobian), strides
        least = min(least, residual)
        trial = trial + np.linalg.solve(np.eye(4) - along, after - trial)
    raise RuntimeError(f"no gait near {guess} at slope {slope}.")


def by_scipy(slope, guess, tolerance=1e-12):
    def stride(z):
        return scipy_stride(after_impact(*z), slope, tolerance)[0][:2]

    z, info, _, _ = fsolve(lambda z: stride(z) - z, guess[:2], xtol=1e-10, full_output=True)
    nudge = 3e-6
    jacobian = np.stack([(stride(z + d) - stride(z - d)) / (2 * nudge) for d in nudge * np.eye(2)], axis=1)
    return after_impact(*z), np.linalg.eigvals(jacobian), info["nfev"] + 4


class Heyoka:
    """By its variational equations, and what the event and the reset make of them."""

    def __init__(self):
        self.tool = HeyokaLoop(1e-15, variational=True)

    def stride(self, x, slope):
        end, _ = self.tool.before_impact(np.append(x, np.eye(4))[None], [slope])
        before, flow = end[0, :4], end[0, 4:].reshape(4, 4)
        theta, theta_rate, phi, phi_rate = before.tolist()
        accel = sin(theta - slope)
        field = np.array([theta_rate, accel, phi_rate, accel + (theta_rate**2 - cos(theta - slope)) * sin(phi)])
        gradient = np.array([-2.0, 0, 1, 0])
        onto = np.eye(4) - np.outer(field, gradient) / (field @ gradient)
        s, c, s2, c2 = sin(2 * theta), cos(2 * theta), sin(4 * theta), cos(4 * theta)
        reset = np.zeros((4, 4))
        reset[:, 0] = -1, -2 * s * theta_rate, -2, (-2 * s + 2 * s2) * theta_rate
        reset[:, 1] = 0, c, 0, c - (1 + c2) / 2
        return heel_strike(before), reset @ onto @ flow

    def gait(self, slope, guess):
        return newton(self.stride, slope, guess)

    def doubling(self, slopes, x):
        """Where det(J + I) changes its sign between the two slopes."""

        def test(slope):
            z = x[0] + (slope - slopes[0]) / (slopes[1] - slopes[0]) * (x[1] - x[0])
            return np.prod(1 + self.gait(slope, z)[1]).real

        return brentq(test, *slopes, xtol=1e-17, rtol=1e-15)


@jax.jit
def stride(x, slope):
    params = walker.Params(slope)
    return walker.step(x, params, throw=False).x, walker.step.jacobian(x, params, throw=False)


def by_strides(slope, guess):
    return newton(lambda *at: [np.asarray(each) for each in stride(*at)], slope, guess)


@jax.jit
def gait(slope, guess):
    return hj.periodic_orbit(walker.step, guess, walker.Params(slope), throw=False)


def by_orbits(slope, guess):
    found = gait(slope, guess)
    if found.result != hj.RESULTS.successful:
        raise RuntimeError(f"no gait near {guess} at slope {slope}.")
    return np.asarray(found.x), np.asarray(found.multipliers), int(found.iterations)


def follow(solve, slopes, x, points):
    """Solve at the `points`, each from the two before it; where these were not solved for, from those of `x`."""
    found = {}
    for i in points:
        a, b = (found[j][0] if j in found else x[j] for j in (i - 2, i - 1))
        found[i] = solve(slopes[i], b + (slopes[i] - slopes[i - 1]) / (slopes[i - 1] - slopes[i - 2]) * (b - a))
    return tuple(np.array(column) for column in zip(*found.values(), strict=True))


# Tables


exact = HeyokaLoop(1e-18, fp_type=np.longdouble)


def residual(x, slopes):
    after = heel_strike(exact.before_impact(np.asarray(x, np.longdouble), np.asarray(slopes, np.longdouble))[0])
    return np.max(np.abs(after - x))


def leading(multipliers):
    """The two that are not zero."""
    order = np.argsort(-np.abs(multipliers), axis=1)[:, :2]
    return np.take_along_axis(multipliers, order, axis=1)


def apart_by(multipliers, others):
    """The largest difference of pairs, in the order in which they are nearer."""
    a, b = leading(multipliers), leading(others)
    return np.max(np.minimum(*(np.max(np.abs(a - each), axis=1) for each in (b, b[:, ::-1]))))


def timed(call, repeats=repeats):
    """What the first call returns and its seconds; median and least of the seconds of later calls."""
    clock = [time.perf_counter()]
    found = call()
    clock.append(time.perf_counter())
    for _ in range(repeats):
        call()
        clock.append(time.perf_counter())
    first, *later = np.diff(clock)
    return found, first, (np.median(later), np.min(later))


def row(name, points, count, seconds, strides, sizes, compiling):
    each, least = np.array(seconds) / points
    print(
        f"{name:<32}{points:>4} of{count:>4}{each * 1e3:>9.2f}{least * 1e3:>8.2f}{each * count:>8.2f}{strides:>9}"
        + "".join(f"{size:>10.1e}" for size in sizes)
        + f"{compiling:>12.1f}",
        flush=True,
    )
    return each


def compare_branches(walk, first, seconds):
    slopes, x, multipliers, count = walk.values, walk.x, walk.multipliers, len(walk)
    print(
        f"{'':<32}{'points':>11}{'ms each':>9}{'least':>8}{'all, s':>8}{'strides':>9}{'residual':>10}{'x':>10}{'multipl.':>10}"
        f"{'compile, s':>12}"
    )
    sizes = residual(x, slopes), 0, 0
    ours = row("hyjax continuation", count, count, seconds, "", sizes, first - seconds[0])

    in_runs = [i for begin in range(2, count - run, apart) for i in range(begin, begin + run)]
    by_hand = {}
    for name, solve, points, compiling in (
        ("SciPy DOP853 1e-12, fsolve", by_scipy, in_runs, 0),
        ("heyoka 1e-15, scalar", heyoka.gait, range(2, count), heyoka.tool.compile_time),
        ("hyjax stride, return_jacobian", by_strides, range(2, count), None),
        ("hyjax periodic_orbit", by_orbits, range(2, count), None),
    ):
        call = lambda solve=solve, points=points: follow(solve, slopes, x, points)
        (at, around, strides), first, seconds = timed(call, 1 if solve is by_scipy else repeats)
        here = list(points)
        sizes = residual(at, slopes[here]), np.max(np.abs(at - x[here])), apart_by(around, multipliers[here])
        compiling = first - seconds[0] if compiling is None else compiling
        by_hand[name] = row(name, len(here), count, seconds, f"{np.mean(strides):.1f}", sizes, compiling)
    print(f"\ncontinuation made {np.sum(walk.curves.attempts)} attempts, and is so many times as fast as the loop over")
    for name, seconds in by_hand.items():
        print(f"{name:<32}{seconds / ours:>11.2f}")


def compare_doublings(walk):
    print(f"\n{'first period doubling':<32}{'slope':>20}{'error':>10}{'ms':>10}{'least':>8}{'compile, s':>12}")
    # What a branch has found it keeps: each call gets a branch of the same points that has found nothing.
    (point,), first, seconds = timed(lambda: dataclasses.replace(walk).special_points)
    turned = np.prod(1 + walk.multipliers, axis=1).real < 0
    i = np.flatnonzero(turned[1:] != turned[:-1])[0]
    there, _, seconds_there = timed(lambda: heyoka.doubling(walk.values[i : i + 2], walk.x[i : i + 2]))
    for name, value, (each, least), compiling in (
        ("hyjax special_points", float(point.value), seconds, first - seconds[0]),
        ("heyoka, brentq", there, seconds_there, heyoka.tool.compile_time),
    ):
        print(
            f"{name:<32}{value:>20.16f}{abs(value - doubling):>10.1e}{each * 1e3:>10.2f}{least * 1e3:>8.2f}"
            f"{compiling:>12.1f}"
        )
    _, first, (each, least) = timed(lambda: point.normal_form)
    print(f"{'hyjax normal_form there':<32}{'':>30}{each * 1e3:>10.2f}{least * 1e3:>8.2f}{first - each:>12.1f}")


if __name__ == "__main__":
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    walk, first, seconds = timed(lambda: with_multipliers(branch()))
    if walk.result != hj.RESULTS.successful:
        raise RuntimeError(f"The branch ended with {walk.result}.")
    heyoka = Heyoka()
    compare_branches(walk, first, seconds)
    compare_doublings(walk)
