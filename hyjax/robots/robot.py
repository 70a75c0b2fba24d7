r"""A tree of rigid bodies with hinges and slides: places, mass matrix, forces of inertia and energy, without a loop over bodies.

A **link** is what one joint moves; a body of a file with three joints hangs on three links, of which the last carries it. The pose
of each link is the product of the poses of its chain,

$$T_i = T_{\mathrm{parent}(i)}\,F_i\,J_i(q_i)$$

with $F_i$ the place of the joint and $J_i$ its motion. All products are made together: each pose is multiplied by that of an
ancestor, then the ancestor's ancestor is next, so a chain of $n$ links takes $\log_2 n$ products of arrays. With $a_j$ the axis of
joint $j$ in the world, $P_j$ a point on it and $c_b$ the centre of mass of body $b$, which joint $j$ moves, the Jacobians have the
columns

$$J^v_{bj} = a_j \times (c_b - P_j), \quad J^\omega_{bj} = a_j \quad\text{(hinge)}; \qquad J^v_{bj} = a_j, \quad J^\omega_{bj} = 0
  \quad\text{(slide)}$$

and with $\dot J^v v$, $\dot J^\omega v$ from $\dot a_j = \omega \times a_j$ and $\dot P_j$ of the link before the joint,

$$M = \sum_b m_b J_b^{v\top} J_b^v + J_b^{\omega\top} I_b J_b^\omega + \mathrm{diag}(\text{armature}), \qquad
  c = \sum_b m_b J_b^{v\top}(\dot J_b^v v - g) + J_b^{\omega\top}(I_b \dot J_b^\omega v + \omega_b \times I_b\omega_b)$$

Source: Featherstone (2008), *Rigid Body Dynamics Algorithms*, ch. 4, 6, for trees of joints; the sums over Jacobians are Kane's.
"""

import difflib
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.fast import cos, sin
from .._system.types import Params, Scalar, Time
from ..contact.mechanism import Mechanism, Positions, Velocities

Vector = Float[Array, " 3"]
Vectors = Float[Array, "count 3"]
Rotations = Float[Array, "count 3 3"]
Quaternions = Float[Array, "count 4"]
Numbers = Float[Array, " count"]


class RobotParams(eqx.Module):
    r"""The numbers of a robot: leaves for sweeps and gradients. Lengths in m, masses in kg, angles in rad, as in the file.

    **Attributes:** `gravity`: shape `(3,)`. Of each link, `(links, ...)`: `position`, `quaternion` (the place of its joint on the
    link before), `axis`, `anchor` (a point on it, in the frame of the link), `reference` (the coordinate at which the link is in
    the place of the file), `damping`, `stiffness`, `rest` (of the spring), `armature`. Of each body that has a mass, `(bodies,
    ...)`: `mass`, `center`, `inertia` (principal moments), `inertia_quaternion` (the principal axes on the link). `site`: points,
    `(sites, 3)`, on their links. `gear`: the force of each actuator on each joint, `(actuators, links)`.
    """

    gravity: Vector
    position: Vectors
    quaternion: Quaternions
    axis: Vectors
    anchor: Vectors
    reference: Numbers
    damping: Numbers
    stiffness: Numbers
    rest: Numbers
    armature: Numbers
    mass: Numbers
    center: Vectors
    inertia: Vectors
    inertia_quaternion: Quaternions
    site: Vectors
    gear: Float[Array, "actuators links"]


