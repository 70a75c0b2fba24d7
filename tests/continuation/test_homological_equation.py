r"""Normal forms of random polynomial maps, in more coordinates than are critical, against the homological equation in mpmath.

$F(W(w)) = W(N(w))$ is solved monomial by monomial: $(A - \mu^\alpha) W_\alpha - Q N_\alpha = (W \circ N - F \circ W)_\alpha$,
of which the right-hand side has monomials of lower degree only, and $p \cdot W_\alpha = 0$ for each dual vector $p$ of a resonant
row.
"""

import itertools

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_normal_form import form_at

DIGITS, ONE, MINUS = 30, (1,), (-1,)
with mp.workdps(DIGITS):
    ANGLES = 1, mp.pi / 2, 2 * mp.pi / 3, mp.mpf("1.9")
    PAIR, QUARTER, THIRD, OTHER = ((mp.expj(angle), mp.expj(-angle)) for angle in ANGLES)
# The critical multipliers, those of pairs together, and the order of the form.
KINDS = {
    "fold": ((ONE,), 2), "period-doubling": ((MINUS,), 3), "neimark-sacker": ((PAIR,), 3), "branch-point": ((ONE,), 3),
    "cusp": ((ONE,), 3), "generalized-flip": ((MINUS,), 5), "chenciner": ((PAIR,), 5), "resonance-1:3": ((THIRD,), 3),
    "resonance-1:4": ((QUARTER,), 3), "fold-flip": ((ONE, MINUS), 3), "fold-neimark-sacker": ((PAIR, ONE), 3),
    "flip-neimark-sacker": ((PAIR, MINUS), 3), "double-neimark-sacker": ((PAIR, OTHER), 3),
}  # fmt: skip


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(DIGITS):
        yield


def exponents(size, order):
    return [e for e in itertools.product(range(order + 1), repeat=size) if 1 <= sum(e) <= order]


def substituted(polynomial, inner, order):
    """`polynomial(inner(w))`, both of exponents to coefficients; `inner` one for each variable."""
    powers, size = {}, len(next(iter(inner[0])))

    def power(e):
        if e not in powers:
            first = next((k for k, n in enumerate(e) if n), None)
            powers[e] = {(0,) * size: mp.mpf(1)} if first is None else {}
            if first is not None:
                rest = power(tuple(n - (k == first) for k, n in enumerate(e)))
                for (a, u), (b, v) in itertools.product(rest.items(), inner[first].items()):
                    both = tuple(map(sum, zip(a, b, strict=True)))
                    if sum(both) <= order:
                        powers[e][both] = powers[e].get(both, 0) + u * v
        return powers[e]

    found = {}
    for e, factor in polynomial.items():
        for a, value in power(e).items():
            found[a] = found.get(a, 0) + factor * value
    return found


def reduced(polynomials, linear, basis, duals, critical, order):
    """The rows of $N$. `basis`: the eigenvectors as columns, and `duals` as rows."""
    count, n = len(critical), linear.rows
    unit = [tuple(int(j == k) for j in range(count)) for k in range(count)]
    W = [{e: basis[r, k] for k, e in enumerate(unit)} for r in range(n)]
    N = [{e: critical[k]} for k, e in enumerate(unit)]
    for degree in range(2, order + 1):
        known = [substituted(each, W, degree) for each in polynomials]
        after = [substituted(each, N, degree) for each in W]
        for a in (e for e in exponents(count, degree) if sum(e) == degree):
            factor = mp.fprod(mu**k for mu, k in zip(critical, a, strict=True))
            rows = [k for k, mu in enumerate(critical) if abs(factor - mu) < 1e-20]
            border = mp.zeros(n + len(rows))
            border[:n, :n] = linear - factor * mp.eye(n)
            right = mp.matrix([*(after[r].get(a, 0) - known[r].get(a, 0) for r in range(n)), *(0 for _ in rows)])
            for i, k in enumerate(rows):
                border[:n, n + i], border[n + i, :n] = -basis[:, k], duals[k, :]
            solved = mp.lu_solve(border, right)
            for r in range(n):
                W[r][a] = solved[r]
            for i, k in enumerate(rows):
                N[k][a] = solved[n + i]
    return N


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_maps(kind):
    groups, order = KINDS[kind]
    rng, critical = np.random.default_rng(2), [mu for group in groups for mu in group]
    n, every = len(critical) + 1, exponents(len(critical) + 1, max(order, 3))
    # The matrix is real: in its basis pairs are conjugate columns.
    columns = []
    for group in groups:
        q = rng.normal(size=n) + 1j * rng.normal(size=n) * (len(group) - 1)
        columns += [q, q.conj()][: len(group)]
    basis = mp.matrix(np.column_stack([*columns, rng.normal(size=n)]).tolist())
    for k in range(n):
        # Of length 1, the largest entry positive.
        column = [basis[r, k] for r in range(n)]
        turn = abs(max(column, key=abs)) / max(column, key=abs)
        basis[:, k] = basis[:, k] * turn / mp.norm(basis[:, k])
    duals = basis**-1
    linear = (basis * mp.diag([*critical, mp.mpf("0.3")]) * duals).apply(mp.re)
    cubic = [{e: mp.mpf(float(rng.normal())) / 4 for e in every} for _ in range(n)]
    for r in range(n):
        cubic[r] |= {tuple(int(j == k) for j in range(n)): linear[r, k] for k in range(n)}
    expected = reduced(cubic, linear, basis, duals, critical, order)

    factors = np.array([[float(row[e]) for e in every] for row in cubic])

    def fn(x, p):
        monomials = [jnp.prod(jnp.stack([x[k] ** m for k, m in enumerate(e) if m])) for e in every]
        return factors @ jnp.stack(monomials) + p["free"] * x

    form = form_at(fn, np.zeros(n), {}, kind)
    assert form.kind == kind
    largest = max(abs(complex(each)) for row in expected for e, each in row.items() if sum(e) > 1)
    for k, row in enumerate(expected):
        for e, each in row.items():
            index = form.form.monomials.index((*e, *[0] * form.form.parameters))
            # A condition number of ten or so.
            found = complex(form.expansion.reduced[index, k])
            assert_allclose(found, complex(each), rtol=1e-12, atol=1e-13 * largest, err_msg=f"{k} {e}")
    if kind == "double-neimark-sacker":
        # The pair of the smaller angle is the first, wherever rounding puts it.
        assert_allclose(np.angle(form.multipliers), [1, -1, 1.9, -1.9], rtol=1e-14)
        assert_allclose(
            form.coefficients["second (1, 1, 1, 0)"], complex(expected[2][1, 1, 1, 0] / OTHER[0]), rtol=1e-11
        )
