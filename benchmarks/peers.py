"""The simplest walker for SciPy and heyoka, as a careful user of each would write it. The benchmarks import it.

Both would stop at once on the start, which lies on the guard. SciPy's event is switched on only once the stance leg
leans forward; heyoka flows without events until `WATCH`, which is after the scuff and before any strike here, and then
watches. hyjax watches the guard all the way.
"""

import time
from math import cos, sin

import heyoka as hy
import numpy as np
from scipy.integrate import solve_ivp

WATCH = 2.8  # every strike in these benchmarks comes later
SLOPE = 0.009  # rad
GAIT = (0.20031090054424709, -0.19983247300495235)  # theta, theta_rate after impact, at that slope, to rounding


# heyoka keeps what it has compiled, in memory and on disk; here every compilation is a real one.
hy.llvm_state.set_diskcache_enabled(False)


def after_impact(theta, theta_rate):
    """The states that a heel strike can produce."""
    return np.stack([theta, theta_rate, 2 * theta, (1 - np.cos(2 * theta)) * theta_rate], axis=-1)


def near_gait(count):
    """Distinct starts: angle and rate of the stance leg each within 1 % of the gait, shape `(count, 4)`."""
    away = 1 + 0.01 * np.random.default_rng(0).uniform(-1, 1, (count, 2))
    return after_impact(*(np.array(GAIT) * away).T)


def heel_strike(x):
    """The reset, for states of shape `(..., 4)`."""
    theta, rate = x[..., 0], x[..., 1]
    c = np.cos(2 * theta)
    return np.stack([-theta, c * rate, -2 * theta, (1 - c) * c * rate], axis=-1)


def scipy_stride(x, slope, tolerance):
    """`(state after impact, time)` by `solve_ivp` with DOP853 and a terminal event."""

    def swing(t, x):
        theta, theta_rate, phi, phi_rate = x.tolist()
        accel = sin(theta - slope)
        return theta_rate, accel, phi_rate, accel + (theta_rate * theta_rate - cos(theta - slope)) * sin(phi)

    def foot(t, x):
        return x[2] - 2 * x[0] if x[0] < -0.02 else -1.0

    foot.terminal, foot.direction = True, 1
    flow = solve_ivp(swing, (0, 10), x, "DOP853", events=foot, rtol=max(tolerance, 2.3e-14), atol=tolerance)
    if flow.status != 1:
        raise RuntimeError(f"SciPy: no strike from {x} at slope {slope}.")
    return heel_strike(flow.y_events[0][0]), flow.t_events[0][0]


def _swing():
    theta, theta_rate, phi, phi_rate = variables = hy.make_vars("theta", "theta_rate", "phi", "phi_rate")
    accel = hy.sin(theta - hy.par[0])
    rates = theta_rate, accel, phi_rate, accel + (theta_rate**2 - hy.cos(theta - hy.par[0])) * hy.sin(phi)
    return list(zip(variables, rates, strict=True)), phi - 2 * theta


class HeyokaLoop:
    """One state after another. With `variational`, each state is followed by the 16 entries of its Jacobian."""

    def __init__(self, tolerance, variational=False, fp_type: type = float, latest=10.0):
        hy.llvm_state.clear_memcache()
        start = time.perf_counter()
        system, foot = _swing()
        if variational:
            system = hy.var_ode_sys(system, hy.var_args.vars)
        self.fp_type, self.latest = fp_type, fp_type(latest)
        event = hy.t_event(foot, direction=hy.event_direction.positive, fp_type=fp_type)
        kwargs = {"pars": [fp_type(SLOPE)], "tol": fp_type(tolerance), "fp_type": fp_type}
        self.free = hy.taylor_adaptive(system, [fp_type(0)] * 4, **kwargs)
        self.watching = hy.taylor_adaptive(system, [fp_type(0)] * 4, t_events=[event], **kwargs)
        self.compile_time = time.perf_counter() - start

    def before_impact(self, states, slopes):
        """`(states, times)` at the strike from each row of `states`; the time is NaN where there is none."""
        free, watching, zero = self.free, self.watching, self.fp_type(0)
        watch, latest = self.fp_type(WATCH), self.latest
        out, times = np.empty(states.shape, self.fp_type), np.empty(len(states), self.fp_type)
        moving, stopping, slope, slope_again = free.state, watching.state, free.pars, watching.pars
        for i, x in enumerate(states):
            free.time, moving[:], slope[0], slope_again[0] = zero, x, slopes[i], slopes[i]
            free.propagate_until(watch)
            watching.time, stopping[:] = watch, moving
            watching.reset_cooldowns()
            watching.propagate_until(latest)
            out[i], times[i] = stopping, watching.time
        times[times >= latest] = np.nan
        return out, times

    def strides(self, states, slope=SLOPE):
        """States after impact, shape `(n, 4)`."""
        before, times = self.before_impact(states, np.full(len(states), slope))
        if not np.all(np.isfinite(times)):
            raise RuntimeError(f"heyoka: no strike between {WATCH} and {self.latest}.")
        return heel_strike(before)


