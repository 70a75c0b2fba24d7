"""The guards and the domain of a mode as functions of time and state: values, rates along the flow, rounding errors."""

import dataclasses
import functools as ft
import math
from collections.abc import Callable, Sequence

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._numerics.trees import MOST_PARTS
from .._system.every import Clock
from .._system.system import Armed, Guard, Mode, Transition
from .._system.types import Params, Scalar, State, Time

Guards = Float[Array, " guards"]
Mask = Bool[Array, " guards"]

# A guard's own rounding is looked for at these points of a line, in units of these powers of the dtype's resolution.
LINE = np.array([1.0, 1.73, 3.14, 4.41, 5.27, 6.83, 8.05])
SCALES = np.array([0.2, 0.4, 0.6, 0.8, 1.0])
# The projection of values at these points that removes every cubic.
_POWERS = LINE[:, None] ** np.arange(4)
OFF_CUBIC = np.eye(len(LINE)) - _POWERS @ np.linalg.pinv(_POWERS)


class Surfaces(eqx.Module):
    """The guards of a mode, and whether they are armed: functions of `(t, x, args)` with values of shape `(guards,)`.

    **Attributes:** `values`: with a fourth argument, the number of a guard, only that guard has derivatives. `limits`: how
    many of the last guards are the components of the mode's domain, `inside`, which have no transition. `guarded`: how many of
    these, the first, are left only after a guard has fallen, a function of `args`. `unlimited`: without the limits, if known.
    `at_once`: which guards fire also where the flow begins, `clocks`: which are clocks, `repeated`: of which the only limit is
    the least (see `within_guards`), functions of `args`; `None` if none is.
    """

    count: int = eqx.field(static=True)
    values: Callable
    armed: Callable
    limits: int = eqx.field(static=True, default=0)
    inside: Callable[[Time, State, PyTree], Guards] | None = None
    guarded: Callable[[PyTree], int | Int[Array, ""]] = lambda args: 0
    unlimited: "Surfaces | None" = None
    at_once: Callable[[PyTree], Mask] | None = None
    clocks: Callable[[PyTree], Mask] | None = None
    repeated: Callable[[PyTree], Mask] | None = None

    @property
    def is_limit(self) -> np.ndarray:
        """Which surfaces are limits of the domain, shape `(guards,)`."""
        return np.arange(self.count) >= self.count - self.limits

    @property
    def least_is_limit(self) -> "Surfaces | None":
        """The guards of which the least is the only limit, see `within_guards`; `None` where limits are of their own."""
        return None if self.repeated is None else self.unlimited

    def resolved(self, args: PyTree) -> Mask:
        """Which surfaces a solver step must be short enough for (see `guard_polynomials.py`): all but the guarded limits."""
        number = jnp.arange(self.count) - (self.count - self.limits)
        return (number < 0) | (number >= self.guarded(args))

    def within(
        self,
        limits: int,
        domain: Callable[[Time, State, PyTree], Guards],
        guarded: Callable[[PyTree], int | Int[Array, ""]],
    ) -> "Surfaces":
        """These guards, followed by the `limits` components of a domain, of which the first `guarded(args)` are guarded."""
        if not limits:
            return self

        def values(t, x, args, only=None):
            inside = domain(t, x, args)
            return jnp.concatenate([self.values(t, x, args, only), inside]) if self.count else inside

        def armed(t, x, args):
            always = jnp.ones(limits, bool)
            return jnp.concatenate([self.armed(t, x, args), always]) if self.count else always

        alone = self if self.count else None
        return Surfaces(self.count + limits, values, armed, limits, domain, guarded, alone, *self._flags(limits))

    def within_guards(self, repeated: Callable[[PyTree], Mask]) -> "Surfaces":
        """These guards, followed by one limit of a domain that is the same function as the `repeated` guards: the least of them.

        It is left only after a guard has fallen, and where that is inside a step, the guard itself shows it.
        """

        def values(t, x, args, only=None):
            guards = self.values(t, x, args, only)
            # The limit has the derivatives of all of them.
            every = guards if only is None else self.values(t, x, args)
            return jnp.append(guards, least_of(every, repeated(args)))

        armed = lambda t, x, args: jnp.append(self.armed(t, x, args), True)
        at_once, clocks = self._flags(1)
        return Surfaces(self.count + 1, values, armed, 1, None, lambda args: 1, self, at_once, clocks, repeated)

    def _flags(self, limits: int) -> list[Callable[[PyTree], Mask] | None]:
        """`at_once` and `clocks`, also of limits."""

        def extended(flags):
            return None if flags is None else lambda args: jnp.concatenate([flags(args), jnp.zeros(limits, bool)])

        return [extended(self.at_once), extended(self.clocks)]

    def moved(self, by: Guards, g: Guards, args: PyTree) -> tuple["Surfaces", Guards]:
        """The same surfaces, and their values `g`, with `by` added to those of the limits, or of the guards that they repeat."""
        guards = self.least_is_limit
        if self.repeated is None or guards is None:
            by = jnp.where(self.is_limit, by, 0)
            return dataclasses.replace(self, values=lambda *inputs: self.values(*inputs) + by, unlimited=None), g + by
        by, chosen = by[:-1], self.repeated(args)
        with_least = lambda values: jnp.append(values, least_of(values + by, chosen))
        return dataclasses.replace(self, values=lambda *inputs: with_least(guards.values(*inputs))), with_least(g[:-1])

    def value(self, k: Int[Array, ""], t: Time, x: State, args: PyTree) -> Scalar:
        """Guard number `k`; the first for a negative number."""
        k = jnp.maximum(k, 0)
        return self.values(t, x, args, k)[k] if self.count > 1 else self.values(t, x, args)[k]

    def rates(self, t: Time, x: State, f: State, args: PyTree) -> tuple[Guards, Guards]:
        """Values and rates of the guards at `(t, x)`, where the vector field is `f`."""
        if not self.count:
            return jnp.zeros(0, x.dtype), jnp.zeros(0, x.dtype)
        values, rates = jax.jvp(lambda t, x: self.values(t, x, args), (t, x), (jnp.ones_like(t), f))
        # The gradient of a norm at zero does not exist. Rates only guide the search, which does without this one.
        return values, jnp.where(jnp.isfinite(rates), rates, 0)


