"""One run of a solver study: a simulation with its samples and its numbers of steps, as one compiled program.

The tolerances, the largest number of steps and the parameters are arguments of the program, so each solver is compiled once for
all tolerances and sets of parameters.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._flow.automaton import Automaton, Index, Padded
from .._flow.integrator import Integrators, Limits, PlainForward, with_adjoint, with_limits
from .._flow.loop_state import Watch
from .._flow.simulate import first_arc, flow_arc, leave_arc
from .._system.results import RESULTS
from .._system.types import Count, Flag, Params, Time
from ..solvers.evaluations import Work


class Tally(eqx.Module):
    """The work of a run.

    **Attributes:** `tried`, `taken`: steps; the trials that locate an event are tried, and not taken. `evaluations`, `jacobians`:
    of the vector field in the steps tried, see `hyjax/solvers/evaluations.py`; NaN where a solver's work is not known. Those
    at the start of an arc, a few for the choice of the first step, are not counted.
    """

    tried: Int[Array, ""]
    taken: Int[Array, ""]
    evaluations: Float[Array, ""]
    jacobians: Float[Array, ""]


class Record(eqx.Module):
    """A record of the steps. `samples`: states at the times; the first `filled` are known. `tally`: the numbers of steps and of
    evaluations."""

    samples: Float[Array, "times size"]
    filled: Int[Array, ""]
    tally: Tally


class StudyRun(eqx.Module):
    """A run. **Attributes:** `samples`: states at the given times, padded; NaN at a time that the run did not reach. `tally`: its
    work. `jumps`: number of jumps. `result`: a code of `RESULTS`."""

    samples: Float[Array, "times size"]
    tally: Tally
    jumps: Int[Array, ""]
    result: RESULTS


@eqx.filter_jit
def study_run(
    automaton: Automaton,
    mode: Index,
    z0: Padded,
    t0: Time,
    t1: Time,
    params: Params,
    integrator: Integrators,
    limits: Limits,
    times: Float[Array, " times"],
    max_jumps: Int[Array, ""],
) -> StudyRun:
    """Simulate from `t0` to `t1` with the integrator under `limits`, with states at `times`, which increase.

    A state between two steps is the end of a real step of the solver from the last point, shortened: it has the accuracy of the
    step, for every solver, and does not change the steps of the run. A time `inf` is not reached, and costs nothing: a run of
    which only the duration is wanted is the same program with such times.
    """
    integrator = with_limits(with_adjoint(integrator, PlainForward()), [limits] * len(integrator.parts))
    start = first_arc(automaton, z0, mode, t0, t1)
    zero = jnp.array(0)

    def one(carry):
        now, record, jumps = carry
        flown = flow_arc(automaton, now, start, t1, params, integrator, sampling(times, record))
        z_after = automaton.jump(flown.end.t, flown.end.x, jnp.maximum(flown.taken, 0), params)
        after, row = leave_arc(automaton, now, jumps >= max_jumps, flown, z_after)
        return after, flown.end.seen, jumps + row.jumped.astype(jumps.dtype)

    none = jnp.zeros((), z0.dtype)
    record = Record(jnp.full((times.size, z0.size), jnp.nan, z0.dtype), zero, Tally(zero, zero, none, none))
    last, record, jumps = jax.lax.while_loop(lambda carry: ~carry[0].done, one, (start, record, zero))
    # The last point of the loop may lie a rounding before the end time.
    rest = (jnp.arange(times.size) >= record.filled) & (times <= _beyond(t1)) & (last.result == RESULTS.successful)
    samples = jnp.where(rest[:, None], last.z, record.samples)
    return StudyRun(samples, record.tally, jumps, last.result)


def sampling(times: Float[Array, " times"], record: Record) -> Watch:
    """The watch that counts steps and evaluations and keeps the states at `times`."""
    count = times.size

    def update(course, before, attempt, after) -> Record:
        record, point = before.seen, before.last
        x, f = jnp.stack(point.x), jnp.stack(point.f)
        took = (after.last.t - point.t) + (after.last.late - point.late) > 0
        until = _beyond(after.last.t)

        def within(carry):
            k, _ = carry
            return took & (k < count) & (times[jnp.minimum(k, count - 1)] <= until)

        def sample(carry):
            k, samples = carry
            # A steep flow may be far beyond its surface within the rounding of the time.
            h = jnp.minimum(times[k] - point.t, attempt.dt)
            there = course.step(point.t, x, f, h, point.memory).x
            # At the start of an arc, or in the rounding between an event and the last step before it, there is no step to take.
            return k + 1, samples.at[k].set(jnp.where(h > 0, there, x))

        filled, samples = jax.lax.while_loop(within, sample, (record.filled, record.samples))
        return Record(samples, filled, tallied(record.tally, course.step.work, took, attempt.iterations))

    return Watch(update, record)


def tallied(tally: Tally, work: Work | None, took: Flag, iterations: Count) -> Tally:
    """The tally after one more step."""
    more = jnp.nan, jnp.nan
    if work is not None:
        more = (
            work.evaluations + work.each_evaluations * iterations,
            work.jacobians + work.each_jacobians * iterations,
        )
    evaluations, jacobians = (jnp.asarray(each, tally.evaluations.dtype) for each in more)
    taken = tally.taken + took.astype(tally.taken.dtype)
    return Tally(tally.tried + 1, taken, tally.evaluations + evaluations, tally.jacobians + jacobians)


def _beyond(t: Time) -> Time:
    """A time later by rounding."""
    return t + 64 * float(jnp.finfo(t.dtype).eps) * jnp.abs(t)


def limits_at(rtol: float, atol: float, max_steps: int, dtype) -> Limits:
    """The limits of a run, as arrays. A simulation has no use for `max_time`."""
    return Limits(
        jnp.asarray(rtol, dtype), jnp.asarray(atol, dtype), jnp.asarray(max_steps), jnp.asarray(jnp.inf, dtype)
    )
