"""Pictures of results: functions that take a result and return matplotlib axes, a figure or an animation."""

from .animation import (
    animate_optimization as animate_optimization,
    animate_orbit as animate_orbit,
    animate_trajectory as animate_trajectory,
    save_animation as save_animation,
    sketch as sketch,
)
from .branch_figure import (
    branch_diagram as branch_diagram,
    diagram_figure as diagram_figure,
    equilibrium_diagram as equilibrium_diagram,
    locus_diagram as locus_diagram,
)
from .by_type import animate as animate, draw as draw
from .estimates_figure import (
    covariance_figure as covariance_figure,
    estimate_figure as estimate_figure,
    fit_figure as fit_figure,
)
from .explore import explore as explore, Explorer as Explorer
from .gait_map import gait_map as gait_map, GaitMap as GaitMap
from .optimization_figure import (
    ilqr_figure as ilqr_figure,
    optimization_figure as optimization_figure,
    optimum_figure as optimum_figure,
    plan_figure as plan_figure,
)
from .orbit_axes import (
    multiplier_plane as multiplier_plane,
    phase_portrait as phase_portrait,
    time_series as time_series,
)
from .orbit_figure import (
    manifold_figure as manifold_figure,
    orbit_figure as orbit_figure,
    response_figure as response_figure,
    tongue_figure as tongue_figure,
    trajectory_figure as trajectory_figure,
)
from .robot_figure import animate_robot as animate_robot, robot_figure as robot_figure
from .scene import PlacedArc as PlacedArc, shapes as shapes, walk as walk
from .sweep_figure import (
    attractor_figure as attractor_figure,
    basin_figure as basin_figure,
    points_figure as points_figure,
    sweep_figure as sweep_figure,
    work_precision_figure as work_precision_figure,
)
