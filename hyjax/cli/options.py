"""Arguments and options shared by several commands, and the workers of `--scheduler`."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from .arguments import Misuse, NotFound

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="name of a model, as hyjax models lists them; a Python file and its system, as wheel.py:system; or a robot's file "
        "and its feet, as robot.xml:left,right",
    ),
]
Param = Annotated[list[str] | None, typer.Option(help="name=value; angles in rad, or as 3deg")]
OtherParam = Annotated[
    list[str] | None, typer.Option(help="name=value of another parameter; angles in rad, or as 3deg")
]
Sequence = Annotated[
    str | None,
    typer.Option(
        help="sequence of modes, as first,second, or of sets of contacts, as heel:stick+toe:open,...; default: the model's"
    ),
]
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
Scheduler = Annotated[
    str | None, typer.Option(help="address of a Dask scheduler, as tcp://host:8786, whose workers compute the chunks")
]
# Seconds to wait for the scheduler's answer.
TIMEOUT = 20


def require_dask(scheduler: str | None) -> None:
    """`Misuse` where a scheduler is given and Dask is not installed."""
    if scheduler is None:
        return
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise Misuse("--scheduler needs Dask: pip install 'hyjax-dynamics[cluster]'.") from None


@contextmanager
def workers_of(scheduler: str | None) -> Iterator[Executor | None]:
    """The executor of the cluster at this address; `None` for this process. `NotFound` where no scheduler answers, or the workers
    fail."""
    if scheduler is None:
        yield None
        return
    from distributed import Client

    from .._system.results import SolveError

    try:
        client = Client(scheduler, timeout=TIMEOUT)
    except (OSError, ValueError) as error:
        raise NotFound(
            f"--scheduler {scheduler}: no Dask scheduler answers ({error}). Start one with `dask scheduler`, and workers with "
            "`dask worker`; they print the address."
        ) from None
    with client:
        try:
            yield client.get_executor()
        except SolveError as error:
            raise NotFound(str(error)) from None
