"""Search for the periodic orbits in a region, without an initial guess."""

import functools as ft
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from .._flow.check import check
from .._flow.integrator import Integrator
from .._results.shown import require_known, Shown
from .._results.working import warn, working
from .._system.results import RESULTS, SolveError
from .._system.types import Params, require_counts, require_kind
from .orbit import PeriodicOrbit
from .problem import Problem
from .return_map import require_map, ReturnMap
from .search import Batch, Region, search, solve_batch
from .section_search import find_section_orbits
from .shooting import AbstractShooting, SingleShooting

Chosen = Int[Array | np.ndarray, " chosen"] | Bool[Array | np.ndarray, " orbits"] | slice | list[int]


class Orbits(Shown):
    """The periodic orbits that `find_orbits` found, in one batch for each sequence of modes.

    `len(orbits)` is their number, `orbits[0]` the first, a `PeriodicOrbit`, `orbits[orbits.stable]` several. Where all orbits
    have one sequence of modes, as along a given sequence, `orbits` has the attributes and methods of the batch, such as
    `orbits.period`, with a leading axis; `AttributeError` otherwise.

    **Attributes:** `batches`: a batch of `PeriodicOrbit` for each sequence, the shortest sequence first; within a batch, by
    decreasing period. `sequences`: those of the batches, `(("swing",), ...)`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbits = hj.find_orbits(wheel.step, params, region=wheel.region(params))
    >>> len(orbits), orbits.sequences, bool(orbits[0].stable)
    (1, (('stance',),), True)
    """

    batches: tuple[PeriodicOrbit, ...]

    @property
    def sequences(self) -> tuple[tuple[str, ...], ...]:
        return tuple(each.sequence for each in self.batches)

    @property
    def batch(self) -> PeriodicOrbit:
        """The batch of all orbits. `AttributeError` unless they have one sequence of modes."""
        return _only(self.batches)

    def of(self, sequence: tuple[str, ...]) -> PeriodicOrbit:
        """The batch of a sequence of modes. `KeyError` for a sequence that was not found."""
        return dict(zip(self.sequences, self.batches, strict=True))[tuple(sequence)]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.batches)) if self.batches else "0 PeriodicOrbits"

    def _tables(self):
        return tuple(table for each in self.batches for table in each._tables())

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    def __iter__(self) -> Iterator[PeriodicOrbit]:
        return (each[i] for each in self.batches for i in range(len(each)))

    def __getitem__(self, chosen: int | Chosen) -> Any:
        numbers = np.arange(len(self))[chosen if isinstance(chosen, slice) else np.asarray(chosen)]
        if numbers.ndim == 0:
            for each in self.batches:
                if numbers < len(each):
                    return each[int(numbers)]
                numbers = numbers - len(each)
        parts, first = [], 0
        for each in self.batches:
            own = numbers[(numbers >= first) & (numbers < first + len(each))] - first
            first += len(each)
            if len(own) or len(self.batches) == 1:
                parts.append(each[own])
        return Orbits(tuple(parts))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "batches":
            raise AttributeError(name)
        return getattr(_only(self.batches), name)


def _only(batches: tuple[PeriodicOrbit, ...]) -> PeriodicOrbit:
    if len(batches) != 1:
        raise AttributeError(
            f"These orbits have {len(batches)} sequences of modes: take one of `batches`, or one orbit, orbits[0]."
        )
    return batches[0]


