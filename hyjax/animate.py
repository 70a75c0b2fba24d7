"""The former path of `hyjax.plot.animate`."""

from .plot.animate import (
    animate_orbit as animate_orbit,
    animate_trajectory as animate_trajectory,
    save_animation as save_animation,
    shapes as shapes,
    Step as Step,
    walk as walk,
)
