"""What the enclosure of a return map takes from the orbit as numbers, on which no proof depends: values, flows, a basis."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .exact_graph import balls_of
from .linear_forms import COMPARED
from .mode_field import ModeField
from .schedule import Kind
from .state_set import Frame, frame_of, identity_frame
from .symbolic import Graph

# Steps of Runge and Kutta's method within one step of the enclosure.
SUBSTEPS = 4


def numbers_of(graph: Graph, leaves: Sequence[Any]):
    """The function of a graph in floating-point numbers, of a flat state, compiled by nobody."""
    constants, levels = balls_of(graph, leaves)[0], graph.varying

    def value(x):
        memory = np.concatenate([[1.0], np.ravel(x)])
        combined = lambda rows: np.sum(constants[rows.coefficient] * memory[rows.index], axis=1)
        with np.errstate(all="ignore"):
            for level in levels.levels:
                operands = combined(level.rows)
                memory = np.concatenate([memory, *(_values(kind, operands) for kind in level.kinds)])
            return combined(levels.results).reshape(graph.shape)

    return value


def _values(kind: Kind, operands: np.ndarray) -> np.ndarray:
    a = operands[kind.first : kind.first + kind.count]
    if kind.name == "sin_cos":
        return np.concatenate([np.sin(a), np.cos(a)])
    if kind.name in ("exp", "log", "sqrt", "abs", "sign", "floor"):
        return getattr(np, kind.name)(a)
    b = operands[kind.first + kind.count : kind.first + 2 * kind.count]
    if kind.name in ("select", "chosen"):
        return np.where([_holds(each, operands) for each in kind.conditions], b, a)
    return {"mul": np.multiply, "div": np.divide, "max": np.maximum, "atan": lambda a, _: np.arctan(a)}[kind.name](a, b)


def _holds(condition: Any, rows: np.ndarray) -> bool:
    if isinstance(condition, bool):
        return condition
    if condition.name in COMPARED:
        return bool(COMPARED[condition.name](rows[condition.operands[0]]))
    each = [_holds(part, rows) for part in condition.operands]
    return not each[0] if condition.name == "not" else any(each) if condition.name == "or" else all(each)


def eigenbasis(matrix: np.ndarray) -> np.ndarray:
    """A real basis in which a matrix is nearly block-diagonal: eigenvectors, real and imaginary part of complex ones; where these
    are nearly dependent, the identity."""
    values, vectors = np.linalg.eig(matrix)
    columns = []
    for value, vector in zip(values, vectors.T, strict=True):
        if value.imag == 0:
            columns.append(vector.real / np.linalg.norm(vector.real))
        elif value.imag > 0:
            pair = np.stack([vector.real, vector.imag], axis=1)
            columns += list((pair / np.linalg.norm(pair, 2)).T)
    basis = np.stack(columns, axis=1)
    return basis if np.linalg.cond(basis) < 1e6 else np.eye(len(matrix))


def reference_flow(field: ModeField, x, h: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The derivatives of the flow over each step from `x`, shape `(steps, n, n)`, and the state at the end, by Runge and Kutta's
    method of order 4."""
    rate, n, part = numbers_of(field.variational, field.leaves), field.dimension, h / SUBSTEPS
    x, flows = np.asarray(x), []
    for _ in range(steps):
        columns = np.concatenate([x[:, None], np.eye(n)], axis=1)
        for _ in range(SUBSTEPS):
            columns = _stepped(rate, columns, part)
        x = columns[:, 0]
        flows.append(columns[:, 1:])
    return np.stack(flows), x


def _stepped(rate: Callable, x: np.ndarray, h: float) -> np.ndarray:
    """One step of Runge and Kutta's method of order 4."""
    a = rate(x)
    b = rate(x + 0.5 * h * a)
    c = rate(x + 0.5 * h * b)
    return x + h / 6 * (a + 2 * b + 2 * c + rate(x + h * c))


def event_near(field: ModeField, which: int, x: np.ndarray) -> tuple[float, np.ndarray]:
    """The time from a state to the surface of a guard that is near, and the state there, by Newton's method."""
    height, rate = numbers_of(field.guards[which], field.leaves), numbers_of(field.field, field.leaves)
    time = 0.0
    for _ in range(4):
        value, speed = height(x)
        time, x = time - value / speed, _stepped(rate, x, -value / speed)
    return time, x


def moving_frames(flows: Float[np.ndarray, "steps n n"]) -> Frame:
    """The factors Q of the flow's derivatives, columns by size, stacked: one more than steps."""
    frame = np.eye(flows.shape[1])
    chain = [identity_frame(len(frame))]
    for flow in flows:
        pushed = flow @ frame
        order = np.argsort(-np.linalg.norm(pushed, axis=0), kind="stable")
        frame, _ = np.linalg.qr(pushed[:, order])
        chain.append(frame_of(frame))
    return jax.tree.map(lambda *each: jnp.stack(each), *chain)
