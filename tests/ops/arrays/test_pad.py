"""Padding against TensorFlow."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

BF16 = ml_dtypes.bfloat16
X = np.arange(12.0).reshape(3, 4)
M = np.arange(12.0, dtype=np.float32).reshape(4, 3)
DTYPES = [
    "float32",
    "float64",
    "float16",
    BF16,
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
DTYPES += ["bool", "complex64", "complex128"]
PADS = [[[0, 0], [0, 0]], [[1, 2], [0, 3]], [[0, 2], [1, 0]]]

CASES = [
    *(case("Pad", X, np.array(p, t)).using(name=f"{p}-{np.dtype(t)}") for p in PADS for t in (np.int32, np.int64)),
    *(case("Pad", X.astype(t), np.array(PADS[1])) for t in DTYPES if t not in ("uint16", "uint32", "uint64")),
    case("Pad", np.float32(3), np.zeros((0, 2), np.int32)).using(name="scalar"),
    case("Pad", np.zeros((0, 2)), np.array([[1, 1], [0, 1]])).using(name="empty"),
    case("Pad", M, np.array(PADS[1])).using(symbolic=("b, 3",), name="sym"),
    case("Pad", M, np.array(PADS[1])).using(baked=("input",), name="host"),
    case("Pad", M, np.array([[40, 0], [40, 0]])).using(baked=("input",), name="host-large"),
    case("Pad", X, np.array([[1, 2], [-1, 0]])).using(error="non-negative", name="negative"),
    case("Pad", X, np.array([[1, 2]])).using(error="shape", name="rank"),
    *(case("PadV2", X, np.array(p), np.float64(-7)).using(name=str(p)) for p in PADS),
    *(
        case("PadV2", X.astype(t), np.array(PADS[2]), np.array(1, t))
        for t in DTYPES
        if t not in ("uint16", "uint32", "uint64")
    ),
    case("PadV2", M, np.array(PADS[1]), np.float32(np.nan)).using(symbolic=("b, 3", ""), name="sym"),
    case("PadV2", M, np.array(PADS[1]), np.float32(5)).using(baked=("input", "constant_values"), name="host"),
    case("PadV2", M, np.array(PADS[1]), np.float32(5)).using(baked=("constant_values",), name="known-value"),
    *(
        case("MirrorPad", X, np.array(p, t), mode=mode).using(name=f"{mode}-{p}-{np.dtype(t)}")
        for mode in ("REFLECT", "SYMMETRIC")
        for p in ([[1, 2], [0, 3]], [[2, 2], [3, 3]], [[0, 0], [0, 0]])
        for t in (np.int32, np.int64)
    ),
    case("MirrorPad", X, np.array([[3, 3], [4, 0]]), mode="SYMMETRIC").using(name="whole"),
    *(
        case("MirrorPad", X.astype(t), np.array([[1, 0], [2, 1]]), mode="REFLECT")
        for t in DTYPES
        if t not in ("uint16", "uint32", "uint64")
    ),
    case("MirrorPad", np.arange(24.0).reshape(2, 3, 4), np.array([[1, 1], [0, 2], [3, 1]]), mode="REFLECT"),
    case("MirrorPad", M, np.array([[0, 0], [2, 1]]), mode="REFLECT").using(symbolic=("b, 3",), name="sym"),
    case("MirrorPad", M, np.array([[1, 1], [2, 1]]), mode="SYMMETRIC").using(symbolic=("b, 3",), name="sym-axis"),
    case("MirrorPad", X, np.array([[3, 0], [0, 0]]), mode="REFLECT").using(error="less than", name="reflect"),
    case("MirrorPad", X, np.array([[4, 0], [0, 0]]), mode="SYMMETRIC").using(error="no greater", name="symmetric"),
    *(
        case("MirrorPadGrad", np.arange(42, dtype=d).reshape(6, 7), np.array(p, t), mode=mode).using(
            name=f"{mode}-{p}-{np.dtype(t)}-{np.dtype(d)}"
        )
        for mode in ("REFLECT", "SYMMETRIC")
        for p in ([[1, 2], [0, 3]], [[2, 1], [2, 1]], [[0, 0], [0, 0]])
        for t, d in ((np.int32, np.float64), (np.int64, np.int32), (np.int32, np.uint8))
    ),
    case("MirrorPadGrad", np.ones((6, 7)), np.array([[3, 3], [0, 0]]), mode="REFLECT").using(
        error="less than", name="bad"
    ),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
def test_symbolic_paddings():
    fn = tf.function(lambda x: tf.pad(x, [[0, tf.shape(x)[0]], [1, 1]], constant_values=3.0))
    converted = tf2jax.convert_functional(fn, tf.TensorSpec([None, 3]))
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 3"), np.float32)
    got = jax.export.export(jax.jit(converted))(spec).call(M)
    np.testing.assert_array_equal(got, fn(M).numpy())
