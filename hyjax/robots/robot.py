r"""A tree of rigid bodies with hinges and slides: places, mass matrix, forces of inertia and energy, without a loop over bodies.

A **link** is what one joint moves; a body of a file with three joints hangs on three links, of which the last carries it. The
pose of each link is the product of the poses of its chain,

$$T_i = T_{\mathrm{parent}(i)}\,F_i\,J_i(q_i)$$

with $F_i$ the place of the joint and $J_i$ its motion. All products are made together: each pose is multiplied by that of an
ancestor, then the ancestor's ancestor is next, so a chain of $n$ links takes $\log_2 n$ products of arrays. With $a_j$ the axis
of joint $j$ in the world, $P_j$ a point on it and $c_b$ the centre of mass of body $b$, which joint $j$ moves, the Jacobians have
the columns

$$J^v_{bj} = a_j \times (c_b - P_j), \quad J^\omega_{bj} = a_j \quad\text{(hinge)}; \qquad J^v_{bj} = a_j, \quad J^\omega_{bj} = 0
  \quad\text{(slide)}$$

and with $\dot J^v v$, $\dot J^\omega v$ from $\dot a_j = \omega \times a_j$ and $\dot P_j$ of the link before the joint,

$$M = \sum_b m_b J_b^{v\top} J_b^v + J_b^{\omega\top} I_b J_b^\omega + \mathrm{diag}(\text{armature}), \qquad
  c = \sum_b m_b J_b^{v\top}(\dot J_b^v v - g) + J_b^{\omega\top}(I_b \dot J_b^\omega v + \omega_b \times I_b\omega_b)$$

Source: Featherstone (2008), *Rigid Body Dynamics Algorithms*, ch. 4, 6, for trees of joints; the sums over Jacobians are Kane's.
"""

import difflib
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.fast import sincos
from .._results.registry import animate, draw
from .._results.shown import Shown
from .._results.table import Table
from .._system.types import require_kind, Scalar, Time
from ..contact.contact import Contact
from ..contact.mechanism import as_coordinates, Mechanism, Motion, Positions, Velocities
from .silhouette import Line

Vector = Float[Array, " 3"]
Vectors = Float[Array, "count 3"]
Rotations = Float[Array, "count 3 3"]
Quaternions = Float[Array, "count 4"]
Numbers = Float[Array, " count"]
# Numbers that are leaves of their own.
Each = tuple[Scalar, ...]
LinkVectors = Float[Array, "links 3"]
Bodies = Float[Array, "bodies 3"]
Columns = Float[Array, "bodies links 3"]
# A contact: name, numbers of its geom and link, in units of the geom's extents the place of the centre, or of the corner; the
# number of the plane; whether there is friction.
Touching = tuple[str, int, int, tuple[int, int, int], int, bool]
# Unit vectors of a plane, from which its slope is counted, and towards which.
Directions = tuple[tuple[float, float, float], tuple[float, float, float]]
# Axes and anchors of the joints in the world; centres of mass and inertias of the bodies; the velocities and the rotation rates
# of the bodies by the rate of each joint; rotations and origins of the links.
Moved = tuple[LinkVectors, LinkVectors, Bodies, Float[Array, "bodies 3 3"], Columns, Columns, Rotations, LinkVectors]


