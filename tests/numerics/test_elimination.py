"""Solutions, determinants and null vectors against LAPACK, exact arithmetic and closed forms of their derivatives."""

import fractions
import itertools
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

from hyjax._testing import det, null_vectors, solve, solver

DTYPES = [np.float32, np.float64, np.complex128]


def random(rng, *shape, dtype=np.float64):
    values = rng.normal(size=shape)
    return (values + 1j * rng.normal(size=shape) if np.issubdtype(dtype, np.complexfloating) else values).astype(dtype)


def matrices_of(n, dtype):
    """Well and badly conditioned ones, of every scale of rows."""
    rng = np.random.default_rng(n)
    normal = random(rng, 20, n, n, dtype=dtype)
    rows = 10.0 ** rng.integers(-6, 7, (20, n, 1)).astype(normal.real.dtype)
    u, s, vh = np.linalg.svd(normal)
    # Singular but for some roundings: at one rounding, the last pivot may vanish.
    nearly_singular = np.append(s[:, :-1], 1e4 * np.finfo(dtype).eps * s[:, :1], axis=1)
    hilbert = scipy.linalg.hilbert(n)[None]
    powers = np.vander(np.linspace(0.1, 1, n), min(n, 12))
    vandermonde = np.eye(n)[None]
    vandermonde[0, :, : powers.shape[1]] = powers
    every = (normal, rows * normal, (u * nearly_singular[:, None]) @ vh, hilbert, vandermonde)
    return np.concatenate([part.astype(dtype) for part in every])


@pytest.mark.medium
@pytest.mark.parametrize("dtype", DTYPES)
# Beyond a hundred they are LAPACK's.
@pytest.mark.parametrize("n", [1, 3, 4, 12, 33, 130])
def test_backward_error_of_solutions(n, dtype):
    r"""They solve equations with other last digits: $|b - A x| \le 4 \epsilon (|A| |x| + |b|)$, in the norm of the largest row,
    and LAPACK's come to $2 \epsilon$."""
    matrices = matrices_of(n, dtype)
    right = random(np.random.default_rng(0), len(matrices), n, 2, dtype=dtype)
    x = np.asarray(jax.jit(jax.vmap(solve))(jnp.asarray(matrices), jnp.asarray(right)))
    wide = np.complex128 if x.dtype == np.complex128 else np.float64
    residual = np.max(np.abs(right - matrices.astype(wide) @ x), axis=1)
    size = np.max(np.sum(np.abs(matrices), axis=2), axis=1)[:, None]
    scale = size * np.max(np.abs(x), axis=1) + np.max(np.abs(right), axis=1)
    assert np.max(residual / scale) <= 4 * np.finfo(dtype).eps


def test_solution_against_40_digits():
    """As near as the condition allows."""
    matrix = scipy.linalg.hilbert(8)
    right = np.random.default_rng(1).normal(size=8)
    with mpmath.workdps(40):
        exact = np.array(
            mpmath.lu_solve(mpmath.matrix(matrix.tolist()), mpmath.matrix(right.tolist())), dtype=float
        ).ravel()
    error = np.max(np.abs(solve(jnp.asarray(matrix), jnp.asarray(right)) - exact)) / np.max(np.abs(exact))
    assert error <= np.linalg.cond(matrix) * np.finfo(float).eps