# The guard, `armed` and number of members of a transition, `None` of a single one.
Way = tuple[Guard, Armed | None, int | None]


# The start of a flow: its time and parameters, and for each guard the time in which it is owed (see `integrate`) or `None`.
Start = tuple[Time, Params, Guards | None]


def ways_of(transitions: Sequence[Transition], start: Start | None = None) -> list[Way]:
    """The ways of transitions; with a `start`, that of a flow, in which clocks go to their first ticks."""
    ways, first = [], 0
    for each in transitions:
        guard = each.guard
        if isinstance(guard, Clock) and start is not None:
            t, params, owed = start
            guard = guard.ahead(t, params, t.dtype, False if owed is None else owed[first] >= 0)
        ways.append((guard, each.armed, each._members))
        first += each._members or 1
    return ways


def guards_of(
    ways: Sequence[Way], t: Time, x: State, params: Params, only: Int[Array, ""] | None = None
) -> list[Guards]:
    """The values of the guards of transitions, one after another. **Arguments:** `only`: see `Surfaces`.

    The derivative of a guard may be infinite or NaN, as that of a square root, and reverse mode would multiply it by zero: so the
    inputs of all other transitions are constant.
    """
    values, first = [], 0
    for guard, _, members in ways:
        asked, first = (first, first + (members or 1)), first + (members or 1)
        inputs = t, x, params
        if only is not None:
            own = (only == asked[0]) if members is None else (only >= asked[0]) & (only < asked[1])
            freeze = lambda leaf, own=own: (
                jnp.where(own, leaf, stop_gradient(leaf)) if eqx.is_inexact_array(leaf) else leaf
            )
            inputs = jax.tree.map(freeze, inputs)
        value = jnp.asarray(guard(*inputs), x.dtype)
        values.append(value[None] if members is None else value)
    return values


