r"""One-dimensional stable and unstable manifolds of a periodic orbit on its section, and where two of them meet.

Let $\mu$ be a simple real multiplier with the eigenvector $q$. The manifold is a curve $W(s) = x^* + s\,q + O(s^2)$ on which the
return map is linear in the parameter, the parametrization method's equation

$$S(W(s)) = W(\mu s).$$

**Near the orbit** $W = x^* + s\,q + s^2 p(s)$ with a polynomial $p$ in Chebyshev's basis, which Newton's method fits to the
equation at twice as many points as it has coefficients, on the largest of the intervals $|s| \le r, r/2, r/4, \dots$ on which
equation and polynomial agree to rounding between those points too, or else to the integrator's tolerance. No derivative of the
map beyond the first is needed.

**Farther out** an unstable manifold is $W(s) = S^k(W(s / \mu^k))$. On a stable one $W(s)$ is, step by step outwards, the solution
of $S(x) = W(\mu s)$ by Newton's method, from a guess that the points found so far give. What is solved for are states $y$ before
the jump $x = R(y)$ that closes the map, on the guard's surface, because $x$ has to lie on the image of the jump, which may be of
lower dimension: of the solutions $y$ the one nearest to the guess, and $x$ is the same for all.

Source: Cabré, Fontich, de la Llave (2005), *The parameterization method for invariant manifolds III*, J. Differential Equations
218, 444-515; Krauskopf, Osinga (1998), *Growing 1D and quasi-2D unstable manifolds of maps*, J. Comput. Phys. 146, 404-419, for
the control of distance and angle.
"""

import dataclasses
from typing import Any, NamedTuple, TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.polynomial import chebyshev

from .._flow.integrator import Integrator
from .._results.failure import raise_failure
from .._results.shown import Shown
from .._results.table import Table
from .._system.results import code_of, numbered_code, RESULTS
from .._system.where import Where
from .crossings import Crossings, crossings_of, DEGREE, Tangency, tangency_of
from .lap import DIVERGED, jumps, LANES, Lap, lap_of, passages, SUCCESSFUL
from .return_map import require_map, ReturnMap

if TYPE_CHECKING:
    from .orbit import PeriodicOrbit

# A singular value below this part of the largest one is zero: of a jump to an image of lower dimension.
RANK = 1e-9
# The gap between two points, in units of `spacing`, below which their directions may differ by any angle.
FOLD = 1e-2


