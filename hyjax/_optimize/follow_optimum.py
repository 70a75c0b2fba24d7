r"""Optimal gaits over a parameter, or over the limit of a constraint, such as the cheapest gait over its speed.

The optimality conditions $\nabla_u L(u, \lambda, q) = 0$, $c_A(u, q) = 0$ with the active constraints $A$ as equalities define a
curve over $q$. It is followed by the tangent and Newton's method. Where an inactive constraint becomes zero, or the multiplier
of an active one, the active set changes, and the curve has a kink: the change is located and the curve followed with the other
set.

At a vertex, where as many constraints are active as there are unknowns, a further one $g \ge 0$ that becomes active leaves no
freedom: another one must become inactive. With the gradient $\nabla f = \sum_i \lambda_i a_i$, and that of the new constraint
$\nabla g = \sum_i \mu_i a_i$, the multipliers for a multiplier $\nu \ge 0$ of the new one are $\lambda_i - \nu\mu_i$. As $\nu$
grows, the first of them that reaches zero is that of the inequality that leaves.

Source: Guddat, Guerra Vazquez, Jongen (1990), *Parametric Optimization: Singularities, Pathfollowing and Jumps*, ch. 2-4;
Nocedal, Wright (2006), *Numerical Optimization*, sec. 13.3 (the ratio test of the dual simplex method).
"""

import dataclasses
import functools as ft
import math
from collections.abc import Callable
from typing import cast, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._numerics.eager import long_run
from .._results.failure import raise_failure
from .._results.shown import one_of_batch, require_known
from .._results.working import working
from .._system.results import RESULTS
from .._system.types import require_kind
from .._system.where import leaf_names, one_leaf, Where
from .constraint import Constraint, is_concrete
from .follow_plan import follow_plan, NOT_FOUND, plan_branch, SUCCESSFUL
from .nonlinear_program import ActiveSet, Sample
from .optimized_orbit import OptimizedOrbit
from .optimized_plan import OptimizedPlan
from .optimum_branch import ActiveSetChange, OptimumBranch
from .orbit_program import ExpandedOrbit, OrbitProgram, Unknowns
from .plan_program import PlanProgram

# Newton's method converges quadratically; a step that is halved so often has no optimum at its end.
ITERATIONS, HALVINGS = 12, 6
# The residual of the optimality conditions of a point, in scaled unknowns, and what is zero of a constraint or multiplier
# relative to its size.
ACCEPT, ZERO = 1e-9, 2e-12

# The constraint whose limit varies, and the name of the limit.
LimitName = tuple[int, str]
Program = TypeVar("Program", OrbitProgram, PlanProgram)


