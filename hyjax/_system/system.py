"""Hybrid systems: modes with their vector fields, transitions with their guards and resets."""

import dataclasses
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import wadler_lindig as wl
from jaxtyping import Array, Bool, Float, Int, PyTree

from .every import Clock, Number
from .types import Flag, Params, require_function, require_kind, Scalar, signature_of, State, Time

VectorField = Callable[[Time, State, Params], State]
Guard = Callable[[Time, State, Params], Scalar | Float[Array, " members"]]
Reset = Callable[..., State]
Armed = Callable[[Time, State, Params], Flag | Bool[Array, " members"]]
# A domain of the library's own may also have methods: `refusal(t, x, params, tolerances)`, the code of a run that begins there;
# `label(held, x)`, a name that depends on the state; `read_sequence(system, sequence)`, for sequences of such names: a system
# whose modes they are, and the sequence of its modes; and `placed(t, x, params)`, the state with what is held at its place.
Domain = Callable[[Time, State, Params], Scalar | Float[Array, " limits"]]


def texts_of(given: Any) -> tuple[str, ...]:
    """Names or units in their order, of which one may be a text by itself. `ValueError` for what has no order, or no entries."""
    if isinstance(given, str):
        return (given,)
    if isinstance(given, Mapping | set | frozenset) or not isinstance(given, Iterable):
        raise ValueError(
            f"Mode: coordinates, units and held are tuples of texts, such as ('theta', 'theta_rate'); got {given!r}."
        )
    return tuple(given)


