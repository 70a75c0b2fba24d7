"""The commands `reproduce bhounsule` and `reproduce saltation`."""

from pathlib import Path
from typing import Annotated

import typer

from ..files import check_files
from ..session import start_jax

app = typer.Typer(
    no_args_is_help=True,
    help="Compare a paper's numbers with those of hyjax and of an independent reference.",
)


@app.command("bhounsule")
def reproduce_bhounsule():
    """Bhounsule (2014): the rimless wheel and the simplest walker."""
    start_jax()
    from .bhounsule import bhounsule

    bhounsule()


@app.command("saltation")
def reproduce_saltation(
    plot: Annotated[Path | None, typer.Option(help="draw the balls of Figs. 1 and 7 to this file")] = None,
):
    """Kong, Payne, Zhu, Johnson (2024): saltation matrices. Equations 51-58 and 70-94, for rigid bodies with contact; Figures 1
    and 7, balls dropped on a slope."""
    check_files(plot)
    start_jax()
    from .saltation import saltation

    saltation(plot=plot)
