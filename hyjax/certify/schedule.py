"""The atoms of a computational graph by levels: all of one level and one kind are evaluated at once."""

import functools as ft
import operator
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from .linear_forms import COMPARED, Condition, LinearForm, ONE

# Linear combinations of numbers in memory, $\sum_t c_{kt} m_{i_{kt}}$, one for each row $k$: the places $i$, and those of $c$
# among the constants, shape `(rows, terms)`; and the weights of the rounding, shape `(rows,)`: relative to the result where at
# most one operation rounds, and relative to the sum of the terms' moduli, in units of one rounding.
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Kind(NamedTuple):
    """The atoms of a level with one name: `rows` of the level from `first` on hold their operands, `count` of each; `conditions`
    of a choice, with the rows that are compared; `places`: where each of them was written."""

    name: str
    first: int
    count: int
    conditions: tuple
    places: tuple[str, ...]


def operand(kind: Kind, operands: Any, i: int = 0) -> Any:
    """The operands number `i` of the atoms of one kind, of the operands of its level."""
    return operands[kind.first + i * kind.count : kind.first + (i + 1) * kind.count]


def truth(condition: Any, compare: Callable[[str, int], tuple]) -> tuple:
    """Whether a condition certainly holds, and whether it certainly fails: two truth values, or arrays of such.

    **Arguments:** `compare`: the same of the comparison with zero of a row, given its name and the number of the row.
    """
    if not isinstance(condition, Condition):
        return condition, not condition
    if condition.name in COMPARED:
        return compare(condition.name, condition.operands[0])
    holds, fails = zip(*(truth(part, compare) for part in condition.operands), strict=True)
    if condition.name == "not":
        return fails[0], holds[0]
    all_of, any_of = (ft.partial(ft.reduce, both) for both in (operator.and_, operator.or_))
    return (all_of(holds), any_of(fails)) if condition.name == "and" else (any_of(holds), all_of(fails))


# The rows of the operands of all atoms of a level, and these atoms by kinds.
ScheduleLevel = tuple[Rows, tuple[Kind, ...]]


