"""tf.recompute_grad: outlining of the nodes between its arguments and results.

TensorFlow marks an IdentityN over (results, arguments, variables read); the forward code is in the same graph. The node
becomes a ``_Recompute`` that calls the outlined function under ``jax.checkpoint``. Outlined nodes keep their names, and
so their random keys. Forward code that only the node used is dead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from tf2jax_lite import ir
from tf2jax_lite.ir import build

from .tf_registry import ATTRIBUTE, Recomputation


def recomputed(
    function: ir.Function, name: str, cut: Recomputation, closed: Collection[ir.TensorRef] = ()
) -> tuple[ir.Function, ir.Function]:
    """Replace the node; return the function and the outlined function.

    Args:
      function: the function that contains the marked IdentityN; nodes in topological order.
      closed: tensors that the recomputed function closes over, which may depend on the same arguments.
    """
    nodes = {node.name: node for node in function.nodes}
    marked = nodes[name]
    results = marked.inputs[: cut.results]
    args = marked.inputs[cut.results : cut.results + cut.args]
    ends = {*args, *closed}
    region = _region(function, results, set(args), ends)
    # Arguments and variables get gradients; other captures of the function get none.
    handles = {nodes[r.node].inputs[0] for r in marked.inputs[cut.results + cut.args :] if _reads(nodes, r)}
    outer: dict[ir.TensorRef, ir.TensorRef] = {}

    def inside(ref: ir.TensorRef) -> ir.TensorRef:
        if ref.node in region and ref not in ends:
            return ref
        return outer.setdefault(ref, ir.TensorRef(f"{name}/outer_{len(outer)}"))

    inner_nodes = tuple(
        dataclasses.replace(
            node, inputs=tuple(map(inside, node.inputs)), control=tuple(c for c in node.control if c in region)
        )
        for node in function.nodes
        if node.name in region
    )
    outputs = tuple(map(inside, marked.inputs))
    types = {arg.name: (arg.dtype,) for arg in function.args} | {n.name: n.output_dtypes for n in function.nodes}
    inner = ir.Function(
        name=f"{function.name}/{name}/recomputed",
        args=tuple(ir.Argument(new.node, types[ref.node][ref.index]) for ref, new in outer.items()),
        nodes=inner_nodes,
        outputs=outputs,
        output_names=tuple(f"result_{i}" for i in range(len(outputs))),
    )
    stopped = [
        i
        for i, ref in enumerate(outer)
        if ref not in args and not (_reads(nodes, ref) and nodes[ref.node].inputs[0] in handles)
    ]
    attrs = {k: v for k, v in marked.attrs.items() if k.startswith("_") and k != ATTRIBUTE}
    node = build.node(
        "_Recompute",
        list(outer),
        f=ir.FunctionRef(inner.name),
        stopped=stopped,
        dtypes=marked.output_dtypes,
        like=marked,
        **attrs,
    )
    changed = tuple(node if n.name == name else n for n in function.nodes)
    return dataclasses.replace(function, nodes=changed), inner


def _region(
    function: ir.Function, results: tuple[ir.TensorRef, ...], args: set[ir.TensorRef], ends: set[ir.TensorRef]
) -> set[str]:
    """Return the nodes on paths from ``ends`` (arguments) to results."""
    below: set[str] = set()
    for node in function.nodes:
        if any(ref in args or ref.node in below for ref in node.inputs):
            below.add(node.name)
    nodes = {node.name: node for node in function.nodes}
    region: set[str] = set()
    pending = [ref for ref in results if ref not in ends]
    while pending:
        name = pending.pop().node
        if name in below and name not in region:
            region.add(name)
            pending.extend(ref for ref in nodes[name].inputs if ref not in ends)
    return region


def _reads(nodes: dict[str, ir.Node], ref: ir.TensorRef) -> bool:
    return ref.node in nodes and nodes[ref.node].op == "ReadVariableOp"
