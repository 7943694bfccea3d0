"""Ranking, searching and sets of values against TensorFlow."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import OpError
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.arrays import sort
from tf2jax_lite.ops.common import row_boundaries

BF16 = ml_dtypes.bfloat16
FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NAN, INF = np.nan, np.inf


def cast(value, dtype):
    return np.asarray(value).astype(BF16 if dtype == "bfloat16" else dtype)


def unordered(expected, actual):
    """Compares values and their places, whatever order they come in."""
    for e, a in zip(zip(*expected, strict=True), zip(*actual, strict=True), strict=True):
        order = [np.argsort(places) for places in (e[1], a[1])]
        for i in range(2):
            np.testing.assert_array_equal(e[i][order[0]], a[i][order[1]])


X = np.array([[1, 3, 3, 2, 100, 0], [5, 5, 5, 5, 4, 6]])
SCORES = np.float32([[1, 3, 3, 2], [1, NAN, 2, 3], [1, 2, INF, 3], [1, 2, 3, 3], [1, 2, 3, 3], [4, 4, 4, 4]])
SORTED = np.array([[1, 2, 2, 3], [0, 0, 0, 0]])
VALUES = np.array([[0, 2, 5, 2, 3], [1, 0, 3, 0, 0]])
SET = [3, 1, 3, 2, 1, 7]
ROWS = np.array([[[1, 2], [3, 4], [1, 2]], [[5, 6], [7, 8], [5, 6]], [[1, 2], [3, 4], [1, 2]]])

CASES = [
    *(case("TopKV2", cast(X, t), np.int32(4)) for t in (*FLOATS, *INTS)),
    *(case("TopKV2", X, np.array(k, t)) for k in (0, 1, 6) for t in ("int16", "int32", "int64")),
    *(case("TopKV2", X, np.int32(3), index_type=t) for t in (tf.int16, tf.int32, tf.int64)),
    # Gradients come in the order of the values, which TensorFlow leaves open.
    *(case("TopKV2", X * 1.0, np.int32(k), sorted=False).using(compare=unordered, grad=False) for k in (1, 3, 6)),
    case("TopKV2", np.float32([1, INF, -INF, 0]), np.int32(4)).using(name="inf"),
    case("TopKV2", np.arange(24.0).reshape(2, 3, 4) % 5, np.int32(2)).using(name="rank3"),
    case("TopKV2", np.zeros((0, 3)), np.int32(2)).using(name="empty"),
    case("TopKV2", X * 1.0, np.int32(2)).using(symbolic=("b, 6",), name="sym"),
    case("TopKV2", np.float32([[[1, 2]], [[2, 1]]]), np.int32(1)).using(symbolic=("b, c, 2",), name="sym3"),
    case("TopKV2", X, np.int32(7)).using(error="k is 7", name="k"),
    case("TopKV2", X, np.int32(-1)).using(error="negative", name="negative"),
    case("TopKV2", np.float32(1), np.int32(1)).using(error="at least one dimension", name="rank0"),
    *(case("ApproxTopK", cast(X % 7 + np.arange(6) / 8, t), k=3) for t in ("float32", "float16", "bfloat16")),
    case("ApproxTopK", np.float32(X), k=2, recall_target=0.5),
    case("InTopKV2", SCORES, np.int32([2, 2, 3, 4, -1, 0]), np.int32(2)),
    case("InTopKV2", SCORES, np.int64([0, 0, 0, 3, 2, 3]), np.int64(1)),
    case("InTopKV2", SCORES[:1], np.int32([3]), np.int32(3)),
    case("InTopKV2", SCORES[:1], np.int32([2]), np.int32(0)),
    case("InTopKV2", SCORES, np.int32([2, 2, 3, 4, -1, 0]), np.int32(2)).using(symbolic=("b, 4", "b", ""), name="sym"),
    case("InTopKV2", SCORES[0], np.int32([2]), np.int32(1)).using(error="matrix and a vector", name="rank"),
    *(case("InTopK", SCORES, np.array([2, 2, 3, 4, -1, 0], t), k=k) for t in ("int32", "int64") for k in (1, 3)),
    *(case("NthElement", cast(X, t), np.int32(2), reverse=r) for t in (*FLOATS, *INTS) for r in (False, True)),
    *(case("NthElement", X * 1.0, np.int32(n)).using(baked=("n",), name=f"constant-{n}") for n in (0, 1, 5)),
    case("NthElement", X * 1.0, np.int32(2)).using(symbolic=("b, 6", ""), name="sym"),
    case("NthElement", X * 1.0, np.int32(2), reverse=True).using(symbolic=("b, n", ""), name="sym2"),
    case("NthElement", np.float32([1, 2, 2, 0]), np.int32(2)).using(name="vector"),
    *(
        case("NthElement", np.float32([[2, 0, 2, 1], [1, 1, 1, 1]])[:, :s], np.int32(s // 2)).using(name=f"{s}")
        for s in (1, 2, 4)
    ),
    case("NthElement", np.zeros((0, 3), np.float32), np.int32(1)).using(name="no-rows"),
    case("NthElement", X, np.int32(6)).using(error="n is 6", name="n"),
    case("NthElement", np.zeros((2, 0)), np.int32(0)).using(error="has 0 elements", name="no-columns"),
    case("NthElement", np.float32(1), np.int32(0)).using(error="at least one dimension", name="rank0"),
    *(case(op, cast(SORTED, t), cast(VALUES, t)) for op in ("LowerBound", "UpperBound") for t in (*FLOATS, *INTS)),
    *(
        case(op, np.float32([[1, 2, 2, last]]), np.float32([[0, 2, NAN, 5, INF, -INF]]), out_type=out)
        for op in ("LowerBound", "UpperBound")
        for last in (3, NAN)
        for out in (tf.int32, tf.int64)
    ),
    *(
        case(op, np.sort(np.arange(2.0 * n).reshape(2, n) % 5), np.arange(14.0).reshape(2, 7) - 1).using(name=f"{n}")
        for op in ("LowerBound", "UpperBound")
        for n in (0, 1, 2, 7, 8)
    ),
    *(case(op, np.float32([[-1, -0.0, 0, 1]]), np.float32([[0, -0.0]])) for op in ("LowerBound", "UpperBound")),
    *(case(op, SORTED, VALUES).using(symbolic=("b, 4", "b, m"), name="sym") for op in ("LowerBound", "UpperBound")),
    *(case(op, SORTED, VALUES).using(symbolic=("b, n", "b, m"), name="sym2") for op in ("LowerBound", "UpperBound")),
    case("LowerBound", SORTED[0], VALUES[0]).using(error="two matrices", name="rank"),
    # The size of these results depends on the values: eager only.
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
# How many are taken decides the result's shape.
CASES = [c.using(baked=("k",)) if c.op == "TopKV2" else c for c in CASES]

# TensorFlow has no kernel left for TopK.
TESTED_OTHERWISE = {"TopK"}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.default_cases("results0", "results1")
@pytest.mark.parametrize("results", [slice(-1, None), slice(2, 5), slice(None)])
def test_part_of_top_k_is_a_selection(results):
    """XLA sorted all of a row where only the k-th largest was read, as sampling from the k likeliest does."""

    def part(x):
        values, places = sort.top_k_v2(x, np.int32(50))
        return values[:, results], places[:, results]

    x = np.random.default_rng(0).normal(size=(2, 5000)).astype(np.float32)
    text = jax.jit(part).lower(x).compile().as_text()
    assert " sort(" not in text and "TopK" in text
    expected = np.sort(x)[:, ::-1][:, :50][:, results]
    np.testing.assert_array_equal(jax.jit(part)(x)[0], expected)


def test_top_k():
    values, places = registry.lookup("TopK").fn(X, k=2)
    np.testing.assert_array_equal(values, [[100, 3], [6, 5]])
    np.testing.assert_array_equal(places, [[4, 1], [5, 0]])
    assert places.dtype == np.int32


def test_nan_counts_as_largest():
    # TensorFlow compares with "<" and gives whatever its heap makes of that.
    values, places = sort.top_k_v2(np.float32([1, NAN, 0]), np.int32(2))
    np.testing.assert_array_equal(values, [NAN, 1])
    np.testing.assert_array_equal(places, [1, 0])


def test_approximate_minimum():
    # TensorFlow's CPU kernel only does the maximum.
    values, places = sort.approx_top_k(np.float32([[1, 3], [3, 2], [0, 5]]), k=2, is_max_k=False, reduction_dimension=0)
    np.testing.assert_array_equal(values, [[0, 2], [1, 3]])
    np.testing.assert_array_equal(places, [[2, 1], [0, 0]])


@pytest.mark.default_cases("[]", "[5]")
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
    expected = [np.asarray(v) for v in sort.unique_with_counts(x, bound=None)]
    y, place, count = jax.jit(lambda v: sort.unique_with_counts(v, bound=8))(x)
    n = expected[0].size
    np.testing.assert_array_equal(y, np.pad(expected[0], (0, 8 - n)))
    np.testing.assert_array_equal(place, expected[1])
    np.testing.assert_array_equal(count, np.pad(expected[2], (0, 8 - n)))
    y, place = jax.jit(lambda v: sort.unique(v, bound=8))(x)
    np.testing.assert_array_equal(y, np.pad(expected[0], (0, 8 - n)))
    if n < 2:
        return
    kept, place = jax.jit(lambda a, b: sort.list_diff(a, b, bound=8))(x, x[:1])
    expected = [np.asarray(v) for v in sort.list_diff(x, x[:1], bound=None)]
    n = expected[0].size
    np.testing.assert_array_equal(kept, np.pad(expected[0], (0, 8 - n)))
    np.testing.assert_array_equal(place, np.pad(expected[1], (0, 8 - n), constant_values=x.size))


@pytest.mark.full
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_traced_slices_are_padded_to_a_bound(axis):
    expected = [np.asarray(v) for v in sort.unique_with_counts_v2(ROWS, np.array([axis]), bound=None)]
    y, place, count = jax.jit(lambda v: sort.unique_with_counts_v2(v, np.array([axis]), bound=4))(ROWS)
    missing = 4 - expected[0].shape[axis]
    np.testing.assert_array_equal(y, np.pad(expected[0], [(0, missing if i == axis else 0) for i in range(3)]))
    np.testing.assert_array_equal(place, expected[1])
    np.testing.assert_array_equal(count, np.pad(expected[2], (0, missing)))


def test_traced_values_need_a_bound():
    for fn in (
        lambda x: sort.unique(x, bound=None),
        lambda x: sort.unique_v2(x, np.array([0]), bound=None),
        lambda x: sort.list_diff(x, x, bound=None),
    ):
        with pytest.raises(OpError, match="dynamic_shape_bound"):
            jax.jit(fn)(jnp.arange(3))


def test_numpy_twins():
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
    """Not compared each with each, which would take memory with the product of their lengths."""
    random = np.random.default_rng(0)
    x, y = (random.integers(0, 5000, n).astype(dtype) for n in (3000, 2000))
    assert x.size * y.size > row_boundaries.MOST_COMPARED
    if dtype == np.float32:
        x[7] = y[9] = np.nan
    expected = tf.raw_ops.ListDiff(x=x, y=y)
    values, where = jax.jit(lambda x, y: sort.list_diff(x, y, bound=len(x)))(x, y)
    count = len(expected.out)
    np.testing.assert_array_equal(values[:count], expected.out)
    np.testing.assert_array_equal(where[:count], expected.idx)
    assert (np.asarray(where[count:]) == len(x)).all()
