"""The end of a command that succeeded."""

import os
import sys

import jax

from .early import is_command


def end_quickly() -> None:
    """End the process of a command without taking down JAX and XLA, which takes half a second. In any other process, and in one
    of several that compute together, do nothing."""
    if is_command(sys.orig_argv) and not jax.distributed.is_initialized():
        sys.stderr.flush()
        os._exit(0)