class HeyokaBatches:
    """As many states at a time as fit in `vectors` of the processor: several together hide the latency of each operation."""

    def __init__(self, tolerance, variational=False, latest=4.3, vectors=2):
        lanes = vectors * hy.recommended_simd_size()
        hy.llvm_state.clear_memcache()
        start = time.perf_counter()
        system, foot = _swing()
        if variational:
            system = hy.var_ode_sys(system, hy.var_args.vars)

        def record(integrator, sign, lane):
            # The batch stops when one lane stops; so each lane notes its strike and flows on with the others.
            self.found[:, lane] = self.stopping[:, lane]
            self.when[lane] = self.clock[lane]
            return True

        event = hy.t_event_batch(foot, direction=hy.event_direction.positive, callback=record)
        kwargs = {"pars": np.full((1, lanes), SLOPE), "tol": tolerance}
        self.lanes, self.latest = lanes, latest
        self.free = hy.taylor_adaptive_batch(system, np.zeros((4, lanes)), **kwargs)
        self.watching = hy.taylor_adaptive_batch(system, np.zeros((4, lanes)), t_events=[event], **kwargs)
        self.moving, self.stopping, self.clock = self.free.state, self.watching.state, self.watching.time
        self.compile_time = time.perf_counter() - start

    def before_impact(self, states, slopes):
        """`(states, times)` at the strike from each row of `states`; NaN where there is none."""
        # The last row repeats, to fill the lanes.
        free, watching, lanes, (count, size) = self.free, self.watching, self.lanes, states.shape
        rows = np.minimum(np.arange(-(-count // lanes) * lanes), count - 1)
        blocks = np.ascontiguousarray(states[rows].reshape(-1, lanes, size).transpose(0, 2, 1))
        out, times = np.full(blocks.shape, np.nan), np.full((len(blocks), lanes), np.nan)
        slope, slope_again = free.pars, watching.pars
        for i, (x, slopes_here) in enumerate(zip(blocks, slopes[rows].reshape(-1, 1, lanes), strict=True)):
            self.found, self.when = out[i], times[i]
            free.set_time(0.0)
            self.moving[:], slope[:], slope_again[:] = x, slopes_here, slopes_here
            free.propagate_until(WATCH)
            watching.set_time(WATCH)
            self.stopping[:] = self.moving
            watching.reset_cooldowns()
            watching.propagate_until(self.latest)
        return out.transpose(0, 2, 1).reshape(-1, size)[:count], times.reshape(-1)[:count]

    def strides(self, states, slope=SLOPE):
        """States after impact, shape `(n, 4)`."""
        before, times = self.before_impact(states, np.full(len(states), slope))
        if not np.all(np.isfinite(times)):
            raise RuntimeError(f"heyoka: no strike between {WATCH} and {self.latest}.")
        return heel_strike(before)


def exact_strides(states, slope=SLOPE):
    """States after impact, by heyoka in 80-bit arithmetic at a tolerance of 1e-18: right to the last bit of float64."""
    exact = HeyokaLoop(1e-18, fp_type=np.longdouble)
    # Starts and slope are those in float64: the same problem for everybody.
    return exact.strides(np.asarray(states, np.longdouble), slope).astype(float)
