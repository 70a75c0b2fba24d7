"""Functions that XLA compiles on a CPU into one kernel: most of the run time of a flow of few coordinates.

A program on a CPU is a list of kernels, one for each of XLA's fused operations, and XLA takes some 0.1 us to start each: three to
ten times what the operations of a single flow take (a spike of five neurons: 48 and 6 us; a stride of the simplest walker: 39 and
15). XLA itself makes one kernel of a loop that carries less than a kilobyte, by an attribute of a call (`xla_cpu_small_call`);
here a call has this attribute wherever all of its operations compile so. They are looked at in the lowered program, after all
transformations of JAX.
"""

import functools as ft
import math
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import equinox as eqx
import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo as hlo

_P = ParamSpec("_P")
_T = TypeVar("_T")

# The attribute, and what compiles in one kernel, are those of the versions of jaxlib that were tried.
ONE_KERNEL = jax.__version_info__[:2] == (0, 10)
# One kernel is faster than a list up to some hundred lanes: a stride of the simplest walker takes 16 for 22 us for each of 16, 3
# for 4 for each of 256, 5 for 4 for each of 1024. XLA may share out a kernel of a list among cores.
MOST_LANES, MOST_NUMBERS = 256, 2**16
# Longer sums (of more than some 4000 numbers), and products of matrices of 8 rows or more, are calls of a library, which a kernel
# cannot contain.
MOST_SUMMED, MOST_ROWS = 2048, 6
# The other operations of a kernel; of `chlo`, all but calls of libraries.
_OPERATIONS = """
    abs add and atan2 bitcast_convert broadcast_in_dim case cbrt ceil clamp compare complex concatenate constant convert cosine
    count_leading_zeros divide dynamic_slice dynamic_update_slice exponential exponential_minus_one floor gather
    get_tuple_element if imag iota is_finite log log_plus_one logistic maximum minimum multiply negate not optimization_barrier or
    pad popcnt power real remainder reshape return reverse round_nearest_afz round_nearest_even rsqrt select shift_left
    shift_right_arithmetic shift_right_logical sign sine slice sqrt subtract tan tanh transpose tuple while xor
"""
IN_KERNELS = frozenset(_OPERATIONS.split())
CALLS_OF_CHLO = ("ragged_dot", "top_k")


def in_one_kernel(fn: Callable[_P, _T]) -> Callable[_P, _T]:
    """`fn`, of arrays, as one kernel on a CPU where that is possible and faster; elsewhere, and for many lanes, as it is."""
    # Of a function that JAX can hash.
    return of_one_kernel(jax.jit(lambda *args, **kwargs: fn(*args, **kwargs))) if ONE_KERNEL else fn


def of_one_kernel(jitted: Callable[_P, _T]) -> Callable[_P, _T]:
    """`in_one_kernel` of a jitted function."""
    if not ONE_KERNEL:
        return jitted

    @ft.wraps(jitted)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        # Each of the results, because JAX drops those that are not used.
        mark = lambda leaf: _kernel_of.bind(leaf, lanes=1) if eqx.is_array(leaf) else leaf
        return jax.tree.map(mark, jitted(*args, **kwargs))

    return call


# The identity, of a result of a jitted function, with the number of lanes of a batch.
_kernel_of = Primitive("kernel_of")
_kernel_of.def_impl(lambda result, lanes: result)
_kernel_of.def_abstract_eval(lambda result, lanes: result)
# JAX computes tangents in the same call.
ad.primitive_jvps[_kernel_of] = lambda results, tangents, lanes: (_kernel_of.bind(*results, lanes=lanes), *tangents)


def _of_lanes(results, axes, lanes):
    return _kernel_of.bind(*results, lanes=lanes * results[0].shape[axes[0]]), axes[0]


_ATTRIBUTES = "mhlo.frontend_attributes"
# XLA inlines other calls.
_KERNEL, _LIST = {"xla_cpu_small_call": "true", "inlineable": "false"}, {"xla_cpu_small_call": "false"}


