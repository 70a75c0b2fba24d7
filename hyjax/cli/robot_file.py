"""A robot's MJCF or URDF file in the place of a model, `robot.xml:left_foot,right_foot`: a walker's steps, or a body in contact.

Its parameters are the slope of the ground, gravity and the masses of the bodies.
"""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, new_class
from typing import Any

from .own_module import OwnModel
from .process import Misuse


def robot_and_contacts(name: str) -> tuple[str, list[str]] | None:
    """The path of a robot's file, and its contacts; `None` for any other model."""
    found = re.fullmatch(r"(.*\.(?:xml|urdf|mjcf))(?::(.*))?", name, re.IGNORECASE)
    return None if found is None else (found[1], [each.strip() for each in (found[2] or "").split(",") if each.strip()])


def load_robot(
    name: str, contacts: Sequence[str] = (), mirror: Sequence[str] = (), sequence: str | None = None
) -> OwnModel:
    """The model of a robot's file.

    **Arguments:** `name`: its path, and behind a colon its contacts. `contacts`: further ones. `mirror`: pairs of joints as
    `left=right`; by default those whose names say so, and `none` for none. `sequence`: of sets of contacts by name, as
    `heel:stick+toe:open`, the modes of the model; else the steps of a walker, or one contact. `Misuse` unless there are one
    contact or two, or any number with names of sets; `ValueError` for what does not exist, or is no walker.
    """
    from ..robots import from_mujoco, walker

    split = robot_and_contacts(name)
    assert split is not None
    path, feet = split[0], [*split[1], *contacts]
    if len(set(feet)) < len(feet):
        raise Misuse(f"--contact: {', '.join(feet)}: one name is given twice. Give two feet, or one contact of a body.")
    if not feet:
        robot = from_mujoco(path)
        known = [each for each, link in (*robot.geoms, *robot.sites) if link >= 0]
        raise Misuse(
            f"{path}: no contact is named. Give the feet as --contact LEFT --contact RIGHT, or {path}:LEFT,RIGHT; there are "
            f"{', '.join(known) or 'no sites, spheres, capsules and boxes in the file'}."
        )
    robot = from_mujoco(path, contacts=feet)
    if any(across := robot.params.gravity[:2]):
        raise Misuse(
            f"{path}: gravity has the parts {float(across[0]):g}, {float(across[1]):g} along x and y; of the commands it is "
            "along z, and the plane of the ground is inclined. In Python, hj.robots has any."
        )
    step = None
    if sequence is not None and ":" in sequence:
        if mirror:
            raise Misuse(
                "--mirror is of the steps of a walker, and --sequence names sets of contacts. Give one of them."
            )
        from .._orbit.return_map import ReturnMap

        step, shown = (
            ReturnMap(_body(robot, robot.contacts), sequence=tuple(each.strip() for each in sequence.split(","))),
            robot,
        )
        system = step.system
    elif len(robot.touching) == 1:
        if mirror:
            raise Misuse("--mirror is of the two feet of a walker; there is one contact.")
        system, shown = _body(robot, *robot.contacts.values()), robot
    elif len(robot.touching) == 2:
        shown = walker(robot, [each for each, *_ in robot.touching], mirror=_pairs(mirror) if mirror else None)
        system = shown.system
    else:
        touching = ", ".join(each for each, *_ in robot.touching)
        raise Misuse(f"{path}: --contact: there are the contacts {touching}. Give two feet, or one contact of a body.")
    module: Any = _module(path, robot, system, shown)
    if step is not None:
        import jax.numpy as jnp

        # The held numbers of the first set of contacts.
        mode, region, (_, rest) = step.mode.partition("[")[0], module.region, module.start(None)
        bodies: Any = system.mode(mode).domain
        held = lambda x: jnp.concatenate([x, jnp.array(bodies.only.value, x.dtype)])
        module.sequence, module.sets = step.sequence, sequence
        module.region, module.start = lambda p: tuple(map(held, region(p))), lambda p: (mode, held(rest))
    return OwnModel(module, Path(path), module.system)


