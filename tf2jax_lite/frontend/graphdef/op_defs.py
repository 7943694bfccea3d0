"""OpDefs: argument groups, output dtypes, attribute defaults, implied attributes."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import sys
import zlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from tf2jax_lite import ir
from tf2jax_lite.support.errors import InvalidModelError

from . import attributes, dtypes, protos

# Of one list of a node; each item is an input in the proto, or an output.
_MAX_TENSORS = 1 << 16  # in one list; each becomes a separate array


@dataclasses.dataclass(frozen=True)
class Arg:
    """One argument of an OpDef: a tensor, or a list of tensors.

    An attribute determines the length or the types of a list.
    """

    name: str
    dtype: ir.DType | None
    type_attr: str
    number_attr: str
    type_list_attr: str

    @property
    def is_list(self) -> bool:
        """Whether the argument is a list of tensors."""
        return bool(self.number_attr or self.type_list_attr)

    def types(self, attrs: Mapping[str, Any], where: str = "") -> list[ir.DType]:
        """Return the dtypes of this argument's tensors, given a node's attributes.

        ``where`` names the node, for messages.
        """
        try:
            if self.type_list_attr:
                return list(attrs[self.type_list_attr] or ())
            dtype: Any = attrs[self.type_attr] if self.type_attr else self.dtype
            if not self.number_attr:
                return [dtype]
            count = attrs[self.number_attr]
            if not 0 <= count <= _MAX_TENSORS:
                raise InvalidModelError(f"{where}{': ' * bool(where)}{self.name!r} is a list of {count} tensors.")
            return [dtype] * count
        except KeyError as error:
            raise InvalidModelError(f"{where}{': ' * bool(where)}attribute {error} is missing.") from error
        except TypeError as error:
            reason = f"an attribute that sizes {self.name!r} is of the wrong kind."
            raise InvalidModelError(f"{where}{': ' * bool(where)}{reason}") from error


@dataclasses.dataclass(frozen=True)
class Definition:
    """An OpDef, read once.

    ``plain_groups`` are the groups of inputs (see `ir.Node`) if they do not depend on attributes, else None. ``kinds``
    maps each attribute to the field of AttrValue that holds it. ``tensors`` are the attributes that hold a tensor.
    """

    name: str
    inputs: tuple[Arg, ...]
    outputs: tuple[Arg, ...]
    defaults: dict[str, Any]
    implied: frozenset[str]
    input_types: tuple[str, ...]
    stateful: bool
    plain_groups: tuple[None, ...] | None
    kinds: dict[str, str]
    tensors: tuple[str, ...]


# Kinds of attributes whose field in AttrValue has another name.
_FIELDS = {"string": "s", "int": "i", "float": "f", "bool": "b"}


def _field(kind: str) -> str:
    return "list" if kind.startswith("list(") else _FIELDS.get(kind, kind)


def _arg(proto: Any) -> Arg:
    dtype = dtypes.from_tf(proto.type) if proto.type else None
    return Arg(proto.name, dtype, proto.type_attr, proto.number_attr, proto.type_list_attr)


@functools.cache
def definition(op: str) -> Definition | None:
    """Return the definition of an op; None if this TensorFlow has none."""
    proto = op_def(op)
    if proto is None:
        return None
    inputs = tuple(map(_arg, proto.input_arg))
    implied = {name for arg in inputs for name in (arg.type_attr, arg.number_attr, arg.type_list_attr) if name}
    return Definition(
        name=op,
        inputs=inputs,
        outputs=tuple(map(_arg, proto.output_arg)),
        defaults={a.name: attributes.value_of(a.default_value) for a in proto.attr if a.HasField("default_value")},
        implied=frozenset(implied),
        input_types=tuple(arg.type_attr for arg in inputs),
        stateful=proto.is_stateful,
        plain_groups=None if any(arg.is_list for arg in inputs) else (None,) * len(inputs),
        kinds={str(a.name): _field(str(a.type)) for a in proto.attr},
        tensors=tuple(str(a.name) for a in proto.attr if a.type == "tensor"),
    )


def read_attrs(proto: Any) -> dict[str, Any]:
    """Return a NodeDef's attributes as Python values, with the defaults of its OpDef."""
    found = definition(proto.op)
    attrs, kinds = (found.defaults.copy(), found.kinds) if found else ({}, {})
    written = proto.attr
    for key in written:
        value = written[key]
        kind, expected = value.WhichOneof("value"), kinds.get(key)
        if expected is None or kind == expected or kind == "placeholder":
            attrs[key] = attributes.value_of(value)
        elif kind is not None:  # a field that is not set leaves the default
            raise InvalidModelError(f"attribute {key!r} is of the kind {kind!r}, not {expected!r}.")
    return attrs


@functools.cache
def attribute_kinds(op: str) -> tuple[tuple[str, str, frozenset[int]], ...]:
    """Return name, type and allowed dtypes of each attribute of an op.

    Dtypes are numbers; an empty set allows any.
    """
    proto = op_def(op)
    attrs = () if proto is None else proto.attr
    return tuple((a.name, a.type, frozenset(a.allowed_values.list.type)) for a in attrs)


_REGISTRY = "tensorflow.python.framework.op_def_registry"
_FILE = "op_list.zlib"


def op_def(op: str) -> Any:
    """Return the OpDef of an op; None if TensorFlow has none."""
    if "tensorflow" not in sys.modules:
        found = own_op_defs().get(op)
        if found is not None or importlib.util.find_spec("tensorflow") is None:
            return found
    return importlib.import_module(_REGISTRY).get(op)


@functools.cache
def own_op_defs() -> dict[str, Any]:
    """Return the OpDefs of ``op_list.zlib`` by name."""
    data = zlib.decompress(resources.files(__package__ or "").joinpath(_FILE).read_bytes())
    return {found.name: found for found in protos.own_messages()["OpList"].FromString(data).op}


def compressed_op_list() -> bytes:
    """Return the contents of ``op_list.zlib``, from TensorFlow's registry."""
    session = importlib.import_module("tensorflow.python.client.pywrap_tf_session")
    written = session.TF_GetBuffer(session.TF_GetAllOpList())
    listed = protos.own_messages()["OpList"].FromString(written)
    listed.DiscardUnknownFields()  # texts, and others that are not read
    return zlib.compress(listed.SerializeToString(deterministic=True), 9)


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(compressed_op_list())
