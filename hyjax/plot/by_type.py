"""Which function draws or animates a result of each type."""

from .._continuation.branch import Branch
from .._continuation.equilibrium_branch import EquilibriumBranch
from .._continuation.equilibrium_locus import EquilibriumLocus
from .._continuation.locus import Locus
from .._fit.fitted import Fitted
from .._flow.trajectory import Trajectory
from .._optimize.optimized_orbit import OptimizedOrbit
from .._optimize.optimized_plan import OptimizedPlan
from .._optimize.optimum_branch import OptimumBranch
from .._orbit.manifold import Manifold
from .._orbit.orbit import PeriodicOrbit
from .._results.registry import animate, draw
from .._sweep.bifurcation_diagram import Diagram
from ..control.held_inputs import Plan
from ..control.ilqr import IlqrSolution
from ..noise.covariance import Covariance
from ..noise.estimates import Estimates, Filtered
from ..phase.entrainment import Entrainment
from ..phase.responses import IsostableResponse, PhaseResponse
from ..robots.robot import Robot
from .animation import animate_optimization, animate_orbit, animate_trajectory
from .branch_figure import branch_diagram, diagram_figure, equilibrium_diagram, locus_diagram
from .estimates_figure import covariance_figure, estimate_figure, fit_figure
from .optimization_figure import ilqr_figure, optimization_figure, optimum_figure, plan_figure
from .orbit_figure import manifold_figure, orbit_figure, response_figure, tongue_figure, trajectory_figure
from .robot_figure import animate_robot, robot_figure

FIGURES = {
    Branch: branch_diagram,
    Covariance: covariance_figure,
    Diagram: diagram_figure,
    Entrainment: tongue_figure,
    EquilibriumBranch: equilibrium_diagram,
    EquilibriumLocus: locus_diagram,
    Estimates: estimate_figure,
    Filtered: lambda filtered, measurements=None: estimate_figure(filtered.estimates, measurements, filtered.events),
    Fitted: fit_figure,
    IlqrSolution: ilqr_figure,
    IsostableResponse: response_figure,
    Locus: locus_diagram,
    Manifold: manifold_figure,
    OptimizedOrbit: optimization_figure,
    OptimizedPlan: plan_figure,
    OptimumBranch: optimum_figure,
    PeriodicOrbit: orbit_figure,
    PhaseResponse: response_figure,
    Plan: plan_figure,
    Robot: robot_figure,
    Trajectory: trajectory_figure,
}
ANIMATIONS = {
    OptimizedOrbit: animate_optimization, PeriodicOrbit: animate_orbit, Robot: animate_robot, Trajectory: animate_trajectory,
}  # fmt: skip

for kind, figure in FIGURES.items():
    draw.register(kind, figure)
for kind, animation in ANIMATIONS.items():
    animate.register(kind, animation)
