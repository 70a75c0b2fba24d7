r"""Optimal gaits over a parameter, or over the limit of a constraint, such as the cheapest gait over its speed.

The optimality conditions $\nabla_u L(u, \lambda, q) = 0$, $c_A(u, q) = 0$ with the active constraints $A$ as equalities define a
curve over $q$. It is followed by the tangent and Newton's method. Where an inactive constraint becomes zero, or the multiplier
of an active one, the active set changes, and the curve has a kink: the change is located and the curve followed with the other
set.

Source: Guddat, Guerra Vazquez, Jongen (1990), *Parametric Optimization: Singularities, Pathfollowing and Jumps*, ch. 2-4.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._results.working import working
from .._system.results import RESULTS
from .._system.where import Where
from .family import Expansion, Family, family_of
from .gait_program import Known
from .optimized_gait import OptimizedGait
from .optimum import Active, Optimum
from .optimum_branch import ActiveSetChange, OptimumBranch
from .vertex import exchange

# Newton's method converges quadratically; a step that is halved so often has no optimum at its end.
ITERATIONS, HALVINGS = 12, 6
# The residual of the optimality conditions of a point, in scaled unknowns, and what is zero of a constraint or multiplier
# relative to its size.
ACCEPT, ZERO = 1e-9, 2e-12


def follow_optimum(
    gait: OptimizedGait, *, where: Where | None = None, limit: str | None = None, stop: float, points: int = 40
) -> OptimumBranch:
    r"""Follow an optimal gait over a parameter of the system, or over the limit of a constraint, to the value `stop`.

    **Arguments:** `gait`: an optimum, from `optimize`. `where`: selects one parameter that was not optimized, as
    `lambda p: p.slope`; or `limit`: the name of a constraint with one limit, such as `"speed"`. `stop`: where to end, in the
    parameter's or the constraint's unit. `points`: steps of equal length; more where Newton's method needs them.

    **Returns:** `OptimumBranch`: unknowns, objective, multipliers and orbits at each point, and where the active set changes. By
    second derivatives of the orbit. `result` is `successful` where `stop` was reached; `optimum_not_found` where the optimum
    ends, in a fold or because it is no minimum any more; or the code of the orbit that was not found. Not under `jit`.
    `ValueError` for a gait that was not optimized successfully, for other arguments that do not fit, and where the bounds leave
    nothing to vary.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(
    ...     hj.objectives.period, wheel.system, orbit, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)]
    ... )
    >>> branch = hj.follow_optimum(gait, limit="spectral_radius", stop=0.6, points=6)
    >>> print(branch.result, f"{branch.numbers[-1]:.2f} {branch.values[-1]:.6f}")
    successful 0.60 2.069500

    Source: Guddat, Guerra Vazquez, Jongen (1990), *Parametric Optimization*, ch. 2-4.
    """
    if gait.result != RESULTS.successful:
        raise ValueError("follow_optimum: the gait is no optimum: see its `result`.")
    if points < 1 or not math.isfinite(stop):
        raise ValueError(f"follow_optimum: points={points} must be at least 1, and stop={stop} finite.")
    start = family_of(gait, where, limit).start
    if stop == start:
        raise ValueError(f"follow_optimum: stop={stop} is the value of the gait itself.")
    family = family_of(gait, where, limit, abs(stop - start))
    n, equalities = gait.gradient.size, gait.constraints.size - gait.active.size
    lower, upper = (np.asarray(each)[:n] for each in (gait.gait.unknowns.lower, gait.gait.unknowns.upper))
    bounds = lower, upper
    u = np.asarray(gait.gait.unknowns.vector(gait.params))
    active = Active(np.asarray(gait.active), *gait.gait.unknowns.at_bounds(gait.params))
    curve = _Curve(family, equalities, bounds)
    with working(f"following an optimum over {family.name}") as say:
        optima: list[Optimum] = []
        sets: list[Active] = []
        changes: list[ActiveSetChange] = []
        ended = lambda code: _branch(gait, family, optima, sets, changes, code)
        found = curve.solved(start, u, np.asarray(gait.multipliers), active, family.start_at(gait.orbit))
        if isinstance(found, str):
            return ended(found)
        optima.append(found)
        sets.append(active)
        for target in np.linspace(start, stop, points + 1)[1:]:
            while optima[-1].number != target:
                say(f"{family.name} = {optima[-1].number:.6g}")
                reached = curve.step(optima[-1], active, float(target))
                if isinstance(reached, str):
                    return ended(reached)
                change = curve.change(optima[-1], reached, active)
                if change is None:
                    optima.append(reached)
                    sets.append(active)
                    continue
                kind, k, at = change
                near = abs(stop - start) / points * 1e-6
                if len(changes) > 4 and all(abs(at.number - each.number) < near for each in changes[-4:]):
                    return ended("optimum_not_found")
                enters = not getattr(active, kind)[k]
                other = exchange(at, active, curve.equalities, kind, k) if enters else None
                for side, i in [(kind, k), other] if isinstance(other, tuple) else [(kind, k)]:
                    changes.append(_named(gait, side, i, at, bool(getattr(active, side)[i])))
                    active = active.switched(side, i)
                optima.append(at)
                sets.append(active)
                if isinstance(other, str):
                    return ended(other)
                if other is not None:
                    # The multipliers, whose tangent the next step takes, are those of the new set.
                    reached = curve.solved(at.number, at.u, at.multipliers, active, at.known)
                    if isinstance(reached, str):
                        return ended(reached)
                    optima[-1] = reached
    return ended("successful")


class _Curve(NamedTuple):
    """The curve of optima: Newton's method at a number, steps along the tangent, and changes of the active set."""

    family: Family
    equalities: int
    bounds: tuple[np.ndarray, np.ndarray]

    def system(self, e: Expansion, multipliers: np.ndarray, active: Active) -> tuple[np.ndarray, np.ndarray]:
        """The matrix of the linearized conditions, and which unknowns and rows are held."""
        n, m = e.jacobian.shape[1], e.values.size - 1
        fixed = active.low | active.high
        held = np.concatenate([np.ones(self.equalities, bool), active.rows])
        hessian = e.hessians[0] - np.tensordot(multipliers, e.hessians[1:], 1)
        matrix = np.block([[(hessian + hessian.T) / 2, e.jacobian[1:].T], [e.jacobian[1:], np.zeros((m, m))]])
        free = np.concatenate([~fixed, held])
        return np.where(free[:, None], matrix, np.eye(n + m)), free

    def solved(
        self, number: float, u: np.ndarray, multipliers: np.ndarray, active: Active, known: Known
    ) -> Optimum | str:
        """Newton's method at a number; or the name of the code of its failure."""
        low, high = self.bounds
        n, last = u.size, math.inf
        best: Optimum | None = None
        for _ in range(ITERATIONS):
            u = np.where(active.low, low, np.where(active.high, high, u))
            found = self.family.expansion(u, number, known)
            if isinstance(found, str):
                return found
            e, known = found
            multipliers = np.where(np.concatenate([np.ones(self.equalities, bool), active.rows]), multipliers, 0)
            matrix, free = self.system(e, multipliers, active)
            slope = e.jacobian[0] - multipliers @ e.jacobian[1:]
            residual = np.where(free, np.concatenate([slope, e.values[1:]]), 0)
            # Relative to the functions, whose units are any.
            sizes, weights = (
                np.concatenate([np.repeat(e.sizes[0], n), e.sizes[1:]]),
                multipliers * e.sizes[1:] / e.sizes[0],
            )
            size = float(np.max(np.abs(residual) / sizes, initial=0)) / max(
                1.0, float(np.max(np.abs(weights), initial=0))
            )
            if size < last:
                best, last = (
                    Optimum(number, u, multipliers, np.where(active.low | active.high, slope, 0), e, known),
                    size,
                )
            elif last <= ACCEPT:
                break
            if size <= 1e-14:
                break
            try:
                change = np.linalg.solve(matrix, -residual)
            except np.linalg.LinAlgError:
                break
            u, multipliers = u + change[:n], multipliers - change[n:]
        if best is None or last > ACCEPT or not self.least(best, active):
            return "optimum_not_found"
        return best

    def least(self, at: Optimum, active: Active) -> bool:
        """Whether the Hessian of the Lagrangian is positive definite in the directions that the active set leaves."""
        held = np.concatenate([np.ones(self.equalities, bool), active.rows])
        fixed = np.eye(at.u.size)[active.low | active.high]
        _, sizes, directions = np.linalg.svd(np.concatenate([at.expansion.jacobian[1:][held], fixed]))
        rank = np.count_nonzero(sizes > np.finfo(at.u.dtype).eps ** 0.75 * np.max(sizes, initial=0))
        free = directions[rank:].T
        hessian = at.expansion.hessians[0] - np.tensordot(at.multipliers, at.expansion.hessians[1:], 1)
        return free.shape[1] == 0 or bool(np.all(np.linalg.eigvalsh(free.T @ (hessian + hessian.T) @ free) > 0))

    def step(self, at: Optimum, active: Active, target: float) -> Optimum | str:
        """The optimum at `target`, or nearer where Newton's method does not converge there."""
        e, n = at.expansion, at.u.size
        matrix, free = self.system(e, at.multipliers, active)
        force = np.concatenate([e.mixed[0] - at.multipliers @ e.mixed[1:], e.by_number[1:]])
        try:
            tangent = np.linalg.solve(matrix, -np.where(free, force, 0))
        except np.linalg.LinAlgError:
            return "optimum_not_found"
        found: Optimum | str = "optimum_not_found"
        for k in range(HALVINGS + 1):
            number = target if k == 0 else at.number + (target - at.number) / 2**k
            way = number - at.number
            u, multipliers = at.u + way * tangent[:n], at.multipliers - way * tangent[n:]
            found = self.solved(number, u, multipliers, active, at.known)
            if not isinstance(found, str):
                return found
        return found

    def margins(self, at: Optimum, active: Active) -> dict[tuple[str, int], float]:
        """What must not be negative, relative to the functions: inactive inequalities and distances from bounds, multipliers of
        active ones."""
        whole, parts = at.expansion.sizes[0], at.expansion.sizes[1 + self.equalities :]
        rows, dual = (
            at.expansion.values[1 + self.equalities :] / parts,
            at.multipliers[self.equalities :] * parts / whole,
        )
        own = {("rows", k): float(dual[k] if active.rows[k] else rows[k]) for k in range(rows.size)}
        for kind, bound, sign in (("low", self.bounds[0], 1), ("high", self.bounds[1], -1)):
            for k in np.flatnonzero(np.isfinite(bound)):
                value = sign * at.duals[k] / whole if getattr(active, kind)[k] else sign * (at.u[k] - bound[k])
                other = active.high if kind == "low" else active.low
                if not other[k]:
                    own[(kind, int(k))] = float(value)
        return own

    def change(self, before: Optimum, after: Optimum, active: Active) -> tuple[str, int, Optimum] | None:
        """The first change of the active set between two optima with the same set: what changes, and the optimum there."""
        margins = self.margins(after, active)
        earliest: tuple[str, int, Optimum] | None = None
        for (kind, k), margin in margins.items():
            if margin >= -ZERO:
                continue
            at = self._root(before, after, active, kind, k)
            if at is not None and (
                earliest is None or abs(at.number - before.number) < abs(earliest[2].number - before.number)
            ):
                earliest = kind, k, at
        return earliest

    def _root(self, before: Optimum, after: Optimum, active: Active, kind: str, k: int) -> Optimum | None:
        """The optimum at which a margin is zero, by the secant within a bracket (Illinois)."""
        value = lambda at: self.margins(at, active)[(kind, k)]
        (a, fa), (b, fb) = (before, value(before)), (after, value(after))
        if fa <= 0:
            return before
        for _ in range(60):
            number = (a.number * fb - b.number * fa) / (fb - fa)
            nearer = a if abs(number - a.number) < abs(number - b.number) else b
            share = (number - a.number) / (b.number - a.number)
            middle = self.solved(
                number,
                a.u + share * (b.u - a.u),
                a.multipliers + share * (b.multipliers - a.multipliers),
                active,
                nearer.known,
            )
            if isinstance(middle, str):
                return None
            fm = value(middle)
            if abs(fm) <= ZERO or abs(b.number - a.number) <= 1e-14 * max(1.0, abs(b.number)):
                return middle
            if fm > 0:
                a, fa, fb = middle, fm, fb / 2
            else:
                b, fb, fa = middle, fm, fa / 2
        return None


