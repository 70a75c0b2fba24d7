"""The commands `reproduce bhounsule`, `reproduce orbitador`, `reproduce saltation` and `reproduce solvers`."""

from pathlib import Path
from typing import Annotated

import typer

from ..arguments import Misuse
from ..files import check_files
from ..options import Json
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


@app.command("orbitador")
def reproduce_orbitador(
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="draw the tube of phi_1 and the radii to this file")] = None,
):
    """ORBITADOR's biped: the tube of Euler's method, its numbers, and why they prove no limit cycle."""
    check_files(plot)
    start_jax()
    from .orbitador import orbitador

    orbitador(as_json, plot)


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


@app.command("solvers")
def reproduce_solvers(
    out: Annotated[Path | None, typer.Option(help="write the study to this netCDF file, as study.nc")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="keep the tolerances that the file has already")] = False,
    plot: Annotated[Path | None, typer.Option(help="draw work against precision to this file")] = None,
    plot_points: Annotated[Path | None, typer.Option(help="draw the ranks of the solvers to this file")] = None,
):
    """Dallas, Machairas, Papadopoulos (2017): seven solvers for a hopper that is stiff in stance. Tables 3 to 5."""
    if resume and out is None:
        raise Misuse("--resume needs the file: give --out.")
    check_files(plot, out=out, overwrite=resume)
    check_files(plot_points, overwrite=resume)
    start_jax()
    from .solvers import solvers

    solvers(out, resume, plot, plot_points)
