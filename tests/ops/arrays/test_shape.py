"""Shapes against TensorFlow."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops.arrays import shape as shape_ops
from tf2jax_lite.ops.registry import lookup

BF16 = ml_dtypes.bfloat16
X = np.arange(6.0).reshape(2, 3)
B = np.arange(12.0).reshape(4, 3)
I32, I64 = np.int32, np.int64

CASES = [
    # Shape, ShapeN, Size, Rank.
    *(case(o, X, out_type=t) for o in ("Shape", "Size") for t in (tf.int32, tf.int64)),
    *(case(o, np.float32(1)).using(name="scalar") for o in ("Shape", "Size", "Rank")),
    *(case(o, np.zeros((0, 2))).using(name="empty") for o in ("Shape", "Size", "Rank")),
    *(case(o, np.array([[b"a", b"b"]], object)).using(name="strings") for o in ("Shape", "Size", "Rank")),
    case("Rank", B).using(symbolic=("b, 3",), name="sym"),
    case("ShapeN", [X, B]),
    case("ShapeN", [X, B], out_type=tf.int64).using(symbolic=("b, 3", "b2, 3"), name="sym"),
    case("Rank", X.astype(np.int8)),
    # Reshape.
    *(
        case("Reshape", X, np.array(shape, t)).using(name=f"{shape}-{t}")
        for t in ("int32", "int64")
        for shape in ([3, 2], [-1], [6, -1], [1, 2, 1, 3], [2, -1, 1])
    ),
    *(
        case("Reshape", X.astype(t), np.array([-1, 2]))
        for t in ("float32", "float16", BF16, "int8", "uint32", "bool", "complex64")
    ),
    case("Reshape", np.float32(3), np.array([], I32)).using(name="scalar"),
    case("Reshape", np.float32([3]), np.array([], I32)).using(name="to-scalar"),
    case("Reshape", np.zeros((0, 4), np.float32), np.array([2, -1])).using(name="empty"),
    case("Reshape", np.zeros((0, 4), np.float32), np.array([3, 0, 2])).using(name="empty-no-hole"),
    case("Reshape", B, np.array([-1])).using(symbolic=("b, 3",), name="sym-flat"),
    case("Reshape", B, np.array([-1, 3, 1])).using(symbolic=("b, 3",), name="sym-batch"),
    case("Reshape", X, np.array([4, -1])).using(error="do not divide", name="divide"),
    case("Reshape", X, np.array([4, 2])).using(error="cannot reshape", name="count"),
    case("Reshape", X, np.array([-1, -1])).using(error="only one dimension", name="holes"),
    case("Reshape", X, np.array([-2, 3])).using(error="non-negative", name="negative"),
    # TensorFlow infers the dimension from the nonzero ones, and rounds down.
    *(
        case("Reshape", np.zeros(old), np.array(new)).using(name=f"empty-{old}-{new}")
        for old in ((0, 2), (1, 0), (0,), (3, 0, 4))
        for new in ((0, -1), (-1, 0), (2, -1, 0), (5, -1, 0), (-1, 0, 0), (-1, 0, 4))
    ),
    case("Reshape", np.zeros((2, 3)), np.array([0, -1])).using(error="holds no element", name="into-nothing"),
    # ExpandDims, Squeeze.
    *(case("ExpandDims", X, np.array(d)).using(name=str(d)) for d in (0, 1, 2, -1, -2, -3)),
    case("ExpandDims", X.astype(BF16), np.array([1], I64)).using(name="vector-dim"),
    case("ExpandDims", np.int32(3), np.array(0)),
    case("ExpandDims", B, np.array(-1)).using(symbolic=("b, 3",), name="sym"),
    case("ExpandDims", X, np.array(3)).using(error="out of range", name="range"),
    case("Squeeze", np.ones((1, 2, 1))),
    *(case("Squeeze", np.ones((1, 2, 1)), squeeze_dims=d) for d in ([0], [2], [-1], [0, 2], [-1, 0], [0, 0, -3])),
    case("Squeeze", np.ones((1, 1))).using(name="to-scalar"),
    case("Squeeze", np.float32(2)).using(name="scalar"),
    case("Squeeze", np.zeros((0, 1))).using(name="empty"),
    case("Squeeze", np.ones((4, 1, 3))).using(symbolic=("b, 1, 3",), name="sym"),
    case("Squeeze", np.ones((1, 2)), squeeze_dims=[1]).using(error="cannot squeeze", name="not1"),
    case("Squeeze", np.ones((1, 2)), squeeze_dims=[2]).using(error="out of range", name="range"),
    # BroadcastTo.
    *(
        case("BroadcastTo", np.arange(3.0).reshape(a), np.array(s, t)).using(name=f"{a}-{s}-{t}")
        for a, s, t in (
            ((3,), [2, 3], I32),
            ((3, 1), [3, 2], I64),
            ((1, 3), [2, 2, 3], I32),
            ((3,), [3], I64),
            ((3,), [0, 3], I32),
        )
    ),
    case("BroadcastTo", np.float32(2), np.array([2, 2])).using(name="scalar"),
    case("BroadcastTo", np.float32(2), np.array([], I32)).using(name="scalar-to-scalar"),
    *(case("BroadcastTo", np.ones((1, 2), t), np.array([3, 2])) for t in ("bool", BF16, "complex128", "uint8")),
    case("BroadcastTo", np.float32([1, 2]), np.array([2, 2])).using(baked=("input",), name="host"),
    case("BroadcastTo", np.float32([1, 2]), np.array([600, 2])).using(baked=("input",), name="host-large"),
    case("BroadcastTo", X, np.array([3, 3])).using(error="ncompatible", name="bad"),
    # Arithmetic of shapes.
    *(
        case(o, np.array(a, t), np.array(b, t)).using(name=f"{a}-{b}-{np.dtype(t)}")
        for o in ("BroadcastArgs", "BroadcastGradientArgs")
        for t in (I32, I64)
        for a, b in (
            ([2, 1], [3]),
            ([], [2]),
            ([2, 1, 1], [1, 1]),
            ([1, 2], [1, 2]),
            ([1, 2], [2]),
            ([], []),
            ([5, 1, 3], [1, 4, 1]),
            ([0], [1]),
            ([1], [1, 1]),
        )
    ),
    *(
        case(o, np.array([2, 3]), np.array([2, 2])).using(error="ncompatible shapes", name="bad")
        for o in ("BroadcastArgs", "BroadcastGradientArgs")
    ),
    *(
        case("ConcatOffset", I32(axis), [np.array(s, I32) for s in ([2, 1, 4], [2, 3, 4], [2, 5, 4])])
        for axis in (1, -2)
    ),
    case("ConcatOffset", I32(0), [np.array([1]), np.array([0]), np.array([2])]).using(name="vectors"),
    case("ConcatOffset", I32(0), [np.array([1, 2]), np.array([1, 3])]).using(error="must match", name="bad"),
    *(case("InvertPermutation", np.array([2, 0, 1, 3], t)) for t in (I32, I64)),
    case("InvertPermutation", np.array([2, 0, 1, 3])).using(baked=("x",), name="host"),
    case("InvertPermutation", np.array([], I32)),
    case("InvertPermutation", np.array([0, 0])).using(baked=("x",), error="not a permutation", name="bad"),
    *(
        case("UnravelIndex", np.array(i, t), np.array(d, t)).using(baked=baked, name=f"{i}-{d}-{np.dtype(t)}{baked}")
        for t in (I32, I64)
        for i, d in (([5, 1, 0], [2, 3]), (11, [2, 2, 3]), ([3], [5]))
        for baked in ((), ("indices",))
    ),
    case("UnravelIndex", np.array([7]), np.array([2, 3])).using(baked=("indices",), error="out of bounds", name="bad"),
    *(
        case("DataFormatDimMap", np.array(x, t), src_format=a, dst_format=b).using(
            baked=baked, name=f"{np.dtype(t)}{x}-{a}-{b}{baked}"
        )
        for t in (I32, I64)
        for baked in ((), ("x",))
        for x, a, b in (
            ([-4, -1, 0, 3], "NHWC", "NCHW"),
            ([[1, 2], [4, 9]], "NCHW", "NHWC"),
            ([-5, 0, 4], "NDHWC", "NCDHW"),
        )
    ),
    case("DataFormatDimMap", np.int32(3)).using(name="scalar"),
    *(
        case("DataFormatVecPermute", np.array(x, t), src_format=a, dst_format=b).using(
            baked=baked, name=f"{np.dtype(t)}{x}-{a}-{b}{baked}"
        )
        for t in (I32, I64)
        for baked in ((), ("x",))
        for x, a, b in (
            ([1, 2, 3, 4], "NHWC", "NCHW"),
            ([1, 2], "NHWC", "NCWH"),
            ([[1, 2], [3, 4], [5, 6], [7, 8]], "NCHW", "NHWC"),
            ([[1, 2], [3, 4]], "NHWC", "WHCN"),
            ([1, 2, 3], "NDHWC", "NCDHW"),
        )
    ),
    case("DataFormatVecPermute", np.array([1, 2, 3])).using(error="3 entries", name="bad"),
    # EnsureShape.
    *(case("EnsureShape", X, shape=s) for s in ([2, 3], [None, 3], [None, None])),
    case("EnsureShape", B, shape=[None, 3]).using(symbolic=("b, 3",), name="sym"),
    case("EnsureShape", X, shape=[2, 2]).using(error="Expected shape=", name="bad"),
    case("EnsureShape", X, shape=[2]).using(error="Expected shape=", name="rank"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def _export(fn, x, shape):
    converted = tf2jax.convert_functional(tf.function(fn), tf.TensorSpec([None, *x.shape[1:]], x.dtype))
    args = jax.export.symbolic_shape(shape)
    exported = jax.export.export(jax.jit(converted))(jax.ShapeDtypeStruct(args, x.dtype))
    np.testing.assert_array_equal(exported.call(x), fn(tf.constant(x)).numpy())


@pytest.mark.default_cases("<lambda>17")
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: tf.reshape(x, [tf.shape(x)[0], 1, -1]),
        lambda x: tf.reshape(x, [-1, tf.shape(x)[0]]),
        lambda x: tf.reshape(x, tf.concat([[-1], tf.shape(x)[1:]], 0)),
        lambda x: tf.reshape(x, [tf.size(x)]),
        lambda x: tf.reshape(x, tf.reverse(tf.shape(x), [0])),
        lambda x: x + tf.fill([tf.shape(x)[0], 1], 2.0),
        lambda x: x + tf.fill(tf.shape(x), 2.0),
        lambda x: tf.zeros(tf.shape(x)) + tf.ones_like(x),
        lambda x: tf.broadcast_to([[1.0, 2.0, 3.0]], tf.shape(x)),
        lambda x: tf.broadcast_to(x[:, None], tf.stack([tf.shape(x)[0], 2, 3])),
        lambda x: tf.range(tf.shape(x)[0]),
        lambda x: tf.range(1, tf.shape(x)[0] + 1),
        lambda x: tf.range(0, tf.shape(x)[0], 2),
        lambda x: tf.range(tf.shape(x)[0] - 1, -1, -1),
        lambda x: tf.range(tf.shape(x)[0], 2 * tf.shape(x)[0], dtype=tf.int64),
        lambda x: x / tf.cast(tf.shape(x)[0], tf.float32),
        lambda x: tf.reshape(x, tf.cast(tf.shape(x, tf.int64), tf.int32)),
        lambda x: tf.raw_ops.LinSpace(start=0.0, stop=1.0, num=tf.shape(x)[0]),
        lambda x: tf.expand_dims(tf.squeeze(tf.expand_dims(x, 0)), -1),
        lambda x: tf.broadcast_dynamic_shape(tf.shape(x), tf.constant([5, 1, 3])),
        lambda x: tf.shape(x)[tf.newaxis] + tf.size(x),
    ],
)
def test_symbolic_dimensions(fn):
    _export(fn, np.arange(12.0, dtype=np.float32).reshape(4, 3), "b, 3")


@pytest.mark.full
def test_results_are_static_under_jit():
    def fn(x):
        assert isinstance(lookup("Shape").fn(x), np.ndarray)
        assert isinstance(lookup("ShapeN").fn([x])[0], np.ndarray)
        assert isinstance(lookup("Size").fn(x), np.ndarray)
        assert isinstance(lookup("Rank").fn(x), np.ndarray)
        return x

    jax.jit(fn)(jnp.ones((2, 3)))


@pytest.mark.full
def test_reshape_keeps_symbolic_dimensions():
    b, s = jax.export.symbolic_shape("b, s")
    wanted = np.empty(3, object)
    wanted[:] = [b, -1, 2]
    assert shape_ops.resolve_shape(wanted, (b, s, 4)) == (b, 2 * s, 2)
