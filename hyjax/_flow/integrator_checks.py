"""Checks of the solver and the controller of an `Integrator`, at its construction."""

import diffrax as dfx
import equinox as eqx

from .implicit_step import implicit_tableau


def check_solver(solver: dfx.AbstractSolver) -> None:
    r"""`ValueError` for a solver that cannot follow $\dot x = f$ from event to event."""
    if not isinstance(solver, dfx.AbstractSolver):
        raise ValueError(f"Integrator: solver must be a diffrax solver, such as diffrax.Dopri8(); got {solver!r}.")
    name = type(solver).__name__
    # For a split or stochastic equation, `term_structure` is a PyTree of types, not one type.
    terms = solver.term_structure
    if not (isinstance(terms, type) and issubclass(dfx.ODETerm, terms)):
        raise ValueError(
            f"Integrator: diffrax.{name} needs an equation of several terms, and a mode has one vector field. Use "
            "diffrax.Dopri8(), or diffrax.Kvaerno5() for a stiff flow."
        )
    if isinstance(solver, dfx.LeapfrogMidpoint):
        raise ValueError(
            "Integrator: diffrax.LeapfrogMidpoint needs steps of equal length, and an event shortens a step. Use a one-step "
            "method, such as diffrax.Midpoint()."
        )
    for part in (solver, *_inside(solver)):
        if isinstance(part, dfx.AbstractImplicitSolver) and (part is not solver or implicit_tableau(part) is None):
            raise ValueError(
                "Integrator: an implicit solver must be one of hyjax.solvers, diffrax.ImplicitEuler() or a diagonally implicit "
                f"Runge-Kutta method such as diffrax.Kvaerno5(), not wrapped in another solver; got {solver!r}."
            )
    finder = getattr(type(solver), "__dataclass_fields__", {}).get("root_finder")
    if finder is not None and eqx.tree_equal(getattr(solver, "root_finder", None), finder.default) is not True:
        raise ValueError(
            f"Integrator: diffrax.{name} was given a root finder. Omit it: Newton's method solves the stages to rounding, in "
            "at most root_find_max_steps iterations."
        )


def _inside(solver: dfx.AbstractSolver) -> list[dfx.AbstractSolver]:
    """The solvers that a solver wraps, as `diffrax.HalfSolver` does."""
    inner = getattr(solver, "solver", None)
    return [inner, *_inside(inner)] if isinstance(inner, dfx.AbstractSolver) else []


def check_controller(controller, solver: dfx.AbstractSolver, rtol, atol, first_step, max_step) -> None:
    """`ValueError` for a controller that cannot be used, or that does not fit the solver, tolerances or step sizes."""
    fixed = isinstance(controller, dfx.ConstantStepSize)
    clips = isinstance(controller, dfx.StepTo | dfx.ClipStepSizeController)
    adaptive = controller is None or (isinstance(controller, dfx.AbstractAdaptiveStepSizeController) and not clips)
    if clips:
        raise ValueError(
            f"Integrator: {type(controller).__name__} fixes times to step to, and arcs start and end at times of their own. "
            "Where the vector field is discontinuous at a known time, define a transition with the guard t_jump - t; for "
            "states at given times, use simulate(save=...) or Trajectory.sample."
        )
    if not adaptive and not fixed:
        raise ValueError(
            "Integrator: controller must be diffrax.PIDController(...), another controller with tolerances, or "
            f"diffrax.ConstantStepSize(); got {controller!r}."
        )
    if fixed and first_step is None:
        raise ValueError(
            "Integrator: diffrax.ConstantStepSize() needs the length of its steps: give first_step, such as first_step=0.01."
        )
    if adaptive and not isinstance(solver, dfx.AbstractAdaptiveSolver):
        raise ValueError(
            f"Integrator: diffrax.{type(solver).__name__} has no error estimate to adapt the steps. Fix their length, for "
            "example controller=diffrax.ConstantStepSize(), first_step=0.01; or use a solver with an error estimate, such "
            "as diffrax.Dopri8()."
        )
    if controller is not None and adaptive and not (rtol is None and atol is None):
        raise ValueError(
            f"Integrator: rtol={rtol!r} and atol={atol!r} conflict with the tolerances of the controller {controller!r}. "
            "Omit rtol and atol here, or give them to the controller alone."
        )
    if first_step is not None and max_step is not None and first_step > max_step:
        raise ValueError(f"Integrator: first_step={first_step!r} is longer than max_step={max_step!r}. Reduce it.")
