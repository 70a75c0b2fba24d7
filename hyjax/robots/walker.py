r"""A robot that walks on two feet, one of which stands while the other swings; at its strike they change roles.

The bodies are free of the ground, with the coordinates $q = (b, \theta)$: two slides $b$, which move all bodies, and the joints
$\theta$. A foot with the centre $p(q)$ and the radius $r$, zero for a point, whose link has turned by $\varphi(\theta)$, stands
without slip where

$$\tau\cdot p - r\varphi = 0, \qquad \nu\cdot p - h - r = 0$$

with tangent $\tau$, normal $\nu$ and height $h$ of the ground. Both are linear in $b$, so $q = \phi(\theta)$ is known, and the
equations of motion are those of `Mechanism.reduced`. The strike is `hj.contact.impact` of the swing foot, which does not slip.
"""

import re
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.elimination import solve_positive
from .._system.system import HybridSystem, Mode, Transition
from .._system.types import require_kind, Scalar, State, Time
from ..contact.mechanism import accelerated, as_coordinates, inertia, load, Positions, Velocities
from ..contact.strike import relabelling
from .robot import Moved, named, Robot, RobotParams

Joints = Float[Array, " joints"]
Motions = Float[Array, "m joints"]
Pair = Float[Array, "2"]
Standing = tuple[Float[Array, "joints joints"], Joints, Motions, Velocities]


class Walker(eqx.Module):
    r"""A robot that walks on two feet: its system, with what pictures of a model need. Made by `hj.robots.walker`.

    **Attributes:** `robot`: from a file. `system`: a `HybridSystem` of the states $(\theta, \dot\theta)$, the coordinates of the
    robot but for its two slides. `sequence`: the modes of a step, or of two. `feet`: for each of them the numbers of the contacts
    of the foot that stands and of the one that swings. `scenery`: the names of grey lines.

    **Methods:** `pinned(mode, theta)` and `ground_force(mode, x)`, at the robot's own parameters or at those given as `params`;
    `outline(mode, x, params)`, `travel(mode, x, params)` and `ground(params)`, for `orbit.animate(walker)`.

    **Example:**

    >>> leg = '<geom type="capsule" fromto="0 0 0 0 0 -1" size="0.1"/><site name="foot_'
    >>> robot = hj.robots.from_mujoco(f'''<mujoco><compiler angle="radian"/><worldbody><geom type="plane" size="9 9 1"/>
    ...   <body><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide"/>
    ...     <joint name="left" axis="0 1 0"/>{leg}l" pos="0 0 -1"/>
    ...     <body><joint name="hip" axis="0 1 0"/>{leg}r" pos="0 0 -1"/></body>
    ...   </body></worldbody></mujoco>''', contacts=["foot_l", "foot_r"])
    >>> biped = hj.robots.walker(robot, ("foot_l", "foot_r"), mirror={"left": "hip"})
    >>> print(biped.pinned("swing", jnp.array([jnp.pi / 6, -1.0])).round(3))
    [ 0.5    0.866  0.524 -1.   ]
    """

    robot: Robot
    system: HybridSystem
    sequence: tuple[str, ...] = eqx.field(static=True)
    feet: tuple[tuple[int, int], ...] = eqx.field(static=True)
    scenery: tuple[str, ...] = eqx.field(static=True)

    @eqx.filter_jit
    def pinned(self, mode: str, theta: Joints, params: RobotParams | None = None) -> Positions:
        """The robot's coordinates where the stance foot of a mode stands, shape `(n,)` to `(n + 2,)`."""
        (theta,) = as_coordinates("pinned", theta, size=len(self.robot.turns) - 2)
        return _pinned(self.robot, self._feet(mode)[0], theta, self.robot.params if params is None else params)

    @eqx.filter_jit
    def ground_force(self, mode: str, x: State, params: RobotParams | None = None, t: float | Time = 0.0) -> Pair:
        r"""The force of the ground on the stance foot, along the ground and normal to it, N. The ground would have to pull where
        the second is negative, and to have the friction $|f_1| / f_2$ at least."""
        robot, (stance, _) = self.robot, self._feet(mode)
        (x,) = as_coordinates("ground_force", x, size=2 * len(robot.turns) - 4)
        params = robot.params if params is None else params
        mechanism, now, (theta, rate) = robot.mechanism, jnp.asarray(t, x.dtype), _halves(x)
        mass, force, motions, turning = _standing(robot, stance, now, theta, rate, params)
        q, acceleration = _pinned(robot, stance, theta, params), motions @ accelerated(mass, force) + turning
        # The slides move all bodies: what they lack is the force of the ground alone.
        lacks = inertia(mechanism, q, params) @ acceleration - load(mechanism, now, q, motions @ rate, params)
        return _inverse(_by_slides(robot, stance, q, params)).T @ lacks[:2]

    def outline(self, mode: str, x: State, params: RobotParams) -> dict[str, Float[Array, "count 2"]]:
        """The lines of a picture, along the ground and above it, from where the stance foot stands; see `Robot.outline`."""
        plane = self.robot.touching[self._feet(mode)[0]][4]
        points = on_ground(self.robot, self.pinned(mode, _halves(x)[0], params), params, plane)
        # A compiled program sorts the names, but the first line has a colour of its own.
        return {name: points[name] for name, *_ in self.robot.lines}

    @eqx.filter_jit
    def travel(self, mode: str, x: State, params: RobotParams) -> Pair:
        """The way from this foothold to that of the swing foot at its strike, along the ground, m."""
        swing = _footed(self.robot, self._feet(mode)[1], self.pinned(mode, _halves(x)[0], params), params)
        return swing * np.array([1.0, 0.0], x.dtype)

    def ground(self, params: RobotParams) -> Scalar:
        """The slope of the ground, rad."""
        return params.slope[self.robot.touching[self.feet[0][0]][4]]

    def _feet(self, mode: str) -> tuple[int, int]:
        return self.feet[named("Walker", "mode", mode, self.sequence)]


