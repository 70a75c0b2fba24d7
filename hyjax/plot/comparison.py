"""The animation of an optimization: the gait before and after, side by side."""

from typing import TYPE_CHECKING

import numpy as np

from .._optimize.optimized_orbit import OptimizedOrbit
from .animation import check_outline, check_rates
from .figure import INK, pyplot, signed
from .optimization_figure import end_values, objective_name
from .orbit_axes import message_of
from .placement import Model, walk
from .scene import clock, frame_times, scene, stage, view_of

if TYPE_CHECKING:
    import matplotlib.animation


def animate_optimization(
    gait: OptimizedOrbit, model: Model, steps: int = 4, fps: int = 25, speed: float | None = None
) -> "matplotlib.animation.FuncAnimation":
    """Animation of a model along its gait before and after an optimization, side by side, at the same times and scale.

    Each half states the value of the objective. Its camera moves with the mean velocity of its gait: the faster the gait, the
    faster the footholds pass by.

    **Arguments:** `gait`: the result of `hyjax.optimize`. `steps`: passes through the sequence of the gait of longer period; the
    other makes as many as fit into the same time. `model`, `fps`, `speed`: as for `animate_orbit`.

    **Returns:** a `matplotlib.animation.FuncAnimation`, for `save_animation`. `ValueError` for an optimization that ended without
    a gait, and for a model without an outline; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(orbit, hj.objectives.period, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)])
    >>> animation = hj.plot.animate_optimization(gait, wheel, steps=2, fps=5)
    >>> hj.plot.save_animation(animation, "gaits.gif")
    """
    check_outline(model, "animate_optimization")
    check_rates("animate_optimization", steps, fps, speed)
    if not np.isfinite(gait.orbit.period):
        raise ValueError(f"animate_optimization: there is no gait to draw: {message_of(gait.orbit)}")
    plt = pyplot()
    from matplotlib.animation import FuncAnimation

    orbits = gait.before, gait.orbit
    passes = [float(orbit.period) / orbit.strides for orbit in orbits]
    duration = steps * max(passes)
    times = frame_times(duration, model, gait.orbit.params, fps, speed)
    shown = [
        scene(walk(orbit, model, int(np.ceil(duration / each))), model, orbit.params, times)
        for orbit, each in zip(orbits, passes, strict=True)
    ]
    low, high = (extreme([each.bounds[k] for each in shown], axis=0) for k, extreme in enumerate((np.min, np.max)))
    view = view_of(np.stack([low, high]))
    width, height = np.diff(view, axis=1)[:, 0]

    # A strip above both halves: the title, and under it the value of each.
    inches, strip = 4.2 * height / width, 0.75
    fig = plt.figure(figsize=(8.4, inches + strip), facecolor="white")
    fig.text(0.01, 1 - 0.08 / (inches + strip), _title(gait, model), va="top", color=INK, fontsize=11)
    draws = []
    for left, each, value, name in zip((0.004, 0.504), shown, end_values(gait), ("before", "after"), strict=True):
        ax = fig.add_axes((left, 0, 0.492, inches / (inches + strip)))
        draws.append(stage(each, ax, view))
        ax.set_title(f"{name}: {signed(f'{value:.6g}')}", fontsize=11, color=INK)
    tell = clock(fig, duration, model, gait.orbit.params)

    def draw(i: int):
        return (*(line for one in draws for line in one(i)), tell(times[i]))

    return FuncAnimation(fig, draw, frames=len(times), interval=1000 / fps, cache_frame_data=False)


def _title(gait: OptimizedOrbit, model: Model) -> str:
    return ": ".join(text for text in (getattr(model, "title", ""), objective_name(gait)) if text)
