"""Attractors that several initial states lead to, told apart at each point of a grid and matched from point to point.

At one point initial states whose last states come near each other have one attractor. From each attractor of a point a state is
iterated at the next point: the attractor that it comes to there keeps the number. Of two that come to one, that which is nearer
to it gives the number; one that none comes to gets a new number. Where the iteration fails or ends, as of a walker that falls,
the nearest attractor that none comes to keeps the number, within half its size. Lengths are relative to the size of an attractor
in each coordinate, so that neither a motion that escapes nor a large coordinate hides the others; the initial states give the
least size, so that an attractor at the origin has one. Small attractors are told apart first: to a large one all of them are
near. The mode is a coordinate: states of different modes are never near. Each attractor is iterated on: one that does not come
back to itself still drifts and is none, and two that come near each other are one.

Source: Datseris, Luiz Rossi, Wagemakers (2023), *Framework for global stability analysis of dynamical systems*, Chaos 33, 073151.
"""

import functools as ft
import itertools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

# Of the states of an attractor those that are kept, and those that are compared with them; of an initial state those that are
# compared first; initial states that are compared at once.
STATES, FEW, LAST, BLOCK = 1024, 128, 16, 256
# A unit in which modes are far apart.
MODE = 1e-9
# How near an attractor is to that of the point before from which the iteration fails, in units of its size.
HALF = 0.5


def check_numbers(name: str, closeness: float, **counts: int) -> None:
    """`ValueError` from the function `name` unless counts are whole numbers of at least 1, and `closeness` a positive number."""
    whole = np.asarray([*counts.values()])
    if whole.dtype.kind != "i" or whole.min() < 1 or np.asarray(closeness).dtype.kind not in "if" or not closeness > 0:
        given = ", ".join(f"{each}={value!r}" for each, value in counts.items())
        raise ValueError(
            f"{name}: {given} must be whole numbers, at least 1, and closeness={closeness!r} a positive number."
        )


def sizes_of(states: Float[np.ndarray, "*rows n"], share: float) -> Float[np.ndarray, "*rows n"]:
    """The size of each coordinate of states without sign; of one that is zero up to rounding, a `share` of the largest."""
    largest = states.max(axis=-1, keepdims=True)
    return np.where(states > np.finfo(states.dtype).eps ** 0.5 * largest, states, share * largest)


def reach_of(
    near: float, size: float, nodes: Float[np.ndarray, "nodes n"], owner: Int[np.ndarray, " nodes"]
) -> tuple[float, float]:
    """How near to a node of an orbit a state is to be, to belong to it: `near`, and at most a third of the distance between two
    orbits; and that distance, infinite for one. One that is given twice counts as one.

    **Arguments:** `size`: that of states, for their rounding. `owner`: the number of the orbit that each node belongs to.
    """
    apart = np.max(np.abs(nodes[:, None] - nodes), axis=2, initial=0)[owner[:, None] != owner]
    least = float(np.min(apart[apart > np.finfo(nodes.dtype).eps ** 0.5 * size], initial=np.inf))
    return min(near, least / 3), least


def numbered(
    axes: tuple[np.ndarray, ...],
    x0: Float[np.ndarray, "lanes n"],
    x: Float[np.ndarray, "points starts keep n"],
    closeness: float,
    most: int,
    lead: Callable,
) -> Int[np.ndarray, " lanes"]:
    """The number of the attractor of each lane, `(points, starts)` in a row, from 1; 0 where the states are NaN, or have none
    of the first `most` attractors of their point.

    **Arguments:** `axes`: values of the grid's axes; the last varies fastest over the points. `x0`, `x`: first and last states,
    `x` with the mode's number as the last coordinate.
    `closeness`: of states of one attractor, relative to the largest value of each coordinate. `lead`: of points and of lanes,
    each shape `(m,)`: the last states, as `x`, of iteration at these points from the last states of the lanes.
    """
    order = np.arange(len(x)).reshape([len(axis) for axis in axes])[np.ix_(*map(np.argsort, axes))]
    # For each point the one before it, along the last axis on which there is one.
    before = np.full(len(x), -1)
    for axis in range(order.ndim):
        along = np.moveaxis(order, axis, 0)
        before[along[1:].ravel()] = along[:-1].ravel()
    # The least size in each coordinate: that of most initial states, and a little of the largest, for those that start at 0.
    known = x0[np.isfinite(x0).all(axis=1)]
    least = np.median(np.abs(known), axis=0) if len(known) else np.ones(x0.shape[1])
    least = np.append(closeness * np.maximum(sizes_of(least, 1e-3), 1e-30), MODE)
    labels = np.stack([_told_apart(each, closeness, most, least) for each in x])

    def sets_of() -> tuple[list, list]:
        sets = [
            [_some(each[label == k]) for k in range(label.max() + 1)] for each, label in zip(x, labels, strict=True)
        ]
        return sets, [[_unit(each, closeness, least) for each in at] for at in sets]

    def led_to(seeds: list[tuple[int, int]], sources: np.ndarray):
        lanes = [sources[to] * x.shape[1] + int(np.argmax(labels[sources[to]] == k)) for to, k in seeds]
        return lead(np.array([to for to, _ in seeds], int), np.array(lanes, int)) if seeds else x[0, :0]

    sets, units = sets_of()
    seeds = [(at, k) for at in range(len(x)) for k in range(len(sets[at]))]
    ends = led_to(seeds, np.arange(len(x)))
    for at, label in enumerate(labels):
        labels[at] = _settled(label, sets[at], units[at], ends[[place == at for place, _ in seeds]])
    sets, units = sets_of()
    seeds = [(to, k) for to in order.ravel().tolist() if before[to] >= 0 for k in range(len(sets[before[to]]))]
    ends = led_to(seeds, before)
    numbers, count = [np.zeros(len(each), int) for each in sets], 0
    for to in order.ravel():
        # The attractors here that those of the point before lead to, the nearest sets first.
        led = []
        for (place, k), end in zip(seeds, ends, strict=True):
            if place == to and sets[to]:
                fails, own = not np.all(np.isfinite(end)), sets[before[to]][k]
                end = own if fails else end
                gaps = [float(_gaps(end[None], *each)[0]) for each in zip(sets[to], units[to], strict=True)]
                if min(gaps) <= (HALF / closeness if fails else 1):
                    here = int(np.argmin(gaps))
                    apart = _apart(sets[to][here] / units[to][here], own / units[to][here])
                    led.append((fails, apart.min(axis=1).mean(), here, k))
        for *_, here, k in sorted(led):
            own = numbers[before[to]][k]
            numbers[to][here] = numbers[to][here] or own * (own not in numbers[to])
        for here in np.flatnonzero(numbers[to] == 0):
            count += 1
            numbers[to][here] = count
    found = [np.append(own, 0)[label] for own, label in zip(numbers, labels, strict=True)]
    return np.concatenate(found).astype(np.int32)


