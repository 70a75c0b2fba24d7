"""The former path of `hyjax.plot.sweep`."""

from .plot.sweep import attractor_figure as attractor_figure, basin_figure as basin_figure, sweep_figure as sweep_figure
