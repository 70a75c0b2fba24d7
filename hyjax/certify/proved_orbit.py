r"""The result of a proof that there is a periodic orbit: bounds of its numbers, what the proof rests on, and discs that hold the
multipliers, the eigenvalues of every real matrix of a set.

With approximate eigenvectors $V$ and eigenvalues $\Lambda$, any numbers, $V^{-1}XV - \Lambda$ is small, for each $X$ of the set.
The discs of Gershgorin about $\Lambda$ enclose the eigenvalues of $X$, and the discs of a connected part of their union hold as
many eigenvalues as they are. A real matrix's eigenvalues are real or conjugate, so the eigenvalue of an isolated disc about a
real centre is real.

Where eigenvectors are parallel, or nearly so, $V$ has no inverse, or the discs are wide. Then the eigenvectors of a perturbed
matrix are tried, whose perturbation is about as large as that of the set: the discs have the size $\delta^{1/k}$ of the
eigenvalues' own spread, $k$ the size of the Jordan block, and meet in a cluster.

Source: Gershgorin's theorem in Horn, Johnson (2013), *Matrix Analysis*, sec. 6.1; Rump (2010), *Verification methods*, Acta
Numerica 19, for the approach.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import equinox as eqx
import numpy as np
from jaxtyping import ArrayLike, Bool, Complex, Float, Int

from .._orbit.orbit import PeriodicOrbit
from .._results.registry import draw
from .._results.shown import Shown
from .._results.table import Table
from .exact_numbers import acb, acb_mat, arb, arb_mat, balls, dot, rounded, with_fifty_digits
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

    @with_fifty_digits
    def moduli(self) -> tuple[Vector, Vector]:
        """Lower and upper bounds of the eigenvalues' moduli, shape `(n,)` each."""
        sizes = [abs(acb(complex(each))) for each in self.centres]
        pairs = list(zip(sizes, map(_of_float, self.radii), strict=True))
        low = [-_upper(radius - size) for size, radius in pairs]
        return np.maximum(low, 0.0), np.array([_upper(size + radius) for size, radius in pairs])


@with_fifty_digits
def enclose_eigenvalues(matrix: Float[ArrayLike, "n n"], radius: ArrayLike = 0.0) -> EigenvalueEnclosure:
    r"""Discs that hold the eigenvalues of every real matrix $X$ with $|X - A| \le R$, in each entry.

    **Arguments:** `matrix`: $A$, shape `(n, n)`. `radius`: $R$, shape `(n, n)` or one number, not negative.
    **Returns:** `EigenvalueEnclosure`. A disc's radius is about the condition number of the eigenvalue times the 1-norm of $R$;
    discs that meet are one, so in the worst case there is one disc for all. `ValueError` for arguments that are not finite or not
    of these shapes.
    """
    matrix, radius = np.asarray(matrix, float), np.asarray(radius, float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"A matrix of shape {matrix.shape} must be square, and not empty.")
    if radius.shape not in ((), matrix.shape):
        raise ValueError(
            f"A radius of shape {radius.shape} must be one number or have the matrix's shape {matrix.shape}."
        )
    if not (np.all(np.isfinite(matrix)) and np.all(np.isfinite(radius)) and np.all(radius >= 0)):
        raise ValueError("A matrix must be finite, and its radius finite and not negative.")
    members = balls(matrix, radius)
    best = _merged(*_discs(members, matrix))
    if best.clusters.max() + 1 == len(matrix):
        return best
    # Of eigenvectors that are nearly parallel, the smallest of the discs by those of matrices near it.
    direction = np.random.default_rng(0).uniform(-1, 1, matrix.shape)
    size = np.max(np.abs(matrix))
    for perturbation in (np.max(radius), 1e-15 * size, 1e-13 * size, 1e-11 * size):
        other = _merged(*_discs(members, matrix + perturbation * direction))
        if np.sum(other.radii) < np.sum(best.radii):
            best = other
    return best


def _of_float(value) -> arb:
    return arb(float(value))


def _upper(a: arb) -> float:
    """A float that is not below a number."""
    value, radius = rounded(a)
    return math.nextafter(value + radius, math.inf) if radius else value


