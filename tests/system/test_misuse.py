"""Bad input is refused with the value and the remedy, before anything is computed."""

import dataclasses
import enum
import functools as ft

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import hyjax as hj
from hyjax import models
from hyjax.models import bouncing_ball, compass_gait, rimless_wheel, simplest_walker

FIELD = lambda t, x, p: jnp.zeros_like(x)
GUARD = lambda t, x, p: x[0]
SAME = lambda t, x, p: x
FREE = hj.Mode(FIELD, ("y", "v"))
WALKER = dict(system=simplest_walker.system, sequence=("swing",))
PARAMS = simplest_walker.Params(0.009)
START = jnp.array([0.2, -0.2, 0.4, -0.016])


@pytest.fixture(autouse=True)
def as_users_run_it():
    """Without the type checks that the tests put around every function, which would speak first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def system(*transitions, **modes):
    return hj.HybridSystem({"free": FREE} | modes, transitions)


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: hj.Mode("f", ("y",)), "vector_field must be a function"),
        (lambda: hj.Mode(FIELD, ()), "coordinates must name every state"),
        (lambda: hj.Mode(FIELD, (1, 2)), r"coordinates must name every state, .*; got \(1, 2\)"),
        (lambda: hj.Mode(FIELD, ("y", "y")), r"must differ from each other; got \('y', 'y'\)"),
        (lambda: hj.Transition("a", "b", None, SAME), "'a' -> 'b': guard must be a function"),
        (lambda: hj.Transition("a", "b", GUARD, 3), "'a' -> 'b': reset must be a function"),
        (lambda: hj.Transition("a", "b", GUARD, SAME, True), "armed must be a function"),
        (lambda: hj.HybridSystem({}, ()), "at least one mode"),
        (lambda: hj.HybridSystem({"free": FIELD}, ()), r"modes\['free'\] must be a hj.Mode"),
        (lambda: system("jump"), "must be hj.Transition"),
        (
            lambda: system(hj.Transition("free", "fly", GUARD, SAME)),
            "target of a transition 'fly' is not one of the modes",
        ),
        (lambda: system(hj.Transition("fly", "free", GUARD, SAME)), r"source of a transition 'fly' .* \('free',\)"),
        (lambda: hj.Integrator(solver=dfx.Euler()), "error estimate"),
        (lambda: hj.Integrator(rtol=0.0), "rtol=0.0 must lie between 0 and 1"),
        (lambda: hj.Integrator(atol=1.0), "atol=1.0 must lie between 0 and 1, for example atol=1e-10"),
        (lambda: hj.Integrator(max_steps=0), "max_steps=0 must be an integer of at least 1"),
        (lambda: hj.Integrator(max_steps=1e3), "max_steps=1000.0 must be an integer of at least 1"),
        (lambda: hj.Integrator(max_time=-1.0), "max_time=-1.0 must be positive"),
        (lambda: hj.Integrator(max_step=0.0), "max_step=0.0 must be positive"),
        (
            lambda: hj.Integrator(adjoint=dfx.BacksolveAdjoint()),
            "ForwardMode, DirectAdjoint, RecursiveCheckpointAdjoint",
        ),
        (lambda: rimless_wheel.Params(spokes=2), "spokes=2.0 must be more than 2"),
        (lambda: rimless_wheel.Params(inertia_ratio=1.5), "inertia_ratio=1.5"),
        (lambda: simplest_walker.Params(slope=3.0), "slope=3.0"),
        (lambda: compass_gait.Params(beta=0.0), "beta=0.0 must be positive"),
        (lambda: compass_gait.Params(mu=-1.0), "mu=-1.0 must not be negative"),
        (lambda: compass_gait.Params(gravity=0.0), "gravity=0.0 must be positive"),
        (lambda: compass_gait.Params(leg_length=-1.0), "leg_length=-1.0 must be positive"),
        (lambda: bouncing_ball.Params(restitution=1.5), "restitution=1.5"),
        (lambda: bouncing_ball.Params(gravity=0.0), "gravity=0.0 must be positive"),
        (lambda: models.load("nobody"), "There is no model 'nobody'. The models are: bouncing_ball"),
    ],
)
def test_at_construction(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(sequence=("hop",)), "'hop' is not one of the modes"),
        (dict(sequence=()), "give a tuple of mode names"),
        (dict(sequence="swing"), "give a tuple of mode names, such as .*; got 'swing'"),
        (dict(x=jnp.array([1, 2, 3, 4])), "int64; a state is a floating array"),
        (dict(x=jnp.zeros(3)), r"shape \(3,\) does not fit mode 'swing'"),
        (dict(x=jnp.array([0.2, jnp.nan, 0.4, 0.0])), "is not finite"),
        (dict(integrator=hj.Integrator(rtol=1e-17)), "rtol=1e-17 is below what float64 can resolve"),
        (
            dict(integrator=hj.Integrator(rtol=1e-8), x=START.astype(jnp.float32)),
            "rtol=1e-08 is below what float32 can resolve .* Raise rtol, or use float64",
        ),
    ],
)
@pytest.mark.parametrize(
    "call", [hj.ReturnMap.__call__, hj.ReturnMap.jacobian, hj.ReturnMap.monodromy, hj.periodic_orbit]
)
def test_at_the_first_call(call, change, message):
    arguments = WALKER | dict(x=START) | change
    x = arguments.pop("x")
    with pytest.raises(ValueError, match=message):
        call(hj.ReturnMap(**arguments), x, PARAMS)


@pytest.mark.parametrize(
    "mode, x, message",
    [
        ("hop", START, "'hop' is not one of the modes"),
        ("swing", jnp.zeros(3), r"shape \(3,\) does not fit mode 'swing', which has 4 coordinates"),
        ("swing", START.at[0].set(jnp.inf), "is not finite"),
    ],
)
def test_of_a_single_arc(mode, x, message):
    with pytest.raises(ValueError, match=message):
        hj.flow_to_guard(simplest_walker.system, mode, 0.0, x, PARAMS)


@pytest.mark.slow
def test_one_orbit_is_no_batch():
    orbit = hj.periodic_orbit(hj.ReturnMap(**WALKER), START, PARAMS, throw=False)
    with pytest.raises(TypeError, match="one orbit, not a batch"):
        len(orbit)
    with pytest.raises(TypeError, match="one orbit, not a batch"):
        orbit[0]
    with pytest.raises(ValueError, match="strides=0 must be an integer of at least 1"):
        hj.ReturnMap(**WALKER, strides=0)


def test_parameters_that_are_not_finite():
    params = jax.tree.map(lambda _: jnp.array(jnp.inf), simplest_walker.Params(0.009))
    with pytest.raises(ValueError, match="slope = inf is not finite"):
        simplest_walker.step(START, params)


@pytest.mark.parametrize(
    "transition, message",
    [
        (hj.Transition("free", "free", lambda t, x, p: x, SAME), r"guard .* must return shape \(\), not \(2,\)"),
        (hj.Transition("free", "free", GUARD, lambda t, x, p: x[:1]), r"reset .* must return shape \(2,\), not \(1,\)"),
        (
            hj.Transition("free", "free", GUARD, SAME, lambda t, x, p: x > 0),
            r"armed .* must return shape \(\), not \(2,\)",
        ),
        (
            hj.Transition("free", "free", lambda t, x, p: x[0].astype(jnp.float32), SAME),
            "guard .* returns float32; .* float64",
        ),
        (hj.Transition("free", "free", lambda t, x, p: x[0].astype(int), SAME), "guard .* returns int64; .* float64"),
        (hj.Transition("free", "free", lambda t, x, p: x[0] > 0, SAME), "guard .* returns bool; .* float64"),
        (
            hj.Transition("free", "free", GUARD, lambda t, x, p: x.astype(complex)),
            "reset .* returns complex128; .* float64",
        ),
        (hj.Transition("free", "free", GUARD, SAME, lambda t, x, p: x[0]), "armed .* returns float64; .* bool"),
    ],
)
def test_functions_of_the_wrong_shape(transition, message):
    with pytest.raises(ValueError, match=message):
        hj.flow_to_guard(system(transition), "free", 0.0, jnp.ones(2), None)


def test_vector_field_of_the_wrong_shape():
    wrong = hj.Mode(lambda t, x, p: x[:1], ("y", "v"))
    with pytest.raises(ValueError, match=r"vector_field of mode 'free' must return shape \(2,\), not \(1,\)"):
        hj.flow_to_guard(system(free=wrong), "free", 0.0, jnp.ones(2), None)


def test_domain_of_the_wrong_shape():
    wrong = hj.Mode(lambda t, x, p: x, ("y", "v"), domain=lambda t, x, p: jnp.diag(x))
    with pytest.raises(ValueError, match=r"domain of mode 'free' must return shape \(\) or \(k,\), not \(2, 2\)"):
        hj.flow_to_guard(system(free=wrong), "free", 0.0, jnp.ones(2), None)
    with pytest.raises(ValueError, match="domain must be a function"):
        hj.Mode(lambda t, x, p: x, ("y", "v"), domain=1.0)  # pyright: ignore


def test_sequences_that_cannot_be_followed():
    way, other = hj.Transition("free", "free", GUARD, SAME), hj.Transition("free", "free", lambda t, x, p: x[1], SAME)
    with pytest.raises(ValueError, match="no transition from 'free' to 'rest'"):
        hj.ReturnMap(system(way, rest=FREE), sequence=("free", "rest"))(jnp.ones(2), None)
    with pytest.raises(ValueError, match="2 transitions lead from 'free' to 'free'"):
        hj.ReturnMap(system(way, other), sequence=("free",))(jnp.ones(2), None)


def test_failure_raises_with_its_reason():
    with pytest.raises(Exception, match="Newton's method found no periodic orbit from this guess"):
        hj.periodic_orbit(hj.ReturnMap(**WALKER), jnp.array([0.01, -1e-3, 0.02, 0.0]), PARAMS)


WHEEL, AT, SLOPES = rimless_wheel.step, rimless_wheel.Params(), jnp.array([0.2, 0.25])
SLOPE, GAIT = lambda p: p.slope, lambda p: hj.periodic_orbit(WHEEL, rimless_wheel.guess(p), p, throw=False)


@pytest.mark.parametrize(
    "within", [jax.jit, jax.grad, lambda fn: lambda p: jax.vmap(fn)(jax.tree.map(lambda x: x[None], p))]
)
@pytest.mark.parametrize(
    "name, search",
    [
        ("find_orbits", lambda p: hj.find_orbits(WHEEL, p, region=rimless_wheel.region(AT)).period[0]),
        ("attractor", lambda p: hj.attractor(WHEEL, rimless_wheel.guess(p), p, where=SLOPE, values=SLOPES)),
        ("basin", lambda p: hj.basin(WHEEL, p, axes={"theta": [-0.4], "theta_rate": [0.4, 0.8]})),
        ("edge_state", lambda p: hj.edge_state(WHEEL, p, between=(GAIT(p), rimless_wheel.guess(p)))),
        ("sweep", lambda p: hj.sweep(GAIT(p), where=SLOPE, values=SLOPES).period[0]),
        ("smallest_push", lambda p: hj.smallest_push(GAIT(p), directions=("theta_rate",)).size),
        ("manifold", lambda p: GAIT(p).manifold("stable", length=0.1).x),
    ],
)
def test_searches_in_python_need_numbers(name, search, within):
    with pytest.raises(
        ValueError, match=f"{name}: a search in Python needs numbers, and cannot be under jit, vmap or grad"
    ):
        within(search)(AT)


def test_a_branch_has_no_derivatives():
    branch = lambda p: hj.continuation(GAIT(p), where=SLOPE, stop=0.25, throw=False).curves.count
    with pytest.raises(ValueError, match="continuation: a branch has no derivatives"):
        jax.jit(jax.jacfwd(branch))(AT)


@dataclasses.dataclass
class Records:
    rate: float


class Plain:
    rate = 1.0


class Law:
    """A function with a number, of which JAX does not see that it changes."""

    def __init__(self):
        self.rate = 1.0

    def __call__(self, x):
        return self.rate * x


class Kind(enum.Enum):
    one = 1


@pytest.mark.parametrize(
    "params, name",
    [(Records(1.0), "Records"), ({"a": Plain()}, "Plain"), ({"a": Law()}, "Law"), ([Law().__call__], "method")],
)
def test_parameters_that_are_no_pytree(params, name):
    """JAX compiled such an object as a constant: its later values were not seen."""
    with pytest.raises(ValueError, match=f"is a {name}, of which JAX sees no numbers.*register_dataclass"):
        hj.simulate(system(), jnp.ones(2), params, mode="free", t1=1.0)


def test_parameters_of_any_number_and_text():
    """y' = |z| y for one unit of time, with an impedance z = 0.6 + 0.8i beside a text, nothing and a function."""
    grow = hj.Mode(lambda t, x, p: jnp.abs(p["z"]) * x, ("y",))
    given = {"z": 0.6 + 0.8j, "label": "coil", "nothing": None, "law": jnp.abs, "kind": Kind.one, "of": Law, "np": np}
    given |= {"jit": jax.jit(jnp.sin), "partial": ft.partial(jnp.multiply, 2.0), "ufunc": np.sin, "max": jnp.maximum}
    run = hj.simulate(hj.HybridSystem({"free": grow}, ()), jnp.ones(1), given, mode="free", t1=1.0)
    assert abs(float(run.final[0]) - float(jnp.e)) < 1e-13


