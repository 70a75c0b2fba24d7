"""Traced programs stored on disk, so that a new process does not trace them again.

JAX's own cache stores compiled programs, but finds a program only after tracing, and tracing the search for orbits takes as long
as everything else in the command. A stored program is a file of `jax.export`, named by a digest of all that it depends on.
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
from .._orbit.search import Batch, solve_batch
from .._system.results import code_of


def stored_solver(directory: str, name: str) -> Callable[..., PeriodicOrbit]:
    """`solve_batch` as a program stored in `directory`, for the model of that name.

    The model must be part of hyjax: the digest in the file's name covers the source of hyjax only.
    """

    programs: dict[Path, Callable] = {}

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
            try:
                program = jax.export.deserialize(bytearray(path.read_bytes()))
            except Exception:  # no such file, or an unreadable one
                program = _export(batch, guesses, limits, inputs)
                _write(path, program.serialize())
            programs[path] = jax.jit(program.call)
        return jax.tree.unflatten(_structure(batch), programs[path](*inputs))

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
            iterations=jnp.array(0), distance=number, result=code_of(0), params=batch.params,
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


def _write(path: Path, program: bytes | bytearray) -> None:
    """Write a file atomically. A failure is ignored: without the file, the next process traces again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{id(program)}.part")
        part.write_bytes(program)
        part.replace(path)
    except OSError:
        pass
