"""Compilation of a program that a user's call runs by itself: most of the wait for a first result.

On a CPU two of XLA's options halve the time to compile: less of LLVM's optimization, and in jaxlib 0.10 XLA's older emitters of
kernels. JAX takes options for a whole program only: a call under the user's own `jit`, `grad` or `vmap` is a part of another
program, and `grad` and `jacrev` raise an error for a call with options. So the call looks whether JAX traces.
"""

import enum
import functools as ft
import math
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.core
from jax.extend.core import get_opaque_trace_state, Primitive, set_current_trace, take_current_trace
from jax.interpreters import ad, batching, mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo as hlo
from jaxtyping import PyTree

_P = ParamSpec("_P")
_T = TypeVar("_T")

# From jaxlib 0.11 on XLA has one generation of emitters, and refuses the option.
OLDER_EMITTERS = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}
SHORT = {"xla_backend_optimization_level": 0} | OLDER_EMITTERS
LONG = {"xla_backend_optimization_level": 1} | OLDER_EMITTERS
# In jaxlib 0.10 sums over arrays of many lanes are calls of a library, YNNPACK, five times as slow as XLA's own loops: for the
# second derivatives of a robot's accelerations at 350 states, 870 and 180 ms (no issue known upstream).
OWN_SUMS = {"xla_cpu_experimental_ynn_fusion_type": ""} if jax.__version_info__[:2] == (0, 10) else {}
# A batch of fewer lanes, of a stride or a few each, takes longer to compile than to run.
FEW = 4096
# One kernel is faster than a list up to some hundred lanes (a stride of the simplest walker: 16 lanes 16 and 22 us each, 256 lanes
# 3.2 and 4.4, 1024 lanes 5.2 and 4.3).
MOST_LANES = 256
# XLA's attribute, and what compiles in such a kernel, are those of the versions that were tried.
ONE_KERNEL = jax.__version_info__[:2] == (0, 10)
# Sums of up to some 4000 numbers are loops of XLA's own; a longer sum, like a product of matrices of 8 rows or more, is a call of a
# library, which a kernel cannot contain.
MOST_SUMMED, MOST_ROWS = 2048, 6
# Operations that compile in one kernel; of `chlo` all but calls of libraries do.
IN_KERNELS = frozenset(
    "abs add and atan2 bitcast_convert broadcast_in_dim cbrt ceil clamp compare complex concatenate constant convert cosine "
    "count_leading_zeros divide dynamic_slice dynamic_update_slice exponential exponential_minus_one floor gather imag iota "
    "is_finite log log_plus_one logistic maximum minimum multiply negate not optimization_barrier or pad popcnt power real "
    "remainder reshape return reverse round_nearest_afz round_nearest_even rsqrt select shift_left shift_right_arithmetic "
    "get_tuple_element shift_right_logical sign sine slice sqrt subtract tan tanh transpose tuple while case if xor".split()
)


class Purpose(enum.Enum):
    """What programs on a CPU are compiled for; see {py:func}`hyjax.fast.compile_for`.

    **Attributes:** `by_size`: the program of one result, or of a batch of fewer than 4096, compiles fast; that of a larger batch
    runs fast. `first_result`: all compile fast. `run_time`: all run fast.

    **Example:**

    >>> [purpose.name for purpose in hj.fast.Purpose]
    ['by_size', 'first_result', 'run_time']

    Source: XLA documentation, *XLA Flags Guidance*.
    """

    by_size = enum.auto()
    first_result = enum.auto()
    run_time = enum.auto()


_setting = {"purpose": Purpose.by_size}


def compile_for(purpose: Purpose) -> AbstractContextManager:
    r"""Choose whether calls outside of `jax.jit` run programs that compile fast, or programs that run fast, on a CPU.

    By default a call by itself, such as of `periodic_orbit`, compiles in half the time of `jax.jit`, into a program that takes 1
    to 2.5 times as long for one orbit; a sweep, basin or attractor of 4096 lanes or strides or more runs fast. No setting of JAX
    changes, and no program of a call under `jax.jit` or `jax.vmap`; nor under `jax.grad`, but for the gradient of
    `periodic_orbit`, whose search and pullback are programs of their own. Results of the two programs differ by rounding.

    **Arguments:** `purpose`: a `Purpose`: `by_size`, the default; `first_result`; or `run_time`. With `by_size`, an optimization
    level that the environment's `XLA_FLAGS` names is the level of all programs. `ValueError` for anything else.

    **Returns:** a context manager, at whose end the setting is again that before. Without `with`, the setting holds from the call
    on, in all threads.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> with hj.fast.compile_for(hj.fast.Purpose.run_time):
    ...     orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    ...
    >>> print(f"{orbit.period:.6f}")
    2.310015

    Source: XLA documentation, *XLA Flags Guidance*.
    """
    if not isinstance(purpose, Purpose):
        names = ", ".join(f"hj.fast.Purpose.{name}" for name in Purpose.__members__)
        raise ValueError(f"compile_for: purpose={purpose!r} must be one of {names}.")
    back = ExitStack()
    back.callback(_setting.update, purpose=_setting["purpose"])
    _setting["purpose"] = purpose
    return back


