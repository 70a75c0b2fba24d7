"""A hybrid system whose mode is an index known only at run time, so that one program serves any sequence of modes.

States are padded with zeros to the largest dimension, and the guards of each mode with guards that never fall. Each mode flows by
its own integrator.
"""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._numerics.programs import once
from .._numerics.trees import MOST_PARTS, select
from .._system.per_mode import kind_of, numbers_of, PerMode, with_numbers
from .._system.results import numbered_code, RESULTS
from .._system.system import as_given, HybridSystem, Mode, of_member, Transition
from .._system.types import Flag, Params, Scalar, State, Time
from .choices import shape_of
from .integrate import Arrival, Entry, integrate
from .integrator import Integrators
from .joint import own_params
from .jump import variation_of_jump
from .loop_state import Watch
from .surfaces import (
    armed_of,
    guarded_limits,
    Guards,
    guards_of,
    limits_of,
    Mask,
    no_surfaces,
    repeated_guards,
    Start,
    Surfaces,
    ways_of,
)

Index = Int[Array, ""]
Padded = Float[Array, " size"]


class Automaton(eqx.Module):
    """The functions of a hybrid system, selected by the index of a mode or transition at run time.

    A batch whose lanes are in different modes evaluates the functions of all modes.

    **Attributes:** `only`: names of the modes that flow; `None` for all. In the other modes the vector field is zero, and no
    guard falls. `leading`: for each mode, how many of its coordinates are its state; the others, such as a covariance, follow the
    state, and do not decide where the system slides. `None` for all. `alone`: the system of the state, of the same modes and
    transitions, with the attribute `params` of the parameters: its functions decide where the system slides, and need not be
    compiled together with what follows. `judges`: whether events that fall together are examined for their order; else they are
    `simultaneous_guards`.
    """

    system: HybridSystem
    only: tuple[str, ...] | None = eqx.field(static=True, default=None)
    leading: tuple[int, ...] | None = eqx.field(static=True, default=None)
    alone: HybridSystem | None = None
    judges: bool = eqx.field(static=True, default=True)

    @property
    def names(self) -> tuple[str, ...]:
        return self.system.names

    @property
    def modes(self) -> tuple[Mode, ...]:
        return tuple(self.system.modes.values())

    @property
    def size(self) -> int:
        """The largest dimension of any mode."""
        return max(mode.dimension for mode in self.modes)

    def pad(self, x: State) -> Padded:
        return jnp.pad(x, (0, self.size - x.size)) if x.size < self.size else x

    def restricted(self, only: tuple[str, ...] | None) -> "Automaton":
        """The same automaton, in which only the modes `only` flow."""
        return Automaton(self.system, only, self.leading, self.alone, self.judges)

    def includes(self, mode: Index) -> Flag:
        """Whether the mode is one of those that flow."""
        return jnp.array([self.only is None or name in self.only for name in self.names])[mode]

    def is_state(self, mode: Index) -> Bool[Array, " size"]:
        """Which of the padded coordinates are not among those that follow the state of the mode."""
        if self.leading is None:
            return jnp.ones(self.size, bool)
        return jnp.arange(self.size) < jnp.array(self.leading)[mode]

    def of_state(self, z: Float[Array, " whole"], mode: Index, params: Params) -> tuple["Automaton", Padded, Params]:
        """The automaton of the state alone with the state and its parameters, if known; else all that is given."""
        if self.alone is None:
            return self, z, params
        automaton = Automaton(self.alone)
        return automaton, jnp.where(self.is_state(mode), z, 0)[: automaton.size], own_params(params)

    def field(self, t: Time, z: Padded, args: tuple[Index, Params]) -> Padded:
        """The vector field of mode `args[0]`; zero in the padding."""
        mode, params = args

        def rate(each, t, z, params):
            if each is None:
                return jnp.zeros_like(z)
            n, vector_field = each
            return self.pad(vector_field(t, z[:n], params))

        ways = [(each.dimension, each.vector_field) if flows else None for each, flows in self._flowing]
        return switched(mode, ways, rate, t, z, params)

    def share(self, mode: Index, dtype) -> Scalar | None:
        """`Mode.share` of the mode; `None` if no mode holds a coordinate."""
        if not any(each.held for each in self.modes):
            return None
        return jnp.array([each.share or 1 for each in self.modes], dtype)[mode]

    @property
    def surfaces(self) -> Surfaces:
        """The guards of the mode `args[0]`: guard `k` belongs to the `k`-th way that leaves the mode."""
        return self._surfaces(None)

    def _surfaces(self, start: Start | None) -> Surfaces:
        """`surfaces` of a flow from its `start`."""
        lists = [
            ways_of(self.system.transitions_out(name), start) if flows else []
            for name, (_, flows) in zip(self.names, self._flowing, strict=True)
        ]
        single_only = not self.system.families
        count, widths = max(map(len, self._ways_out)), [sum(members or 1 for *_, members in out) for out in lists]
        there = np.arange(count) < np.array(widths)[:, None]
        # Lists of guards that differ in numbers only are made equally long, so that they are compiled once.
        padded = [[*out, *out[-1:] * (count - len(out))] if single_only and numbers_of(out) else out for out in lists]
        ways = [(mode.dimension, out) for (mode, _), out in zip(self._flowing, padded, strict=True)]
        single = [(n, each) for n, out in ways for each, *_ in out]
        alike = single_only and len(single) == len(ways) * count > 1 and len(set(map(kind_of, single))) == 1

        def filled(known, fill):
            missing = count - sum(each.size for each in known)
            return jnp.concatenate([*known, jnp.full(missing, fill)] if missing else known)

        def guards(way, t, z, params, only=None):
            n, out = way
            return filled(guards_of(out, t, z[:n], params, only), jnp.ones((), z.dtype))

        def flags(way, t, z, params):
            n, out = way
            return filled(armed_of(out, t, z[:n], params), True)

        def guard(way, t, z, params):
            n, guard = way
            return jnp.asarray(guard(t, z[:n], params), z.dtype)

        def values(t, z, args, only=None):
            mode, params = args
            if alike and only is not None:
                known = jnp.full(count, switched(mode * count + only, single, guard, t, z, params))
            else:
                known = switched(mode, ways, once(guards), t, z, params, only)
            return jnp.where(jnp.asarray(there)[mode], known, 1) if padded != lists else known

        armed = lambda t, z, args: switched(args[0], ways, once(flags), t, z, args[1])
        flowing = [name if flows else None for name, (_, flows) in zip(self.names, self._flowing, strict=True)]
        of_modes = lambda flags_of: flags_by_mode([None if name is None else flags_of(name) for name in flowing], count)
        at_once, clocks = of_modes(self.system.at_once), of_modes(self.system.clocks)
        return Surfaces(count, values, armed, at_once=at_once, clocks=clocks)

    def surfaces_within(self, t: Time, z: Padded, params: Params, owed: Guards | None = None) -> Surfaces:
        """The guards of the mode `args[0]` for a flow from `(t, z)`, followed by the components of its domain. **Arguments:**
        `owed`: see `integrate`."""
        flowing = [mode if flows else None for mode, flows in self._flowing]
        counts = [0 if mode is None else limits_of(mode, t, z[: mode.dimension], params) for mode in flowing]
        limits = max(counts)
        surfaces = self._surfaces((t, params, owed))
        # Of each mode with limits, the guards that its domain repeats.
        repeated = [
            repeated_guards(mode, self.system.transitions_out(name)) if mode is not None and each else np.zeros(0, bool)
            for mode, each, name in zip(flowing, counts, self.names, strict=True)
        ]
        if limits > MOST_PARTS and all(rows.any() == bool(each) for rows, each in zip(repeated, counts, strict=True)):
            table = np.array([np.pad(rows, (0, surfaces.count - rows.size)) for rows in repeated])
            return surfaces.within_guards(lambda args: jnp.asarray(table)[args[0]])

        def inside(way, t, z, params):
            if way is None:
                return jnp.ones(limits, z.dtype)
            n, domain = way
            known = jnp.ravel(jnp.asarray(domain(t, z[:n], params), z.dtype))[:limits]
            return jnp.pad(known, (0, limits - known.size), constant_values=1)

        limited = zip(flowing, counts, strict=True)
        ways = [(mode.dimension, mode.domain) if mode is not None and count else None for mode, count in limited]
        guarded = [0 if mode is None else guarded_limits(mode) for mode in flowing]
        return surfaces.within(
            limits,
            lambda t, z, args: switched(args[0], ways, inside, t, z, args[1]),
            lambda args: jnp.array(guarded)[args[0]],
        )

    def refusal(self, t: Time, z: Padded, mode: Index, params: Params, tolerances: tuple) -> RESULTS:
        """The code of a run that begins at the state in the mode, by a method `refusal` of the domain, beside its limits."""
        ways = [(n, d) if hasattr(d, "refusal") else None for n, d in ((m.dimension, m.domain) for m in self.modes)]

        def refused(way, t, z, params):
            if way is None:
                return jnp.asarray(RESULTS.successful._value)
            n, domain = way
            return jnp.asarray(domain.refusal(t, z[:n], params, tolerances)._value)

        return numbered_code(switched(mode, ways, refused, t, z, params))

    def leaving(self, mode: Index) -> Int[Array, " guards"]:
        """The ways (`HybridSystem.ways`) to which the guards of a mode belong, -1 in unused places."""
        count = max(1, *map(len, self._ways_out))
        return jnp.array([(*each, *[-1] * (count - len(each))) for each in self._ways_out])[mode]

    def way(self, mode: Index, event: Index) -> Index:
        """The way whose guard is number `event` of the mode; -1 for `event=-1`."""
        return jnp.where(event < 0, -1, self.leaving(mode)[jnp.maximum(event, 0)])

    def target(self, way: Index) -> Index:
        """Index of the mode that a way enters."""
        into = [self.names.index(each.target) for each in self.system.transitions] or [0]
        return jnp.array(into)[self.system.place(way)[0]]

    def jump(
        self, t: Time, z: Padded, way: Index, params: Params, fallen: Bool[Array, " ways"] | None = None
    ) -> Padded:
        """The state after the reset of a way. **Arguments:** `fallen`: the ways whose guards fell, of a transition that
        `joins` them all."""
        ways = [
            (self.system.modes[each.source].dimension, each.reset, each._members, fallen is not None and joins(each))
            for each in self.system.transitions
        ]

        def after(way, t, z, params, member, fallen):
            n, leap, members, joined = way
            if joined:
                return self.pad(leap.__self__.change_together(t, z[:n], params, fallen[:members]))
            number = () if members is None else (member,)
            return self.pad(jnp.asarray(leap(t, z[:n], params, *number), z.dtype))

        transition, member = self.system.place(way)
        # From the first way of the transition.
        fallen = None if fallen is None or member is None else jnp.roll(fallen, member - way)
        return switched(transition, ways, after, t, z, params, member, fallen) if ways else z

    def saltation(self, t: Time, z: Padded, way: Index, params: Params) -> Float[Array, "size size"]:
        """The saltation matrix of a way, padded with zeros."""
        jacobian, slip, delay = self.variation(t, z, way, params)
        return jacobian - jnp.outer(slip, delay)

    def variation(self, t: Time, z: Padded, way: Index, params: Params) -> tuple[Array, Padded, Padded]:
        """$D_xR$, the slip and the delay (`variation_of_jump`) of a way, padded with zeros."""
        modes = self.system.modes
        ways = [
            (modes[each.source], modes[each.target].vector_field, each.guard, each.reset, each._members)
            for each in self.system.transitions
        ]

        def padded(way, t, z, params, member):
            source, after, guard, leap, members = way
            guard, leap = of_member(guard, leap, *([] if members is None else [member]))
            found = variation_of_jump(source.vector_field, after, guard, leap, t, z[: source.dimension], params)
            pad = lambda part: jnp.pad(part, [(0, self.size - length) for length in part.shape])
            return jnp.concatenate([pad(found[0]), pad(found[1])[None], pad(found[2])[None]])

        transition, member = self.system.place(way)
        found = switched(transition, ways, padded, t, z, params, member)
        return found[:-2], found[-2], found[-1]

    @property
    def _flowing(self) -> list[tuple[Mode, bool]]:
        return [(mode, self.only is None or name in self.only) for name, mode in self.system.modes.items()]

    @property
    def _ways_out(self) -> list[tuple[int, ...]]:
        return [self.system.ways_out(name) for name in self.names]


