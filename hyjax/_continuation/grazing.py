r"""Grazing: a periodic orbit that is tangent to a guard's surface; and corners: an arc of the orbit begins on such a surface.

A branch ends at grazing: beyond it the guard fires where it did not, or no longer fires where it did, and the return map has a
square root. The flow to the *extremum* of the guard, $\dot g = 0$, in place of the flow to its zero, is smooth. With it the
orbit exists on both sides, and grazing is one more equation,

$$F(y, \lambda) = 0, \qquad g(t_k, x_k) = 0 \quad \text{at the extremum in arc } k.$$

In a Filippov system with one surface there are four such ends, of codimension one. Grazing with a surface beyond which the flow
slides is *grazing-sliding*. A sliding arc that is tangent to the border of the region in which the flow slides is
*adding-sliding*. Where an arc meets the surface on that border, the field beyond is tangent to it: $L = 0$ at the end of the
arc, in place of $g = 0$. With the transition taken whatever the sign of $L$, the orbit exists on both sides. If the field leads
into the region, orbits beyond cross the surface before they slide, *switching-sliding*; if it leads out of it, they do not
slide, *crossing-sliding*.

At a corner the guard `g` is zero at the arc's first state. Beyond it the guard fires at once, or no longer does, and the return
map is discontinuous. With the guard ignored until the middle of the arc, the orbit exists on both sides.

By symmetry a section may be crossed three times at once: there $g$, $\dot g$ and $\ddot g$ are zero, and the extremum of $g$ is a
double root. With the flow to the extremum of the rate, $\ddot g = 0$, in place of the section, the condition is $\dot g = 0$.

Candidates are the guards that a periodic orbit nearly touches: at an extremum along an arc, or where an arc begins.

Source: di Bernardo, Budd, Champneys, Kowalczyk (2008), *Piecewise-smooth Dynamical Systems*, Secs. 2.5, 6.2 and
8.2, for the four cases of sliding.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.flow import Impact, run_to_guard
from .._flow.integrator import Integrator, Integrators, same_integrator
from .._flow.jump import reset
from .._numerics.eager import long_run
from .._numerics.linearize import with_columns
from .._numerics.newton import newton, Root
from .._numerics.trees import content_of
from .._orbit.chain import Chain
from .._orbit.orbit import PeriodicOrbit
from .._orbit.problem import Problem
from .._orbit.stride import MANY, run_stride, Stride
from .._results.shown import Shown
from .._system.every import Clock
from .._system.filippov import border_of
from .._system.results import code_of
from .._system.system import as_given, Guard, HybridSystem, Mode, Transition, VectorField
from .._system.types import Flag, Scalar, State, Time
from .unfolding import Unfolding

# An extremum of a guard counts as near zero if it is below this fraction of the guard's largest value along the arc.
NEAR = 0.02
# Below this fraction an extremum is tried before a corner.
TOUCHING = 1e-3
# A guard counts as near zero at the start of its arc between these fractions of its largest value along the arc. After a reset
# that leads onto the surface its guard is always zero there, up to rounding.
CORNER = (1e-12, 1e-4)
# If the arc after the touch is shorter than this fraction of the orbit's period, it is assumed to vanish at grazing.
BRIEF = 1e-3
# If the rate of a guard at an end of an arc is below this fraction of its largest rate along the arc, its extremum lies there.
TANGENT = 1e-8

# The time between two events that fall together is less than this share of the period.
TOGETHER = 1e-6

# The kinds of special points at which a branch ends.
ENDS = ("corner", "grazing", "swap", "grazing-sliding", "adding-sliding", "crossing-sliding", "switching-sliding")


class Touch(Shown):
    """The guard that a grazing orbit touches, and the arc in which it does.

    **Attributes:** `arc`: index of the arc, counted over all strides. `transition`: index of the guard's transition. `taken`:
    whether this guard ends the arc; otherwise the arc passes by it. `lowest`: whether the extremum of the guard is a minimum.
    `t`, `window`: the extremum lies nearer than `window` to the time `t`. `size`: largest modulus of the guard along the arc.
    `jump`: whether the reset of a taken guard is applied; without it, the orbit is on the side that misses the guard. `brief`:
    whether the next arc vanishes at grazing, as the contact with an elastic wall; `next_size`: the largest modulus of the guard
    that ends it, 1 unless `brief`. `at_end`: whether the guard that ends the arc is zero where the touched guard has its
    extremum, as at a section where a velocity vanishes; the arc is then not divided. `at_start`: a corner: the guard is zero at
    the first state of the arc, and `t` is the time of the arc's end. `at_border`: the arc ends on the border of the region in
    which a Filippov system slides. `of_rate`: the rate of the guard that closes the orbit is zero at its own extremum, where by
    symmetry three crossings are one; `t` is the time of each of its crossings, shape `(crossings,)`, and `size` that of the rate.
    """

    t: Float[Array, " *crossings"]
    window: Scalar
    size: Scalar
    next_size: Scalar
    jump: Flag
    arc: int = eqx.field(static=True)
    transition: int = eqx.field(static=True)
    taken: bool = eqx.field(static=True)
    lowest: bool = eqx.field(static=True)
    brief: bool = eqx.field(static=True)
    at_end: bool = eqx.field(static=True)
    at_start: bool = eqx.field(static=True)
    at_border: bool = eqx.field(static=True, default=False)
    of_rate: bool = eqx.field(static=True, default=False)

    @property
    def divides(self) -> bool:
        """Whether the arc is flown in two parts, to the extremum and from there to the arc's own guard."""
        return not (self.taken or self.at_end or self.at_start)


