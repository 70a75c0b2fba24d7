"""Animations of a model along orbits, trajectories and optimizations, and its drawing in one state, from its outline."""

import io
import pathlib
from types import SimpleNamespace
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from .._flow.trajectory import Arc, Trajectory
from .._optimize.optimized_orbit import OptimizedOrbit
from .._orbit.orbit import PeriodicOrbit
from .._system.types import Params, State
from .figure import INK, pyplot, signed
from .optimization_figure import end_values, objective_name
from .orbit_axes import message_of
from .scene import clock, frame_times, Model, placed_arcs, PlacedArc, scene, shapes, view_of, walk

if TYPE_CHECKING:
    import matplotlib.animation
    import matplotlib.axes
    from PIL.Image import Image


# The width of an animation in inches, and the dots per inch of a GIF.
WIDTH, GIF_DPI = 6.4, 100
# Colours of a GIF: line drawings have few; the others are those of smoothed edges.
COLOURS = 24


def animate_orbit(
    orbit: PeriodicOrbit, model: Model, strides: int = 4, fps: int = 25, speed: float | None = None, label: str = ""
) -> "matplotlib.animation.FuncAnimation":
    """Animation of a model along its periodic orbit: a walker walks down its slope, and the camera follows.

    A leg keeps its colour when the legs change roles; the stance leg is drawn thick. The camera moves with the mean
    velocity, so the animation of an even number of a biped's steps repeats without a jump.

    **Arguments:** `orbit`: one orbit. `model`: a module, or a `types.SimpleNamespace`, with `outline(mode, x, params)`, or
    `outline(mode, x, params, t)` for a forced model; a model that moves over the ground also has `travel(mode, x, params)`
    and `ground(params)`. Lines named in `model.scenery` are drawn in grey. `strides`: passes through the orbit's sequence.
    `fps`: frames per second. `speed`: model time over real time; at 1 a model in seconds plays in real time, and a model in units
    of `sqrt(l/g)` plays as with legs of 1 m on the earth. By default 1, changed where necessary for a duration between 2 s and
    12 s. `label`: text before the orbit's stability in the corner, such as `gait 1 of 2`.

    **Returns:** a `matplotlib.animation.FuncAnimation`, for `save_animation`. `ValueError` for a batch of orbits, an orbit that
    was not found, and a model without an outline; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> animation = hj.plot.animate_orbit(orbit, wheel, strides=2, fps=5)
    >>> hj.plot.save_animation(animation, "wheel.gif")
    """
    check_outline(model, "animate_orbit")
    check_rates("animate_orbit", strides, fps, speed)
    stability = "stable" if bool(orbit.stable) else "unstable"
    about = ", ".join(text for text in (label, stability) if text)
    return _animate(walk(orbit, model, strides), model, orbit.params, fps, speed, about)


def animate_trajectory(
    trajectory: Trajectory, model: Model, fps: int = 25, speed: float | None = None
) -> "matplotlib.animation.FuncAnimation":
    """Animation of a model along a simulated trajectory, from start to end.

    **Arguments:** as for `animate_orbit`. **Returns:** a `matplotlib.animation.FuncAnimation`. `TypeError` for a batch of
    trajectories; `ValueError` for a trajectory without an arc, or a model without an outline; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> run = hj.simulate(ball.system, x0, params, mode="flight", t1=1.0)
    >>> animation = hj.plot.animate_trajectory(run, ball, fps=5)
    >>> hj.plot.save_animation(animation, "ball.gif")
    """
    check_outline(model, "animate_trajectory")
    if fps <= 0 or (speed is not None and speed <= 0):
        raise ValueError(f"animate_trajectory: fps={fps} and speed={speed} must be positive.")
    arcs = trajectory.sample()
    if not arcs or not np.all(np.isfinite(arcs[-1].t)):
        raise ValueError("animate_trajectory: there is nothing to draw: the simulation failed before its first event.")
    return _animate(placed_arcs(arcs, model, trajectory.params), model, trajectory.params, fps, speed)


def check_outline(model: Model, caller: str, orbit: PeriodicOrbit | None = None) -> None:
    """`ValueError` for a model without an outline, or whose outline is not one of this orbit."""
    name = getattr(model, "__name__", str(model)).rpartition(".")[-1]
    if not hasattr(model, "outline"):
        raise ValueError(
            f"{caller}: {name} does not define outline. Give a model with a function outline(mode, x, params)."
        )
    if orbit is None:
        return
    mode = orbit.mode_names[0]
    coordinates = ", ".join(orbit.system.mode(mode).coordinates)
    try:
        shapes(model, mode, jnp.asarray(orbit.x)[None], orbit.params, np.zeros(2))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{caller}: outline of {name} fails for this orbit, whose state is ({coordinates}): {error}. Give the model of the "
            "orbit."
        ) from error


