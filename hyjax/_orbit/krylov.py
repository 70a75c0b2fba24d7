r"""A periodic orbit of many coordinates without the Jacobian of its return map: Newton's method whose linear equations are
solved by a Krylov method, and the leading multipliers by Arnoldi's.

Both ask for products $D S\,v$ alone, each a tangent pushed through a stride. A map that contracts most directions needs few: the
Krylov space of $I - DS$ holds the solution up to what the other directions still contribute.

Source: Sánchez, Net, García-Archilla, Simó (2004), *Newton-Krylov continuation of periodic orbits for Navier-Stokes flows*, J.
Comput. Phys. 201, 13-33; Saad (2011), *Numerical Methods for Large Eigenvalue Problems*, ch. 6.
"""

import dataclasses
from collections.abc import Callable

import diffrax as dfx
import jax
import jax.numpy as jnp
import lineax as lx
import optimistix as optx
from jaxtyping import Array, Complex, Float

from .._flow.integrator import Integrators, rolled, with_adjoint, without_jacobian
from .._numerics.eager import short_run
from .._numerics.trees import without_tangents
from .._system.types import Matrix, Params, Scalar, State
from .chain import follow_chain
from .orbit import distance_from, LastIterate, orbit_of, PeriodicOrbit
from .problem import Problem, shifts_phase
from .shooting import AbstractShooting, outcome
from .stride import run_stride
from .verdict import any_phase, in_family, judged

# The multipliers of an orbit that is found without its Jacobian. Products are taken for them in rounds, up to a number.
LEADING, ROUND, PRODUCTS = 10, 40, 320


def is_matrix_free(method: AbstractShooting) -> bool:
    """Whether the root finder solves its linear equations by a Krylov method."""
    return isinstance(getattr(method.root_finder, "linear_solver", None), lx.GMRES | lx.BiCGStab)


@short_run
def krylov_orbit(
    of_user: Problem,
    guess: State | Float[Array, "strides n"],
    params: Params,
    method: AbstractShooting,
    integrator: Integrators,
    near: Scalar,
    moving: bool,
    origin: State | None = None,
) -> tuple[PeriodicOrbit, LastIterate]:
    """The orbit near a guess, and the last iterate. The unknowns are the pre-impact states of the strides. **Arguments:**
    `moving`: whether the orbit may be differentiated, for which the solver's steps are kept. `origin`: the state from which the
    orbit's distance is measured; by default the guess."""
    problem = dataclasses.replace(of_user, system=of_user.system.hoisted(params, guess.dtype))
    plain = rolled(without_jacobian(integrator))
    along = rolled(with_adjoint(integrator, dfx.DirectAdjoint())) if moving else plain

    def gaps(before, what):
        problem, params = what
        chain, ends = follow_chain(problem, None, params, along, before, order=None)
        return ends - jnp.roll(before, -1, axis=0), chain

    start = without_tangents(_first_ends(problem, guess, params, plain))
    found = optx.root_find(
        gaps, method.root_finder, start, (problem, params), has_aux=True, max_steps=method.max_iterations, throw=False,
        adjoint=optx.ImplicitAdjoint(linear_solver=method.root_finder.linear_solver),  # pyright: ignore
    )  # fmt: skip
    # The root finder returns the chain of the iterate before.
    gap, chain = gaps(found.value, (problem, params))
    largest = jnp.maximum(jnp.max(jnp.abs(chain.before)), jnp.max(jnp.abs(guess)))
    off = without_tangents(jnp.max(jnp.abs(gap)))
    accept = method.acceptable(plain, guess.dtype)
    code = outcome(off <= accept * largest, chain.result)

    still, x, of_params = without_tangents((problem, chain.nodes[0], params))
    close = 1e3 * sum(plain.tolerances(x.dtype))
    values, about = arnoldi(*_product(still, x, of_params, plain, False), LEADING, close)
    multipliers = values
    if shifts_phase(problem, params, x):
        product, begin = _product(still, x, of_params, plain, True)
        by_time = product(jnp.zeros_like(begin).at[0].set(1))
        flow = still.system.mode(still.sequence[0]).vector_field(jnp.zeros((), x.dtype), x, of_params)
        same = any_phase(by_time, about, flow)
        multipliers = jnp.where(same, values, arnoldi(product, begin, min(LEADING, x.size), close)[0])
    reached = without_tangents((chain.nodes, off, found.stats["num_steps"]))
    distance = distance_from(jax.lax.stop_gradient(guess if origin is None else origin), reached[0])
    code = judged(
        problem, chain, about, params, plain, code, accept=accept, size=jnp.max(jnp.abs(guess)),
        closing=_largest_row_of_jump(still, without_tangents(chain.before[0]), of_params), singular=in_family(values),
        guess=guess, far=~(distance <= near),
    )  # fmt: skip
    no_jacobian = jnp.zeros((0, x.size), x.dtype)
    multipliers = _not_differentiated(multipliers, chain.period)
    residual = jnp.maximum(off, without_tangents(chain.residual))
    found = orbit_of(of_user, chain, no_jacobian, params, integrator, multipliers, residual, reached[2], code, distance)
    return found, reached