def _discs(members: arb_mat, near: Float[np.ndarray, "n n"]) -> tuple[Complex[np.ndarray, " n"], Vector]:
    """The discs of Gershgorin with the eigenvectors of `near`, or with unit vectors where those are of no use."""
    n = len(near)
    try:
        eigenvalues, vectors = np.linalg.eig(near)
        v = acb_mat(vectors.tolist())
        centres, turned = eigenvalues.astype(complex), v.inv() * (acb_mat(members) * v)
    except (np.linalg.LinAlgError, ZeroDivisionError):
        centres, turned = np.diag(near).astype(complex), acb_mat(members)
    apart = turned - acb_mat(np.diag(centres).tolist())
    return centres, np.array([_upper(dot([abs(apart[i, j]) for j in range(n)], [arb(1)] * n)) for i in range(n)])


def _merged(centres: Complex[np.ndarray, " n"], radii: Vector) -> EigenvalueEnclosure:
    """Discs that meet are replaced by one about both, until they are disjoint."""
    n = len(centres)
    cluster, at, reach = np.arange(n), centres.copy(), radii.copy()
    distance = lambda a, b: abs(acb(complex(a)) - acb(complex(b)))
    apart = lambda i, j: distance(at[i], at[j]) > _of_float(reach[i]) + _of_float(reach[j])
    while True:
        meet = [(i, j) for i in range(n) for j in range(i) if cluster[i] != cluster[j] and not apart(i, j)]
        if not meet:
            break
        i, j = meet[0]
        cluster[cluster == cluster[j]] = cluster[i]
        members = np.flatnonzero(cluster == cluster[i])
        # About the middle of the extreme members, on the real axis where the members are real or conjugate.
        real, imaginary = np.real(centres[members]), np.imag(centres[members])
        middle = 0.5 * (real.min() + real.max()) + 0.5j * (imaginary.min() + imaginary.max())
        at[members] = middle
        reach[members] = max(_upper(distance(centres[k], middle) + _of_float(radii[k])) for k in members)
    _, numbers = np.unique(cluster, return_inverse=True)
    return EigenvalueEnclosure(at, reach, numbers)


class Enclosed(eqx.Module):
    r"""Numbers between bounds, $|x - \text{midpoint}| \le \text{radius}$ in each entry; NaN where nothing is proved.

    **Attributes:** `midpoint`, `radius`: of one shape.

    **Example:**

    >>> spiral = lambda t, x, p: 0.1 * (1 - x @ x) * x + jnp.stack([-x[1], x[0]])
    >>> line = hj.Transition("plane", "plane", lambda t, x, p: x[1], lambda t, x, p: jnp.stack([x[0], 0 * x[1]]))
    >>> circle = hj.HybridSystem({"plane": hj.Mode(spiral, ("x", "y"))}, (line,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(circle, sequence=("plane",)), jnp.array([-1.1, 0.0]), None)
    >>> proved = hj.certify.krawczyk(orbit, steps=48)
    >>> print(f"{proved.period.midpoint:.6f}", proved.period.radius < 1e-15)
    6.283185 True
    """

    midpoint: Float[np.ndarray, "*shape"]
    radius: Float[np.ndarray, "*shape"]

    @classmethod
    def between(cls, low, high, more=0.0) -> "Enclosed":
        """The numbers between two bounds, each moved outward by `more`."""
        midpoint = np.asarray(0.5 * (np.asarray(low) + np.asarray(high)))
        half = np.maximum(high - midpoint, midpoint - low)
        return cls(midpoint, np.asarray(up(half + more + EPS * np.abs(midpoint)) + TINY))

    @classmethod
    def of(cls, numbers: Sequence[arb]) -> "Enclosed":
        """The numbers as floats, with the distance of the floats in the radii."""
        pairs = [rounded(each) for each in numbers]
        return cls(np.array([value for value, _ in pairs]), np.array([radius for _, radius in pairs]))

    def __getitem__(self, index) -> "Enclosed":
        return Enclosed(np.asarray(self.midpoint[index]), np.asarray(self.radius[index]))

    def contains(self, value) -> np.ndarray:
        """Whether each entry of `value` is within the bounds, exactly: floats, rational numbers, or strings of digits."""
        each = np.broadcast_arrays(np.asarray(value, object), self.midpoint, self.radius)
        held = [
            bool(np.isfinite(r)) and abs(Fraction(x) - Fraction(float(m))) <= Fraction(float(r))
            for x, m, r in zip(*(a.ravel() for a in each), strict=True)
        ]
        return np.array(held, bool).reshape(each[0].shape)


