"""Distinct values and set differences against TensorFlow."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests._support import cast
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import OpError
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.arrays import unique
from tf2jax_lite.ops.common import rows

BF16 = ml_dtypes.bfloat16
FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NAN = np.nan


SET = [3, 1, 3, 2, 1, 7]
ROWS = np.array([[[1, 2], [3, 4], [1, 2]], [[5, 6], [7, 8], [5, 6]], [[1, 2], [3, 4], [1, 2]]])

CASES = [
    # Results have data-dependent sizes: eager only.
    *(
        case(op, cast(SET, t), out_idx=out).using(jit=False)
        for op in ("Unique", "UniqueWithCounts")
        for t in (*FLOATS, *INTS)
        for out in (tf.int32, tf.int64)
    ),
    *(
        case(op, x).using(jit=False, name=name)
        for op in ("Unique", "UniqueWithCounts")
        for name, x in (
            ("nan", np.float32([NAN, 1, NAN, -0.0, 0])),
            ("bool", np.array([True, True])),
            ("empty", np.zeros(0, np.float32)),
            ("text", np.array([b"b", b"a", b"b"], object)),
        )
    ),
    *(
        case(op, cast(ROWS, t), np.array([axis], a)).using(jit=False)
        for op in ("UniqueV2", "UniqueWithCountsV2")
        for t in ("float32", "int32", "uint8", "bfloat16")
        for a in ("int32", "int64")
        for axis in (0, 1, -1)
    ),
    *(
        case(op, x, np.array(axis, np.int64), out_idx=tf.int64).using(jit=False, name=name)
        for op in ("UniqueV2", "UniqueWithCountsV2")
        for name, x, axis in (
            ("vector", np.array(SET), []),
            ("vector0", np.array(SET), [0]),
            ("nan", np.float32([[1, NAN], [1, NAN]]), [0]),
            ("zeros", np.float32([[1, -0.0], [1, 0]]), [0]),
            ("empty", np.zeros((0, 2)), [0]),
            ("empty-rows", np.zeros((3, 0)), [0]),
        )
    ),
    case("Unique", np.array([[1]])).using(error="a vector is expected", name="matrix"),
    case("UniqueV2", np.array([[1]]), np.array(0)).using(error="axis must be a vector", name="scalar-axis"),
    case("UniqueV2", np.array([[1]]), np.array([2])).using(error="out of range", name="axis"),
    *(
        case("ListDiff", cast([1, 2, 3, 4, 2, 1], t), cast([1, 3], t), out_idx=out).using(jit=False)
        for t in (*FLOATS, *INTS)
        for out in (tf.int32, tf.int64)
    ),
    case("ListDiff", np.float32([1, NAN, 0]), np.float32([NAN, -0.0])).using(jit=False, name="nan"),
    case("ListDiff", np.int32([]), np.int32([1])).using(jit=False, name="empty"),
    case("ListDiff", np.int32([1, 1]), np.int32([])).using(jit=False, name="keep-all"),
    case("ListDiff", np.array([b"a", b"b"], object), np.array([b"b"], object)).using(jit=False, name="text"),
    case("ListDiff", np.int32([[1]]), np.int32([1])).using(error="two vectors", name="rank"),
]  # fmt: skip


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.default_cases("[]")
@pytest.mark.parametrize(
    "x",
    [
        np.array(SET),
        np.float32([NAN, 1, NAN, -0.0, 0, 1]),
        np.int32([]),
        np.array([True, False, True]),
        np.int32([5]),
    ],
    ids=str,
)
def test_traced_values_are_padded_to_a_bound(x):
    expected = [np.asarray(v) for v in unique.unique_with_counts(x, bound=None)]
    y, place, count = jax.jit(lambda v: unique.unique_with_counts(v, bound=8))(x)
    n = expected[0].size
    np.testing.assert_array_equal(y, np.pad(expected[0], (0, 8 - n)))
    np.testing.assert_array_equal(place, expected[1])
    np.testing.assert_array_equal(count, np.pad(expected[2], (0, 8 - n)))
    y, place = jax.jit(lambda v: unique.unique(v, bound=8))(x)
    np.testing.assert_array_equal(y, np.pad(expected[0], (0, 8 - n)))
    if n < 2:
        return
    kept, place = jax.jit(lambda a, b: unique.list_diff(a, b, bound=8))(x, x[:1])
    expected = [np.asarray(v) for v in unique.list_diff(x, x[:1], bound=None)]
    n = expected[0].size
    np.testing.assert_array_equal(kept, np.pad(expected[0], (0, 8 - n)))
    np.testing.assert_array_equal(place, np.pad(expected[1], (0, 8 - n), constant_values=x.size))


@pytest.mark.full
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_traced_slices_are_padded_to_a_bound(axis):
    expected = [np.asarray(v) for v in unique.unique_with_counts_v2(ROWS, np.array([axis]), bound=None)]
    y, place, count = jax.jit(lambda v: unique.unique_with_counts_v2(v, np.array([axis]), bound=4))(ROWS)
    missing = 4 - expected[0].shape[axis]
    np.testing.assert_array_equal(y, np.pad(expected[0], [(0, missing if i == axis else 0) for i in range(3)]))
    np.testing.assert_array_equal(place, expected[1])
    np.testing.assert_array_equal(count, np.pad(expected[2], (0, missing)))


def test_traced_values_need_a_bound():
    for fn in (
        lambda x: unique.unique(x, bound=None),
        lambda x: unique.unique_v2(x, np.array([0]), bound=None),
        lambda x: unique.list_diff(x, x, bound=None),
    ):
        with pytest.raises(OpError, match="dynamic_shape_bound"):
            jax.jit(fn)(jnp.arange(3))


def test_constant_folding():
    text = np.array([b"b", b"a", b"b"], object)
    y, place = registry.lookup("Unique").fold(text)
    assert y.tolist() == [b"b", b"a"]
    assert place.tolist() == [0, 1, 0]
    assert place.dtype == np.int32
    kept, place = registry.lookup("ListDiff").fold(text, text[1:2])
    assert kept.tolist() == [b"b", b"b"]
    assert place.tolist() == [0, 2]
    _, _, count = registry.lookup("UniqueWithCounts").fold(np.array(SET), out_idx=np.dtype(np.int32))
    assert count.tolist() == [2, 2, 1, 1]
    y, _ = registry.lookup("UniqueV2").fold(ROWS, np.array([0]))
    np.testing.assert_array_equal(y, ROWS[:2])
    _, _, count = registry.lookup("UniqueWithCountsV2").fold(ROWS, np.array([1]))
    assert count.tolist() == [2, 1]


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_differences_of_long_vectors(dtype):
    """Long vectors are not compared pairwise, in quadratic memory."""
    random = np.random.default_rng(0)
    x, y = (random.integers(0, 5000, n).astype(dtype) for n in (3000, 2000))
    assert x.size * y.size > rows.MAX_COMPARED_PAIRS
    if dtype == np.float32:
        x[7] = y[9] = np.nan
    expected = tf.raw_ops.ListDiff(x=x, y=y)
    values, where = jax.jit(lambda x, y: unique.list_diff(x, y, bound=len(x)))(x, y)
    count = len(expected.out)
    np.testing.assert_array_equal(values[:count], expected.out)
    np.testing.assert_array_equal(where[:count], expected.idx)
    assert (np.asarray(where[count:]) == len(x)).all()