BELOW = lambda t, x, p: -jnp.ones_like(x)
SLOPE = lambda p: p.slope
# Calls by the argument that is of another type, and what the message names.
OF_ANOTHER_TYPE = {
    "coordinates": (lambda bad: hj.Mode(FIELD, bad), "tuples of texts"),
    "units": (lambda bad: hj.Mode(FIELD, ("y",), units=bad), "tuples of texts"),
    "held": (lambda bad: hj.Mode(FIELD, ("y",), held=bad), "tuples of texts"),
    "modes": (lambda bad: hj.HybridSystem(bad, ()), "modes must be a dictionary"),
    "transitions": (lambda bad: hj.HybridSystem({"free": FREE}, bad), "transitions must be a tuple"),
    "sequence": (lambda bad: hj.ReturnMap(simplest_walker.system, sequence=bad), "tuple of mode names"),
    "clock": (lambda bad: hj.every(bad, SAME), "every: period="),
    "stroboscope": (lambda bad: hj.Stroboscope("free", bad), "Stroboscope: period="),
    "fields": (lambda bad: hj.filippov(bad, GUARD, ("y",)), "fields must be a dictionary"),
    "surface": (lambda bad: hj.filippov({1: FIELD, -1: BELOW}, bad, ("y",)), "surface=.* must be one function"),
    "limit": (lambda bad: hj.Constraint(hj.objectives.period, at_most=bad), "a limit must be a number"),
    "guess": (lambda bad: hj.periodic_orbit(simplest_walker.step, bad, PARAMS), "is no array of numbers"),
    "method": (lambda bad: hj.periodic_orbit(simplest_walker.step, START, PARAMS, method=bad), "SingleShooting()"),
    "region": (lambda bad: hj.find_orbits(simplest_walker.step, PARAMS, region=bad), "pair of states"),
    "simulated": (lambda bad: hj.simulate(bad, START, PARAMS, mode="swing", t1=1.0), "must be a hj.HybridSystem"),
    "start": (
        lambda bad: hj.simulate(simplest_walker.system, bad, PARAMS, mode="swing", t1=1.0),
        "no array of numbers",
    ),
    "end": (lambda bad: hj.simulate(simplest_walker.system, START, PARAMS, mode="swing", t1=bad), "t1=.* one number"),
    "times": (
        lambda bad: hj.simulate(simplest_walker.system, START, PARAMS, mode="swing", t1=1.0, times=bad),
        "times=.* numbers in one dimension",
    ),
    "axes": (lambda bad: hj.basin(simplest_walker.step, PARAMS, axes=bad), "axes must be a dictionary"),
    "continued": (lambda bad: hj.continuation(bad, where=SLOPE, stop=1.0), "must be a hj.PeriodicOrbit"),
    "switched": (lambda bad: hj.switch_branch(bad, stop=1.0), "one of branch.special_points"),
    "followed": (lambda bad: hj.locus(bad, where=SLOPE, stop=1.0), "one of branch.special_points"),
    "swept": (lambda bad: hj.sweep(bad, where=SLOPE, values=jnp.ones(1)), "must be a hj.PeriodicOrbit"),
    "optimized": (lambda bad: hj.optimize(bad, hj.objectives.period, where=SLOPE), "must be a hj.PeriodicOrbit"),
    "optimum": (lambda bad: hj.follow_optimum(bad, where=SLOPE, stop=1.0), "what hj.optimize returns"),
    "feedback": (lambda bad: hj.control.stride_feedback(bad, where=SLOPE), "must be a hj.PeriodicOrbit"),
    "response": (lambda bad: hj.phase.phase_response(bad), "must be a hj.PeriodicOrbit"),
    "root finder": (
        lambda bad: hj.MultipleShooting(root_finder=bad),
        "root_finder must be a root finder of optimistix",
    ),
    "between": (lambda bad: hj.edge_state(simplest_walker.step, PARAMS, between=bad), "between=.* must be a pair"),
    "equilibrium": (lambda bad: hj.phase.equilibrium(bad, "free", START, None), "must be a hj.HybridSystem"),
    "certified": (lambda bad: hj.certify.attracting(bad), "must be a hj.PeriodicOrbit"),
}


