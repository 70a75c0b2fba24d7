"""Warnings name the line of the user's code, through however many functions of hyjax it called."""

import inspect
import warnings
from pathlib import Path

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
