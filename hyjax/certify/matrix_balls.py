r"""Real matrices with a midpoint and a radius for each entry, in NumPy: products and eigenvalues that hold for all of a set.

A pair $\langle A, R\rangle$ stands for all real matrices $X$ with $|X - A| \le R$, entry by entry. The product's midpoint is the
floating-point product, in whatever order its sums are taken, and its radius

$$|A|R_B + R_A(|B| + R_B) + \gamma_{n+2}|A||B|, \qquad \gamma_n = \frac{nu}{1 - nu} .$$

The arrays of NumPy are in memory: unlike in a compiled program, each use sees the same numbers, and a residual of them is one.

Source: Rump (1999), *Fast and parallel interval arithmetic*, BIT 39; Higham (2002), *Accuracy and Stability of Numerical
Algorithms*, sec. 3.5, for $\gamma_n$; Neumaier (1990), *Interval Methods for Systems of Equations*, ch. 4, for `neumann_tail`.
"""

from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int

from .rounding import EPS, TINY, UNIT, up

Matrix = Float[np.ndarray, "m n"]
Numbers = Array | np.ndarray


class BallMatrix(NamedTuple):
    r"""All real matrices $X$ with $|X - \text{mid}| \le \text{rad}$ in each entry; both of shape `(m, n)`."""

    mid: Matrix
    rad: Matrix

    @property
    def largest(self) -> Matrix:
        """Bounds of the entries' moduli."""
        return up(np.abs(self.mid) + self.rad)


def ball_matrix(matrix: Numbers, radius: Numbers | float = 0.0) -> BallMatrix:
    """A midpoint and a radius as float64. `ValueError` unless the one is a matrix, and the other fits and is not negative."""
    mid = np.asarray(matrix, np.float64)
    rad = np.asarray(radius, np.float64)
    if mid.ndim != 2 or 0 in mid.shape:
        raise ValueError(f"A matrix of shape {mid.shape} must have two axes, neither of them empty.")
    if rad.shape not in ((), mid.shape):
        raise ValueError(f"A radius of shape {rad.shape} must be one number or have the matrix's shape {mid.shape}.")
    if not np.all(np.isfinite(mid)) or not np.all(np.isfinite(rad)) or np.any(rad < 0):
        raise ValueError("A matrix must be finite, and its radius finite and not negative.")
    return BallMatrix(mid, np.broadcast_to(rad, mid.shape))


def product(a: BallMatrix, b: BallMatrix) -> BallMatrix:
    """The products of all matrices of the one with all of the other."""
    n = a.mid.shape[1]
    size_a, size_b = np.abs(a.mid), np.abs(b.mid)
    rounding = (2 * (n + 2) * UNIT) * (size_a @ size_b)
    # Subnormal numbers may be flushed: each factor meets one of the others.
    flushed = n * TINY * (1 + np.max(size_a) + np.max(size_b) + np.max(a.rad) + np.max(b.rad))
    return BallMatrix(a.mid @ b.mid, up(size_a @ b.rad + a.rad @ (size_b + b.rad) + rounding + flushed, n // 4 + 2))


def difference(a: BallMatrix, b: BallMatrix) -> BallMatrix:
    """The differences of all matrices of the one and all of the other."""
    mid = a.mid - b.mid
    return BallMatrix(mid, up(a.rad + b.rad + EPS * np.abs(mid)))


def root_above(x):
    r"""An upper bound of $\sqrt x$, by a square that is seen to be larger; infinite where it is not."""
    root = np.sqrt(x) * (1 + 2.0**-50) + TINY
    return np.where(root * root * (1 - 2.0**-51) >= x, root, np.inf)


def root_below(x):
    r"""A lower bound of $\sqrt x$, by a square that is seen to be smaller; zero where it is not."""
    root = np.sqrt(x) * (1 - 2.0**-50)
    return np.where(root * root * (1 + 2.0**-51) + TINY <= x, root, 0)


def _near_perron(e: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    """A positive vector near that of Perron for a matrix of non-negative entries: it makes the largest (E v)_i / v_i small."""
    v = np.ones(len(e))
    for _ in range(8):
        w = e @ v
        # A part of the last one keeps it positive; what is left of the first one is 1e-14.
        v = w / max(np.max(w), TINY) + 2.0**-6 * v
    return v


def neumann_tail(e: Float[np.ndarray, "n n"], x: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    r"""A bound of $\sum_{m\ge1} E^mX$ for matrices of non-negative entries; infinite unless $E$ is seen to contract.

    With $v > 0$ and $Ev \le \epsilon v$, $\epsilon < 1$, and columns $X_j \le s_jv$: $EX + \epsilon^2v s^\top/(1 - \epsilon)$.
    Arguments: `e`: shape `(n, n)`; `x`: shape `(n, k)`.
    """
    n = len(e)
    nothing = np.full(x.shape, np.inf)
    if not (np.all(np.isfinite(e)) and np.all(np.isfinite(x))):
        return nothing
    v = _near_perron(e)
    contraction = np.max(up(up(e @ v, n // 4 + 1) / v))
    if not contraction < 1:
        return nothing
    s = np.max(up(x / v[:, None]), axis=0)
    factor = up(contraction * contraction / ((1 - contraction) * (1 - EPS)))
    return up(up(e @ x, n // 4 + 1) + factor * v[:, None] * s, 2)


def exactly(matrix: Matrix) -> BallMatrix:
    """A matrix of floats, of radius zero."""
    return BallMatrix(matrix, np.zeros(matrix.shape))


def square(a: BallMatrix) -> BallMatrix:
    """`a`; `ValueError` unless it is square."""
    if a.mid.shape[0] != a.mid.shape[1]:
        raise ValueError(f"A matrix of shape {a.mid.shape} must be square.")
    return a


def approximate_inverse(matrix: Matrix) -> Matrix:
    """The inverse to rounding, finite; zero for a singular matrix."""
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return np.zeros_like(matrix)
    return inverse if np.all(np.isfinite(inverse)) else np.zeros_like(matrix)


# Enclosures of the eigenvalues of every real matrix of a set, in NumPy.
#
# With approximate eigenvectors $V$, eigenvalues $\Lambda$ and $W \approx V^{-1}$, all of them any numbers, $E = I - WV$ and
# $N = W(XV - V\Lambda)$,
#
# $$V^{-1}XV = \Lambda + (I - E)^{-1}N,$$
#
# which is nearly diagonal. The discs of Gershgorin about its diagonal enclose the eigenvalues of $X$, and the discs of a
# connected part of their union hold as many eigenvalues as they are: for each $X$ of the set, whose entries enter $N$ by their
# radii. A real matrix's eigenvalues are real or conjugate, so the eigenvalue of an isolated disc about a real centre is real.
#
# Where eigenvectors are parallel, or nearly so, $V$ has no inverse to rounding, or the discs are wide. Then the eigenvectors of a
# perturbed matrix are tried, whose perturbation is about as large as that of the set: the discs have the size $\delta^{1/k}$ of
# the eigenvalues' own spread, $k$ the size of the Jordan block, and meet in a cluster.
#
# Source: Gershgorin's theorem in Horn, Johnson (2013), *Matrix Analysis*, sec. 6.1; Rump (2010), *Verification methods*, Acta
# Numerica 19, for the approach.

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
