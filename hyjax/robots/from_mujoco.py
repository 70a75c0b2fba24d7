"""A robot from a file that MuJoCo compiles: MJCF or URDF."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from .._results.installed import needed
from .robot import Robot, RobotParams

if TYPE_CHECKING:
    import mujoco

# What a robot must not have: the field of the model that counts it, what it is, and what to do instead.
_LEFT_OUT = (
    ("neq", "equality constraints", "write the loop as a contact or as a joint"),
    ("ntendon", "tendons", "give their forces as forces of the joints"),
    ("nflex", "deformable bodies", "leave them out"),
    ("nplugin", "plugins", "leave them out"),
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
# The place of a frame in another: position, and quaternion (w, x, y, z).
Place = tuple[np.ndarray, np.ndarray]
_HERE: Place = (np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))


def from_mujoco(
    source: "str | Path | mujoco.MjModel",  # pyright: ignore[reportAttributeAccessIssue]
    *,
    control: Callable | None = None,
) -> Robot:
    r"""A robot from MJCF or URDF: a path, the text of a file, or a compiled `mujoco.MjModel`.

    MuJoCo reads and compiles the file; its arrays become leaves of `robot.params`, and hyjax's own equations move the bodies (see
    `Robot`). Of the file are used: bodies, hinges and slides with axis, anchor, `ref`, damping, stiffness, `springref` and
    armature; masses and inertias as compiled; gravity; sites; motors on joints. Geometries, joint ranges, limits of motors and
    the options of MuJoCo's integrator have no effect.

    **Arguments:** `source`: as said; a text begins with `<`. `control`: `u(t, q, v, params)`, shape `(motors,)`, the inputs of
    the motors in the order of the file; zero by default.

    **Returns:** a `Robot`, whose coordinates are MuJoCo's `qpos`. `ValueError` with MuJoCo's message where it refuses the file,
    and for what is not supported, named one by one: ball and free joints, equality constraints, tendons, dry friction of joints,
    actuators that are not motors on joints, a link without mass. `ImportError` without the extra `robots`.

    **Example:**

    >>> pendulum = '''<mujoco><worldbody><body><joint name="swing" axis="0 1 0"/>
    ...   <inertial pos="0 0 -1" mass="1" diaginertia="1e-9 1e-9 1e-9"/></body></worldbody></mujoco>'''
    >>> robot = hj.robots.from_mujoco(pendulum)
    >>> robot.coordinates, robot.mechanism.mass(jnp.zeros(1), robot.params).round(6).tolist()
    (('swing',), [[1.0]])

    Source: MuJoCo's documentation, *Computation* and *XML Reference*.
    """
    mujoco: Any = needed("mujoco", "robots", "Robots")
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
    gear = np.zeros((len(model.actuator_trntype), count))
    for k in range(len(model.actuator_trntype)):
        gear[k, model.actuator_trnid[k, 0]] = model.actuator_gear[k, 0] * model.actuator_gainprm[k, 0]
    array = lambda value, *shape: jnp.asarray(np.reshape(np.asarray(value, float), shape))
    each = lambda values: tuple(array(value) for value in values)
    params = RobotParams(
        gravity=each(model.opt.gravity),
        position=array([place for place, _ in joints], count, 3),
        quaternion=array([turn for _, turn in joints], count, 4),
        axis=array(model.jnt_axis, count, 3),
        anchor=array(model.jnt_pos, count, 3),
        reference=each(model.qpos0),
        damping=each(model.dof_damping),
        stiffness=each(model.jnt_stiffness),
        rest=each(model.qpos_spring),
        armature=each(model.dof_armature),
        mass=each(model.body_mass[massive]),
        center=array([place for place, _ in centers], len(massive), 3),
        inertia=array(model.body_inertia[massive], len(massive), 3),
        inertia_quaternion=array([turn for _, turn in centers], len(massive), 4),
        site=array(sites, model.nsite, 3),
        gear=array(gear, len(gear), count),
    )
    robot = Robot(
        params,
        coordinates=tuple(name(kinds.mjOBJ_JOINT, k) for k in range(count)),
        before=tuple(before),
        turns=tuple(bool(kind == mujoco.mjtJoint.mjJNT_HINGE) for kind in model.jnt_type),
        bodies=tuple((name(kinds.mjOBJ_BODY, k), link[k]) for k in massive),
        sites=tuple((name(kinds.mjOBJ_SITE, k), link[model.site_bodyid[k]]) for k in range(model.nsite)),
        actuators=tuple(name(kinds.mjOBJ_ACTUATOR, k) for k in range(len(model.actuator_trntype))),
        control=control,
    )
    if not np.all(np.linalg.eigvalsh(_mass(model, mujoco)) > 0):
        raise ValueError(
            "from_mujoco: the mass matrix is not positive definite: a link has neither mass nor armature. Give each body that "
            "moves a mass and an inertia, or its joint armature."
        )
    return robot


def _compiled(source: Any, mujoco: Any) -> Any:
    if isinstance(source, mujoco.MjModel):
        return source
    text = str(source)
    written = text.lstrip().startswith("<")
    if not written and not Path(text).is_file():
        raise ValueError(f"from_mujoco: there is no file {text!r}.")
    try:
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
    counts = [(getattr(model, field, 0), what, instead) for field, what, instead in _LEFT_OUT]
    found += [f"{what}: {many} ({instead})" for many, what, instead in counts if many]
    for dof, joint in enumerate(model.dof_jntid):
        if model.dof_frictionloss[dof] > 0:
            found.append(f"frictionloss of joint {name(kinds.mjOBJ_JOINT, joint)!r} (give a contact with friction)")
    found += [f"{what} (write it as control)" for field, what in _FORCES if np.any(getattr(model, field, 0))]
    if model.opt.density or model.opt.viscosity:
        found.append("a medium with density or viscosity (leave it out)")
    for k in range(len(model.actuator_trntype)):
        motor = (
            model.actuator_trntype[k] == mujoco.mjtTrn.mjTRN_JOINT
            and model.actuator_gaintype[k] == mujoco.mjtGain.mjGAIN_FIXED
            and model.actuator_biastype[k] == mujoco.mjtBias.mjBIAS_NONE
            and model.actuator_dyntype[k] == mujoco.mjtDyn.mjDYN_NONE
        )
        if not motor:
            found.append(f"actuator {name(kinds.mjOBJ_ACTUATOR, k)!r}, no motor on a joint (write its law as control)")
    if not model.njnt:
        found.append("a file without a joint")
    if found:
        raise ValueError(f"from_mujoco: not supported: {'; '.join(found)}.")


def _mass(model: Any, mujoco: Any) -> np.ndarray:
    """MuJoCo's mass matrix in the state of the file; `mj_mulM` has it in all versions. It takes no program of JAX."""
    data, mass = mujoco.MjData(model), np.zeros((model.nv, model.nv))
    for part in (mujoco.mj_kinematics, mujoco.mj_comPos, getattr(mujoco, "mj_makeM", mujoco.mj_crb)):
        part(model, data)
    for row, unit in zip(mass, np.eye(model.nv), strict=True):
        mujoco.mj_mulM(model, data, row, unit)
    return mass


def _composed(first: Place, then: Place) -> Place:
    """A place given in a frame, where that frame is itself given in another: $p + R\\,q$ and the product of the quaternions."""
    (p, a), (q, b) = first, then
    w, x, y, z = a
    times = np.array([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]])
    axis = np.array([x, y, z])
    return p + q + 2 * np.cross(axis, np.cross(axis, q) + w * np.asarray(q)), times @ np.asarray(b, float)
