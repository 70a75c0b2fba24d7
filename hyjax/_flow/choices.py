r"""Choices that a function makes by time or state, and at which its value jumps.

`jnp.where(x < 1, 1.0, 2.0)` and `jnp.sign(x)` have the right values, but JAX differentiates the branch taken: the derivatives
of a flow lack the saltation at $x = 1$, where a mode with a guard has it. Whether a value jumps cannot be read off a program:
that of `jnp.where(x > 0, x**2, 0.0)` does not. So the program says where a real number becomes a discrete one, and numbers say
whether the function's value jumps there. The program also says where an index is out of range.
"""

import functools as ft
import itertools
import linecache
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import source_info_util
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun, Literal
from jaxtyping import Array

# Operations whose real result jumps; the others that choose have an integer or a condition as result.
_JUMPING = {"sign", "floor", "ceil", "round", "rem", "atan2"}
# Conditions that are true nearly everywhere, or not about the value; not `eq`, by which derivatives of `maximum` choose.
_EXEMPT = {"ne", "is_finite"}
# Operations whose program is not known.
_OPAQUE = {"pure_callback", "io_callback"}
# The largest length of a scan, number of choices, and number of entries of a choice among arrays that are tested.
_LONGEST_SCAN, _MOST_CHOICES, _MOST_ENTRIES = 32, 64, 4
# Starts of the search; points evaluated at once; numbers in the arrays of the search.
_STARTS, _POINTS, _LARGEST = 24, 512, 1e6


# File and line of the user's code at which a real number becomes a discrete one.
Choice = tuple[str, int]
# A choice, its margin, which is zero where the choice changes (NaN where no margin is known), and the value chosen.
Seen = tuple[Choice, Array, Array]