@pytest.mark.parametrize("name", OF_ANOTHER_TYPE)
def test_an_argument_of_another_type(name):
    """A dictionary or a text where none is meant, and an object."""
    call, message = OF_ANOTHER_TYPE[name]
    right = {"modes": dict, "fields": dict, "axes": dict, "coordinates": str, "units": str, "held": str}.get(
        name, tuple
    )
    for bad in ({"slope": 1.0}, object(), "slope"):
        if not isinstance(bad, right):
            with pytest.raises(ValueError, match=message):
                call(bad)


MASS = lambda q, p: jnp.eye(1)
GAP = lambda t, q, p: q[0]
PENDULUM = hj.contact.Mechanism(MASS)
# Calls with a function, and what the message names: the argument, and those of the function.
OF_OTHER_ARGUMENTS = {
    "field": (lambda bad: hj.Mode(bad, ("y",)), r"vector_field must be a function of \(t, x, params\)"),
    "domain": (lambda bad: hj.Mode(FIELD, ("y",), bad), r"domain must be a function of \(t, x, params\)"),
    "guard": (lambda bad: hj.Transition("a", "b", bad, SAME), r"guard must be a function of \(t, x, params\)"),
    "reset": (lambda bad: hj.Transition("a", "b", GUARD, bad), r"reset must be a function of \(t, x, params\)"),
    "armed": (lambda bad: hj.Transition("a", "b", GUARD, SAME, bad), r"armed must be a function of \(t, x, params\)"),
    "tick": (lambda bad: hj.every(1.0, bad), r"every: reset must be a function of \(t, x, params\)"),
    "period": (lambda bad: hj.every(bad, SAME), r"every: period must be a function of \(params\)"),
    "phase": (lambda bad: hj.Stroboscope("free", 1.0, bad), r"Stroboscope: phase must be a function of \(params\)"),
    "section": (lambda bad: hj.Section("free", bad), r"surface must be a function of \(t, x, params\)"),
    "side": (lambda bad: hj.filippov({1: FIELD, -1: bad}, GUARD, ("y",)), "the field of -1 must be a function"),
    "surface": (lambda bad: hj.filippov({1: FIELD, -1: BELOW}, bad, ("y",)), "filippov: surface must be a function"),
    "constraint": (lambda bad: hj.Constraint(bad, at_most=1.0), r"must be a function of \(orbit, params\)"),
    "mass": (lambda bad: hj.contact.Mechanism(bad), r"mass must be a function of \(q, params\)"),
    "forces": (lambda bad: hj.contact.Mechanism(MASS, bad), r"forces must be a function of \(t, q, v, params\)"),
    "coriolis": (
        lambda bad: hj.contact.Mechanism(MASS, coriolis=bad),
        r"coriolis must be a function of \(q, v, params\)",
    ),
    "embedding": (lambda bad: PENDULUM.reduced(bad), r"embedding must be a function of \(theta, params\)"),
    "lagrangian": (lambda bad: hj.contact.lagrangian(bad), r"must be a function of \(q, v, params\)"),
    "gap": (lambda bad: hj.contact.Contact(bad), r"gap must be a function of \(t, q, params\)"),
    "slip": (
        lambda bad: hj.contact.Contact(GAP, bad, static=0.5, kinetic=0.5),
        r"slip must be a function of \(t, q, v, params\)",
    ),
    "restitution": (
        lambda bad: hj.contact.Contact(GAP, restitution=bad),
        r"restitution must be a function of \(params\)",
    ),
    "virtual constraint": (
        lambda bad: hj.control.virtual_constraints(
            PENDULUM, inputs=jnp.ones((1, 1)), phase=bad, desired=MASS, stiffness=1.0, damping=1.0
        ),
        r"phase must be a function of \(q, params\)",
    ),
}