def armed_of(ways: Sequence[Way], t: Time, x: State, params: Params) -> list[Mask]:
    """Whether the guards of transitions are armed, one after another."""
    flags = []
    for _, armed, members in ways:
        flag = jnp.array(True) if armed is None else jnp.asarray(armed(t, x, params))
        flags.append(flag[None] if members is None else jnp.broadcast_to(flag, members))
    return flags


def least_of(guards: Guards, chosen: Mask) -> Scalar:
    """The least of the guards that are chosen; 1 if none is."""
    return jnp.where(jnp.any(chosen), jnp.min(jnp.where(chosen, guards, jnp.inf)), 1)


def no_surfaces() -> Surfaces:
    """No guards, for a flow whose guards are ignored."""
    return Surfaces(0, lambda t, x, args: jnp.zeros(0), lambda t, x, args: jnp.zeros(0, bool))


def limits_of(mode: Mode, t: Time, x: State, params: Params) -> int:
    """The number of components of a mode's domain; 0 without one."""
    return 0 if mode.domain is None else math.prod(np.shape(eqx.filter_eval_shape(mode.domain, t, x, params)))


def repeated_guards(mode: Mode, transitions: Sequence[Transition]) -> np.ndarray:
    """Which guards of the transitions that leave a mode are the same function as its domain."""
    alike = np.array([each.guard is mode.domain for each in transitions], bool)
    return np.repeat(alike, np.array([each._members or 1 for each in transitions], int))


def guarded_limits(mode: Mode) -> int:
    """How many limits of a mode's domain are left only after a guard has fallen, as the domain itself says (`guarded`)."""
    return getattr(mode.domain, "guarded", 0)


def first_least(values: Array) -> Int[Array, ""]:
    """The index of the least number, the first of several. Without NaN: `jnp.argmin`, which XLA on a CPU does not vectorize (18
    microseconds for a thousand numbers, these two minima 1.3; jaxlib 0.10.2)."""
    if values.size == 1:
        return jnp.array(0)
    return jnp.min(jnp.where(values == jnp.min(values), jnp.arange(values.size), values.size - 1))


def start_threshold(noise: Guards, h: Scalar, r: Guards) -> Guards:
    """The value up to which a guard is zero at the start of a flow: its rounding error, or what its rate `r < 0` leads through
    within rounding of the first step `h`. Hazard: where the surface is at zero, the state's own rounding tends to zero."""
    return jnp.maximum(noise, 64 * float(jnp.finfo(r.dtype).eps) * jnp.abs(h) * jnp.maximum(-r, 0))


def known_to(
    surfaces: Surfaces, t: Time, x: State, args: PyTree, error: State
) -> tuple[Guards, Guards, Float[Array, "rows guards"]]:
    """The guards, their rounding errors (see `rounding`), and their changes by an `error` of the state, in rows: of any sum of
    columns, the sum of the absolute values is its change."""
    inputs = jnp.append(t, x)
    relative = 64 * float(jnp.finfo(x.dtype).eps) * jnp.abs(inputs)
    at = lambda inputs: surfaces.values(inputs[0], inputs[1:], args)
    values, (by_rounding, by_error) = _changes(at, surfaces.count, inputs, relative, jnp.append(0, error))
    return values, absolute_sum(by_rounding), by_error


def absolute_sum(rows: Float[Array, "rows guards"]) -> Guards:
    """The sum of the absolute values of each column, of a few rows written out, see `_own_rounding`."""
    return ft.reduce(jnp.add, map(jnp.abs, rows)) if len(rows) <= MOST_PARTS else jnp.sum(jnp.abs(rows), axis=0)


