"""Nonzero coordinates, one-hot encoding and in-place row updates."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import LoweringError

BF16 = ml_dtypes.bfloat16
M = np.arange(12.0, dtype=np.float32).reshape(4, 3)
I32 = np.int32
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


def _m(dtype):
    return (M % 3 - 1 if np.dtype(dtype).kind != "u" else M).astype(dtype)


CASES = [
    # OneHot.
    *(
        case("OneHot", np.array(i, t), I32(4), np.float32(1), np.float32(0), axis=a).using(
            name=f"{i}-{np.dtype(t)}-{a}"
        )
        for t in ("uint8", "int8", "int32", "int64")
        for i, a in ((2, -1), ([0, 3, 5], -1), ([0, 3, 5], 0), ([[1, 2, 0], [3, 0, 9]], 1), ([], -1))
    ),
    case("OneHot", np.array([-1, 0, 3]), I32(3), np.float32(1), np.float32(0)).using(name="negative"),
    *(case("OneHot", np.array([1, 0]), I32(3), np.array(1, t), np.array(0, t)) for t in DTYPES),
    case("OneHot", np.array([1, 0]), I32(3), np.float64(np.nan), np.float64(-2.5)).using(name="values"),
    case("OneHot", np.array([1, 0]), I32(3), np.float32(1), np.float32(-0.0)).using(name="minus-zero"),
    case("OneHot", np.array([1, 255, 0], np.uint8), I32(300), I32(1), I32(0)).using(name="wide"),
    case("OneHot", np.array([1, 0]), I32(0), I32(1), I32(0)).using(name="depth0"),
    case("OneHot", np.array([1, 0, 2]), I32(3), I32(5), I32(-1)).using(symbolic=("b", "", ""), name="sym"),
    case("OneHot", np.array([1, 0]), I32(-1), I32(1), I32(0)).using(error="non-negative", name="depth"),
    case("OneHot", np.array([1, 0]), I32(2), I32(1), I32(0), axis=-2).using(error="axis", name="axis"),
    # Where.
    *(
        case("Where", (_m(t) > 0) if t == "bool" else _m(t)).using(jit=False) for t in DTYPES if t != "float16"
    ),  # no kernel
    *(
        case("Where", np.array(x)).using(jit=False, name=f"{np.shape(x)}-{i}")
        for i, x in enumerate(
            ([np.nan, 0.0, -0.0, np.inf], [[[True], [False]]], [0, 0], np.zeros((0, 3)), np.ones((2, 0)))
        )
    ),
    case("Where", M).using(baked=("input",), name="host"),
    # Inplace.
    *(
        case(o, M, np.array(i, I32), np.float32(v)).using(name=f"{i}")
        for o in ("InplaceAdd", "InplaceSub", "InplaceUpdate")
        for i, v in (([1, 3], [[1, 2, 3], [4, 5, 6]]), ([5, -1], [[1, 2, 3], [4, 5, 6]]), ([], np.zeros((0, 3))))
    ),
    *(
        case(o, np.arange(6, dtype=t).reshape(3, 2), I32([1, 1]), np.array([[1, 2], [3, 4]], t))
        for o in ("InplaceAdd", "InplaceSub")
        for t in ("int32", "int64", "float64", "float32", BF16)
    ),
    *(case("InplaceUpdate", (_m(t) > 0) if t == "bool" else _m(t), I32([2]), _m(t)[:1]) for t in DTYPES),
    case("InplaceUpdate", M, I32([1]), M[0]).using(error="do not fit", name="rank"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def _convert(fn, *specs):
    return tf2jax.convert_functional(tf.function(fn, autograph=False), *specs)


@pytest.mark.full
def test_where_under_jit():
    fn = _convert(lambda x: tf.where(x > 0), tf.TensorSpec((2, 2)))
    x = np.float32([[0, 1], [2, 0]])
    np.testing.assert_array_equal(fn(x), [[0, 1], [1, 0]])
    with pytest.raises(LoweringError, match="dynamic_shape_bound"):
        jax.jit(fn)(x)
    with tf2jax.override_config("dynamic_shape_bound", 3):
        fn = _convert(lambda x: tf.where(x > 0), tf.TensorSpec((2, 2)))
    np.testing.assert_array_equal(jax.jit(fn)(x), [[0, 1], [1, 0], [-1, -1]])
    np.testing.assert_array_equal(fn(x), [[0, 1], [1, 0]])


@pytest.mark.full
def test_one_hot_of_ones_and_zeros_has_no_select():
    """A select takes 10 % of a decoder step with one-hot cache writes on CPU."""
    fn = _convert(lambda i: tf.one_hot(i, 4), tf.TensorSpec((2,), tf.int32))
    jaxpr = jax.make_jaxpr(fn)(np.int32([3, -1]))
    assert "select_n" not in {e.primitive.name for e in jaxpr.eqns}
    np.testing.assert_array_equal(fn(np.int32([3, -1])), [[0, 0, 0, 1], [0] * 4])
