"""Independent chunks of a computation, by threads of this process or by the workers of an executor.

A worker, of another process on this machine or another, calls a function of an object, the program, which is sent as bytes with
every call, and which a worker unpacks and compiles once. A call is a pure function of the bytes sent, so that any other worker
returns the same result in place of a lost worker.
"""

import functools as ft
import hashlib
import importlib.metadata
import itertools
import json
import math
import os
import pickle
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np

from .._results.registry import needed, version
from .._results.working import working
from .._system.results import SolveError

# Packages on which the results, or the unpacking of what is sent, depend.
PACKAGES = ("jax", "jaxlib", "equinox", "diffrax", "optimistix", "lineax", "numpy", "cloudpickle")
# Settings of JAX that are in force during a call, each by a context manager of the same name after `jax_`.
_IN_FORCE = ("jax_enable_x64", "jax_numpy_dtype_promotion", "jax_default_matmul_precision")
_CACHE = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)
# So many objects, the last used, stay unpacked in a worker.
_KEPT = 4


def device_kind() -> str:
    """The kind of the devices of this process, as `cpu cpu` or `gpu NVIDIA H100`."""
    device = jax.local_devices()[0]
    return f"{device.platform} {device.device_kind}"


def packed(program: Any) -> tuple[str, bytes]:
    """A header, and the object as bytes: the first arguments of `answer`. `ImportError` without cloudpickle."""
    cloudpickle = needed("cloudpickle", "cluster", "Executors")
    data = cloudpickle.dumps(program)
    header = {
        "versions": _versions(),
        "settings": _read(_IN_FORCE),
        "cache": _read(_CACHE),
        "digest": hashlib.sha256(data).hexdigest(),
    }
    return json.dumps(header), data


def _read(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(jax.config, name) for name in names}


def answer(header: str, program: bytes, call: bytes) -> tuple[str, Any]:
    """In a worker: the result of a call `(function, arguments)`, and the kind of the worker's devices.

    `RuntimeError` where the worker has other versions of packages.
    """
    sent = json.loads(header)
    _require_same_versions(sent["versions"])
    _share_cache(sent["cache"])
    with ExitStack() as settings:
        for name, value in sent["settings"].items():
            settings.enter_context(getattr(jax, name.removeprefix("jax_"))(value))
        function, arguments = pickle.loads(call)
        return device_kind(), function(_unpacked(sent["digest"], program), *arguments)


_programs: OrderedDict[str, Any] = OrderedDict()
_guard = threading.Lock()


def _unpacked(digest: str, data: bytes) -> Any:
    """The object, unpacked and compiled by the first call; the other threads wait for it."""
    with _guard:
        if digest not in _programs:
            program = pickle.loads(data)
            program.compile()
            _programs[digest] = program
            while len(_programs) > _KEPT:
                _programs.popitem(last=False)
        _programs.move_to_end(digest)
        return _programs[digest]


@ft.cache
def _versions() -> dict[str, str]:
    found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}", "hyjax": version()}
    return found | {name: importlib.metadata.version(name) for name in PACKAGES}


def _require_same_versions(sent: dict[str, str]) -> None:
    here = _versions()
    if other := [name for name in sent if here.get(name) != sent[name]]:
        name = other[0]
        raise RuntimeError(
            f"the worker on {socket.gethostname()} has {name} {here.get(name)}, and the process that called it {sent[name]}. "
            "Install the same versions for all workers."
        )


def _share_cache(sent: dict[str, Any]) -> None:
    """Use the caller's directory of compiled programs, unless the worker has one."""
    with _guard:
        directory = _CACHE[0]
        if _read(_CACHE)[directory] is not None or sent[directory] is None:
            return
        from jax.experimental.compilation_cache import compilation_cache

        for name, value in sent.items():
            jax.config.update(name, value)
        # JAX decides at its first compilation whether a cache is used.
        compilation_cache.reset_cache()


# Calls sent and not answered, for each thread of an executor's workers; and in all, where their number is not known. Seconds
# after which the number of threads of a cluster, which may grow, is asked again.
AHEAD, UNKNOWN, ASKED_AGAIN = 2, 256, 10