@pytest.mark.parametrize("name", OF_OTHER_ARGUMENTS)
def test_a_function_of_other_arguments(name):
    """Of none and of seven, at construction; Python's own error would come out of a trace. What takes any is right."""
    call, message = OF_OTHER_ARGUMENTS[name]
    for bad in (lambda: 0.0, lambda a, b, c, d, e, f, g: 0.0):
        with pytest.raises(ValueError, match=f"{message}.* takes other arguments"):
            call(bad)
    call(lambda *given: 0.0)


def run_contact(mechanism, **given):
    touch = hj.contact.Contact(**{"gap": GAP} | given)
    return hj.simulate(
        hj.contact.contact_system(mechanism, touch, ("y",)), jnp.array([1.0, 0.0]), None, mode="U", t1=0.1
    )


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: hj.simulate(
            hj.filippov({1: FIELD, -1: BELOW}, lambda t, x, p: x, ("y", "v")), jnp.ones(2), None, mode="+", t1=1.0
        ), r"filippov: surface must return an array of shape \(\), not \(2,\)"),
        (lambda: hj.simulate(
            hj.HybridSystem({"free": hj.Mode(lambda t, x, p: "slope", ("y", "v"))}, ()), jnp.ones(2), None, mode="free", t1=1.0
        ), "vector_field of mode 'free' must return an array, not 'slope'"),
        (lambda: run_contact(PENDULUM, restitution=lambda p: jnp.ones(2)), r"restitution must return .*, not \(2,\)"),
        (lambda: run_contact(hj.contact.Mechanism(MASS, coriolis=lambda q, v, p: (0.0, 0.0))), r"coriolis must .*\(2,\)"),
        (lambda: run_contact(
            hj.contact.Mechanism(MASS, lambda t, q, v, p: q.astype(complex))
        ), r"forces must return an array of shape \(1,\), not complex128 of \(1,\)"),
        (lambda: run_contact(hj.contact.lagrangian(lambda q, v, p: v * v)), r"lagrangian: .* must return .*\(1,\)"),
    ],
)  # fmt: skip
def test_what_a_function_returns(call, message):
    with pytest.raises(ValueError, match=message):
        call()


