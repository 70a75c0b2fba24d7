"""A method of an object called in a worker: of another process, on this machine or another.

The object is sent with every call, as bytes, and a worker unpacks and compiles it once. A call is a pure function of the
bytes sent, so that any other worker returns the same result in place of a lost worker.
"""

import functools as ft
import hashlib
import importlib.metadata
import json
import pickle
import socket
import sys
import threading
from collections import OrderedDict
from contextlib import ExitStack
from typing import Any, Protocol, runtime_checkable

import jax

from .._results.extras import needed
from .._results.version import version

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


@runtime_checkable
class Program(Protocol):
    """An object whose methods can be called in a worker: of data that cloudpickle can pack."""

    def compile(self) -> None:
        """Compile what the methods call: once in each worker, before several threads call the methods."""
        ...


def device_kind() -> str:
    """The kind of the devices of this process, as `cpu cpu` or `gpu NVIDIA H100`."""
    device = jax.local_devices()[0]
    return f"{device.platform} {device.device_kind}"


def packed(program: Program) -> tuple[str, bytes]:
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
    """In a worker: the result of a call `(method, arguments)`, and the kind of the worker's devices.

    `RuntimeError` where the worker has other versions of packages.
    """
    sent = json.loads(header)
    _require_same_versions(sent["versions"])
    _share_cache(sent["cache"])
    with ExitStack() as settings:
        for name, value in sent["settings"].items():
            settings.enter_context(getattr(jax, name.removeprefix("jax_"))(value))
        method, arguments = pickle.loads(call)
        return device_kind(), getattr(_unpacked(sent["digest"], program), method)(*arguments)


_programs: OrderedDict[str, Program] = OrderedDict()
_guard = threading.Lock()


def _unpacked(digest: str, data: bytes) -> Program:
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