def possible_touches(orbit: PeriodicOrbit) -> list[Touch]:
    """The guards whose extrema along the orbit are near zero, and corners: candidates for the end of a branch."""
    found: list[tuple[float, Touch]] = []
    route = orbit.system.route(orbit.sequence) * orbit.strides
    arcs = orbit.sample(400)
    for k, arc in enumerate(arcs):
        # The orbit's first arc does not vanish: its start is the unknown of the orbit's equation.
        brief = k + 1 < len(arcs) and bool(arcs[k + 1].t[-1] - arcs[k + 1].t[0] < BRIEF * orbit.period)
        next_size = _largest(orbit, arcs, k + 1, route[k + 1]) if brief else 1.0
        # A clock is not touched.
        for e in (e for e in orbit.system.ways_out(arc.mode) if not isinstance(orbit.system.way(e).guard, Clock)):
            found += _touches_of(orbit, arc, k, e, e == route[k], brief, next_size)
        found += _borders_of(orbit, arc, k, route[k], brief, next_size)
    found += _merging_of(orbit, arcs, route)
    # At an impact without impulse the next arc may begin on a guard as well: where a guard is tangent, this comes first.
    order = lambda each: (not each[1].at_start and each[0] > TOUCHING, each[1].at_start, each[0])
    return [touch for closeness, touch in sorted(found, key=order) if closeness < NEAR]


def _largest(orbit: PeriodicOrbit, arcs, k: int, e: int) -> float:
    """The largest modulus of the guard of the way `e`, which ends the arc `k`, along the arcs of its mode; and along the arc
    before, if its states have as many coordinates, since the arc `k` itself may be too short to tell."""
    own = [arc for arc in arcs if arc.mode == arcs[k].mode]
    before = [dataclasses.replace(arcs[k - 1], mode=arcs[k].mode)] if arcs[k - 1].x.shape == arcs[k].x.shape else []
    heights = jnp.concatenate([jnp.abs(_along(orbit, arc, e)[0]) for arc in own + before])
    return float(jnp.max(jnp.where(jnp.isfinite(heights), heights, 0)))


