"""Overridden gradients as ``_CustomGradient`` nodes.

TensorFlow marks a node whose gradient is overridden with the name of a function in a registry of the process: an
IdentityN over (results, arguments, variables read) for ``tf.custom_gradient``, any op under ``gradient_override_map``.
The function is a Python closure over tensors of the graph being built. It is traced once into a function of (gradients
of the node's results, captured tensors), and the node becomes a ``_CustomGradient`` with the captured tensors as
further inputs. A node that ``tf.recompute_grad`` marks becomes a ``_Recompute``: see `recomputed`.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.frontend.graphdef import dtypes, functions
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import called_functions, topological_order
from tf2jax_lite.support.errors import MissingGradientError

from .capture_threading import MAIN, Asked, Unroutable, with_extra_inputs
from .tf_registry import ATTRIBUTE, Recomputation, Unavailable, closed_over, find, recomputation, trace

# A gradient function may contain custom gradients, and some (those that Keras's optimizers put around their updates)
# contain themselves recursively. Derivatives of a higher order raise an error.
_HIGHEST_ORDER = 3
# TensorFlow marks each call of a function with a name for its body's gradient, and never uses it.
_UNMARKED = ("_CustomGradient", "PartitionedCall", "StatefulPartitionedCall")


def rewrite_custom_gradients(
    graph: ir.Graph, func_graph: Any, captures: dict[int, int]
) -> tuple[ir.Graph, list[Any], list[Any]]:
    """Replace each overridden gradient with a node.

    Args:
      func_graph: TensorFlow's graph of the main function.
      captures: ``id`` of each tensor that the main function captures, to its position among the arguments.

    Returns:
      The graph; outer tensors that only gradient functions capture, which become the main function's last arguments;
      and the variables that gradient functions read.
    """
    return _Rewriter(graph, func_graph, captures).run()


class _Rewriter:
    def __init__(self, graph: ir.Graph, func_graph: Any, captures: dict[int, int]):
        self._graph = graph
        self._functions: dict[str, ir.Function] = dict(graph.functions)
        self._func_graph = func_graph
        self._graphs = FunctionGraphs(func_graph)
        self._order: dict[str, int] = {}
        self._reach = Reach()
        self._marked: dict[str, frozenset[str]] = {}
        self._done: set[tuple[str, str]] = set()
        self._captures = captures
        self._main = graph.main
        self._asked = Asked("captured_by_gradients")
        self._variables: list[Any] = []
        self._forward = {MAIN, *called_functions(graph)}
        self._missing: list[tuple[str, str, str]] = []

    def run(self) -> tuple[ir.Graph, list[Any], list[Any]]:
        while todo := [(name, wanted) for name in (MAIN, *self._functions) if (wanted := self._wanted(name))]:
            for name, wanted in todo:
                self._done |= {(name, node) for node in wanted}
                function = self._function(name)
                if self._order.get(name, 0) >= _HIGHEST_ORDER:
                    rewritten = _ended(function, wanted)
                else:
                    rewritten = self._rewrite(name, function, wanted)
                if name == MAIN:
                    self._main = rewritten
                else:
                    self._functions[name] = rewritten
        _report(self._main.name, self._missing)
        graph = dataclasses.replace(self._graph, main=self._main, functions=self._functions)
        if self._asked:
            try:
                graph = with_extra_inputs(graph, self._asked, self._refer, lambda t: dtypes.from_tf(t.dtype))
            except (Unavailable, Unroutable) as reason:
                raise MissingGradientError(
                    f"{self._main.name!r}: a gradient function uses a tensor that cannot be passed to it ({reason})."
                ) from None
        return graph, self._asked.of(MAIN), self._variables

    def _function(self, name: str) -> ir.Function:
        return self._functions[name] if name else self._main

    def _wanted(self, name: str) -> set[str]:
        """Return the nodes of a function whose gradients are not replaced yet."""
        marked = self._marked.get(name)
        if marked is None:  # once, as a node's replacement has its name
            func_graph = self._graphs.of(name)
            function = self._function(name)
            nodes = function.with_specs({s for s in function.specs if ATTRIBUTE in s.attrs or "_by_name" in s.attrs})
            found = [n.name for n in nodes if _is_marked(n) or _python_gradient(n, func_graph)]
            marked = self._marked[name] = frozenset(found)
        left = {node for node in marked if (name, node) not in self._done}
        if not left or not self._order.get(name):
            return left
        reached = {node for node in left if self._reach.reaches(name, node)}
        if reached != left and any(self._is_recomputed(name, node) for node in reached):
            # A recomputed region is outlined once, with all gradients in it.
            self._reach.ask_everything(name)
            return left
        return reached

    def _is_recomputed(self, name: str, node: str) -> bool:
        try:
            operation = _operation(self._graphs.of(name), node)
            return recomputation(find(operation.get_attr(ATTRIBUTE).decode(), operation), operation) is not None
        except (Unavailable, ValueError):
            return False

    def _rewrite(self, name: str, function: ir.Function, wanted: set[str]) -> ir.Function:
        nodes: list[ir.Node] = []
        cuts: list[tuple[str, Recomputation, list[ir.TensorRef]]] = []
        func_graph = self._graphs.of(name)
        for node in function.nodes:
            if node.name in wanted:
                try:
                    operation = _operation(func_graph, node.name)
                    gradient = _python_gradient(node, func_graph) or find(node.attrs[ATTRIBUTE], operation)
                    cut = recomputation(gradient, operation)
                    if cut is None:
                        nodes.extend(self._replaced(node, name, function, func_graph, operation, gradient))
                        continue
                    closed = [ir.TensorRef(t.op.name, t.value_index) for t in closed_over(gradient, func_graph)]
                    cuts.append((node.name, cut, closed))
                except Unavailable as reason:
                    # TensorFlow does not save the gradients of gradient functions, so that no user could supply them.
                    if name in self._forward:
                        self._missing.append((node.name, function.name, str(reason)))
            nodes.append(node)
        function = dataclasses.replace(function, nodes=topological_order(function.name, nodes))
        for node_name, cut, closed in cuts:  # inner ones first, as nodes are in order
            function, inner = recomputed(function, node_name, cut, closed)
            self._functions[inner.name] = inner
        return function

    def _replaced(
        self, node: ir.Node, key: str, function: ir.Function, func_graph: Any, operation: Any, gradient: Any
    ) -> list[ir.Node]:
        """Return the node and its ``_CustomGradient``; only the latter for an IdentityN."""
        traced = trace(gradient, operation, func_graph, f"{node.name}_gradient")
        name = f"{function.name}/{node.name}/gradient"
        args = [ir.Argument(t.op.name, dtypes.from_tf(t.dtype)) for t in traced.graph.inputs]
        proto = traced.graph.as_graph_def()
        order = self._order[name] = self._order.get(key, 0) + 1
        library = functions.load_library(proto.library, self._functions)
        self._functions.update(library)
        self._order.update(dict.fromkeys(library, order))
        loaded = self._functions[name] = functions.load_main(proto, name, args, [t.name for t in traced.outputs])
        self._graphs.add(name, traced.graph)
        self._reach.add({name: loaded, **library})
        self._reach.ask(name, loaded.outputs)
        self._variables.extend(traced.graph.variables)
        before: list[ir.Node] = []
        outputs = node.inputs
        if node.op != "IdentityN":
            attrs = {k: v for k, v in node.attrs.items() if k != ATTRIBUTE}
            before = [dataclasses.replace(node, name=f"{node.name}/_original", attrs=attrs)]
            outputs = tuple(ir.TensorRef(before[0].name, i) for i in range(len(node.output_dtypes)))
        captured: list[ir.TensorRef] = []
        own: list[int] = []
        for _, outer in traced.captured:
            ref = self._refer(key, outer)
            self._flows_back_to(outer)
            position = ref.index if ref.node == node.name else -1
            own.append(position)
            captured.append(outputs[position] if position >= 0 else ref)
        marked = build.node(
            "_CustomGradient",
            outputs,
            node.inputs,
            captured,
            gradient=ir.FunctionRef(name),
            positions=traced.positions,
            own=own,
            dtypes=node.output_dtypes,
            like=node,
        )
        return [*before, marked]

    def _flows_back_to(self, outer: Any) -> None:
        """Record that higher derivatives reach a tensor that a gradient function captures."""
        func_graph = getattr(outer, "graph", None)
        if func_graph is None:  # an eager tensor
            return
        name = self._graphs.name_of(func_graph)
        if name is not None:
            self._reach.ask(name, [ir.TensorRef(outer.op.name, outer.value_index)])
            return
        for name in self._order:
            self._reach.ask_everything(name)

    def _refer(self, key: str, outer: Any) -> ir.TensorRef:
        """Return a function's reference to a tensor that a gradient function captures."""
        function = self._functions[key] if key else self._main
        func_graph = self._graphs.of(key)
        if not key and id(outer) in self._captures:
            return ir.TensorRef(function.args[self._captures[id(outer)]].name)
        inputs = getattr(func_graph, "inputs", ())
        if getattr(outer, "graph", None) is func_graph:
            for index, placeholder in enumerate(inputs):
                if placeholder is outer:
                    return ir.TensorRef(function.args[index].name)
            return ir.TensorRef(outer.op.name, outer.value_index)
        for external, internal in getattr(func_graph, "captures", ()):
            if external is outer:
                for index, placeholder in enumerate(inputs):
                    if placeholder is internal:
                        return ir.TensorRef(function.args[index].name)
        if key == MAIN and not isinstance(outer, tf.__internal__.EagerTensor):
            raise Unavailable("its gradient function uses a tensor of a graph that is not being converted")
        return ir.TensorRef(self._asked.add(key, outer))


