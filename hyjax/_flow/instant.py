r"""Exact derivatives of an event's time and state, to every order, from the flow over an infinitesimal time.

A located event is a point $(t, x)$ on the guard's surface. A neighbouring orbit meets the surface at a neighbouring point, after
a further time $\tau$ that solves $g(\varphi_\tau(t, x), p) = 0$. At the event $\tau = 0$, so the flow $\varphi_\tau$ need not be
integrated: only its derivatives are needed, and these follow from the vector field alone. So neither an interpolant nor an
iteration is differentiated, and the derivatives cost no integration.
"""

import functools as ft
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, PyTree

from .._numerics.trees import batched_like, MOST_PARTS, parts_of, whole
from .._system.types import Flag, Scalar, State, Time

# A PyTree of arrays, such as (t, x). A field maps a point to its rate along the flow.
Point = PyTree


def _dense(tangent: PyTree, like: PyTree) -> PyTree:
    """A tangent with zeros in place of equinox's `None`."""
    return jax.tree.map(lambda d, x: jnp.zeros_like(x) if d is None else d, tangent, like, is_leaf=lambda d: d is None)


@eqx.filter_custom_jvp
def flow_instant(field: Callable, tau: Scalar, point: Point, args: PyTree, forward_only: bool) -> Point:
    r"""$\varphi_\tau$ of `point` along `field(point, args)` for an infinitesimal time `tau`, which is zero.

    **Returns:** `point`, with the derivatives of the flow at `tau = 0` of every order, in `tau`, `point` and `args`:
    $\partial_\tau \varphi = F(\varphi)$, and $D\varphi\,v$ obeys the variational equation, which is a field of the same kind.

    Hazard: JAX drops the rules of custom derivatives from what it transposes, and differentiates the value instead
    (`JaxprTrace.process_custom_jvp_call` in https://github.com/jax-ml/jax/blob/main/jax/_src/interpreters/partial_eval.py). So
    unless `forward_only`, the value is written as the Taylor polynomial `point + tau * field + ...` of second degree; where the
    innermost derivative is taken in reverse mode, derivatives are then exact up to the third order.
    """
    if forward_only:
        return batched_like(point, (field, tau, point, args))

    def rate(x):
        return field(x, args)

    first, second = jax.jvp(rate, (point,), (rate(point),))
    return jax.tree.map(ft.partial(_taylor, tau), point, first, second)


def _taylor(tau: Scalar, x: Array, first: Array, second: Array) -> Array:
    r"""$x + \tau\,(a + \tau b / 2)$ with the derivatives $a$ and $b$.

    The coordinates of a state one by one: in a batch, XLA evaluates the whole in the order of the result in memory, lane by lane,
    without vectors, which takes a thirtieth of a stride's time.
    """
    if x.ndim == 1 and x.size <= MOST_PARTS:
        return jnp.stack([_taylor(tau, *each) for each in zip(x, first, second, strict=True)])
    return x + tau * (first + tau / 2 * second)


@flow_instant.def_jvp
def _flow_instant_jvp(primals, tangents):
    field, tau, point, args, forward_only = primals
    _, dtau, dpoint, dargs, _ = tangents
    dpoint = _dense(dpoint, point)

    def variational(pair, both):
        x, v = pair
        args, dargs = both
        rate, drate = eqx.filter_jvp(field, (x, args), (v, dargs))
        return rate, _dense(drate, rate)

    # The value is computed from the primal inputs alone: `jax.checkpoint` requires a value that does not depend on tangents.
    after = flow_instant(field, tau, point, args, forward_only)
    _, dafter = flow_instant(variational, tau, (point, dpoint), (args, dargs), forward_only)
    if dtau is not None:
        rate = field(after, args)
        dafter = jax.tree.map(lambda d, r: d + r * dtau, dafter, rate)
    return after, dafter


