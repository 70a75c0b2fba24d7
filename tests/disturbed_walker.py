"""Strides of the simplest walker under disturbances, by Runge and Kutta's method of order 4, apart from hyjax's integrators."""

import functools as ft

import jax
import jax.numpy as jnp

SLOPE = 0.009
# Substeps of each step of an enclosure; 24 times 32 make errors below 1e-11.
SUBSTEPS = 24


def rate(x, w):
    """Garcia et al. (1998), Eqs. 1, 2; x = (theta, theta', phi, phi')."""
    theta, theta_rate, phi, phi_rate = x
    sine, cosine = jnp.sin(theta - SLOPE), jnp.cos(theta - SLOPE)
    return jnp.stack([theta_rate, sine, phi_rate, sine + (theta_rate**2 - cosine) * jnp.sin(phi)]) + w


def step(x, w, h):
    a = rate(x, w)
    b = rate(x + 0.5 * h * a, w)
    c = rate(x + 0.5 * h * b, w)
    d = rate(x + h * c, w)
    return x + h / 6 * (a + 2 * b + 2 * c + d)


def after_strike(z):
    theta, theta_rate = z
    cosine = jnp.cos(2 * theta)
    return jnp.stack([-theta, cosine * theta_rate, -2 * theta, (1 - cosine) * cosine * theta_rate])


def stride(z, h, winds, nodes, boxes):
    r"""One stride from pre-impact (theta, theta') to the next: the steps of length `h`, then the event.

    **Arguments:** `winds`: of the steps, and on the way to the event, shape `(steps + 1, 4)`. `nodes`, `boxes`: bounds of the
    states at the starts of the steps and during them, `(low, high)` of shape `(steps + 1, 4)` each.

    **Returns:** the next pre-impact (theta, theta'), and by how much the bounds are exceeded.
    """

    def outside(x, bounds, k):
        return jnp.max(jnp.maximum(bounds[0][k] - x, x - bounds[1][k]))

    def one(x, k):
        def part(carry, _):
            x, far = carry
            x = step(x, winds[k], h / SUBSTEPS)
            return (x, jnp.maximum(far, outside(x, boxes, k))), None

        far = jnp.maximum(outside(x, nodes, k), outside(x, boxes, k))
        (x, far), _ = jax.lax.scan(part, (x, far), None, length=SUBSTEPS)
        return x, far

    steps = winds.shape[0] - 1
    x, far = jax.lax.scan(one, after_strike(z), jnp.arange(steps))
    # Newton's method for the time to the event, a guard that falls: 2 theta - phi.
    time, w = jnp.zeros(()), winds[-1]
    for _ in range(6):
        y = step(x, w, time)
        v = rate(y, w)
        time = time - (2 * y[0] - y[2]) / (2 * v[0] - v[2])
    y = step(x, w, time)
    return y[:2], jnp.maximum(jnp.maximum(jnp.max(far), outside(x, nodes, steps)), outside(y, boxes, steps))


@ft.partial(jax.jit, static_argnames="steps")
def sensitivity(z, h, steps):
    """The derivative of the next (theta, theta') by the disturbance of each step, shape `(2, steps + 1, 4)`."""
    wide = (jnp.full((steps + 1, 4), -jnp.inf), jnp.full((steps + 1, 4), jnp.inf))
    return jax.jacrev(lambda winds: stride(z, h, winds, wide, wide)[0])(jnp.zeros((steps + 1, 4)))


def on_sphere(key, shape, bound):
    w = jax.random.normal(key, shape)
    return bound * w / jnp.linalg.norm(w, axis=-1, keepdims=True)


def winds_of(key, kind, worst, bound, steps):
    """A disturbance on the bound: constant; another at every step; switching once; the worst to first order in a random
    direction; that one, switching. `worst`: the sensitivities."""
    keys = jax.random.split(key, 4)
    constant = jnp.broadcast_to(on_sphere(keys[0], (4,), bound), (steps + 1, 4))
    random = on_sphere(keys[1], (steps + 1, 4), bound)
    late = (jnp.arange(steps + 1) > jax.random.randint(keys[2], (), 0, steps))[:, None]
    angle = jax.random.uniform(keys[3], (), maxval=2 * jnp.pi)
    along = jnp.einsum("i,ikj->kj", jnp.stack([jnp.cos(angle), jnp.sin(angle)]), worst)
    adverse = bound * along / (jnp.linalg.norm(along, axis=1, keepdims=True) + 1e-300)
    switched = jnp.where(late, -1.0, 1.0)
    kinds = jnp.stack([constant, random, constant * switched, adverse, adverse * switched])
    return kinds[kind]
