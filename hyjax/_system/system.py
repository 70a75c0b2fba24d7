"""Hybrid systems: modes with their vector fields, transitions with their guards and resets."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from .types import Flag, Params, Scalar, State, Time

VectorField = Callable[[Time, State, Params], State]
Guard = Callable[[Time, State, Params], Scalar]
Reset = Callable[[Time, State, Params], State]
Armed = Callable[[Time, State, Params], Flag]
Domain = Callable[[Time, State, Params], Scalar | Float[Array, " limits"]]


class Mode(eqx.Module):
    r"""A mode of continuous flow, $\dot x = f(t, x, p)$ in the domain $d(t, x, p) \ge 0$.

    **Arguments:** `vector_field`: `f(t, x, params)`, from shape `(n,)` to `(n,)`; time and state in any consistent units.
    `coordinates`: the names of the `n` entries of the state, in their order. `domain`: optional `d(t, x, params)`, shape `()` or
    `(k,)`, in any units: not negative where the mode's equations hold, such as the height of a ball; of several numbers each.
    `units`: optional, those of the coordinates in their order, such as `("rad", "rad/s")`, and `"1"` for a number without
    dimension: tables, pictures and datasets name them. `ValueError` for a vector field or domain that is not a function, for
    names that are missing or repeated, and for units of another number.

    A vector field may choose, as by `jnp.where`, between pieces that meet without a jump. Where its value jumps, derivatives of
    the flow lack the jump: make each piece a mode. A warning at first use names the line, as for a reset or guard that jumps.

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
    coordinates: tuple[str, ...] = eqx.field(static=True, converter=tuple)
    domain: Domain | None = None
    units: tuple[str, ...] = eqx.field(static=True, converter=tuple, default=())

    def __check_init__(self):
        if self.domain is not None and not callable(self.domain):
            raise ValueError(f"Mode: domain must be a function d(t, x, params) or None, not {self.domain!r}.")
        if not callable(self.vector_field):
            raise ValueError(f"Mode: vector_field must be a function f(t, x, params), not {self.vector_field!r}.")
        names = self.coordinates
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueError(
                f"Mode: coordinates must name every state, for example ('theta', 'theta_rate'); got {names!r}."
            )
        if len(set(names)) != len(names):
            raise ValueError(f"Mode: coordinates must differ from each other; got {names!r}.")
        if self.units and (len(self.units) != len(names) or not all(isinstance(unit, str) for unit in self.units)):
            raise ValueError(
                f"Mode: units must be a text for each of the coordinates {names!r}, for example ('rad', 'rad/s'), and '1' for a "
                f"number without dimension; got {self.units!r}."
            )

    @property
    def dimension(self) -> int:
        """The number `n` of coordinates of the state."""
        return len(self.coordinates)