def _attributes(each: dict[str, str]) -> ir.DictAttr:
    return ir.DictAttr.get({key: ir.StringAttr.get(value) for key, value in each.items()})


def _as_kernel(context: mlir.LoweringRuleContext, result: ir.Value, lanes: int) -> list[ir.Value]:
    """Makes the call of which this is a result one of a kernel, or of a list; once for all of its results."""
    call, module, kernels = result.owner, context.module_context, {}
    if not isinstance(call, func.CallOp) or _ATTRIBUTES in call.attributes or not _is_for_one_processor(module):
        return [result]
    taken, given = [each.type for each in call.operands], [each.type for each in call.results]
    argument, shown = _first_numbers(taken), _first_numbers(given)
    few = lanes <= MOST_LANES and _fits(call, module.symbol_table, kernels)
    call.attributes[_ATTRIBUTES] = _attributes({} if few else _LIST)
    # Without numbers it is none by itself, and may be a part of one.
    if not few or argument is None or shown is None:
        return [result]
    for each in kernels.values():
        for inner in each:
            del inner.attributes[_ATTRIBUTES]
    # The kernel has one argument, a tuple, of which a number has a use that is left: XLA (jaxlib 0.10) stops the process if an
    # argument has none.
    together = ir.Type.parse(f"tuple<{', '.join(map(str, taken))}>")
    with ir.InsertionPoint.at_block_begin(module.module.body):
        kernel = func.FuncOp("kernel", ([together], given), visibility="private")
        around = func.FuncOp("around_kernel", (taken, given), visibility="private")
    for function in (kernel, around):
        module.symbol_table.insert(function)
    with ir.InsertionPoint(kernel.add_entry_block()):
        parts = [hlo.GetTupleElementOp(kernel.arguments[0], k).result for k in range(len(taken))]
        results: list[ir.Value] = list(func.CallOp(given, _callee(call), parts).results)
        results[shown] = _depending(results[shown], parts[argument])
        func.ReturnOp(results)
    with ir.InsertionPoint(around.add_entry_block()):
        whole = hlo.TupleOp(list(around.arguments)).result
        of_kernel = func.CallOp(given, ir.FlatSymbolRefAttr.get(kernel.name.value), [whole])
        of_kernel.attributes[_ATTRIBUTES] = _attributes(_KERNEL)
        func.ReturnOp(of_kernel.results)
    call.attributes["callee"] = ir.FlatSymbolRefAttr.get(around.name.value)
    return [result]


def _callee(call: func.CallOp | ir.Operation) -> ir.FlatSymbolRefAttr:
    return ir.FlatSymbolRefAttr(call.attributes["callee"])


def _is_for_one_processor(module: mlir.ModuleContext) -> bool:
    """Whether a program is for one device, a CPU, and its shapes are known. One that is exported may be called for several."""
    devices, exported = getattr(module.axis_context, "num_devices", None), module.lowering_parameters.for_export
    known = not (exported or module.shape_poly_state.uses_dim_vars)
    return tuple(module.platforms) == ("cpu",) and devices == 1 and known


def _first_numbers(types: list[ir.Type]) -> int | None:
    """The place of the first array of real numbers, which is not empty."""
    for k, each in enumerate(types):
        if isinstance(each, ir.RankedTensorType) and str(each.element_type) in ("f32", "f64") and math.prod(each.shape):
            return k
    return None


