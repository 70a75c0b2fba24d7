"""A robot's MJCF or URDF file in the place of a model, `robot.xml:left_foot,right_foot`: a walker's steps, or bodies in contact.

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
    name: str, contacts: Sequence[str] = (), mirror: Sequence[str] = (), sequence: str | None = None, free: bool = False
) -> OwnModel:
    """The model of a robot's file.

    **Arguments:** `name`: its path, and behind a colon its contacts. `contacts`: further ones. `mirror`: pairs of joints as
    `left=right`; by default those whose names say so, and `none` for none. `sequence`: of sets of contacts by name, as
    `heel:stick+toe:open`, the modes of the model; else the steps of a walker, where two contacts of different links and no stops
    of joints are named on a base that a walker has, or bodies in contact. `free`: whether bodies without contacts are a model.
    `Misuse` without contacts otherwise; `ValueError` for what does not exist, and for a walker with legs that are not alike.
    """
    from .._orbit.return_map import ReturnMap
    from ..robots import from_mujoco, walker
    from ..robots.walker import no_base

    split = robot_and_contacts(name)
    assert split is not None
    path, feet = split[0], [*split[1], *contacts]
    if len(set(feet)) < len(feet):
        raise Misuse(f"--contact: {', '.join(feet)}: one name is given twice. Give two feet, or one contact of a body.")
    if not feet and not free:
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
    params, filled = _parameters(robot)
    two = len(robot.touching) == 2 and not robot.stops and robot.touching[0][2] != robot.touching[1][2]
    why = no_base(robot, 0, 1) if two else ""
    if sequence is not None and ":" in sequence:
        if mirror:
            raise Misuse(
                "--mirror is of the steps of a walker, and --sequence names sets of contacts. Give one of them."
            )
        names = tuple(each.strip() for each in sequence.split(","))
        step, shown = ReturnMap(_body(robot, filled, robot.contacts), sequence=names), robot
        system = step.system
    elif two and (mirror or not why):
        shown = walker(robot, [each for each, *_ in robot.touching], mirror=_pairs(mirror) if mirror else None)
        step, system = None, _of_params(shown.system, filled)
    elif mirror:
        raise Misuse("--mirror is of the two feet of a walker, on two links.")
    elif not feet:
        step, shown, system = None, robot, _free(robot, filled)
    else:
        several = robot.contacts
        step, shown = None, robot
        system = _body(robot, filled, several if len(several) > 1 else next(iter(several.values())))
    module: Any = _module(path, robot, system, shown, params, filled)
    if not two and len(robot.contacts) > 1:
        sets = "+".join(f"{each}:open" for each in robot.contacts)
        why = f"a walker has two feet, points or round, on two links. Give sets of contacts, as --sequence {sets},..."
    if why:
        module.no_steps = why.removeprefix("walker: ")
    if step is not None:
        import jax.numpy as jnp

        # The held numbers of the first set of contacts.
        mode, region, (_, rest) = step.mode.partition("[")[0], module.region, module.start(None)
        bodies: Any = system.mode(mode).domain
        held = lambda x: jnp.concatenate([x, jnp.array(bodies.only.value, x.dtype)])
        module.sequence, module.sets = step.sequence, sequence
        module.region, module.start = lambda p: tuple(map(held, region(p))), lambda p: (mode, held(rest))
    return OwnModel(module, Path(path), module.system)


def _free(robot: Any, filled: Any) -> Any:
    """The system of a robot that touches nothing, by the parameters of which `filled` makes the robot's."""
    import jax.numpy as jnp

    from .._system.system import HybridSystem, Mode

    def flow(t, x, p):
        q, v = jnp.split(x, 2)
        return jnp.concatenate([v, robot.mechanism.acceleration(t, q, v, filled(p))])

    coordinates, units = _state(robot)
    return HybridSystem({"free": Mode(flow, coordinates, units=units)}, (), time_unit="s")


