"""Functions of the state alone, for a system whose state is followed by further coordinates."""

from typing import Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array

from .._system.system import Domain, Guard
from .._system.types import Flag, Params, State, Time


@runtime_checkable
class WithParams(Protocol):
    """Parameters of a system with followers, which hold those of the system itself."""

    @property
    def params(self) -> Params: ...


class OfState(eqx.Module):
    """A guard, domain or `armed` of the first `n` coordinates."""

    fn: Guard | Domain
    n: int = eqx.field(static=True)

    def __call__(self, t: Time, z: State, inputs: WithParams) -> Array | Flag:
        return self.fn(t, z[: self.n], inputs.params)
