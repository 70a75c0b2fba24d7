"""The former path of `hyjax.plot.animate` and `hyjax.plot.placement`."""

from .plot.animate import (
    animate_orbit as animate_orbit,
    animate_trajectory as animate_trajectory,
    save_animation as save_animation,
)
from .plot.placement import PlacedArc, shapes as shapes, walk as walk

Step = PlacedArc
