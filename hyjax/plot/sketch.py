"""A drawing of a mechanism in one state, from the model's outline."""

from types import SimpleNamespace
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from .._flow.trajectory import Arc
from .._system.types import Params, State
from .animation import check_outline
from .figure import pyplot
from .placement import Model, placed_arcs
from .scene import scene, stage, view_of

if TYPE_CHECKING:
    import matplotlib.axes


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
    drawn = SimpleNamespace(**{name: value for name, value in vars(model).items() if name != "travel"})
    shown = scene(placed_arcs([still], drawn, params), drawn, params, np.zeros(1))
    drawn_on = pyplot().subplots(figsize=(3.6, 2.6), layout="constrained")[1] if ax is None else ax
    stage(shown, drawn_on, view_of(shown.bounds))(0)
    return drawn_on
