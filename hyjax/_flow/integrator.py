"""The integrator: solver, step size control, limits and differentiation of a flow."""

from collections.abc import Sequence
from typing import Literal

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .integrator_checks import check_controller, check_solver


class Integrator(eqx.Module):
    """The numerical integration of the flow $\\dot x = f(t, x, p)$: solver, step sizes, limits, and mode of differentiation.

    Wherever an analysis takes an `Integrator` as `integrator`, it also takes one for each mode by name, such as
    `{"stance": Integrator(diffrax.Kvaerno5()), "flight": Integrator()}`.

    **Arguments:**

    - `solver`: a diffrax solver: explicit, or implicit for a stiff flow, such as `diffrax.Kvaerno5()`; or one of `hj.solvers`.
      The stages of an implicit method are solved to rounding, in at most its `root_find_max_steps` iterations.
    - `rtol`, `atol`: tolerances of the local error per step, relative and in units of the state. By default 1e-14 in float64 and
      1e-6 in float32; an analysis raises `ValueError` for an `rtol` that the dtype of the state cannot resolve.
    - `max_steps`: the largest number of solver steps in one arc, event location included; beyond it, the result is
      `max_steps_reached`.
    - `max_time`: the longest duration of an arc, in units of time; beyond it, the result is `no_crossing`.
    - `max_step`: the largest step, in units of time. It is not needed for guards that vary faster than the flow: a step is
      shortened until the cubic through a guard's values and rates at both ends agrees with the guard inside the step, wherever
      the difference could hide an event.
    - `controller`: the step size controller; by default integral control with `rtol` and `atol`, as that of
      `diffrax.PIDController`, in fewer operations. A given adaptive controller has its own tolerances; then omit `rtol` and
      `atol`. `diffrax.ConstantStepSize()` takes steps of length `first_step`, shortened only by an event, a guard that varies
      faster, or the end of the arc; then `rtol` and `atol` set the accuracy to which orbits are solved.
    - `first_step`: the first step to try in each arc, in units of time. By default the controller chooses it.
    - `adjoint`: the mode of differentiation.
      `diffrax.ForwardMode()` pushes one tangent per perturbed number through the flow, all in one pass, and supports forward and
      reverse mode of any order: best up to some tens of numbers.
      `diffrax.RecursiveCheckpointAdjoint()` differentiates backwards through the steps: first-order reverse mode (`jax.grad`)
      for any number of parameters, at the cost of a few strides and in the memory of a few copies of the parameters.
      `diffrax.DirectAdjoint()` does the same at twice the cost and in the memory of tens of copies, and supports forward mode
      and any order. With these two the step sizes are found first, and the steps are repeated where derivatives are needed.
    - `variations`: whether to resolve variations about an equilibrium. The error estimate of a state at rest does not limit the
      step; with `True`, an arc that starts near an equilibrium takes steps that are short against the time scale of the
      linearized flow. With `False` such an arc takes steps of any length, and its derivatives are not reliable.
    - `unroll`: how an explicit Runge-Kutta step is compiled. `True` writes out its stages; `False` makes a loop of them, which
      halves the compile time, and for a small vector field triples the run time. By default a loop for vector fields of more than
      500 operations, such as those of several contacts.

    The derivatives of an event have the accuracy of the steps. `Integrator` is static under `jit`: another tolerance is another
    compilation. `ValueError` for a solver, controller or limit that cannot be used.

    **Example:**

    >>> import diffrax
    >>> hj.Integrator(diffrax.Tsit5(), rtol=1e-9, atol=1e-9, max_time=10.0).max_time
    10.0
    >>> by_mode = {"stance": hj.Integrator(diffrax.Kvaerno5(), rtol=1e-8, atol=1e-8), "flight": hj.Integrator()}

    Source: Prince, Dormand (1981), *High order embedded Runge-Kutta formulae*, for `Dopri8`; Kidger (2021), *On Neural
    Differential Equations*, for diffrax.
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
    unroll: bool | None = None

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
        """`(rtol, atol)` for states of a dtype; `ValueError` for an `rtol` below its resolution."""
        dtype = jnp.dtype(dtype)
        smallest = 4 * float(jnp.finfo(dtype).eps)
        default = 1e-14 if dtype == jnp.float64 else 8 * float(jnp.finfo(dtype).eps)
        brought = [getattr(self.controller, name, default) for name in ("rtol", "atol")]
        rtol, atol = (
            other if given is None else given for given, other in zip((self.rtol, self.atol), brought, strict=True)
        )
        # A traced tolerance was checked before it was traced. Only the relative tolerance has a lower bound.
        if isinstance(rtol, float) and rtol < smallest:
            raise ValueError(
                f"Integrator: rtol={rtol:g} is below what {dtype.name} can resolve ({smallest:.1e}). Raise rtol, or use "
                "float64: jax.config.update('jax_enable_x64', True), and a state of that dtype."
            )
        return rtol, atol

    @property
    def fixed(self) -> bool:
        """Whether all steps have the length `first_step`."""
        return isinstance(self.controller, dfx.ConstantStepSize)

    def step_controller(self, dtype) -> dfx.AbstractStepSizeController:
        """The controller for states of a dtype."""
        if self.fixed:
            return dfx.ConstantStepSize()
        rtol, atol = self.tolerances(dtype)
        if self.controller is None:
            return dfx.PIDController(rtol=rtol, atol=atol)
        limits = lambda controller: (controller.rtol, controller.atol)
        return eqx.tree_at(limits, self.controller, (rtol, atol)).wrap(1)

    def of(self, mode: str) -> "Integrator":
        """The integrator of a mode: this one for every mode (compare `ModeIntegrators.of`)."""
        return self

    @property
    def parts(self) -> tuple["Integrator", ...]:
        """The distinct integrators of all modes: this one."""
        return (self,)

    @property
    def groups(self) -> list[tuple["Integrator", tuple[str, ...] | None]]:
        """The distinct integrators, each with the names of its modes; `None` for all."""
        return [(self, None)]

    def rebuilt(self, parts: Sequence["Integrator"]) -> "Integrator":
        """The integrator with other `parts`: the one in `parts`."""
        (part,) = parts
        return part

    def renamed(self, names: Sequence[str], sources: Sequence[str]) -> "Integrator":
        """The integrator for a system whose mode `names[k]` has the flow of mode `sources[k]`."""
        return self

    @property
    def loop(self) -> Literal["lax", "bounded", "checkpointed"]:
        """The kind of equinox loop that takes the steps: `lax`, `bounded` or `checkpointed`."""
        return next(kind for adjoint, kind in _LOOPS.items() if isinstance(self.adjoint, adjoint))


class PlainForward(dfx.ForwardMode):
    """Forward mode without a Jacobian kept for reverse mode: for use inside a function that keeps its own Jacobian."""


_LOOPS: dict[type, Literal["lax", "bounded", "checkpointed"]] = {
    dfx.ForwardMode: "lax",
    dfx.DirectAdjoint: "bounded",
    dfx.RecursiveCheckpointAdjoint: "checkpointed",
}
