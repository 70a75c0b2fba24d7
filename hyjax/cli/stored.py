"""Traced programs stored on disk, so that a new process does not trace them again.

JAX's own cache stores compiled programs, but finds a program only after tracing, and tracing the search for orbits takes as long
as everything else in the command. A stored program is a file of `jax.export`, named by a digest of all that it depends on. The
file begins with a checksum: XLA may crash the process on a damaged program.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._orbit.orbit import PeriodicOrbit
from .._orbit.search import solve_batch
from .._orbit.search_batch import Batch
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
        about = (
            name,
            batch.sequence,
            batch.strides,
            repr(batch.method),
            repr(batch.integrator),
            kind,
            jax.default_backend(),
        )
        path = Path(directory) / f"program-{_fingerprint(repr(about))}"
        if path not in programs:
            if (stored := read_whole(path)) is not None:
                program = jax.export.deserialize(bytearray(stored))
            else:
                say("tracing the search for periodic orbits")
                program = _export(batch, guesses, limits, inputs)
                _write(path, bytes(program.serialize()))
            say("compiling the search for periodic orbits")
            programs[path] = jax.jit(program.call).lower(*inputs).compile(), _structure(batch)
            say("searching for periodic orbits")
        program, structure = programs[path]
        return jax.tree.unflatten(structure, program(*inputs))

    return solve


def _export(batch: Batch, guesses, limits, inputs: list) -> jax.export.Exported:
    tree = jax.tree.structure((batch.params, guesses, limits))

    def flat(*leaves) -> list:
        params, guesses, limits = jax.tree.unflatten(tree, leaves)
        return jax.tree.leaves(
            eqx.filter(solve_batch(dataclasses.replace(batch, params=params), guesses, limits), eqx.is_array)
        )

    return jax.export.export(jax.jit(flat))(*inputs)


def _structure(batch: Batch) -> PyTree:
    """The PyTree structure of the result of `solve_batch`."""

    def example() -> PeriodicOrbit:
        number, vector, matrix = jnp.zeros(()), jnp.zeros(1), jnp.zeros((1, 1))
        return PeriodicOrbit(
            x=vector, period=number, multipliers=jax.lax.complex(vector, vector), return_jacobian=matrix, residual=number,
            guard_rates=vector, nodes=matrix, starts=vector, before=matrix,
            arc_ends=(matrix,) * len(batch.sequence), elapsed=matrix, iterations=jnp.array(0), distance=number,
            result=code_of(0), params=batch.params,
            system=batch.system, sequence=batch.sequence, strides=batch.strides, integrator=batch.integrator,
        )  # fmt: skip

    # By `eval_shape`: each operation on concrete numbers would load another compiled program.
    return jax.tree.structure(jax.eval_shape(example))


@functools.cache
def _fingerprint(about: str) -> str:
    """A digest of the text `about`, the source of hyjax, and the versions of JAX and equinox."""
    digest = hashlib.sha256(about.encode())
    for package in (jax, eqx):
        digest.update(package.__version__.encode())
    for path in sorted(Path(__file__).parent.parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def read_whole(path: Path) -> bytes | None:
    """The program in a file, `None` for a file that is missing or differs from its checksum."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    checksum, program = data[:_CHECKSUM], data[_CHECKSUM:]
    return program if hashlib.sha256(program).digest() == checksum else None


def _write(path: Path, program: bytes) -> None:
    """Write a program atomically, after its checksum. A failure is ignored: without the file, the next process traces again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{id(program)}.part")
        part.write_bytes(hashlib.sha256(program).digest() + program)
        part.replace(path)
    except OSError:
        pass
