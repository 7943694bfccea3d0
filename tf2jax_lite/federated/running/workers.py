"""Accumulate chunks on parallel workers of a device, or on a mesh's devices.

XLA runs one program of small operations on one CPU core. Chunks are independent until their accumulators are merged, so
a few workers, each with its own accumulator, keep all cores busy. A mesh does the same with devices, of all processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .accumulate import Accumulator
from .buffers import Arena
from .cohort import Chunk
from .strategies import Context

__all__ = ["MeshFold", "Workers"]

PyTree = Any


class Workers:
    """Accumulators on one device, used in turns.

    On a CPU, JAX runs the programs of one thread sequentially. So each worker has a thread, which also writes its
    chunks; chunks are queued, so that workers do not wait for the grouping of clients.

    Args:
      zero: returns an empty accumulator.
      arenas: memory for chunks: one for each worker, and one more.
      executors: a thread for each worker, or none; their programs must not depend on options of JAX, see `Programs`.
    """

    def __init__(self, zero: Callable[[], Accumulator], arenas: Sequence[Arena], executors: Sequence[Executor] = ()):
        self._totals = [zero() for _ in arenas[1:]]
        self._turn = 0
        self._arenas, self._executors = arenas, executors
        self._pending: list[deque[Future[Any]]] = [deque() for _ in self._totals]

    def arena(self) -> Arena:
        """Return the next chunk's memory; only `fold`'s ``write`` may write to it."""
        # A thread writes its worker's next chunk when it is done with the last one. Without threads a chunk is written
        # while each worker still reads its last one.
        return self._arenas[self._turn % (len(self._executors) or len(self._arenas))]

    def fold(
        self,
        write: Callable[[], None],
        run: Callable[[Accumulator], tuple[Accumulator, PyTree]],
        *,
        here: bool = False,
    ) -> Callable[[], PyTree]:
        """Accumulate one chunk on the next worker.

        It waits if the worker has a queued chunk already, which bounds memory.

        Args:
          write: writes the chunk.
          run: accumulates it.
          here: call both in this thread in any case.

        Returns:
          A function that waits for the chunk's outputs and returns them.
        """
        worker = self._turn % len(self._totals)
        self._turn += 1
        if here or not self._executors:
            if self._executors:  # the worker's memory is in use until its thread is done
                self._settle(worker)
                write()
            else:
                write()
                self._settle(worker)
            self._totals[worker], output = run(self._totals[worker])
            return lambda: output

        def work() -> PyTree:
            jax.block_until_ready(self._totals[worker].participated)
            write()
            self._totals[worker], output = run(self._totals[worker])
            jax.block_until_ready(self._totals[worker].participated)
            return output

        pending = self._pending[worker]
        if len(pending) > 1:
            pending.popleft().result()
        future = self._executors[worker].submit(work)
        pending.append(future)
        return future.result

    def _settle(self, worker: int) -> None:
        pending = self._pending[worker]
        while pending:
            pending.popleft().result()
        jax.block_until_ready(self._totals[worker].participated)

    def wait(self) -> None:
        """Wait until all chunks are folded.

        Raises:
          Exception: the error of a chunk.
        """
        for worker in range(len(self._totals)):
            self._settle(worker)

    def close(self) -> None:
        """Cancel queued chunks, and wait for those in progress, ignoring their errors."""
        for future in itertools.chain(*self._pending):
            future.cancel()
        wait(itertools.chain(*self._pending))
        for total in self._totals:
            with contextlib.suppress(Exception):
                jax.block_until_ready(total.participated)

    def merged(self, merge: Callable[[Accumulator, Accumulator], Accumulator]) -> Accumulator:
        """Return the accumulator of all."""
        self.wait()
        return functools.reduce(merge, self._totals)


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
    kind: str


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _without_keys(tree: PyTree) -> PyTree:
    def raw(leaf: Any) -> Any:
        return _RawKey(jax.random.key_data(leaf), str(jax.random.key_impl(leaf))) if _is_key(leaf) else leaf

    return jax.tree.map(raw, tree)


def _with_keys(tree: PyTree) -> PyTree:
    def whole(leaf: Any) -> Any:
        return jax.random.wrap_key_data(leaf.data, impl=leaf.kind) if isinstance(leaf, _RawKey) else leaf

    return jax.tree.map(whole, tree, is_leaf=lambda leaf: isinstance(leaf, _RawKey))


def _placed(value: Any, sharding: NamedSharding) -> Any:
    array = np.asarray(value)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
