"""Concatenation and splitting against TensorFlow."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops.registry import lookup

BF16 = ml_dtypes.bfloat16
X = np.arange(6.0).reshape(2, 3)
M = np.arange(12.0, dtype=np.float32).reshape(4, 3)
C = np.arange(24.0).reshape(2, 3, 4)
I32, I64 = np.int32, np.int64
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
STRINGS = np.array([b"a", b"bc", b""], object)


def _m(dtype):
    return (M % 3 - 1 if np.dtype(dtype).kind != "u" else M).astype(dtype)


CASES = [
    # Concat.
    *(
        case("ConcatV2", [X, X + 6, X[:, :1]][:n], np.array(axis, t)).using(name=f"{n}-axis{axis}-{np.dtype(t)}")
        for t in (I32, I64)
        for n, axis in ((3, 1), (2, 0), (2, -2), (3, -1))
    ),
    *(case("ConcatV2", [_m(t), _m(t)[:2]], np.array(0)) for t in DTYPES),
    case("ConcatV2", [X, X[:0]], np.array(0)).using(name="empty"),
    case("ConcatV2", [M, M], np.array(1)).using(symbolic=("b, 3", "b, 3"), name="sym"),
    case("ConcatV2", [M, M[:2]], np.array(0)).using(symbolic=("b, 3", "c, 3"), name="sym-axis"),
    case("ConcatV2", [M, M], np.array(0)).using(baked=("values",), name="host"),
    case("ConcatV2", [X, X[:, :2]], np.array(0)).using(error="do not match", name="shapes"),
    case("ConcatV2", [X, X], np.array(2)).using(error="out of range", name="axis"),
    case("ConcatV2", [np.float32(1), np.float32(2)], np.array(0)).using(error="calars", name="scalars"),
    *(case("Concat", I32(axis), [X, X + 1]) for axis in (0, 1, -1)),
    case("Concat", I32(0), [X, X]).using(baked=("values",), name="host"),
    case("Concat", I32(1), [M, M]).using(symbolic=("b, 3", "b, 3"), name="sym"),
    case("ParallelConcat", [X[:1], X[1:]], shape=[2, 3]),
    case("ParallelConcat", [_m("int32")[:1], _m("int32")[1:2]], shape=[2, 3]),
    # Pack, Unpack.
    *(case("Pack", [X, X + 1], axis=axis) for axis in (0, 1, 2, -1, -2, -3)),
    *(case("Pack", [_m(t), _m(t)[::-1]]) for t in DTYPES),
    case("Pack", [I32(1), I32(2), I32(3)]),
    case("Pack", [I32(1)]).using(name="one"),
    case("Pack", [I32(1), I32(2)]).using(baked=("values",), name="host"),
    case("Pack", [X, X], axis=-1).using(baked=("values",), name="host"),
    case("Pack", [M, M], axis=1).using(symbolic=("b, 3", "b, 3"), name="sym"),
    case("Pack", [X[:0], X[:0]]).using(name="empty"),
    case("Pack", [X, X[:1]]).using(error="hape", name="shapes"),
    case("Pack", [X, X], axis=3).using(error="out of range", name="axis"),
    *(case("Unpack", C, num=C.shape[axis], axis=axis) for axis in (0, 1, 2, -1, -3)),
    *(case("Unpack", _m(t), num=3, axis=1) for t in DTYPES),
    case("Unpack", np.arange(3), num=3).using(name="vector"),
    case("Unpack", np.arange(3), num=3).using(baked=("value",), name="host"),
    case("Unpack", C, num=3, axis=1).using(baked=("value",), name="host-axis"),
    case("Unpack", M, num=3, axis=-1).using(symbolic=("b, 3",), name="sym"),
    case("Unpack", np.zeros((2, 0)), num=2).using(name="empty"),
    case("Unpack", np.zeros((0, 2)), num=0).using(name="none"),
    case("Unpack", X, num=4).using(error="cannot be unpacked", name="count"),
    # Split.
    *(case("Split", I32(axis), C, num_split=n) for axis, n in ((0, 2), (1, 3), (2, 2), (-1, 4), (-2, 1))),
    *(case("Split", I32(0), _m(t), num_split=2) for t in DTYPES),
    case("Split", I32(1), C, num_split=3).using(baked=("value",), name="host"),
    case("Split", I32(1), M, num_split=3).using(symbolic=("b, 3",), name="sym"),
    case("Split", I32(0), M, num_split=2).using(symbolic=("2*b, 3",), name="sym-axis"),
    case("Split", I32(1), np.zeros((0, 2)), num_split=2).using(name="empty"),
    case("Split", I32(1), X, num_split=2).using(error="does not split", name="remainder"),
    *(
        case("SplitV", C, np.array(s, t), I32(axis), num_split=len(s)).using(
            baked=("size_splits",), name=f"{s}-axis{axis}-{np.dtype(t)}"
        )
        for t in (I32, I64)
        for s, axis in (([1, 2], 1), ([1, -1, 2], 2), ([2], 0), ([0, 3], -2), ([-1, 0], 2))
    ),
    *(case("SplitV", _m(t), np.array([1, 3]), I32(0), num_split=2).using(baked=("size_splits",)) for t in DTYPES),
    case("SplitV", C, np.array([1, -1]), I32(1), num_split=2).using(baked=("value", "size_splits"), name="host"),
    case("SplitV", M, np.array([1, -1]), I32(1), num_split=2).using(
        baked=("size_splits",), symbolic=("b, 3",), name="sym"
    ),
    case("SplitV", M, np.array([1, -1]), I32(0), num_split=2).using(
        baked=("size_splits",), symbolic=("b, 3",), name="sym-axis"
    ),
    case("SplitV", X, np.array([1, 1]), I32(1), num_split=2).using(baked=("size_splits",), error="add up", name="sum"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def _convert(fn, *specs):
    return tf2jax.convert_functional(tf.function(fn, autograph=False), *specs)


def _export(fn, x, shape="b, 3"):
    converted = _convert(fn, tf.TensorSpec([None, *x.shape[1:]], x.dtype))
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape), x.dtype)
    got = jax.export.export(jax.jit(converted))(spec).call(x)
    np.testing.assert_array_equal(got, fn(tf.constant(x)).numpy())


@pytest.mark.default_cases("<lambda>1", "<lambda>4")
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: tf.tile(x[:1], [tf.shape(x)[0], 2]),
        lambda x: tf.tile(tf.constant([[1.0, 2.0]]), tf.stack([tf.shape(x)[0], 1])),
        lambda x: tf.one_hot([0, 2], tf.shape(x)[0]),
        lambda x: tf.concat([x, tf.zeros([tf.shape(x)[0], 2])], 1),
        lambda x: tf.split(x, [tf.shape(x)[0] - 1, 1], 0)[0],
        lambda x: tf.reshape(x, tf.unstack(tf.shape(x))[::-1]),
        lambda x: tf.roll(x, 1, 0),
        lambda x: tf.transpose(x, tf.reverse(tf.range(tf.rank(x)), [0])),
        lambda x: tf.reshape(x, tf.gather(tf.concat([tf.shape(x), [1]], 0), [2, 0, 1])),
    ],
)
def test_symbolic_dimensions(fn):
    _export(fn, M)


@pytest.mark.full
def test_unpack_has_one_gradient_equation():
    fn = _convert(lambda x: tf.add_n(tf.unstack(x)), tf.TensorSpec((50, 2)))
    jaxpr = jax.make_jaxpr(jax.grad(lambda v: fn(v).sum()))(np.ones((50, 2), np.float32))
    assert sum(e.primitive.name == "pad" for e in jaxpr.eqns) == 0


def test_strings_are_folded():
    fn = _convert(lambda: tf.tile(tf.concat([tf.constant([b"a"]), tf.fill([2], "b")], 0)[1:], [2]))
    assert np.asarray(fn()).tolist() == [b"b"] * 4
    for name, args, kwargs in (
        ("Pack", ([STRINGS, STRINGS],), {}),
        ("Transpose", (STRINGS[None], np.array([1, 0])), {}),
        ("Reshape", (STRINGS, np.array([3, 1])), {}),
        ("ExpandDims", (STRINGS, np.array(0)), {}),
        ("PadV2", (STRINGS, np.array([[1, 0]]), np.array(b"", object)), {}),
        ("Pad", (STRINGS, np.array([[1, 0]])), {}),
        ("BroadcastTo", (STRINGS, np.array([2, 3])), {}),
        ("StridedSlice", (STRINGS, np.array([1]), np.array([2]), np.array([1])), {"shrink_axis_mask": 1}),
    ):
        out = lookup(name).fold(*args, **kwargs)
        assert isinstance(out, np.ndarray) and out.dtype == object, name
