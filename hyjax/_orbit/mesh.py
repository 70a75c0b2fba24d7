r"""The mesh of a two-dimensional manifold of a map, which grows outwards from the orbit in rings.

Every point is $W(s)$ itself, by the polynomial near the orbit and passes of the map. Each ring moves the front outwards along the
rays $s = \rho\,e$ of the plane of parameters by steps that are chosen as on a curve; so the front is the graph of $\rho$ over the
angle, and no two triangles overlap in that plane. Edges that are too long, or at whose ends the tangent planes differ too much,
are halved, with the triangles that have them, until none is left: points are inserted where rays part.

Source: Krauskopf, Osinga (1998), J. Comput. Phys. 146, 404-419, and (1999), *Two-dimensional global manifolds of vector fields*,
Chaos 9, 768-774, whose circles are those of equal distance along the surface.
"""

import dataclasses
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from .._system.results import numbered_code, RESULTS
from .problem import DIVERGED, SUCCESSFUL

if TYPE_CHECKING:
    from .manifold import Manifold

# Of an edge, in units of `spacing`: the length below which tangent planes may differ by any angle, that at which a ring aims, and
# that below which an edge that does not get shorter with the way in the plane of parameters is torn. Points of the first ring.
SHARP, AIM, TORN, FIRST = 0.1, 0.7, 0.025, 12
FULL = int(RESULTS.max_points_reached._value)
# In place of a code: a ray goes on, an edge of the front has both its neighbours.
OPEN = -1