def check_rates(caller: str, strides: int, fps: int, speed: float | None) -> None:
    """`ValueError` unless strides, frames per second and speed are positive."""
    if strides < 1 or fps <= 0 or (speed is not None and speed <= 0):
        raise ValueError(f"{caller}: strides={strides}, fps={fps} and speed={speed} must be positive.")


def _animate(
    placed: tuple[PlacedArc, ...], model: Model, params: Params, fps: int, speed: float | None, about: str = ""
):
    plt = pyplot()
    from matplotlib.animation import FuncAnimation

    times = frame_times(placed[-1].t[-1], model, params, fps, speed)
    bounds, stage = scene(placed, model, params, times)
    view = view_of(bounds)
    width, height = np.diff(view, axis=1)[:, 0]
    fig = plt.figure(figsize=(WIDTH, WIDTH * height / width), facecolor="white")
    draw_scene = stage(fig.add_axes((0, 0, 1, 1)), view)
    heading = "\n".join(text for text in (getattr(model, "title", ""), about) if text)
    fig.text(0.02, 0.97, heading, va="top", color=INK, fontsize=11, linespacing=1.4)
    tell = clock(fig, placed[-1].t[-1], model, params)

    def draw(i: int):
        return (*draw_scene(i), tell(times[i]))

    return FuncAnimation(fig, draw, frames=len(times), interval=1000 / fps, cache_frame_data=False)


def save_animation(animation: "matplotlib.animation.FuncAnimation", path: str | pathlib.Path) -> None:
    """Write an animation to a `.gif`, `.html` (a page with controls) or, where ffmpeg is installed, `.mp4` file.

    **Arguments:** `animation`: of `animate_orbit` or another function of this module. `path`: its suffix selects the format.
    `ValueError` for another suffix, and for `.mp4` without ffmpeg.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> run = hj.simulate(ball.system, x0, params, mode="flight", t1=1.0)
    >>> hj.plot.save_animation(hj.plot.animate_trajectory(run, ball, fps=5), "ball.html")
    >>> import pathlib
    >>> pathlib.Path("ball.html").exists()
    True
    """
    path = pathlib.Path(path)
    suffix = animation_suffix(path)
    if suffix == ".html":
        path.write_text(animation.to_jshtml(), encoding="utf-8")
    else:
        writer = gif_writer(1000 / animation._interval) if suffix == ".gif" else "ffmpeg"  # pyright: ignore
        animation.save(path, writer=writer, dpi=GIF_DPI if suffix == ".gif" else 200)


def animation_suffix(path: pathlib.Path) -> str:
    """The suffix of a path to which an animation can be written; `ValueError` that lists the formats otherwise."""
    pyplot()
    from matplotlib.animation import writers

    suffix = path.suffix.lower()
    there = ".gif, .html" + (", .mp4" if writers.is_available("ffmpeg") else "")
    if suffix not in (".gif", ".html", ".mp4"):
        raise ValueError(f"{path}: {suffix!r} is not an animation format; use one of {there}.")
    if suffix not in there:
        raise ValueError(f"{path}: .mp4 needs the program ffmpeg, which is not installed; use one of {there}.")
    return suffix


def gif_writer(fps: float) -> "matplotlib.animation.AbstractMovieWriter":
    """A writer for `matplotlib.animation.Animation.save` that ends in `save_gif`.

    matplotlib's `PillowWriter` makes files of twice the size: 121 kB in place of 66 (bouncing ball, 3 s), 649 in place of 327
    (rimless wheel, four steps), by matplotlib 3.11 and Pillow 13.
    """
    from matplotlib.animation import AbstractMovieWriter
    from PIL import Image

    class GifWriter(AbstractMovieWriter):
        def setup(self, fig, outfile, dpi=None):
            self.fig, self.outfile, self.dpi = fig, outfile, fig.dpi if dpi is None else dpi

        def grab_frame(self, **options):
            picture = io.BytesIO()
            self.fig.savefig(picture, **{**options, "format": "rgba", "dpi": self.dpi})
            frames.append(Image.frombytes("RGBA", self.frame_size, picture.getvalue()).convert("RGB"))

        def finish(self):
            save_gif(frames, self.outfile, fps)

    frames: list[Image.Image] = []
    return GifWriter()