def report_missing(graph: ir.Graph) -> None:
    """Warn of overridden gradients of a frozen graph, which does not contain them."""
    live = [graph.main, *(graph.functions[name] for name in sorted(called_functions(graph)))]
    reason = "a GraphDef contains none"
    _report(graph.main.name, [(n.name, f.name, reason) for f in live for n in f.nodes if _is_marked(n)])


def _report(where: str, missing: list[tuple[str, str, str]]) -> None:
    if not missing:
        return
    lines = [f"  node {n!r} in {f!r}: {why}" for n, f, why in missing[:10]]
    if len(missing) > 10:
        lines.append(f"  and {len(missing) - 10} more")
    listed = "\n".join(lines)
    warnings.warn(
        f"{where!r}: {len(missing)} custom gradient(s) are not available:\n{listed}\n"
        "The gradient of the forward code is used instead.",
        stacklevel=2,
    )


def _is_marked(node: ir.Node) -> bool:
    name = node.attrs.get(ATTRIBUTE)
    return name is not None and node.op not in _UNMARKED


def _ended(function: ir.Function, wanted: set[str]) -> ir.Function:
    """Replace overridden gradients with nodes that raise when they are differentiated."""
    nodes: list[ir.Node] = []
    for node in function.nodes:
        if node.name not in wanted:
            nodes.append(node)
            continue
        attrs = {k: v for k, v in node.attrs.items() if k != ATTRIBUTE}
        original = dataclasses.replace(node, name=f"{node.name}/_original", attrs=attrs)
        nodes.append(original)
        nodes.append(
            build.node(
                "_NoFurtherGradient",
                [ir.TensorRef(original.name, i) for i in range(len(node.output_dtypes))],
                order=_HIGHEST_ORDER,
                dtypes=node.output_dtypes,
                like=node,
            )
        )
    return dataclasses.replace(function, nodes=topological_order(function.name, nodes))


