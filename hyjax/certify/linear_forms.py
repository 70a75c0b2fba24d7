r"""Linear combinations of atoms with exact coefficients: the values of a function of JAX, entry by entry, before any rounding.

An atom is a number on which a combination rests: one, an input, or a function of other combinations (a product, a sine). There
are two kinds of combinations. A *fixed* one depends on the parameters alone; its coefficients are rational numbers. A *varying*
one depends on the state; its coefficients are fixed combinations. Sums, and products with fixed numbers, are combinations again,
so they make no atom; equal expressions are one atom. A product with an exact zero is zero.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

# The index of the atom that is the number one.
ONE = 0


class LinearForm:
    """A linear combination of atoms.

    **Attributes:** `varies`: whether it depends on the state. `terms`: pairs `(atom, coefficient)` by rising atoms; the
    coefficients are `Fraction`s in a fixed form and fixed forms in a varying one, none of them zero.
    """

    __slots__ = ("_hash", "terms", "varies")

    def __init__(self, varies: bool, terms: Iterable[tuple[int, Any]]):
        self.varies, self.terms = varies, tuple(sorted((each for each in terms), key=lambda term: term[0]))
        self._hash = hash((varies, self.terms))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, LinearForm) and self.varies == other.varies and self.terms == other.terms

    @property
    def zero(self) -> bool:
        return not self.terms

    @property
    def literal(self) -> Fraction | None:
        """The rational number that it is, or None."""
        if self.varies:
            return None
        if not self.terms:
            return Fraction(0)
        return self.terms[0][1] if len(self.terms) == 1 and self.terms[0][0] == ONE else None

    @property
    def constant(self) -> "LinearForm | None":
        """The fixed form that it is, or None."""
        if not self.varies:
            return self
        if not self.terms:
            return LinearForm(False, ())
        return self.terms[0][1] if len(self.terms) == 1 and self.terms[0][0] == ONE else None


@dataclass(frozen=True)
class Condition:
    """A comparison of a form with zero, or a combination of such by logic.

    **Attributes:** `name`: "lt", "le", "gt", "ge", "eq", "ne" of one form; "and", "or", "not" of conditions or truth values.
    """

    name: str
    operands: tuple

    @property
    def varies(self) -> bool:
        return any(getattr(each, "varies", False) for each in self.operands)

    def comparisons(self) -> list["Condition"]:
        """The comparisons that it is made of."""
        if self.name in COMPARED:
            return [self]
        return [each for part in self.operands if isinstance(part, Condition) for each in part.comparisons()]


COMPARED = {
    "lt": lambda x: x < 0, "le": lambda x: x <= 0, "gt": lambda x: x > 0, "ge": lambda x: x >= 0, "eq": lambda x: x == 0,
    "ne": lambda x: x != 0,
}  # fmt: skip


def number(value: float | int | Fraction) -> LinearForm:
    """A number, exactly."""
    value = Fraction(value)
    return LinearForm(False, ((ONE, value),) if value else ())


UNIT = number(1)


class Atoms:
    """The atoms of one function, and the algebra of its forms.

    **Attributes:** `fixed`, `varying`: lists of `(name, operands)`; the operands are forms of the same kind, and conditions.
    `place`: where the equation that is read was written; `places`: of the varying atoms.
    """

    def __init__(self):
        self.fixed: list[tuple] = [("one", ())]
        self.varying: list[tuple] = [("one", ())]
        self.place, self.places = "", [""]
        self._at: dict = {}

    def make(self, name: str, *operands: Any) -> LinearForm:
        """The form of one atom, which is new only if there is no equal one. It varies if an operand does."""
        varies = any(each.varies for each in operands if isinstance(each, LinearForm | Condition))
        return self._atom(varies, name, tuple(self.lifted(each) if varies else each for each in operands))

    def input(self, varies: bool, index: int) -> LinearForm:
        """The input `index`, of the state or of the parameters."""
        return self._atom(varies, "input", (index,))

    def _atom(self, varies: bool, name: str, operands: tuple) -> LinearForm:
        known = self.varying if varies else self.fixed
        key = (varies, name, operands)
        if key not in self._at:
            self._at[key] = len(known)
            known.append((name, operands))
            if varies:
                self.places.append(self.place)
        return LinearForm(varies, ((self._at[key], UNIT if varies else Fraction(1)),))

    def lifted(self, a: Any) -> Any:
        """A fixed form, or a condition on such, as one that varies.

        A condition on the parameters alone becomes that a fixed number, which is 1 or -1, is positive: it is decided where fixed
        forms are evaluated, where a parameter that is zero exactly is known to be zero.
        """
        if isinstance(a, Condition):
            if a.varies:
                return Condition(a.name, tuple(self.lifted(each) for each in a.operands))
            return Condition("gt", (self.lifted(self._atom(False, "select", (number(-1), UNIT, a))),))
        if not isinstance(a, LinearForm) or a.varies:
            return a
        return LinearForm(True, ((ONE, a),) if a.terms else ())

    def add(self, a: LinearForm, b: LinearForm) -> LinearForm:
        if a.zero or b.zero:
            return b if a.zero else a
        varies = a.varies or b.varies
        a, b = (self.lifted(each) if varies else each for each in (a, b))
        total = dict(a.terms)
        for atom, coefficient in b.terms:
            if atom not in total:
                total[atom] = coefficient
            else:
                total[atom] = self.add(total[atom], coefficient) if varies else total[atom] + coefficient
        return LinearForm(varies, ((atom, each) for atom, each in total.items() if not _vanishes(each)))

    def negative(self, a: LinearForm) -> LinearForm:
        return self._scaled(a, Fraction(-1))

    def subtract(self, a: LinearForm, b: LinearForm) -> LinearForm:
        return self.add(a, self.negative(b))

    def _scaled(self, a: LinearForm, factor: Fraction) -> LinearForm:
        if factor == 0:
            return LinearForm(a.varies, ())
        change = (lambda each: self._scaled(each, factor)) if a.varies else lambda each: each * factor
        return LinearForm(a.varies, ((atom, change(each)) for atom, each in a.terms))

    def multiply(self, a: LinearForm, b: LinearForm) -> LinearForm:
        for factor, other in ((a, b), (b, a)):
            literal = getattr(factor.constant, "literal", None)
            if literal is not None:
                return self._scaled(other, literal)
        for factor, other in ((a, b), (b, a)):
            fixed = factor.constant
            if fixed is not None and other.varies:
                return LinearForm(True, ((atom, self.multiply(each, fixed)) for atom, each in other.terms))
        first, second = sorted((a, b), key=lambda form: [atom for atom, _ in form.terms])
        (c, x), (d, y) = self._factored(first), self._factored(second)
        return self.multiply(self.make("mul", x, y), self.multiply(c, d))

    def divide(self, a: LinearForm, b: LinearForm) -> LinearForm:
        divisor = b.constant
        if b.zero or a.zero:
            return self.make("div", a, b) if b.zero else a
        if divisor is not None and divisor.literal:
            return self._scaled(a, 1 / divisor.literal)
        if a != UNIT and (divisor is not None or a.constant is not None):
            return self.multiply(a, self.divide(UNIT, divisor or b))
        (c, x), (d, y) = self._factored(a), self._factored(b)
        if d == UNIT:
            return self.multiply(self.make("div", x, y), c)
        return self.multiply(self.divide(x, y), self.divide(c, d))

    def _factored(self, a: LinearForm) -> tuple[LinearForm, LinearForm]:
        """A fixed factor and the rest: of a form of one term, the coefficient and the atom."""
        if len(a.terms) != 1:
            return UNIT, a
        atom, coefficient = a.terms[0]
        if a.varies:
            return coefficient, LinearForm(True, ((atom, UNIT),))
        return number(coefficient), LinearForm(False, ((atom, Fraction(1)),))

    def parallel(self, a: LinearForm, b: LinearForm) -> bool:
        """Whether a form is a multiple of another one, whatever the parameters are: zero where the other, which is not zero
        everywhere, is zero."""
        if a.zero:
            return True
        a, b = self.lifted(a), self.lifted(b)
        if [atom for atom, _ in a.terms] != [atom for atom, _ in b.terms]:
            return False
        pairs = [(c, d) for (_, c), (_, d) in zip(a.terms, b.terms, strict=True)]
        return all(self.multiply(c, f) == self.multiply(d, e) for c, d in pairs for e, f in pairs)

    def function(self, name: str, a: LinearForm) -> LinearForm:
        """An elementary function of one argument."""
        if a.zero and name in ("sin", "sqrt", "atan", "abs"):
            return a
        if a.zero and name in ("cos", "exp"):
            return UNIT
        if name == "atan":
            # Its rate is that of `a` over 1 + a^2, of which the recurrence needs the series.
            return self.make(name, a, self.add(UNIT, self.multiply(a, a)))
        return self.make(name, a)

    def compare(self, name: str, a: LinearForm, b: LinearForm) -> Condition | bool:
        apart = self.subtract(a, b)
        apart = apart.constant or apart
        return COMPARED[name](apart.literal) if apart.literal is not None else Condition(name, (apart,))

    def select(self, which: Condition | bool, if_false: Any, if_true: Any) -> Any:
        """One of two forms, or of two conditions."""
        if isinstance(which, bool):
            return if_true if which else if_false
        if not isinstance(if_true, LinearForm):
            return logic("or", logic("and", which, if_true), logic("and", logic("not", which), if_false))
        return if_true if if_true == if_false else self.make("select", if_false, if_true, which)


def _vanishes(coefficient: Fraction | LinearForm) -> bool:
    return coefficient.zero if isinstance(coefficient, LinearForm) else coefficient == 0


def logic(name: str, *operands: Condition | bool) -> Condition | bool:
    """ "and", "or" or "not" of conditions."""
    if name == "not":
        return (not operands[0]) if isinstance(operands[0], bool) else Condition(name, operands)
    decides = name == "or"
    if any(each is decides for each in operands):
        return decides
    open_ones = [each for each in operands if not isinstance(each, bool)]
    if not open_ones:
        return not decides
    return open_ones[0] if len(open_ones) == 1 else Condition(name, tuple(open_ones))
