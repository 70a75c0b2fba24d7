"""Consistency of the salted Kalman filter: the normalized estimation error squared (NEES) of 1 000 runs."""

import functools as ft
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

import hyjax as hj
from hyjax.models import bouncing_ball, simplest_walker, slip

GRAVITY = 9.81
RUNS = 1000
COARSE = hj.Integrator(rtol=1e-8, atol=1e-8, unroll=False)
# The filters of all runs take seconds without the compiler's optimization, of which the first level costs less than it saves.
batched = ft.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 1})


def within(nees, dimension):
    """The mean over runs at each time, and whether it is within the 95 % bounds of a chi-squared variable."""
    low, high = chi2.ppf([0.025, 0.975], dimension * len(nees)) / len(nees)
    mean = np.mean(nees, axis=0)
    return mean, (low < mean) & (mean < high)


def noisy_balls(intensity, steps, seed=1):
    """The bouncing balls of Kong et al. (2021): states after each 0.05 s, by 20 steps with noise each, and their measurements."""
    rng = np.random.default_rng(seed)
    y, v = (np.array([5.0, 0.0]) + np.sqrt(0.1) * rng.normal(size=(RUNS, 2))).T
    states, h = np.zeros((RUNS, steps, 2)), 0.05 / 20
    for k in range(steps):
        for _ in range(20):
            y, v = y + v * h - GRAVITY * h**2 / 2, v - GRAVITY * h
            y, v = (each + np.sqrt(intensity * h) * rng.normal(size=RUNS) for each in (y, v))
            hit = (y < 0) & (v < 0)
            y, v = np.where(hit, -0.7 * y, y), np.where(hit, -0.7 * v, v)
        states[:, k] = np.stack([y, v], axis=1)
    return states, states + np.sqrt(0.025) * rng.normal(size=states.shape)


@pytest.mark.slow
@pytest.mark.parametrize(("saltation", "mode_test"), [(True, True), (False, True), (True, False)])
def test_consistency_on_the_bouncing_ball(saltation, mode_test):
    """x0 = (5, 0), e = 0.7, dt = 0.05, V = 0.025 I, Sigma0 = 0.1 I; W = 0.01 I as an intensity, and as a covariance for each dt,
    an intensity of 0.2 I. The first 60 of 100 steps, with three bounces: later the bounces are as low as they are uncertain, and
    a linear theory fails (at W = 0.01 I the NEES of the 100th step is 4)."""
    times = 0.05 * jnp.arange(1.0, 61.0)

    def run(y, intensity):
        filtered = hj.noise.kalman_filter(
            bouncing_ball.system, jnp.array([5.0, 0.0]), 0.1 * jnp.eye(2), bouncing_ball.Params(restitution=0.7),
            mode="flight", times=times, measurements=y, observe=lambda t, x, p: x, measurement_noise=0.025 * jnp.eye(2),
            noise=hj.noise.Noise(flow=intensity * jnp.eye(2)), integrator=COARSE, saltation=saltation, mode_test=mode_test,
            throw=False,
        )  # fmt: skip
        return filtered

    batch, found = batched(jax.vmap(run, in_axes=(0, None))), {}
    for intensity in (0.01, 0.2):
        states, measurements = noisy_balls(intensity, 60)
        filtered = batch(jnp.asarray(measurements), jnp.array(intensity))
        assert np.mean(np.asarray(filtered.result == hj.RESULTS.successful)) > 0.998
        mean, inside = within(np.asarray(filtered.estimates.nees(jnp.asarray(states))), 2)
        found[intensity] = np.mean(mean), np.mean(inside)
    # Measured, as the mean NEES and the part of the times within the bounds, of which 95 % are expected. At 0.01: 2.02 and 97 %,
    # without saltation 2.61 and 55 %. At 0.2: 2.10 and 77 %, without saltation 2.13 and 68 %: the states are so uncertain that
    # what is of second order counts, and neither filter is consistent by the bounds.
    if saltation and mode_test:
        assert abs(found[0.01][0] - 2) < 0.05 and found[0.01][1] > 0.9
        assert abs(found[0.2][0] - 2) < 0.2
    elif mode_test:
        assert found[0.01][0] > 2.5 and found[0.01][1] < 0.6
    else:
        # Measurements of a ball that has bounced, taken for those of one that has not.
        assert all(mean > 20 for mean, _ in found.values())


