"""Reductions against TensorFlow."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests._support import cast
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops import registry

BF16 = ml_dtypes.bfloat16
FLOATS = ("float64", "float32", "float16", "bfloat16")
COMPLEX = ("complex64", "complex128")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NAN, INF = np.nan, np.inf
I0 = np.array([0])
NONE = np.zeros(0, np.int32)


X = np.array([[[1.5, -2, 3], [0.5, 4, -1]], [[2, 1, 1], [-3, 0.25, 2]]])
TIES = np.float64([[3, 1, 3, 3], [2, 2, 2, 2], [1, 5, 4, 5]])
ZEROS = np.float64([[0, 2, 3], [0, 4, 0], [5, 6, 7]])
WRAP = np.array([[100, 3], [100, 7], [101, 2]])

CASES = [
    *(
        case(op, cast(X, dtype), np.array([0, -1]), keep_dims=keep)
        for op in ("Sum", "Prod", "Mean", "Max", "Min", "EuclideanNorm")
        for dtype in FLOATS
        for keep in (False, True)
    ),
    *(case(op, cast(X + 0.5j, dtype), np.array([1])) for op in ("Sum", "Prod", "Mean") for dtype in COMPLEX),
    *(
        case("EuclideanNorm", cast(X + 0.5j, dtype), np.array(axis, np.int32), keep_dims=True)
        for dtype in COMPLEX
        for axis in ([1], [])
    ),
    *(
        case(op, cast(WRAP, dtype), I0)
        for op in ("Sum", "Prod", "Mean", "Max", "Min", "EuclideanNorm")
        for dtype in INTS
    ),
    *(
        case(op, np.arange(6.0).reshape(2, 3), np.array([0]), keep_dims=True).using(symbolic=("b, 3",), name="sym")
        for op in ("Sum", "Mean", "Max", "Min", "EuclideanNorm")
    ),
    case("Prod", np.arange(6.0).reshape(2, 3), np.array([1])).using(symbolic=("b, 3",), name="sym"),
    case("Sum", np.arange(24.0).reshape(2, 3, 4), np.array([1, 2], np.int64)).using(symbolic=("b, n, 4",), name="sym2"),
    case("Mean", np.arange(24).reshape(2, 3, 4), np.array([0, 1])).using(symbolic=("b, n, 4",), name="sym-int"),
    case("Sum", np.float32([[1, NAN]]), np.array([-1])).using(name="nan"),
    # Axes: none, a scalar, a matrix, all.
    *(case(op, np.float32([[-3, 2]]), NONE) for op in ("Sum", "Prod", "Mean", "Max", "Min", "EuclideanNorm")),
    case("Mean", np.int32([[-3, 2]]), NONE),
    case("EuclideanNorm", np.int32([[-3, 2]]), NONE),
    case("Sum", X, np.array(1)).using(name="scalar-axis"),
    case("Sum", np.float32(3), NONE).using(name="rank0"),
    case("Max", np.float32(3), NONE).using(name="rank0"),
    case("Mean", X, np.array([0, 1, 2])),
    case("Sum", X, np.array([3])).using(error="axis 3 is out of range", name="bad-axis"),
    case("Sum", np.float32(1), I0).using(error="rank 0", name="bad-axis-rank0"),
    case("Max", X, np.array([1, -2])).using(error="axis 1 is repeated", name="twice"),
    # Empty reductions.
    *(
        case(op, np.zeros((0, 2), dtype), I0).using(name=f"empty-{dtype}")
        for op in ("Sum", "Prod", "Max", "Min")
        for dtype in ("float32", "float16", "int32", "uint8")
    ),
    case("Mean", np.zeros((0, 2), np.float32), I0).using(name="empty"),
    case("Mean", np.zeros((0, 2), np.complex64), I0).using(name="empty-complex"),
    case("Mean", np.zeros((0, 2), np.int32), np.array([1])).using(name="empty-int"),
    case("All", np.zeros((0, 2), bool), I0).using(name="empty"),
    case("Any", np.zeros((0, 2), bool), I0).using(name="empty"),
    # NaN, infinity, ties.
    *(
        # TensorFlow's gradient divides by the number of elements equal to NaN, 0; ours is 0.
        case(op, cast([[1, NAN, 2], [NAN, 1, -INF], [2, 3, INF]], dtype), np.array([axis])).using(grad=False)
        for op in ("Max", "Min")
        for dtype in FLOATS
        for axis in (0, 1)
    ),
    *(
        case(op, TIES, np.array(axis)).using(name=f"ties-{axis}")
        for op in ("Max", "Min")
        for axis in (0, 1, [0, 1])
    ),
    *(case("Prod", ZEROS.astype(t), np.array(axis)).using(name=f"zeros-{t}-{axis}") for t in ("float32", "complex64")
      for axis in (0, 1, [0, 1])),
    case("EuclideanNorm", np.float32([[0, 0], [0, 3]]), np.array([1])).using(name="zero"),
    # Integers: 64-bit sums in means, C division, wrapping squares.
    case("Mean", np.int8([100, 100, 101]), I0).using(name="wide"),
    case("Mean", np.uint8([[200, 200, 101], [1, 2, 3]]), np.array([1])).using(name="wide"),
    case("Mean", np.int32([2**31 - 1, 2**31 - 1, 3]), I0).using(name="wide"),
    case("Mean", np.int32([[-3, -4], [3, 4]]), np.array([1])).using(name="towards-zero"),
    case("Mean", np.uint64([2**63, 2**62]), I0).using(name="unsigned"),
    case("EuclideanNorm", np.int8([12, 0]), I0).using(name="wrap"),
    case("EuclideanNorm", np.int16([200, 0]), I0).using(name="wrap"),
    case("EuclideanNorm", np.int32([2**15] * 3), I0).using(name="wrap"),
    case("EuclideanNorm", np.uint8([15, 15, 10]), I0).using(name="wrap"),
    case("EuclideanNorm", np.float16([300, 400]), I0).using(name="overflow"),
    *(
        case(op, np.array([[True, False], [True, True]]), np.array(axis), keep_dims=keep)
        for op in ("All", "Any")
        for axis in (0, [0, 1], -1)
        for keep in (False, True)
    ),
    case("Any", np.zeros((2, 3), bool), np.array([0])).using(symbolic=("b, 3",), name="sym"),
    # ArgMax, ArgMin.
    *(
        case(op, cast([[3, 7], [4, 100], [4, 3]], dtype), np.array(axis))
        for op in ("ArgMax", "ArgMin")
        for dtype in (*FLOATS, *INTS)
        for axis in (0, -1)
    ),
    *(case("ArgMax", X, np.array(1), output_type=t) for t in (tf.int16, tf.uint16, tf.int32, tf.int64)),
    *(case("ArgMin", X, np.array(1, np.int64), output_type=t) for t in (tf.int32, tf.int64)),
    *(case(op, np.array([[False, True], [False, False]]), np.array(1)) for op in ("ArgMax", "ArgMin")),
    *(
        case(op, cast(x, dtype), np.array(-1)).using(name=f"{i}-{dtype}")
        for op in ("ArgMax", "ArgMin")
        for dtype in ("float32", "float16", "bfloat16", "float64")
        for i, x in enumerate(
            (
                [1, NAN, 2],
                [NAN, 1, 2],
                [NAN, NAN],
                [NAN, -INF, NAN],
                [-INF, -INF],
                [INF, INF, 1],
                [[1, 2, NAN, 9, 4, 5, NAN, 6, 9, 1, NAN, 1, 1, 8, 2, NAN, 9]] * 2,
            )
        )
    ),
    case("ArgMax", np.zeros((2, 3), np.float32), np.array(1)).using(symbolic=("b, 3",), name="sym"),
    case("ArgMax", np.zeros((0, 3), np.float32), np.array(1)).using(name="no-rows"),
    case("ArgMax", np.zeros((0, 3), np.float32), np.array(0)).using(error="is empty", name="empty"),
    case("ArgMax", np.float32(1), np.array(0)).using(error="scalar", name="rank0"),
    case("ArgMin", np.zeros((2, 3), np.float32), np.array(2)).using(error="out of range", name="bad-axis"),
]  # fmt: skip


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


HOST = [
    *((["Sum", "Prod", "Max", "Min", "Mean"], cast(X * 4, t)) for t in (*FLOATS, *INTS)),
    (["Sum", "Prod", "Max", "Min"], np.zeros((2, 0, 3), np.int32)),
    (["All", "Any"], np.array([[[True, False]], [[True, True]]])),
]


@pytest.mark.parametrize("x", [pytest.param((n, x), id=f"{n}-{x.dtype}") for names, x in HOST for n in names])
@pytest.mark.parametrize("keep_dims", [False, True])
def test_constant_folding_of_a_reduction(x, keep_dims):
    name, x = x
    for axis in ([], [0], [1], [-1, 0], [0, 1, 2]):
        axis = np.array(axis, np.int32)
        expected = tf.raw_ops.__dict__[name](input=x, axis=axis, keep_dims=keep_dims).numpy()
        actual = registry.lookup(name).fold(x, axis, keep_dims=keep_dims)
        assert isinstance(actual, np.ndarray)
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=1e-2)


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
def test_constant_folding_of_arg_extremes(name):
    for x in (np.array([3, 1, 3, 1]), np.float32([NAN, 1, NAN, 2, 2, 1]), np.array([[1, 2], [2, 1]])):
        expected = tf.raw_ops.__dict__[name](input=x, dimension=-1)
        actual = registry.lookup(name).fold(x, np.array(-1))
        np.testing.assert_array_equal(actual, expected)
        assert actual.dtype == np.int64


def test_symbolic_dimensions_are_folded():
    b, c = jax.export.symbolic_shape("b, c")
    shape = np.empty(3, object)
    shape[:] = [b, 3, c]
    host = {name: registry.lookup(name).fold for name in ("Prod", "Sum", "Max", "Min", "Cumsum", "Cumprod")}
    assert host["Prod"](shape, I0).item() == 3 * b * c
    assert host["Sum"](shape, I0, keep_dims=True).tolist() == [b + 3 + c]
    assert host["Prod"](shape[:0], I0).item() == 1
    assert host["Max"](shape[:2], I0).item() == jax.core.max_dim(b, 3)
    assert host["Min"](shape[:2], I0).item() == jax.core.min_dim(b, 3)
    assert host["Prod"](shape.reshape(1, 3), np.array([0, 1])).item() == 3 * b * c
    assert host["Prod"](shape.reshape(1, 3), np.array([1]), keep_dims=True).tolist() == [[3 * b * c]]
    assert host["Prod"](shape[:1].reshape(()), NONE).item() == b
    assert host["Cumprod"](shape, np.array(0), exclusive=True).tolist() == [1, b, 3 * b]
    assert host["Cumsum"](shape, np.array(0), reverse=True).tolist() == [b + 3 + c, 3 + c, c]
