"""What tests need of private modules, by room: `from hyjax._testing import Store`. Nothing is imported before it is asked for.

The list below is read when this file is imported: types come from it, and so do the objects.
"""

# ruff: noqa: F401, I001

import ast
import importlib
import pathlib
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from ._system.per_mode import number, PerMode
    from ._system.results import choose, code_flags, code_names, code_of_state, nan_unless, RESULTS
    from ._numerics import eager
    from ._numerics.programs import depends_on, evaluate_alike, once, operations, rounding_scale
    from ._numerics.eager import FEW, LONG, OLDER_EMITTERS, SHORT
    from ._numerics.one_kernel import in_one_kernel, MOST_LANES, MOST_SUMMED, ONE_KERNEL
    from ._numerics.eigenvalues import plain_spectrum, spectrum
    from ._numerics.elimination import det, null_vectors, solve, solver
    from ._numerics.fast import sincos
    from ._numerics.trees import FEW as fusion_FEW, stored, stored_for_tangents, stored_with_tangents
    from ._numerics.linearize import with_columns, with_columns_by_lanes
    from ._numerics.newton import DampedNewton, Evaluation, newton
    from ._numerics.elimination import orthonormal
    from ._numerics.semidefinite import discrete_riccati, lyapunov_sum
    from ._numerics.semidefinite import solve_semidefinite
    from ._results.save import read_arrays, read_text, write_archive
    from ._results.registry import load_xarray, needed, version
    from ._results.failure import codes_only, raise_failure
    from ._results.encoding import fingerprint
    from ._results.labels import units_of
    from ._results.labels import cf_attributes, long_name
    from ._results.registry import draw
    from ._results.table import Table
    from ._results.working import working
    from .solvers.multistep import AdamsPECE
    from .solvers.multistep import DividedDifferences
    from .solvers.multistep import KAPPA, NDF
    from ._flow import in_step as order_of_events, integrate
    from ._flow.automaton import Automaton
    from ._flow.check import check_mode, sized, warn_of_kinks
    from ._flow.choices import may_jump
    from ._flow.crossing import reach_surface
    from ._flow.guard_polynomials import (
        coarseness,
        fall_ahead,
        GuardValues,
        hidden_turn,
        linear,
        may_be_coarse,
        predicted_fall,
        quintic,
        value_and_slope,
    )
    from ._flow.in_step import each_in_step, taken_at, torn
    from ._flow.instant import abreast
    from ._flow.integrator import for_modes, PlainForward, rolled, with_adjoint
    from ._flow.pace import integral_control
    from ._flow.step import later
    from ._flow.section_map import for_terminal_modes, SectionMap, with_section_mode, with_terminal_modes
    from ._flow.simulate import first_arc, follow_arc, mode_of_state
    from ._flow.step import Step
    from ._flow.surfaces import no_surfaces, rounding, Surfaces
    from ._flow.trajectory import Arc
    from ._flow.trajectory_report import increasing
    from ._orbit import find_orbits, periodic_orbit as periodic_orbit_module, search as search_module, stride
    from ._orbit import section_search
    from ._orbit.chain import expanded, follow_chain
    from ._orbit.footfalls import Footfalls, footfalls_of
    from ._orbit.implicit import moved_nodes, pulled_back
    from ._orbit.level import Level
    from ._orbit.krylov import arnoldi, krylov_orbit, spread
    from ._numerics.eigenvalues import eigenvalues
    from ._orbit.orbit import run_orbit
    from ._orbit.orbit_report import orbit_frame, side_by_side
    from ._orbit.problem import Problem, uses_time
    from ._orbit.search import Batch, Census, quasi_random_states, search, stage_limits
    from ._orbit.section_search import _onto_surface, _solve
    from ._orbit.shooting import COARSE, find_root_by_stages, SingleShooting
    from ._orbit.verdict import judged
    from ._fit.gauss_newton import bent_change, Free, ResidualRows, sizes_of
    from ._fit.gauss_newton import with_free_states, within_bounds, without_free_states
    from ._fit.fitted import misfit_words, undetermined_words
    from ._fit.recording import read_columns
    from .noise.covariance_system import JointParams, Layout
    from .noise.noise import place_noise
    from .noise.kalman import Estimator, guards_at, GuardsAt, log_probabilities
    from .control.rollout import _convex, control_gradient, direction, QuadraticModel, released
    from .control.sensitivity_norm import contraction_factor
    from .phase.responses import IsostableResponse
    from .phase.responses import chebyshev
    from ._continuation import continuation, location
    from ._continuation.branch_report import branches_dataset
    from ._continuation.curve import follow_curve, Interval, Near, joined as joined_points
    from ._continuation.detection import each_once
    from ._continuation.continuation import unfolding_of
    from ._continuation.isotropy import exchanges, is_symmetry
    from ._continuation.normal_form import normal_form
    from ._continuation.switching import crossing_branches
    from ._sweep import attractor, batches as batches_module, workers
    from ._sweep.attractor import _period, iterated
    from ._sweep.basin import _exponent, passes_to_outcome
    from ._sweep.batches import BatchMap
    from ._sweep.chunks import ChunkSolver
    from ._sweep.continued_starts import CoarseGrid, is_far, march
    from ._sweep.grid import share_error
    from ._sweep.attractor import pass_of_sequence
    from ._sweep.store import create, LOCK, lock, Store
    from ._sweep.sweep import _is_period, nearest_pass, orbit_from_guess
    from ._sweep.workers import packed
    from ._optimize import optimize as optimize_module, optimized_plan
    from ._optimize.optimized_plan import searched
    from ._optimize.follow_plan import next_optimum, PlanPoint
    from ._optimize.follow_optimum import _by_limit, exchange, ProgramExpansion, leaving, Optimum, OptimumCurve
    from ._optimize.interval import ASKED, COEFFICIENTS, fly, NODES, WEIGHTS
    from ._optimize.stages import (
        evaluate as stages_evaluate,
        newton_direction as stages_newton_direction,
        residual,
        Sizes,
        Staged,
        StageProgram,
    )
    from ._optimize.interior_point import (
        after_descent,
        after_finish,
        allows,
        BARRIER,
        beside,
        empty_filter,
        InteriorPoint,
        judged_step,
        minimize,
        Minimum,
        minimum,
        run_search,
        SearchHistory,
        start_search,
        with_point,
    )
    from ._optimize.nonlinear_program import (
        active_set,
        active_set_step,
        ActiveSet,
        newton_direction,
        updated_secant,
        with_least_multipliers,
    )
    from ._optimize.nonlinear_program import (
        barrier_error,
        barrier_function,
        near_central,
        NonlinearProgram,
        optimality_error,
        PrimalDual,
        Sample,
        sampled,
        scale_of,
        starting_point,
    )
    from ._optimize.optimize import starting_points
    from ._optimize.optimized_orbit import _distinct, OptimizedOrbit
    from ._optimize.optimum_branch import ActiveSetChange, OptimumBranch
    from ._optimize.orbit_program import joined, LEAST, OrbitProgram, unknowns_of
    from ._optimize.turning_points import _value, measured
    from .study import study_run
    from .study.recommend import Recommendation
    from .study.study import points
    from .study.study_run import divergence_time, integral_of_error
    from .certify import (
        certificate_figure,
        certified_region,
        elementary,
        enclosed_step,
        euler_tube,
        exact_numbers,
        functions,
        krawczyk,
        lowering,
        polygon,
        rounding as outward_rounding,
        symbolic,
    )
    from .certify.proof_figures import relative_tube
    from .certify.certify_command import certificate_record
    from .certify.disturbance import Disturbance, disturbed_ends, NONE
    from .certify.proved_orbit import EigenvalueEnclosure, enclose_eigenvalues
    from .certify.enclosed_map import EnclosedMap, Image, numbers_of
    from .certify.enclosed_step import (
        advance,
        displaced,
        disturbance_displacement,
        flow_of,
        moved_error,
        nested,
        picard_box,
        widened as enclosed_step_widened,
    )
    from .certify.event import crossed, gathered, spread_out
    from .certify.krawczyk import crossing, ExactStep, step_from
    from .certify.exact_numbers import exact_function
    from .certify.exact_numbers import balls, dot, exactly, largest, NotEnclosed, PRECISION, rounded, UNKNOWN, widened
    from .certify.flow_pipe import no_guard_fires, Tube
    from .certify.mode_field import forcing_period
    from .certify.interpret import cases_decided, enclosure, evaluate, JUMPS, KINKS
    from .certify.krawczyk import approximate_inverse, Boxes, BoxImage
    from .certify.linear_forms import COMPARED
    from .certify.lowering import core_jaxpr
    from .certify.mode_field import ModeField, numbers_and_rest
    from .certify.polygon import _norm, PieceImages, PolygonImage
    from .certify.polygon import from_supports, holds, inside, pieces, Polygon, quartered, reach, tight
    from .certify.proved_basin import _CellGrid, _settled, _within
    from .certify.proved_orbit import Enclosed
    from .certify.euler_bounds import phi_functions
    from .certify.rounding import up
    from .certify.schedule import Kind
    from .certify.section_plane import at_the_time, MOMENT, NEAR, SectionChart, zero_after
    from .certify.enclosed_step import bounded_product, frame_of, identity_frame, StateSet
    from .certify.symbolic import graph_of, RULES, Sketch
    from .certify.taylor import flow_coefficients, over
    from .certify.taylor_model import add, BALL, ball, basis, constant, multiply, scale, subtract, TaylorModel, total
    from .contact.contact_set import ContactSet
    from ._numerics.elimination import lemke
    from .contact.projection import least_norm, project, solve_symmetric
    from .robots.walker import alike
    from .plot import optimization_figure, orbit_figure
    from .plot.animation import animate_orbit, animate_trajectory, check_outline, save_animation
    from .plot.figure import number as printed_number, pyplot, symbol, telling, unit
    from .plot.explore import moving_svg
    from .plot.scene import line_numbers, placed_arcs, shapes, walk
    from .plot.orbit_figure import trajectory_figure
    from .cli import options as command_options
    from .cli.app import application, run
    from .cli.arguments import initial_condition, Misuse, parse_parameters
    from .cli.process import is_command
    from .cli.output import check_files
    from .cli.optimize_command import no_optimum
    from .cli.quantities import parse_bounds, parse_constraints, quantities
    from .cli.attractor_command import parse_section, state_at_section
    from .cli.orbits import tell_search
    from .cli.robot_file import load_robot
    from .cli.stored_programs import _read, read_whole, stored_solver

_PLACES = {
    alias.asname or alias.name: (f".{node.module}", alias.name)
    for node in ast.walk(ast.parse(pathlib.Path(__file__).read_text()))
    if isinstance(node, ast.ImportFrom) and node.level
    for alias in node.names
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"hyjax._testing has no {name}: add it to the list, under its room")
    place, known = _PLACES[name]
    module = importlib.import_module(place, __package__)
    # A file of a room, as a module, for tests that replace what it holds.
    return (
        getattr(module, known) if hasattr(module, known) else importlib.import_module(f"{place}.{known}", __package__)
    )