class Transition(eqx.Module):
    r"""A jump from mode `source` to mode `target`: when $g(t, x, p)$ falls through $0$, $x^+ = R(t, x^-, p)$.

    The guard $g$ fires only when it falls from positive to zero or below, never when it rises and, unless `at_once`, never
    because an arc starts on its surface or beyond.

    **Arguments:** `guard`: `g(t, x, params)`, shape `()`, in any unit. `reset`: `R(t, x, params)`, from the state of `source`,
    shape `(n,)`, to that of `target`, shape `(m,)`. `armed`: optional `(t, x, params) -> bool`; a crossing at which `armed` is
    false is ignored. `at_once`: whether the transition is also taken where `source` begins, at the start of a run or after a
    jump, with the guard not positive (and armed): the arc has no length, and the next mode begins at the same time. Of several
    the first in the order of `transitions` is taken. A guard that is on its surface up to rounding and rises is left alone.
    `ValueError` for a guard, reset or `armed` that is not a function, and an `at_once` that is not a bool.

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

    def __check_init__(self):
        if not isinstance(self.at_once, bool):
            raise ValueError(
                f"Transition {self.source!r} -> {self.target!r}: at_once must be True or False, not {self.at_once!r}. A "
                "condition that depends on time or state belongs in armed=."
            )
        for name in ("guard", "reset"):
            if not callable(getattr(self, name)):
                raise ValueError(
                    f"Transition {self.source!r} -> {self.target!r}: {name} must be a function of (t, x, params), "
                    f"not {getattr(self, name)!r}."
                )
        if self.armed is not None and not callable(self.armed):
            raise ValueError(
                f"Transition {self.source!r} -> {self.target!r}: armed must be a function (t, x, params) -> bool or "
                f"None, not {self.armed!r}."
            )


def unchanged(t: Time, x: State, params: Params) -> State:
    """The reset that changes nothing."""
    return x


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

    # A tuple, not a dict: `jit` would sort the keys of a dict.
    names: tuple[str, ...] = eqx.field(static=True)
    _modes: tuple[Mode, ...]
    transitions: tuple[Transition, ...]
    time_unit: str = eqx.field(static=True)

    def __init__(
        self, modes: Mapping[str, Mode], transitions: tuple[Transition, ...] | list[Transition], time_unit: str = ""
    ):
        self.names = tuple(modes)
        self._modes = tuple(modes.values())
        self.transitions = tuple(transitions)
        self.time_unit = time_unit

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

    def _repr_markdown_(self) -> str:
        """A Mermaid diagram with tables of the modes and transitions, for notebooks."""
        from .diagram import system_markdown

        return system_markdown(self)

    def mode(self, name: str, role: str = "mode") -> Mode:
        """The mode of that name. `ValueError` for an unknown name; its message calls the mode by `role`."""
        if name not in self.names:
            raise ValueError(f"HybridSystem: {role} {name!r} is not one of the modes {self.names}.")
        return self._modes[self.names.index(name)]

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
        self.mode(name)
        return tuple(i for i, transition in enumerate(self.transitions) if transition.source == name)

    def at_once(self, name: str) -> np.ndarray | None:
        """Which of the transitions `leaving(name)` are taken at once where the mode begins; `None` if none is."""
        flags = np.array([self.transitions[i].at_once for i in self.leaving(name)], bool)
        return flags if flags.any() else None

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
        self.mode(target)
        found = [i for i in self.leaving(source) if self.transitions[i].target == target]
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
        return found[0]

    def route(self, sequence: tuple[str, ...]) -> tuple[int, ...]:
        """Indices of the transitions along a closed sequence of modes. `ValueError` for one that is missing or ambiguous."""
        if isinstance(sequence, str) or not sequence:
            raise ValueError(f"sequence: give a tuple of mode names, such as ('swing',); got {sequence!r}.")
        following = (*sequence[1:], sequence[0])
        return tuple(self.between(mode, after) for mode, after in zip(sequence, following, strict=True))

    def hoisted(self, params: Params, dtype) -> "HybridSystem":
        """The same system, in which arrays captured by its functions are leaves of the PyTree, as parameters are.

        Without domains: orbits do not look at them.
        """

        def hoist(fn: Any, mode: str) -> Any:
            if fn is None:
                return None
            example = jax.ShapeDtypeStruct((), dtype), jax.ShapeDtypeStruct((self.mode(mode).dimension,), dtype)
            converted = eqx.filter_closure_convert(fn, *example, params)
            return converted if jax.tree.leaves(eqx.filter(converted, eqx.is_array)) else fn

        modes = {
            name: Mode(hoist(mode.vector_field, name), mode.coordinates, units=mode.units)
            for name, mode in self.modes.items()
        }
        transitions = tuple(
            Transition(
                w.source, w.target, *(hoist(fn, w.source) for fn in (w.guard, w.reset, w.armed)), at_once=w.at_once
            )
            for w in self.transitions
        )
        return HybridSystem(modes, transitions, self.time_unit)
