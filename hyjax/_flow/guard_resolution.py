"""Whether a solver step is short enough for its guards: a guard may vary faster than the flow, such as the height above a
vibrating table in free flight, whose steps are limited by nothing else.

A guard is compared at two interior points of the step with the cubic through its values and rates at both ends. The states there
are those of the flow's own cubic, so a guard that is linear in state and time is resolved by any step, and is not compared.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._numerics.dependence import depends_on
from .._system.types import Flag, Scalar, State, Time
from .guard_cubic import Look
from .surfaces import Guards, Surfaces

# The interior points, as fractions of the step: not symmetric, because a variation odd about the middle vanishes there.
INNER = np.array([0.31, 0.64])
# Where the cubic is compared with its error.
GRID = np.arange(1, 16) / 16
# The error between the points is taken as this number of times the one seen at the points.
SAFETY = 4


def linear(surfaces: Surfaces, t: Time, x: State, args: PyTree) -> bool:
    """Whether all guards are linear in time and state, apart from a constant: their derivative is the same everywhere."""
    if not surfaces.count:
        return True
    arrays, rest = eqx.partition(args, eqx.is_array)

    def slope(point, direction, arrays):
        values = lambda t, x: surfaces.values(t, x, eqx.combine(arrays, rest))
        return jax.jvp(values, point, direction)[1]

    shape = lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf))
    point, arrays = jax.tree.map(shape, ((t, x), arrays))
    return not depends_on(jax.make_jaxpr(slope)(point, point, arrays), 2)


def hermite(v: np.ndarray, a: Array, ra: Array, b: Array, rb: Array) -> Array:
    """Values at the fractions `v` of the cubic with the values `a`, `b` and rates `ra`, `rb` at 0 and 1; shape `(len(v), n)`."""
    u = jnp.asarray(v[:, None], a.dtype)
    w = 1 - u
    return w * w * (a + u * (2 * a + ra)) + u * u * (b + w * (2 * b - rb))


def inner_points(t: Time, x: State, f: State, dt: Time, x1: State, f1: State) -> tuple[Float[Array, " 2"], Array]:
    """Times and states at the interior points of a step from `(t, x)` to `x1`, with the vector field at both ends."""
    return t + INNER.astype(x.dtype) * dt, hermite(INNER, x, dt * f, x1, dt * f1)


def cubic_error(start: Look, end: Look, inner: Float[Array, "2 guards"], noise: Guards) -> Guards:
    r"""A bound on the error of each guard's cubic in the middle of the step, from its values at the interior points.

    The error of a cubic is $16\,e\,v^2 (1 - v)^2$ at the fraction $v$, with $e$ its value in the middle; a small difference, or
    one by rounding, is no error.
    """
    eps = float(jnp.finfo(noise.dtype).eps)
    ends = _ends(start, end)
    gap = jnp.abs(inner - hermite(INNER, *ends)) - noise - 64 * eps * sum(map(jnp.abs, ends))
    return SAFETY * jnp.max(jnp.where(gap > 0, gap, 0) / _shape(INNER, noise), axis=0)


def may_be_coarse(start: Look, end: Look, error: Guards) -> Flag:
    r"""A cheap necessary condition of `coarseness` above 1.

    In Bernstein's polynomials of degree 4 the error is $\frac83 e B_2$. Where the coefficients $d_i$ of the cubic, less that
    error, have one sign, the cubic exceeds the error all along the step. At the ends, which may lie on the surface, it is
    enough that $d_0 \ge -d_1/4$ and $d_4 \ge -d_3/4$: the points of `GRID` are a sixteenth of the step from the ends.
    """
    a, ra, b, rb = _ends(start, end)
    c1, c2 = a + ra / 3, b - rb / 3
    side = jnp.sign(c1 + c2)
    d0, d1, d2, d3, d4 = (side * d for d in (a, (a + 3 * c1) / 4, (c1 + c2) / 2, (3 * c2 + b) / 4, b))
    beyond = (d0 >= -d1 / 4) & (d1 >= 0) & (d2 > 8 / 3 * error) & (d3 >= 0) & (d4 >= -d3 / 4)
    return jnp.any((error > 0) & ~beyond)


def coarseness(start: Look, end: Look, error: Guards) -> Scalar:
    """How many times the error of a guard's cubic, somewhere in the step, exceeds the guard's distance from zero there.

    Above 1, the guard may have fallen or risen unseen.
    """
    error = error * _shape(GRID, error)
    distance = jnp.abs(hermite(GRID, *_ends(start, end)))
    ratio = jnp.where(error > 0, error / jnp.where(distance > 0, distance, float(jnp.finfo(error.dtype).tiny)), 0)
    return jnp.max(ratio, initial=0)


def _ends(start: Look, end: Look) -> tuple[Guards, Guards, Guards, Guards]:
    """The values and rates at both ends of a step, the rates in units of the step's length."""
    return start.g, end.dt * start.r, end.g, end.dt * end.r


def _shape(v: np.ndarray, like: Guards) -> np.ndarray:
    """The error of a cubic at the fractions `v`, in units of the error in the middle; shape `(len(v), 1)`."""
    return (16 * v**2 * (1 - v) ** 2)[:, None].astype(like.dtype)


def shortened(dt: Time, coarse: Scalar) -> Time:
    """The step to try in place of one that is too coarse: the error of a cubic falls with its fourth power."""
    return dt * jnp.clip(0.8 * jnp.maximum(coarse, 1) ** -0.25, 0.1, 0.7)
