"""How large a GraphDef is, before anything is read out of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf2jax_lite.config import current_config
from tf2jax_lite.errors import InvalidModelError, LimitError, UnsupportedError
from tf2jax_lite.limits import check_bytes

from . import dtypes

__all__ = ["check_graph_size", "plain_bytes", "tensor_bytes"]


_ITEM_SIZES = {
    dtype.as_datatype_enum: dtype.size for dtype in (tf.float32, tf.float64, tf.float16, tf.int32, tf.int64, tf.bool)
}


def check_graph_size(graph: Any, where: str) -> None:
    """Refuses a GraphDef with more nodes, or larger constants, than the options allow.

    Args:
      graph: the GraphDef.
      where: what messages call it.

    Raises:
      LimitError: ``config.max_nodes`` or ``config.max_constant_bytes`` allows less.
    """
    config = current_config()
    count = len(graph.node) + sum(len(function.node_def) for function in graph.library.function)
    if count > config.max_nodes:
        raise LimitError(
            f"{where}: the graph has {count} nodes; max_nodes allows {config.max_nodes}. Raise it if you trust the "
            "model."
        )
    total = 0
    for protos in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in protos:
            if node.op == "Const" and "value" in (attrs := node.attr):
                tensor = attrs["value"].tensor
                size = plain_bytes(tensor)
                if size is None or size > config.max_constant_bytes:
                    size = tensor_bytes(tensor, f"{where}: constant {node.name!r}")
                total += size
                if total > config.max_constant_bytes:
                    raise LimitError(
                        f"{where}: the constants up to {node.name!r} take {total} bytes together; max_constant_bytes "
                        f"allows {config.max_constant_bytes}. Raise it if you trust the model."
                    )


def plain_bytes(proto: Any) -> int | None:
    """Returns what `tensor_bytes` does for a TensorProto without anything odd in it; None for others."""
    size = _ITEM_SIZES.get(proto.dtype)
    shape = proto.tensor_shape
    if size is None or shape.unknown_rank:
        return None
    for dim in shape.dim:
        if dim.size < 0:
            return None
        size *= dim.size
    return size


def tensor_bytes(proto: Any, what: str) -> int:
    """Returns how many bytes a TensorProto's array takes, as it declares.

    Args:
      proto: the TensorProto.
      what: what the error calls it.

    Raises:
      InvalidModelError: its shape is not known.
      LimitError: ``config.max_constant_bytes`` allows less.
    """
    plain = plain_bytes(proto)
    if plain is not None and plain <= current_config().max_constant_bytes:
        return plain
    if proto.tensor_shape.unknown_rank:
        raise InvalidModelError(f"{what} has a shape of unknown rank.")
    try:
        dtype = dtypes.from_tf(proto.dtype)
    except UnsupportedError as error:
        raise InvalidModelError(f"{what}: {error}") from error
    itemsize = dtype.itemsize if isinstance(dtype, np.dtype) else 8
    return check_bytes((dim.size for dim in proto.tensor_shape.dim), itemsize, what)