def _touches_of(
    orbit: PeriodicOrbit, arc, k: int, e: int, taken: bool, brief: bool, next_size: float
) -> list[tuple[float, Touch]]:
    t = np.asarray(arc.t)
    height, rate = map(np.asarray, _along(orbit, arc, e))
    size, fastest = np.max(np.abs(height)), np.max(np.abs(rate))
    if size > 0 and not fastest > 0:
        # Constant along the arc, as where a map is the reset of a clock: its size is that over the orbit's states.
        gradient = jax.grad(lambda x: orbit.system.way(e).guard(arc.t[0], x, orbit.params))(arc.x[0])
        size = float(jnp.sum(jnp.abs(gradient)) * jnp.max(jnp.abs(arc.x)))
    if not size > 0:
        return []
    number = lambda value: jnp.asarray(value, arc.x.dtype)

    def touch(time, window, own, lowest, at_end=False, at_start=False):
        brief_next = own and brief and not at_start
        return Touch(
            number(time), number(window), number(size), number(next_size), jnp.array(True), k, e, own, lowest, brief_next,
            at_end, at_start,
        )  # fmt: skip

    found = []
    if CORNER[0] < abs(height[0]) / size < CORNER[1]:
        found.append((abs(height[0]) / size, touch(t[-1], (t[-1] - t[0]) / 2, taken, False, at_start=True)))
    if not fastest > 0:
        return found
    at_end = not taken and abs(rate[-1]) < TANGENT * fastest
    if at_end:
        found.append((abs(height[-1]) / size, touch(t[-1], t[-1] - t[0], False, bool(rate[-2] < 0), at_end=True)))
        t, height, rate = t[:-1], height[:-1], rate[:-1]
    if abs(rate[0]) < TANGENT * fastest:
        # The same extremum, as the start of the next arc.
        t, height, rate = t[1:], height[1:], rate[1:]
    ends = {True: (rate[:-1] < 0) & (rate[1:] >= 0), False: (rate[:-1] > 0) & (rate[1:] <= 0)}
    for lowest, turns in ends.items():
        places = np.flatnonzero(turns)
        # The guard between two samples as a parabola.
        share = rate[places] / (rate[places] - rate[places + 1])
        times = t[places] + share * (t[places + 1] - t[places])
        heights = height[places] + share * (t[places + 1] - t[places]) * rate[places] / 2
        for n, time in enumerate(times):
            apart = np.abs(np.delete(times, n) - time)
            own = taken and not lowest and n == len(times) - 1
            found.append((abs(heights[n]) / size, touch(time, np.min(apart, initial=t[-1] - t[0]) / 2, own, lowest)))
        if taken and lowest:
            # The guard falls slowly at the end of the arc: its minimum lies shortly after it.
            window = np.min(t[-1] - times, initial=t[-1] - t[0]) / 2
            found.append(((rate[-1] / fastest) ** 2, touch(t[-1], window, True, True)))
    return found


def _borders_of(orbit: PeriodicOrbit, arc, k: int, e: int, brief: bool, next_size: float) -> list[tuple[float, Touch]]:
    """The end of an arc near the border of the region in which a Filippov system slides."""
    if border_of(orbit.system.way(e)) is None:
        return []
    height = np.abs(np.asarray(_along(orbit, arc, e, border=True)[0]))
    number = lambda value: jnp.asarray(value, arc.x.dtype)
    size = float(np.max(height))
    if not size > 0:
        return []
    touch = Touch(
        number(arc.t[-1]), number(arc.t[-1] - arc.t[0]), number(size), number(next_size), jnp.array(True), k, e, True, False,
        brief, False, False, at_border=True,
    )  # fmt: skip
    return [(float(height[-1]) / size, touch)]


def _merging_of(orbit: PeriodicOrbit, arcs, route: tuple[int, ...]) -> list[tuple[float, Touch]]:
    """The guard that closes the orbit, such as a section, where its rate is small and has an extremum."""
    arc, e = arcs[-1], route[-1]
    if isinstance(orbit.system.way(e).guard, Clock):
        return []
    t, rate = np.asarray(arc.t), np.asarray(_along(orbit, arc, e)[1])
    fastest, turns = float(np.max(np.abs(rate))), np.flatnonzero(np.diff(np.sign(np.diff(rate[:-2]))))
    if not fastest > 0:
        return []
    number = lambda value: jnp.asarray(value, arc.x.dtype)
    ends = jnp.stack([arcs[k].t[-1] for k in _crossings(orbit.system, route, e)])
    window = (t[-1] - (t[turns[-1] + 1] if turns.size else t[0])) / 2
    touch = Touch(
        ends, number(window), number(fastest), number(1), jnp.array(True), len(arcs) - 1, e, True, bool(rate[-1] < rate[-9]),
        False, False, False, of_rate=True,
    )  # fmt: skip
    return [(float(abs(rate[-1])) / fastest, touch)]


