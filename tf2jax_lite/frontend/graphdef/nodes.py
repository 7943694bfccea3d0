"""What a NodeDef says apart from its name and inputs. Graphs repeat a few dozen of those; each is read once.

Nodes whose op and attributes are written with the same bytes share one `Form`: their attributes are the same objects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf2jax_lite import ir

from . import op_defs
from .size_limits import ConstantBytes

__all__ = ["Form", "read_node", "recorded_shapes"]


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """What nodes have in common.

    Attributes:
      op: the op's name.
      attrs: attributes as Python values, defaults filled in.
      known: whether this TensorFlow has an OpDef for it; without one only ``op`` and ``attrs`` mean anything.
      expected: how many data inputs there are to be; -1 if that is not known.
      offsets: where each output argument of the OpDef begins among the outputs.
      first_output: the name of the first of them; empty if there is none.
      shared: what `ir.node_like` takes.
    """

    op: str
    attrs: dict[str, Any]
    known: bool
    expected: int
    offsets: dict[str, int]
    first_output: str
    shared: ir.Shared


# By op and the bytes of the attributes. Emptied when full: real graphs need a few hundred at most.
_FORMS: dict[tuple[str, bytes], Form] = {}
_MOST_FORMS = 4096
_MOST_BYTES = 4096
_MOST_KEPT = 1024  # bytes of a tensor
# First bytes of a NodeDef's fields that are no attributes: name, op, inputs and device, each with its length.
_OTHER_FIELDS = frozenset({0x0A, 0x12, 0x1A, 0x22})
_INPUT, _ATTRIBUTE = 0x1A, 0x2A


def read_node(proto: Any, name: str, sizes: ConstantBytes) -> tuple[list[str], Form]:
    """Returns a NodeDef's inputs as they are written, and what else it says apart from its name.

    Args:
      proto: the NodeDef.
      name: its name.
      sizes: counts the constants that it holds.

    Raises:
      InvalidModelError: an attribute is damaged, or of another kind than the OpDef says, or missing.
      LimitError: its constants, and those before them, are larger than the options allow.
    """
    op = proto.op
    found = op_defs.definition(op)
    if found is not None and found.tensors and _is_large(proto, name, found.tensors, sizes):
        return proto.input[:], _read(op, found, proto)
    # Where the inputs begin, if name and op are as short and plain as they nearly always are.
    begin = len(name) + len(op) + 4 if 0 < len(name) < 128 and found is not None and name.isascii() else 0
    inputs, written = _divided(proto.SerializeToString(), begin)
    form = _FORMS.get((op, written))
    if form is None:
        form = _read(op, found, proto)
        # Functions get a new name whenever they are traced: a node that names one is not met again.
        if not form.shared.functions and len(written) <= _MOST_BYTES and not _holds_large(form.attrs):
            if len(_FORMS) >= _MOST_FORMS:
                _FORMS.clear()
            _FORMS[op, written] = form
    return inputs, form


def _divided(written: bytes, position: int = 0) -> tuple[list[str], bytes]:
    """Returns a serialized NodeDef's inputs, and all from its first attribute on (or anything else unexpected).

    Fields are written in the order of their numbers: name, op, inputs, device, attributes.

    Args:
      written: the NodeDef.
      position: where one of these fields begins, of the inputs the first or one before it.
    """
    inputs = []
    end = len(written)
    while position < end:
        field = written[position]
        if field == _ATTRIBUTE or field not in _OTHER_FIELDS:
            break
        size = written[position + 1]
        start = position + 2
        if size >= 128:
            size, shift = size & 127, 7
            while True:
                digit = written[start]
                start += 1
                size |= (digit & 127) << shift
                shift += 7
                if digit < 128:
                    break
        position = start + size
        if field == _INPUT:
            inputs.append(str(written[start:position], "utf-8"))
    return inputs, written[position:]


def _is_large(proto: Any, node: str, names: tuple[str, ...], sizes: ConstantBytes) -> bool:
    """Whether a node holds a tensor that is not worth keeping, nor writing out to look it up. Counts them all."""
    attrs = proto.attr
    large = False
    for name in names:
        if name in attrs:
            size = sizes.add(node, attrs[name].tensor)
            large = large or size is None or size > _MOST_KEPT
    return large


def _holds_large(attrs: Mapping[str, Any]) -> bool:
    """Whether there is a large tensor in attributes: few bytes may declare one. Small ones become read-only."""
    pending = list(attrs.values())
    while pending:
        value = pending.pop()
        if isinstance(value, np.ndarray):
            if value.nbytes > _MOST_KEPT:
                return True
            value.setflags(write=False)
        if isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, ir.FunctionRef):
            pending.extend(value.attrs.values())
    return False


def _read(op: str, found: op_defs.Definition | None, proto: Any) -> Form:
    attrs = op_defs.read_attrs(proto)
    if found is None:
        return Form(op, attrs, False, -1, {}, "", ir.Shared(op, (), attrs))
    groups = found.plain_groups
    if groups is None:
        groups = tuple(len(arg.types(attrs)) if arg.is_list else None for arg in found.inputs)
    offsets: dict[str, int] = {}
    dtypes: list[ir.DType] = []
    for arg in found.outputs:
        offsets[arg.name] = len(dtypes)
        dtypes += arg.types(attrs)
    recorded = recorded_shapes(attrs)
    shared = ir.Shared(
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
    return Form(op, attrs, True, expected, offsets, next(iter(offsets)) if dtypes else "", shared)


def recorded_shapes(attrs: dict[str, Any]) -> list[ir.Shape] | None:
    """Returns the shapes that a node's writer recorded, if they are shapes: no OpDef says what the attribute is."""
    recorded = attrs.get("_output_shapes")
    if not isinstance(recorded, list) or not all(s is None or isinstance(s, tuple) for s in recorded):
        return None
    return recorded
