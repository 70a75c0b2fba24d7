"""The error of a computation that failed: one message for all lanes of a batch, raised as soon as the codes are known."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, TYPE_CHECKING, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._numerics.trees import without_tangents
from .._system.results import code_of, described_code, RESULTS, SolveError
from .shown import is_traced

if TYPE_CHECKING:
    import xarray

Result = TypeVar("Result")

# The most lanes that a message describes.
_SHOWN = 5
_REMEDY = "With throw=False the result is returned, with the code in `result`."


_codes_only = contextvars.ContextVar("codes_only", default=False)


@contextlib.contextmanager
def codes_only() -> Iterator[None]:
    """No error of `raise_failure`: for a function of the user, such as a recorded quantity, of which other lanes go on."""
    token = _codes_only.set(True)
    try:
        yield
    finally:
        _codes_only.reset(token)


def raise_failure(
    name: str,
    found: Result,
    result: RESULTS | None = None,
    about: PyTree = (),
    describe: Callable[[Any], str] | None = None,
    remedy: str = _REMEDY,
) -> Result:
    """What was found, if it succeeded in all lanes of a batch; otherwise `SolveError`, also under `vmap` alone. Under `jit`, and
    under `grad`, equinox's runtime error with the code.

    **Arguments:** `name`: of the public function. `found`: what it returns. `result`: its code; by default that of `found`.
    `about`: arrays of each lane, and `describe` a line about them for the message, given the values of one lane. `remedy`: the
    last line of the message.
    """
    if _codes_only.get():
        return found
    result = found.result if result is None else result  # pyright: ignore[reportAttributeAccessIssue]
    codes, checked = result._value, False

    def look(codes, about):
        nonlocal checked
        if is_traced(codes):
            return _of_all_lanes(look)(codes, about)
        checked = True
        if np.any(np.asarray(codes) != RESULTS.successful._value):
            known = None if describe is None or is_traced(about) else jax.tree.map(np.asarray, about)
            raise SolveError(
                message(name, np.asarray(codes), known, describe, remedy), codes, None if is_traced(found) else found
            )
        return codes

    # Without tangents: JAX's rule of the derivative of a `custom_vmap` function would call `look` once more, without end.
    look(*without_tangents((codes, about)))
    return found if checked else result.error_if(found, result != RESULTS.successful)


def raise_if_none(name: str, found: "xarray.Dataset") -> "xarray.Dataset":
    """The dataset of a grid of lanes, some of which may have failed; `SolveError` where all of them did."""
    codes = np.asarray(found["result"])
    if np.any(codes == RESULTS.successful._value):
        return found
    numbers, counts = np.unique(codes, return_counts=True)
    lines = [
        f"  {count} of {codes.size} lanes: {described_code(code_of(int(number)))}"
        for number, count in zip(numbers, counts, strict=True)
    ]
    raise SolveError("\n".join([f"{name}: no lane succeeded.", *lines, _REMEDY]), codes, found)


def _of_all_lanes(look):
    """`look` at the lanes of a batch together, where `vmap` takes them."""

    @jax.custom_batching.custom_vmap
    def at_lanes(codes, about):
        return codes

    @at_lanes.def_vmap
    def _(size, batched, *given):
        lanes = jax.tree.map(
            lambda leaf, has: leaf if has else jnp.broadcast_to(leaf, (size, *jnp.shape(leaf))), given, tuple(batched)
        )
        return look(*lanes), True

    return at_lanes


def message(name: str, codes: np.ndarray, about: PyTree, describe: Callable[[Any], str] | None, remedy: str) -> str:
    """What failed, lane by lane, with the code and its meaning, and the remedy."""
    failed = [tuple(int(i) for i in lane) for lane in np.argwhere(codes != RESULTS.successful._value)]
    lines = [f"{name} failed in {len(failed)} of {codes.size} lanes."] if codes.ndim else []
    for lane in failed[:_SHOWN]:
        where = f"  lane {', '.join(map(str, lane))}" if lane else name
        lines.append(f"{where}: {described_code(code_of(int(codes[lane])))}")
        if describe is not None and about is not None:
            lines.append(f"    {describe(jax.tree.map(lambda leaf: leaf[lane], about))}")  # noqa: B023
    if len(failed) > _SHOWN:
        lines.append(f"  ... and {len(failed) - _SHOWN} more")
    return "\n".join([*lines, remedy])
