"""Families of transitions that several tests share: pulse-coupled neurons, balls on a line; and exact values."""

import json
import pathlib

import jax.numpy as jnp
import numpy as np

import hyjax as hj
from hyjax._testing import sized

# Splay states, disks, chains and a refractory pair, computed without hyjax in 60 digits, with their equations.
EXACT = json.loads((pathlib.Path(__file__).parent / "families_reference.json").read_text())


def network(n: int, pulse=0.1) -> hj.HybridSystem:
    """Neurons x' = p - x, which fire at 1 and are reset to 0; all others are raised by `pulse / n`. None reaches 1 by a pulse."""
    fire = lambda t, x, p, i: (x + pulse / n).at[i].set(0.0)
    spike = hj.Transition("network", "network", lambda t, x, p: 1 - x, fire)
    return hj.HybridSystem({"network": hj.Mode(lambda t, x, p: p - x, tuple(f"v{k}" for k in range(n)))}, (spike,))


def splay(n: int, drive=1.2, pulse=0.1):
    """States just after a firing, which is that of the first neuron; the last one fires next."""
    case, x = EXACT[f"splay_N{n}_I{drive}_eps{pulse}"], [0.0]
    for _ in range(n - 1):
        x.append(drive - (drive - x[-1]) * float(case["z"]) + pulse / n)
    return jnp.array(x), case


def complex_of(values) -> np.ndarray:
    return np.array(
        [complex(float(v["re"]), float(v["im"])) if isinstance(v, dict) else complex(float(v)) for v in values]
    )


def balls(masses, restitution) -> hj.HybridSystem:
    """Point balls on a line: x = (positions, velocities), and a collision where two neighbours meet."""
    n, m = len(masses), jnp.array(masses)

    def collide(t, x, p, k):
        v, (a, b) = x[n:], (m[k], m[k + 1])
        push = (1 + restitution) * (v[k] - v[k + 1]) * a * b / (a + b)
        return jnp.concatenate([x[:n], v.at[k].add(-push / a).at[k + 1].add(push / b)])

    meet = hj.Transition("chain", "chain", lambda t, x, p: x[1:n] - x[: n - 1], collide)
    flow = lambda t, x, p: jnp.concatenate([x[n:], jnp.zeros(n, x.dtype)])
    names = tuple(f"{letter}{k}" for letter in "xv" for k in range(n))
    return hj.HybridSystem({"chain": hj.Mode(flow, names)}, (meet,))


def single(system: hj.HybridSystem, params, x0) -> hj.HybridSystem:
    """The same system with a transition for each guard."""
    known = sized(system, jnp.zeros(()), x0, params)
    return hj.HybridSystem(known.modes, tuple(known.way(k) for k in range(len(known.ways))))
