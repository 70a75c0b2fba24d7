"""The result of a proof: what is proved, of which set, under which assumptions."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._orbit.orbit import PeriodicOrbit
from .._results.registry import draw
from .._results.shown import Shown
from .._results.table import Table
from .._system.types import Params, Scalar, State
from .disturbance import Disturbance, disturbed_ends
from .flow_pipe import Tube
from .section_plane import SectionChart


class Certificate(Shown):
    r"""A set on a section, and whether it is proved that the return map takes it into its interior.

    **Attributes:** `status`: `"proved"` or `"not proved"`, which does not mean disproved. `ratio`: how far the image reaches,
    relative to the set, as seen from the orbit; below 1 it is inside. `reasons`: why it is not proved. `polygon`: vertices of the
    set, counterclockwise, shape `(k, 2)`, in coordinates $y = $ `rows` $(z - $ `center` $)$, exactly, where $z$ are the entries
    `coordinates` of the pre-impact state. `image`: likewise, of a polygon that holds the image of the set; NaN where there is no
    bound. `section`: how states follow from $z$. `converges`: whether every orbit from the set is proved to converge to the
    cycle; never with a disturbance. `norm`: of the return map's derivative on the last of the `sets` of the proof. `tubes`:
    bounds of the states, arc by arc. `disturbance`, `orbit`: as given. `pieces`: of the set. `seconds`: of the proof;
    `compile_seconds`: before it. `assumptions`: of the proof.

    **Example:**

    >>> decay = lambda t, x, p: jnp.stack([-x[0], -2 * x[1], jnp.ones_like(x[2])])
    >>> tick = hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0]))
    >>> system = hj.HybridSystem({"m": hj.Mode(decay, ("x", "y", "clock"))}, (tick,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("m",)), jnp.array([0.1, 0.1, 0.0]), None)
    >>> certificate = hj.certify.attracting(orbit, disturbance=hj.certify.Disturbance(1e-3), facets=8, rings=1, steps=8, orders=8)
    >>> certificate.coordinates, certificate.vertices.shape
    (('x', 'y'), (8, 2))
    """

    status: str = eqx.field(static=True)
    ratio: float
    reasons: tuple[str, ...] = eqx.field(static=True)
    polygon: Float[np.ndarray, "k 2"]
    image: Float[np.ndarray, "k 2"]
    section: SectionChart = eqx.field(static=True)
    center: Float[np.ndarray, " 2"]
    rows: Float[np.ndarray, "2 2"]
    disturbance: Disturbance = eqx.field(static=True)
    converges: bool
    norm: float
    sets: int
    tubes: tuple[Tube, ...]
    pieces: int
    assumptions: tuple[str, ...] = eqx.field(static=True)
    seconds: float
    compile_seconds: float
    orbit: PeriodicOrbit

    @property
    def proved(self) -> bool:
        """Whether `status` is `"proved"`."""
        return self.status == "proved"

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the section's coordinates."""
        return self.section.names

    @property
    def axes(self) -> Float[np.ndarray, "2 2"]:
        """The inverse of `rows`, to rounding: $z = $ `center` $ + $ `axes` $ y$."""
        return np.linalg.inv(self.rows)

    @property
    def vertices(self) -> Float[np.ndarray, "k 2"]:
        """The vertices in the coordinates of the section, to rounding."""
        return self.center + self.polygon @ self.axes.T

    @property
    def image_vertices(self) -> Float[np.ndarray, "k 2"]:
        """The vertices of the polygon that holds the image, in the coordinates of the section, to rounding."""
        return self.center + self.image @ self.axes.T

    @property
    def half_widths(self) -> Float[np.ndarray, " 2"]:
        """Half of the set's extent in each coordinate of the section, in its unit."""
        return 0.5 * (self.vertices.max(axis=0) - self.vertices.min(axis=0))

    def start(self, params: Params, *z: Scalar) -> State:
        """The state just after the jump that closes the orbit, from coordinates of the section: `start` of `hyjax.basin`. With
        the time as last entry if the system depends on it."""
        return self.section.lift(jnp.stack(z), params)

    def sample(self, count: int, seed: int = 0) -> tuple[Float[np.ndarray, "count 2"], Float[np.ndarray, "count 2"]]:
        """Where strides under random disturbances start, half of them on the set's boundary and half inside, and where they end,
        in the coordinates of the section; see `disturbed_ends`. They prove nothing, but could refute a bound that is wrong."""
        rng = np.random.default_rng(seed)
        edge, part = rng.integers(0, len(self.polygon), count), rng.uniform(0, 1, (count, 1))
        depth = np.where(np.arange(count)[:, None] % 2, np.sqrt(rng.uniform(0, 1, (count, 1))), 1.0)
        y = depth * (self.polygon[edge] + part * (np.roll(self.polygon, -1, axis=0)[edge] - self.polygon[edge]))
        starts = self.center + y @ self.axes.T
        return starts, disturbed_ends(self.orbit, self.section, self.disturbance, starts, rng)

    def plot(self, model=None, samples: int = 0):
        """A figure of the set with the bound of its image, and of the tube; see `hyjax.certify.certificate_figure`."""
        return draw(self, model, samples)

    def _tables(self):
        d = self.disturbance
        channels = "all rates" if d.channels is None else "the rates of " + ", ".join(d.channels)
        disturbance = f"|w| <= {d.bound:g} in {channels}, {d.norm}-norm" if d.bound else "none"
        if not self.proved:
            claim = "; ".join(self.reasons)
        elif self.converges:
            claim = "the set holds exactly one fixed point, and every orbit from the set converges to its limit cycle"
        else:
            claim = "every orbit that starts in the set returns to its interior, forever"
        widths = ", ".join(f"{name} {half:.3g}" for name, half in zip(self.coordinates, self.half_widths, strict=True))
        rows = [
            ("claim", claim),
            ("disturbance", disturbance),
            ("ratio", f"{self.ratio:.4f}: the image reaches so far, of the set"),
            ("half-widths", widths),
            ("pieces", f"{self.pieces}, sets {self.sets}"),
            ("seconds", f"{self.seconds:.1f}, and {self.compile_seconds:.1f} to compile"),
            *(("" if k else "assumptions", sentence) for k, sentence in enumerate(self.assumptions)),
        ]
        return (Table(f"Certificate: {self.status}", rows),)
