"""TensorFlow's registry of gradients: lookup, and tracing in closed-over graphs."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph as tf_func_graph
from tensorflow.python.framework import ops as tf_ops
from tensorflow.python.ops import custom_gradient as tf_custom_gradient

ATTRIBUTE = "_gradient_op_type"
# TensorFlow stores the thread that builds a graph on the graph, so only one thread at a time may trace into one.
_TRACING = threading.RLock()


class Unavailable(Exception):
    """A gradient is not available; the text is the reason."""


@dataclasses.dataclass(frozen=True)
class Recomputation:
    """Inputs of a tf.recompute_grad node (IdentityN): results, arguments, variables."""

    results: int
    args: int


@dataclasses.dataclass(frozen=True)
class Traced:
    """A gradient function as a graph.

    Attributes:
      upstream: placeholders for the gradients of the node's results.
      captured: pairs of a placeholder and the outer tensor that feeds it.
      outputs: the gradients that are not None.
      positions: the index of the node's input that each gradient is for.
    """

    graph: Any
    upstream: list[Any]
    captured: list[tuple[Any, Any]]
    outputs: list[Any]
    positions: list[int]


def find(name: str, operation: Any) -> Callable[..., Any]:
    """Return the gradient function registered under ``name``.

    Raises:
      Unavailable: there is none, or it belongs to another function.
    """
    try:
        gradient = tf_ops.gradient_registry.lookup(name)
    except LookupError:
        raise Unavailable("it is not saved with the model; save with experimental_custom_gradients=True") from None
    # Each process numbers the names from zero: a name from a file may belong to another function in this process.
    result = _closure(_closure(gradient, "tape_grad_fn"), "result")
    if result is not None and gradient.__module__ == tf_custom_gradient.__name__:
        tensors = [t for t in tf.nest.flatten(result, expand_composites=True) if isinstance(t, tf.Tensor)]
        if any(t is not own for t, own in zip(tensors, operation.inputs, strict=False)):
            raise Unavailable("it is not saved with the model; save with experimental_custom_gradients=True")
    return gradient


def recomputation(gradient: Callable[..., Any], operation: Any) -> Recomputation | None:
    """Return the roles of a tf.recompute_grad node's inputs; None for other gradients."""
    tape = _closure(gradient, "tape_grad_fn")
    wrapper = _closure(tape, "grad_fn")
    if getattr(wrapper, "__module__", "") != tf_custom_gradient.__name__:
        return None
    if not getattr(wrapper, "__qualname__", "").startswith("recompute_grad."):
        return None
    results, variables = _closure(tape, "flat_result_len"), _closure(tape, "variables")
    return Recomputation(results, len(operation.inputs) - results - len(variables))


def closed_over(gradient: Callable[..., Any], func_graph: Any) -> list[Any]:
    """Return the tensors of a graph that a function under tf.recompute_grad captures.

    The graph does not distinguish them from values computed from the arguments. So the function is called again, as
    TensorFlow does for the gradient.
    """
    wrapper = _closure(_closure(gradient, "tape_grad_fn"), "grad_fn")
    fn, args, kwargs = (_closure(wrapper, name) for name in ("f", "args", "kwargs"))

    def argument(value: Any) -> Any:
        return tf.compat.v1.placeholder(value.dtype, value.shape) if isinstance(value, tf.Tensor) else value

    try:
        with _TRACING, func_graph.as_default():
            inner = tf_func_graph.FuncGraph("recomputed")
            with inner.as_default(), tf.compat.v1.variable_scope(_closure(wrapper, "current_var_scope")):
                fn(*tf.nest.map_structure(argument, args), **(kwargs or {}))
    except Exception:  # functions that fail here are assumed to depend on their arguments only
        return []
    return [t for t in inner.external_captures if getattr(t, "graph", None) is func_graph]


def _closure(fn: Any, name: str) -> Any:
    """Return the value of a Python function's closure variable; None if absent."""
    code: Any = getattr(fn, "__code__", None)
    cells: Any = getattr(fn, "__closure__", None) or ()
    if code is None or name not in code.co_freevars:
        return None
    try:
        return cells[code.co_freevars.index(name)].cell_contents
    except ValueError:
        return None


def trace(gradient: Callable[..., Any], operation: Any, func_graph: Any, name: str) -> Traced:
    """Trace a gradient function inside the graph it belongs to.

    Raises:
      Unavailable: the function raises, or returns a wrong number of gradients.
    """
    try:
        with _TRACING, func_graph.as_default():
            inner = tf_func_graph.FuncGraph(name)
            with inner.as_default():
                upstream = [
                    tf.compat.v1.placeholder(t.dtype, t.shape, f"upstream_{i}") for i, t in enumerate(operation.outputs)
                ]
                grads = gradient(operation, *upstream)
                grads = list(grads) if isinstance(grads, (list, tuple)) else [grads]
                positions = [i for i, g in enumerate(grads) if g is not None]
                outputs = [tf.identity(inner.capture(tf.convert_to_tensor(grads[i]))) for i in positions]
    except Exception as error:
        raise Unavailable(f"its gradient function fails: {type(error).__name__}: {error}") from error
    if len(grads) > len(operation.inputs):
        raise Unavailable(f"it returns {len(grads)} gradients for {len(operation.inputs)} inputs")
    captured = list(zip(inner.internal_captures, inner.external_captures, strict=True))
    inner.inputs = [*upstream, *inner.internal_captures]
    inner.outputs = outputs
    return Traced(inner, upstream, captured, outputs, positions)
