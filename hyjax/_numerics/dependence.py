"""Traced functions: which inputs the value depends on, and how many operations there are."""

from collections.abc import Sequence

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal


def depends_on(closed: ClosedJaxpr, first: int) -> bool:
    """Whether an output of the program depends on one of its `first` inputs: a result of an operation on a value depends on it,
    also where that operation is a multiplication by zero."""
    inputs = len(closed.jaxpr.invars)
    return any(_outputs(closed.jaxpr, [k < first for k in range(inputs)]))


def _outputs(jaxpr: Jaxpr, marked: Sequence[bool]) -> list[bool]:
    """Which outputs depend on the marked inputs."""
    known = {variable for variable, mark in zip(jaxpr.invars, marked, strict=True) if mark}
    seen = lambda variable: not isinstance(variable, Literal) and variable in known
    for equation in jaxpr.eqns:
        inputs = [seen(variable) for variable in equation.invars]
        name, params = equation.primitive.name, equation.params
        if not any(inputs):
            continue
        # Of the operations that contain others, those of which guards are made; any other counts as one operation.
        if name == "cond" and not inputs[0]:
            ways = [_outputs(branch.jaxpr, inputs[1:]) for branch in params["branches"]]
            outputs = [any(each) for each in zip(*ways, strict=True)]
        elif name in ("jit", "pjit"):
            outputs = _outputs(params["jaxpr"].jaxpr, inputs)
        else:
            outputs = [True] * len(equation.outvars)
        known.update(variable for variable, mark in zip(equation.outvars, outputs, strict=True) if mark)
    return [seen(variable) for variable in jaxpr.outvars]


def operations(jaxpr: Jaxpr) -> int:
    """The number of operations, those of inner functions included."""
    total = 0
    for equation in jaxpr.eqns:
        parts = jax.tree.leaves(list(equation.params.values()))
        closed = [part.jaxpr for part in parts if isinstance(part, ClosedJaxpr)]
        inner = [*closed, *(part for part in parts if isinstance(part, Jaxpr))]
        total += sum(map(operations, inner)) if inner else 1
    return total
