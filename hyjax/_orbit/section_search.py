"""Search for periodic orbits whose sequence of modes is not known: fixed points of the map of a section.

The orbit at a fixed point belongs to the hybrid system of the section: the crossing, of the section's surface or of the end of a
period of the forcing, is a transition with the identity as its reset. Transitions that share source and target mode enter copies
of the target mode, so that the sequence of modes identifies every transition.
"""

import dataclasses
import functools as ft
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._flow.in_step import examined_if_needed, may_be_in_step, unordered
from .._flow.integrator import Integrator, Integrators, rolled, without_jacobian
from .._flow.section_map import check_section, Crossing, crossing_of, for_terminal_modes, SectionMap, with_section_mode
from .._numerics.eager import long_run
from .._numerics.linearize import with_columns_by_lanes
from .._numerics.newton import Evaluation, find_root
from .._results.shown import require_known
from .._results.working import warn, working
from .._system.results import choose, nan_unless, RESULTS
from .._system.section import at_phase, Section, SectionLike, Stroboscope
from .._system.system import HybridSystem, Reset, Transition, unchanged
from .._system.types import Params, Scalar, State, Time
from .krylov import is_matrix_free
from .one_orbit import run_one_orbit
from .orbit import LastIterate, PeriodicOrbit
from .problem import Problem, uses_time
from .return_map import ReturnMap
from .search import Batch, Census, FixedPoint, Region, search, solve_batch, stage_limits
from .shooting import AbstractShooting, outcome, SearchLimits


def _end_of_period(section: Stroboscope, t: Time, x: State, params: Params) -> Scalar:
    r"""$-\sin(2\pi t/T)$, a guard that falls through zero at the times $kT$."""
    return -jnp.sin(2 * jnp.pi * t / section.duration(params, x.dtype))


def with_copies(system: HybridSystem, copies: Mapping[int, str]) -> HybridSystem:
    """The system in which transition `k` enters a copy of its target mode, named `copies[k]`."""
    targets = [copies.get(k, way.target) for k, way in enumerate(system.transitions)]
    modes, ways = dict(system.modes), []
    same = {name: [name] for name in system.modes}
    for k, name in copies.items():
        original = system.transitions[k].target
        modes[name] = system.mode(original)
        same[original].append(name)
    for way, target in zip(system.transitions, targets, strict=True):
        ways += [dataclasses.replace(way, source=name, target=target) for name in same[way.source]]
    return HybridSystem(modes, tuple(ways), system.time_unit)


def _without_neighbours(reset: Reset, names: int, t: Time, x: State, params: Params) -> State:
    """A reset after which the last coordinates, which only name a set of contacts, have no derivatives: where no contact changes
    in a lap, they are no family of orbits."""
    after = reset(t, x, params)
    return after.at[-names:].set(jax.lax.stop_gradient(after[-names:]))


def on_section(system: HybridSystem, section: SectionLike) -> tuple[HybridSystem, dict[int, str]]:
    """The system on a section, in which the crossing, its last transition, enters a copy of the section's mode, and transitions
    that share source and target mode enter one copy each of the target mode; and the names of the copies, which are its last
    modes, by the number of the transition."""
    crossing = (
        (section.surface, section.reset)
        if isinstance(section, Section)
        else (eqx.Partial(_end_of_period, section), unchanged)
    )
    mode = system.mode(section.mode)
    if names := len(mode.coordinates) - len(mode.shown):
        crossing = crossing[0], eqx.Partial(_without_neighbours, crossing[1], names)
    ways = (*system.transitions, Transition(section.mode, section.mode, *crossing))
    pairs = [(way.source, way.target) for way in system.transitions]
    copies = {k: f"{pair[1]} after {k}" for k, pair in enumerate(pairs) if pairs.count(pair) > 1}
    copies[len(pairs)] = f"{section.mode} from the section"
    return with_copies(HybridSystem(system.modes, ways, system.time_unit), copies), copies


SUCCESSFUL = RESULTS.successful._value


