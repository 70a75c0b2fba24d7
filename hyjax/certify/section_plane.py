r"""Coordinates on a section: the entries of a pre-impact state that decide all that follows."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._system.types import Params, Scalar, State
from .exact_numbers import exact_function
from .interpret import evaluate
from .linear_forms import LinearForm
from .mode_field import ModeField
from .symbolic import Sketch
from .taylor_model import ball, TaylorModel

# How well the time of a section at one time of the period is known: the proof holds for all times within.
# The guard falls for all times within `NEAR`.
MOMENT, NEAR = 1e-12, 1e-3


class SectionChart(eqx.Module):
    r"""Coordinates $z$ of a section: how a state follows from them, and how they are read off.

    **Arguments:** `lift`: `(z, params) -> x`, the state at the start of the first arc, just after a jump. `chart`:
    `(y, params) -> z`, from the pre-impact state of the jump that closes the orbit. States carry the time as their last entry if
    the system depends on time. `names`: of the coordinates. `strobe`: whether the section is at one time of the period, which is
    then known to within `MOMENT`. `derived`: whether it follows from the closing jump. The return map is
    $z \mapsto \mathrm{chart}(\varphi(\mathrm{lift}(z)))$.
    """

    lift: Callable[[Float[Array, " m"], Params], State] = eqx.field(static=True)
    chart: Callable[[State, Params], Float[Array, " m"]] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    strobe: bool = eqx.field(static=True, default=False)
    derived: bool = eqx.field(static=True, default=False)


def entries_read(field: ModeField, reset: Callable[[State, Params], State]) -> tuple[int, ...]:
    """The entries of the pre-impact state on which the reset depends, by the computational graph: exactly, for all states."""
    return field.graph(lambda y, params, _: reset(y, params), jnp.zeros(field.dimension)).varying.read


def section_of_reset(
    field: ModeField,
    reset: Callable[[State, Params], State],
    guard: Callable[[State, Params], Scalar] | None,
    y: State,
    names: tuple[str, ...],
) -> tuple[SectionChart, Callable[[Float[Array, " m"], Params], State]]:
    r"""The section whose coordinates are the entries of the pre-impact state that the closing reset reads.

    With a guard the section has no more coordinates than it needs: an entry $y_i$ of which the guard is affine,
    $g = a y_i + b(y_j, \dots)$ with $a$ and $b$ of entries that are read, is $-b/a$, as $g = 0$ before the jump; and the time is
    known, if the guard reads the time alone.

    **Arguments:** `field`: of the mode before the reset. `reset`, `guard`: `(y, params)`, of the closing transition. `y`: the
    orbit's pre-impact state, whose other entries stand for those that are not read. **Returns:** the section, and the pre-impact
    state with given coordinates, `(z, params) -> y`.
    """
    read, rest, clock = entries_read(field, reset), jnp.asarray(y), len(y) - 1
    solved = None if guard is None else _affine_entry(field, guard, read)
    strobe = False
    if guard is not None and solved is None and field.timed:
        strobe = entries_read(field, lambda y, p: guard(y, p)[None]) == (clock,)
    at = tuple(i for i in read if i != solved and not (strobe and i == clock))

    def before(z, params):
        entries = [z[at.index(i)] if i in at else rest[i] for i in range(len(y))]
        if solved is not None and guard is not None:
            entries[solved] = _root(guard, params, entries, solved)
        return jnp.stack(entries)

    def lift(z, params):
        return reset(before(z, params), params)

    def chart(y, params):
        return jnp.stack([y[i] for i in at])

    return SectionChart(lift, chart, tuple(names[i] for i in at), strobe, True), before


def _root(guard: Callable[[State, Params], Scalar], params: Params, entries: list[Scalar], i: int) -> Scalar:
    """The entry `i` of a state on the surface of a guard that is affine in it: -b/a with b = g(0), a = g(1) - g(0)."""
    zero, one = (guard(jnp.stack([*entries[:i], jnp.asarray(each), *entries[i + 1 :]]), params) for each in (0.0, 1.0))
    return -zero / (one - zero)


def _affine_entry(field: ModeField, guard: Callable[[State, Params], Scalar], read: tuple[int, ...]) -> int | None:
    """The first entry in which the guard is affine with a slope that depends on no state, by the computational graph, and not
    zero; `None` without one, and where the guard reads an entry that the reset does not."""
    if not set(entries_read(field, lambda y, p: guard(y, p)[None])) <= set(read):
        return None
    sketch = field.sketch(jnp.zeros(field.dimension))
    slopes = sketch.gradient(field.read(sketch, lambda y, p, _: guard(y, p)))
    return next((i for i in read if _not_zero(sketch, slopes[i], field.leaves)), None)


def zero_after(
    field: ModeField, surface: Callable, jump: Callable, following: ModeField
) -> Bool[np.ndarray, " guards"]:
    """For each guard of the mode `following`, whether it is zero after a jump from every state on a guard's surface.

    Exactly, by the forms of the functions: where the guard after the jump is a multiple of the guard before it, or cancels once
    an entry of the state follows from the surface. **Arguments:** `surface`: the guard `(y, params)` that falls before the jump.
    `jump`: `(y, params, period)`; all guards have the period (`mode_field`), so none is taken off the time.
    """
    sketch = field.sketch(jnp.zeros(field.dimension))
    g = field.read(sketch, lambda y, p, _: surface(y, p)).item()
    ways = [(sketch.x, lambda form: sketch.atoms.parallel(form, g))]
    for i, slope in enumerate(sketch.gradient(np.array(g, object))):
        if _not_zero(sketch, slope, field.leaves):
            y = sketch.x.copy()
            y[i] = sketch.atoms.subtract(y[i], sketch.atoms.divide(g, slope.constant))
            ways.append((y, lambda form: form.zero))
    zero = []
    for y, vanishes in ways:
        x = field.read(sketch, lambda y, p, _: jump(y, p, jnp.zeros(())), y)
        zero.append([vanishes(height.item()) for height in following.heights_of(sketch, x)])
    return np.any(zero, axis=0)


def _not_zero(sketch: Sketch, slope: LinearForm, leaves: list) -> bool:
    """Whether a form depends on the parameters alone and is not zero."""
    if slope.constant is None or slope.zero:
        return False
    (value,) = exact_function(sketch.graph(np.array([slope], object)), leaves)([])
    return value > 0 or value < 0


def at_the_time(field: ModeField, which: int, around: TaylorModel, y: State) -> Bool[Array, ""]:
    """Whether the guard `which`, of the time alone, vanishes once near the times of `around`, a ball of states, within half of
    `MOMENT` of the time of `y`: so all states of the set are on the section at one time."""

    def guard(late: float, radius: float) -> TaylorModel:
        at = ball(y.at[-1].add(late), jnp.zeros(y.shape).at[-1].set(radius))
        return evaluate(field.guards[which], at, field.leaves)

    near = jnp.abs(around.center[-1] - y[-1]) + around.radius[-1] < 0.5 * NEAR
    falls = guard(0.0, NEAR)[1].high < 0
    return near & falls & (guard(-0.4 * MOMENT, 0.0)[0].low > 0) & (guard(0.4 * MOMENT, 0.0)[0].high < 0)


# What the proofs of this folder rest on.


def assumptions_of(section: SectionChart, repeats: str) -> tuple[str, ...]:
    """The assumptions of a proof about an orbit, a sentence each; `repeats`: of the forcing, empty without one."""
    sentences = [
        "Numbers are IEEE binary64, rounded to nearest; operations may be fused, summed in any order, flushed below 2^-1022.",
        "XLA compiles +, -, *, / and square roots without fast math; no other function of the machine is trusted.",
        "The parameters, and the constants in the functions of the system, are the floats that are given, exactly.",
        "The domains of the modes are not part of the proof.",
    ]
    if not section.derived:
        sentences.append(
            "The section is as given: its lift of the chart of a state is the state after the closing jump."
        )
    return (*sentences, repeats) if repeats else tuple(sentences)