class RobotParams(Shown):
    r"""The numbers of a robot: leaves for sweeps and gradients. Lengths in m, masses in kg, angles in rad, as in the file.

    What is one number for each link or body is a leaf of its own, so `where=lambda p: p.mass[1]` selects the mass of a body;
    vectors are arrays.

    **Attributes:** `gravity`: three numbers. Of each link: `position`, shape `(links, 3)`, and `quaternion`, `(links, 4)`, the
    place of its joint on the link before; `axis` and `anchor`, `(links, 3)`, of the joint, in the frame of the link; `reference`,
    the coordinate at which the link is in the place of the file; `damping`, `stiffness` and `rest` of the spring; `armature`. Of
    each body that has a mass: `mass`; `center`, `(bodies, 3)`, and `inertia`, `(bodies, 3)`, the principal moments about it;
    `inertia_quaternion`, `(bodies, 4)`, the principal axes on the link. `site`: points, `(sites, 3)`, on their links. `gear`: the
    force of each actuator on each joint for the input 1, `(actuators, links)`; `input`: of each actuator, `(actuators,)`, added
    to that of a control, zero in a file; `hj.control.HeldInputs` makes it free in time. Of each geom in contact: `geom`, `(geoms,
    3)`, and `geom_quaternion`, `(geoms, 4)`, its place on the link; `size`, as in the file: the radius of a sphere; radius and
    half length of a capsule; the half sizes of a box; `friction`. Of each plane: `slope`, the angle of its normal from the
    vertical, positive where the plane descends along $n \times z$, for hinges about y along x; `height`, its distance from the
    origin, along the normal. `stop`: of each stop of a joint the coordinate at which it holds.

    **Example:**

    >>> robot = hj.robots.from_mujoco('''<mujoco><worldbody><body><joint name="lift" type="slide" axis="0 0 1"/>
    ...   <geom type="sphere" size="0.1" mass="2"/></body></worldbody></mujoco>''')
    >>> weight = lambda p: -robot.mechanism.coriolis(jnp.zeros(1), jnp.zeros(1), p)[0]
    >>> print(f"{weight(robot.params):.2f} {jax.grad(weight)(robot.params).mass[0]:.2f}")
    -19.62 -9.81
    """

    gravity: Each
    position: LinkVectors
    quaternion: Float[Array, "links 4"]
    axis: LinkVectors
    anchor: LinkVectors
    reference: Each
    damping: Each
    stiffness: Each
    rest: Each
    armature: Each
    mass: Each
    center: Bodies
    inertia: Bodies
    inertia_quaternion: Float[Array, "bodies 4"]
    site: Float[Array, "sites 3"]
    gear: Float[Array, "actuators links"]
    input: Float[Array, " actuators"]
    geom: Float[Array, "geoms 3"]
    geom_quaternion: Float[Array, "geoms 4"]
    size: tuple[Each, ...]
    friction: Each
    slope: Each
    height: Each
    stop: Each