def jumps_of(
    program: ClosedJaxpr,
    t: Array | jax.ShapeDtypeStruct,
    x: Array | jax.ShapeDtypeStruct,
    *rest: Any,
    through_zero: bool = False,
    held: int = 0,
) -> list[str]:
    """The choices at which the value of `program`, a function of `(t, x, *rest)`, jumps: `file:line` of each, and its text.

    **Arguments:** `t`, `x`, `rest`: inputs where known, else their shapes: numbers are drawn for those. `through_zero`: only
    jumps from one sign to the other count. `held`: of how many coordinates, the last, no change is met, as those that a flow does
    not move. Jumps are looked for around `(t, x)` and at many scales. Not found: choices within a
    `while_loop`, and jumps of less than a millionth.
    """
    nowhere, kinds = ("unknown", 0), [each.dtype for each in program.out_avals]
    if len(kinds) != 1 or not jnp.issubdtype(kinds[0], jnp.floating) or not may_jump(program.jaxpr, nowhere):
        return []
    if any(is_key(leaf) for leaf in (*rest, *program.consts)) or _opaque(program.jaxpr):
        return []
    draw = np.random.default_rng(0)
    inputs = [_known(leaf, draw) for leaf in rest]
    consts = [_known(leaf, draw) for leaf in program.consts]
    dtype, size = x.dtype, x.shape[0]
    moving = size + 1 - held
    found: list[Choice] = []

    def values(y, rest):
        seen: list[Seen] = []
        traced = y[0].astype(dtype), jnp.concatenate([y[1:], rest]).astype(dtype)
        outputs, _ = _evaluate(
            program.jaxpr, consts, [*traced, *inputs], [True, True] + [False] * len(inputs), seen, nowhere
        )
        seen = [each for each in seen if not _ours(each[0]) and each[1].size]
        few = [np.unique(np.linspace(0, u.size - 1, _MOST_ENTRIES).astype(int)) for _, u, _ in seen]
        found[:] = [choice for choice, k in zip((each[0] for each in seen), few, strict=True) for _ in k]
        some = [(jnp.ravel(u)[k], jnp.ravel(d)[k]) for (_, u, d), k in zip(seen, few, strict=True)]
        flat = lambda parts: jnp.concatenate([part.astype(dtype) for part in parts] or [jnp.zeros(0, dtype)])
        kept = _kept(len(found))
        return jnp.ravel(outputs[0]).astype(dtype), flat([u for u, _ in some])[kept], flat([d for _, d in some])[kept]

    with jax.ensure_compile_time_eval():
        jax.eval_shape(values, jax.ShapeDtypeStruct((moving,), dtype), jax.ShapeDtypeStruct((held,), dtype))
        owners = [found[k] for k in _kept(len(found))]
        if not owners:
            return []
        shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((_POINTS, moving), (held,))]
        fast = jax.jit(jax.vmap(values, in_axes=(0, None))).lower(*shapes)
        compiled = fast.compile(compiler_options={"xla_backend_optimization_level": "0"})

        def at(rest, points):
            points = np.asarray(points, dtype)
            filled = np.resize(points, (-(-len(points) // _POINTS) * _POINTS, moving))
            parts = [compiled(block, rest) for block in filled.reshape(-1, _POINTS, moving)]
            return [
                np.concatenate([np.asarray(each) for each in column])[: len(points)]
                for column in zip(*parts, strict=True)
            ]

        whole = np.append(_centre(t), _centre(x))
        centre, tail = np.split(whole, [moving])
        jumping = set()
        for flags in (tail, np.zeros(held), np.ones(held)) if held else (tail,):
            each = ft.partial(at, np.asarray(flags, dtype))
            with np.errstate(all="ignore"):
                jumping |= _numbers_that_jump(
                    each, centre, len(owners), draw, float(jnp.finfo(dtype).eps), through_zero
                )
    return [_described(each) for each in dict.fromkeys(owners[i] for i in sorted(jumping))]


def shape_of(fn: Callable, *args: Any, what: str) -> Any:
    """The type of a function's value. `ValueError`, which begins with `what`, for an index out of range: see `check_indices`."""
    program, kind, static = eqx.filter_make_jaxpr(fn)(*args)
    check_indices(program, what)
    return eqx.combine(kind, static)


def check_indices(program: ClosedJaxpr, what: str) -> None:
    """`ValueError`, which begins with `what`, where an array has no entry at an index that does not depend on inputs: JAX would
    read the nearest entry, and write none. Not found: among an array of indices."""
    if wrong := _out_of_range(program.jaxpr, program.consts, [None] * len(program.jaxpr.invars), ("unknown", 0)):
        index, shape, at = wrong
        raise ValueError(f"{what} has the index {index} of an array of shape {shape} at {_described(at)}.")


# What JAX makes of an index, by NumPy, which compiles nothing.
_OF_INDEX = {
    "lt": np.less,
    "add": np.add,
    "select_n": lambda which, *ways: np.choose(np.asarray(which, int), ways),
    "convert_element_type": np.asarray,
    "broadcast_in_dim": np.atleast_1d,
    "concatenate": lambda *parts: np.concatenate(parts),
}


def _is_index(value: Any) -> bool:
    """Whether a value is known, and a whole number, or an array of these, or of conditions."""
    if isinstance(value, jax.core.Tracer) or not hasattr(value, "dtype"):
        return isinstance(value, int)
    return jnp.issubdtype(value.dtype, jnp.integer) or jnp.issubdtype(value.dtype, jnp.bool_)


def _out_of_range(
    jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[Any], caller: Choice
) -> tuple[tuple[int, ...], tuple[int, ...], Choice] | None:
    """An index out of range, the shape of its array, and the place. **Arguments:** `inputs`: `None` where unknown."""
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *inputs], strict=True))
    read = lambda atom: atom.val if isinstance(atom, Literal) else env.get(atom)
    shape_at = lambda atom: getattr(atom.aval, "shape", ())
    index: Sequence[Any]
    axes: Sequence[int]
    sizes: Sequence[int]
    for equation in jaxpr.eqns:
        known: list[Any] = list(map(read, equation.invars))
        name, shape = equation.primitive.name, shape_at(equation.invars[0]) if equation.invars else ()
        if name == "dynamic_slice" and all(map(_is_index, known[1:])):
            index, axes, sizes = known[1:], range(len(shape)), equation.params["slice_sizes"]
        elif name.startswith("scatter") and _is_index(known[1]) and np.ndim(known[1]) == 1:
            numbers = equation.params["dimension_numbers"]
            index, axes = known[1], numbers.scatter_dims_to_operand_dims
            sizes = [int(axis in numbers.inserted_window_dims) for axis in range(len(shape))]
        else:
            index, axes, sizes = (), (), ()
        if any(not 0 <= k <= shape[axis] - sizes[axis] for k, axis in zip(index, axes, strict=True)):
            return tuple(map(int, index)), shape, _place(equation) or caller
        if name in _OF_INDEX and all(map(_is_index, known)) and shape_at(equation.outvars[0]) in ((), (len(known),)):
            env[equation.outvars[0]] = _OF_INDEX[name](*known)
        called = _called(equation)
        parts = [(called.jaxpr, called.consts, known)] if called else [
            (part, [None] * len(part.constvars), [None] * len(part.invars)) for part in _inner(equation)
        ]  # fmt: skip
        if wrong := next(filter(None, (_out_of_range(*each, _place(equation) or caller) for each in parts)), None):
            return wrong
    return None


