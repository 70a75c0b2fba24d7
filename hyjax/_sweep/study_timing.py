"""Durations of several programs, measured in turn so that a slow moment of the machine falls on all of them."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

LONG = 0.3


def interleaved_seconds(programs: Sequence[Callable[[], Any]], rounds: int, done: Callable[[int], None]) -> np.ndarray:
    """The median duration of each program, in seconds, over rounds in each of which every program runs once.

    The programs are compiled already. A program that took longer than `LONG` seconds in the first round is not run again.
    **Arguments:** `rounds`: how many. `done`: called with 1 after each run of the first round.
    """
    taken: list[list[float]] = [[] for _ in programs]
    for round_ in range(rounds):
        for program, durations in zip(programs, taken, strict=True):
            if round_ and durations[0] > LONG:
                continue
            begin = time.perf_counter()
            jax.block_until_ready(program())
            durations.append(time.perf_counter() - begin)
            if not round_:
                done(1)
    return np.array([np.median(durations) for durations in taken])
