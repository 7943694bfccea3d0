"""BatchFunction to a call, For to While, and calls of the implementation for CPU.

The last is one among several with the attribute ``api_implements``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.build import FunctionLibrary, constant, redirected
from tf2jax_lite.support.config import Config

_INT32 = np.dtype(np.int32)


def calls_and_for(graph: ir.Graph, config: Config) -> ir.Graph:
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
    return build.node("StatefulPartitionedCall", node.inputs, f=node.attrs["f"], dtypes=node.output_dtypes, like=node)


def _loop(node: ir.Node, library: FunctionLibrary) -> ir.Node:
    """Return a For as a While that also carries the index, the limit and the step."""
    names = ("index", "limit", "step")
    args = tuple(ir.Argument(name, _INT32) for name in names) + tuple(
        ir.Argument(f"value_{i}", dtype) for i, dtype in enumerate(node.output_dtypes)
    )
    index, limit, step, *values = (ir.TensorRef(arg.name) for arg in args)
    zero = constant("zero", np.int32(0))
    up = build.node("Greater", step, zero, name="up", T=_INT32)
    below = build.node("Less", index, limit, name="below", T=_INT32)
    above = build.node("Greater", index, limit, name="above", T=_INT32)
    go = build.node("SelectV2", up, below, above, name="go", T=np.dtype(np.bool_))
    condition = ir.Function(
        library.name(f"{node.name}/cond"), args, (zero, up, below, above, go), (ir.TensorRef("go"),)
    )
    following = build.node("AddV2", index, step, name="following", T=_INT32)
    call = build.node(
        "StatefulPartitionedCall", [index, *values], name="call", f=node.attrs["body"], dtypes=node.output_dtypes
    )
    results = (ir.TensorRef("following"), limit, step, *(ir.TensorRef("call", i) for i in range(len(values))))
    body = ir.Function(library.name(f"{node.name}/body"), args, (following, call), results)
    dtypes = (_INT32,) * 3 + node.output_dtypes
    return build.node(
        "While", node.inputs, cond=library.add(condition), body=library.add(body), dtypes=dtypes, like=node
    )


# Attributes of FunctionDefs: tensorflow/python/eager/polymorphic_function/attributes.py.
_INTERFACE, _DEVICE = "api_implements", "api_preferred_device"
# Attributes of the forward and backward functions of a gradient: a variant must have the same.
_ROLES = ("forward_function_name", "backward_function_name")


def select_implementation(graph: ir.Graph, config: Config) -> ir.Graph:
    """Redirect calls of functions that have a CPU variant to that variant.

    TensorFlow Probability's samplers and Keras's recurrent layers have one implementation for CPU and one for
    accelerators. The graph may call either; TensorFlow's implementation selector
    (tensorflow/core/grappler/optimizers/implementation_selector.cc) replaces it by the one for the device when the
    graph runs. The two may draw different random numbers; this library agrees with TensorFlow on CPU.
    """
    del config
    variants: dict[str, list[ir.Function]] = {}
    for function in graph.functions.values():
        if function.attrs.get(_INTERFACE) and function.attrs.get(_DEVICE) == "CPU":
            variants.setdefault(function.attrs[_INTERFACE], []).append(function)
    if not variants:
        return graph

    def chosen(name: str) -> str:
        function = graph.functions.get(name)
        if function is None or function.attrs.get(_DEVICE) == "CPU":
            return name
        found = [f for f in variants.get(function.attrs.get(_INTERFACE, ""), ()) if _is_interchangeable(function, f)]
        return found[0].name if len(found) == 1 else name

    def rewritten(function: ir.Function) -> ir.Function:
        nodes = [_calling(node, chosen) for node in function.nodes]
        return dataclasses.replace(function, nodes=tuple(nodes))

    return graph.mapped(rewritten)


def _calling(node: ir.Node, chosen: Callable[[str], str]) -> ir.Node:
    called = node.attrs.get("f")
    if not isinstance(called, ir.FunctionRef) or chosen(called.name) == called.name:
        return node
    return dataclasses.replace(node, attrs={**node.attrs, "f": dataclasses.replace(called, name=chosen(called.name))})


def _is_interchangeable(one: ir.Function, other: ir.Function) -> bool:
    """Return whether two functions have equal signatures and roles in a gradient."""
    # Signatures are argument dtypes and the number of results.
    return (
        [a.dtype for a in one.args] == [a.dtype for a in other.args]
        and len(one.outputs) == len(other.outputs)
        and [role in one.attrs for role in _ROLES] == [role in other.attrs for role in _ROLES]
    )