def _crossings(system: HybridSystem, route: tuple[int, ...], e: int) -> list[int]:
    """The arcs that the guard of the way `e` ends, as a section is crossed after every stride."""
    same = lambda k: content_of(as_given(system.way(k).guard)) == content_of(as_given(system.way(e).guard))
    return [i for i, k in enumerate(route) if same(k)]


def rate_of(guard: Guard, field: VectorField) -> Guard:
    """The rate of a guard along a flow."""
    along = lambda t, x, params: (jnp.ones_like(t), field(t, x, params))
    return lambda t, x, params: jax.jvp(lambda t, x: guard(t, x, params), (t, x), along(t, x, params))[1]


@long_run
def _along(orbit: PeriodicOrbit, arc, e: int, border: bool = False) -> tuple[Array, Array]:
    """Values and rates of the guard of the way `e` along an arc, or of its `border_of`."""
    way, field = orbit.system.way(e), orbit.system.mode(arc.mode).vector_field
    guard = border_of(way) if border else way.guard
    assert guard is not None

    def at(t, x):
        flow = (jnp.ones_like(t), field(t, x, orbit.params))
        return jax.jvp(lambda t, x: guard(t, x, orbit.params), (t, x), flow)

    return jax.vmap(at)(arc.t, arc.x)


# Time and state at a touch, its image under the reset, and the value of the guard of the next arc where this arc begins, as a
# fraction of `Touch.next_size`; 1 unless `Touch.brief`.
AtTouch = tuple[Scalar, Float[Array, " pre"], Float[Array, " post"], Scalar]


def grazing_equation(
    unfolding: Unfolding, touch: Touch, v: Array, push: VectorField | None = None, size: Scalar | float = 0.0
) -> tuple[Array, tuple[Chain, AtTouch]]:
    """`H = (F, g)`, both scaled: the equation of the orbit, and the guard at its extremum or at the arc's start; and the orbit's
    strides. `v` has the state of the first stride only, and the parameters. **Arguments:** `push`: a function of time, state and
    parameters, of which `size` times the value is added to the state at the extremum."""
    (y,), values = unfolding.split(v)
    params, problem = unfolding.params_at(values), unfolding.problem
    sequence = problem.sequence * problem.strides
    way = problem.system.way(touch.transition)
    system, names = _with_extremum(problem.system, sequence, touch, push)
    t0, known = jnp.zeros((), v.dtype), (params, touch, jnp.asarray(size, v.dtype))
    start = Problem(system, names, 1).closing_jump(y, known)
    ways = [vanished if touch.brief and k == touch.arc + 1 else run_to_guard for k in range(len(names))]
    sources = (*sequence[: touch.arc + 1], *sequence[touch.arc + (0 if touch.divides else 1) :])
    integrator = unfolding.integrator.renamed(names, sources)
    if vanished not in ways and _of_one_kind(system, names, integrator):
        through = _run_in_loop(system, t0, start, known, names, integrator.of(names[0]))
    else:
        through = run_stride(system, t0, start, known, names, integrator, ways)
    at = through.impacts[touch.arc]
    t, x = (at.t, at.x) if not touch.at_start else _first_of_arc(system, names, touch.arc, through, t0, start, known)
    condition = border_of(way) if touch.at_border else way.guard
    assert condition is not None
    if touch.of_rate:
        condition = rate_of(way.guard, problem.system.mode(sequence[touch.arc]).vector_field)
    residual = jnp.append((through.impacts[-1].x - y) / unfolding.state_scale, condition(t, x, params) / touch.size)
    arcs = [k for k in range(len(names)) if not (touch.divides and k == touch.arc)]
    ends = [through.impacts[k] for k in arcs[len(problem.sequence) - 1 : -1 : len(problem.sequence)]]
    nodes = [start, *(reset(problem.closing_way, end.t, end.x, params) for end in ends)]
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
        following = problem.system.way(problem.system.route(sequence)[touch.arc + 1])
        next_guard = following.guard(t, image, params) / touch.next_size
    return residual, (chain, (t, x, image, next_guard))


