"""The process of a command: Ctrl-C ends it in 0.16 s, not after the compilation (100 s); its end saves 0.7 of 4.5 s of CPU.

Python runs signal handlers between two bytecodes of the main thread: not while XLA compiles or computes. And an exception that
unwinds a compilation crashes the process. So a thread waits for the signal and ends the process. Nothing that a command leaves
behind is half written: files are renamed into place when they are complete.

Python imports the package before it calls the command's function: `hyjax/__init__.py` imports this file first, so that Ctrl-C
ends the process already during the imports, which take seconds. In any other process it does nothing.
"""

import os
import pathlib
import signal
import socket
import sys
import threading


class Misuse(Exception):
    """An invalid request: exit status 2."""


class NotFound(Exception):
    """A valid request without a result: exit status 1."""


# What a command would have the user know; set while there is something to know.
_kept: list[str] = []
# Not empty once a thread waits for the signal.
_waiting: list[bool] = []


def keep_in_mind(what: str) -> None:
    """Say `what` when the command is interrupted from now on."""
    _kept[:] = [what]


def end_on_interrupt() -> None:
    """End the process at the first SIGINT; in the main thread, before anything that takes long."""
    if _waiting:
        return
    _waiting.append(True)
    read, write = socket.socketpair()
    write.setblocking(False)
    signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    # With a handler of its own, Python raises no KeyboardInterrupt.
    signal.signal(signal.SIGINT, lambda *_: None)
    threading.Thread(target=_wait, args=(read, write), daemon=True).start()


def _wait(read: socket.socket, write: socket.socket) -> None:
    while signal.SIGINT not in read.recv(64):
        pass
    write.close()
    # After what a progress bar has left on the line.
    sys.stderr.write("\nhyjax: interrupted. " + (_kept[0] if _kept else "Nothing was kept.") + "\n")
    sys.stderr.flush()
    os._exit(130)


def is_command(arguments: list[str]) -> bool:
    """Whether the command line of a process, Python's own first, is `hyjax ...` or `python -m hyjax ...`."""
    for k, each in enumerate(arguments[1:], start=1):
        if each == "-m":
            return arguments[k + 1 : k + 2] == ["hyjax"]
        if each == "-c" or not each.startswith("-"):
            return each != "-c" and pathlib.PurePath(each).name in ("hyjax", "hyjax.exe", "hyjax-script.py")
    return False


if is_command(sys.orig_argv):
    end_on_interrupt()
    # Read where jaxlib is loaded: no messages of XLA, such as that a compilation is slow. Errors reach Python as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def end_quickly() -> None:
    """End the process of a command that succeeded without taking down JAX and XLA. In any other process, and in one of several
    that compute together, do nothing."""
    import jax

    if is_command(sys.orig_argv) and not jax.distributed.is_initialized():
        sys.stderr.flush()
        os._exit(0)


def start_jax() -> str:
    """Configure JAX for a command: float64, quick compilation, compiled programs cached on disk. **Returns:** the directory of
    the cache: `HYJAX_CACHE_DIR`, or the user's cache directory."""
    import jax

    from .._numerics.compilation_cache import enable_cache
    from .._numerics.eager import OLDER_EMITTERS

    # A command spends most of its time on compilation, and with XLA's older emitters this takes a quarter to a third less time.
    # A version of XLA without the flag aborts the process.
    for flag in OLDER_EMITTERS:
        if flag not in os.environ.get("XLA_FLAGS", ""):
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --{flag}=false"
    jax.config.update("jax_enable_x64", True)
    return str(enable_cache())
