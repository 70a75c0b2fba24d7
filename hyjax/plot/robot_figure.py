"""Drawings and animations of a robot of a file, as of a model."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.trajectory import Arc, Trajectory
from .._orbit.orbit import PeriodicOrbit
from .._results.registry import animate
from ..robots.robot import Robot, RobotParams
from ..robots.walker import first_plane, on_ground
from .figure import pyplot
from .scene import placed_arcs, scene, view_of

if TYPE_CHECKING:
    import matplotlib.animation
    import matplotlib.axes


def robot_figure(
    robot: Robot,
    q: Float[Array, "*poses m"] | None = None,
    params: RobotParams | None = None,
    ax: "matplotlib.axes.Axes | None" = None,
) -> "matplotlib.axes.Axes":
    """A drawing of a robot in one pose, or of several over each other, the last one in full colours.

    The plane of motion is that of the page, with the plane that the robot's first contact touches as the ground; a robot in space
    is seen along y, in the plane of x and z.

    **Arguments:** `robot`: from a file. `q`: positions, shape `(m,)` or `(poses, m)`, by default the file's. `params`: by default
    the robot's. `ax`: by default new axes.

    **Returns:** the axes. `ValueError` for another shape; `ImportError` without matplotlib.

    **Example:**

    >>> robot = hj.robots.from_mujoco('''<mujoco><worldbody><body><joint name="swing" axis="0 1 0"/>
    ...   <geom type="capsule" fromto="0 0 0 0 0 -1" size="0.05"/></body></worldbody></mujoco>''')
    >>> axes = hj.plot.robot_figure(robot, jnp.linspace(-0.5, 0.5, 5)[:, None])
    >>> axes.figure.savefig("pendulum.png")
    """
    params = robot.params if params is None else params
    q = jnp.stack(params.reference) if q is None else jnp.asarray(q)
    q = q if jnp.issubdtype(q.dtype, jnp.floating) else q.astype(float)
    poses = jnp.atleast_2d(q)
    if poses.ndim != 2 or poses.shape[1] != len(robot.coordinates):
        raise ValueError(
            f"robot_figure: q of shape {q.shape} must have the shape (m,) or (poses, m), for the m = "
            f"{len(robot.coordinates)} coordinates {', '.join(robot.coordinates)}."
        )
    model, count = _model(robot, None), len(poses)
    # A single pose has two frames, of which the second is that of the first.
    x = jnp.concatenate([poses, poses[:1]])[: max(count, 2)]
    times = jnp.arange(len(x), dtype=float)
    bounds, stage = scene(placed_arcs([Arc("", times, x)], model, params), model, params, np.asarray(times))
    drawn_on = pyplot().subplots(figsize=(3.6, 2.6), layout="constrained")[1] if ax is None else ax
    draw = stage(drawn_on, view_of(bounds))
    for i in range(count - 1):
        for line in draw(i):
            faint = {"color": line.get_color(), "alpha": 0.15 + 0.35 * i / count, "zorder": line.get_zorder() - 2}
            drawn_on.plot(*line.get_data(), marker=line.get_marker(), ms=5, lw=line.get_linewidth() / 2, **faint)
    draw(count - 1)
    return drawn_on


def animate_robot(
    robot: Robot,
    result: PeriodicOrbit | Trajectory,
    pose: Callable[..., Float[Array, " m"]] | None = None,
    **options: Any,
) -> "matplotlib.animation.FuncAnimation":
    """Animation of a robot along an orbit or a trajectory; the camera rests.

    **Arguments:** `robot`: from a file. `result`: of a system whose states begin with the robot's coordinates, such as one of
    `contact_system`. `pose`: for any other the coordinates, `pose(mode, x, params)`, shape `(m,)`. `options`: those of
    `animate_orbit` or `animate_trajectory`. Where the parameters of the result are no `RobotParams`, the robot's are taken.

    **Returns:** a `matplotlib.animation.FuncAnimation`, for `save_animation`. `ValueError` for states that are shorter than the
    robot's coordinates; `TypeError` for another result; `ImportError` without matplotlib.

    **Example:**

    >>> robot = hj.robots.from_mujoco('''<mujoco><worldbody><geom type="plane" size="1 1 1"/><body><joint name="z" type="slide"/>
    ...   <geom name="ball" size="0.1"/></body></worldbody></mujoco>''', contacts=["ball"])
    >>> system = hj.contact.contact_system(robot.mechanism, robot.contacts["ball"], robot.coordinates)
    >>> fall = hj.simulate(system, jnp.array([0.5, 0.0]), robot.params, mode="U", t1=0.2)
    >>> hj.plot.save_animation(hj.plot.animate_robot(robot, fall, fps=5), "ball.gif")
    """
    count, modes = len(robot.coordinates), getattr(getattr(result, "system", None), "modes", {})
    other = [mode.coordinates for mode in modes.values() if mode.coordinates[:count] != robot.coordinates]
    if pose is None and other:
        raise ValueError(
            f"animate_robot: the states {', '.join(other[0])} do not begin with the robot's coordinates, "
            f"{', '.join(robot.coordinates)}. Of a walker's gait, write gait.animate(walker); else give pose=, a function "
            "pose(mode, x, params) that returns them."
        )
    return animate(result, _model(robot, pose), **options)


def _model(robot: Robot, pose: Callable | None) -> SimpleNamespace:
    """The robot as a model, in the frame of the ground: along it, and above it."""
    count = len(robot.coordinates)

    def outline(mode, x, params):
        own = params if isinstance(params, RobotParams) else robot.params
        q = x[:count] if pose is None else pose(mode, x, params)
        if q.shape != (count,):
            raise ValueError(
                f"animate_robot: a state of {x.shape[0]} coordinates gives no pose of {count}, {', '.join(robot.coordinates)}. "
                "Give pose=, a function pose(mode, x, params) that returns them."
            )
        # A compiled program sorts the names, but the first line has a colour of its own.
        points = on_ground(robot, q, own)
        return {name: points[name] for name, *_ in robot.lines}

    scenery = tuple(name for name, _, _, behind in robot.lines if behind)
    model = SimpleNamespace(outline=outline, scenery=scenery, title="")
    if robot.planes:
        model.ground = lambda params: (params if isinstance(params, RobotParams) else robot.params).slope[
            first_plane(robot)
        ]
    return model
