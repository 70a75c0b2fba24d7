"""Programs of JAX: on which inputs a value depends, how many operations there are, and one evaluation for equal operations, or
for functions that differ in numbers.

The guards and conditions of an impact compute the same quantities. XLA merges equal operations too, but only after it has written
out every call, which takes most of the time to compile a system with several contacts: half the operations compile in half the
time (jax 0.10.2; https://github.com/jax-ml/jax/issues/15736 says that this is left to XLA).
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun, JaxprEqn, Literal, Var
from jaxtyping import Array, PyTree

# A jitted function of at most this number of operations is written out, so that parts shared with other functions are found.
SMALL = 16
# The operations that call a program once, and the parameter that holds this program.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


@jax.jit
def rounding_scale(number: Array) -> Array:
    """The absolute value, as the scale of rounding errors alone: `depends_on` does not follow it."""
    return jnp.abs(number)


def depends_on(closed: ClosedJaxpr, first: int) -> bool:
    """Whether an output of the program depends on one of its `first` inputs: a result of an operation on a value depends on it,
    also where it is a multiplication by zero. Inner functions and loops are looked through, `rounding_scale` is not."""
    inputs = len(closed.jaxpr.invars)
    return any(_outputs(closed.jaxpr, [k < first for k in range(inputs)]))


def _outputs(jaxpr: Jaxpr, marked: Sequence[bool]) -> list[bool]:
    """Which outputs depend on the marked inputs."""
    known = {variable for variable, mark in zip(jaxpr.invars, marked, strict=True) if mark}
    seen = lambda variable: not isinstance(variable, Literal) and variable in known
    for equation in jaxpr.eqns:
        inputs = [seen(variable) for variable in equation.invars]
        name, params = equation.primitive.name, equation.params
        if not any(inputs) or _scales_rounding(equation):
            continue
        if name == "cond" and not inputs[0]:
            ways = [_outputs(branch.jaxpr, inputs[1:]) for branch in params["branches"]]
            outputs = [any(each) for each in zip(*ways, strict=True)]
        elif name in _CALLS:
            inner = params[_CALLS[name]]
            outputs = _outputs(inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner, inputs)
        elif name == "scan":
            consts, carry = params["num_consts"], params["num_carry"]
            outputs = _repeated(params["jaxpr"].jaxpr, inputs[:consts], inputs[consts:], carry)
        elif name == "while":
            n = params["cond_nconsts"]
            consts, carried = inputs[n : n + params["body_nconsts"]], inputs[n + params["body_nconsts"] :]
            outputs = _repeated(params["body_jaxpr"].jaxpr, consts, carried, len(carried))
            if any(_outputs(params["cond_jaxpr"].jaxpr, [*inputs[:n], *outputs])):
                outputs = [True] * len(outputs)
        else:
            outputs = [True] * len(equation.outvars)
        if equation.effects:
            # What it writes to depends on what it reads.
            known.update(variable for variable in equation.invars if not isinstance(variable, Literal))
        known.update(variable for variable, mark in zip(equation.outvars, outputs, strict=True) if mark)
    return [seen(variable) for variable in jaxpr.outvars]


def _scales_rounding(equation: JaxprEqn) -> bool:
    if equation.primitive.name != "jit" or equation.params["name"] != "rounding_scale":
        return False
    return [each.primitive.name for each in equation.params["jaxpr"].jaxpr.eqns] == ["abs"]


def _repeated(jaxpr: Jaxpr, consts: Sequence[bool], others: Sequence[bool], carry: int) -> list[bool]:
    """Which outputs of a loop depend on the marked inputs; the first `carry` of `others` are carried from pass to pass."""
    carried, others = list(others[:carry]), list(others[carry:])
    while True:
        outputs = _outputs(jaxpr, [*consts, *carried, *others])
        after = [before or now for before, now in zip(carried, outputs, strict=False)]
        if after == carried:
            return [*carried, *outputs[carry:]]
        carried = after


def operations(jaxpr: Jaxpr, loop: int = 1) -> int:
    """The number of operations, those of inner functions included, in the body of a loop counted `loop` times."""
    total = 0
    for equation in jaxpr.eqns:
        parts = jax.tree.leaves(list(equation.params.values()))
        closed = [part.jaxpr for part in parts if isinstance(part, ClosedJaxpr)]
        inner = [*closed, *(part for part in parts if isinstance(part, Jaxpr))]
        times = loop if equation.primitive.name in ("scan", "while") else 1
        total += times * sum(operations(each, loop) for each in inner) if inner else 1
    return total


def once(fn: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """`fn`, a function of PyTrees that returns arrays, with equal operations evaluated once, and those of no use never. It is
    as differentiable as `fn`."""

    def apply(*inputs: PyTree) -> PyTree:
        arrays, rest = eqx.partition(inputs, eqx.is_array)
        traced, shapes = jax.make_jaxpr(lambda arrays: fn(*eqx.combine(arrays, rest)), return_shape=True)(arrays)
        out = _evaluate(traced.jaxpr, traced.consts, jax.tree.leaves(arrays), {})
        return jax.tree.unflatten(jax.tree.structure(shapes), out)

    return apply


def evaluate_alike(functions: Sequence[Callable[..., Array]], *inputs: PyTree) -> Array:
    """The values of functions at the same inputs, of one shape, stacked. Functions that are one program but for its numbers, such
    as the gaps of several feet, are evaluated as one, in a batch of these numbers."""
    arrays, rest = eqx.partition(inputs, eqx.is_array)
    leaves = jax.tree.leaves(arrays)
    traced = [jax.make_jaxpr(lambda arrays, fn=fn: fn(*eqx.combine(arrays, rest)))(arrays) for fn in functions]
    alike: dict[Hashable, list[int]] = {}
    for i, closed in enumerate(traced):
        alike.setdefault(_form(closed), []).append(i)
    values = []
    for members in alike.values():
        closed, columns = traced[members[0]], list(zip(*(_numbers(traced[i]) for i in members), strict=True))
        varies = [any(not _equal(number, column[0]) for number in column) for column in columns]
        batch = [jnp.stack(column) for column, new in zip(columns, varies, strict=True) if new]

        def one(batch, closed=closed, columns=columns, varies=varies):
            given = iter(batch)
            numbers = [next(given) if new else column[0] for column, new in zip(columns, varies, strict=True)]
            return _with_numbers(closed.jaxpr, numbers, leaves)

        found = jax.vmap(one)(batch) if batch else one(batch)[None]
        values.append(jnp.broadcast_to(found, (len(members), *found.shape[1:])))
    order = np.argsort([i for members in alike.values() for i in members])
    whole = values[0] if len(values) == 1 else jnp.concatenate(values)
    return whole if np.array_equal(order, np.arange(len(order))) else whole[order]


def _form(closed: ClosedJaxpr) -> Hashable:
    """The form of a program apart from its numbers: constants, and literals of its own operations. Inner programs are alike where
    they are one object, as those of JAX's own functions."""
    places: dict[Var, int] = {}
    place = lambda atom: atom.aval if isinstance(atom, Literal) else (atom.aval, places.setdefault(atom, len(places)))
    head = [place(variable) for variable in (*closed.jaxpr.constvars, *closed.jaxpr.invars)]
    body = []
    for eqn in closed.jaxpr.eqns:
        params = tuple(sorted(eqn.params.items(), key=lambda item: item[0]))
        try:
            hash(params)
        except TypeError:
            return id(closed)
        body.append((eqn.primitive, params, *map(place, eqn.invars), *map(place, eqn.outvars)))
    return (*head, *body, *map(place, closed.jaxpr.outvars))


