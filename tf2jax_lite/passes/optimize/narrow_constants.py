"""Constants of a narrower type, where the configuration asks for it."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.support.config import Config

__all__ = ["narrow_constants"]


def narrow_constants(graph: ir.Graph, config: Config) -> tuple[ir.Graph, bool]:
    """Reads floating constants as bfloat16 as configured; tells whether anything changed."""
    kinds = set()
    if config.force_const_float32_to_bfloat16:
        kinds.add(np.dtype(np.float32))
    if config.force_const_float64_to_bfloat16:
        kinds.add(np.dtype(np.float64))
    if not kinds:
        return graph, False
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

    functions = {name: narrow(function) for name, function in graph.functions.items()}
    return dataclasses.replace(graph, main=narrow(graph.main), functions=functions), True
