"""A gait as a page for a notebook: its animation, its multipliers in the unit circle and its numbers."""

import base64
import html

import numpy as np

from .._orbit.orbit import PeriodicOrbit
from .._orbit.orbit_report import orbit_table
from .._results.labels import named_params
from .figure import GREY, INK, PALE, VERMILION
from .moving_svg import moving_svg
from .placement import Model

# Of the picture of the unit circle, in pixels.
SIZE = 180


def gait_page(orbit: PeriodicOrbit, model: Model, message: str = "") -> str:
    """The page as HTML. The pictures are images within it, which notebooks show also in a file that is not trusted.

    **Arguments:** `orbit`: one orbit that was found. `message`: a line of text above the pictures.
    """
    title = f"{getattr(model, 'title', 'Gait')} at {setting(orbit)}"
    said = f'<p role="alert"><b>{html.escape(message)}</b></p>' if message else ""
    return (
        f'<div>{said}<p>{html.escape(title)}</p><div style="display:flex;flex-wrap:wrap;gap:12px;align-items:center">'
        f"{_image(moving_svg(orbit, model), title)}{_image(_unit_circle(orbit), 'multipliers in the unit circle')}"
        f"{orbit_table(orbit).html()}</div></div>"
    )


def setting(orbit: PeriodicOrbit) -> str:
    """The parameters of an orbit with their units, for a sentence."""
    return ", ".join(
        f"{name} = {values:.6g} {printed_unit(about.get('units', ''))}".rstrip()
        for name, (values, about) in named_params(orbit.params).items()
        if values.ndim == 0
    )


def printed_unit(unit: str) -> str:
    """A unit, or nothing where the unit is 1."""
    return "" if unit == "1" else unit


def _unit_circle(orbit: PeriodicOrbit) -> str:
    """The multipliers in the complex plane; those farther out than 1.5 are drawn at the rim, hollow."""
    middle, radius = SIZE / 2, SIZE / 3.2
    dots = ""
    for each in np.asarray(orbit.multipliers):
        far = abs(each) > 1.5
        place = each / abs(each) * 1.5 if far else each
        dots += (
            f'<circle cx="{middle + radius * place.real:.1f}" cy="{middle - radius * place.imag:.1f}" r="5" '
            f'fill="{"white" if far else VERMILION}" stroke="{VERMILION}" stroke-width="2"/>'
        )
    axes = "".join(
        f'<line x1="{a}" y1="{b}" x2="{c}" y2="{d}" stroke="{PALE}"/>'
        for a, b, c, d in ((0, middle, SIZE, middle), (middle, 0, middle, SIZE))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIZE}" height="{SIZE}" viewBox="0 0 {SIZE} {SIZE}">'
        f'<rect width="100%" height="100%" fill="white"/>{axes}'
        f'<circle cx="{middle}" cy="{middle}" r="{radius}" fill="none" stroke="{GREY}" stroke-width="1.5"/>'
        f'<text x="6" y="16" font-family="sans-serif" font-size="13" fill="{INK}">multipliers</text>{dots}</svg>'
    )


def _image(svg: str, text: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{html.escape(text)}" src="data:image/svg+xml;base64,{data}">'
