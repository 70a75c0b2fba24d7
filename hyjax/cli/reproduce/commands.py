"""The commands `reproduce bhounsule` and `reproduce saltation`."""

import typer

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
def reproduce_saltation():
    """Kong, Payne, Zhu, Johnson (2024): saltation matrices. Equations 51-58 and 70-94, for rigid bodies with contact."""
    start_jax()
    from .saltation import saltation

    saltation()