def _body(robot: Any, contacts: Any) -> Any:
    from ..contact import contact_system

    units = tuple("rad" if turns else "m" for turns in robot.turns)
    return contact_system(
        robot.mechanism, contacts, robot.coordinates, units=(*units, *(f"{each}/s" for each in units)), time_unit="s"
    )


def _pairs(mirror: Sequence[str]) -> dict[str, str]:
    if list(mirror) == ["none"]:
        return {}
    pairs = [each.partition("=") for each in mirror]
    each_name = [name.strip() for one, _, other in pairs for name in (one, other)]
    if repeated := sorted({name for name in each_name if each_name.count(name) > 1}):
        raise Misuse(f"--mirror: {', '.join(repeated)} is named twice. Name each joint once.")
    if wrong := [one + other for one, equals, other in pairs if not equals]:
        raise Misuse(
            f"--mirror: {wrong[0]!r} is not left=right, the names of two joints. Give none for legs that differ."
        )
    return {one.strip(): other.strip() for one, _, other in pairs}


def _module(path: str, robot: Any, system: Any, shown: Any) -> ModuleType:
    """What a model has, as a module; `shown` has the outline."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from .._system.system import HybridSystem
    from .._system.where import parameter
    from ..models._parameter import require
    from ..robots.robot import on_ground

    plane = robot.touching[0][4]
    fields = {"slope": parameter(float(robot.params.slope[plane]), "rad", "slope of the ground, downhill positive")}
    fields["gravity"] = parameter(-float(robot.params.gravity[2]), "m/s^2", "acceleration of gravity, downward")
    bodies = {f"mass_{re.sub(chr(92) + 'W', '_', body)}": k for k, (body, _) in enumerate(robot.bodies)}
    for name, k in bodies.items():
        fields[name] = parameter(float(robot.params.mass[k]), "kg", f"mass of {robot.bodies[k][0]}")
    names = {"__annotations__": dict.fromkeys(fields, jax.Array), "__module__": __name__, "__qualname__": "Params"}
    names["__check_init__"] = lambda self: require(self, positive=" ".join(bodies))
    params_class = new_class("Params", (eqx.Module,), exec_body=lambda body: body.update(names | fields))

    def filled(p):
        given = [p.slope, -p.gravity, *(getattr(p, name) for name in bodies)]
        places = lambda own: [own.slope[plane], own.gravity[2], *(own.mass[k] for k in bodies.values())]
        return eqx.tree_at(places, robot.params, given)

    of = lambda function: function and (lambda t, x, p, *member: function(t, x, filled(p), *member))
    modes = {
        name: dataclasses.replace(mode, vector_field=of(mode.vector_field), domain=of(mode.domain))
        for name, mode in system.modes.items()
    }
    ways = tuple(
        dataclasses.replace(way, guard=of(way.guard), reset=of(way.reset), armed=of(way.armed))
        for way in system.transitions
    )
    module: Any = ModuleType(Path(path).stem)
    module.title, module.Params = Path(path).stem, params_class
    module.system = HybridSystem(modes, ways, system.time_unit)
    module.ground, module.scenery = (lambda p: p.slope), tuple(name for name, _, _, behind in robot.lines if behind)
    if shown is robot:
        module.outline = lambda mode, x, p: on_ground(robot, x[: len(robot.coordinates)], filled(p))
    else:
        module.outline = lambda mode, x, p: shown.outline(mode, x, filled(p))
        module.travel = lambda mode, x, p: shown.travel(mode, x, filled(p))
        module.sequence = shown.sequence
    first = next(iter(modes.values()))
    flowing = (first.dimension - len(first.held)) // 2
    rest = jnp.stack([*robot.params.reference[-flowing:], *[jnp.zeros(())] * flowing])
    # Half a radian around the pose of the file, and the rates of a leg of 1 m.
    wide = jnp.repeat(jnp.array([0.5, 1.0]), flowing)
    reach = lambda p: jnp.where(wide == 1, jnp.sqrt(jnp.abs(p.gravity)), wide)
    module.region = lambda p: (rest - reach(p), rest + reach(p))
    module.start = lambda p: (next(iter(modes)), rest)
    return module
