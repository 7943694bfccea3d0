"""Legacy TensorArrays and stacks (V1, V2; string handles) to V3 (resources).

The ops differ only in name and in the type of the handle: a string in V2, a reference to one in V1. Handles become
resources, through every op that forwards them into branches and loops. In V1 and V2, an array's flow starts as a
constant that waits for the array; in V3 the array returns it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.build import constant
from tf2jax_lite.support.config import Config

_FLOAT32 = np.dtype(np.float32)
_USES = ("Write", "Read", "Gather", "Scatter", "Concat", "Split", "Size", "Close")
_RENAMED = {
    **{f"TensorArray{use}{version}": f"TensorArray{use}V3" for use in _USES for version in ("", "V2")},
    **{f"Stack{use}": f"Stack{use}V2" for use in ("Push", "Pop", "Close")},
    "TensorArrayPack": "_TensorArrayStack",
    "TensorArrayUnpack": "TensorArrayUnpack",
}
_MAKERS = {
    "TensorArray": "TensorArrayV3",
    "TensorArrayV2": "TensorArrayV3",
    "TensorArrayGrad": "TensorArrayGradV3",
    "TensorArrayGradV2": "TensorArrayGradV3",
    "Stack": "StackV2",
}
_FORWARD = {
    name: name.removeprefix("Ref")
    for plain in ("Identity", "Switch", "Merge", "Enter", "Exit", "NextIteration")
    for name in (plain, f"Ref{plain}")
}


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace V1 and V2 TensorArrays and stacks by V3."""
    del config
    return graph if graph.ops.isdisjoint(_MAKERS) else graph.mapped(_with_resource_arrays)


def _with_resource_arrays(function: ir.Function) -> ir.Function:
    if function.ops.isdisjoint(_MAKERS):
        return function
    names = {node.name for node in function.nodes}
    handles: set[ir.TensorRef] = set()
    nodes: list[ir.Node] = []
    arrays = {node.name for node in function.nodes if _MAKERS.get(node.op) == "TensorArrayV3"}
    flows: dict[ir.TensorRef, ir.TensorRef] = {}
    for node in function.nodes:
        waits = [name for name in node.control if name in arrays]
        if node.op == "Const" and waits and node.output_dtypes == (_FLOAT32,) and np.ndim(node.attrs["value"]) == 0:
            flows[ir.TensorRef(node.name)] = ir.TensorRef(waits[0], 1)
        if not flows.keys().isdisjoint(node.inputs):
            node = dataclasses.replace(node, inputs=tuple(flows.get(ref, ref) for ref in node.inputs))
        if node.op in _MAKERS:
            nodes += _made(node, names)
            handles.add(ir.TensorRef(node.name))
        elif node.op in _RENAMED:
            nodes.append(_typed(dataclasses.replace(node, op=_RENAMED[node.op])))
        elif node.op in _FORWARD and not handles.isdisjoint(node.inputs):
            # The last result of a Merge is value_index, an integer.
            count = 1 if node.op.endswith("Merge") else len(node.output_dtypes)
            handles.update(ir.TensorRef(node.name, index) for index in range(count))
            nodes.append(_forwarding(node, count))
        else:
            nodes.append(node)
    outputs = tuple(flows.get(ref, ref) for ref in function.outputs)
    return dataclasses.replace(function, nodes=tuple(nodes), outputs=outputs)


def _made(node: ir.Node, names: set[str]) -> list[ir.Node]:
    op = _MAKERS[node.op]
    if op != "StackV2":
        attrs: dict[str, Any] = dict(node.attrs)
        if op == "TensorArrayV3":
            attrs["identical_element_shapes"] = False
        dtypes = (ir.RESOURCE, _FLOAT32)
        return [dataclasses.replace(node, op=op, attrs=attrs, output_dtypes=dtypes, output_shapes=None)]
    size = constant(ir.free_name(f"{node.name}/max_size", names), np.int32(-1))
    return [
        size,
        dataclasses.replace(
            node, op=op, inputs=(ir.TensorRef(size.name),), groups=(None,), input_types=("",),
            output_dtypes=(ir.RESOURCE,), output_shapes=None,
        ),
    ]  # fmt: skip


def _typed(node: ir.Node) -> ir.Node:
    """Return a stack op with resources in place of string handles of inner stacks."""
    if not node.op.startswith("Stack"):
        return node
    attrs = {k: ir.RESOURCE if v is ir.STRING else v for k, v in node.attrs.items()}
    dtypes = tuple(ir.RESOURCE if dtype is ir.STRING else dtype for dtype in node.output_dtypes)
    return dataclasses.replace(node, attrs=attrs, output_dtypes=dtypes, output_shapes=None)


def _forwarding(node: ir.Node, count: int) -> ir.Node:
    attrs = {**node.attrs, "T": ir.RESOURCE} if "T" in node.attrs else node.attrs
    dtypes = tuple(ir.RESOURCE if index < count else dtype for index, dtype in enumerate(node.output_dtypes))
    return dataclasses.replace(node, op=_FORWARD[node.op], attrs=attrs, output_dtypes=dtypes, output_shapes=None)
