"""Enclosures of the eigenvalues of sets of matrices: exact members of the sets, and exact results by Arb.

A test that no member is outside is one that finds members outside when the discs are made smaller.
"""

import numpy as np
import pytest
from flint import acb, acb_mat, arb, ctx

from hyjax._testing import enclose_eigenvalues

DIGITS = 200


@pytest.fixture(autouse=True)
def _precision():
    before, ctx.prec = ctx.prec, DIGITS
    yield
    ctx.prec = before


def members(matrix, radius, rng, count):
    """Corners of the set, on its boundary, and matrices inside; as floats that are in the set exactly."""
    for i in range(count):
        offset = rng.choice([-1.0, 1.0], matrix.shape) if i % 2 else rng.uniform(-1, 1, matrix.shape)
        # A factor below one: the sum's rounding does not lead out of the set.
        yield matrix + radius * (1 - 2.0**-30) * offset


def eigenvalues(matrix):
    """Enclosures of 50 digits of the eigenvalues, which are simple."""
    return acb_mat(matrix.tolist()).eig()


def outside(enclosure, values, factor=1.0) -> bool:
    """Whether some disc does not hold as many of the values as it should, or some value is in no disc."""
    held = np.array([
        [abs(value - acb(complex(centre))) <= arb(float(radius)) * factor for value in values]
        for centre, radius in zip(enclosure.centres, enclosure.radii, strict=True)
    ])  # fmt: skip
    multiplicity = np.bincount(enclosure.clusters)[enclosure.clusters]
    return bool(np.any(held.sum(axis=1) != multiplicity) or not np.all(held.any(axis=0)))


def unimodular(n, rng):
    """An integer matrix whose inverse is of integers, and that inverse."""
    lower, upper = (
        np.tril(rng.integers(-2, 3, (n, n)), -1) + np.eye(n),
        np.triu(rng.integers(-2, 3, (n, n)), 1) + np.eye(n),
    )
    matrix = lower @ upper
    inverse = np.round(np.linalg.inv(upper)) @ np.round(np.linalg.inv(lower))
    assert np.array_equal(matrix @ inverse, np.eye(n))
    return matrix, inverse


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_known_integers(n):
    """A matrix of integers with known eigenvalues: all simple, and proved real."""
    rng = np.random.default_rng(n)
    for _ in range(20):
        known = np.sort(rng.choice(np.arange(-9, 10), n, replace=False)).astype(float)
        vectors, inverse = unimodular(n, rng)
        matrix = vectors @ np.diag(known) @ inverse
        found = enclose_eigenvalues(matrix)
        assert np.all(found.simple) and np.all(found.real)
        order = np.argsort(found.centres.real)
        assert np.all(np.abs(found.centres[order] - known) <= found.radii[order])
        # Rounding times the condition of the vectors.
        assert np.max(found.radii) < 1e-14 * np.linalg.cond(vectors) * np.linalg.norm(matrix) + 1e-140
        low, high = found.moduli()
        assert np.all(low[order] <= np.abs(known)) and np.all(np.abs(known) <= high[order])
        assert np.all(high - low <= 2.001 * found.radii + 1e-13)


@pytest.mark.parametrize("radius", [0.0, 1e-9, 1e-4, 3e-2])
def test_members_of_random_sets(radius):
    """Each disc holds as many eigenvalues of each member as it says; those of real discs are real."""
    rng = np.random.default_rng(1)
    found_outside = 0
    for n in (2, 3, 4, 6):
        for _ in range(4):
            matrix, each = rng.normal(size=(n, n)), radius * rng.uniform(0, 1, (n, n))
            found = enclose_eigenvalues(matrix, each)
            for member in members(matrix, each, rng, 8):
                values = eigenvalues(member)
                assert not outside(found, values)
                real = sum(value.imag.contains(0) for value in values)
                assert np.sum(found.real) <= real
                found_outside += outside(found, values, factor=0.05)
            if radius < 1e-3:
                # Of the set's norm times the condition of the eigenvectors; discs of random matrices do not meet.
                assert np.all(found.simple) and np.max(found.radii) < 200 * n * (radius + 1e-15)
    # The discs are not so large that they show nothing.
    assert radius == 0 or found_outside > 20


@pytest.mark.parametrize(("k", "radius"), [(2, 0.0), (2, 1e-10), (3, 0.0), (3, 1e-12), (4, 1e-9)])
def test_jordan_blocks(k, radius):
    """Beside a simple eigenvalue: a cluster of k, about as large as the spread radius^(1/k) of the eigenvalues themselves."""
    rng = np.random.default_rng(k)
    matrix = np.zeros((k + 1, k + 1))
    matrix[:k, :k] = 2 * np.eye(k) + np.eye(k, k=1)
    matrix[k] = [1.0, -1.0, *[0.5] * (k - 2), -1.0]
    found = enclose_eigenvalues(matrix, radius)
    assert np.array_equal(np.sort(np.bincount(found.clusters)), [1, k])
    cluster = ~found.simple
    assert np.all(np.abs(found.centres[cluster] - 2) <= found.radii[cluster])
    assert found.real[~cluster].all() and abs(found.centres[~cluster][0] + 1) <= found.radii[~cluster][0] < 1e-6
    # Rounding is a perturbation of 1e-15 too.
    assert np.max(found.radii) < 40 * max(radius, 1e-15) ** (1 / k)
    for member in [*members(matrix, radius, rng, 6)] if radius else []:
        member[k - 1, 0] = radius * (1 - 2.0**-30)
        assert not outside(found, eigenvalues(member))