def walker(
    robot: Robot, feet: Sequence[str], *, mirror: Mapping[str, str] | None = None, shortest: float = 1e-3
) -> Walker:
    r"""A robot with two feet as a walker: the hybrid system of its steps.

    One foot stands, and does not slip, whatever force and friction that takes: `ground_force` tells. The other swings, and
    strikes where its gap falls to zero ahead of the stance foot; before, it may pass through the ground, as the straight legs of
    a compass do. The strike is plastic and without slip, the old stance foot leaves, and then the legs change roles. A robot has
    fallen, and left the domain, when its centre of mass is on the ground.

    **Arguments:** `robot`: in one plane, whose first two coordinates are slides that move all bodies. `feet`: two of
    `robot.contacts`; the first stands first. `mirror`: pairs of coordinates, `{left: right}`, whose links change places at a
    strike, so that each step begins on the first foot; by default pairs whose names differ in `left` and `right`, `l` and `r`, or
    `1` and `2`. An empty mapping is for legs that differ: the modes are then the feet that stand, and a stride has two steps.
    `shortest`: of the steps, m. The robot walks along the ground in the direction of the plane's tangent: down a positive slope.

    **Returns:** a `Walker`; `hj.ReturnMap(walker.system, sequence=walker.sequence)` is its map, of states $(\theta, \dot\theta)$
    without the slides; parameters are a `RobotParams`. The robot's `control` acts, with `t` the time since the start of the
    stride or the simulation, which strikes within it do not set back. Legs that change places must stay alike: a mass of one leg
    alone that is changed in the parameters is that of the stance leg.
    `ValueError` for other feet, for a robot without such slides or with stops of joints, and for legs that are not alike where
    they are to change places.
    Analyses fail as `outside_domain` where the robot has fallen.

    **Example:**

    >>> leg = '<inertial pos="0 0 -0.5" mass="1" diaginertia="1e-9 1e-9 1e-9"/><site name="foot_'
    >>> robot = hj.robots.from_mujoco(f'''<mujoco><compiler angle="radian"/><worldbody>
    ...   <geom type="plane" size="9 9 1" euler="0 0.05 0"/>
    ...   <body><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide"/>
    ...     <inertial pos="0 0 0" mass="2" diaginertia="1e-9 1e-9 1e-9"/>
    ...     <body><joint name="hip_l" axis="0 1 0"/>{leg}l" pos="0 0 -1"/></body>
    ...     <body><joint name="hip_r" axis="0 1 0"/>{leg}r" pos="0 0 -1"/></body>
    ...   </body></worldbody></mujoco>''', contacts=["foot_l", "foot_r"])
    >>> compass = hj.robots.walker(robot, ("foot_l", "foot_r"))
    >>> compass.sequence, compass.system.modes["swing"].coordinates
    (('swing',), ('hip_l', 'hip_r', 'hip_l_rate', 'hip_r_rate'))

    Source: Westervelt, Grizzle, Chevallereau, Choi, Morris (2007), *Feedback Control of Dynamic Bipedal Robot Locomotion*, ch. 3.
    """
    require_kind(robot, Robot, "walker", "the first argument", "a robot, as hj.robots.from_mujoco returns it")
    if mirror is not None:
        require_kind(mirror, Mapping, "walker", "mirror", "pairs of coordinates, as {'hip_left': 'hip_right'}")
    bare, contacts = robot._bare, [name for name, *_ in robot.touching]
    if not isinstance(feet, Sequence) or isinstance(feet, str) or len(feet) != 2 or feet[0] == feet[1]:
        raise ValueError(
            f"walker: feet: give two of the robot's contacts {', '.join(contacts) or '(none)'}, not {feet!r}."
        )
    first, other = (named("walker", "contact", foot, contacts) for foot in feet)
    if not isinstance(shortest, int | float | np.number) or not 0 <= shortest < np.inf:
        raise ValueError(
            f"walker: shortest={shortest!r} must be a finite length, in m, of at least 0: steps lead ahead."
        )
    if robot.stops:
        stops = ", ".join(name for name, *_ in robot.stops)
        raise ValueError(
            f"walker: the robot's contacts have the stops {stops}, which do not hold in a walker. Name no joints among them."
        )
    if why := no_base(robot, first, other):
        raise ValueError(why)
    joints = robot.coordinates[2:]
    exchange = _exchange(robot, mirror if mirror is not None else alike(joints))
    if exchange is not None:
        _check_alike(robot, first, other, exchange)

    def step(stance: int, swing: int):
        """The mode in which a foot stands, the guard and the reset of the other's strike."""

        def field(t, x, params):
            theta, rate = _halves(x)
            mass, force, *_ = _standing(bare, stance, t, theta, rate, params)
            return jnp.concatenate([rate, accelerated(mass, force)])

        def height(t, x, params):
            return _centre_of_mass(bare, stance, _hung(_halves(x)[0]), params)

        def apart(x, params):
            """The vector from the stance foot to the swing foot, along the ground and normal to it."""
            one, other = _from_ground(bare, (stance, swing), _hung(_halves(x)[0]), params)
            return other - one

        def foot_height(t, x, params):
            return apart(x, params)[1]

        def foot_ahead(t, x, params):
            return apart(x, params)[0] > shortest

        def strike(t, x, params):
            theta, rate = _halves(x)
            q = _hung(theta)
            moved = bare._moved(q, params)
            (leaves, lands), _ = _on_feet(bare, (stance, swing), moved, 0 * q, params)
            # The momenta along the motions on the new foot, which its impulse does not change.
            along = lands.T @ bare._mass(moved, params)
            after = solve_positive(along @ lands, along @ (leaves @ rate))[0]
            if exchange is None:
                return jnp.concatenate([theta, after])
            swap, rest = exchange.astype(q.dtype), jnp.asarray(params.reference[2:], q.dtype)
            return jnp.concatenate([rest + swap @ (theta - rest), swap @ after])

        return field, height, foot_height, foot_ahead, strike

    names = ("swing",) if exchange is not None else tuple(feet)
    roles = ((first, other), (other, first))[: len(names)]
    units = tuple("rad" if turns else "m" for turns in robot.turns[2:])
    modes, transitions = {}, []
    for name, target, (stance, swing) in zip(names, names[1:] + names[:1], roles, strict=True):
        field, height, guard, armed, reset = step(stance, swing)
        coordinates = (*joints, *(f"{joint}_rate" for joint in joints))
        modes[name] = Mode(field, coordinates, domain=height, units=(*units, *(f"{each}/s" for each in units)))
        transitions.append(Transition(name, target, guard=guard, reset=reset, armed=armed))
    system = HybridSystem(modes, tuple(transitions), time_unit="s")
    return Walker(robot, system, names, roles, tuple(name for name, _, _, behind in robot.lines if behind))


