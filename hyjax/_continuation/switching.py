"""Branch switching at period doublings, branch points and Hopf points."""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._flow.flow import flow_for
from .._flow.integrator import for_modes, Integrator, IntegratorLike
from .._flow.jump import reset
from .._flow.simulate import simulate
from .._orbit.level import Family
from .._orbit.problem import Problem
from .._orbit.section_search import on_section
from .._results.shown import computed_once, is_traced
from .._system.system import HybridSystem
from .._system.types import require_kind
from ..phase.equilibrium import section_through, size_of
from .branch import Branch
from .continuation import branch_from, unfolding_of
from .curve import interval_to, PseudoArclength, raise_branch, Stop
from .equilibrium_branch import EquilibriumPoint
from .normal_form import expansion, FORMS
from .special_points import found_daughters, RADIUS, SpecialPoint
from .unfolding import Unfolding

# The first point of another branch: the largest amplitudes at a branch point, of which so many are tried, and at a doubling; and
# there the limits of the parameter, in units of the way to `stop`, and of the change of the critical multiplier, which falls
# from 1 at the doubling to -1 at the next.
LARGEST, TRIALS, LARGEST_DOUBLED, LIMITS = 1e-2, 7, 0.03, (0.05, 0.1)
# A cubic coefficient above this, in scaled units, is infinite.
MOST_CUBIC = 1e10


# Beyond so many branches no further change of the order of events is followed.
MOST_FOUND = 8


