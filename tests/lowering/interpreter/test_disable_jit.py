"""Converted functions under `jax.disable_jit`: values and gradients."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

R = np.random.default_rng(0)
IMAGE, KERNEL = R.normal(size=(1, 6, 6, 2)).astype(np.float32), R.normal(size=(3, 3, 2, 4)).astype(np.float32)


def _loop(x):
    return tf.while_loop(lambda x: tf.reduce_sum(x * x) < 1e4, lambda x: (x * 1.5,), (x,))[0]


@tf.custom_gradient
def _clipped(x):
    return tf.sin(x), lambda dy: tf.clip_by_value(dy, -0.1, 0.1)


FUNCTIONS = {
    "conv2d": lambda x: tf.nn.conv2d(x, KERNEL, 1, "SAME"),
    "conv2d transposed": lambda x: tf.nn.conv2d_transpose(x, KERNEL.transpose(0, 1, 3, 2), [1, 12, 12, 4], 2),
    "depthwise": lambda x: tf.nn.depthwise_conv2d(x, KERNEL[..., :1], [1, 1, 1, 1], "SAME"),
    "max_pool": lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"),
    "avg_pool": lambda x: tf.nn.avg_pool2d(x, 3, 2, "VALID"),
    "top_k": lambda x: tf.math.top_k(x, 1).values,
    "sort": lambda x: tf.sort(x, 1),
    "cumsum": lambda x: tf.cumsum(x, 1),
    "logsumexp": lambda x: tf.math.cumulative_logsumexp(x, 2),
    "resize": lambda x: tf.image.resize(x, [3, 3]),
    "atan2": lambda x: tf.atan2(x, x + 1),
    "no_nan": lambda x: tf.math.multiply_no_nan(x, x) + tf.math.xlogy(x * x, x * x),
    "loop": _loop,
    "cond": lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: tf.nn.relu(x)),
    "custom gradient": _clipped,
    "matmul": lambda x: tf.linalg.matmul(x, x, transpose_a=True),
    "masked": lambda x: tf.boolean_mask(x, x > 0),
    "shuffle": lambda x: tf.gather(x, tf.random.experimental.stateless_shuffle(tf.range(6), [1, 2]), axis=1),
}


@pytest.mark.default_cases("conv2d", "max_pool", "top_k", "resize", "loop", "custom gradient", "masked")
@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_disable_jit_keeps_values_and_gradients(fn):
    jax_fn = tf2jax.convert_functional(tf.function(fn, autograph=False), tf.TensorSpec(IMAGE.shape))
    x = tf.constant(IMAGE)
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = tf.function(fn, autograph=False)(x)
        loss = tf.reduce_sum(result**2)
    with jax.disable_jit():
        found = jax_fn(IMAGE)
        gradient = jax.grad(lambda x: (jax_fn(x) ** 2).sum())(IMAGE)
    np.testing.assert_allclose(found, result.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient, tf.convert_to_tensor(tape.gradient(loss, x)).numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.full
def test_disable_jit_with_vmap():
    conv = tf.function(lambda x: tf.nn.max_pool2d(tf.nn.conv2d(x, KERNEL, 1, "SAME"), 2, 2, "SAME"))
    jax_fn = tf2jax.convert_functional(conv, tf.TensorSpec(IMAGE.shape))
    images = np.stack([IMAGE, IMAGE * 2])
    with jax.disable_jit():
        found = jax.vmap(jax_fn)(images)
    np.testing.assert_allclose(found, [conv(v).numpy() for v in images], rtol=1e-4, atol=1e-5)