class Manifold(Shown):
    r"""A one-dimensional invariant manifold of a periodic orbit on its section, from `orbit.manifold`: $S(W(s)) = W(\mu s)$.

    `manifold(s)` are the states $W(s)$ to the accuracy of the map, for any $s$ between the first and the last point, and of an
    unstable manifold for any $s$ at all; NaN where the map fails. $W(0) = x^*$, $W'(0) = q$.

    **Attributes:** `s`, `x`: points, of parameters in ascending order, shapes `(points,)`, `(points, n)`, the orbit among them;
    `arclength`: from the orbit to each, along the points, negative for `s < 0`. Neighbouring points are not further from each
    other than `spacing` and their directions differ by `angle` at most, so that the curve is within `spacing * angle / 4` of the
    chords; at folds that are too sharp for that, within `spacing / 100`. `multiplier`: $\mu$. `direction`: the eigenvector $q$
    of length 1, whose first component that is not small is positive. `radius`: the largest $|s|$ of the polynomial. `residual`:
    the largest component of $S(W(s)) - W(\mu s)$ there. `result`: `successful`, or why there is no polynomial: then there are no
    points. `ends`: the codes with which the halves `s < 0` and `s > 0` end: `successful` at `length`, `max_points_reached`, or
    that of the map, which fails beyond, or of Newton's method. `before`, `lap`, `coefficients`, `scale`: states before the
    closing jump, the map among these, and the polynomial in `s / scale`.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 0.0, 1.0]), coordinates=("x", "y", "clock"))
    >>> henon = lambda t, x, p: jnp.stack([1 - 1.4 * x[0] ** 2 + x[1], 0.3 * x[0], 0 * x[2]])
    >>> system = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[2], henon),))
    >>> saddle = hj.periodic_orbit(hj.ReturnMap(system, sequence=("year",)), jnp.array([0.6, 0.2, 0.0]), {})
    >>> unstable = saddle.manifold("unstable", length=3.0, spacing=0.2)
    >>> print(unstable(1.0)[:2].round(6), unstable.ends)
    [1.256561 0.020649] 2 successful

    Source: Cabré, Fontich, de la Llave (2005), J. Differential Equations 218, 444-515.
    """

    s: Float[np.ndarray, " points"]
    x: Float[np.ndarray, "points n"]
    arclength: Float[np.ndarray, " points"]
    multiplier: float
    direction: Float[np.ndarray, " n"]
    radius: float
    residual: float
    result: RESULTS
    ends: RESULTS
    before: Float[np.ndarray, "points m"]
    coefficients: Float[np.ndarray, "degree m"]
    scale: float
    lap: Lap

    def _tables(self):
        kind = "stable" if abs(self.multiplier) < 1 else "unstable"
        rows = [(name, getattr(self, name)) for name in ("multiplier", "radius", "residual", "ends")]
        reach = [("points", str(len(self.s))), ("arclength", f"{self.arclength[0]:.4g} to {self.arclength[-1]:.4g}")]
        return (Table(f"{kind} manifold", [*[(name, str(value)) for name, value in rows], *reach]),)

    def __call__(self, s) -> Float[np.ndarray, "..."]:
        """The states $W(s)$, shape `(*s.shape, n)`, NaN where the map fails; `ValueError` beyond the points of a stable one."""
        at = np.atleast_1d(np.asarray(s, self.x.dtype))
        flat = at.ravel()
        low, high = min(self.s[0], -self.radius), max(self.s[-1], self.radius)
        if abs(self.multiplier) < 1 and np.any((flat < low) | (flat > high)):
            raise ValueError(f"manifold: s must be from {low:.6g} to {high:.6g}: ask for a greater length.")
        found = self._at(flat)
        x = np.where(found.codes[:, None] == SUCCESSFUL, found.x, np.nan)
        return x.reshape(*np.shape(s), -1)

    def crossings(self, other: "Manifold") -> "Crossings":
        """Where this manifold meets another one, of the same orbit (homoclinic points) or another (heteroclinic points).

        Crossings of the chords, in the plane of both directions, are guesses for Newton's method on $W_1(s) = W_2(t)$. In a
        section of more than two dimensions curves rarely meet, and what do not meet are left out.

        **Arguments:** `other`: a `Manifold`, in the same coordinates. **Returns:** `Crossings(s, t, x, sine)`, by `s`; none for
        curves that do not meet. `sine`: of the angle from this curve to the other in that plane, zero at a tangency.
        """
        return crossings_of(self, other)

    def tangency(
        self,
        other: "Manifold",
        *,
        solve: Where,
        guess: tuple[float, float] | None = None,
        where: Where | None = None,
        values: Any = None,
        throw: bool = True,
    ) -> Tangency:
        """The value of a parameter at which two crossings of this unstable manifold with a stable one merge: a tangency.

        Newton's method on the equations of the point, of the angle and of both polynomials near the orbits, with derivatives
        by all unknowns by automatic differentiation. From each solution to the next of `values` leads the tangent.

        **Arguments:** `other`: a stable `Manifold` of the same map, of the same orbit or another. `solve`: the parameter that
        is solved for, such as `lambda p: p.slope`. `guess`: `(s, t)`, by default the middle of those two consecutive crossings
        of opposite sines that are nearest to each other. `where`, `values`: a second parameter, and the values of it, shape
        `(values,)`, at which the tangency is found. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the
        codes.

        **Returns:** `Tangency(solved, s, t, x, result)`, with one entry for each of `values`, if these are given, NaN where
        there is a code: `nonlinear_divergence` where Newton's method does not converge, or has left the polynomials, or that of
        the map where it fails. `ValueError` for other manifolds than an unstable and a stable one, where there is no guess, for
        guesses and values of other shapes, and for a parameter on which the manifolds do not depend.
        """
        return tangency_of(self, other, solve, guess, where, values, throw)

    def _levels(self, s: np.ndarray) -> np.ndarray:
        """The numbers of passes between the polynomial's interval and the points at `s`."""
        rate = np.log(max(abs(self.multiplier), 1 / abs(self.multiplier)))
        far = np.log(np.maximum(np.abs(s) / self.radius, 1e-300)) / rate
        return np.maximum(np.ceil(far - 1e-9), 0).astype(int)

    def _at(self, s: np.ndarray) -> "Reached":
        """The points at `s`, shape `(points,)`, with the derivatives by `s`."""
        return _reach(self, s)


class Reached(NamedTuple):
    """Points of a manifold: states before and after the closing jump, the derivatives of both by `s`, and codes."""

    y: np.ndarray
    slope: np.ndarray
    x: np.ndarray
    direction: np.ndarray
    codes: np.ndarray