def switch_branch(
    point: SpecialPoint | EquilibriumPoint,
    *,
    stop: Stop,
    amplitude: float | None = None,
    daughter: int = 0,
    method: PseudoArclength = PseudoArclength(),
    integrator: IntegratorLike = Integrator(),
    throw: bool = True,
) -> Branch:
    r"""Follow the other branch through a period doubling or a branch point, or the periodic orbits from a Hopf point.

    At a period doubling: orbits of twice as many strides, first those that the point's normal form predicts to second order;
    where events in step part, and the second stride has another order, of one stride along both sequences. At a
    swap of events: the branch goes on with the other order of events, where there are such orbits. At a
    branch point: the branch that crosses, which has a half on either side of the point; with one `stop` the half that leads there
    (of two that do, as at a pitchfork, the first), with bounds both, in one branch. The amplitude $a$ of the first point is
    chosen and its parameter is solved for, so the branch may go to either side.

    At a Hopf point of a branch of equilibria: the orbits that are born there, of the sequence of one arc from a plane through the
    equilibrium to itself, first near $x + 2a\,\mathrm{Re}\,q + a^2(h_{11} + \mathrm{Re}\,h_{20})$, see {ref}`theory-equilibria`.

    **Arguments:** `point`: a `SpecialPoint`, from `Branch.special_points`, or an `EquilibriumPoint` of kind `hopf`. `stop`: the
    value of the parameter, in its own unit, at which to end, or bounds `(low, high)`. `amplitude`: in units of the state's size.
    By default at most 1e-2, and so small that the first point lies within `stop`; at a doubling at most 0.03, and so small that
    its parameter is not further than 1/20 of the way to `stop`, and its multipliers are near those at the doubling. `daughter`:
    where several multipliers are 1 at once, as symmetry makes them, or events in step part, which of `point.daughters`. Both not
    at a swap.
    `method`: as for `continuation`. `integrator`: of the orbits from a Hopf point. `throw`: raise a `SolveError` on failure; with
    `False`, `result` holds the code.

    **Returns:** `Branch`, states of shape `(points, n)`, with a `result` as for `continuation`: `stop_not_reached` where the
    branch leads to the other side only. Without points if the first point was not found within `stop`. `ValueError` for a fold, a
    Neimark-Sacker point or grazing, from which no other branch is followed, for a daughter that there is not, and where the
    directions of daughters are undetermined, see `point.daughters`.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 1.0]), coordinates=("size", "clock"))
    >>> births = lambda t, x, p: jnp.stack([p["rate"] * x[0] * (1 - x[0]) - p["caught"], 0 * x[1]])
    >>> herd = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[1], births),))
    >>> params = {"rate": jnp.array(2.9), "caught": jnp.array(0.0)}
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(herd, sequence=("year",)), jnp.array([0.6, 0.0]), params)
    >>> branch = hj.continuation(orbit, where=lambda p: p["rate"], stop=3.2)
    >>> (point,) = branch.special_points
    >>> doubled = hj.switch_branch(point, stop=3.1)
    >>> print(doubled.orbits.strides, bool(doubled.stable.all()), doubled.result)
    2 True successful

    Source: Kuznetsov (2004), Sec. 10.3.
    """
    require_kind(
        point, SpecialPoint | EquilibriumPoint, "switch_branch", "the first argument", "one of branch.special_points"
    )
    of_equilibria = isinstance(point, EquilibriumPoint)
    if point.kind not in (("hopf",) if of_equilibria else ("period-doubling", "branch-point", "swap")):
        raise ValueError(
            f"switch_branch: no other branch of periodic orbits starts at a {point.kind} point; period-doubling, "
            "branch-point and swap have one, and hopf of equilibria."
        )
    if isinstance(point, EquilibriumPoint):
        found = _born(point, stop, LARGEST if amplitude is None else amplitude, method, integrator)
        return raise_branch("switch_branch", found) if throw else found
    old = point.unfolding
    y, values = old.split(point.v)
    size = old.state_scale / math.sqrt(old.problem.strides)
    # Room on both sides of the start: the branch may go to either.
    interval = interval_to(stop, values[0], "switch_branch", behind=1.0)
    params, span = old.params_at(values), interval.span[None]

    def unfolded(sequence: tuple[str, ...], laps: int) -> Unfolding:
        problem = Problem(old.problem.system, sequence, laps)
        return unfolding_of(problem, params, old.free, old.integrator, size, old.sizes, values, span)

    if point.kind == "swap":
        if daughter or amplitude is not None:
            raise ValueError(
                f"switch_branch: daughter={daughter} and amplitude={amplitude} do not apply at a swap, beyond which the one "
                "branch goes on. Leave them out."
            )
        y, sequence, strides = _beyond(point)
        unfolding, along = (
            unfolded(sequence, strides),
            point.kernel * jnp.ones_like(point.v).at[-1].set(old.scale[0] / span[0]),
        )
        # In units of the state at the start of one stride where each has its own order now.
        along = along if along.size == y.size + 1 else jnp.append(along[:, : y.size], along[:, -1:], axis=1)
        v0 = unfolding.join(y, values + RADIUS * point.kernel[0, -1] * old.scale)[None]
        found = branch_from(unfolding, v0, along, along, interval, method)
        return raise_branch("switch_branch", found) if throw else found
    if point.kind == "period-doubling":
        # A doubled orbit passes the point on one side and the other.
        sides = [old.sequence_met(point.v + way * RADIUS * point.kernel[0]) for way in (1, -1)]
        if sides[0] == sides[1] or old.problem.strides > 1:
            unfolding = unfolded(old.problem.sequence, 2 * old.problem.strides)
            v0, along = _doubled(point, unfolding, None if amplitude is None else jnp.asarray(amplitude, y.dtype))
            found = branch_from(unfolding, v0[None], along[None], along[None], interval, method)
            return raise_branch("switch_branch", found) if throw else found
        # Events in step part, in another order in the second stride; F has no second derivative.
        halves, sequence = point.kernel, sides[0] + sides[1]
    else:
        # In the new units.
        halves, sequence = _crossing(point, daughter, jnp.append(jnp.ones_like(point.v[:-1]), old.scale[0] / span))
    unfolding = unfolded(sequence, old.problem.strides)
    amplitudes = LARGEST / 4 ** np.arange(TRIALS)
    for a in amplitudes if amplitude is None else [amplitude]:
        v0 = unfolding.join(y, values) + a * halves
        branch = branch_from(unfolding, v0, halves, halves, interval, method)
        if is_traced(branch) or branch.curves.started.all():
            break
    found = _chosen_halves(branch, both=isinstance(stop, tuple | list))
    return raise_branch("switch_branch", found) if throw else found