def follow_optimum(
    gait: OptimizedOrbit | OptimizedPlan,
    *,
    where: Where | None = None,
    limit: str | None = None,
    stop: float,
    n_points: int = 40,
    throw: bool = True,
) -> OptimumBranch:
    r"""Follow an optimal gait over a parameter of the system, or over the limit of a constraint, to the value `stop`.

    A plan is searched for from the last one by the program and the method that found it, which is not compiled again, and
    belongs to the curve where both halves of a step are alike, or shorter steps go a shorter way.

    **Arguments:** `gait`: an optimum, from `optimize`, of an orbit or a plan. `where`: selects one parameter that was not
    optimized, as `lambda p: p.slope`; or `limit`: the name of a constraint with one limit, such as `"speed"`. `stop`: where to
    end, in the parameter's or the constraint's unit. `n_points`: steps of equal length; more where the search needs them.
    `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.

    **Returns:** `OptimumBranch`: unknowns, objective, multipliers and orbits or plans at each point, and where the active set
    changes, of plans up to a step. By second derivatives of the orbit. `result` is `successful` where `stop` was reached;
    `optimum_not_found` where the optimum ends, in a fold or because it is no minimum any more; or the code of the orbit or plan
    that was not found. Not under `jit`. `ValueError` for a gait that was not optimized successfully, for other arguments that do
    not fit, and where the bounds leave nothing to vary.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(orbit, hj.objectives.period, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)])
    >>> branch = hj.follow_optimum(gait, limit="spectral_radius", stop=0.6, n_points=6)
    >>> print(branch.result, f"{branch.numbers[-1]:.2f} {branch.values[-1]:.6f}")
    successful 0.60 2.069500

    Source: Guddat, Guerra Vazquez, Jongen (1990), *Parametric Optimization*, ch. 2-4.
    """
    require_known("follow_optimum", gait, stop, remedy="Call it outside.")
    require_kind(
        gait, OptimizedOrbit | OptimizedPlan, "follow_optimum", "the first argument", "what hj.optimize returns"
    )
    one_of_batch("follow_optimum", gait.value, "gaits")
    if gait.result != RESULTS.successful:
        raise ValueError("follow_optimum: the gait is no optimum: see its `result`.")
    if n_points < 1 or not math.isfinite(stop):
        raise ValueError(f"follow_optimum: n_points={n_points} must be at least 1, and stop={stop} finite.")
    name, start, place = followed_number(gait, where, limit)
    if stop == start:
        raise ValueError(f"follow_optimum: stop={stop} is the value of the gait itself.")
    targets = [float(target) for target in np.linspace(start, stop, n_points + 1)]
    if isinstance(gait, OptimizedPlan):
        return _followed_plan(gait, name, place, targets, throw)
    program, limited = parametric_program(gait, place, abs(stop - start))
    n, unknowns = gait.gradient.size, gait.program.unknowns
    bounds = np.asarray(unknowns.lower)[:n], np.asarray(unknowns.upper)[:n]
    curve = OptimumCurve(ft.partial(expanded, program, limited), gait.constraints.size - gait.active.size, bounds)
    active = ActiveSet(np.asarray(gait.active), *unknowns.at_bounds(gait.params))
    optima: list[Optimum] = []
    changes: list[ActiveSetChange] = []

    ended = lambda code: _ended(_branch(gait, program.unknowns, name, optima, changes, code), throw)

    with working(f"following an optimum over {name}") as say:
        u, orbit = np.asarray(unknowns.vector(gait.params)), program.expanded(gait.orbit)
        found, code = curve.solved(start, u, np.asarray(gait.multipliers), active, orbit)
        if found is None:
            return ended(code)
        optima.append(found)
        for target in targets[1:]:
            while optima[-1].number != target:
                say(f"{name} = {optima[-1].number:.6g}")
                reached, code = curve.step(optima[-1], target)
                if reached is None:
                    return ended(code)
                change = curve.change(optima[-1], reached)
                if change is None:
                    optima.append(reached)
                    continue
                kind, k, at = change
                near = abs(stop - start) / n_points * 1e-6
                if len(changes) > 4 and all(abs(at.number - each.number) < near for each in changes[-4:]):
                    return ended(NOT_FOUND)
                enters = not getattr(at.active, kind)[k]
                other, code = exchange(at, curve.equalities, kind, k) if enters else (None, SUCCESSFUL)
                for side, i in ((kind, k),) if other is None else ((kind, k), other):
                    at = at._replace(active=switched(at.active, side, i))
                    changes.append(_named_change(gait, at, side, i))
                optima.append(at)
                if code != RESULTS.successful:
                    return ended(code)
                if other is not None:
                    # The multipliers, whose tangent the next step takes, are those of the new set.
                    reached, code = curve.solved(at.number, at.u, at.multipliers, at.active, at.known)
                    if reached is None:
                        return ended(code)
                    optima[-1] = reached
    return ended(SUCCESSFUL)


def _followed_plan(
    gait: OptimizedPlan, name: str, place: LimitName | int, targets: list[float], throw: bool
) -> OptimumBranch:
    """`follow_optimum` of a plan to the `targets`, the first of which is its own number. `place`: the constraint whose limit
    varies, or the leaf of the parameter."""
    at = lambda program, number: (
        program.with_parameter(place, number) if isinstance(place, int) else _with_limit(program, place, number)
    )
    with working(f"following an optimum over {name}") as say:
        reached, changes, code = follow_plan(at, gait, targets, lambda number: say(f"{name} = {number:.6g}"))
    return _ended(plan_branch(name, reached, changes, code), throw)


def _ended(found: OptimumBranch, throw: bool) -> OptimumBranch:
    remedy = (
        f"The attribute `result` of this error has the {len(found)} points before, as has the call with throw=False."
    )
    return raise_failure("follow_optimum", found, remedy=remedy) if throw else found


