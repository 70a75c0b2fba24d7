"""The option `--scheduler`: chunks computed by the workers of a Dask cluster."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Annotated

import typer

from .arguments import Misuse, NotFound

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

    from .._sweep.workers import ExecutorError

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
        except ExecutorError as error:
            raise NotFound(str(error)) from None
