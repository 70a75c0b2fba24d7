"""The computational graph of a function of JAX, entry by entry: its jaxpr as forms of atoms."""

import functools as ft
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import numpy as np
from jax.extend import core as jex

from .core import core_jaxpr
from .forms import Atoms, COMPARED, Condition, Form, logic, number
from .levels import Levels

Entries = np.ndarray

FUNCTIONS = ("sin", "cos", "exp", "log", "sqrt", "atan", "abs", "sign")
_LOGIC = ("and", "or", "not")
_FOLDED = {"sum": "add", "max": "max", "min": "min", "and": "and", "or": "or"}
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


def refuse(name: str) -> NoReturn:
    """`ValueError` that names a primitive without an enclosure."""
    raise ValueError(
        f"certify: JAX's primitive {name!r} has no enclosure. Write the vector field, guard or reset with + - * /, sqrt, exp, "
        "log, sin, cos, tan, atan, tanh, powers, comparisons and products of arrays; loops and calls to linear solvers have "
        "none."
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
        results = [each if self.truth else atoms.lifted(each) for each in flat]
        self.varying = Levels(atoms.varying, results, True)
        self.fixed = Levels(atoms.fixed, self.varying.coefficients, False)


def graph_of(function: Callable, *examples: Any, varying: int = 1) -> Graph:
    """The graph of a function of flat arrays. `ValueError` for a primitive without an enclosure.

    **Arguments:** `function`: of arrays such as `examples`, of which the first `varying` are states and the others parameters. It
    gives one array.
    """
    closed, atoms = core_jaxpr(function, *examples), Atoms()
    known, counts = {}, {True: 0, False: 0}
    for i, var in enumerate(closed.jaxpr.invars):
        varies, shape = i < varying, var.aval.shape
        each = [atoms.input(varies, counts[varies] + k) for k in range(int(np.prod(shape)))]
        counts[varies] += len(each)
        known[var] = _array(each, shape)
    known.update(zip(closed.jaxpr.constvars, map(_known, closed.consts), strict=True))
    read = lambda atom: _known(atom.val) if isinstance(atom, jex.Literal) else known[atom]
    with jax.ensure_compile_time_eval():
        for equation in closed.jaxpr.eqns:
            outputs = _apply(atoms, equation, [read(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, outputs, strict=True))
    (result,) = [read(atom) for atom in closed.jaxpr.outvars]
    return Graph(atoms, result)


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
    if not np.all(np.isfinite(value)):
        raise ValueError("certify: a number in a vector field, guard or reset is not finite.")
    return _array([number(float(each)) for each in value.ravel()], value.shape)


def _apply(atoms: Atoms, equation: Any, inputs: list[Entries]) -> list[Entries]:
    """The results of one equation of a core jaxpr."""
    name, params = equation.primitive.name, equation.params
    if all(each.dtype != object for each in inputs) and name != "convert_element_type":
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
        return [_placed(equation, inputs)]
    if name.startswith("reduce_") and name[7:] in _FOLDED:
        return [_folded(_of_entries(atoms, _FOLDED[name[7:]]), inputs[0], params["axes"])]
    if name == "convert_element_type":
        return [_converted(atoms, inputs[0], params["new_dtype"])]
    return [_entrywise(_of_entries(atoms, name), inputs)]


def _of_entries(atoms: Atoms, name: str) -> Callable:
    """What a primitive does with the forms at one place."""
    if name in COMPARED:
        return lambda a, b: atoms.compare(name, a, b)
    if name in _LOGIC:
        return lambda *each: logic(name, *each)
    if name in FUNCTIONS:
        return lambda a: atoms.function(name, a)
    named = {
        "add": atoms.add, "add_any": atoms.add, "sub": atoms.subtract, "mul": atoms.multiply, "div": atoms.divide,
        "neg": atoms.negative, "max": lambda a, b: atoms.make("max", a, b),
        "min": lambda a, b: atoms.negative(atoms.make("max", atoms.negative(a), atoms.negative(b))),
        "select_n": atoms.select,
    }  # fmt: skip
    return named[name] if name in named else refuse(name)


def _entrywise(function: Callable, inputs: list[Entries]) -> Entries:
    inputs = [_known(each.astype(float)) if each.dtype != object else each for each in inputs]
    wide = np.broadcast_arrays(*inputs)
    return _array([function(*each) for each in zip(*(a.ravel() for a in wide), strict=True)], wide[0].shape)


def _folded(function: Callable, entries: Entries, axes: tuple[int, ...]) -> Entries:
    """Entries along some axes, together: a sum, or the largest."""
    kept = [i for i in range(entries.ndim) if i not in axes]
    shape = tuple(entries.shape[i] for i in kept)
    rows = np.transpose(entries, (*kept, *axes))
    return _array(
        [ft.reduce(function, rows[at].ravel()) if rows[at].size else number(0) for at in np.ndindex(*shape)], shape
    )


def _placed(equation: Any, inputs: list[Entries]) -> Entries:
    """The primitive applied to the numbers of the entries, which are integers in floating point."""
    store, shown = [], []
    for each in inputs:
        if each.dtype == object:
            shown.append(np.arange(len(store), len(store) + each.size, dtype=float).reshape(each.shape))
            store += list(each.ravel())
        else:
            shown.append(each)
    places = np.asarray(equation.primitive.bind(*shown, **equation.params))
    if not np.all(np.isfinite(places)):
        refuse(f"{equation.primitive.name} out of bounds")
    return _array([store[int(i)] for i in places.ravel()], places.shape)


def _converted(atoms: Atoms, entries: Entries, dtype) -> Entries:
    if entries.dtype != object:
        return _known(entries.astype(dtype))
    if np.dtype(dtype).kind == "b":
        return entries if all(isinstance(each, bool | Condition) for each in entries.ravel()) else refuse("convert")
    if np.dtype(dtype).kind != "f":
        refuse("convert_element_type to integers")
    as_number = lambda each: each if isinstance(each, Form) else atoms.select(each, number(0), number(1))
    return _array([as_number(each) for each in entries.ravel()], entries.shape)
