r"""Enclosures of the eigenvalues of every real matrix of a set, in NumPy.

With approximate eigenvectors $V$, eigenvalues $\Lambda$ and $W \approx V^{-1}$, all of them any numbers, $E = I - WV$ and $N =
W(XV
- V\Lambda)$,

$$V^{-1}XV = \Lambda + (I - E)^{-1}N,$$

which is nearly diagonal. The discs of Gershgorin about its diagonal enclose the eigenvalues of $X$, and the discs of a connected
part of their union hold as many eigenvalues as they are: for each $X$ of the set, whose entries enter $N$ by their radii. A real
matrix's eigenvalues are real or conjugate, so the eigenvalue of an isolated disc about a real centre is real.

Where eigenvectors are parallel, or nearly so, $V$ has no inverse to rounding, or the discs are wide. Then the eigenvectors of a
perturbed matrix are tried, whose perturbation is about as large as that of the set: the discs have the size $\delta^{1/k}$ of the
eigenvalues' own spread, $k$ the size of the Jordan block, and meet in a cluster.

Source: Gershgorin's theorem in Horn, Johnson (2013), *Matrix Analysis*, sec. 6.1; Rump (2010), *Verification methods*, Acta
Numerica 19, for the approach.
"""

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Complex, Float, Int

from .matrix_balls import (
    approximate_inverse,
    ball_matrix,
    BallMatrix,
    difference,
    exactly,
    Matrix,
    neumann_tail,
    nonnegative_norm,
    Numbers,
    product,
    root_above,
    root_below,
    square,
)
from .rounding import EPS, TINY, up

Vector = Float[np.ndarray, " n"]


class EigenvalueEnclosure(eqx.Module):
    r"""Discs that hold the eigenvalues of every real matrix of a set, from `enclose_eigenvalues`.

    **Attributes:** `centres`, `radii`: complex and real, shape `(n,)`: one disc for each eigenvalue, counted as often as it
    occurs. Discs are disjoint or the same. `clusters`: shape `(n,)`: the number of the disc, $0, 1, \ldots$. A disc that stands
    in `m` places holds exactly `m` eigenvalues. Units: those of the matrix.
    """

    centres: Complex[np.ndarray, " n"]
    radii: Vector
    clusters: Int[np.ndarray, " n"]

    @property
    def simple(self) -> Bool[np.ndarray, " n"]:
        """Whether the disc holds one eigenvalue: it is simple for every matrix of the set."""
        return np.bincount(self.clusters)[self.clusters] == 1

    @property
    def real(self) -> Bool[np.ndarray, " n"]:
        """Whether the eigenvalue is proved to be real, for every matrix of the set: it is within the radius on the real axis."""
        return self.simple & (np.imag(self.centres) == 0)

    def moduli(self) -> tuple[Vector, Vector]:
        """Lower and upper bounds of the eigenvalues' moduli, shape `(n,)` each."""
        real, imaginary = np.real(self.centres), np.imag(self.centres)
        low, high = _modulus_below(real, imaginary), _modulus(real, imaginary)
        return np.maximum(low - self.radii - EPS * (low + self.radii), 0), up(high + self.radii)


def enclose_eigenvalues(matrix: Numbers, radius: Numbers | float = 0.0) -> EigenvalueEnclosure:
    r"""Discs that hold the eigenvalues of every real matrix $X$ with $|X - A| \le R$, in each entry.

    **Arguments:** `matrix`: $A$, shape `(n, n)`. `radius`: $R$, shape `(n, n)` or one number, not negative.
    **Returns:** `EigenvalueEnclosure`. A disc's radius is about the condition number of the eigenvalue times the 1-norm of $R$
    and the rounding of $A$; discs that meet are one, so in the worst case there is one disc for all. `ValueError` for arguments
    that are not finite or not of these shapes.
    Source: see the module.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _smallest(square(ball_matrix(matrix, radius)))


def _smallest(a: BallMatrix) -> EigenvalueEnclosure:
    """The discs of the matrix's own eigenvectors if they are disjoint; else the smallest of those of matrices near it."""
    best = _merged(*_discs(a, a.mid))
    if best.clusters.max() + 1 == len(a.mid):
        return best
    direction = np.random.default_rng(0).uniform(-1, 1, a.mid.shape)
    size, own = np.max(np.abs(a.mid)), np.max(a.rad)
    for perturbation in (own, 1e-15 * size, 1e-13 * size, 1e-11 * size):
        other = _merged(*_discs(a, a.mid + perturbation * direction))
        if np.sum(other.radii) < np.sum(best.radii):
            best = other
    return best