def exact_determinant(matrix):
    rows, result = [[fractions.Fraction(float(entry)) for entry in row] for row in matrix], fractions.Fraction(1)
    for k in range(len(rows)):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k] != 0), None)
        if pivot is None:
            return fractions.Fraction(0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        result *= rows[k][k] if pivot == k else -rows[k][k]
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return result


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_determinants_against_fractions(n):
    """In units of the product of the rows' lengths, which bounds a determinant (Hadamard)."""
    rng = np.random.default_rng(n)
    singular = rng.integers(-3, 4, (20, n, n)).astype(float)
    singular[:, -1] = singular[:, 0] if n > 1 else 0
    matrices = np.concatenate([rng.normal(size=(20, n, n)), rng.integers(-3, 4, (20, n, n)), singular])
    got = np.asarray(jax.jit(jax.vmap(det))(jnp.asarray(matrices)))
    exact = np.array([float(exact_determinant(matrix)) for matrix in matrices])
    bound = np.prod(np.linalg.norm(matrices, axis=2), axis=1)
    assert np.max(np.abs(got - exact) / np.where(bound > 0, bound, 1)) <= n * np.finfo(float).eps


def test_every_order_of_pivots_has_its_sign():
    matrices = np.array([np.eye(4)[list(order)] for order in itertools.permutations(range(4))])
    assert np.array_equal(jax.vmap(det)(jnp.asarray(matrices)), np.round(np.linalg.det(matrices)))


def test_determinants_of_larger_and_complex_matrices():
    rng = np.random.default_rng(2)
    for matrix in (random(rng, 65, 65), random(rng, 9, 9, dtype=complex)):
        # Relative to its own size: these are well conditioned.
        assert_allclose(det(jnp.asarray(matrix)), np.linalg.det(matrix), rtol=1e-11)


# Derivatives


@pytest.mark.parametrize("n, dtype", [(5, np.float64), (5, np.complex128), (130, np.float64), (130, np.complex128)])
def test_derivatives_of_solutions(n, dtype):
    r"""$x' = -A^{-1} A' x$ and $x'' = 2 A^{-1} A' A^{-1} A' x$ along a line, forward and backward."""
    rng = np.random.default_rng(3)
    matrix, direction, right = (random(rng, *shape, dtype=dtype) for shape in ((n, n), (n, n), (n,)))
    inverse = np.linalg.inv(matrix)
    expected = [inverse @ right, -inverse @ direction @ inverse @ right]
    expected = [each[:5] for each in (*expected, -2 * inverse @ direction @ expected[1])]
    along = lambda t: solve(jnp.asarray(matrix) + t.astype(dtype) * jnp.asarray(direction), jnp.asarray(right))[:5]
    parts = lambda t: jnp.stack([along(t).real, along(t).imag])
    forward, backward = jax.jacfwd, jax.jacrev
    orders = {0: [()], 1: [(forward,), (backward,)], 2: list(itertools.product([forward, backward], repeat=2))}

    def nested(nesting):
        fn = parts
        for derivative in nesting:
            fn = derivative(fn)
        return fn

    every = jax.jit(lambda t: {order: [nested(nesting)(t) for nesting in orders[order]] for order in orders})
    for order, values in every(jnp.zeros(())).items():
        for got in map(np.asarray, values):
            # Of dozens of products, each with the condition's few hundred roundings.
            assert_allclose(got[0] + 1j * got[1], expected[order], rtol=0, atol=1e-12 * np.max(np.abs(expected[order])))


def test_one_factorization_serves_many_right_sides():
    """Also the gradient of a chain of solutions, against that with an inverse."""
    rng = np.random.default_rng(4)
    matrix, right = jnp.asarray(random(rng, 6, 6)), jnp.asarray(random(rng, 6, 3))

    def chain(apply):
        return lambda matrix, right: jnp.sum(jnp.sin(apply(matrix)(apply(matrix)(right) ** 2)))

    got = jax.jit(jax.grad(chain(solver), argnums=(0, 1)))(matrix, right)
    expected = jax.grad(chain(lambda matrix: lambda right: jnp.linalg.inv(matrix) @ right), argnums=(0, 1))(
        matrix, right
    )
    for one, other in zip(got, expected, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-10 * np.max(np.abs(other)))
    apply = solver(matrix)
    loops = str(jax.make_jaxpr(lambda a, b: (apply(a), apply(b)))(right, right)).count("argmax")
    assert loops == 0  # factored before


def cofactors(matrix):
    """Of each entry, exactly as minors: derivatives of the determinant at any rank."""
    n = len(matrix)
    minor = lambda i, j: np.delete(np.delete(matrix, i, 0), j, 1)
    return np.array([[(-1) ** (i + j) * float(exact_determinant(minor(i, j))) for j in range(n)] for i in range(n)])


def second_cofactors(matrix):
    n = len(matrix)
    second = np.zeros((n, n, n, n))
    for i, j in np.ndindex(n, n):
        minor = cofactors(np.delete(np.delete(matrix, i, 0), j, 1))
        rows, columns = np.delete(np.arange(n), i), np.delete(np.arange(n), j)
        second[i, j][np.ix_(rows, columns)] = (-1) ** (i + j) * minor
    return second


@jax.jit
def derivatives_of_determinant(matrix):
    """Gradients forward and in reverse, Hessians forward over reverse and in reverse only."""
    return (jax.grad(det)(matrix), jax.jacfwd(det)(matrix)), (
        jax.hessian(det)(matrix),
        jax.jacrev(jax.jacrev(det))(matrix),
    )


@pytest.mark.medium
@pytest.mark.parametrize("rank", [5, 4, 3])
def test_derivatives_of_determinants(rank):
    """Also where the determinant vanishes: of the first order at any rank, of the second where one pivot is lost."""
    rng = np.random.default_rng(5)
    # Integers: a lost pivot is exactly zero, and exactly so here.
    matrix = rng.integers(-2, 3, (5, 5)).astype(float)
    matrix[rank:] = matrix[: 5 - rank]
    assert np.linalg.matrix_rank(matrix) == rank
    gradients, hessians = derivatives_of_determinant(jnp.asarray(matrix))
    for gradient in gradients:
        assert_allclose(gradient, cofactors(matrix), rtol=0, atol=1e-12)
    if rank >= 4:
        for hessian in hessians:
            assert_allclose(hessian, second_cofactors(matrix), rtol=0, atol=1e-11)


# Failure, batches, devices


@pytest.mark.parametrize("n", [4, 130])
def test_singular_and_broken_lanes(n):
    """Singular: not finite, and no exception. Neighbours are what they are without, to the last bit."""
    rng = np.random.default_rng(6)
    matrices, right = random(rng, 9, n, n), random(rng, 9, n)
    broken = matrices.copy()
    broken[2], broken[4, 1, 1], broken[6], broken[7, 0, 0] = 0, np.nan, 1.0, np.inf
    bad = np.isin(np.arange(9), [2, 4, 6, 7])
    every = jax.jit(jax.vmap(lambda a, b: (solve(a, b), det(a), jax.grad(lambda a: solve(a, b)[0])(a))))
    found = [np.asarray(each) for each in every(broken, right)]
    for got, expected in zip(found, every(matrices, right), strict=True):
        assert np.array_equal(got[~bad], np.asarray(expected)[~bad])
    solutions, determinants, _ = found
    assert not np.any(np.all(np.isfinite(solutions[[2, 4, 6]]), axis=1))
    assert determinants[2] == determinants[6] == 0 and not np.isfinite(determinants[4])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [4, 9])
