"""Clients stacked to a chunk: first its form, then what is in it.

The form is known at once, and says which program runs the chunk. The examples are copied later, by whoever runs it: the
copies of several lanes are then made side by side, as what is computed on them.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from tf2jax_lite.federated.data import EXAMPLE_MASK_KEY

from .buffers import Arena
from .cohort import Chunk, Client

__all__ = ["fill", "lay_out", "round_up"]


def round_up(steps: int) -> int:
    """Returns the next of 1, 2, 3, 4, 6, 8, 12, 16, ...: few shapes to compile for, at most a third of padding."""
    size = 1
    while size < steps:
        if size >= 2 and size // 2 * 3 >= steps:
            return size // 2 * 3
        size *= 2
    return size


def lay_out(clients: Sequence[Client], rows: int, steps: int, nobody: int, arena: Arena | None = None) -> Chunk:
    """Makes a chunk for clients of one form; `fill` writes its batches.

    Args:
      clients: at least one.
      rows: the leading size of the result; rows without a client repeat nothing and have 0 steps.
      steps: the steps of the result.
      nobody: the index of rows without a client.
      arena: where the batches lie; memory of their own if None.
    """
    arena = arena or Arena()
    batch = max(client.rows.shape[1] for client in clients)
    arrays = {
        name: arena.empty(name, (rows, steps, batch, *value.shape[1:]), value.dtype)
        for name, value in clients[0].examples.items()
    }
    if any(client.rows.shape[1] < batch or not client.is_full for client in clients):
        arrays[EXAMPLE_MASK_KEY] = arena.empty(EXAMPLE_MASK_KEY, (rows, steps, batch), bool)
    counts = np.zeros(rows, np.int32)
    index = np.full(rows, nobody, np.int32)
    for c, client in enumerate(clients):
        counts[c], index[c] = client.steps, client.index
    inputs = None
    if clients[0].client_input is not None:
        given = [client.client_input for client in clients]
        given += [given[0]] * (rows - len(given))
        inputs = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *given)
    return Chunk(arrays, counts, index, inputs)


def fill(chunk: Chunk, clients: Sequence[Client], *, everywhere: bool = True) -> None:
    """Writes the batches of clients into the chunk that `lay_out` made for them.

    Args:
      chunk: where to.
      clients: the same ones.
      everywhere: write zeros where no client has a batch, for programs that read all of it.
    """
    arrays = dict(chunk.batches)
    mask = arrays.pop(EXAMPLE_MASK_KEY, None)
    if mask is not None:
        mask[:] = False
    for c, client in enumerate(clients):
        count, width = client.rows.shape
        take = client.rows
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
