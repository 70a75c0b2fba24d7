"""The integrator: solver, step size control, limits and differentiation of a flow; one for all modes, or one for each mode,
such as an implicit solver for a stiff stance and an explicit one for a smooth flight.

What is computed of an orbit is computed with variants of the integrator that it is given:

| variant | where |
|---|---|
| `without_jacobian` | Newton's method, which pushes its tangents itself; all programs that keep a Jacobian of their own |
| `coarsened` | the first stages of Newton's method |
| `with_limits` | a search without a guess: coarse and accurate starts in one compiled program |
| `rolled` | what runs a few times, as the second lap of the verdict, second derivatives and special points |
| `pushable` | Jacobians of strides, where the adjoint given has reverse mode only |
"""

import functools as ft
from collections.abc import Mapping, Sequence
from typing import Literal

import diffrax as dfx
import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._system.system import HybridSystem, of_arc
from .._system.types import require_counts
from ..solvers.one_array import implicit_tableau


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
            "states at given times, use simulate(times=...) or Trajectory.sample."
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
    - `variations`: whether to resolve variations of coordinates at rest. The error estimate of a coordinate that rests does not
      limit the step; with `True`, an arc that starts at an equilibrium, or where some coordinates rest while others move, as in a
      plane of symmetry or beside a clock, takes steps that are short against the time scale of the linearized flow of these at
      the start, until they move; beside others that move, at most half of `max_steps`. With `False` such an arc takes steps as
      others need, and its derivatives are not reliable; nor are they where the rest becomes stiff only later.
    - `unroll`: how an explicit Runge-Kutta step is compiled. `True` writes out its stages; `False` makes a loop of them, which
      halves the compile time, and for a small vector field triples the run time. By default a loop for vector fields of more than
      500 operations, those in loops counted fourfold, such as those of several contacts.

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
        require_counts("Integrator", 1, max_steps=self.max_steps)
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