def find_orbits(
    step: ReturnMap,
    params: Params,
    *,
    region: Region,
    max_starts: int = 2048,
    key: PRNGKeyArray | None = None,
    method: AbstractShooting = SingleShooting(),
    throw: bool = True,
) -> Orbits:
    r"""Periodic orbits in a region, found by Newton's method from many starts in it. $S^m(x) = x$ for $m$ = `strides`.

    The starts come in rounds of 128. The search ends when every orbit found was reached from two starts or more, and the
    expected share of starts that lead to an orbit not yet found, among the starts that lead to orbits, is at most 1/4000: it is
    $w(w + 1)/n(n - 1)$ for $w$ orbits from $n$ starts. It ends without an orbit after 512 starts, and in any case after
    `max_starts`, with a warning if that is too early for the rule. An orbit to which few starts lead may be missed; a smaller
    region finds it.

    Starts are solved with coarse tolerances (1e-5; 1e-3 in float32) and few Newton steps, but with as many as allowed where a
    round leads to none and no orbit is known; the distinct results are solved again with the integrator's own tolerances. While
    fewer than one start in 32 leads to an orbit, further starts lie on the edge of those whose stride succeeds. Two results are
    one orbit if they lie within their error bounds, the residual times $|(I - DS^m)^{-1}|$.

    By the map of a `section`, of an autonomous system, or of a `Stroboscope`, the orbits found are named by their sequences of
    modes.

    **Arguments:**

    - `step`, `params`: a `ReturnMap`, by default integrated by `Integrator()`, and the parameters of its system, a PyTree. Orbits
      that close after fewer than its `strides` are omitted.
    - `region`: `(low, high)`, two states of shape `(n,)`, in the units of the vector fields: the box of states just after the
      jump that closes the sequence; an orbit of several strides has one of these states in the box. It may be large: only the
      image of the reset is searched. With a section, a box of states of its mode, which need not lie on the section.
    - `max_starts`: the largest number of starts. `key`: of `jax.random`; the same key gives the same orbits.
    - `method`: as for `periodic_orbit`. `throw`: raise a `SolveError` if no orbit is found; with `False`, `Orbits` of length 0.

    **Returns:** `Orbits`: the distinct orbits found, by decreasing period, `orbits[0]` the first; along a sequence with the
    attributes of a `PeriodicOrbit`, whose arrays have a leading axis. If none is found, a `SolveError`, or a warning without
    `throw`, says where starts led to: orbits outside of the region, or states that return at another phase of a forcing. Orbits
    of continuous families are omitted. Not under `jit`, `vmap` or `grad`, because the number of orbits is not known in advance.
    `ValueError` for arguments of a wrong shape or dtype, or that are not finite.

    With a `section`, `orbits.batches` has a batch for each sequence, the shortest sequence first. The `system` of these orbits is
    the given one with a transition at the section, which changes nothing and enters the mode `"(mode) from the section"`, where
    the orbits start. Where several transitions lead from one mode to the same other, each enters a mode of its own,
    `"(mode) after (number)"`. Its time counts from the phase of a `Stroboscope`. `continuation`, `sweep` and `optimize` follow
    these orbits, also one without jumps.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbits = hj.find_orbits(wheel.step, params, region=wheel.region(params))
    >>> orbits.x.shape
    (1, 2)
    >>> print(orbits.period.round(6))
    [2.310015]

    Source: multistart Newton's method on the return map of Bhounsule (2014), Sec. 2; Boender, Rinnooy Kan (1987), *Bayesian
    stopping rules for multistart global optimization methods*, Math. Program. 37, 59-80; the starts: an additive recurrence,
    Niederreiter (1992), *Random Number Generation and Quasi-Monte Carlo Methods*, ch. 3.
    """
    require_map(step, "find_orbits")
    require_known("find_orbits", step, params, region)
    require_kind(method, AbstractShooting, "find_orbits", "method", "hj.SingleShooting() or hj.MultipleShooting()")
    bounds = tuple(region) if isinstance(region, Iterable) else ()
    if len(bounds) != 2:
        raise ValueError(f"find_orbits: region={region!r} must be a pair of states (low, high).")
    region = bounds
    low, high = (np.asarray(bound) for bound in region)
    require_counts("find_orbits", 1, max_starts=max_starts)
    if not np.all(low <= high):
        raise ValueError(f"region: low {low} must not exceed high {high}.")
    if step.sequence is None:
        batches, census = find_section_orbits(step, params, region, max_starts, key, method)
    else:
        integrator, system = step.integrator_or(Integrator()), step.system
        for bound in region:
            system, _, _, params = check(step.system, 0.0, bound, params, step.sequence, integrator)
        batch = Batch(Problem(system, step.sequence, step.strides), params, method, integrator)
        with working("searching for periodic orbits"):
            solve = ft.partial(solve_batch, batch)
            orbits, census = search(solve, method, integrator, (low, high), max_starts, key)
        batches = (orbits,)
    found = Orbits(batches)
    if len(found):
        if not census.complete:
            warn(f"find_orbits: {census}")
    elif throw:
        box = f"{np.array2string(low, separator=', ')} to {np.array2string(high, separator=', ')}"
        advice = census.hint or "Give another region, more strides, or the map of a section."
        raise SolveError(
            f"find_orbits: none of {census.tried} starts in the region {box} led to a periodic orbit. {advice} With throw=False "
            "the result is empty.",
            RESULTS.orbit_not_converged._value,
            found,
        )
    elif census.hint:
        warn(f"find_orbits: no orbit was found. {census.hint}")
    return found
