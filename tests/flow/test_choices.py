"""Functions whose value jumps by a choice of their own: a warning, once, that names the line; and none where nothing jumps."""

import inspect
import re
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import ROLLED, same

import hyjax as hj
from hyjax import models
from hyjax._testing import check_mode, may_jump, sized, warn_of_kinks

STEPS, TABLE = jnp.arange(5.0) ** 2, jnp.array([0.0, 1.0, 2.0, 3.0])
# Each of these jumps somewhere, at a threshold that is small, large, in a narrow window or behind other conditions.
JUMPING = {
    "where of time": lambda t, x, p: jnp.where(t < 7.5, 0.0, 1.0),
    "where of a parameter": lambda t, x, p: jnp.where(t < p, 0.0, 1.0),
    "sign": lambda t, x, p: -jnp.sign(x[1]),
    "a far threshold": lambda t, x, p: jnp.where(x[0] > 1e6, 1.0, 0.0),
    "a tiny threshold": lambda t, x, p: jnp.where(x[0] > 1e-12, 1.0, 0.0),
    "a tiny jump": lambda t, x, p: 1e-9 * jnp.sign(x[0]),
    "a window": lambda t, x, p: jnp.where(jnp.abs(x[0] - 300) < 0.5, 1.0, 0.0),
    "a product": lambda t, x, p: jnp.where(x[0] * x[1] > 1, 1.0, 0.0),
    "three conditions": lambda t, x, p: jnp.where((x[0] > 0) & (x[1] > 0) & (t > 3), 1.0, 0.0),
    "a comparison as a number": lambda t, x, p: (x[0] > 0.3).astype(float),
    "floor": lambda t, x, p: jnp.floor(x[0]),
    "round": lambda t, x, p: jnp.round(x[0]),
    "a number made an integer": lambda t, x, p: STEPS[jnp.clip(t.astype(int), 0, 4)],
    "modulo": lambda t, x, p: x[0] % 1.3,
    "a square wave": lambda t, x, p: jnp.where((t % 2.0) < 1.0, 1.0, -1.0),
    "sign of a sine": lambda t, x, p: jnp.sign(jnp.sin(3 * t)),
    "arctan2": lambda t, x, p: jnp.arctan2(x[0], x[1]),
    "heaviside": lambda t, x, p: jnp.heaviside(x[0], 0.5),
    "a table": lambda t, x, p: STEPS[jnp.searchsorted(TABLE, x[0])],
    "argmax": lambda t, x, p: STEPS[jnp.argmax(x)],
    "cond": lambda t, x, p: jax.lax.cond(x[0] > 1, lambda: 1.0, lambda: 2.0),
    "switch": lambda t, x, p: jax.lax.switch((x[0] > 1).astype(int), [lambda: 1.0, lambda: 2.0]),
    "select": lambda t, x, p: jnp.select([x[0] < -1, x[0] > 1], [-1.0, 1.0], 0.0),
    "scan": lambda t, x, p: jax.lax.scan(lambda c, u: (c + jnp.sign(c - u), None), x[0], TABLE)[0],
    "jit": lambda t, x, p: jax.jit(jnp.sign)(x[0]),
    "equinox's jit": lambda t, x, p: eqx.filter_jit(jnp.sign)(x[0]),
    "beside a derivative rule": lambda t, x, p: jax.nn.relu(x[0]) + jnp.sign(x[0] - 2),
    "straight through": lambda t, x, p: x[0] + jax.lax.stop_gradient(jnp.round(x[0]) - x[0]),
    "a jump beside something steep": lambda t, x, p: jnp.exp(x[0] / 2) + jnp.where(x[0] > -50, 1.0, 0.0),
}
# These choose too, and are continuous.
CONTINUOUS = {
    "abs, clip, maximum": lambda t, x, p: jnp.abs(x[0]) + jnp.clip(x[1], -1, 1) + jnp.maximum(x[1], 0),
    "a root": lambda t, x, p: jnp.where(x[0] > 0, jnp.sqrt(jnp.where(x[0] > 0, x[0], 1.0)), 0.0),
    "a contact force": lambda t, x, p: jnp.where(x[0] > 0, jnp.where(x[0] > 0, x[0], 1.0) ** 1.5, 0.0),
    "a square": lambda t, x, p: jnp.where(x[0] > 0, x[0] ** 2, 0.0) + jnp.sign(x[1]) * x[1] ** 2,
    "pieces": lambda t, x, p: jnp.where(x[0] < 1.2, p * x[0], p * 1.2 + 3 * (x[0] - 1.2)),
    "the value at one point": lambda t, x, p: jnp.where(x[0] == 0, 1.0, jnp.sin(x[0]) / x[0]),
    "an angle of a cosine": lambda t, x, p: jnp.cos(jnp.arctan2(x[0], x[1])),
    "a phase of a sine": lambda t, x, p: jnp.sin(2 * jnp.pi * (t % 1.0)),
    "interpolation": lambda t, x, p: jnp.interp(x[0], TABLE, TABLE**2),
    "of a parameter alone": lambda t, x, p: jnp.where(p > 1, 1.0, 2.0) * x[0] + jnp.floor(p),
    "unused": lambda t, x, p: (jnp.sign(x[0]), x[0])[1],
    "steep": lambda t, x, p: jnp.tanh(1e8 * x[0]) + jnp.where(x[0] < 1, 0, x[0] - 1),
    "activations": lambda t, x, p: jnp.sum(jax.nn.elu(x) + jax.nn.leaky_relu(x) + jax.nn.softplus(x)),
    "a solution with pivots": lambda t, x, p: jnp.linalg.solve(jnp.eye(2) + jnp.outer(x, x), x)[0],
}


