"""The arguments that all starts of a search share."""

import equinox as eqx

from .._flow.mode_integrators import Integrators
from .._flow.section_map import SectionMap
from .._system.system import HybridSystem
from .._system.types import Params
from .shooting import AbstractShooting


class Batch(eqx.Module):
    """The arguments of a search along a sequence of modes."""

    system: HybridSystem
    params: Params
    sequence: tuple[str, ...] = eqx.field(static=True)
    strides: int = eqx.field(static=True)
    method: AbstractShooting
    integrator: Integrators


class SectionBatch(eqx.Module):
    """The arguments of a search by a section. The integrator of `map` is replaced by `integrator`."""

    map: SectionMap
    params: Params
    strides: int = eqx.field(static=True)
    method: AbstractShooting
    integrator: Integrators


AnyBatch = Batch | SectionBatch
