"""Checks of the arguments of public functions, before anything is computed."""

import enum
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._results.working import warn
from .._system.every import Clock
from .._system.system import HybridSystem, Transition
from .._system.types import Params, State, Time
from .choices import check_indices, is_key, jumps_of, shape_of
from .integrator import Integrators


def _concrete(leaf) -> bool:
    return eqx.is_array_like(leaf) and not isinstance(leaf, jax.core.Tracer)


def check_params(params: Params) -> Params:
    """The parameters, with arrays in place of Python's floating-point numbers, each of which `jit` would compile anew.

    `ValueError` for a parameter that is not finite, and for an object that is no PyTree and is equal to itself alone, or has no
    hash, or is called as a function is and has numbers: JAX would not see that these change. Traced parameters are not checked.
    """
    leaves, structure = jax.tree.flatten(params)
    for k, leaf in enumerate(leaves):
        infinite = _concrete(leaf) and not is_key(leaf) and not np.all(np.isfinite(_numbers(leaf)))
        if infinite or _is_opaque(leaf):
            path, _ = jax.tree_util.tree_leaves_with_path(params)[k]
            name = jax.tree_util.keystr(path).lstrip(".") or "params"
            if infinite:
                raise ValueError(f"params: {name} = {leaf} is not finite. Give a finite number.")
            raise ValueError(
                f"params: {name} is a {type(leaf).__name__}, of which JAX sees no numbers, nor that they change. Make the class "
                "a PyTree, such as an eqx.Module, or by jax.tree_util.register_dataclass; or give a dictionary."
            )
    floating = lambda leaf: isinstance(leaf, float | np.floating)
    return jax.tree.unflatten(structure, [jnp.asarray(leaf) if floating(leaf) else leaf for leaf in leaves])


def _numbers(leaf) -> np.ndarray:
    return np.asarray(leaf, complex if np.iscomplexobj(leaf) else float)


def _is_opaque(leaf) -> bool:
    """Whether a leaf is an object whose content JAX cannot compare, or an object with numbers that is called as a function is."""
    if eqx.is_array_like(leaf) or isinstance(leaf, enum.Enum | type | types.ModuleType | types.FunctionType):
        return False
    if callable(leaf):
        own = leaf.__self__ if isinstance(leaf, types.MethodType) else leaf
        number = lambda each: eqx.is_array_like(each) and not isinstance(each, bool)
        return jax.tree_util.all_leaves([own]) and any(map(number, getattr(own, "__dict__", {}).values()))
    own = type(leaf)
    return own.__hash__ is None or own.__eq__ is object.__eq__


def as_numbers(x: Array | Sequence) -> Array:
    """The numbers as an array; `ValueError` for anything else."""
    try:
        return x if isinstance(x, jax.Array) else jnp.asarray(x)
    except (TypeError, ValueError):
        raise ValueError(f"state: {x!r} is no array of numbers.") from None


def check_state(x: State, dimension: int, mode: str) -> Array:
    """The state as a floating-point array of the mode's dimension; `ValueError` otherwise."""
    x = as_numbers(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"state: {x} has dtype {x.dtype.name}; a state is a floating array. Write 1.0 for 1, or x.astype(float)."
        )
    if x.shape != (dimension,):
        raise ValueError(
            f"state: shape {x.shape} does not fit mode {mode!r}, which has {dimension} coordinates. Give shape "
            f"({dimension},); use jax.vmap for batches."
        )
    if _concrete(x) and not np.all(np.isfinite(np.asarray(x))):
        raise ValueError(f"state: {x} is not finite. Give finite numbers.")
    return x


def check_times(t: float | Array, dtype, caller: str, name: str, ndim: int) -> Array:
    """A time, or `ndim` axes of times, as an array; `ValueError` for anything else."""
    try:
        # A number is converted by NumPy, which needs no compiled program.
        times = jnp.asarray(np.asarray(t, dtype) if isinstance(t, int | float) else t, dtype)
    except (TypeError, ValueError):
        times = None
    if times is None or times.ndim != ndim:
        wanted = "numbers in one dimension" if ndim else "one number. Use jax.vmap for several"
        raise ValueError(f"{caller}: {name}={t!r} must be {wanted}.")
    return times


def sized(system: HybridSystem, t: Time, x: State, params: Params) -> HybridSystem:
    """The system, in which each family of transitions knows the number of its guards. `ValueError` for a guard whose shape is not
    that of a family. **Arguments:** `x`: a state of any mode, of which the dtype matters."""

    def size_of(k: int) -> int:
        way = system.transitions[k]
        what = f"The guard of transition {way.source!r} -> {way.target!r}"
        at = jax.ShapeDtypeStruct((system.mode(way.source).dimension,), x.dtype)
        shape = getattr(_shape_of(way.guard, t, at, params, what, ""), "shape", None)
        if shape is None or len(shape) != 1 or not shape[0]:
            raise ValueError(
                f"{what} must return shape (k,) with k > 0, not {shape}: its reset takes the number of a guard. For a single "
                "guard give reset(t, x, params)."
            )
        return shape[0]

    return system.with_sizes(size_of)


