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
from .graph_size import plain_bytes

__all__ = ["Form", "form_of", "recorded_shapes"]


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """What nodes have in common.

    Attributes:
      op: the op's name.
      attrs: attributes as Python values, defaults filled in.
      known: whether this TensorFlow has an OpDef for it; without one only ``op`` and ``attrs`` mean anything.
      expected: how many data inputs there are to be.
      offsets: where each output argument of the OpDef begins among the outputs.
      first_output: the name of the first of them; empty if there is none.
      fields: what `ir.node_like` takes.
    """

    op: str
    attrs: dict[str, Any]
    known: bool
    expected: int
    offsets: dict[str, int]
    first_output: str
    fields: dict[str, Any]


# By op and the bytes of the attributes. Emptied when full: real graphs need a few hundred at most.
_FORMS: dict[tuple[str, bytes], Form] = {}
_MOST_FORMS = 4096
_MOST_BYTES = 4096
_MOST_KEPT = 1024  # bytes of a tensor
# First bytes of a NodeDef's fields that are no attributes: name, op, inputs and device, each with its length.
_OTHER_FIELDS = frozenset({0x0A, 0x12, 0x1A, 0x22})


def form_of(proto: Any) -> Form:
    """Returns what a NodeDef says apart from its name and inputs.

    Args:
      proto: the NodeDef.

    Raises:
      InvalidModelError: an attribute is damaged, or of another kind than the OpDef says, or missing.
    """
    op = proto.op
    found = op_defs.definition(op)
    if found is not None and found.tensors and _is_large(proto, found.tensors):
        return _read(op, found, proto)
    written = _attributes(proto.SerializeToString())
    form = _FORMS.get((op, written))
    if form is None:
        form = _read(op, found, proto)
        # Functions get a new name whenever they are traced: a node that names one is not met again.
        if not form.fields.get("functions") and len(written) <= _MOST_BYTES and not _holds_large(form.attrs):
            if len(_FORMS) >= _MOST_FORMS:
                _FORMS.clear()
            _FORMS[op, written] = form
    return form


def _attributes(written: bytes) -> bytes:
    """Returns a serialized NodeDef from its first attribute on (or from anything else that is unexpected)."""
    position, end = 0, len(written)
    while position < end and written[position] in _OTHER_FIELDS:
        size = written[position + 1]
        position += 2
        if size >= 128:
            size, shift = size & 127, 7
            while True:
                digit = written[position]
                position += 1
                size |= (digit & 127) << shift
                shift += 7
                if digit < 128:
                    break
        position += size
    return written[position:]


def _is_large(proto: Any, names: tuple[str, ...]) -> bool:
    """Whether a node holds a tensor that is not worth keeping, nor writing out to look it up."""
    attrs = proto.attr
    for name in names:
        if name in attrs:
            size = plain_bytes(attrs[name].tensor)
            if size is None or size > _MOST_KEPT:
                return True
    return False


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
        return Form(op, attrs, False, 0, {}, "", {})
    groups = found.plain_groups
    if groups is None:
        groups = tuple(len(arg.types(attrs)) if arg.is_list else None for arg in found.inputs)
    offsets: dict[str, int] = {}
    dtypes: list[ir.DType] = []
    for arg in found.outputs:
        offsets[arg.name] = len(dtypes)
        dtypes += arg.types(attrs)
    recorded = recorded_shapes(attrs)
    fields = {
        "name": "",
        "op": op,
        "inputs": (),
        "groups": groups,
        "control": (),
        "attrs": attrs,
        "implied": found.implied,
        "input_types": found.input_types,
        "output_dtypes": tuple(dtypes),
        "output_shapes": tuple(recorded) if recorded else None,
        "location": None,
        "stateful": found.stateful,
        "functions": ir.functions_in(attrs),
        "form": object(),
    }
    expected = sum(1 if group is None else group for group in groups)
    return Form(op, attrs, True, expected, offsets, next(iter(offsets), ""), fields)


def recorded_shapes(attrs: dict[str, Any]) -> list[ir.Shape] | None:
    """Returns the shapes that a node's writer recorded, if they are shapes: no OpDef says what the attribute is."""
    recorded = attrs.get("_output_shapes")
    if not isinstance(recorded, list) or not all(s is None or isinstance(s, tuple) for s in recorded):
        return None
    return recorded
