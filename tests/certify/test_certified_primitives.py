"""Primitives of JAX as the prover takes them: each has its class, and the derivative of the function that it computes."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from flint import arb
from jax import lax

import hyjax as hj
from hyjax._testing import (
    ball,
    cases_decided,
    COMPARED,
    evaluate,
    exact_function,
    flow_coefficients,
    graph_of,
    JUMPS,
    KINKS,
    lowering as core,
    numbers_and_rest,
    RULES,
    Sketch,
    symbolic as graph,
)

ONE = jnp.ones(())
HALF = mpmath.mpf(1) / 2
# A function with the primitive, the same for mpmath, and a point where it is smooth.
CASES = {
    "add": (lambda x: x + 2, lambda x: x + 2, 0.3),
    "sub": (lambda x: 2 - x, lambda x: 2 - x, 0.3),
    "mul": (lambda x: x * (x + 1), lambda x: x * (x + 1), 0.3),
    "div": (lambda x: x / (x + 1), lambda x: x / (x + 1), 0.3),
    "neg": (lambda x: -x, lambda x: -x, 0.3),
    "integer_pow": (lambda x: x**-3, lambda x: x**-3, 0.3),
    "pow": (lambda x: jnp.power(x, x), lambda x: x**x, 0.3),
    "square": (jnp.square, lambda x: x * x, 0.3),
    "dot_general": (lambda x: jnp.dot(jnp.stack([x, x]), jnp.stack([x, ONE])), lambda x: x * x + x, 0.3),
    "reduce_sum": (lambda x: jnp.sum(jnp.stack([x, x * x])), lambda x: x + x * x, 0.3),
    "sqrt": (jnp.sqrt, mpmath.sqrt, 0.3),
    "rsqrt": (lax.rsqrt, lambda x: 1 / mpmath.sqrt(x), 0.3),
    "cbrt": (jnp.cbrt, lambda x: -mpmath.cbrt(-x), -0.3),
    "exp": (jnp.exp, mpmath.exp, 0.3),
    "exp2": (jnp.exp2, lambda x: mpmath.mpf(2) ** x, 0.3),
    "expm1": (jnp.expm1, mpmath.expm1, 0.3),
    "log": (jnp.log, mpmath.log, 0.3),
    "log1p": (jnp.log1p, mpmath.log1p, 0.3),
    "logistic": (jax.nn.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x)), 0.3),
    "sin": (jnp.sin, mpmath.sin, 0.3),
    "cos": (jnp.cos, mpmath.cos, 0.3),
    "tan": (jnp.tan, mpmath.tan, 0.3),
    "asin": (jnp.arcsin, mpmath.asin, 0.3),
    "acos": (jnp.arccos, mpmath.acos, 0.3),
    "atan": (jnp.arctan, mpmath.atan, 0.3),
    "atan2": (lambda x: jnp.arctan2(x, x - 1), lambda x: mpmath.atan2(x, x - 1), 0.3),
    "sinh": (jnp.sinh, mpmath.sinh, 0.3),
    "cosh": (jnp.cosh, mpmath.cosh, 0.3),
    "tanh": (jnp.tanh, mpmath.tanh, 0.3),
    "asinh": (jnp.arcsinh, mpmath.asinh, 0.3),
    "acosh": (jnp.arccosh, mpmath.acosh, 1.3),
    "atanh": (jnp.arctanh, mpmath.atanh, 0.3),
    "abs": (jnp.abs, lambda x: abs(x), -0.3),
    "max": (lambda x: jnp.maximum(2 * x, x), lambda x: max(2 * x, x), -0.3),
    "min": (lambda x: jnp.minimum(2 * x, x), lambda x: min(2 * x, x), 0.3),
    "clamp": (lambda x: lax.clamp(0.0, x, 2.0), lambda x: min(max(x, 0), 2), 0.3),
    "reduce_max": (lambda x: jnp.max(jnp.stack([x, -2 * x])), lambda x: max(x, -2 * x), -0.3),
    "reduce_min": (lambda x: jnp.min(jnp.stack([x, -2 * x])), lambda x: min(x, -2 * x), -0.3),
    "sort": (lambda x: jnp.sort(jnp.stack([x, -2 * x, 3 * x]))[0], lambda x: min(x, -2 * x, 3 * x), 0.3),
    "sign": (lambda x: x * jnp.sign(x), lambda x: x * mpmath.sign(x), -0.3),
    "floor": (lambda x: x * jnp.floor(x), lambda x: x * mpmath.floor(x), -0.3),
    "ceil": (lambda x: x * jnp.ceil(x), lambda x: x * mpmath.ceil(x), 0.3),
    "round": (lambda x: x * jnp.round(x), lambda x: x * mpmath.nint(x), 0.7),
    "rem": (lambda x: lax.rem(x, ONE), lambda x: x + 1, -1.3),
    "select_n": (lambda x: jnp.where(x > 0, x, 3 * x), lambda x: x if x > 0 else 3 * x, -0.3),
    "cond": (lambda x: lax.cond(x > 0, lambda x: x, lambda x: 3 * x, x), lambda x: x if x > 0 else 3 * x, -0.3),
    "convert_element_type": (lambda x: x * x.astype(int).astype(float), lambda x: x * int(x), -1.3),
    **{
        name: (lambda x, name=name: jnp.where(getattr(lax, name)(x, ONE), x, 3 * x), None, 0.3)
        for name in ("lt", "le", "gt", "ge", "eq", "ne")
    },
    "ne of truth values": (lambda x: jnp.where((x > 0) != (x > 1), x, 3 * x), lambda x: x if 0 < x < 1 else 3 * x, 0.3),
    "eq of truth values": (lambda x: jnp.where((x > 0) == (x > 1), x, 3 * x), lambda x: 3 * x if 0 < x < 1 else x, 0.3),
    "and": (lambda x: jnp.where((x > 0) & (x < 1), x, 3 * x), lambda x: x if 0 < x < 1 else 3 * x, 1.3),
    "or": (lambda x: jnp.where((x > 0) | (x < -1), x, 3 * x), lambda x: x if x > 0 or x < -1 else 3 * x, -0.3),
    "not": (lambda x: jnp.where(~(x > 0), x, 3 * x), lambda x: 3 * x if x > 0 else x, -0.3),
    "reduce_and": (lambda x: jnp.where(jnp.all(jnp.stack([x, 1 - x]) > 0), x, 3 * x), lambda x: x, 0.3),
    "reduce_or": (lambda x: jnp.where(jnp.any(jnp.stack([x, -1 - x]) > 0), x, 3 * x), lambda x: 3 * x, -0.3),
    # No primitives, but programs by cases for smooth functions, and a rule that hides the derivative.
    "softplus": (jax.nn.softplus, lambda x: mpmath.log1p(mpmath.exp(x)), 0.0),
    "logaddexp": (lambda x: jnp.logaddexp(x, 2 * x), lambda x: mpmath.log(mpmath.exp(x) + mpmath.exp(2 * x)), 0.0),
    "hj.fast.sin": (hj.fast.sin, mpmath.sin, 0.3),
    "hj.fast.cos": (jax.jit(lambda x: jax.vmap(hj.fast.cos)(x[None])[0]), mpmath.cos, 0.3),
    "hj.fast.sincos": (lambda x: hj.fast.sincos(x)[0] * hj.fast.sincos(x)[1], lambda x: mpmath.sin(x) * mpmath.cos(x), 0.3),
    "hypot": (lambda x: jnp.hypot(x, 2.0), lambda x: mpmath.sqrt(x * x + 4), 0.3),
    "stop_gradient": (lambda x: x * lax.stop_gradient(x), lambda x: x * x, 0.3),
}  # fmt: skip
MOVED = {*core.CALLS, "reshape", "squeeze", "expand_dims", "transpose", "rev", "slice", "dynamic_slice", "dynamic_update_slice",
         "gather", "pad", "scatter", "broadcast_in_dim", "concatenate", "stack", "unstack", "split", "copy", "copy_p", "iota",
         "add_any"}  # fmt: skip
# Where those that are not smooth have their kink or jump.
EDGES = {
    **dict.fromkeys(("abs", "max", "min", "clamp", "reduce_max", "reduce_min", "sort"), 0.0),
    **dict.fromkeys(("sign", "floor", "ceil", "cond", "select_n"), 0.0),
    **dict.fromkeys(("and", "or", "not", "reduce_and", "reduce_or"), 0.0), **dict.fromkeys(COMPARED, 1.0),
    "round": 0.5, "rem": 1.0, "convert_element_type": 1.0,
}  # fmt: skip


def slope_of(function):
    """The value and derivative of a function of one number, for numbers of fifty digits."""
    sketch = Sketch(jnp.zeros(()))
    value = sketch.read(function)
    return exact_function(
        sketch.graph(np.stack([value, sketch.along(value, sketch.read(lambda x: jnp.ones_like(x)))])), []
    )


def names_in(jaxpr):
    """All primitives of a program and of what it calls."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda a: hasattr(a, "eqns")):
            inner = getattr(value, "jaxpr", value)
            yield from names_in(inner) if hasattr(inner, "eqns") else ()


