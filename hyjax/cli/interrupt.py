"""Ctrl-C: a command ends at once, with exit status 130 and a line that says what was kept.

Python runs signal handlers between two bytecodes of the main thread: not while XLA compiles or computes, which takes minutes. And
an exception that unwinds a compilation crashes the process. So a thread waits for the signal and ends the process. Nothing that a
command leaves behind is half written: files are renamed into place when they are complete.
"""

import os
import signal
import socket
import sys
import threading

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