def _described(choice: Choice) -> str:
    file, line = choice
    text = linecache.getline(file, line).strip()
    return f"{Path(file).name}:{line}" + (f" ({text})" if text else "")


def _centre(value: Any) -> np.ndarray:
    known = not isinstance(value, jax.core.Tracer | jax.ShapeDtypeStruct)
    return np.asarray(value, float) if known else np.zeros(value.shape)


def _kept(count: int) -> np.ndarray:
    """Indices of the choices that are tested: all, unless there are very many."""
    return np.unique(np.linspace(0, max(count - 1, 0), _MOST_CHOICES).astype(int)) if count else np.zeros(0, int)


def is_key(leaf: Any) -> bool:
    """Whether a leaf holds keys of random numbers."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _opaque(jaxpr: Jaxpr) -> bool:
    return any(each.primitive.name in _OPAQUE or any(map(_opaque, _inner(each))) for each in jaxpr.eqns)


def _known(leaf: Any, draw: np.random.Generator) -> Any:
    """The leaf, or numbers drawn in place of a traced leaf."""
    if not isinstance(leaf, jax.core.Tracer | jax.ShapeDtypeStruct):
        return leaf
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return np.asarray(draw.lognormal(size=leaf.shape), leaf.dtype)
    return jnp.zeros(leaf.shape, leaf.dtype)


def _ours(choice: Choice) -> bool:
    """Whether the choice is one of hyjax's own, as in the law of an impact: the modes of a system of contacts account for it."""
    package = Path(__file__).parent.parent
    file = Path(choice[0])
    return package in file.parents and package / "models" not in file.parents


def _numbers_that_jump(
    at: Callable, centre: np.ndarray, count: int, draw: np.random.Generator, eps: float, through_zero: bool
) -> set[int]:
    """The numbers of the choices across which the value jumps. **Arguments:** `at`: of points, the values, the margins of the
    choices and what is chosen."""
    n = centre.size
    scales = 10.0 ** draw.uniform(-2, 2, (_STARTS, 1))
    starts = scales * draw.normal(size=(_STARTS, n)) + np.where(np.arange(_STARTS)[:, None] % 2, centre, 0)
    starts[:, 0] = centre[0] + np.abs(starts[:, 0] - centre[0])
    f, _, chosen = at(starts)
    size = np.nan_to_num(np.nanmedian(np.where(np.isfinite(f), np.abs(f), np.nan), axis=0)) if len(f) else 0

    # Pairs of starts between which the choice differs.
    ends = [
        (i, starts[a], starts[b])
        for i in range(count)
        for a, b in itertools.islice(
            ((a, b) for a, b in itertools.combinations(range(_STARTS), 2) if chosen[a, i] != chosen[b, i]), 8
        )
    ]
    # Pairs about a zero of each choice's margin, by Newton's method from each start.
    tried = min(_STARTS, int(_LARGEST / (count * (n + 1) * (n + 1 + count))))
    which, y = np.repeat(np.arange(count), tried), np.tile(starts[:tried], (count, 1))
    for _ in range(8 if tried else 0):
        step = 1e-3 * np.sqrt(eps) ** 0.5 * (1 + np.abs(y))
        moved = y[:, None] + np.concatenate([np.zeros((1, n)), np.eye(n)]) * step[:, None]
        margins = at(moved.reshape(-1, n))[1].reshape(len(y), n + 1, -1)[np.arange(len(y)), :, which]
        slope = (margins[:, 1:] - margins[:, :1]) / step
        square = np.sum(slope**2, axis=1)
        good = np.isfinite(margins[:, 0]) & np.isfinite(square) & (square > 0)
        y = y - np.where(good, margins[:, 0] / np.where(good, square, 1), 0)[:, None] * np.where(
            good[:, None], slope, 0
        )
        y[:, 0] = np.maximum(y[:, 0], centre[0])
    for width in (1e-2, 1e-5) if tried else ():
        reach = width * (1 + np.abs(y)) * slope / np.sqrt(np.where(good, square, 1))[:, None]
        left, right, rows = at(y - reach)[2], at(y + reach)[2], np.arange(len(y))
        other = good & (left[rows, which] != right[rows, which])
        ends += [(which[k], y[k] - reach[k], y[k] + reach[k]) for k in np.flatnonzero(other)]
    if not ends:
        return set()

    which, low, high = (np.array(column) for column in zip(*ends, strict=True))
    rows, start = np.arange(len(which)), at(low)[2][np.arange(len(which)), which]
    for _ in range(int(-np.log2(eps)) + 8):
        middle = (low + high) / 2
        same = (at(middle)[2][rows, which] == start)[:, None]
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    # The change of the function over an equally short distance on either side: a square root is steep at zero, without a jump.
    gap = high - low
    (a2, *_, c2), (a, *_, c), (b, *_, d), (b2, *_, d2) = (at(z) for z in (low - gap, low, high, high + gap))
    steady = (c2[rows, which] == c[rows, which]) & (d2[rows, which] == d[rows, which])
    jump, natural = np.abs(b - a), np.abs(a - a2) + np.abs(b2 - b)
    least = (1e-6 if eps < 1e-10 else 1e-3) * (size + np.minimum(np.abs(a), np.abs(b)))
    counts = np.isfinite(jump) & ((a * b <= 0) | (not through_zero))
    jumps = np.any((jump > least) & (jump > 100 * natural) & counts, axis=1) & steady
    return set(which[jumps].tolist())