def test_every_primitive_that_is_taken_has_its_class_and_its_case():
    taken = {*core.CALLS, *core.REWRITTEN, "cond", *graph._MOVED, *graph._PLACED, "broadcast_in_dim", "concatenate", "iota",
             "convert_element_type", *COMPARED, *graph._LOGIC, *graph.FUNCTIONS, "add", "add_any", "sub", "mul", "div", "neg",
             "max", "min", "select_n", *(f"reduce_{each}" for each in graph._FOLDED)}  # fmt: skip
    assert taken == set(core.SMOOTHNESS) and taken <= MOVED | set(CASES)
    assert {name for name, kind in core.SMOOTHNESS.items() if kind != core.SMOOTH} == set(EDGES)
    for name in taken - MOVED:
        assert name in set(names_in(jax.make_jaxpr(CASES[name][0])(0.3).jaxpr)), name


@pytest.mark.parametrize("name", CASES)
def test_derivative_is_that_of_the_function(name):
    function, exact, at = CASES[name]
    exact = exact or (lambda x: x if COMPARED[name](x - 1) else 3 * x)
    with mpmath.workdps(60):
        value, slope = slope_of(function)([arb(at)])
        for found, true in ((value, exact(mpmath.mpf(at))), (slope, mpmath.diff(exact, mpmath.mpf(at)))):
            # mpmath's difference quotient is good for 29 of its 60 digits.
            assert abs(mpmath.mpf(found.mid()._mpf_) - true) < mpmath.mpf(10) ** -28, name
            assert found.rad() < 2.0**-92