@long_run
def _solve(
    section_map: SectionMap,
    params: Params,
    strides: int,
    method: AbstractShooting,
    guesses: Array,
    limits: SearchLimits,
) -> FixedPoint:
    """The fixed point near each guess."""
    integrator, method = limits.imposed_on(section_map.integrator, method)
    each, mode = dataclasses.replace(section_map, integrator=integrator), section_map.section.mode
    home = jnp.array(each.system.number(mode))
    size = max(each.dimension for each in each.system.modes.values())

    def laps(x):
        """The state after all strides, with the states at their starts."""

        def one(carry, _):
            t, z, mode, arcs, result = carry
            passed = each(t, z, mode, params)
            result = choose(result == RESULTS.successful, passed.result, result)
            return (t + passed.time, passed.x, passed.mode, arcs + passed.arcs, result), z[: x.size]

        start = jnp.zeros_like(x[0]), jnp.pad(x, (0, size - x.size)), home, jnp.array(0), RESULTS.successful
        (t, z, mode, arcs, result), nodes = jax.lax.scan(one, start, length=strides)
        closes = (result == RESULTS.successful) & (mode == home)
        return nan_unless(closes, z[: x.size]), (nodes, arcs, t, result)

    def evaluate(x, first):
        # From a state before the section the first crossing is at once, and each state of the surface would be its own image.
        at = _onto_surface(each.section, x, params)
        end, jacobian, aux = with_columns_by_lanes(laps, at)
        eye = jnp.eye(x.size, dtype=x.dtype)
        return Evaluation(end - at, jacobian - eye, at, (aux, jacobian))

    def solve(guess):
        root = find_root(
            evaluate, guess, max_iterations=method.max_iterations, accept=method.acceptable(integrator, guess.dtype),
            root_finder=method.root_finder,
        )  # fmt: skip
        (nodes, arcs, period, result), jacobian = root.aux
        rate = jnp.max(jnp.abs(each.system.mode(mode).vector_field(jnp.zeros_like(period), nodes[0], params)))
        length, size = period * rate, jnp.max(jnp.abs(nodes))
        returns = length > 3 * root.residual + jnp.finfo(size.dtype).eps ** 0.6 * size
        result = choose((result == RESULTS.successful) & ~returns, RESULTS.zeno, result)
        result = outcome(root.converged, result)
        return FixedPoint(nodes, arcs, period, jacobian, root.residual, jnp.zeros_like(period), result)

    # A program without lanes is half as long to trace.
    return jax.vmap(solve)(guesses) if len(guesses) > 1 else jax.tree.map(lambda leaf: leaf[None], solve(guesses[0]))


def _onto_surface(section: SectionLike, x: State, params: Params) -> State:
    """A state on the section's surface near `x`, by Newton's method along the gradient; `x` itself for a stroboscope, and where
    the method does not approach the surface."""
    if not isinstance(section, Section):
        return x
    value = lambda x: section.surface(jnp.zeros((), x.dtype), x, params)
    at = x
    for _ in range(4):
        off, up = jax.value_and_grad(value)(at)
        steep = jnp.sum(up**2)
        at = at - off * up / jnp.where(steep > 0, steep, 1)
    return jnp.where(jnp.abs(value(at)) <= jnp.abs(value(x)), at, x)


def _require_symmetry(caller: str, section: SectionLike, x: State, params: Params) -> None:
    """`ValueError` where the reset of the section leads off its surface from the state of the surface near `x`."""
    if not isinstance(section, Section) or section.reset is unchanged:
        return
    at, t = _onto_surface(section, jnp.asarray(x), params), jnp.zeros((), jnp.asarray(x).dtype)
    off, up = jax.value_and_grad(lambda x: section.surface(t, x, params))(at)
    after = section.reset(t, at, params)
    there = section.surface(t, after, params)
    least = jnp.finfo(at.dtype).eps ** 0.5 * jnp.sum(jnp.abs(up) * (jnp.abs(at) + jnp.abs(after)))
    if bool(jnp.abs(there) > jnp.abs(off) + least):
        raise ValueError(
            f"{caller}: the section's reset leads off its surface, from surface = {off:.3g} to {there:.3g}. Give a symmetry of "
            "the system that leads the surface to itself, or a surface for which the reset does."
        )