def _told_apart(
    x: Float[np.ndarray, "starts keep n"], closeness: float, most: int, least: Float[np.ndarray, " n"]
) -> Int[np.ndarray, " starts"]:
    """For each initial state the number of its attractor among those of one point, from 0; -1 for none."""
    labels, left, sets, units = np.full(len(x), -1), np.flatnonzero(np.isfinite(x).all(axis=(1, 2))), [], []
    near = _unit(x, closeness, least)
    left = left[np.argsort((near[left] / least).max(axis=1), kind="stable")]
    while left.size and len(sets) < most:
        units.append(near[left[0]])
        own = _gaps(x[left, -LAST:], x[left[0]], units[-1]) <= 1
        labels[left[own]], left = len(sets), left[~own]
        sets.append(_some(x[labels == len(sets)]))
    # Sets of chaotic attractors whose states are far apart, until more of them are known.
    for k in range(len(sets) - 1, 0, -1):
        before = zip(sets[:k], units[:k], strict=True)
        gaps = [float(_gaps(sets[k][None, -FEW:], *each)[0]) for each in before]
        if min(gaps) <= 1:
            labels[labels == k] = int(np.argmin(gaps))
    return _in_order(labels)


def _settled(
    labels: Int[np.ndarray, " starts"], sets: list, units: list, ends: np.ndarray
) -> Int[np.ndarray, " starts"]:
    """The labels of attractors that come back to themselves, one for those that come near each other; -1 for others, unless they
    are, and come, near one that comes back.

    **Arguments:** `ends`: the states that each of the `sets` comes to.
    """
    near = lambda states, others, unit: _gaps(states[None, -FEW:], others, unit)[0] <= 1
    back = [k for k, (end, own, unit) in enumerate(zip(ends, sets, units, strict=True)) if near(end, own, unit)]
    one = np.full(len(sets) + 1, -1)
    one[back] = back
    for i, j in itertools.product(back, range(len(sets))):
        reach, unit = np.concatenate([sets[i][-FEW:], ends[i]]), np.minimum(units[i], units[j])
        if one[i] != one[j] and near(ends[j], reach, unit) and (one[j] >= 0 or near(sets[j], reach, unit)):
            one[one == one[j] if one[j] >= 0 else j] = one[i]
    return _in_order(one[labels])


def _in_order(labels: Int[np.ndarray, " starts"]) -> Int[np.ndarray, " starts"]:
    """The labels from 0, in the order of the initial states."""
    first = list(dict.fromkeys(labels[labels >= 0].tolist()))
    return np.array([first.index(k) if k >= 0 else -1 for k in labels])


def _unit(states: np.ndarray, closeness: float, least: Float[np.ndarray, " n"]) -> np.ndarray:
    """The distance in each coordinate, of states over the last axis but one, within which others are near."""
    unit = np.maximum(closeness * np.abs(states).max(axis=-2), least)
    unit[..., -1] = MODE
    return unit


def _some(sets: Float[np.ndarray, "sets keep n"]) -> Float[np.ndarray, "states n"]:
    """Some states of an attractor, of all sets in turn."""
    states = np.swapaxes(sets, 0, 1).reshape(-1, sets.shape[2])
    return states[-STATES:]


def _gaps(
    sets: Float[np.ndarray, "sets keep n"], states: Float[np.ndarray, "states n"], unit: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " sets"]:
    """The least distance of each set from any of the states, in a unit for each coordinate."""
    blocks = np.array_split(sets, -(-len(sets) // BLOCK))
    apart = [_apart(block.reshape(-1, block.shape[2]) / unit, states / unit).min(axis=1) for block in blocks]
    return np.concatenate(apart).reshape(sets.shape[:2]).min(axis=1)


def _apart(one: Float[np.ndarray, "a n"], other: Float[np.ndarray, "b n"]) -> Float[np.ndarray, "a b"]:
    """The largest differences of coordinates of all pairs."""
    return ft.reduce(np.maximum, (np.abs(a[:, None] - b) for a, b in zip(one.T, other.T, strict=True)))