def check_system(system: HybridSystem, t: Time, x: State, params: Params) -> HybridSystem:
    """The system, which knows the sizes of its families, with the functions of all modes checked. **Arguments:** `x`: a state of
    any mode, of which the dtype matters."""
    system = sized(system, t, x, params)
    for name, each in system.modes.items():
        check_mode(system, name, t, jax.ShapeDtypeStruct((each.dimension,), x.dtype), params)
    return system


def check_mode(system: HybridSystem, name: str, t: Time, x: State | jax.ShapeDtypeStruct, params: Params) -> None:
    """`ValueError` where a function of a mode, or of a transition that leaves the mode, returns a wrong shape or dtype, or has an
    index out of range.

    A warning, once for each function, where its value jumps by a choice of its own, of which derivatives know nothing. A mode
    that was right for arguments of the same shapes and dtypes is not looked at again.
    """
    mode = system.mode(name)
    for i in system.leaving(name):
        _check_clock(system.transitions[i], params, x.dtype)
    leaves, structure = jax.tree.flatten((system, t, params))
    kinds = (_kind(leaf) if eqx.is_array(leaf) else (type(leaf), leaf) for leaf in leaves)
    right = name, x.shape, x.dtype, structure, tuple(kinds)
    try:
        if right in _right_modes:
            return
    except TypeError:
        # Without a hash, as an own class may be that is a parameter: looked at in every call.
        right = None

    def shape(
        fn, what: str, expected: tuple[int, ...], dtype=x.dtype, vector: bool = False, jumps: str = "", remedy=""
    ):
        out = _shape_of(fn, t, x, params, what, jumps, len(mode.held))
        if not hasattr(out, "shape") or (out.shape != expected and not (vector and len(out.shape) == 1)):
            got = getattr(out, "shape", type(out).__name__)
            raise ValueError(f"{what} must return shape {expected}{' or (k,)' if vector else ''}, not {got}.{remedy}")
        # A reset may return another dtype, which is converted.
        if out.dtype != dtype and (dtype is not None or jnp.issubdtype(out.dtype, jnp.complexfloating)):
            raise ValueError(
                f"{what} returns {out.dtype.name}; it must return {jnp.dtype(dtype or x.dtype).name}"
                + (", a condition." if dtype is bool else ", as the state. Convert the parameters, or use .astype.")
            )

    rates = f"The vector_field of mode {name!r}"
    if mode.held:
        rates += f", followed by the rates of the {len(mode.held)} coordinates that are held,"
    shape(mode.vector_field, rates, x.shape, jumps=_FLOW_JUMPS)
    if mode.domain is not None:
        shape(mode.domain, f"The domain of mode {name!r}", (), vector=True)
    for i in system.leaving(name):
        transition = system.transitions[i]
        label = f"transition {transition.source!r} -> {transition.target!r}"
        members = () if transition._members is None else (transition._members,)
        single = "" if members else " A guard of shape (k,) is that of a family, with reset(t, x, params, i)."
        shape(transition.guard, f"The guard of {label}", members, jumps=_GUARD_JUMPS, remedy=single)
        after = (system.mode(transition.target).dimension,)
        leap = transition.member(jnp.array(0)).reset
        shape(leap, f"The reset of {label}", after, None, jumps=_RESET_JUMPS)
        if transition.armed is not None:
            every = bool(members) and _shape_of(transition.armed, t, x, params, "", "").shape == members
            shape(transition.armed, f"The function armed of {label}", members if every else (), bool)
    if right is not None:
        _remember(_right_modes, right, None)


def _check_clock(transition: Transition, params: Params, dtype) -> None:
    """`ValueError` for a clock's period that is not positive and finite, or a phase that is not finite: numbers of each call."""
    clock = transition.guard
    if not isinstance(clock, Clock) or not (callable(clock.period) or callable(clock.phase)):
        return
    period, phase = clock.times(params, dtype)
    label = f"transition {transition.source!r} -> {transition.target!r}"
    if _concrete(period) and not np.all((np.asarray(period) > 0) & np.isfinite(period)):
        raise ValueError(f"every: period={period} of {label} must be positive and finite.")
    if _concrete(phase) and not np.all(np.isfinite(phase)):
        raise ValueError(f"every: phase={phase} of {label} must be finite.")


