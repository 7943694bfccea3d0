"""NodeDefs to node specs: op, attributes and dtypes, each combination read once.

Graphs repeat a few dozen combinations. Nodes whose op and attributes have the same bytes share one `NodeDefSpec`, so
that their attributes are the same objects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.support.errors import InvalidModelError

from . import op_defs
from .size_limits import ConstantBytes


@dataclasses.dataclass(frozen=True, slots=True)
class NodeDefSpec:
    """The op and attributes of NodeDefs, parsed.

    Attributes:
      attrs: attributes as Python values, defaults filled in.
      has_op_def: whether TensorFlow has an OpDef for the op; without one only ``op`` and ``attrs`` are meaningful.
      expected: number of data inputs; -1 if it is not known.
      offsets: index of the first output of each output argument of the OpDef.
      first_output: the name of the first of them; empty if there is none.
      tensor_bytes: the bytes of the tensors among the attributes that the OpDef names.
    """

    op: str
    attrs: dict[str, Any]
    has_op_def: bool
    expected: int
    offsets: dict[str, int]
    first_output: str
    node_spec: ir.NodeSpec
    tensor_bytes: int = 0


# By the bytes of op and attributes. Cleared when full: models need a few hundred at most.
_SPECS: dict[bytes, NodeDefSpec] = {}
_MAX_SPECS = 4096
_MAX_ATTR_BYTES = 4096
_MAX_TENSOR_BYTES = 1024  # of one tensor
_DT_STRING = 7


def read_node(proto: Any, name: str, sizes: ConstantBytes) -> tuple[list[str], NodeDefSpec]:
    """Return a NodeDef's inputs as strings, and its parsed op and attributes."""
    op = proto.op
    found = op_defs.definition(op)
    tensors = () if found is None else found.tensors
    uncounted = bool(tensors)
    if tensors and proto.ByteSize() > _MAX_ATTR_BYTES:
        if _is_large(proto, name, tensors, sizes):
            return proto.input[:], _read(op, found, proto)
        uncounted = False
    inputs, written = proto.input[:], _written_attributes(proto)
    spec = _SPECS.get(written)
    if spec is None:
        if uncounted and _is_large(proto, name, tensors, sizes):
            return inputs, _read(op, found, proto)
        spec = _read(op, found, proto)
        # Functions get a new name whenever they are traced: a node that names one does not repeat.
        if not spec.node_spec.functions and len(written) <= _MAX_ATTR_BYTES and not _holds_large(spec.attrs):
            if len(_SPECS) >= _MAX_SPECS:
                _SPECS.clear()
            _SPECS[written] = spec
    elif uncounted:
        sizes.count(name, spec.tensor_bytes)
    return inputs, spec


def _written_attributes(proto: Any) -> bytes:
    """Return the bytes of a NodeDef without name, inputs and device."""
    form = type(proto)()
    form.CopyFrom(proto)
    form.name = form.device = ""
    del form.input[:]
    return form.SerializeToString()


def _is_large(proto: Any, node: str, names: tuple[str, ...], sizes: ConstantBytes) -> bool:
    """Count the bytes of a node's tensors; return whether one is too large to cache."""
    attrs = proto.attr
    large = False
    for name in names:
        if name in attrs:
            size = sizes.add(node, attrs[name].tensor)
            large = large or size is None or size > _MAX_TENSOR_BYTES
    return large


def _holds_large(attrs: Mapping[str, Any]) -> bool:
    """Return whether attributes hold a large tensor; make small ones read-only."""
    # A few bytes may declare a large tensor.
    pending = list(attrs.values())
    while pending:
        value = pending.pop()
        if isinstance(value, np.ndarray):
            if value.nbytes > _MAX_TENSOR_BYTES:
                return True
            value.setflags(write=False)
        if isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, ir.FunctionRef):
            pending.extend(value.attrs.values())
    return False


def _read(op: str, found: op_defs.Definition | None, proto: Any) -> NodeDefSpec:
    attrs = op_defs.read_attrs(proto)
    if found is None:
        return NodeDefSpec(op, attrs, False, -1, {}, "", ir.NodeSpec(op, (), attrs))
    for name, _, allowed in op_defs.attribute_kinds(op):
        if allowed and attrs.get(name) is ir.STRING and _DT_STRING not in allowed:
            raise InvalidModelError(f"{op} is an op of numbers; its attribute {name!r} says strings.")
    groups = found.plain_groups
    if groups is None:
        groups = tuple(len(arg.types(attrs)) if arg.is_list else None for arg in found.inputs)
    offsets: dict[str, int] = {}
    dtypes: list[ir.DType] = []
    for arg in found.outputs:
        offsets[arg.name] = len(dtypes)
        dtypes += arg.types(attrs)
    recorded = recorded_shapes(attrs)
    node_spec = ir.NodeSpec(
        op,
        groups,
        attrs,
        found.implied,
        found.input_types,
        tuple(dtypes),
        tuple(recorded) if recorded else None,
        stateful=found.stateful,
    )
    expected = sum(1 if group is None else group for group in groups)
    size = sum(attrs[name].nbytes for name in found.tensors if isinstance(attrs.get(name), np.ndarray))
    return NodeDefSpec(op, attrs, True, expected, offsets, next(iter(offsets)) if dtypes else "", node_spec, size)


def recorded_shapes(attrs: dict[str, Any]) -> list[ir.Shape] | None:
    """Return the recorded output shapes of a node; None if there are none.

    No OpDef defines the attribute, which may hold something else.
    """
    recorded = attrs.get("_output_shapes")
    if not isinstance(recorded, list) or not all(s is None or isinstance(s, tuple) for s in recorded):
        return None
    return recorded