class Robot(eqx.Module):
    r"""A tree of rigid bodies: $M(q)\,\dot v + c(q, v) = Q$, with $c$ of inertia and gravity and $Q = -d\,v - k\,(q - q_0) + G^\top u$.

    Made by `from_mujoco`. **Attributes:** `params`: the numbers, a `RobotParams`. `coordinates`: the names of the joints.
    `actuators`: the names of the inputs `u`. `sites`: the names of points. `control`: `u(t, q, v, params)`, shape
    `(actuators,)`; without it the inputs are zero.

    **Methods:** `mechanism` is the `hj.contact.Mechanism` for `contact_system`; its parameters are a `RobotParams`.
    `position(q, site)`, `jacobian(q, site)`, `energy(q, v)`: at the robot's own parameters, or those given as `params`.
    """

    params: RobotParams
    coordinates: tuple[str, ...] = eqx.field(static=True)
    # For each link the link before it, or -1, and whether it turns.
    before: tuple[int, ...] = eqx.field(static=True)
    turns: tuple[bool, ...] = eqx.field(static=True)
    # The link of each body, and of each site, -1 for the world.
    bodies: tuple[int, ...] = eqx.field(static=True)
    sites: tuple[tuple[str, int], ...] = eqx.field(static=True)
    actuators: tuple[str, ...] = eqx.field(static=True, default=())
    control: Callable | None = None

    @property
    def mechanism(self) -> Mechanism:
        """The bodies for `contact_system`."""
        return Mechanism(self.mass, self.forces, self.inertial)

    def mass(self, q: Positions, params: RobotParams) -> Float[Array, "m m"]:
        """The mass matrix, shape `(m, m)`."""
        moved = self._moved(q, params)
        turned = jnp.einsum("bij,bkj->bki", moved.inertias, moved.turning)
        masses = params.mass.astype(q.dtype)
        total = jnp.einsum("b,bik,bjk->ij", masses, moved.moving, moved.moving)
        return total + jnp.einsum("bik,bjk->ij", turned, moved.turning) + jnp.diag(params.armature.astype(q.dtype))

    def inertial(self, q: Positions, v: Velocities, params: RobotParams) -> Velocities:
        """The forces of inertia and gravity, $c(q, v)$, shape `(m,)`."""
        moved = self._moved(q, params)
        strict = self._ancestors - np.eye(len(self.before))
        hinge = np.array(self.turns, float)[:, None].astype(q.dtype)
        spin = moved.axes * hinge * v[:, None]
        before = strict.astype(q.dtype) @ spin
        axis_rate = jnp.cross(before, moved.axes)
        # The velocity of the anchor of each joint, as a point of the link before.
        point_rate = jnp.einsum("ji,jik,i->jk", strict.astype(q.dtype), self._columns(moved, moved.anchors), v)
        by = self._of_bodies.astype(q.dtype)
        omega, alpha = by @ spin, by @ (axis_rate * hinge * v[:, None])
        center_rate = jnp.einsum("bik,i->bk", moved.moving, v)
        arm, arm_rate = moved.centers[:, None] - moved.anchors, center_rate[:, None] - point_rate
        of_hinge = jnp.cross(axis_rate[None], arm) + jnp.cross(moved.axes[None], arm_rate)
        along = jnp.where(hinge > 0, of_hinge, axis_rate)
        accel = jnp.einsum("bi,bik,i->bk", by, along, v) - params.gravity.astype(q.dtype)
        momentum = jnp.einsum("bij,bj->bi", moved.inertias, omega)
        torque = jnp.einsum("bij,bj->bi", moved.inertias, alpha) + jnp.cross(omega, momentum)
        force = params.mass.astype(q.dtype)[:, None] * accel
        return jnp.einsum("bik,bk->i", moved.moving, force) + jnp.einsum("bik,bk->i", moved.turning, torque)

    def forces(self, t: Time, q: Positions, v: Velocities, params: RobotParams) -> Velocities:
        """The forces of dampers, springs and actuators, $Q(t, q, v)$, shape `(m,)`."""
        passive = -params.damping * v - params.stiffness * (q - params.rest)
        return passive if self.control is None else passive + self.control(t, q, v, params) @ params.gear

    def position(self, q: Positions, site: str, params: RobotParams | None = None) -> Vector:
        """The place of a site in the world, shape `(3,)`, m; `ValueError` for a site that the robot does not have."""
        number, link = self._site(site)
        own = (self.params if params is None else params).site[number].astype(q.dtype)
        if link < 0:
            return own
        rotation, place = self._poses(q, self.params if params is None else params)
        return place[link] + rotation[link] @ own

    def jacobian(self, q: Positions, site: str, params: RobotParams | None = None) -> Float[Array, "3 m"]:
        """The derivative of `position` by the coordinates, shape `(3, m)`."""
        return jax.jacfwd(lambda q: self.position(q, site, params))(q)

    def energy(self, q: Positions, v: Velocities, params: RobotParams | None = None) -> Scalar:
        """Kinetic energy, of gravity and of springs, J; zero height is the origin of the file."""
        params = self.params if params is None else params
        height = -params.mass.astype(q.dtype) @ (self._moved(q, params).centers @ params.gravity.astype(q.dtype))
        return v @ self.mass(q, params) @ v / 2 + height + params.stiffness @ (q - params.rest) ** 2 / 2

    def _site(self, name: str) -> tuple[int, int]:
        names = [each for each, _ in self.sites]
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 3) or names
            raise ValueError(f"Robot: no site {name!r}; there are {', '.join(near) or 'none'}.")
        return names.index(name), self.sites[names.index(name)][1]

    @property
    def _ancestors(self) -> np.ndarray:
        """Which links, columns, move a link, a row: those of its chain, and itself."""
        moves = np.eye(len(self.before))
        for i, link in enumerate(self.before):
            if link >= 0:
                moves[i] += moves[link]
        return moves

    @property
    def _of_bodies(self) -> np.ndarray:
        """Which links move a body."""
        return self._ancestors[list(self.bodies)]

    def _poses(self, q: Positions, params: RobotParams) -> tuple[Rotations, Vectors]:
        """The rotation and the origin of each link in the world."""
        like = lambda value: value.astype(q.dtype)
        hinge = np.array(self.turns)
        axis = like(params.axis) / jnp.linalg.norm(like(params.axis), axis=1, keepdims=True)
        by = q - like(params.reference)
        turn = _about(axis, jnp.where(hinge, by, 0))
        anchor = like(params.anchor)
        shift = jnp.where(hinge[:, None], anchor - jnp.einsum("ijk,ik->ij", turn, anchor), axis * by[:, None])
        place = _rotations(like(params.quaternion))
        rotation = jnp.concatenate([jnp.eye(3, dtype=q.dtype)[None], place @ turn])
        origin = jnp.concatenate(
            [jnp.zeros((1, 3), q.dtype), like(params.position) + jnp.einsum("ijk,ik->ij", place, shift)]
        )
        # The world is number 0, and before itself.
        ancestor = np.array([0, *(link + 1 for link in self.before)])
        while np.any(ancestor):
            origin = origin[ancestor] + jnp.einsum("ijk,ik->ij", rotation[ancestor], origin)
            rotation = rotation[ancestor] @ rotation
            ancestor = ancestor[ancestor]
        return rotation[1:], origin[1:]

    def _moved(self, q: Positions, params: RobotParams) -> "_Moved":
        rotation, origin = self._poses(q, params)
        like = lambda value: value.astype(q.dtype)
        axis = like(params.axis) / jnp.linalg.norm(like(params.axis), axis=1, keepdims=True)
        axes = jnp.einsum("ijk,ik->ij", rotation, axis)
        anchors = origin + jnp.einsum("ijk,ik->ij", rotation, like(params.anchor))
        links = np.array(self.bodies, int)
        centers = origin[links] + jnp.einsum("ijk,ik->ij", rotation[links], like(params.center))
        principal = rotation[links] @ _rotations(like(params.inertia_quaternion))
        inertias = jnp.einsum("bij,bj,bkj->bik", principal, like(params.inertia), principal)
        part = _Moved(axes, anchors, centers, inertias, axes[None], axes[None])
        by = self._of_bodies.astype(q.dtype)[:, :, None]
        hinge = np.array(self.turns, float)[:, None].astype(q.dtype)
        return _Moved(axes, anchors, centers, inertias, by * self._columns(part, centers), by * (axes * hinge))

    def _columns(self, moved: "_Moved", points: Vectors) -> Float[Array, "points m 3"]:
        """The velocity of each point by the rate of each joint, as if the joint moved it."""
        turning = jnp.cross(moved.axes[None], points[:, None] - moved.anchors)
        return jnp.where(np.array(self.turns)[:, None], turning, moved.axes)


