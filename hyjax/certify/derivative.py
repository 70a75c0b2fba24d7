r"""Derivatives of forms, by rules of this folder for the atoms: what they say of functions that are not smooth.

Where a function is smooth its derivative is enclosed. Where it is not:

- A *continuous* atom, $|u|$ or $\max(u, v)$, is one of two smooth functions. Where it is undecided which, the derivative is the
  hull of both. A function that is composed of smooth and continuous atoms is locally Lipschitz and piecewise smooth, and the
  hull contains its generalized Jacobian $\partial f$ (Clarke, 1983, Theorem 2.3.9). By the mean value theorem,
  $f(y) - f(x) \in \mathrm{co}\,\partial f([x, y])\,(y - x)$, all that needs a Lipschitz constant or an interval Jacobian is
  proved by the hull: a guard that rises or falls, the image of a set about a point, the projection along the flow onto a guard's
  surface, contraction, Krawczyk's operator. Not so Taylor series in time (`taylor` knows no coefficient of order 1 there) and
  multipliers.
- A *discontinuous* atom, a choice, sign or integer part, is constant or one of its cases where it is decided. Where it is not,
  nothing is known of the derivative: it is infinite.

Source: Clarke (1983), *Optimization and Nonsmooth Analysis*, Sec. 2.3, 2.6; Scholtes (2012), *Introduction to Piecewise
Differentiable Equations*, for the implicit functions of such equations.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

from .linear_forms import Atoms, Form, logic, number, ONE, UNIT

ZERO = number(0)
Derivative = Callable[[Form], Form]


def along(atoms: Atoms, forms: Sequence[Form], direction: Sequence[Form]) -> list[Form]:
    """The derivatives of forms along a direction of the state: one form for each input, the state's entries."""
    derivatives = {ONE: ZERO}

    def of(form: Form) -> Form:
        total = ZERO
        for atom, coefficient in form.terms if form.varies else ():
            total = atoms.add(total, atoms.multiply(derivatives[atom], coefficient))
        return total

    place = atoms.place
    # Operands come before the atoms that are made of them.
    for atom in sorted(_needed(atoms, forms)):
        name, operands = atoms.varying[atom]
        atoms.place = atoms.places[atom]
        if name == "input":
            derivatives[atom] = direction[operands[0]]
        elif name != "one":
            derivatives[atom] = RULES[name](atoms, of, Form(True, ((atom, UNIT),)), *operands)
    atoms.place = place
    return [of(form) for form in forms]


def _needed(atoms: Atoms, forms: Sequence[Form]) -> set[int]:
    """The varying atoms that forms rest on, but for those that are only compared."""
    found, pending = set(), list(forms)
    while pending:
        form = pending.pop()
        new = [atom for atom, _ in form.terms if atom not in found] if form.varies else []
        found.update(new)
        pending += [each for atom in new for each in atoms.varying[atom][1] if isinstance(each, Form)]
    return found


def _product(atoms: Atoms, of: Derivative, value: Form, a: Form, b: Form) -> Form:
    return atoms.add(atoms.multiply(of(a), b), atoms.multiply(a, of(b)))


def _quotient(atoms: Atoms, of: Derivative, value: Form, a: Form, b: Form) -> Form:
    return atoms.multiply(atoms.subtract(of(a), atoms.multiply(value, of(b))), atoms.divide(UNIT, b))


def _larger(atoms: Atoms, of: Derivative, value: Form, a: Form, b: Form) -> Form:
    return atoms.select(atoms.compare("gt", a, b), of(b), of(a))


def _sign(atoms: Atoms, of: Derivative, value: Form, a: Form) -> Form:
    return atoms.make("chosen", ZERO, ZERO, atoms.compare("ne", a, ZERO))


def _floor(atoms: Atoms, of: Derivative, value: Form, a: Form) -> Form:
    part = atoms.subtract(a, value)
    between = logic("and", atoms.compare("gt", part, ZERO), atoms.compare("lt", part, UNIT))
    return atoms.make("chosen", ZERO, ZERO, between)


RULES: dict[str, Callable[..., Form]] = {
    "mul": _product,
    "div": _quotient,
    "sin": lambda atoms, of, value, a: atoms.multiply(of(a), atoms.function("cos", a)),
    "cos": lambda atoms, of, value, a: atoms.negative(atoms.multiply(of(a), atoms.function("sin", a))),
    "exp": lambda atoms, of, value, a: atoms.multiply(of(a), value),
    "log": lambda atoms, of, value, a: atoms.multiply(of(a), atoms.divide(UNIT, a)),
    "sqrt": lambda atoms, of, value, a: atoms.multiply(of(a), atoms.divide(number(Fraction(1, 2)), value)),
    # The second operand is 1 + a^2.
    "atan": lambda atoms, of, value, a, b: atoms.multiply(of(a), atoms.divide(UNIT, b)),
    "abs": lambda atoms, of, value, a: atoms.multiply(of(a), atoms.function("sign", a)),
    "max": _larger,
    "sign": _sign,
    "floor": _floor,
    "select": lambda atoms, of, value, a, b, which: atoms.make("chosen", of(a), of(b), which),
    "chosen": lambda atoms, of, value, a, b, which: atoms.make("chosen", of(a), of(b), which),
}
