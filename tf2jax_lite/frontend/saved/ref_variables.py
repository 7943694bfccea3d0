"""Reference variables (VariableV2, ops with ``ref`` arguments) to resources.

A reference is read when the op that takes its value runs. An Identity or Switch of a reference, and an Enter of a loop
constant, forward the variable's own buffer: their readers see its value at the time of the read. All are expressed by
a ReadVariableOp right before the reader, after everything that the reader waits for. Data and control edges then order
reads and writes as in TensorFlow; an order that they leave open is undefined in TensorFlow, too.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.frontend.graphdef import op_defs
from tf2jax_lite.frontend.graphdef.op_defs import op_def
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import constant_value, topological_order
from tf2jax_lite.support.errors import UnsupportedError
from tf2jax_lite.values.static import LOCAL, OF_ASSIGNMENT

VARIABLE_OPS = frozenset({"Variable", "VariableV2", "AutoReloadVariable"})
"""Ops that make a variable and return a reference to it."""

_RENAMED = {
    "Assign": "AssignVariableOp",
    "AssignAdd": "AssignAddVariableOp",
    "AssignSub": "AssignSubVariableOp",
    "IsVariableInitialized": "VarIsInitializedOp",
    "LookupTableFind": "LookupTableFindV2",
    "LookupTableSize": "LookupTableSizeV2",
    "LookupTableExport": "LookupTableExportV2",
}
_FORWARD = frozenset({"RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration", "RefIdentity"})
_READERS = frozenset({"IsVariableInitialized"})
_ALIASES = frozenset({"Identity", "StopGradient", "PreventGradient"})


@dataclasses.dataclass(frozen=True)
class _Reference:
    """A reference tensor: handle, variable, and nodes that must run before its use.

    The result of an assignment is ``assigned``: TensorFlow takes no gradient of it.
    """

    handle: ir.TensorRef
    variable: str
    after: tuple[str, ...] = ()
    assigned: bool = False


@functools.cache
def _takes_references(op: str) -> tuple[frozenset[int], bool]:
    """Return which inputs of an op are references, and whether its first output is."""
    # None of these inputs is a list.
    proto = op_def(op)
    if proto is None:
        return frozenset(), False
    inputs = frozenset(index for index, arg in enumerate(proto.input_arg) if arg.is_ref)
    return inputs, bool(proto.output_arg) and proto.output_arg[0].is_ref


def without_references(function: ir.Function) -> ir.Function:
    """Replace reference variables by resources.

    Args:
      function: a function of only those nodes that its results need: each write to a variable counts.
    """
    if not any(node.op in VARIABLE_OPS or _takes_references(node.op)[1] for node in function.nodes):
        return function
    nodes, outputs = _Rewriter(function.nodes).rewrite(function.outputs)
    return dataclasses.replace(function, nodes=topological_order(function.name, nodes), outputs=outputs)


class _Rewriter:
    def __init__(self, nodes: Sequence[ir.Node]):
        self._nodes = nodes
        self._by_name = {node.name: node for node in nodes}
        self._references: dict[ir.TensorRef, _Reference] = {}
        self._result: list[ir.Node] = []
        self._names = {node.name for node in nodes}
        self._written = self._find_written()

    def rewrite(self, outputs: Sequence[ir.TensorRef]) -> tuple[list[ir.Node], tuple[ir.TensorRef, ...]]:
        for node in self._nodes:
            self._visit(node)
        return self._result, tuple(map(self._fetched, outputs))

    def _find_written(self) -> set[str]:
        variables: dict[str, str] = {}
        written: set[str] = set()
        for node in self._nodes:
            inputs, gives = _takes_references(node.op)
            chosen = self._chosen(node) if node.op == "RefSelect" else node
            sources = [variables[ref.node] for ref in chosen.inputs if ref.node in variables]
            if node.op in VARIABLE_OPS or node.op == "TemporaryVariable":
                variables[node.name] = node.name
            elif gives and sources:
                variables[node.name] = sources[0]
            if inputs and node.op not in _FORWARD | _READERS:
                positions = [node.inputs[i].node for i in inputs if i < len(node.inputs)]
                written.update(variables[name] for name in positions if name in variables)
        return written

    def _visit(self, node: ir.Node) -> None:
        first = ir.TensorRef(node.name)
        if node.op in VARIABLE_OPS or node.op == "TemporaryVariable":
            self._references[first] = _Reference(first, node.name)
            self._result.append(_handle(node))
        elif node.op == "RefSelect":
            self._forward(self._chosen(node))
        elif self._forwards_buffer(node):
            self._forward(node)
        elif node.op == "DestroyTemporaryVariable":
            self._result.append(self._read(node.name, node.inputs[0], node.control, node.output_dtypes[0]))
        elif node.op in _ALIASES and (found := self._references.get(node.inputs[0])) is not None:
            dtype = node.output_dtypes[0]
            self._result.append(self._read(node.name, node.inputs[0], node.control, dtype))
            if found.variable in self._written:
                after = (*found.after, node.name)
                self._references[first] = dataclasses.replace(found, after=after)
        else:
            self._use(node)

    def _chosen(self, node: ir.Node) -> ir.Node:
        """Return a RefSelect as the RefIdentity of the reference that it chooses."""
        value = constant_value(node.inputs[0], self._by_name)
        count = len(node.inputs) - 1
        if value is None or not 0 <= int(value) < count:
            problem = "is computed" if value is None else f"is {int(value)}"
            raise UnsupportedError(
                f"node {node.name!r} (RefSelect): chooses among {count} reference variables by {node.inputs[0]}, which "
                f"{problem}. Only a constant index that is in range can be converted; choose among values (tf.gather, "
                "tf.switch_case) instead."
            )
        return dataclasses.replace(
            node, op="RefIdentity", inputs=(node.inputs[1 + int(value)],), groups=(None,),
            control=tuple(dict.fromkeys([*node.control, *(ref.node for ref in node.inputs)])),
        )  # fmt: skip

    def _forwards_buffer(self, node: ir.Node) -> bool:
        """Return whether a node forwards a variable's buffer into a branch or a loop."""
        # The variable may change there.
        if node.op in _FORWARD:  # references to TensorArrays and stacks stay as they are
            data = node.inputs[:1] if node.op == "RefSwitch" else node.inputs
            return not self._references.keys().isdisjoint(data)
        if node.op != "Switch" and not (node.op == "Enter" and node.attrs.get("is_constant")):
            return False
        found = self._references.get(node.inputs[0])
        return found is not None and found.variable in self._written

    def _forward(self, node: ir.Node) -> None:
        node = self._with_value(node, 1) if node.op in ("Switch", "RefSwitch") else node
        found = [self._references.get(ref) for ref in node.inputs]
        inputs = tuple(ref if r is None else r.handle for ref, r in zip(node.inputs, found, strict=True))
        known = next((r for r in found if r is not None), None)
        control = dict.fromkeys([*node.control, *(name for r in found if r for name in r.after)])
        dtypes = tuple(d if i and node.op == "RefMerge" else ir.RESOURCE for i, d in enumerate(node.output_dtypes))
        op = node.op if node.op != "RefIdentity" else "Identity"
        self._result.append(
            dataclasses.replace(node, op=op, inputs=inputs, control=tuple(control), output_dtypes=dtypes)
        )
        variable = known.variable if known is not None else node.name
        assigned = any(r.assigned for r in found if r)
        for index, dtype in enumerate(dtypes):
            if dtype is ir.RESOURCE:
                ref = ir.TensorRef(node.name, index)
                self._references[ref] = _Reference(ref, variable, assigned=assigned)

    def _use(self, node: ir.Node) -> None:
        positions, gives = _takes_references(node.op)
        inputs = list(node.inputs)
        control = dict.fromkeys(node.control)
        for index, ref in enumerate(node.inputs):
            found = self._references.get(ref)
            if found is None:
                continue
            if index in positions:
                inputs[index] = found.handle
                control.update(dict.fromkeys(found.after))
                if gives and index == min(positions):
                    after = _Reference(found.handle, found.variable, (node.name,), assigned=True)
                    self._references[ir.TensorRef(node.name)] = after
                continue
            waits = list(node.control)
            if node.op not in ("Merge", "NextIteration", "Enter"):  # what a Merge does not wait for may be dead
                waits += [other.node for other in node.inputs if other.node != ref.node]
            name = ir.free_name(f"{node.name}/read_{index}", self._names)
            read = self._read(name, ref, tuple(dict.fromkeys(waits)), _value_dtype(node, index))
            self._result.append(read)
            inputs[index] = ir.TensorRef(name)
        node = dataclasses.replace(node, inputs=tuple(inputs), control=tuple(control))
        self._result.append(_resource_op(node) if positions and node.op not in _FORWARD else node)

    def _with_value(self, node: ir.Node, index: int) -> ir.Node:
        """Return a node that takes input number ``index`` by value."""
        ref = node.inputs[index]
        if ref not in self._references:
            return node
        name = ir.free_name(f"{node.name}/read_{index}", self._names)
        self._result.append(self._read(name, ref, node.control, _value_dtype(node, index)))
        inputs = (*node.inputs[:index], ir.TensorRef(name), *node.inputs[index + 1 :])
        return dataclasses.replace(node, inputs=inputs)

    def _read(self, name: str, ref: ir.TensorRef, control: Sequence[str], dtype: ir.DType) -> ir.Node:
        found = self._references[ref]
        annotations: dict[str, Any] = {OF_ASSIGNMENT: True} if found.assigned else {}
        before = dict.fromkeys([*found.after, *control])
        return build.node("ReadVariableOp", found.handle, name=name, control=before, dtype=dtype, **annotations)

    def _fetched(self, ref: ir.TensorRef) -> ir.TensorRef:
        """Return the tensor of a result; for a reference, the value after its node ran."""
        node = self._by_name.get(ref.node)
        if ref not in self._references or node is None or node.op in _ALIASES:
            return ref
        name = ir.free_name(f"{ref.node}/value", self._names)
        self._result.append(self._read(name, ref, (ref.node,), node.output_dtypes[ref.index]))
        return ir.TensorRef(name)


