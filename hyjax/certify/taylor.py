r"""Taylor coefficients in time of a flow, by recurrences over the computational graph of its vector field.

With $u_n$ the coefficients of $u(t)$, $(uv)_n = \sum_j u_j v_{n-j}$, $(\sin u)_n = \frac1n\sum_j j u_j (\cos u)_{n-j}$ and so on,
and $x_{n+1} = f_n / (n + 1)$ for $\dot x = f(x)$. Every recurrence has one convolution $\sum_j l_j r_{n-j}$ of two series that
are known below order $n$, so all atoms of a level of the graph share one. The graph is read twice: for the order zero by
functions of Taylor models, and once for all further orders, in a loop.

Source: Moore (1966), *Interval Analysis*, Ch. 11; Griewank, Walther (2008), *Evaluating Derivatives*, Sec. 13.2.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from . import functions
from .exact_numbers import balls_of
from .interpret import certain, combine, decisions, joined, JUMPS, KINKS, known_where, LevelValues, run
from .rounding import EPS, TINY, up
from .schedule import Kind, operand, ScheduleLevel
from .symbolic import Graph
from .taylor_model import (
    Basis,
    constant,
    left_factor,
    multiply,
    negative,
    placed,
    product_of,
    right_factor,
    scale,
    Series,
    subtract,
    TaylorModel,
    zeros,
)

# The kinds of atoms whose recurrence has a convolution.
CONVOLVED = ("mul", "div", "sin_cos", "exp", "sqrt", "log", "atan")


# What the recurrences of a level remember: the factors $l_j$ at index `j`, shape `(orders, N + degree + 2, atoms)`; $r_j$ at
# index `orders - 1 - j` and zeros beyond, so that $r_{n-j}$, or zero, is at index `j` of a slice, shape `(2 orders - 1, ...)`;
# values of order zero by the kind's name: the reciprocals by which quotients, roots, logarithms multiply, and what was chosen.
Recurrence = tuple[Array, Array, dict[str, Any]]


def _put(at: Recurrence, n, left: TaylorModel, right: TaylorModel) -> Recurrence:
    """The recurrence with the terms of order `n` of the two series."""
    lefts, rights, first = at
    orders = lefts.shape[0]
    rights = placed(rights, orders - 1 - n, right_factor(right, orders))
    return placed(lefts, n, left_factor(left)), rights, first


def _convolved(at: Recurrence, n, basis: Basis) -> TaylorModel:
    r"""$\sum_{j=0}^n l_j r_{n-j}$."""
    left, rights, _ = at
    orders = left.shape[0]
    return product_of(left, jax.lax.dynamic_slice_in_dim(rights, orders - 1 - n, orders), basis)


def over(a: TaylorModel, number) -> TaylorModel:
    """The quotient by a number that is an exact float."""
    quotient = a.coefficients / number
    rounding = jnp.sum(jnp.abs(quotient), axis=0) * EPS
    return TaylorModel(quotient, up(a.radius / number + rounding + TINY, a.basis.size), a.basis)


def _nothing(a: TaylorModel) -> TaylorModel:
    return constant(jnp.zeros(a.shape), a.basis)


def _started(kinds: tuple[Kind, ...], at: LevelValues, orders: int) -> Recurrence:
    """The series of a level with their order zero."""
    (operands, values), left, right, first = at, [], [], {}
    for kind, value in zip(kinds, values, strict=True):
        a = operand(kind, operands)
        if kind.name in ("mul", "div", "atan"):
            b = operand(kind, operands, 1)
        if kind.name == "mul":
            left, right = [*left, a], [*right, b]
        elif kind.name == "div":
            left, right = [*left, value], [*right, b]
            first["div"] = functions.reciprocal(b)
        elif kind.name == "sin_cos":
            left, right = [*left, _nothing(value)], [*right, value[kind.count :], value[: kind.count]]
        elif kind.name == "exp":
            left, right = [*left, _nothing(a)], [*right, value]
        elif kind.name == "sqrt":
            left, right = [*left, _nothing(a)], [*right, _nothing(a)]
            first["sqrt"] = functions.reciprocal(value)
        elif kind.name == "log":
            left, right = [*left, _nothing(a)], [*right, a]
            first["log"] = functions.reciprocal(a)
        elif kind.name == "atan":
            left, right = [*left, _nothing(a)], [*right, b]
            first["atan"] = functions.reciprocal(b)
        elif kind.name in ("select", "chosen"):
            holds, fails = decisions(kind.conditions, operands)
            first[kind.name] = holds, holds | fails
        elif kind.name in (*JUMPS, *KINKS):
            apart = subtract(a, operand(kind, operands, 1)) if kind.name == "max" else a
            first[kind.name] = apart.center > 0, certain(kind, operands)
    if not left:
        return jnp.zeros(0), jnp.zeros(0), first
    l, r = joined(left), joined(right)
    size = (l.basis.size + l.basis.degree + 2, *l.shape)
    return _put((jnp.zeros((orders, *size)), jnp.zeros((2 * orders - 1, *size)), first), 0, l, r)


def _before(kinds: tuple[Kind, ...], operands: TaylorModel, number) -> tuple[TaylorModel, TaylorModel]:
    """The terms of order `n` of the two series as far as the operands tell, zero where they do not."""
    left, right = [], []
    for kind in kinds:
        a = operand(kind, operands)
        unknown = _nothing(a)
        if kind.name == "mul":
            left, right = [*left, a], [*right, operand(kind, operands, 1)]
        elif kind.name in ("div", "atan"):
            left, right = [*left, unknown], [*right, operand(kind, operands, 1)]
        elif kind.name == "sin_cos":
            rate = scale(a, number)
            left, right = [*left, rate, rate], [*right, unknown, unknown]
        elif kind.name == "exp":
            left, right = [*left, scale(a, number)], [*right, unknown]
        elif kind.name == "sqrt":
            left, right = [*left, unknown], [*right, unknown]
        elif kind.name == "log":
            left, right = [*left, unknown], [*right, a]
    return joined(left), joined(right)


def _after(kinds: tuple[Kind, ...], left: TaylorModel, right: TaylorModel, values: list[TaylorModel], number):
    """The terms of order `n` of the two series, from the values of that order."""
    lefts, rights, at = [], [], 0
    for kind, value in zip(kinds, values, strict=True):
        if kind.name not in CONVOLVED:
            continue
        width = kind.count * (2 if kind.name == "sin_cos" else 1)
        l, r = left[at : at + width], right[at : at + width]
        at += width
        if kind.name in ("div", "sqrt"):
            l = value
        elif kind.name in ("log", "atan"):
            l = scale(value, number)
        if kind.name == "sin_cos":
            r = joined([value[kind.count :], value[: kind.count]])
        elif kind.name in ("exp", "sqrt"):
            r = value
        lefts.append(l)
        rights.append(r)
    return joined(lefts), joined(rights)


def _value(kind: Kind, operands: TaylorModel, sums: TaylorModel, first: dict, number) -> TaylorModel:
    """The coefficient of order `n` of the atoms of one kind, from their convolutions."""
    a, name = operand(kind, operands), kind.name
    if name == "mul":
        return sums
    if name == "div":
        return multiply(subtract(a, sums), first["div"])
    if name == "sin_cos":
        rates = over(sums, number)
        return joined([rates[: kind.count], negative(rates[kind.count :])])
    if name == "exp":
        return over(sums, number)
    if name == "sqrt":
        # y_n = (u_n - sum of y_j y_{n-j} over 0 < j < n) / 2 y_0
        return multiply(over(subtract(a, sums), 2.0), first["sqrt"])
    if name in ("log", "atan"):
        # y' d = u', with d = u for the logarithm and 1 + u^2 for the arc tangent.
        return multiply(subtract(a, over(sums, number)), first[name])
    # A case that is chosen with certainty; nothing is known of the rates of the others.
    which, decided = first[name]
    if name in ("sign", "floor"):
        return known_where(decided, _nothing(a))
    if name == "abs":
        return known_where(decided, TaylorModel(a.coefficients * jnp.where(which, 1.0, -1.0), a.radius, a.basis))
    b = operand(kind, operands, 1)
    return known_where(decided, functions.where(which, a, b) if name == "max" else functions.where(which, b, a))


def _advanced(
    level: ScheduleLevel, at: Recurrence, memory: TaylorModel, constants, n, number
) -> tuple[TaylorModel, Recurrence]:
    """The coefficients of order `n` in memory, with those of a level's atoms; and what the level remembers."""
    rows, kinds = level
    operands, values, column = combine(rows, memory, constants), [], 0
    convolved, sums = [kind.name for kind in kinds if kind.name in CONVOLVED], operands
    left = right = operands
    if convolved:
        left, right = _before(kinds, operands, number)
        at = _put(at, n, left, right)
        sums = _convolved(at, n, operands.basis)
    for kind in kinds:
        width = 0 if kind.name not in CONVOLVED else kind.count * (2 if kind.name == "sin_cos" else 1)
        part = sums[column : column + width] if width else operands[:0]
        values.append(_value(kind, operands, part, at[2], number))
        column += width
    if convolved and convolved != ["mul"]:
        at = _put(at, n, *_after(kinds, left, right, values, number))
    return joined([memory, *values]), at