# The changes of many guards of a long state are looked at in this number of directions.
DIRECTIONS = 12


def _in_directions(inputs: Float[Array, " inputs"], count: int) -> bool:
    """Whether `count` guards are so many that their changes by each input are too many numbers."""
    return inputs.size > MOST_PARTS + 1 and count > MOST_PARTS


def _changes(
    at: Callable,
    count: int,
    inputs: Float[Array, " inputs"],
    *moves: Float[Array, " inputs"],
    further: Array | None = None,
) -> tuple[Guards, list[Float[Array, "rows guards"]]]:
    r"""The guards `at(inputs)`, and how they change when each input alone moves by its part of `moves`, for each of these; and, a
    row, when all inputs move by `further`.

    By differences, because the gradient of a guard such as a norm may be infinite or not exist; of more than `MOST_PARTS` inputs
    by gradients, in reverse mode, where the guards can be differentiated so. Of many guards of a long state a row is the change
    where all inputs move, each one way or the other: twice the mean of the absolute values is between the root of the sum of the
    squares of the changes by each input and twice their sum (Khinchine's inequality), and the rows are so much smaller.
    """
    finite = lambda change: jnp.where(jnp.isfinite(change), change, 0)
    if _in_directions(inputs, count):
        ways = np.random.default_rng(0).choice([-1.0, 1.0], (DIRECTIONS, inputs.size)).astype(inputs.dtype)
        values = at(inputs)
        moved = [jax.vmap(lambda way, move=move: at(inputs + way * move) - values)(ways) for move in moves]
        return values, [
            *(finite(change) * (2 / DIRECTIONS) for change in moved),
            *_further(at, inputs, values, further),
        ]
    if inputs.size > MOST_PARTS + 1:
        try:
            values, pull = jax.vjp(at, inputs)
            (gradients,) = jax.vmap(pull)(jnp.eye(values.size, dtype=values.dtype))
            changes = [finite(gradients.T * move[:, None]) for move in moves]
            return values, [*changes, *_further(at, inputs, values, further)]
        except ValueError:
            # The guard has a loop, of which there is no derivative in reverse mode.
            pass
    # The first row is not moved. All in one batch, so that the guards are compiled once.
    last = [] if further is None else [further[None]]
    rows = jnp.concatenate([jnp.zeros((1, inputs.size), inputs.dtype), *map(jnp.diag, moves), *last])
    values = jax.vmap(at)(inputs + rows)
    changes = finite(values[1:] - values[0])
    return values[0], jnp.split(changes, inputs.size * np.arange(1, len(moves) + len(last)))


def _further(at: Callable, inputs: Float[Array, " inputs"], values: Guards, further: Array | None) -> list[Array]:
    return [] if further is None else [(at(inputs + further) - values)[None]]


