"""Float constants to bfloat16 (``force_const_float{32,64}_to_bfloat16``)."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.support.config import Config


def narrowed_dtypes(config: Config) -> frozenset[np.dtype]:
    """Return the dtypes whose constants become bfloat16.

    Ops then meet operands of several dtypes.
    """
    options = {np.float32: config.force_const_float32_to_bfloat16, np.float64: config.force_const_float64_to_bfloat16}
    return frozenset(np.dtype(dtype) for dtype, narrowed in options.items() if narrowed)


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Convert float constants to bfloat16 as configured."""
    kinds = narrowed_dtypes(config)
    if not kinds:
        return graph
    bfloat16 = np.dtype(ml_dtypes.bfloat16)

    def narrow(function: ir.Function) -> ir.Function:
        nodes = []
        for node in function.nodes:
            value: Any = node.attrs.get("value")
            if node.op == "Const" and isinstance(value, np.ndarray) and value.dtype in kinds:
                attrs = {**node.attrs, "value": value.astype(bfloat16), "dtype": bfloat16}
                node = dataclasses.replace(node, attrs=attrs, output_dtypes=(bfloat16,))
            nodes.append(node)
        return dataclasses.replace(function, nodes=tuple(nodes))

    return graph.mapped(narrow)
