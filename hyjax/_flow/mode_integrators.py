"""Integrators by mode, such as an implicit solver for a stiff stance and an explicit one for a smooth flight."""

import functools as ft
from collections.abc import Mapping, Sequence

import diffrax as dfx
import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._system.system import HybridSystem
from .integrator import Integrator


class ModeIntegrators(eqx.Module):
    """An integrator for each mode of a system, by the modes' names.

    Public functions construct it from a mapping such as `{"stance": Integrator(diffrax.Kvaerno5()), "flight": Integrator()}`.
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
        """The integrators for a system whose mode `names[k]` has the flow of mode `sources[k]`."""
        return ModeIntegrators(tuple(names), tuple(self.of(source) for source in sources))

    def tolerances(self, dtype) -> tuple[float | Array, float | Array]:
        """The largest `rtol` and the largest `atol` of any mode: those of the least accurate part of an orbit."""
        rtols, atols = zip(*(part.tolerances(dtype) for part in self.parts), strict=True)
        return _largest(rtols), _largest(atols)

    @property
    def loop(self):
        """See `Integrator.loop`; the same in all modes."""
        return self.parts[0].loop

    @property
    def groups(self) -> list[tuple[Integrator, tuple[str, ...] | None]]:
        """The distinct integrators, each with the names of its modes."""
        return [
            (part, tuple(name for name, other in zip(self.names, self.parts, strict=True) if _same(other, part)))
            for k, part in enumerate(self.parts)
            if not any(_same(part, other) for other in self.parts[:k])
        ]


def _same(one: Integrator, other: Integrator) -> bool:
    """Whether two integrators are equal. Traced numbers, whose values are not known, are equal if they are the same tracer."""
    (a, how), (b, how_other) = jax.tree.flatten(one), jax.tree.flatten(other)
    if how != how_other:
        return False
    traced = lambda pair: any(isinstance(each, jax.core.Tracer) for each in pair)
    return all(x is y or (not traced((x, y)) and bool(np.all(x == y))) for x, y in zip(a, b, strict=True))


def _largest(numbers: Sequence[float | Array]) -> float | Array:
    traced = any(isinstance(each, jax.Array) for each in numbers)
    return ft.reduce(jnp.maximum, numbers) if traced else max(numbers)


Integrators = Integrator | ModeIntegrators
# The type of the argument `integrator` of public functions.
IntegratorLike = Integrators | Mapping[str, Integrator]


def for_modes(system: HybridSystem, given: IntegratorLike) -> Integrators:
    """The integrator, or the integrators by mode, from the argument `integrator` of a public function.

    `ValueError` for a mapping that omits a mode, names an unknown mode, or mixes adjoints; `TypeError` for other types.
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
            f"integrator: the modes {missing} have none. Give one for each of the modes {list(system.modes)}; to use the "
            "same one for all others: dict.fromkeys(system.modes, Integrator()) | {...}."
        )
    parts = tuple(given[name] for name in system.modes)
    kinds = {part.loop: type(part.adjoint).__name__ for part in parts}
    if len(kinds) > 1:
        raise ValueError(
            f"integrator: the modes have adjoints {sorted(kinds.values())}. Give all modes the same adjoint."
        )
    return ModeIntegrators(tuple(system.modes), parts)


def with_adjoint(integrator: Integrators, adjoint: dfx.AbstractAdjoint) -> Integrators:
    """The integrator with another `adjoint` in all modes."""
    return integrator.rebuilt([eqx.tree_at(lambda part: part.adjoint, part, adjoint) for part in integrator.parts])


def rolled(integrator: Integrators) -> Integrators:
    """The integrator with `unroll=False`, for a program that runs a few times: it compiles faster and runs slower."""
    in_a_loop = lambda part: eqx.tree_at(lambda part: part.unroll, part, False, is_leaf=lambda leaf: leaf is None)
    return integrator.rebuilt([in_a_loop(part) for part in integrator.parts])


def pushable(integrator: Integrators) -> Integrators:
    """The integrator with an `adjoint` that supports forward mode: `DirectAdjoint` in place of `RecursiveCheckpointAdjoint`."""
    return with_adjoint(integrator, dfx.DirectAdjoint()) if integrator.loop == "checkpointed" else integrator


class Limits(eqx.Module):
    """The limits of an integrator that may be traced, so that a coarse and an accurate search share one compiled program."""

    rtol: float | Array | np.ndarray
    atol: float | Array | np.ndarray
    max_steps: int | Array | np.ndarray
    max_time: float | Array | np.ndarray


def limits_of(integrator: Integrators, dtype) -> tuple[Limits, ...]:
    """The limits of every part, for states of a dtype."""
    return tuple(Limits(*part.tolerances(dtype), part.max_steps, part.max_time) for part in integrator.parts)


def with_limits(integrator: Integrators, limits: Sequence[Limits]) -> Integrators:
    """The integrator with other limits, part by part."""
    get = lambda part: (part.rtol, part.atol, part.max_steps, part.max_time)

    def limited(part: Integrator, given: Limits) -> Integrator:
        values = given.rtol, given.atol, given.max_steps, given.max_time
        return eqx.tree_at(get, part, values, is_leaf=lambda leaf: leaf is None)

    return integrator.rebuilt([limited(*each) for each in zip(integrator.parts, limits, strict=True)])


def coarsened(integrator: Integrators, rtol: float | Array, dtype) -> Integrators:
    """The integrator with a relative tolerance of at least `rtol`, which may be traced, in the modes whose steps are adaptive.

    The absolute tolerance grows in the same ratio, because it carries the size of the states.
    """

    def coarse(part: Integrator, limits: Limits) -> Limits:
        if part.fixed:
            return limits
        larger = jnp.maximum(jnp.asarray(limits.rtol, dtype), rtol)
        return eqx.tree_at(lambda l: (l.rtol, l.atol), limits, (larger, limits.atol * (larger / limits.rtol)))

    limits = limits_of(integrator, dtype)
    return with_limits(integrator, [coarse(*each) for each in zip(integrator.parts, limits, strict=True)])