def manifold_of(
    orbit: "PeriodicOrbit",
    which: str | int,
    length: float,
    spacing: float | None,
    angle: float,
    max_points: int,
    step: ReturnMap | None,
    throw: bool,
) -> Manifold:
    """`PeriodicOrbit.manifold`."""
    if np.ndim(orbit.period):
        raise TypeError(f"This is a batch of {len(orbit)} orbits. Choose one, such as orbits[0].")
    spacing = length / 100 if spacing is None else spacing
    for name, value in (("length", length), ("spacing", spacing), ("angle", angle), ("max_points", max_points)):
        if not value > 0:
            raise ValueError(f"manifold: {name}={value} must be positive.")
    if orbit.x.dtype != np.float64:
        raise ValueError(
            f"manifold: the orbit's states are {orbit.x.dtype}, which must be float64. Enable jax_enable_x64."
        )
    mu, q = _simple_multiplier(np.asarray(orbit.return_jacobian), which)
    around = orbit.step if step is None else step
    require_map(around, "manifold")
    lap = lap_of(around, orbit.params, orbit.period)
    y0 = np.asarray(orbit.x if around.sequence is None else orbit.before[0])
    passage, by, codes = passages(lap, y0[None])
    size = np.max(np.abs(y0))
    if codes[0] != SUCCESSFUL or not np.max(np.abs(passage.after[0] - orbit.x)) <= 1e-6 * size:
        raise ValueError(
            f"manifold: the orbit is no fixed point of the map: from x={np.asarray(orbit.x)} it leads to {passage.after[0]}. "
            "Give step= a map of the orbit's section."
        )
    # From W = R(V): the derivative of the flow times q is mu V'(0).
    v = np.linalg.lstsq(np.vstack([by.x[0], by.guard[0][None]]), np.append(q, 0), rcond=RANK)[0]
    v = by.end[0] @ v / mu if around.sequence is not None else q
    start = Manifold(
        np.zeros(1), np.asarray(orbit.x)[None], np.zeros(1), mu, q, 0.0, np.inf, code_of(DIVERGED), code_of(DIVERGED), y0[None],
        np.stack([y0, v]), 1.0, lap,
    )  # fmt: skip
    found = _with_polynomial(start, size)
    if found.radius:
        found = _extended(found, length, spacing, angle, max_points)
    return raise_failure("manifold", found) if throw else found


def _simple_multiplier(jacobian: np.ndarray, which: str | int) -> tuple[float, np.ndarray]:
    """A simple real eigenvalue other than 0 and its eigenvector."""
    values, vectors = np.linalg.eig(jacobian)
    order = np.argsort(-np.abs(values), kind="stable")
    values, vectors = values[order], vectors[:, order]
    if isinstance(which, str):
        sides = {"unstable": np.flatnonzero(np.abs(values) > 1), "stable": np.flatnonzero(np.abs(values) < 1)}
        if which not in sides:
            raise ValueError(f"manifold: which={which!r} must be 'stable', 'unstable' or the number of a multiplier.")
        if not sides[which].size:
            raise ValueError(f"manifold: the orbit has no {which} multiplier: {values}.")
        which = int(sides[which][0])
    if not 0 <= which < len(values):
        raise ValueError(f"manifold: which={which} must be the number of one of the {len(values)} multipliers.")
    mu = complex(values[which])
    apart = np.min(np.abs(np.delete(values, which) - mu), initial=np.inf)
    if mu.imag or not 1e-6 * np.abs(mu) < apart or not abs(mu) > 1e-9 or abs(abs(mu) - 1) < 1e-9:
        raise ValueError(
            f"manifold: the multiplier {mu:.6g} must be real, simple and neither 0 nor of modulus 1. All are {values}."
        )
    q = np.real(vectors[:, which])
    q = q / np.linalg.norm(q)
    return mu.real, q * np.sign(q[np.flatnonzero(np.abs(q) > 1e-6)[0]])


