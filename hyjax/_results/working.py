"""What is said on stderr: what is being done, while nothing else is printed; the progress of a long computation; and warnings,
which name the line of the user's code, through however many functions of hyjax it called."""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def working(what: str, show: bool | None = None) -> Iterator[Callable[[str], None]]:
    """A spinner with the text `what` on stderr, removed at the end; yields a function that replaces the text.

    Within another `working` the text follows that of the outer one, which returns at the end.

    **Arguments:** `show`: by default (`None`) only on a terminal.
    """
    if _spinners:
        update, outer = _spinners[-1]
        with _within(update, outer, what) as say:
            yield say
        return
    console = _console_on_stderr(show)
    if console is None:
        yield lambda what: None
        return
    with console.status(what) as status, _within(status.update, "", what) as say:
        yield say


_spinners: list[tuple[Callable[[str], None], str]] = []  # the text of each and how to replace it, the innermost last


@contextmanager
def _within(update: Callable[[str], None], outer: str, what: str) -> Iterator[Callable[[str], None]]:
    def say(what: str) -> None:
        _spinners[-1] = update, ": ".join(filter(None, (outer, what)))
        update(_spinners[-1][1])

    _spinners.append((update, ""))
    say(what)
    try:
        yield say
    finally:
        _spinners.pop()
        update(outer)


@contextmanager
def progress_bar(what: str, total: int, done: int, show: bool | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; yields `advance(more)`. By default (`show=None`) only on a terminal.

    **Arguments:** `total`, `done`: items in all, and items already done.
    """
    console = _console_on_stderr(show)
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


def _console_on_stderr(show: bool | None) -> "Console | None":
    """A console of rich; `None` where nothing is to be shown: by default (`show=None`) unless stderr is a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        return None
    from rich.console import Console

    return Console(stderr=True)


_PACKAGE = str(Path(__file__).parent.parent)


def warn(message: str) -> None:
    """A `UserWarning` at the line that called hyjax: Python attributes it to that line's module, and shows it once for each.

    Between two functions of hyjax there may be those of decorators: the outermost frame of the package counts.
    """
    frame, level, caller = inspect.currentframe(), 0, 2
    while frame is not None:
        level += 1
        if frame.f_code.co_filename.startswith(_PACKAGE):
            caller = level + 1
        frame = frame.f_back
    warnings.warn(message, stacklevel=caller)