def _inner(equation: Any) -> list[Jaxpr]:
    parts = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda part: isinstance(part, ClosedJaxpr | Jaxpr))
    return [
        part.jaxpr if isinstance(part, ClosedJaxpr) else part for part in parts if isinstance(part, ClosedJaxpr | Jaxpr)
    ]


def _chooses(equation: Any) -> bool:
    """Whether the operation takes real numbers, and its result is discrete."""
    name = equation.primitive.name
    real = lambda atom: hasattr(atom.aval, "dtype") and jnp.issubdtype(atom.aval.dtype, jnp.inexact)
    discrete = any(not real(atom) for atom in equation.outvars)
    return any(map(real, equation.invars)) and (name in _JUMPING or (discrete and name not in _EXEMPT))


def may_jump(jaxpr: Jaxpr, caller: Choice) -> bool:
    """Whether the program has a choice that is not hyjax's own."""
    for each in jaxpr.eqns:
        inner = _inner(each)
        if inner or _chooses(each):
            at = _place(each) or caller
            if any(may_jump(part, at) for part in inner) or (_chooses(each) and not _ours(at)):
                return True
    return False


def _evaluate(
    jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[Any], marks: Sequence[bool], seen: list[Seen], caller: Choice
) -> tuple[list, list[bool]]:
    """The outputs of the program, and whether they depend on the marked inputs; choices that depend on these are added to `seen`.
    All branches of a `cond` are evaluated. **Arguments:** `caller`: the place of an equation that has none, as those of a
    function of JAX."""
    env = {v: (c, False) for v, c in zip(jaxpr.constvars, consts, strict=True)}
    env |= {v: each for v, each in zip(jaxpr.invars, zip(inputs, marks, strict=True), strict=True)}
    read = lambda atom: (atom.val, False) if isinstance(atom, Literal) else env[atom]
    for equation in jaxpr.eqns:
        if not equation.outvars:
            # A print or a check.
            continue
        known = [read(atom) for atom in equation.invars]
        values, depends = [value for value, _ in known], [mark for _, mark in known]
        name, params, marked = equation.primitive.name, equation.params, any(depends)
        at = _place(equation) or caller
        called = _called(equation) if marked else None
        if called is not None:
            out, out_marks = _evaluate(called.jaxpr, called.consts, values, depends, seen, at)
        elif marked and name == "cond":
            ways = [_evaluate(way.jaxpr, way.consts, values[1:], depends[1:], seen, at) for way in params["branches"]]
            index = jnp.clip(jnp.asarray(values[0], int), 0, len(ways) - 1)
            of_way, marks_of_way = zip(*ways, strict=True)
            out = [jnp.stack(list(map(jnp.asarray, column)))[index] for column in zip(*of_way, strict=True)]
            out_marks = [depends[0] or any(column) for column in zip(*marks_of_way, strict=True)]
        elif marked and name == "scan" and params["length"] <= _LONGEST_SCAN:
            out, out_marks = _unrolled(params, values, depends, seen, at)
        else:
            taken = list(dict.fromkeys(atom for atom in equation.invars if not isinstance(atom, Literal)))
            alone = jaxpr.replace(constvars=[], invars=taken, outvars=equation.outvars, eqns=[equation])
            out = jaxpr_as_fun(ClosedJaxpr(alone, []))(*(env[atom][0] for atom in taken))
            # A choice by a value whose derivative is cut is meant.
            out_marks = [marked and name != "stop_gradient"] * len(out)
            if marked and _chooses(equation):
                seen += _observed(equation, values, out, at)
        env |= zip(equation.outvars, zip(out, out_marks, strict=True), strict=True)
    return [read(atom)[0] for atom in jaxpr.outvars], [read(atom)[1] for atom in jaxpr.outvars]


