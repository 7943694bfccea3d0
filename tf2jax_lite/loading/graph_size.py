"""How large a GraphDef is, before anything is read out of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf2jax_lite.config import current_config
from tf2jax_lite.errors import InvalidModelError, LimitError, UnsupportedError
from tf2jax_lite.limits import check_bytes

from . import dtypes

__all__ = ["check_graph_size", "tensor_bytes"]


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
            if node.op == "Const" and "value" in node.attr:
                total += tensor_bytes(node.attr["value"].tensor, f"{where}: constant {node.name!r}")
                if total > config.max_constant_bytes:
                    raise LimitError(
                        f"{where}: the constants up to {node.name!r} take {total} bytes together; max_constant_bytes "
                        f"allows {config.max_constant_bytes}. Raise it if you trust the model."
                    )


def tensor_bytes(proto: Any, what: str) -> int:
    """Returns how many bytes a TensorProto's array takes, as it declares.

    Raises:
      InvalidModelError: its shape is not known.
      LimitError: ``config.max_constant_bytes`` allows less.
    """
    if proto.tensor_shape.unknown_rank:
        raise InvalidModelError(f"{what} has a shape of unknown rank.")
    try:
        dtype = dtypes.from_tf(proto.dtype)
    except UnsupportedError as error:
        raise InvalidModelError(f"{what}: {error}") from error
    itemsize = dtype.itemsize if isinstance(dtype, np.dtype) else 8
    return check_bytes((dim.size for dim in proto.tensor_shape.dim), itemsize, what)