class Robot(Shown):
    r"""A tree of rigid bodies. $M(q)\,\dot v + c(q, v) = Q$ with $Q = -d\,v - k\,(q - q_0) + G^\top u$.

    $c$ are the forces of inertia and gravity, $d$ and $k$ dampers and springs of the joints, $G$ the gear of the actuators.

    Made by `from_mujoco`. A **link** is what one joint moves: a body of the file with three joints is three links, of which the
    last has its mass, and a body without a joint belongs to the link before it.

    **Attributes:** `params`: the numbers, a `RobotParams`. `coordinates`: the names of the joints, one for each link. `before`:
    the link before each link, -1 for the world; `turns`: whether its joint is a hinge. `bodies`: names of the bodies that have a
    mass, with their links. `sites`: names of the points, with their links, -1 for the world. `actuators`: the names of the inputs
    `u`. `control`: `u(t, q, v, params)`, shape `(actuators,)`; added to the `input` of the parameters. `touching`: of each
    contact its name, the number of its geom, its link, the signs of its point along the half sizes, its plane, and whether it
    rubs; `stops`: of each stop of a joint its name, the joint's number, and 1 for the lower end of the range, -1 for the upper;
    `planes`: normal and tangent of each plane; `rolls`: the sign of each joint's turn in the plane of motion. `geoms`:
    names of those that may be contacts, with their links, and of planes, with -1. For pictures, `lines`: of each line its name,
    points on links, the radius of a circle, and whether it is behind the limbs; `view`: up and forward.

    **Methods:** `mechanism` is the `hj.contact.Mechanism` of the robot; its parameters are a `RobotParams`. `contacts` are those
    of the geoms that `from_mujoco` was told, by name, for `contact_system(robot.mechanism, robot.contacts, robot.coordinates)`.
    `position(q, site)`, `jacobian(q, site)`, `energy(q, v)`, `outline(q)`: at the robot's own parameters, or at those given as
    `params`. `plot(q)` draws poses, `animate(result)` a trajectory or an orbit. `links`, and `print`: what was read.

    Units are the file's. `ValueError` for a site that the robot does not have. Where the mass matrix is not positive definite
    accelerations are NaN.

    **Example:**

    >>> arm = hj.robots.from_mujoco('''<mujoco><worldbody><body><joint name="shoulder" axis="0 1 0"/>
    ...   <inertial pos="0 0 -1" mass="1" diaginertia="1e-9 1e-9 1e-9"/><site name="tip" pos="0 0 -1"/>
    ...   </body></worldbody></mujoco>''')
    >>> q, v = jnp.array([jnp.pi / 2]), jnp.zeros(1)
    >>> acceleration = arm.mechanism.acceleration(jnp.array(0.0), q, v, arm.params)
    >>> print(f"{arm.position(q, 'tip')[0]:.6f} {arm.energy(q, v + 2):.6f} {acceleration[0]:.6f}")
    -1.000000 2.000000 -9.810000

    Source: Featherstone (2008), *Rigid Body Dynamics Algorithms*, ch. 4, 6; Kane, Levinson (1985), *Dynamics*, ch. 4, 6.
    """

    params: RobotParams
    coordinates: tuple[str, ...] = eqx.field(static=True)
    before: tuple[int, ...] = eqx.field(static=True)
    turns: tuple[bool, ...] = eqx.field(static=True)
    bodies: tuple[tuple[str, int], ...] = eqx.field(static=True)
    sites: tuple[tuple[str, int], ...] = eqx.field(static=True)
    actuators: tuple[str, ...] = eqx.field(static=True, default=())
    control: Callable | None = None
    touching: tuple[Touching, ...] = eqx.field(static=True, default=())
    stops: tuple[tuple[str, int, int], ...] = eqx.field(static=True, default=())
    planes: tuple[Directions, ...] = eqx.field(static=True, default=())
    rolls: tuple[float, ...] = eqx.field(static=True, default=())
    geoms: tuple[tuple[str, int], ...] = eqx.field(static=True, default=())
    lines: tuple[Line, ...] = eqx.field(static=True, default=())
    view: Directions = eqx.field(static=True, default=((0.0, 0.0, 1.0), (1.0, 0.0, 0.0)))

    def _tables(self) -> tuple[Table, ...]:
        if any(np.ndim(mass) for mass in self.params.mass) or np.ndim(self.params.gear) > 2:
            # Of many robots, as of a batch of masses.
            return super()._tables()
        text = lambda value: value if isinstance(value, str) else ", ".join(value)
        with_masses = lambda link: link | {"bodies": [f"{name} {mass:.6g}" for name, mass in link["bodies"].items()]}
        rows = [[text(value) for value in with_masses(link).values()] for link in self.links]
        own, planes = ", ".join(self.contacts), ", ".join(plane for plane, on in self.geoms if on < 0)
        touches = f"geoms and sites may touch {planes or 'a plane, which the file lacks'}: give them as contacts"
        notes = [f"mass that moves: {sum(map(float, self.params.mass)):.6g}", f"contacts: {own}" if own else touches]
        heads = "coordinate", "joint", "on", "bodies, with masses", "geoms", "sites", "actuators"
        return (Table("Robot", rows, heads, notes=notes),)

    @property
    def links(self) -> list[dict]:
        """What was read of each link: the `coordinate`, the `joint`, the coordinate of the link `on` which it hangs, its `bodies`
        with their masses, and the names of its `geoms`, `sites` and `actuators`."""
        masses = [(body, on, float(mass)) for (body, on), mass in zip(self.bodies, self.params.mass, strict=True)]
        return [
            {
                "coordinate": name,
                "joint": "hinge (rad)" if self.turns[k] else "slide (m)",
                "on": (*self.coordinates, "world")[self.before[k]],
                "bodies": {body: mass for body, on, mass in masses if on == k},
                "geoms": [geom for geom, on in self.geoms if on == k],
                "sites": [site for site, on in self.sites if on == k],
                "actuators": [each for each, gear in zip(self.actuators, self.params.gear, strict=True) if gear[k]],
            }
            for k, name in enumerate(self.coordinates)
        ]

    @property
    def mechanism(self) -> Mechanism:
        """The bodies as a mechanism, for `contact_system`, or for modes of one's own: `mechanism.acceleration`."""
        bare = self._bare
        return Mechanism(bare.mass, bare.forces, bare.inertial, bare._rows, self.coordinates)

    @property
    def contacts(self) -> dict[str, Contact]:
        r"""Contacts by name, plastic, $g = \nu \cdot p - h - r$ with the normal $\nu$ and the height $h$ of the plane, the centre
        $p$ and the radius $r$; the slip is that of the link's point that touches, along the plane in the direction of descent for
        a positive slope. The stops of joints follow, $g = \pm(q_i - c)$. For an elastic contact: `dataclasses.replace(contact,
        restitution=0.5)`."""
        made, bare = {}, eqx.tree_at(lambda robot: robot.control, self._bare, None, is_leaf=lambda leaf: leaf is None)
        for k, (name, geom, _, _, _, rubs) in enumerate(self.touching):
            gap, slip = eqx.Partial(bare._gap, k), eqx.Partial(bare._slip, k)
            friction = eqx.Partial(_friction, geom)
            made[name] = Contact(gap, slip, static=friction, kinetic=friction) if rubs else Contact(gap)
        for k, (name, *_) in enumerate(self.stops, len(made)):
            made[name] = Contact(eqx.Partial(bare._room, k))
        return made

    @property
    def _bare(self) -> "Robot":
        # Without numbers, whose place is in the parameters: functions of equal robots are equal.
        return eqx.tree_at(lambda robot: robot.params, self, None, is_leaf=lambda leaf: leaf is None)

    def mass(self, q: Positions, params: RobotParams) -> Float[Array, "m m"]:
        """The mass matrix, shape `(m, m)`."""
        (q,) = self._real("mass", q)
        return self._mass(self._moved(q, params), params)

    def _mass(self, moved: Moved, params: RobotParams) -> Float[Array, "m m"]:
        _, _, _, inertias, moving, turning, *_ = moved
        turned = _times(inertias[:, None], turning)
        weighted = jnp.asarray(params.mass, moving.dtype)[:, None, None] * moving
        pairs = weighted[:, :, None] * moving[:, None] + turned[:, :, None] * turning[:, None]
        return jnp.sum(pairs, axis=(0, 3)) + jnp.diag(jnp.asarray(params.armature, moving.dtype))

    def inertial(self, q: Positions, v: Velocities, params: RobotParams) -> Velocities:
        """The forces of inertia and gravity, $c(q, v)$, shape `(m,)`."""
        q, v = self._real("coriolis", q, v)
        return self._inertial(self._moved(q, params), v, params)

    def _inertial(self, moved: Moved, v: Velocities, params: RobotParams) -> Velocities:
        axes, anchors, centers, inertias, moving, turning, *_ = moved
        by = self._moves[1].astype(v.dtype)
        spin, axis_rate = self._turns(axes, v)
        omega, alpha = _along(by, spin), _along(by, jnp.where(np.array(self.turns)[:, None], axis_rate, 0) * v[:, None])
        acceleration = self._accelerations(by, moving, centers, axes, anchors, v)
        acceleration = acceleration - jnp.asarray(params.gravity, v.dtype)
        momentum = _times(inertias, omega)
        torque = _times(inertias, alpha) + _cross(omega, momentum)
        force = jnp.asarray(params.mass, v.dtype)[:, None] * acceleration
        return jnp.sum(moving * force[:, None] + turning * torque[:, None], axis=(0, 2))

    def forces(self, t: Time, q: Positions, v: Velocities, params: RobotParams) -> Velocities:
        """The forces of dampers, springs and actuators, $Q(t, q, v)$, shape `(m,)`."""
        self._check(params)
        q, v = self._real("forces", q, v)
        damping, stiffness, rest = (
            jnp.asarray(each, q.dtype) for each in (params.damping, params.stiffness, params.rest)
        )
        passive = -damping * v - stiffness * (q - rest)
        if not self.actuators and self.control is None:
            return passive
        inputs = jnp.asarray(params.input, q.dtype)
        if self.control is not None:
            own = jnp.asarray(self.control(t, q, v, params), q.dtype)
            if own.shape != (len(self.actuators),):
                raise ValueError(
                    f"Robot: control must return shape ({len(self.actuators)},), one input for each actuator, not {own.shape}."
                )
            inputs = inputs + own
        return passive + inputs @ params.gear.astype(q.dtype)

    def position(self, q: Positions, site: str, params: RobotParams | None = None) -> Vector:
        """The place of a site in the world, shape `(3,)`, m; `ValueError` for a site that the robot does not have."""
        params, (q,) = self.params if params is None else params, self._real("position", q)
        number = named("Robot", "site", site, [name for name, _ in self.sites])
        own, link = params.site[number].astype(q.dtype), self.sites[number][1]
        return self._carried(link, own, q, params)

    def jacobian(self, q: Positions, site: str, params: RobotParams | None = None) -> Float[Array, "3 m"]:
        """The derivative of `position` by the coordinates, shape `(3, m)`."""
        return jax.jacfwd(lambda q: self.position(q, site, params))(*self._real("jacobian", q))

    def energy(self, q: Positions, v: Velocities, params: RobotParams | None = None) -> Scalar:
        """Kinetic energy, and those of gravity and springs, with those of servos, J; zero at the height of the file's origin.
        Bodies that no joint moves do not count."""
        params, (q, v) = self.params if params is None else params, self._real("energy", q, v)
        masses, gravity, stiffness, rest = (
            jnp.asarray(each, q.dtype) for each in (params.mass, params.gravity, params.stiffness, params.rest)
        )
        centers = self._moved(q, params)[2]
        return v @ self.mass(q, params) @ v / 2 - masses @ (centers @ gravity) + stiffness @ (q - rest) ** 2 / 2

    def outline(self, q: Positions, params: RobotParams | None = None) -> dict[str, Float[Array, "count 2"]]:
        """The lines of a picture by name, shape `(points, 2)`, m, forward and upward in the plane of motion; a robot that does
        not move in one plane is seen along y, in the plane of x and z.

        A limb has the name of its last body: the axes of its capsules and cylinders, or lines from joint to joint, to the
        farthest site of the last link. Spheres, boxes and cylinders across have the names of their geoms. `joint` is a point
        where limbs meet. Meshes are not drawn.
        """
        params, (q,) = self.params if params is None else params, self._real("outline", q)
        rotation, origin = self._poses(q, params)
        # The world, number -1, is behind the links.
        rotation = jnp.concatenate([rotation, jnp.eye(3, dtype=q.dtype)[None]])
        origin = jnp.concatenate([origin, jnp.zeros((1, 3), q.dtype)])
        across = np.array(self.view[::-1], q.dtype)
        drawn = {}
        for name, points, radius, _ in self.lines:
            links = np.array([link for link, _ in points])
            places = origin[links] + _times(rotation[links], jnp.asarray([place for _, place in points], q.dtype))
            drawn[name] = points = jnp.sum(places[:, None] * across, axis=-1)
            if radius:
                spoke = points[1] - points[0] if len(points) > 1 else jnp.array([radius, 0.0], q.dtype)
                rim = points[0] + jnp.asarray(_RIM, q.dtype) @ spoke
                drawn[name] = jnp.concatenate([points[: len(points) - 1], rim])
        return drawn

    def plot(self, q: Float[Array, "*poses m"] | None = None, params: RobotParams | None = None, **options):
        """A drawing of one pose, or of several over each other, shape `(poses, m)`, by default that of the file; see
        `hyjax.plot.robot_figure`."""
        return draw(self, q, params, **options)

    def animate(self, result, **options):
        """An animation along a trajectory or an orbit, for `hyjax.plot.save_animation`; see `hyjax.plot.animate_robot`."""
        return animate(self, result, **options)

    def _touches(
        self, numbers: Sequence[int], like: Positions, params: RobotParams
    ) -> tuple[Vectors, Numbers, Numbers, Vectors, Vectors]:
        """Of contacts the centres of the spheres on their links, or the corners, and the radii; of their planes the heights, the
        normals, and the tangents in the plane of motion."""
        self._check(params)
        touching = [self.touching[k] for k in numbers]
        geoms, planes = (np.array([each[k] for each in touching]) for k in (1, 4))
        number = lambda values: jnp.stack([jnp.asarray(each, like.dtype) for each in values])
        extents, radii = [], []
        for geom in geoms:
            size, zero = params.size[geom], jnp.zeros((), like.dtype)
            extents.append(number(size if len(size) == 3 else [zero, zero, size[-1] if len(size) == 2 else zero]))
            radii.append(zero if len(size) == 3 else size[0])
        turn = _rotations(params.geom_quaternion[geoms].astype(like.dtype))
        place = _times(turn, jnp.stack(extents) * np.array([each[3] for each in touching], like.dtype))
        up, forward = np.swapaxes(np.array(self.planes, like.dtype)[planes], 0, 1)
        slope = number([params.slope[k] for k in planes])[:, None]
        sine, cosine = jnp.sin(slope), jnp.cos(slope)
        heights = number([params.height[k] for k in planes])
        normals, tangents = cosine * up + sine * forward, cosine * forward - sine * up
        return params.geom[geoms].astype(like.dtype) + place, number(radii), heights, normals, tangents

    def _check(self, params: RobotParams) -> None:
        """`ValueError` for what are no parameters of a robot with these links and bodies."""
        wanted = "the robot's own, robot.params, or these with other numbers"
        require_kind(params, RobotParams, "Robot", "params", wanted)
        counts = len(params.reference), len(params.mass), len(params.gear)
        own = len(self.turns), len(self.bodies), len(self.actuators)
        if counts != own:
            of = "{} joints, {} bodies and {} actuators".format
            raise ValueError(
                f"Robot: params must be {wanted}: those given are of {of(*counts)}, and it has {of(*own)}."
            )

    def _real(self, caller: str, *given: Positions) -> list[Positions]:
        return as_coordinates(f"Robot: {caller}", *given, size=len(self.turns))

    def _gap(self, k: int, t: Time, q: Positions, params: RobotParams) -> Scalar:
        (q,) = self._real("gap", q)
        (point,), (radius,), (height,), (normal,), _ = self._touches([k], q, params)
        return jnp.sum(normal * self._carried(self.touching[k][2], point, q, params)) - height - radius

    def _slip(self, k: int, t: Time, q: Positions, v: Velocities, params: RobotParams) -> Scalar:
        link, (q, v) = self.touching[k][2], self._real("slip", q, v)
        (point,), (radius,), _, _, (tangent,) = self._touches([k], q, params)
        rate = jax.jvp(lambda q: jnp.sum(tangent * self._carried(link, point, q, params)), (q,), (v,))[1]
        # The point that touches moves with the centre, and with the rotation rate, backward where the link rolls forward.
        return rate - radius * jnp.sum((self._moves[0][link] * np.array(self.rolls)).astype(v.dtype) * v)

    def _room(self, k: int, t: Time, q: Positions, params: RobotParams) -> Scalar:
        (q,) = self._real("gap", q)
        return self._rooms([k], q, params)[0][0]

    def _rooms(
        self, numbers: Sequence[int], q: Positions, params: RobotParams
    ) -> tuple[Numbers, Float[np.ndarray, "count m"]]:
        """How far joints are from their stops, by the numbers of these as contacts; and the derivatives."""
        stops = [k - len(self.touching) for k in numbers]
        joints, sides = [self.stops[k][1] for k in stops], np.array([self.stops[k][2] for k in stops], q.dtype)
        rows = sides[:, None] * np.eye(q.size, dtype=q.dtype)[joints]
        ends = jnp.stack([jnp.asarray(params.stop[k], q.dtype) for k in stops])
        return jnp.asarray(sides) * (q[np.array(joints)] - ends), rows

    def _rows(
        self, contacts: tuple[Contact, ...], t: Time, q: Positions, v: Velocities, params: RobotParams
    ) -> Motion | None:
        """The motion of contacts that all are the robot's own, by one evaluation of the poses; `None` for others and for none."""
        q, v = self._real("contacts", q, v)
        numbers, own = [], list(self.contacts.values())
        for each in contacts:
            k = each.gap.args[0] if isinstance(each.gap, eqx.Partial) and each.gap.args else None
            if not isinstance(k, int) or not 0 <= k < len(own) or (each.gap, each.slip) != (own[k].gap, own[k].slip):
                return None
            numbers.append(k)
        if not numbers:
            return None
        is_stop = np.array(numbers) >= len(self.touching)
        geoms, stops = (
            [k for k, stop in zip(numbers, is_stop, strict=True) if stop == wanted] for wanted in (False, True)
        )
        slips = [contacts[k].slip is not None for k in np.flatnonzero(~is_stop)]
        of_geoms = self._motion(geoms, slips, self._moved(q, params), v, params) if geoms else None
        if not stops:
            return of_geoms
        rooms, rows = self._rooms(stops, q, params)
        of_stops = rooms, jnp.asarray(rows) @ v, jnp.zeros_like(rooms), jnp.asarray(rows)
        if of_geoms is None:
            return of_stops
        # In the order of the contacts; slips follow all gaps.
        order, count = np.argsort(np.argsort(is_stop, kind="stable")), len(geoms)
        joined = lambda one, other: jnp.concatenate([jnp.concatenate([one[:count], other])[order], one[count:]])
        gaps, velocity, bias, jacobian = map(joined, of_geoms, of_stops)
        return gaps, velocity, bias, jacobian

    def _motion(
        self, numbers: Sequence[int], slips: Sequence[bool], moved: Moved, v: Velocities, params: RobotParams
    ) -> Motion:
        """The motion of contacts by their numbers: of all gaps, then of slips."""
        local, radii, heights, normals, tangents = self._touches(numbers, v, params)
        links = np.array([self.touching[k][2] for k in numbers])
        axes, anchors, *_, rotation, origin = moved
        points, by = origin[links] + _times(rotation[links], local), self._moves[0][links].astype(v.dtype)
        moving = self._columns(axes, anchors, points) * by[:, :, None]
        acceleration = self._accelerations(by, moving, points, axes, anchors, v)
        along = lambda directions: (
            jnp.sum(directions[:, None] * moving, axis=2),
            jnp.sum(directions * acceleration, axis=1),
        )
        jacobian, bias = along(normals)
        rubs = np.flatnonzero(slips)
        if rubs.size:
            of_slips, bias_of_slips = along(tangents)
            of_slips = of_slips - radii[:, None] * (by * np.array(self.rolls, v.dtype))
            jacobian, bias = jnp.concatenate([jacobian, of_slips[rubs]]), jnp.concatenate([bias, bias_of_slips[rubs]])
        gaps = jnp.sum(normals * points, axis=1) - heights - radii
        return gaps, jnp.sum(jacobian * v, axis=1), bias, jacobian

    def _carried(self, link: int, point: Vector, q: Positions, params: RobotParams) -> Vector:
        """The place in the world of a point of a link, moved by one joint after the other up to the world."""
        self._check(params)
        sines, cosines = sincos(q - jnp.asarray(params.reference, q.dtype))
        axes, places = _unit(params.axis.astype(q.dtype)), _rotations(params.quaternion.astype(q.dtype))
        while link >= 0:
            if self.turns[link]:
                anchor, cross = params.anchor[link].astype(q.dtype), _crossing(axes[link])
                across = _times(cross, point - anchor)
                point = point + sines[link] * across + (1 - cosines[link]) * _times(cross, across)
            else:
                point = point + axes[link] * (q[link] - jnp.asarray(params.reference[link], q.dtype))
            point = params.position[link].astype(q.dtype) + _times(places[link], point)
            link = self.before[link]
        return point

    @property
    def _moves(self) -> tuple[np.ndarray, np.ndarray]:
        """Which links, columns, move a link, a row: those of its chain, and itself. The same for the bodies."""
        moves = np.eye(len(self.before))
        for i, link in enumerate(self.before):
            if link >= 0:
                moves[i] += moves[link]
        return moves, moves[np.array([link for _, link in self.bodies], int)]

    def _places(self, links: np.ndarray, points: Vectors, q: Positions, params: RobotParams) -> Vectors:
        """The places in the world of points on links."""
        rotation, origin = self._poses(q, params)
        return origin[links] + _times(rotation[links], points)

    def _poses(self, q: Positions, params: RobotParams) -> tuple[Float[Array, "links 3 3"], LinkVectors]:
        """The rotation and the origin of each link in the world."""
        self._check(params)
        hinge = np.array(self.turns)
        axis, anchor = _unit(params.axis.astype(q.dtype)), params.anchor.astype(q.dtype)
        by = q - jnp.asarray(params.reference, q.dtype)
        turn = _about(axis, jnp.where(hinge, by, 0))
        shift = jnp.where(hinge[:, None], anchor - _times(turn, anchor), axis * by[:, None])
        place, position = _rotations(params.quaternion.astype(q.dtype)), params.position.astype(q.dtype)
        # The world is number 0, and before itself.
        rotation = jnp.concatenate([jnp.eye(3, dtype=q.dtype)[None], _product(place, turn)])
        origin = jnp.concatenate([jnp.zeros((1, 3), q.dtype), position + _times(place, shift)])
        ancestor = np.array([0, *(link + 1 for link in self.before)])
        while np.any(ancestor):
            origin = origin[ancestor] + _times(rotation[ancestor], origin)
            rotation = _product(rotation[ancestor], rotation)
            ancestor = ancestor[ancestor]
        return rotation[1:], origin[1:]

    def _moved(self, q: Positions, params: RobotParams) -> Moved:
        rotation, origin = self._poses(q, params)
        placed = lambda rotation, vectors: _times(rotation, vectors.astype(q.dtype))
        axes = placed(rotation, _unit(params.axis))
        anchors = origin + placed(rotation, params.anchor)
        links = np.array([link for _, link in self.bodies], int)
        centers = origin[links] + placed(rotation[links], params.center)
        principal = _product(rotation[links], _rotations(params.inertia_quaternion.astype(q.dtype)))
        inertias = _product(principal * params.inertia.astype(q.dtype)[:, None], jnp.swapaxes(principal, 1, 2))
        by = jnp.asarray(self._moves[1], q.dtype)[:, :, None]
        turning = by * jnp.where(np.array(self.turns)[:, None], axes, 0)
        moving = by * self._columns(axes, anchors, centers)
        return axes, anchors, centers, inertias, moving, turning, rotation, origin

    def _turns(self, axes: LinkVectors, v: Velocities) -> tuple[LinkVectors, LinkVectors]:
        """The rotation rates by each joint, and the rates of the axes."""
        spin = jnp.where(np.array(self.turns)[:, None], axes, 0) * v[:, None]
        return spin, _cross(_along((self._moves[0] - np.eye(len(self.before))).astype(v.dtype), spin), axes)

    def _accelerations(
        self, by: np.ndarray, moving: Columns, points: Vectors, axes: LinkVectors, anchors: LinkVectors, v: Velocities
    ) -> Vectors:
        """The accelerations of points at constant rates of the joints. **Arguments:** `by`: which links move each point;
        `moving`: its velocities by the rate of each."""
        before, (_, axis_rate) = (self._moves[0] - np.eye(len(self.before))).astype(v.dtype), self._turns(axes, v)
        # The velocity of the anchor of each joint, as a point of the link before.
        anchor_rate = jnp.sum((before * v)[:, :, None] * self._columns(axes, anchors, anchors), axis=1)
        arm, arm_rate = points[:, None] - anchors, jnp.sum(moving * v[:, None], axis=1)[:, None] - anchor_rate
        of_hinge = _cross(axis_rate, arm) + _cross(axes, arm_rate)
        column_rate = jnp.where(np.array(self.turns)[:, None], of_hinge, axis_rate)
        return jnp.sum((by * v)[:, :, None] * column_rate, axis=1)

    def _columns(self, axes: LinkVectors, anchors: LinkVectors, points: Vectors) -> Float[Array, "count links 3"]:
        """The velocity of each point by the rate of each joint, as if the joint moved it."""
        turning = _cross(axes, points[:, None] - anchors)
        return jnp.where(np.array(self.turns)[:, None], turning, axes)


