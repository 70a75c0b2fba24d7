r"""The nonlinear program of a gait: objective and constraints as functions of the parameters alone, through the periodic orbit.

The orbit solves its own equation at each evaluation, from a guess by the Taylor polynomial of the last orbit in the unknowns, and
its derivatives are those of the implicit function theorem. A gait is lost where no orbit is found near that guess, or where the
Taylor polynomial of the orbit found does not lead back to the last one: behind a fold it belongs to another gait. Both must be
more exact where the sign of $\det(I - D_xS)$ has changed, which differs between two gaits that are neighbours. Two gaits of the
same sign may be neighbours too: the way from one orbit to the next must have the mean of the slopes at its ends.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.integrator import Integrators, limits_of
from .._numerics.elimination import det
from .._orbit.orbit import PeriodicOrbit, run_orbit
from .._orbit.shooting import AbstractShooting, MultipleShooting, SearchLimits
from .._system.results import choose, RESULTS
from .._system.types import Flag, Scalar
from .constraint import Constraint, Objective
from .program import pick, Sample, sampled
from .unknowns import Unknowns

# The largest distance of an orbit from its guess: a fraction of the distance that the guess moved, between these limits relative
# to the state.
FRACTION, LEAST, MOST = 0.5, 0.02, 0.3
# The same fraction where the sign of det(I - A) has changed, A the return Jacobian: either the gait lost or won stability at a
# multiplier of 1, or this is another gait near it.
STRICT = 0.05
# A trial orbit is sought for so many iterations and in strides so many times as long as the last orbit's, because all lanes of a
# batch wait for a trial whose gait is lost.
ITERATIONS, LONGER = 10, 3.0


class Known(eqx.Module):
    """The last orbit: its start, or the starts of its strides, and their derivatives by the unknowns `u`."""

    u: Float[Array, " n"]
    start: Float[Array, "..."]
    slope: Float[Array, "states n"]
    bend: Float[Array, "states n n"] | None
    side: Scalar
    orbit: PeriodicOrbit

    def guess(self, u: Float[Array, " n"]) -> Float[Array, "..."]:
        """The Taylor polynomial of the start."""
        step = u - self.u
        moved = self.slope @ step if self.bend is None else self.slope @ step + (self.bend @ step) @ step / 2
        return self.start + moved.reshape(self.start.shape)


def side_of(orbit: PeriodicOrbit) -> Scalar:
    """The sign of $\\det(I - A)$, which changes where a multiplier passes 1."""
    return jnp.sign(det(jnp.eye(orbit.x.size, dtype=orbit.x.dtype) - orbit.return_jacobian))


def joined(old: Known, new: Known) -> Flag:
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
    rounding = jnp.finfo(step.dtype).eps ** (2 / 3) * size
    return norm(step - jnp.mean(moves, axis=0)) <= 0.03 * length + bend / 4 + rounding


class GaitProgram(eqx.Module):
    """`(u, known) -> Sample`, for `Program.evaluate`. `rows`: the numbers of equalities and inequalities of each constraint."""

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
        value = self.objective(orbit, orbit.params)
        rows = [jnp.reshape(jnp.asarray(value, orbit.x.dtype), (1,))]
        rows += [each.equalities(orbit, orbit.params) for each in self.constraints]
        rows += [each.inequalities(orbit, orbit.params) for each in self.constraints]
        return jnp.concatenate(rows)

    def start_of(self, orbit: PeriodicOrbit) -> Array:
        return orbit.nodes if isinstance(self.shooting, MultipleShooting) else orbit.x

    def known(self, orbit: PeriodicOrbit) -> Known:
        """What is known of an orbit before its first evaluation."""
        start, n = self.start_of(orbit), self.unknowns.scale.size
        slope = jnp.zeros((start.size, n), start.dtype)
        bend = jnp.zeros((start.size, n, n), start.dtype) if self.second_order else None
        u = self.unknowns.vector(orbit.params)
        # The orbits to come have this program's integrator.
        orbit = dataclasses.replace(orbit, integrator=self.integrator)
        return Known(u, start, slope, bend, side_of(orbit), orbit)

    def __call__(self, u: Float[Array, " n"], known: Known) -> Sample:
        guess = known.guess(u)
        size = jnp.max(jnp.abs(known.start))
        size = jnp.where(size > 0, size, 1)
        moved = jnp.max(jnp.abs(guess - known.start)) / size
        near = jnp.clip(FRACTION * moved, LEAST, MOST)
        longest = LONGER * known.orbit.period
        parts = [
            dataclasses.replace(part, max_time=jnp.minimum(part.max_time, longest))
            for part in limits_of(self.integrator, guess.dtype)
        ]
        limits = SearchLimits(tuple(parts), min(ITERATIONS, self.shooting.max_iterations), 0.0)

        def fn(u):
            params = self.unknowns.params_at(u)
            orbit, _ = run_orbit(
                self.system, guess, params, self.sequence, self.strides, self.shooting, self.integrator, near,
                limits,
            )  # fmt: skip
            start = self.start_of(orbit)
            return jnp.concatenate([self.values(orbit), start.ravel()]), (orbit, orbit.result)

        found = sampled(fn, u, self.second_order, reverse=self.integrator.loop == "checkpointed")
        orbit, start = found.carry, self.start_of(found.carry)
        functions = found.values.size - start.size
        hessians, bend = (
            (None, None) if found.hessians is None else (found.hessians[:functions], found.hessians[functions:])
        )
        new = Known(u, start, found.jacobian[functions:], bend, side_of(orbit), orbit)
        back = jnp.max(jnp.abs(new.guess(known.u) - known.start)) / size
        near = jnp.where(new.side == known.side, near, STRICT * moved)
        # At its first evaluation the slopes of the last orbit are not known, and `u` is the same.
        close = (back <= near) & (orbit.distance <= near) & (joined(known, new) | jnp.all(u == known.u))
        result = choose((found.result == RESULTS.successful) & ~close, RESULTS.far_from_guess, found.result)
        carry = pick(result == RESULTS.successful, new, known)
        return Sample(found.values[:functions], found.jacobian[:functions], hessians, carry, result)