# The first of their derivatives that jumps: those of the flow do not hold what a kink adds to the next.
KINKS = {
    "abs": (lambda t, x, p: jnp.abs(x[0]), "first"),
    "abs of time": (lambda t, x, p: jnp.abs(jnp.sin(t)), "first"),
    "maximum": (lambda t, x, p: jnp.maximum(x[0] - 1, 0), "first"),
    "minimum": (lambda t, x, p: jnp.minimum(x[0], x[1]), "first"),
    "clip": (lambda t, x, p: jnp.clip(x[1], -1, 1), "first"),
    "relu": (lambda t, x, p: jax.nn.relu(x[0] - 0.3), "first"),
    "pieces": (CONTINUOUS["pieces"], "first"),
    "quadratic friction": (lambda t, x, p: x[0] * jnp.abs(x[0]), "second"),
    "a square": (CONTINUOUS["a square"], "second"),
}
SMOOTH = ("the value at one point", "an angle of a cosine", "a phase of a sine", "of a parameter alone", "unused")
# Tracing all functions of a system of two contacts takes seconds.
LONG = ("rocking_block", "ball_on_slope")


def messages(check) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check()
    # Pictures of other tests are deleted at any time.
    return [str(each.message) for each in caught if "Animation was deleted" not in str(each.message)]


def of_field(term, traced: bool = False, dtype=float, check_mode=check_mode) -> list[str]:
    """The warnings about a vector field with that term."""
    field = lambda t, x, p: jnp.stack([x[1], jnp.asarray(term(t, x, p), x.dtype)])
    system = hj.HybridSystem({"only": hj.Mode(field, ("x", "v"))}, ())

    def check(p):
        check_mode(system, "only", jnp.zeros((), dtype), jnp.zeros(2, dtype), p)
        return p

    return messages(lambda: (jax.jit(check) if traced else check)(jnp.asarray(7.5, dtype)))


@pytest.mark.parametrize("traced", [False, pytest.param(True, marks=pytest.mark.medium)], ids=["known", "traced"])
@pytest.mark.parametrize("name", JUMPING)
def test_a_jump_is_named(name, traced):
    """With the line of the choice, in this file, also where the parameters are known only as shapes."""
    (message,) = of_field(JUMPING[name], traced)
    line = inspect.getsourcelines(JUMPING[name])[1]
    assert (
        f"The vector_field of mode 'only' jumps at test_choices.py:{line} (" in message
        and "Make each side a mode" in message
    )