class ProgramExpansion(NamedTuple):
    """Objective and constraints at a point, with derivatives by the scaled unknowns `u` and by the number `q`.

    **Attributes:** `values`: shape `(1 + m,)`. `jacobian`: `(1 + m, n)`. `hessians`: `(1 + m, n, n)`. `by_number`: `(1 + m,)`.
    `mixed`: derivatives of the Jacobian by the number, `(1 + m, n)`.
    """

    values: np.ndarray
    jacobian: np.ndarray
    hessians: np.ndarray
    by_number: np.ndarray
    mixed: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """By how much each function changes over the range of the unknowns, which is of the order of 1: its gradient or its
        curvature, whichever is larger; 1 of a constant. Shape `(1 + m,)`."""
        found = np.maximum(np.max(np.abs(self.jacobian), axis=1), np.max(np.abs(self.hessians), axis=(1, 2)))
        return np.where(found > 0, found, 1)

    def hessian(self, multipliers: np.ndarray) -> np.ndarray:
        """The Hessian of the Lagrangian."""
        whole = self.hessians[0] - np.tensordot(multipliers, self.hessians[1:], 1)
        return (whole + whole.T) / 2


def expanded(
    program: OrbitProgram, limited: LimitName | None, u: np.ndarray, number: float, at: ExpandedOrbit
) -> tuple[ProgramExpansion | None, ExpandedOrbit, RESULTS]:
    """The functions and derivatives at a point, and the orbit, from the last one; or the code of an orbit that was not found.
    The number is a parameter, the last unknown of the `program`, or the limit `limited`."""
    point, by_limit = jnp.asarray(u), None
    if limited is None:
        point = jnp.append(point, number / program.unknowns.scale[-1])
    else:
        program, by_limit = _with_limit(program, limited, number), _by_limit(program, limited)
    sample = _evaluate(program, point, at)
    if not bool(sample.sound):
        return None, at, sample.code
    values, jacobian, hessians = (np.asarray(each) for each in (sample.values, sample.jacobian, sample.hessians))
    if by_limit is not None:
        return ProgramExpansion(values, jacobian, hessians, by_limit, np.zeros_like(jacobian)), sample.carry, SUCCESSFUL
    scale = float(program.unknowns.scale[-1])
    by_number, mixed = jacobian[:, -1] / scale, hessians[:, :-1, -1] / scale
    return ProgramExpansion(values, jacobian[:, :-1], hessians[:, :-1, :-1], by_number, mixed), sample.carry, SUCCESSFUL


@long_run
def _evaluate(program: OrbitProgram, u, at: ExpandedOrbit) -> Sample:
    return program(u, at)


def followed_number(
    gait: OptimizedOrbit | OptimizedPlan, where: Where | None, limit: str | None
) -> tuple[str, float, LimitName | int]:
    """The name and the first value of the number, and the limit or the leaf that it is. `ValueError` unless one of both is
    given, a leaf that is not optimized."""
    if (where is None) == (limit is None):
        raise ValueError(
            "follow_optimum: give either `where`, a parameter of the system, or `limit`, the name of a constraint whose limit "
            "varies."
        )
    constraints, unknowns = gait.program.constraints, gait.program.unknowns
    if limit is not None:
        index, field = _constraint(constraints, limit)
        return limit, float(getattr(constraints[index], field)), (index, field)
    assert where is not None
    leaf = one_leaf(where, gait.params, "follow_optimum")
    name, free = leaf_names(gait.params)[leaf], () if unknowns is None else unknowns.free
    if leaf in free or (isinstance(gait, OptimizedPlan) and leaf == gait.plan.held.leaf(gait.params)):
        raise ValueError(f"follow_optimum: {name} is itself optimized. Choose a parameter that is not.")
    return name, float(jax.tree.leaves(gait.params)[leaf]), leaf


def parametric_program(
    gait: OptimizedOrbit, place: LimitName | int, size: float
) -> tuple[OrbitProgram, LimitName | None]:
    """The program, with a parameter of that size as its last unknown; or the limit."""
    program = dataclasses.replace(gait.program, second_order=True)
    if not isinstance(place, int):
        return program, place
    unknowns = program.unknowns
    append = lambda array, value: jnp.append(array, jnp.asarray(value, array.dtype))
    unknowns = Unknowns(
        gait.params, (*unknowns.free, place), append(unknowns.scale, size), append(unknowns.lower, -np.inf),
        append(unknowns.upper, np.inf),
    )  # fmt: skip
    return dataclasses.replace(program, unknowns=unknowns), None


