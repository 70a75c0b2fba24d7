"""An optimization problem that depends on one number: a parameter of the system, or the limit of a constraint."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._orbit.orbit import PeriodicOrbit
from .._system.where import leaf_names, one_leaf, Where
from .constraint import Constraint, known
from .gait_program import GaitProgram, Known
from .optimized_gait import OptimizedGait
from .program import Sample
from .unknowns import Unknowns


class Expansion(NamedTuple):
    """Objective and constraints at a point, with derivatives by the scaled unknowns `u` and by the number `q`.

    **Attributes:** `values`: shape `(1 + m,)`. `jacobian`: `(1 + m, n)`. `hessians`: `(1 + m, n, n)`. `by_number`: `(1 + m,)`.
    `mixed`: derivatives of the Jacobian by the number, `(1 + m, n)`.
    """

    values: np.ndarray
    jacobian: np.ndarray
    hessians: np.ndarray
    by_number: np.ndarray
    mixed: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """By how much each function changes over the range of the unknowns, which is of the order of 1: its gradient or its
        curvature, whichever is larger; 1 of a constant. Shape `(1 + m,)`."""
        found = np.maximum(np.max(np.abs(self.jacobian), axis=1), np.max(np.abs(self.hessians), axis=(1, 2)))
        return np.where(found > 0, found, 1)


class Family(NamedTuple):
    """**Attributes:** `name`: of the number. `start`: its value at the optimum known. `program`: of the unknowns, with the
    number as the last one if it is a parameter. `limited`: the constraint whose limit the number is, or `None`, and the name of
    the limit."""

    name: str
    start: float
    program: GaitProgram
    limited: tuple[int, str] | None

    def expansion(self, u: np.ndarray, number: float, at: Known) -> tuple[Expansion, Known] | str:
        """The functions and derivatives at a point, from the last orbit; or the name of the code of an orbit that was not
        found."""
        program, point = self.program, jnp.asarray(u)
        if self.limited is None:
            point = jnp.append(point, number / program.unknowns.scale[-1])
        else:
            program = _with_limit(program, self.limited, number)
        sample = _evaluate(program, point, at)
        if not bool(sample.sound):
            return str(sample.code)
        values, jacobian, hessians = (np.asarray(each) for each in (sample.values, sample.jacobian, sample.hessians))
        if self.limited is not None:
            by_number = _by_limit(self.program, self.limited)
            return Expansion(values, jacobian, hessians, by_number, np.zeros_like(jacobian)), sample.carry
        scale = float(program.unknowns.scale[-1])
        return Expansion(
            values, jacobian[:, :-1], hessians[:, :-1, :-1], jacobian[:, -1] / scale, hessians[:, :-1, -1] / scale
        ), sample.carry

    def start_at(self, orbit: PeriodicOrbit) -> Known:
        """What is known of the orbit at the start."""
        return self.program.known(orbit)


@eqx.filter_jit
def _evaluate(program: GaitProgram, u, at: Known) -> Sample:
    return program(u, at)


def family_of(gait: OptimizedGait, where: Where | None, limit: str | None, span: float | None = None) -> Family:
    """The family over a parameter, or over the limit of the constraint of that name. `ValueError` unless one of both is given."""
    if (where is None) == (limit is None):
        raise ValueError(
            "follow_optimum: give either `where`, a parameter of the system, or `limit`, the name of a constraint whose limit "
            "varies."
        )
    program = dataclasses.replace(gait.gait, second_order=True)
    if limit is not None:
        place = _constraint(program.constraints, limit)
        return Family(limit, float(getattr(program.constraints[place[0]], place[1])), program, place)
    assert where is not None
    leaf, unknowns = one_leaf(where, gait.params, "follow_optimum"), program.unknowns
    name = leaf_names(gait.params)[leaf]
    if leaf in unknowns.free:
        raise ValueError(f"follow_optimum: {name} is itself optimized. Choose a parameter that is not.")
    start = float(jax.tree.leaves(gait.params)[leaf])
    append = lambda array, value: jnp.append(array, jnp.asarray(value, array.dtype))
    unknowns = Unknowns(
        gait.params, (*unknowns.free, leaf), append(unknowns.scale, span or 1.0), append(unknowns.lower, -np.inf),
        append(unknowns.upper, np.inf),
    )  # fmt: skip
    return Family(name, start, dataclasses.replace(program, unknowns=unknowns), None)


def _constraint(constraints: tuple[Constraint, ...], name: str) -> tuple[int, str]:
    """The number of the constraint of that name, and which of its limits varies."""
    found = [k for k, each in enumerate(constraints) if each.name == name]
    if len(found) != 1:
        names = [each.name for each in constraints]
        raise ValueError(f"follow_optimum: limit={name!r} must name one of the constraints, which are {names}.")
    given = [field for field in ("equals", "at_least", "at_most") if getattr(constraints[found[0]], field) is not None]
    if len(given) != 1 or not known(getattr(constraints[found[0]], given[0])):
        raise ValueError(f"follow_optimum: the constraint {name!r} must have one limit, not {given}.")
    if np.ndim(getattr(constraints[found[0]], given[0])):
        raise ValueError(f"follow_optimum: the limit of the constraint {name!r} must be one number.")
    return found[0], given[0]


def _with_limit(program: GaitProgram, place: tuple[int, str], number: float) -> GaitProgram:
    index, field = place
    return eqx.tree_at(
        lambda program: getattr(program.constraints[index], field), program,
        jnp.asarray(number, getattr(program.constraints[index], field).dtype),
    )  # fmt: skip


def _by_limit(program: GaitProgram, place: tuple[int, str]) -> np.ndarray:
    """Derivatives of the objective and the constraints' rows by a limit: -1 in its rows, +1 for `at_most`."""
    index, field = place
    rows = [np.zeros(1)]
    for kind in range(2):
        for k, sizes in enumerate(program.rows):
            mine = k == index and (kind == 0) == (field == "equals")
            rows.append(np.full(sizes[kind], (1.0 if field == "at_most" else -1.0) if mine else 0.0))
    return np.concatenate(rows)
