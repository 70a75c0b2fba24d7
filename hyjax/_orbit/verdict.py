r"""The verdict on a periodic orbit: the one code of orbits that are searched, swept, continued or optimized.

A solver that has converged knows that the pre-impact state comes back. That is an orbit if five things hold.

- **It is one.** Newton's equation is regular: the return map has no multiplier 1, and conditions determine their unknowns.
- **It lasts.** The period is positive, and state and period have not shrunk to rounding, as where events accumulate.
- **It moves.** The vector field does not vanish at its start: an equilibrium on a section, round which the flow turns, is a fixed
  point of the section's map.
- **The state returns.** The residual $|S^m(x) - x|$ is taken after the jump that closes the orbit. Its tolerance is that of the
  solver, `accept`, relative to the largest state, and times the derivative of this jump where that is larger than 1: the
  pre-impact state is accurate to `accept`, and the jump multiplies this error. Where the tolerance is finer than rounding in the
  functions of the system, $\varepsilon^{0.6}$ is taken (4e-10; 7e-5 in float32).
- **The system is the same again.** The equation of an orbit starts its clock at 0, also that of the jump which closes the orbit.
  If the system depends on time, its state may return after a time $T$ that is no multiple of the forcing's period. Then the
  strides that start from the same states a time $T$ later take other times or end elsewhere, or the vector field has changed on
  the way. Both laps are computed alike from the same states, so that they differ by rounding and the error of $T$ alone.

An orbit also has to be near to its guess, if that is asked for.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from .._flow.integrator import Integrators, rolled, without_jacobian
from .._flow.joint import extended
from .._numerics.eigenvalues import eigenvalues
from .._numerics.elimination import solver
from .._numerics.trees import without_tangents
from .._system.results import choose, RESULTS
from .._system.system import HybridSystem, VectorField
from .._system.types import Flag, Matrix, Params, Scalar, State
from .chain import Chain
from .level import quantity_of
from .problem import depends_on_time, Problem, shifts_phase
from .shooting import largest_row
from .stride import run_stride, timed_jacobian

# The power of the dtype's resolution that counts as rounding in the functions of a system; and in a multiplier that is 1, or in a
# singular value of the return Jacobian less the identity that is zero. A double multiplier is known to the root of rounding only,
# a singular value to rounding.
ROUNDING = 0.6


def judged(
    problem: Problem,
    chain: Chain,
    jacobian: Float[Array, "k k"],
    params: Params,
    integrator: Integrators,
    result: RESULTS,
    *,
    accept: float | Array,
    size: Scalar,
    closing: Scalar | None = None,
    singular: Flag | None = None,
    guess: State | Float[Array, "strides n"] | None = None,
    far: Flag | None = None,
) -> RESULTS:
    """The code of the orbit of a closed chain of strides: `result` where that is not `successful`, else the first that applies
    of `not_isolated`, `zeno`, `out_of_phase` or, if the system does not depend on time, `orbit_not_converged`, and
    `far_from_guess`. Not differentiable.

    **Arguments:** `jacobian`: of the return map, before or after the closing jump, by which an error grows in a lap. `result`: of
    the solver. `accept`: its largest residual, relative to the states. `size`: of the states at its start, where these are larger
    than the orbit's. `closing`: the largest sum of a row of the closing jump's Jacobian, if it is known. `singular`: whether the
    solver's equation is singular; `None` on a branch, whose equation is regular at folds. `guess`: with the scales of state and
    time beside which an orbit vanishes. `far`: whether the orbit is further from the guess than allowed.
    """
    chain, jacobian, params, size, guess = without_tangents((chain, jacobian, params, size, guess))
    size = jnp.maximum(size, jnp.maximum(jnp.max(jnp.abs(chain.nodes)), jnp.max(jnp.abs(chain.before))))
    timed = depends_on_time(problem, params, chain.nodes)
    if closing is None:
        closing = largest_row(jax.jacfwd(lambda y: problem.closing_jump(y, params))(chain.before[0]))
    tolerance = _at_least_rounding(accept, size) * size * jnp.maximum(closing, 1)
    lasts = chain.period > 0 if guess is None else (chain.period > 0) & ~_vanishes(problem, chain, guess, params)
    open_end = RESULTS.out_of_phase if timed else RESULTS.orbit_not_converged
    causes = [(~lasts, RESULTS.zeno), (~(chain.residual <= tolerance), open_end)]
    if not timed and guess is not None:
        causes.append((_rests(problem, chain, size, guess, params), open_end))
    if timed:
        repeats = _repeats(problem, chain, params, integrator, size, 1 + largest_row(jacobian))
        causes.append((~repeats, RESULTS.out_of_phase))
    if singular is not None:
        causes.insert(0, (singular, RESULTS.not_isolated))
    if (quantities := quantity_of(problem.closing_way.reset)) is not None:
        # Along an orbit of a quantity that is conserved the step to the level is zero.
        gap = jnp.abs(quantities[1](jnp.zeros_like(size), chain.before[0], params) - params.conserved)
        error = tolerance / size * (1 + jnp.abs(params.conserved))
        causes.append((~(gap <= error), open_end))
        if singular is not None:
            causes.append((_leaves_level(problem, chain, params, integrator, quantities, size, error), open_end))
    if far is not None:
        causes.append((far, RESULTS.far_from_guess))
    for wrong, code in causes:
        result = choose((result == RESULTS.successful) & wrong, code, result)
    return result


def orbit_multipliers(
    problem: Problem, x: State, values: Complex[Array, " n"], params: Params, integrator: Integrators
) -> Complex[Array, " n"]:
    r"""The multipliers of the orbit through `x`: the eigenvalues `values` of its return Jacobian; or those of the monodromy
    matrix, where a state that is met earlier or later begins the next lap at another phase of the forcing.

    The map of time and state, from jump to jump, has the eigenvalues of the monodromy matrix, and 0 along the flow $(1, f)$. The
    monodromy matrix itself loses digits with the speed of the flow at a guard. A system that only seems to depend on time, as
    by a forcing of amplitude zero, ends in the same state whenever it starts: no phase matters.
    """
    if not shifts_phase(problem, params, x):
        return values
    t, around = jnp.zeros((), x.dtype), problem.sequence * problem.strides
    matrix = timed_jacobian(problem.system, t, x, params, around, integrator)
    flow = problem.system.mode(problem.sequence[0]).vector_field(t, x, params)
    return jnp.where(any_phase(matrix[:, 0], matrix[1:, 1:], flow), values, eigenvalues(matrix)[:-1])


def any_phase(by_time: Float[Array, " timed"], by_state: Float[Array, "k k"], flow: State) -> Flag:
    """Whether the next lap is the same at whatever phase it begins: by the derivative of time and state after a lap with respect
    to the time of its start. `by_state`: the Jacobian with respect to the state, or its part in a Krylov space. `flow`: the rate
    of the state."""
    rounding = float(jnp.finfo(by_time.dtype).eps) ** ROUNDING
    close = rounding * (1 + largest_row(by_state)) * jnp.max(jnp.abs(flow))
    # Also the next event's time has to be later by as much as the start.
    later = jnp.abs(by_time[0] - 1) <= rounding
    return later & (jnp.max(jnp.abs(by_time[1:])) <= close)


def in_family(multipliers: Complex[Array, " n"]) -> Flag:
    """Whether the return map has a multiplier 1: neighbouring orbits are periodic too, and Newton's equation is singular."""
    return jnp.nanmin(jnp.abs(multipliers - 1)) < jnp.finfo(multipliers.dtype).eps ** ROUNDING


