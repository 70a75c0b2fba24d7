"""A record of the solver's steps, kept by the loop."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import PyTree


class Watch(NamedTuple):
    """A record of the steps of `loop.run`, which has no derivatives.

    **Attributes:** `seen`: the record before the first step, arrays. `update(course, before, attempt, after)`: the record after
    one more trial step, from the loop's constants, the `Progress` before the trial, the `Attempt`, and the `Progress` after it;
    `before.seen` is the record before it. The step was taken where `after.last.t + after.last.late` is later than before.
    """

    update: Callable[..., PyTree]
    seen: PyTree