class Mode(eqx.Module):
    r"""A mode of continuous flow, $\dot x = f(t, x, p)$ in the domain $d(t, x, p) \ge 0$.

    **Arguments:** `vector_field`: `f(t, x, params)`, from shape `(n,)` to `(n,)`; time and state in any consistent units.
    `coordinates`: the names of the `n` entries of the state, in their order. `domain`: optional `d(t, x, params)`, shape `()` or
    `(k,)`, in any units: not negative where the mode's equations hold, such as the height of a ball; of several numbers each.
    `units`: optional, those of all coordinates in their order, such as `("rad", "rad/s")`, and `"1"` for a number without
    dimension: tables, pictures and datasets name them. `held`: optional, the names of further coordinates, see below.
    `ValueError` for a vector field or domain that is not a function, for names that are missing or repeated, also between
    `coordinates` and `held`, and for units of another number.

    Coordinates that are `held` follow the others in the state and are constant while the mode lasts, $\dot u = 0$: the output of
    a sampled controller, or which switch is on. Resets change them. The vector field returns no rates for them; all functions see
    the whole state, and so do maps and their multipliers. The integrator's error control leaves them out. The attribute
    `coordinates` names them too. A flag of values 0 and 1 is compared with 1/2, because a guess or a step of Newton's method may
    change it by rounding.

    A vector field may choose, as by `jnp.where`, between pieces that meet without a jump. Across such a kink, as of
    `jnp.maximum`, each derivative of the flow has a third of the digits less: multipliers six or so, second derivatives two, and
    a normal form none, which warns. Where the value jumps, derivatives lack the jump, and a warning at first use names the line,
    as for a reset or guard that jumps. Make each piece a mode.

    `simulate` and `flow_to_guard` end with `outside_domain` where the state starts outside the domain by more than rounding and
    the solver's tolerance, or the flow leaves the domain. A guard that falls at the limit of the domain fires: so the guard of
    an impact may serve as the domain too. `stride` and what is built on it (orbits, branches, sweeps) do not look at domains,
    because Newton's method passes through states outside; `simulate` from the orbit found does.

    **Example:**

    >>> flight = hj.Mode(lambda t, x, p: jnp.stack([x[1], -p]), coordinates=("y", "y_rate"))
    >>> flight.dimension
    2

    Source: Kong, Payne, Zhu, Johnson (2024), Definition 1.
    """

    vector_field: VectorField
    coordinates: tuple[str, ...] = eqx.field(static=True, converter=texts_of)
    domain: Domain | None = None
    units: tuple[str, ...] = eqx.field(static=True, converter=texts_of, default=())
    held: tuple[str, ...] = eqx.field(static=True, converter=texts_of, default=())
    # Whether the vector field has rates of all coordinates: once they are appended.
    _whole: bool = eqx.field(static=True, default=False)

    def __post_init__(self):
        held = texts_of(self.held)  # equinox converts fields after this method
        if held and not self._whole and callable(self.vector_field):
            self.vector_field = eqx.Partial(with_rest, self.vector_field, len(held))
            self.coordinates, self._whole = (*texts_of(self.coordinates), *held), True

    def __check_init__(self):
        if self.domain is not None:
            require_function(self.domain, "t, x, params", "Mode: domain")
        require_function(self.vector_field, "t, x, params", "Mode: vector_field")
        names = self.coordinates
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueError(
                f"Mode: coordinates must name every state, for example ('theta', 'theta_rate'); got {names!r}."
            )
        if len(set(names)) != len(names):
            raise ValueError(
                f"Mode: coordinates, those that are held among them, must differ from each other; got {names!r}."
            )
        if self.units and (len(self.units) != len(names) or not all(isinstance(unit, str) for unit in self.units)):
            raise ValueError(
                f"Mode: units must be a text for each of the coordinates {names!r}, for example ('rad', 'rad/s'), and '1' for a "
                f"number without dimension; got {self.units!r}."
            )

    @property
    def dimension(self) -> int:
        """The number `n` of coordinates of the state, of those that are held too."""
        return len(self.coordinates)

    def label(self, name: str, x: np.ndarray | State) -> str:
        """The name in tables and pictures of a mode at a state: of contacts by name their set, such as `"heel:stick"`."""
        of_state = getattr(self.domain, "label", None)
        return name if of_state is None else of_state(self.held, x)

    @property
    def shown(self) -> tuple[str, ...]:
        """The coordinates in tables and pictures, without those that the label of the mode tells."""
        return self.coordinates[: -len(self.held)] if hasattr(self.domain, "label") else self.coordinates

    @property
    def share(self) -> float | None:
        """The ratio of all coordinates to those that are integrated; `None` where none is held."""
        return self.dimension / max(self.dimension - len(self.held), 1) if self.held else None


def with_rest(vector_field: VectorField, held: int, t: Time, x: State, params: Params) -> State:
    """A vector field of a mode, followed by the rates of its `held` coordinates, zeros."""
    rate = jnp.asarray(vector_field(t, x, params))
    return jnp.concatenate([rate, jnp.zeros(held, rate.dtype)])