@pytest.mark.parametrize("name", EDGES)
def test_what_is_known_at_kinks_and_jumps(name):
    """Both slopes at a kink; nothing at a jump, though the function be constant on both sides."""
    function, edge = CASES[name][0], EDGES[name]
    value, slope = slope_of(function)([arb(edge, 1e-3)])
    assert value.rad() < 2
    if core.SMOOTHNESS[name] == core.NEITHER:
        assert not slope.is_finite()
    else:
        before, after = (slope_of(function)([arb(edge + side)])[1].mid() for side in (-1e-2, 1e-2))
        assert before != after and slope.lower() <= min(before, after) and max(before, after) <= slope.upper() <= 4


def test_sets_and_series_at_kinks_and_jumps():
    """The same over Taylor models, and for the coefficients in time of x' = f(x): none of order two where f is not smooth.

    For one primitive of each kind of atom that is left of them all.
    """
    names = ("abs", "max", "sign", "floor", "select_n", "or")
    sketch = Sketch(jnp.zeros(len(names)))
    field = sketch.read(lambda x: jnp.stack([CASES[name][0](x[i]) for i, name in enumerate(names)]))
    field, slopes = sketch.graph(field), sketch.graph(sketch.along(field, sketch.read(jnp.ones_like)))

    @jax.jit
    def known(center, size):
        x = ball(center, size)
        decided = cases_decided(field, (*JUMPS, *KINKS), x, [])
        return evaluate(slopes, x, []).radius, flow_coefficients(field, x, [], 2).radius, decided

    for size in (1e-3, 1e-12):
        radius, series, decided = known(jnp.zeros(len(names)), size)
        assert [core.SMOOTHNESS[name] == core.CONTINUOUS for name in names] == np.isfinite(radius).tolist()
        assert np.all(np.isfinite(series[1])) and not np.any(np.isfinite(series[2]))
        assert len(decided) == len(names) and not any(decided.values())
    # Beside them all are smooth.
    radius, series, decided = known(jnp.full(len(names), 1e-2), 1e-3)
    assert np.all(np.isfinite(radius)) and np.all(np.isfinite(series)) and all(decided.values())


@pytest.mark.parametrize("choice", [jax.nn.leaky_relu, jnp.round, jnp.sinc], ids=["leaky_relu", "round", "sinc"])
def test_the_place_of_a_choice_in_a_function_of_jax_is_that_of_its_call(choice):
    """JAX traces such a function once for all calls with the same shapes."""

    def twice(x):
        a = choice(x)
        b = choice(2 * x)
        return a + b

    line = twice.__code__.co_firstlineno
    of = lambda n: f"twice, line {line + n} of test_certified_primitives.py"
    assert graph_of(twice, jnp.zeros(())).places(*JUMPS, *KINKS) == (of(1), of(2))