def joins(way: Transition) -> bool:
    """Whether the reset of a transition is a method of an object that takes events of several members at one time as one."""
    return way.is_family and hasattr(getattr(way.reset, "__self__", None), "change_together")


def flags_by_mode(rows: Sequence[np.ndarray | None], count: int) -> Callable[[tuple], Mask] | None:
    """The flags of the guards of the mode `args[0]`, false in unused places; `None` if no mode has any."""
    if all(each is None for each in rows):
        return None
    table = np.stack([np.zeros(count, bool) if each is None else np.pad(each, (0, count - each.size)) for each in rows])
    return lambda args: jnp.asarray(table)[args[0]]


def switched(index: Index, ways: Sequence[PyTree], branch: Callable[..., Array], *operands: PyTree) -> Array:
    """`branch(ways[index], *operands)`. Entries of `ways` that consist of the same functions share one branch; where they differ
    in numbers (`PerMode`), that branch receives the numbers of the entry as arrays. Functions made by `HybridSystem.hoisted` are
    the same where they are made from one function with the same numbers."""
    kinds = []
    for way in ways:
        given = as_given(way)
        hides = jax.tree.structure(given) != jax.tree.structure(way)
        kinds.append((kind_of(given), numbers_of(given) if hides else ()))
    distinct = list(dict.fromkeys(kinds))
    branches = []
    for kind in distinct:
        members = [i for i, each in enumerate(kinds) if each == kind]
        way = ways[members[0]]
        columns = list(zip(*(numbers_of(ways[i]) for i in members), strict=True))
        branches.append(ft.partial(branch, with_numbers(way, _selected(index, len(ways), members, columns))))
    if len(branches) == 1:
        return branches[0](*operands)
    # Parameters may hold functions, such as those of a network.
    arrays, rest = eqx.partition(operands, eqx.is_array)
    apply = [lambda arrays, one=one: one(*eqx.combine(arrays, rest)) for one in branches]
    return jax.lax.switch(jnp.array([distinct.index(kind) for kind in kinds])[index], apply, arrays)