def norm_bound(matrix: Numbers, radius: Numbers | float = 0.0) -> float:
    r"""An upper bound of the 2-norm of every real matrix within a radius: $\|A\|_2 + \|R\|_2$ for a midpoint and its radius.

    $\|A\|_2^2$ is the largest eigenvalue of $A^\top A$, and no matrix of the set is further from $A$ than $\|R\|_2$.

    **Arguments:** `matrix`: $A$, shape `(m, n)`. `radius`: $R$, shape `(m, n)` or one number. **Returns:** the bound, a float,
    infinite on overflow. `ValueError` as for `enclose_eigenvalues`.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        a = ball_matrix(matrix, radius)
        gram = product(exactly(a.mid.T), exactly(a.mid))
        if not np.all(np.isfinite(gram.largest)):
            return np.inf
        _, high = enclose_eigenvalues(*gram).moduli()
        return float(up(root_above(np.max(high)) + nonnegative_norm(a.rad)))


def _modulus(real, imaginary):
    """Upper bounds of moduli, within a few roundings and 1e-144."""
    return root_above(up(real * real + imaginary * imaginary))


def _modulus_below(real, imaginary):
    """Lower bounds of moduli, within a few roundings and 1e-144."""
    total = real * real + imaginary * imaginary
    return root_below(np.maximum(total * (1 - 2.0**-49) - TINY, 0))


def _blocks(z: Complex[np.ndarray, "m n"]) -> Float[np.ndarray, "2*m 2*n"]:
    """A complex matrix as a real one of twice the size, so that products are those of real matrices."""
    return np.block([[np.real(z), -np.imag(z)], [np.imag(z), np.real(z)]])


def _discs(a: BallMatrix, near: Matrix) -> tuple[Complex[np.ndarray, " n"], Vector]:
    """The discs of Gershgorin with the eigenvectors of `near`, or with unit vectors where those are of no use."""
    n = len(near)
    try:
        eigenvalues, vectors = np.linalg.eig(near)
        centres, radii = _discs_of(a, eigenvalues.astype(complex), vectors.astype(complex))
    except np.linalg.LinAlgError:
        radii = np.full(n, np.inf)
    if not np.all(np.isfinite(radii)):
        centres, radii = _discs_of(a, np.diag(a.mid).astype(complex), np.eye(n, dtype=complex))
    return centres, radii


def _discs_of(a: BallMatrix, eigenvalues, vectors):
    """The discs with these eigenvectors; infinite radii where they are not seen to be independent."""
    n = len(eigenvalues)
    v, diagonal = exactly(_blocks(vectors)), exactly(_blocks(np.diag(eigenvalues)))
    w = exactly(approximate_inverse(v.mid))
    zero = np.zeros((n, n))
    whole = BallMatrix(np.block([[a.mid, zero], [zero, a.mid]]), np.block([[a.rad, zero], [zero, a.rad]]))
    e = difference(exactly(np.eye(2 * n)), product(w, v)).largest
    small = product(w, difference(product(whole, v), product(v, diagonal))).largest
    small = up(small + neumann_tail(e, small))
    # The first n columns hold the real parts of the complex matrix, above its imaginary parts.
    entries = _modulus(small[:n, :n], small[n:, :n])
    radii = up(np.sum(entries, axis=1), n // 4 + 1)
    return eigenvalues, np.where(np.isfinite(radii), radii, np.inf)


def _merged(centres, radii: Vector) -> EigenvalueEnclosure:
    """Discs that meet are replaced by one about both, until they are disjoint."""
    n = len(centres)
    cluster, at, reach = np.arange(n), centres.copy(), radii.copy()
    while True:
        apart = at[:, None] - at
        distance = _modulus_below(apart.real, apart.imag) * (1 - 2.0**-50)
        meet = (distance <= up(reach[:, None] + reach)) & (cluster[:, None] != cluster)
        if not np.any(meet):
            break
        i, j = np.argwhere(meet)[0]
        cluster[cluster == cluster[j]] = cluster[i]
        members = np.flatnonzero(cluster == cluster[i])
        # About the middle of the extreme members, on the real axis where the members are real or conjugate.
        real, imaginary = centres[members].real, centres[members].imag
        middle = 0.5 * (real.min() + real.max()) + 0.5j * (imaginary.min() + imaginary.max())
        offset = centres[members] - middle
        at[members] = middle
        reach[members] = np.max(up(_modulus(offset.real, offset.imag) * (1 + 2.0**-50) + radii[members]))
    _, numbers = np.unique(cluster, return_inverse=True)
    return EigenvalueEnclosure(at, reach, numbers)