def test_every_atom_has_a_rule():
    assert set(RULES) == {"mul", "div", "select", "chosen", "max", *graph.FUNCTIONS}


def test_conditions_on_parameters_are_decided():
    """A parameter that is zero exactly is known to be zero; a state is not."""
    sketch = Sketch(jnp.zeros(1), jnp.zeros(()))
    value = sketch.read(lambda x, p: jnp.where((p == 0) & (x < 9), x, 3 * x))
    slopes = sketch.graph(sketch.gradient(value))
    for p, slope in ((0.0, 1), (1e-30, 3)):
        (found,) = exact_function(slopes, [p])([arb(0.5)])
        assert found == slope
        over = evaluate(slopes, ball(jnp.array([0.5]), 1e-3), [p])
        assert abs(over.center - slope) <= over.radius < 1e-12


TIES = (0.5, 1.5, 2.5, -0.5, -1.5, -2.5)


@pytest.mark.parametrize("method", lax.RoundingMethod)
def test_ties_are_rounded_as_the_method_says(method):
    """Of a parameter or a literal number, which may be a tie exactly; about a tie of a state nothing is decided."""
    nearest = lambda x: (
        round(x) if method == lax.RoundingMethod.TO_NEAREST_EVEN else math.copysign(round(abs(x) + 0.1), x)
    )
    rounded = lambda x: lax.round(x, method)
    of_parameter = graph_of(lambda x, p: x * rounded(p), jnp.zeros(()), jnp.zeros(()))
    of_literals = graph_of(lambda x: x + rounded(jnp.array(TIES)), jnp.zeros(()))
    assert [float(each) for each in exact_function(of_literals, [])([arb(0)])] == [nearest(x) for x in TIES]
    for p in (*TIES, 0.0, 1.0, -3.0, 2.7, -2.7):
        assert exact_function(of_parameter, [p])([arb(3)])[0] == 3 * nearest(p), p
    state = graph_of(rounded, jnp.zeros(()))
    for x in TIES:
        assert not all(cases_decided(state, JUMPS, ball(jnp.array(x), 1e-9), []).values())
    for x in (0.0, 1.0, -3.0, 2.7):
        assert all(cases_decided(state, JUMPS, ball(jnp.array(x), 0.1), []).values())
        assert exact_function(state, [])([arb(x, 0.1)])[0] == nearest(x)


def test_no_entries_fold_to_the_neutral_element():
    of = lambda function: exact_function(graph_of(function, jnp.zeros(2)), [])([arb(2), arb(3)])
    assert of(lambda x: jnp.where(jnp.all(x[2:] > 0), x, -x)) == [2, 3]
    assert of(lambda x: jnp.where(jnp.any(x[2:] > 0), x, -x)) == [-2, -3]
    assert of(lambda x: x + jnp.sum(x[2:])) == [2, 3]
    assert of(lambda x: jnp.where(lax.reduce_max(x[2:], (0,)) < x, x, -x)) == [2, 3]
    # A sum over no axes is each entry.
    assert of(lambda x: jnp.einsum("i,j,k->i", x, x, x)) == [2 * 25, 3 * 25]


I32, I64 = jnp.int32, jnp.int64


@pytest.mark.parametrize(
    ("function", "states"),
    [
        # Numbers end at the last integer, integers go round.
        (lambda x: x.astype(I32), (3e10, -3e10, -3.7)),
        (lambda x: x.astype(I64), (3e10, -3.7, 1e19, -1e19)),
        (lambda x: x.astype(I64).astype(I32), (3e9, 5.5e9, -3e9, 2**31 - 0.5, -(2**31) - 0.5, -3.7)),
        (lambda x: x.astype(I64).astype(jnp.uint8), (255.5, 256.5, -3.7, 0.5)),
        (lambda x: 2 * x.astype(I32), (2e9, -2e9, 3.7)),
        (lambda x: -x.astype(I32), (-3e10, 3.7)),
        (lambda x: x.astype(I32) ** 2, (1e5, 3.7)),
        (lambda x: lax.reduce_sum(jnp.stack([x, x, x]).astype(I32), (0,)), (2e9, 3.7)),
        (lambda x: (x > 1).astype(jnp.uint8) - (x < 0).astype(jnp.uint8), (2.0, 0.5, -1.0)),
        *((lambda x, type=type: (x > 1).astype(type), (2.0, 0.5)) for type in ("uint8", "int8", "int16", "uint64")),
    ],
)
def test_integers_end_where_their_type_ends(function, states):
    graph_read = graph_of(lambda x: function(x).astype(float), jnp.zeros(()))
    for x in states:
        value = float(function(jnp.array(x)))
        # An integer near 2^63 is rounded by JAX as it becomes a number.
        assert abs(exact_function(graph_read, [])([arb(x)])[0] - value) <= (1 if abs(value) > 2**53 else 0), x
        if abs(x) < 2**53:
            enclosure = evaluate(graph_read, ball(jnp.array(x), 1e-9), [])
            assert abs(float(enclosure.coefficients[0]) - value) <= float(enclosure.radius), x