def _equal(number: Any, other: Any) -> bool:
    known = not any(isinstance(each, jax.core.Tracer) for each in (number, other))
    # By bytes: 0.0 and -0.0 are two numbers.
    return number is other or (known and np.asarray(number).tobytes() == np.asarray(other).tobytes())


def _numbers(closed: ClosedJaxpr) -> list[Any]:
    """Constants and literals of a program, in order."""
    atoms = [*(atom for eqn in closed.jaxpr.eqns for atom in eqn.invars), *closed.jaxpr.outvars]
    return [*closed.consts, *(np.asarray(atom.val, _dtype(atom)) for atom in atoms if isinstance(atom, Literal))]


def _dtype(atom: Literal | Var) -> Any:
    return atom.aval.dtype  # pyright: ignore[reportAttributeAccessIssue]


def _with_numbers(jaxpr: Jaxpr, numbers: Sequence[Any], inputs: Sequence[Any]) -> Any:
    """The output of a program with other numbers: its literals are made inputs."""
    literals: list[Var] = []

    def lifted(atom):
        if isinstance(atom, Literal):
            literals.append(Var(atom.aval))
            return literals[-1]
        return atom

    eqns = [eqn.replace(invars=[lifted(atom) for atom in eqn.invars]) for eqn in jaxpr.eqns]
    outvars = [lifted(atom) for atom in jaxpr.outvars]
    count = len(jaxpr.constvars)
    invars = [*jaxpr.constvars, *literals, *jaxpr.invars]
    whole = jaxpr.replace(constvars=[], invars=invars, outvars=outvars, eqns=eqns)
    typed = [jnp.asarray(number, _dtype(literal)) for number, literal in zip(numbers[count:], literals, strict=True)]
    (found,) = jaxpr_as_fun(ClosedJaxpr(whole, []))(*numbers[:count], *typed, *inputs)
    return found


