"""How far a long computation is, on the terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str, total: int, done: int, show: bool | None) -> Iterator[Callable[[int], None]]:
    """A function to call with how many more are done. By default it shows something on a terminal only."""
    show = sys.stderr.isatty() if show is None else show
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        show = False
    if not show:
        yield lambda more: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:  # pyright: ignore
        task = bar.add_task(what, total=total, completed=done, rate="")

        def advance(more: int) -> None:
            bar.update(task, advance=more)
            speed = bar.tasks[0].speed
            bar.update(task, rate=f"{speed:.0f}/s" if speed else "")

        yield advance
