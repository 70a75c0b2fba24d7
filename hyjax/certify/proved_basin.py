r"""Cells of a section that are proved to lie in the basin of attraction of a certificate's limit cycle."""

import time

import numpy as np
from jaxtyping import Bool, Float, Int

from .._results.registry import draw
from .._results.shown import Shown
from .._results.table import Table
from .attracting import Certificate
from .enclosed_map import EnclosedMap
from .polygon import PieceImages, Polygon

_SIDES = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])


class ProvedBasin(Shown):
    r"""Cells from which every orbit enters the set of a certificate, under all its disturbances.

    **Attributes:** `certificate`. `cells`: the corners in the coordinates of the section, shape `(n, 4, 2)`. `strides`: how many
    strides at most take a cell into the set, shape `(n,)`; 0: the cell lies in it. `area`: of all cells, in units of the
    coordinates. `evaluated`: how many cells were mapped. `seconds`: of the proof.

    **Example:**

    >>> decay = lambda t, x, p: jnp.stack([-x[0], -2 * x[1], jnp.ones_like(x[2])])
    >>> tick = hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0]))
    >>> system = hj.HybridSystem({"m": hj.Mode(decay, ("x", "y", "clock"))}, (tick,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("m",)), jnp.array([0.1, 0.1, 0.0]), None)
    >>> certificate = hj.certify.attracting(orbit, disturbance=hj.certify.Disturbance(1e-3), facets=8, rings=1, steps=8, orders=8)
    >>> basin = hj.certify.proved_basin(certificate, cells=8, levels=1, steps=8, orders=8)
    >>> basin.cells.shape[1:], int(basin.strides.max())
    ((4, 2), 1)
    """

    certificate: Certificate
    cells: Float[np.ndarray, "n 4 2"]
    strides: Int[np.ndarray, " n"]
    area: float
    evaluated: int
    seconds: float

    def holds(self, z: Float[np.ndarray, "k 2"]) -> Bool[np.ndarray, " k"]:
        """Whether points of the section lie in a cell."""
        corners = self.cells
        steps = np.roll(corners, -1, axis=1) - corners
        apart = np.asarray(z)[:, None, None, :] - corners[None]
        turn = steps[None, :, :, 0] * apart[..., 1] - steps[None, :, :, 1] * apart[..., 0]
        return np.any(np.all(turn >= 0, axis=2) | np.all(turn <= 0, axis=2), axis=1)

    def plot(self, ax=None, coordinates=None, start=None, strides: bool = True):
        """The cells and the certificate's set, coloured by the strides to the set; see `hyjax.certify.certified_region`."""
        return draw(self, ax, coordinates, start, strides=strides)

    def _tables(self):
        proof = self.certificate
        disturbed = f", under disturbances up to {proof.disturbance.bound:g}" if proof.disturbance.bound else ""
        claim = (
            "converges to the limit cycle" if proof.converges else "enters the set of the certificate and stays there"
        )
        rows = [
            ("area", f"{self.area:.4g} in {', '.join(proof.coordinates)}"),
            ("strides", f"at most {int(np.max(self.strides, initial=0))} to the set"),
            ("seconds", f"{self.seconds:.1f}, {self.evaluated} cells mapped"),
        ]
        return (Table(f"Proved basin: every orbit from {len(self.cells)} cells {claim}{disturbed}", rows),)