def fall_and_slide():
    """A ball falls onto a frictionless slope and slides down it: Kong et al. (2024), Sec. IV."""
    normal, along = np.array([0.6, 0.8]), np.array([0.8, -0.6])
    fly = lambda t, x, p: jnp.concatenate([x[2:], jnp.array([0.0, -GRAVITY])])
    slide = lambda t, x, p: jnp.concatenate([x[2:], GRAVITY * 0.6 * jnp.asarray(along)])
    gap = lambda t, x, p: jnp.asarray(normal) @ x[:2]
    stop = lambda t, x, p: jnp.concatenate([x[:2], x[2:] - jnp.asarray(normal) * (jnp.asarray(normal) @ x[2:])])
    names = ("q1", "q2", "v1", "v2")
    return hj.HybridSystem({"flight": hj.Mode(fly, names), "slide": hj.Mode(slide, names)},
                           (hj.Transition("flight", "slide", gap, stop),)), along  # fmt: skip


@pytest.mark.slow
def test_consistency_on_the_slope():
    """A plastic impact, after which the covariance has rank two, and stays so; no noise but of measurements."""
    system, along = fall_and_slide()
    rng = np.random.default_rng(4)
    x0, sigma0, v = np.array([0.0, 1.25, 0.4, 0.0]), np.diag([0.01, 0.01, 0.04, 0.04]), 0.01 * np.eye(2)
    times = 0.05 * np.arange(1, 25)
    starts = x0 + rng.multivariate_normal(np.zeros(4), sigma0, RUNS)
    options = {"mode": "flight", "integrator": COARSE, "max_jumps": 1}
    fly = lambda x: hj.simulate(system, x, None, t1=1.21, times=jnp.asarray(times), **options).samples
    true = jax.jit(jax.vmap(fly))(jnp.asarray(starts))
    measurements = np.asarray(true.x)[..., :2] + 0.1 * rng.normal(size=(RUNS, len(times), 2))

    found = []
    for saltation in (True, False):
        run = lambda y, saltation=saltation: hj.noise.kalman_filter(
            system, jnp.asarray(x0), jnp.asarray(sigma0), None, times=jnp.asarray(times), measurements=y,
            observe=lambda t, x, p: x[:2], measurement_noise=jnp.asarray(v), saltation=saltation, **options,
        )  # fmt: skip
        filtered = jax.jit(jax.vmap(run))(jnp.asarray(measurements))
        assert np.all(np.asarray(filtered.result == hj.RESULTS.successful))
        # Position and speed along the slope, at the end, when all have landed.
        assert np.all(np.asarray(true.mode)[:, -8:] == 1)
        onto = np.kron(np.eye(2), along)
        error = (np.asarray(true.x - filtered.means) @ onto.T)[:, -8:]
        sigma = (onto @ np.asarray(filtered.covariances) @ onto.T)[:, -8:]
        nees = np.sum(error * np.linalg.solve(sigma, error[..., None])[..., 0], axis=-1)
        # Along the slope both are consistent: means of 1 000 with the standard error 0.06, at times that are hardly independent.
        assert np.max(np.abs(np.mean(nees, axis=0) - 2)) < 0.2
        # With the saltation matrix alone the ball is known to be on the slope, and the measurements do not move it off.
        normal = np.array([0.6, 0.8, 0.0, 0.0])
        known = np.max(np.abs(np.asarray(filtered.covariances)[:, -1] @ normal)) < 1e-12
        off = np.sqrt(np.mean((np.asarray(filtered.means)[:, -1] @ normal) ** 2))
        found.append((known, off))
    assert found[0][0] and not found[1][0]
    assert found[0][1] < 1e-3 and found[1][1] > 20 * found[0][1]


class Model:
    """A hybrid system in NumPy, of many runs at once, whose modes are numbers.

    `fields[mode](x)`: rates of states of shape `(runs, size)`; `sizes`: the dimensions of the modes; `events`: `(mode, guard,
    rate, ready, reset, target)`.
    """

    def __init__(self, fields, sizes, events):
        self.fields, self.sizes, self.events = fields, np.array(sizes), events

    def step(self, mode, x, h):
        """One step of Runge and Kutta's method of order 4, of length `h`, one for each run or one for all."""
        h, f = np.broadcast_to(h, len(x))[:, None], self.fields[mode]
        a = f(x)
        b = f(x + h / 2 * a)
        c = f(x + h / 2 * b)
        return x + h / 6 * (a + 2 * b + 2 * c + f(x + h * c))

    def pass_events(self, mode, x):
        """Runs beyond a guard are taken back to it, by Newton's method for the time, through the reset, and forth again."""
        for source, guard, rate, ready, reset, target in self.events:
            hit = (mode == source) & ready(x) & (guard(x) < 0) & (rate(x) < 0)
            if not np.any(hit):
                continue
            there, since = x[hit], np.zeros(np.sum(hit))
            for _ in range(4):
                at = self.step(source, there, -since)
                since = since + guard(at) / rate(at)
            x[hit] = self.step(target, reset(self.step(source, there, -since)), since)
            mode[hit] = target
        return mode, x

    def run(self, x, intensity, dt, steps, rng, substeps=20):
        """Modes and states after each `dt`, from the mode 0, by `substeps` steps with noise each."""
        modes, states, h = np.zeros((RUNS, steps), int), np.zeros((RUNS, steps, x.shape[1])), dt / substeps
        x, mode = x.copy(), np.zeros(RUNS, int)
        for k in range(steps):
            for _ in range(substeps):
                for source, _ in enumerate(self.fields):
                    here = mode == source
                    x[here] = self.step(source, x[here], h)
                own = np.arange(x.shape[1]) < self.sizes[mode][:, None]
                x += np.sqrt(intensity * h) * rng.normal(size=x.shape) * own
                mode, x = self.pass_events(mode, x)
            modes[:, k], states[:, k] = mode, x
        return modes, states


