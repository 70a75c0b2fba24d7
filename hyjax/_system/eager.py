"""Compilation of a program that a user's call runs by itself: most of the wait for a first result.

On a CPU two of XLA's options halve the time to compile: its older emitters of kernels, and less of LLVM's optimization. JAX takes
options for a whole program only: a call under the user's own `jit`, `grad` or `vmap` is a part of another program.
"""

import functools as ft
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import equinox as eqx
import jax
from jax.extend.core import get_opaque_trace_state, take_current_trace

_P = ParamSpec("_P")
_T = TypeVar("_T")

SHORT = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
LONG = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}


def short_run(fn: Callable[_P, _T]) -> Callable[_P, _T]:
    """`equinox.filter_jit` for a program that takes milliseconds: by itself on a CPU it is compiled without LLVM's optimization.

    A call under a transformation, where an array may be traced, is that of `equinox.filter_jit`.
    """
    return _compiled(fn, SHORT)


def long_run(fn: Callable[_P, _T]) -> Callable[_P, _T]:
    """`short_run` for a program of many strides or lanes: LLVM's first level of optimization keeps most of the run time."""
    return _compiled(fn, LONG)


def _compiled(fn: Callable[_P, _T], options: dict[str, int | bool]) -> Callable[_P, _T]:
    ordinary = eqx.filter_jit(fn)
    # Of the ordinary function, not of `fn`: so JAX traces `fn` once for both.
    alone = eqx.filter_jit(ordinary, compiler_options=options)  # pyright: ignore

    @ft.wraps(fn)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return (alone if runs_alone() else ordinary)(*args, **kwargs)

    return call


def runs_alone() -> bool:
    """Whether a jitted function called here is a program of its own on a CPU, and not a part of a traced one."""
    return get_opaque_trace_state() == _untraced() and jax.default_backend() == "cpu"


@ft.cache
def _untraced():
    # This module may be imported, and this function called, while JAX traces a function of the user.
    with take_current_trace():
        return get_opaque_trace_state()
