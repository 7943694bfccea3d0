"""Order statistics and binary search against TensorFlow."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests._support import cast
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.arrays import sort

BF16 = ml_dtypes.bfloat16
FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NAN, INF = np.nan, np.inf


def unordered(expected, actual):
    """Compare values and their indices in any order."""
    for e, a in zip(zip(*expected, strict=True), zip(*actual, strict=True), strict=True):
        order = [np.argsort(indices) for indices in (e[1], a[1])]
        for i in range(2):
            np.testing.assert_array_equal(e[i][order[0]], a[i][order[1]])


X = np.array([[1, 3, 3, 2, 100, 0], [5, 5, 5, 5, 4, 6]])
SCORES = np.float32([[1, 3, 3, 2], [1, NAN, 2, 3], [1, 2, INF, 3], [1, 2, 3, 3], [1, 2, 3, 3], [4, 4, 4, 4]])
SORTED = np.array([[1, 2, 2, 3], [0, 0, 0, 0]])
VALUES = np.array([[0, 2, 5, 2, 3], [1, 0, 3, 0, 0]])

CASES = [
    *(case("TopKV2", cast(X, t), np.int32(4)) for t in (*FLOATS, *INTS)),
    *(case("TopKV2", X, np.array(k, t)) for k in (0, 1, 6) for t in ("int16", "int32", "int64")),
    *(case("TopKV2", X, np.int32(3), index_type=t) for t in (tf.int16, tf.int32, tf.int64)),
    # Gradients are in the order of the values, which TensorFlow leaves open.
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
]  # fmt: skip
# The result's shape depends on k.
CASES = [c.using(baked=("k",)) if c.op == "TopKV2" else c for c in CASES]

# TensorFlow has no kernel left for TopK.
TESTED_OTHERWISE = {"TopK"}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.default_cases("results0", "results1")
@pytest.mark.parametrize("results", [slice(-1, None), slice(2, 5), slice(None)])
def test_part_of_top_k_is_a_selection(results):
    """XLA sorts whole rows if only the k-th is read, as in top-k sampling."""

    def part(x):
        values, indices = sort.top_k_v2(x, np.int32(50))
        return values[:, results], indices[:, results]

    x = np.random.default_rng(0).normal(size=(2, 5000)).astype(np.float32)
    text = jax.jit(part).lower(x).compile().as_text()
    assert " sort(" not in text and "TopK" in text
    expected = np.sort(x)[:, ::-1][:, :50][:, results]
    np.testing.assert_array_equal(jax.jit(part)(x)[0], expected)


def test_top_k():
    values, indices = registry.lookup("TopK").fn(X, k=2)
    np.testing.assert_array_equal(values, [[100, 3], [6, 5]])
    np.testing.assert_array_equal(indices, [[4, 1], [5, 0]])
    assert indices.dtype == np.int32


@pytest.mark.full
def test_nan_counts_as_largest():
    # TensorFlow compares with "<", so the result depends on its heap.
    values, indices = sort.top_k_v2(np.float32([1, NAN, 0]), np.int32(2))
    np.testing.assert_array_equal(values, [NAN, 1])
    np.testing.assert_array_equal(indices, [1, 0])


@pytest.mark.full
def test_approximate_minimum():
    # TensorFlow's CPU kernel has the maximum alone.
    values, indices = sort.approx_top_k(
        np.float32([[1, 3], [3, 2], [0, 5]]), k=2, is_max_k=False, reduction_dimension=0
    )
    np.testing.assert_array_equal(values, [[0, 2], [1, 3]])
    np.testing.assert_array_equal(indices, [[2, 1], [0, 0]])