def _evaluate(
    jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[Any], known: dict[Hashable, tuple[list, list]]
) -> list:
    """The outputs of `jaxpr`. **Arguments:** `known`: the outputs of the operations so far, by what determines them."""
    # Equal constants, such as the same unit vectors written twice, are one.
    consts = [known.setdefault(_number(each), ([each], []))[0][0] for each in consts]
    env = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, inputs, strict=True))
    read = lambda atom: atom.val if isinstance(atom, Literal) else env[atom]
    for eqn in _needed(jaxpr):
        values = [read(atom) for atom in eqn.invars]
        key = None if eqn.effects else _key(eqn, values)
        if key is None or key not in known:
            inner = eqn.params["jaxpr"] if eqn.primitive.name == "jit" else None
            if inner is not None and len(inner.jaxpr.eqns) <= SMALL and not _scales_rounding(eqn):
                out = _evaluate(inner.jaxpr, inner.consts, values, known)
            else:
                taken = list(dict.fromkeys(atom for atom in eqn.invars if not isinstance(atom, Literal)))
                alone = jaxpr.replace(constvars=[], invars=taken, outvars=eqn.outvars, eqns=[eqn], effects=eqn.effects)
                out = jaxpr_as_fun(ClosedJaxpr(alone, []))(*map(read, taken))
            if key is not None:
                # The inputs are kept too, so that no other array gets the `id` of one of them.
                known[key] = out, values
        else:
            out, _ = known[key]
        env |= zip(eqn.outvars, out, strict=True)
    return [read(atom) for atom in jaxpr.outvars]


def _needed(jaxpr: Jaxpr) -> list[JaxprEqn]:
    """The operations on which an output depends, and those with effects."""
    needed, kept = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}, []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or not needed.isdisjoint(eqn.outvars):
            kept.append(eqn)
            needed.update(atom for atom in eqn.invars if not isinstance(atom, Literal))
    return kept[::-1]


def _number(const: Any) -> Hashable:
    """A key that is equal for equal constants; of a traced one, of itself."""
    if isinstance(const, jax.core.Tracer) or jnp.issubdtype(const.dtype, jax.dtypes.extended):
        return id(const)
    return const.dtype, const.shape, getattr(const, "weak_type", False), np.asarray(const).tobytes()


def _key(eqn: Any, values: Sequence[Any]) -> Hashable | None:
    """A key that is equal for equal operations on the same inputs; `None` for an operation whose parameters have no hash."""
    number = lambda atom, value: (str(value), atom.aval) if isinstance(atom, Literal) else id(value)
    key = (
        eqn.primitive,
        tuple(number(*each) for each in zip(eqn.invars, values, strict=True)),
        tuple(sorted(eqn.params.items(), key=lambda item: item[0])),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key
