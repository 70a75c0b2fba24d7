r"""The computational graph of a function of JAX, entry by entry: its jaxpr as forms of atoms."""

import functools as ft
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from .linear_forms import Atoms, COMPARED, Condition, LinearForm, logic, number, ONE, UNIT
from .lowering import core_jaxpr, place_of, SMOOTHNESS
from .schedule import Levels

# Derivatives of forms, by rules of this folder for the atoms: what they say of functions that are not smooth.
#
# Where a function is smooth its derivative is enclosed. Where it is not:
#
# - A *continuous* atom, $|u|$ or $\max(u, v)$, is one of two smooth functions. Where it is undecided which, the derivative is the
#   hull of both. A function that is composed of smooth and continuous atoms is locally Lipschitz and piecewise smooth, and the
#   hull contains its generalized Jacobian $\partial f$ (Clarke, 1983, Theorem 2.3.9). By the mean value theorem, $f(y) - f(x) \in
#   \mathrm{co}\,\partial f([x, y])\,(y - x)$, all that needs a Lipschitz constant or an interval Jacobian is proved by the hull:
#   a guard that rises or falls, the image of a set about a point, the projection along the flow onto a guard's surface,
#   contraction, Krawczyk's operator. Not so Taylor series in time (`taylor` knows no coefficient of order 1 there) and
#   multipliers.
# - A *discontinuous* atom, a choice, sign or integer part, is constant or one of its cases where it is decided. Where it is not,
#   nothing is known of the derivative: it is infinite.
#
# Source: Clarke (1983), *Optimization and Nonsmooth Analysis*, Sec. 2.3, 2.6; Scholtes (2012), *Introduction to Piecewise
# Differentiable Equations*, for the implicit functions of such equations.

ZERO = number(0)
Derivative = Callable[[LinearForm], LinearForm]


def along(atoms: Atoms, forms: Sequence[LinearForm], direction: Sequence[LinearForm]) -> list[LinearForm]:
    """The derivatives of forms along a direction of the state: one form for each input, the state's entries."""
    derivatives = {ONE: ZERO}

    def of(form: LinearForm) -> LinearForm:
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
            derivatives[atom] = RULES[name](atoms, of, LinearForm(True, ((atom, UNIT),)), *operands)
    atoms.place = place
    return [of(form) for form in forms]


def _needed(atoms: Atoms, forms: Sequence[LinearForm]) -> set[int]:
    """The varying atoms that forms rest on, but for those that are only compared."""
    found, pending = set(), list(forms)
    while pending:
        form = pending.pop()
        new = [atom for atom, _ in form.terms if atom not in found] if form.varies else []
        found.update(new)
        pending += [each for atom in new for each in atoms.varying[atom][1] if isinstance(each, LinearForm)]
    return found


def _product(atoms: Atoms, of: Derivative, value: LinearForm, a: LinearForm, b: LinearForm) -> LinearForm:
    return atoms.add(atoms.multiply(of(a), b), atoms.multiply(a, of(b)))


def _quotient(atoms: Atoms, of: Derivative, value: LinearForm, a: LinearForm, b: LinearForm) -> LinearForm:
    return atoms.multiply(atoms.subtract(of(a), atoms.multiply(value, of(b))), atoms.divide(UNIT, b))


def _larger(atoms: Atoms, of: Derivative, value: LinearForm, a: LinearForm, b: LinearForm) -> LinearForm:
    return atoms.select(atoms.compare("gt", a, b), of(b), of(a))


def _sign(atoms: Atoms, of: Derivative, value: LinearForm, a: LinearForm) -> LinearForm:
    return atoms.make("chosen", ZERO, ZERO, atoms.compare("ne", a, ZERO))


def _floor(atoms: Atoms, of: Derivative, value: LinearForm, a: LinearForm) -> LinearForm:
    part = atoms.subtract(a, value)
    between = logic("and", atoms.compare("gt", part, ZERO), atoms.compare("lt", part, UNIT))
    return atoms.make("chosen", ZERO, ZERO, between)