def short_run(fn: Callable[_P, _T]) -> Callable[_P, _T]:
    """`equinox.filter_jit` for a program that takes milliseconds: by itself on a CPU it is compiled without LLVM's optimization.

    A call under a transformation, where an array may be traced, is that of `equinox.filter_jit`.
    """
    return _compiled(fn, SHORT)


def long_run(fn: Callable[_P, _T]) -> Callable[_P, _T]:
    """`short_run` for a program of many strides or lanes: LLVM's first level of optimization keeps most of the run time."""
    return _compiled(fn, LONG)


def dense_run(fn: Callable[_P, _T]) -> Callable[_P, _T]:
    """`long_run` for a program of large arrays, whose sums are XLA's own."""
    return _compiled(fn, {**LONG, **OWN_SUMS})


def in_one_kernel(fn: Callable[_P, _T]) -> Callable[_P, _T]:
    """`fn`, of arrays, compiled on a CPU into one function of machine code.

    Otherwise XLA makes a list of kernels, one for each of its fused operations, and starts each in some 0.1 us: three to ten times
    the run time of a flow of few coordinates. A batch of many lanes, on which kernels may run in parallel, and a function that
    calls a library stay lists of kernels.
    """
    # Of a function that JAX can hash.
    return _one_kernel(jax.jit(lambda *args, **kwargs: fn(*args, **kwargs))) if ONE_KERNEL else fn


def _one_kernel(jitted: Callable[_P, _T]) -> Callable[_P, _T]:
    """A jitted function, whose results are marked as those of one kernel."""
    if not ONE_KERNEL:
        return jitted

    @ft.wraps(jitted)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        mark = lambda leaf: _kernel_of.bind(leaf, lanes=1) if eqx.is_array(leaf) else leaf
        return jax.tree.map(mark, jitted(*args, **kwargs))

    return call


_ATTRIBUTES, _MARK = "mhlo.frontend_attributes", {"xla_cpu_small_call": "true", "inlineable": "false"}
_LIST = {"xla_cpu_small_call": "false"}
# A result of a call, which on a CPU is to be one kernel.
_kernel_of = Primitive("kernel_of")
_kernel_of.def_impl(lambda result, lanes: result)
_kernel_of.def_abstract_eval(lambda result, lanes: result)
ad.primitive_jvps[_kernel_of] = lambda results, tangents, lanes: (_kernel_of.bind(*results, lanes=lanes), *tangents)


def _lanes_of_kernel(results, axes, lanes):
    lanes *= results[0].shape[axes[0]]
    return _kernel_of.bind(*results, lanes=lanes) if lanes <= MOST_LANES else results[0], axes[0]


def _as_kernel(context: mlir.LoweringRuleContext, result: ir.Value, lanes: int) -> list[ir.Value]:
    """Makes the function whose call has the result one that XLA compiles into one kernel; once for all results of the call."""
    call, functions, kernels = result.owner, context.module_context.symbol_table, []
    if not isinstance(call, func.CallOp) or _ATTRIBUTES in call.attributes or _is_made(call):
        return [result]
    if not _compiles_in_kernel(call, functions, kernels):
        call.attributes[_ATTRIBUTES] = _attributes(_LIST)
        return [result]
    for each in kernels:
        del each.attributes[_ATTRIBUTES]
    # One argument, a tuple: XLA stops the process (jaxlib 0.10) if it finds no use of an argument.
    taken, given = [each.type for each in call.operands], [each.type for each in call.results]
    whole = ir.Type.parse(f"tuple<{', '.join(map(str, taken))}>")
    with ir.InsertionPoint.at_block_begin(context.module_context.module.body):
        kernel = func.FuncOp("kernel", ([whole], given), visibility="private")
        with_kernel = func.FuncOp("with_kernel", (taken, given), visibility="private")
    functions.insert(kernel)
    functions.insert(with_kernel)
    with ir.InsertionPoint(kernel.add_entry_block()):
        parts = [hlo.GetTupleElementOp(kernel.arguments[0], k).result for k in range(len(taken))]
        func.ReturnOp(func.CallOp(given, call.attributes["callee"], parts).results)
    with ir.InsertionPoint(with_kernel.add_entry_block()):
        together = hlo.TupleOp(list(with_kernel.arguments)).result
        marked = func.CallOp(given, ir.FlatSymbolRefAttr.get(kernel.name.value), [together])
        marked.attributes[_ATTRIBUTES] = _attributes(_MARK)
        func.ReturnOp(marked.results)
    call.attributes["callee"] = ir.FlatSymbolRefAttr.get(with_kernel.name.value)
    return [result]


def _is_made(call: func.CallOp) -> bool:
    return call.attributes["callee"].value.startswith("with_kernel")


def _attributes(each: dict[str, str]) -> ir.DictAttr:
    return ir.DictAttr.get({key: ir.StringAttr.get(value) for key, value in each.items()})


