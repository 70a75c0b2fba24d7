r"""Grazing: a periodic orbit that is tangent to a guard's surface; and corners: an arc of the orbit begins on such a surface.

A branch ends at grazing: beyond it the guard fires where it did not, or no longer fires where it did, and the return map has a
square root. The flow to the *extremum* of the guard, $\dot g = 0$, in place of the flow to its zero, is smooth. With it the
orbit exists on both sides, and grazing is one more equation,

$$F(y, \lambda) = 0, \qquad g(t_k, x_k) = 0 \quad \text{at the extremum in arc } k.$$

At a corner the guard `g` is zero at the arc's first state. Beyond it the guard fires at once, or no longer does, and the return
map is discontinuous. With the guard ignored until the middle of the arc, the orbit exists on both sides.

Source: di Bernardo, Budd, Champneys, Kowalczyk (2008), *Piecewise-smooth Dynamical Systems*, Secs. 2.5 and 6.2.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.flow import Impact, run_to_guard
from .._flow.jump import reset
from .._numerics.linearize import with_columns
from .._numerics.newton import newton, Root
from .._orbit.chain import Chain
from .._orbit.problem import Problem
from .._orbit.stride import run_stride, Stride
from .._system.results import code_of
from .._system.system import HybridSystem, Mode, Transition
from .._system.types import Scalar
from .touch import Touch
from .unfolding import Unfolding


class TouchingOrbit(eqx.Module):
    """A grazing orbit: its strides, the state `x` at the touch, the `image` of `x` under the reset, and the value `next_guard` of
    the guard of the next arc where this arc begins, as a fraction of `Touch.next_size`; 1 unless `Touch.brief`."""

    chain: Chain
    x: Float[Array, " pre"]
    image: Float[Array, " post"]
    next_guard: Scalar

    # The columns that every point of a curve has.
    @property
    def nodes(self):
        return self.chain.nodes

    @property
    def period(self):
        return self.chain.period

    @property
    def guard_rates(self):
        return self.chain.guard_rates

    @property
    def result(self):
        return self.chain.result


def grazing_equation(unfolding: Unfolding, touch: Touch, v: Array) -> tuple[Array, TouchingOrbit]:
    """`H = (F, g)`, both scaled: the equation of the orbit, and the guard at its extremum or at the arc's start. `v` has the
    state of the first stride only, and the parameters."""
    (y,), values = unfolding.split(v)
    params, problem = unfolding.params_at(values), unfolding.problem
    sequence = problem.sequence * problem.strides
    way = problem.system.transitions[touch.transition]
    system, names = _with_extremum(problem.system, sequence, touch)
    t0, known = jnp.zeros((), v.dtype), (params, touch)
    start = Problem(system, names, 1).closing_jump(y, known)
    ways = [_vanished if touch.brief and k == touch.arc + 1 else run_to_guard for k in range(len(names))]
    sources = (*sequence[: touch.arc + 1], *sequence[touch.arc + (0 if touch.divides else 1) :])
    integrator = unfolding.integrator.renamed(names, sources)
    through = run_stride(system, t0, start, known, names, integrator, ways)
    at = through.impacts[touch.arc]
    t, x = (at.t, at.x) if not touch.at_start else _first_of_arc(system, names, touch.arc, through, t0, start, known)
    residual = jnp.append((through.impacts[-1].x - y) / unfolding.state_scale, way.guard(t, x, params) / touch.size)
    arcs = [k for k in range(len(names)) if not (touch.divides and k == touch.arc)]
    last = problem.system.transitions[problem.system.route(problem.sequence)[-1]]
    ends = [through.impacts[k] for k in arcs[len(problem.sequence) - 1 : -1 : len(problem.sequence)]]
    nodes = [start, *(reset(last, end.t, end.x, params) for end in ends)]
    starts = jnp.stack([t0, *(end.t for end in ends)])
    by_arc = [[through.impacts[k] for k in arcs[i :: len(problem.sequence)]] for i in range(len(problem.sequence))]
    chain = Chain(
        nodes=jnp.stack(nodes), starts=starts, before=jnp.stack([y, *(end.x for end in ends)]),
        arc_ends=tuple(jnp.stack([impact.x for impact in each]) for each in by_arc),
        elapsed=jnp.stack([jnp.stack([impact.t for impact in each]) for each in by_arc], axis=1) - starts[:, None],
        end=through.x, period=through.time,
        guard_rates=through.guard_rates[np.array(arcs)], jacobians=None, result=through.result,
    )  # fmt: skip
    image = x if touch.at_start else reset(way, t, x, params)
    next_guard = jnp.ones_like(t)
    if touch.brief:
        following = problem.system.transitions[problem.system.route(sequence)[touch.arc + 1]]
        next_guard = following.guard(t, image, params) / touch.next_size
    return residual, TouchingOrbit(chain, x, image, next_guard)


def _first_of_arc(system: HybridSystem, names: tuple[str, ...], k: int, through: Stride, t0, start, known):
    """Time and state at which the arc `k` begins."""
    if k == 0:
        return t0, start
    last = through.impacts[k - 1]
    return last.t, reset(system.transitions[system.route(names)[k - 1]], last.t, last.x, known)


@eqx.filter_jit
def solve_grazing(unfolding: Unfolding, touch: Touch, v: Array, accept: Array, iterations: Array) -> Root:
    """The root of `H` by Newton's method; `aux` is the Jacobian of `H` and the `TouchingOrbit`."""

    def evaluate(v):
        out, columns, orbit = with_columns(lambda v: grazing_equation(unfolding, touch, v), v)
        return out, columns, (columns, orbit)

    return newton(evaluate, v, max_iterations=iterations, accept=accept)