def warn_of_kinks(system: HybridSystem, sequence: tuple[str, ...], t: Time, x: State, params: Params) -> None:
    """A warning, once for each vector field, where its first or second derivative jumps by a choice of its own: the flow then
    lacks derivatives of order two or three, which those of the program's steps do not tell."""
    for name in dict.fromkeys(sequence):
        mode = system.mode(name)
        at = jax.ShapeDtypeStruct((mode.dimension,), x.dtype)
        for order, word in enumerate(("first", "second"), 1):
            what = f"The {word} derivative of the vector_field of mode {name!r}"
            derivative = eqx.Partial(_derivative, mode.vector_field, order)
            _shape_of(derivative, t, at, params, what, _FLOW_KINKS, len(mode.held))


def _derivative(vector_field: Callable, order: int, t: Time, x: State, params: Params) -> Array:
    """The derivatives of a vector field by time and state, of that order, in one array."""
    found = lambda y: jnp.asarray(vector_field(y[0], y[1:], params), y.dtype)
    for _ in range(order):
        found = jax.jacfwd(found)
    return jnp.ravel(found(jnp.concatenate([t[None], x])))


def _kind(leaf: Array | np.ndarray | jax.ShapeDtypeStruct) -> tuple:
    """The properties of an array, or of its type, that are known while a function is traced, and whether it is traced itself."""
    return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False), isinstance(leaf, jax.core.Tracer)


def _remember(found: OrderedDict, key: Hashable, value: PyTree) -> None:
    found[key] = value
    if len(found) > _MOST_FUNCTIONS:
        found.popitem(last=False)


_FLOW_JUMPS = (
    "The flow is right, but its derivatives, and so multipliers and gradients, lack this jump. Make each side a mode, with a "
    "transition whose guard falls where the choice changes."
)
_RESET_JUMPS = (
    "Derivatives are those of the side taken, and lack the jump and what moves it. Make each side a transition, with armed= for "
    "its condition."
)
_GUARD_JUMPS = "An event at this jump has no right derivative. Give the condition as armed=, and the guard without it."
_FLOW_KINKS = (
    "Where the orbit crosses it, higher derivatives of the return map lack what this kink adds: the normal form is not right, "
    "and multipliers are to some six digits. Make each side a mode, with a transition whose guard falls where the choice changes."
)
# The type of a function's value, by the function and the types of its arguments. A function is traced when it is first used, as
# by `jax.jit`, and not at every call.
_known_functions: OrderedDict[Hashable, PyTree] = OrderedDict()
# Modes that were found right, with the functions of their system and the types of all arguments.
_right_modes: OrderedDict[Hashable, None] = OrderedDict()
_MOST_FUNCTIONS = 1024


def _shape_of(
    fn: Callable, t: Time, x: State | jax.ShapeDtypeStruct, params: Params, what: str, jumps: str, held: int = 0
) -> PyTree:
    """The type of the function's value. **Arguments:** `jumps`: what it means, in the warning, if the value jumps. `held`: how
    many coordinates are held, by which it may jump."""
    arrays, rest = eqx.partition((jnp.asarray(t), x, fn, params), lambda leaf: eqx.is_array(leaf) or leaf is x)
    leaves, structure = jax.tree.flatten(arrays)
    others, around = jax.tree.flatten(rest)
    key = (structure, around, tuple(map(_kind, leaves)), tuple(map(type, others)), tuple(others), bool(jumps), held)
    try:
        known = _known_functions.get(key)
    except TypeError:
        # A function that has no hash is traced at every call.
        return shape_of(fn, t, x, params, what=what)
    if known is None:

        def value(*leaves):
            t, x, fn, params = eqx.combine(jax.tree.unflatten(structure, leaves), rest)
            out = fn(t, x, params)
            if wrong := [leaf for leaf in jax.tree.leaves(out) if not eqx.is_array_like(leaf)]:
                raise ValueError(f"{what} must return an array, not {wrong[0]!r}.")
            return out

        shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=_kind(leaf)[2]) for leaf in leaves]
        program, known = jax.make_jaxpr(value, return_shape=True)(*shapes)
        check_indices(program, what)
        _remember(_known_functions, key, known)
        if jumps and (places := jumps_of(program, *leaves, through_zero=jumps is _GUARD_JUMPS, held=held)):
            warn(f"{what} jumps at {', '.join(places)}. {jumps}")
    return known


def check(system: HybridSystem, t, x, params: Params, sequence: tuple[str, ...], integrator: Integrators):
    """Check the arguments of an analysis along a sequence of modes. **Returns:** `(system, t, x, params)`, the numbers as arrays;
    the system knows the sizes of its families."""
    params = check_params(params)
    x = check_state(x, system.mode(sequence[0]).dimension, sequence[0])
    integrator.tolerances(x.dtype)
    t = jnp.asarray(t, x.dtype)
    system = sized(system, t, x, params)
    # Of a map the sequence is known to be one of the system; with the sizes of families also the numbers of guards.
    system.passes(sequence)
    for name in dict.fromkeys(sequence):
        at = jax.ShapeDtypeStruct((system.mode(name).dimension,), x.dtype)
        check_mode(system, name, t, at, params)
    return system, t, x, params
