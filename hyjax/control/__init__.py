"""Feedback at events and along orbits: Riccati equations, regulators, trajectory optimization by iLQR, virtual constraints."""

from .held_inputs import HeldInputs as HeldInputs, Plan as Plan
from .ilqr import ilqr as ilqr, IlqrHistory as IlqrHistory, IlqrSolution as IlqrSolution
from .regulator import Regulator as Regulator, regulator as regulator, Tracking as Tracking
from .riccati_equation import riccati as riccati, RiccatiSolution as RiccatiSolution
from .sensitivity_norm import sensitivity_norm as sensitivity_norm
from .stride_feedback import (
    ClosedLoop as ClosedLoop,
    stride_feedback as stride_feedback,
    StrideFeedback as StrideFeedback,
)
from .virtual_constraints import (
    bezier as bezier,
    HybridZeroDynamics as HybridZeroDynamics,
    virtual_constraints as virtual_constraints,
    VirtualConstraints as VirtualConstraints,
)