def _with_polynomial(start: Manifold, size: float) -> Manifold:
    """The manifold with its polynomial near the orbit, on the largest interval that is found."""
    mu, lap, (y0, v) = start.multiplier, start.lap, start.coefficients
    inside = min(1.0, 1 / abs(mu))
    angles = (np.arange(2 * DEGREE) + 0.5) * np.pi / (2 * DEGREE)
    # Points to fit, in units of the radius, and points between them.
    nodes, between = inside * np.cos(angles), inside * np.cos(angles[:-1] + np.diff(angles) / 2)
    # To rounding, or else to what the integrator promises.
    close = 256 * float(np.finfo(y0.dtype).eps) * size
    coarse = max(close, float(sum(lap.step.integrator_or(Integrator()).tolerances(y0.dtype))) * size)
    basis, found = lambda s: s[:, None] ** 2 * chebyshev.chebvander(s, DEGREE - 1), start
    for halvings in range(12):
        radius = size / 2**halvings
        of = lambda c, s, r=radius: y0 + s[:, None] * r * v + basis(s) @ c
        c, last = np.zeros((DEGREE, y0.size)), np.inf
        for _ in range(8):
            passage, by, codes = passages(lap, of(c, nodes))
            off = passage.end - of(c, mu * nodes)
            if np.any(codes != SUCCESSFUL) or not np.max(np.abs(off)) < last:
                break
            last = np.max(np.abs(off))
            rows = np.einsum("pij,pk->pikj", by.end, basis(nodes))
            rows -= np.einsum("ij,pk->pikj", np.eye(y0.size), basis(mu * nodes))
            c = c - np.linalg.lstsq(rows.reshape(off.size, c.size), off.ravel(), rcond=1e-13)[0].reshape(c.shape)
        passage, _, codes = passages(lap, of(c, between))
        residual = float(np.max(np.abs(passage.end - of(c, mu * between))))
        if np.all(codes == SUCCESSFUL) and residual <= (close if found.radius else coarse):
            # What the map erases is determined on the image of the interval only.
            found = dataclasses.replace(
                start, radius=radius * min(1.0, abs(mu)), residual=residual, result=RESULTS.successful,
                coefficients=np.concatenate([[y0, radius * v], c]), scale=radius,
            )  # fmt: skip
            if residual <= close:
                break
    return found


def _reach(found: Manifold, s: np.ndarray) -> Reached:
    """Points by the polynomial, and from there by passes of the map, forwards or backwards."""
    mu, lap = found.multiplier, found.lap
    levels = found._levels(s)
    outward = mu if abs(mu) > 1 else 1 / mu
    at = s / outward**levels
    y, slope = _polynomial(found, at)
    codes = np.full(len(s), SUCCESSFUL)
    for level in range(np.max(levels, initial=0)):
        (alive,) = np.nonzero((level < levels) & (codes == SUCCESSFUL))
        if not alive.size:
            break
        at[alive] *= outward
        if abs(mu) > 1:
            passage, by, codes[alive] = passages(lap, y[alive])
            y[alive], slope[alive] = passage.end, np.einsum("pij,pj->pi", by.end, slope[alive]) / mu
        else:
            y[alive], slope[alive], codes[alive] = _back(found, y[alive], slope[alive], at[alive])
    x, by = jumps(lap, y)
    return Reached(y, slope, x, np.einsum("pij,pj->pi", by, slope), codes)


def _back(found: Manifold, y: np.ndarray, slope: np.ndarray, s: np.ndarray):
    """The points at `s` whose images are those with the states `y`: `(y, slope, codes)`, by Newton's method."""
    lap, mu = found.lap, found.multiplier
    target, by, _ = passages(lap, y)
    goal, tangent = target.x, mu * np.einsum("pij,pj->pi", by.x, slope)
    y, size = _between(found.s, found.before, s), np.max(np.abs(found.before))
    rounding = np.finfo(y.dtype).eps
    accept = 1e3 * max(rounding, float(sum(lap.step.integrator_or(Integrator()).tolerances(y.dtype)))) * size
    best, slope, least, codes = y.copy(), slope.copy(), np.full(len(s), np.inf), np.full(len(s), DIVERGED)
    alive = np.arange(len(s))
    for _ in range(10):
        passage, by, result = passages(lap, y[alive])
        # A guard of the time alone is no equation.
        guard = np.where(np.any(by.guard != 0, axis=1), passage.guard, 0)
        off = np.column_stack([passage.after - goal[alive], guard])
        inverse = np.linalg.pinv(np.nan_to_num(np.concatenate([by.after, by.guard[:, None]], axis=1)), rcond=RANK)
        error = np.where(result == SUCCESSFUL, np.max(np.abs(off), axis=1), np.inf)
        change = np.einsum("pij,pj->pi", inverse, off)
        better = error < least[alive]
        at = alive[better]
        best[at], least[at] = y[at], error[better]
        slope[at] = np.einsum("pij,pj->pi", inverse[better][:, :, :-1], tangent[at])
        codes[at] = DIVERGED
        codes[alive[result != SUCCESSFUL]] = result[result != SUCCESSFUL]
        y[alive] -= change
        alive = alive[better & (np.max(np.abs(change), axis=1) > 4 * rounding * size)]
        if not alive.size:
            break
    return best, slope, np.where(least <= accept, SUCCESSFUL, codes)


