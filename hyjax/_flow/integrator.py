"""How a flow is integrated: one object, passed everywhere."""

from collections.abc import Sequence
from typing import Literal

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .integrator_checks import check_controller, check_solver


class Integrator(eqx.Module):
    """The solver of the flow, its steps and its limits.

    **Arguments:**

    - `solver`: a diffrax solver of $\\dot x = f$: explicit, or implicit for a stiff flow, such as `diffrax.Kvaerno5()`.
      The stages of an implicit method are solved to rounding, by at most its `root_find_max_steps` iterations.
    - `rtol`, `atol`: local error per step, relative and in units of the state. By default 1e-14 in float64 and 1e-6 in
      float32; a value that the dtype of the state cannot reach is an error.
    - `max_steps`: the most solver steps in one arc, event location included; more is `max_steps_reached`.
    - `max_time`: the longest arc, in the units of time; longer is `no_crossing`.
    - `max_step`: the largest step. A guard which falls and rises again between two steps is seen by its rate at both
      ends, as long as it turns once or twice in the step; where it may turn more often, bound the step.
    - `controller`: how steps are chosen. By default `diffrax.PIDController` at `rtol` and `atol`. One of another making
      brings its own tolerances, in place of these. `diffrax.ConstantStepSize()` takes steps of `first_step`, which only an
      event or the end of the arc cuts short; then `rtol` and `atol` say how exact an orbit is to be.
    - `first_step`: the first step to try in each arc, in the units of time. By default the controller chooses it.
    - `adjoint`: how derivatives are taken.
      `diffrax.ForwardMode()` pushes one tangent per perturbed number through the flow, once, and serves forward and reverse
      mode of any order from those: best up to some tens of numbers.
      `diffrax.RecursiveCheckpointAdjoint()` integrates backwards through the steps: `jax.grad`, once, by any number of
      parameters, at the cost of a few strides and in the memory of a few copies of the parameters.
      `diffrax.DirectAdjoint()` does so too, at twice the cost and in tens of copies, and allows forward mode and any order.
      With these two the steps found are kept, and taken once more where derivatives are wanted.
    - `variations`: resolve variations about a rest, which a state at rest does not ask for: an arc that starts within a few
      digits of a rest takes steps that are short against the time scale of the linearized flow. `False`, where only
      values are wanted, lets such an arc take steps of any length; its derivatives are then not to be relied on.
    - `unroll`: how an explicit Runge-Kutta step is compiled. `True` writes its stages out one after the other; `False`
      makes a loop of them: half as long to compile, three times slower to run.

    The derivatives of an event are those of the flow that the steps approximate: as exact as the steps.

    `Integrator` is static under `jit`: another tolerance is another compilation.
    """

    solver: dfx.AbstractSolver = dfx.Dopri8()
    rtol: float | None = None
    atol: float | None = None
    max_steps: int = 4096
    max_time: float = 100.0
    max_step: float | None = None
    controller: dfx.AbstractStepSizeController | None = None
    first_step: float | None = None
    adjoint: dfx.AbstractAdjoint = dfx.ForwardMode()
    variations: bool = True
    unroll: bool = True

    def __check_init__(self):
        check_solver(self.solver)
        if not isinstance(self.adjoint, tuple(_LOOPS)):
            names = ", ".join(kind.__name__ for kind in _LOOPS)
            raise ValueError(f"Integrator: adjoint must be one of diffrax's {names}; got {self.adjoint!r}.")
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise ValueError(f"Integrator: {name}={value!r} must lie between 0 and 1, for example {name}=1e-10.")
        if not (isinstance(self.max_steps, int) and self.max_steps > 0):
            raise ValueError(f"Integrator: max_steps={self.max_steps!r} must be a positive integer.")
        for name in ("max_time", "max_step", "first_step"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"Integrator: {name}={value!r} must be positive.")
        check_controller(self.controller, self.solver, self.rtol, self.atol, self.first_step, self.max_step)

    def tolerances(self, dtype) -> tuple[float | Array, float | Array]:
        """`(rtol, atol)` for states of that dtype; `ValueError` below what it can resolve."""
        dtype = jnp.dtype(dtype)
        smallest = 4 * float(jnp.finfo(dtype).eps)
        default = 1e-14 if dtype == jnp.float64 else 8 * float(jnp.finfo(dtype).eps)
        brought = [getattr(self.controller, name, default) for name in ("rtol", "atol")]
        rtol, atol = (
            other if given is None else given for given, other in zip((self.rtol, self.atol), brought, strict=True)
        )
        # A tolerance that is traced was checked by whoever traced it. Only the relative one has a floor.
        if isinstance(rtol, float) and rtol < smallest:
            raise ValueError(
                f"Integrator: rtol={rtol:g} is below what {dtype.name} can resolve ({smallest:.1e}). Raise rtol, or use "
                "float64: jax.config.update('jax_enable_x64', True)."
            )
        return rtol, atol

    @property
    def fixed(self) -> bool:
        """Whether all steps have the length `first_step`."""
        return isinstance(self.controller, dfx.ConstantStepSize)

    def step_controller(self, dtype) -> dfx.AbstractStepSizeController:
        """The controller for states of that dtype."""
        if self.fixed:
            return dfx.ConstantStepSize()
        rtol, atol = self.tolerances(dtype)
        if self.controller is None:
            return dfx.PIDController(rtol=rtol, atol=atol)
        limits = lambda controller: (controller.rtol, controller.atol)
        return eqx.tree_at(limits, self.controller, (rtol, atol)).wrap(1)

    def of(self, mode: str) -> "Integrator":
        """The integrator of a mode: this one, for all modes. (See `ModeIntegrators`.)"""
        return self

    @property
    def parts(self) -> tuple["Integrator", ...]:
        """The integrators of all modes."""
        return (self,)

    @property
    def groups(self) -> list[tuple["Integrator", tuple[str, ...] | None]]:
        """The distinct integrators, each with the names of its modes; `None` for all."""
        return [(self, None)]

    def rebuilt(self, parts: Sequence["Integrator"]) -> "Integrator":
        """From other `parts`."""
        (part,) = parts
        return part

    def renamed(self, names: Sequence[str], sources: Sequence[str]) -> "Integrator":
        """For a system whose mode `names[k]` flows as mode `sources[k]` does."""
        return self

    @property
    def loop(self) -> Literal["lax", "bounded", "checkpointed"]:
        """Which loop of equinox carries the steps: `lax`, `bounded` or `checkpointed`."""
        return next(kind for adjoint, kind in _LOOPS.items() if isinstance(self.adjoint, adjoint))


class PlainForward(dfx.ForwardMode):
    """Tangents only, with no Jacobian kept for reverse mode: for use inside a function that keeps its own."""


_LOOPS: dict[type, Literal["lax", "bounded", "checkpointed"]] = {
    dfx.ForwardMode: "lax",
    dfx.DirectAdjoint: "bounded",
    dfx.RecursiveCheckpointAdjoint: "checkpointed",
}
