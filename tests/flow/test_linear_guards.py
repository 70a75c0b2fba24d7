"""Guards that are linear in state and time: any step resolves them, and the loop does not examine them inside steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj
from hyjax._testing import Automaton, depends_on, integrate, linear, no_surfaces, rounding_scale, sincos, Surfaces

POINT = jnp.zeros(()), jnp.array([0.3, -0.4])
PARAMS = jnp.array(0.7)


def surfaces(guard):
    return Surfaces(1, lambda t, x, p, only=None: jnp.stack([guard(t, x, p)]), lambda t, x, p: jnp.array([True]))


@pytest.mark.parametrize(
    "guard",
    [
        lambda t, x, p: x[0],
        lambda t, x, p: p**2 * x[0] - jnp.sin(p) * x[1] + 3 * t - p,
        lambda t, x, p: jnp.where(p > 0, x[0], x[1]),
        lambda t, x, p: jax.jit(lambda x: x[0] - 2 * x[1])(x),
        lambda t, x, p: jax.lax.cond(p > 0, lambda x: x[0], lambda x: 1 - x[1], x),
        lambda t, x, p: jnp.array([1.0, 2.0]) @ x,
    ],
)
def test_linear(guard):
    assert linear(surfaces(guard), *POINT, PARAMS)


@pytest.mark.parametrize(
    "guard",
    [
        lambda t, x, p: x[0] * x[1],
        lambda t, x, p: x[0] * t,
        lambda t, x, p: sincos(t)[0],
        lambda t, x, p: jnp.abs(x[0]),
        lambda t, x, p: jnp.where(x[0] > 0, x[0], 2 * x[0]),
        lambda t, x, p: jax.jit(lambda x: x[0] ** 2)(x),
        lambda t, x, p: jax.lax.cond(p > 0, lambda x: x[0], lambda x: x[1] ** 3, x),
        lambda t, x, p: jax.lax.cond(x[1] > 0, lambda x: x[0], lambda x: 2 * x[0], x),
        lambda t, x, p: jnp.sqrt(x @ x),
    ],
)
def test_not_linear(guard):
    assert not linear(surfaces(guard), *POINT, PARAMS)


def test_no_guard_is_linear():
    assert linear(no_surfaces(), *POINT, PARAMS)


def test_modes_with_guards_of_their_own():
    """The guards of an automaton are a switch over its modes: linear if those of every mode are."""

    def of(second):
        rest = hj.Mode(lambda t, x, p: -x, ("a", "b"))
        ways = (
            hj.Transition("first", "second", guard=lambda t, x, p: x[0], reset=lambda t, x, p: x),
            hj.Transition("second", "first", guard=second, reset=lambda t, x, p: x),
        )
        automaton = Automaton(hj.HybridSystem({"first": rest, "second": rest}, ways))
        return linear(automaton.surfaces, *POINT, (jnp.array(0), PARAMS))

    assert of(lambda t, x, p: p - x[1])
    assert not of(lambda t, x, p: p - x[1] ** 2)


def test_an_operation_with_an_input_counts_and_its_place_does_not():
    closed = jax.make_jaxpr(lambda a, b: (jnp.stack([b, 2.0 * b]), a + 1))(1.0, 2.0)
    assert depends_on(closed, 1)
    closed = jax.make_jaxpr(lambda a, b: jnp.stack([b, 2.0 * b]))(1.0, 2.0)
    assert not depends_on(closed, 1)


def test_inner_functions_and_loops_are_looked_through():
    first = jax.custom_jvp(lambda a, b: b)
    first.defjvp(lambda values, tangents: (values[1], tangents[1]))
    with_vjp = jax.custom_vjp(lambda a, b: b)
    with_vjp.defvjp(lambda a, b: (b, None), lambda _, back: (jnp.zeros_like(back), back))
    body = lambda mixed: lambda k, carry: (carry[0] + 1, 2 * carry[1] + (carry[0] if mixed else 0))
    loops = lambda mixed: [
        lambda a, b: jax.lax.fori_loop(0, 3, body(mixed), (a, b))[1],  # A scan.
        lambda a, b: jax.lax.while_loop(lambda c: c[1] < 9, lambda c: body(mixed)(0, c), (a, b))[1],
    ]
    apart = [jax.jit(lambda a, b: 2 * b), jax.checkpoint(lambda a, b: jnp.sin(b)), first, with_vjp]
    apart += [lambda a, b: jax.lax.cond(b > 0, lambda: b, lambda: 2 * b), *loops(False)]
    mixed = [jax.jit(lambda a, b: a * b), jax.checkpoint(lambda a, b: jnp.sin(a) + b), *loops(True)]
    # Only the number of passes depends on the first input; only how large its rounding is.
    mixed.append(lambda a, b: jax.lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 1, 2 * c[1]), (a, b))[1])
    apart.append(lambda a, b: b + 1e-16 * rounding_scale(a))

    def written(a, b):
        ref = jax.new_ref(0.0)
        ref[...] = a
        return b * ref[...]

    # Of one's own, by the same name.
    cosine = lambda a: jnp.cos(a)
    cosine.__name__ = "rounding_scale"
    mixed += [written, jax.jit(written), lambda a, b: b + jax.jit(cosine)(a)]
    of = lambda fn: depends_on(jax.make_jaxpr(fn)(1.0, 2.0), 1)
    assert not any(map(of, apart)) and all(map(of, mixed))


@pytest.mark.medium
def test_events_are_the_same_in_fewer_steps(monkeypatch):
    """As linear guards or as any others: a fall, and a dip inside a long step, which the guard's rates show."""
    fall = hj.Mode(lambda t, x, p: jnp.stack([x[1], -x[0]]), ("x", "v"))
    ways = (hj.Transition("fall", "fall", guard=lambda t, x, p: x[0] - p, reset=lambda t, x, p: -x),)
    system = hj.HybridSystem({"fall": fall}, ways)
    starts = jnp.array([[1.0, 0.0], [0.2, 1.3], [-0.1, 0.8]])

    def ends():
        integrator = hj.Integrator(rtol=1e-12, atol=1e-12)
        run = lambda x: hj.flow_to_guard(system, "fall", 0.0, x, jnp.array(-0.7), integrator=integrator)
        found = jax.jit(jax.vmap(run))(starts)
        return np.asarray(found.t), np.asarray(found.x), np.asarray(found.steps)

    t, x, steps = ends()
    jax.clear_caches()
    monkeypatch.setattr(integrate, "linear", lambda *inputs: False)
    others = ends()
    # The last steps differ, so the errors of the tolerance do.
    np.testing.assert_allclose(t, others[0], rtol=0, atol=1e-11)
    np.testing.assert_allclose(x, others[1], rtol=0, atol=1e-11)
    assert np.all(steps <= others[2]) and np.any(steps < others[2])


