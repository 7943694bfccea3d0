"""Evaluation of string ops by TensorFlow, for nodes whose inputs are all static.

Only ops in `tf2jax_lite.ops.strings.host_evaluation` are evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.frontend.graphdef import dtypes, op_defs
from tf2jax_lite.ops.strings.host_evaluation import MOST_BYTES, linear
from tf2jax_lite.support.errors import InvalidModelError, OpError
from tf2jax_lite.support.limits import check_bytes

# The node names that TensorFlow adds to messages: of a function that wraps the one op.
_LOCATION = re.compile(r"\{\{.*?\}\}|\[Op:.*")


class StringEvaluator:
    """Evaluates nodes on strings. Implements `tf2jax_lite.ir.providers.NodeEvaluator`.

    Args:
      limit: maximum number of bytes of a node's results: ``config.max_constant_bytes``.
    """

    def __init__(self, limit: int):
        self._limit = limit

    def accepts(self, op: str) -> bool:
        """Return whether an op's nodes can be evaluated: safe, stateless, on strings."""
        definition = op_defs.definition(op) if op in MOST_BYTES else None
        return definition is not None and not definition.stateful

    def evaluate(self, op: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
        """Evaluate a node on the CPU.

        See `tf2jax_lite.ir.providers.NodeEvaluator.evaluate`.
        """
        import tensorflow as tf
        from tensorflow.python.eager import context

        definition = op_defs.definition(op)
        if definition is None or op not in MOST_BYTES or len(inputs) != len(definition.inputs):
            raise OpError(f"{op} cannot be evaluated here")
        try:
            size = MOST_BYTES[op](inputs, attrs)
        except (ValueError, TypeError, KeyError, IndexError):
            size = linear(inputs, attrs)  # inputs of shapes that TensorFlow rejects
        check_bytes((size,), 1, "the result of this node for its static strings", limit=self._limit)
        named = {
            arg.name: _tensors(value, arg.types(attrs, op))
            for arg, value in zip(definition.inputs, inputs, strict=True)
        }
        for name, value in attrs.items():
            if name not in definition.kinds:
                raise OpError(f"{op} has no attribute {name!r}")
            if name not in definition.implied:
                named[name] = _attribute(value)
        try:
            with context.eager_mode(), tf.device("CPU:0"):
                results = getattr(tf.raw_ops, op)(**named)
                results = results if isinstance(results, (tuple, list)) else [results]
                return [[_array(v) for v in r] if isinstance(r, list) else _array(r) for r in results]
        except (tf.errors.OpError, ValueError, TypeError) as error:
            reason = _LOCATION.sub("", str(getattr(error, "message", error))).strip().splitlines()
            raise OpError(f"TensorFlow: {' '.join(reason[:2])[:300]}") from error


def _tensors(value: Any, types: Sequence[ir.DType]) -> Any:
    if isinstance(value, list):
        return [_tensor(v, t) for v, t in zip(value, types, strict=True)]
    return _tensor(value, types[0])


def _tensor(value: Any, dtype: ir.DType) -> Any:
    value = np.asarray(value)
    if (dtype == ir.STRING) != (value.dtype == object):
        raise InvalidModelError(f"an input has dtype {value.dtype}; expected {dtype}")
    # Without 64-bit mode, JAX computed 64-bit inputs with 32 bits.
    return value.astype(dtype) if isinstance(dtype, np.dtype) else value


def _attribute(value: Any) -> Any:
    if isinstance(value, (np.dtype, ir.OpaqueType)):
        return dtypes.to_tf(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return list(map(_attribute, value)) if isinstance(value, list) else value


def _array(tensor: Any) -> np.ndarray:
    value = tensor.numpy()
    if dtypes.from_tf(tensor.dtype) != ir.STRING:
        return np.asarray(value)
    out = np.empty(tensor.shape, object)
    out[...] = value
    return out