class ProvedOrbit(Shown):
    r"""A periodic orbit that is proved to exist, from `krawczyk`, or why it is not proved.

    **Attributes:** `reasons`: why it is not proved, a sentence each; none where it is. `names`: of the section's coordinates, the
    entries of the state before the closing jump that its reset reads. `coordinates`: their bounds. `near`, `unique_within`:
    exactly one periodic orbit of this route passes within `unique_within` of `near`, in each coordinate. `starts`, `ends`: bounds
    of the states just after and just before the jumps, one for each arc, with the time as last entry if the system depends on it.
    `period`: its bounds; for a system that depends on time, of the number that the closing jump takes off the time: by
    `assumptions`, that of the forcing.
    `multipliers`: those of the return map in the section's coordinates. Where these are fewer than the mode's coordinates the
    remaining multipliers of `PeriodicOrbit` are zero exactly: the reset does not read the rest. None where nothing is proved,
    and where the bounds of the orbit hold a kink of a reset or guard, at which the return map has no derivative.
    `seconds`: of the proof, with compilation. `assumptions`: what the proof rests on, a sentence each. `orbit`: the numerical
    orbit that was given.

    **Example:**

    >>> spiral = lambda t, x, p: 0.1 * (1 - x @ x) * x + jnp.stack([-x[1], x[0]])
    >>> line = hj.Transition("plane", "plane", lambda t, x, p: x[1], lambda t, x, p: jnp.stack([x[0], 0 * x[1]]))
    >>> circle = hj.HybridSystem({"plane": hj.Mode(spiral, ("x", "y"))}, (line,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(circle, sequence=("plane",)), jnp.array([-1.1, 0.0]), None)
    >>> proved = hj.certify.krawczyk(orbit, steps=48)
    >>> proved.names, proved.unique_within, proved.reasons
    (('x',), 1e-08, ())
    """

    reasons: tuple[str, ...]
    names: tuple[str, ...]
    near: Float[np.ndarray, " m"]
    unique_within: float
    coordinates: Enclosed
    starts: tuple[Enclosed, ...]
    ends: tuple[Enclosed, ...]
    period: Enclosed
    multipliers: EigenvalueEnclosure | None
    seconds: float
    assumptions: tuple[str, ...]
    orbit: PeriodicOrbit

    @property
    def proved(self) -> bool:
        """Whether existence and uniqueness are proved."""
        return not self.reasons

    @property
    def status(self) -> str:
        """`"proved"` or `"not proved"`."""
        return "proved" if self.proved else "not proved"

    @property
    def center(self) -> Float[np.ndarray, " m"]:
        """The midpoints of the bounds of the section's coordinates."""
        return self.coordinates.midpoint

    @property
    def radius(self) -> Float[np.ndarray, " m"]:
        """The radii of the bounds of the section's coordinates."""
        return self.coordinates.radius

    @property
    def state(self) -> Enclosed:
        """The bounds of the state just after the closing jump. `ValueError` where nothing is proved."""
        if not self.starts:
            raise ValueError(f"ProvedOrbit: not proved, so there are no bounds of the state. {' '.join(self.reasons)}")
        return self.starts[0]

    def plot(self):
        """A figure of the multipliers and of how narrow the bounds are; see `hyjax.certify.proved_orbit_figure`."""
        return draw(self)

    def _tables(self):
        rows = [("status", self.status)]
        rows += [("reason", reason) for reason in self.reasons]
        if self.proved:
            each = zip(self.names, self.center, self.radius, strict=True)
            rows += [(name, _bounded(midpoint, radius)) for name, midpoint, radius in each]
            rows += [("period", _bounded(self.period.midpoint, self.period.radius))]
            found = self.multipliers
            for k, (center, radius) in enumerate(() if found is None else zip(found.centres, found.radii, strict=True)):
                rows += [(f"multiplier {k + 1}", _bounded(complex(center), radius))]
            if found is None:
                rows += [("multipliers", "not proved: the bounds of the orbit hold a kink of a reset or guard")]
            rows += [("unique within", f"{self.unique_within:g} in each coordinate")]
        rows += [("seconds", f"{self.seconds:.3g}")]
        rows += [("assumption", sentence) for sentence in self.assumptions]
        return (Table("ProvedOrbit", rows),)


def _bounded(midpoint, radius) -> str:
    """A midpoint with all its digits, and its radius rounded up."""
    size = f"{float(radius) * 1.05:.1e}"
    if isinstance(midpoint, complex) and midpoint.imag:
        return f"{midpoint.real:+.17g} {midpoint.imag:+.17g}i +- {size}"
    return f"{np.real(midpoint):+.17g} +- {size}"