def undetermined(matrix: Matrix) -> Flag:
    """Whether the Jacobian of an orbit's equation with conditions is singular: the conditions do not determine the unknowns."""
    bound = jnp.finfo(matrix.dtype).eps ** -0.6
    inverse = solver(matrix)(jnp.eye(len(matrix), dtype=matrix.dtype))
    return ~(largest_row(matrix) * largest_row(inverse) < bound)


def _vanishes(problem: Problem, chain: Chain, guess: State | Float[Array, "strides n"], params: Params) -> Flag:
    r"""Whether state and period have shrunk to rounding, relative to those of the guess.

    A bouncing ball that loses energy returns to its floor sooner and sooner, and the fixed point of its return map, at rest,
    lasts no time. Nothing at such a point tells it from a small orbit: the map is linear there. So the scales are those of the
    guess, $|x_0|$ and $|x_0| / |f(x_0)|$. A guess at rest has no scale of time: from event to event passes what its clock says.
    """
    start = guess if guess.ndim == 1 else guess[0]
    size = jnp.max(jnp.abs(start))
    rate = jnp.max(jnp.abs(problem.system.mode(problem.sequence[0]).vector_field(jnp.zeros_like(size), start, params)))
    eps = jnp.finfo(start.dtype).eps
    states = [jnp.max(jnp.abs(each)) for each in (chain.nodes, chain.before)]
    small = (jnp.maximum(*states) <= eps**0.5 * size) & (chain.period * rate <= eps**0.5 * size)
    return small & (rate > 0)