def _polynomial(found: Manifold, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The states before the closing jump by the polynomial, and their derivatives by `s`."""
    z, (y0, v, *c) = s[:, None] / found.scale, found.coefficients
    p, dp = chebyshev.chebval(z[:, 0], np.array(c)).T, chebyshev.chebval(z[:, 0], chebyshev.chebder(np.array(c))).T
    return y0 + z * v + z**2 * p, (v + 2 * z * p + z**2 * dp) / found.scale


def _between(s: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The cubic through the four points nearest to each `at`."""
    first = np.clip(np.searchsorted(s, at) - 2, 0, len(s) - 4)
    near = first[:, None] + np.arange(4)
    apart = s[near][:, :, None] - s[near][:, None, :] + np.eye(4)
    ratios = np.where(np.eye(4, dtype=bool), 1, (at[:, None, None] - s[near][:, None, :]) / apart)
    return np.einsum("pk,pki->pi", np.prod(ratios, axis=2), y[near])


def _extended(found: Manifold, length: float, spacing: float, angle: float, max_points: int) -> Manifold:
    """The manifold with points on both halves, out to an arclength."""
    start = _reach(found, np.zeros(1))
    ahead = found.radius * np.linspace(-1, 1, 9) / 64
    first = _reach(found, ahead)
    found = dataclasses.replace(found, s=ahead, before=first.y, x=first.x, arclength=0 * ahead)
    halves = {sign: [np.zeros(1), start.y, start.x, start.direction, np.zeros(1)] for sign in (-1, 1)}
    pace, count, ends = (dict.fromkeys(halves, value) for value in (found.radius / LANES, LANES, -1))
    while min(ends.values()) < 0:
        for sign in [sign for sign in halves if ends[sign] < 0]:
            rows = halves[sign]
            s = rows[0][-1] + sign * pace[sign] * np.arange(1, count[sign] + 1)
            reached = _reach(found, s)
            x, directions = np.concatenate([rows[2][-1:], reached.x]), np.concatenate([rows[3][-1:], reached.direction])
            gaps, turns = np.linalg.norm(np.diff(x, axis=0), axis=1), _turns(directions)
            good = (reached.codes == SUCCESSFUL) & (gaps <= spacing) & ((turns <= angle) | (gaps <= FOLD * spacing))
            # As far as the points are good, and not beyond the first one at the length.
            reach = abs(rows[4][-1]) + np.cumsum(gaps)
            kept = min(len(s) if good.all() else int(np.argmin(good)), 1 + int(np.searchsorted(reach, length)))
            new = [s, reached.y, reached.x, reached.direction, sign * reach]
            halves[sign] = rows = [np.concatenate([old, each[:kept]]) for old, each in zip(rows, new, strict=True)]
            if abs(rows[4][-1]) >= length:
                ends[sign] = SUCCESSFUL
            elif kept < len(s):
                small = pace[sign] * np.linalg.norm(rows[3][-1]) <= FOLD * spacing
                if small and (kept == 0 or reached.codes[kept] != SUCCESSFUL):
                    # A gap that does not shrink with the step: the map jumps.
                    code = int(reached.codes[kept])
                    ends[sign] = DIVERGED if code == SUCCESSFUL else code
                pace[sign] /= 2 if kept else 4
            elif np.all((2 * gaps <= spacing) & (2 * turns <= angle)):
                pace[sign] *= 2
            # Beyond the end of a manifold states take long to fail.
            count[sign] = min(LANES, 2 * kept + 2)
            if ends[sign] < 0 and len(rows[0]) > max_points:
                ends[sign] = int(RESULTS.max_points_reached._value)
            if len(halves[-1][0]) + len(halves[1][0]) >= 8:
                low, high = halves[-1], halves[1]
                columns = [np.concatenate([a[:0:-1], b]) for a, b in zip(low, high, strict=True)]
                found = dataclasses.replace(found, s=columns[0], before=columns[1], x=columns[2], arclength=columns[4])
    return dataclasses.replace(found, ends=numbered_code(jnp.array([ends[-1], ends[1]])))


def _turns(directions: np.ndarray) -> np.ndarray:
    """The angles between neighbouring directions."""
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    return 2 * np.arcsin(np.clip(np.linalg.norm(np.diff(unit, axis=0), axis=1) / 2, 0, 1))
