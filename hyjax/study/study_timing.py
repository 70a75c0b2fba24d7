"""Durations of several programs, measured in turn so that a slow moment of the machine falls on all of them."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax


def interleaved_durations(
    programs: Sequence[Callable[[], Any]], rounds: int, done: Callable[[int], None], long: float
) -> list[list[float]]:
    """The durations of each program, in seconds, in rounds in each of which every program runs once.

    The programs are compiled already. A program that took longer than `long` seconds in the first round is not run again.
    **Arguments:** `rounds`: how many. `done`: called with 1 after each run of the first round.
    """
    taken: list[list[float]] = [[] for _ in programs]
    for round_ in range(rounds):
        for program, durations in zip(programs, taken, strict=True):
            if round_ and durations[0] > long:
                continue
            begin = time.perf_counter()
            jax.block_until_ready(program())
            durations.append(time.perf_counter() - begin)
            if not round_:
                done(1)
    return taken