def _beyond(point: SpecialPoint) -> tuple[Array, tuple[str, ...], int]:
    """Beyond a swap of events, by a simulation of a lap: the states before the jumps that start the strides, the sequence and the
    number of strides; those of the branch if the motion does not return by the jump that closes."""
    orbit, problem = point.beyond, point.unfolding.problem
    assert orbit is not None
    system, count = problem.system.without_domains(), len(problem.sequence)
    durations = np.diff(np.asarray(orbit.jump_times), axis=-1, prepend=0).ravel()
    # From the start of a long arc after a long one: after the swap the mode may be another.
    long = np.minimum(durations, np.roll(durations, 1))
    inside = np.max(long) < 10 * RADIUS * np.max(durations)
    k = int(np.argmax(durations if inside else long))
    stride, last = divmod((k - 1) % durations.size, count)
    t = jnp.asarray(np.sum(durations[:k]), orbit.x.dtype)
    mode = system.names[system.number(problem.sequence[k % count])]
    x = reset(system.way(system.route(problem.sequence)[last]), t, orbit.arc_ends[last][stride], orbit.params)
    if inside:
        # Swaps at both ends of each long arc: what the mode holds, such as which legs stand, is known in the middle of one.
        begun, t = t, t + durations[k].astype(t.dtype) / 2
        x = flow_for(system, mode, begun, x, t, orbit.params, orbit.integrator)
    events = simulate(
        system, x, orbit.params, mode=mode, t0=t, t1=t + 2 * orbit.period, max_jumps=2 * durations.size,
        integrator=orbit.integrator, throw=False,
    ).events  # fmt: skip
    kind = lambda number, index: (system.transitions[number].guard, system.transitions[number].target, int(index))
    of = lambda event: kind(event.transition, event.index)
    # A lap may have more events beyond, or fewer; what its first mode is called shows after one.
    laps = [i for i, event in enumerate(events) if i and of(event) == of(events[0])]
    events = events[1 : 1 + min(laps, key=lambda i: abs(events[i].t - events[0].t - orbit.period), default=-1)]
    closing, member = system.passes(problem.sequence)[-1]
    closes = kind(closing, -1 if member is None else member)
    ends = [i for i, event in enumerate(events) if of(event) == closes]
    if not ends:
        return orbit.before, problem.sequence, problem.strides
    laps_passed = lambda i: float(events[i].t / orbit.period)
    first = 1 + min(ends, key=lambda i: abs(laps_passed(i) - round(laps_passed(i))))
    lap = [*events[first:], *events[:first]]
    names = tuple(event.source + f"[{event.index}]" * (event.index >= 0) for event in lap)
    strides = problem.strides if names == names[:count] * problem.strides else 1
    starts = range(-1, len(lap) - 1, len(lap) // strides)
    return jnp.stack([jnp.asarray(lap[i].before) for i in starts]), names[: len(lap) // strides], strides


def _born(point: EquilibriumPoint, stop: Stop, amplitude: float, method, integrator: IntegratorLike) -> Branch:
    """The periodic orbits from a Hopf point."""
    at, form, equation = point.equilibrium, point.form, point.unfolding
    assert form is not None
    mode, k = at.mode, form.moved.size
    system, copies = on_section(at.system, section_through(at.system, mode, at.x, form.left))
    (home,) = list(copies.values())[-1:]
    integrator = for_modes(at.system, integrator).renamed(
        (*at.system.names, *copies.values()), _sources(at.system, copies, mode)
    )
    interval = interval_to(stop, point.value, "switch_branch", behind=1.0)
    size = size_of(at.x)
    unfolding = unfolding_of(
        Problem(system, (home,), 1),
        at.params,
        equation.free,
        integrator,
        size,
        equation.sizes,
        point.value[None],
        interval.span[None],
    )
    # Half the longest distance along the real part of the eigenvector.
    a = amplitude * size / (2 * jnp.max(jnp.abs(form.right.real)))
    moved = -form.c.real / form.growth.real * a**2
    first = 2 * a * form.right.real + a**2 * (form.h11 + form.h20.real) + moved * form.moved
    # Along the orbit onto the section, at which a stride from above it would end at once.
    first = first + 2 * (form.left.imag @ first) * form.right.imag
    v0 = unfolding.join(at.x.at[:k].add(first)[None], (point.value + moved)[None])
    along = jnp.zeros_like(v0).at[:k].set(form.right.real / jnp.linalg.norm(form.right.real))
    return branch_from(unfolding, v0[None], along[None], along[None], interval, method)


def _sources(system: HybridSystem, copies: dict[int, str], mode: str) -> tuple[str, ...]:
    """The modes of a system, and those of which there are copies on a section of a mode."""
    targets = [*(way.target for way in system.transitions), mode]
    return (*system.names, *(targets[k] for k in copies))


def _crossing(point: SpecialPoint, daughter: int, rescale: Array) -> tuple[Array, tuple[str, ...]]:
    """The directions of both halves of a branch that leaves a branch point, in unknowns times `rescale`, and its sequence of
    modes; of one half where the other has another sequence."""

    def halves(along: Array):
        along = along / jnp.sqrt(along @ along)
        met = [point.unfolding.sequence_met(point.v + way * RADIUS * along / rescale) for way in (1, -1)]
        return jnp.stack([along, -along] if met[0] == met[1] else [along]), met[0]

    if len(point.kernel) == 2:
        # In the plane of the tangents of both branches, at right angles to the known tangent.
        q, _ = jnp.linalg.qr((point.kernel * rescale).T)
        inside = q.T @ (point.tangent * rescale)
        found = halves(q @ jnp.stack([-inside[1], inside[0]]))
        if len(found[0]) == 2:
            return found
    every = point.daughters
    if not 0 <= daughter < len(every):
        raise ValueError(
            f"switch_branch: daughter={daughter} is not one of the {len(every)} branches that leave the branch point, "
            "point.daughters."
        )
    return halves(jnp.asarray(every[daughter]) * rescale)


def _chosen_halves(branch: Branch, both: bool) -> Branch:
    """Of the two halves of a branch that crosses another: those that were found; or one of them, the half that leads to `stop`,
    else the half that was found."""
    curves = branch.curves
    if not both:
        rank = jnp.where(curves.arrived, 2, jnp.where(curves.started, 1, 0))
        chosen = jnp.argmax(rank)[None]
    elif is_traced(branch) or not curves.started.any():
        return branch
    else:
        chosen = jnp.flatnonzero(curves.started)
    return dataclasses.replace(branch, curves=jax.tree.map(lambda leaf: leaf[chosen], curves))


def _doubled(point: SpecialPoint, unfolding: Unfolding, amplitude: Array | None) -> tuple[Array, Array]:
    """The first point of the branch of doubled orbits by the normal form of the doubling, and the direction in which it leaves.
    `unfolding`: the equations of the doubled orbits."""
    old, form = point.unfolding, FORMS["period-doubling"]
    minus_one = jax.lax.complex(-jnp.ones(1, point.v.dtype), jnp.zeros(1, point.v.dtype))
    found = expansion(old, point.v, point.jacobian, minus_one, form)
    manifold, of = found.manifold.real, dict(zip(form.monomials, found.reduced[:, 0].real, strict=True))
    w, length = manifold[0, :-1], jnp.linalg.norm(manifold[0])
    # Where another multiplier is 1 or -1 the form has no such coefficient: only the direction is known.
    known = jnp.abs(of[3, 0]) < MOST_CUBIC
    cubic = jnp.where(known, of[3, 0], 0)
    manifold = jnp.where(known, manifold, jnp.zeros_like(manifold).at[0].set(manifold[0]))
    # The distance along a family is no parameter of the map.
    rate = jnp.inf if isinstance(old.params, Family) else of[1, 1]
    rate = jnp.where(known, rate, jnp.inf)
    if amplitude is None:
        # The parameter is -c a^2 / rate there, and the critical multiplier of the doubled orbit 1 - 4 c a^2.
        way = jnp.abs(cubic / rate * old.scale[0] / unfolding.scale[0])
        room = jnp.minimum(LIMITS[0] / way, LIMITS[1] / jnp.abs(4 * cubic))
        a = jnp.minimum(LARGEST_DOUBLED / length, jnp.sqrt(room))
    else:
        a = amplitude / length
    shift = -cubic * a**2 / rate
    halves = [
        sum(row * (side * a) ** i * shift**j for (i, j), row in zip(form.monomials, manifold, strict=True))
        for side in (1, -1)
    ]
    before, values = zip(*(old.split(point.v + half) for half in halves), strict=True)
    along = jnp.concatenate([w, -w, jnp.zeros(1, w.dtype)]) / (length * math.sqrt(2))
    return unfolding.join(jnp.concatenate(before), values[0]), along


def crossing_branches(
    branches: Sequence[Branch], *, stop: tuple[float, float], method: PseudoArclength
) -> list[Branch]:
    """The branches that cross the given branches at branch points, or go on where events are swapped, each once."""

    def same(a: SpecialPoint, b: SpecialPoint) -> bool:
        near = lambda x, y, size: x.shape == y.shape and bool(np.max(np.abs(x - y)) < 1e-6 * size)
        # At a swap the first states of both sides may have other events behind them.
        ends = lambda point: [np.asarray(x) for arc in point.orbit.arc_ends for x in arc]
        end = ends(a)[int(np.argmax(np.diff(a.orbit.jump_times, axis=-1, prepend=0).T))]
        return near(a.value, b.value, abs(stop[1] - stop[0])) and any(
            near(end, each, float(a.unfolding.state_scale)) for each in ends(b)
        )

    special = lambda branch: [point for point in branch.special_points if point.kind in ("branch-point", "swap")]
    found, met = [], []
    points = [point for branch in branches for point in special(branch)]
    for point in points:
        if any(same(point, each) for each in met):
            continue
        met.append(point)
        # The branch beyond is one of these if it ends here too.
        if any(same(point, each) and each.orbit.sequence != point.orbit.sequence for each in points):
            continue
        if point.kind == "branch-point" and len(point.kernel) > 2 and computed_once(found_daughters, point) is None:
            continue
        branch = switch_branch(point, stop=stop, method=method, throw=False)
        if branch.curves.started.all():
            found.append(branch)
            met += [each for each in special(branch) if each.kind == "branch-point"]
            # Beyond a swap the branch may come to the next one.
            points += [each for each in special(branch) if each.kind == "swap" and len(found) < MOST_FOUND]
    return found