def _compiles_in_kernel(call: func.CallOp | ir.Operation, functions: ir.SymbolTable, kernels: list[ir.Operation]) -> bool:
    """Whether all operations of the function that is called, and of those that it calls, compile in one kernel. **Arguments:**
    `kernels`: to which the calls inside of what is a kernel are added."""
    fits = True

    def look(operation: ir.Operation) -> ir.WalkResult:
        nonlocal fits
        dialect, _, name = operation.name.partition(".")
        if name == "call" and _ATTRIBUTES in operation.attributes:
            fits = operation.attributes[_ATTRIBUTES] == _attributes(_MARK)
            kernels.append(operation)
        elif name == "call":
            fits = _compiles_in_kernel(operation, functions, kernels)
        elif name == "dot_general":
            fits = _is_small_product(operation)
        elif name in ("reduce", "reduce_window"):
            fits = math.prod(operation.operands[0].type.shape) <= MOST_SUMMED
        elif name == "scatter":
            # At one place; at several XLA's newer emitters make a kernel of it.
            places = list(operation.operands[len(operation.results)].type.shape)
            axis = hlo.ScatterDimensionNumbers(operation.attributes["scatter_dimension_numbers"]).index_vector_dim
            fits = math.prod(places[:axis] + places[axis + 1 :]) == 1
        elif dialect == "chlo":
            fits = name not in ("ragged_dot", "top_k")
        else:
            fits = dialect == "func" or name in IN_KERNELS
        return ir.WalkResult.ADVANCE if fits else ir.WalkResult.INTERRUPT

    functions[call.attributes["callee"].value].operation.walk(look)
    return fits


def _is_small_product(product: ir.Operation) -> bool:
    """Whether a product of arrays is a loop of XLA's own: that of a vector, or of small matrices."""
    left, right = (operand.type for operand in product.operands)
    axes = hlo.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    batch, summed = (
        math.prod(left.shape[axis] for axis in each)
        for each in (axes.lhs_batching_dimensions, axes.lhs_contracting_dimensions)
    )
    rows, columns = (math.prod(each.shape) // max(batch * summed, 1) for each in (left, right))
    if str(left.element_type) not in ("f32", "f64") or left.element_type != right.element_type:
        return False
    if rows == columns == 1:
        return batch * summed <= MOST_SUMMED
    return 1 in (rows, columns, summed) or max(rows, columns, summed) <= MOST_ROWS


batching.primitive_batchers[_kernel_of] = _lanes_of_kernel
mlir.register_lowering(_kernel_of, lambda context, result, lanes: [result])
mlir.register_lowering(_kernel_of, _as_kernel, platform="cpu", cacheable=False)


def compiles_fast(lanes: int) -> bool:
    """Whether the program of a batch is one of `long_run`. **Arguments:** `lanes`: the number of strides or lanes in all."""
    return {Purpose.by_size: lanes < FEW, Purpose.first_result: True, Purpose.run_time: False}[_setting["purpose"]]


def _compiled(fn: Callable[_P, _T], options: Mapping[str, int | bool | str]) -> Callable[_P, _T]:
    ordinary = _one_kernel(eqx.filter_jit(fn))
    # Of the ordinary function, not of `fn`: so JAX traces `fn` once for all.
    alone, optimized = eqx.filter_jit(ordinary, compiler_options=options), eqx.filter_jit(ordinary)  # pyright: ignore

    @ft.wraps(fn)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return (alone if takes_options() else optimized if untransformed() else ordinary)(*args, **kwargs)

    return call


def known_values(tree: PyTree) -> PyTree | None:
    """The tree with the numbers of its traced arrays, under a `grad` or `vjp` that is under no other transformation of JAX.

    `None` elsewhere, and where JAX (0.10) has changed the attributes of its tracers that are looked at.
    """
    with take_current_trace() as trace:
        pass
    if not (getattr(trace, "is_vjp", False) and hasattr(trace, "parent_trace")):
        return None
    with set_current_trace(trace.parent_trace):
        if not takes_options():
            return None
    number = lambda leaf: leaf.primal if getattr(leaf, "_trace", None) is trace else leaf
    return jax.tree.map(number, tree)


def takes_options() -> bool:
    """Whether a jitted function called here is a program of its own on a CPU, which is to compile fast."""
    purpose = _setting["purpose"]
    if purpose is Purpose.run_time or (purpose is Purpose.by_size and _level_is_given()):
        return False
    return untransformed() and jax.default_backend() == "cpu"


def untransformed() -> bool:
    """Whether no transformation of JAX is under way, such as `jit` or `vmap`."""
    return get_opaque_trace_state() == _untraced()


@ft.cache
def _level_is_given() -> bool:
    # XLA reads the variable once, at its start.
    return "xla_backend_optimization_level" in os.environ.get("XLA_FLAGS", "")


@ft.cache
def _untraced():
    # This module may be imported, and this function called, while JAX traces a function of the user.
    with jax.core.eval_context():
        return get_opaque_trace_state()