class Jump(eqx.Module):
    """The methods of such a class are wrapped, by functions of any arguments."""

    def of_member(self, t, x, p, i):
        return x


def test_a_function_is_asked_for_its_own_arguments():
    """Not for those of one that it wraps, which here has another number."""

    @ft.wraps(lambda x, p: x)
    def field(t, x, p):
        return -x

    @ft.wraps(lambda t, x, p, gain: x)
    def same(t, x, p):
        return x

    @ft.wraps(FIELD)
    def wrong(x):
        return x

    system = hj.HybridSystem({"free": hj.Mode(field, ("y",))}, (hj.Transition("free", "free", GUARD, same),))
    assert not system.transitions[0].is_family
    assert hj.Transition("free", "free", GUARD, Jump().of_member).is_family
    run = hj.simulate(system, jnp.ones(1), None, mode="free", t1=1.0)
    assert abs(float(run.final[0]) - float(jnp.exp(-1))) < 1e-13
    with pytest.raises(ValueError, match=r"wrong|<lambda>\(x\) takes other arguments"):
        hj.Mode(wrong, ("y",))
    assert hj.Mode(jax.jit(FIELD), ("y",)).dimension == 1


def test_one_number_for_all_coriolis_terms():
    right = run_contact(hj.contact.Mechanism(MASS, lambda t, q, v, p: -jnp.ones(1)))
    same = run_contact(hj.contact.Mechanism(MASS, lambda t, q, v, p: -jnp.ones(1), lambda q, v, p: 0.0))
    assert jnp.array_equal(same.final, right.final)