def _of_one_kind(system: HybridSystem, names: tuple[str, ...], integrator: Integrators) -> bool:
    """Whether the arcs, enough of them for a loop, have one flow, and their guards are of the state."""
    modes = [system.mode(name) for name in names]
    flows = [(mode.dimension, content_of(as_given(mode.vector_field))) for mode in modes]
    same = all(same_integrator(integrator.of(name), integrator.of(names[0])) for name in names)
    guards = any(isinstance(way.guard, Clock) or way.at_once for way in map(system.way, system.route(names)))
    return len(names) >= MANY and same and not guards and all(flow == flows[0] for flow in flows)


def _run_in_loop(
    system: HybridSystem, t0: Time, start: State, known: Any, names: tuple[str, ...], integrator: Integrator
) -> Stride:
    """`run_stride` along arcs of one kind: as arcs of one mode, whose last coordinate counts them."""
    mode, ways = system.mode(names[0]), [system.way(k) for k in system.route(names)]

    def of_arc(functions: list[Callable]) -> Callable:
        # A partial function has no hash, which a switch asks for.
        functions = [lambda *at, fn=fn: fn(*at) for fn in functions]
        return lambda t, x, q: jax.lax.switch(jnp.rint(x[-1]).astype(int), functions, t, x[:-1], q)

    always = lambda t, x, q: jnp.array(True)
    jump = of_arc([way.reset for way in ways])
    once = Transition(
        "arc", "arc", guard=of_arc([way.guard for way in ways]), reset=lambda t, x, q: jnp.append(jump(t, x, q), x[-1] + 1),
        armed=of_arc([way.armed or always for way in ways]),
    )  # fmt: skip
    field = lambda t, x, q: jnp.append(mode.vector_field(t, x[:-1], q), 0 * x[-1])
    counted = Mode(field, (*mode.coordinates, "arc"), held=(*mode.held, "arc"), _whole=True)
    one = HybridSystem({"arc": counted}, (once,))
    through = run_stride(one, t0, jnp.append(start, jnp.zeros_like(t0)), known, ("arc",) * len(names), integrator)
    impacts = tuple(dataclasses.replace(impact, x=impact.x[:-1]) for impact in through.impacts)
    return dataclasses.replace(through, x=through.x[:-1], impacts=impacts)


def _first_of_arc(system: HybridSystem, names: tuple[str, ...], k: int, through: Stride, t0, start, known):
    """Time and state at which the arc `k` begins."""
    if k == 0:
        return t0, start
    last = through.impacts[k - 1]
    return last.t, reset(system.way(system.route(names)[k - 1]), last.t, last.x, known)


@long_run
def solve_grazing(unfolding: Unfolding, touch: Touch, v: Array, accept: Array, iterations: Array) -> Root:
    """The root of `H` by Newton's method; `aux` is the Jacobian of `H`, and what `grazing_equation` returns."""
    unfolding = unfolding.rolled()

    def evaluate(v):
        out, columns, known = with_columns(lambda v: grazing_equation(unfolding, touch, v), v)
        return out, columns, (columns, *known)

    return newton(evaluate, v, max_iterations=iterations, accept=accept)


