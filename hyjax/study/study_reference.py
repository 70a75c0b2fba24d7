"""The reference of a solver study: accurate runs by several methods, and their disagreement."""

import dataclasses
from collections.abc import Callable, Mapping

import diffrax as dfx
import jax
import numpy as np

from .._flow.integrator import Integrators
from ..solvers.rodas5p import Rodas5P
from .study_case import Case
from .study_checks import Method
from .study_measures import Yardstick

# Methods of different kinds, explicit and implicit: an error that both share is unlikely.
REFERENCE: dict[str, Method] = {"Dopri8": dfx.Dopri8(), "Rodas5P": Rodas5P()}
# The largest number of steps in an arc of the reference, whatever the limit of the runs.
MOST_STEPS = 100_000_000


@dataclasses.dataclass(frozen=True)
class Reference:
    """Accurate trajectories, one for each set of parameters.

    **Attributes:** `x`: states by the first method, shape `(sets, times, size)`. `error`: the largest difference of another
    method from the first, in what is measured, shape `(sets,)`. `result`: codes of `RESULTS`, shape `(sets, methods)`.
    """

    x: np.ndarray
    error: np.ndarray
    result: np.ndarray


def reference_of(
    case: Case,
    methods: Mapping[str, Integrators],
    tolerance: tuple[float, float],
    times: jax.Array,
    yardstick: Yardstick,
    advance: Callable[[int], None],
) -> Reference:
    """The runs of all sets by all methods at a tolerance `(rtol, atol)`."""
    case = dataclasses.replace(case, max_steps=MOST_STEPS)
    states, errors, codes = [], [], []
    for k in range(len(case.sets)):
        runs = []
        for integrator in methods.values():
            runs.append(case.run(integrator, tolerance, k, times))
            advance(1)
        first, *others = (np.asarray(run.samples) for run in runs)
        states.append(first)
        errors.append(max(np.max(yardstick.of(other - first)) for other in others))
        codes.append([int(run.result._value) for run in runs])
    return Reference(np.stack(states), np.array(errors), np.array(codes, np.int32))
