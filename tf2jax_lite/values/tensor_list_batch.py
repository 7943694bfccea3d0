"""Batches of tensor lists: vectors of handles, all of whose lists are equally long.

A batch is one list whose elements carry the batch as their first axis.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.support.errors import OpError

from . import specs
from .tensor_list import TensorList

__all__ = ["ListBatch", "stack_lists", "unstack_lists"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ListBatch:
    """A vector of list handles.

    Attributes:
      stacked: the list of batched elements.
      count: how many lists there are.
      shape: element shape of one list, as the graph declares it.
    """

    stacked: TensorList
    count: int = dataclasses.field(metadata={"static": True})
    shape: Any = dataclasses.field(metadata={"static": True})


def stack_lists(lists: list[TensorList]) -> ListBatch:
    """Returns lists as a batch (what Pack does to handles).

    Raises:
      OpError: they differ in length.
    """
    lists = [other.settled() for other in lists]
    first = lists[0]
    if any(other.is_traced or other.length != first.length for other in lists):
        raise OpError("tensor lists of lengths that differ, or that are not known while tracing, make no batch")
    rows = specs.aligned([other.packed() for other in lists])
    buffers = [row.buffer for row in rows if row.buffer is not None]
    buffer = jax.tree.map(lambda *leaves: jnp.stack(leaves, 1), *buffers) if buffers else None
    return ListBatch(dataclasses.replace(first.with_buffer(buffer), shape=None), len(lists), first.shape)


def unstack_lists(batch: ListBatch) -> list[TensorList]:
    """Returns the lists of a batch (what Unpack does to handles)."""

    def one(index: int) -> TensorList:
        stacked = batch.stacked.packed()
        buffer = jax.tree.map(lambda leaf: leaf[:, index], stacked.buffer)
        return dataclasses.replace(stacked.with_buffer(buffer), shape=batch.shape)

    return [one(index) for index in range(batch.count)]
