r"""Eigenvalues of small matrices, and their derivatives, against LAPACK, 40 digits and formulas of perturbation theory.

The criterion, for a matrix of size $n$, with $\delta = 4 n \epsilon \|A\|_2$:

- each $\lambda$ is an eigenvalue of a matrix within $\delta$: $\sigma_{\min}(A - \lambda) \le \delta$;
- they are the eigenvalues, each as often as it should be: one to one, those that are simple for perturbations of size $\delta$
  are within $\delta \kappa$ of the reference, with the condition $\kappa = 1 / |y^* x|$; and the sum is the trace.
"""

import functools as ft
import re

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose
from scipy.optimize import linear_sum_assignment

from hyjax._testing import eigenvalues, plain_spectrum, spectrum

LANES = 32


def families(n, rng):
    """`LANES` matrices of each kind."""
    many = (LANES, n, n)
    normal = lambda *shape: rng.normal(size=shape or many)
    every = lambda make: np.stack([make() for _ in range(LANES)])
    rotation = np.linalg.qr(normal())[0]
    rotated = lambda matrices: rotation @ matrices @ np.swapaxes(rotation, 1, 2)
    power = np.arange(n)[:, None] + np.arange(n)
    companion = lambda first: np.concatenate([first, np.eye(n - 1, n)[None].repeat(LANES, 0)], axis=1)
    strict = np.triu(normal(), 1)

    def jordan():
        matrix, i = np.zeros((n, n)), 0
        while i < n:
            m = min(int(rng.integers(1, 5)), n - i)
            matrix[i : i + m, i : i + m] = rng.integers(-2, 3) * np.eye(m) + np.eye(m, k=1)
            i += m
        return matrix

    def repeated():
        vectors = rng.integers(-1, 2, (n, n)) + 2 * n * np.eye(n)
        return vectors @ np.diag(rng.integers(-1, 2, n)) @ np.linalg.inv(vectors)

    return {
        "normal": normal(),
        "uniform": rng.uniform(size=many),
        "units": normal() * (scale := 10 ** rng.uniform(-4, 4, (LANES, n, 1))) / np.swapaxes(scale, 1, 2),
        "rows falling": normal() * 10.0 ** -np.arange(n)[:, None],
        "falling": normal() * 10.0**-power,
        "rising": normal() * 10.0**power,
        "integer": rng.integers(-3, 4, many).astype(float),
        "sparse": normal() * (rng.uniform(size=many) < 0.3),
        "companion": companion(normal(LANES, 1, n)),
        "companion, integer": companion(rng.integers(-1, 2, (LANES, 1, n))),
        "orthogonal": rotation,
        "cyclic": every(lambda: np.roll(np.eye(n), 1, 0) * rng.choice([-1, 1], n)),
        "permutation": every(lambda: np.eye(n)[rng.permutation(n)]),
        "symmetric": normal() + (other := normal()) + np.swapaxes(other, 1, 2),
        "skew": (other := normal()) - np.swapaxes(other, 1, 2),
        "rank n/2": normal(LANES, n, max(1, n // 2)) @ normal(LANES, max(1, n // 2), n),
        "rank 1": normal(LANES, n, 1) @ normal(LANES, 1, n),
        "zero row and column": normal() * (np.arange(n) > 0) * (np.arange(n) < n - 1)[:, None],
        "nilpotent": strict,
        "nilpotent, rotated": rotated(strict),
        "Jordan": every(jordan),
        "Jordan, rotated": rotated(every(jordan)),
        "repeated": every(repeated),
        "clustered": rotated(np.eye(n) + 1e-8 * strict) + 1e-10 * normal(),
        "diagonal": every(lambda: np.diag(normal(n))),
        "a multiple of one": rng.integers(-1, 3, (LANES, 1, 1)) * np.eye(n),
        "Hessenberg": np.triu(normal(), -1),
        "Hessenberg, with noise": np.where(np.tri(n, k=-2) > 0, 1e-17, 1) * normal(),
        "Toeplitz": every(lambda: scipy.linalg.toeplitz(normal(n), normal(n))),
        "Frank": every(lambda: np.where(np.tri(n, k=-2) > 0, 0.0, n - np.maximum(*np.indices((n, n))))),
        "huge": normal() * 1e30,
        "tiny": normal() * 1e-30,
    }


def worst(matrices, values, eps):
    """By what factors the criterion's three parts miss 4 n eps |A|, at most."""
    # To size one: neither the reference nor its norms then overflow.
    size = np.max(np.abs(matrices), axis=(1, 2), keepdims=True)
    size = np.where(size > 0, size, 1)
    matrices, values = matrices / size, values / size[:, :, 0]
    n = matrices.shape[1]
    delta = 4 * n * eps * np.maximum(np.linalg.norm(matrices, 2, axis=(1, 2)), np.finfo(float).tiny)
    shifted = matrices[:, None] - values[:, :, None, None] * np.eye(n)
    backward = np.linalg.svd(shifted, compute_uv=False)[..., -1] / delta[:, None]
    trace = np.abs(np.sum(values, axis=1) - np.trace(matrices, axis1=1, axis2=2)) / (n * delta)
    forward = []
    for matrix, got, small in zip(matrices, values, delta, strict=True):
        reference, left, right = (np.asarray(each) for each in scipy.linalg.eig(matrix, left=True, right=True))
        condition = 1 / np.maximum(np.abs(np.sum(left.conj() * right, axis=0)), 1e-300)
        # Each may move by so much, and is simple where it is far from wherever the others may move to.
        allowed = small * condition
        reach = np.maximum(allowed[:, None], np.minimum(allowed, 1e-3))
        gap = np.abs(reference[:, None] - reference) + np.diag(np.full(n, np.inf))
        simple = np.all(gap > 100 * reach, axis=1)

        def missed(reference, got=got, allowed=allowed, simple=simple):
            distance = np.abs(reference[:, None] - got)
            return np.max(np.where(simple, distance[linear_sum_assignment(distance)] / allowed, 0))

        # LAPACK's own error has the same bound: where the two differ by much of it, the judge has 40 digits.
        forward.append(missed(reference) if missed(reference) < 0.5 else missed(_exact(matrix, reference)))
    return {"backward": np.max(backward), "trace": np.max(trace), "forward": np.max(forward)}


def _exact(matrix, near):
    with mpmath.workdps(40):
        values = mpmath.eig(mpmath.matrix(matrix.tolist()), left=False, right=False)
    values = np.array([complex(value) for value in values])
    return values[linear_sum_assignment(np.abs(near[:, None] - values))[1]]


def _values(matrices, dtype=np.float64):
    matrices = matrices.astype(dtype)
    return matrices.astype(float), np.asarray(jax.jit(plain_spectrum)(jnp.asarray(matrices))).astype(complex)


@pytest.mark.parametrize("n", [2, 3, 4, *(pytest.param(n, marks=pytest.mark.medium) for n in (5, 6, 8, 10, 12))])
def test_eight_thousand_matrices(n):
    by_name = families(n, np.random.default_rng(n))
    matrices, values = _values(np.concatenate(list(by_name.values())))
    for i, name in enumerate(by_name):
        lanes = slice(i * LANES, (i + 1) * LANES)
        missed = worst(matrices[lanes], values[lanes], np.finfo(np.float64).eps)
        assert max(missed.values()) <= 1, (name, missed)


@pytest.mark.parametrize("n", [3, 12])
def test_single_precision(n):
    """Against LAPACK in double precision."""
    by_name = families(n, np.random.default_rng(n))
    matrices, values = _values(np.concatenate(list(by_name.values())), np.float32)
    for i, name in enumerate(by_name):
        lanes = slice(i * LANES, (i + 1) * LANES)
        missed = worst(matrices[lanes], values[lanes], np.finfo(np.float32).eps)
        assert max(missed.values()) <= 1, (name, missed)


@pytest.mark.parametrize("spread", [1e2, 1e4, 1e8])
def test_units_do_not_matter(spread):
    """States in units that differ so much, in powers of two: the eigenvalues keep the accuracy of those in like units."""
    n, rng = 6, np.random.default_rng(1)
    matrices = rng.normal(size=(100, n, n))
    units = 2.0 ** np.round(np.log2(spread) * rng.uniform(-0.5, 0.5, (100, n, 1)))
    _, values = _values(matrices * units / np.swapaxes(units, 1, 2))
    assert max(worst(matrices, values, np.finfo(float).eps).values()) <= 1


def test_one_and_two_rows():
    """Closed forms, to the digits that the entries determine: against 40 digits."""
    entries = [1.0, -1.0, 3.0, 1e-9, 1e-200, 1e200, 0.0, 0.1]
    matrices = np.array([[[a, b], [c, d]] for a in entries for b in entries for c in entries for d in entries])
    _, values = _values(matrices)
    for matrix, got in zip(matrices, values, strict=True):
        with mpmath.workdps(500):
            a, b, c, d = (mpmath.mpf(float(entry)) for entry in matrix.ravel())
            root = mpmath.sqrt(((a - d) / 2) ** 2 + b * c)
            exact = np.array([complex((a + d) / 2 + root), complex((a + d) / 2 - root)])
            # Rounding of the discriminant moves a pair that nearly coincides by the root of that.
            moved = float(abs(mpmath.sqrt(root**2 + 1e-15 * (((a - d) / 2) ** 2 + abs(b * c))) - root))
        error = min(np.max(np.abs(got - exact)), np.max(np.abs(got - exact[::-1])))
        assert error <= moved + 4 * np.finfo(float).eps * np.max(np.abs(matrix)), matrix
    assert_allclose(_values(np.array([[[5.0]], [[-0.1]]]))[1], [[5.0], [-0.1]], rtol=0, atol=0)
    # Triangular: the entries themselves.
    assert set(_values(np.array([[[1e-20, 7.0], [0.0, 1.0]]]))[1][0]) == {1e-20, 1.0}


@pytest.mark.medium
def test_return_maps_of_walkers(walker, compass, wheel):
    for orbit in (*walker.values(), compass, wheel):
        matrices, values = _values(np.asarray(orbit.return_jacobian)[None])
        assert max(worst(matrices, values, np.finfo(float).eps).values()) <= 1
        sort = lambda values: np.sort_complex(np.round(np.asarray(values), 12))
        assert_allclose(sort(values[0]), sort(orbit.multipliers), rtol=0, atol=2e-12)


def test_pairs_are_exact():
    """Real eigenvalues are real, the others are conjugate to the last bit, and neighbours."""
    _, values = _values(np.random.default_rng(2).normal(size=(500, 7, 7)))
    for lane in values:
        i = 0
        while i < len(lane):
            if lane[i].imag == 0:
                i += 1
            else:
                assert lane[i + 1] == lane[i].conj()
                i += 2


def lanes_of(n):
    """One lane that needs many sweeps, one that needs none, and others."""
    matrices = np.random.default_rng(3).normal(size=(37, n, n))
    matrices[5], matrices[6] = np.eye(n), np.roll(np.eye(n), 1, 0)
    return matrices


@pytest.mark.parametrize("n", [2, 7])
@pytest.mark.parametrize("fn", [plain_spectrum, jax.vmap(spectrum)])
def test_neighbours_do_not_matter(fn, n):
    """To the last bit: whatever stands beside a lane, and wherever the lane stands."""
    fn, matrices = jax.jit(fn), lanes_of(n)
    alone = np.asarray(fn(matrices))
    others = np.random.default_rng(4).normal(size=matrices.shape) * 1e5
    for keep in (np.arange(37) % 2 == 0, np.arange(37) == 11, np.arange(37) == 36):
        mixed = np.asarray(fn(np.where(keep[:, None, None], matrices, others)))
        assert np.array_equal(mixed[keep], alone[keep])
    order = np.random.default_rng(5).permutation(37)
    assert np.array_equal(np.asarray(fn(matrices[order])), alone[order])


@pytest.mark.parametrize("n", [1, 2, 4, 13])
def test_a_lane_that_is_not_finite(n):
    matrices, fn = lanes_of(n), jax.jit(jax.vmap(eigenvalues))
    sound, good = np.asarray(fn(matrices)), np.arange(37) != 9
    for what in (np.nan, np.inf, -np.inf):
        broken = matrices.copy()
        broken[9, 0, n - 1] = what
        values = np.asarray(fn(broken))
        assert np.all(np.isnan(values[9]))
        assert np.array_equal(values[good], sound[good])


def test_lanes_of_lanes():
    """Batches within batches, wherever the axis is."""
    matrices = np.random.default_rng(6).normal(size=(3, 4, 4, 5))
    got = jax.vmap(jax.vmap(spectrum, in_axes=2), in_axes=0)(jnp.asarray(matrices))
    alone = jax.jit(spectrum)
    expected = np.stack([[np.asarray(alone(matrices[i, :, :, j])) for j in range(5)] for i in range(3)])
    assert np.array_equal(got, expected)


def calls(fn, platform, *arguments):
    """What the exported program calls that is not compiled with it."""
    geev = jax.export.DisabledSafetyCheck.custom_call("lapack_dgeev_ffi")
    exported = jax.export.export(jax.jit(fn), platforms=[platform], disabled_checks=[geev])(*arguments)
    return set(re.findall(r"custom_call @([\w.]+)", exported.mlir_module()))


@pytest.mark.parametrize("n", [1, 2, 4, 12])
def test_nothing_leaves_the_device(n):
    """On a GPU there is no call to the host, nor to a library; on a CPU one, to LAPACK."""
    batch = jnp.ones((3, n, n))
    size = lambda matrices: jnp.sum(jnp.abs(jax.vmap(eigenvalues)(matrices)))
    assert calls(plain_spectrum, "cpu", batch) == set()
    # In it the values and the gradient are contained.
    hessian = jax.hessian(size)
    assert calls(hessian, "cuda", batch) == set()
    assert calls(hessian, "cpu", batch) == ({"lapack_dgeev_ffi"} if n > 2 else set())


# Derivatives


def test_order():
    """Largest modulus first, of a pair the upper one."""
    matrices = np.random.default_rng(7).normal(size=(200, 5, 5))
    for values in np.asarray(jax.vmap(eigenvalues)(jnp.asarray(matrices))):
        assert np.all(np.diff(np.abs(values)) <= 1e-7 * np.abs(values[0]))
        upper = np.flatnonzero(values.imag > 0)
        assert np.array_equal(values[upper].conj(), values[upper + 1])


@ft.cache
def line():
    """A matrix with real eigenvalues and pairs, and a direction."""
    rng = np.random.default_rng(8)
    while True:
        matrix, direction = rng.normal(size=(2, 5, 5))
        values = np.linalg.eigvals(matrix)
        if 0 < np.sum(values.imag > 0) < 2 and np.min(np.abs(values[:, None] - values) + 9 * np.eye(5)) > 0.4:
            return matrix, direction


def one_more(orders):
    """A function's values and derivatives, `(f, f', ...)`, with the next of them."""

    def highest(t):
        values = orders(t)
        return values[-1], values

    def more(t):
        derivative, values = jax.jacfwd(highest, has_aux=True)(t)
        return (*values, derivative)

    return more


@pytest.mark.medium
def test_three_derivatives_along_a_line():
    """Against differences with 60 digits."""
    matrix, direction = line()
    orders = lambda t: (eigenvalues(jnp.asarray(matrix) + t * jnp.asarray(direction)),)
    for _ in range(3):
        orders = one_more(orders)
    got = [np.asarray(each) for each in jax.jit(orders)(0.0)]
    with mpmath.workdps(60):
        a, b = mpmath.matrix(matrix.tolist()), mpmath.matrix(direction.tolist())
        for i, start in enumerate(got[0]):

            def nearest(t, start=start):
                values = mpmath.eig(a + t * b, left=False, right=False)
                return min(values, key=lambda value: abs(value - mpmath.mpc(start)))

            for order in (1, 2, 3):
                exact = complex(mpmath.diff(nearest, 0, order))
                # The order's factor of gaps is of order ten; each is a sum of products of some dozen roundings.
                assert abs(got[order][i] - exact) <= 1e-12 * 10**order * (1 + abs(exact))


@pytest.mark.medium
@pytest.mark.parametrize("n", [1, 5])
def test_first_and_second_derivatives(n):
    r"""By perturbation theory: $w A' v$, and $2 \sum_j (w_i A' v_j)(w_j A' v_i) / (s_i - s_j)$."""
    rng = np.random.default_rng(9)
    values = np.arange(1.0, n + 1)
    vectors = np.linalg.qr(rng.normal(size=(n, n)))[0] + 0.1 * rng.normal(size=(n, n))
    matrix, direction = vectors @ np.diag(values) @ np.linalg.inv(vectors), rng.normal(size=(n, n))
    coupling = np.linalg.inv(vectors) @ direction @ vectors
    gaps = values[:, None] - values + np.diag(np.full(n, np.inf))
    order = np.argsort(-values)
    first, second = np.diag(coupling)[order], 2 * np.sum(coupling * coupling.T / gaps, axis=1)[order]

    size = lambda matrix: eigenvalues(matrix).real
    push = lambda fn: lambda matrix: jax.jvp(fn, (matrix,), (jnp.asarray(direction),))[1]
    pull = lambda fn: lambda matrix: jnp.sum(jax.jacrev(fn)(matrix) * direction, axis=(1, 2))
    once, twice = (push, pull), ((push, push), (push, pull), (pull, pull))
    every = jax.jit(lambda a: ([one(size)(a) for one in once], [one(other(size))(a) for one, other in twice]))
    slopes, curvatures = every(jnp.asarray(matrix))
    for got in slopes:
        assert_allclose(got, first, rtol=1e-11, atol=1e-12)
    for got in curvatures:
        # Some hundred roundings, over gaps of 1.
        assert_allclose(got, second, rtol=1e-10, atol=1e-11 * np.max(np.abs(coupling)) ** 2)


@pytest.mark.medium
def test_zeros_of_low_rank_do_not_move():
    """Three zeros that stay, and two eigenvalues that move as those of the matrix that is left."""
    rng = np.random.default_rng(10)
    tall, wide = jnp.asarray(rng.normal(size=(5, 2))), jnp.asarray(rng.normal(size=(2, 5)))
    big = lambda t: eigenvalues((tall + t) @ wide)
    small = lambda t: eigenvalues(wide @ (tall + t))
    # Two zeros with one eigenvector, which is at right angles to the left one.
    chain = jnp.array([[2.0, 1, 0], [0, 0, 1], [0, 0, 0]])
    along = lambda t: eigenvalues((1 + t) * chain)
    to_second_order = lambda fn: one_more(one_more(lambda t: (fn(t),)))
    every = jax.jit(lambda t: [to_second_order(fn)(t) for fn in (big, small, along)])
    got, expected, (_, slope, curvature) = jax.tree.map(np.asarray, every(0.0))
    for all_five, two in zip(got, expected, strict=True):
        assert_allclose(all_five[:2], two, rtol=0, atol=1e-11)
        assert_allclose(all_five[2:], 0, atol=1e-14)
    assert_allclose(slope, [2, 0, 0], atol=1e-14)
    assert_allclose(curvature, 0, atol=1e-13)
    gradient = jax.jit(jax.grad(lambda tall: jnp.sum(jnp.abs(eigenvalues(tall @ wide)[:2]))))(tall)
    assert np.all(np.isfinite(gradient))


@pytest.mark.medium
def test_more_than_twelve():
    """Beyond the small sizes LAPACK's eigenvalues, and the same derivatives."""
    values = np.arange(1.0, 15)
    vectors = np.linalg.qr(np.random.default_rng(11).normal(size=(14, 14)))[0]
    got, slope = jax.jvp(eigenvalues, (jnp.asarray(vectors * values @ vectors.T),), (jnp.asarray(vectors @ vectors.T),))
    assert_allclose(got, values[::-1], rtol=1e-13)
    assert_allclose(slope, 1, rtol=1e-13)