def alike(names: Sequence[str]) -> dict[str, str]:
    """The pairs of names that differ in `left` and `right`, `l` and `r` as words, or `1` and `2`, in any case."""
    pairs: dict[str, str] = {}
    for one, other in (("left", "right"), (r"(?<![a-z])l(?![a-z])", "r"), ("1", "2")):
        like = lambda found, other=other: next(
            turn(other) for turn in (str.lower, str.capitalize, str.upper) if turn(found[0]) == found[0]
        )
        for name in names:
            swapped = re.sub(one, like, name, flags=re.IGNORECASE)
            known = {*pairs, *pairs.values()}
            if swapped != name and swapped in names and not known & {name, swapped}:
                pairs[name] = swapped
    return pairs


def no_base(robot: Robot, first: int, other: int) -> str:
    """Why a robot on two contacts is no walker, whatever its legs; else the empty text."""
    moves = robot._moves[0]
    if robot.before[:2] != (-1, 0) or any(robot.turns[:2]) or not np.all(moves[1:, 1]):
        return (
            "walker: the first two coordinates must be slides that move all bodies, such as x and z, not "
            f"{', '.join(robot.coordinates[:2])}. Give the first body two joints of the type slide, before its hinge."
        )
    held = [
        name
        for name in ("damping", "stiffness")
        if any(np.any(np.asarray(each) != 0) for each in getattr(robot.params, name)[:2])
    ]
    if held:
        return (
            f"walker: the slides {', '.join(robot.coordinates[:2])} have {' and '.join(held)}, which would hold the robot "
            'in the air. Give them damping="0" stiffness="0".'
        )
    if not np.all(np.array(robot.rolls)[np.array(robot.turns)]):
        return "walker: the robot must move in one plane, with all hinges along one axis."
    return "" if robot.touching[first][4] == robot.touching[other][4] else "walker: both feet must touch one plane."


