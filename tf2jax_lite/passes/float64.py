"""A graph in double precision, the reference for round-off errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.support.errors import UnsupportedError

_FLOAT64 = {
    np.dtype(np.float16): np.dtype(np.float64),
    np.dtype(ml_dtypes.bfloat16): np.dtype(np.float64),
    np.dtype(np.float32): np.dtype(np.float64),
    np.dtype(np.complex64): np.dtype(np.complex128),
}


def widen_array(value: Any) -> Any:
    """Return floats as float64, complex numbers as complex128, others unchanged."""
    dtype = _FLOAT64.get(getattr(value, "dtype", None))  # type: ignore[arg-type]
    return value if dtype is None else np.asarray(value).astype(dtype)


def widen(graph: ir.Graph) -> ir.Graph:
    """Return a graph with float64 for floats and complex128 for complex numbers.

    Casts to narrower floats become casts to float64: rounding in the graph is removed as well.
    """
    opaque = [node.name for _, node in graph.walk() if node.op == "XlaCallModule"]
    if opaque:
        raise UnsupportedError(f"a compiled module cannot be computed in float64: node {opaque[0]!r} (XlaCallModule).")
    return ir.Graph(
        _function(graph.main),
        {name: _function(function) for name, function in graph.functions.items()},
        tuple(dataclasses.replace(c, value=_capture(c.value)) for c in graph.captures),
    )


def _dtype(dtype: Any) -> Any:
    return _FLOAT64.get(dtype, dtype)


def _function(function: ir.Function) -> ir.Function:
    args = tuple(dataclasses.replace(a, dtype=_dtype(a.dtype)) for a in function.args)
    return dataclasses.replace(function, args=args, nodes=tuple(map(_node, function.nodes)))


def _node(node: ir.Node) -> ir.Node:
    attrs = {name: _attribute(value) for name, value in node.attrs.items()}
    return dataclasses.replace(node, attrs=attrs, output_dtypes=tuple(map(_dtype, node.output_dtypes)))


def _attribute(value: Any) -> Any:
    if isinstance(value, np.dtype):
        return _dtype(value)
    if isinstance(value, np.ndarray):
        return widen_array(value)
    if isinstance(value, (list, tuple)):
        return type(value)([_attribute(v) for v in value])
    if isinstance(value, ir.FunctionRef) and isinstance(value.attrs, Mapping):
        return dataclasses.replace(value, attrs={name: _attribute(v) for name, v in value.attrs.items()})
    return value


def _capture(value: Any) -> Any:
    if isinstance(value, ir.Variable):
        held = value.value if value.value is None else widen_array(value.value)
        return dataclasses.replace(value, dtype=_dtype(value.dtype), value=held)
    return widen_array(value) if isinstance(value, np.ndarray) else value