class Levels:
    """The atoms that some results need, by levels.

    **Attributes:** `levels`. `results`: the rows of the results, or conditions. `coefficients`: the constants, by which the rows
    multiply. `read`: the inputs that the results depend on. `varies`: whether they are atoms of the state. Memory begins with the
    number one and all inputs.
    """

    def __init__(self, atoms: list[tuple], results: list, varies: bool, places: list[str] | None = None):
        self._atoms, self._slots, self._places = atoms, {}, places
        self.varies = varies
        # The constants with their numbers; the first is zero, by which a row is filled.
        self._constants: dict = {LinearForm(False, ()) if varies else Fraction(0): 0}
        depth = self._depths(results)
        self._alive, self._results = tuple(depth), results
        self._slots[ONE] = 0
        inputs = {atom: operands[0] for atom, (name, operands) in enumerate(atoms) if name == "input"}
        self._slots.update({atom: 1 + i for atom, i in inputs.items()})
        self.read = tuple(sorted(i for atom, i in inputs.items() if atom in depth))
        self._next = 1 + len(inputs)
        last = max(depth.values(), default=0)
        self.levels = tuple(
            self._level([atom for atom, each in depth.items() if each == k]) for k in range(1, last + 1)
        )
        forms = list(_forms_of(results))
        self.results = self._rows(forms)
        self.conditions = tuple(self._numbered(each, forms) for each in results if not isinstance(each, LinearForm))
        self.coefficients = list(self._constants)

    def _depths(self, results: list) -> dict[int, int]:
        depth, pending = {ONE: 0}, [atom for form in _forms_of(results) for atom, _ in form.terms]
        while pending:
            atom = pending[-1]
            name, operands = self._atoms[atom]
            below = [inner for form in _forms_of(operands) for inner, _ in form.terms]
            missing = [] if name == "input" else [each for each in below if each not in depth]
            if atom in depth or not missing:
                depth.setdefault(atom, 0 if name == "input" else 1 + max((depth[each] for each in below), default=0))
                pending.pop()
            else:
                pending += missing
        return depth

    def uses(self, index: int) -> list[tuple[str, LinearForm]]:
        """Where an input is used: the names of the atoms, or "result", with its coefficients there."""
        owners = [("result", self._results), *(self._atoms[atom] for atom in self._alive)]
        return [
            (name, coefficient)
            for name, operands in owners
            for form in _forms_of(operands)
            for atom, coefficient in form.terms
            if self._atoms[atom] == ("input", (index,))
        ]

    def expression(self, form: LinearForm) -> tuple[Fraction, tuple]:
        """A fixed form as a rational factor and the rest, by what its atoms are: equal for equal forms of all graphs."""
        factor = form.terms[0][1]
        written = lambda each: self.expression(each) if isinstance(each, LinearForm) else each
        atoms = [(self._atoms[atom], coefficient / factor) for atom, coefficient in form.terms]
        return factor, tuple((name, tuple(map(written, operands)), c) for (name, operands), c in atoms)

    def _level(self, atoms: list[int]) -> ScheduleLevel:
        """The level of some atoms, whose places in memory are given on the way."""
        by_name: dict[str, list[int]] = {}
        for atom in sorted(atoms):
            name = str(self._atoms[atom][0])
            by_name.setdefault("sin_cos" if name in ("sin", "cos") else name, []).append(atom)
        forms, kinds, placed = [], [], []
        for name in sorted(by_name):
            members, first = by_name[name], len(forms)
            if name == "sin_cos":
                arguments = list(dict.fromkeys(self._atoms[atom][1][0] for atom in members))
                forms += arguments
                kinds.append(Kind(name, first, len(arguments), (), ()))
                for atom in members:
                    half = len(arguments) * (self._atoms[atom][0] == "cos")
                    placed.append((atom, self._next + half + arguments.index(self._atoms[atom][1][0])))
                self._next += 2 * len(arguments)
                continue
            each = [self._atoms[atom][1] for atom in members]
            arity = sum(isinstance(operand, LinearForm) for operand in each[0])
            for i in range(arity):
                forms += [operands[i] for operands in each]
            conditions = [operands[-1] for operands in each] if name in ("select", "chosen") else []
            compared = [form for form in _forms_of(conditions) if form not in forms]
            forms += compared
            numbered = tuple(self._numbered(one, forms) for one in conditions)
            places = () if self._places is None else tuple(self._places[atom] for atom in members)
            kinds.append(Kind(name, first, len(members), numbered, places))
            placed += [(atom, self._next + i) for i, atom in enumerate(members)]
            self._next += len(members)
        rows = self._rows(forms)
        self._slots.update(placed)
        return rows, tuple(kinds)

    def _numbered(self, condition: Any, forms: list[LinearForm]) -> Any:
        """A condition with the numbers of rows in place of forms."""
        if not isinstance(condition, Condition):
            return condition
        parts = tuple(
            forms.index(part) if isinstance(part, LinearForm) else self._numbered(part, forms)
            for part in condition.operands
        )
        return Condition(condition.name, parts)

    def _rows(self, forms: list[LinearForm]) -> Rows:
        width = max((len(form.terms) for form in forms), default=0) or 1
        index, coefficient = (np.zeros((len(forms), width), int) for _ in range(2))
        one_sum, many = np.zeros(len(forms)), np.zeros(len(forms))
        for k, form in enumerate(forms):
            for t, (atom, factor) in enumerate(form.terms):
                index[k, t], coefficient[k, t] = (
                    self._slots[atom],
                    self._constants.setdefault(factor, len(self._constants)),
                )
            rounded = sum(_rounds(factor) for _, factor in form.terms)
            operations = rounded + max(len(form.terms) - 1, 0)
            one_sum[k], many[k] = float(operations == 1), float(operations if operations > 1 else 0)
        return index, coefficient, one_sum, many


def _rounds(factor: Fraction | LinearForm) -> bool:
    """Whether a product with a factor rounds: not with a power of two, but for numbers that are flushed."""
    literal = factor.literal if isinstance(factor, LinearForm) else factor
    if literal is None:
        return True
    whole = abs(literal.numerator) * literal.denominator
    return bool(whole & (whole - 1))


def _forms_of(operands: Iterable) -> Iterable[LinearForm]:
    """The forms among operands, and those that are compared in conditions."""
    for each in operands:
        if isinstance(each, LinearForm):
            yield each
        elif isinstance(each, Condition):
            yield from _forms_of(each.operands)
