r"""The return map: one noun for the map along a given sequence of modes and for the Poincaré map of a section."""

import dataclasses
from collections.abc import Callable

import equinox as eqx

from .._flow.check import check
from .._flow.in_step import examined_if_needed
from .._flow.integrator import for_modes, Integrator, IntegratorLike, Integrators
from .._flow.section_map import check_section, Crossing, crossing_of, jacobian_of_crossing, with_section_mode
from .._results.failure import raise_failure
from .._system.section import Section, SectionLike, Stroboscope
from .._system.system import HybridSystem
from .._system.types import Matrix, Params, require_counts, require_kind, State, Time
from .stride import jacobian_of_stride, monodromy_of_stride, Stride, traced_stride

_NAN = "With throw=False the matrix is returned, with NaN where the map fails."


class ReturnMap(eqx.Module):
    r"""A return map $S^m(x)$ of a hybrid system, $m$ = `strides`: along a sequence of modes, or from a section to itself.

    Along a `sequence`, $S$ is a pass through its modes, from just after a jump to just after the last jump. Of a `section`, it is
    the Poincaré map to the next crossing, through whatever modes and jumps come.

    **Arguments:**

    - `system`: a `HybridSystem`.
    - Either `sequence`: mode names, static, an arc that a family of transitions ends with the number of the guard, such as
      `"network[3]"`, and of contacts by name the names of their sets, such as `"heel:stick+toe:open"`; or `section`: a `Section`,
      or a `Stroboscope` for a system that is forced with a period.
    - `strides`: $m$, the number of passes, static. `max_jumps`: of a `section`, the largest number of jumps in one pass, static.
    - `integrator`: an `Integrator`, or one for each mode, `{"stance": ..., "flight": ...}`; by default that of the verb to which
      the map is given: `Integrator()`, and coarser tolerances for `attractor` and `basin`.

    `ValueError` unless there is either a sequence or a section, for a sequence without matching transitions, and for numbers that
    are not counts.

    **Methods:** `step(x, params)` is the map; `step.jacobian(x, params)` its Jacobian from section to section, and
    `step.monodromy(x, params)` the map of variations at fixed time; `step.repeated(k)` is $S^{km}$. The map can be
    differentiated, and batched by `jax.vmap`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> step = hj.ReturnMap(wheel.system, sequence=("stance",))
    >>> params = wheel.Params()
    >>> after = step(wheel.guess(params), params)
    >>> print(f"{after.time:.6f} {after.x[1]:.6f} {after.result}")
    1.275313 0.643449 successful
    >>> upright = hj.ReturnMap(wheel.system, section=hj.Section("stance", lambda t, x, p: -x[0]))
    >>> crossing = upright(wheel.guess(params), params)
    >>> print(f"{crossing.time:.6f} {crossing.x[1]:.6f} {crossing.result}")
    0.667799 0.789963 successful

    Source: Bhounsule (2014), eqs. 1-5; Strogatz (1994), *Nonlinear Dynamics and Chaos*, Sec. 8.7.
    """

    system: HybridSystem
    sequence: tuple[str, ...] | None = eqx.field(static=True)
    section: SectionLike | None
    strides: int = eqx.field(static=True)
    max_jumps: int = eqx.field(static=True)
    integrator: Integrators | None

    def __init__(
        self,
        system: HybridSystem,
        *,
        sequence: tuple[str, ...] | None = None,
        section: SectionLike | None = None,
        strides: int = 1,
        max_jumps: int = 100,
        integrator: IntegratorLike | None = None,
    ):
        require_kind(system, HybridSystem, "ReturnMap", "the first argument", "a hj.HybridSystem")
        if (sequence is None) == (section is None):
            raise ValueError(
                f"ReturnMap: give either sequence= or section=, not {'both' if sequence is not None else 'neither'}."
            )
        if sequence is not None:
            # As that of contacts by name, of whose sets the names may be: see `Domain`.
            read = getattr(system.mode(system.names[0]).domain, "read_sequence", None)
            if read is not None and not callable(read):
                raise ValueError(
                    f"ReturnMap: read_sequence of a domain must be a method (system, sequence), not {read!r}."
                )
            system, named = (system, sequence) if read is None else read(system, sequence)  # pyright: ignore[reportGeneralTypeIssues]
            system.passes(named)
            sequence = tuple(named)
        elif not isinstance(section, Section | Stroboscope):
            raise ValueError(
                f"section: {section!r} must be a hj.Section(mode, surface) or a hj.Stroboscope(mode, period)."
            )
        else:
            system.mode(section.mode, "the section's mode")
        require_counts("ReturnMap", 1, strides=strides)
        require_counts("ReturnMap", 0, max_jumps=max_jumps)
        self.system, self.sequence, self.section = system, sequence, section
        self.strides, self.max_jumps = strides, max_jumps
        self.integrator = None if integrator is None else for_modes(system, integrator)

    def __call__(
        self, x: State, params: Params, t: float | Time | None = None, *, throw: bool = True
    ) -> Stride | Crossing:
        r"""The state after `strides` passes. $S^m(x)$

        **Arguments:** `x`: of a `sequence` the state just after a jump, in the sequence's first mode; of a `section` a state of
        its mode, which need not be on the section: a start on the surface is no crossing. Shape `(n,)`. `t`: start time, which
        matters only for a system that depends on time; by default 0, or the phase of the `Stroboscope`. `throw`: raise a
        `SolveError` on failure; with `False`, `result` holds the code.

        **Returns:** a `Stride(x, time, impacts, guard_rates, result)`, or a `Crossing(x, time, mode, transitions, jumps,
        result)`, also under `jit` and `vmap`, differentiable in `x`, `params` and `t`. `result` is `unexpected_transition` when a
        guard fires that the sequence does not name, `no_crossing` when a guard or the surface is not met within
        `integrator.max_time`, or a code of `Impact` or `simulate`. `ValueError` for arguments of a wrong shape or dtype, or that
        are not finite.

        A pass that fails has NaN values, and their derivative is zero: the gradient of a failed call is 0.0, so that in a batch
        the failed lanes do not spoil the sum of the others. Check `result` before a gradient is used.
        """
        if self.sequence is None:
            through, _ = self._by_section(lambda *known: (found := crossing_of(*known), found.result), x, params, t)
        else:
            through = traced_stride(*self._along_sequence(x, params, t))
        return raise_failure("ReturnMap", through) if throw else through

    def jacobian(self, x: State, params: Params, t: float | Time | None = None, *, throw: bool = True) -> Matrix:
        r"""The Jacobian of the map, from section to section. $S_x = \prod_i D_xR_i\,(I - f\,D_xg/(D_tg + D_xg f))\,\Phi_i$

        Variations end where the *neighbouring* orbit meets its guard, or the section, so the eigenvalue along the flow is 0; for
        a `Stroboscope`, at the same time. Computed by automatic differentiation through the steps and the events.

        **Arguments:** as for a call. **Returns:** shape `(n, n)`, row and column in the units of the coordinates; for a
        `Stroboscope` as many rows as the largest mode has coordinates. Where the map fails a `SolveError`, or NaN without
        `throw`. Source: Bhounsule (2014), eq. 16, whose printed factors are in the wrong order; Kong, Payne, Zhu, Johnson (2024),
        eqs. 34-35.
        """
        if self.sequence is None:
            matrix, result = self._by_section(jacobian_of_crossing, x, params, t)
        else:
            matrix, result = jacobian_of_stride(*self._along_sequence(x, params, t))
        return raise_failure("ReturnMap.jacobian", matrix, result, remedy=_NAN) if throw else matrix

    def monodromy(self, x: State, params: Params, t: float | Time | None = None, *, throw: bool = True) -> Matrix:
        r"""The monodromy matrix, the map of variations at *fixed time*: $\prod_i \Xi_i\,\Phi_i$.

        $\Phi_i$ is the Jacobian of the flow over the duration of arc $i$, $\Xi_i$ the saltation matrix at its end. On a periodic
        orbit of an autonomous system the spectrum is that of `jacobian`, except that the eigenvalue along the flow is 1 instead
        of 0.

        **Arguments:** as for a call. **Returns:** shape `(n, n)`, row and column in the units of the coordinates; where the map
        fails a `SolveError`, or NaN without `throw`. `ValueError` for the map of a `Section`, whose sequence of jumps is not
        known before it is computed. Source: Kong, Payne, Zhu, Johnson (2024), eqs. 34-35.
        """
        if isinstance(self.section, Stroboscope):
            return self.jacobian(x, params, t, throw=throw)
        if self.sequence is None:
            raise ValueError(
                "monodromy: give the sequence of modes in place of the section: ReturnMap(system, sequence=...)."
            )
        matrix, result = monodromy_of_stride(*self._along_sequence(x, params, t))
        return raise_failure("ReturnMap.monodromy", matrix, result, remedy=_NAN) if throw else matrix

    def repeated(self, times: int) -> "ReturnMap":
        """The map iterated, $S^{km}$ for $k$ = `times`: the same with `times` as many strides. `ValueError` for less than one."""
        require_counts("repeated", 1, times=times)
        return dataclasses.replace(self, strides=times * self.strides)

    @property
    def mode(self) -> str:
        """The mode of the states that the map takes."""
        return self.section.mode if self.sequence is None else self.sequence[0]  # pyright: ignore[reportOptionalMemberAccess]

    def integrator_or(self, default: Integrator) -> Integrators:
        """The map's integrator, or the default of a verb."""
        return default if self.integrator is None else self.integrator

    def _along_sequence(self, x: State, params: Params, t: float | Time | None):
        """The arguments of a compiled map along the sequence, checked."""
        assert self.sequence is not None
        integrator = self.integrator_or(Integrator())
        known = check(self.system, 0.0 if t is None else t, x, params, self.sequence, integrator)
        system, start, x, params = known
        return system, start, x, params, self.sequence * self.strides, integrator

    def _by_section(self, run: Callable, x: State, params: Params, t: float | Time | None):
        """A result of a compiled map of the section, of arguments that are checked, and its code."""
        assert self.section is not None
        system, start, x, params, integrator = check_section(
            self.system, self.section, x, params, t, self.integrator_or(Integrator())
        )
        known = system, self.section, start, x, params, self.max_jumps, integrator, self.strides
        return examined_if_needed(lambda judges: run(*known, judges), with_section_mode(system, self.section))


def require_map(step: ReturnMap, caller: str) -> None:
    """`ValueError` for what is no return map, such as the system itself."""
    require_kind(step, ReturnMap, caller, "the first argument", "a hj.ReturnMap(system, sequence=...)")
