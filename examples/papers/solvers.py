"""The study of Dallas, Machairas, Papadopoulos (2017): seven solvers for a hopper that is stiff in stance and not in flight.

python examples/papers/solvers.py [--out study.nc [--resume]] [--plot work.png] [--plot-points ranks.png]
"""

import argparse
from pathlib import Path

import diffrax as dfx
import numpy as np
import xarray
from rich.console import Console
from rich.table import Table
from session import options, picture, save_figure
from solver_remarks import agreement_table, cheapest_table, remarks
from solver_tables import SOLVERS, TABLE_3, TABLE_4, TABLE_5, TOLERANCES

import hyjax as hj
from hyjax.models import monopod_hopper
from hyjax.plot import points_figure, work_precision_figure

METHODS = {
    "ode15s": hj.solvers.NDF(),
    "ode45": dfx.Dopri5(),
    "ode23s": hj.solvers.Rosenbrock23(),
    "ode113": hj.solvers.AdamsPECE(),
    "ode23tb": hj.solvers.TRBDF2(),
    "ode23t": hj.solvers.Trapezoidal(),
    "ode23": dfx.Bosh3(),
}
# The source's threshold of eq. 32 at each tolerance, and the height below which eq. 32 is not evaluated.
THRESHOLDS, NEAR_ZERO = {1e-3: 0.05, 1e-6: 0.01, 1e-9: 0.01}, 0.05
END = 50.0
# A table is as wide as the longest title, which then takes one line.
TITLE = 88


def solvers(
    out: Path | None, parts: list[xarray.Dataset], plot: Path | None = None, plot_points: Path | None = None
) -> None:
    """Run the study and print Tables 3 to 5 beside ours.

    **Arguments:** `out`: netCDF file of the study, written after each tolerance. `parts`: the studies of tolerances that are
    known. `plot`, `plot_points`: pictures of the runs and of the ranks.
    """
    console = Console(width=132)
    study = _study(out, parts)
    ours = hj.study.solver_points(study)
    for strategy, printed, title in (
        ("combined", TABLE_3, "Table 3: points, transitions by one vector field with if ... else"),
        ("events", TABLE_4, "Table 4: points, transitions by located events"),
    ):
        for tolerance in TOLERANCES:
            here = ours.sel(strategy=strategy, rtol=tolerance)
            console.print(_points_table(f"{title}, tolerance {tolerance:g}", printed[tolerance], here))
    console.print(_weighted_table(ours.sel(strategy="combined", rtol=1e-6)))
    for table in (agreement_table(ours), cheapest_table(study)):
        console.print()
        console.print(table)
    failed = int(np.sum(study.result.values != 0))
    console.print(f"\n{study.result.size} runs, {failed} of which failed.")
    for line in remarks(study, ours):
        console.print(f"- {line}", highlight=False, markup=False, soft_wrap=True)
    save_figure(plot, lambda: work_precision_figure(study, strategies=["events"]))
    save_figure(plot_points, lambda: points_figure(ours))


def _study(out: Path | None, parts: list[xarray.Dataset]) -> xarray.Dataset:
    """The study, tolerance by tolerance: only runs of the same tolerance are compared, so only these need be interleaved."""
    parts = list(parts)
    known = [float(part.rtol[0]) for part in parts]
    for tolerance in TOLERANCES:
        if tolerance not in known:
            parts.append(_at(tolerance))
        if out is not None:
            whole = _joined(parts)
            unfinished = out.with_name(f"{out.stem}.part.nc")
            whole.to_netcdf(unfinished, engine="scipy")
            unfinished.replace(out)
    return _joined(parts)


def _stored(path: Path) -> list[xarray.Dataset]:
    """The studies of the tolerances that a file has. `ValueError` for a file that this script, in this version of hyjax,
    did not write."""
    done = xarray.load_dataset(path)
    if done.attrs.get("hyjax_version") != hj.__version__:
        raise ValueError(
            f"{path}: not a study that hyjax {hj.__version__} wrote, so it cannot be resumed. Give another path."
        )
    return [done.isel(rtol=[i]) for i in range(done.sizes["rtol"])]


def _joined(parts: list[xarray.Dataset]) -> xarray.Dataset:
    """Studies of several tolerances as one."""
    return xarray.concat(parts, "rtol", data_vars="minimal", coords="minimal", compat="override")


def _at(tolerance: float) -> xarray.Dataset:
    sets = [monopod_hopper.table_2(number) for number in range(1, 14)]
    mode, x0 = monopod_hopper.start(sets[0])
    return hj.study.solver_study(
        monopod_hopper.system, x0, sets, mode=mode, t1=END, solvers=METHODS, tolerances=[tolerance], of="toe",
        # Above the ground the force is zero: the vector field of stance holds in flight too.
        combined=monopod_hopper.stand, divergence=THRESHOLDS[tolerance], near_zero=NEAR_ZERO,
    )  # fmt: skip


def _points_table(title: str, printed: tuple[tuple[float, float, float], ...], ours: xarray.Dataset) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, min_width=TITLE)
    table.add_column("", no_wrap=True)
    for column in ("SD paper", "seconds", "evaluations", "DT paper", "DT", "IAE paper", "IAE"):
        table.add_column(column, justify="right", no_wrap=True)
    for solver, (duration, divergence, error) in zip(SOLVERS, printed, strict=True):
        mine = {name: float(values) for name, values in ours.sel(solver=solver).data_vars.items()}
        numbers = (
            duration, mine["seconds"], mine["evaluations"], divergence, mine["divergence_time"], error,
            mine["integral_of_error"],
        )  # fmt: skip
        table.add_row(solver, *(f"{number:.2f}" for number in numbers))
    return table


def _weighted_table(ours: xarray.Dataset) -> Table:
    title = "Table 5: 2 SD + IAE, tolerance 1e-06, if ... else"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, min_width=TITLE)
    table.add_column("", no_wrap=True)
    for column in ("paper", "by seconds", "by evaluations"):
        table.add_column(column, justify="right", no_wrap=True)
    for solver, paper in zip(SOLVERS, TABLE_5, strict=True):
        mine = ours.sel(solver=solver)
        weighted = (float(2 * mine[cost] + mine.integral_of_error) for cost in ("seconds", "evaluations"))
        table.add_row(solver, *(f"{number:.2f}" for number in (paper, *weighted)))
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the study to this netCDF file, as study.nc")
    parser.add_argument("--resume", action="store_true", help="keep the tolerances that the file has already")
    parser.add_argument("--plot", type=picture, help="draw work against precision to this file")
    parser.add_argument("--plot-points", type=picture, help="draw the ranks of the solvers to this file")
    given = options(parser, arguments)
    out, parts = given.out, []
    if given.resume and out is None:
        parser.error("--resume needs the file: give --out.")
    if out is not None and out.suffix != ".nc":
        parser.error(f"{out}: the format is netCDF; give a path with the suffix .nc.")
    if out is not None and out.exists():
        if not given.resume:
            parser.error(f"{out}: the file exists already. Give --resume to go on with it, or another path.")
        try:
            parts = _stored(out)
        except (ValueError, OSError) as error:
            parser.error(str(error))
    solvers(out, parts, given.plot, given.plot_points)


if __name__ == "__main__":
    main()
