"""A robot from a file that MuJoCo compiles: MJCF or URDF."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from .._results.registry import needed
from .._results.working import warn
from .._system.types import require_function, require_kind
from .robot import Directions, named, Robot, RobotParams, Touching
from .silhouette import silhouette

if TYPE_CHECKING:
    import mujoco

# What a robot must not have: the field of the model that counts it, its kind, what it is, and what to do instead.
_LEFT_OUT = (
    ("neq", "EQUALITY", "equality constraint", "write the loop as a contact or as a joint"),
    ("ntendon", "TENDON", "tendon", "give its force as forces of the joints"),
    ("nflex", "FLEX", "deformable body", "leave it out"),
    ("nplugin", "PLUGIN", "plugin", "leave it out"),
)
# What else exerts forces, by the numbers of the model that are zero without it; some versions of MuJoCo do not have all.
_FORCES = (
    ("dof_dampingpoly", "nonlinear damping of joints"),
    ("jnt_stiffnesspoly", "nonlinear stiffness of joints"),
    ("actuator_damping", "damping of actuators"),
    ("actuator_armature", "armature of actuators"),
    ("actuator_delay", "delays of actuators"),
    ("body_gravcomp", "gravity compensation"),
)
# What has no effect, by the numbers of the model that are zero without it, and by the flag that disables it.
_IGNORED = (
    ("actuator_ctrllimited", "CLAMPCTRL", "ranges of the inputs of actuators"),
    ("actuator_forcelimited", "ACTUATION", "limits of the forces of actuators"),
    ("jnt_actfrclimited", "ACTUATION", "limits of the actuators' forces on joints"),
)
# The beginning of a URDF file, behind what XML has before its first element.
_URDF = re.compile(r"\s*(<\?.*?\?>\s*|<!--.*?-->\s*)*<robot\b", re.DOTALL)
# The ends of a joint's range, with the direction of its coordinate into the range.
_ENDS = (("lower", 1), ("upper", -1))
# The place of a frame in another: position, and quaternion (w, x, y, z).
Pose = tuple[np.ndarray, np.ndarray]
# Of each contact's name the planes, `None` for the only one.
Asked = dict[str, str | Sequence[str] | None]
_HERE: Pose = (np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))


def from_mujoco(
    source: "str | Path | mujoco.MjModel",  # pyright: ignore[reportAttributeAccessIssue]
    *,
    control: Callable | None = None,
    contacts: Sequence[str] | Mapping[str, str | Sequence[str]] = (),
) -> Robot:
    r"""A robot from MJCF or URDF: a path, the text of a file, or a compiled `mujoco.MjModel`.

    MuJoCo reads and compiles the file; its arrays become leaves of `robot.params`, and hyjax's own equations move the bodies (see
    `Robot`). Of the file are used: bodies, hinges and slides with axis, anchor, `ref`, damping, stiffness, `springref` and
    armature; masses and inertias as compiled; gravity; sites; motors and servos on joints; the geoms named in `contacts`, and the
    others for pictures. Of a servo, such as `position` and `velocity`, whose force is $r\,(k u + b_0 + b_1 r q + b_2 r \dot q)$
    with the gear $r$, the input is $u$, and the rest is added to the spring and the damper of its joint. Forces that a flag of
    the file disables are zero. The range of a joint has an effect where `contacts` names the joint; a warning names other
    ranges, and ranges of the inputs and limits of the forces of motors, which have none. Options of
    MuJoCo's integrator have no effect.

    **Arguments:** `source`: as said; a text begins with `<`. `control`: `u(t, q, v, params)`, shape `(motors,)`, the inputs of
    the motors in the order of the file; zero by default. `contacts`: names of spheres, capsules, boxes and sites that touch the
    plane of the file, or for URDF, which has no planes, the plane `ground`, $z = 0$; where there are several planes, `{geom:
    plane}`, or `{geom: (plane, plane)}`. They are `robot.contacts`: a sphere's, and that of a site, a point, or of a capsule
    across the plane of motion, has the name of the geom or site; the ends of a capsule, from its negative to its positive z axis,
    and the corners of a box have `_0`, `_1`, ... behind it; of a geom with several planes the plane's name follows. Friction is
    MuJoCo's, of a `pair` or of both geoms together, and the plane's for a site; none with `condim="1"`. A joint with a range,
    such as a knee, is two contacts, its stops: with `_lower` and `_upper` behind its name, without friction. A name of a geom and
    of such a joint, or of a geom and a site, is refused.

    **Returns:** a `Robot`, whose coordinates are MuJoCo's `qpos`. `ValueError` with MuJoCo's message where it refuses the file,
    and for what is not supported, named one by one: ball and free joints, equality constraints, tendons, dry friction of joints,
    actuators that are not motors or servos on joints, a link without mass; contacts of other geoms, and with friction of a robot
    that does not move in one plane. `ImportError` without the extra `robots`.

    **Example:**

    >>> pendulum = '''<mujoco><worldbody><body><joint name="swing" axis="0 1 0"/>
    ...   <inertial pos="0 0 -1" mass="1" diaginertia="1e-9 1e-9 1e-9"/></body></worldbody></mujoco>'''
    >>> robot = hj.robots.from_mujoco(pendulum)
    >>> robot.coordinates, robot.mechanism.mass(jnp.zeros(1), robot.params).round(6).tolist()
    (('swing',), [[1.0]])
    >>> ball = '<worldbody><geom type="plane" size="1 1 1"/><body><joint name="z" type="slide" axis="0 0 1"/><geom name="ball"'
    >>> robot = hj.robots.from_mujoco(f'<mujoco>{ball} size="0.1"/></body></worldbody></mujoco>', contacts=["ball"])
    >>> print(f"{robot.contacts['ball'].gap(jnp.zeros(()), jnp.array([0.5]), robot.params):.6f}")
    0.400000

    Source: MuJoCo's documentation, *Computation* and *XML Reference*.
    """
    mujoco: Any = needed("mujoco", "robots", "Robots")
    if control is not None:
        require_function(control, "t, q, v, params", "from_mujoco: control")
    if not isinstance(contacts, Iterable):
        raise ValueError(f"from_mujoco: contacts must be names, such as ['left_foot', 'right_foot'], not {contacts!r}.")
    model = _compiled(source, mujoco)
    kinds = mujoco.mjtObj
    name = lambda kind, k: mujoco.mj_id2name(model, kind, k) or f"{kind.name[6:].lower()}{k}"
    _refuse(model, mujoco, name)
    count = model.njnt
    # The link of each body, and its place on it: a body without a joint is part of the body before it.
    link, frames = [-1], [_HERE]
    before, joints = [-1] * count, [_HERE] * count
    for body in range(1, model.nbody):
        parent = model.body_parentid[body]
        place, last = _composed(frames[parent], (model.body_pos[body], model.body_quat[body])), link[parent]
        first = model.body_jntadr[body]
        for joint in range(first, first + model.body_jntnum[body]):
            before[joint], joints[joint] = last, place
            last, place = joint, _HERE
        link.append(last)
        frames.append(place)

    massive = [k for k in range(1, model.nbody) if link[k] >= 0 and model.body_mass[k] > 0]
    centers = [_composed(frames[k], (model.body_ipos[k], model.body_iquat[k])) for k in massive]
    sites = [_composed(frames[model.site_bodyid[k]], (model.site_pos[k], _HERE[1]))[0] for k in range(model.nsite)]
    # Of forces by flags of the file; older versions of MuJoCo have one flag, passive, for springs and dampers.
    off = lambda name: model.opt.disableflags & int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}", 0))
    acts = lambda *names: not any(map(off, names))
    damping, spring = model.dof_damping * acts("PASSIVE", "DAMPER"), model.jnt_stiffness * acts("PASSIVE", "SPRING")
    stiffness, constant, gear = spring.copy(), np.zeros(count), np.zeros((len(model.actuator_trntype), count))
    for k in np.flatnonzero(~(model.opt.disableactuator >> model.actuator_group) & acts("ACTUATION")):
        joint, ratio = model.actuator_trnid[k, 0], model.actuator_gear[k, 0]
        gear[k, joint] = ratio * model.actuator_gainprm[k, 0]
        if model.actuator_biastype[k] == mujoco.mjtBias.mjBIAS_AFFINE:
            constant[joint] += ratio * model.actuator_biasprm[k, 0]
            stiffness[joint] -= ratio**2 * model.actuator_biasprm[k, 1]
            damping[joint] -= ratio**2 * model.actuator_biasprm[k, 2]
    # The spring of a joint and those of its servos are one, which is at rest where their forces are in balance.
    served, pull = (stiffness != spring) | (constant != 0), spring * model.qpos_spring + constant
    if np.any(lost := served & (stiffness == 0) & (pull != 0)):
        joint = name(kinds.mjOBJ_JOINT, int(np.argmax(lost)))
        raise ValueError(
            f"from_mujoco: not supported: a constant force of an actuator on joint {joint!r} (write it as control)."
        )
    rest = np.where(served & (stiffness != 0), pull / np.where(stiffness != 0, stiffness, 1), model.qpos_spring)
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    # By each name its planes; `None` for the only one.
    asked: Asked = {contacts: None} if isinstance(contacts, str) else dict.fromkeys(contacts)
    asked = dict(contacts) if isinstance(contacts, Mapping) else asked
    stopped = _stopped(model, mujoco, name, asked, acts("LIMIT", "CONSTRAINT"))
    # A file without actuators may have limits of their forces, as the efforts of URDF.
    acting = len(model.actuator_trntype) > 0 and acts("ACTUATION")
    if ignored := [what for field, by, what in _IGNORED if acting and acts(by) and np.any(getattr(model, field, 0))]:
        warn(f"from_mujoco: {', '.join(ignored)} have no effect. Write limits as control, or as those of an optimum.")
    on_planes: Asked = {each: planes for each, planes in asked.items() if each not in stopped}
    touching, planes, rolls, touched = _contacts(model, data, mujoco, name, on_planes, link, frames, sites)
    stops = tuple((f"{joint}_{end}", k, side) for joint, k in stopped.items() for end, side in _ENDS)
    own = [each for each, *_ in (*touching, *stops)]
    if twice := sorted({each for each in own if own.count(each) > 1}):
        raise ValueError(f"from_mujoco: contacts: {', '.join(twice)} name two contacts. Give the geoms other names.")
    axis, _ = _plane_of_motion(data.xaxis, model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE, [])
    ends = {
        on: [c for k, (c, _) in zip(massive, centers, strict=True) if link[k] == on]
        for on in map(link.__getitem__, massive)
    }
    for k, site in enumerate(sites):
        ends.get(link[model.site_bodyid[k]], []).append(site)

    def on_link(geom: int) -> tuple[np.ndarray, np.ndarray]:
        turn = np.zeros(9)
        point, quaternion = _composed(frames[model.geom_bodyid[geom]], (model.geom_pos[geom], model.geom_quat[geom]))
        mujoco.mju_quat2Mat(turn, quaternion)
        return point, turn.reshape(3, 3)

    array = lambda value, *shape: jnp.asarray(np.reshape(np.asarray(value, float), shape))
    each = lambda values: tuple(array(value) for value in values)
    params = RobotParams(
        gravity=each(model.opt.gravity * acts("GRAVITY")),
        position=array([place for place, _ in joints], count, 3),
        quaternion=array([turn for _, turn in joints], count, 4),
        axis=array(model.jnt_axis, count, 3),
        anchor=array(model.jnt_pos, count, 3),
        reference=each(model.qpos0),
        damping=each(damping),
        stiffness=each(stiffness),
        rest=each(rest),
        armature=each(model.dof_armature),
        mass=each(model.body_mass[massive]),
        center=array([place for place, _ in centers], len(massive), 3),
        inertia=array(model.body_inertia[massive], len(massive), 3),
        inertia_quaternion=array([turn for _, turn in centers], len(massive), 4),
        site=array(sites, model.nsite, 3),
        gear=array(gear, len(gear), count),
        input=array(np.zeros(len(gear)), len(gear)),
        geom=array([place for place, _ in touched["places"]], len(touched["places"]), 3),
        geom_quaternion=array([turn for _, turn in touched["places"]], len(touched["places"]), 4),
        size=tuple(each(size) for size in touched["sizes"]),
        friction=each(touched["friction"]),
        slope=each(touched["slope"]),
        height=each(touched["height"]),
        stop=each(model.jnt_range[list(stopped.values())].ravel()),
    )
    if wrong := [field for field, value in vars(params).items() if not np.all(np.isfinite(jax.tree.leaves(value)))]:
        raise ValueError(f"from_mujoco: numbers of the file are not finite: {', '.join(wrong)}. Give finite numbers.")
    robot = Robot(
        params,
        coordinates=tuple(name(kinds.mjOBJ_JOINT, k) for k in range(count)),
        before=tuple(before),
        turns=tuple(bool(kind == mujoco.mjtJoint.mjJNT_HINGE) for kind in model.jnt_type),
        bodies=tuple((name(kinds.mjOBJ_BODY, k), link[k]) for k in massive),
        sites=tuple((name(kinds.mjOBJ_SITE, k), link[model.site_bodyid[k]]) for k in range(model.nsite)),
        actuators=tuple(name(kinds.mjOBJ_ACTUATOR, k) for k in range(len(model.actuator_trntype))),
        control=control,
        touching=touching,
        stops=stops,
        planes=planes,
        rolls=rolls,
        geoms=tuple(
            (name(kinds.mjOBJ_GEOM, k), on)
            for k, on in enumerate(link[body] for body in model.geom_bodyid)
            if mujoco.mjtGeom(model.geom_type[k]) in (_touching(mujoco) if on >= 0 else [mujoco.mjtGeom.mjGEOM_PLANE])
        ),
        lines=silhouette(model, data, mujoco, name, link, before, on_link, ends, axis),
        view=planes[0] if planes else _view(axis),
    )
    sizes, directions = np.linalg.eigh(_mass(model, mujoco))
    if sizes[0] <= 0:
        joint = robot.coordinates[np.argmax(np.abs(directions[:, 0]))]
        raise ValueError(
            f"from_mujoco: the mass matrix is not positive definite: what the joint {joint!r} moves has neither mass nor "
            "armature. Give each body that moves a mass and an inertia, or its joint armature."
        )
    return robot


def _compiled(source: Any, mujoco: Any) -> Any:
    """The model of a file or a text, of URDF with the plane `ground`."""
    if isinstance(source, mujoco.MjModel):
        return source
    require_kind(
        source, str | Path, "from_mujoco", "the first argument", "a path, the text of a file or a mujoco.MjModel"
    )
    text = str(source)
    written = text.lstrip().startswith("<")
    if not written and not Path(text).is_file():
        raise ValueError(f"from_mujoco: there is no file {text!r}.")
    try:
        if _URDF.match(text if written else Path(text).read_text(errors="replace")):
            spec = mujoco.MjSpec.from_string(text) if written else mujoco.MjSpec.from_file(text)
            spec.worldbody.add_geom(name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[1, 1, 1])
            return spec.compile()
        return mujoco.MjModel.from_xml_string(text) if written else mujoco.MjModel.from_xml_path(text)
    except ValueError as error:
        raise ValueError(f"from_mujoco: MuJoCo refuses the file: {' '.join(str(error).split())}") from None


def _refuse(model: Any, mujoco: Any, name: Callable[[Any, int], str]) -> None:
    """`ValueError` for what is not supported, named one by one."""
    kinds, joints, found = mujoco.mjtObj, mujoco.mjtJoint, []
    for k, kind in enumerate(model.jnt_type):
        what = {joints.mjJNT_FREE: "free joint", joints.mjJNT_BALL: "ball joint"}.get(joints(kind))
        if what:
            found.append(f"{what} {name(kinds.mjOBJ_JOINT, k)!r} (give slides and hinges in its place)")
    for field, kind, what, instead in _LEFT_OUT:
        every = [name(getattr(kinds, f"mjOBJ_{kind}"), k) for k in range(getattr(model, field, 0))]
        found += [f"{what} {each!r} ({instead})" for each in every]
    for dof, joint in enumerate(model.dof_jntid):
        if model.dof_frictionloss[dof] > 0:
            found.append(f"frictionloss of joint {name(kinds.mjOBJ_JOINT, joint)!r} (give a contact with friction)")
    found += [f"{what} (write it as control)" for field, what in _FORCES if np.any(getattr(model, field, 0))]
    if model.opt.density or model.opt.viscosity:
        found.append("a medium with density or viscosity (leave it out)")
    transmits, biases, still = mujoco.mjtTrn, mujoco.mjtBias, mujoco.mjtDyn.mjDYN_NONE
    for k in range(len(model.actuator_trntype)):
        on_joint = any(
            model.actuator_trntype[k] == each for each in (transmits.mjTRN_JOINT, transmits.mjTRN_JOINTINPARENT)
        )
        affine = any(model.actuator_biastype[k] == each for each in (biases.mjBIAS_NONE, biases.mjBIAS_AFFINE))
        motor = model.actuator_gaintype[k] == mujoco.mjtGain.mjGAIN_FIXED and model.actuator_dyntype[k] == still
        if not (on_joint and affine and motor):
            actuator = name(kinds.mjOBJ_ACTUATOR, k)
            found.append(
                f"actuator {actuator!r}, no motor or servo on a joint (make it a motor with its law as control)"
            )
    if not model.njnt:
        found.append("a file without a joint")
    if found:
        raise ValueError(f"from_mujoco: not supported: {'; '.join(found)}.")


def _stopped(
    model: Any, mujoco: Any, name: Callable[[Any, int], str], asked: Iterable[str], limits: bool
) -> dict[str, int]:
    """The joints among the names of contacts, by number. A warning for those with a range that are not, if ranges are `limits`
    in MuJoCo; `ValueError` for a name of nothing, or of two things."""
    kinds = mujoco.mjtObj
    every = lambda kind, count: [name(kind, k) for k in range(count)]
    joints = {each: k for k, each in enumerate(every(kinds.mjOBJ_JOINT, model.njnt))}
    geoms, sites = every(kinds.mjOBJ_GEOM, model.ngeom), every(kinds.mjOBJ_SITE, model.nsite)
    ranged = [each for each, k in joints.items() if model.jnt_limited[k]]
    for each in asked:
        # What is not elsewhere, and has no range, is refused below.
        found = [what for what, names in (("geom", geoms), ("site", sites), ("joint", ranged)) if each in names]
        if len(found) > 1:
            raise ValueError(
                f"from_mujoco: contacts: {each!r} is a {found[0]} and a {found[1]}. Give one of them another name."
            )
        if not found and each not in joints:
            named("from_mujoco", "geom, site or joint with a range", each, [*geoms, *sites, *ranged])
    stopped = {each: joints[each] for each in asked if each in joints and each not in geoms and each not in sites}
    if endless := [each for each, k in stopped.items() if not model.jnt_limited[k]]:
        raise ValueError(
            f'from_mujoco: contacts: the joint {endless[0]!r} has no range. Give it range="-1 0" (and limited="true").'
        )
    if free := [each for each, k in joints.items() if limits and model.jnt_limited[k] and each not in stopped]:
        warn(
            f"from_mujoco: the range of {', '.join(free)} has no effect: the joint moves on beyond it. Name the joint among "
            "contacts, whose stops then hold it, or leave the range out of the file."
        )
    return stopped


def _contacts(
    model: Any,
    data: Any,
    mujoco: Any,
    name: Callable[[Any, int], str],
    asked: Asked,
    link: list[int],
    frames: list[Pose],
    sites: list[np.ndarray],
) -> tuple[tuple[Touching, ...], tuple[Directions, ...], tuple[float, ...], dict[str, list]]:
    """The contacts of geoms with planes, the directions of the planes, by each joint's rate that of the rotation in the plane of
    motion, and the numbers of geoms and planes."""
    numbers: dict[str, list] = {key: [] for key in ("places", "sizes", "friction", "slope", "height")}
    if not asked:
        return (), (), (), numbers
    kinds, types = mujoco.mjtObj, mujoco.mjtGeom
    # Sites are numbered behind the geoms: points, with the friction of the plane.
    names = [name(kinds.mjOBJ_GEOM, k) for k in range(model.ngeom)]
    names += [name(kinds.mjOBJ_SITE, k) for k in range(model.nsite)]
    bodies = [int(body) for body in (*model.geom_bodyid, *model.site_bodyid)]
    place = lambda k: _composed(frames[bodies[k]], (model.geom_pos[k], model.geom_quat[k]))
    still = [k for k, body in enumerate(bodies) if link[body] < 0]
    planes = [k for k in still if k < model.ngeom and model.geom_type[k] == types.mjGEOM_PLANE]
    if not planes:
        raise ValueError('from_mujoco: contacts need a plane: give <geom type="plane" size="1 1 1"/> in the worldbody.')
    of_planes = [names[k] for k in planes]
    if None in asked.values() and len(planes) > 1:
        raise ValueError(
            f"from_mujoco: contacts: there are the planes {', '.join(of_planes)}: give one to each geom, {{geom: plane}}."
        )
    pairs = [
        (names.index(geom), planes[_plane_named(geom, plane, of_planes, names)])
        for geom, given in asked.items()
        for plane in (of_planes if given is None else given if isinstance(given, list | tuple) else (given,))
    ]
    planes = [k for k in planes if any(k == plane for _, plane in pairs)]
    normals = [data.geom_xmat[k].reshape(3, 3)[:, 2] for k in planes]
    hinge = model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
    axis, why = _plane_of_motion(data.xaxis, hinge, [normals[planes.index(k)] for _, k in pairs])
    touching: list[Touching] = []
    supported = _touching(mujoco)
    for geom, (k, plane) in enumerate(pairs):
        point = k >= model.ngeom
        kind = types.mjGEOM_SPHERE if point else types(model.geom_type[k])
        if kind not in supported or k in still:
            what = "does not move" if k in still else f"is of the kind {kind.name[7:].lower()}"
            raise ValueError(
                f"from_mujoco: contacts: {names[k]!r} {what}; contacts are of moving spheres, capsules, boxes and sites."
            )
        rough = plane if point else k
        first = model.geom_priority[rough] - model.geom_priority[plane]
        of_both = lambda values: (
            max(values[rough], values[plane]) if first == 0 else values[rough if first > 0 else plane]  # noqa: B023
        )
        friction, dimension = of_both(model.geom_friction[:, 0]), of_both(model.geom_condim)
        for pair in range(model.npair):
            if {model.pair_geom1[pair], model.pair_geom2[pair]} == {rough, plane} and not point:
                friction, dimension = model.pair_friction[pair, 0], model.pair_dim[pair]
        if model.opt.enableflags & int(mujoco.mjtEnableBit.mjENBL_OVERRIDE):
            friction = model.opt.o_friction[0]
        if friction < 0:
            raise ValueError(f"from_mujoco: contacts: friction={friction:g} of {names[k]!r} must not be negative.")
        rubs = bool(dimension > 1 and friction > 0)
        if axis is not None:
            # What only moves across the plane does not slip.
            rubs &= _slides(model, data, hinge, bodies[k], np.cross(axis, normals[planes.index(plane)]))
        if rubs and axis is None:
            raise ValueError(
                f"from_mujoco: contacts: friction of {names[k]!r} needs a motion in one plane, but {why}. Give the geom and the "
                'plane condim="1", or leave out that joint.'
            )
        signs = (
            [(-1, 1)] * 3
            if kind == types.mjGEOM_BOX
            else [(0,), (0,), (-1, 1) if kind == types.mjGEOM_CAPSULE else (0,)]
        )
        if axis is not None and not point:
            # In a plane of motion along two of the box's axes, the corners in front are those behind; so are a capsule's ends.
            along = np.abs(axis @ data.geom_xmat[k].reshape(3, 3)) > 1 - 1e-9
            signs = [(0,) if each else sign for each, sign in zip(along, signs, strict=True)]
        points = [(x, y, z) for x in signs[0] for y in signs[1] for z in signs[2]]
        for i, each in enumerate(points):
            own = f"{names[k]}_{i}" if len(points) > 1 else names[k]
            own += f"_{names[plane]}" if sum(k == other for other, _ in pairs) > 1 else ""
            touching.append((own, geom, link[bodies[k]], each, planes.index(plane), rubs))
        for key, value in (
            ("places", (sites[k - model.ngeom], _HERE[1]) if point else place(k)),
            ("sizes", [0.0] if point else model.geom_size[k, : supported[kind]]),
            ("friction", friction),
        ):
            numbers[key].append(value)
    directions = [_directions(normal, axis) for normal in normals]
    for k, normal, (up, forward) in zip(planes, normals, directions, strict=True):
        numbers["slope"].append(np.arctan2(normal @ forward, normal @ up))
        numbers["height"].append(normal @ data.geom_xpos[k])
    hinge = model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
    rolls = np.zeros(model.njnt) if axis is None else np.round(data.xaxis @ axis) * hinge
    return tuple(touching), tuple(directions), tuple(rolls.tolist()), numbers


def _plane_named(geom: str, plane: Any, planes: Sequence[str], names: Sequence[str]) -> int:
    if plane in names and plane not in planes:
        raise ValueError(
            f"from_mujoco: contacts: {plane!r} is no plane, and contacts of a file are with planes. Write that of {geom!r} and "
            f"{plane!r} as a hj.contact.Contact, its gap from robot.position, beside robot.contacts."
        )
    return named("from_mujoco", "plane", plane, planes)


def _touching(mujoco: Any) -> dict[Any, int]:
    """The kinds of geoms that may be in contact, with the count of the numbers of their size."""
    types = mujoco.mjtGeom
    return {types.mjGEOM_SPHERE: 1, types.mjGEOM_CAPSULE: 2, types.mjGEOM_BOX: 3}


def _slides(model, data, hinge: np.ndarray, body: int, tangent: np.ndarray) -> bool:
    """Whether a joint turns the body, or moves it along the tangent."""
    while body:
        for joint in range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body]):
            if hinge[joint] or abs(data.xaxis[joint] @ tangent) > 1e-9:
                return True
        body = model.body_parentid[body]
    return False


def _plane_of_motion(axes: np.ndarray, hinge: np.ndarray, normals: list[np.ndarray]) -> tuple[np.ndarray | None, str]:
    """The unit normal of the plane in which all links move, which is the axis of all hinges; or `None` and what leaves it."""
    across = np.array([*axes[~hinge], *normals]).reshape(-1, 3)
    if np.any(hinge):
        axis = axes[hinge][0]
    else:
        _, sizes, rows = np.linalg.svd(np.concatenate([across, np.zeros((3, 3))]))
        free = rows[sizes < 1e-9]
        # Of several the one nearest to y, about which the hinges of most planar robots turn.
        axis = free.T @ free[:, 1] if len(free) else rows[-1]
        axis = axis / np.linalg.norm(axis) if np.linalg.norm(axis) > 1e-9 else rows[-1]
    axis = axis * np.sign(axis[np.argmax(np.abs(axis))])
    if np.any(np.linalg.norm(np.cross(axes[hinge], axis), axis=-1) > 1e-9):
        return None, "its hinges are not parallel"
    if np.any(np.abs(across @ axis) > 1e-9):
        return None, "a slide or a plane's normal leaves the plane of its hinges"
    return axis, ""


def _directions(normal: np.ndarray, axis: np.ndarray | None) -> Directions:
    """Up, and forward: perpendicular unit vectors, in whose plane is the normal."""
    x, _, z = np.eye(3)
    if axis is None:
        up, level = z, normal * np.array([1, 1, 0])
        forward = level if np.linalg.norm(level) > 1e-9 else x
    else:
        up = z - axis * axis[2]
        up = up if np.linalg.norm(up) > 1e-9 else x
        forward = np.cross(axis, up)
    unit = lambda each: tuple((each / np.linalg.norm(each)).tolist())
    return unit(up), unit(forward)


def _view(axis: np.ndarray | None) -> Directions:
    """Up and forward in pictures: of a motion in one plane that plane, seen with gravity's axis z upward, or from above; else z
    and x."""
    if axis is None or abs(axis[2]) > 1 - 1e-9:
        return ((0.0, 0.0, 1.0) if axis is None else (0.0, 1.0, 0.0)), (1.0, 0.0, 0.0)
    return _directions(axis, axis)


def _mass(model: Any, mujoco: Any) -> np.ndarray:
    """MuJoCo's mass matrix in the state of the file; `mj_mulM` has it in all versions. It takes no program of JAX."""
    data, mass = mujoco.MjData(model), np.zeros((model.nv, model.nv))
    for part in (mujoco.mj_kinematics, mujoco.mj_comPos, getattr(mujoco, "mj_makeM", mujoco.mj_crb)):
        part(model, data)
    for row, unit in zip(mass, np.eye(model.nv), strict=True):
        mujoco.mj_mulM(model, data, row, unit)
    return mass


def _composed(first: Pose, then: Pose) -> Pose:
    """A place given in a frame, where that frame is itself given in another: $p + R\\,q$ and the product of the quaternions."""
    (p, a), (q, b) = first, then
    w, x, y, z = a
    times = np.array([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]])
    axis = np.array([x, y, z])
    return p + q + 2 * np.cross(axis, np.cross(axis, q) + w * np.asarray(q)), times @ np.asarray(b, float)