def _rests(
    problem: Problem, chain: Chain, size: Scalar, guess: State | Float[Array, "strides n"], params: Params
) -> Flag:
    """Whether the start is an equilibrium, up to rounding: the first arc lasts, and at its first rate no coordinate would move in
    a period, beside its own size and the distance from the guess. Of a system that does not depend on time."""
    at, start = chain.nodes[0], guess if guess.ndim == 1 else guess[0]
    f = problem.system.mode(problem.sequence[0]).vector_field(jnp.zeros_like(size), at, params)
    own = jnp.maximum(jnp.maximum(jnp.abs(at), jnp.abs(start)), jnp.max(jnp.abs(at - start)))
    eps, flowing = jnp.finfo(size.dtype).eps, slice(f.size)
    still = chain.period * jnp.abs(f) <= eps**ROUNDING * own[flowing] + 64 * eps * size
    return (chain.elapsed[0, 0] > 0) & jnp.all(still)


def _leaves_level(
    problem: Problem, chain: Chain, params: Params, integrator: Integrators, quantities, size: Scalar, error: Scalar
) -> Flag:
    """Whether a lap from a level beside the orbit's ends on another one. On the orbit itself every quantity returns; one that is
    not conserved returns there alone, and setting apart its multiplier 1 would set apart another. `False` where no such lap ends.
    """
    (here, after), zero = quantities, jnp.zeros_like(size)
    slope = jax.grad(lambda x: here(zero, x, params))(problem.closing_jump(chain.before[0], params))
    move = jnp.finfo(size.dtype).eps ** 0.25 * size * jnp.sqrt(slope @ slope)
    beside = dataclasses.replace(params, conserved=params.conserved + move)
    start, around = problem.closing_jump(chain.before[0], beside), problem.sequence * problem.strides
    lap = run_stride(problem.system, zero, start, beside, around, rolled(without_jacobian(integrator)))
    begun = here(zero, start, beside)
    drift = jnp.abs(after(zero, lap.impacts[-1].x, beside) - begun)
    return (lap.result == RESULTS.successful) & (drift > 0.01 * jnp.abs(begun - params.conserved) + error)


def _repeats(
    problem: Problem, chain: Chain, params: Params, integrator: Integrators, size: Scalar, grown: Scalar
) -> Flag:
    """Whether every stride repeats itself a period later: from the same state, in the same times, through the same states, by the
    same vector field.

    **Arguments:** `grown`: by how much an error grows in a lap.
    """
    plain = rolled(without_jacobian(integrator))
    close = _at_least_rounding(100 * sum(plain.tolerances(size.dtype)), size) * grown
    later, ends = _with_difference(problem.system), jnp.concatenate([chain.nodes[1:], chain.end[None]])

    def one(start, x, arc_ends, elapsed, end) -> Flag:
        begun = start + chain.period
        lap = run_stride(later, begun, jnp.append(x, 0), (params, chain.period), problem.sequence, plain)
        again = jnp.stack([impact.t - begun for impact in lap.impacts])
        same = (lap.result == RESULTS.successful) & (jnp.max(jnp.abs(again - elapsed)) <= close * chain.period)
        for there, here in (*zip((impact.x for impact in lap.impacts), arc_ends, strict=True), (lap.x, end)):
            same &= jnp.max(jnp.abs(there - jnp.append(here, 0))) <= close * size
        return same

    columns = chain.starts, chain.nodes, chain.arc_ends, chain.elapsed, ends
    if not problem.timed:
        return one(*jax.tree.map(lambda leaf: leaf[0], columns))
    return jnp.all(jax.vmap(one)(*columns))


def _with_difference(system: HybridSystem) -> HybridSystem:
    """The system with one more coordinate, whose rate is the difference of the vector field from that a period before, in the
    same state: forces of another phase may have the same effect on a whole arc. Its parameters are `(params, period)`."""

    def difference(name: str) -> VectorField:
        field = system.mode(name).vector_field
        return lambda t, x, q: jnp.max(jnp.abs(field(t, x, q[0]) - field(t - q[1], x, q[0])))

    return extended(system, "difference from the last lap", difference, lambda q: q[0])


def _at_least_rounding(tolerance: float | Array, like: Array) -> Array:
    return jnp.maximum(jnp.asarray(tolerance, like.dtype), jnp.finfo(like.dtype).eps ** ROUNDING)
