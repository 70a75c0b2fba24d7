"""Robots from files: mass matrix, forces of inertia, places and energy against digits of 40-digit arithmetic and MuJoCo."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj

mujoco = pytest.importorskip("mujoco")
# Case `A`: own sums over Jacobians in mpmath, and MuJoCo, Pinocchio and CasADi, which agree to 1e-13.
REFERENCE = json.loads((Path(__file__).parent / "robots_reference.json").read_text())


@pytest.mark.parametrize("name", REFERENCE)
def test_dynamics_against_40_digits(name):
    robot = hj.robots.from_mujoco(REFERENCE[name]["xml"])
    both = jax.jit(lambda q, v, params: (robot.mass(q, params), robot.inertial(q, v, params)))
    for state in REFERENCE[name]["states"]:
        q, v = jnp.array(state["q"]), jnp.array(state["v"])
        mass, force = both(q, v, robot.params)
        assert_allclose(mass, state["M"], rtol=0, atol=1e-13 * np.max(np.abs(state["M"])))
        assert_allclose(force, state["bias"], rtol=0, atol=1e-13 * np.max(np.abs(state["bias"])))


def tree(rng, parents, joints, kinds):
    """A random tree as MJCF: bodies turned and off the joints, several joints in a body, springs, dampers and armature."""
    normal = lambda *shape: rng.normal(size=shape)
    text = lambda values: " ".join(repr(float(each)) for each in values)

    def joint(i, k):
        return (
            f'<joint name="j{i}{k}" type="{kinds[i][k]}" axis="{text(normal(3))}" pos="{text(0.2 * normal(3))}" '
            f'ref="{0.3 * normal()}" armature="{0.1 * abs(normal())}" damping="{abs(normal())}" stiffness="{abs(normal())}" '
            f'springref="{normal()}"/>'
        )

    def body(i):
        a, b, c = rng.uniform(0.1, 1, 3)
        inside = "".join(joint(i, k) for k in range(joints[i]))
        inertia = f'quat="{text(normal(4))}" diaginertia="{b + c} {a + c} {a + b}"'
        inside += f'<inertial pos="{text(normal(3))}" mass="{rng.uniform(0.1, 3)}" {inertia}/>'
        inside += f'<site name="s{i}" pos="{text(normal(3))}"/>'
        inside += "".join(body(j) for j, parent in enumerate(parents) if parent == i)
        return f'<body pos="{text(normal(3))}" quat="{text(normal(4))}">{inside}</body>'

    bodies = "".join(body(j) for j, parent in enumerate(parents) if parent < 0)
    compiler = '<compiler angle="radian" balanceinertia="false"/>'
    return f'<mujoco>{compiler}<option gravity="{text(5 * normal(3))}"/><worldbody>{bodies}</worldbody></mujoco>'


@pytest.mark.parametrize("seed", range(8))
def test_random_trees_against_mujoco(seed):
    """25 trees of each shape, as a batch: all numbers of a robot are leaves of its parameters."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 8))
    parents = [-1, *(int(rng.integers(-1, i)) for i in range(1, count))]
    joints = [int(rng.integers(0 if parent >= 0 else 1, 4)) for parent in parents]
    kinds = [[str(rng.choice(["hinge", "slide"])) for _ in range(many)] for many in joints]
    robots, states, expected = [], [], []
    for _ in range(25):
        model = mujoco.MjModel.from_xml_string(tree(rng, parents, joints, kinds))
        model.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
        data, size = mujoco.MjData(model), model.nv
        data.qpos[:], data.qvel[:] = rng.normal(size=size), rng.normal(size=size)
        mujoco.mj_forward(model, data)
        mass, slope = np.zeros((size, size)), np.zeros((3, size))
        for row, unit in zip(mass, np.eye(size), strict=True):
            mujoco.mj_mulM(model, data, row, unit)
        mujoco.mj_jacSite(model, data, slope, None, count - 1)
        robots.append(hj.robots.from_mujoco(model))
        states.append((data.qpos.copy(), data.qvel.copy()))
        last = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, f"s{count - 1}")
        mujoco.mj_jacSite(model, data, slope, None, last)
        place = data.site_xpos[last].copy()
        expected.append((mass, data.qfrc_bias.copy(), data.qfrc_passive.copy(), place, slope, np.sum(data.energy)))
    robot, site = robots[0], f"s{count - 1}"

    @jax.jit
    @jax.vmap
    def found(params, q, v):
        forces = robot.forces(jnp.array(0.0), q, v, params)
        places = robot.position(q, site, params), robot.jacobian(q, site, params)
        return robot.mass(q, params), robot.inertial(q, v, params), forces, *places, robot.energy(q, v, params)

    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(each.params for each in robots))
    q, v = (jnp.asarray(np.stack(each)) for each in zip(*states, strict=True))
    for ours, theirs in zip(found(params, q, v), zip(*expected, strict=True), strict=True):
        theirs = np.stack(theirs)
        axes = tuple(range(1, theirs.ndim))
        assert np.all(np.abs(ours - theirs) <= 1e-12 * (1 + np.max(np.abs(theirs), axis=axes, keepdims=True)))
