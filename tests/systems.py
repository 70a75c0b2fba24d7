"""Small fields and systems that several tests share, and an integrator whose limits are traced."""

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp

import hyjax as hj

# Stages of a step as a loop: where little is run, compilation is what takes time.
ROLLED = hj.Integrator(unroll=False)
# Euler's steps are exact for the clock of `map_of`, and take the least time to compile.
CLOCK = hj.Integrator(dfx.Euler(), controller=dfx.ConstantStepSize(), first_step=0.7, unroll=False)


def same(t, x, params):
    return x


def line(t, x, params):
    return jnp.ones_like(x)


def still(t, x, params):
    return jnp.zeros_like(x)


def oscillate(t, x, params):
    return jnp.stack([x[1], -x[0]])


def leave(field, dimension, *guards, armed=None) -> hj.HybridSystem:
    """A mode `free` that is left for `end_0`, `end_1`, ... through its guards."""
    names = tuple(f"x{i}" for i in range(dimension))
    armed = armed or (None,) * len(guards)
    modes = {"free": hj.Mode(field, names)} | {f"end_{i}": hj.Mode(field, names) for i in range(len(guards))}
    ways = [hj.Transition("free", f"end_{i}", g, same, a) for i, (g, a) in enumerate(zip(guards, armed, strict=True))]
    return hj.HybridSystem(modes, tuple(ways))


def with_tolerance(integrator: hj.Integrator, tolerance) -> hj.Integrator:
    """The integrator at a traced tolerance: one program for all."""
    limits = lambda i: (i.rtol, i.atol)
    return eqx.tree_at(limits, integrator, (tolerance, tolerance), is_leaf=lambda leaf: leaf is None)


def with_time(integrator: hj.Integrator, max_time) -> hj.Integrator:
    """The integrator with another, traced, time limit."""
    return eqx.tree_at(lambda i: i.max_time, integrator, max_time)


# A spring that bounces: y'' = -k y from (1, v) to y = q, then back to y = 1 with r times the speed.
SPRING = {"k": jnp.array(1.7), "q": jnp.array(0.31), "r": jnp.array(-0.8)}


def _spring(parameters, armed=None) -> hj.HybridSystem:
    """The spring with one parameter in each function: of the `parameters(p)` that belong to `params` p."""
    field = lambda t, x, p: jnp.stack([x[1], -parameters(p)["k"] * x[0]])
    guard = lambda t, x, p: x[0] - parameters(p)["q"]
    reset = lambda t, x, p: jnp.stack([jnp.ones(()), parameters(p)["r"] * x[1]])
    return hj.HybridSystem(
        {"free": hj.Mode(field, ("y", "y_rate"))}, (hj.Transition("free", "free", guard, reset, armed),)
    )


spring = _spring(lambda p: p)


def spring_closed_over(p) -> hj.HybridSystem:
    """The spring whose functions take its parameters from around them, and not from `params`."""
    return _spring(lambda _: p, armed=lambda t, x, _: p["k"] > 0)


def spring_orbit(p):
    """`(v, period)` of its orbit: v = -r s with s^2 = k (1 - q^2) + v^2, and y = a cos(w t - phase)."""
    v = -p["r"] * jnp.sqrt(p["k"] * (1 - p["q"] ** 2)) / jnp.sqrt(1 - p["r"] ** 2)
    w = jnp.sqrt(p["k"])
    amplitude, phase = jnp.hypot(1, v / w), jnp.arctan2(v / w, 1)
    return jnp.stack([v, (phase + jnp.arccos(p["q"] / amplitude)) / w])


def map_of(step, *extra):
    """$x \\mapsto$ `step(x)` once in each unit of time; `extra` coordinates stay what they are."""
    n = len(extra)
    field = lambda t, x, p: jnp.zeros_like(x).at[-1].set(1.0)
    leap = lambda t, x, p: jnp.concatenate([step(x[:1], p), jnp.asarray(extra, x.dtype), jnp.zeros(1)])
    names = ("x", *(f"w{i}" for i in range(n)), "clock")
    way = hj.Transition("m", "m", lambda t, x, p: 1 - x[-1], leap)
    return hj.HybridSystem({"m": hj.Mode(field, names)}, (way,))


def logistic(x, p):
    return p["r"] * x * (1 - x)


def falling_drops() -> hj.HybridSystem:
    """Two drops that fall each by a transition of its own, into a mode that is named by the drop that has fallen; once a year the
    height h above 1/2 becomes r h - h^3, that of the right drop with another r, and its floor is elsewhere."""

    def grow(t, x, p):
        rises = x[:2] - 1.5
        return jnp.append(0.5 + (p["r"] + p["other"] * jnp.array([0.0, 1.0])) * rises - rises**3, 0.0)

    mode = hj.Mode(lambda t, x, p: jnp.array([-1.0, -1.0, 1.0]), ("left", "right", "clock"))
    left, right = ((lambda t, x, p, k=k: x[k] - k * p["floor"], lambda t, x, p, k=k: x.at[k].set(2.0)) for k in (0, 1))
    ways = (
        hj.Transition("new", "left_fallen", *left), hj.Transition("new", "right_fallen", *right),
        hj.Transition("left_fallen", "both", *right), hj.Transition("right_fallen", "both", *left),
        hj.Transition("both", "new", lambda t, x, p: 1 - x[2], grow),
    )  # fmt: skip
    return hj.HybridSystem(dict.fromkeys(("new", "left_fallen", "right_fallen", "both"), mode), ways)


def skewed(u):
    """A change of coordinates with an inverse in closed form, `straight`."""
    y = jnp.stack([u[0] + 0.2 * u[1] ** 2, u[1]])
    y = jnp.stack([y[0], y[1] + 0.1 * y[0] ** 2])
    return jnp.stack([0.2 * y[0] - 0.8 * y[1], y[0] + 0.6 * y[1]]) + 0.3


def straight(x):
    a, b = x - 0.3
    a, b = (0.6 * a + 0.8 * b) / 0.92, (0.2 * b - a) / 0.92
    b = b - 0.1 * a**2
    return jnp.stack([a - 0.2 * b**2, b])