RULES: dict[str, Callable[..., LinearForm]] = {
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


Entries = np.ndarray

FUNCTIONS = ("sin", "cos", "exp", "log", "sqrt", "atan", "abs", "sign", "floor")
_LOGIC = ("and", "or", "not")
_FOLDED = {"sum": "add", "max": "max", "min": "min", "and": "and", "or": "or"}
# What they are of no entries.
_OF_NONE = {"sum": ZERO, "max": -np.inf, "min": np.inf, "and": True, "or": False}
# Places of entries that are selected, repeated or moved, by NumPy.
_MOVED = {
    "reshape": lambda a, new_sizes, **_: a.reshape(new_sizes),
    "squeeze": lambda a, dimensions, **_: np.squeeze(a, dimensions),
    "expand_dims": lambda a, dimensions, **_: np.expand_dims(a, dimensions),
    "transpose": lambda a, permutation, **_: np.transpose(a, permutation),
    "rev": lambda a, dimensions, **_: np.flip(a, dimensions),
    "slice": lambda a, start_indices, limit_indices, strides, **_: a[
        tuple(slice(*each) for each in zip(start_indices, limit_indices, strides or [1] * a.ndim, strict=True))
    ],
}
_PLACED = ("dynamic_slice", "dynamic_update_slice", "gather", "pad", "scatter")


def refuse(name: str, place: str = "") -> NoReturn:
    """`ValueError` that names a primitive without an enclosure, and where it is."""
    raise ValueError(
        f"certify: JAX's primitive {name!r} has no enclosure{f' ({place})' if place else ''}. Write the vector field, guard or "
        "reset in float64 with + - * /, sqrt, exp, log, sin, cos, tan, atan, tanh, powers, choices, and products of arrays; "
        "loops and calls to linear solvers have none."
    )


class Graph:
    r"""A function of a state and of parameters, as forms of atoms that are ordered by levels.

    **Attributes:** `shape`: of the result. `truth`: whether the result is one of truth values. `fixed`, `varying`: the levels of
    the atoms that depend on the parameters alone, and on the state. Graphs are compared by identity, as static parts of programs.
    """

    def __init__(self, atoms: Atoms, entries: Entries):
        self.shape = entries.shape
        flat = list(entries.ravel())
        self.truth = any(isinstance(each, bool | np.bool_ | Condition) for each in flat)
        self.varying = Levels(atoms.varying, [atoms.lifted(each) for each in flat], True, atoms.places)
        self.fixed = Levels(atoms.fixed, self.varying.coefficients, False)

    def places(self, *names: str) -> tuple[str, ...]:
        """Where the atoms of some kinds are written."""
        kinds = [kind for _, kinds in self.varying.levels for kind in kinds if kind.name in names]
        return tuple(dict.fromkeys(place for kind in kinds for place in kind.places))


class Sketch:
    r"""Functions of one state and of parameters, as forms of the same atoms, and their derivatives.

    **Arguments:** `examples`: arrays, of which the first `varying` are states and the others parameters. **Attributes:** `x`: the
    entries of the first state. `atoms`.
    """

    def __init__(self, *examples: Any, varying: int = 1):
        self.atoms, self._examples, self._given = Atoms(), examples, []
        counts = {True: 0, False: 0}
        for i, example in enumerate(examples):
            varies, shape = i < varying, np.shape(example)
            each = [self.atoms.input(varies, counts[varies] + k) for k in range(int(np.prod(shape)))]
            counts[varies] += len(each)
            self._given.append(_array(each, shape))
        self.x: Entries = self._given[0]

    def read(self, function: Callable, x: Entries | None = None) -> Entries:
        """The entries of a function of arrays such as the examples, that gives one array; at another state, `x`.

        `ValueError` for a primitive without an enclosure.
        """
        x = self.x if x is None else x
        closed = core_jaxpr(function, jnp.zeros(x.shape), *self._examples[1:])
        known = dict(zip(closed.jaxpr.invars, [x, *self._given[1:]], strict=True))
        known.update(zip(closed.jaxpr.constvars, map(_known, closed.consts), strict=True))
        read = lambda atom: _known(atom.val) if isinstance(atom, jex.Literal) else known[atom]
        with jax.ensure_compile_time_eval():
            for equation in closed.jaxpr.eqns:
                self.atoms.place = place_of(equation)
                outputs = _apply(self.atoms, equation, [read(atom) for atom in equation.invars])
                known.update(zip(equation.outvars, outputs, strict=True))
        (result,) = [read(atom) for atom in closed.jaxpr.outvars]
        return result

    def along(self, results: Entries, direction: Entries) -> Entries:
        """The derivative of entries along a direction, entries of the shape of the state."""
        return _array(along(self.atoms, list(results.ravel()), list(direction.ravel())), results.shape)

    def gradient(self, results: Entries) -> Entries:
        """The derivative of entries by the state, shape `(*results, *x)`."""
        sides = [self.along(results, side) for side in _sides(self.x.shape)]
        return np.stack(sides, axis=-1).reshape(*results.shape, *self.x.shape)

    def graph(self, results: Entries) -> Graph:
        """The graph of entries."""
        return Graph(self.atoms, results)


def _sides(shape: tuple[int, ...]) -> list[Entries]:
    """The directions in each of which one entry grows."""
    size = int(np.prod(shape))
    return [_array([number(int(i == k)) for i in range(size)], shape) for k in range(size)]


def graph_of(function: Callable, *examples: Any, varying: int = 1) -> Graph:
    """The graph of a function of flat arrays that gives one array. `ValueError` for a primitive without an enclosure.

    **Arguments:** as for `Sketch`.
    """
    sketch = Sketch(*examples, varying=varying)
    return sketch.graph(sketch.read(function))


def _array(entries: list, shape: tuple[int, ...]) -> Entries:
    array = np.empty(len(entries), object)
    array[:] = entries
    return array.reshape(shape)


def _known(value: Any) -> Entries:
    """Numbers as exact fixed forms, truth values as they are, in an array of objects; integers as an array of integers."""
    value = np.asarray(value)
    if value.dtype.kind in "iu":
        return value
    if value.dtype.kind == "b":
        return _array([bool(each) for each in value.ravel()], value.shape)
    if value.dtype.kind != "f":
        refuse(f"a number of type {value.dtype}")
    # Infinite numbers and NaN may be compared with, and be cases that are not taken.
    exact = [number(float(each)) if np.isfinite(each) else float(each) for each in value.ravel()]
    return _array(exact, value.shape)


def _apply(atoms: Atoms, equation: Any, inputs: list[Entries]) -> list[Entries]:
    """The results of one equation of a core jaxpr."""
    name, params = equation.primitive.name, equation.params
    if name not in SMOOTHNESS:
        refuse(name, atoms.place)
    if name == "convert_element_type":
        return [_converted(atoms, inputs[0], equation.invars[0].aval.dtype, np.dtype(params["new_dtype"]))]
    if all(each.dtype != object for each in inputs):
        outputs = equation.primitive.bind(*inputs, **params)
        return [_known(each) for each in (outputs if equation.primitive.multiple_results else [outputs])]
    if name in _MOVED:
        return [_MOVED[name](inputs[0], **params)]
    if name == "broadcast_in_dim":
        shape = [1] * len(params["shape"])
        for axis, size in zip(params["broadcast_dimensions"], inputs[0].shape, strict=True):
            shape[axis] = size
        return [np.broadcast_to(inputs[0].reshape(shape), params["shape"])]
    if name == "concatenate":
        return [np.concatenate(inputs, axis=params["dimension"])]
    if name in _PLACED:
        return [_placed(equation, inputs, atoms.place)]
    dtype = equation.invars[-1].aval.dtype
    if dtype.kind == "f" and dtype != np.float64:
        refuse(f"{name} in {dtype}", atoms.place)
    infinite = any(isinstance(each, float) for entries in inputs if entries.dtype == object for each in entries.ravel())
    if infinite and name not in (*COMPARED, "select_n"):
        refuse(f"{name} of a number that is not finite", atoms.place)
    if name.startswith("reduce_") and name[7:] in _FOLDED:
        function = _of_entries(atoms, _FOLDED[name[7:]], dtype)
        return [_folded(function, inputs[0], params["axes"], _OF_NONE[name[7:]])]
    return [_entrywise(_of_entries(atoms, name, dtype), inputs)]


def _of_entries(atoms: Atoms, name: str, dtype: np.dtype) -> Callable:
    """The function of the forms at one place that a primitive is. **Arguments:** `dtype`: of their numbers."""
    kind = dtype.kind
    named = {
        "add": atoms.add, "add_any": atoms.add, "sub": atoms.subtract, "mul": atoms.multiply, "neg": atoms.negative,
        "max": lambda a, b: atoms.make("max", a, b),
        "min": lambda a, b: atoms.negative(atoms.make("max", atoms.negative(a), atoms.negative(b))),
        "select_n": lambda which, *cases: _selected(atoms, which, cases),
    }  # fmt: skip
    if kind == "b" and name in ("eq", "ne"):
        return lambda a, b: logic("not", _either(a, b)) if name == "eq" else _either(a, b)
    if name in COMPARED and kind != "b":
        compared = _compared_integers if kind in "iu" else _compared
        return lambda a, b: compared(atoms, name, a, b)
    if name in named and kind in "iu" and name not in ("max", "min", "select_n"):
        return lambda *each: _wrapped(atoms, named[name](*each), dtype)
    if name in named and (kind != "b" or name == "select_n"):
        return named[name]
    if name in _LOGIC and kind == "b":
        return lambda *each: logic(name, *each)
    if kind == "f" and name == "div":
        return atoms.divide
    if kind == "f" and name in FUNCTIONS:
        return lambda a: atoms.function(name, a)
    refuse(name if kind == "f" else f"{name} of {'truth values' if kind == 'b' else 'integers'}", atoms.place)


def _either(a: Condition | bool, b: Condition | bool) -> Condition | bool:
    """Whether one of two truth values holds and the other does not."""
    return logic("or", logic("and", a, logic("not", b)), logic("and", logic("not", a), b))


def _compared(atoms: Atoms, name: str, a: LinearForm | float, b: LinearForm | float) -> Condition | bool:
    """A comparison of real numbers, of which floats are those that are not finite."""
    if isinstance(a, LinearForm) and isinstance(b, LinearForm):
        return atoms.compare(name, a, b)
    x, y = (each if isinstance(each, float) else 0.0 for each in (a, b))
    return COMPARED[name](0.0 if x == y else x - y)


def _selected(atoms: Atoms, which: Any, cases: Sequence) -> Any:
    """One of some cases, by a condition or by an integer."""
    if not isinstance(which, bool) and any(isinstance(each, float) for each in cases):
        refuse("select_n of a number that is not finite", atoms.place)
    if not isinstance(which, LinearForm):
        return atoms.select(which, *cases)
    chosen = cases[0]
    for k, case in enumerate(cases[1:], 1):
        chosen = atoms.select(_compared_integers(atoms, "ge", which, number(k)), chosen, case)
    return chosen


def _compared_integers(atoms: Atoms, name: str, a: LinearForm, b: LinearForm) -> Condition | bool:
    """A comparison of forms that are integers: with a half between them, so that it is decided where they are enclosed."""
    half = number(Fraction(1, 2))
    above = lambda a, b: atoms.compare("gt", a, atoms.add(b, half))
    if name in ("eq", "ne"):
        apart = logic("or", above(a, b), above(b, a))
        return apart if name == "ne" else logic("not", apart)
    first, second = (a, b) if name in ("gt", "le") else (b, a)
    return above(first, second) if name in ("gt", "lt") else logic("not", above(first, second))


def _entrywise(function: Callable, inputs: list[Entries]) -> Entries:
    inputs = [_known(each.astype(float)) if each.dtype != object else each for each in inputs]
    wide = np.broadcast_arrays(*inputs)
    return _array([function(*each) for each in zip(*(a.ravel() for a in wide), strict=True)], wide[0].shape)


def _folded(function: Callable, entries: Entries, axes: tuple[int, ...], of_none: Any) -> Entries:
    """Entries along some axes, together: a sum, or the largest. **Arguments:** `of_none`: of no entries."""
    kept = [i for i in range(entries.ndim) if i not in axes]
    shape = tuple(entries.shape[i] for i in kept)
    count = math.prod(entries.shape[i] for i in axes)
    rows = np.transpose(entries, (*kept, *axes)).reshape(*shape, count)
    return _array([ft.reduce(function, rows[at]) if count else of_none for at in np.ndindex(*shape)], shape)


def _placed(equation: Any, inputs: list[Entries], place: str) -> Entries:
    """The primitive applied to the numbers of the entries, which are integers in floating point."""
    store, shown = [], []
    if any(
        each.dtype == object and var.aval.dtype.kind in "iu" for each, var in zip(inputs, equation.invars, strict=True)
    ):
        refuse(f"{equation.primitive.name} at a place that is computed", place)
    for each in inputs:
        if each.dtype == object:
            shown.append(np.arange(len(store), len(store) + each.size, dtype=float).reshape(each.shape))
            store += list(each.ravel())
        else:
            shown.append(each)
    # What `gather` puts in for a place out of bounds is no place.
    params = equation.params | ({"fill_value": np.nan} if equation.primitive.name == "gather" else {})
    places = np.asarray(equation.primitive.bind(*shown, **params))
    if not np.all(np.isfinite(places)):
        refuse(f"{equation.primitive.name} out of bounds", place)
    return _array([store[int(i)] for i in places.ravel()], places.shape)


def _wrapped(atoms: Atoms, a: LinearForm, dtype: np.dtype) -> LinearForm:
    """An integer as its type holds it: modulo the count of the type's numbers. By a half, it is decided also at their ends."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    turns = atoms.multiply(atoms.add(a, number(Fraction(1, 2) - low)), number(Fraction(1, high - low + 1)))
    return atoms.subtract(a, atoms.multiply(atoms.function("floor", turns), number(high - low + 1)))


def _converted(atoms: Atoms, entries: Entries, old: np.dtype, new: np.dtype) -> Entries:
    """Entries of another type: truth values as 0 and 1, numbers as the type holds them."""
    if entries.dtype != object:
        return _known(entries.astype(new))
    if (new.kind == "b" and old.kind == "b") or (new == np.float64 and old.kind == "f"):
        return entries
    known = [each if isinstance(each, bool) else getattr(each, "literal", None) for each in entries.ravel()]
    literals = [float(each) for each in known if each is not None]
    if len(literals) == len(known):
        return _known(np.array(literals, old).astype(new).reshape(entries.shape))
    if new not in (np.int32, np.int64, np.float64) and (new.kind not in "iu" or old.kind == "f"):
        refuse(f"convert_element_type to {new}", atoms.place)

    def converted(each: Any) -> LinearForm:
        if old.kind == "b":
            return atoms.select(each, number(0), number(1))
        if isinstance(each, float):
            refuse("convert_element_type of a number that is not finite", atoms.place)
        if old.kind == "f" and new.kind == "i":
            # Beyond its range the type's last number.
            low, high = (number(int(end)) for end in (np.iinfo(new).min, np.iinfo(new).max))
            each = atoms.make("max", each, low)
            each = atoms.negative(atoms.make("max", atoms.negative(each), atoms.negative(high)))
            toward_zero = atoms.function("floor", atoms.make("abs", each))
            return atoms.multiply(atoms.function("sign", each), toward_zero)
        return _wrapped(atoms, each, new) if new.kind in "iu" else each

    return _array([converted(each) for each in entries.ravel()], entries.shape)