def _python_gradient(node: ir.Node, func_graph: Any) -> Any:
    """Return a Defun's Python gradient, for a node whose op is its name; else None."""
    if "_by_name" not in node.attrs:
        return None
    name = node.attrs["f"].name
    known = getattr(func_graph, "_functions", {})
    return getattr(known.get(name, known.get(name.encode())), "python_grad_func", None)


def _operation(func_graph: Any, name: str) -> Any:
    if func_graph is None:
        raise Unavailable("the graph that it was traced in is gone")
    try:
        return func_graph.get_operation_by_name(name)
    except (KeyError, ValueError):
        raise Unavailable("the graph that it was traced in has another form") from None


class FunctionGraphs:
    """TensorFlow's graphs of functions by name, found through their callers."""

    def __init__(self, main: Any):
        self._known: dict[str, Any] = {MAIN: main}
        self._complete = False

    def add(self, name: str, func_graph: Any) -> None:
        """Add a graph."""
        self._known[name] = func_graph
        self._complete = False

    def of(self, name: str) -> Any:
        """Return the graph of a function, or None."""
        return self._known[name] if name in self._known else self._found().get(name)

    def all(self) -> list[Any]:
        """Return the graphs of all functions, the main one first."""
        return list(self._found().values())

    def name_of(self, func_graph: Any) -> str | None:
        """Return the name of the function whose graph this is, or None."""
        return next((name for name, known in self._found().items() if known is func_graph), None)

    def _found(self) -> dict[str, Any]:
        pending = [] if self._complete else list(self._known.values())
        while pending:
            for called, function in getattr(pending.pop(), "_functions", {}).items():
                called = called.decode() if isinstance(called, bytes) else called
                inner = getattr(function, "graph", None)
                if called not in self._known and inner is not None:
                    self._known[called] = inner
                    pending.append(inner)
        self._complete = True
        return self._known