def save_gif(frames: "list[Image]", path, fps: float) -> None:
    """Write pictures of one size as a GIF that repeats, with one palette of few colours and without dithering, so that unchanged
    parts of a picture stay the same from frame to frame. A GIF counts time in hundredths of a second: 25 frames per second are
    exact."""
    from PIL import Image

    # The most frequent colours of frames spread over the animation: those of surfaces and lines are exact.
    sheet = np.concatenate([np.asarray(frame).reshape(-1, 3) for frame in frames[:: max(1, len(frames) // 4)][:4]])
    colours, counts = np.unique(sheet, axis=0, return_counts=True)
    palette = Image.new("P", (1, 1))
    palette.putpalette(colours[np.argsort(-counts, kind="stable")[:COLOURS]].tobytes())
    few = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    few[0].save(path, save_all=True, append_images=few[1:], duration=round(100 / fps) * 10, loop=0, optimize=True)


def animate_optimization(
    gait: OptimizedOrbit, model: Model, strides: int = 4, fps: int = 25, speed: float | None = None
) -> "matplotlib.animation.FuncAnimation":
    """Animation of a model along its gait before and after an optimization, side by side, at the same times and scale.

    Each half states the value of the objective. Its camera moves with the mean velocity of its gait: the faster the gait, the
    faster the footholds pass by.

    **Arguments:** `gait`: the result of `hyjax.optimize`. `strides`: passes through the sequence of the gait of longer period;
    the other makes as many as fit into the same time. `model`, `fps`, `speed`: as for `animate_orbit`.

    **Returns:** a `matplotlib.animation.FuncAnimation`, for `save_animation`. `ValueError` for an optimization that ended without
    a gait, and for a model without an outline; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(orbit, hj.objectives.period, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)])
    >>> animation = hj.plot.animate_optimization(gait, wheel, strides=2, fps=5)
    >>> hj.plot.save_animation(animation, "gaits.gif")
    """
    check_outline(model, "animate_optimization")
    check_rates("animate_optimization", strides, fps, speed)
    if not np.isfinite(gait.orbit.period):
        raise ValueError(f"animate_optimization: there is no gait to draw: {message_of(gait.orbit)}")
    plt = pyplot()
    from matplotlib.animation import FuncAnimation

    orbits = gait.before, gait.orbit
    passes = [float(orbit.period) / orbit.strides for orbit in orbits]
    duration = strides * max(passes)
    times = frame_times(duration, model, gait.orbit.params, fps, speed)
    scenes = [
        scene(walk(orbit, model, int(np.ceil(duration / each))), model, orbit.params, times)
        for orbit, each in zip(orbits, passes, strict=True)
    ]
    low, high = (extreme([bounds[k] for bounds, _ in scenes], axis=0) for k, extreme in enumerate((np.min, np.max)))
    view = view_of(np.stack([low, high]))
    width, height = np.diff(view, axis=1)[:, 0]

    # A strip above both halves: the title, and under it the value of each.
    inches, strip = 4.2 * height / width, 0.75
    fig = plt.figure(figsize=(8.4, inches + strip), facecolor="white")
    heading = ": ".join(text for text in (getattr(model, "title", ""), objective_name(gait)) if text)
    fig.text(0.01, 1 - 0.08 / (inches + strip), heading, va="top", color=INK, fontsize=11)
    draws = []
    for left, (_, stage), value, name in zip(
        (0.004, 0.504), scenes, end_values(gait), ("before", "after"), strict=True
    ):
        ax = fig.add_axes((left, 0, 0.492, inches / (inches + strip)))
        draws.append(stage(ax, view))
        ax.set_title(f"{name}: {signed(f'{value:.6g}')}", fontsize=11, color=INK)
    tell = clock(fig, duration, model, gait.orbit.params)

    def draw(i: int):
        return (*(line for one in draws for line in one(i)), tell(times[i]))

    return FuncAnimation(fig, draw, frames=len(times), interval=1000 / fps, cache_frame_data=False)


def sketch(
    model: Model,
    params: Params,
    x: State | None = None,
    mode: str | None = None,
    ax: "matplotlib.axes.Axes | None" = None,
) -> "matplotlib.axes.Axes":
    """A drawing of a mechanism in one state, with the ground where the model has one.

    Gravity points down, and the origin of the axes is that of the outline: of a walker the stance foot. So a label or an angle is
    drawn on it by its place in the outline's units.

    **Arguments:** `model`: as for `animate_orbit`. `params`: the model's parameters. `x`: the state, shape `(n,)`, in `mode`; by
    default those of `model.start(params)`. `ax`: by default new axes.

    **Returns:** the axes. `ValueError` for a model without an outline, or without a start where `x` or `mode` is not given;
    `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> axes = hj.plot.sketch(wheel, wheel.Params())
    >>> axes.figure.savefig("wheel.png")
    """
    check_outline(model, "sketch")
    if not hasattr(model, "start") and (x is None or mode is None):
        raise ValueError("sketch: the model does not define start(params). Give the state x and the mode.")
    started, first = model.start(params) if x is None or mode is None else (mode, x)
    x = jnp.asarray(first if x is None else x)
    still = Arc(started if mode is None else mode, jnp.array([0.0, 1.0], x.dtype), jnp.stack([x, x]))
    # Without its travel the model stays where it is, on straight ground.
    used = ("outline", "ground", "scenery", "title", "system", "time_unit")
    drawn = SimpleNamespace(**{name: getattr(model, name) for name in used if hasattr(model, name)})
    bounds, stage = scene(placed_arcs([still], drawn, params), drawn, params, np.zeros(1))
    drawn_on = pyplot().subplots(figsize=(3.6, 2.6), layout="constrained")[1] if ax is None else ax
    stage(drawn_on, view_of(bounds))(0)
    return drawn_on
