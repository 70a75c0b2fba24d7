r"""Real matrices with a midpoint and a radius for each entry, in NumPy: products, norms and inverses that hold for all of a set.

A pair $\langle A, R\rangle$ stands for all real matrices $X$ with $|X - A| \le R$, entry by entry. The product's midpoint is the
floating-point product, in whatever order its sums are taken, and its radius

$$|A|R_B + R_A(|B| + R_B) + \gamma_{n+2}|A||B|, \qquad \gamma_n = \frac{nu}{1 - nu} .$$

The arrays of NumPy are in memory: unlike in a compiled program, each use sees the same numbers, and a residual of them is one.

Source: Rump (1999), *Fast and parallel interval arithmetic*, BIT 39; Higham (2002), *Accuracy and Stability of Numerical
Algorithms*, sec. 3.5, for $\gamma_n$; Neumaier (1990), *Interval Methods for Systems of Equations*, ch. 4, for the inverse.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

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


def nonnegative_norm(r: Matrix) -> float:
    r"""An upper bound of $\|R\|_2$ for a matrix of non-negative entries: $\|R\|_2^2 \le \max_i (R^\top R v)_i / v_i$, $v > 0$."""
    gram = up(r.T @ r, len(r) // 4 + 1)
    v = _near_perron(gram)
    return float(root_above(np.max(up(up(gram @ v, len(v) // 4 + 1) / v))))


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


def enclose_inverse(matrix: Numbers, radius: Numbers | float = 0.0) -> tuple[Matrix, Matrix]:
    r"""The inverses of all real matrices within a radius: their midpoint and radius.

    With $W \approx A^{-1}$ and $E = I - WX$, $X^{-1} = W + \sum_{m\ge1}E^mW$ where $E$ contracts.

    **Arguments:** `matrix`: $A$, shape `(n, n)`. `radius`: of each entry, shape `(n, n)` or one number.
    **Returns:** `(mid, rad)`, NumPy arrays of shape `(n, n)`: for every real $X$ with $|X - A| \le R$, $X$ is regular and
    $|X^{-1} - \text{mid}| \le \text{rad}$. Where regularity is not proved, `rad` is infinite. `ValueError` for arguments that are
    not finite or not of these shapes.
    Source: see the module.
    """
    a = square(ball_matrix(matrix, radius))
    n = len(a.mid)
    w = approximate_inverse(a.mid)
    with np.errstate(over="ignore", invalid="ignore"):
        e = difference(exactly(np.eye(n)), product(exactly(w), a)).largest
        return w, neumann_tail(e, np.abs(w))


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
