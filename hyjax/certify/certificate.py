"""The result of a proof: what is proved, of which set, under which assumptions."""

import dataclasses

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .._orbit.orbit import PeriodicOrbit
from .._system.shown import Shown
from .arc import Tube
from .disturbance import Disturbance
from .section import SectionChart


@dataclasses.dataclass(frozen=True)
class TubeBounds:
    """Bounds of all states of an arc, over all pieces and disturbances.

    **Attributes:** `low`, `high`: during each step, shape `(steps + 1, n)`; the last is the window of the event. `elapsed`: the
    earliest times of the starts of the steps, since the start of the arc. `last`: the latest time of the event.
    """

    low: Float[np.ndarray, "steps n"]
    high: Float[np.ndarray, "steps n"]
    elapsed: Float[np.ndarray, " steps"]
    last: float

    @classmethod
    def over(cls, tube: Tube) -> "TubeBounds":
        """Of the tubes of pieces, stacked."""
        low, high = np.min(tube.box_low, axis=0), np.max(tube.box_high, axis=0)
        return cls(low, high, np.min(tube.elapsed, axis=0), float(np.max(tube.last)))


class Certificate(Shown):
    r"""A set on a section, and whether it is proved that the return map takes it into its interior.

    **Attributes:** `status`: `"proved"` or `"not proved"`, which does not mean disproved. `ratio`: how far the image reaches,
    relative to the set, as seen from the orbit; below 1 it is inside. `reasons`: why it is not proved. `polygon`: vertices of the
    set, counterclockwise, shape `(k, 2)`, in coordinates $y$ with $z = $ `center` $ + $ `axes` $ y$, where $z$ are the entries
    `coordinates` of the pre-impact state. `converges`: whether every orbit from the set is proved to converge to the cycle; never
    with a disturbance. `norm`: of the return map's derivative on the last of the `sets` of the proof. `tubes`: bounds of the
    states, arc by arc. `pieces`: of the set. `seconds`: of the proof; `compile_seconds`: before it. `assumptions`: of the proof.
    `section`: as it was given.
    """

    status: str = eqx.field(static=True)
    ratio: float
    reasons: tuple[str, ...] = eqx.field(static=True)
    polygon: Float[np.ndarray, "k 2"]
    coordinates: tuple[str, ...] = eqx.field(static=True)
    center: Float[np.ndarray, " 2"]
    axes: Float[np.ndarray, "2 2"]
    disturbance: Disturbance = eqx.field(static=True)
    converges: bool
    norm: float
    sets: int
    tubes: tuple[TubeBounds, ...] = eqx.field(static=True)
    pieces: int
    assumptions: tuple[str, ...] = eqx.field(static=True)
    seconds: float
    compile_seconds: float
    orbit: PeriodicOrbit
    section: SectionChart | None = eqx.field(static=True, default=None)

    @property
    def proved(self) -> bool:
        """Whether `status` is `"proved"`."""
        return self.status == "proved"

    @property
    def vertices(self) -> Float[np.ndarray, "k 2"]:
        """The vertices in the coordinates of the section, to rounding."""
        return self.center + self.polygon @ self.axes.T

    def __str__(self) -> str:
        spans = self.vertices.max(axis=0) - self.vertices.min(axis=0)
        d = self.disturbance
        channels = "all rates" if d.channels is None else "the rates of " + ", ".join(d.channels)
        wind = f"|w| <= {d.bound:g} in {channels}, {d.norm}-norm" if d.bound else "none"
        if not self.proved:
            claim = "; ".join(self.reasons)
        elif self.converges:
            claim = "the set holds exactly one fixed point, and every orbit from the set converges to its limit cycle"
        else:
            claim = "every orbit that starts in the set returns to its interior, forever"
        widths = ", ".join(f"{name} {0.5 * span:.3g}" for name, span in zip(self.coordinates, spans, strict=True))
        return "\n".join(
            [
                f"Certificate: {self.status}",
                f"  claim        {claim}",
                f"  disturbance  {wind}",
                f"  ratio        {self.ratio:.4f}: the image reaches so far, of the set",
                f"  half-widths  {widths}",
                f"  pieces       {self.pieces}, sets {self.sets}",
                f"  seconds      {self.seconds:.1f}, and {self.compile_seconds:.1f} to compile",
                "  assumptions  " + "\n               ".join(self.assumptions),
            ]
        )
