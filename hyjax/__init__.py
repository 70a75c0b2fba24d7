"""Differentiable simulation and stability analysis of hybrid dynamical systems."""

from . import contact as contact
from ._attractor import attractor as attractor
from ._basin import basin as basin
from ._bouligand import bouligand_derivative as bouligand_derivative, BouligandDerivative as BouligandDerivative
from ._branch import Branch as Branch
from ._continuation import continuation as continuation
from ._curve import NaturalParameter as NaturalParameter, PseudoArclength as PseudoArclength
from ._flow import flow_to_guard as flow_to_guard, Impact as Impact
from ._integrator import Integrator as Integrator
from ._jump import saltation_matrix as saltation_matrix
from ._locus import locus as locus
from ._multiple_shooting import MultipleShooting as MultipleShooting
from ._orbit import Arc as Arc, periodic_orbit as periodic_orbit, PeriodicOrbit as PeriodicOrbit
from ._result import RESULTS as RESULTS
from ._search import find_orbits as find_orbits
from ._shooting import SingleShooting as SingleShooting
from ._simulate import simulate as simulate
from ._special import SpecialPoint as SpecialPoint
from ._store import StoreError as StoreError
from ._stride import monodromy as monodromy, return_jacobian as return_jacobian, Stride as Stride, stride as stride
from ._sweep import sweep as sweep
from ._switching import cascade as cascade, switch_branch as switch_branch
from ._system import HybridSystem as HybridSystem, Mode as Mode, Transition as Transition
from ._trajectory import Event as Event, Samples as Samples, Trajectory as Trajectory
