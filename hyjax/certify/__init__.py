"""Proofs of limit cycles by arithmetic that rounds outward, with their pictures; tubes of Euler's method, and what they do and do
not prove."""

from typing import Any, TYPE_CHECKING

from .attracting import attracting as attracting, Certificate as Certificate
from .disturbance import Disturbance as Disturbance
from .euler_bounds import (
    logarithmic_norm as logarithmic_norm,
    OneSidedLipschitz as OneSidedLipschitz,
    published_radius as published_radius,
    radial_quotient as radial_quotient,
    sharp_radius as sharp_radius,
)
from .euler_tube import euler_tube as euler_tube, EulerTube as EulerTube
from .krawczyk import krawczyk as krawczyk
from .proved_basin import proved_basin as proved_basin, ProvedBasin as ProvedBasin
from .proved_orbit import Enclosed as Enclosed, ProvedOrbit as ProvedOrbit
from .stroboscopic import (
    stroboscopic_inclusion as stroboscopic_inclusion,
    StroboscopicInclusion as StroboscopicInclusion,
)

if TYPE_CHECKING:
    from .proof_figures import (
        certificate_figure as certificate_figure,
        certified_region as certified_region,
        certified_set as certified_set,
        certified_tube as certified_tube,
        proved_orbit_figure as proved_orbit_figure,
    )

_PICTURES = ("certificate_figure", "certified_region", "certified_set", "certified_tube", "proved_orbit_figure")


def __getattr__(name: str) -> Any:
    """The pictures: imported when the first is asked for, with all of `hyjax.plot`, which takes a second."""
    if name not in _PICTURES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import proof_figures

    return getattr(proof_figures, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PICTURES})
