"""A line that says what is being done, while nothing else is printed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def working(what: str, show: bool | None = None) -> Iterator[Callable[[str], None]]:
    """A spinner with the text `what` on stderr, removed at the end; yields a function that replaces the text.

    **Arguments:** `show`: by default (`None`) only on a terminal. Without rich nothing is shown.
    """
    show = sys.stderr.isatty() if show is None else show
    try:
        from rich.console import Console
    except ImportError:
        show = False
    if not show:
        yield lambda what: None
        return
    with Console(stderr=True).status(what) as status:  # pyright: ignore
        yield status.update