def _constraint(constraints: tuple[Constraint, ...], name: str) -> LimitName:
    """The number of the constraint of that name, and which of its limits varies."""
    found = [k for k, each in enumerate(constraints) if each.name == name]
    if len(found) != 1:
        names = [each.name for each in constraints]
        raise ValueError(f"follow_optimum: limit={name!r} must name one of the constraints, which are {names}.")
    limits = {field: getattr(constraints[found[0]], field) for field in ("equals", "at_least", "at_most")}
    given = [field for field, limit in limits.items() if limit is not None]
    if len(given) != 1 or not is_concrete(limits[given[0]]):
        raise ValueError(f"follow_optimum: the constraint {name!r} must have one limit, not {given}.")
    if np.ndim(limits[given[0]]):
        raise ValueError(f"follow_optimum: the limit of the constraint {name!r} must be one number.")
    return found[0], given[0]


def _with_limit(program: Program, place: LimitName, number: float) -> Program:
    """The program with the number as that limit."""
    limit = lambda program: getattr(program.constraints[place[0]], place[1])
    return eqx.tree_at(limit, program, jnp.asarray(number, limit(program).dtype))


def _by_limit(program: OrbitProgram, place: LimitName) -> np.ndarray:
    """Derivatives of the objective and the constraints' rows by a limit: -1 in its rows, +1 for `at_most`."""
    index, field = place
    rows = [np.zeros(1)]
    for kind in range(2):
        for k, sizes in enumerate(program.rows):
            mine = k == index and (kind == 0) == (field == "equals")
            rows.append(np.full(sizes[kind], (1.0 if field == "at_most" else -1.0) if mine else 0.0))
    return np.concatenate(rows)


class Optimum(NamedTuple):
    """A point that fulfils the optimality conditions with an active set. `duals`: of the bounds, positive at a lower one."""

    number: float
    u: np.ndarray
    multipliers: np.ndarray
    duals: np.ndarray
    expansion: ProgramExpansion
    known: ExpandedOrbit
    active: ActiveSet


