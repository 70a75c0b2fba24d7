"""Which solver and tolerance: work and error of integrators on a system, and a recommendation."""

from .recommend import recommend_integrator as recommend_integrator, Recommendation as Recommendation
from .study import quantity_study as quantity_study, solver_points as solver_points, solver_study as solver_study