def test_a_jump_that_is_typed_at_a_prompt():
    """Of a function without a file."""
    typed = eval(compile("lambda t, x, p: jnp.where(x[0] < 1, 1.0, 2.0)", "<stdin>", "eval"))
    (message,) = of_field(typed, False)
    assert "jumps at <stdin>:1" in message


def of_kink(term) -> list[str]:
    """The warnings about derivatives of a vector field with that term."""
    return of_field(term, check_mode=lambda system, name, t, x, p: warn_of_kinks(system, (name,), t, x, p))


@pytest.mark.parametrize("name", KINKS)
def test_a_kink_is_named(name):
    term, order = KINKS[name]
    (message,) = of_kink(term)
    line = inspect.getsourcelines(term)[1]
    assert f"The {order} derivative of the vector_field of mode 'only' jumps at test_choices.py:{line} (" in message


def test_what_is_smooth_has_no_kink():
    cube = lambda t, x, p: jnp.where(x[0] > 0, x[0] ** 3, 0.0)
    assert [of_kink(each) for each in (*map(CONTINUOUS.get, SMOOTH), cube)] == [[]] * (len(SMOOTH) + 1)


@pytest.mark.parametrize("traced", [False, pytest.param(True, marks=pytest.mark.medium)], ids=["known", "traced"])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_what_is_continuous_is_not_named(name, traced):
    assert of_field(CONTINUOUS[name], traced) == []


def test_large_arrays_prints_and_callbacks():
    """A choice behind thirty others, in 100 coordinates: in a second. Nothing is printed; what a callback does is not known."""
    printed = []

    def field(t, x, p):
        jax.debug.callback(lambda x: printed.append(0), x)
        kinks = jnp.where(x > 0, x, -x)
        for k in range(30):
            kinks = jnp.where(kinks > k, kinks, k + 0.5 * (kinks - k))
        return kinks + jnp.sign(x[7])

    many = hj.HybridSystem({"only": hj.Mode(field, tuple(f"x{k}" for k in range(100)))}, ())
    assert len(messages(lambda: check_mode(many, "only", jnp.zeros(()), jnp.zeros(100), None))) == 1
    assert not printed
    outside = lambda t, x, p: jax.pure_callback(
        np.sign, jax.ShapeDtypeStruct((), float), x[0], vmap_method="sequential"
    )
    assert of_field(outside) == []


def test_in_single_precision():
    """Bisection ends at the rounding of float32, over which a root changes by 3e-4."""
    assert len(of_field(JUMPING["sign"], dtype=jnp.float32)) == 1
    assert not of_field(CONTINUOUS["a root"], dtype=jnp.float32) + of_field(CONTINUOUS["pieces"], dtype=jnp.float32)


def test_once_for_each_function():
    """At the line that called hyjax, when a function is used first: not under `jit` again, nor for another start."""
    stick = hj.HybridSystem({"only": hj.Mode(lambda t, x, p: -jnp.sign(x), ("v",))}, ())
    run = lambda v: hj.simulate(stick, v, None, mode="only", t1=0.5, max_jumps=0, integrator=ROLLED)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(jnp.array([1.0]))
        run(jnp.array([2.0]))
    assert [each.filename for each in caught] == [__file__]


def test_a_traced_function_is_not_traced_again():
    """Every call of `simulate` used to trace each function once for its shape: most of the time of an eager call."""
    traced = []
    decay = hj.HybridSystem({"only": hj.Mode(lambda t, x, p: (traced.append(0), -p * x)[1], ("x",))}, ())
    run = lambda x, p: hj.simulate(decay, x, p, mode="only", t1=0.5, max_jumps=0, integrator=ROLLED)
    run(jnp.ones(1), jnp.ones(()))
    before = len(traced)
    run(2 * jnp.ones(1), 3 * jnp.ones(()))
    assert len(traced) == before
    # Another shape of the parameters is another program, and is checked.
    with pytest.raises(ValueError, match=r"must return shape \(1,\), not \(2,\)"):
        run(jnp.ones(1), jnp.ones(2))


