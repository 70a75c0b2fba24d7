r"""Random hybrid systems, and a slow and simple simulator of them in NumPy and SciPy, independent of hyjax.

A `Shape` is what is compiled: the modes, their dimensions, the transitions. Its coefficients are parameters, drawn for each lane.

- In a mechanical mode $x = (q, v)$ and $\dot v = A x + b + c \sin(\omega t + \varphi)$; in any other, $\dot x$ is that
  expression plus $k \sin(m \cdot x)$.
- An impact has the guard $n \cdot q + c + a \sin(\omega t + \varphi)$ and the restitution $e$ of the relative velocity, plastic
  where $e = 0$. Any other guard is $n \cdot x + c + a \sin(\omega t + \varphi) + k \sin(m \cdot x)$, and its reset $M x + d$.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import hyjax as hj

END, JUMPS = 3.0, 12
# The guards turn at most every 0.1; samples are this far apart.
SAMPLING = 2e-3


@dataclasses.dataclass(frozen=True)
class Edge:
    source: int
    target: int
    impact: bool


@dataclasses.dataclass(frozen=True)
class Shape:
    dimensions: tuple[int, ...]
    mechanical: tuple[bool, ...]
    edges: tuple[Edge, ...]

    def leaving(self, mode: int) -> list[int]:
        return [i for i, edge in enumerate(self.edges) if edge.source == mode]


def random_shape(rng: np.random.Generator) -> Shape:
    """1 to 4 modes of dimension 1 to 6, with 1 to 3 transitions from each."""
    count = int(rng.integers(1, 5))
    dimensions = [int(d) for d in rng.integers(1, 7, count)]
    mechanical = [d % 2 == 0 and bool(rng.random() < 0.6) for d in dimensions]
    edges = []
    for mode in range(count):
        for k in range(int(rng.integers(1, 4))):
            impact = mechanical[mode] and k == 0
            edges.append(Edge(mode, mode if impact else int(rng.integers(count)), impact))
    return Shape(tuple(dimensions), tuple(mechanical), tuple(edges))


def random_coefficients(shape: Shape, rng: np.random.Generator) -> tuple:
    """The coefficients of all modes and edges, and an initial state of mode 0."""
    modes, edges = [], []
    for n, mechanical in zip(shape.dimensions, shape.mechanical, strict=True):
        rows = n // 2 if mechanical else n
        modes.append(
            dict(
                A=rng.normal(size=(rows, n)) / np.sqrt(n) - (0 if mechanical else 0.3 * np.eye(n)),
                b=rng.normal(size=rows), c=rng.normal(size=rows), w=rng.uniform(0.5, 6), phase=rng.uniform(0, 6),
                k=0 if mechanical else rng.normal(size=rows), m=rng.normal(size=n),
            )
        )  # fmt: skip
    for edge in shape.edges:
        n, after = shape.dimensions[edge.source], shape.dimensions[edge.target]
        size = n // 2 if edge.impact else n
        normal = rng.normal(size=size)
        edges.append(
            dict(
                n=normal / np.linalg.norm(normal), c=rng.uniform(0.1, 1.5), a=rng.choice([0, 0.3]) * rng.random(),
                w=rng.uniform(1, 20), phase=rng.uniform(0, 6), k=0 if edge.impact else rng.choice([0, 0.5]),
                m=rng.normal(size=size), e=rng.choice([0, 0.4, 1]),
                M=np.zeros((after, n)) if edge.impact else rng.normal(size=(after, n)) / np.sqrt(2 * n),
                d=0.3 * rng.normal(size=after),
            )
        )  # fmt: skip
    return modes, edges, 0.5 * rng.normal(size=shape.dimensions[0])


def hybrid_system(shape: Shape) -> hj.HybridSystem:
    """The shape as a system of hyjax, with the coefficients as parameters."""

    def mode(i):
        def field(t, x, params):
            p = params[0][i]
            rate = p["A"] @ x + p["b"] + p["c"] * jnp.sin(p["w"] * t + p["phase"]) + p["k"] * jnp.sin(p["m"] @ x)
            return jnp.concatenate([x[rate.size :], rate]) if shape.mechanical[i] else rate

        return hj.Mode(field, tuple(f"x{j}" for j in range(shape.dimensions[i])))

    def transition(i, edge):
        def guard(t, x, params):
            p = params[1][i]
            x = x[: p["n"].size]
            return p["n"] @ x + p["c"] + p["a"] * jnp.sin(p["w"] * t + p["phase"]) + p["k"] * jnp.sin(p["m"] @ x)

        def impact(t, x, params):
            p = params[1][i]
            half = p["n"].size
            speed = p["n"] @ x[half:] + p["a"] * p["w"] * jnp.cos(p["w"] * t + p["phase"])
            return jnp.concatenate([x[:half], x[half:] - (1 + p["e"]) * speed * p["n"]])

        def affine(t, x, params):
            return params[1][i]["M"] @ x + params[1][i]["d"]

        return hj.Transition(f"m{edge.source}", f"m{edge.target}", guard, impact if edge.impact else affine)

    modes = {f"m{i}": mode(i) for i in range(len(shape.dimensions))}
    return hj.HybridSystem(modes, tuple(transition(i, edge) for i, edge in enumerate(shape.edges)))


@dataclasses.dataclass
class Walk:
    """`ending`: `end` of time, `stuck` on a surface, `jumps` exhausted or `infinite`. `steps`: of the solver, in each arc."""

    ending: str
    edges: list[int]
    times: list[float]
    steps: list[int]
    x: np.ndarray


def extrema(times: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The times of the extrema of a sampled function: vertices of the parabolas through three samples each."""
    slopes, middles = np.diff(g) / np.diff(times), (times[1:] + times[:-1]) / 2
    k = np.flatnonzero(slopes[:-1] * slopes[1:] < 0)
    return middles[k] - slopes[k] * (middles[k + 1] - middles[k]) / (slopes[k + 1] - slopes[k])