class OptimumCurve(NamedTuple):
    """The curve of optima: Newton's method at a number, steps along the tangent, and changes of the active set.

    **Attributes:** `expansion`: `(u, number, known) -> (expansion, known, code)`, as `expanded`. `equalities`: the number of
    them. `bounds`: of the unknowns.
    """

    expansion: Callable[[np.ndarray, float, ExpandedOrbit], tuple[ProgramExpansion | None, ExpandedOrbit, RESULTS]]
    equalities: int
    bounds: tuple[np.ndarray, np.ndarray]

    def held(self, active: ActiveSet) -> np.ndarray:
        """Which constraints are equalities."""
        return np.concatenate([np.ones(self.equalities, bool), active.inequalities])

    def system(self, e: ProgramExpansion, multipliers: np.ndarray, active: ActiveSet) -> tuple[np.ndarray, np.ndarray]:
        """The matrix of the linearized conditions, and which unknowns and rows are held."""
        n, m = e.jacobian.shape[1], e.values.size - 1
        matrix = np.block([[e.hessian(multipliers), e.jacobian[1:].T], [e.jacobian[1:], np.zeros((m, m))]])
        free = np.concatenate([~(active.low | active.high), self.held(active)])
        return np.where(free[:, None], matrix, np.eye(n + m)), free

    def solved(
        self, number: float, u: np.ndarray, multipliers: np.ndarray, active: ActiveSet, known: ExpandedOrbit
    ) -> tuple[Optimum | None, RESULTS]:
        """The optimum at a number, by Newton's method, or the code of its failure."""
        low, high = self.bounds
        n, last = u.size, math.inf
        best: Optimum | None = None
        for _ in range(ITERATIONS):
            u = np.where(active.low, low, np.where(active.high, high, u))
            e, known, code = self.expansion(u, number, known)
            if e is None:
                return None, code
            multipliers = np.where(self.held(active), multipliers, 0)
            matrix, free = self.system(e, multipliers, active)
            slope = e.jacobian[0] - multipliers @ e.jacobian[1:]
            residual = np.where(free, np.concatenate([slope, e.values[1:]]), 0)
            # Relative to the functions, whose units are any.
            sizes = np.concatenate([np.repeat(e.sizes[0], n), e.sizes[1:]])
            weight = np.max(np.abs(multipliers * e.sizes[1:] / e.sizes[0]), initial=0)
            size = float(np.max(np.abs(residual) / sizes, initial=0)) / max(1.0, float(weight))
            if size < last:
                duals = np.where(active.low | active.high, slope, 0)
                best, last = Optimum(number, u, multipliers, duals, e, known, active), size
            elif last <= ACCEPT:
                break
            if size <= 1e-14:
                break
            try:
                change = np.linalg.solve(matrix, -residual)
            except np.linalg.LinAlgError:
                break
            u, multipliers = u + change[:n], multipliers - change[n:]
        if best is None or last > ACCEPT or not self.least(best):
            return None, NOT_FOUND
        return best, SUCCESSFUL

    def least(self, at: Optimum) -> bool:
        """Whether the Hessian of the Lagrangian is positive definite in the directions that the active set leaves."""
        fixed = np.eye(at.u.size)[at.active.low | at.active.high]
        normals = np.concatenate([at.expansion.jacobian[1:][self.held(at.active)], fixed])
        _, sizes, directions = np.linalg.svd(normals)
        rank = np.count_nonzero(sizes > np.finfo(at.u.dtype).eps ** 0.75 * np.max(sizes, initial=0))
        free = directions[rank:].T
        hessian = free.T @ at.expansion.hessian(at.multipliers) @ free
        return free.shape[1] == 0 or bool(np.all(np.linalg.eigvalsh(hessian) > 0))

    def step(self, at: Optimum, target: float) -> tuple[Optimum | None, RESULTS]:
        """The optimum at `target`, or nearer where Newton's method does not converge there."""
        e, n = at.expansion, at.u.size
        matrix, free = self.system(e, at.multipliers, at.active)
        force = np.concatenate([e.mixed[0] - at.multipliers @ e.mixed[1:], e.by_number[1:]])
        try:
            tangent = np.linalg.solve(matrix, -np.where(free, force, 0))
        except np.linalg.LinAlgError:
            return None, NOT_FOUND
        found, code = None, NOT_FOUND
        for k in range(HALVINGS + 1):
            number = target if k == 0 else at.number + (target - at.number) / 2**k
            way = number - at.number
            u, multipliers = at.u + way * tangent[:n], at.multipliers - way * tangent[n:]
            found, code = self.solved(number, u, multipliers, at.active, at.known)
            if found is not None:
                break
        return found, code

    def margins(self, at: Optimum) -> dict[tuple[str, int], float]:
        """The numbers that must not be negative, relative to the functions: inactive inequalities and distances from bounds,
        multipliers of active ones."""
        active, whole, parts = at.active, at.expansion.sizes[0], at.expansion.sizes[1 + self.equalities :]
        rows = at.expansion.values[1 + self.equalities :] / parts
        dual = at.multipliers[self.equalities :] * parts / whole
        own = {("inequalities", k): float(dual[k] if active.inequalities[k] else rows[k]) for k in range(rows.size)}
        for kind, bound, sign in (("low", self.bounds[0], 1), ("high", self.bounds[1], -1)):
            for k in np.flatnonzero(np.isfinite(bound)):
                value = sign * at.duals[k] / whole if getattr(active, kind)[k] else sign * (at.u[k] - bound[k])
                other = active.high if kind == "low" else active.low
                if not other[k]:
                    own[(kind, int(k))] = float(value)
        return own

    def change(self, before: Optimum, after: Optimum) -> tuple[str, int, Optimum] | None:
        """The first change of the active set between two optima with the same set: what changes, and the optimum there."""
        passed = [place for place, margin in self.margins(after).items() if margin < -ZERO]
        found = [(*place, self._root(before, after, place)) for place in passed]
        found = [(kind, k, at) for kind, k, at in found if at is not None]
        return min(found, key=lambda change: abs(change[2].number - before.number), default=None)

    def _root(self, before: Optimum, after: Optimum, place: tuple[str, int]) -> Optimum | None:
        """The optimum at which a margin is zero, by the secant within a bracket (Illinois)."""
        value = lambda at: self.margins(at)[place]
        (a, fa), (b, fb) = (before, value(before)), (after, value(after))
        if fa <= 0:
            return before
        for _ in range(60):
            number = (a.number * fb - b.number * fa) / (fb - fa)
            nearer = a if abs(number - a.number) < abs(number - b.number) else b
            share = (number - a.number) / (b.number - a.number)
            u, multipliers = a.u + share * (b.u - a.u), a.multipliers + share * (b.multipliers - a.multipliers)
            middle, _ = self.solved(number, u, multipliers, before.active, nearer.known)
            if middle is None:
                return None
            fm = value(middle)
            if abs(fm) <= ZERO or abs(b.number - a.number) <= 1e-14 * max(1.0, abs(b.number)):
                return middle
            if fm > 0:
                a, fa, fb = middle, fm, fb / 2
            else:
                b, fb, fa = middle, fm, fa / 2
        return None


