"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str, typer.Argument(metavar="MODEL")]
Sequence = Annotated[str | None, typer.Option(help="modes in turn, as first,second; by default the model's")]
Strides = Annotated[int, typer.Option(help="orbits that close after so many strides")]
FullJson = Annotated[bool, typer.Option("--json", help="print one JSON object, at full precision")]
Animate = Annotated[Path | None, typer.Option(help="write an animation: .gif, .mp4 or .html")]