def test_multiple_eigenvalues_and_zero():
    """Of the identity and of zero, and of the smallest and largest numbers."""
    rng = np.random.default_rng(5)
    found = enclose_eigenvalues(np.eye(3), 1e-5)
    assert np.all(found.clusters == found.clusters[0]) and np.all(found.radii < 4e-5)
    assert not any(outside(found, eigenvalues(member)) for member in members(np.eye(3), 1e-5, rng, 5))
    assert np.all(enclose_eigenvalues(np.zeros((2, 2))).radii < 1e-140)
    assert not np.any(enclose_eigenvalues(np.zeros((2, 2))).moduli()[0])
    small = 1e-200 * rng.normal(size=(3, 3))
    assert not outside(enclose_eigenvalues(small), eigenvalues(small))
    matrix = rng.normal(size=(3, 3))
    found = enclose_eigenvalues(2.0**660 * matrix)
    assert not outside(found, [2**660 * each for each in eigenvalues(matrix)])
    assert np.all(found.simple) and np.all(found.radii < 1e186)


@pytest.mark.parametrize("n", [2, 3])
def test_discs_that_meet_are_merged_with_all_that_they_hold(n):
    """diag(0, .., n - 1) and a radius r for which the discs of neighbours meet: eigenvalues are beyond either of them."""
    matrix = np.diag(np.arange(float(n)))
    for radius in (0.3, 0.5, 0.7):
        found = enclose_eigenvalues(matrix, radius)
        assert np.all(found.clusters == 0)
        for sign in (-1, 1):
            # Of extreme entries, the smallest first and the largest last.
            member = matrix + radius * (1 - 2.0**-30) * np.where(np.eye(n), np.sign(np.arange(n) - 0.5 * (n - 1)), sign)
            assert not outside(found, eigenvalues(member))


def test_discs_hold_with_any_eigenvectors(monkeypatch):
    """Eigenvalues and vectors that are wrong by up to a half: wide discs, which hold the members' eigenvalues all the same."""
    rng, eig = np.random.default_rng(8), np.linalg.eig
    for error in (0.0, 1e-9, 1e-3, 0.1, 0.5):

        def wrong(matrix, error=error):
            values, vectors = eig(matrix)
            around = error * rng.uniform(-1, 1, matrix.shape)
            return values + around[0], vectors + around

        matrix, radius = rng.normal(size=(3, 3)), 1e-6 * rng.uniform(0, 1, (3, 3))
        every = [eigenvalues(member) for member in members(matrix, radius, rng, 6)]
        monkeypatch.setattr(np.linalg, "eig", wrong)
        found = enclose_eigenvalues(matrix, radius)
        monkeypatch.undo()
        assert not any(outside(found, values) for values in every)


def test_rotation_and_saddle():
    r"""Closed forms of planar maps: a focus $a \pm ib$, in coordinates of different units; and the two sides of a saddle."""
    for a, b, unit in ((-0.19, 0.5576, 1.0), (0.3, 0.9, 1e6), (1.0, 1e-3, 1.0)):
        matrix = np.array([[a, -b * unit], [b / unit, a]])
        radius = 1e-8 * np.array([[1, unit], [1 / unit, 1]])
        found = enclose_eigenvalues(matrix, radius)
        for sign in (-1, 1):
            assert np.min(np.abs(found.centres - (a + 1j * sign * b)) - found.radii) <= 0
        assert np.all(found.simple) and not np.any(found.real) and np.max(found.radii) < 4.1e-8
        low, high = found.moduli()
        assert np.all(low <= np.hypot(a, b)) and np.all(np.hypot(a, b) <= high) and np.all(high - low < 9e-8)
    saddle = enclose_eigenvalues(np.array([[4.0, 0.0], [1.0, 0.46]]), 1e-6)
    low, high = saddle.moduli()
    assert np.all(saddle.real) and np.sum(low > 3.999) == 1 and np.sum(high < 0.4601) == 1
    # A focus whose imaginary part may vanish: one disc of two, and nothing is said to be real.
    close = enclose_eigenvalues(np.array([[1.0, -1e-9], [1e-9, 1.0]]), 1e-8)
    assert not np.any(close.simple) and not np.any(close.real)


def test_misuse():
    for function in (enclose_eigenvalues,):
        with pytest.raises(ValueError, match=r"shape \(2,\) must be square"):
            function(np.ones(2))
        with pytest.raises(
            ValueError, match=r"radius of shape \(2,\) must be one number or have the matrix's shape \(2, 2\)"
        ):
            function(np.ones((2, 2)), np.ones(2))
        for matrix, radius in ((np.nan, 0.0), (1.0, np.inf), (1.0, -1e-9)):
            with pytest.raises(ValueError, match="must be finite, and its radius finite and not negative"):
                function(np.full((2, 2), matrix), radius)
    with pytest.raises(ValueError, match=r"shape \(2, 3\) must be square"):
        enclose_eigenvalues(np.ones((2, 3)))
