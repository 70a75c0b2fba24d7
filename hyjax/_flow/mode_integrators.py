"""An integrator for each mode: a stiff stance and a smooth flight ask for different solvers."""

import functools as ft
from collections.abc import Mapping, Sequence

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._system.system import HybridSystem
from .integrator import Integrator


class ModeIntegrators(eqx.Module):
    """An integrator for each mode of a system, by the modes' names.

    Analyses make it of a mapping such as `{"stance": Integrator(diffrax.Kvaerno5()), "flight": Integrator()}`.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    parts: tuple[Integrator, ...]

    def of(self, mode: str) -> Integrator:
        """The integrator of a mode."""
        return self.parts[self.names.index(mode)]

    def rebuilt(self, parts: Sequence[Integrator]) -> "ModeIntegrators":
        """The same modes with other integrators, in the order of `names`."""
        return ModeIntegrators(self.names, tuple(parts))

    def renamed(self, names: Sequence[str], sources: Sequence[str]) -> "ModeIntegrators":
        """For a system whose mode `names[k]` flows as mode `sources[k]` does."""
        return ModeIntegrators(tuple(names), tuple(self.of(source) for source in sources))

    def tolerances(self, dtype) -> tuple[float | Array, float | Array]:
        """The largest `rtol` and the largest `atol` of any mode: as exact as the least exact part of an orbit."""
        rtols, atols = zip(*(part.tolerances(dtype) for part in self.parts), strict=True)
        return _largest(rtols), _largest(atols)

    @property
    def loop(self):
        """See `Integrator.loop`; the same in all modes."""
        return self.parts[0].loop

    @property
    def groups(self) -> list[tuple[Integrator, tuple[str, ...] | None]]:
        """The distinct integrators, each with its modes."""
        return [
            (part, tuple(name for name, other in zip(self.names, self.parts, strict=True) if other == part))
            for k, part in enumerate(self.parts)
            if part not in self.parts[:k]
        ]


def _largest(numbers: Sequence[float | Array]) -> float | Array:
    traced = any(isinstance(each, jax.Array) for each in numbers)
    return ft.reduce(jnp.maximum, numbers) if traced else max(numbers)


Integrators = Integrator | ModeIntegrators
# What an analysis accepts.
IntegratorLike = Integrators | Mapping[str, Integrator]


def for_modes(system: HybridSystem, given: IntegratorLike) -> Integrators:
    """The integrator, or the integrators by mode, of an analysis of a system.

    `ValueError` for a mapping that leaves a mode out, names one that the system does not have, or mixes adjoints.
    """
    if isinstance(given, Integrator):
        return given
    if isinstance(given, ModeIntegrators):
        given = dict(zip(given.names, given.parts, strict=True))
    if not isinstance(given, Mapping):
        raise TypeError(f"integrator: {given!r} is neither an Integrator nor a mapping of modes to Integrators.")
    for name, part in given.items():
        if not isinstance(part, Integrator):
            raise TypeError(
                f"integrator: {part!r} of mode {name!r} is not an Integrator. Write Integrator(solver, ...)."
            )
    if unknown := [name for name in given if name not in system.modes]:
        raise ValueError(f"integrator: {unknown} are not modes of the system, which has {list(system.modes)}.")
    if missing := [name for name in system.modes if name not in given]:
        raise ValueError(
            f"integrator: the modes {missing} have none. Name all modes {list(system.modes)}; for one integrator for "
            "the others: dict.fromkeys(system.modes, Integrator()) | {...}."
        )
    parts = tuple(given[name] for name in system.modes)
    kinds = {part.loop: type(part.adjoint).__name__ for part in parts}
    if len(kinds) > 1:
        raise ValueError(
            f"integrator: the modes have adjoints {sorted(kinds.values())}. Give all modes the same adjoint."
        )
    return ModeIntegrators(tuple(system.modes), parts)


def with_adjoint(integrator: Integrators, adjoint: dfx.AbstractAdjoint) -> Integrators:
    """The same, differentiated in another way."""
    return integrator.rebuilt([eqx.tree_at(lambda part: part.adjoint, part, adjoint) for part in integrator.parts])


def rolled(integrator: Integrators) -> Integrators:
    """The same with `unroll=False`: for a program that is compiled for a few runs."""
    return integrator.rebuilt([eqx.tree_at(lambda part: part.unroll, part, False) for part in integrator.parts])


def pushable(integrator: Integrators) -> Integrators:
    """The same for a function that pushes tangents itself and may then be differentiated in reverse: `RecursiveCheckpointAdjoint`
    has no tangents, so `DirectAdjoint` takes its place."""
    return with_adjoint(integrator, dfx.DirectAdjoint()) if integrator.loop == "checkpointed" else integrator


class Limits(eqx.Module):
    """The numbers of an integrator that may be traced, so that a coarse search and an exact one share one program."""

    rtol: float | Array | np.ndarray
    atol: float | Array | np.ndarray
    max_steps: int | Array | np.ndarray


def limits_of(integrator: Integrators, dtype) -> tuple[Limits, ...]:
    """The limits of every part, for states of that dtype."""
    return tuple(Limits(*part.tolerances(dtype), part.max_steps) for part in integrator.parts)


def with_limits(integrator: Integrators, limits: Sequence[Limits]) -> Integrators:
    """The same with other limits, part by part."""
    get = lambda part: (part.rtol, part.atol, part.max_steps)

    def limited(part: Integrator, given: Limits) -> Integrator:
        return eqx.tree_at(get, part, (given.rtol, given.atol, given.max_steps), is_leaf=lambda leaf: leaf is None)

    return integrator.rebuilt([limited(*each) for each in zip(integrator.parts, limits, strict=True)])