def _named(gait: OptimizedGait, kind: str, k: int, at: Optimum, was: bool) -> ActiveSetChange:
    equalities = gait.constraints.size - gait.active.size
    name = (
        gait.labels[equalities + k]
        if kind == "rows"
        else f"{'lower' if kind == 'low' else 'upper'} bound of {gait.names[k]}"
    )
    return ActiveSetChange(at.number, name, not was)


def _branch(gait, family: Family, optima: list[Optimum], sets: list[Active], changes, code: str) -> OptimumBranch:
    scale = np.asarray(gait.gait.unknowns.scale)
    stack = lambda rows, width: np.stack(rows) if rows else np.zeros((0, width))
    n, m = gait.gradient.size, gait.constraints.size
    orbits = [at.known.orbit for at in optima]
    return OptimumBranch(
        numbers=np.array([at.number for at in optima]),
        values=np.array([at.expansion.values[0] for at in optima]),
        unknowns=stack([at.u * scale for at in optima], n),
        multipliers=stack([at.multipliers for at in optima], m),
        bound_multipliers=stack([at.duals / scale for at in optima], n),
        active=stack([each.rows for each in sets], gait.active.size).astype(bool),
        orbits=jax.tree.map(lambda *leaves: jnp.stack(leaves), *orbits) if orbits else None,
        changes=tuple(changes),
        result=getattr(RESULTS, code),
        name=family.name,
        names=tuple(gait.names),
        labels=tuple(gait.labels),
    )
