"""Loop rotation: effectful conditions are evaluated in the body of their loop.

In TensorFlow a condition may assign to variables, draw from a generator (which is a variable) or print. The condition
of a JAX loop cannot, and a loop with a static trip count does not run its condition at all. A condition with effects is
called once before the loop and at the end of each iteration, and its result becomes a loop variable: the same calls in
the same order as in TensorFlow. Pure operands of a conjunction stay in the condition as well, so that the limit of
``maximum_iterations`` bounds the loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.build import FunctionLibrary, redirected
from tf2jax_lite.ir.traversal import WHILES
from tf2jax_lite.ops import registry
from tf2jax_lite.passes.analysis.effects import Summaries
from tf2jax_lite.support.config import Config

_BOOL = np.dtype(np.bool_)


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Move calls of conditions that have effects into the bodies of their loops."""
    del config
    if graph.ops.isdisjoint(WHILES):
        return graph
    effects = Summaries(graph.functions, registry.ops_in_force())
    library = FunctionLibrary(graph.functions)

    def dtype_of_test(node: ir.Node) -> ir.DType | None:
        """Return the dtype of a condition's result, if it has effects."""
        refs = [node.attrs.get("cond"), node.attrs.get("body")]
        if node.op not in WHILES or not all(isinstance(ref, ir.FunctionRef) for ref in refs):
            return None
        cond, body = (graph.functions.get(ref.name) for ref in refs)  # type: ignore[union-attr]
        if cond is None or body is None or not effects.of_function(cond):
            return None
        counts = {len(cond.args), len(body.args), len(body.outputs), len(node.inputs), len(node.output_dtypes)}
        return _dtype_of_result(cond) if len(counts) == 1 else None  # the lowering raises on malformed loops

    def rewritten(function: ir.Function) -> ir.Function:
        found = {node.name: dtype_of_test(node) for node in function.callers}
        effectful = {name: dtype for name, dtype in found.items() if dtype is not None}
        if not effectful:
            return function
        nodes: list[ir.Node] = []
        moved: dict[ir.TensorRef, ir.TensorRef] = {}
        taken = {*(arg.name for arg in function.args), *(node.name for node in function.nodes)}
        for node in function.nodes:
            node = redirected(node, moved)
            if node.name in effectful:
                name, count = ir.free_name(f"{node.name}/test", taken), len(node.output_dtypes)
                dtypes = (effectful[node.name],)
                test = _call(name, node.attrs["cond"], node.inputs, dtypes, node.control, node.location)
                nodes.append(test)
                node = _loop(node, test, library, graph.functions)
                moved |= {ir.TensorRef(node.name, i): ir.TensorRef(node.name, i + 1) for i in range(count)}
            nodes.append(node)
        outputs = tuple(moved.get(ref, ref) for ref in function.outputs)
        return dataclasses.replace(function, nodes=tuple(nodes), outputs=outputs)

    graph = graph.mapped(rewritten)
    return (
        dataclasses.replace(graph, functions={**graph.functions, **library.functions}) if library.functions else graph
    )


def _call(
    name: str,
    called: ir.FunctionRef,
    inputs: tuple[ir.TensorRef, ...],
    dtypes: tuple[ir.DType, ...],
    control: tuple[str, ...] = (),
    location: str | None = None,
) -> ir.Node:
    return build.node(
        "StatefulPartitionedCall",
        inputs,
        name=name,
        control=control,
        location=location,
        stateful=True,
        f=called,
        dtypes=dtypes,
    )


def _dtype_of_result(function: ir.Function) -> ir.DType | None:
    """Return the dtype of a function's only result."""
    # It is None if there are several results, or if no node computes the result.
    if len(function.outputs) != 1:
        return None
    (ref,) = function.outputs
    found = {arg.name: (arg.dtype,) for arg in function.args if arg.name == ref.node}
    found |= {node.name: node.output_dtypes for node in function.nodes if node.name == ref.node}
    dtypes = found.get(ref.node, ())
    return dtypes[ref.index] if ref.index < len(dtypes) else None


def _loop(node: ir.Node, test: ir.Node, library: FunctionLibrary, functions: Mapping[str, ir.Function]) -> ir.Node:
    """Return the loop with the result of its condition as a further loop variable."""
    (dtype,) = test.output_dtypes
    given = tuple(ir.Argument(arg.name, arg.dtype) for arg in functions[node.attrs["body"].name].args)
    taken = {arg.name for arg in given}
    go, body_name, test_name = (ir.free_name(name, taken) for name in ("go", "body", "test"))
    args = (ir.Argument(go, dtype), *given)
    cond = _condition(library.name(f"{node.name}/go"), functions[node.attrs["cond"].name], dtype)
    values = tuple(ir.TensorRef(arg.name) for arg in given)
    run = _call(body_name, node.attrs["body"], values, tuple(arg.dtype for arg in given))
    after = tuple(ir.TensorRef(body_name, i) for i in range(len(values)))
    again = _call(test_name, node.attrs["cond"], after, (dtype,), (body_name,))
    results = (ir.TensorRef(test_name), *after)
    body = ir.Function(library.name(f"{node.name}/body_and_test"), args, (run, again), results)
    return build.node(
        "While",
        [test, *node.inputs],
        name=node.name,
        control=(test.name,),
        location=node.location,
        stateful=True,
        cond=library.add(cond),
        body=library.add(body),
        dtypes=(dtype, *node.output_dtypes),
    )


def _condition(function_name: str, tested: ir.Function, dtype: ir.DType) -> ir.Function:
    """Return the new condition: the carried result and a conjunction's pure operands."""
    taken = {*(arg.name for arg in tested.args), *(node.name for node in tested.nodes)}
    go = ir.free_name("go", taken)
    made = {node.name: node for node in tested.nodes}
    nodes: dict[str, ir.Node] = {}
    result = ir.TensorRef(go)
    both = [tested.outputs[0]]
    while both and dtype == _BOOL:
        ref = both.pop()
        node = made.get(ref.node)
        if node is not None and node.op in ("LogicalAnd", "Identity"):
            both += node.inputs
            continue
        needed = _pure_ancestors(ref, made)
        if needed is None or not needed:
            continue
        nodes |= needed
        name = ir.free_name("still", taken)
        joined = build.node("LogicalAnd", ref, result, name=name)
        nodes[joined.name], result = joined, ir.TensorRef(joined.name)
    ordered = [node for node in tested.nodes if node.name in nodes]
    more = [node for node in nodes.values() if node.name not in made]
    return ir.Function(function_name, (ir.Argument(go, dtype), *tested.args), (*ordered, *more), (result,))


def _pure_ancestors(ref: ir.TensorRef, made: Mapping[str, ir.Node]) -> dict[str, ir.Node] | None:
    """Return the nodes that compute a value, by name; None if one of them is not pure."""
    found: dict[str, ir.Node] = {}
    left = [ref.node]
    while left:
        node = made.get(left.pop())
        if node is None or node.name in found:
            continue
        if node.stateful or node.functions or node.control:
            return None
        found[node.name] = node
        left += [source.node for source in node.inputs]
    return found
