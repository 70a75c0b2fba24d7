"""The lines that draw a robot: axes of capsules, rims of spheres and boxes, and lines from joint to joint, as points on links."""

from collections.abc import Callable
from typing import Any

import numpy as np

# A name; points, each by the number of its link and its place on that; the radius of a circle around the first point, through
# the second where there is one, or 0 for a line; and whether it is drawn in grey, behind the limbs.
Line = tuple[str, tuple[tuple[int, tuple[float, float, float]], ...], float, bool]
# A point by its link, its place on the link, and its place in the world in the pose of the file.
Point = tuple[int, np.ndarray, np.ndarray]
# The corners of a box in an order that runs along all of its edges, and those of a face.
_EDGES = np.array([(x, y, z) for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
_EDGES = _EDGES[[0, 1, 3, 2, 0, 4, 5, 1, 5, 7, 3, 7, 6, 2, 6, 4]]
_FACE = np.array([(-1.0, -1.0), (-1.0, 1.0), (1.0, 1.0), (1.0, -1.0), (-1.0, -1.0)])


def silhouette(
    model: Any,
    data: Any,
    mujoco: Any,
    name: Callable[[Any, int], str],
    link: list[int],
    before: list[int],
    place: Callable[[int], tuple[np.ndarray, np.ndarray]],
    ends: dict[int, list[np.ndarray]],
    axis: np.ndarray | None,
) -> tuple[Line, ...]:
    """The lines of a compiled model: first the limbs, of which one has the colour of the first line.

    Capsules and cylinders along the plane of motion are drawn by their axes; boxes, spheres and cylinders across by their rims,
    in grey where there are limbs. A link with a mass and without capsules and boxes is a line from its joint to those of the
    links after it; of a last link, to the farthest of its sites, spheres and centres of mass. Lines that follow each other are
    one, but for that of a base, which is free to move. Links from which several hang are grey; a point is where they meet.

    **Arguments:** `data`: in the pose of the file. `link`: of each body. `before`: of each link. `place`: of a geom, on its link.
    `ends`: of each link with a mass, sites and centres of mass. `axis`: normal to the plane of motion, or `None`.
    """
    rods, rims, ends = _geoms(model, data, mujoco, name, link, place, ends, axis)
    boxes = {points[0][0] for _, points, radius, _ in rims if not radius}
    # Of the links that are drawn, the last one before each, and those after each.
    drawn = [k for k in range(len(before)) if k in ends or k in rods]
    chain = lambda k: [] if k < 0 else [k, *chain(before[k])]
    parent = {k: next((each for each in chain(before[k]) if each in drawn), -1) for k in drawn}
    after = {k: [each for each in drawn if parent[each] == k] for k in (-1, *drawn)}
    joint = {k: (k, model.jnt_pos[k], data.xanchor[k]) for k in drawn}
    gap = lambda one, other: float(np.linalg.norm(one[2] - other[2]))
    tiny = 1e-6 * model.stat.extent

    lines: dict[int, list[list[Point]]] = {}
    for k in drawn:
        own = [rod if gap(rod[0], joint[k]) <= gap(rod[1], joint[k]) else rod[::-1] for rod in rods.get(k, ())]
        own = own or [[joint[k], joint[each]] for each in after[k] if gap(joint[k], joint[each]) > tiny]
        far = max(ends.get(k, ()), key=lambda each: float(np.linalg.norm(each - joint[k][1])), default=joint[k][1])
        if not own and np.linalg.norm(far - joint[k][1]) > tiny:
            own = [[joint[k], (k, far, data.xanchor[k])]]
        one = parent[k]
        base = one >= 0 and before[one] >= 0 and parent[one] < 0
        follows = own and len(lines.get(one, ())) == len(after[one]) == 1 and gap(lines[one][0][-1], own[0][0]) <= tiny
        if follows and not base:
            own[0] = lines.pop(one)[0] + own[0][1:]
        lines[k] = own if k in rods or k not in boxes else []

    bodies = {link[k]: name(mujoco.mjtObj.mjOBJ_BODY, k) for k in range(model.nbody - 1, 0, -1)}
    limbs = [(bodies[k], _on(line), 0.0, len(after[k]) > 1) for k, own in lines.items() for line in own]
    limbs.sort(key=lambda each: each[3])
    hangs = [joint[k] for own in after.values() if len(own) > 1 for k in own]
    meets = [k for k, each in enumerate(hangs) if sum(gap(each, other) <= tiny for other in hangs[k:]) == 2]
    dots = [("joint", _on([hangs[k]]), 0.0, False) for k in meets]
    alone = not limbs
    found = [*limbs, *((*rim[:3], not alone) for rim in rims), *dots]
    times = lambda k: sum(each[0] == found[k][0] for each in found[:k])
    return tuple((each[0] + f" {times(k) + 1}" * bool(times(k)), *each[1:]) for k, each in enumerate(found))


def _geoms(model, data, mujoco, name, link, place, ends, axis):
    """The rods and the rims that geoms are drawn by, and the ends of links with the centres of rims among them."""
    types, ends = mujoco.mjtGeom, {k: list(points) for k, points in ends.items()}
    rods: dict[int, list[list[Point]]] = {}
    rims: list[Line] = []
    for k in range(model.ngeom):
        kind, own, size = types(model.geom_type[k]), link[model.geom_bodyid[k]], model.geom_size[k]
        if own < 0:
            continue
        (point, turn), label = place(k), name(mujoco.mjtObj.mjOBJ_GEOM, k)
        world = data.geom_xmat[k].reshape(3, 3)
        long = kind in (types.mjGEOM_CAPSULE, types.mjGEOM_CYLINDER)
        if kind == types.mjGEOM_BOX:
            across, corners = np.zeros(3) if axis is None else np.abs(axis @ world), _EDGES
            if np.max(across) > 1 - 1e-9:
                corners = np.insert(_FACE, int(np.argmax(across)), 0.0, axis=1)
            rims.append((label, _on([(own, point + turn @ (each * size), point) for each in corners]), 0.0, True))
        elif long and (axis is None or abs(axis @ world[:, 2]) < 0.9):
            reach = [-size[1], size[1]]
            rods.setdefault(own, []).append(
                [(own, point + by * turn[:, 2], data.geom_xpos[k] + by * world[:, 2]) for by in reach]
            )
        elif long or kind == types.mjGEOM_SPHERE:
            at = [point] if axis is None else [point, point + size[0] * turn[:, int(abs(axis @ world[:, 0]) > 0.9)]]
            rims.append((label, _on([(own, each, each) for each in at]), float(size[0]), True))
            ends.setdefault(own, []).append(point)
    return rods, rims, ends


def _on(points: list[Point]) -> tuple[tuple[int, tuple[float, float, float]], ...]:
    return tuple((k, tuple(np.asarray(place, float).tolist())) for k, place, _ in points)