class _Moved(eqx.Module):
    """The bodies in the world: axes and anchors of the joints, centres and inertias of the bodies, and the velocities and rotation
    rates of the bodies by the rate of each joint."""

    axes: Vectors
    anchors: Vectors
    centers: Vectors
    inertias: Rotations
    moving: Float[Array, "bodies m 3"]
    turning: Float[Array, "bodies m 3"]


def _about(axis: Vectors, angle: Numbers) -> Rotations:
    r"""Rotations by angles about unit axes: $I + \sin\theta\,K + (1 - \cos\theta)\,K^2$ (Rodrigues)."""
    x, y, z = axis.T
    zero = jnp.zeros_like(x)
    cross = jnp.stack([jnp.stack([zero, -z, y], 1), jnp.stack([z, zero, -x], 1), jnp.stack([-y, x, zero], 1)], 1)
    part = lambda value: value[:, None, None]
    return jnp.eye(3, dtype=axis.dtype) + part(sin(angle)) * cross + part(1 - cos(angle)) * (cross @ cross)


def _rotations(quaternion: Quaternions) -> Rotations:
    """The rotations of quaternions (w, x, y, z), which need not be of unit length."""
    w, x, y, z = (quaternion / jnp.linalg.norm(quaternion, axis=1, keepdims=True)).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.stack([jnp.stack(row, 1) for row in rows], 1)
