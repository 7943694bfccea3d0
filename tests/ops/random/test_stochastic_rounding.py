"""StochasticCastToInt against TensorFlow's kernel."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_library

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

KEY, COUNTER = np.array([2**63 + 12345], np.uint64), np.array([2**64 - 2, 77], np.uint64)
X = np.array([0.3, -0.3, 7, np.nan, 2.5, -2.5, 12.7, -90.25, 126.9, -0.0, 300, -300, np.inf, -np.inf, 99.01, 1.5])
CASES = [
    *(
        case("StochasticCastToInt", X.astype(t), KEY, COUNTER, np.int32(1), Tout=out).using(
            name=f"{t}-{out.name}", vmap=t == "float32"
        )
        for t, out in (
            ("float32", tf.int8),
            ("float64", tf.int16),
            ("float16", tf.int8),
            ("bfloat16", tf.int8),
            ("float64", tf.int8),
        )
    ),
    case("StochasticCastToInt", X[:12].astype(tf.bfloat16.as_numpy_dtype), KEY, COUNTER, np.int32(1), Tout=tf.int16),
    case("StochasticCastToInt", X[:12].astype(np.float16).reshape(3, 4), KEY, COUNTER, np.int32(3), Tout=tf.int32),
    case("StochasticCastToInt", np.zeros([0, 2]), KEY, COUNTER, np.int32(1), Tout=tf.int32).using(name="empty"),
    case("StochasticCastToInt", np.float32(1.25), KEY, COUNTER, np.int32(1), Tout=tf.int32).using(name="scalar"),
    case("StochasticCastToInt", X, KEY, COUNTER, np.int32(2), Tout=tf.int8).using(error="algorithm 2"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
def test_mean_of_rounding_to_int32():
    """Rounding to int32 has other bits than TensorFlow's, but its distribution."""

    def fn(x, key, counter):
        return op_def_library.apply_op("StochasticCastToInt", input=x, key=key, counter=counter, alg=1, Tout=tf.int32)

    x = np.repeat(np.float32([0.1, -0.7, 1000.5, 3]), 10_000).reshape(4, -1)
    specs = [tf.TensorSpec(v.shape, v.dtype) for v in (x, KEY, COUNTER)]
    actual = np.asarray(tf2jax.convert_functional(tf.function(fn), *specs)(x, KEY, COUNTER))
    assert actual.dtype == np.int32 and np.all(np.abs(actual - x) < 1)
    np.testing.assert_allclose(actual.mean(1), x[:, 0], atol=0.02)
