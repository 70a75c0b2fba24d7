"""Proofs of limit cycles by arithmetic that rounds outward, with their pictures; tubes of Euler's method, and what they do and do
not prove."""

from .attracting import attracting as attracting
from .certificate import Certificate as Certificate
from .certificate_figure import (
    certificate_figure as certificate_figure,
    certified_set as certified_set,
    certified_tube as certified_tube,
    proved_orbit_figure as proved_orbit_figure,
)
from .certified_region import certified_region as certified_region
from .disturbance import Disturbance as Disturbance
from .euler_tube import euler_tube as euler_tube, EulerTube as EulerTube
from .krawczyk import krawczyk as krawczyk
from .one_sided import (
    logarithmic_norm as logarithmic_norm,
    OneSidedLipschitz as OneSidedLipschitz,
    radial_quotient as radial_quotient,
)
from .proved_basin import proved_basin as proved_basin, ProvedBasin as ProvedBasin
from .proved_orbit import Enclosed as Enclosed, ProvedOrbit as ProvedOrbit
from .radius import published_radius as published_radius, sharp_radius as sharp_radius
from .stroboscopic import (
    stroboscopic_inclusion as stroboscopic_inclusion,
    StroboscopicInclusion as StroboscopicInclusion,
)