def _called(equation: Any) -> ClosedJaxpr | None:
    """The program of a value that an operation calls once: of a function with a derivative rule, that of the value."""
    if equation.primitive.name in ("cond", "scan", "while"):
        return None
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inner = equation.params.get(key)
        if isinstance(inner, Jaxpr):
            inner = ClosedJaxpr(inner, [])
        if isinstance(inner, ClosedJaxpr) and len(inner.jaxpr.invars) == len(equation.invars):
            return inner
    return None


def _unrolled(
    params: dict, values: Sequence, depends: Sequence[bool], seen: list[Seen], at: Choice
) -> tuple[list, list]:
    consts, carries, length = params["num_consts"], params["num_carry"], params["length"]
    fixed, carry, rows = values[:consts], list(values[consts : consts + carries]), values[consts + carries :]
    known, marks = list(depends[:consts]), list(depends[consts : consts + carries])
    collected, every = [None] * length, [False] * (len(params["jaxpr"].jaxpr.outvars) - carries)
    for k in reversed(range(length)) if params["reverse"] else range(length):
        inputs, body = [*fixed, *carry, *(row[k] for row in rows)], params["jaxpr"]
        out, out_marks = _evaluate(
            body.jaxpr, body.consts, inputs, [*known, *marks, *depends[consts + carries :]], seen, at
        )
        carry, collected[k] = out[:carries], out[carries:]
        marks = [a or b for a, b in zip(marks, out_marks[:carries], strict=True)]
        every = [a or b for a, b in zip(every, out_marks[carries:], strict=True)]
    stacked = [jnp.stack(column) for column in zip(*collected, strict=True)]  # pyright: ignore[reportArgumentType]
    return [*carry, *stacked], [*marks, *every]


def _place(equation: Any) -> Choice | None:
    """The innermost line outside JAX and equinox; None for an equation within a function of JAX that was traced elsewhere."""
    # "file:line:column (function)", the innermost last
    found = re.findall(r"(?m)^(.*?):(\d+)(?::\d+)? \(", source_info_util.summarize(equation.source_info, num_frames=8))
    return next(((file, int(line)) for file, line in reversed(found) if "equinox" not in Path(file).parts), None)


def _observed(equation: Any, values: Sequence, out: Sequence, choice: Choice) -> list[Seen]:
    """The choice of an operation."""
    name, first = equation.primitive.name, jnp.asarray(values[0])
    near = lambda u: u - jnp.round(u)
    if name in ("lt", "le", "gt", "ge", "lt_to", "le_to"):
        margin, chosen = first - values[1], out[0]
    elif name == "sign":
        margin, chosen = first, out[0]
    elif name == "atan2":
        margin, chosen = first, (first < 0) & (values[1] < 0)
    elif name == "rem":
        ratio = first / values[1]
        margin, chosen = near(ratio), jnp.trunc(ratio)
    elif name in ("floor", "ceil", "convert_element_type"):
        margin, chosen = near(first), out[0]
    elif name == "round":
        margin, chosen = near(first - 0.5), out[0]
    else:
        discrete = [each for each in out if not jnp.issubdtype(each.dtype, jnp.inexact)]
        return [(choice, jnp.full(each.shape, jnp.nan), each) for each in discrete]
    return [(choice, jnp.broadcast_to(margin, jnp.shape(chosen)), chosen)]
