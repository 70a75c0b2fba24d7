"""Equilibria, and perturbations of orbits: phase and isostable responses, locking, Lyapunov exponents, Bouligand derivatives."""

from .bouligand import bouligand_derivative as bouligand_derivative, BouligandDerivative as BouligandDerivative
from .entrainment import Entrainment as Entrainment, entrainment as entrainment
from .equilibrium import Equilibrium as Equilibrium, equilibrium as equilibrium
from .lyapunov_spectrum import lyapunov_spectrum as lyapunov_spectrum, LyapunovSpectrum as LyapunovSpectrum
from .responses import (
    isostable_response as isostable_response,
    IsostableResponse as IsostableResponse,
    phase_response as phase_response,
    PhaseResponse as PhaseResponse,
    ResponseArc as ResponseArc,
)