def find_section_orbits(
    step: ReturnMap, params: Params, region: Region, starts: int, key: PRNGKeyArray | None, method: AbstractShooting
) -> tuple[tuple[PeriodicOrbit, ...], Census]:
    """`find_orbits` by a section: the batches, and the count of starts."""
    step, section_map, params = _prepared("find_orbits", step, region, params)
    low, high = (np.asarray(bound) for bound in region)
    solve = ft.partial(_solve, section_map, params, step.strides, method)
    with working("searching for periodic orbits"):
        found, census = search(solve, method, section_map.integrator, (low, high), starts, key)
        return tuple(_named(step, found, params, method).values()), census


def orbit_of_section(
    step: ReturnMap, guess: State, params: Params, method: AbstractShooting, near: Scalar
) -> tuple[PeriodicOrbit, LastIterate]:
    """`periodic_orbit` by a section, and the last iterate."""
    remedy = "By a section the sequence of modes is not known in advance: give orbit.step of an orbit found before."
    require_known("periodic_orbit", guess, params, near, remedy=remedy)
    step, section_map, params = _prepared("periodic_orbit", step, (guess,), params)
    meets = [False]
    if is_matrix_free(method):
        start = _onto_surface(section_map.section, guess, params)
    else:
        *_, fine = stage_limits(method, section_map.integrator, guess.dtype)

        def solve(judges: bool) -> tuple[FixedPoint, RESULTS]:
            meets.append(judges)
            each = dataclasses.replace(section_map, judges=judges)
            found = _solve(each, params, step.strides, method, guess[None], fine)
            return found, found.result

        # Where the pass from the guess meets events that fall together, a search that does not examine them ends there.
        known = _meets_together(step, guess, params)
        found, _ = solve(True) if known else examined_if_needed(solve, section_map.system)
        found = jax.tree.map(lambda leaf: leaf[0], found)
        start = found.nodes[0] if bool(found.result == RESULTS.successful) else guess
    there, copies = on_section(step.system, section_map.section)
    problem, inner = Problem(there, _sequence_from(step, copies, start, params), 1), _on_copies(step, copies)

    def run(judges: bool) -> tuple[tuple[PeriodicOrbit, LastIterate], RESULTS]:
        # Where the search has met events that fall together, so does the orbit.
        examined = problem if judges or meets[-1] else dataclasses.replace(problem, system=unordered(there))
        orbit, reached = run_one_orbit(examined, start, params, method, inner, near, origin=guess)
        return (dataclasses.replace(orbit, system=there), reached), orbit.result

    found, _ = examined_if_needed(run, there)
    return found


def _prepared(
    caller: str, step: ReturnMap, states: Sequence[State], params: Params
) -> tuple[ReturnMap, SectionMap, Params]:
    """The map with its clock at the phase of the section, the same for a program that iterates it, and the parameters as arrays,
    for states that are checked."""
    assert step.section is not None
    for x in states:
        system, _, _, checked, given = check_section(
            step.system, step.section, x, params, None, step.integrator_or(Integrator())
        )
    system, section = at_phase(system, step.section)
    extended = with_section_mode(system, section)
    every, dtype = range(len(extended.ways)), jnp.asarray(states[0]).dtype
    if isinstance(section, Section) and uses_time(extended, extended.names, every, checked, dtype):
        raise ValueError(
            f"{caller}: the system depends on time, so that an orbit closes after a multiple of a period: use section="
            "hj.Stroboscope(mode, period)."
        )
    _require_symmetry(caller, section, states[0], checked)
    plain = rolled(without_jacobian(for_terminal_modes(given, extended)))
    section_map = SectionMap(extended, section, len(system.names), step.max_jumps, plain)
    return dataclasses.replace(step, system=system, section=section), section_map, checked