def _first_ends(problem: Problem, guess: Array, params: Params, integrator: Integrators) -> Float[Array, "strides m"]:
    """The pre-impact states from which the search starts: those of strides from the guess, one after the other or from each
    node."""
    given = jnp.broadcast_to(guess, (problem.strides, guess.shape[-1]))

    def one(carry, node):
        t, x = carry
        stride = run_stride(problem.system, t, node if guess.ndim == 2 else x, params, problem.sequence, integrator)
        return (t + stride.time, stride.x), stride.impacts[-1].x

    _, ends = jax.lax.scan(one, (jnp.zeros((), guess.dtype), given[0]), given)
    return jnp.roll(ends, 1, axis=0)


def _largest_row_of_jump(problem: Problem, before: State, params: Params) -> Scalar:
    """`largest_row` of the Jacobian of the closing jump, column by column."""

    def add(k, total):
        column = jnp.zeros_like(before).at[k].set(1)
        return total + jnp.abs(jax.jvp(lambda y: problem.closing_jump(y, params), (before,), (column,))[1])

    rows = jax.eval_shape(lambda y: problem.closing_jump(y, params), before)
    return jnp.max(jax.lax.fori_loop(0, before.size, add, jnp.zeros(rows.shape, before.dtype)))


@jax.custom_jvp
def _not_differentiated(values: Array, witness: Scalar) -> Array:
    """The values; where the `witness` is differentiated NaN, because the values would need a derivative as well."""
    return values


@_not_differentiated.defjvp
def _not_differentiated_jvp(primals, tangents):
    values, _ = primals
    return jnp.full_like(values, jnp.nan), jnp.zeros_like(values)


def _product(
    problem: Problem, x: State, params: Params, integrator: Integrators, timed: bool
) -> tuple[Callable[[Array], Array], Array]:
    """The derivative of the map through `x` as a function of a vector, and a vector to begin with. **Arguments:** `timed`: of the
    map of time and state. Not differentiable."""
    around = problem.sequence * problem.strides

    def image(z):
        t, x = (z[0], z[1:]) if timed else (jnp.zeros((), z.dtype), z)
        through = run_stride(problem.system, t, x, params, around, integrator)
        return jnp.append(t + through.time, through.x) if timed else through.x

    _, product = jax.linearize(image, jnp.append(0, x) if timed else x)
    return product, spread(jnp.array(1), x.size + timed, x.dtype)


def spread(k: Array, n: int, dtype) -> Array:
    """A vector of length 1 without a special direction, another one for each `k`."""
    vector = jnp.cos(k.astype(dtype) * jnp.arange(1, n + 1, dtype=dtype) ** 2)
    return vector / jnp.sqrt(vector @ vector)