class Transition(eqx.Module):
    r"""A jump from mode `source` to mode `target`: when $g(t, x, p)$ falls through $0$, $x^+ = R(t, x^-, p)$.

    The guard $g$ fires only when it falls from positive to zero or below, never when it rises and, unless `at_once`, never
    because an arc starts on its surface or beyond. A guard that is NaN is not positive: where it always is, it never fires.

    **Arguments:** `guard`: `g(t, x, params)`, shape `()`, in any unit. `reset`: `R(t, x, params)`, from the state of `source`,
    shape `(n,)`, to that of `target`, shape `(m,)`. `armed`: optional `(t, x, params) -> bool`; a crossing at which `armed` is
    false is ignored. `at_once`: whether the transition is also taken where `source` begins, at the start of a run or after a
    jump, with the guard not positive (and armed): the arc has no length, and the next mode begins at the same time. Of several
    the first in the order of `transitions` is taken. A guard that is on its surface up to rounding and rises is left alone.
    `ValueError` for a guard, reset or `armed` that is not a function, and an `at_once` that is not a bool.

    A **family** of transitions has a guard of shape `(k,)`, and a reset with a fourth argument, `R(t, x, params, i)`, the number
    of the guard that has fallen, an integer that may be traced. It is $k$ transitions in one, such as the spikes of $k$ neurons
    or the collisions of all pairs of disks, and compiles as one. `armed` may then have shape `(k,)`. `ValueError` at the first
    use for a guard of shape `(k,)` whose reset takes no number, and for the reverse.

    Where the guard is beyond its surface the time of the jump does not depend on the surface, and the derivative of the jump is
    that of the reset alone, $D_xR$. Where it is on its surface up to rounding and falls, the flow meets the surface there: the
    derivative is that of any event, which is the one-sided derivative from the states that meet the surface later.

    **Example:**

    >>> bounce = hj.Transition(
    ...     "flight", "flight", guard=lambda t, x, p: x[0], reset=lambda t, x, p: jnp.stack([x[0], -0.8 * x[1]])
    ... )
    >>> bounce.reset(0.0, jnp.array([0.0, -5.0]), None).tolist()
    [0.0, 4.0]

    Source: Kong, Payne, Zhu, Johnson (2024), Definition 1.
    """

    source: str = eqx.field(static=True)
    target: str = eqx.field(static=True)
    guard: Guard
    reset: Reset
    armed: Armed | None = None
    at_once: bool = eqx.field(static=True, default=False)
    # Of a family the number of its members, 0 as long as the shape of the guard is not known; `None` of a single transition.
    _members: int | None = eqx.field(static=True, default=None)
    # Whether the library has made it with the domain of `target`: the state after the jump is none that `refusal` has to see.
    _lands: bool = eqx.field(static=True, default=False)

    def __post_init__(self):
        if self._members is None and _takes_number(self.reset):
            self._members = 0  # pyright: ignore[reportAttributeAccessIssue]

    def __check_init__(self):
        if not isinstance(self.at_once, bool):
            raise ValueError(
                f"Transition {self.source!r} -> {self.target!r}: at_once must be True or False, not {self.at_once!r}. A "
                "condition that depends on time or state belongs in armed=."
            )
        # Of a clock that `every` makes, which has no modes yet.
        label = f"Transition {self.source!r} -> {self.target!r}" if self.source else "every"
        require_function(self.guard, "t, x, params", f"{label}: guard")
        # A reset of four arguments is that of a family.
        if not _takes_number(self.reset):
            require_function(self.reset, "t, x, params", f"{label}: reset")
        if self.armed is not None:
            require_function(self.armed, "t, x, params", f"{label}: armed")

    @property
    def is_family(self) -> bool:
        """Whether the guard is of shape `(k,)`, and the reset takes the number of the one that has fallen."""
        return self._members is not None

    def member(self, number: int | Int[Array, ""] | None) -> "Transition":
        """The single transition of that number in a family; a single transition itself, for `None`."""
        if not self.is_family or number is None:
            return self
        armed = None if self.armed is None else eqx.Partial(_entry, self.armed, number)
        guard, after = of_member(self.guard, self.reset, number)
        return dataclasses.replace(self, guard=guard, reset=after, armed=armed, _members=None)


def _takes_number(reset: Any) -> bool:
    """Whether a reset has four arguments, the last for the number of a member of a family."""
    given = () if (own := signature_of(reset, passes_on=True)) is None else own.parameters.values()
    positional = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return sum(each.kind in positional and each.default is inspect.Parameter.empty for each in given) == 4


def of_member(guard: Guard, reset: Reset, *number: int | Int[Array, ""]) -> tuple[Guard, Reset]:
    """Guard and reset of the member of that number in a family; as they are for none."""
    return (eqx.Partial(_entry, guard, *number), eqx.Partial(_after, reset, *number)) if number else (guard, reset)


def _entry(fn: Callable, number, t: Time, x: State, params: Params) -> Array:
    """The entry of a member in the guard or `armed` of its family."""
    values = jnp.asarray(fn(t, x, params))
    return values[number] if values.ndim else values


