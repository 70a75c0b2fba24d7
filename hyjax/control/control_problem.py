r"""An optimal control problem of a hybrid system with piecewise constant controls, and its rollout.

$$x_{k+1} = F_k(x_k, u_k), \qquad J = \sum_{k=0}^{N-1} \ell(t_k, x_k, u_k) + \varphi(t_N, x_N)$$

$F_k$ is the solution from $t_k$ to $t_{k+1}$ through whatever events come, with the control $u_k$ held.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._flow.automaton import Automaton, Index, Padded, switched
from .._flow.integrator import Integrators
from .._flow.simulate import ArcStart, first_arc, follow_arc
from .._numerics.trees import select
from .._orbit.stride_derivatives import leaf_values
from .._system.system import HybridSystem
from .._system.types import Params, Scalar, State, Time
from .._system.where import with_leaves

Control = Float[Array, " m"]
StageCost = Callable[[Time, State, Control, Params], Scalar]
TerminalCost = Callable[[Time, State, Params], Scalar]


class ControlProblem(eqx.Module):
    """The arguments of `ilqr`, checked. **Attributes:** `x0`: padded. `times`: the grid, shape `(steps + 1,)`. `stage`,
    `terminal`: for each mode its dimension and its cost. `initial`: the mode of `x0`. `free`: the leaves of the parameters that
    act."""

    system: HybridSystem
    params: Params
    x0: Padded
    times: Float[Array, " times"]
    stage: tuple[tuple[int, StageCost], ...]
    terminal: tuple[tuple[int, TerminalCost], ...]
    integrator: Integrators
    initial: str = eqx.field(static=True)
    free: tuple[int, ...] = eqx.field(static=True)
    max_events: int = eqx.field(static=True)

    @property
    def automaton(self) -> Automaton:
        return Automaton(self.system)

    @property
    def mode0(self) -> Index:
        return jnp.array(self.system.names.index(self.initial))

    def acted_on(self, u: Control) -> Params:
        """The parameters with the control added to those that act."""
        return with_leaves(self.params, self.free, leaf_values(self.params, self.free, self.x0.dtype) + u)

    def stage_cost(self, t: Time, z: Padded, u: Control, mode: Index) -> Scalar:
        """The cost of one step."""
        read = lambda way, t, z, u, params: jnp.asarray(way[1](t, z[: way[0]], u, params), z.dtype)
        return switched(mode, self.stage, read, t, z, u, self.params)

    def terminal_cost(self, t: Time, z: Padded, mode: Index) -> Scalar:
        """The cost of the final state."""
        read = lambda way, t, z, params: jnp.asarray(way[1](t, z[: way[0]], params), z.dtype)
        return switched(mode, self.terminal, read, t, z, self.params)

    def interval(
        self, t: Time, until: Time, z: Padded, mode: Index, u: Control, log: PyTree, note: Callable, most: Index
    ) -> tuple[ArcStart, PyTree]:
        """The solution from `t` to `until` through whatever events come, at most `most` of them.

        **Arguments:** `log`: any PyTree. `note(log, row, after)`: the log after an event; `row` is the arc that the event ends,
        `after` the start of the next.
        """
        start, params = first_arc(self.automaton, z, mode, t, until), self.acted_on(u)

        def one(carry):
            now, log, count = carry
            after, row = follow_arc(self.automaton, now, count == most, start, until, params, self.integrator)
            return after, select(row.jumped, note(log, row, after), log), count + row.jumped.astype(count.dtype)

        end, log, _ = jax.lax.while_loop(lambda carry: ~carry[0].done, one, (start, log, jnp.zeros_like(most)))
        return end, log


def place_costs(given: Any, system: HybridSystem, arguments: tuple, dtype, label: str) -> tuple[tuple[int, Any], ...]:
    """For each mode its dimension and its cost, checked. **Arguments:** `given`: a function, or one for each mode by name.
    `arguments`: of the function, without the time and the state."""
    ways: dict[str, Any] = dict(given) if isinstance(given, Mapping) else dict.fromkeys(system.names, given)
    for name in ways:
        system.mode(name, f"mode of ilqr({label}=...)")
    if missing := [name for name in system.names if name not in ways]:
        raise ValueError(
            f"ilqr: {label} has no function for the modes {missing}. Give one for each of {list(system.names)}."
        )
    for name, fn in ways.items():
        if not callable(fn):
            raise ValueError(f"ilqr: {label} of mode {name!r} must be a function, not {fn!r}.")
        t, x = jax.ShapeDtypeStruct((), dtype), jax.ShapeDtypeStruct((system.mode(name).dimension,), dtype)
        out = eqx.filter_eval_shape(fn, t, x, *arguments)
        if getattr(out, "shape", None) != ():
            raise ValueError(
                f"ilqr: {label} returns shape {getattr(out, 'shape', out)} in mode {name!r}; it must return one number, shape ()."
            )
    return tuple((mode.dimension, ways[name]) for name, mode in system.modes.items())