def test_parameters_that_are_equal_and_of_other_types_are_checked():
    """`True == 1`: what is known of a function is by the types of its parameters too."""
    field = lambda t, x, p: x if p is True else jnp.append(x, x)
    system = hj.HybridSystem({"only": hj.Mode(field, ("x",))}, ())
    check_mode(system, "only", jnp.zeros(()), jnp.ones(1), True)
    with pytest.raises(ValueError, match=r"must return shape \(1,\), not \(2,\)"):
        check_mode(system, "only", jnp.zeros(()), jnp.ones(1), 1)
    # What was wrong is wrong again; what was right is known for those types alone.
    with pytest.raises(ValueError, match=r"must return shape \(1,\), not \(2,\)"):
        check_mode(system, "only", jnp.zeros(()), jnp.ones(1), 1)
    check_mode(system, "only", jnp.zeros(()), jnp.ones(1), True)


def test_resets_and_guards():
    """A guard that jumps and keeps its sign meets no surface there."""
    jump = lambda t, x, p: jnp.where(x > 0.5, 0.0, x)
    through, below = (
        lambda t, x, p: jnp.where(x[0] > 0.5, x[0] - 1, 1),
        lambda t, x, p: jnp.where(t < 1, x[0] ** 2 + 1, 1),
    )
    mode = hj.Mode(lambda t, x, p: -x, ("x",))

    def of(guard, reset):
        system = hj.HybridSystem({"only": mode}, (hj.Transition("only", "only", guard, reset),))
        return messages(lambda: check_mode(system, "only", jnp.zeros(()), jnp.ones(1), None))

    (message,) = of(lambda t, x, p: x[0] - 1, jump)
    assert "The reset of transition 'only' -> 'only' jumps at test_choices.py:" in message and "armed=" in message
    (message,) = of(through, same)
    assert "The guard of transition 'only' -> 'only' jumps at test_choices.py:" in message and "armed=" in message
    assert of(below, same) == []


INDICES = {
    "read": (lambda t, x, p: x[7], "(7,)"),
    "from the end": (lambda t, x, p: x[-3], "(-1,)"),
    "of parameters": (lambda t, x, p: (p * TABLE)[4], "(4,)"),
    "of a matrix": (lambda t, x, p: jnp.outer(x, x)[1, 2], "(1, 2)"),
    "a row": (lambda t, x, p: jnp.outer(x, x)[:, 2][0], "(0, 2)"),
    "an index of JAX": (lambda t, x, p: x[jnp.array(2)], "(2,)"),
    "written": (lambda t, x, p: x.at[2].set(0.0)[0], "(2,)"),
    "added in a matrix": (lambda t, x, p: jnp.outer(x, x).at[2, 0].add(1.0)[0, 0], "(2, 0)"),
    "in a call": (lambda t, x, p: jax.jit(lambda y: y[2])(x), "(2,)"),
    "in a branch": (lambda t, x, p: jax.lax.cond(x[0] > 0, lambda: x[2], lambda: x[0]), "(2,)"),
    "of a derivative": (lambda t, x, p: jax.grad(lambda y: y[2] ** 2)(x)[0], "(2,)"),
}
# In range, computed, meant, or of no array of the state.
IN_RANGE = {
    "ends": lambda t, x, p: x[1] + x[-2] + x.at[-1].set(1.0)[0] + x[jnp.array(-2)] + jnp.outer(x, x)[1, -2],
    "slices": lambda t, x, p: jnp.sum(x[:7]) + jnp.sum(x.at[1:7].set(0.0)),
    "computed": lambda t, x, p: TABLE[jnp.clip(jnp.asarray(p, int), 0, 9)] * x[0],
    "a loop": lambda t, x, p: jax.lax.fori_loop(0, 2, lambda i, total: total + x[i], 0.0),
    "a random number": lambda t, x, p: jax.random.normal(jax.random.key(0), (3,))[2] * x[0],
    "a batch": lambda t, x, p: jnp.sum(jax.vmap(lambda y: x.at[1].set(y)[0])(TABLE)),
    "a choice of numbers": lambda t, x, p: jax.lax.select_n(jnp.int32(2), *3 * [x])[0],
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_out_of_range(name):
    """JAX reads the nearest entry, and writes none: each call is refused, with the line."""
    term, index = INDICES[name]
    line = inspect.getsourcelines(term)[1]
    what = re.escape(f"The vector_field of mode 'only' has the index {index} of an array of shape ")
    for traced in (False, True):
        with pytest.raises(ValueError, match=rf"{what}\(.*\) at test_choices.py:{line} \("):
            of_field(term, traced)


@pytest.mark.parametrize("name", IN_RANGE)
def test_an_index_in_range(name):
    of_field(IN_RANGE[name])


def test_forces_of_a_mechanism():
    """A choice in the user's force is named, those in the law of contact are not."""
    block = lambda friction: hj.contact.contact_system(
        hj.contact.Mechanism(mass=lambda q, p: jnp.eye(1), forces=lambda t, q, v, p: friction(v) - 9.81),
        hj.contact.Contact(gap=lambda t, q, p: q[0], restitution=0.5, settle=0.1),
        coordinates=("y",),
    )

    def of(system):
        return messages(lambda: [check_mode(system, name, jnp.zeros(()), jnp.ones(2), None) for name in system.names])

    assert of(block(lambda v: -v)) == []
    found = of(block(lambda v: -jnp.sign(v)))
    assert found and all("test_choices.py:" in message and "sign" in message for message in found)
    # Of contacts by name the program is large: it is not even searched.
    (change,) = models.rocking_block.system.transitions
    program = jax.make_jaxpr(change.member(jnp.array(0)).reset)(
        jnp.zeros(()), jnp.ones(8), models.rocking_block.Params()
    )
    assert not may_jump(program.jaxpr, ("unknown", 0))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in models.names]
)
def test_models_do_not_jump(name):
    model = models.load(name)
    system = sized(model.system, jnp.zeros(()), jnp.zeros(1), model.Params())

    def check():
        for mode, each in system.modes.items():
            check_mode(system, mode, jnp.zeros(()), jnp.zeros(each.dimension), model.Params())

    assert messages(check) == []