def _selected(index: Index, count: int, members: list[int], columns: list[tuple]) -> tuple[PerMode | Array, ...]:
    """The numbers of entry `index`, one of the `members` among `count` entries. **Arguments:** `columns`: for each number, its
    values in all members. Equal columns are one array, so that equal calls are found (`once`)."""
    row = np.zeros(count, int)
    row[members] = np.arange(len(members))
    known, chosen = {}, []
    for column in columns:
        table = np.array(column)
        key = table.dtype.str, column
        if key not in known:
            same = len(set(column)) == 1
            known[key] = PerMode(column[0]) if same else jnp.asarray(table)[jnp.asarray(row)[index]]
        chosen.append(known[key])
    return tuple(chosen)


# A function `(mode, t, z, *more)` of a padded state, of which the index of the mode selects that of a mode at run time.
ByMode = Callable[..., Array]


def value_by_mode(
    ways: tuple[tuple[int, Callable[..., Array]], ...], mode: Index, t: Time, z: Padded, *more: PyTree
) -> Array:
    """The value in the mode of that index. **Arguments:** `ways`: the dimension of each mode, and its function of
    `(t, x, *more)`."""
    read = lambda way, t, z, *more: jnp.asarray(way[1](t, z[: way[0]], *more), z.dtype)
    return switched(mode, ways, read, t, z, *more)


