"""Stacks clients to a chunk: first its layout, then its contents.

The layout determines the program of the chunk. The worker that runs the chunk copies the examples later, so that
several workers copy in parallel.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from tf2jax_lite.federated.data import EXAMPLE_MASK_KEY
from tf2jax_lite.federated.data.examples import EXAMPLE_FILL_KEY
from tf2jax_lite.federated.execution.cohort import Chunk, Client
from tf2jax_lite.federated.execution.cpu_pool import Arena


def round_up(steps: int) -> int:
    """Return the next of 1, 2, 3, 4, 6, 8, 12, ...: few shapes, padding <= 1/3."""
    size = 1
    while size < steps:
        if size >= 2 and size // 2 * 3 >= steps:
            return size // 2 * 3
        size *= 2
    return size


def lay_out(clients: Sequence[Client], rows: int, steps: int, padding_index: int, arena: Arena | None = None) -> Chunk:
    """Return a chunk for clients with equal shapes; `fill` writes its batches.

    Args:
      clients: at least one.
      rows: the leading size of the result; rows without a client repeat nothing and have 0 steps.
      steps: the steps of the result.
      padding_index: the index of rows without a client.
      arena: memory for the batches; new memory if None.
    """
    arena = arena or Arena()
    batch = max(client.rows.shape[1] for client in clients)
    arrays = {
        name: arena.empty(name, (rows, steps, batch, *value.shape[1:]), value.dtype)
        for name, value in clients[0].examples.items()
    }
    if any(client.rows.shape[1] < batch or not client.is_full for client in clients):
        arrays[EXAMPLE_MASK_KEY] = arena.empty(EXAMPLE_MASK_KEY, (rows, steps, batch), bool)
    if any(client.counted is not None for client in clients):
        arrays[EXAMPLE_FILL_KEY] = arena.empty(EXAMPLE_FILL_KEY, (rows, steps, batch), bool)
    counts = np.zeros(rows, np.int32)
    index = np.full(rows, padding_index, np.int32)
    for c, client in enumerate(clients):
        counts[c], index[c] = client.steps, client.index
    inputs = None
    if clients[0].client_input is not None:
        given = [client.client_input for client in clients]
        given += [given[0]] * (rows - len(given))
        inputs = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *given)
    return Chunk(arrays, counts, index, inputs)


def fill(chunk: Chunk, clients: Sequence[Client], *, everywhere: bool = True) -> None:
    """Write the batches of clients into their chunk of `lay_out`.

    Args:
      chunk: to write to.
      clients: the same ones.
      everywhere: write zeros where no client has a batch, for programs that read all of it.
    """
    arrays = dict(chunk.batches)
    mask, filled = arrays.pop(EXAMPLE_MASK_KEY, None), arrays.pop(EXAMPLE_FILL_KEY, None)
    for flags in (mask, filled):
        if flags is not None:
            flags[:] = False
    for c, client in enumerate(clients):
        count, width = client.rows.shape
        take = client.rows
        if filled is not None and client.counted is not None:
            filled[c, :count, :width] = client.fill()
        if mask is not None:
            batch = mask.shape[2]
            real = mask[c, :count, :width] = client.rows >= 0
            if width < batch or not client.is_full:
                # Padding repeats an example of its batch: see model.split_mask.
                take = np.repeat(client.rows[:, :1], batch, axis=1)
                np.copyto(take[:, :width], client.rows, where=real)
        for name, value in client.examples.items():
            np.take(value, take, axis=0, out=arrays[name][c, :count], mode="clip")
            if everywhere:
                arrays[name][c, count:] = 0
    if everywhere:
        for value in arrays.values():
            value[len(clients) :] = 0
