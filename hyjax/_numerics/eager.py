"""Compilation of a program that a user's call runs by itself: most of the wait for a first result.

On a CPU two of XLA's options halve the time to compile: less of LLVM's optimization, and in jaxlib 0.10 XLA's older emitters of
kernels. JAX takes options for a whole program only: a call under the user's own `jit`, `grad` or `vmap` is a part of another
program, and `grad` and `jacrev` raise an error for a call with options. So the call looks whether JAX traces.
"""

import enum
import functools as ft
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.core
from jax.extend.core import get_opaque_trace_state, set_current_trace, take_current_trace
from jaxtyping import PyTree

from .one_kernel import of_one_kernel

_P = ParamSpec("_P")
_T = TypeVar("_T")

# From jaxlib 0.11 on XLA has one generation of emitters, and refuses the option.
OLDER_EMITTERS = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}
SHORT = {"xla_backend_optimization_level": 0} | OLDER_EMITTERS
LONG = {"xla_backend_optimization_level": 1} | OLDER_EMITTERS
# In jaxlib 0.10 sums over arrays of many lanes are calls of a library, YNNPACK, five times as slow as XLA's own loops: for the
# second derivatives of a robot's accelerations at 350 states, 870 and 180 ms (no issue known upstream).
OWN_SUMS = {"xla_cpu_experimental_ynn_fusion_type": ""} if jax.__version_info__[:2] == (0, 10) else {}
# A batch of fewer lanes, of a stride or a few each, takes longer to compile than to run.
FEW = 4096


class Purpose(enum.Enum):
    """What programs on a CPU are compiled for; see {py:func}`hyjax.fast.compile_for`.

    **Attributes:** `by_size`: the program of one result, or of a batch of fewer than 4096, compiles fast; that of a larger batch
    runs fast. `first_result`: all compile fast. `run_time`: all run fast.

    **Example:**

    >>> [purpose.name for purpose in hj.fast.Purpose]
    ['by_size', 'first_result', 'run_time']

    Source: XLA documentation, *XLA Flags Guidance*.
    """

    by_size = enum.auto()
    first_result = enum.auto()
    run_time = enum.auto()


_setting = {"purpose": Purpose.by_size}


def compile_for(purpose: Purpose) -> AbstractContextManager:
    r"""Choose whether calls outside of `jax.jit` run programs that compile fast, or programs that run fast, on a CPU.

    By default a call by itself, such as of `periodic_orbit`, compiles in half the time of `jax.jit`, into a program that takes 1
    to 2.5 times as long for one orbit; a sweep, basin or attractor of 4096 lanes or strides or more runs fast. No setting of JAX
    changes, and no program of a call under `jax.jit` or `jax.vmap`; nor under `jax.grad`, but for the gradient of
    `periodic_orbit`, whose search and pullback are programs of their own. Results of the two programs differ by rounding.

    **Arguments:** `purpose`: a `Purpose`: `by_size`, the default; `first_result`; or `run_time`. With `by_size`, an optimization
    level that the environment's `XLA_FLAGS` names is the level of all programs. `ValueError` for anything else.

    **Returns:** a context manager, at whose end the setting is again that before. Without `with`, the setting holds from the call
    on, in all threads.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> with hj.fast.compile_for(hj.fast.Purpose.run_time):
    ...     orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    ...
    >>> print(f"{orbit.period:.6f}")
    2.310015

    Source: XLA documentation, *XLA Flags Guidance*.
    """
    if not isinstance(purpose, Purpose):
        names = ", ".join(f"hj.fast.Purpose.{name}" for name in Purpose.__members__)
        raise ValueError(f"compile_for: purpose={purpose!r} must be one of {names}.")
    back = ExitStack()
    back.callback(_setting.update, purpose=_setting["purpose"])
    _setting["purpose"] = purpose
    return back


def short_run(fn: Callable[_P, _T]) -> Callable[_P, _T]:
    """`equinox.filter_jit` for a program that takes milliseconds: by itself on a CPU it is compiled without LLVM's optimization.

    A call under a transformation, where an array may be traced, is that of `equinox.filter_jit`.
    """
    return _compiled(fn, SHORT)


def long_run(fn: Callable[_P, _T]) -> Callable[_P, _T]:
    """`short_run` for a program of many strides or lanes: LLVM's first level of optimization keeps most of the run time."""
    return _compiled(fn, LONG)


def dense_run(fn: Callable[_P, _T]) -> Callable[_P, _T]:
    """`long_run` for a program of large arrays, whose sums are XLA's own."""
    return _compiled(fn, {**LONG, **OWN_SUMS})


def compiles_fast(lanes: int) -> bool:
    """Whether the program of a batch is one of `long_run`. **Arguments:** `lanes`: the number of strides or lanes in all."""
    return {Purpose.by_size: lanes < FEW, Purpose.first_result: True, Purpose.run_time: False}[_setting["purpose"]]


def _compiled(fn: Callable[_P, _T], options: Mapping[str, int | bool | str]) -> Callable[_P, _T]:
    ordinary = of_one_kernel(eqx.filter_jit(fn))
    # Of the ordinary function, not of `fn`: so JAX traces `fn` once for all.
    alone, optimized = eqx.filter_jit(ordinary, compiler_options=options), eqx.filter_jit(ordinary)  # pyright: ignore

    @ft.wraps(fn)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return (alone if takes_options() else optimized if untransformed() else ordinary)(*args, **kwargs)

    return call


def known_values(tree: PyTree) -> PyTree | None:
    """The tree with the numbers of its traced arrays, under a `grad` or `vjp` that is under no other transformation of JAX.

    `None` elsewhere, and where JAX (0.10) has changed the attributes of its tracers that are looked at.
    """
    with take_current_trace() as trace:
        pass
    if not (getattr(trace, "is_vjp", False) and hasattr(trace, "parent_trace")):
        return None
    with set_current_trace(trace.parent_trace):
        if not takes_options():
            return None
    number = lambda leaf: leaf.primal if getattr(leaf, "_trace", None) is trace else leaf
    return jax.tree.map(number, tree)


def takes_options() -> bool:
    """Whether a jitted function called here is a program of its own on a CPU, which is to compile fast."""
    purpose = _setting["purpose"]
    if purpose is Purpose.run_time or (purpose is Purpose.by_size and _level_is_given()):
        return False
    return untransformed() and jax.default_backend() == "cpu"


def untransformed() -> bool:
    """Whether no transformation of JAX is under way, such as `jit` or `vmap`."""
    return get_opaque_trace_state() == _untraced()


@ft.cache
def _level_is_given() -> bool:
    # XLA reads the variable once, at its start.
    return "xla_backend_optimization_level" in os.environ.get("XLA_FLAGS", "")


@ft.cache
def _untraced():
    # This module may be imported, and this function called, while JAX traces a function of the user.
    with jax.core.eval_context():
        return get_opaque_trace_state()