def flow_coefficients(graph: Graph, x: TaylorModel, leaves: Sequence[Any], orders: int) -> Series:
    r"""The Taylor coefficients $x_0, \dots, x_{\text{orders}}$ in time of the flow of $\dot x = f(x, \dots)$ from $x$.

    **Arguments:** `graph`: of the field, whose result has the shape of the state. `x`: the initial states. `leaves`: the
    parameters. **Returns:** a series of `orders + 1` Taylor models of the shape of `x`.
    """
    constants, start = balls_of(graph, leaves), x.map(jnp.ravel)
    memory, done = run(graph.varying, start, constants)
    rates = combine(graph.varying.results, memory, constants)
    levels = graph.varying.levels
    recurrences = [_started(kinds, at, orders) for (_, kinds), at in zip(levels, done, strict=True)]
    states = zeros(orders + 1, start).put(0, start).put(1, rates)

    def advance(n, carry):
        states, recurrences = carry
        number = jnp.asarray(n, x.radius.dtype)
        memory = joined([constant(jnp.zeros(1), x.basis), states[n]])
        later = []
        for level, at in zip(levels, recurrences, strict=True):
            memory, at = _advanced(level, at, memory, constants, n, number)
            later.append(at)
        rates = combine(graph.varying.results, memory, constants)
        return states.put(n + 1, over(rates, number + 1)), later

    states, _ = jax.lax.fori_loop(1, orders, advance, (states, recurrences))
    shape = x.shape
    return Series(
        states.coefficients.reshape(*states.coefficients.shape[:2], *shape),
        states.radius.reshape(orders + 1, *shape),
        x.basis,
    )
