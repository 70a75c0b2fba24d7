"""The former path of `hyjax.plot.trajectory`."""

from .plot.trajectory import trajectory_figure as trajectory_figure
