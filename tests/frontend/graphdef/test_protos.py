"""Messages and OpDefs of our own are TensorFlow's."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2, types_pb2
from tensorflow.python.framework import op_def_registry

from tf2jax_lite.errors import InvalidModelError, UnsupportedError
from tf2jax_lite.frontend.graphdef import attributes, dtypes, op_defs, protos

ENUM, INT32 = 14, 5


def fields(descriptor):
    """Return number, type (an enum is an int32), repetition and oneof of fields."""
    return {
        f.name: (
            f.number,
            INT32 if f.type == ENUM else f.type,
            f.is_repeated,
            f.containing_oneof.name if f.containing_oneof else None,
        )
        for f in descriptor.fields
    }


def compare(ours, theirs, seen):
    if ours.full_name in seen or ours.full_name == "tensorflow.Any":
        return
    seen.add(ours.full_name)
    expected = fields(theirs)
    for name, found in fields(ours).items():
        assert found == expected[name], (ours.full_name, name)
    for oneof in ours.oneofs:  # which member is set is known only if all are listed
        assert {f.name for f in oneof.fields} == {f.name for f in theirs.oneofs_by_name[oneof.name].fields}
    for field in ours.fields:
        if field.message_type is not None:
            other = theirs.fields_by_name[field.name].message_type
            assert field.message_type.GetOptions().map_entry == other.GetOptions().map_entry
            compare(field.message_type, other, seen)


def test_own_messages_have_the_field_numbers_of_tensorflow():
    seen = set()
    for name in protos._MODULES:
        compare(protos.own_messages()[name].DESCRIPTOR, protos.message(name).DESCRIPTOR, seen)
    assert {name.split(".")[1] for name in seen} >= set(protos.own_messages()) - {"Any"}


def test_message_beside_holds_the_proto():
    for kind in (protos.own_messages()["GraphDef"], protos.message("GraphDef")):
        graph = kind()
        graph.node.add(name="x", op="Placeholder")
        assert protos.message_beside(graph, "MetaGraphDef")(graph_def=graph).graph_def.node[0].name == "x"


def test_op_list_is_the_registry_of_tensorflow():
    found = op_defs.own_op_defs()
    expected = op_defs.protos.own_messages()["OpList"].FromString(op_defs.zlib.decompress(op_defs.compressed_op_list()))
    assert {definition.name: definition for definition in expected.op} == found
    assert len(found) > 1800 and op_defs.op_def("Conv2D") is op_def_registry.get("Conv2D")


@pytest.mark.full
def test_op_def_of_an_unknown_op_asks_tensorflow():
    code = (
        "import sys\n"
        "from tf2jax_lite.frontend.graphdef import op_defs\n"
        "assert op_defs.op_def('Conv2D').name == 'Conv2D' and 'tensorflow' not in sys.modules\n"
        "assert op_defs.op_def('NoSuchOp') is None and 'tensorflow' in sys.modules\n"
    )
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_dtypes_are_those_of_tensorflow():
    for name, number in types_pb2.DataType.items():
        if name == "DT_INVALID":
            with pytest.raises(UnsupportedError):
                dtypes.from_tf(number)
            continue
        dtype = tf.as_dtype(number).base_dtype
        found = dtypes.from_tf(number)
        assert found == dtypes.from_tf(tf.as_dtype(number))
        if not isinstance(found, np.dtype):
            assert str(found) == dtype.name
        elif dtype.name.startswith("q"):
            assert found == np.dtype(dtype.as_numpy_dtype)[0]
        else:
            assert found == dtype.as_numpy_dtype and dtypes.to_tf(found) == dtype


NUMERIC = [
    n
    for name, n in types_pb2.DataType.items()
    if 0 < n < 100 and tf.as_dtype(n).name not in ("resource", "variant", "string") and "FNUZ" not in name
]


@pytest.mark.parametrize("number", NUMERIC, ids=lambda n: tf.as_dtype(n).name)
def test_tensor_of_is_make_ndarray(number):
    dtype = tf.as_dtype(number)
    plain = dtypes.from_tf(number)
    values = np.array([0, 1, 1, 0]).astype(plain)
    wrapped = values if not dtype.is_quantized else values.astype(dtype.as_numpy_dtype)
    whole = tf.make_tensor_proto(wrapped, dtype)
    one = tf.make_tensor_proto(wrapped[1], dtype)
    filled = tf.make_tensor_proto(wrapped[1:2], dtype, shape=[2, 3])
    empty = tf.make_tensor_proto(wrapped[:0], dtype)
    bytes_of = type(whole)(dtype=number, tensor_shape=whole.tensor_shape, tensor_content=values.tobytes())
    for proto in (whole, one, filled, empty, bytes_of):
        expected = tf.make_ndarray(proto)
        expected = expected if expected.dtype.names is None else expected[expected.dtype.names[0]]
        for found in (proto, protos.own_messages()["TensorProto"].FromString(proto.SerializeToString())):
            value = attributes.tensor_of(found)
            assert value.dtype == expected.dtype == plain and value.shape == expected.shape
            np.testing.assert_array_equal(value.astype(np.complex64), expected.astype(np.complex64))


def test_tensor_of_strings():
    for value in (b"a", [[b"a", b"bc"]], np.array([], object), [b"", b"\xff"]):
        proto = tf.make_tensor_proto(value, tf.string)
        np.testing.assert_array_equal(attributes.tensor_of(proto), np.asarray(value, object))
    filled = tf.make_tensor_proto([b"ab"], tf.string)
    filled.tensor_shape.dim[0].size = 3
    np.testing.assert_array_equal(attributes.tensor_of(filled), tf.make_ndarray(filled))


@pytest.mark.parametrize(
    ("dtype", "more"),
    [
        (tf.float32, {"float_val": [1.0, 2.0, 3.0]}),
        (tf.float32, {"tensor_content": b"\0" * 5}),
        (tf.int8, {"int_val": [1000]}),
        (tf.uint8, {"int_val": [-1]}),
        (tf.complex64, {"scomplex_val": [1.0, 2.0, 3.0]}),
        (tf.bfloat16, {"half_val": [1 << 20]}),
        (tf.string, {"tensor_content": b"abcd"}),
        (tf.resource, {}),
        (tf.variant, {}),
    ],
)
def test_tensor_of_contents_that_do_not_fit(dtype, more):
    proto = type(tf.make_tensor_proto(0.0))(dtype=dtype.as_datatype_enum, **more)
    proto.tensor_shape.dim.add(size=2)
    with pytest.raises(InvalidModelError, match="do not fit"):
        attributes.tensor_of(proto)


def test_op_def_messages_equal_tensorflows():
    written = op_def_registry.get("StridedSlice").SerializeToString()
    ours, theirs = (kind.FromString(written) for kind in (protos.own_messages()["OpDef"], op_def_pb2.OpDef))
    assert [arg.name for arg in ours.input_arg] == [arg.name for arg in theirs.input_arg]
    assert attributes.value_of(ours.attr[2].default_value) == attributes.value_of(theirs.attr[2].default_value)
