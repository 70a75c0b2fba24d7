"""Arguments and options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="name of a model, as hyjax models lists them, or a Python file and its system, as wheel.py:system",
    ),
]
Param = Annotated[list[str] | None, typer.Option(help="name=value; angles in rad, or as 3deg")]
OtherParam = Annotated[
    list[str] | None, typer.Option(help="name=value of another parameter; angles in rad, or as 3deg")
]
Sequence = Annotated[str | None, typer.Option(help="sequence of modes, as first,second; default: the model's")]
Coordinate = Annotated[
    str | None,
    typer.Option(
        help="coordinate of --plot; default: the first that is not constant, nor on a line with the parameter"
    ),
]
# Bounds on what is counted: what a computer's memory holds.
MOST_STRIDES, MOST_POINTS, MOST_JUMPS, MOST_GRID_POINTS = 1000, 100_000, 1_000_000, 100_000_000
Strides = Annotated[int, typer.Option(help="number of strides in one period")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object, at full precision")]
GridJson = Annotated[bool, typer.Option("--json", help="print one JSON object: summary, axes and results")]
Where = Annotated[list[str], typer.Option(help="parameter to vary, as name=low:high:count; repeat for a grid")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace output files that exist")]
Animate = Annotated[Path | None, typer.Option(help="write an animation to this file: .gif, .mp4 or .html")]
