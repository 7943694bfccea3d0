"""Accumulate chunks on parallel workers of a device.

XLA runs one program of small operations on one CPU core. Chunks are independent until their accumulators are merged, so
a few workers, each with its own accumulator, keep all cores busy. `mesh` does the same with devices.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from typing import Any

import jax

from tf2jax_lite.federated.execution.accumulator import Accumulator
from tf2jax_lite.federated.execution.buffers import Arena

__all__ = ["Workers"]

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
