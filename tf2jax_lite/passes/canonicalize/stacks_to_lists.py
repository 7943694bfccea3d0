"""Stack resources (of TF1's loop gradients) to TensorLists, which loops can carry.

In TF1 the forward loop pushes values to a stack, a resource, and the gradient's loop pops them. Each function gets the
contents of a stack as an argument in place of its handle and returns the updated contents: a loop as the loop variable
that was the handle, branches and calls as further results. The loops can then be scanned like any other loop that
builds a TensorList.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.build import constant
from tf2jax_lite.ir.traversal import argument_offset, skip
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.errors import UnsupportedError


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace StackV2, StackPushV2, StackPopV2 and StackCloseV2 by TensorList ops."""
    del config
    if "StackV2" not in graph.ops:
        return graph
    rewriter = _Rewriter(graph)
    main = rewriter.function(graph.main, ())
    return dataclasses.replace(graph, main=main, functions=rewriter.functions)


@dataclasses.dataclass(frozen=True)
class _Uses:
    """Indices of a function's stack arguments, and of those pushed to or popped from."""

    stacks: frozenset[int]
    changed: frozenset[int]


class _Rewriter:
    def __init__(self, graph: ir.Graph):
        self.functions = dict(graph.functions)
        self._original = dict(graph.functions)
        self._uses: dict[str, _Uses] = {}
        self._made: dict[tuple[str, tuple[int, ...]], str] = {}

    def uses(self, name: str) -> _Uses:
        found = self._uses.get(name)
        if found is None:
            self._uses[name] = _Uses(frozenset(), frozenset())  # of a recursive function
            found = self._uses[name] = self._find_uses(self._original[name])
        return found

    def _find_uses(self, function: ir.Function) -> _Uses:
        positions = {arg.name: index for index, arg in enumerate(function.args)}
        roots: dict[ir.TensorRef, int] = {ir.TensorRef(name): index for name, index in positions.items()}
        stacks: set[int] = set()
        changed: set[int] = set()
        for node in function.nodes:
            if node.op == "Identity" and node.inputs[0] in roots:
                roots[ir.TensorRef(node.name)] = roots[node.inputs[0]]
            if node.op in ("StackPushV2", "StackPopV2", "StackCloseV2"):
                handles = node.inputs if node.op == "StackPushV2" and _holds_stacks(node) else node.inputs[:1]
                found = {roots[ref] for ref in handles if ref in roots}
                stacks |= found
                changed |= found if node.op != "StackCloseV2" else set()
            for ref, offset in self._callees(node):
                inner = self.uses(ref.name)
                for index in inner.stacks:
                    root = roots.get(node.inputs[index + offset])
                    if root is not None:
                        stacks.add(root)
                        changed |= {root} if index in inner.changed else set()
        return _Uses(frozenset(stacks), frozenset(changed))

    def _callees(self, node: ir.Node) -> list[tuple[ir.FunctionRef, int]]:
        """Return a node's callees, and the number of its inputs before their arguments."""
        found = [ref for ref in node.functions if ref.name in self._original]
        return [(ref, argument_offset(node, self._original[ref.name])) for ref in found]

    def named(self, name: str, extra: tuple[int, ...]) -> str:
        """Return the name of a function rewritten to return the stacks ``extra``, too."""
        key = (name, extra)
        if key not in self._made:
            taken = name in self._made.values()
            self._made[key] = f"{name}/stacks_{len(self._made)}" if taken else name
            function = dataclasses.replace(self._original[name], name=self._made[key])
            self.functions[self._made[key]] = self.function(function, extra, self.uses(name))
        return self._made[key]

    def function(self, function: ir.Function, extra: Sequence[int], uses: _Uses | None = None) -> ir.Function:
        """Return a function rewritten to return the stack arguments ``extra``, too.

        They follow its own results.
        """
        uses = uses or _Uses(frozenset(), frozenset())
        body = _Body(self, function, uses)
        for node in function.nodes:
            body.visit(node)
        nodes, outputs = body.finish(extra)
        args = tuple(
            dataclasses.replace(arg, dtype=ir.VARIANT) if index in uses.stacks else arg
            for index, arg in enumerate(function.args)
        )
        return dataclasses.replace(function, args=args, nodes=tuple(nodes), outputs=tuple(outputs))


