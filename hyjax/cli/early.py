"""In the process of the command line, Ctrl-C ends the process at once already while hyjax is imported, which takes seconds; XLA
does not print its own messages, such as that a compilation is slow and could be reported as a bug; garbage is collected less
often; and OpenBLAS has one thread.

Python imports the package before it calls the command's function: `hyjax/__init__.py` imports this file first. In any other
process it does nothing.
"""

import gc
import os
import pathlib
import sys


def is_command(arguments: list[str]) -> bool:
    """Whether the command line of a process, Python's own first, is `hyjax ...` or `python -m hyjax ...`."""
    for k, each in enumerate(arguments[1:], start=1):
        if each == "-m":
            return arguments[k + 1 : k + 2] == ["hyjax"]
        if each == "-c" or not each.startswith("-"):
            return each != "-c" and pathlib.PurePath(each).name in ("hyjax", "hyjax.exe", "hyjax-script.py")
    return False


if is_command(sys.orig_argv):
    from .interrupt import end_on_interrupt

    end_on_interrupt()
    # Read where jaxlib is loaded. Errors reach Python as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # hyjax leaves no work to OpenBLAS's threads (of NumPy and SciPy), and idle ones take time from the cores of XLA.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Modules and traced programs live as long as the process: a collector of garbage that walks them again and again takes an
    # eighth of the time of importing and tracing.
    gc.set_threshold(100_000, 50, 100)