def test_a_domain_may_be_a_number_of_python():
    free = hj.Mode(lambda t, x, p: x, ("y",), lambda t, x, p: 1.0)
    run = hj.simulate(hj.HybridSystem({"free": free}, ()), jnp.ones(1), None, mode="free", t1=1.0)
    assert abs(float(run.final[0]) - float(jnp.e)) < 1e-13


def test_of_an_orbit_a_function_of_other_arguments():
    params = rimless_wheel.Params()
    orbit = hj.periodic_orbit(rimless_wheel.step, rimless_wheel.guess(params), params)
    calls = [
        (lambda bad: hj.continuation(orbit, where=bad, stop=0.3), r"where must be a function of \(params\)"),
        (lambda bad: hj.sweep(orbit, where=SLOPE, values=jnp.ones(1), record=bad), "record must be a function"),
        (lambda bad: hj.optimize(orbit, bad, where=SLOPE), r"objective must be a function of \(orbit, params\)"),
        (lambda bad: hj.objectives.integral(bad)(orbit, params), "integral: the argument must be a function"),
        (
            lambda bad: hj.periodic_orbit(rimless_wheel.step, orbit.x, params, conserved=bad),
            r"conserved must be a function of \(t, x, params\)",
        ),
        (lambda bad: hj.noise.covariance(
            rimless_wheel.system, orbit.x, jnp.eye(2), params, mode="stance", t1=1.0, noise=hj.noise.Noise(bad)
        ), r"must be a function of \(t, x, params\)"),
    ]  # fmt: skip
    for call, message in calls:
        with pytest.raises(ValueError, match=f"{message}.* takes other arguments"):
            call(lambda: 0.0)
    for value, text in ((jnp.ones(3), r"an array of shape \(3,\)"), (None, "None")):
        with pytest.raises(ValueError, match=f"the objective must return a number, not {text}"):
            hj.optimize(orbit, lambda orbit, params, value=value: value, where=SLOPE)
    with pytest.raises(ValueError, match=r"integral: the argument must return a number, not an array of shape \(2,\)"):
        hj.objectives.integral(lambda t, x, p: x)(orbit, params)
    with pytest.raises(ValueError, match=r"the function must return a number or an array, not \[1.0\]"):
        limit = hj.Constraint(lambda orbit, params: [1.0], at_most=2.0)
        hj.optimize(orbit, hj.objectives.period, where=SLOPE, constraints=limit)


