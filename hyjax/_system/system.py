"""What a user writes: modes that flow, transitions that jump."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax

from .types import Flag, Params, Scalar, State, Time

VectorField = Callable[[Time, State, Params], State]
Guard = Callable[[Time, State, Params], Scalar]
Reset = Callable[[Time, State, Params], State]
Armed = Callable[[Time, State, Params], Flag]


class Mode(eqx.Module):
    r"""A smooth flow. $\dot x = f(t, x, p)$.

    **Arguments:** `vector_field`: `f(t, x, params)`, shape `(n,)` to `(n,)`. `coordinates`: the `n` names of the state,
    in its order.
    """

    vector_field: VectorField
    coordinates: tuple[str, ...] = eqx.field(static=True, converter=tuple)

    def __check_init__(self):
        if not callable(self.vector_field):
            raise ValueError(f"Mode: vector_field must be a function f(t, x, params), not {self.vector_field!r}.")
        names = self.coordinates
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueError(
                f"Mode: coordinates must name every state, for example ('theta', 'theta_rate'); got {names!r}."
            )
        if len(set(names)) != len(names):
            raise ValueError(f"Mode: coordinates must differ from each other; got {names!r}.")

    @property
    def dimension(self) -> int:
        return len(self.coordinates)


class Transition(eqx.Module):
    r"""Leave mode `source` when `guard` falls from positive to zero; enter `target` at `reset`.

    $g(t, x, p)$ falls through $0$, then $x^+ = R(t, x^-, p)$.

    A guard fires only when it falls, never when it rises and never because an arc starts on it.

    **Arguments:** `guard`: `g(t, x, params) -> ()`. `reset`: `R(t, x, params)`, from the source's shape `(n,)` to the
    target's `(m,)`. `armed`: optional `(t, x, params) -> bool`; where it is false at the crossing, the crossing is
    passed over.

    Source: Kong, Payne, Zhu, Johnson (2024), Definition 1.
    """

    source: str = eqx.field(static=True)
    target: str = eqx.field(static=True)
    guard: Guard
    reset: Reset
    armed: Armed | None = None

    def __check_init__(self):
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


class HybridSystem(eqx.Module):
    """Modes, and the transitions between them.

    **Arguments:** `modes`: from name to `Mode`; dimensions may differ. `transitions`: a tuple of `Transition`.

    Build it once, at module level: a fresh system is a recompilation.

    Source: Kong, Payne, Zhu, Johnson (2024), Definition 1.
    """

    # Not a dict, which would forget the order of the modes on its way into `jit`.
    names: tuple[str, ...] = eqx.field(static=True)
    _modes: tuple[Mode, ...]
    transitions: tuple[Transition, ...]

    def __init__(self, modes: Mapping[str, Mode], transitions: tuple[Transition, ...] | list[Transition]):
        self.names = tuple(modes)
        self._modes = tuple(modes.values())
        self.transitions = tuple(transitions)

    @property
    def modes(self) -> dict[str, Mode]:
        """From name to mode, in the order in which they were given."""
        return dict(zip(self.names, self._modes, strict=True))

    def __check_init__(self):
        if not self.modes:
            raise ValueError("HybridSystem: give at least one mode, for example modes={'swing': hj.Mode(...)}.")
        for name, mode in self.modes.items():
            if not isinstance(mode, Mode):
                raise ValueError(f"HybridSystem: modes[{name!r}] must be a hj.Mode, not {mode!r}.")
        for transition in self.transitions:
            if not isinstance(transition, Transition):
                raise ValueError(f"HybridSystem: transitions must be hj.Transition, not {transition!r}.")
            for role in ("source", "target"):
                self.mode(getattr(transition, role), f"{role} of a transition")

    def mode(self, name: str, role: str = "mode") -> Mode:
        """The mode of that name; `ValueError` with the names there are."""
        if name not in self.modes:
            raise ValueError(f"HybridSystem: {role} {name!r} is not one of the modes {tuple(self.modes)}.")
        return self.modes[name]

    def leaving(self, name: str) -> tuple[int, ...]:
        """Indices of the transitions whose source is the mode of that name."""
        self.mode(name)
        return tuple(i for i, transition in enumerate(self.transitions) if transition.source == name)

    def between(self, source: str, target: str) -> int:
        """Index of the one transition from `source` to `target`; `ValueError` where there is none, or a choice."""
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
                "sequence does not say which. Give them different target modes (two names may share one Mode)."
            )
        return found[0]

    def route(self, sequence: tuple[str, ...]) -> tuple[int, ...]:
        """Indices of the transitions that a closed sequence of modes takes; `ValueError` where it cannot be followed."""
        if isinstance(sequence, str) or not sequence:
            raise ValueError(f"sequence: give a tuple of mode names, such as ('swing',); got {sequence!r}.")
        following = (*sequence[1:], sequence[0])
        return tuple(self.between(mode, after) for mode, after in zip(sequence, following, strict=True))

    def hoisted(self, params: Params, dtype) -> "HybridSystem":
        """The same system, in which numbers that a function closes over are array leaves, as if they were parameters."""

        def hoist(fn: Any, mode: str) -> Any:
            if fn is None:
                return None
            example = jax.ShapeDtypeStruct((), dtype), jax.ShapeDtypeStruct((self.mode(mode).dimension,), dtype)
            converted = eqx.filter_closure_convert(fn, *example, params)
            return converted if jax.tree.leaves(eqx.filter(converted, eqx.is_array)) else fn

        modes = {name: Mode(hoist(mode.vector_field, name), mode.coordinates) for name, mode in self.modes.items()}
        transitions = tuple(
            Transition(w.source, w.target, *(hoist(fn, w.source) for fn in (w.guard, w.reset, w.armed)))
            for w in self.transitions
        )
        return HybridSystem(modes, transitions)
