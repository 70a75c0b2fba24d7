"""The return map along a given sequence of modes, for programs that iterate it."""

import equinox as eqx
import jax.numpy as jnp

from .._flow.automaton import Index
from .._flow.integrator import Integrators
from .._flow.section_map import Passed
from .._orbit.stride import run_stride
from .._system.system import HybridSystem
from .._system.types import Params, State, Time


class SequenceMap(eqx.Module):
    """The return map along a sequence of modes; the counterpart of `SectionMap`.

    **Attributes:** `system`: it may have terminal modes. `ordinary`: the number of transitions that do not end in a terminal
    mode.
    """

    system: HybridSystem
    sequence: tuple[str, ...] = eqx.field(static=True)
    ordinary: int = eqx.field(static=True)
    integrator: Integrators

    def __call__(self, t: Time, x: State, mode: Index, params: Params) -> Passed:
        stride, end = run_stride(self.system, t, x, params, self.sequence, self.integrator), jnp.array(-1)
        for impact in stride.impacts[::-1]:
            end = jnp.where(impact.transition >= self.ordinary, impact.transition - self.ordinary, end)
        return Passed(stride.x, stride.time, mode, end, jnp.array(len(self.sequence)), stride.result)