def abreast(field: Callable, t: Time, x: State, along: State, unit: float | Scalar, args: PyTree, moves: Flag):
    r"""$(t, x)$ with the derivatives of the points of neighbouring orbits abreast of it, where `moves`; elsewhere as it is.

    At equal times, neighbouring orbits of a flow that becomes steep are ever further apart along the flow: their $k$-th
    derivative grows as the $k$-th power of the speed, and the derivatives of an event's time and state are small differences of
    such numbers. A point of an orbit may be replaced by another of the same orbit: by $\varphi_\tau(t, x)$, where
    $\tau = -a \cdot \delta x / (a \cdot a)$ brings a perturbation $\delta x$ into the plane across the flow.

    **Arguments:** `field((t, x), args)`. `along`: $a$, about the vector field at `x`. `unit`: the scale of a coordinate that is
    zero. Forward mode only, of any order.
    """
    still, along = stop_gradient((x, along))
    scale = unit + jnp.abs(still)
    along = along / scale
    most = jnp.max(jnp.abs(along))
    ahead = along / jnp.where(most > 0, most, 1)
    weights = parts_of(ahead / (scale * jnp.where(most > 0, most * jnp.sum(ahead * ahead), 1)))

    def rate(point, args):
        t, x = field((point[0], whole(point[1])), args)
        return t, parts_of(x)

    # In a batch, XLA joins the sum of products of parts to what is around it; that of the state is a kernel of its own.
    tau = ft.reduce(jnp.add, (jnp.sum(w * (stop_gradient(y) - y)) for w, y in zip(weights, parts_of(x), strict=True)))
    t, parts = flow_instant(rate, jnp.where(moves, tau, 0), (t, parts_of(x)), args, True)
    return t, whole(parts)


@eqx.filter_custom_jvp
def _time_to_surface(field: Callable, guard: Callable, point: Point, args: PyTree, forward_only: bool) -> Scalar:
    """The time from `point` along `field` to the surface `guard = 0`: its value is zero, its derivatives are not."""
    here = jnp.zeros_like(jax.tree.leaves(point)[0])
    if forward_only:
        return batched_like(here, (field, guard, point, args))
    # Hazard: JAX drops custom rules when it hoists loop-invariant operations out of a scan that is differentiated in reverse.
    # This Newton step, minus its value, keeps the first derivative correct where the rule below is dropped.
    straight = lambda tau: jax.tree.map(lambda x, rate: x + tau * rate, point, field(point, args))
    value, rate = jax.jvp(lambda tau: guard(straight(tau), args), (here,), (jnp.ones_like(here),))
    step = (stop_gradient(value) - value) / stop_gradient(rate)
    return batched_like(jnp.where(jnp.isfinite(step), step, 0), (field, guard, point, args))


@_time_to_surface.def_jvp
def _time_to_surface_jvp(primals, tangents):
    field, guard, point, args, forward_only = primals
    _, _, dpoint, dargs, _ = tangents
    tau = _time_to_surface(field, guard, point, args, forward_only)

    def ahead(tau, point, args):
        return guard(flow_instant(field, tau, point, args, forward_only), args)

    _, drift = eqx.filter_jvp(lambda point, args: ahead(tau, point, args), (point, args), (dpoint, dargs))
    _, rate = jax.jvp(lambda tau: ahead(tau, point, args), (tau,), (jnp.ones_like(tau),))
    return tau, -_dense(drift, rate) / rate


def to_surface(field: Callable, guard: Callable, point: Point, args: PyTree, *, forward_only: bool = False) -> Point:
    r"""A point on the surface `guard(point, args) = 0`, with the derivatives of the flow's intersection with the surface.

    $dt = -(D_x g\,dx + D_t g\,dt_0 + D_p g\,dp) / (D_t g + D_x g\,f)$ to first order, and so on to every order.

    **Arguments:** `field(point, args)` and `guard(point, args)`; `point` lies on the surface up to rounding. `forward_only`:
    whether nothing here is differentiated in reverse mode, which makes a smaller program. **Returns:** the same point. Where the
    flow is tangent to the surface, the derivatives are infinite.

    Source: the implicit function theorem.
    """
    tau = _time_to_surface(field, guard, point, args, forward_only)
    return flow_instant(field, tau, point, args, forward_only)


def at_common_time(inputs: PyTree, forward_only: bool) -> PyTree:
    """The same inputs of a flow, `(field, surfaces, t0, x0, t1, args)`, in which neighbouring orbits start at one time: their
    points are moved along the flow.

    Else each would take steps to times of its own, and where the field has a kink in time, as between the samples of a record,
    derivatives of the stages there would be those of one side.
    """
    field, surfaces, t0, x0, t1, args = inputs
    tau = stop_gradient(t0) - t0
    # What the field has captured may be differentiated, too.
    _, x = flow_instant(_in_time, tau, (t0, x0), (field, args), forward_only)
    if not forward_only:
        # At rest a field may have no derivative, as that of a root or a norm.
        x = jnp.where(jnp.isfinite(x), x, x0 + tau * field(t0, x0, args))
    return field, surfaces, stop_gradient(t0), x, t1, args


def _in_time(point: Point, rest: PyTree) -> Point:
    """The rates of time and state."""
    field, args = rest
    return jnp.ones_like(point[0]), field(*point, args)