def _value_dtype(node: ir.Node, index: int) -> ir.DType:
    """Return the dtype that a node expects for its input number ``index``."""
    definition = op_defs.definition(node.op)
    if definition is None:
        return ir.VARIANT
    types = [dtype for arg in definition.inputs for dtype in arg.types(node.attrs, node.name)]
    return types[index]


def _handle(node: ir.Node) -> ir.Node:
    name = node.attrs.get("shared_name") or node.name
    if node.op == "TemporaryVariable":
        name = LOCAL + (node.attrs.get("var_name") or node.name)
    dtype, shape = node.attrs.get("dtype"), node.attrs.get("shape")
    if node.op == "Variable" and shape == ():  # the old op has no way to express an unknown shape
        shape = None
    attrs = {"dtype": dtype, "shape": shape, "shared_name": name, "container": "", "allowed_devices": []}
    return dataclasses.replace(
        node, op="VarHandleOp", attrs=attrs, output_dtypes=(ir.RESOURCE,), output_shapes=((),), implied=frozenset()
    )


def _resource_op(node: ir.Node) -> ir.Node:
    """Return the resource op for an op on references; the op itself if there is none."""
    op = _RENAMED.get(node.op, f"Resource{node.op}")
    definition = op_defs.definition(op)
    if definition is None:
        return node
    proto: Any = op_def(op)
    attrs: dict[str, Any] = {name: value for name, value in node.attrs.items() if name.startswith("_")}
    for attr in proto.attr:
        if attr.name in node.attrs:
            attrs[attr.name] = node.attrs[attr.name]
        elif attr.name in definition.defaults:
            attrs[attr.name] = definition.defaults[attr.name]
        elif attr.name == "dtype" and "T" in node.attrs:
            attrs["dtype"] = node.attrs["T"]
    if op == "AssignVariableOp":
        attrs["validate_shape"] = False
    dtypes = tuple(dtype for arg in definition.outputs for dtype in arg.types(attrs, node.name))
    if op == "VarIsInitializedOp":
        dtypes = (np.dtype(np.bool_),)
    return dataclasses.replace(
        node, op=op, attrs=attrs, implied=definition.implied, input_types=definition.input_types,
        output_dtypes=dtypes, output_shapes=None,
    )  # fmt: skip
