"""The public names. `__init__.py` imports each when it is first used."""

from . import (
    certify as certify,
    contact as contact,
    control as control,
    models as models,
    noise as noise,
    phase as phase,
    plot as plot,
    robots as robots,
    solvers as solvers,
    study as study,
)
from ._continuation.branch import Branch as Branch
from ._continuation.continuation import continuation as continuation
from ._continuation.curve import PseudoArclength as PseudoArclength
from ._continuation.locus import locus as locus
from ._continuation.switching import switch_branch as switch_branch
from ._fit.fit import fit as fit
from ._flow.flow import flow_to_guard as flow_to_guard
from ._flow.integrator import Integrator as Integrator
from ._flow.jump import saltation_matrix as saltation_matrix
from ._flow.simulate import simulate as simulate
from ._flow.trajectory import Trajectory as Trajectory
from ._numerics import fast as fast
from ._numerics.compilation_cache import enable_cache as enable_cache
from ._optimize import objectives as objectives
from ._optimize.constraint import Constraint as Constraint
from ._optimize.follow_optimum import follow_optimum as follow_optimum
from ._optimize.optimize import optimize as optimize
from ._orbit.find_orbits import find_orbits as find_orbits
from ._orbit.orbit import PeriodicOrbit as PeriodicOrbit
from ._orbit.periodic_orbit import periodic_orbit as periodic_orbit
from ._orbit.return_map import ReturnMap as ReturnMap
from ._orbit.shooting import MultipleShooting as MultipleShooting, SingleShooting as SingleShooting
from ._results.save import load as load, save as save
from ._sweep.attractor import attractor as attractor
from ._sweep.basin import basin as basin
from ._sweep.edge_state import edge_state as edge_state
from ._sweep.smallest_push import smallest_push as smallest_push
from ._sweep.sweep import sweep as sweep
from ._system.filippov import filippov as filippov
from ._system.results import RESULTS as RESULTS, SolveError as SolveError
from ._system.section import Section as Section, Stroboscope as Stroboscope
from ._system.system import every as every, HybridSystem as HybridSystem, Mode as Mode, Transition as Transition
from ._system.where import parameter as parameter

__version__: str
