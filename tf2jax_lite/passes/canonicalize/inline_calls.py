"""Function inlining, so that a graph can be partitioned between any two nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import CALLS
from tf2jax_lite.support.errors import InvalidModelError

Origin = tuple[str, str]
"""A function's name and a node's name in it."""


@dataclasses.dataclass(frozen=True)
class Inlined:
    """A main function without calls, and the origin of each of its nodes.

    Attributes:
      origins: for each node, the function it comes from and its name there.
    """

    main: ir.Function
    origins: Mapping[str, Origin]


def inline_calls(graph: ir.Graph) -> Inlined:
    """Inline every call at any depth; the functions of loops and branches stay.

    Args:
      graph: a verified graph (see `tf2jax_lite.ir.verify`): its calls are not recursive.
    """
    inliner = _Inliner(graph)
    main = graph.main
    bindings = {arg.name: ir.TensorRef(arg.name) for arg in main.args}
    scope = inliner.expand(main, "", bindings, ())
    return Inlined(
        dataclasses.replace(
            main,
            nodes=tuple(inliner.nodes),
            outputs=tuple(scope.tensor(ref) for ref in main.outputs),
            control_outputs=tuple(dict.fromkeys(n for c in main.control_outputs for n in scope.control(c))),
        ),
        inliner.origins,
    )


@dataclasses.dataclass
class _Scope:
    """The new names of a body that is being inlined."""

    bindings: dict[str, ir.TensorRef]
    calls: dict[str, tuple[list[ir.TensorRef], tuple[str, ...]]]
    names: dict[str, str]

    def tensor(self, ref: ir.TensorRef) -> ir.TensorRef:
        if ref.node in self.bindings:
            return self.bindings[ref.node]
        if ref.node in self.calls:
            results = self.calls[ref.node][0]
            if ref.index >= len(results):
                raise InvalidModelError(f"call {ref.node!r} has {len(results)} results, but {ref} is used.")
            return results[ref.index]
        return ir.TensorRef(self.names[ref.node], ref.index)

    def control(self, name: str) -> tuple[str, ...]:
        if name in self.bindings:
            return ()
        return self.calls[name][1] if name in self.calls else (self.names[name],)


class _Inliner:
    def __init__(self, graph: ir.Graph):
        self._graph = graph
        self._taken = {node.name for node in graph.main.nodes} | {arg.name for arg in graph.main.args}
        self.nodes: list[ir.Node] = []
        self.origins: dict[str, Origin] = {}

    def expand(
        self,
        function: ir.Function,
        prefix: str,
        bindings: dict[str, ir.TensorRef],
        before: tuple[str, ...],
    ) -> _Scope:
        """Append a body's nodes; ``before`` names nodes that must run before them."""
        scope = _Scope(bindings, {}, {})
        for node in function.nodes:
            inputs = tuple(scope.tensor(ref) for ref in node.inputs)
            control = tuple(dict.fromkeys((*before, *(n for c in node.control for n in scope.control(c)))))
            if node.op in CALLS:
                scope.calls[node.name] = self._call(node, prefix, inputs, control)
                continue
            name = ir.free_name(prefix + node.name, self._taken) if prefix else node.name
            scope.names[node.name] = name
            self.origins[name] = (function.name, node.name)
            self.nodes.append(dataclasses.replace(node, name=name, inputs=inputs, control=control))
        return scope

    def _call(
        self,
        node: ir.Node,
        prefix: str,
        inputs: Sequence[ir.TensorRef],
        control: tuple[str, ...],
    ) -> tuple[list[ir.TensorRef], tuple[str, ...]]:
        target = node.attrs["f"].name
        body = self._graph.functions.get(target)
        if body is None:
            raise InvalidModelError(f"node {node.name!r} calls function {target!r}, which the graph does not hold.")
        if len(body.args) != len(inputs):
            raise InvalidModelError(
                f"node {node.name!r} calls {target!r} with {len(inputs)} arguments; it takes {len(body.args)}."
            )
        bindings = {arg.name: ref for arg, ref in zip(body.args, inputs, strict=True)}
        inner = self.expand(body, f"{prefix}{node.name}/", bindings, control)
        results = [inner.tensor(ref) for ref in body.outputs]
        done = [n for c in body.control_outputs for n in inner.control(c)]
        done += [ref.node for ref in results if ref.node in self.origins]
        return results, tuple(dict.fromkeys(done))