def functions_by_mode(
    system: HybridSystem, given: Any, more: tuple, shape: tuple[int, ...], t: Time, dtype, label: str, needs: str
) -> ByMode:
    """The functions of all modes, checked. **Arguments:** `given`: a function, or one for each mode by name. `more`: their
    arguments after time and state. `shape`: of their values. `label`, `needs`: begin and end of messages."""
    ways = system.by_mode(given, label.partition(": ")[2])
    if missing := [name for name, fn in ways.items() if fn is None]:
        raise ValueError(f"{label} has no function for the modes {missing}. Give one for each of {list(system.names)}.")
    for name, fn in ways.items():
        if not callable(fn):
            raise ValueError(f"{label} of mode {name!r} must be a function, not {fn!r}.")
        x = jax.ShapeDtypeStruct((system.mode(name).dimension,), dtype)
        out = shape_of(fn, t, x, *more, what=f"{label} of mode {name!r}")
        if getattr(out, "shape", None) != shape:
            raise ValueError(f"{label} returns shape {getattr(out, 'shape', out)} in mode {name!r}, {needs}.")
    return eqx.Partial(value_by_mode, tuple((mode.dimension, ways[name]) for name, mode in system.modes.items()))


def follow_automaton(
    automaton: Automaton,
    t: Time,
    z: Padded,
    mode: Index,
    until: Time,
    params: Params,
    integrator: Integrators,
    guarded: bool = True,
    watch: Watch | None = None,
    owed: Guards | None = None,
    entry: Entry | None = None,
) -> Arrival:
    """Flow from `(t, z)` until a guard of the mode falls, the flow leaves the mode's domain, or the time is `until`;
    `guarded=False` ignores guards and domain. `watch`: what to record of every step. `owed`: see `integrate`. `entry`: see
    `loop.run`.

    Each distinct integrator has its own loop, over the modes that it integrates. A lane in another mode takes no step in that
    loop, and so does not prolong the loop for the batch.
    """
    arrival = None
    for own, names in integrator.groups:
        alone = automaton.restricted(names)
        surfaces = alone.surfaces_within(t, z, params, owed) if guarded else no_surfaces()
        mine = alone.includes(mode)
        stop = jnp.where(mine, until, t - 1)
        found = integrate(
            alone.field, surfaces, t, z, stop, (mode, params), own, watch, guarded, owed=owed, entry=entry,
            share=automaton.share(mode, z.dtype),
        )  # fmt: skip
        watch = None if watch is None else (watch[0], found.seen)
        arrival = found if arrival is None else select(mine, found, arrival)
    assert arrival is not None
    return arrival