def test_of_an_orbit_the_argument_of_another_type():
    params = rimless_wheel.Params()
    orbit = hj.periodic_orbit(rimless_wheel.step, rimless_wheel.guess(params), params)
    period = hj.objectives.period
    for call, message in [
        (lambda bad: hj.continuation(orbit, where=bad, stop=0.3), "where=.* must be a function of the parameters"),
        (lambda bad: hj.continuation(orbit, where=SLOPE, stop=bad), "stop=.* must be a number or a pair"),
        (lambda bad: hj.sweep(orbit, where=bad, values=jnp.ones(1)), "where=.* must be a function of the parameters"),
        (lambda bad: hj.sweep(orbit, where=SLOPE, values=bad), "must be finite numbers in one dimension"),
        (lambda bad: hj.continuation(orbit, where=SLOPE, stop=0.3, method=bad), "method must be a hj.PseudoArclength"),
        (lambda bad: hj.sweep(orbit, where=SLOPE, values=jnp.ones(1), record=bad), "record must be a function"),
        (lambda bad: hj.optimize(orbit, bad, where=SLOPE), "objective must be a function"),
        (lambda bad: hj.optimize(orbit, period, where=SLOPE, constraints=bad), "is not a constraint"),
        (
            lambda bad: hj.optimize(orbit, period, where=SLOPE, method=bad),
            "method must be a hj.objectives.InteriorPoint",
        ),
        (lambda bad: hj.optimize(orbit, period, where=SLOPE, bounds=bad), "bounds.* pair"),
    ]:
        for bad in ("slope", {"slope": "0.2:0.3"}, object()):
            with pytest.raises(ValueError, match=message):
                call(bad)


def test_a_text_is_one_name():
    mode = hj.Mode(FIELD, "angle", units="rad")
    assert (mode.coordinates, mode.units) == (("angle",), ("rad",))
    assert hj.Mode(FIELD, "angle", held="open").coordinates == ("angle", "open")