def test_the_angle_of_a_number_without_a_second_entry():
    """`arctan2(0, x)` is pi for negative x, where the quotient that stands for it is 0 / 0; and 0 at zero."""
    of_parameters = graph_of(lambda x, a, b: x * jnp.arctan2(a, b), *[jnp.zeros(())] * 3)
    for a, b in ((0.0, 0.0), (0.0, -1.0), (0.0, 2.0), (3.0, -1.0), (-3.0, -1.0)):
        (found,) = exact_function(of_parameters, [a, b])([arb(1)])
        assert found.overlaps(arb(math.atan2(a, b), 1e-15)) and found.rad() < 1e-12
    angle = graph_of(lambda x: jnp.arctan2(0 * x, x), jnp.zeros(()))
    assert exact_function(angle, [])([arb(2)])[0].contains(0)
    assert exact_function(angle, [])([arb(-2)])[0].contains(math.pi)
    assert not all(cases_decided(angle, JUMPS, ball(jnp.array(-2.0), 0.1), []).values())


@pytest.mark.parametrize(
    ("function", "p", "value"),
    [
        (lambda x, p: x * lax.div(p, 2), jnp.array(3), 2.0),
        (lambda x, p: x * (p - 3).astype(float), jnp.array(2, jnp.uint8), 2.0 * 255),
        (lambda x, p: jnp.where(~p, x, -x), jnp.array(True), -2.0),
        (lambda x, p: x * (p["a"] * p["b"]), {"a": 0.5, "b": jnp.array(3)}, 3.0),
        (lambda x, p: x * p.astype(float), jnp.float32(0.1), 2 * float(np.float32(0.1))),
    ],
)
def test_parameters_are_of_their_types(function, p, value):
    """Integers are divided as integers."""
    leaves, params_of = numbers_and_rest(p)
    shown = [jnp.zeros(jnp.shape(each)) for each in leaves]
    (found,) = exact_function(
        graph_of(lambda x, *leaves: function(x, params_of(leaves)), jnp.zeros(()), *shown), leaves
    )([arb(2)])
    assert found == value and value == float(function(jnp.array(2.0), p))


@pytest.mark.parametrize(
    ("function", "refused"),
    [
        (lambda x: x.astype(jnp.int8).astype(float), "'convert_element_type to int8'"),
        (lambda x: x.astype(jnp.uint32).astype(float), "'convert_element_type to uint32'"),
        (
            lambda x: jnp.stack([x, jnp.inf]).astype(int).astype(float)[:1],
            "convert_element_type of a number that is not",
        ),
        (lambda x: x[None].at[3].get(mode="fill", fill_value=0), "'gather out of bounds'"),
        (lambda x: x * jnp.square(jnp.float32(0.1)).astype(float), "'square in float32'|'mul in float32'"),
        (lambda x: lax.erf(x), "'erf'"),
        (lambda x: x.astype(jnp.float32).astype(float), "'convert_element_type to float32'"),
        (lambda x: lax.fori_loop(0, 3, lambda i, x: x / 2, x), "'scan'|'while'"),
        (lambda x: jnp.argmax(x[None]), "'argmax'"),
        (lambda x: x * jnp.inf, "'mul of a number that is not finite'"),
        (lambda x: lax.reduce_precision(x, 8, 23), "'reduce_precision'"),
        (lambda x: (x.astype(int) // 2).astype(float), "of integers"),
        (lambda x: lax.div(x.astype(int), 2).astype(float), "'div of integers'"),
        (lambda x: jnp.arange(3.0)[x.astype(int)], "at a place that is computed"),
        (lambda x: jnp.where(lax.max(x > 0, x < 1), x, 2 * x), "'max of truth values'"),
        (lambda x: jnp.where(x > 0, x, jnp.nan), "'select_n of a number that is not finite'"),
    ],
)
def test_what_is_not_known_is_refused_with_its_line(function, refused):
    line = function.__code__.co_firstlineno
    with pytest.raises(ValueError, match=f"primitive .*({refused}).*line {line} of test_certified_primitives.py"):
        graph_of(function, jnp.zeros(()))