def rounding(
    surfaces: Surfaces, t: Time, x: State, args: PyTree, more: float | Scalar | State = 0.0
) -> tuple[Guards, Guards]:
    """The size of each guard's rounding error: its change when each input changes by 64 units in the last place, or what its
    constants make of it (`_own_rounding`), which no input shows where a coordinate is about zero.

    **Returns:** that; and where each coordinate of the state changes by `more` in addition: for a coordinate near zero may be the
    difference of larger numbers.
    """
    if not surfaces.count:
        return jnp.zeros(0, x.dtype), jnp.zeros(0, x.dtype)
    t, x = stop_gradient((t, x))
    unit = 64 * float(jnp.finfo(x.dtype).eps)
    inputs = jnp.append(t, x)
    relative = unit * jnp.abs(inputs)
    moves = relative + jnp.append(0, jnp.broadcast_to(jnp.asarray(more, x.dtype), x.shape))
    # A limit that repeats guards has their rounding.
    known = surfaces.least_is_limit or surfaces
    count, at = known.count, lambda inputs: known.values(inputs[0], inputs[1:], args)
    # The unit of a guard is known from its change only, here at the second largest of the distances.
    line = _along_a_line(x)
    if _in_directions(inputs, count):
        values, (*changes, shown) = _changes(at, count, inputs, relative, moves, further=line[len(LINE)])
        noise, error = map(absolute_sum, changes)
    else:
        values, (change, shown) = _changes(at, count, inputs, moves, further=line[len(LINE)])
        change = jnp.abs(change)
        if (inside := surfaces.inside) is not None:
            # A limit such as the larger of two numbers may have a kink here, and change only where an input moves the other way.
            limits = lambda inputs: inside(inputs[0], inputs[1:], args)
            _, (other,) = _changes(limits, surfaces.limits, inputs, -moves)
            change = change.at[:, -surfaces.limits :].max(jnp.abs(other))
        part = relative / jnp.where(moves > 0, moves, 1)
        noise, error = part @ change, jnp.sum(change, axis=0)
    # Elsewhere the rounding of the state is not much less than that of the constants, or no guard is near its surface. One flag
    # for the whole batch.
    little = float(jnp.finfo(x.dtype).eps) ** 0.25
    near = (jnp.abs(values) <= little * (1 + noise / unit)) | (jnp.abs(values) <= jnp.abs(shown[0]))
    small = jnp.any(jnp.abs(x) <= little) & jnp.any(near)
    own = lambda: jnp.where(small, _own_rounding(jax.vmap(at)(inputs + line)), 0)
    more_noise = jax.lax.cond(eqxi.unvmap_any(small), own, lambda: jnp.zeros_like(noise))
    more_noise = jnp.maximum(more_noise - noise, 0)
    noise, error = noise + more_noise, error + more_noise
    if known is not surfaces:
        noise, error = jnp.append(noise, 0), jnp.append(error, 0)
    return noise, error


def _along_a_line(x: State) -> Float[Array, "points inputs"]:
    """Moves of time and state along a line through the state, which no plane of coordinates contains: the points of `LINE` at
    each of `SCALES` distances, the largest first."""
    direction = 1 + np.arange(1, x.size + 1) * 0.618034 % 1
    scales = float(jnp.finfo(x.dtype).eps) ** SCALES
    moves = np.einsum("i,j,k->ijk", scales, LINE, np.append(0, direction))
    return jnp.asarray(moves.reshape(-1, x.size + 1), x.dtype)


def _own_rounding(values: Float[Array, "points guards"]) -> Guards:
    r"""The rounding error of a guard with constants inside, such as $3 - \sqrt{(3 - y)^2}$ at $y = 0$: by how much its values on
    a line differ from a cubic; 0 where they show none. **Arguments:** `values`: at the points of `_along_a_line`.

    Rounding is what does not shrink with the distance of the points, and is small beside the guard's change between them. (A kink
    of the guard lies between the points of one distance at most.)

    Source: Moré, Wild (2011), *Estimating computational noise*, SIAM J. Sci. Comput. 33, by differences of equidistant values;
    but the roundings of those may lie on a line.
    """
    values = values.reshape(len(SCALES), len(LINE), -1)
    moved = [values[:, k] - values[:, 0] for k in range(1, len(LINE))]
    # Written out: XLA on a CPU hands sums and maxima over an axis to YNNPACK, here 97 of the 240 microseconds of an
    # arc with 100 guards (jaxlib 0.10.2; no issue known upstream).
    off = [sum(weight * each for weight, each in zip(row[1:].tolist(), moved, strict=True)) for row in OFF_CUBIC]
    left, spread = (ft.reduce(jnp.maximum, map(jnp.abs, each)) for each in (off, moved))
    coarse, fine = left[:-1], left[1:]
    alike = (coarse <= 8 * fine) & (fine <= 8 * coarse)
    noise = 64 * jnp.where(alike & (16 * coarse <= spread[:-1]), coarse, 0)
    return ft.reduce(jnp.maximum, jnp.where(jnp.isfinite(noise), noise, 0))