def _exchange(robot: Robot, mirror: Mapping[str, str]) -> np.ndarray | None:
    """The matrix by which the joints change at the exchange of the links in pairs; `None` without pairs.

    The angles of links in the plane are exchanged; a slide's coordinate is that along its link.
    """
    if not mirror:
        return None
    hinge = np.array(robot.turns)[:, None]
    angles = np.where(hinge, robot._moves[0] * np.array(robot.rolls), np.eye(len(robot.turns)))[2:, 2:]
    order = relabelling(robot.coordinates[2:], mirror)
    return np.round(np.linalg.solve(angles, angles[order]))


def _check_alike(robot: Robot, first: int, other: int, exchange: np.ndarray) -> None:
    """`ValueError` unless the robot on its first foot with its legs exchanged moves as on its other foot."""
    passive = eqx.tree_at(lambda robot: robot.control, robot._bare, None, is_leaf=lambda leaf: leaf is None)
    rest = np.array(robot.params.reference[2:], float)

    @jax.jit
    def moving(theta, rate, params):
        def of(stance, swing, theta, rate, turned):
            mass, force, *_ = _standing(passive, stance, jnp.zeros((), theta.dtype), theta, rate, params)
            gap = _footed(passive, swing, _pinned(passive, stance, theta, params), params)[1]
            return turned.T @ mass @ turned, turned.T @ force, gap

        swapped = rest + exchange @ (theta - rest), exchange @ rate
        return of(first, other, *swapped, exchange), of(other, first, theta, rate, np.eye(len(rest)))

    theta, rate = np.random.default_rng(0).uniform(-0.5, 0.5, (2, len(rest)))
    for what, one, two in zip(("masses", "forces", "lengths"), *moving(rest + theta, rate, robot.params), strict=True):
        if not np.allclose(one, two, rtol=0, atol=1e-5 * np.max(np.abs(two))):
            raise ValueError(
                f"walker: mirror: the legs are not alike: their {what} differ. Pair the joints of equal links, or give "
                "mirror={} for steps that alternate."
            )


def first_plane(robot: Robot) -> int:
    """The number of the plane of the first contact."""
    return robot.touching[0][4] if robot.touching else 0


@eqx.filter_jit
def on_ground(
    robot: Robot, q: Positions, params: RobotParams, plane: int | None = None
) -> dict[str, Float[Array, "count 2"]]:
    """The lines of a picture along a plane and above it, by default that of the first contact; without one, those of
    `outline`."""
    lines = robot.outline(q, params)
    if not robot.planes:
        return lines
    plane = first_plane(robot) if plane is None else plane
    slope, height = (jnp.asarray(each[plane], q.dtype) for each in (params.slope, params.height))
    sine, cosine = jnp.sin(slope), jnp.cos(slope)
    turned = {name: points @ jnp.array([[cosine, sine], [-sine, cosine]]) for name, points in lines.items()}
    return {name: points - jnp.stack([jnp.zeros_like(height), height]) for name, points in turned.items()}


