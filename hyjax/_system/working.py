"""A line that says what is being done, while nothing else is printed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def working(what: str, show: bool | None = None) -> Iterator[Callable[[str], None]]:
    """A spinner with the text `what` on stderr, removed at the end; yields a function that replaces the text.

    **Arguments:** `show`: by default (`None`) only on a terminal. Without rich nothing is shown.
    """
    console = console_on_stderr(show)
    if console is None:
        yield lambda what: None
        return
    with console.status(what) as status:
        yield status.update


def console_on_stderr(show: bool | None) -> "Console | None":
    """A console of rich, or `None` where nothing is to be shown: by default (`show=None`) unless stderr is a terminal, and always
    without rich."""
    if not (sys.stderr.isatty() if show is None else show):
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(stderr=True)