def named(caller: str, what: str, name: str, names: Sequence[str]) -> int:
    """The number of a name; `ValueError` for a name that is not there, with the nearest ones."""
    if name not in names:
        near = difflib.get_close_matches(str(name), names, 3) or names
        raise ValueError(f"{caller}: there is no {what} {name!r}; there is {', '.join(near) or 'none'}.")
    return names.index(name)


# The rotations of a spoke around a rim.
_ANGLES = np.linspace(0, 2 * np.pi, 33)
_RIM = np.moveaxis(np.array([[np.cos(_ANGLES), -np.sin(_ANGLES)], [np.sin(_ANGLES), np.cos(_ANGLES)]]), 2, 0)


def _friction(geom: int, params: RobotParams) -> Scalar:
    return params.friction[geom]


# XLA calls a routine for every small `dot` of a batch, and makes one kernel of a sum of products and what is before it: here a
# fifth of the time.
def _times(matrices: Float[Array, "*#before 3 3"], vectors: Float[Array, "*#before 3"]) -> Float[Array, "*#before 3"]:
    """The product of each matrix with its vector."""
    return jnp.sum(matrices * vectors[..., None, :], axis=-1)


def _product(first: Rotations, then: Rotations) -> Rotations:
    """The products of pairs of rotations, `first` times `then`."""
    return jnp.sum(first[:, :, :, None] * then[:, None], axis=2)