def _of_captured(converted: Callable, fn: Callable, *inputs: Any) -> Array:
    """A function `fn` by its form `converted`, of which the arrays that `fn` captures are leaves."""
    return converted(*inputs)


def as_given(tree: PyTree) -> PyTree:
    """A system, or a part of it, with the functions from which `HybridSystem.hoisted` made others; to compare them."""
    made = lambda leaf: isinstance(leaf, eqx.Partial) and leaf.func is _of_captured
    return jax.tree.map(lambda leaf: leaf.args[1] if made(leaf) else leaf, tree, is_leaf=made)


def reset_of_member(reset: Reset) -> tuple[Reset, tuple]:
    """The reset of a family and the number of its member, of that which `of_member` gives; any other as it is."""
    if isinstance(reset, eqx.Partial) and reset.func is _after:
        return reset.args[0], tuple(map(jnp.asarray, reset.args[1:]))
    return reset, ()


def _after(reset: Reset, number, t: Time, x: State, params: Params) -> State:
    return reset(t, x, params, jnp.asarray(number))


def every(
    period: Number, reset: Reset, *, phase: Number = 0.0, source: str = "", target: str = "", armed: Armed | None = None
) -> Transition:
    r"""A clock: the transition that is taken at the times $t_k = t_0(p) + kT(p)$, for a sampled controller or a modulated pulse.

    **Arguments:** `period`: $T$, `phase`: $t_0$, numbers or functions of the parameters, in units of time. `reset`:
    $R(t, x, p)$, as of a `Transition`. `source`, `target`: mode names; by default every mode, which the clock does not change.
    `armed`: see `Transition`. **Returns:** a `Transition`, for `HybridSystem(transitions=...)`. `ValueError` for a period that
    is not positive, for numbers that are not finite, and for a `target` without `source`.

    A flow that starts at a tick has passed it. A clock ticks once at a time, also where the mode changes then; clocks of two
    modes with equal period and phase, of which the modes have equally many, count as one clock, paired in their order. Clocks
    that tick at one time are taken at that time in the order of `transitions`, and so are the derivatives. Where a guard of the
    state falls at the time of a tick, their order has to be without effect, as for any two guards. The times $t_k$ depend on no
    state: the multipliers of a map from between two ticks to the next such time, by a `Stroboscope`, are those of the
    discrete-time system. The example is a sampled velocity feedback.

    **Example:**

    >>> cart = hj.Mode(lambda t, x, p: x[1:], ("v",), held=("u",))
    >>> sample = hj.every(0.4, lambda t, x, p: jnp.stack([x[0], -p * x[0]]))
    >>> system = hj.HybridSystem({"drive": cart}, (sample,))
    >>> step = hj.ReturnMap(system, section=hj.Stroboscope("drive", 0.4, phase=0.2))
    >>> print(jnp.linalg.eigvals(step.jacobian(jnp.array([1.0, 0.0]), jnp.array(1.0))).real.round(12))
    [0.6 0. ]

    Source: Åström, Wittenmark (1997), *Computer-Controlled Systems*, Sec. 2.3.
    """
    if target and not source:
        raise ValueError(f"every: target={target!r} needs a source=, the mode in which the clock acts.")
    return Transition(source, target or source, Clock(period, phase), reset, armed)


def unchanged(t: Time, x: State, params: Params) -> State:
    """The reset that changes nothing."""
    return x


def of_arc(name: str, modes: tuple[str, ...]) -> tuple[str, int | None]:
    """The mode of an arc and the number of the member of a family that ends it: of `"network[3]"` `("network", 3)`."""
    found = None if name in modes else re.fullmatch(r"(.*)\[(\d+)\]", str(name))
    return (name, None) if found is None else (found[1], int(found[2]))