@pytest.mark.medium
def test_the_derivative_that_is_lacking():
    """x' = 1 until T and 2 from then on: x(1) from 0 is 2 - T, with derivative -1; where the field chooses, 0, and a warning."""
    side = lambda rate: hj.Mode(lambda t, x, p: rate * jnp.ones(1), ("x",))
    modes = hj.HybridSystem(
        {"below": side(1.0), "beyond": side(2.0)}, (hj.Transition("below", "beyond", lambda t, x, p: p - t, same),)
    )
    chosen = hj.HybridSystem({"below": hj.Mode(lambda t, x, p: jnp.where(t < p, jnp.ones(1), 2.0), ("x",))}, ())
    end = lambda system, p: hj.simulate(
        system, jnp.zeros(1), p, mode="below", t1=1.0, max_jumps=1, integrator=ROLLED
    ).x[0]
    value, slope = jax.value_and_grad(end, argnums=1)(modes, jnp.array(0.5))
    np.testing.assert_allclose([value, slope], [1.5, -1], rtol=1e-14)
    with pytest.warns(UserWarning, match="derivatives, and so multipliers and gradients, lack this jump"):
        value, slope = jax.value_and_grad(end, argnums=1)(chosen, jnp.array(0.5))
    # The solver's error of a step across the jump.
    np.testing.assert_allclose(value, 1.5, rtol=1e-8)
    assert slope == 0


def test_choices_by_held_coordinates_are_not_met():
    """A flag that only a jump changes may choose between two fields; a coordinate of the flow may not."""
    fields = {
        "held": lambda t, x, p: jnp.where(x[1:] > 0, -x[:1], 1.0),
        "moving": lambda t, x, p: jnp.sign(x[:1] - x[1:]),
    }
    for name, field in fields.items():
        system = hj.HybridSystem({"m": hj.Mode(field, ("a",), held=("flag",))}, ())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_mode(system, "m", jnp.zeros(()), jnp.array([0.3, 1.0]), None)
        assert ["jumps at" in str(each.message) for each in caught] == [True] * (name == "moving")
