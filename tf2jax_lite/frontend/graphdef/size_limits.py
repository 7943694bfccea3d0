"""Limits on the nodes and constant bytes of a GraphDef, checked before reading it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tf2jax_lite.support.config import current_config
from tf2jax_lite.support.errors import InvalidModelError, LimitError, UnsupportedError
from tf2jax_lite.support.limits import check_bytes

from . import dtypes

# By number: float32, float64, float16, int32, int64, bool.
_ITEM_SIZES = {n: cast("np.dtype", dtypes.from_tf(n)).itemsize for n in (1, 2, 19, 3, 9, 10)}


class ConstantBytes:
    """Counter of the bytes that a graph's constants declare, before any is read."""

    def __init__(self, where: str):
        self._where = where
        self._allowed = current_config().max_constant_bytes
        self._total = 0

    def add(self, node: str, tensor: Any) -> int | None:
        """Count a constant.

        Returns:
          The value of `plain_bytes`.
        """
        plain = size = plain_bytes(tensor)
        if size is None or size > self._allowed:
            size = tensor_bytes(tensor, f"{self._where}: constant {node!r}")
        self.count(node, size)
        return plain

    def count(self, node: str, size: int) -> None:
        """Count the bytes of a constant."""
        self._total += size
        if self._total > self._allowed:
            raise LimitError(
                f"{self._where}: the constants up to {node!r} take {self._total} bytes together; max_constant_bytes "
                f"allows {self._allowed}. Raise it if you trust the model."
            )


def check_graph_size(graph: Any, where: str) -> None:
    """Raise an error for a GraphDef with too many nodes or too large constants.

    Args:
      graph: the GraphDef.
      where: its name in messages.

    Raises:
      LimitError: ``config.max_nodes`` or ``config.max_constant_bytes`` allows less.
    """
    _count_constants(graph.node, check_functions_size(graph, where))


def check_functions_size(graph: Any, where: str) -> ConstantBytes:
    """Check the sizes like `check_graph_size`, except for constants outside functions.

    Returns:
      The counter, to which the constants outside of functions are added as they are read.
    """
    allowed = current_config().max_nodes
    count = len(graph.node) + sum(len(function.node_def) for function in graph.library.function)
    if count > allowed:
        raise LimitError(
            f"{where}: the graph has {count} nodes; max_nodes allows {allowed}. Raise it if you trust the model."
        )
    sizes = ConstantBytes(where)
    for function in graph.library.function:
        _count_constants(function.node_def, sizes)
    return sizes


def _count_constants(protos: Any, sizes: ConstantBytes) -> None:
    for node in protos:
        if node.op == "Const" and "value" in (attrs := node.attr):
            sizes.add(node.name, attrs["value"].tensor)


def plain_bytes(proto: Any) -> int | None:
    """Return `tensor_bytes` for a fixed-size dtype and known shape; None for others."""
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
    """Return the number of bytes of the array that a TensorProto declares."""
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