def leaving(
    normals: Float[np.ndarray, "k n"],
    multipliers: Float[np.ndarray, " k"],
    equalities: int,
    entering: Float[np.ndarray, " n"],
) -> int | None:
    """Which active constraint becomes inactive when another enters; -1 where there is freedom left, and none has to.

    **Arguments:** `normals`: gradients of the active constraints, independent, the `equalities` first. `multipliers`: theirs.
    `entering`: the gradient of the new one.

    **Returns:** its number; `None` where the constraints contradict each other beyond this point.
    """
    shares, *_ = np.linalg.lstsq(normals.T, entering, rcond=None)
    small = np.sqrt(np.finfo(normals.dtype).eps) * np.linalg.norm(entering)
    if np.linalg.norm(normals.T @ shares - entering) > small:
        return -1
    candidates = [k for k in range(equalities, len(shares)) if shares[k] > small]
    return min(candidates, key=lambda k: multipliers[k] / shares[k], default=None)


def switched(active: ActiveSet, kind: str, k: int) -> ActiveSet:
    """The active set with the other state of one inequality (`inequalities`) or bound (`low`, `high`)."""
    own = getattr(active, kind).copy()
    own[k] = ~own[k]
    return active._replace(**{kind: own})


def exchange(at: Optimum, equalities: int, kind: str, k: int) -> tuple[tuple[str, int] | None, RESULTS]:
    """The constraint that becomes inactive when an inequality (`inequalities`) or bound (`low`, `high`) becomes active;
    `None` where nothing has to, or, with the code `infeasible`, where nothing can."""
    n = at.u.size
    rows, sides = at.expansion.jacobian[1:], {"low": np.eye(n), "high": -np.eye(n)}
    held = [(side, int(i)) for side in at.active._fields for i in np.flatnonzero(getattr(at.active, side))]
    normal = lambda side, i: rows[equalities + i] if side == "inequalities" else sides[side][i]
    dual = lambda side, i: at.multipliers[equalities + i] if side == "inequalities" else sides[side][i, i] * at.duals[i]
    normals = np.concatenate([rows[:equalities], np.reshape([normal(*each) for each in held], (len(held), n))])
    multipliers = np.array([*at.multipliers[:equalities], *(dual(*each) for each in held)])
    out = leaving(normals, multipliers, equalities, normal(kind, k))
    if out is None:
        return None, cast(RESULTS, RESULTS.infeasible)
    return None if out < 0 else held[out - equalities], SUCCESSFUL


def _named_change(gait: OptimizedOrbit, at: Optimum, kind: str, k: int) -> ActiveSetChange:
    label = gait.labels[gait.constraints.size - gait.active.size + k] if kind == "inequalities" else ""
    name = label or f"{'lower' if kind == 'low' else 'upper'} bound of {gait.names[k]}"
    return ActiveSetChange(at.number, name, bool(getattr(at.active, kind)[k]))


def _branch(
    gait: OptimizedOrbit, unknowns: Unknowns, name: str, optima: list[Optimum], changes, code: RESULTS
) -> OptimumBranch:
    scale = np.asarray(gait.program.unknowns.scale)
    stack = lambda rows, width: np.stack(rows) if rows else np.zeros((0, width))
    n, m = gait.gradient.size, gait.constraints.size
    orbits = [at.known.with_params(unknowns) for at in optima]
    # Texts and functions among the parameters are no arrays.
    joined = lambda *leaves: jnp.stack(leaves) if eqx.is_array_like(leaves[0]) else leaves[0]
    return OptimumBranch(
        numbers=np.array([at.number for at in optima]),
        values=np.array([at.expansion.values[0] for at in optima]),
        unknowns=stack([at.u * scale for at in optima], n),
        multipliers=stack([at.multipliers for at in optima], m),
        bound_multipliers=stack([at.duals / scale for at in optima], n),
        active=stack([at.active.inequalities for at in optima], gait.active.size).astype(bool),
        orbits=jax.tree.map(joined, *orbits) if orbits else None,
        changes=tuple(changes),
        result=code,
        name=name,
        names=tuple(gait.names),
        labels=tuple(gait.labels),
    )