class _CellGrid:
    """Cells of a square of the section's plane: which finest cells are proved, and after how many strides."""

    def __init__(self, extent: float, cells: int, levels: int, polygon: Polygon):
        self.count = cells * 2**levels
        self.lines = np.linspace(-extent, extent, self.count + 1)
        inside = (self.lines[1:, None] > polygon.vertices.min(axis=0)) & (
            self.lines[:-1, None] < polygon.vertices.max(axis=0)
        )
        # The finest cells that meet the set's box.
        self.core = inside[:, :1] & inside[:, 1:].T
        self.strides = np.full((self.count, self.count), -1)

    def quads(self, cells: Int[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 4 2"]:
        """The corners of cells, given by their size and first finest cell in both directions."""
        size, i, j = cells.T
        a, b, c, d = (np.stack([self.lines[i + p * size], self.lines[j + q * size]], 1) for p, q in
                      ((0, 0), (1, 0), (1, 1), (0, 1)))  # fmt: skip
        return np.stack([a, b, c, d], axis=1)

    def latest(self, low: Float[np.ndarray, " 2"], high: Float[np.ndarray, " 2"]) -> int:
        """The most strides from the finest cells that meet a box; -1 if one of them is not proved."""
        if not (np.all(low >= self.lines[0]) and np.all(high <= self.lines[-1])):
            return -1
        start = np.maximum(np.searchsorted(self.lines, low, side="left") - 1, 0)
        end = np.minimum(np.searchsorted(self.lines, high, side="right"), self.count)
        held = self.strides[start[0] : end[0], start[1] : end[1]]
        return -1 if np.any(held < 0) else int(np.max(held))

    def mark(self, cell: Int[np.ndarray, " 3"], strides: int):
        """Note that a cell is proved, with its number of strides."""
        size, i, j = cell
        self.strides[i : i + size, j : j + size] = strides

    def beside(self, size: int) -> Int[np.ndarray, "n 3"]:
        """Cells of a size that are not proved but touch one that is, or meet the set's box."""
        count = self.count // size
        held, started = ((each).reshape(count, size, count, size) for each in (self.strides >= 0, self.core))
        whole, some = np.all(held, axis=(1, 3)), np.any(held | started, axis=(1, 3))
        padded = np.pad(some, 1)
        near = np.any([np.roll(padded, (p, q), (0, 1)) for p in (-1, 0, 1) for q in (-1, 0, 1)], axis=0)[1:-1, 1:-1]
        i, j = np.nonzero(near & ~whole)
        return np.stack([np.full(len(i), size), i * size, j * size], axis=1)


def _within(polygon: Polygon, quads: Float[np.ndarray, "n 4 2"]) -> Bool[np.ndarray, " n"]:
    """Which quadrilaterals are proved to lie in a convex polygon: their corners do."""
    (away, error), normals = polygon.supports, np.asarray(polygon.edges.center)
    far = np.max(quads @ normals.T, axis=1) + 2.0**-45 * np.max(np.abs(quads) @ np.abs(normals).T, axis=1)
    return np.all(far + error < away, axis=1)


def proved_basin(
    certificate: Certificate,
    *,
    extent: float | None = None,
    cells: int = 32,
    levels: int = 2,
    steps: int = 32,
    orders: int = 12,
    degree: int = 2,
) -> ProvedBasin:
    r"""Cells around the set $B$ of a certificate from which every orbit enters $B$, under all disturbances: a proof for each.

    A cell is proved if its image under the return map lies in $B$, or in cells that are proved. So the proved region grows from
    $B$ outward until no cell that touches the region can be added; then smaller cells are tried, `levels` times.

    **Arguments:** `certificate`: proved. `extent`: half the side of the square that is cut into `cells` $\times$ `cells`, in the
    certificate's coordinates; `None`: four times the set's. `steps`, `orders`, `degree`: as of `attracting`.

    **Returns:** a `ProvedBasin`. `ValueError` for a certificate that is not proved.

    **Example:**

    >>> decay = lambda t, x, p: jnp.stack([-x[0], -2 * x[1], jnp.ones_like(x[2])])
    >>> tick = hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0]))
    >>> system = hj.HybridSystem({"m": hj.Mode(decay, ("x", "y", "clock"))}, (tick,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("m",)), jnp.array([0.1, 0.1, 0.0]), None)
    >>> certificate = hj.certify.attracting(orbit, disturbance=hj.certify.Disturbance(1e-3), facets=8, rings=1, steps=8, orders=8)
    >>> basin = hj.certify.proved_basin(certificate, cells=8, levels=1, steps=8, orders=8)
    >>> basin.holds(certificate.center[None])
    array([ True])
    """
    if not certificate.proved:
        raise ValueError("proved_basin: the certificate is not proved; its set attracts nothing that is known.")
    if not (cells >= 4 and levels >= 0):
        raise ValueError(f"proved_basin: cells={cells} must be at least 4, and levels={levels} not negative.")
    polygon = Polygon(certificate.polygon)
    extent = extent or 4 * float(np.max(np.abs(polygon.vertices)))
    # The set is where it is in the certificate's coordinates: eigenvectors by other steps, of which they depend on rounding or
    # worse, would be those of another set.
    coordinates = certificate.center, certificate.rows
    of = EnclosedMap(certificate.orbit, certificate.disturbance, certificate.section, steps, orders, True, coordinates)
    images, grid = PieceImages(of, 1, 3, degree), _CellGrid(extent, cells, levels, polygon)
    begun, evaluated, proved = time.perf_counter(), 0, []
    for level in range(levels + 1):
        size = 2 ** (levels - level)
        done, waiting = set(), []
        if level == 0:
            every = np.array([(size, i * size, j * size) for i in range(cells) for j in range(cells)])
            for cell in every[_within(polygon, grid.quads(every))]:
                proved.append((cell, 0))
                grid.mark(cell, 0)
        while True:
            fresh = np.array([cell for cell in grid.beside(size) if tuple(cell) not in done], int).reshape(-1, 3)
            if not len(fresh):
                break
            done |= {tuple(cell) for cell in fresh}
            reached = images.mapped(polygon, grid.quads(fresh), _SIDES)
            evaluated += len(fresh)
            inside, high, low = reached.proved, reached.far[:, :2], -reached.far[:, 2:4]
            waiting += [
                (cell, bool(into), a, b)
                for cell, into, a, b, held in zip(fresh, inside, low, high, reached.held, strict=True)
                if held
            ]
            waiting, found = _settled(grid, waiting)
            proved += found
    quads = grid.quads(np.array([cell for cell, _ in proved], int).reshape(-1, 3))
    back = np.asarray(of.axes.inverse)
    return ProvedBasin(
        certificate,
        certificate.center + quads @ back.T,
        np.array([strides for _, strides in proved], int),
        float(np.sum(np.prod(quads[:, 2] - quads[:, 0], axis=1)) * abs(np.linalg.det(back))),
        evaluated,
        time.perf_counter() - begun,
    )


def _settled(grid: _CellGrid, waiting: list) -> tuple[list, list]:
    """Marks cells whose images lie in the set or in proved cells, until there are no more."""
    proved, fresh = [], True
    while fresh:
        fresh, left = [], []
        for cell, into, low, high in waiting:
            strides = 1 if into else grid.latest(low, high) + 1
            if strides > 0:
                fresh.append((cell, strides))
                grid.mark(cell, strides)
            else:
                left.append((cell, into, low, high))
        waiting, proved = left, proved + fresh
    return waiting, proved