def _state(robot: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The coordinates of a robot with their rates, and their units."""
    units = tuple("rad" if turns else "m" for turns in robot.turns)
    rates = tuple(f"{name}_rate" for name in robot.coordinates)
    return (*robot.coordinates, *rates), (*units, *(f"{each}/s" for each in units))


def _body(robot: Any, filled: Any, contacts: Any) -> Any:
    """The system of one contact, or of contacts by name, by the parameters of which `filled` makes the robot's."""
    from ..contact import contact_system, Mechanism

    of = lambda function: lambda *args: function(*args[:-1], filled(args[-1]))

    def with_own(contact):
        functions = {name: getattr(contact, name) for name in ("gap", "slip", "static", "kinetic")}
        return dataclasses.replace(contact, **{name: of(each) for name, each in functions.items() if callable(each)})

    alone = not isinstance(contacts, dict)
    named = {"": contacts} if alone else contacts
    own = {name: with_own(each) for name, each in named.items()}
    place = {each.gap: named[name] for name, each in own.items()}
    bodies = robot.mechanism
    rows = lambda contacts, t, q, v, p: bodies._rows(tuple(place[each.gap] for each in contacts), t, q, v, filled(p))
    mechanism = Mechanism(of(bodies.mass), of(bodies.forces), of(bodies.coriolis), rows)
    contact = own[""] if alone else own
    return contact_system(mechanism, contact, robot.coordinates, units=_state(robot)[1], time_unit="s")


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


def _parameters(robot: Any) -> tuple[type, Any]:
    """The class of the parameters that the commands know, and the function from these to the robot's."""
    import equinox as eqx
    import jax

    from .._system.where import parameter
    from ..models._common import require

    plane, fields = (robot.touching[0][4] if robot.touching else None), {}
    if plane is not None:
        fields["slope"] = parameter(float(robot.params.slope[plane]), "rad", "slope of the ground, downhill positive")
    fields["gravity"] = parameter(-float(robot.params.gravity[2]), "m/s^2", "acceleration of gravity, downward")
    bodies = {f"mass_{re.sub(chr(92) + 'W', '_', body)}": k for k, (body, _) in enumerate(robot.bodies)}
    for name, k in bodies.items():
        fields[name] = parameter(float(robot.params.mass[k]), "kg", f"mass of {robot.bodies[k][0]}")
    names = {"__annotations__": dict.fromkeys(fields, jax.Array), "__module__": __name__, "__qualname__": "Params"}
    names["__check_init__"] = lambda self: require(self, positive=" ".join(bodies))
    params_class = new_class("Params", (eqx.Module,), exec_body=lambda body: body.update(names | fields))

    def filled(p):
        slope = [] if plane is None else [plane]
        given = [*(p.slope for _ in slope), -p.gravity, *(getattr(p, name) for name in bodies)]
        places = lambda own: [*(own.slope[k] for k in slope), own.gravity[2], *(own.mass[k] for k in bodies.values())]
        return eqx.tree_at(places, robot.params, given)

    return params_class, filled


def _of_params(system: Any, filled: Any) -> Any:
    """The system by the parameters of which `filled` makes the robot's."""
    from .._system.system import HybridSystem

    of = lambda function: function and (lambda t, x, p, *member: function(t, x, filled(p), *member))
    modes = {
        name: dataclasses.replace(mode, vector_field=of(mode.vector_field), domain=of(mode.domain))
        for name, mode in system.modes.items()
    }
    ways = tuple(
        dataclasses.replace(way, guard=of(way.guard), reset=of(way.reset), armed=of(way.armed))
        for way in system.transitions
    )
    return HybridSystem(modes, ways, system.time_unit)


def _module(path: str, robot: Any, system: Any, shown: Any, params_class: type, filled: Any) -> ModuleType:
    """What a model has, as a module; `shown` has the outline."""
    import jax.numpy as jnp

    from ..robots.walker import on_ground

    module: Any = ModuleType(Path(path).stem)
    module.title, module.Params = Path(path).stem, params_class
    module.system, module.scenery = system, tuple(name for name, _, _, behind in robot.lines if behind)
    if robot.touching:
        module.ground = lambda p: p.slope
    if shown is robot:
        module.outline = lambda mode, x, p: on_ground(robot, x[: len(robot.coordinates)], filled(p))
        if robot.contacts:
            module.bodies = robot
        if system.names == ("contacts",):
            module.sequence = ()
    else:
        module.outline = lambda mode, x, p: shown.outline(mode, x, filled(p))
        module.travel = lambda mode, x, p: shown.travel(mode, x, filled(p))
        module.sequence = shown.sequence
        drives = any(float(each) < 0 for each in robot.params.damping)
        module.without_orbit = lambda p: "" if drives or p.slope > 0 else (
            f"on ground that does not descend, slope={p.slope:g}, a walker without a drive has no gait: each strike loses "
            "energy. Give a slope, as --param slope=0.05, or in Python a control."
        )  # fmt: skip
    first = system.mode(system.names[0])
    flowing = (first.dimension - len(first.held)) // 2
    rest = jnp.stack([*robot.params.reference[-flowing:], *[jnp.zeros(())] * flowing])
    # Half a radian around the pose of the file, and the rates of a leg of 1 m.
    wide = jnp.repeat(jnp.array([0.5, 1.0]), flowing)
    reach = lambda p: jnp.where(wide == 1, jnp.sqrt(jnp.abs(p.gravity)), wide)
    module.region = lambda p: (rest - reach(p), rest + reach(p))
    module.start = lambda p: (system.names[0], rest)
    return module
