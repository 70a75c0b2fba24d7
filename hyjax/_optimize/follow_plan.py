"""Optimal plans over a number: searches from the last optimum, by the program that found the first one.

The first Newton step of such a search is the predictor: the solution of the optimality conditions that are linearized at the last
optimum, for the next number. A step is made by way of its middle, and is halved where one half is much longer than the other. At
a change of the active set the halves of a short step differ too, but its whole becomes short, halving after halving; where it
does not, the optimum ends, and the search went to another one.
"""

from collections.abc import Callable
from typing import cast, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._system.results import RESULTS
from .._system.where import leaf_names
from .interval import ASKED
from .optimized_plan import constraint_rows, OptimizedPlan, searched
from .optimum_branch import ActiveSetChange, OptimumBranch
from .plan_program import PlanProgram

# A step whose halves differ by more than a part of the way, and by more than searches for the same optimum do, is halved, so
# often at most, until its way is shorter by a factor than the longest, and than the one before: half of a way, and a jump that
# is as long as what is left, are two thirds.
BEND, SAME, HALVINGS, SHRUNK, LESS = 0.5, 1e-6, 6, 0.25, 2 / 3
SUCCESSFUL, NOT_FOUND = cast(RESULTS, RESULTS.successful), cast(RESULTS, RESULTS.optimum_not_found)


class PlanPoint(NamedTuple):
    """An optimal plan at a number. `active`: of each inequality whether it holds as an equality anywhere; `way`: how far states
    and inputs moved from the point before."""

    number: float
    gait: OptimizedPlan
    active: np.ndarray
    way: float = 0.0


def next_optimum(
    found: Callable[[float, OptimizedPlan], PlanPoint], spacing: float, at: PlanPoint, target: float
) -> tuple[PlanPoint | None, RESULTS]:
    """The optimum at `target`, or nearer. `found`: of a number and another optimum the optimum that the search from there ends
    at. `spacing`: of the points that are asked for."""
    code, longest, last = NOT_FOUND, at.way, at.way
    for k in range(HALVINGS + 1):
        length = (target - at.number) / 2**k
        # What is left before a target can be halved twice.
        if k and abs(length) < 0.24 * spacing / 2**HALVINGS:
            break
        middle = found(at.number + length / 2, at.gait)
        reached = found(at.number + length if k else target, middle.gait)
        codes = [each.gait.result for each in (middle, reached) if each.gait.result != SUCCESSFUL]
        code = codes[0] if codes else NOT_FOUND
        if not codes:
            way, bend = _way(at, reached), _bend(at, middle, reached)
            if bend <= BEND * way + SAME or way <= min(SHRUNK * longest, LESS * last):
                return reached._replace(way=way), SUCCESSFUL
            longest, last = max(longest, way), way
    return None, code


def _way(one: PlanPoint, other: PlanPoint) -> float:
    """The largest difference of states and inputs, in units of their sizes."""
    return float(np.max(np.abs(_moved(one, other))))


def _bend(start: PlanPoint, middle: PlanPoint, end: PlanPoint) -> float:
    """The largest difference of the two halves of a way."""
    return float(np.max(np.abs(_moved(middle, end) - _moved(start, middle))))


def _moved(one: PlanPoint, other: PlanPoint) -> np.ndarray:
    parts = lambda at: np.concatenate([np.ravel(at.gait.point.states), np.ravel(at.gait.point.inputs)])
    return parts(other) - parts(one)


def _active(gait: OptimizedPlan) -> np.ndarray:
    """For each inequality of `names_of` whether the multiplier is larger than the slack, somewhere along the arc."""
    program, point = gait.program, gait.point
    stages, ending = np.array(point.dual > point.slack), np.array(point.ending_dual > point.ending_slack)
    kinds, own = program.raised.shape[1], constraint_rows(program)
    along = np.any(stages[:, : len(ASKED) * kinds].reshape(len(stages) * len(ASKED), kinds), axis=0)
    shape = sum(program.held.limited), program.held.degree + 1, program.sizes.inputs // (program.held.degree + 1)
    inputs = stages[:, len(ASKED) * kinds :].any(axis=0).reshape(shape)
    rows = _in_order(program, ending[:own], along)
    return np.concatenate([rows, np.any(inputs, axis=1).ravel(), ending[own + 3 :]])


