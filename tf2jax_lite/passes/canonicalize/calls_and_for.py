"""BatchFunction to a call, and For to While."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.builder import FunctionLibrary, constant, redirected
from tf2jax_lite.support.config import Config

_INT32 = np.dtype(np.int32)


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace ``BatchFunction`` by calls and ``For`` by ``While``.

    A BatchFunction (``tf.nondifferentiable_batch_function``) concatenates the arguments of concurrent calls in a server
    for throughput. Its function must compute each row independently, so that a plain call has the same result.
    """
    del config
    if graph.ops.isdisjoint(("BatchFunction", "For")):
        return graph
    library = FunctionLibrary(graph.functions)

    def rewritten(function: ir.Function) -> ir.Function:
        if function.ops.isdisjoint(("BatchFunction", "For")):
            return function
        nodes: list[ir.Node] = []
        moved: dict[ir.TensorRef, ir.TensorRef] = {}
        for node in function.nodes:
            if node.op == "For":
                node = _loop(node, library)
                count = len(node.output_dtypes) - 3
                moved |= {ir.TensorRef(node.name, i): ir.TensorRef(node.name, i + 3) for i in range(count)}
            elif node.op == "BatchFunction":
                node = _call(node)
            nodes.append(node)
        nodes = [redirected(node, moved) for node in nodes]
        outputs = tuple(moved.get(ref, ref) for ref in function.outputs)
        return dataclasses.replace(function, nodes=tuple(nodes), outputs=outputs)

    graph = graph.mapped(rewritten)
    return dataclasses.replace(graph, functions={**graph.functions, **library.functions})


def _call(node: ir.Node) -> ir.Node:
    return dataclasses.replace(
        node, op="StatefulPartitionedCall", groups=(len(node.inputs),), attrs={"f": node.attrs["f"]},
        implied=frozenset({"Tin"}), input_types=("Tin",),
    )  # fmt: skip


def _node(name: str, op: str, inputs: tuple[ir.TensorRef, ...], dtype: np.dtype) -> ir.Node:
    return ir.Node(
        name, op, inputs, (None,) * len(inputs), (), {"T": _INT32}, frozenset({"T"}), ("T",) * len(inputs), (dtype,)
    )


def _loop(node: ir.Node, library: FunctionLibrary) -> ir.Node:
    """Return a For as a While that also carries the index, the limit and the step."""
    names = ("index", "limit", "step")
    args = tuple(ir.Argument(name, _INT32) for name in names) + tuple(
        ir.Argument(f"value_{i}", dtype) for i, dtype in enumerate(node.output_dtypes)
    )
    index, limit, step, *values = (ir.TensorRef(arg.name) for arg in args)
    zero = constant("zero", np.int32(0))
    boolean = np.dtype(np.bool_)
    up = _node("up", "Greater", (step, ir.TensorRef("zero")), boolean)
    below = _node("below", "Less", (index, limit), boolean)
    above = _node("above", "Greater", (index, limit), boolean)
    go = dataclasses.replace(
        _node("go", "SelectV2", tuple(map(ir.TensorRef, ("up", "below", "above"))), boolean),
        attrs={"T": boolean}, input_types=("", "T", "T"),
    )  # fmt: skip
    condition = ir.Function(
        library.name(f"{node.name}/cond"), args, (zero, up, below, above, go), (ir.TensorRef("go"),)
    )
    following = _node("following", "AddV2", (index, step), _INT32)
    call = ir.Node(
        "call", "StatefulPartitionedCall", (index, *values), (1 + len(values),), (), {"f": node.attrs["body"]},
        frozenset({"Tin"}), ("Tin",), node.output_dtypes,
    )  # fmt: skip
    results = (ir.TensorRef("following"), limit, step, *(ir.TensorRef("call", i) for i in range(len(values))))
    body = ir.Function(library.name(f"{node.name}/body"), args, (following, call), results)
    return dataclasses.replace(
        node, op="While", groups=(len(node.inputs),), attrs={"cond": library.add(condition), "body": library.add(body)},
        implied=frozenset({"T"}), input_types=("T",), output_dtypes=(_INT32,) * 3 + node.output_dtypes,
        output_shapes=None,
    )  # fmt: skip