def test_a_guard_that_dips_before_a_steep_rise_or_after_a_steep_fall():
    """A step of a cubic, of which rates at the ends and the rise do not have one sign, although the rates are no steeper than
    three times the rise. One at a time: in a batch all lanes are searched where one is."""
    rise_rate = lambda t, x, jerk: jnp.stack([x[1], x[2], jerk])
    fall = hj.Transition("m", "m", guard=lambda t, x, jerk: x[0], reset=lambda t, x, jerk: x)
    system = hj.HybridSystem({"m": hj.Mode(rise_rate, ("x", "rate", "acceleration"))}, (fall,))
    integrator = hj.Integrator(rtol=1e-2, atol=1e-2, first_step=1.0)

    def falls(ends):
        a, b, ra, rb = ends
        second, third = 3 * (b - a) - 2 * ra - rb, ra + rb - 2 * (b - a)
        start = jnp.stack([a, ra, 2 * second])
        run = hj.simulate(system, start, 6 * third, mode="m", t1=1.0, max_jumps=3, integrator=integrator, throw=False)
        return run.jumps, run.end_times[0]

    one = np.random.default_rng(0).uniform(0.5, 1, (40, 4))
    signs = np.array([[1, 1e-6, 0.3, 0.1], [1e-6, 1, -0.1, -0.3]])[np.arange(40) % 2]
    ends = one * signs
    jumps, times = jax.jit(lambda ends: jax.lax.map(falls, ends))(jnp.asarray(ends))
    for (a, b, ra, rb), count, time in zip(ends, jumps, times, strict=True):
        roots = np.roots([ra + rb - 2 * (b - a), 3 * (b - a) - 2 * ra - rb, ra, a])
        first = min(root.real for root in roots if abs(root.imag) < 1e-9 and 0 < root.real < 1)
        assert count == 1
        np.testing.assert_allclose(time, first, rtol=1e-9)