SINE, COSINE = np.sin(1.2), np.cos(1.2)


def _lean(x):
    push = 30 * (1 / np.hypot(x[:, 0], x[:, 1]) - 1)
    return np.stack([x[:, 2], x[:, 3], push * x[:, 0], push * x[:, 1] - 1], axis=1)


def _touch_down(x):
    return np.stack([0 * x[:, 0] - COSINE, x[:, 0], np.sqrt(2 * (2.25 - x[:, 0]) - x[:, 1] ** 2), x[:, 1]], axis=1)


def _flight(x):
    return np.stack([x[:, 1], 0 * x[:, 0] - 1, 0 * x[:, 0], 0 * x[:, 0]], axis=1)


def _pad(y, rate):
    return np.stack([y, rate, 0 * y, 0 * y], axis=1)


always = lambda x: np.ones(len(x), bool)
# Descent 0, stance 1, ascent 2. At the apex nothing changes.
RUNNER = Model(
    (_flight, _lean, _flight),
    (2, 4, 2),
    (
        (2, lambda x: x[:, 1], lambda x: 0 * x[:, 0] - 1, always, lambda x: x, 0),
        (0, lambda x: x[:, 0] - SINE, lambda x: x[:, 1], always, _touch_down, 1),
        (1, lambda x: 1 - np.hypot(x[:, 0], x[:, 1]),
         lambda x: -(x[:, 0] * x[:, 2] + x[:, 1] * x[:, 3]) / np.hypot(x[:, 0], x[:, 1]), always,
         lambda x: _pad(x[:, 1], x[:, 3]), 2),
    ),
)  # fmt: skip


def _swing(x):
    theta, rate, phi, phi_rate = x.T
    sine = np.sin(theta - 0.009)
    return np.stack([rate, sine, phi_rate, sine + (rate**2 - np.cos(theta - 0.009)) * np.sin(phi)], axis=1)


def _strike(x):
    theta, rate, _, _ = x.T
    cosine = np.cos(2 * theta)
    return np.stack([-theta, cosine * rate, -2 * theta, (1 - cosine) * cosine * rate], axis=1)


WALKER = Model(
    (_swing,),
    (4,),
    (
        (0, lambda x: 2 * x[:, 0] - x[:, 2], lambda x: 2 * x[:, 1] - x[:, 3], lambda x: x[:, 0] < 0, _strike, 0),
    ),
)  # fmt: skip
# The foot height is negative in the first half of a step, and falls at its start: there the guard is not armed.
STEPS = hj.HybridSystem(
    {"swing": hj.Mode(simplest_walker.swing, simplest_walker.coordinates)},
    (
        hj.Transition(
            "swing", "swing", simplest_walker.foot_height, simplest_walker.heel_strike, lambda t, x, p: x[0] < 0
        ),
    ),
)
UP, DOWN = lambda t, x, p: x[:2], lambda t, x, p: jnp.stack([x[1], x[3]])
LEGS = lambda t, x, p: jnp.stack([x[0], x[2]])
APEX = SINE + 0.04 * (2.25 - SINE) + 0.03