def _depending(result: ir.Value, argument: ir.Value) -> ir.Value:
    """The result, of which XLA, but not LLVM, takes that it depends on the argument: there are 64 zero bits at most."""
    ones = [1] * len(argument.type.shape)
    first = hlo.SliceOp(argument, [0] * len(ones), ones, ones).result
    scalar = lambda element: ir.RankedTensorType.get([], element)
    first = hlo.ReshapeOp(scalar(argument.type.element_type), first).result
    bits = ir.IntegerType.get_signless(64 if str(argument.type.element_type) == "f64" else 32)
    zeros = hlo.ClzOp(hlo.BitcastConvertOp(scalar(bits), first).result).result
    most = hlo.ConstantOp(ir.DenseElementsAttr.get_splat(scalar(bits), ir.IntegerAttr.get(bits, 64))).result
    always = hlo.CompareOp(zeros, most, hlo.ComparisonDirectionAttr.get("LE")).result
    # Another value, whatever the result is.
    zero = ir.DenseElementsAttr.get_splat(result.type, ir.FloatAttr.get(result.type.element_type, 0.0))
    is_zero = hlo.CompareOp(result, hlo.ConstantOp(zero).result, hlo.ComparisonDirectionAttr.get("EQ")).result
    return hlo.SelectOp(always, result, hlo.ConvertOp(result.type, is_zero).result).result


batching.primitive_batchers[_kernel_of] = _of_lanes
mlir.register_lowering(_kernel_of, _as_kernel, cacheable=False)


def _fits(call: func.CallOp | ir.Operation, functions: ir.SymbolTable, kernels: dict[str, list[ir.Operation]]) -> bool:
    """Whether a function that is called compiles into one kernel. **Arguments:** `kernels`: to which the calls of kernels in it
    are added, by the name of the function: each function once, however often it is called."""
    fits, callee = True, _callee(call).value
    if callee in kernels:
        return True
    kernels[callee] = []

    def look(operation: ir.Operation) -> ir.WalkResult:
        nonlocal fits
        dialect, _, name = operation.name.partition(".")
        if name == "call":
            mark = operation.attributes[_ATTRIBUTES] if _ATTRIBUTES in operation.attributes else _attributes({})
            if mark == _attributes(_KERNEL):
                kernels[callee].append(operation)
            else:
                fits = mark != _attributes(_LIST) and _fits(operation, functions, kernels)
        else:
            fits = _is_of_kernel(operation, dialect, name)
        return ir.WalkResult.ADVANCE if fits else ir.WalkResult.INTERRUPT

    functions[callee].operation.walk(look)
    return fits


def _is_of_kernel(operation: ir.Operation, dialect: str, name: str) -> bool:
    """Whether an operation compiles in a kernel, and is not so large that cores should share it."""
    size = lambda value: math.prod(value.type.shape) if isinstance(value.type, ir.RankedTensorType) else 0
    if any(size(each) > MOST_NUMBERS for each in operation.results):
        return False
    if name == "dot_general":
        return _is_small_product(operation)
    if name in ("reduce", "reduce_window"):
        return size(operation.operands[0]) <= MOST_SUMMED
    if name == "scatter":
        # At one place; of several XLA's newer emitters make a kernel.
        places = operation.operands[len(operation.results)]
        numbers = hlo.ScatterDimensionNumbers(operation.attributes["scatter_dimension_numbers"])
        axis, shape = numbers.index_vector_dim, places.type.shape
        return size(places) == (shape[axis] if axis < len(shape) else 1)
    if dialect == "chlo":
        return name not in CALLS_OF_CHLO
    return dialect == "func" or name in IN_KERNELS


def _is_small_product(product: ir.Operation) -> bool:
    """Whether a product of arrays is a loop of XLA's own: that of a vector, or of small matrices."""
    left, right = (operand.type for operand in product.operands)
    if str(left.element_type) not in ("f32", "f64") or left.element_type != right.element_type:
        return False
    axes = hlo.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    batch, summed = (
        math.prod(left.shape[axis] for axis in each)
        for each in (axes.lhs_batching_dimensions, axes.lhs_contracting_dimensions)
    )
    rows, columns = (math.prod(each.shape) // max(batch * summed, 1) for each in (left, right))
    if rows == columns == 1:
        return batch * summed <= MOST_SUMMED
    return 1 in (rows, columns, summed) or max(rows, columns, summed) <= MOST_ROWS