def _with_extremum(
    system: HybridSystem, sequence: tuple[str, ...], touch: Touch
) -> tuple[HybridSystem, tuple[str, ...]]:
    """A system with one mode for each arc of the orbit, in which the touching arc ends at the extremum of the guard. At a corner
    all arcs end as before, and the guard that is zero at the start of its arc is armed later.

    Its parameters are `(params, touch)`; the second result is its sequence of modes.
    """
    guard, sign = system.transitions[touch.transition].guard, -1 if touch.lowest else 1
    field = system.mode(sequence[touch.arc]).vector_field

    def towards(t, x, q):
        """The guard's rate, with the sign with which it falls through zero at the extremum."""
        flow = (jnp.ones_like(t), field(t, x, q[0]))
        return sign * jax.jvp(lambda t, x: guard(t, x, q[0]), (t, x), flow)[1]

    def near(t, x, q):
        return jnp.abs(t - q[1].t) < q[1].window

    def stay(t, x, q):
        return x

    modes, ways = [], []
    for k, (name, index) in enumerate(zip(sequence, system.route(sequence), strict=True)):
        mode, way = system.mode(name), system.transitions[index]
        jump, armed = _of_params(way.reset), None if way.armed is None else _of_params(way.armed)
        modes.append(Mode(_of_params(mode.vector_field), mode.coordinates))
        if k == touch.arc and touch.divides:
            ways.append((towards, stay, near))
            modes.append(modes[-1])
        if k == touch.arc and touch.taken and touch.at_start:
            ways.append((_of_params(way.guard), jump, near if armed is None else _both(near, armed)))
        elif k == touch.arc and touch.taken:
            ways.append((towards, _optional_reset(jump, mode, system.mode(way.target)), near))
        else:
            ways.append((_of_params(way.guard), jump, armed, way.at_once))
    names = tuple(f"arc {k}" for k in range(len(modes)))
    following = (*names[1:], names[0])
    transitions = [Transition(source, target, *way) for source, target, way in zip(names, following, ways, strict=True)]
    return HybridSystem(dict(zip(names, modes, strict=True)), transitions), names


def _vanished(system: HybridSystem, mode: str, t, x, params, integrator, expected, owed) -> Impact:
    """`run_to_guard` in the limit of an arc of zero length."""
    (index,) = system.leaving(mode)
    guard, field = system.transitions[index].guard, system.mode(mode).vector_field
    _, rate = jax.jvp(lambda t, x: guard(t, x, params), (t, x), (jnp.ones_like(t), field(t, x, params)))
    alone = jnp.zeros(len(system.leaving(mode)), bool)
    return Impact(t, x, jnp.array(index), rate, jnp.array(0), jnp.array(False), code_of(0), alone, jnp.zeros_like(t))


def _of_params(fn: Callable) -> Callable:
    """A function of the system's parameters as a function of `(params, touch)`."""
    return lambda t, x, q: fn(t, x, q[0])


def _both(one: Callable, other: Callable) -> Callable:
    return lambda t, x, q: one(t, x, q) & other(t, x, q)


def _optional_reset(jump: Callable, source: Mode, target: Mode) -> Callable:
    """The reset where `Touch.jump`, else the identity; always the reset between modes of different dimension."""
    if source.dimension != target.dimension:
        return jump
    return lambda t, x, q: jnp.where(q[1].jump, jump(t, x, q), x)