def _on_copies(step: ReturnMap, copies: dict[int, str]) -> Integrators:
    """The map's integrator for the system on the section."""
    names, targets = step.system.names, [*(way.target for way in step.system.transitions), step.mode]
    sources = (*names, *(targets[k] for k in copies))
    return step.integrator_or(Integrator()).renamed((*names, *copies.values()), sources)


def _sequence_from(step: ReturnMap, copies: dict[int, str], x: State, params: Params) -> tuple[str, ...]:
    """The sequence of modes of the passes from a state; that of no jump where a pass fails, or the last one ends in another mode
    than the section's."""
    system, section, mode = step.system, step.section, step.mode
    assert section is not None
    home = copies[len(system.transitions)]
    t, sequence = jnp.zeros((), x.dtype), [home]
    for k in range(step.strides):
        # A stroboscope may find the state in another mode, where the crossing is none, and from which the next pass starts.
        once = dataclasses.replace(step, strides=1, section=dataclasses.replace(section, mode=mode))
        passed = once(x[: system.mode(mode).dimension], params, t, throw=False)
        assert isinstance(passed, Crossing)
        if not bool(passed.result == RESULTS.successful):
            return (home,)
        mode = system.names[int(passed.mode)]
        rows = zip(np.asarray(passed.transitions).tolist(), np.asarray(passed.indices).tolist(), strict=True)
        for taken, index in rows:
            if taken >= 0:
                # The arc that ends here names the guard of the family that ends it.
                sequence[-1] += f"[{index}]" * (index >= 0)
                sequence.append(copies[taken] if taken in copies else system.transitions[taken].target)
        if k < step.strides - 1 and mode == step.mode:
            sequence.append(home)
        t, x = t + passed.time, passed.x
    return tuple(sequence) if mode == step.mode else (home,)


def _meets_together(step: ReturnMap, x: State, params: Params) -> bool:
    """Whether the pass from the surface near a state meets events that fall together, which may be in step."""
    assert step.section is not None
    if not may_be_in_step(step.system):
        return False
    x = _onto_surface(step.section, x, params)
    known = check_section(step.system, step.section, x, params, 0.0, step.integrator_or(Integrator()))
    system, t, x, params, integrator = known
    passed = crossing_of(system, step.section, t, x, params, step.max_jumps, integrator, 1, False)
    return bool(passed.result == RESULTS.simultaneous_guards)


def _named(
    step: ReturnMap, found: FixedPoint, params: Params, method: AbstractShooting
) -> dict[tuple[str, ...], PeriodicOrbit]:
    """The periodic orbits at the fixed points, by their sequences of modes."""
    assert step.section is not None
    there, copies = on_section(step.system, step.section)
    groups: dict[tuple[str, ...], list[np.ndarray]] = {}
    for nodes in np.asarray(found.nodes):
        sequence = _sequence_from(step, copies, jnp.asarray(nodes[0]), params)
        groups.setdefault(sequence, []).append(nodes[0])

    inner, orbits = _on_copies(step, copies), {}
    for sequence, guesses in sorted(groups.items(), key=lambda item: (len(item[0]), item[0])):
        *_, fine = stage_limits(method, inner, guesses[0].dtype)

        def solve(
            judges: bool, sequence=sequence, guesses=jnp.stack(guesses), fine=fine
        ) -> tuple[PeriodicOrbit, RESULTS]:
            problem = Problem(there if judges else unordered(there), sequence, 1)
            solved = solve_batch(Batch(problem, params, method, inner), guesses, fine)
            return dataclasses.replace(solved, system=there), solved.result

        solved, _ = examined_if_needed(solve, there)
        good = np.flatnonzero(np.asarray(solved.result._value) == SUCCESSFUL)
        if len(good) < len(guesses):
            warn(
                f"find_orbits: {len(guesses) - len(good)} fixed points of the section's map are no isolated orbits of the "
                f"sequence {sequence}: {solved.result}. They are omitted."
            )
        if len(good):
            orbits[sequence] = solved[good]
    return orbits
