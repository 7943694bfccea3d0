"""Joins concurrent requests to batches, which run one after another."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable

import numpy as np

from .function import Checked, ServedFunction


class OverloadedError(Exception):
    """There are as many waiting requests as are allowed."""


class Batcher:
    """Runs the requests of a function in batches.

    A batch begins with the first waiting request, and gets those that come within a time limit, up to the size of the
    largest batch. While it runs, the next one fills.
    """

    def __init__(
        self,
        function: ServedFunction,
        *,
        wait_seconds: float,
        max_waiting: int,
        executor: concurrent.futures.Executor,
        observe: Callable[[int], None] = lambda examples: None,
    ):
        """Make a batcher; it needs a running event loop when requests come.

        Args:
          function: the compiled function.
          wait_seconds: the time limit for a batch to fill.
          max_waiting: maximum number of requests that wait.
          executor: runs batches.
          observe: called with the number of examples of each batch.
        """
        self._function, self._executor, self._observe = function, executor, observe
        self._wait, self._max_waiting = wait_seconds if function.joins else 0.0, max_waiting
        self._queues: dict[tuple[int, ...], asyncio.Queue[tuple[Checked, asyncio.Future]]] = {}
        self._workers: list[asyncio.Task] = []
        self.waiting = 0

    async def __call__(self, request: Checked) -> dict[str, np.ndarray]:
        """Return the results of a request.

        Raises:
          OverloadedError: too many requests wait.
          Tf2JaxError: the function fails.
        """
        parts = self._function.split(request)
        if self.waiting + len(parts) > self._max_waiting:
            raise OverloadedError
        futures = [self._queued(part) for part in parts]
        self.waiting += len(parts)
        try:
            return self._function.joined(await asyncio.gather(*futures))
        finally:
            self.waiting -= len(parts)

    def _queued(self, request: Checked) -> asyncio.Future:
        if request.group not in self._queues:
            self._queues[request.group] = asyncio.Queue()
            self._workers.append(asyncio.create_task(self._work(self._queues[request.group])))
        future = asyncio.get_running_loop().create_future()
        self._queues[request.group].put_nowait((request, future))
        return future

    async def _work(self, queue: asyncio.Queue[tuple[Checked, asyncio.Future]]) -> None:
        """Run batch after batch."""
        loop, kept = asyncio.get_running_loop(), None
        while True:
            batch = [kept or await queue.get()]
            kept, count = None, batch[0][0].count or 1
            try:
                async with asyncio.timeout(self._wait):
                    while self._function.joins and count < self._function.largest_batch and kept is None:
                        item = queue.get_nowait() if not queue.empty() else await queue.get()
                        if count + (item[0].count or 1) > self._function.largest_batch:
                            kept = item
                        else:
                            batch.append(item)
                            count += item[0].count or 1
            except TimeoutError:
                pass
            batch = [item for item in batch if not item[1].done()]  # of clients that are still there
            if not batch:
                continue
            self._observe(count)
            try:
                results = await loop.run_in_executor(self._executor, self._function.run, [item[0] for item in batch])
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.cancel()
