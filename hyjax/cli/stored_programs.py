"""Compiled programs stored on disk, so that a new process neither traces nor lowers nor compiles them again.

JAX's own cache stores compiled programs, but finds a program only after tracing, and tracing the search for orbits takes as long
as everything else in the command. A stored program is what `jax.experimental.serialize_executable` makes of it, in a file named
by a digest of all that the program depends on, the processor included. The file begins with a checksum: XLA may crash the process
on a damaged program.
"""

import dataclasses
import functools
import hashlib
import os
import pickle
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax.experimental import serialize_executable
from jaxtyping import PyTree

from .._numerics.compilation_cache import without_cache
from .._orbit.orbit import PeriodicOrbit
from .._orbit.search import Batch, solve_batch
from .._system.results import code_of

# Bytes of the checksum, SHA-256.
_CHECKSUM = 32


def stored_solver(
    directory: str, name: str, say: Callable[[str], None] = lambda what: None
) -> Callable[..., PeriodicOrbit]:
    """`solve_batch` as a program stored in `directory`, for the model of that name.

    The model must be part of hyjax: the digest in the file's name covers the source of hyjax only.

    **Arguments:** `say`: called with what is being done.
    """

    programs: dict[Path, tuple[Callable, PyTree]] = {}

    def solve(batch: Batch, guesses, limits) -> PeriodicOrbit:
        inputs = jax.tree.leaves((batch.params, guesses, limits))
        kind = [(np.shape(leaf), str(jnp.result_type(leaf))) for leaf in inputs]
        along, by = (batch.problem.sequence, batch.problem.strides), (repr(batch.method), repr(batch.integrator))
        about = (name, *along, *by, kind, _machine())
        path = Path(directory) / f"program-{_fingerprint(repr(about))}"
        if path not in programs:
            program = _read(path)
            if program is None:
                say("tracing the search for periodic orbits")
            lowered = _lower(batch, guesses, limits, inputs) if program is None else None
            say("compiling the search for periodic orbits")
            if lowered is not None:
                program = _compile(lowered)
                _write(path, pickle.dumps(serialize_executable.serialize(program)))
            assert program is not None
            programs[path] = program, _structure(batch)
            say("searching for periodic orbits")
        program, structure = programs[path]
        return jax.tree.unflatten(structure, program(*inputs))

    return solve


def _lower(batch: Batch, guesses, limits, inputs: list) -> jax.stages.Lowered:
    tree = jax.tree.structure((batch.params, guesses, limits))

    def flat(*leaves) -> list:
        params, guesses, limits = jax.tree.unflatten(tree, leaves)
        return jax.tree.leaves(
            eqx.filter(solve_batch(dataclasses.replace(batch, params=params), guesses, limits), eqx.is_array)
        )

    return jax.jit(flat).lower(*inputs)


def _compile(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    # Of a program that JAX has read from its own cache, XLA serializes a part only (jaxlib 0.10: "Function ... not found").
    with without_cache():
        return lowered.compile()


def _structure(batch: Batch) -> PyTree:
    """The PyTree structure of the result of `solve_batch`."""
    problem = batch.problem

    def example() -> PeriodicOrbit:
        number, vector, matrix = jnp.zeros(()), jnp.zeros(1), jnp.zeros((1, 1))
        return PeriodicOrbit(
            x=vector, period=number, multipliers=jax.lax.complex(vector, vector), return_jacobian=matrix, residual=number,
            guard_rates=vector, nodes=matrix, start_times=vector, before=matrix,
            arc_ends=(matrix,) * len(problem.sequence), jump_times=matrix, iterations=jnp.array(0), distance=number,
            result=code_of(0), params=batch.params,
            system=problem.system, sequence=problem.sequence, strides=problem.strides, integrator=batch.integrator,
        )  # fmt: skip

    # By `eval_shape`: each operation on concrete numbers would load another compiled program.
    return jax.tree.structure(jax.eval_shape(example))


@functools.cache
def _fingerprint(about: str) -> str:
    """A digest of the text `about`, the source of hyjax, and the versions of JAX, jaxlib and equinox."""
    digest = hashlib.sha256(about.encode())
    for package in (jax, jaxlib, eqx):
        digest.update(package.__version__.encode())
    for path in sorted(Path(__file__).parent.parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


@functools.cache
def _machine() -> tuple[str, ...]:
    """The properties of a machine that its code depends on: the device, XLA's flags, and the processor. A home directory may
    serve several machines."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    features = {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    return (jax.devices()[0].device_kind, os.environ.get("XLA_FLAGS", ""), platform.machine(), *sorted(features))


def _read(path: Path) -> Callable | None:
    """The program in a file, `None` for a file that is missing, differs from its checksum, or is not accepted by JAX."""
    if (stored := read_whole(path)) is None:
        return None
    load = lambda: serialize_executable.deserialize_and_load(*pickle.loads(stored))
    with ThreadPoolExecutor(1) as other:
        loading = other.submit(load)
        # Lowering one of LAPACK's functions tells XLA where all of them are: without, a program that calls one crashes the
        # process. This imports a part of SciPy, while the program is linked.
        jax.jit(jnp.linalg.eigvals).lower(jax.ShapeDtypeStruct((1, 1), float))
    try:
        return loading.result()
    except (jax.errors.JaxRuntimeError, pickle.UnpicklingError, EOFError, TypeError, ValueError):
        return None


def read_whole(path: Path) -> bytes | None:
    """The bytes of a file, `None` for a file that is missing or differs from its checksum."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    checksum, program = data[:_CHECKSUM], data[_CHECKSUM:]
    return program if hashlib.sha256(program).digest() == checksum else None


def _write(path: Path, program: bytes) -> None:
    """Write a program atomically, after its checksum. A failure is ignored: without the file, the next process compiles again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{id(program)}.part")
        part.write_bytes(hashlib.sha256(program).digest() + program)
        part.replace(path)
    except OSError:
        pass
