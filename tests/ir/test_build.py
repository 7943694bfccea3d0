"""New nodes have the attributes and types of their ops."""

import numpy as np
import pytest
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.frontend.graphdef import op_defs
from tf2jax_lite.ir import build

INT32, FLOAT32 = np.dtype(np.int32), np.dtype(np.float32)


@pytest.mark.parametrize("op", sorted(op for op in build.SIGNATURES if hasattr(tf.raw_ops, op)))
def test_signature_is_that_of_the_op_def(op):
    signature, definition = build.SIGNATURES[op], op_defs.definition(op)
    assert len(signature.inputs) == len(definition.inputs) and len(signature.outputs) == len(definition.outputs)
    for terms, args in ((signature.inputs, definition.inputs), (signature.outputs, definition.outputs)):
        for term, arg in zip(terms, args, strict=True):
            assert ("*" in term) == arg.is_list, (term, arg)
            name = term.rpartition("*")[2]
            assert name in ("any", str(arg.dtype), arg.type_attr, arg.type_list_attr) or arg.number_attr, (term, arg)
    assert signature.keys <= definition.kinds.keys()
    assert {key: definition.defaults[key] for key in signature.defaults} == signature.defaults


def test_node_types_follow_attributes():
    node = build.node("Unpack", "x", name="pieces", num=3, T=FLOAT32)
    assert (node.inputs, node.groups, node.output_dtypes) == ((("x", 0),), (None,), (FLOAT32,) * 3)
    assert (node.implied, node.input_types, node.attrs) == ({"T"}, ("T",), {"axis": 0, "num": 3, "T": FLOAT32})
    packed = build.node("Pack", [ir.TensorRef("pieces", 1), node], name="packed", N=2, T=FLOAT32)
    assert (packed.inputs, packed.groups) == ((("pieces", 1), ("pieces", 0)), (2,))
    assert packed.implied == {"N", "T"}


def test_node_like_another():
    other = ir.Node("a", "Old", (), (), ("c",), {}, output_dtypes=(INT32,), output_shapes=((3,),), location="l.py:1")
    node = build.node("Identity", "x", T=INT32, like=other)
    assert (node.name, node.control, node.location, node.output_shapes) == ("a", ("c",), "l.py:1", ((3,),))
    assert build.node("Identity", "x", T=FLOAT32, like=other).output_shapes is None


@pytest.mark.parametrize(
    ("arguments", "attrs", "message"),
    [
        (("Shape", "x"), {"T": INT32}, "attributes"),
        (("Shape", "x"), {"T": INT32, "out_type": INT32, "axis": 0}, "attributes"),
        (("Shape", "x"), {"T": INT32, "out_type": 3}, "is a type"),
        (("Shape", "x", "y"), {"T": INT32, "out_type": INT32}, "1 inputs"),
        (("Shape", ["x"]), {"T": INT32, "out_type": INT32}, "an input"),
        (("Pack", ["x"]), {"T": INT32, "N": 2}, "an input"),
        (("Pack", "x"), {"T": INT32, "N": 1}, "an input"),
        (("While", ["x"]), {"cond": ir.FunctionRef("c"), "body": ir.FunctionRef("b")}, "types of its outputs"),
        (("Identity", "x"), {"T": INT32, "dtypes": [INT32]}, "types of its outputs"),
    ],
)
def test_node_of_other_attributes_raises(arguments, attrs, message):
    with pytest.raises(TypeError, match=message):
        build.node(*arguments, name="a", **attrs)