class ModeIntegrators(eqx.Module):
    """An integrator for each mode of a system, by the modes' names.

    Public functions construct it from a mapping such as `{"stance": Integrator(diffrax.Kvaerno5()), "flight": Integrator()}`.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    parts: tuple[Integrator, ...]

    def of(self, mode: str) -> Integrator:
        """The integrator of a mode, or of the mode of an arc."""
        return self.parts[self.names.index(of_arc(mode, self.names)[0])]

    def rebuilt(self, parts: Sequence[Integrator]) -> "ModeIntegrators":
        """The same modes with other integrators, in the order of `names`."""
        return ModeIntegrators(self.names, tuple(parts))

    def renamed(self, names: Sequence[str], sources: Sequence[str]) -> "ModeIntegrators":
        """The integrators for a system whose mode `names[k]` has the flow of mode `sources[k]`."""
        return ModeIntegrators(tuple(names), tuple(self.of(source) for source in sources))

    def tolerances(self, dtype) -> tuple[float | Array, float | Array]:
        """The largest `rtol` and the largest `atol` of any mode: those of the least accurate part of an orbit."""
        rtols, atols = zip(*(part.tolerances(dtype) for part in self.parts), strict=True)
        return _largest(rtols), _largest(atols)

    @property
    def loop(self):
        """See `Integrator.loop`; the same in all modes."""
        return self.parts[0].loop

    @property
    def groups(self) -> list[tuple[Integrator, tuple[str, ...] | None]]:
        """The distinct integrators, each with the names of its modes."""
        modes = list(zip(self.names, self.parts, strict=True))
        return [
            (part, tuple(name for name, other in modes if same_integrator(other, part)))
            for k, part in enumerate(self.parts)
            if not any(same_integrator(part, other) for other in self.parts[:k])
        ]


def same_integrator(one: Integrator, other: Integrator) -> bool:
    """Whether two integrators are equal. Traced numbers, whose values are not known, are equal if they are the same tracer."""
    (a, how), (b, how_other) = jax.tree.flatten(one), jax.tree.flatten(other)
    if how != how_other:
        return False
    traced = lambda pair: any(isinstance(each, jax.core.Tracer) for each in pair)
    return all(x is y or (not traced((x, y)) and bool(np.all(x == y))) for x, y in zip(a, b, strict=True))


def _largest(numbers: Sequence[float | Array]) -> float | Array:
    traced = any(isinstance(each, jax.Array) for each in numbers)
    return ft.reduce(jnp.maximum, numbers) if traced else max(numbers)


Integrators = Integrator | ModeIntegrators
# The type of the argument `integrator` of public functions.
IntegratorLike = Integrators | Mapping[str, Integrator]


def for_modes(system: HybridSystem, given: IntegratorLike) -> Integrators:
    """The integrator, or the integrators by mode, from the argument `integrator` of a public function.

    `ValueError` for a mapping that omits a mode, names an unknown mode, or mixes adjoints; `TypeError` for other types.
    """
    if isinstance(given, Integrator):
        return given
    if isinstance(given, ModeIntegrators):
        given = dict(zip(given.names, given.parts, strict=True))
    if not isinstance(given, Mapping):
        raise TypeError(f"integrator: {given!r} is neither an Integrator nor a mapping of modes to Integrators.")
    for name, part in given.items():
        if not isinstance(part, Integrator):
            raise TypeError(
                f"integrator: {part!r} of mode {name!r} is not an Integrator. Write Integrator(solver, ...)."
            )
    if unknown := [name for name in given if name not in system.modes]:
        raise ValueError(f"integrator: {unknown} are not modes of the system, which has {list(system.modes)}.")
    if missing := [name for name in system.modes if name not in given]:
        raise ValueError(
            f"integrator: the modes {missing} have none. Give one for each of the modes {list(system.modes)}; to use the "
            "same one for all others: dict.fromkeys(system.modes, Integrator()) | {...}."
        )
    parts = tuple(given[name] for name in system.modes)
    kinds = {part.loop: type(part.adjoint).__name__ for part in parts}
    if len(kinds) > 1:
        raise ValueError(
            f"integrator: the modes have adjoints {sorted(kinds.values())}. Give all modes the same adjoint."
        )
    return ModeIntegrators(tuple(system.modes), parts)


def with_adjoint(integrator: Integrators, adjoint: dfx.AbstractAdjoint) -> Integrators:
    """The integrator with another `adjoint` in all modes."""
    return integrator.rebuilt([eqx.tree_at(lambda part: part.adjoint, part, adjoint) for part in integrator.parts])


def integrator_to(double: float, dtype, single: float = 1e-5) -> Integrator:
    """The integrator at the tolerance `double`, for states in single precision `single`."""
    tolerance = double if dtype == np.float64 else single
    return Integrator(rtol=tolerance, atol=tolerance)


def without_jacobian(integrator: Integrators) -> Integrators:
    """The integrator for use inside a function that keeps its own Jacobian: forward mode alone, see `PlainForward`."""
    return with_adjoint(integrator, PlainForward())


def rolled(integrator: Integrators) -> Integrators:
    """The integrator with `unroll=False`, for a program that runs a few times: it compiles faster and runs slower."""
    in_a_loop = lambda part: eqx.tree_at(lambda part: part.unroll, part, False, is_leaf=lambda leaf: leaf is None)
    return integrator.rebuilt([in_a_loop(part) for part in integrator.parts])


def pushable(integrator: Integrators) -> Integrators:
    """The integrator with an `adjoint` that supports forward mode: `DirectAdjoint` in place of `RecursiveCheckpointAdjoint`."""
    return with_adjoint(integrator, dfx.DirectAdjoint()) if integrator.loop == "checkpointed" else integrator


# The limits `rtol`, `atol`, `max_steps` and `max_time` of an integrator, which may be traced, so that a coarse and an accurate
# search share one compiled program.
Limit = float | Array | np.ndarray
Limits = tuple[Limit, Limit, int | Array | np.ndarray, Limit]


def limits_of(integrator: Integrators, dtype) -> tuple[Limits, ...]:
    """The limits of every part, for states of a dtype."""
    return tuple((*part.tolerances(dtype), part.max_steps, part.max_time) for part in integrator.parts)


def with_limits(integrator: Integrators, limits: Sequence[Limits]) -> Integrators:
    """The integrator with other limits, part by part."""
    get = lambda part: (part.rtol, part.atol, part.max_steps, part.max_time)
    limited = lambda part, given: eqx.tree_at(get, part, given, is_leaf=lambda leaf: leaf is None)
    return integrator.rebuilt([limited(*each) for each in zip(integrator.parts, limits, strict=True)])


def coarsened(integrator: Integrators, rtol: float | Array, dtype) -> Integrators:
    """The integrator with a relative tolerance of at least `rtol`, which may be traced, in the modes whose steps are adaptive.

    The absolute tolerance grows in the same ratio, because it carries the size of the states.
    """

    def coarse(part: Integrator, limits: Limits) -> Limits:
        if part.fixed:
            return limits
        own, atol, max_steps, max_time = limits
        larger = jnp.maximum(jnp.asarray(own, dtype), rtol)
        return larger, atol * (larger / own), max_steps, max_time

    limits = limits_of(integrator, dtype)
    return with_limits(integrator, [coarse(*each) for each in zip(integrator.parts, limits, strict=True)])
