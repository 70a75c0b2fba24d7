r"""Symmetries of the return map at a branch point: exchanges of coordinates that are found, and what daughters keep of a group.

An exchange of labels in the names of coordinates, such as of `left` and `right`, permutes states, $x \mapsto Px$. It is a
symmetry if modes can be paired, $a \sim b$ and the first mode of the map with itself, such that $f_b(Px) = P f_a(x)$, and each
transition from $a$ has one from $b$, and the reverse, with $g_b(Px) = g_a(x)$, $R_b(Px) = P R_a(x)$ and targets that are paired
too: pairs without that are crossed out until none is. So the transitions of legs, members of a family or not, are matched by
what they do.

Source: Golubitsky, Stewart, Schaeffer (1988), *Singularities and Groups in Bifurcation Theory* II, ch. XIII; Haghverdi, Tabuada,
Pappas (2005), *Bisimulation relations for dynamical, control, and hybrid systems*, Theor. Comput. Sci. 342, 229-261.
"""

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any, TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._orbit.orbit import PeriodicOrbit
from .._system.system import HybridSystem
from .._system.types import Params

if TYPE_CHECKING:
    from .special_points import SpecialPoint

# The sine of the angle between two directions that are one; and of matrices and states that are one the difference, relative to
# their size.
APART, SAME = 0.1, 1e-6
# Of the random states at which functions are compared the number and the distance from the orbit, relative to the size of its
# states; and the rounding of the functions, in units in the last place.
STATES, SPREAD, ROUNDINGS = 16, 0.1, 1e4

Symmetries = dict[str, np.ndarray]