def _halves(x: State) -> tuple[Joints, Joints]:
    return x[: x.shape[0] // 2], x[x.shape[0] // 2 :]


def _hung(theta: Joints) -> Positions:
    """The robot's coordinates with its slides at zero."""
    return jnp.concatenate([jnp.zeros_like(theta[:2]), theta])


def _from_ground(robot: Robot, feet: Sequence[int], q: Positions, params: RobotParams) -> Float[Array, "feet 2"]:
    r"""$(\tau\cdot p,\ \nu\cdot p - h - r)$ of each foot."""
    local, radii, heights, normals, tangents = robot._touches(feet, q, params)
    places = robot._places(np.array([robot.touching[k][2] for k in feet]), local, q, params)
    above = jnp.sum(normals * places, axis=1) - heights - radii
    return jnp.stack([jnp.sum(tangents * places, axis=1), above], axis=1)


def _centre_of_mass(robot: Robot, foot: int, q: Positions, params: RobotParams) -> Scalar:
    """The height of the centre of mass above the ground on which a foot stands."""
    masses, links = jnp.asarray(params.mass, q.dtype), [link for _, link in robot.bodies]
    local, (radius,), _, (normal,), _ = robot._touches([foot], q, params)
    points = jnp.concatenate([params.center.astype(q.dtype), local])
    above = jnp.sum(normal * robot._places(np.array([*links, robot.touching[foot][2]]), points, q, params), axis=1)
    return masses @ above[:-1] / jnp.sum(masses) - above[-1] + radius


def _footed(robot: Robot, foot: int, q: Positions, params: RobotParams) -> Pair:
    r"""$(\tau\cdot p - r\varphi,\ \nu\cdot p - h - r)$, which are zero where a foot stands."""
    by = (robot._moves[0][robot.touching[foot][2]] * np.array(robot.rolls)).astype(q.dtype)
    turned = jnp.sum(by * (q - jnp.asarray(params.reference, q.dtype)))
    (radius,) = robot._touches([foot], q, params)[1]
    return _from_ground(robot, [foot], q, params)[0] - jnp.stack([radius * turned, jnp.zeros_like(turned)])


def _pinned(robot: Robot, foot: int, theta: Joints, params: RobotParams) -> Positions:
    """The robot's coordinates where a foot stands."""
    q = _hung(theta)
    return q.at[:2].set(-_inverse(_by_slides(robot, foot, q, params)) @ _footed(robot, foot, q, params))


def _by_slides(robot: Robot, foot: int, q: Positions, params: RobotParams) -> Float[Array, "2 2"]:
    return jax.jacfwd(lambda slides: _footed(robot, foot, q.at[:2].set(slides), params))(q[:2])


def _on_feet(
    robot: Robot, feet: Sequence[int], moved: Moved, v: Velocities, params: RobotParams
) -> tuple[tuple[Motions, ...], Float[Array, "feet 2"]]:
    r"""Of the robot on each foot the motions $E$, $v = E\dot\theta$, shape `(n + 2, n)`, and the accelerations of the slides in
    $\dot E\dot\theta$. Both are those of any place of the slides.

    With the rates $J = (A, J_\theta)$ of gap and slip they are $-A^{-1}J_\theta$ and $-A^{-1}\dot Jv$ in the rows of the slides.
    """
    _, _, bias, jacobian = robot._motion(feet, [True] * len(feet), moved, v, params)
    count, one = len(feet), jnp.eye(len(v) - 2, dtype=v.dtype)
    rows = [jnp.column_stack([jacobian, bias])[np.array([k, count + k])] for k in range(count)]
    slides = [-_inverse(each[:, :2]) @ each[:, 2:] for each in rows]
    return tuple(jnp.concatenate([each[:, :-1], one]) for each in slides), jnp.stack([each[:, -1] for each in slides])


def _inverse(matrix: Float[Array, "2 2"]) -> Float[Array, "2 2"]:
    (a, b), (c, d) = matrix
    return jnp.array([[d, -b], [-c, a]]) / (a * d - b * c)


def _standing(robot: Robot, foot: int, t: Time, theta: Joints, rate: Joints, params: RobotParams) -> Standing:
    r"""The equations of the robot on a foot, as `Mechanism.reduced` has them: $E^\top M E$ and
    $E^\top(Q - c - M\dot E\dot\theta)$; and the motions $E$ with $\dot E\dot\theta$."""
    q, v = _hung(theta), _hung(rate)
    moved = robot._moved(q, params)
    (motions,), slides = _on_feet(robot, (foot,), moved, v, params)
    turning = jnp.concatenate([slides[0], jnp.zeros_like(theta)])
    mass, bias = robot._mass(moved, params), robot._inertial(moved, v, params)
    if robot.control is not None:
        q, v = _pinned(robot, foot, theta, params), motions @ rate
    force = robot.forces(t, q, v, params) - bias - mass @ turning
    return motions.T @ mass @ motions, motions.T @ force, motions, turning
