"""Ragged tensors against TensorFlow."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import cast
from tests.ops.batches import check, tiered
from tests.ops.harness import case

BF16 = ml_dtypes.bfloat16
FLOATS = ["float64", "float32", "bfloat16"]


SPLITS = np.int64([0, 2, 2, 5])
OUTER = np.int64([0, 1, 3])
VALUES = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
MATRIX = np.arange(10.0).reshape(5, 2)
IDS = np.int64([0, 0, 2, 2, 2])
ROWS = {"row_partition_types": ["ROW_SPLITS"]}
ROWS2 = {"row_partition_types": ["ROW_SPLITS", "ROW_SPLITS"]}
BY_ID = {"row_partition_types": ["FIRST_DIM_SIZE", "VALUE_ROWIDS"]}
SHAPES = [[-1, -1], [3, 3], [2, 2], [5, 7], [-1, 1], [4, -1], [3, 0], [0, 2]]
BAKED = ("row_partition_tensors", "shape")


def i64(*values):
    return np.array(values, np.int64)


TESTED_OTHERWISE = {"_Repeat"}  # in tests/passes/optimize/test_repeat_idiom.py
CASES = [
    # ranges
    *(
        case("RaggedRange", cast([0, 5, 8], t), cast([3, 5, 12], t), cast([1, 1, 2], t), Tsplits=s).using(
            baked=("starts", "limits", "deltas"), name=f"{t}-{s.name}"
        )
        for t in ("float64", "float32", "int32", "int64")
        for s in (tf.int32, tf.int64)
    ),
    *(
        case("RaggedRange", cast(a, t), cast(b, t), cast(d, t)).using(jit=False, name=f"{t}-{a}-{b}-{d}")
        for t in ("float32", "int32", "float64")
        for a, b, d in (([0, 5], [3, 2], [1, -2]), (0, [3, 0, -1], 1), ([3, 4], 1, [-1, 1]), (1, 4, 2), ([], [], []))
    ),
    case("RaggedRange", cast(0, "float32"), cast(2, "float32"), cast(0.1, "float32")).using(jit=False, name="sum"),
    case("RaggedRange", np.int32(0), np.int32(3), np.int32(0)).using(jit=False, error="must not be 0"),
    case("RaggedRange", np.int32([0, 1]), np.int32([3]), np.int32(1)).using(error="of one length"),
    # gathering
    *(
        case("RaggedGather", [SPLITS], cast(VALUES, t), np.array(i, it), OUTPUT_RAGGED_RANK=np.ndim(i)).using(
            baked=("params_nested_splits", "indices"), name=f"{t}-{it}-{i}"
        )
        for t in (*FLOATS, "int32")
        for it in ("int32", "int64")
        for i in ([2, 0], [1, 1, 2], [], [[0, 1], [2, 2], [1, 0]], 2)
    ),
    case("RaggedGather", [SPLITS], MATRIX, np.int32([2, 0, 2]), OUTPUT_RAGGED_RANK=1).using(
        baked=("params_nested_splits", "indices"), name="matrix"
    ),
    case("RaggedGather", [SPLITS.astype("i4")], VALUES, np.int32([2, 0]), OUTPUT_RAGGED_RANK=1).using(
        baked=("params_nested_splits", "indices"), name="splits32"
    ),
    *(
        case("RaggedGather", [OUTER, SPLITS], VALUES, np.array(i, np.int32), OUTPUT_RAGGED_RANK=1 + np.ndim(i)).using(
            baked=("params_nested_splits", "indices"), name=f"nested-{i}"
        )
        for i in ([1, 0], [1, 1], [[0], [1]], 1)
    ),
    case("RaggedGather", [OUTER, SPLITS], VALUES, np.int32([1, 0]), OUTPUT_RAGGED_RANK=2).using(
        jit=False, name="eager"
    ),
    case("RaggedGather", [SPLITS], VALUES, np.int32([3]), OUTPUT_RAGGED_RANK=1).using(
        baked=("params_nested_splits", "indices"), error="out of range"
    ),
    # to sparse tensors
    *(
        case("RaggedTensorToSparse", [SPLITS], cast(VALUES, t)).using(baked=b, name=f"{t}-{len(b)}")
        for t in (*FLOATS, "int32", "bool")
        for b in ((), ("rt_nested_splits",), ("rt_nested_splits", "rt_dense_values"))
    ),
    *(
        case("RaggedTensorToSparse", s, v).using(baked=b, name=f"{n}-{len(b)}")
        for n, s, v in (
            ("nested", [OUTER, SPLITS], VALUES),
            ("matrix", [SPLITS], MATRIX),
            ("nested-matrix", [OUTER, SPLITS], MATRIX),
            ("empty", [i64(0, 0)], VALUES[:0]),
            ("none", [i64(0)], VALUES[:0]),
            ("int32", [SPLITS.astype(np.int32)], VALUES),
        )
        for b in ((), ("rt_nested_splits",))
    ),
    case("RaggedTensorToSparse", [i64(0, 3, 2, 5)], VALUES).using(baked=("rt_nested_splits",), error="not decrease"),
    case("RaggedTensorToSparse", [i64(0, 3)], VALUES).using(baked=("rt_nested_splits",), error="end at 3"),
    # to tensors
    *(
        case("RaggedTensorToTensor", np.array(s, np.int64), cast(VALUES, t), cast(9, t), [SPLITS], **ROWS).using(
            baked=BAKED, name=f"{t}-{s}"
        )
        for t in (*FLOATS, "int32", "complex64")
        for s in SHAPES
    ),
    *(
        case("RaggedTensorToTensor", np.int32(s), VALUES, 9.0, [SPLITS], **ROWS).using(
            baked=("shape",), name=f"traced-{s}"
        )
        for s in ([-1, 3], [3, 3], [2, 2], [5, 7], [-1, 1])
    ),
    case("RaggedTensorToTensor", np.int64(-1), VALUES, 9.0, [SPLITS], **ROWS).using(baked=BAKED, name="scalar"),
    case("RaggedTensorToTensor", np.int64(-1), VALUES, 9.0, [SPLITS], **ROWS).using(
        jit=False, baked=("shape",), name="eager"
    ),
    case("RaggedTensorToTensor", np.int32([-1, -1]), VALUES, 9.0, [SPLITS.astype("i4")], **ROWS).using(
        baked=BAKED, name="int32"
    ),
    *(
        case("RaggedTensorToTensor", np.int64(s), MATRIX, np.asarray(d, float), [SPLITS], **ROWS).using(
            baked=BAKED, name=f"matrix-{s}-{d}"
        )
        for s in ([-1, -1, -1], [2, 4, 2], [3, -1, 2])
        for d in (7, [7, 8])
    ),
    *(
        case("RaggedTensorToTensor", np.int64(s), VALUES, 9.0, [OUTER, SPLITS], **ROWS2).using(
            baked=b, name=f"nested-{s}-{len(b)}"
        )
        for s in ([2, 2, 3], [1, 1, 1], [3, 3, 4])
        for b in (BAKED, ("shape",))
    ),
    case("RaggedTensorToTensor", np.int64([-1, -1, -1]), VALUES, 9.0, [OUTER, SPLITS], **ROWS2).using(
        baked=BAKED, name="nested-natural"
    ),
    *(
        case("RaggedTensorToTensor", np.int64(s), VALUES, 9.0, [np.int64(3), IDS], **BY_ID).using(
            baked=BAKED, name=f"ids-{s}"
        )
        for s in SHAPES
    ),
    case("RaggedTensorToTensor", np.int64([-1, 3]), VALUES, 9.0, [i64(0, 0, 0, 5)], **ROWS).using(
        baked=("shape",), name="long"
    ),
    case("RaggedTensorToTensor", np.int64([-1, -1]), VALUES[:0], 9.0, [i64(0, 0, 0)], **ROWS).using(
        baked=BAKED, name="empty"
    ),
    case("RaggedTensorToTensor", np.int64([-1, 3]), VALUES, 9.0, [SPLITS], **ROWS).using(
        baked=("shape",), symbolic=("n", "", "r"), name="sym"
    ),
    case("RaggedTensorToTensor", np.int64([-1, -1, 3]), MATRIX, 9.0, [SPLITS], **ROWS).using(
        baked=BAKED, error="inner dimension"
    ),
    case("RaggedTensorToTensor", np.int64([-1]), VALUES, 9.0, [SPLITS], **ROWS).using(baked=BAKED, error="rank"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def from_splits(values, splits):
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def ragged_range(values, splits):
    out = tf.ragged.range(splits[:-1], splits[1:])
    return out.to_tensor(shape=[None, 4])


PADDED = {
    "range": ragged_range,
    "gather": lambda v, s: tf.gather(from_splits(v, s), [2, 0]).to_tensor(shape=[2, 4]),
    "gather twice": lambda v, s: tf.gather(from_splits(v, s), [[2, 0], [1, 1]]).to_tensor(shape=[2, 2, 4]),
    "nested": lambda v, s: tf.gather(from_splits(from_splits(v, s), OUTER), [1, 0]).to_tensor(shape=[2, 3, 4]),
    "sparse": lambda v, s: tf.sparse.reduce_sum(from_splits(v, s).to_sparse(), axis=None),
    "tensor": lambda v, s: tf.pad(from_splits(v, s).to_tensor(), [[0, 0], [0, 6]])[:, :6],
}


@pytest.mark.default_cases("splits0-nested")
@pytest.mark.parametrize("name", ["range", "gather", "gather twice", "nested", "tensor"])
@pytest.mark.parametrize("splits", [[0, 2, 2, 5], [0, 3, 4, 5]])
def test_traced_splits_with_a_bound(name, splits):
    fn = PADDED[name]
    args = VALUES.astype(np.float32), np.int64(splits)
    with jax.enable_x64(True):
        with tf2jax.override_config("dynamic_shape_bound", 11):
            jax_fn = tf2jax.convert_functional(tf.function(fn), *(tf.TensorSpec(a.shape, a.dtype) for a in args))
        np.testing.assert_allclose(jax.jit(jax_fn)(*args), fn(*args))


def test_traced_splits_without_a_bound():
    def fn(splits):
        return from_splits(tf.range(5.0), splits).to_tensor()

    jax_fn = tf2jax.convert_functional(tf.function(fn), tf.TensorSpec([4], tf.int64))
    with pytest.raises(ValueError, match="dynamic_shape_bound"):
        jax.jit(jax_fn)(SPLITS)


@pytest.mark.full
def test_ragged_model():
    def fn(x):
        words = tf.ragged.constant([[0, 2], [], [1, 1, 3]], row_splits_dtype=tf.int32)
        rows = tf.ragged.map_flat_values(lambda i: tf.gather(x, i), words)
        return tf.reduce_sum(rows, axis=1), tf.reduce_mean(rows.to_tensor(), axis=1), rows.row_lengths()

    x = np.arange(8.0, dtype=np.float32).reshape(4, 2)
    jax_fn = tf2jax.convert_functional(tf.function(fn), tf.TensorSpec([4, 2]))
    for e, a in zip(fn(x), jax.jit(jax_fn)(x), strict=True):
        np.testing.assert_allclose(a, e)
