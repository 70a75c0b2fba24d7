"""The public names. `__init__.py` imports each when it is first used."""

from . import certify as certify, contact as contact, models as models, plot as plot, solvers as solvers
from ._continuation.branch import Branch as Branch
from ._continuation.continuation import continuation as continuation
from ._continuation.curve import NaturalParameter as NaturalParameter, PseudoArclength as PseudoArclength
from ._continuation.locus import locus as locus
from ._continuation.special_points import SpecialPoint as SpecialPoint
from ._continuation.switching import cascade as cascade, switch_branch as switch_branch
from ._flow.flow import flow_to_guard as flow_to_guard, Impact as Impact
from ._flow.integrator import Integrator as Integrator
from ._flow.jump import saltation_matrix as saltation_matrix
from ._flow.samples import Samples as Samples
from ._flow.section_map import Crossing as Crossing, section_jacobian as section_jacobian, section_map as section_map
from ._flow.simulate import simulate as simulate
from ._flow.trajectory import Event as Event, Trajectory as Trajectory
from ._optimize import objectives as objectives
from ._optimize.constraint import Constraint as Constraint
from ._optimize.follow import follow_optimum as follow_optimum
from ._optimize.interior_point import InteriorPoint as InteriorPoint
from ._optimize.optimize import optimize as optimize
from ._optimize.optimized_gait import OptimizedGait as OptimizedGait
from ._optimize.optimum_branch import ActiveSetChange as ActiveSetChange, OptimumBranch as OptimumBranch
from ._orbit.failure import OrbitError as OrbitError
from ._orbit.find_orbits import find_orbits as find_orbits
from ._orbit.multiple_shooting import MultipleShooting as MultipleShooting
from ._orbit.orbit import Arc as Arc, periodic_orbit as periodic_orbit, PeriodicOrbit as PeriodicOrbit
from ._orbit.shooting import SingleShooting as SingleShooting
from ._orbit.stride import (
    monodromy as monodromy,
    return_jacobian as return_jacobian,
    Stride as Stride,
    stride as stride,
)
from ._sweep.attractor import attractor as attractor
from ._sweep.basin import basin as basin
from ._sweep.points import solver_points as solver_points
from ._sweep.quantity_study import quantity_study as quantity_study
from ._sweep.recommend import recommend_integrator as recommend_integrator
from ._sweep.recommendation import Recommendation as Recommendation
from ._sweep.store import open_sweep as open_sweep, StoreError as StoreError
from ._sweep.study import solver_study as solver_study
from ._sweep.sweep import sweep as sweep
from ._system.cache import enable_cache as enable_cache
from ._system.parameter import parameter as parameter
from ._system.results import RESULTS as RESULTS
from ._system.save import load as load, provenance as provenance, save as save
from ._system.section import Section as Section, Stroboscope as Stroboscope
from ._system.system import HybridSystem as HybridSystem, Mode as Mode, Transition as Transition
from ._system.trig import cos as cos, sin as sin, sincos as sincos
from ._system.workers import ExecutorError as ExecutorError
from ._variation.bouligand import (
    bouligand_derivative as bouligand_derivative,
    BouligandDerivative as BouligandDerivative,
)
from ._variation.covariance import Covariance as Covariance, covariance as covariance
from ._variation.entrainment import Entrainment as Entrainment, entrainment as entrainment
from ._variation.estimates import Estimates as Estimates, Filtered as Filtered
from ._variation.ilqr import ilqr as ilqr
from ._variation.ilqr_solution import IlqrHistory as IlqrHistory, IlqrSolution as IlqrSolution
from ._variation.isostable_response import (
    isostable_response as isostable_response,
    IsostableResponse as IsostableResponse,
)
from ._variation.kalman import kalman_filter as kalman_filter
from ._variation.lyapunov_spectrum import (
    lyapunov_spectrum as lyapunov_spectrum,
    LyapunovSpectrum as LyapunovSpectrum,
)
from ._variation.noise import Noise as Noise
from ._variation.phase_response import phase_response as phase_response, PhaseResponse as PhaseResponse
from ._variation.regulator import Regulator as Regulator, regulator as regulator
from ._variation.riccati_solution import riccati as riccati, RiccatiSolution as RiccatiSolution
from ._variation.rts_smoother import rts_smoother as rts_smoother, Smoothed as Smoothed
from ._variation.sensitivity_norm import gait_sensitivity_norm as gait_sensitivity_norm
from ._variation.stationary_covariance import stationary_covariance as stationary_covariance
from ._variation.stride_covariance import stride_covariance as stride_covariance
from ._variation.stride_feedback import (
    ClosedLoop as ClosedLoop,
    stride_feedback as stride_feedback,
    StrideFeedback as StrideFeedback,
)
from ._variation.tracking import Tracking as Tracking
from ._variation.transport import ResponseArc as ResponseArc
from .plot.explore import explore as explore, Explorer as Explorer

__version__: str