def slow_simulation(shape: Shape, coefficients: tuple, shift: float = 0.0) -> Walk:
    """The walk of a system whose guards are all shifted by `shift`, by dense samples of every guard."""
    modes, edges, x = coefficients
    t, mode, walk = 0.0, 0, Walk("jumps", [], [], [], x)
    while len(walk.edges) <= JUMPS:
        p, mechanical, leaving = modes[mode], shape.mechanical[mode], shape.leaving(mode)

        def field(t, x, p=p, mechanical=mechanical):
            rate = p["A"] @ x + p["b"] + p["c"] * np.sin(p["w"] * t + p["phase"]) + p["k"] * np.sin(p["m"] @ x)
            return np.concatenate([x[len(rate) :], rate]) if mechanical else rate

        def guard(i, t, x):
            e = edges[i]
            q = x[: len(e["n"])]
            return e["n"] @ q + e["c"] + shift + e["a"] * np.sin(e["w"] * t + e["phase"]) + e["k"] * np.sin(e["m"] @ q)

        if np.max(np.abs(x)) > 1e6:
            walk.ending = "infinite"
            break
        flow = solve_ivp(field, (t, END), x, "DOP853", rtol=1e-12, atol=1e-12, dense_output=True).sol
        # Hops above a surface may be short.
        soon = t + SAMPLING * 0.7 ** np.arange(40, 0, -1)
        even = np.unique(np.concatenate([[t], soon[soon < END], np.arange(t + SAMPLING, END, SAMPLING), [END]]))
        states = flow(even)
        falls, pressed = [], False
        for i in leaving:
            # A guard may fall and rise again, or rise and fall, between two samples: also sample where it turns.
            times = np.union1d(even, extrema(even, guard(i, even, states)))
            g = guard(i, times, flow(times))
            rounding = 1e-9
            up = np.logical_or.accumulate(g > rounding)
            down = np.flatnonzero(up & (g <= 0))
            # After a jump that ends on the surface, the guard must rise from it.
            beyond = np.flatnonzero(np.abs(g) > rounding)
            again = bool(walk.edges) and walk.edges[-1] == i and abs(g[0]) < rounding
            pressed |= again and bool(beyond.size) and g[beyond[0]] < 0
            if down.size:
                k = down[0]
                falls.append(
                    (brentq(lambda s, i=i, flow=flow: guard(i, s, flow(s)), times[k - 1], times[k], xtol=1e-14), i)
                )
        walk.x = states[:, -1]
        walk.steps.append(int(np.sum(flow.ts < min(falls, default=(END, 0))[0])))
        if pressed:
            walk.ending = "stuck"
            break
        if not falls:
            walk.ending = "end"
            break
        t, i = min(falls)
        x = flow(t)
        edge, e = shape.edges[i], edges[i]
        walk.edges.append(i)
        walk.times.append(t)
        if edge.impact:
            half = len(e["n"])
            speed = e["n"] @ x[half:] + e["a"] * e["w"] * np.cos(e["w"] * t + e["phase"])
            x = np.concatenate([x[:half], x[half:] - (1 + e["e"]) * speed * e["n"]])
        else:
            x = e["M"] @ x + e["d"]
        mode, walk.x = edge.target, x
    return walk