class _Body:
    """Rewrites one function.

    ``_roots`` maps each tensor that refers to a stack to the stack, ``_current`` each stack to the tensor that holds
    its present contents.
    """

    def __init__(self, rewriter: _Rewriter, function: ir.Function, uses: _Uses):
        self._rewriter = rewriter
        self._function = function
        self._nodes: list[ir.Node] = []
        self._moved: dict[ir.TensorRef, ir.TensorRef] = {}
        stacks = [ir.TensorRef(function.args[index].name) for index in sorted(uses.stacks)]
        self._roots = {ref: ref for ref in stacks}
        self._current = {ref: ref for ref in stacks}
        self._later: list[tuple[ir.Node, ir.TensorRef, ir.TensorRef]] = []
        self._shape: ir.TensorRef | None = None

    def visit(self, node: ir.Node) -> None:
        if node.op == "StackV2":
            shape, size = self._any_shape(), self._at(node.inputs[0])
            self._emit(
                node, "EmptyTensorList", shape, size, shape_type=np.dtype(np.int32), element_dtype=_element(node)
            )
            self._new_stack(ir.TensorRef(node.name))
        elif node.op == "StackPushV2":
            self._push(node)
        elif node.op == "StackPopV2":
            root = self._root(node.inputs[0])
            shape = self._any_shape()
            self._emit(node, "TensorListPopBack", self._current[root], shape, element_dtype=_element(node))
            self._current[root] = ir.TensorRef(node.name)
            value = self._moved[ir.TensorRef(node.name)] = ir.TensorRef(node.name, 1)
            if _holds_stacks(node):
                self._new_stack(ir.TensorRef(node.name), value)
        elif node.op == "StackCloseV2":
            self._nodes.append(build.node("NoOp", name=node.name, control=node.control))
        elif node.op == "Identity" and node.inputs[0] in self._roots:
            self._roots[ir.TensorRef(node.name)] = self._roots[node.inputs[0]]
            self._nodes.append(build.node("NoOp", name=node.name, control=node.control))
        else:
            self._call(node)

    def finish(self, extra: Sequence[int]) -> tuple[list[ir.Node], list[ir.TensorRef]]:
        """Return the nodes and results."""
        for node, root, element in self._later:
            # TensorFlow pushes the handle of an inner stack, so its final contents count.
            self._emit(
                node, "TensorListPushBack", self._current[root], self._current[element], element_dtype=ir.VARIANT
            )
            self._current[root] = ir.TensorRef(node.name)
        outputs = list(self._function.outputs)
        outputs += [ir.TensorRef(self._function.args[index].name) for index in extra]
        return self._nodes, [self._at(ref) for ref in outputs]

    def _new_stack(self, ref: ir.TensorRef, contents: ir.TensorRef | None = None) -> None:
        self._roots[ref] = ref
        self._current[ref] = contents or ref

    def _root(self, ref: ir.TensorRef) -> ir.TensorRef:
        root = self._roots.get(ref)
        if root is None:
            raise UnsupportedError(
                f"{ref} in {self._function.name!r} is used as a stack, but its StackV2 node is unknown."
            )
        return root

    def _at(self, ref: ir.TensorRef) -> ir.TensorRef:
        """Return the tensor that holds a value, or the present contents of a stack."""
        return self._current[self._roots[ref]] if ref in self._roots else self._moved.get(ref, ref)

    def _push(self, node: ir.Node) -> None:
        handle, element = node.inputs
        root = self._root(handle)
        if element in self._roots:
            self._later.append((node, root, self._roots[element]))
            self._roots[ir.TensorRef(node.name)] = self._roots[element]
            return
        self._emit(node, "TensorListPushBack", self._current[root], self._at(element), element_dtype=_element(node))
        self._current[root] = ir.TensorRef(node.name)
        self._moved[ir.TensorRef(node.name)] = self._at(element)

    def _call(self, node: ir.Node) -> None:
        callees = self._rewriter._callees(node)
        inputs = list(map(self._at, node.inputs))
        changed: dict[int, None] = {}
        for ref, offset in callees:
            changed.update(dict.fromkeys(sorted(i + offset for i in self._rewriter.uses(ref.name).changed)))
        roots = {position: self._root(node.inputs[position]) for position in changed}
        if len(set(roots.values())) < len(roots):
            raise UnsupportedError(f"node {node.name!r} ({node.op}) gets one stack as two inputs, and changes it.")
        is_loop = "cond" in node.attrs and "body" in node.attrs
        dtypes = list(node.output_dtypes)
        if is_loop:
            stacks = {i for ref, _ in callees for i in self._rewriter.uses(ref.name).stacks}
            dtypes = [ir.VARIANT if i in stacks else dtype for i, dtype in enumerate(dtypes)]
        attrs = dict(node.attrs)
        for name, value in node.attrs.items():
            if not name.startswith("_"):
                attrs[name] = self._renamed(node, value, () if is_loop else tuple(changed))
        if not is_loop:
            dtypes = [self._result(node, i, dtype, callees) for i, dtype in enumerate(dtypes)]
        for number, position in enumerate(changed):
            index = position if is_loop else len(node.output_dtypes) + number
            self._current[roots[position]] = ir.TensorRef(node.name, index)
        dtypes += [] if is_loop else [ir.VARIANT] * len(changed)
        self._nodes.append(
            dataclasses.replace(
                node, inputs=tuple(inputs), attrs=attrs, output_dtypes=tuple(dtypes), output_shapes=None
            )
            if callees
            else dataclasses.replace(node, inputs=tuple(inputs))
        )

    def _renamed(self, node: ir.Node, value: object, changed: tuple[int, ...]) -> object:
        if isinstance(value, ir.FunctionRef) and value.name in self._rewriter._original:
            offset = argument_offset(node, self._rewriter._original[value.name])
            return dataclasses.replace(value, name=self._rewriter.named(value.name, tuple(p - offset for p in changed)))
        if isinstance(value, list):
            return [self._renamed(node, item, changed) for item in value]
        return value

    def _result(
        self, node: ir.Node, index: int, dtype: ir.DType, callees: Sequence[tuple[ir.FunctionRef, int]]
    ) -> ir.DType:
        """Record the stack that a branch returns, and return the result's dtype."""
        # The stack is an argument or a new one.
        if dtype is not ir.RESOURCE:
            return dtype
        for ref, offset in callees:
            function = self._rewriter._original[ref.name]
            positions = {arg.name: position for position, arg in enumerate(function.args)}
            nodes = {inner.name: inner for inner in function.nodes}
            source = skip(function.outputs[index], nodes)
            result = ir.TensorRef(node.name, index)
            if source.node in positions:
                given = node.inputs[positions[source.node] + offset]
                if given in self._roots:
                    self._roots[result] = self._roots[given]
            elif source.node in nodes and nodes[source.node].op == "StackV2":
                self._new_stack(result)
                return ir.VARIANT
        return dtype

    def _emit(self, node: ir.Node, op: str, *inputs: ir.TensorRef, **attrs: Any) -> None:
        self._nodes.append(build.node(op, *inputs, name=node.name, control=node.control, **attrs))

    def _any_shape(self) -> ir.TensorRef:
        if self._shape is None:
            name = ir.free_name("stacks/any_shape", {node.name for node in self._function.nodes})
            self._nodes.append(constant(name, np.int32(-1)))
            self._shape = ir.TensorRef(name)
        return self._shape


def _element(node: ir.Node) -> ir.DType:
    dtype = node.attrs.get("elem_type") or node.attrs.get("T")
    return ir.VARIANT if dtype is ir.RESOURCE or dtype is None else dtype


def _holds_stacks(node: ir.Node) -> bool:
    return ir.RESOURCE in (node.attrs.get("elem_type"), node.attrs.get("T"))
