"""The message ``tf.train.Example``, without TensorFlow.

Source: tensorflow/core/example/{example,feature}.proto.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tf2jax_lite.support.errors import DataError

_FIELD = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "tf2jax_lite.example"


def _message_class() -> Any:
    """Build the messages in a pool of their own: TensorFlow may be loaded beside it."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package=_PACKAGE, syntax="proto3")

    def field(message: Any, name: str, number: int, kind: Any, *, type_name: str = "", repeated: bool = False) -> Any:
        new = message.field.add(name=name, number=number, type=kind)
        new.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
        if type_name:
            new.type_name = f".{_PACKAGE}.{type_name}"
        return new

    for name, kind in (("Bytes", _FIELD.TYPE_BYTES), ("Float", _FIELD.TYPE_FLOAT), ("Int64", _FIELD.TYPE_INT64)):
        field(file.message_type.add(name=f"{name}List"), "value", 1, kind, repeated=True)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("Bytes", "Float", "Int64"), 1):
        new = field(feature, f"{name.lower()}_list", number, _FIELD.TYPE_MESSAGE, type_name=f"{name}List")
        new.oneof_index = 0
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    field(entry, "key", 1, _FIELD.TYPE_STRING)
    field(entry, "value", 2, _FIELD.TYPE_MESSAGE, type_name="Feature")
    field(features, "feature", 1, _FIELD.TYPE_MESSAGE, type_name="Features.FeatureEntry", repeated=True)
    example = file.message_type.add(name="Example")
    field(example, "features", 1, _FIELD.TYPE_MESSAGE, type_name="Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Example"))


_Example = _message_class()


def new_example() -> Any:
    """Return an empty ``tf.train.Example``."""
    return _Example()


class ExampleParser:
    """Reads serialized ``tf.train.Example`` messages as arrays.

    As ``tff...load_and_parse_sql_client_data`` does.

    Args:
      element_spec: dict from feature to something with ``shape`` and ``dtype`` (jax.ShapeDtypeStruct, tf.TensorSpec,
        an array), for one example. Floats come from the message's float_list, integers and bools from int64_list,
        and both are cast to the dtype; strings (dtype object or bytes) come from bytes_list, as objects.

    Raises:
      DataError: no features, an unknown dtype, or a dimension that is not known.
    """

    def __init__(self, element_spec: Any):
        self._spec: dict[str, tuple[tuple[int, ...], np.dtype, str]] = {}
        try:
            for name, spec in dict(element_spec).items():
                dtype = np.dtype(getattr(spec.dtype, "as_numpy_dtype", spec.dtype))
                self._spec[name] = (tuple(int(size) for size in spec.shape), dtype, _kind(dtype))
        except (TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"element_spec is a dict from feature to jax.ShapeDtypeStruct with a known shape: {error}"
            ) from error
        if not self._spec:
            raise DataError("element_spec names no features")

    def __call__(self, serialized: list[Any], where: str) -> dict[str, np.ndarray]:
        """Return a client's examples: dict from feature to array (n, *shape).

        Args:
          serialized: n messages as bytes.
          where: the location in error messages.

        Raises:
          DataError: a message is damaged, lacks a feature, or has one of another kind or size.
        """
        columns = {
            name: np.empty((len(serialized), *shape), dtype if kind != "bytes_list" else object)
            for name, (shape, dtype, kind) in self._spec.items()
        }
        for row, content in enumerate(serialized):
            try:
                feature = _Example.FromString(content).features.feature
            except (DecodeError, TypeError) as error:
                raise DataError(f"{where}, example {row}: no tf.train.Example: {error}") from error
            for name, (shape, dtype, kind) in self._spec.items():
                there = feature[name].WhichOneof("kind") if name in feature else None
                if there != kind:
                    raise DataError(
                        f"{where}, example {row}: feature {name!r} has {there or 'no value'} where element_spec's dtype"
                        f" {dtype} needs {kind}; its features are {sorted(feature)}"
                    )
                values = getattr(feature[name], kind).value
                if len(values) != int(np.prod(shape)):
                    raise DataError(
                        f"{where}, example {row}: feature {name!r} has {len(values)} values for {list(shape)}"
                    )
                columns[name][row] = _array(values, kind).reshape(shape).astype(columns[name].dtype)
        return columns


def element_spec_of(serialized: Any, where: str) -> dict[str, Any]:
    """Return the features of one serialized example, for `ExampleParser`.

    Those without values are omitted. Several values have shape (n,), one has shape (); floats are float32, integers
    int64, bytes objects.

    Raises:
      DataError: it is no ``tf.train.Example``; ``where`` is named.
    """
    try:
        features = _Example.FromString(serialized).features.feature
    except (DecodeError, TypeError) as error:
        raise DataError(f"{where}: no tf.train.Example: {error}") from error
    dtypes = {"float_list": np.dtype(np.float32), "int64_list": np.dtype(np.int64), "bytes_list": np.dtype(object)}
    found = {}
    for name in sorted(features):
        kind = features[name].WhichOneof("kind")
        if kind is None:
            continue
        count = len(getattr(features[name], kind).value)
        if count:
            found[name] = _Feature((count,) if count > 1 else (), dtypes[kind])
    return found


class _Feature(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype


def _kind(dtype: np.dtype) -> str:
    if dtype.kind in "OSU":
        return "bytes_list"
    if dtype.kind == "f" or dtype.name == "bfloat16":
        return "float_list"
    if dtype.kind in "iub":
        return "int64_list"
    raise ValueError(f"a tf.train.Example cannot hold {dtype}")


def _array(values: Any, kind: str) -> np.ndarray:
    if kind != "bytes_list":
        return np.fromiter(values, np.float32 if kind == "float_list" else np.int64, len(values))
    array = np.empty(len(values), object)
    array[:] = list(values)
    return array