class Case(eqx.Module):
    """What is measured every `dt` of a model from `x0`, with variances `unit`; the noise of the flow has a tenth of `unit`."""

    model: Model
    system: hj.HybridSystem
    params: object
    mode: str
    x0: np.ndarray
    dt: float
    unit: float
    observe: object
    noise: dict
    # Of true modes and states: what is measured; which of them are in the mode of an estimate; the dimensions.
    seen: Callable
    same: Callable
    dimensions: Callable

    def filters(self, saltation):
        def run(y, unit):
            flow = {name: 0.1 * unit * jnp.eye(n) for name, n in self.noise.items()}
            return hj.noise.kalman_filter(
                self.system, jnp.asarray(self.x0), unit * jnp.eye(len(self.x0)), self.params, mode=self.mode,
                times=self.dt * jnp.arange(1.0, 31.0), measurements=y, observe=self.observe,
                measurement_noise=unit * jnp.eye(2), noise=hj.noise.Noise(flow=flow), integrator=COARSE,
                saltation=saltation, max_jumps=4,
            )  # fmt: skip

        return batched(jax.vmap(run, in_axes=(0, None)))

    def consistency(self, filters, scale):
        """The mean NEES by its dimension at each time, over the runs whose estimates are in the true mode; the part of the times
        at which it is within the 95 % bounds; and the part of these runs."""
        rng, unit = np.random.default_rng(3), scale * self.unit
        x = np.pad(self.x0 + np.sqrt(unit) * rng.normal(size=(RUNS, len(self.x0))), ((0, 0), (0, 4 - len(self.x0))))
        modes, states = self.model.run(x, 0.1 * unit, self.dt, 30, rng)
        seen = self.seen(modes, states)
        filtered = filters(jnp.asarray(seen + np.sqrt(unit) * rng.normal(size=seen.shape)), jnp.array(unit))
        assert np.all(np.asarray(filtered.result == hj.RESULTS.successful))
        same = self.same(modes, states, np.asarray(filtered.modes), np.asarray(filtered.means))
        nees = np.where(same, np.asarray(filtered.estimates.nees(jnp.asarray(states))), 0)
        total = np.sum(np.where(same, self.dimensions(modes), 0), axis=0)
        low, high = chi2.ppf(0.025, total) / total, chi2.ppf(0.975, total) / total
        mean = np.sum(nees, axis=0) / total
        return mean, np.mean((low < mean) & (mean < high)), np.mean(same)


CASES = {
    "runner": Case(
        RUNNER, slip.system, slip.Params(), "descent", np.array([APEX, 0.0]), 0.1, 1e-4,
        {"descent": UP, "ascent": UP, "stance": DOWN, "fallen": DOWN}, {"descent": 2, "ascent": 2, "stance": 4},
        lambda modes, x: np.where((modes == 1)[..., None], x[..., [1, 3]], x[..., :2]),
        # Ascent and descent are one flow.
        lambda modes, x, found, means: (modes == 1) == (found == 1),
        lambda modes: np.where(modes == 1, 4, 2),
    ),
    "walker": Case(
        WALKER, STEPS, simplest_walker.Params(0.009), "swing", np.array([0.2003, -0.1998, 0.4006, -0.0158]), 0.388, 1e-6,
        LEGS, {"swing": 4},
        lambda modes, x: x[..., [0, 2]],
        # Before the strike the stance leg leans forward, and after it backward.
        lambda modes, x, found, means: (x[..., 0] > 0) == (means[..., 0] > 0),
        lambda modes: np.full(modes.shape, 4),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_consistency_on_a_runner_and_a_walker(name):
    """Three strides or more of SLIP, whose height and vertical speed are measured, and of the simplest walker, by the angles of
    its legs 10 times per stride.

    At touch-down the runner's two coordinates become four, and its covariance has rank two there. What is of second order in the
    deviations moves the states out of this plane, where the covariance is only what the noise has added since. So with
    deviations of 0.01 the NEES just after the first touch-down is 10 times its dimension, and at one hundredth of the variances
    it is right.
    """
    case = CASES[name]
    filters = case.filters(saltation=True)
    # Measured, over all times, as the NEES by its dimension, and the part of the times within the bounds. Runner: 1.42 and 57 %;
    # at a tenth of all variances 1.20 and 93 %, at a hundredth 0.998 and 97 %. Walker: at a tenth 1.022 and 80 %, at a hundredth
    # 1.023 and 80 %; with two other seeds 0.986 and 90 %, 0.994 and 90 %: the estimates of a run at its 30 times are not
    # independent, and the mean over all has nearly the standard error of that at one time, 0.022 to 0.032. (At the full variances
    # one of the thousand walkers falls.)
    mean, inside, same = case.consistency(filters, 0.01)
    assert abs(np.mean(mean) - 1) < 0.05 and inside > 0.75 and same > 0.99
    mean, inside, same = case.consistency(filters, 1.0 if name == "runner" else 0.1)
    if name == "walker":
        assert abs(np.mean(mean) - 1) < 0.05 and inside > 0.75
    else:
        assert np.argmax(mean) == 3 and mean[3] > 5 and np.all(np.delete(mean, 3) < 2)
    assert same > 0.98