def _along(chains: np.ndarray, vectors: LinkVectors) -> Vectors:
    """The sum of the vectors of the links in each chain."""
    return jnp.sum(chains[:, :, None] * vectors, axis=1)


def _unit(vectors: Vectors) -> Vectors:
    return vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)


def _about(axis: Vectors, angle: Numbers) -> Rotations:
    r"""Rotations by angles about unit axes: $I + \sin\theta\,K + (1 - \cos\theta)\,K^2$ (Rodrigues)."""
    cross, (sines, cosines) = _crossing(axis), sincos(angle[:, None, None])
    return jnp.eye(3, dtype=axis.dtype) + sines * cross + (1 - cosines) * _product(cross, cross)


# The vector product as a sum over constants: a small program, which the gap of every contact and its derivatives repeat.
_CROSS = np.cross(np.eye(3)[:, None], np.eye(3)[None])


def _crossing(axis: Float[Array, "*before 3"]) -> Float[Array, "*before 3 3"]:
    r"""The matrix $K$ with $K v = a \times v$."""
    return jnp.sum(axis[..., None, None] * np.swapaxes(_CROSS, 1, 2).astype(axis.dtype), axis=-3)


def _cross(first: Vectors, then: Float[Array, "*before count 3"]) -> Float[Array, "*before count 3"]:
    return _times(_crossing(first), then)


def _rotations(quaternion: Quaternions) -> Rotations:
    """The rotations of quaternions (w, x, y, z), which need not be of unit length."""
    unit = quaternion / jnp.linalg.norm(quaternion, axis=1, keepdims=True)
    w, cross = unit[:, :1, None], _crossing(unit[:, 1:])
    return jnp.eye(3, dtype=unit.dtype) + 2 * (w * cross + _product(cross, cross))