def _in_modes(transitions: Iterable[Transition], names: tuple[str, ...]) -> tuple[Transition, ...]:
    """The transitions, of which a clock without a source is one in every mode, with one number."""
    transitions = tuple(transitions)
    clocks = [each.guard for each in transitions if isinstance(each, Transition) and isinstance(each.guard, Clock)]
    numbers, ways = itertools.count(1 + max((each.number or 0 for each in clocks), default=0)), []
    for way in transitions:
        if isinstance(way, Transition) and isinstance(way.guard, Clock) and not way.source:
            clock = dataclasses.replace(way.guard, number=next(numbers))
            ways += [dataclasses.replace(way, source=name, target=name, guard=clock) for name in names]
        else:
            ways.append(way)
    return tuple(ways)


class HybridSystem(eqx.Module):
    r"""A hybrid dynamical system: flow $\dot x = f_i(t, x, p)$ in each mode $i$, jumps $x^+ = R_{ij}(t, x^-, p)$ between modes.

    **Arguments:** `modes`: a dictionary from name to `Mode`; the dimensions of the modes may differ. `transitions`: a tuple of
    `Transition`. `time_unit`: optional, such as `"s"`: tables, pictures and datasets name it, and the `units` of the modes.
    `ValueError` for a transition from or to a mode that is not in `modes`, and for a coordinate that has different units in two
    modes. `names` are those of the modes.

    Build a system once, at module level: each new system is compiled again.

    **Example:**

    >>> flight = hj.Mode(lambda t, x, p: jnp.stack([x[1], -p]), coordinates=("y", "y_rate"))
    >>> floor, bounce = lambda t, x, p: x[0], lambda t, x, p: jnp.stack([x[0], -0.8 * x[1]])
    >>> ball = hj.HybridSystem({"flight": flight}, (hj.Transition("flight", "flight", floor, bounce),))
    >>> ball.names, ball.leaving("flight")
    (('flight',), (0,))

    Source: Kong, Payne, Zhu, Johnson (2024), Definition 1.
    """

    names: tuple[str, ...] = eqx.field(static=True)  # Not a dict, whose keys `jit` would sort.
    _modes: tuple[Mode, ...]
    transitions: tuple[Transition, ...]
    time_unit: str = eqx.field(static=True)
    _ordered: bool = eqx.field(static=True)  # Whether the order of events that fall together is examined.

    def __init__(
        self, modes: Mapping[str, Mode], transitions: tuple[Transition, ...] | list[Transition], time_unit: str = "",
        *, _ordered: bool = True,
    ):  # fmt: skip
        require_kind(modes, Mapping, "HybridSystem", "modes", "a dictionary, such as {'swing': hj.Mode(...)}")
        require_kind(time_unit, str, "HybridSystem", "time_unit", "a text, such as 's'")
        if isinstance(transitions, Mapping | str) or not isinstance(transitions, Iterable):
            raise ValueError(
                f"HybridSystem: transitions must be a tuple of hj.Transition, not {type(transitions).__name__}."
            )
        self.names = tuple(modes)
        self._modes = tuple(modes.values())
        self.transitions = _in_modes(transitions, self.names)
        self.time_unit, self._ordered = time_unit, _ordered

    @property
    def modes(self) -> dict[str, Mode]:
        """The modes by name, in the order given."""
        return dict(zip(self.names, self._modes, strict=True))

    def __check_init__(self):
        if not self.modes:
            raise ValueError("HybridSystem: give at least one mode, for example modes={'swing': hj.Mode(...)}.")
        for name, mode in self.modes.items():
            if not isinstance(mode, Mode):
                raise ValueError(f"HybridSystem: modes[{name!r}] must be a hj.Mode, not {mode!r}.")
        units: dict[str, str] = {}
        for mode in self._modes:
            for name, unit in zip(mode.coordinates, mode.units, strict=False):
                if units.setdefault(name, unit) != unit:
                    raise ValueError(
                        f"HybridSystem: the coordinate {name!r} has the units {units[name]!r} and {unit!r} in two modes. Give it "
                        "one unit, or two names."
                    )
        for transition in self.transitions:
            if not isinstance(transition, Transition):
                raise ValueError(f"HybridSystem: transitions must be hj.Transition, not {transition!r}.")
            for role in ("source", "target"):
                self.mode(getattr(transition, role), f"{role} of a transition")

    def __pdoc__(self, **_) -> wl.AbstractDoc:
        """The tables of the modes and transitions, for `print`, also of what has the system."""
        from .diagram import system_lines

        return wl.TextDoc("\n".join(system_lines(self)))

    def _repr_markdown_(self) -> str:
        """A Mermaid diagram with tables of the modes and transitions, for notebooks."""
        from .diagram import system_markdown

        return system_markdown(self)

    def mode(self, name: str, role: str = "mode") -> Mode:
        """The mode of that name. `ValueError` for an unknown name; its message calls the mode by `role`."""
        return self._modes[self.number(name, role)]

    def number(self, name: str, role: str = "mode") -> int:
        """The number in `names` of a mode, or of that of an arc such as `"network[3]"`. `ValueError` as for `mode`."""
        own, _ = of_arc(name, self.names)
        if own not in self.names:
            raise ValueError(f"HybridSystem: {role} {name!r} is not one of the modes {self.names}.")
        return self.names.index(own)

    @property
    def families(self) -> bool:
        """Whether a transition is a family."""
        return any(way.is_family for way in self.transitions)

    @property
    def sizes(self) -> tuple[int, ...]:
        """For each transition the number of its guards, 1 unless it is a family. `ValueError` where it is not known yet."""
        if unknown := [k for k, way in enumerate(self.transitions) if way._members == 0]:
            raise ValueError(
                f"HybridSystem: the transitions {unknown} are families, of which the number of guards is known where state and "
                "parameters are. Give the system to a function of both."
            )
        return tuple(1 if way._members is None else way._members for way in self.transitions)

    def with_sizes(self, size_of: Callable[[int], int]) -> "HybridSystem":
        """The same system, in which each family of transitions knows the number of its guards, by its index; itself where all
        do."""
        if all(way._members != 0 for way in self.transitions):
            return self
        known = (
            dataclasses.replace(way, _members=size_of(k)) if way._members == 0 else way
            for k, way in enumerate(self.transitions)
        )
        return HybridSystem(self.modes, tuple(known), self.time_unit, _ordered=self._ordered)

    def unsized(self) -> "HybridSystem":
        """The system as it was given, in which no family knows the number of its guards."""
        given = lambda way: dataclasses.replace(way, _members=0) if way.is_family else way
        return HybridSystem(self.modes, tuple(map(given, self.transitions)), self.time_unit) if self.families else self

    @property
    def ways(self) -> np.ndarray:
        """The ways from mode to mode, one for each guard, shape `(ways, 2)`: the transition, and its number in a family or -1."""
        rows = [
            (k, i) for k, n in enumerate(self.sizes) for i in (range(n) if self.transitions[k].is_family else (-1,))
        ]
        return np.array(rows, int).reshape(-1, 2)

    def way(self, number: int) -> Transition:
        """The single transition of a way, by its number in `ways`."""
        transition, member = self.ways[number].tolist()
        return self.transitions[transition].member(member)

    def place(self, way: Int[Array, "..."]) -> tuple[Int[Array, "..."], Int[Array, "..."] | None]:
        """The transition of a way and the number in its family, or -1; `None` where no transition is a family. -1 for way -1."""
        if not self.families:
            return way, None
        found = jnp.where(way[..., None] < 0, -1, jnp.asarray(self.ways)[jnp.maximum(way, 0)])
        return found[..., 0], found[..., 1]

    def numbers(self, way: Int[Array, "..."]) -> tuple[Int[Array, "..."], Int[Array, "..."]]:
        """The transition of a way and the number in its family, or -1; -1 for way -1."""
        transition, member = self.place(way)
        return transition, jnp.full_like(way, -1) if member is None else member

    def way_number(self, transition: Int[Array, "..."], member: Int[Array, "..."]) -> Int[Array, "..."]:
        """The number in `ways` of a transition and the number of a member of its family; -1 for the transition -1."""
        if not self.families:
            return transition
        first = jnp.asarray(np.cumsum([0, *self.sizes]))[jnp.maximum(transition, 0)]
        return jnp.where(transition < 0, -1, first + jnp.maximum(member, 0))

    def by_mode(self, given: Any, label: str) -> dict[str, Any]:
        """What is given for each mode: by their names, `None` for one that is not named; or the same for all. `ValueError` for an
        unknown name; its message says that `label` is given."""
        if not isinstance(given, Mapping):
            return dict.fromkeys(self.names, given)
        for name in given:
            self.mode(name, f"mode of {label}")
        return {name: given.get(name) for name in self.names}

    def by_transition(self, given: Any, label: str) -> list[Any]:
        """What is given for each transition: by their indices or by `(source, target)`, `None` for one that is not named; or the
        same for all. `ValueError` for an unknown one; its message begins with `label`."""
        ways = [(way.source, way.target) for way in self.transitions]
        if not isinstance(given, Mapping):
            return [given] * len(ways)
        for key in given:
            if key not in ways and not (isinstance(key, int) and 0 <= key < len(ways)):
                raise ValueError(
                    f"{label} is given for {key!r}, which is no transition. Give the index or the modes of one of {ways}."
                )
        return [given.get(k, given.get(way)) for k, way in enumerate(ways)]

    def leaving(self, name: str) -> tuple[int, ...]:
        """Indices of the transitions out of the mode of that name."""
        own = self.names[self.number(name)]
        return tuple(i for i, transition in enumerate(self.transitions) if transition.source == own)

    def transitions_out(self, name: str) -> tuple[Transition, ...]:
        """The transitions out of the mode of that name."""
        return tuple(self.transitions[i] for i in self.leaving(name))

    def ways_out(self, name: str) -> tuple[int, ...]:
        """The numbers in `ways` of the ways out of a mode, in the order of its guards."""
        first = np.cumsum([0, *self.sizes])
        return tuple(number for i in self.leaving(name) for number in range(first[i], first[i + 1]))

    def at_once(self, name: str) -> np.ndarray | None:
        """Which of the ways `ways_out(name)` are taken at once where the mode begins; `None` if none is."""
        return self._flags_out(name, lambda way: way.at_once)

    def clocks(self, name: str) -> np.ndarray | None:
        """Which of the ways `ways_out(name)` are clocks (`every`); `None` if none is."""
        return self._flags_out(name, lambda way: isinstance(way.guard, Clock))

    def _flags_out(self, name: str, flag: Callable[[Transition], bool]) -> np.ndarray | None:
        leaving = self.leaving(name)
        flags = [flag(self.transitions[i]) for i in leaving]
        return np.repeat(flags, [self.sizes[i] for i in leaving]) if any(flags) else None

    def refuse_at_once(self, caller: str) -> None:
        """`ValueError` if a transition is taken at once, for an analysis that knows events by their guards alone."""
        if found := [i for i, way in enumerate(self.transitions) if way.at_once]:
            raise ValueError(
                f"{caller}: the transitions {found} have at_once=True. A jump that is taken beyond its guard's surface has "
                f"another derivative than an event, which {caller} does not know. Start in the mode that follows; or, where such "
                "a jump always follows another, write both resets as one of the transition before, and give these transitions "
                "at_once=False."
            )

    def between(self, source: str, target: str) -> int:
        """Index of the transition from `source` to `target`. `ValueError` unless there is exactly one."""
        return self._between(source, target)[0]

    def _between(self, source: str, target: str) -> tuple[int, int | None]:
        """Index of the transition from `source` to `target`, and the number that `source` names in its family, such as 3 of
        `"network[3]"`. `ValueError` unless there is exactly one."""
        into, (own, member) = self.names[self.number(target)], of_arc(source, self.names)
        found = [i for i in self.leaving(source) if self.transitions[i].target == into]
        if not found:
            there = tuple((transition.source, transition.target) for transition in self.transitions)
            raise ValueError(
                f"sequence: there is no transition from {source!r} to {target!r}. The transitions are {there}; add "
                "one, or correct the sequence."
            )
        if len(found) > 1:
            raise ValueError(
                f"sequence: {len(found)} transitions lead from {source!r} to {target!r} (numbers {found}), so the "
                "sequence is ambiguous. Give them different target modes (two names may share one Mode)."
            )
        way, label = self.transitions[found[0]], f"the transition {own!r} -> {into!r}"
        if way.is_family and member is None:
            raise ValueError(
                f"sequence: {label} is a family. Name the guard that ends the arc, as in '{source}[0]'; or give a section, whose "
                "map goes through whatever guards fall."
            )
        if member is not None and (not way.is_family or (way._members and member >= way._members)):
            size = f"a family of {way._members} guards" if way.is_family else "no family"
            raise ValueError(f"sequence: {source!r} names guard {member}, but {label} is {size}.")
        return found[0], member

    def passes(self, sequence: tuple[str, ...]) -> list[tuple[int, int | None]]:
        """The transitions along a closed sequence of modes, as `_between` gives them. `ValueError` for one that is missing or
        ambiguous."""
        if not isinstance(sequence, tuple | list) or not sequence:
            raise ValueError(f"sequence: give a tuple of mode names, such as ('swing',); got {sequence!r}.")
        following = (*sequence[1:], sequence[0])
        return [self._between(mode, after) for mode, after in zip(sequence, following, strict=True)]

    def route(self, sequence: tuple[str, ...]) -> tuple[int, ...]:
        """The numbers in `ways` of the ways along a closed sequence of modes. `ValueError` for a missing or ambiguous one."""
        first = np.cumsum([0, *self.sizes]).tolist()
        return tuple(first[transition] + (member or 0) for transition, member in self.passes(sequence))

    def without_domains(self) -> "HybridSystem":
        """The same system, whose modes have no domains."""
        modes = {name: dataclasses.replace(mode, domain=None) for name, mode in self.modes.items()}
        return HybridSystem(modes, self.transitions, self.time_unit, _ordered=self._ordered)

    def hoisted(self, params: Params, dtype) -> "HybridSystem":
        """The same system without domains, in which arrays captured by its functions are leaves of it, like parameters."""

        def hoist(fn: Any, mode: str, *number: int) -> Any:
            if fn is None or isinstance(fn, Clock):
                return fn
            example = jax.ShapeDtypeStruct((), dtype), jax.ShapeDtypeStruct((self.mode(mode).dimension,), dtype)
            more = (jax.ShapeDtypeStruct((), jnp.asarray(each).dtype) for each in number)
            converted = eqx.filter_closure_convert(fn, *example, params, *more)
            # The same function in two modes is known by what it was.
            captures = jax.tree.leaves(eqx.filter(converted, eqx.is_array))
            return eqx.Partial(_of_captured, converted, fn) if captures else fn

        modes = {
            name: dataclasses.replace(mode, vector_field=hoist(mode.vector_field, name), domain=None)
            for name, mode in self.modes.items()
        }
        transitions = tuple(
            dataclasses.replace(
                w,
                guard=hoist(w.guard, w.source),
                reset=hoist(w.reset, w.source, *[0] * w.is_family),
                armed=hoist(w.armed, w.source),
            )
            for w in self.transitions
        )
        return HybridSystem(modes, transitions, self.time_unit, _ordered=self._ordered)