def names_of(gait: OptimizedPlan) -> list[str]:
    """The constraints' inequalities, the limits of the input, and the bounds of parameters."""
    program = gait.program
    leaf = program.held.leaf(program.params)
    name, shape = leaf_names(program.params)[leaf], np.shape(jax.tree.leaves(program.params)[leaf])
    inputs = [f"{name}[{', '.join(map(str, place))}]" if place else name for place in np.ndindex(*shape)]
    limited = [side for side, known in zip(("lower", "upper"), program.held.limited, strict=True) if known]
    bounded = [] if program.unknowns is None else program.unknowns.names
    return [
        *gait.labels[gait.multipliers.size :],
        *(f"{side} limit of {each}" for side in limited for each in inputs),
        *(f"{side} bound of {each}" for side in ("lower", "upper") for each in bounded),
    ]


def _in_order(program: PlanProgram, ending: np.ndarray, along: np.ndarray) -> np.ndarray:
    """The inequalities' rows in the order of the constraints, made of those at the end and those along the arc."""
    whole, places = [np.zeros(0, ending.dtype)], [0, 0]
    for (_, count), is_along in zip(program.counts, program.along, strict=True):
        place = places[is_along]
        whole.append((ending, along)[is_along][place : place + count])
        places[is_along] += count
    return np.concatenate(whole)


def changes_between(before: PlanPoint, after: PlanPoint) -> list[ActiveSetChange]:
    """The changes of the active set between two optima, noted at the latter."""
    rows = zip(names_of(after.gait), before.active, after.active, strict=True)
    return [ActiveSetChange(after.number, name, bool(now)) for name, was, now in rows if was != now]


def follow_plan(
    program: Callable[[PlanProgram, float], PlanProgram],
    gait: OptimizedPlan,
    targets: list[float],
    say: Callable[[float], None],
) -> tuple[list[PlanPoint], list[ActiveSetChange], RESULTS]:
    """The points to the targets, the first of which is the gait's own number, the changes, and why the curve ends. `program`: of
    such a program and a number, the program for it."""
    points, changes = [PlanPoint(targets[0], gait, _active(gait))], []

    def found(number: float, start: OptimizedPlan) -> PlanPoint:
        reached = searched(program(start.program, number), start.point, gait.method, jnp.array(True))
        return PlanPoint(number, reached, _active(reached))

    for target in targets[1:]:
        while points[-1].number != target:
            say(points[-1].number)
            reached, code = next_optimum(found, abs(targets[1] - targets[0]), points[-1], target)
            if reached is None:
                return points, changes, code
            changes += changes_between(points[-1], reached)
            points.append(reached)
    return points, changes, SUCCESSFUL


def plan_branch(name: str, points: list[PlanPoint], changes: list[ActiveSetChange], code: RESULTS) -> OptimumBranch:
    """The branch of the optimal plans, one at least."""
    program = points[0].gait.program
    unknowns, own = program.unknowns, constraint_rows(program)
    vector = lambda gait: np.zeros(0) if unknowns is None else np.asarray(unknowns.vector(gait.params) * unknowns.scale)

    def bound_multipliers(gait):
        if unknowns is None:
            return np.zeros(0)
        low, high = jnp.reshape(gait.point.ending_dual[own + 3 :], (2, -1))
        return np.asarray((low - high) * program.scales.value / unknowns.scale)

    def multipliers(gait):
        along = np.asarray(jnp.sum(gait.arc_multipliers, axis=0))
        return np.concatenate([gait.multipliers, _in_order(program, np.asarray(gait.ending_multipliers), along)])

    labels = tuple(points[0].gait.labels)
    stacked = lambda leaf, *more: jnp.stack([leaf, *more]) if eqx.is_array(leaf) else leaf
    each = lambda of: np.stack([of(at) for at in points])
    return OptimumBranch(
        numbers=each(lambda at: at.number),
        values=each(lambda at: np.asarray(at.gait.value)),
        unknowns=each(lambda at: vector(at.gait)),
        multipliers=each(lambda at: multipliers(at.gait)),
        bound_multipliers=each(lambda at: bound_multipliers(at.gait)),
        active=each(lambda at: at.active[: len(labels) - at.gait.multipliers.size]),
        orbits=None,
        plans=jax.tree.map(stacked, *(at.gait for at in points)),
        changes=tuple(changes),
        result=code,
        name=name,
        names=() if unknowns is None else tuple(unknowns.names),
        labels=labels,
    )