class Growing:
    """A mesh while it grows. **Attributes:** of points, rows: `s`, `y`, `x`, `planes`, `far` (arclength), `pace` (of the next
    step), `codes`. `triangles`. `front`: numbers of points in order around the orbit; `gaps`: of the edge from each to the next
    one, a code where it is torn."""

    def __init__(self, found: "Manifold", length: float, spacing: float, angle: float, max_points: int):
        self.found, self.spacing, self.angle, self.most, self.full = found, spacing, angle, max_points, False
        turns = 2 * np.pi * np.arange(FIRST) / FIRST
        ring = min(AIM * spacing, found.radius / 2, length) * np.column_stack([np.cos(turns), np.sin(turns)])
        self.s = np.concatenate([np.zeros((1, 2)), ring])
        start = found._at(self.s)
        self.y, self.x, self.planes = start.y, start.x, start.direction
        self.far = np.linalg.norm(self.x - self.x[0], axis=1)
        self.pace, self.codes = np.ones(len(self.s)), np.full(len(self.s), OPEN)
        self.front, self.gaps = np.arange(1, FIRST + 1), np.full(FIRST, OPEN)
        self.triangles = np.column_stack([np.zeros(FIRST, int), self.front, np.roll(self.front, -1)])

    def at(self, s: np.ndarray):
        """`(rows, codes)` of points; a stable manifold's guesses come from those that are known."""
        known = dataclasses.replace(self.found, s=self.s, x=self.x, arclength=self.far, before=self.y)
        reached = known._at(s)
        finite = np.all(np.isfinite(reached.x), axis=1) & np.all(np.isfinite(reached.direction), axis=(1, 2))
        codes = np.where((reached.codes == SUCCESSFUL) & ~finite, DIVERGED, reached.codes)
        return (s, reached.y, reached.x, reached.direction), codes

    def add(self, rows, far: np.ndarray, pace: np.ndarray) -> np.ndarray:
        """Add points to the mesh, and return their numbers."""
        new = len(self.s) + np.arange(len(far))
        for name, each in zip(("s", "y", "x", "planes", "far", "pace"), (*rows, far, pace), strict=True):
            setattr(self, name, np.concatenate([getattr(self, name), each]))
        self.codes = np.append(self.codes, np.full(len(far), OPEN))
        return new

    def bad(self, gaps: np.ndarray, turns: np.ndarray) -> np.ndarray:
        return (gaps > self.spacing) | ((turns > self.angle) & (gaps > SHARP * self.spacing))

    def ring(self, length: float) -> None:
        """Move the front outwards where it is nearest, and connect what is new."""
        front = self.front
        # A ray between two gaps has no neighbours.
        lonely = (self.gaps != OPEN) & (np.roll(self.gaps, 1) != OPEN) & (self.codes[front] == OPEN)
        self.codes[front[lonely]] = self.gaps[lonely]
        self.codes[front[(self.codes[front] == OPEN) & (self.far[front] >= length - SHARP * self.spacing)]] = SUCCESSFUL
        alive = front[self.codes[front] == OPEN]
        if not alive.size:
            return
        alive = alive[self.far[alive] <= np.min(self.far[alive]) + self.spacing]
        if len(self.s) + alive.size > self.most:
            self.full = True
            return
        size = np.linalg.norm(self.s[alive], axis=1)
        ray = self.s[alive] / size[:, None]
        rate = np.linalg.norm(np.einsum("pid,pd->pi", self.planes[alive], ray), axis=1)
        step = self.pace[alive] * np.minimum(np.minimum(AIM * self.spacing, length - self.far[alive]) / rate, size)
        rows, codes = self.at(self.s[alive] + step[:, None] * ray)
        gaps, turns = np.linalg.norm(rows[2] - self.x[alive], axis=1), between(self.planes[alive], rows[3])
        good = (codes == SUCCESSFUL) & ~self.bad(gaps, turns)
        short = ~good & (step * rate <= TORN * self.spacing)
        self.codes[alive[short]] = np.where(codes == SUCCESSFUL, DIVERGED, codes)[short]
        self.pace[alive[~good]] /= 2
        pace = np.where((2 * gaps <= self.spacing) & (2 * turns <= self.angle), 2, 1) * self.pace[alive]
        new = self.add([each[good] for each in rows], self.far[alive[good]] + gaps[good], np.minimum(pace[good], 1))
        up = np.arange(len(self.s))
        up[alive[good]] = new
        i, j = (each[self.gaps == OPEN] for each in (front, np.roll(front, -1)))
        a, b = up[i], up[j]
        cross = np.linalg.norm(self.x[i] - self.x[b], axis=1) <= np.linalg.norm(self.x[j] - self.x[a], axis=1)
        one, other = np.where(cross, b, a), np.where(cross, i, j)
        made = np.concatenate([np.column_stack([j, i, one]), np.column_stack([other, a, b])])
        whole, self.front = (front, self.gaps, self.triangles), up[front]
        self.refine(made[[len({*each}) == 3 for each in made.tolist()]])
        if self.full:
            self.front, self.gaps, self.triangles = whole

    def refine(self, new: np.ndarray) -> None:
        """Add triangles, halving edges until all are good, or torn; none of them where there would be too many points."""
        while len(new):
            pairs = np.sort(new[:, [[0, 1], [1, 2], [2, 0]]], axis=2)
            edges, of = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
            of, (p, q) = of.reshape(-1, 3), edges.T
            gaps, turns = np.linalg.norm(self.x[p] - self.x[q], axis=1), between(self.planes[p], self.planes[q])
            ways = [
                np.linalg.norm(np.einsum("pid,pd->pi", self.planes[k], self.s[p] - self.s[q]), axis=1) for k in (p, q)
            ]
            np.minimum.at(self.far, p, self.far[q] + gaps)
            np.minimum.at(self.far, q, self.far[p] + gaps)
            (bad,) = np.nonzero(self.bad(gaps, turns))
            if not bad.size:
                break
            codes = np.where(np.maximum(*ways)[bad] <= TORN * self.spacing, DIVERGED, SUCCESSFUL)
            if len(self.s) + bad.size > self.most:
                self.full = True
                return
            whole = np.nonzero(codes == SUCCESSFUL)[0]
            a, b = p[bad[whole]], q[bad[whole]]
            if whole.size:
                rows, codes[whole] = self.at((self.s[a] + self.s[b]) / 2)
                good = codes[whole] == SUCCESSFUL
                a, b, rows = a[good], b[good], [each[good] for each in rows]
                far = [self.far[k] + np.linalg.norm(self.x[k] - rows[2], axis=1) for k in (a, b)]
                middles = self.add(rows, np.minimum(*far), np.minimum(self.pace[a], self.pace[b]))
            middle, torn = np.full(len(edges), OPEN), np.full(len(edges), OPEN)
            torn[bad] = np.where(codes == SUCCESSFUL, OPEN, codes)
            middle[bad[codes == SUCCESSFUL]] = middles if whole.size else []
            self.around({tuple(edges[k]): (middle[k], torn[k]) for k in bad})
            kept = np.all(torn[of] == OPEN, axis=1)
            new = np.concatenate(
                [self.halved(*each) for each in zip(new[kept], middle[of[kept]], strict=True)] or [new[:0]]
            )
        self.triangles = np.concatenate([self.triangles, new])

    def around(self, halved: dict) -> None:
        """The front, after edges were halved or torn."""
        front, gaps = [], []
        for i, j, gap in zip(self.front, np.roll(self.front, -1), self.gaps, strict=True):
            middle, torn = halved.get((min(i, j), max(i, j)), (OPEN, OPEN)) if gap == OPEN else (OPEN, gap)
            front += [i] if middle == OPEN else [i, middle]
            gaps += [torn] if middle == OPEN else [OPEN, OPEN]
        self.front, self.gaps = np.array(front), np.array(gaps)

    def halved(self, triangle: np.ndarray, middle: np.ndarray) -> np.ndarray:
        """The parts of a triangle of which edges, from each corner to the next one, have points in the middle."""
        # The first edge is halved and the last is not, unless all or none are.
        turn = next((k for k in range(3) if middle[k] != OPEN and middle[k - 1] == OPEN), 0)
        (a, b, c), (ab, bc, ca) = np.roll(triangle, -turn), np.roll(middle, -turn)
        match int(np.sum(middle != OPEN)):
            case 0:
                parts = [(a, b, c)]
            case 1:
                parts = [(a, ab, c), (ab, b, c)]
            case 2 if np.linalg.norm(self.x[a] - self.x[bc]) <= np.linalg.norm(self.x[ab] - self.x[c]):
                parts = [(ab, b, bc), (a, ab, bc), (a, bc, c)]
            case 2:
                parts = [(ab, b, bc), (a, ab, c), (ab, bc, c)]
            case _:
                parts = [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
        return np.array(parts)


def meshed(found: "Manifold", length: float, spacing: float, angle: float, max_points: int) -> "Manifold":
    """The surface with its mesh, out to a distance."""
    mesh = Growing(found, length, spacing, angle, max_points)
    while np.any(mesh.codes[mesh.front] == OPEN):
        mesh.ring(length)
        if mesh.full:
            mesh.codes[mesh.front[mesh.codes[mesh.front] == OPEN]] = FULL
    codes = mesh.codes[mesh.front]
    for gaps in (mesh.gaps, np.roll(mesh.gaps, 1)):
        codes = np.where((codes == SUCCESSFUL) & (gaps != OPEN), gaps, codes)
    used, triangles = np.unique(mesh.triangles, return_inverse=True)
    place = np.full(len(mesh.s), OPEN)
    place[used] = np.arange(len(used))
    border = place[mesh.front]
    return dataclasses.replace(
        found, s=mesh.s[used], x=mesh.x[used], before=mesh.y[used], arclength=mesh.far[used],
        triangles=triangles.reshape(-1, 3), border=border[border != OPEN], ends=numbered_code(jnp.array(codes[border != OPEN])),
    )  # fmt: skip


def between(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Angles between planes, given by bases, shape `(pairs, n, 2)`, more than a right one where one is turned over."""
    a, b = np.linalg.qr(one), np.linalg.qr(other)
    a, b = (each.Q * np.sign(np.diagonal(each.R, axis1=1, axis2=2))[:, None] for each in (a, b))
    across = np.swapaxes(a, 1, 2) @ b
    sine = np.linalg.norm(b - a @ across, ord=2, axis=(1, 2))
    angle = np.arcsin(np.clip(sine, 0, 1))
    return np.where(np.linalg.det(across) > 0, angle, np.pi - angle)


def near_points(found: "Manifold", s: np.ndarray) -> np.ndarray:
    """States before the jump at each `s`, by the quadratic function nearest to those of the twelve nearest points."""
    apart = found.s[None] - s[:, None]
    near = np.argsort(np.linalg.norm(apart, axis=2), axis=1)[:, :FIRST]
    u = np.take_along_axis(apart, near[:, :, None], axis=1)
    x, y = np.moveaxis(u / np.max(np.abs(u), axis=(1, 2), keepdims=True), 2, 0)
    rows = np.stack([np.ones_like(x), x, y, x**2, x * y, y**2], axis=2)
    return np.einsum("pk,pki->pi", np.linalg.pinv(rows, rcond=1e-6)[:, 0], found.before[near])


def beyond(found: "Manifold", s: np.ndarray) -> np.ndarray:
    """Which parameters are beyond the points, and beyond the polynomial."""
    if found.border is None:
        return (s < min(found.s[0], -found.radius)) | (s > max(found.s[-1], found.radius))
    around = found.s[found.border]
    turns, of = (np.arctan2(*each.T[::-1]) for each in (around, s))
    order = np.argsort(turns)
    k = np.searchsorted(turns[order], of) % len(order)
    p, q = around[order[k - 1]], around[order[k]]
    cross = lambda a, b: a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
    return (cross(q - p, s - p) < -1e-9 * np.linalg.norm(q - p, axis=1) * np.linalg.norm(s, axis=1)) & (
        np.linalg.norm(s, axis=1) > found.radius
    )
