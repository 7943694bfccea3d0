"""Accumulate chunks on the devices of a mesh, of all processes."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tf2jax_lite.federated.execution.accumulator import Accumulator
from tf2jax_lite.federated.execution.backends import Context
from tf2jax_lite.federated.execution.cohort import Chunk

PyTree = Any


class MeshFold:
    """Accumulators on the devices of a mesh, one each.

    All axes of the mesh count as one. In a run of several processes (jax.distributed) each makes the same chunks and
    puts its own devices' part on them.

    Args:
      mesh: the devices.
      run: ``(context, total, chunk, exact) -> (total, outputs)``, for one device's part of a chunk.
      merge: of accumulators.
    """

    def __init__(self, mesh: Mesh, run: Callable[..., tuple[Accumulator, PyTree]], merge: Callable[..., Accumulator]):
        self.size = math.prod(mesh.devices.shape)
        split, same = P(mesh.axis_names), P()
        self._split, self._same = NamedSharding(mesh, split), NamedSharding(mesh, same)

        def part(context: Context, total: PyTree, chunk: Chunk) -> tuple[PyTree, PyTree]:
            own, output = run(_with_keys(context), jax.tree.map(lambda leaf: leaf[0], total), chunk, False)
            return jax.tree.map(lambda leaf: leaf[None], own), output

        mapped = jax.shard_map(
            part, mesh=mesh, in_specs=(same, split, split), out_specs=(split, split), check_vma=False
        )
        self._run = jax.jit(mapped, donate_argnums=1)

        def everywhere(totals: PyTree) -> PyTree:
            return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, mesh.axis_names, tiled=True), totals)

        self._gather = jax.jit(jax.shard_map(everywhere, mesh=mesh, in_specs=(split,), out_specs=same, check_vma=False))
        self._merge = jax.jit(
            lambda totals: functools.reduce(
                merge, [jax.tree.map(lambda leaf, i=i: leaf[i], totals) for i in range(self.size)]
            )
        )

    def start(self, zero: Accumulator) -> PyTree:
        """Return a zero accumulator for each device."""
        host = jax.device_get(zero)
        return self._put(jax.tree.map(lambda leaf: np.broadcast_to(leaf, (self.size, *np.shape(leaf))), host))

    def context(self, context: Context) -> Context:
        """Return the context on every device."""
        return jax.tree.map(lambda leaf: _placed(leaf, self._same), _without_keys(context))

    def fold(self, context: Context, total: PyTree, chunk: Chunk) -> tuple[PyTree, PyTree]:
        """Fold a chunk whose number of clients is a multiple of the number of devices."""
        return self._run(context, total, self._put(chunk))

    def merged(self, total: PyTree) -> Accumulator:
        """Return the accumulator of all devices, as arrays of this process."""
        return self._merge(jax.tree.map(lambda leaf: leaf.addressable_data(0), self._gather(total)))

    def gathered(self, output: PyTree) -> PyTree:
        """Return outputs of all clients, numpy, in every process."""
        if jax.process_count() == 1:
            return jax.device_get(output)
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(output, tiled=True)

    def _put(self, tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: _placed(leaf, self._split), tree)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["data"], meta_fields=["kind"])
@dataclasses.dataclass(frozen=True)
class _RawKey:
    """A key as plain numbers: arrays of several processes are made of those alone."""

    data: Any
    kind: Hashable


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _without_keys(tree: PyTree) -> PyTree:
    def raw(leaf: Any) -> Any:
        return _RawKey(jax.random.key_data(leaf), jax.random.key_impl(leaf)) if _is_key(leaf) else leaf

    return jax.tree.map(raw, tree)


def _with_keys(tree: PyTree) -> PyTree:
    def whole(leaf: Any) -> Any:
        return jax.random.wrap_key_data(leaf.data, impl=leaf.kind) if isinstance(leaf, _RawKey) else leaf

    return jax.tree.map(whole, tree, is_leaf=lambda leaf: isinstance(leaf, _RawKey))


def _placed(value: Any, sharding: NamedSharding) -> Any:
    array = np.asarray(value)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
