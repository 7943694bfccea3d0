"""Sums of 16-bit floats in float32: in 16 bits they stop growing."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.compiling import fast_options

raw = tf.raw_ops
RNG = np.random.default_rng(0)
ZEROS = np.zeros(3000, np.int32)
POOLED = {"ksize": [1, 60, 60, 1], "strides": [1, 60, 60, 1], "padding": "VALID"}
INDICES = np.stack([ZEROS, np.arange(3000)], 1).astype(np.int64)
SUMS = {
    "AddN": ((60, 2), lambda x: tf.add_n(tf.unstack(x))),
    "AvgPool": ((1, 60, 60, 2), lambda x: raw.AvgPool(value=x, **POOLED)),
    "AvgPoolGrad": (
        (1, 80, 80, 1),
        lambda x: raw.AvgPoolGrad(
            orig_input_shape=[1, 80, 80, 1], grad=x, ksize=[1, 60, 60, 1], strides=[1] * 4, padding="SAME"
        ),
    ),
    "BiasAddGrad": ((2, 50, 60, 3), lambda x: raw.BiasAddGrad(out_backprop=x)),
    "BiasAddGrad-NCHW": ((2, 3, 50, 60), lambda x: raw.BiasAddGrad(out_backprop=x, data_format="NCHW")),
    "Einsum": ((3000, 2), lambda x: tf.einsum("ab->b", x)),
    "L2Loss": ((3000,), lambda x: raw.L2Loss(t=x)),
    "SegmentSum": ((3000, 2), lambda x: raw.SegmentSum(data=x, segment_ids=ZEROS)),
    "SparseReduceSum": (
        (3000,),
        lambda x: raw.SparseReduceSum(
            input_indices=INDICES, input_values=x, input_shape=[1, 3000], reduction_axes=[1], keep_dims=False
        ),
    ),
    "SparseSegmentSumGrad": (
        (1, 2),
        lambda x: raw.SparseSegmentSumGrad(grad=x, indices=ZEROS, segment_ids=ZEROS, output_dim0=2),
    ),
    "SparseSegmentSqrtNGrad": (
        (1, 2),
        lambda x: raw.SparseSegmentSqrtNGrad(grad=x, indices=ZEROS, segment_ids=ZEROS, output_dim0=2),
    ),
    "UnsortedSegmentSum": ((3000, 2), lambda x: raw.UnsortedSegmentSum(data=x, segment_ids=ZEROS, num_segments=1)),
}


@pytest.mark.default_cases("AvgPool-bfloat16", "Einsum-half")
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["half", "bfloat16"])
@pytest.mark.parametrize("name", SUMS)
def test_against_double_precision(name, dtype):
    shape, fn = SUMS[name]
    x = RNG.uniform(0.5, 1.5, shape).astype(dtype)
    expected = tf.function(fn, autograph=False)(x.astype(np.float64)).numpy()
    converted = tf2jax.convert_functional(tf.function(fn, autograph=False), tf.TensorSpec(shape, x.dtype))
    rounded = 2 * float(ml_dtypes.finfo(dtype).eps)
    for run in (converted, jax.jit(converted, compiler_options=fast_options())):
        found = np.asarray(run(x))
        assert found.dtype == dtype
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=rounded)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["half", "bfloat16"])
def test_cross_entropy(dtype):
    x, labels = RNG.normal(size=(2, 3000)).astype(dtype), RNG.dirichlet(np.ones(3000), 2).astype(dtype)
    fn = tf.function(lambda x, y: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=y), autograph=False)
    expected = fn(x.astype(np.float64), labels.astype(np.float64))
    found = tf2jax.convert_functional(fn, tf.TensorSpec(x.shape, x.dtype), tf.TensorSpec(x.shape, x.dtype))(x, labels)
    for e, f in zip(expected, found, strict=True):
        assert f.dtype == dtype
        rounded = float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(np.asarray(f, np.float64), e.numpy(), rtol=rounded, atol=1e-7)