def test_neighbours_do_not_matter(n, dtype):
    rng = np.random.default_rng(7)
    matrices, right, others = (random(rng, *shape, dtype=dtype) for shape in ((37, n, n), (37, n), (37, n, n)))
    order, some = rng.permutation(37), np.arange(37) % 3 == 0
    for fn in (solve, lambda matrix, _: det(matrix), lambda matrix, _: null_vectors(matrix[:-1], n - 1)):
        fn = jax.jit(jax.vmap(fn))
        alone = np.asarray(fn(matrices, right))
        assert np.array_equal(np.asarray(fn(matrices[order], right[order])), alone[order])
        mixed = np.asarray(fn(np.where(some[:, None, None], matrices, 1e5 * others), right))
        assert np.array_equal(mixed[some], alone[some])


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_nothing_is_called(platform):
    """No library, no host: all is in the program itself, also its derivatives."""
    matrices = jnp.ones((3, 4, 4))
    solution = lambda matrices: jnp.sum(jax.vmap(solve)(matrices, matrices))
    determinant = lambda matrices: jnp.sum(jax.vmap(det)(matrices))
    vectors = lambda matrices: jnp.sum(jax.vmap(lambda each: null_vectors(each, 3))(matrices))
    for fn in (solution, jax.grad(solution), jax.hessian(solution), jax.grad(determinant), vectors):
        program = jax.export.export(jax.jit(fn), platforms=[platform])(matrices).mlir_module()
        assert re.findall(r"custom_call @(\w+)", program) == []


