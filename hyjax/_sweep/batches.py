"""A function mapped over many independent lanes: in blocks, over all local devices, from several threads.

A block is one `vmap`, which takes as long as its slowest lane; blocks run one after the other. Neither the shape of the program
nor the arithmetic of a lane depends on the number of lanes of a call, so a lane's result does not depend on the other lanes, to
the last bit. Whether the program is one that compiles fast or one that runs fast is said of the whole map, before its first call.
"""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import PyTree

from .._numerics.eager import long_run
from .workers import threads_here

# Lanes in a block on a CPU for at most `NARROW_UP_TO` results, and for more.
NARROW, NARROW_UP_TO, WIDE = 4, 32, 32


def block_width(results: int) -> int | None:
    """Lanes in a block for so many results in all, where most calls are for a few lanes; `None` for the usual number. A block
    takes the time of all its lanes, also of those which repeat another."""
    return NARROW if results <= NARROW_UP_TO and jax.default_backend() == "cpu" else None


class BatchMap:
    """The map of `fn(common, lane)` over many lanes.

    **Arguments:** `fn`: a function or module with hashable static parts; one program is compiled for each. `common`: arrays
    shared by all lanes. `width`: lanes in a block; `capacity`: lanes in one call of the program on one device. `few`: whether on
    a CPU the program is to compile fast rather than run fast (see `compiles_fast`), also where the map is unpickled. `sample`:
    lanes of the same shapes and dtypes, for `compile`.
    """

    def __init__(
        self,
        fn: Callable,
        common: PyTree,
        width: int | None = None,
        capacity: int | None = None,
        few: bool = False,
        sample: PyTree[np.ndarray] = None,
    ):
        self.devices = jax.local_devices()
        on_cpu = self.devices[0].platform == "cpu"
        # On a CPU a small block fills the vector units, fits in the cache, and rarely waits for a slow lane. Other devices need
        # many lanes.
        self.width = (WIDE if on_cpu else 1 << 15) if width is None else width
        self.blocks = max(
            1, -(-(2048 if on_cpu else 1 << 15) // self.width) if capacity is None else capacity // self.width
        )
        self.fn, self.common, self._given = fn, common, (width, capacity, few, sample)
        self._program = _quick_program if few else _program
        self.mesh = Mesh(np.array(self.devices), ("lanes",)) if len(self.devices) > 1 else None

    def __reduce__(self):
        """In another process: the same map, over the devices there."""
        return type(self), (self.fn, self.common, *self._given)

    @property
    def capacity(self) -> int:
        """Lanes in one call, on all devices together."""
        return len(self.devices) * self.blocks * self.width

    @property
    def threads(self) -> int:
        """The number of threads to call from."""
        return threads_here() if self.mesh is None else 1

    def __call__(self, lanes: PyTree[np.ndarray]) -> PyTree[np.ndarray]:
        """The results of all lanes, on the host, in the order of the lanes."""
        count = len(jax.tree.leaves(lanes)[0])
        parts = []
        for first in range(0, count, self.capacity):
            some = jax.tree.map(lambda leaf: np.asarray(leaf)[first : first + self.capacity], lanes)  # noqa: B023
            parts.append(self._some(some, min(self.capacity, count - first)))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def compile(self) -> None:
        """Compile the program of `__call__`, or load the program from a cache: a call for no lanes."""
        self._some(self._given[-1], 0)

    def _some(self, lanes, count: int):
        apart = len(self.devices)
        busy = -(-count // (apart * self.width))

        def dealt(leaf):
            # The remainder of the last block repeats the last lane.
            leaf = leaf[np.minimum(np.arange(apart * busy * self.width), max(count - 1, 0))]
            leaf = leaf.reshape(apart, busy, self.width, *leaf.shape[1:])
            return np.pad(leaf, [(0, 0), (0, self.blocks - busy)] + [(0, 0)] * (leaf.ndim - 2))

        out = self._program(self.fn, self.common, jax.tree.map(dealt, lanes), np.asarray(busy), self.mesh)
        gathered = lambda leaf: np.asarray(leaf)[:, :busy].reshape(-1, *leaf.shape[3:])[:count]
        return jax.tree.map(gathered, out)


def _mapped(fn: Callable, common: PyTree, lanes: PyTree, busy: Any, mesh: Mesh | None):
    arrays, static = eqx.partition((fn, common), eqx.is_array)

    def block(arrays, lanes):
        fn, common = eqx.combine(arrays, static)
        return jax.vmap(ft.partial(fn, common))(lanes)

    first = jax.tree.map(lambda leaf: leaf[0, 0], lanes)
    # Traced outside `shard_map`, so that its rules on device axes do not apply inside `fn`.
    traced, shapes = jax.make_jaxpr(block, return_shape=True)(arrays, first)
    flat = jaxpr_as_fun(traced)

    def on_device(arrays, lanes, busy):
        lanes = jax.tree.map(lambda leaf: leaf[0], lanes)
        count = jax.tree.leaves(lanes)[0].shape[0]
        room = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), shapes)

        def one(i, out):
            take = lambda leaf: jax.lax.dynamic_index_in_dim(leaf, i, keepdims=False)
            put = lambda place, value: jax.lax.dynamic_update_index_in_dim(place, value, i, 0)
            values = flat(*jax.tree.leaves((arrays, jax.tree.map(take, lanes))))
            return jax.tree.map(put, out, jax.tree.unflatten(jax.tree.structure(shapes), values))

        return jax.tree.map(lambda leaf: leaf[None], jax.lax.fori_loop(0, busy, one, room))

    if mesh is None:
        return on_device(arrays, lanes, busy)
    # Each device runs its own loop, and waits for no other device.
    whole, split = PartitionSpec(), PartitionSpec("lanes")
    sharded = jax.shard_map(on_device, mesh=mesh, in_specs=(whole, split, whole), out_specs=split, check_vma=False)
    return sharded(arrays, lanes, busy)


_program, _quick_program = eqx.filter_jit(_mapped), long_run(_mapped)
