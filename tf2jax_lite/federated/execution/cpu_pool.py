"""The backend ``cpu_pool``: chunks of clients on a thread for each core.

XLA runs one program of small operations on one CPU core, and JAX the programs of one thread sequentially. Chunks are
independent until their accumulators are merged, so a few threads, each with its own accumulator, keep all cores busy.
`runner.MeshFold` does the same with devices.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from typing import Any, Generic, TypeVar

import jax
import numpy as np

from tf2jax_lite.federated.execution.backends import Accumulator
from tf2jax_lite.jaxprs.tracing_cache import trace_settings
from tf2jax_lite.learning.process import PyTree

T = TypeVar("T")

_MOST_WORKERS = 4
_BOUNDARY = 64  # bytes: alignment of buffers that XLA's CPU backend does not copy

# XLA otherwise splits each larger elementwise operation, such as a step's update of the weights, between the cores.
# Where each core runs a program of its own, that only moves data from one core's cache to the other's.
_ONE_CORE = {"xla_cpu_multi_thread_eigen": False, "xla_disable_hlo_passes": "cpu-parallel-task-assigner"}


class Arena:
    """Named arrays for one chunk; memory grows to the largest requested.

    A chunk is megabytes. For a small model, fresh memory for each costs more than the computation: the system maps and
    clears each page, and JAX copies unaligned buffers. JAX reads an aligned buffer without a copy.
    """

    def __init__(self) -> None:
        self._memory: dict[str, np.ndarray] = {}

    def empty(self, name: str, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Return an uninitialized array; it is valid until the next call with this name."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        held = self._memory.get(name)
        if held is None or held.nbytes < size:
            raw = np.zeros(size + _BOUNDARY, np.uint8)
            start = -raw.ctypes.data % _BOUNDARY
            held = self._memory[name] = raw[start : start + size]
        return held[:size].view(dtype).reshape(tuple(shape))


class Pool(Generic[T]):
    """Sets of objects that rounds borrow; concurrent rounds get different ones.

    Args:
      make: makes one.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._free: list[list[T]] = []
        self._lock = threading.Lock()

    def borrow(self, count: int) -> list[T]:
        """Return ``count`` unused objects."""
        with self._lock:
            found = self._free.pop() if self._free else []
        return [*found[:count], *(self._make() for _ in range(count - len(found)))]

    def give_back(self, used: list[T]) -> None:
        """Return a set of objects that is no longer in use."""
        with self._lock:
            self._free.append(used)


class Programs:
    """Compiled forms of one function, by argument shapes and JAX's options.

    The behavior of `jax.jit` depends on thread-local options of JAX (64-bit mode, precision of products, ...). A
    program is traced and compiled where the user's options hold; a worker's thread only runs it.

    Args:
      jitted: the result of `jax.jit`. Its last argument is static.
    """

    def __init__(self, jitted: Any):
        self._jitted = jitted
        self._compiled: dict[Any, Callable[..., Any]] = {}
        self._lock = threading.Lock()

    def get(self, *args: Any, one_core: bool = False) -> Callable[..., Any]:
        """Return the program for arguments like these; it takes all but the last one.

        Args:
          *args: the arguments, or their shapes.
          one_core: compute products on the core that runs the program: others are busy with other programs.
        """
        *dynamic, static = args
        key = (static, one_core, signature(dynamic))
        with self._lock:  # rounds in several threads: one of them compiles
            found = self._compiled.get(key)
            if found is None:
                compiled = self._jitted.lower(*args).compile(_ONE_CORE if one_core else None)
                found = self._compiled[key] = _in_mode(compiled, bool(jax.config.jax_enable_x64))
        return found


def _in_mode(compiled: Callable[..., Any], x64: bool) -> Callable[..., Any]:
    """Return the program for numpy arrays, in the 64-bit mode of its creation."""

    def run(*args: Any) -> Any:
        with jax.enable_x64(x64):
            return compiled(*args)

    return run


def signature(tree: PyTree) -> Any:
    """Return a cache key: structure, shapes, dtypes, and JAX's options."""
    leaves, structure = jax.tree.flatten(tree)
    forms = tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)
    return structure, forms, trace_settings()


class Workers:
    """Accumulators and their threads, used in turns.

    A worker's thread also writes its chunks; one more is queued, so that workers do not wait for the grouping of
    clients.

    Args:
      zero: returns an empty accumulator.
      executors: a thread for each worker; their programs must not depend on options of JAX, see `Programs`.
      arenas: memory for chunks, for each worker.
    """

    def __init__(self, zero: Callable[[], Accumulator], executors: Sequence[Executor], arenas: Sequence[Arena]):
        self._totals = [zero() for _ in executors]
        self._turn = 0
        self._executors, self._arenas = executors, arenas
        self._pending: list[deque[Future[Any]]] = [deque() for _ in executors]

    def arena(self) -> Arena:
        """Return the next chunk's memory; only `fold`'s ``write`` may write to it."""
        return self._arenas[self._turn % len(self._arenas)]

    def fold(
        self, write: Callable[[], None], run: Callable[[Accumulator], tuple[Accumulator, PyTree]]
    ) -> Callable[[], PyTree]:
        """Accumulate one chunk on the next worker.

        It waits if the worker has a queued chunk already, which bounds memory.

        Args:
          write: writes the chunk.
          run: accumulates it.

        Returns:
          A function that waits for the chunk's outputs and returns them.
        """
        worker = self._turn % len(self._totals)
        self._turn += 1

        def work() -> PyTree:
            write()  # the worker's last chunk is done
            self._totals[worker], output = run(self._totals[worker])
            jax.block_until_ready(self._totals[worker].participated)
            return output

        pending = self._pending[worker]
        if len(pending) > 1:
            pending.popleft().result()
        future = self._executors[worker].submit(work)
        pending.append(future)
        return future.result

    def wait(self) -> None:
        """Wait until all chunks are folded.

        Raises:
          Exception: the error of a chunk.
        """
        for pending in self._pending:
            while pending:
                pending.popleft().result()

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


class CpuPool:
    """Threads, memory and programs that a runner's rounds share.

    Args:
      jitted: accumulates a chunk, ``(context, total, chunk, exact) -> (total, outputs)``; ``exact`` is static.
    """

    def __init__(self, jitted: Any):
        self._programs = Programs(jitted)
        self._arenas = Pool(Arena)
        # A thread ends when its executor is garbage-collected.
        self._threads: Pool[Executor] = Pool(lambda: ThreadPoolExecutor(1, "federated-worker"))

    @staticmethod
    def size(num_chunks: int) -> int:
        """Return the number of workers for a number of chunks."""
        return min(os.cpu_count() or 1, _MOST_WORKERS, num_chunks)

    @contextlib.contextmanager
    def workers(self, count: int, zero: Callable[[], Accumulator]) -> Any:
        """Yield workers of a round; when it ends, their work does, too."""
        threads, arenas = self._threads.borrow(count), self._arenas.borrow(count)
        workers = Workers(zero, threads, arenas)
        try:
            yield workers
        finally:
            workers.close()
            self._threads.give_back(threads)
            self._arenas.give_back(arenas)

    def program(self, count: int, context: Any, form: Any, chunk: Any) -> Callable[..., Any]:
        """Return the program of a chunk for ``count`` workers.

        It is ``(context, total, chunk) -> (total, outputs)``.
        """
        return self._programs.get(context, form, chunk, False, one_core=1 < count == os.cpu_count())
