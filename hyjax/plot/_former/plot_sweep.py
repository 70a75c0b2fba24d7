"""The former path of `hyjax.plot.sweep`."""

from .plot.basin import basin_figure as basin_figure
from .plot.sweep import attractor_figure as attractor_figure, sweep_figure as sweep_figure
