"""The result of a proof that there is a periodic orbit: bounds of its numbers, and what the proof rests on."""

from collections.abc import Sequence
from fractions import Fraction

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .._orbit.orbit import PeriodicOrbit
from .._results.registry import draw
from .._results.shown import Shown
from .._results.table import Table
from .eigenvalue_discs import EigenvalueEnclosure
from .exact_numbers import arb, rounded
from .rounding import EPS, TINY, up


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
