"""A robot from a file that MuJoCo compiles: MJCF or URDF."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from .robot import Robot, RobotParams

# What a robot must not have: the field of the model that counts it, what it is, and what to do instead.
_LEFT_OUT = (
    ("neq", "equality constraints", "write the loop as a contact or as a joint"),
    ("ntendon", "tendons", "give their forces as forces of the joints"),
    ("nflex", "deformable bodies", "leave them out"),
    ("nplugin", "plugins", "leave them out"),
)


def from_mujoco(source: Any, *, control=None) -> Robot:
    r"""A robot from MJCF or URDF: a path, the text of a file, or a compiled `mujoco.MjModel`.

    MuJoCo reads and compiles the file; its arrays become leaves of `robot.params`, and hyjax's own equations move the bodies (see
    `Robot`). Of the file are used: bodies, hinges and slides with axis, anchor, `ref`, damping, stiffness, `springref` and
    armature; masses and inertias as compiled; gravity; sites; motors on joints. Joint ranges, limits of motors and the options of
    MuJoCo's integrator have no effect.

    **Arguments:** `source`: as said; a text begins with `<`. `control`: `u(t, q, v, params)`, shape `(motors,)`, the inputs of the
    motors in the order of the file; zero by default.

    **Returns:** a `Robot`, whose coordinates are MuJoCo's `qpos`. `ValueError` with MuJoCo's message where it refuses the file, and
    for what is not supported, named one by one: ball and free joints, equality constraints, tendons, dry friction of joints,
    actuators that are not motors on joints, a link without mass. `ImportError` without the extra `robots`.

    **Example:**

    >>> pendulum = '''<mujoco><worldbody><body><joint name="swing" axis="0 1 0"/>
    ...   <inertial pos="0 0 -1" mass="1" diaginertia="1e-9 1e-9 1e-9"/></body></worldbody></mujoco>'''
    >>> robot = hj.robots.from_mujoco(pendulum)
    >>> robot.coordinates, robot.mechanism.mass(jnp.zeros(1), robot.params).round(6).tolist()
    (('swing',), [[1.0]])

    Source: MuJoCo's documentation, *Computation* and *XML Reference*.
    """
    model = _compiled(source)
    import mujoco

    _refuse(model, mujoco)
    name = lambda kind, k: mujoco.mj_id2name(model, kind, k) or f"{kind.name[6:].lower()}{k}"
    count = model.njnt
    hinge = model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
    # The place of each body on its link, and the link: a body without a joint is part of the body before it.
    link, frames = [-1], [(np.zeros(3), np.array([1.0, 0, 0, 0]))]
    position, quaternion = np.zeros((count, 3)), np.tile([1.0, 0, 0, 0], (count, 1))
    before = [-1] * count
    for body in range(1, model.nbody):
        parent = model.body_parentid[body]
        place = _composed(frames[parent], (model.body_pos[body], model.body_quat[body]))
        last, joints = link[parent], range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body])
        for joint in joints:
            before[joint], last = last, joint
            (position[joint], quaternion[joint]), place = place, frames[0]
        link.append(last)
        frames.append(place)

    massive = [k for k in range(1, model.nbody) if link[k] >= 0 and model.body_mass[k] > 0]
    inertial = [_composed(frames[k], (model.body_ipos[k], model.body_iquat[k])) for k in massive]
    sites = [_composed(frames[model.site_bodyid[k]], (model.site_pos[k], frames[0][1]))[0] for k in range(model.nsite)]
    gear = np.zeros((model.nu, count))
    for k in range(model.nu):
        gear[k, model.actuator_trnid[k, 0]] = model.actuator_gear[k, 0] * model.actuator_gainprm[k, 0]
    array = lambda value, *shape: jnp.asarray(np.reshape(np.asarray(value, float), shape))
    params = RobotParams(
        gravity=array(model.opt.gravity, 3),
        position=array(position, count, 3),
        quaternion=array(quaternion, count, 4),
        axis=array(model.jnt_axis, count, 3),
        anchor=array(model.jnt_pos, count, 3),
        reference=array(model.qpos0, count),
        damping=array(model.dof_damping[:count], count),
        stiffness=array(model.jnt_stiffness[:count], count),
        rest=array(model.qpos_spring, count),
        armature=array(model.dof_armature, count),
        mass=array(model.body_mass[massive], len(massive)),
        center=array([each[0] for each in inertial], len(massive), 3),
        inertia=array(model.body_inertia[massive], len(massive), 3),
        inertia_quaternion=array([each[1] for each in inertial], len(massive), 4),
        site=array(sites, model.nsite, 3),
        gear=array(gear, model.nu, count),
    )
    kinds = mujoco.mjtObj
    robot = Robot(
        params,
        coordinates=tuple(name(kinds.mjOBJ_JOINT, k) for k in range(count)),
        before=tuple(before),
        turns=tuple(bool(each) for each in hinge),
        bodies=tuple(link[k] for k in massive),
        sites=tuple((name(kinds.mjOBJ_SITE, k), link[model.site_bodyid[k]]) for k in range(model.nsite)),
        actuators=tuple(name(kinds.mjOBJ_ACTUATOR, k) for k in range(model.nu)),
        control=control,
    )
    smallest = np.min(np.linalg.eigvalsh(np.asarray(robot.mass(params.reference, params))), initial=np.inf)
    if not smallest > 0:
        raise ValueError("from_mujoco: the mass matrix is not positive definite: a link has neither mass nor armature.")
    return robot


def _compiled(source: Any):
    try:
        import mujoco
    except ImportError as error:
        raise ImportError("from_mujoco: install the extra robots: pip install 'hyjax-dynamics[robots]'.") from error
    if isinstance(source, mujoco.MjModel):
        return source
    text = str(source)
    try:
        if text.lstrip().startswith("<"):
            return mujoco.MjModel.from_xml_string(text)
        if not Path(text).is_file():
            raise ValueError(f"from_mujoco: no file {text!r}.")
        return mujoco.MjModel.from_xml_path(text)
    except ValueError as error:
        if "from_mujoco" in str(error):
            raise
        raise ValueError(f"from_mujoco: MuJoCo refuses the file: {' '.join(str(error).split())}") from None


def _refuse(model, mujoco) -> None:
    """`ValueError` for what is not supported, named one by one."""
    name = lambda kind, k: mujoco.mj_id2name(model, kind, k) or str(k)
    kinds, found = mujoco.mjtObj, []
    for k, kind in enumerate(model.jnt_type):
        if kind in (mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_BALL):
            what = "free" if kind == mujoco.mjtJoint.mjJNT_FREE else "ball"
            found.append(f"{what} joint {name(kinds.mjOBJ_JOINT, k)!r} (give slides and hinges in its place)")
    found += [
        f"{getattr(model, field)} {what} ({instead})"
        for field, what, instead in _LEFT_OUT
        if getattr(model, field, 0)
    ]
    if np.any(np.asarray(model.dof_frictionloss) > 0):
        found.append("frictionloss of a joint (give a contact with friction)")
    for k in range(model.nu):
        motor = model.actuator_trntype[k] == mujoco.mjtTrn.mjTRN_JOINT
        fixed = model.actuator_gaintype[k] == mujoco.mjtGain.mjGAIN_FIXED
        plain = model.actuator_biastype[k] == mujoco.mjtBias.mjBIAS_NONE
        plain = plain and model.actuator_dyntype[k] == mujoco.mjtDyn.mjDYN_NONE
        if not (motor and fixed and plain):
            found.append(f"actuator {name(kinds.mjOBJ_ACTUATOR, k)!r}, not a motor on a joint (write its law as control)")
    if not model.njnt:
        found.append("no joint")
    if found:
        raise ValueError("from_mujoco: not supported: " + "; ".join(found) + ".")


def _composed(first, then):
    """A pose after a pose: position and quaternion."""
    (p, a), (q, b) = first, then
    w, x, y, z = a
    turn = np.array([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]])
    vector = np.array([0.0, *q])
    back = np.array([w, -x, -y, -z])
    moved = turn @ vector
    u, v = moved[0], moved[1:]
    s, r = back[0], back[1:]
    return p + (u * r + s * v + np.cross(v, r)), turn @ np.asarray(b, float)