@jax.custom_batching.sequential_vmap
def _eig(matrix: Matrix) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors, one matrix after the other: two calls of LAPACK for a batch that overlap can deadlock, see
    `elimination`."""
    values, vectors = jnp.linalg.eig(matrix)
    return values, vectors


def arnoldi(
    product: Callable[[Array], Array], begin: Array, count: int, close: float | Scalar
) -> tuple[Complex[Array, " count"], Matrix]:
    """The eigenvalues of largest modulus of a linear map, `count` or as many as it has; and the map in the Krylov space that
    starts with the vector `begin`, in an orthonormal basis.

    An eigenvalue is NaN where after all products its vector fails the eigenvalue's equation by more than `close`, relative to
    the largest eigenvalue. Where the space is invariant it goes on with another vector; else of equal eigenvalues one is found.
    """
    n, dtype = begin.size, begin.dtype
    count = min(count, n)
    size, column = min(n, PRODUCTS), jnp.arange(min(n, PRODUCTS))
    basis = jnp.zeros((size + 1, n), dtype).at[0].set(begin)

    def apart(vector, basis):
        """The part of a vector orthogonal to the basis, and its components. Projected twice: the first projection leaves
        rounding of the size of what it removes."""
        part = basis @ vector
        rest = vector - part @ basis
        again = basis @ rest
        return rest - again @ basis, part + again

    def one(k, now):
        basis, form = now
        image = product(basis[k])
        rest, part = apart(image, basis)
        length, tiny = jnp.sqrt(rest @ rest), 64 * float(jnp.finfo(dtype).eps)
        invariant = length <= tiny * jnp.sqrt(image @ image)
        other, _ = apart(spread(k + 2, n, dtype), basis)
        rest = jnp.where(invariant, other, rest)
        unit = jnp.sqrt(rest @ rest)
        # Where the basis spans everything the next vector is zero.
        rest = jnp.where(~invariant | (unit > tiny), rest / jnp.where(unit > 0, unit, 1), 0)
        return basis.at[k + 1].set(rest), form.at[:, k].set(part.at[k + 1].set(jnp.where(invariant, 0, length)))

    def round_of(now):
        taken, space, _, _ = now
        until = jnp.minimum(taken + ROUND, size)
        basis, form = jax.lax.fori_loop(taken, until, one, space)
        inner = jnp.where(column[:, None] < until, form[:size], 0)
        finite = jnp.all(jnp.isfinite(inner))
        values, vectors = _eig(jnp.where(finite, inner, 0))
        order = jnp.argsort(-jnp.abs(values), stable=True)[:count]
        # A vector of the space fails the equation by its last entry times what the space lacks.
        lack = jnp.abs(form[until, until - 1]) * jnp.abs(vectors[until - 1, order])
        sound = finite & (lack <= close * jnp.max(jnp.abs(values)))
        return until, (basis, form), jnp.where(sound, values[order], jnp.nan), jnp.sum(~sound)

    unknown = jax.lax.complex(*[jnp.full(count, jnp.nan, dtype)] * 2)
    start = jnp.array(0), (basis, jnp.zeros((size + 1, size), dtype)), unknown, jnp.array(1)
    # Hazard: the condition must depend on two carried numbers, see `run` in `hyjax/_flow/loop.py`.
    _, (_, form), values, _ = jax.lax.while_loop(lambda now: (now[0] < size) & (now[3] > 0), round_of, start)
    # Of a complex pair the one with positive imaginary part first.
    digits = float(jnp.finfo(dtype).eps) ** 0.5 * jnp.nanmax(jnp.abs(values))
    order = jnp.lexsort((-values.imag, -jnp.round(jnp.abs(values) / jnp.where(digits > 0, digits, 1))))
    return values[order], form[:size]
