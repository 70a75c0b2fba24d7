r"""The nonlinear program of a gait: objective and constraints as functions of the parameters alone, through the periodic orbit.

The orbit solves its own equation at each evaluation, from a guess by the Taylor polynomial of the last orbit in the unknowns, and
its derivatives are those of the implicit function theorem. A gait is lost where no orbit is found near that guess, or where the
Taylor polynomial of the orbit found does not lead back to the last one: behind a fold it belongs to another gait. Both must be
more exact where the sign of $\det(I - D_xS)$ has changed, which differs between two gaits that are neighbours. Two gaits of the
same sign may be neighbours too: the way from one orbit to the next must have the mean of the slopes at its ends.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.integrator import Integrators, limits_of
from .._numerics.elimination import det
from .._numerics.trees import library_of, select, without_tangents
from .._orbit.orbit import PeriodicOrbit, run_orbit
from .._orbit.problem import Problem
from .._orbit.shooting import AbstractShooting, MultipleShooting, SearchLimits
from .._results.failure import codes_only
from .._system.results import choose, RESULTS
from .._system.types import Flag, Params, require_kind, Scalar
from .._system.where import leaf_names, selected_leaves, Where, with_leaves
from .constraint import Constraint, Objective
from .nonlinear_program import Sample, sampled

# The largest distance of an orbit from its guess: a fraction of the distance that the guess moved, between these limits relative
# to the state.
FRACTION, LEAST, MOST = 0.5, 0.02, 0.3
# The same fraction where the sign of det(I - A) has changed, A the return Jacobian: either the gait lost or won stability at a
# multiplier of 1, or this is another gait near it.
STRICT = 0.05
# A trial orbit is sought for so many iterations and in strides so many times as long as the last orbit's, because all lanes of a
# batch wait for a trial whose gait is lost.
ITERATIONS, LONGER = 10, 3.0
# For each leaf that `where` selects, `(low, high)` or `None`; either end may be None. One pair for one leaf.
Bounds = Sequence | None


class Unknowns(eqx.Module):
    """The leaves `free` of `params` as a vector `u`: each number divided by its `scale`.

    The scale is the width of the bounds; without two bounds the number itself, and 1 for zero.
    """

    params: Params
    free: tuple[int, ...] = eqx.field(static=True)
    scale: Float[Array, " n"]
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]

    def vector(self, params: Params) -> Float[Array, " n"]:
        """The scaled vector of the parameters."""
        values = _numbers(params, self.free, self.scale.dtype)
        return jnp.asarray(values / library_of(values, self.scale).asarray(self.scale))

    def at_bounds(self, params: Params) -> tuple[np.ndarray, np.ndarray]:
        """Which unknowns of the parameters are at their lower and at their upper bounds, up to the rounding of the scale."""
        u, lower, upper = (np.asarray(each) for each in (self.vector(params), self.lower, self.upper))
        rounding = 4 * np.finfo(u.dtype).eps * np.maximum(1, np.abs(u))
        return u <= lower + rounding, u >= upper - rounding

    def params_at(self, u: Float[Array, " n"]) -> Params:
        """The parameters with the unknowns `u`."""
        shapes = [jnp.shape(jax.tree.leaves(self.params)[i]) for i in self.free]
        places, values = itertools.accumulate(map(math.prod, shapes), initial=0), u * self.scale
        parts = [values[i:j].reshape(shape) for (i, j), shape in zip(itertools.pairwise(places), shapes, strict=True)]
        return with_leaves(self.params, self.free, parts)

    @property
    def names(self) -> list[str]:
        """The name of each unknown; numbers of an array leaf are counted from 0."""
        leaves, names = jax.tree.leaves(self.params), leaf_names(self.params)
        return [
            names[i] if np.ndim(leaves[i]) == 0 else f"{names[i]}[{', '.join(map(str, index))}]"
            for i in self.free
            for index in np.ndindex(*np.shape(leaves[i]))
        ]


def unknowns_of(where: Where, params: Params, bounds: Bounds, dtype, caller: str = "optimize") -> Unknowns:
    """The unknowns that `where` selects. `ValueError` for bounds of another number, or that leave no room."""
    leaves = jax.tree.leaves(params)
    # A controller may have functions among its leaves.
    free = tuple(i for i in selected_leaves(where, params) if eqx.is_array_like(leaves[i]))
    names = leaf_names(params)
    pairs = pairs_of(bounds, len(free), caller, "bounds")
    lower, upper = [], []
    for i, pair in zip(free, pairs, strict=True):
        low, high = (-math.inf, math.inf) if pair is None else pair
        low, high = -math.inf if low is None else low, math.inf if high is None else high
        try:
            low, high = (np.broadcast_to(np.asarray(each, float), np.shape(leaves[i])) for each in (low, high))
        except ValueError:
            raise ValueError(
                f"{caller}: the bounds {pair} of {names[i]} must be numbers, or have its shape {np.shape(leaves[i])}."
            ) from None
        except jax.errors.TracerArrayConversionError:
            raise ValueError(f"{caller}: the bounds of {names[i]} are traced. Give numbers that are known.") from None
        if np.any(np.isnan(low)) or np.any(np.isnan(high)) or not np.all(low < high):
            raise ValueError(f"{caller}: the bounds {pair} of {names[i]} must be (low, high) with low < high.")
        lower.append(low.ravel())
        upper.append(high.ravel())
    low, high = np.concatenate(lower), np.concatenate(upper)
    values = without_tangents(_numbers(params, free, dtype))
    xp, finite = library_of(values), np.isfinite(high - low)
    width = np.where(finite, high - low, 1).astype(dtype)
    scale = xp.where(finite, width, xp.where(values == 0, 1, xp.abs(values)))
    return Unknowns(
        params, free, *(jnp.asarray(each) for each in (scale, low.astype(dtype) / scale, high.astype(dtype) / scale))
    )


def _numbers(params: Params, free: Sequence[int], dtype) -> Array | np.ndarray:
    """The numbers of the leaves of indices `free`, one after the other."""
    leaves = jax.tree.leaves(params)
    chosen = [leaves[i] for i in free]
    xp = library_of(*chosen)
    return xp.concatenate([xp.ravel(xp.asarray(each, dtype)) for each in chosen])


def pairs_of(pairs: Bounds, count: int, caller: str, name: str) -> list:
    """A pair or `None` for each parameter; for one parameter the pair alone will do. `ValueError` for another number."""
    if pairs is None:
        return [None] * count
    require_kind(pairs, Iterable, caller, name, "a pair of numbers, or a list of pairs")
    given = list(pairs)
    number = lambda each: each is None or not (isinstance(each, tuple | list) or np.ndim(each))
    pair = len(given) == 2 and all(map(number, given))
    if count == 1 and pair and given != [None, None]:
        given = [tuple(given)]
    # The ends of a pair may have unlike shapes.
    length = lambda each: len(each) if isinstance(each, tuple | list) else next(iter(np.shape(each)), None)
    if len(given) != count or not all(each is None or length(each) == 2 for each in given):
        raise ValueError(
            f"{caller}: {name}={pairs} must hold a pair, or None, for each of the {count} parameters that are selected, in their "
            "order."
        )
    return given


class ExpandedOrbit(eqx.Module):
    """The last orbit: its start, or the starts of its strides, and their derivatives by the unknowns `u`. The orbit is without
    its parameters, which are those at `u`: what is no array among them does not pass through a search."""

    u: Float[Array, " n"]
    start: Float[Array, "..."]
    slope: Float[Array, "states n"]
    bend: Float[Array, "states n n"] | None
    side: Scalar
    orbit: PeriodicOrbit

    def with_params(self, unknowns: Unknowns) -> PeriodicOrbit:
        """The orbit with its parameters."""
        return dataclasses.replace(self.orbit, params=unknowns.params_at(self.u))

    def guess(self, u: Float[Array, " n"]) -> Float[Array, "..."]:
        """The Taylor polynomial of the start."""
        step = u - self.u
        moved = self.slope @ step if self.bend is None else self.slope @ step + (self.bend @ step) @ step / 2
        return self.start + moved.reshape(self.start.shape)


def side_of(orbit: PeriodicOrbit) -> Scalar:
    """The sign of $\\det(I - A)$, which changes where a multiplier passes 1."""
    return jnp.sign(det(jnp.eye(orbit.x.size, dtype=orbit.x.dtype) - orbit.return_jacobian))


def joined(old: ExpandedOrbit, new: ExpandedOrbit) -> Flag:
    """Whether two orbits may be of one gait, whose start is a smooth function of `u`: the step `d` from one start to the other
    has the mean of the slopes at its ends.

    For a smooth function `d - (slope_0 + slope_1) @ du / 2` is of third order in `du`, the change of the slope `bend` of second,
    and for another gait, however near, the former does not tend to zero. Hazard: gaits of the same sign of
    $\\det(I - A)$ may be nearer to one another than any fixed limit (two stable hops of a hopper differ by 0.2 %).
    """
    moves = jnp.stack([old.slope @ (new.u - old.u), new.slope @ (new.u - old.u)])
    step = (new.start - old.start).ravel()
    norm = lambda x: jnp.sqrt(jnp.sum(x**2, axis=-1))
    bend, length, size = norm(moves[1] - moves[0]), jnp.max(norm(moves)), norm(old.start.ravel())
    rounding = jnp.finfo(step.dtype).eps ** (2 / 3) * jnp.maximum(size, norm(old.orbit.before.ravel()))
    return norm(step - jnp.mean(moves, axis=0)) <= 0.03 * length + bend / 4 + rounding


class OrbitProgram(eqx.Module):
    """`(u, known) -> Sample`, for `NonlinearProgram.evaluate`. `rows`: the numbers of equalities and inequalities of each
    constraint."""

    objective: Objective
    constraints: tuple[Constraint, ...]
    unknowns: Unknowns
    shooting: AbstractShooting
    integrator: Integrators
    system: Any = eqx.field(static=True)
    sequence: tuple[str, ...] = eqx.field(static=True)
    strides: int = eqx.field(static=True)
    second_order: bool = eqx.field(static=True)
    rows: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def values(self, orbit: PeriodicOrbit) -> Float[Array, " functions"]:
        """Objective, equalities and inequalities of an orbit."""
        with codes_only():
            value = self.objective(orbit, orbit.params)
            rows = [jnp.reshape(jnp.asarray(value, orbit.x.dtype), (1,))]
            rows += [each.equalities(orbit, orbit.params) for each in self.constraints]
            rows += [each.inequalities(orbit, orbit.params) for each in self.constraints]
        return jnp.concatenate(rows)

    def start_of(self, orbit: PeriodicOrbit) -> Array:
        return orbit.nodes if isinstance(self.shooting, MultipleShooting) else orbit.x

    def expanded(self, orbit: PeriodicOrbit) -> ExpandedOrbit:
        """The expansion of an orbit before its first evaluation: the orbit alone, without derivatives."""
        start, n = self.start_of(orbit), self.unknowns.scale.size
        slope = jnp.zeros((start.size, n), start.dtype)
        bend = jnp.zeros((start.size, n, n), start.dtype) if self.second_order else None
        u = self.unknowns.vector(orbit.params)
        # The orbits to come have this program's integrator.
        orbit = dataclasses.replace(orbit, integrator=self.integrator, params=None)
        return ExpandedOrbit(u, start, slope, bend, side_of(orbit), orbit)

    def __call__(self, u: Float[Array, " n"], known: ExpandedOrbit) -> Sample:
        guess = known.guess(u)
        # Of states on the way too: an orbit that starts at the origin, as of a plant at rest, has no size there.
        size = jnp.maximum(jnp.max(jnp.abs(known.start)), jnp.max(jnp.abs(known.orbit.before)))
        rtol, atol = self.integrator.tolerances(size.dtype)
        size = jnp.maximum(size, atol / rtol * jnp.finfo(size.dtype).eps ** 0.5)
        moved = jnp.max(jnp.abs(guess - known.start)) / size
        near = jnp.clip(FRACTION * moved, LEAST, MOST)
        longest = LONGER * known.orbit.period
        parts = [(*each[:3], jnp.minimum(each[3], longest)) for each in limits_of(self.integrator, guess.dtype)]
        limits = SearchLimits(tuple(parts), min(ITERATIONS, self.shooting.max_iterations), 0.0)

        def fn(u):
            params = self.unknowns.params_at(u)
            problem = Problem(self.system, self.sequence, self.strides)
            orbit, _ = run_orbit(problem, guess, params, self.shooting, self.integrator, limits=limits)
            start = self.start_of(orbit)
            values = jnp.concatenate([self.values(orbit), start.ravel()])
            return values, (dataclasses.replace(orbit, params=None), orbit.result)

        found = sampled(fn, u, self.second_order, reverse=self.integrator.loop == "checkpointed")
        orbit, start = found.carry, self.start_of(found.carry)
        functions = found.values.size - start.size
        hessians, bend = (
            (None, None) if found.hessians is None else (found.hessians[:functions], found.hessians[functions:])
        )
        new = ExpandedOrbit(u, start, found.jacobian[functions:], bend, side_of(orbit), orbit)
        back = jnp.max(jnp.abs(new.guess(known.u) - known.start)) / size
        near = jnp.where(new.side == known.side, near, STRICT * moved)
        # At its first evaluation the slopes of the last orbit are not known, and `u` is the same.
        off = jnp.max(jnp.abs(start - guess)) / jnp.maximum(size, jnp.max(jnp.abs(start)))
        close = (back <= near) & (off <= near) & (joined(known, new) | jnp.all(u == known.u))
        result = choose((found.result == RESULTS.successful) & ~close, RESULTS.far_from_guess, found.result)
        carry = select(result == RESULTS.successful, new, known)
        return Sample(found.values[:functions], found.jacobian[:functions], hessians, carry, result)
