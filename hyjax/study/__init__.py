"""Which solver and tolerance: work and error of integrators on a system, and a recommendation."""

from .points import solver_points as solver_points
from .quantity_study import quantity_study as quantity_study
from .recommend import recommend_integrator as recommend_integrator
from .recommendation import Recommendation as Recommendation
from .study import solver_study as solver_study