def exchanges(names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """The exchanges of two labels in names that take all names to names, by the labels: for each name the name in its place."""
    parts = {name: tuple(re.findall(r"\d+|[^\W\d_A-Z]+|[A-Z][^\W\d_A-Z]*|[\W_]+", name)) for name in names}
    found: dict[str, dict[str, str]] = {}
    seen = set()
    for one, other in itertools.combinations(parts.values(), 2):
        most = range(min(len(one), len(other)))
        starts = [k for k in most if one[:k] == other[:k]][::-1]
        ends = [k for k in most if one[len(one) - k :] == other[len(other) - k :]][::-1]
        for start, end in itertools.product(starts, ends):
            a, b = one[start : len(one) - end], other[start : len(other) - end]
            if not (a and b) or (a, b) in seen:
                continue
            moved = {name: "".join(_exchanged(each, a, b)) for name, each in parts.items()}
            image = tuple(moved.values())
            if {*image} == {*names} and image not in seen:
                found["".join(a) + " <> " + "".join(b)] = moved
            seen |= {(a, b), image}
    return found


def _exchanged(parts: tuple[str, ...], a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    """The parts of a name, with `a` and `b` in place of each other."""
    for k, (old, new) in itertools.product(range(len(parts)), ((a, b), (b, a))):
        if parts[k : k + len(old)] == old:
            return (*parts[:k], *new, *_exchanged(parts[k + len(old) :], a, b))
    return parts


def states_near(orbit: PeriodicOrbit, scale: float) -> dict[tuple[str, ...], tuple[np.ndarray, np.ndarray]]:
    """Random times and states near an orbit for each mode, by its coordinates. `scale`: the size of states."""
    system, random = orbit.system, np.random.default_rng(0)
    visited = {system.mode(mode).coordinates: ends for mode, ends in zip(orbit.mode_names, orbit.arc_ends, strict=True)}
    found = {}
    for mode in system.modes.values():
        # Held coordinates, such as which legs stand, have one of the orbit's values each.
        held = np.isin(mode.coordinates, mode.held)
        x = random.permuted(np.resize(visited.get(mode.coordinates, 0.0), (STATES, mode.dimension)), axis=0)
        x = x + SPREAD * scale * random.standard_normal(x.shape) * ~held
        times = random.uniform(0, float(orbit.period), STATES)
        found[mode.coordinates] = tuple(each.astype(orbit.x.dtype) for each in (times, x))
    return found


def is_symmetry(
    system: HybridSystem,
    home: str,
    image: dict[str, str],
    params: Params,
    states: dict[tuple[str, ...], tuple[np.ndarray, np.ndarray]],
) -> bool:
    """Whether a system is the same, to rounding, where coordinates are exchanged, the mode `home` for itself. `states`: those at
    which it is examined, see `states_near`."""
    names = {mode: system.mode(mode).coordinates for mode in system.names}
    known: dict[tuple, np.ndarray] = {}
    eps = float(np.finfo(states[names[home]][1].dtype).eps)

    def order(a: str, b: str) -> list[int]:
        """For each coordinate of `b` the number of that of `a` in its place; none where they are not the same."""
        wanted = [image.get(each, each) for each in names[b]]
        return [names[a].index(each) for each in wanted] if {*wanted} == {*names[a]} else []

    def values(fn: Callable | None, a: str, by: list[int], member: int | None = None) -> np.ndarray:
        key = id(fn), names[a], *by, member
        if key not in known:
            more, (times, x) = () if member is None else (jnp.array(member),), states[names[a]]
            of = lambda t, x: fn is None or fn(t, x, params, *more)
            known[key] = np.asarray(jax.vmap(of)(times, x[:, by] if by else x), float)
        return known[key]

    def same(one: np.ndarray, other: np.ndarray) -> bool:
        near = ROUNDINGS * eps * np.max(np.abs(one), initial=0, where=np.isfinite(one))
        return one.shape == other.shape and np.allclose(one, other, rtol=0, atol=near, equal_nan=True)

    def leaving(a: str, by: list[int], source: str) -> list[tuple[str, bool, np.ndarray, np.ndarray, np.ndarray]]:
        """Of each way out of `a`: target, whether at once, and guard, `armed` and reset at the states of `source`."""
        found, rows = [], lambda fn: (at := values(fn, source, by)).reshape(len(at), -1)
        for way in system.transitions_out(a):
            for i, (guard, armed) in enumerate(
                zip(*np.broadcast_arrays(rows(way.guard).T, rows(way.armed).T), strict=True)
            ):
                after = values(way.reset, source, by, i if way.is_family else None)
                found.append((way.target, way.at_once, guard, armed, after))
        return found

    def paired(a: str, b: str, pairs: set[tuple[str, str]]) -> bool:
        by = order(a, b)

        def alike(one: Any, other: Any) -> bool:
            (into, at_once, guard, armed, after), (target, also, *numbers) = one, other
            if (into, target) not in pairs or at_once != also:
                return False
            return all(map(same, (guard, armed, after[:, order(into, target)]), numbers))

        one, other = (values(system.mode(mode).vector_field, a, way) for mode, way in ((a, []), (b, by)))
        if not (np.isfinite(one).any() and same(one[:, by], other)):
            return False
        here, there = leaving(a, [], a), leaving(b, by, a)
        ways = np.array([[alike(u, v) for v in there] for u in here], bool).reshape(len(here), len(there))
        return bool(ways.any(axis=0).all() and ways.any(axis=1).all())

    pairs, before = {pair for pair in itertools.product(names, repeat=2) if order(*pair)}, None
    while pairs != before and (home, home) in pairs:
        before, pairs = pairs, {pair for pair in pairs if paired(*pair, pairs)}
    return (home, home) in pairs


def found_symmetries(point: "SpecialPoint") -> Symmetries:
    """Exchanges that leave the orbit at a point where it is and are symmetries of its system, at the parameters of the point and
    at others: of those that generate the others, those of the fewest coordinates."""
    orbit, unfolding = point.orbit, point.unfolding
    home, states = orbit.mode_names[0], states_near(orbit, float(unfolding.state_scale))
    names = orbit.system.mode(home).coordinates
    every = tuple(dict.fromkeys(name for mode in orbit.system.modes.values() for name in mode.coordinates))
    candidates = {}
    for word, image in exchanges(every).items():
        if {image[name] for name in names} == {*names}:
            candidates[word] = image, np.eye(len(names))[[names.index(image[name]) for name in names]]
    split = unfolding.split(point.v)[1]
    around = [unfolding.params_at(values) for values in (split, split + SPREAD * unfolding.scale)]
    found: Symmetries = {}
    for word, (image, matrix) in sorted(candidates.items(), key=lambda each: np.sum(np.diag(each[1][1]) == 0)):
        if not _keeps(point, matrix) or any(np.array_equal(matrix, each) for _, each in group_of(found, len(names))):
            continue
        if all(is_symmetry(orbit.system, home, image, params, states) for params in around):
            found[word] = matrix
    return found


def group_of(symmetries: Symmetries, n: int) -> list[tuple[str, np.ndarray]]:
    """The products of symmetries of shape `(n, n)`, with their names; the identity is the first."""
    key = lambda element: np.rint(element / SAME).astype(int).tobytes()
    group, known = [("", np.eye(n))], {key(np.eye(n))}
    for word, element in group:
        for name, each in symmetries.items():
            product = each @ element
            if key(product) not in known:
                known.add(key(product))
                group.append((f"{name} * {word}" if word else name, product))
        if len(group) > 1000:
            raise ValueError(f"symmetries: {', '.join(symmetries)} must generate a group of at most 1000. Give fewer.")
    return group


def _keeps(point: "SpecialPoint", matrix: np.ndarray) -> bool:
    """Whether a matrix leaves the state of the orbit at a point where it is, and commutes with the return Jacobian."""
    x, jacobian = np.asarray(point.orbit.x), np.asarray(point.orbit.return_jacobian)
    if matrix.shape != jacobian.shape:
        return False
    moved, turned = matrix @ x - x, matrix @ jacobian - jacobian @ matrix
    size = float(point.unfolding.state_scale)
    return bool(np.max(np.abs(moved)) <= SAME * size and np.max(np.abs(turned)) <= SAME * np.max(np.abs(jacobian)))


def _moved(point: "SpecialPoint", ways: np.ndarray) -> np.ndarray:
    """Variations of the state just after the closing jump, and of the parameter, from those of the unknowns."""
    unfolding = point.unfolding
    after = lambda v: unfolding.problem.closing_jump(
        unfolding.split(v)[0][0], unfolding.params_at(unfolding.split(v)[1])
    )
    states = ways @ np.asarray(jax.jacfwd(after)(point.v)).T / float(unfolding.state_scale)
    return np.append(states, ways[:, -1:], axis=1)


def fixed_axes(point: "SpecialPoint") -> np.ndarray:
    """The directions in the kernel of a branch point, at right angles to the branch, shape `(axes, count)`, such that a group of
    its symmetries keeps no other: by the equivariant branching lemma a branch leaves in each."""
    kernel = np.asarray(point.kernel)
    moved = _moved(point, kernel)
    along = kernel @ np.asarray(point.tangent)
    null = lambda matrix: np.linalg.svd(matrix)[2][int(np.sum(np.linalg.svd(matrix, compute_uv=False) > APART)) :]
    # In the kernel a symmetry is the matrix A with A moved = moved M', of coefficients in rows.
    turned = lambda element: np.append(moved[:, :-1] @ element.T, moved[:, -1:], axis=1) @ np.linalg.pinv(moved)
    group = group_of(symmetries_of(point), point.orbit.x.size)
    spaces: list[np.ndarray] = []
    todo = [null((turned(element) - np.eye(len(kernel))).T) for word, element in group if word]
    while todo:
        space = todo.pop()
        onto = space.T @ space
        if any(np.allclose(onto, each, atol=SAME**0.5) for each in spaces):
            continue
        todo += [null(2 * np.eye(len(kernel)) - onto - each) for each in spaces]
        spaces.append(onto)
    lines = [null(np.eye(len(kernel)) - onto + np.outer(along, along)) for onto in spaces if round(np.trace(onto)) == 2]
    return np.concatenate([np.zeros((0, len(kernel))), *lines])


def checked_symmetries(point: "SpecialPoint", given: Mapping[str, Array | np.ndarray]) -> Symmetries:
    """See `SpecialPoint.with_symmetries`."""
    symmetries = {name: np.asarray(given[name]) for name in given}
    for name, each in symmetries.items():
        if not _keeps(point, each):
            raise ValueError(
                f"symmetries: {name!r} must be a matrix of shape {point.orbit.return_jacobian.shape} that leaves the state of "
                "the orbit where it is and commutes with the return Jacobian."
            )
    group_of(symmetries, point.orbit.x.size)
    return symmetries


def symmetries_of(point: "SpecialPoint") -> Symmetries:
    """The symmetries that are given of a point, or those found."""
    return found_symmetries(point) if point.symmetries is None else point.symmetries


def isotropies(point: "SpecialPoint", given: Mapping[str, Array | np.ndarray] | None) -> dict[int, tuple[str, ...]]:
    """See `SpecialPoint.isotropies`."""
    symmetries = symmetries_of(point) if given is None else checked_symmetries(point, given)
    group = group_of(symmetries, point.orbit.x.size)
    daughters = point.daughters
    # At right angles to those of the branch.
    moved = _moved(point, np.concatenate([daughters, np.asarray(point.tangent)[None]]))

    def across(way: np.ndarray) -> np.ndarray:
        way = way - moved[-1] * (moved[-1] @ way) / (moved[-1] @ moved[-1])
        return way / np.linalg.norm(way)

    ways, met, kept = np.array([across(each) for each in moved[:-1]]), set(), {}
    for k in range(len(daughters)):
        if k in met:
            continue
        kept[k] = ()
        for word, element in group:
            image = across(np.append(element @ moved[k, :-1], moved[k, -1]))
            # Else the symmetry takes one half of a branch to the other half of one.
            same, turned = (np.linalg.norm(ways - sign * image, axis=1) for sign in (1, -1))
            if min(np.min(same), np.min(turned)) > APART:
                raise ValueError(
                    f"symmetries: {word!r} takes daughter {k} to none of the daughters: it is no symmetry."
                )
            met.add(int(np.argmin(same if np.min(same) < APART else turned)))
            kept[k] += (word,) if word and same[k] < APART else ()
    return kept