# Null vectors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, rank", [((1, 2), 1), ((5, 5), 4), ((6, 7), 5), ((32, 33), 32)])
def test_null_vectors(shape, rank, dtype):
    """They span what the singular vectors of the smallest singular values span."""
    rng = np.random.default_rng(8)
    for _ in range(5):
        u, s, vh = np.linalg.svd(random(rng, *shape, dtype=dtype))
        s[rank:] = 0
        matrix = ((u[:, : len(s)] * s) @ vh[: len(s)]).astype(dtype)
        got = np.asarray(null_vectors(jnp.asarray(matrix), rank))
        eps = np.finfo(dtype).eps
        assert got.shape == (shape[1] - rank, shape[1]) and got.dtype == dtype
        assert_allclose(got @ got.conj().T, np.eye(len(got)), rtol=0, atol=100 * eps)
        # The subspace moves by the rounding of the matrix over its smallest singular value.
        leaving = got - (got @ vh[rank:].T) @ vh[rank:].conj()
        assert np.max(np.abs(leaving)) <= 10 * shape[1] * eps * s[0] / s[rank - 1]


def test_null_vectors_with_a_small_leading_entry():
    """Divided by the first entry that is not zero, the rows would keep no digit of the others. The cross product of the rows."""
    matrix = jnp.array([[1e-16, 1.0, 2.0], [1.0, 2.0, 1.0]])
    (found,) = np.asarray(null_vectors(matrix, 2))
    assert_allclose(found * np.sign(found[1]), np.array([-3, 2, -1]) / np.sqrt(14), rtol=0, atol=1e-15)


def test_null_vectors_of_lower_rank():
    """Some of the null vectors, and finite."""
    assert_allclose(np.linalg.norm(null_vectors(jnp.zeros((3, 3)), 2)), 1)
    matrix = np.outer([1.0, 2.0, 3.0], [1.0, -1.0, 0.5])
    assert_allclose(matrix @ np.asarray(null_vectors(jnp.asarray(matrix), 2))[0], 0, atol=1e-15)


# With `jnp.linalg.det` and `jnp.linalg.eigvals` this never ends, in jaxlib 0.10.2 on two cores: see
# `hyjax._numerics.elimination`.
_OVERLAPPING = """
import threading
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
from hyjax._numerics.elimination import det
from hyjax._numerics.eigenvalues import spectrum
matrices = np.random.default_rng(0).normal(size=(20000, 4, 4))
for fn, threads, repetitions in ((det, 1, 30), (det, 2, 15), (spectrum, 2, 3)):
    both = jax.jit(lambda matrices: [jax.vmap(fn)(jnp.sin((j + 1) * matrices)) for j in range(2)])
    expected = np.asarray(both(matrices))
    assert np.all(np.isfinite(expected))
    same = []
    def run():
        same.append(all([np.array_equal(np.asarray(both(matrices)), expected) for _ in range(repetitions)]))
    running = [threading.Thread(target=run) for _ in range(threads)]
    [thread.start() for thread in running]
    [thread.join() for thread in running]
    assert same == [True] * threads
print("finished")
"""


@pytest.mark.slow
def test_overlapping_batches_do_not_wait_for_each_other():
    """In a process of its own: a deadlock would otherwise be the test's."""
    command = [sys.executable, "-c", _OVERLAPPING]
    # Some ten times what it takes.
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "finished"