def threads_here() -> int:
    """The number of threads to call compiled programs from: a CPU device runs as many at once as it has cores."""
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Those who call functions of a program: this process with several threads, or the workers of an executor.

    **Arguments:** `program`: of data that cloudpickle can pack. Its method `compile()` compiles what the functions call: once in
    each worker, before several threads call them. `executor`: any `concurrent.futures.Executor`, `None` for this process with so
    many `threads`. `ValueError` for one that cannot be used.
    """

    def __init__(self, program: Any, executor: Executor | None, threads: int):
        if executor is not None:
            require_usable(executor)
        self.program, self.executor, self.threads = program, executor, threads
        self._packed = None if executor is None else packed(program)

    def compile(self, what: str, progress: bool | None) -> None:
        """Compile in this process, saying `what`, if this process computes. An executor's workers compile when they are first
        called."""
        if self.executor is None:
            with working(what, progress):
                self.program.compile()

    def call(self, function: Callable, *arguments: Any, what: str) -> tuple[Any, str]:
        """The result of one call, and the kind of the device. `ValueError` as in this process; `SolveError` for any other
        failure of a worker."""
        if self.executor is None:
            return function(self.program, *arguments), device_kind()
        try:
            device, value = self._submit(self.executor, function, arguments).result()
        except ValueError:
            raise
        except Exception as error:
            raise _failed(what, error, "") from error
        return value, device

    def each(
        self,
        function: Callable,
        chunks: Iterable[tuple],
        named: Callable[[int], str],
        remedy: str = "",
        device: str | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """The number of each chunk with `function(program, *chunk)`, in the order in which results arrive.

        Chunks are taken only as workers need them. **Arguments:** `named`: the name of a chunk, and `remedy`: what to do, for
        the message of a `SolveError`. `device`: the kind of device on which all are to be computed, by default that of the
        first result.
        """
        if self.executor is None:
            pool = ThreadPoolExecutor(self.threads)
            submit = lambda chunk: pool.submit(function, self.program, *chunk)
            try:
                for i, future in _in_turn(submit, chunks, lambda: self.threads + 1):
                    yield i, future.result()
            finally:
                pool.shutdown(cancel_futures=True)
            return
        executor = self.executor
        submit = lambda chunk: self._submit(executor, function, chunk)
        for i, future in _in_turn(submit, chunks, calls_ahead(executor)):
            try:
                by, value = future.result()
            except Exception as error:
                raise _failed(named(i), error, remedy) from error
            if by != (device := by if device is None else device):
                raise SolveError(
                    f"{named(i)} was computed on another kind of device, {by!r}, than the others, {device!r}. Give an executor "
                    f"whose workers have the same kind of device.{remedy and ' ' + remedy}"
                )
            yield i, value

    def gathered(
        self, function: Callable, chunks: Iterable[tuple], named: Callable[[int], str], advance: Callable[[int], None]
    ) -> dict[str, np.ndarray]:
        """The columns `function(program, *chunk)` of all chunks, joined in the order of the chunks. **Arguments:** `advance`:
        called with the number of rows of each result."""
        parts = {}
        for i, part in self.each(function, chunks, named):
            parts[i] = part
            advance(len(part["result"]))
        return {name: np.concatenate([parts[i][name] for i in range(len(parts))]) for name in parts[0]}

    def _submit(self, executor: Executor, function: Callable, arguments: tuple) -> Future:
        assert self._packed is not None
        try:
            return executor.submit(answer, *self._packed, pickle.dumps((function, arguments)))
        except RuntimeError as error:  # of an executor that is shut down, or whose processes have died
            failed: Future = Future()
            failed.set_exception(error)
            return failed


def calls_ahead(executor: Executor) -> Callable[[], int]:
    """The largest number of calls to be sent and not answered, now. The executor of a Dask client asks the scheduler."""
    if isinstance(count := getattr(executor, "_max_workers", None), int):
        return lambda: AHEAD * count
    threads, known = getattr(getattr(executor, "_client", None), "nthreads", None), {"at": -math.inf, "most": UNKNOWN}
    if threads is None:
        return lambda: UNKNOWN

    def asked() -> int:
        if time.monotonic() > known["at"] + ASKED_AGAIN:
            known.update(at=time.monotonic(), most=max(UNKNOWN, AHEAD * sum(threads().values())))
        return known["most"]

    return asked


def _in_turn(
    submit: Callable[[tuple], Future], chunks: Iterable[tuple], most: Callable[[], int]
) -> Iterator[tuple[int, Future]]:
    """Finished calls with the numbers of their chunks; at most so many calls are submitted and not finished."""
    waiting, running = enumerate(chunks), {}
    try:
        while True:
            running |= {submit(chunk): i for i, chunk in itertools.islice(waiting, max(0, most() - len(running)))}
            if not running:
                return
            done = wait(running, return_when=FIRST_COMPLETED).done
            # Failures last: what was finished together with one is kept.
            for future in sorted(done, key=lambda each: each.cancelled() or each.exception() is not None):
                yield running.pop(future), future
    finally:
        for future in running:
            future.cancel()


def _failed(what: str, error: Exception, remedy: str) -> SolveError:
    said = f"{type(error).__name__}: {error}".rstrip().rstrip(".")
    return SolveError(f"{what}: the workers of the executor did not compute it ({said}).{remedy and ' ' + remedy}")


def require_usable(executor: object) -> None:
    """`ValueError` for what is no executor, or for one whose processes are forked."""
    if not isinstance(executor, Executor):
        raise ValueError(
            f"executor={executor!r} is not a concurrent.futures.Executor. Of a Dask client give client.get_executor()."
        )
    context = getattr(executor, "_mp_context", None)
    if isinstance(executor, ProcessPoolExecutor) and context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "executor: this ProcessPoolExecutor forks its processes, and JAX, whose threads a fork does not copy, may wait for "
            "ever in them. Give ProcessPoolExecutor(n, mp_context=multiprocessing.get_context('spawn'))."
        )