def _with_extremum(
    system: HybridSystem, sequence: tuple[str, ...], touch: Touch, push: VectorField | None
) -> tuple[HybridSystem, tuple[str, ...]]:
    """A system with one mode for each arc of the orbit, in which the touching arc ends at the extremum of the guard. At a corner
    all arcs end as before, and the guard that is zero at the start of its arc is armed later.

    Its parameters are `(params, touch, size)`; the second result is its sequence of modes.
    """
    guard, sign = system.way(touch.transition).guard, -1 if touch.lowest else 1
    field = system.mode(sequence[touch.arc]).vector_field
    rate = rate_of(rate_of(guard, field) if touch.of_rate else guard, field)
    # By symmetry all crossings of a section are touched together.
    touched = _crossings(system, system.route(sequence), touch.transition) if touch.of_rate else [touch.arc]

    def towards(t, x, q):
        """The guard's rate, with the sign with which it falls through zero at the extremum."""
        return sign * rate(t, x, q[0])

    def near(t, x, q):
        return jnp.any(jnp.abs(t - q[1].t) < q[1].window)

    def pushed(jump):
        if push is None:
            return jump
        return lambda t, x, q: jump(t, x, q) + q[2] * push(t, x, q[0])  # pyright: ignore[reportOptionalCall]

    stay = pushed(lambda t, x, q: x)
    modes, ways = [], []
    for k, (name, index) in enumerate(zip(sequence, system.route(sequence), strict=True)):
        mode, way = system.mode(name), system.way(index)
        jump, armed = _of_params(way.reset), None if way.armed is None else _of_params(way.armed)
        modes.append(dataclasses.replace(mode, vector_field=_of_params(mode.vector_field), domain=None))
        if k == touch.arc and touch.divides:
            ways.append((towards, stay, near))
            modes.append(modes[-1])
        if k == touch.arc and touch.at_border:
            ways.append((_of_params(way.guard), jump, None))
        elif k == touch.arc and touch.taken and touch.at_start:
            ways.append((_of_params(way.guard), jump, near if armed is None else _both(near, armed)))
        elif k in touched and touch.taken:
            ways.append((towards, pushed(_optional_reset(jump, mode, system.mode(way.target))), near))
        else:
            jump = pushed(jump) if k == touch.arc and touch.at_end else jump
            ways.append((_of_params(way.guard), jump, armed, way.at_once))
    names = tuple(f"arc {k}" for k in range(len(modes)))
    following = (*names[1:], names[0])
    transitions = [Transition(source, target, *way) for source, target, way in zip(names, following, ways, strict=True)]
    return HybridSystem(dict(zip(names, modes, strict=True)), transitions), names


def vanished(system: HybridSystem, mode: str, t, x, params, integrator, expected, owed) -> Impact:
    """`run_to_guard` in the limit of an arc of zero length."""
    (index,) = system.leaving(mode)
    guard, field = system.transitions[index].guard, system.mode(mode).vector_field
    _, rate = jax.jvp(lambda t, x: guard(t, x, params), (t, x), (jnp.ones_like(t), field(t, x, params)))
    alone = jnp.zeros(len(system.leaving(mode)), bool)
    k, none = jnp.array(index), jnp.array(-1)
    return Impact(t, x, k, none, rate, jnp.array(0), jnp.array(False), code_of(0), k, alone, jnp.zeros_like(t))


def _of_params(fn: Callable) -> Callable:
    """A function of the system's parameters as a function of `(params, touch, size)`."""
    return fn.of(lambda q: q[0]) if isinstance(fn, Clock) else eqx.Partial(_of_first, fn)


def _of_first(fn: Callable, t: Time, x: State, q: tuple) -> Any:
    return fn(t, x, q[0])


def _both(one: Callable, other: Callable) -> Callable:
    return lambda t, x, q: one(t, x, q) & other(t, x, q)


def _optional_reset(jump: Callable, source: Mode, target: Mode) -> Callable:
    """The reset where `Touch.jump`, else the identity; always the reset between modes of different dimension."""
    if source.dimension != target.dimension:
        return jump
    return lambda t, x, q: jnp.where(q[1].jump, jump(t, x, q), x)


def two_fall(orbit: PeriodicOrbit, arc: int) -> bool:
    """Whether two guards fall at the end of an arc, also that which ends an arc of no duration after it; at a corner the reset
    there leads onto its surface. **Arguments:** `arc`: counted over all strides."""
    stride, k = divmod(arc % orbit.jump_times.size, len(orbit.sequence))
    t, x, system = orbit.start_times[stride] + orbit.jump_times[stride, k], orbit.arc_ends[k][stride], orbit.system
    mode = orbit.sequence[k]
    along = jnp.ones_like(t), system.mode(mode).vector_field(t, x, orbit.params)
    together = max(TOGETHER, 64 * float(jnp.finfo(x.dtype).eps))

    def falls(e: int) -> bool:
        way = system.way(e)
        value, rate = jax.jvp(lambda t, x: way.guard(t, x, orbit.params), (t, x), along)
        due = (rate < 0) & (jnp.abs(value) <= -together * orbit.period * rate)
        return bool(due & (way.armed is None or way.armed(t, x, orbit.params)))

    # Clocks that tick together do so all along the branch; a guard of the state may pass the tick of one.
    due = [isinstance(system.way(e).guard, Clock) for e in system.ways_out(mode) if falls(e)]
    return len(due) > 1 and not all(due)
