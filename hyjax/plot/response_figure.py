"""Figures of phase and isostable responses, and of Arnold tongues."""

from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from .._results.labels import units_of
from .._system.results import RESULTS
from ..phase.entrainment import Entrainment
from ..phase.responses import IsostableResponse, PhaseResponse
from .figure import BLUE, COLOURS, GREY, PALE, put_title, pyplot, ratio, symbol, tidy, title_of, unit, with_unit

if TYPE_CHECKING:
    import matplotlib.figure


def response_figure(
    response: PhaseResponse | IsostableResponse, model: ModuleType | None = None
) -> "matplotlib.figure.Figure":
    """The response to each coordinate over one period, of an isostable response the real part; dotted lines at the jumps.

    **Arguments:** `response`: of one orbit. `model`: supplies the title, and the unit of time.

    **Returns:** the figure. `ValueError` for a batch, and for a response that was not found; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.phase_response(orbit, samples=20)
    >>> figure = hj.plot.response_figure(response, model=wheel)
    >>> figure.savefig("response.png")
    """
    _require_one(response.result, np.ndim(response.residual), "response_figure")
    modes = {mode: response.orbit.system.mode(mode) for mode in response.orbit.mode_names}
    names = list(dict.fromkeys(name for mode in modes.values() for name in mode.coordinates))
    head = "Z" if isinstance(response, PhaseResponse) else r"\mathrm{Re}\,I"
    units = units_of(model, response.orbit.params, response.orbit.system)
    # An amplitude has no unit of its own.
    per = lambda name: ratio(units.time, units.coordinates.get(name, "")) if head == "Z" else ""
    size = (7, 1.5 * len(names) + 0.6)
    fig, axes = pyplot().subplots(len(names), 1, figsize=size, sharex=True, layout="constrained", squeeze=False)
    for name, ax, colour in zip(names, axes[:, 0], COLOURS * len(names), strict=False):
        tidy(ax)
        for arc in response.arcs:
            if name in (coordinates := modes[arc.mode].coordinates):
                ax.plot(arc.t, np.real(arc.z)[:, coordinates.index(name)], color=colour, lw=1.8)
        for arc in response.arcs[:-1]:
            ax.axvline(float(arc.t[-1]), color=GREY, lw=0.8, ls=":", gid="jump")
        ax.set_ylabel(with_unit(f"${head}$, {symbol(name)}", unit(per(name))).replace(" (", "\n(", 1))
    axes[-1, 0].set_xlabel(with_unit("$t$", unit(units.time)))
    put_title(fig, title_of(model, response.orbit.params, system=response.orbit.system), 11)
    return fig


def tongue_figure(found: Entrainment, strength: float = 0.1) -> "matplotlib.figure.Figure":
    r"""The interaction function over the phase difference, with its extremes, and the Arnold tongue up to a strength.

    **Arguments:** `found`: of one orbit. `strength`: the largest strength of the push.

    **Returns:** the figure. `ValueError` for a batch, and where the response was not found; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.phase_response(orbit, samples=20)
    >>> torque = lambda cycle, x, params: jnp.stack([0.0 * cycle, jnp.cos(2 * jnp.pi * cycle)])
    >>> found = hj.phase.entrainment(response, torque)
    >>> figure = hj.plot.tongue_figure(found, strength=0.05)
    >>> figure.savefig("tongue.png")
    """
    _require_one(found.result, np.ndim(found.lowest), "tongue_figure")
    fig, (left, right) = pyplot().subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    tidy(left).plot(np.append(found.lags, 1), np.append(found.interaction, found.interaction[0]), color=BLUE, lw=1.8)
    for extreme in (found.lowest, found.highest):
        left.axhline(float(extreme), color=GREY, lw=0.8, ls=":")
    left.set(xlabel=r"$\psi$ (cycles)", ylabel=r"$\Gamma$")
    strengths = np.linspace(0, strength, 2)
    low, high = found.tongue(strengths)
    tidy(right).fill_betweenx(strengths, low, high, color=PALE)
    right.plot(low, strengths, color=BLUE, lw=1.8)
    right.plot(high, strengths, color=BLUE, lw=1.8)
    right.set(xlabel="$T / P$", ylabel=r"strength $\varepsilon$")
    put_title(fig, title_of(None, found.orbit.params, system=found.orbit.system), 11)
    return fig


def _require_one(result: RESULTS, axes: int, caller: str) -> None:
    if axes:
        raise ValueError(f"{caller}: this is a batch. Choose one lane: jax.tree.map(lambda leaf: leaf[0], batch).")
    if result != RESULTS.successful:
        raise ValueError(f"{caller}: there is no response to draw: {RESULTS[result]}")  # pyright: ignore
