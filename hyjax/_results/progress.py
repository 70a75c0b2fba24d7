"""A progress bar for a long computation."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .working import console_on_stderr


@contextmanager
def progress_bar(what: str, total: int, done: int, show: bool | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; yields `advance(more)`. By default (`show=None`) only on a terminal.

    **Arguments:** `total`, `done`: items in all, and items already done.
    """
    console = console_on_stderr(show)
    if console is None:
        yield lambda more: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(what, total=total, completed=done, rate="")

        def advance(more: int) -> None:
            bar.update(task, advance=more)
            speed = bar.tasks[0].speed
            bar.update(task, rate=f"{speed:.0f}/s" if speed else "")

        yield advance