# Ops with float results that stop gradients. A missing entry only costs time.
_STOPS = frozenset({"StopGradient", "ZerosLike", "OnesLike", "Sign", "Round", "Floor", "Ceil", "Rint"})


class Reach:
    """The nodes that gradients reach so far.

    The results of a node that calls functions are assumed to depend on all its inputs and on all results of the
    functions.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, ir.Node]] = {}
        self._outputs: dict[str, tuple[ir.TensorRef, ...]] = {}
        self._reached: dict[str, set[str]] = {}
        self._wanted: set[str] = set()

    def add(self, functions: Mapping[str, ir.Function]) -> None:
        """Add functions by name, before any of their nodes is replaced."""
        for name, function in functions.items():
            if name not in self._nodes:
                self._nodes[name] = {node.name: node for node in function.nodes}
                self._outputs[name] = function.outputs
        for name in functions.keys() & self._wanted:  # asked for before they were added
            self.ask(name, self._outputs[name])

    def ask(self, function: str, refs: Iterable[ir.TensorRef]) -> None:
        """Mark tensors of a function as differentiated."""
        pending = [(function, ref) for ref in refs]
        while pending:
            where, ref = pending.pop()
            node = self._nodes.get(where, {}).get(ref.node)
            if node is None or not _carries(node, ref.index):
                continue
            if node.op in _STOPS and ATTRIBUTE not in node.attrs:
                continue
            reached = self._reached.setdefault(where, set())
            if node.name in reached:
                continue
            reached.add(node.name)
            pending.extend((where, source) for source in node.inputs)
            for called in node.functions:
                if called.name not in self._wanted:
                    self._wanted.add(called.name)
                    pending.extend((called.name, source) for source in self._outputs.get(called.name, ()))

    def ask_everything(self, function: str) -> None:
        """Mark all nodes of a function as differentiated."""
        for name, node in self._nodes.get(function, {}).items():
            self.ask(function, (ir.TensorRef(name, i) for i in range(len(node.output_dtypes))))

    def reaches(self, function: str, node: str) -> bool:
        """Return whether a gradient can reach a node."""
        return node in self._reached.get(function, ())


def _carries(node: ir.Node, index: int) -> bool:
    """Return whether a result can have a gradient: float, complex, or a container."""
    if index >= len(node.output_dtypes):
        return True
    dtype = node.output_dtypes[index]
    if not isinstance(dtype, np.dtype):
        return dtype is not ir.STRING
    return dtype.kind not in "biu"  # bfloat16 and similar dtypes have kind V


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
